"""Negotiation of the revision: which peer sent a request, and which revision it uses.

`PeerDetector.detect` looks at one request; `negotiate`, `agree` and `choose` settle on a revision.
The order of the checks is the order of the errors.

Rules: no I/O, no clock. A peer is judged by this message, its headers and what the link knows; a
connection is never locked to one kind of initialization.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import replace

from colonnade.errors import (
    FastEnum,
    Fault,
    FaultKind,
    InvalidArgument,
    LocalProtocolError,
    RemoteProtocolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.jsonrpc import NOTHING, Request, encode, has_duplicate_members
from colonnade.protocol.methods import Method, Side, declares
from colonnade.protocol.negotiation_cache import EnvelopeCache
from colonnade.protocol.revision import EVERY, LogControl, Revision, Revisions, Tasks
from colonnade.protocol.types import (
    CLIENT_CAPABILITIES_KEY,
    PROTOCOL_VERSION_KEY,
    ClientCapabilities,
    Envelope,
    Implementation,
    LoggingLevel,
    ProgressToken,
    ServerCapabilities,
)

Encoders: TypeAlias = dict[Revision, tuple[t.Implementation | None, Encoder]]


class Callers(FastEnum):
    """The callers of a connection, as far as its transport distinguishes them."""

    SINGLE: "ClassVar[Callers]"  # one, at the other end of a pipe or in this process
    AUTHENTICATED: "ClassVar[Callers]"  # each by its own credentials
    ANONYMOUS: "ClassVar[Callers]"  # not distinguished


def callers_of(principal: str) -> Callers:
    """The callers of an endpoint that anyone may reach; the principal is empty for one that was
    not authenticated."""
    return Callers.AUTHENTICATED if principal else Callers.ANONYMOUS


class Identity(Struct, frozen=True):
    """Our implementation info and capabilities. `named` is whether to send the info where it is
    optional.

    Raises `LocalProtocolError` for what cannot be encoded.
    """

    info: t.Implementation
    capabilities: t.ServerCapabilities | t.ClientCapabilities
    instructions: str | None = None
    named: bool = True
    # The encoders of a server, each with the info that it sends. A server whose features change has
    # several identities and gives all of them the same dict, so that they share encoded lists.
    encoders: Encoders = field(
        default_factory=dict[Revision, tuple[t.Implementation | None, Encoder]]
    )
    # The methods of our extensions, except those that a revision defines.
    extension_methods: Mapping[str, Method] = MappingProxyType({})
    # The callers that `capabilities` are for, and those of others if they differ.
    callers: Callers = Callers.ANONYMOUS
    by_callers: Mapping[Callers, t.ServerCapabilities] = MappingProxyType({})

    def __post_init__(self) -> None:
        encode([self.info, self.capabilities, self.instructions])
        for identifier in self.capabilities.extensions or ():
            if not t.valid_extension_id(identifier):  # R0926
                raise InvalidArgument(f"{identifier!r} is not an extension identifier; write a.b/c")

    def for_callers(self, callers: Callers) -> "Identity":
        """The same identity, with the capabilities that these callers get."""
        if callers is self.callers:
            return self
        capabilities = self.by_callers.get(callers, self.capabilities)
        return replace(self, capabilities=capabilities, callers=callers)

    def extension_method(self, name: str, revision: Revision) -> Method | None:
        """The definition of a method of one of our extensions, for peers of this revision."""
        declared = self.capabilities.extensions
        if not declared:
            return None
        row = self.extension_methods.get(name)
        if row is not None and extension_of(row) in declared:
            return row
        return revision.method(name, declared)

    @property
    def side(self) -> Side:
        """The side that has such capabilities."""
        server = isinstance(self.capabilities, t.ServerCapabilities)
        return Side.SERVER if server else Side.CLIENT

    @property
    def logs(self) -> bool:
        """Whether logging was declared, without which no log message may be sent (R0153)."""
        return declares(self.capabilities, "logging")

    def encoder(self, revision: Revision, log_level: LoggingLevel | None = None) -> Encoder:
        """The encoder for peers of this revision, with our info; for requests of a client that
        wants log messages of a level, where each request says so."""
        info = self.info if self.named else None
        if isinstance(self.capabilities, t.ServerCapabilities):
            known = self.encoders.get(revision)
            if known is None or known[0] is not info:
                known = self.encoders[revision] = (info, Encoder(revision, info))
            return known[1]
        envelope = t.Envelope(
            version=revision.date,
            capabilities=self.capabilities,
            client_info=info,
            log_level=log_level if revision.log_control is LogControl.PER_REQUEST else None,
        )
        return Encoder(revision, None, envelope)

    def initialize_params(self, revision: Revision) -> "t.InitializeRequestParams":
        """The params of `initialize`, for a client."""
        if not isinstance(self.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("only a client sends initialize")
        return t.InitializeRequestParams(
            protocol_version=revision.date,
            capabilities=defined_in(revision, self.capabilities),
            client_info=self.info,
        )

    def initialize_result(self, revision: Revision) -> "t.InitializeResult":
        """The result of `initialize`, for a server."""
        return t.InitializeResult(
            protocol_version=revision.date,
            capabilities=defined_in(revision, self._server_capabilities),
            server_info=self.info,
            instructions=self.instructions,
        )

    def discover_result(self, accepts: Revisions) -> "t.DiscoverResult":
        """The result of `server/discover`, which every server has (R0924)."""
        return t.DiscoverResult(
            supported_versions=accepts.dates,  # D11: newest first
            capabilities=self._server_capabilities,
            instructions=self.instructions,
        )

    @property
    def _server_capabilities(self) -> t.ServerCapabilities:
        if not isinstance(self.capabilities, t.ServerCapabilities):
            raise LocalProtocolError("only a server has a discover result")
        return self.capabilities


# A token is written into every progress notification; those in use are shorter than an id.
MAX_TOKEN_CHARACTERS = 512
# What is quoted of an unknown version; ours have ten characters.
MAX_QUOTED = 80
# How many versions are quoted.
MAX_QUOTED_VERSIONS = 10

HANDSHAKE_METHOD = "initialize"


class Peer(Struct, frozen=True, weakref=True):
    """The other side of a connection: its revision, capabilities and implementation info."""

    revision: Revision
    capabilities: ClientCapabilities | ServerCapabilities
    info: Implementation | None = None
    log_level: LoggingLevel | None = None

    @property
    def extensions(self) -> frozenset[str]:
        """The extensions it declared."""
        return frozenset(self.capabilities.extensions or ())

    def offers(self, path: str) -> bool:
        """Whether it declared a capability, such as `tools` or `resources.subscribe`."""
        return declares(self.capabilities, path)


class VersionHeaders(Struct, frozen=True):
    """The HTTP headers of a POST that tell the revision of its sender."""

    version: str | None = None
    routed: bool = False


# The version that a `_meta` names, and the peer if that version is accepted.
NamedPeer: TypeAlias = tuple[str, Peer | None]


class PeerDetector:
    """Detects the peer of each request, for one set of accepted revisions."""

    def __init__(self, accepts: Revisions = EVERY) -> None:
        self.accepts = accepts
        self._by_date = {revision.date: revision for revision in accepts}
        older = [revision for revision in (*EVERY, *accepts) if revision.handshake]
        self._older = frozenset(revision.date for revision in older)
        self._stateless_only = frozenset(
            name
            for revision in accepts.enveloped
            for name in revision.methods
            if not any(name in old.methods for old in older)
        )
        self._accepts_envelopes = bool(accepts.enveloped)
        self._cache: EnvelopeCache[NamedPeer] = EnvelopeCache()

    def detect_repeated(self, meta: Raw) -> Peer | None:
        """The peer of the last request, if this one has the very same `_meta`."""
        found = self._cache.last(meta)
        return found[1] if found is not None else None

    def detect(
        self,
        request: Request,
        meta: Raw,
        headers: VersionHeaders | None = None,
        session_peer: Peer | None = None,
    ) -> Peer | None:
        """The peer that sent this request; None for a handshake that is still to be done.

        `headers` are None without HTTP, `session_peer` without a session. Raises `Fault` in the
        order of D4: `_meta`, the version header, the version.
        """
        if meta:
            found = self._cache.get(meta) or self._enveloped(meta)
            if found is not None:
                version, peer = found
                if headers is not None and headers.version != version:
                    raise header_mismatch("MCP-Protocol-Version", headers.version, version)
                if peer is None:
                    raise unsupported_version(version, self.accepts)
                return peer
        if (
            session_peer is not None
            and headers is not None
            and not headers.routed
            and headers.version in self._older
            and request.method not in self._stateless_only
            and request.method != HANDSHAKE_METHOD
        ):  # as nearly all requests in a session: nothing of it is for `_without_envelope`
            return session_peer
        return self._without_envelope(request, headers, session_peer)

    def _enveloped(self, meta: Raw) -> NamedPeer | None:
        """Decode a `_meta`; None if it has no envelope."""
        try:
            keys = _envelope_keys.decode(meta)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fault(FaultKind.INVALID_PARAMS, f"_meta cannot be decoded: {error}") from None
        if has_duplicate_members(meta):
            # Another decoder may take the other member, and so see another peer.
            raise Fault(FaultKind.INVALID_PARAMS, "_meta has a duplicate member")
        version = keys.version
        if version is UNSET and not keys.capabilities:
            return None
        # R0761: both are required, and a request without either is malformed.
        if version is UNSET:
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        if not keys.capabilities:
            raise missing_meta(CLIENT_CAPABILITIES_KEY, self.accepts)
        if isinstance(version, str):
            revision = self._by_date.get(version)
            # D11: a revision with a handshake cannot be used with an envelope. What else the
            # envelope of an unknown revision holds is not checked.
            if revision is None or revision.handshake:
                return version, None
        envelope = decode_as(Envelope, meta)
        check_progress_token(envelope.progress_token)
        revision = self._by_date[envelope.version]
        capabilities = defined_in(revision, envelope.capabilities)
        peer = Peer(revision, capabilities, envelope.client_info, envelope.log_level)
        found = envelope.version, peer
        self._cache.put(meta, found)
        return found

    def _without_envelope(
        self, request: Request, headers: VersionHeaders | None, session_peer: Peer | None
    ) -> Peer | None:
        if self._accepts_envelopes and self._looks_stateless(request, headers):
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        if request.method == HANDSHAKE_METHOD:
            return None
        version = headers.version if self._accepts_envelopes and headers is not None else None
        if version is not None and version not in self._older:
            # R0359. An older peer does not know the code that newer ones have for this.
            raise (
                unsupported_version(version, self.accepts)
                if session_peer is None
                else unsupported_version_header(version, self.accepts)
            )
        if session_peer is not None:
            return session_peer
        if not self.accepts.handshakes:
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        # D27: name both ways to initialize.
        alternative = (
            f", or put {PROTOCOL_VERSION_KEY} into params._meta" if self._accepts_envelopes else ""
        )
        raise Fault(
            FaultKind.INVALID_PARAMS,
            f"{request.method[:MAX_QUOTED]} before initialize; send initialize first{alternative}",
        )

    def _looks_stateless(self, request: Request, headers: VersionHeaders | None) -> bool:
        if request.method in self._stateless_only:
            return True
        if headers is None or request.method == HANDSHAKE_METHOD:
            return False
        if headers.routed:
            return True
        return headers.version in self._by_date and headers.version not in self._older


class _EnvelopeKeys(Struct):
    version: Any = msgspec.field(name=PROTOCOL_VERSION_KEY, default=UNSET)
    capabilities: Raw = msgspec.field(name=CLIENT_CAPABILITIES_KEY, default=NOTHING)


_envelope_keys = msgspec.json.Decoder(_EnvelopeKeys)


# ---------------------------------------------------------------- faults


def missing_meta(key: str, accepts: Revisions) -> Fault:
    """A request without the envelope that its revision requires."""
    words = f"params._meta must have {key} on every request"
    return Fault(FaultKind.INVALID_PARAMS, words, {"supported": accepts.dates})


def check_progress_token(token: ProgressToken | None) -> ProgressToken | None:
    """Return the progress token, if it is short enough to be repeated. Raises `Fault`."""
    if isinstance(token, str) and len(token) > MAX_TOKEN_CHARACTERS:
        words = f"a progress token of more than {MAX_TOKEN_CHARACTERS} characters"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    return token


def header_mismatch(header: str, found: str | None, expected: str) -> Fault:
    """A header that is missing or differs from the body."""
    if found is None:
        return Fault(FaultKind.HEADER_MISMATCH, f"Header mismatch: {header} is missing")
    shown, meant = found[:MAX_QUOTED], expected[:MAX_QUOTED]
    words = f"Header mismatch: {header} is {shown!r}, the body says {meant!r}"
    return Fault(FaultKind.HEADER_MISMATCH, words)


def unsupported_version(requested: str, accepts: Revisions) -> Fault:
    """A version that this side does not accept; the data lists those that it does."""
    data = {"supported": accepts.dates, "requested": requested[:MAX_QUOTED]}
    words = f"Unsupported protocol version; use one of {', '.join(accepts.dates)}"
    return Fault(FaultKind.VERSION_UNSUPPORTED, words, data)


def unsupported_version_header(named: str, accepts: Revisions) -> Fault:
    """The same in a session, where only the header is wrong. Clients of other SDKs look for the
    first three words."""
    dates = ", ".join(accepts.dates)
    shown = named[:MAX_QUOTED]
    words = f"Unsupported protocol version: MCP-Protocol-Version is {shown!r}; use {dates}"
    data = {"supported": accepts.dates, "requested": named[:MAX_QUOTED]}
    return Fault(FaultKind.INVALID_PARAMS, words, data)


def missing_capability(message: str, **capabilities: dict[str, Any]) -> Fault:
    """A request that needs a capability its sender did not declare (R0765)."""
    return Fault(FaultKind.CAPABILITY_MISSING, message, {"requiredCapabilities": capabilities})


# ---------------------------------------------------------------- choosing a revision


def negotiate(requested: str, accepts: Revisions) -> Revision:
    """The revision for the result of `initialize`: the requested one, else our newest handshake
    (D9)."""
    if not accepts.handshakes:
        raise unsupported_version(requested, accepts)
    asked = accepts.get(requested)
    return asked if asked is not None and asked.handshake else accepts.handshakes[0]


def agree(answered: str, accepts: Revisions) -> Revision:
    """The revision that the server answered `initialize` with. Raises if the client must
    disconnect (D34)."""
    revision = accepts.get(answered)
    if revision is None or not revision.handshake:
        dates = ", ".join(revision.date for revision in accepts.handshakes)
        raise RemoteProtocolError(
            f"the server chose revision {answered[:MAX_QUOTED]!r}, we accept {dates}; disconnecting"
        )
    return revision


def choose(supported: Iterable[str], accepts: Revisions) -> Revision:
    """The newest revision that both sides accept; it may be one that needs a handshake (D11)."""
    theirs = frozenset(supported)
    for revision in reversed(accepts):
        if revision.date in theirs:
            return revision
    named = [date[:MAX_QUOTED] for date in sorted(theirs)[:MAX_QUOTED_VERSIONS]]
    raise RemoteProtocolError(
        f"no revision in common: the server accepts {named}, we accept {accepts.dates}"
    )


# ---------------------------------------------------------------- extensions


C = TypeVar("C", bound=t.ServerCapabilities | t.ClientCapabilities)


def defined_in(revision: Revision, capabilities: C) -> C:
    """Capabilities without those of tasks and extensions that a revision does not define: they are
    not sent there, and have no effect if they are received (T01, T02, T05)."""
    if capabilities.tasks is not None and revision.tasks is not Tasks.CORE:
        capabilities = replace(capabilities, tasks=None)
    declared = capabilities.extensions
    if declared and not revision.undefined_extensions.isdisjoint(declared):
        kept = {
            identifier: settings
            for identifier, settings in declared.items()
            if identifier not in revision.undefined_extensions
        }
        return replace(capabilities, extensions=kept or None)
    return capabilities


def extension_of(definition: Method) -> str:
    """The extension that a method belongs to; empty for a method of the protocol."""
    needs = definition.needs or ""
    return needs.removeprefix("extensions.") if needs.startswith("extensions.") else ""


def shared_extensions(own_extensions: Sequence[str], peer: Peer) -> frozenset[str]:
    """The extensions that both sides declared; the others fall back to the core protocol."""
    return peer.extensions & frozenset(own_extensions)


def require_declared(definition: Method, peer: Peer) -> None:
    """Raise `Fault` if the sender of a request did not declare the extension of its method."""
    identifier = extension_of(definition)
    if identifier:
        require_extension(identifier, peer, definition.name)


def require_extension(identifier: str, peer: Peer, what: str = "this") -> None:
    """Raise `Fault` if the sender of a request did not declare the extension that it needs."""
    if identifier not in (peer.capabilities.extensions or ()):
        words = f"{what} needs {identifier}"
        data: dict[str, Any] = {"requiredCapabilities": {"extensions": {identifier: {}}}}
        raise Fault(FaultKind.EXTENSION_MISSING, words, data)


# The version of a server without one; it is not shown.
UNVERSIONED: Final = "0"


def name_and_version(info: Implementation) -> str:
    """The name, and the version if there is one."""
    return info.name if info.version == UNVERSIONED else f"{info.name} {info.version}"
