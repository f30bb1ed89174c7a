"""Exceptions of Colonnade, and the fault that becomes a JSON-RPC error on the wire.

    ColonnadeError
    ├─ ProtocolError          the protocol was violated
    │  ├─ LocalProtocolError    by the calling code: a bug
    │  │  ├─ InvalidArgument        an argument has a wrong value; a ValueError, too
    │  │  └─ InvalidArgumentType    an argument has a wrong type; a TypeError, too
    │  └─ RemoteProtocolError   by the peer
    │     └─ Fault                sent to the peer as a JSON-RPC error
    ├─ RemoteError            the peer sent an error response: code, message, data
    ├─ ChannelError           there was no response
    │  ├─ CannotConnect
    │  ├─ CannotFetch           a document whose URL came from another party
    │  ├─ ConnectionLost
    │  └─ TimedOut
    ├─ AuthError
    │  ├─ LoginRequired
    │  └─ ScopeRequired
    ├─ TaskEnded              a task ended without a result: cancelled, expired, or unknown
    ├─ Refused                rejected by policy or by the user
    └─ ToolError              raise it in a handler: the model reads the message
       └─ Declined              the user declined or cancelled an elicitation

Rules: no imports from the rest of the package. Error codes are data, never classes. What code needs
to know of an error is a field; `str()` composes the message from the fields and is for people only.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

# End of the message for a request that was sent and got no response.
EFFECT_UNKNOWN = "whether it had an effect is unknown"


class ColonnadeError(Exception):
    """Base class of every error that Colonnade raises on purpose.

    `server` is the name of the server that the error is about, if any; `hint` says what to do and
    is the end of the message; `status` is the HTTP status of the response behind the error.
    `public` is what callers on other machines are told instead, if the message has what is for the
    operator alone: paths and the configuration of this machine.
    """

    args: tuple[Any, ...]
    status: int | None = None
    server: str | None = None
    hint: str = ""
    public: str = ""

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
        """The summary and the hint, without the output of a server process."""
        return f"{self.summary}; {self.hint}" if self.hint else self.summary

    def __str__(self) -> str:
        return self.sentence

    def with_server(self, server: str) -> Self:
        """Return this error with the name of the server it is about in its message."""
        if self.server != server:
            self.args = (f"server {server!r}: {self.summary}",)
            self.server = server
        return self

    def copy(self) -> Self:
        """Return a copy of this error. A traceback belongs to one raise, so each waiter raises its
        own."""
        same = type(self).__new__(type(self), *self.args)
        same.__dict__.update(self.__dict__)
        return same


class ProtocolError(ColonnadeError):
    """The protocol was violated."""


class LocalProtocolError(ProtocolError):
    """The calling code violated the protocol or called the API with a wrong argument; nothing was
    sent.

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
    """The peer violated the protocol."""


E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """The same exception, without the stack frames that it and its causes passed through.

    A frame refers to all local variables, such as the request and its arguments. If the request
    refers to the exception in turn, this reference cycle stays in memory until the garbage
    collector runs. If the collector does not track one of the objects (`gc=False`), the cycle stays
    for ever.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class FastEnum:
    """An enumeration whose members compare by identity.

    Each annotation of a subclass becomes a member. `enum.Enum` does the same, but a class takes six
    times as long to create, and every server creates all of these before its first response.
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
        return getattr, (type(self), self.name)  # copies and pickles are the same object

    @classmethod
    def members(cls) -> "list[Self]":
        """All members, in the order of their definition."""
        return [getattr(cls, name) for name in cls.__annotations__]


class FaultKind(FastEnum):
    """The kind of a fault, independent of revisions; `revision.error_code` maps it to a JSON-RPC
    code."""

    PARSE: "ClassVar[FaultKind]"
    INVALID_REQUEST: "ClassVar[FaultKind]"
    METHOD_NOT_FOUND: "ClassVar[FaultKind]"
    INVALID_PARAMS: "ClassVar[FaultKind]"
    INTERNAL: "ClassVar[FaultKind]"
    RESOURCE_MISSING: "ClassVar[FaultKind]"
    HEADER_MISMATCH: "ClassVar[FaultKind]"
    CAPABILITY_MISSING: "ClassVar[FaultKind]"
    EXTENSION_MISSING: "ClassVar[FaultKind]"
    VERSION_UNSUPPORTED: "ClassVar[FaultKind]"
    URL_ELICITATION_REQUIRED: "ClassVar[FaultKind]"
    USER_REJECTED: "ClassVar[FaultKind]"
    TOO_MANY: "ClassVar[FaultKind]"


class Fault(RemoteProtocolError):
    """An error that is sent to the peer: its kind, message and data.

    `data` is any JSON value. The code is chosen late, by the revision of the peer. `raw_id` is the
    id of the request that this responds to, as it was written, and empty if none could be read.
    `settles` is the id of our own request whose response was malformed: that request ends with this
    fault instead of waiting for its timeout. `expects_no_response` is set for a fault about a
    notification or a response: those are never answered.
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


# Members of `data` in an error and of `_meta` in a result with `isError`. With these, a gateway or
# a replica reports whether a request may have had an effect.
NOT_SENT_KEY = "notSent"
EFFECT_UNKNOWN_KEY = "effectUnknown"


def says_not_sent(members: Any) -> bool:
    """Whether `members` (`data` of an error or `_meta` of a result) reports that the request was
    not started."""
    if not isinstance(members, dict):
        return False
    said = cast("dict[str, Any]", members)
    return said.get(NOT_SENT_KEY) is True or said.get(EFFECT_UNKNOWN_KEY) is False


def says_effect_unknown(members: Any) -> bool:
    """Whether `members` (`data` of an error or `_meta` of a result) reports that the request may
    have had an effect."""
    said = cast("dict[str, Any]", members) if isinstance(members, dict) else {}
    return said.get(EFFECT_UNKNOWN_KEY) is True


class RemoteError(ColonnadeError):
    """The peer sent a JSON-RPC error response.

    `not_sent` and `effect_unknown` are set if the peer, such as a gateway, says so in `data`.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, hint: str = "") -> None:
        super().__init__(f"{message} ({code})", hint=hint)
        self.code = code
        self.message = message
        self.data = data
        # The error as it was sent, if hidden text in its message or its data was made visible.
        self.untouched: RemoteError | None = None

    @property
    def not_sent(self) -> bool:
        """Whether the request was not started: it may be sent again."""
        return says_not_sent(self.data)

    @property
    def effect_unknown(self) -> bool:
        """Whether the request may have had an effect."""
        return says_effect_unknown(self.data)


class Output(NamedTuple):
    """The last lines that a server process wrote to stderr, or to stdout beside its messages.

    They may have been written on behalf of one caller, so show them only to that caller.
    """

    stderr: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stderr or self.stdout)

    def __str__(self) -> str:
        """The end of a message: one line stays on it, several follow below."""
        lines = self.stderr or self.stdout
        if not lines:
            return ""
        words = "; its last lines:" if self.stderr else "; it printed:"
        return f"{words} {lines[0]}" if len(lines) == 1 else "\n    ".join((words, *lines))


NO_OUTPUT = Output()


class ChannelError(ColonnadeError):
    """There was no response, and the effect of the request is unknown unless `not_sent` is set.

    `output` is the last output of the server process, if there is one. `effect_unknown` is set if a
    request may have had an effect, and the message says so.
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
        """The last lines that the server process wrote to stderr."""
        return self.output.stderr

    def effect(self, *, is_call: bool) -> dict[str, bool] | None:
        """The members `notSent` and `effectUnknown` for a client of this program; None if both are
        false. A call that was sent has an unknown effect; other requests have no effects."""
        is_unknown = self.effect_unknown or (is_call and not self.not_sent)
        if not (self.not_sent or is_unknown):
            return None
        return {NOT_SENT_KEY: self.not_sent, EFFECT_UNKNOWN_KEY: is_unknown}

    def __str__(self) -> str:
        effect = f"; {EFFECT_UNKNOWN}" if self.effect_unknown else ""
        return f"{self.sentence}{effect}{self.output}"


class CannotConnect(ChannelError):
    """The connection could not be opened; nothing was sent."""

    not_sent: bool = True


class CannotFetch(ChannelError):
    """A document could not be fetched.

    The message is the same for every cause and may be passed on to another party. `why` is for the
    operator of this program, since it tells whether something answered inside their network.
    """

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


class ConnectionLost(ChannelError):
    """The connection closed while a request was waiting for its response."""


class TimedOut(ChannelError):
    """The timeout of a request expired."""


class AuthError(ColonnadeError):
    """Authentication or authorization failed.

    `reason` is the explanation of the server (`invalid_token: the token has expired`), empty if it
    gave none; `scopes` are the scopes that it named. `token_sent` is set if the server rejected a
    token, and `accepted` if it had accepted the request before (as a task, or with a result that
    required input), so that the request is not to be sent from the beginning.
    """

    reason: str = ""
    scopes: tuple[str, ...] = ()
    token_sent: bool = False
    accepted: bool = False


class LoginRequired(AuthError):
    """There are no valid credentials: log in."""


class ScopeRequired(AuthError):
    """The credentials are valid, but lack a scope."""


class TaskEnded(ColonnadeError):
    """A task ended without a result: it was cancelled, it did not end in time, or its server does
    not know it any more, because it has expired there or belongs to another caller.

    `reason` says which.
    """

    def __init__(
        self,
        *args: object,
        reason: Literal["cancelled", "expired", "unknown"],
        server: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(*args, server=server, hint=hint)
        self.reason: Literal["cancelled", "expired", "unknown"] = reason


class Refused(ColonnadeError):
    """Rejected by policy or by the user.

    `reason` says by which part of a host's policy: `rule` (the rule is in `rule`), `approval` (a
    person declined, or the approval expired), `no_approver` (there is no way to ask), `definition`
    (the definition is not the accepted one), `changed` (the policy or the definition has changed
    since
    the decision), `hidden_text` (a name or choice that would be sent back to the server has hidden
    text) or `audit` (the call cannot be recorded). `store_full` means that a store has no room for
    any caller. Otherwise `reason` is empty.
    """

    reason: str = ""
    rule: str = ""

    def __init__(
        self,
        *args: object,
        server: str | None = None,
        hint: str = "",
        reason: str = "",
        rule: str = "",
        public: str = "",
    ) -> None:
        super().__init__(*args, server=server, hint=hint)
        if reason:
            self.reason = reason
        if rule:
            self.rule = rule
        if public:
            self.public = public


class ToolError(ColonnadeError):
    """Raise it in a handler to tell the model what went wrong and what to try."""


class Declined(ToolError):
    """The user declined or cancelled an elicitation; `action` says which of the two."""

    action: Literal["decline", "cancel"] = "decline"

    def __init__(
        self,
        *args: object,
        server: str | None = None,
        hint: str = "",
        action: Literal["decline", "cancel"] = "decline",
    ) -> None:
        super().__init__(*args, server=server, hint=hint)
        self.action = action
