"""HTTP rules of a request: the order of the checks, the headers, and the status of each response.

A POST of the newest revision is checked in the order of D4, each step once and in the module that
has what it needs:

    EndpointChecks.check    Origin and Host 403, method 405, Accept 406, Content-Type 415
    (token verification)    401, 403
    check_size              413
    jsonrpc.decode          400: not JSON, not a message
    admit                   400: _meta, version header, version, Mcp-Method and Mcp-Name
                            404: unknown method
                            400: method of an extension that the caller did not declare
    check_params            400: Mcp-Param-*
    (decoding the params)   200: an error like any other
    (missing capability)    400

`status_of` gives the status of every fault on the way. Requests of revisions with a handshake go
the same way; what concerns their sessions is in the second half of this file.

Rules: no I/O, no clock, no session kept here. A refused request has changed nothing.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import (
    AuthError,
    Fault,
    FaultKind,
    LocalProtocolError,
    LoginRequired,
    RemoteProtocolError,
    ScopeRequired,
)
from colonnade.protocol import jsonrpc
from colonnade.protocol.http.param_headers import decode_text, encode_text, read_text
from colonnade.protocol.http.security import (
    ACCEPTED,
    BAD_REQUEST,
    EVENTS_TYPE,
    FORBIDDEN,
    JSON_TYPE,
    MAX_REMEMBERED,
    NOT_FOUND,
    OK,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    Headers,
    HttpError,
)
from colonnade.protocol.json_checks import DECODE_ERRORS
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    Request,
    ResultResponse,
    SplitParams,
)
from colonnade.protocol.methods import CLIENT, Method, Side
from colonnade.protocol.negotiation import (
    HANDSHAKE_METHOD,
    Identity,
    Peer,
    PeerDetector,
    VersionHeaders,
    header_mismatch,
    require_declared,
    unsupported_version,
)
from colonnade.protocol.revision import ALL, NEWEST, InputRequests, Revision, Revisions
from colonnade.protocol.types import ClientCapabilities

# A UUID takes 36 characters; other servers use signed tokens of up to some 2,000.
MAX_SESSION_ID_LENGTH = 2048
# The limit of an event id that is sent.
MAX_EVENT_ID_LENGTH = 1024

VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
SESSION_HEADER: Final = "Mcp-Session-Id"
EVENT_HEADER: Final = "Last-Event-ID"


# ---------------------------------------------------------------- status codes

_REFUSED_WITH_400 = frozenset(
    {
        FaultKind.PARSE,
        FaultKind.INVALID_REQUEST,
        FaultKind.HEADER_MISMATCH,  # R0911, R1071
        FaultKind.VERSION_UNSUPPORTED,  # R0866, R1149
    }
)


def status_of(
    outcome: Fault | AuthError | None,
    revision: Revision | None = None,
    *,
    admitted: bool = True,
    streaming: bool = False,
) -> int:
    """The status of the response to a request; None is a result.

    `revision` is that of the caller, None before it is known. `admitted` says that `admit` accepted
    the request: invalid params are then an error like any other (D5), before that a malformed
    request (R0762). If the response is a stream that has begun, its status was sent and an error is
    one more event.
    """
    if outcome is None or streaming:
        return OK
    if isinstance(outcome, AuthError):  # R0217
        if isinstance(outcome, LoginRequired):
            return UNAUTHORIZED
        return FORBIDDEN if isinstance(outcome, ScopeRequired) else BAD_REQUEST
    if isinstance(outcome, HttpError):
        return outcome.status
    kind = outcome.kind
    revision = revision or NEWEST
    if kind is FaultKind.METHOD_NOT_FOUND:
        return revision.http.unknown_method_status
    if kind is FaultKind.INVALID_PARAMS:
        return OK if admitted else BAD_REQUEST
    if kind is FaultKind.CAPABILITY_MISSING or kind is FaultKind.EXTENSION_MISSING:
        # R1116, where a missing capability has a code of its own; elsewhere it is an internal
        # error, and errors have no status of their own.
        own = revision.codes[FaultKind.CAPABILITY_MISSING] != revision.codes[FaultKind.INTERNAL]
        return BAD_REQUEST if own else OK
    if kind is FaultKind.TOO_MANY:
        return TOO_MANY_REQUESTS
    return BAD_REQUEST if kind in _REFUSED_WITH_400 else OK


# ---------------------------------------------------------------- requests


class AdmittedRequest(Struct, frozen=True):
    """A request that passed the checks: its peer, the definition of its method, its split params.

    `warning` is for the log: a mistake that was tolerated.
    """

    peer: Peer
    method: Method
    params: SplitParams
    warning: str = ""


# Pass this to `admit` as the peer of an unknown session id: a request that needs no session is
# admitted all the same, any other one gets 404.
ENDED: Final = Peer(NEWEST, ClientCapabilities())

_KNOWN_HEADERS = {
    (revision.date.encode(), routed): VersionHeaders(revision.date, routed)
    for revision in ALL
    for routed in (False, True)
}
_BY_HEADER = {revision.date.encode(): revision for revision in ALL}


def version_headers(headers: Headers) -> VersionHeaders:
    """The headers that tell the revision of their sender."""
    version = headers.get(b"mcp-protocol-version")
    routed = b"mcp-method" in headers
    if version is None:
        return VersionHeaders(None, routed)
    return _KNOWN_HEADERS.get((version, routed)) or VersionHeaders(_plain(version), routed)


def admit(
    request: Request,
    headers: Headers,
    detector: PeerDetector,
    session_peer: Peer | None = None,
    current: Callable[[], Identity] | None = None,
) -> AdmittedRequest | None:
    """Admit a request, or raise `Fault`; None for a handshake that may now be done.

    `session_peer` is the peer of the session that the request names (`ENDED` if it does not exist
    any more), `current` returns the present identity of this server, for methods of extensions. The
    faults come in the order of D4; the peer is not known by then, so they are sent without a
    revision.
    """
    split = request.split_params or jsonrpc.split_params(request.params)
    peer = detector.detect(request, split.meta, version_headers(headers), session_peer)
    if peer is ENDED or (peer is None and session_peer is ENDED):
        raise unknown_session()
    warning = ""
    if peer is None:
        version_header(headers, detector.accepts)
        if session_peer is not None:
            raise _second_handshake()
        return None
    if (
        peer is session_peer
        and _BY_HEADER.get(headers.get(b"mcp-protocol-version", b"")) is not peer.revision
    ):
        warning = session_revision(headers, detector.accepts, peer.revision).warning
    definition = peer.revision.methods.get(request.method)
    is_core = definition is not None
    if not is_core and current is not None:
        definition = current().extension_method(request.method, peer.revision)
    if peer.revision.http.routing_headers:
        check_routing(headers, request, definition, split)
    # Most methods share one set of senders; hashing a member of an enum costs more than all the
    # rest.
    if (
        definition is None
        or definition.load_result is None
        or not (definition.senders is CLIENT or Side.CLIENT in definition.senders)
    ):
        words = f"{request.method[:80]!r} is not a method of this server"
        status = peer.revision.http.unknown_method_status  # R0867
        raise HttpError(status, words, kind=FaultKind.METHOD_NOT_FOUND)
    if not is_core:
        require_declared(definition, peer)  # R1207
    return AdmittedRequest(peer, definition, split, warning)


def check_routing(
    headers: Headers, request: Request, definition: Method | None, split: SplitParams
) -> None:
    """Raise `Fault` unless `Mcp-Method` and `Mcp-Name` match the body (R0870, R0909).

    `definition` is None for an unknown method, which has no name to compare.
    """
    value = headers.get(b"mcp-method")
    if definition is None or value != request.method.encode():
        # The slow path: whitespace around a value is accepted, and it may hold anything.
        found = None if value is None else read_text(METHOD_HEADER, value)
        if found != request.method:
            raise header_mismatch(METHOD_HEADER, found, request.method)
    if definition is None or definition.name_param is None:
        return
    name = (
        split.name
        if definition.name_param == "name"
        else name_of(definition, split, request.params)
    )
    value = headers.get(b"mcp-name")
    if value is None and definition.name_param == "taskId":
        return  # D71
    if value is None or _name(value) != name:
        words = name if isinstance(name, str) else "nothing"
        raise header_mismatch(NAME_HEADER, None if value is None else _name(value), words)


@lru_cache(MAX_REMEMBERED)
def _name(value: bytes) -> str:
    return decode_text(NAME_HEADER, value)  # R0891, R0912


def _plain(value: bytes) -> str:
    return value.strip(b" \t").decode("latin-1")


def name_of(definition: Method, split: SplitParams, params: Raw) -> object:
    """The value that `Mcp-Name` mirrors: the member of the params that the method names, None
    for none."""
    if definition.name_param == "name":
        return split.name
    if definition.name_param == "uri":
        return split.uri
    if definition.name_param == "taskId":
        return split.task_id
    if definition.name_param is None or not params:
        return None
    try:
        return msgspec.json.decode(_members.decode(params).get(definition.name_param, b"null"))
    except DECODE_ERRORS as error:
        raise Fault(FaultKind.PARSE, f"params cannot be decoded: {error}") from None


_members = msgspec.json.Decoder(dict[str, Raw])


# ---------------------------------------------------------------- notifications, responses, batches


def accept_post(frame: Notification | ResultResponse | ErrorResponse, revision: Revision) -> int:
    """The status for a message without a response; raises if it must not be posted (D29)."""
    if isinstance(frame, Notification) or revision.input_requests is InputRequests.AS_REQUEST:
        return ACCEPTED  # R0249, R0852
    # R0851: if input requests are in results, no response is awaited.
    raise Fault(FaultKind.INVALID_REQUEST, "a response cannot be posted; send the request again")


def admit_batch(batch: Batch, revision: Revision | None) -> Batch:
    """The batch with a fault in place of each `initialize` (R0236). D26.

    `revision` is that of the session. Raises `Fault` if there is none, or it has no batches.
    """
    if revision is None or not revision.batches:  # R0355, R0850
        raise Fault(
            FaultKind.INVALID_REQUEST, "batches are not supported here; post each message by itself"
        )
    return Batch(tuple(_admit_item(item) for item in batch.items))


def _admit_item(item: Frame | Fault) -> Frame | Fault:
    if isinstance(item, Request) and item.method == HANDSHAKE_METHOD:
        words = "initialize cannot be in a batch; send it by itself, before anything else"
        return Fault(FaultKind.INVALID_REQUEST, words, raw_id=item.raw_id)
    return item


def status_of_batch(batch: Batch) -> int:
    """200 if there is a request in it, 202 if there is none, 400 if there are only faults."""
    if any(isinstance(item, Request) for item in batch.items):
        return OK
    return BAD_REQUEST if any(isinstance(item, Fault) for item in batch.items) else ACCEPTED


# ---------------------------------------------------------------- sessions


def valid_session_id(text: str) -> bool:
    """Whether this may be a session id: visible ASCII, and not too long to be kept (R0284)."""
    return (
        text.isascii()
        and text.isprintable()
        and " " not in text
        and (0 < len(text) <= MAX_SESSION_ID_LENGTH)
    )


def session_id(headers: Headers) -> str | None:
    """The session id of a request, None without one. Raises 400 for an invalid id."""
    value = headers.get(b"mcp-session-id")
    if value is None:
        return None
    text = _plain(value)
    if not valid_session_id(text):
        words = f"{SESSION_HEADER} is not visible ASCII, or was sent twice"
        raise HttpError(BAD_REQUEST, words)
    return text


def require_session(headers: Headers) -> str:
    """The session id of a request; raises 400 without one (R0286)."""
    named = session_id(headers)
    if named is None:
        words = f"{SESSION_HEADER} is missing; send the one that the response to initialize had"
        raise HttpError(BAD_REQUEST, words)
    return named


def unknown_session() -> HttpError:
    """404 for a session that ended, never existed, or is another principal's (R0287).

    One error for all three: which ids exist must not be revealed.
    """
    return HttpError(NOT_FOUND, "no such session; send initialize again, without a session id")


def check_owner(owner: str | None, principal: str) -> None:
    """Raise 404 unless the session exists, `owner` not being None, and belongs to this
    principal."""
    if owner != principal:
        raise unknown_session()


def _second_handshake() -> Fault:
    # D27: what was negotiated in a session cannot be changed from inside it.
    words = "initialize inside a session; send it without a session id to open another one"
    return Fault(FaultKind.INVALID_REQUEST, words)


class GoverningRevision(Struct, frozen=True):
    """The revision of a request, and for the log a mistake that was tolerated."""

    revision: Revision
    warning: str = ""


def version_header(headers: Headers, accepts: Revisions) -> Revision | None:
    """The revision that the header names, None without one. Raises for one that is not accepted."""
    value = headers.get(b"mcp-protocol-version")
    if value is None:
        return None
    named = accepts.get(_plain(value))
    if named is None:  # R0359
        raise unsupported_version(_plain(value)[:80], accepts)
    return named


def session_revision(
    headers: Headers, accepts: Revisions, session: Revision | None = None
) -> GoverningRevision:
    """The revision of a request without an envelope; `session` is that of its session.

    The revision of a session stays, whatever other one the header names (D7). Without a session the
    header decides; without both it is the one revision that had no such header (D6, R0358), and a
    server that does not accept that one refuses (R0869).
    """
    named = version_header(headers, accepts)
    if session is not None:
        if named is None or named is session:
            return GoverningRevision(session)
        return GoverningRevision(
            session, f"{VERSION_HEADER} is {named.date}, the session uses {session.date}"
        )
    if named is not None:
        return GoverningRevision(named)
    for revision in accepts:
        if revision.http.sessions and not revision.http.version_header:
            return GoverningRevision(revision)
    raise header_mismatch(VERSION_HEADER, None, "")


def last_event_id(headers: Headers, revision: Revision) -> str | None:
    """The event after which a stream is resumed; None if nothing is resumed (R0920)."""
    value = headers.get(b"last-event-id")
    if value is None or not revision.http.resumable:
        return None
    text = _plain(value)
    if not text.isascii() or not text.isprintable() or len(text) > MAX_EVENT_ID_LENGTH:
        raise unknown_event()
    return text


def unknown_event() -> HttpError:
    """400 for an event id that no stream of this session has (D28).

    An empty stream instead would leave the client waiting for a response that never comes.
    """
    return HttpError(
        BAD_REQUEST, f"{EVENT_HEADER} names no event that is kept; send the request again"
    )


# ---------------------------------------------------------------- headers of a client

_TYPES = (("Content-Type", JSON_TYPE), ("Accept", f"{JSON_TYPE}, {EVENTS_TYPE}"))


def headers_for_request(
    definition: Method,
    revision: Revision | None,
    name: object = None,
    *,
    session: str | None = None,
) -> list[tuple[str, str]]:
    """The headers of a POST. `name` is what `name_of` finds in its params.

    `revision` is None before one was negotiated. Raises `LocalProtocolError` for a name that no
    header can carry.
    """
    headers = headers_for_post(revision, session)
    if revision is not None and revision.http.routing_headers:  # R0849, R0895
        headers.append((METHOD_HEADER, definition.name))
        if definition.name_param is not None:
            if not isinstance(name, str):
                raise LocalProtocolError(
                    f"{definition.name} needs {definition.name_param!r} in its params"
                )
            headers.append((NAME_HEADER, encode_text(name)))  # R0871
    return headers


def headers_for_post(revision: Revision | None, session: str | None) -> list[tuple[str, str]]:
    """The headers of every POST; one that holds a response has no others."""
    return [*_TYPES, *headers_for_session(revision, session)]


def headers_for_session(revision: Revision | None, session: str | None) -> list[tuple[str, str]]:
    """The headers of every request; a DELETE has no others (R0285, R0356, R0863)."""
    headers: list[tuple[str, str]] = []
    if revision is not None and revision.http.version_header:
        headers.append((VERSION_HEADER, revision.date))
    if session is not None:
        if not valid_session_id(session):
            raise LocalProtocolError("not a session id; take it from `assigned_session`")
        headers.append((SESSION_HEADER, session))
    return headers


def headers_for_stream(
    revision: Revision, session: str | None, after: str | None = None
) -> list[tuple[str, str]]:
    """The headers of a GET that opens a stream, or resumes one after an event (R0266)."""
    headers = [("Accept", EVENTS_TYPE), *headers_for_session(revision, session)]
    if after:
        if not after.isascii() or not after.isprintable():
            raise RemoteProtocolError(
                "the server's event id cannot be sent back; send the request again"
            )
        headers.append((EVENT_HEADER, after))
    return headers


def assigned_session(value: str | None) -> str | None:
    """The session id that a server assigned, if any; `RemoteProtocolError` for an invalid one."""
    if value is not None and not valid_session_id(value):
        raise RemoteProtocolError(f"the server's {SESSION_HEADER} is not visible ASCII")
    return value
