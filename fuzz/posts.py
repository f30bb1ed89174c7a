"""HTTP requests: let in by every rule, or refused with a status; never anything else.

What must hold of a request that is let in, by a second look at what came:

- it names this server as its host, and no page of elsewhere is behind it;
- its headers say what its body says, wherever a proxy may have routed by them;
- the same request is judged the same a second time, whatever was remembered.

Rules: nothing is read here with the functions that are judged.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from random import Random
from typing import Final, cast

import msgspec
from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http import rules as http
from colonnade.protocol.http import security as gates
from colonnade.protocol.http.param_headers import check_params, headers_for_call, param_headers
from colonnade.protocol.jsonrpc import Batch, Request, decode, encode_error
from colonnade.protocol.negotiation import Identity, Peer, PeerDetector
from colonnade.protocol.negotiation_cache import MAX_REMEMBERED
from colonnade.protocol.revision import ALL, EVERY, NEWEST, Revision, error_code
from fuzz.corpus import CLIENT_CAN, EVERY_MESSAGE, JSON, TOOL_SCHEMA, Seed
from fuzz.corpus_wire import HEADER_NAMES, HEADER_VALUES, POSTS, Post
from fuzz.frames import Members, second_opinion
from fuzz.mutate import MAX_INPUT_BYTES, change_bytes, mutate
from fuzz.target import Case, check_answer, check_fault, held, ours

STATUSES: Final = frozenset({200, 202, 400, 401, 403, 404, 405, 406, 413, 415})
PORT: Final = "8080"
DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
TOOL: Final = param_headers(TOOL_SCHEMA)
SERVER: Final = Identity(
    t.Implementation(name="fuzzed", version="1"),
    t.ServerCapabilities(extensions={t.TASKS_EXTENSION_ID: {}}),
)
CLIENT: Final = decode_as(t.ClientCapabilities, msgspec.json.encode(CLIENT_CAN))
# What the session that a request names agreed on; none at all, and one that has ended.
KNOWN: Final[dict[str, Peer | None]] = {
    "-": None,
    "ended": http.ENDED,
    **{revision.date: Peer(revision, CLIENT) for revision in ALL if revision.handshake},
}

Pairs = Sequence[tuple[bytes, bytes]]


class Posts:
    """The gate, `admit`, `check_params`, and what concerns sessions, in the order of D4."""

    name = "posts"

    def __init__(self, gate: type[gates.EndpointChecks] = gates.EndpointChecks) -> None:
        policy = gates.HostPolicy.for_bind("127.0.0.1", 8080)
        self._gate = gate(policy, gates.endpoint_methods(EVERY))
        self._recogniser = PeerDetector(EVERY)

    # ------------------------------------------------------------ drawing

    def draw(self, rng: Random, most: int) -> Case:
        post = rng.choice(POSTS)
        body, headers, method = post.body.body, list(post.headers), post.method
        changes = rng.randint(1, 3)
        for _ in range(changes):
            way = rng.randrange(10)
            if way < 4 or not headers:
                body = mutate(rng, _as_seed(post, body), EVERY_MESSAGE, gently=True)
            elif way < 9:
                _change_headers(rng, headers)
            else:
                method = rng.choice((b"GET", b"POST", b"DELETE", b"PUT", b"post", b"", b"\xff"))
        known = post.known or "-"
        if not rng.randrange(12):
            known = rng.choice(list(KNOWN))
        parts = [part for pair in headers for part in pair]
        return Case(known, (method, body, *parts))

    # ------------------------------------------------------------ checking

    def check(self, case: Case) -> list[str]:
        method, body, *rest = case.parts
        held(sum(map(len, case.parts)) <= 4 * MAX_INPUT_BYTES, "an input that is too large")
        pairs = list(zip(rest[::2], rest[1::2], strict=False))
        known = KNOWN[case.where]
        for _, value in pairs:
            check_reused(value.decode("latin-1"))
        first = self._judge(method.decode("latin-1"), pairs, body, known)
        again = self._judge(method.decode("latin-1"), pairs, body, known)
        held(first == again, f"the same request was judged otherwise: {first} and {again}")
        return [first.partition(": ")[0]]

    def _judge(self, method: str, pairs: Pairs, body: bytes, known: Peer | None) -> str:
        passed = len(self._gate._passed)
        admitted = False
        try:
            headers = gates.lowercase_headers(pairs)
            self._gate.check(method, headers)
            admitted = True
            check_gate(method, pairs)
            gates.check_size(gates.declared_size(headers))
            return self._judge_inside(method, pairs, body, known)
        except Fault as fault:
            check_refusal(fault, known.revision if known else None)
            held(admitted or len(self._gate._passed) == passed, "a refusal was remembered")
            return f"{http.status_of(fault, admitted=False)}: {fault.message}"
        finally:
            held(len(self._gate._passed) <= gates.MAX_REMEMBERED, "too much is remembered")
            held(len(self._recogniser._cache) <= MAX_REMEMBERED, "too much is remembered")

    def _judge_inside(self, method: str, pairs: Pairs, body: bytes, known: Peer | None) -> str:
        headers = gates.lowercase_headers(pairs)
        session = http.session_id(headers)
        held(session is None or session.isprintable(), "a session id that is none")
        if method != "POST":
            http.require_session(headers)
            revision = http.session_revision(headers, EVERY, known and known.revision).revision
            http.last_event_id(headers, revision)
            return f"200 {method}"
        frame = decode(body)
        if isinstance(frame, Batch):
            batch = http.admit_batch(frame, known and known.revision)
            return f"{http.status_of_batch(batch)} batch"
        if not isinstance(frame, Request):
            revision = http.session_revision(headers, EVERY, known and known.revision).revision
            return f"{http.accept_post(frame, revision)} {type(frame).__name__.lower()}"
        admission = http.admit(frame, headers, self._recogniser, known, lambda: SERVER)
        if admission is None:
            held(frame.method == "initialize", "another method opened a session")
            return "200 initialize"
        if admission.peer.revision.http.routing_headers:
            check_routed(pairs, body)
        if admission.method.name == "tools/call":
            check_params(TOOL, headers, admission.params.arguments)
            check_mirrored(pairs, frame.params)
        return f"200 {'modern' if admission.peer.revision is NEWEST else 'session'} request"


def _as_seed(post: Post, body: bytes) -> Seed:
    return post.body if body == post.body.body else Seed(body)


def _change_headers(rng: Random, headers: list[tuple[bytes, bytes]]) -> None:
    at = rng.randrange(len(headers))
    name, value = headers[at]
    way = rng.randrange(8)
    if way == 0:
        del headers[at]
    elif way == 1:
        headers.append((name, value if rng.randrange(2) else rng.choice(HEADER_VALUES)))
    elif way == 2:
        headers[at] = (rng.choice((name.upper(), name.lower(), name + b" ")), value)
    elif way == 3:
        headers.append((rng.choice(HEADER_NAMES), rng.choice(HEADER_VALUES)))
    elif way == 4:
        headers[at] = (name, rng.choice((b" ", b"\t", b"")) + value + rng.choice((b" ", b"\t")))
    elif way == 5:
        headers[at] = (name, rng.choice(HEADER_VALUES))
    else:
        headers[at] = (name, change_bytes(rng, value, EVERY_MESSAGE, HEADER_VALUES))


# ---------------------------------------------------------------- a second look


def _values(pairs: Pairs, name: bytes) -> list[bytes]:
    return [value for header, value in pairs if header.lower() == name]


def check_gate(method: str, pairs: Pairs) -> None:
    """Who passed the gate asked for this machine, and no page of another place made them (D47)."""
    hosts, origins = _values(pairs, b"host"), _values(pairs, b"origin")
    asked = hosts[0].decode("latin-1").strip(" \t").lower() if len(hosts) == 1 else ""
    held(_is_loopback(_split(asked)[0]), f"let in for {hosts}")
    for origin in origins:
        scheme, _, host = origin.decode("latin-1").strip(" \t").lower().partition("://")
        held(len(origins) == 1, f"let in with {origins}")
        held(scheme in DEFAULT_PORTS and _is_ours(host, asked, scheme), f"let in from {origins}")
    if method == "POST":
        types = {value.strip(b" \t")[:16].lower() for value in _values(pairs, b"content-type")}
        held(types == {b"application/json"}, f"let in with {types}")


def _split(host: str) -> tuple[str, str]:
    """A name, and its port if it has one; the colons of an address stand in brackets."""
    name, found, port = host.rpartition(":")
    return (name, port) if found and not port.endswith("]") else (host, "")


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_ours(host: str, asked: str, scheme: str) -> bool:
    """Whether pages of this host are: on the port that is bound, or where the request went."""
    name, port = _split(host)
    to_name, to_port = _split(asked)
    if not _is_loopback(name):
        return False
    usual = DEFAULT_PORTS[scheme]
    return port == PORT or (name, port or usual) == (to_name, to_port or usual)


def check_refusal(fault: Fault, revision: Revision | None) -> None:
    """A refusal can be told, with a status and in words, whoever asked."""
    check_fault(fault)
    for admitted in (True, False):
        held(http.status_of(fault, revision, admitted=admitted) in STATUSES, "no known status")
    for null_id in (True, False):
        check_answer(
            encode_error(
                fault.raw_id,
                error_code(fault, revision),
                fault.message,
                fault.data,
                null_id=null_id,
            )
        )
    for name, value in fault.headers if isinstance(fault, gates.HttpError) else ():
        held((name + value).isprintable() and (name + value).isascii(), "a header of two lines")


def check_reused(value: str) -> None:
    """What a server sends as a session or an event is sent back safely, or not at all."""
    session = ours(lambda: http.assigned_session(value))
    if isinstance(session, str):
        ours_again = http.headers_for_session(NEWEST, session)
        held(all(text.isprintable() for _, text in ours_again), f"{session!r} would be sent back")
    stream = ours(lambda: http.headers_for_stream(NEWEST, None, value))
    if isinstance(stream, list):
        held(all(text.isprintable() for _, text in stream), f"{value!r} would be sent back")


def check_routed(pairs: Pairs, body: bytes) -> None:
    """What a proxy saw is what the body says."""
    tree = second_opinion(body)
    held(isinstance(tree, Members), "a request that is no object")
    params = tree.get("params") or {}
    methods = {value.strip(b" \t") for value in _values(pairs, b"mcp-method")}
    held(methods == {tree["method"].encode()}, f"routed by {methods} to {tree['method']!r}")
    versions = {value.strip(b" \t") for value in _values(pairs, b"mcp-protocol-version")}
    version = params["_meta"][t.PROTOCOL_VERSION_KEY].encode()
    held(versions == {version}, f"{versions} in the header, {version} in the body")


def check_mirrored(pairs: Pairs, params: Raw) -> None:
    """Each mirrored argument has its header and each header its argument; and ours would pass."""
    arguments = (second_opinion(bytes(params)) if params else {}).get("arguments") or {}
    for header in TOOL:
        value: JSON = arguments
        for name in header.path:
            members = cast("dict[str, JSON]", value if isinstance(value, dict) else {})
            value = members.get(name)
        sent = _values(pairs, header.key)
        held(bool(sent) is (value is not None), f"{header.header} is {sent}, the body has {value}")
    headers = ours(lambda: headers_for_call(TOOL, arguments))
    if isinstance(headers, ColonnadeError):
        held(isinstance(headers, LocalProtocolError), "our own headers were refused as a peer's")
        return
    for name, value in headers:
        held(value.isascii() and value.isprintable(), f"{name} would be written as {value!r}")
    ours_again = gates.lowercase_headers(
        [(name.encode(), value.encode()) for name, value in headers]
    )
    check_params(TOOL, ours_again, Raw(msgspec.json.encode(arguments)))
