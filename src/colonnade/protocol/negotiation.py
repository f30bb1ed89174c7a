"""Who is on the other side, and which revision do we speak with them?

`recognise` looks at one request; `negotiate`, `agree` and `choose` settle on a revision. The order
of the checks is the order of the answers.

Rules: no I/O, no clock. A peer is judged by this frame, its headers and what the link knows; a
pipe is never locked to one way of opening.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, field

from colonnade.errors import (
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
from colonnade.protocol.methods import Side, declares
from colonnade.protocol.revision import EVERY, Revision, Revisions
from colonnade.protocol.types import (
    CLIENT_CAPABILITIES_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    ClientCapabilities,
    Envelope,
    Implementation,
    LoggingLevel,
    ProgressToken,
    ServerCapabilities,
)

Encoders: TypeAlias = dict[Revision, tuple[t.Implementation | None, Encoder]]


class Identity(Struct, frozen=True):
    """Who we are and what we offer. `named` is whether to say it where a revision leaves it open.

    Raises `LocalProtocolError` for what could not be told to anybody.
    """

    info: t.Implementation
    capabilities: t.ServerCapabilities | t.ClientCapabilities
    instructions: str | None = None
    named: bool = True
    # A server's writers, each with whom it signs as. A server whose offers change has several
    # identities and gives all of them the same, so that they share what was written.
    encoders: Encoders = field(
        default_factory=dict[Revision, tuple[t.Implementation | None, Encoder]]
    )

    def __post_init__(self) -> None:
        encode([self.info, self.capabilities, self.instructions])
        for identifier in self.capabilities.extensions or ():
            if not t.valid_extension_id(identifier):  # R0926
                raise InvalidArgument(f"{identifier!r} is no extension: name it a.b/c")

    @property
    def side(self) -> Side:
        """The side that has such capabilities."""
        server = isinstance(self.capabilities, t.ServerCapabilities)
        return Side.SERVER if server else Side.CLIENT

    @property
    def logs(self) -> bool:
        """Whether we declared that we log, without which nothing may be logged (R0153)."""
        return declares(self.capabilities, "logging")

    def encoder(self, revision: Revision) -> Encoder:
        """A writer for peers of this revision, which signs as us."""
        info = self.info if self.named else None
        if isinstance(self.capabilities, t.ServerCapabilities):
            known = self.encoders.get(revision)
            if known is None or known[0] is not info:
                known = self.encoders[revision] = (info, Encoder(revision, info))
            return known[1]
        envelope = t.Envelope(
            version=revision.date, capabilities=self.capabilities, client_info=info
        )
        return Encoder(revision, None, envelope)

    def initialize_params(self, revision: Revision) -> "t.InitializeRequestParams":
        """The first word of a client."""
        if not isinstance(self.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("initialize is the first word of a client")
        return t.InitializeRequestParams(
            protocol_version=revision.date, capabilities=self.capabilities, client_info=self.info
        )

    def initialize_result(self, revision: Revision) -> "t.InitializeResult":
        """A server's answer to it."""
        return t.InitializeResult(
            protocol_version=revision.date,
            capabilities=self._offered,
            server_info=self.info,
            instructions=self.instructions,
        )

    def discover_result(self, accepts: Revisions) -> "t.DiscoverResult":
        """A server's answer to `server/discover`, which it always has (R0924)."""
        return t.DiscoverResult(
            supported_versions=accepts.dates,  # D11: newest first
            capabilities=self._offered,
            instructions=self.instructions,
        )

    @property
    def _offered(self) -> t.ServerCapabilities:
        if not isinstance(self.capabilities, t.ServerCapabilities):
            raise LocalProtocolError("only a server says what it offers")
        return self.capabilities


# Clients repeat their `_meta` on every request, so what it says is worked out once. Larger ones
# and more of them are read each time: a stranger must not fill our memory.
MAX_REMEMBERED = 256
MAX_REMEMBERED_BYTES = 4096

# Whoever counts requests stays below this; every reader of JSON has it whole.
MAX_DIGITS = 15

# A token is written into every progress notice; ours and those of others are shorter than an id.
MAX_TOKEN_CHARACTERS = 512
# What we repeat of a version that a stranger named; ours have ten characters.
MAX_QUOTED = 80
# And how many of them.
MAX_QUOTED_VERSIONS = 10

HANDSHAKE_METHOD = "initialize"

_TOKEN = PROGRESS_TOKEN_KEY.encode()
_LAST_TOKEN = b',"%b":' % _TOKEN
# No `_meta` begins like this.
_NOTHING_LIKE_IT = b"\0"
_BACKSLASH = ord("\\")


class Peer(Struct, frozen=True):
    """Who is on the other side: its revision, and what it said of itself."""

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
    """What the HTTP headers of a POST say about its sender."""

    version: str | None = None
    routed: bool = False


# A `_meta` as it was written, the version that it names, and who that is, if it is spoken here.
Known: TypeAlias = tuple[Raw, str, Peer | None]
_NOBODY: Known = (NOTHING, "", None)


class PeerDetector:
    """Tells peers by their requests, for one set of accepted revisions."""

    def __init__(self, accepts: Revisions = EVERY) -> None:
        self.accepts = accepts
        self._by_date = {revision.date: revision for revision in accepts}
        older = [revision for revision in (*EVERY, *accepts) if revision.handshake]
        self._older = frozenset(revision.date for revision in older)
        self._modern_only = frozenset(
            name
            for revision in accepts.enveloped
            for name in revision.methods
            if not any(name in old.methods for old in older)
        )
        self._enveloping = bool(accepts.enveloped)
        self._remembered: dict[bytes, Known] = {}
        # Who was recognised last; and how their `_meta` begins, up to a token for progress.
        self._latest: Known = _NOBODY
        self._before_token = _NOTHING_LIKE_IT

    def detect_repeated(self, meta: Raw) -> Peer | None:
        """Who sent the last request, where this one has the very same `_meta`."""
        latest = self._latest
        return latest[2] if meta == latest[0] else None

    def detect(
        self,
        request: Request,
        meta: Raw,
        signs: VersionHeaders | None = None,
        known: Peer | None = None,
    ) -> Peer | None:
        """The peer that sent this request; None for a handshake that is still to be done.

        `signs` are the headers, None where there are none. `known` is the peer of the session.
        Raises `Fault` in the order of D4: `_meta`, the version header, the version.
        """
        if meta:
            found: Known | None = self._latest
            if meta != found[0]:  # which looks no further than to the first difference
                raw, before = bytes(meta), self._before_token
                if not (raw.startswith(before) and _is_token(raw[len(before) : -1])):
                    found = self._look_up(raw)
            if found is not None:
                _, version, peer = found
                if signs is not None and signs.version != version:
                    raise header_mismatch("MCP-Protocol-Version", signs.version, version)
                if peer is None:
                    raise unsupported_version(version, self.accepts)
                return peer
        return self._without_envelope(request, signs, known)

    def _look_up(self, raw: bytes) -> Known | None:
        steady = _without_token(raw) if raw[-2:-1].isdigit() else raw
        found = self._remembered.get(steady) or self._enveloped(raw, steady)
        if found is not None and found[0]:
            self._latest = found
            taken_off = steady is not raw
            self._before_token = steady[:-1] + _LAST_TOKEN if taken_off else _NOTHING_LIKE_IT
        return found

    def _enveloped(self, raw: bytes, steady: bytes) -> Known | None:
        """Read a `_meta`; None where it does not speak of a revision at all."""
        try:
            marks = _marks.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fault(FaultKind.INVALID_PARAMS, f"_meta cannot be read: {error}") from None
        if has_duplicate_members(raw):
            # Another reader may take the other member, and so see another peer.
            raise Fault(FaultKind.INVALID_PARAMS, "_meta has the same member twice")
        version = marks.version
        if version is UNSET and not marks.capabilities:
            return None
        # R0761: both are required, and a request without either is malformed.
        if version is UNSET:
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        if not marks.capabilities:
            raise missing_meta(CLIENT_CAPABILITIES_KEY, self.accepts)
        if isinstance(version, str):
            revision = self._by_date.get(version)
            # D11: a revision that opens with a handshake cannot be spoken by envelope. What else
            # an unknown one has in its envelope is not ours to judge.
            if revision is None or revision.handshake:
                return NOTHING, version, None
        envelope = decode_as(Envelope, raw)
        check_progress_token(envelope.progress_token)
        revision = self._by_date[envelope.version]
        peer = Peer(revision, envelope.capabilities, envelope.client_info, envelope.log_level)
        # With a token that cannot be taken off, no other request is the same.
        if len(steady) > MAX_REMEMBERED_BYTES or _TOKEN in steady:
            return NOTHING, envelope.version, peer
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        known = self._remembered[steady] = (Raw(steady), envelope.version, peer)
        return known

    def _without_envelope(
        self, request: Request, signs: VersionHeaders | None, known: Peer | None
    ) -> Peer | None:
        if self._enveloping and self._looks_modern(request, signs):
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        if request.method == HANDSHAKE_METHOD:
            return None
        version = signs.version if self._enveloping and signs is not None else None
        if version is not None and version not in self._older:
            # R0359. An older peer does not know the code that newer ones have for this.
            raise (
                unsupported_version(version, self.accepts)
                if known is None
                else unsupported_version_header(version, self.accepts)
            )
        if known is not None:
            return known
        if not self.accepts.handshakes:
            raise missing_meta(PROTOCOL_VERSION_KEY, self.accepts)
        # D27: say both ways in.
        way = f", or put {PROTOCOL_VERSION_KEY} into params._meta" if self._enveloping else ""
        raise Fault(
            FaultKind.INVALID_PARAMS,
            f"{request.method[:MAX_QUOTED]} before initialize; send it first{way}",
        )

    def _looks_modern(self, request: Request, signs: VersionHeaders | None) -> bool:
        if request.method in self._modern_only:
            return True
        if signs is None or request.method == HANDSHAKE_METHOD:
            return False
        if signs.routed:
            return True
        return signs.version in self._by_date and signs.version not in self._older


def _without_token(raw: bytes) -> bytes:
    """A `_meta` as it was before a number was put at its end to report progress under.

    That number is another one in each request. Only digits stand between the name and the brace
    that ends it all, so that nothing else is taken off; and with an escape in it, the name could
    be there twice. What still has that name in it is not remembered.
    """
    at = raw.rfind(_LAST_TOKEN)
    if at < 0 or not _is_token(raw[at + len(_LAST_TOKEN) : -1]) or _BACKSLASH in raw:
        return raw
    return raw[:at] + b"}"


def _is_token(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= MAX_DIGITS


class _Marks(Struct):
    version: Any = msgspec.field(name=PROTOCOL_VERSION_KEY, default=UNSET)
    capabilities: Raw = msgspec.field(name=CLIENT_CAPABILITIES_KEY, default=NOTHING)


_marks = msgspec.json.Decoder(_Marks)


# ---------------------------------------------------------------- faults with data


def missing_meta(key: str, accepts: Revisions) -> Fault:
    """A modern request without what it must say of itself."""
    words = f"params._meta must have {key} on every request"
    return Fault(FaultKind.INVALID_PARAMS, words, {"supported": accepts.dates})


def check_progress_token(token: ProgressToken | None) -> ProgressToken | None:
    """The token that progress is wanted under, if it is one that we will repeat."""
    if isinstance(token, str) and len(token) > MAX_TOKEN_CHARACTERS:
        words = f"a progress token of more than {MAX_TOKEN_CHARACTERS} characters"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    return token


def header_mismatch(header: str, found: str | None, expected: str) -> Fault:
    """A header that is missing or says something else than the body."""
    if found is None:
        return Fault(FaultKind.HEADER_MISMATCH, f"Header mismatch: {header} is missing")
    said, meant = found[:MAX_QUOTED], expected[:MAX_QUOTED]
    words = f"Header mismatch: {header} is {said!r}, the body says {meant!r}"
    return Fault(FaultKind.HEADER_MISMATCH, words)


def unsupported_version(requested: str, accepts: Revisions) -> Fault:
    """A version that this side does not speak; the data lists those that it does."""
    data = {"supported": accepts.dates, "requested": requested[:MAX_QUOTED]}
    words = f"Unsupported protocol version; use one of {', '.join(accepts.dates)}"
    return Fault(FaultKind.VERSION_UNSUPPORTED, words, data)


def unsupported_version_header(named: str, accepts: Revisions) -> Fault:
    """The same in a session, where only the header is wrong. Clients of other SDKs look for the
    first three words."""
    dates = ", ".join(accepts.dates)
    said = named[:MAX_QUOTED]
    words = f"Unsupported protocol version: MCP-Protocol-Version is {said!r}; use {dates}"
    data = {"supported": accepts.dates, "requested": named[:MAX_QUOTED]}
    return Fault(FaultKind.INVALID_PARAMS, words, data)


def missing_capability(words: str, **capabilities: dict[str, Any]) -> Fault:
    """A request that needs something its sender did not declare (R0765)."""
    return Fault(FaultKind.CAPABILITY_MISSING, words, {"requiredCapabilities": capabilities})


# ---------------------------------------------------------------- choosing


def negotiate(requested: str, accepts: Revisions) -> Revision:
    """A server's answer to `initialize`: what was asked for, else our newest handshake (D9)."""
    if not accepts.handshakes:
        raise unsupported_version(requested, accepts)
    asked = accepts.get(requested)
    return asked if asked is not None and asked.handshake else accepts.handshakes[0]


def agree(answered: str, accepts: Revisions) -> Revision:
    """A client's view of the server's answer. Raises when it must disconnect (D34)."""
    revision = accepts.get(answered)
    if revision is None or not revision.handshake:
        dates = ", ".join(revision.date for revision in accepts.handshakes)
        raise RemoteProtocolError(
            f"the server wants to speak {answered[:MAX_QUOTED]!r}, we speak {dates}; disconnecting"
        )
    return revision


def choose(supported: Iterable[str], accepts: Revisions) -> Revision:
    """The newest that both sides speak; it may be one that needs a handshake (D11)."""
    theirs = frozenset(supported)
    for revision in reversed(accepts):
        if revision.date in theirs:
            return revision
    named = [date[:MAX_QUOTED] for date in sorted(theirs)[:MAX_QUOTED_VERSIONS]]
    raise RemoteProtocolError(
        f"no revision in common: the server speaks {named}, we {accepts.dates}"
    )


# ---------------------------------------------------------------- extensions


def shared_extensions(ours: Sequence[str], peer: Peer) -> frozenset[str]:
    """The extensions that both sides declared; the others fall back to the core protocol."""
    return peer.extensions & frozenset(ours)


def require_extension(identifier: str, peer: Peer) -> None:
    """Raise where a request makes no sense without an extension that its sender lacks."""
    if identifier not in peer.extensions:
        raise missing_capability(
            f"this needs the extension {identifier}", extensions={identifier: {}}
        )


# What a server is called that was given no version; it is not worth saying.
UNVERSIONED: Final = "0"


def name_and_version(info: Implementation) -> str:
    """Its name, and its version if it was given one."""
    return info.name if info.version == UNVERSIONED else f"{info.name} {info.version}"
