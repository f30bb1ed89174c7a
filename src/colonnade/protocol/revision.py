"""The five published revisions of the protocol, as values; a sixth is one more `replace`.

The file reads like the changelog of the specification. Other code reads an attribute of a revision
(`revision.input_requests`, `revision.http.sessions`) and never looks at its date.

Rules: no I/O; dates are compared in this file and nowhere else.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from colonnade.errors import FastEnum, Fault, FaultKind, InvalidArgument
from colonnade.protocol import methods
from colonnade.protocol.methods import Method
from colonnade.protocol.types import TASKS_EXTENSION_ID


class Initialization(FastEnum):
    """How a client and a server learn each other's revision and capabilities."""

    HANDSHAKE: "ClassVar[Initialization]"  # initialize, then notifications/initialized
    ENVELOPE: "ClassVar[Initialization]"  # _meta of every request


# Looked up with each request.
_HANDSHAKE = Initialization.HANDSHAKE


class InputRequests(FastEnum):
    """How a server sends input requests: elicitation, sampling and roots."""

    AS_REQUEST: "ClassVar[InputRequests]"  # requests of their own
    IN_RESULT: "ClassVar[InputRequests]"  # in an input_required result, answered with a retry


class ChangeNotifications(FastEnum):
    """Where notifications go that belong to no request."""

    SESSION: "ClassVar[ChangeNotifications]"  # on any stream of the session
    LISTEN: "ClassVar[ChangeNotifications]"  # on subscriptions/listen


class LogControl(FastEnum):
    """How the log level is set."""

    BY_METHOD: "ClassVar[LogControl]"  # logging/setLevel, for the session
    PER_REQUEST: "ClassVar[LogControl]"  # _meta, for this request


class BadToolInput(FastEnum):
    """How arguments that do not fit the schema of a tool are reported."""

    ERROR: "ClassVar[BadToolInput]"  # a JSON-RPC error
    RESULT: "ClassVar[BadToolInput]"  # a result with isError, for the model to read


class RequestIds(FastEnum):
    """How long a request id stays in use."""

    NEVER_REUSED: "ClassVar[RequestIds]"  # for the whole session
    UNIQUE_IN_FLIGHT: "ClassVar[RequestIds]"  # until its response


class OutputRoot(FastEnum):
    """What structured content may be."""

    NONE: "ClassVar[OutputRoot]"  # there is none
    OBJECT: "ClassVar[OutputRoot]"  # an object
    ANY: "ClassVar[OutputRoot]"  # any JSON value


class Tasks(FastEnum):
    """Where tasks are defined."""

    NONE: "ClassVar[Tasks]"  # there are none
    CORE: "ClassVar[Tasks]"  # in the protocol
    EXTENSION: "ClassVar[Tasks]"  # in an extension


class HttpBinding(FastEnum):
    """The usual HTTP transport; informative, nothing is refused for it (D8)."""

    HTTP_SSE: "ClassVar[HttpBinding]"  # GET for a stream, POST beside it
    STREAMABLE: "ClassVar[HttpBinding]"  # POST, GET and DELETE on one path
    POST_ONLY: "ClassVar[HttpBinding]"  # POST on one path


class HttpCancellation(FastEnum):
    """How a client cancels a request over HTTP."""

    NOTIFICATION: "ClassVar[HttpCancellation]"  # notifications/cancelled
    CLOSE: "ClassVar[HttpCancellation]"  # closing the stream


class HttpRules(Struct, frozen=True):
    """What a revision requires over HTTP."""

    binding: HttpBinding
    sessions: bool = False
    resumable: bool = False
    prime_and_poll: bool = False
    version_header: bool = False
    routing_headers: bool = False
    unknown_method_status: int = 200
    cancellation: HttpCancellation = HttpCancellation.NOTIFICATION


class Elicitation(Struct, frozen=True):
    """What an elicitation may contain; nothing at all if `modes` is empty."""

    modes: frozenset[str] = frozenset()
    titled_enums: bool = False
    multi_select: bool = False
    all_defaults: bool = False
    url_required_error: bool = False


class Sampling(Struct, frozen=True):
    """What a sampling message may contain."""

    blocks: frozenset[str]
    arrays: bool = False


class Revision(Struct, frozen=True, eq=False):
    """One published revision. Two are equal only if they are the same object."""

    date: str
    methods: Mapping[str, Method]
    codes: Mapping[FaultKind, int]
    blocks: frozenset[str]
    sampling: Sampling
    http: HttpRules
    initialization: Initialization = Initialization.HANDSHAKE
    input_requests: InputRequests = InputRequests.AS_REQUEST
    change_notifications: ChangeNotifications = ChangeNotifications.SESSION
    log_control: LogControl = LogControl.BY_METHOD
    request_ids: RequestIds = RequestIds.NEVER_REUSED
    batches: bool = False
    error_id_required: bool = True
    bad_tool_input: BadToolInput = BadToolInput.ERROR
    output_root: OutputRoot = OutputRoot.NONE
    boolean_schemas: bool = False
    elicitation: Elicitation = Elicitation()
    tasks: Tasks = Tasks.NONE
    typed_results: bool = False
    extensions: Mapping[str, Mapping[str, Method]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    # Extensions that are not defined here: they are not declared to a peer of this revision, and
    # its own declaration has no effect (T01).
    undefined_extensions: frozenset[str] = frozenset({TASKS_EXTENSION_ID})

    def __repr__(self) -> str:
        return f"Revision({self.date!r})"

    def knows(self, since: str | None, until: str | None) -> bool:
        """Whether something that exists from `since` to `until` is part of this revision."""
        return (since or self.date) <= self.date <= (until or self.date)

    @property
    def handshake(self) -> bool:
        """Whether a connection begins with `initialize`."""
        return self.initialization is _HANDSHAKE

    def method(self, name: str, extensions: Collection[str] = ()) -> Method | None:
        """The definition of a method, or None if neither this revision nor an extension has it.

        Of two extensions that have it, the one that this revision lists first.
        """
        row = self.methods.get(name)
        if row is None and extensions:
            for extension, rows in self.extensions.items():
                if extension in extensions and name in rows:
                    return rows[name]
        return row


_CODES = {
    FaultKind.PARSE: -32700,
    FaultKind.INVALID_REQUEST: -32600,
    FaultKind.METHOD_NOT_FOUND: -32601,
    FaultKind.INVALID_PARAMS: -32602,
    FaultKind.INTERNAL: -32603,
    FaultKind.RESOURCE_MISSING: -32002,
    FaultKind.USER_REJECTED: -1,
    # No revision has one. Outside of the range that JSON-RPC reserves, where own codes are allowed.
    FaultKind.TOO_MANY: 429,
    # These have no code of their own in the first revisions. A server that supports newer revisions
    # only answers `initialize` with the last of them all the same (D9).
    FaultKind.HEADER_MISMATCH: -32600,
    FaultKind.CAPABILITY_MISSING: -32603,
    FaultKind.VERSION_UNSUPPORTED: -32022,
    FaultKind.URL_ELICITATION_REQUIRED: -32603,
    # Extensions are not tied to a revision, and have one code for this in all of them (D64).
    FaultKind.EXTENSION_MISSING: -32021,
}

K = TypeVar("K")
V = TypeVar("V")


def _more(table: Mapping[K, V], *others: Mapping[K, V]) -> Mapping[K, V]:
    """A table with further or newer entries."""
    merged = dict(table)
    for other in others:
        merged |= other
    return MappingProxyType(merged)


NOVEMBER_2024 = Revision(
    date="2024-11-05",
    methods=MappingProxyType(methods.FIRST),
    codes=MappingProxyType(_CODES),
    blocks=frozenset({"text", "image", "resource"}),
    sampling=Sampling(frozenset({"text", "image"})),
    http=HttpRules(HttpBinding.HTTP_SSE),
)

MARCH_2025 = replace(
    NOVEMBER_2024,
    date="2025-03-26",
    batches=True,
    methods=_more(NOVEMBER_2024.methods, methods.COMPLETIONS_DECLARED),
    blocks=NOVEMBER_2024.blocks | {"audio"},
    sampling=Sampling(NOVEMBER_2024.sampling.blocks | {"audio"}),
    http=HttpRules(HttpBinding.STREAMABLE, sessions=True, resumable=True),
)

JUNE_2025 = replace(
    MARCH_2025,
    date="2025-06-18",
    batches=False,
    methods=_more(MARCH_2025.methods, methods.ELICITATION),
    blocks=MARCH_2025.blocks | {"resource_link"},
    output_root=OutputRoot.OBJECT,
    elicitation=Elicitation(frozenset({"form"})),
    http=replace(MARCH_2025.http, version_header=True),
)

NOVEMBER_2025 = replace(
    JUNE_2025,
    date="2025-11-25",
    methods=_more(JUNE_2025.methods, methods.URL_ELICITATION, methods.TASKS),
    codes=_more(JUNE_2025.codes, {FaultKind.URL_ELICITATION_REQUIRED: -32042}),
    error_id_required=False,
    bad_tool_input=BadToolInput.RESULT,
    sampling=Sampling(JUNE_2025.sampling.blocks | {"tool_use", "tool_result"}, arrays=True),
    elicitation=Elicitation(
        frozenset({"form", "url"}),
        titled_enums=True,
        multi_select=True,
        all_defaults=True,
        url_required_error=True,
    ),
    tasks=Tasks.CORE,
    http=replace(JUNE_2025.http, prime_and_poll=True),
)

JULY_2026 = replace(
    NOVEMBER_2025,
    date="2026-07-28",
    initialization=Initialization.ENVELOPE,
    input_requests=InputRequests.IN_RESULT,
    change_notifications=ChangeNotifications.LISTEN,
    log_control=LogControl.PER_REQUEST,
    request_ids=RequestIds.UNIQUE_IN_FLIGHT,
    methods=MappingProxyType(methods.STATELESS),
    extensions=MappingProxyType({TASKS_EXTENSION_ID: methods.TASKS_EXTENSION}),
    undefined_extensions=frozenset(),
    codes=_more(
        NOVEMBER_2025.codes,
        {
            FaultKind.RESOURCE_MISSING: -32602,
            FaultKind.HEADER_MISMATCH: -32020,
            FaultKind.CAPABILITY_MISSING: -32021,
            FaultKind.URL_ELICITATION_REQUIRED: -32603,
        },
    ),
    output_root=OutputRoot.ANY,
    boolean_schemas=True,
    elicitation=replace(NOVEMBER_2025.elicitation, url_required_error=False),
    tasks=Tasks.EXTENSION,
    typed_results=True,
    http=HttpRules(
        HttpBinding.POST_ONLY,
        version_header=True,
        routing_headers=True,
        unknown_method_status=404,
        cancellation=HttpCancellation.CLOSE,
    ),
)

ALL = (NOVEMBER_2024, MARCH_2025, JUNE_2025, NOVEMBER_2025, JULY_2026)
NEWEST = ALL[-1]


def error_code(fault: Fault, revision: Revision | None) -> int:
    """The JSON-RPC code of a fault for a peer of this revision; None if it is not known yet."""
    return (revision or NEWEST).codes[fault.kind]


def _date(revision: Revision) -> str:
    return revision.date


class Revisions(tuple[Revision, ...]):
    """The revisions that one side accepts, oldest first, each once. Never empty.

    `Revisions.of("2025-11-25", "2026-07-28")` limits what a server or a client accepts. Raises
    `ValueError` for none at all, or for two with the same date.
    """

    def __new__(cls, revisions: Iterable[Revision]) -> "Revisions":
        made = super().__new__(cls, sorted(set(revisions), key=_date))
        if not made or len(set(map(_date, made))) < len(made):
            raise InvalidArgument("revisions: at least one, and no two with the same date")
        return made

    @classmethod
    def of(cls, *dates: str, among: tuple[Revision, ...] = ALL) -> "Revisions":
        """The revisions with these dates. Raises `ValueError` for an unknown date."""
        known = {revision.date: revision for revision in among}
        unknown = [date for date in dates if date not in known]
        if unknown or not dates:
            raise InvalidArgument(f"no such revision: {unknown or 'none'}; there are {list(known)}")
        return cls(revision for revision in among if revision.date in dates)

    def get(self, date: str) -> Revision | None:
        """The revision with this date, if it is accepted."""
        return next((revision for revision in self if revision.date == date), None)

    @property
    def handshakes(self) -> tuple[Revision, ...]:
        """Those that begin with `initialize`, newest first."""
        return tuple(revision for revision in reversed(self) if revision.handshake)

    @property
    def enveloped(self) -> tuple[Revision, ...]:
        """Those whose requests carry an envelope in `_meta`, newest first."""
        return tuple(revision for revision in reversed(self) if not revision.handshake)

    @property
    def dates(self) -> list[str]:
        """The dates, newest first, as the wire lists them (D11)."""
        return [revision.date for revision in reversed(self)]


EVERY = Revisions(ALL)
