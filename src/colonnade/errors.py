"""Every exception of Colonnade, and the one value that becomes an error on the wire.

    ColonnadeError
    ├─ ProtocolError          a rule of the conversation was broken
    │  ├─ LocalProtocolError    by us: a bug in the calling code
    │  │  ├─ InvalidArgument        an argument has a wrong value; a ValueError, too
    │  │  └─ InvalidArgumentType    an argument has a wrong type; a TypeError, too
    │  └─ RemoteProtocolError   by them
    │     └─ Fault                and this is how they are told
    ├─ RemoteError            the peer answered with an error: code, message, data
    ├─ ChannelError           nothing was answered
    │  ├─ CannotConnect
    │  ├─ CannotFetch           a document that somebody else named
    │  ├─ ConnectionLost
    │  └─ TimedOut
    ├─ AuthError
    │  ├─ LoginRequired
    │  └─ ScopeRequired
    ├─ Refused                policy or the user said no
    └─ ToolError              raise it in a handler: the model reads the message
       └─ Declined              the person asked said no, or went away

Rules: no imports from the rest of the package; codes are data, never classes. What code needs to
know of an error is a field; `str()` composes the sentence of them, which is for people alone.
"""

from typing import Any, ClassVar, NamedTuple, Self

# How a sentence ends about a call that was sent and not answered.
EFFECT_UNKNOWN = "whether it had an effect is unknown"


class ColonnadeError(Exception):
    """Anything that Colonnade raises on purpose.

    `server` is the server that the message names, where it names one; `hint` is what to do, the
    end of the sentence; `status` is that of the HTTP answer behind it.
    """

    args: tuple[Any, ...]
    status: int | None = None
    server: str | None = None
    hint: str = ""

    def __init__(self, *args: object, server: str | None = None, hint: str = "") -> None:
        super().__init__(*args)
        if server is not None:
            self.server = server
        if hint:
            self.hint = hint

    @property
    def summary(self) -> str:
        """What happened, and to what."""
        return super().__str__()

    @property
    def sentence(self) -> str:
        """The summary, and what to do, without what a server wrote to that."""
        return f"{self.summary}; {self.hint}" if self.hint else self.summary

    def __str__(self) -> str:
        return self.sentence

    def with_server(self, server: str) -> Self:
        """The same error, with the name of the server that it is about in its message."""
        if self.server != server:
            self.args = (f"server {server!r}: {self.summary}",)
            self.server = server
        return self

    def copy(self) -> Self:
        """The same error for another who waits for it: a traceback belongs to one."""
        same = type(self).__new__(type(self), *self.args)
        same.__dict__.update(self.__dict__)
        return same


class ProtocolError(ColonnadeError):
    """A rule of the conversation was broken."""


class LocalProtocolError(ProtocolError):
    """The calling code broke a rule; nothing was sent.

    `argument` is the name of the parameter that was given a wrong value, where it was one: `hosts`
    for `hosts=["a b"]`.
    """

    argument: str = ""

    def __init__(
        self, *args: object, server: str | None = None, hint: str = "", argument: str = ""
    ) -> None:
        super().__init__(*args, server=server, hint=hint)
        if argument:
            self.argument = argument


class InvalidArgument(LocalProtocolError, ValueError):
    """A function, constructor or decorator was called with a value that it cannot use."""


class InvalidArgumentType(LocalProtocolError, TypeError):
    """A function, constructor or decorator was called with an object of the wrong type, with a
    keyword that it does not have, or with a function whose signature it cannot use."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule."""


class FastEnum:
    """One of a few answers to a question, the same only if it is the same object.

    Each annotation of a kind of words becomes one of them. An `Enum` does the same; but to make
    one takes six times as long, and every server makes all of these before its first answer.
    """

    __slots__ = ("name",)

    def __init_subclass__(cls) -> None:
        for name in cls.__annotations__:
            setattr(cls, name, cls(name))

    def __init__(self, name: str) -> None:
        self.name: str = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (type(self), self.name)  # a copy is the same one, too

    @classmethod
    def members(cls) -> "list[Self]":
        """All words of this kind, in their order."""
        return [getattr(cls, name) for name in cls.__annotations__]


class FaultKind(FastEnum):
    """What went wrong, free of numbers: `revision.number` gives each its code."""

    PARSE: "ClassVar[FaultKind]"
    INVALID_REQUEST: "ClassVar[FaultKind]"
    METHOD_NOT_FOUND: "ClassVar[FaultKind]"
    INVALID_PARAMS: "ClassVar[FaultKind]"
    INTERNAL: "ClassVar[FaultKind]"
    RESOURCE_MISSING: "ClassVar[FaultKind]"
    HEADER_MISMATCH: "ClassVar[FaultKind]"
    CAPABILITY_MISSING: "ClassVar[FaultKind]"
    VERSION_UNSUPPORTED: "ClassVar[FaultKind]"
    URL_ELICITATION_REQUIRED: "ClassVar[FaultKind]"
    USER_REJECTED: "ClassVar[FaultKind]"
    TOO_MANY: "ClassVar[FaultKind]"


class Fault(RemoteProtocolError):
    """An error that will be told to the peer: its kind, words, and data.

    `data` is anything that JSON can carry. The number is chosen late, by the peer's revision.
    `raw_id` is the id of the request that is answered with this, as it was written; empty where
    none could be read. `settles` is the id of our own request whose reply was malformed: that
    call ends with this fault instead of waiting for ever. `expects_no_response` is set for a fault
    about a notification or a response: those are never answered.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        data: Any = None,
        *,
        raw_id: bytes = b"",
        settles: int | str | None = None,
        expects_no_response: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.message = message
        self.data = data
        self.raw_id = raw_id
        self.settles = settles
        self.expects_no_response = expects_no_response

    def __repr__(self) -> str:
        return f"Fault({self.kind.name}, {self.message!r})"


class RemoteError(ColonnadeError):
    """The peer answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None, *, hint: str = "") -> None:
        super().__init__(f"{message} ({code})", hint=hint)
        self.code = code
        self.message = message
        self.data = data


class Output(NamedTuple):
    """The last lines that a process wrote beside its messages. It may have written them for one
    caller: only who may see what that caller does may see them."""

    stderr: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stderr or self.stdout)

    def __str__(self) -> str:
        """As the end of a sentence: one line stays in it, more stand below."""
        lines = self.stderr or self.stdout
        if not lines:
            return ""
        words = "; its last lines:" if self.stderr else "; it printed:"
        return f"{words} {lines[0]}" if len(lines) == 1 else "\n    ".join((words, *lines))


NO_OUTPUT = Output()


class ChannelError(ColonnadeError):
    """Nothing was answered; what the peer did is unknown, unless `not_sent` says: nothing.

    `output` is what the process of the server wrote last, where it is one. `effect_unknown` is set
    where a call may have had an effect, and the sentence says so.
    """

    not_sent: bool = False
    effect_unknown: bool = False
    output: Output = NO_OUTPUT

    def __init__(
        self,
        *args: object,
        server: str | None = None,
        hint: str = "",
        output: Output = NO_OUTPUT,
    ) -> None:
        super().__init__(*args, server=server, hint=hint)
        if output:
            self.output = output

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines that the process of the server wrote to its standard error."""
        return self.output.stderr

    def __str__(self) -> str:
        effect = f"; {EFFECT_UNKNOWN}" if self.effect_unknown else ""
        return f"{self.sentence}{effect}{self.output}"


class CannotConnect(ChannelError):
    """The other side was never reached."""

    not_sent: bool = True


class CannotFetch(ChannelError):
    """A document was not fetched. The words are the same for every cause, and may be passed on;
    `why` is for whoever runs this program, and says whether something answered in their network.
    """

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


class ConnectionLost(ChannelError):
    """The channel ended while something was waiting on it."""


class TimedOut(ChannelError):
    """The time for an answer ran out."""


class AuthError(ColonnadeError):
    """The caller is not who they must be, or may not do this.

    `reason` is what the server said of it (`invalid_token: the token has expired`), empty where it
    said nothing; `scopes` are those that it named. `token_sent` says that it refused a token.
    """

    reason: str = ""
    scopes: tuple[str, ...] = ()
    token_sent: bool = False


class LoginRequired(AuthError):
    """No valid credentials: log in."""


class ScopeRequired(AuthError):
    """The credentials are good, their scopes are not enough."""


class Refused(ColonnadeError):
    """Policy or the user said no."""


class ToolError(ColonnadeError):
    """Raise it in a handler to tell the model what went wrong and what to try."""


class Declined(ToolError):
    """The person who was asked declined or cancelled."""
