"""The order of checks, the headers of a request, sessions, and the status of every answer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import (
    AuthError,
    Fault,
    FaultKind,
    LoginRequired,
    ScopeRequired,
)
from colonnade.protocol import methods
from colonnade.protocol.http.param_headers import check_params, param_headers
from colonnade.protocol.http.rules import (
    ENDED,
    admit,
    headers_for_request,
    headers_for_session,
    last_event_id,
    name_of,
    session_id,
    session_revision,
    status_of,
    version_headers,
)
from colonnade.protocol.http.security import (
    EndpointChecks,
    HostPolicy,
    check_size,
    combine_headers,
    endpoint_methods,
    lowercase_headers,
)
from colonnade.protocol.jsonrpc import Request, decode, split_params
from colonnade.protocol.negotiation import (
    Identity,
    Peer,
    PeerDetector,
    VersionHeaders,
    missing_capability,
)
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    JUNE_2025,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)
from colonnade.protocol.types import Implementation, ServerCapabilities
from posts import (
    CAPABILITIES,
    HANDSHAKES,
    META,
    MODERN_ONLY,
    TASKS,
    VERSION,
    answer,
    let_in,
    modern,
    refusal,
    request,
    session,
    without,
)

SERVER = Implementation(name="library", version="1")
WITH_TASKS = {**META, CAPABILITIES: {"extensions": {TASKS: {}}}}


def serves_tasks() -> Identity:
    return Identity(SERVER, ServerCapabilities(extensions={TASKS: {}}))


# ---------------------------------------------------------------- the status of an answer

# Faults of a request that was let in, by the revision with and without codes of its own for them.
STATUSES: dict[FaultKind, tuple[int, int]] = {
    FaultKind.PARSE: (400, 400),
    FaultKind.INVALID_REQUEST: (400, 400),
    FaultKind.METHOD_NOT_FOUND: (200, 404),
    FaultKind.INVALID_PARAMS: (200, 200),
    FaultKind.INTERNAL: (200, 200),
    FaultKind.RESOURCE_MISSING: (200, 200),
    FaultKind.HEADER_MISMATCH: (400, 400),
    FaultKind.CAPABILITY_MISSING: (200, 400),
    FaultKind.EXTENSION_MISSING: (200, 400),
    FaultKind.VERSION_UNSUPPORTED: (400, 400),
    FaultKind.URL_ELICITATION_REQUIRED: (200, 200),
    FaultKind.USER_REJECTED: (200, 200),
    FaultKind.TOO_MANY: (429, 429),
}


def test_every_kind_of_fault_has_a_status_in_every_revision(revision: Revision) -> None:
    assert STATUSES.keys() == set(FaultKind.members())
    for kind, (legacy, newest) in STATUSES.items():
        fault = Fault(kind, "x")
        assert status_of(fault, revision) == (legacy if revision.handshake else newest)
        assert status_of(fault, revision, streaming=True) == 200
        assert status_of(fault) == newest


def test_a_result_is_200(revision: Revision) -> None:
    assert status_of(None, revision) == 200


@pytest.mark.spec("R1071", "R1116", "R1149")
def test_the_three_faults_of_the_newest_revision_are_bad_requests(revision: Revision) -> None:
    codes = {}
    for kind in (
        FaultKind.HEADER_MISMATCH,
        FaultKind.CAPABILITY_MISSING,
        FaultKind.VERSION_UNSUPPORTED,
    ):
        codes[error_code(Fault(kind, "x"), revision)] = status_of(Fault(kind, "x"), revision)
    assert codes == {-32020: 400, -32021: 400, -32022: 400}
    assert status_of(missing_capability("ask", sampling={}), revision) == 400


@pytest.mark.spec("R0217")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LoginRequired("no token"), 401),
        (ScopeRequired("read only"), 403),
        (AuthError("malformed"), 400),
    ],
)
def test_errors_of_authorization_have_their_status(
    revision: Revision, error: AuthError, status: int
) -> None:
    assert status_of(error, revision) == status
    assert status_of(error, revision, admitted=False) == status


def test_bad_params_are_a_bad_request_only_before_the_request_is_let_in(revision: Revision) -> None:
    fault = Fault(FaultKind.INVALID_PARAMS, "no such tool")
    assert status_of(fault, revision) == 200
    assert status_of(fault, revision, admitted=False) == 400


# ---------------------------------------------------------------- the order of D4


MIRRORED = param_headers({"properties": {"city": {"type": "string", "x-mcp-header": "City"}}})


class Attempt:
    """A POST with everything wrong, and a server of one tool that goes through all the steps."""

    def __init__(self) -> None:
        self.gate = EndpointChecks(HostPolicy.for_bind("127.0.0.1", 8000), endpoint_methods(EVERY))
        self.verb = "PUT"
        self.token = ""
        self.headers: dict[bytes, bytes] = {b"host": b"evil.example"}
        self.raw = b"[" * 501
        self.method = "tools/cal"
        self.params: dict[str, Any] = {"_meta": {}}

    def fix(self, *, meta: dict[str, Any] | None = None, **changes: Any) -> None:
        """Attributes, headers (in lower case, with `h_` before them), params, members of _meta."""
        for name, value in changes.items():
            if name.startswith("h_"):
                self.headers[name[2:].replace("_", "-").encode()] = value.encode()
            elif name in ("name", "arguments"):
                self.params[name] = value
            else:
                setattr(self, name, value)
        self.params["_meta"] |= meta or {}
        if "raw" not in changes and self.raw[:1] == b"{":
            message = {"jsonrpc": "2.0", "id": 1, "method": self.method, "params": self.params}
            self.raw = json.dumps(message).encode()

    def post(self) -> tuple[int, int]:
        revision = None
        try:
            self.gate.check(self.verb, self.headers)
            if not self.token:
                raise LoginRequired("who are you?")
            check_size(len(self.raw), 500)
            frame = decode(self.raw)
            assert isinstance(frame, Request)
            admission = let_in(frame, self.headers, PeerDetector())
            revision = admission.peer.revision
            check_params(MIRRORED, self.headers, admission.params.arguments)
            if admission.params.name != "weather":
                raise Fault(FaultKind.INVALID_PARAMS, "no such tool")
            if not admission.peer.offers("sampling"):
                raise missing_capability("this needs a model", sampling={})
        except LoginRequired as error:
            return status_of(error, revision), 0
        except Fault as fault:
            return status_of(fault, revision, admitted=revision is not None), error_code(
                fault, revision
            )
        return status_of(None, revision), 0


# What is answered, and what is mended then.
MENDED: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((403, -32600), {"h_host": "localhost:8000"}),
    ((405, -32600), {"verb": "POST", "h_accept": "text/html"}),
    ((406, -32600), {"h_accept": "*/*"}),
    ((415, -32600), {"h_content_type": "application/json"}),
    ((401, 0), {"token": "good"}),
    ((413, -32600), {"raw": b"{"}),
    ((400, -32700), {"raw": b'{"id":1,"method":"x"}'}),
    ((400, -32600), {"h_mcp_method": "tools/list"}),
    ((400, -32602), {"meta": {VERSION: "2030-01-01"}}),
    ((400, -32602), {"meta": {CAPABILITIES: {}}}),
    ((400, -32020), {"h_mcp_protocol_version": "2030-01-02"}),
    ((400, -32020), {"h_mcp_protocol_version": "2030-01-01"}),
    ((400, -32022), {"h_mcp_protocol_version": JULY_2026.date, "meta": {VERSION: JULY_2026.date}}),
    ((400, -32020), {"h_mcp_method": "tools/cal"}),
    ((404, -32601), {"method": "tools/call"}),
    ((400, -32020), {"h_mcp_method": "tools/call"}),
    ((400, -32020), {"h_mcp_name": "other"}),
    ((400, -32020), {"name": "other", "arguments": {"city": "Oslo"}}),
    ((400, -32020), {"h_mcp_param_city": "Oslo"}),
    ((200, -32602), {"name": "weather", "h_mcp_name": "weather"}),
    ((400, -32021), {"meta": {CAPABILITIES: {"sampling": {}}}}),
]


@pytest.mark.spec("R0761", "R0762", "R0864", "R0865", "R0866", "R0867", "R0870", "R0911", "R1116")
def test_a_modern_post_is_refused_for_the_first_thing_that_is_wrong_with_it() -> None:
    attempt = Attempt()
    for step, (expected, mending) in enumerate(MENDED):
        assert attempt.post() == expected, step
        attempt.fix(**mending)
    assert attempt.post() == (200, 0)


# ---------------------------------------------------------------- a modern request


@pytest.mark.spec("R0863", "R0864", "R0870")
def test_a_request_whose_headers_agree_with_its_body_is_let_in() -> None:
    admission = let_in(request(), modern(), PeerDetector())
    assert admission.peer.revision is JULY_2026
    assert admission.method is methods.CALL_TOOL
    assert admission.params.name == "weather"
    assert bytes(admission.params.arguments) == b'{"city": "Oslo"}'
    assert admission.warning == ""


@pytest.mark.spec("R0863", "R0864", "R0865", "R0869", "R0909", "R0911", "R1133")
@pytest.mark.parametrize("older", [(), HANDSHAKES], ids=["alone", "beside the older ones"])
@pytest.mark.parametrize(
    "version", [None, "", "2030-01-01", "\x00", "2025-11-25", "{0}x", "{0}, {0}"]
)
def test_a_version_header_that_is_absent_or_another_is_a_mismatch(
    revision: Revision, older: tuple[Revision, ...], version: str | None
) -> None:
    recogniser = PeerDetector(Revisions((*older, revision)))
    body = request(meta=META | {VERSION: revision.date})
    said = modern(mcp_protocol_version=revision.date)
    assert let_in(body, said, recogniser).peer.revision is revision
    headers = without(said, b"mcp-protocol-version")
    if version is not None:
        headers = {**headers, b"mcp-protocol-version": version.format(revision.date).encode()}
    assert answer(admit, body, headers, recogniser, revision=revision) == (400, -32020)


@pytest.mark.spec("R0869")
def test_a_modern_only_server_refuses_any_post_without_the_version_header() -> None:
    bare = without(modern(), b"mcp-protocol-version")
    assert answer(admit, request(), bare, PeerDetector(MODERN_ONLY)) == (400, -32020)
    assert answer(admit, request(meta=None), bare, PeerDetector(MODERN_ONLY))[0] == 400
    assert answer(session_revision, {}, MODERN_ONLY) == (400, -32020)


@pytest.mark.spec("R0866", "R0922", "R1149")
@pytest.mark.parametrize("version", ["2030-01-01", NOVEMBER_2025.date, "x"])
def test_a_version_that_is_not_spoken_is_refused_with_the_list(version: str) -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": version}
    headers = modern(mcp_protocol_version=version)
    fault = refusal(admit, request(meta=meta), headers, PeerDetector(MODERN_ONLY))
    assert (status_of(fault, admitted=False), error_code(fault, None)) == (400, -32022)
    assert fault.data == {"supported": [JULY_2026.date], "requested": version}


@pytest.mark.spec("R0761", "R0762")
@pytest.mark.parametrize("absent", META)
def test_a_request_without_its_required_meta_is_a_bad_request(absent: str) -> None:
    meta = {key: value for key, value in META.items() if key != absent}
    assert answer(admit, request(meta=meta), modern(), PeerDetector()) == (400, -32602)
    assert answer(admit, request(meta=None), modern(), PeerDetector()) == (400, -32602)


@pytest.mark.spec("R0870", "R0909", "R0911")
@pytest.mark.parametrize(
    "said",
    [None, "", "tools/list", "TOOLS/CALL", "tools/call2", "tools/call, tools/call", "tools/cäll"],
)
def test_a_method_header_that_is_absent_or_another_is_refused(said: str | None) -> None:
    headers = without(modern(), b"mcp-method") if said is None else modern(said)
    assert answer(admit, request(), headers, PeerDetector()) == (400, -32020)


@pytest.mark.spec("R0870", "R0909", "R0911", "R0891", "R0892", "R0912")
@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "Weather",
        "weather2",
        "=?base64?d2VhdGhlcjI=?=",
        "=?base64?d2VhdGhlcg?=",
        "=?BASE64?d2VhdGhlcg==?=",
        "wäther",
        "weather\n",
    ],
)
def test_a_name_header_that_is_absent_or_another_is_refused(said: str | None) -> None:
    headers = without(modern(), b"mcp-name") if said is None else modern(name=said)
    assert answer(admit, request(), headers, PeerDetector()) == (400, -32020)


@pytest.mark.spec("R0889", "R0891", "R0892", "R0908", "R0912")
@pytest.mark.parametrize("said", [b"weather", b" weather\t", b"=?base64?d2VhdGhlcg==?="])
def test_header_names_have_no_case_and_values_may_be_padded_or_encoded(said: bytes) -> None:
    pairs = [
        (b"MCP-Protocol-VERSION", JULY_2026.date.encode()),
        (b"MCP-METHOD", b" tools/call "),
        (b"Mcp-Name", said),
    ]
    assert let_in(request(), lowercase_headers(pairs), PeerDetector()).method is methods.CALL_TOOL


@pytest.mark.parametrize("header", [b"mcp-method", b"mcp-name", b"mcp-protocol-version"])
def test_a_mirrored_header_that_came_twice_with_two_values_is_refused(header: bytes) -> None:
    pairs = [*modern().items(), (header, b"other")]
    assert answer(admit, request(), combine_headers(pairs), PeerDetector()) == (400, -32020)
    assert answer(admit, request(), combine_headers(pairs[::-1]), PeerDetector()) == (400, -32020)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "weather"}),
        ("prompts/get", {"name": "weather"}),
        ("resources/read", {"uri": "weather"}),
        ("resources/read", {"uri": "weather", "name": "other"}),
    ],
)
@pytest.mark.spec("R0870", "R0909")
def test_each_method_says_which_member_names_it(method: str, params: dict[str, str]) -> None:
    assert let_in(request(method, params), modern(method), PeerDetector()).method.name == method
    assert answer(admit, request(method, params), modern(method, "other"), PeerDetector()) == (
        400,
        -32020,
    )
    assert answer(admit, request(method, params), modern(method, None), PeerDetector()) == (
        400,
        -32020,
    )


@pytest.mark.parametrize(
    "params", [{}, {"name": None}, {"name": 7}, {"name": ["weather"]}, {"uri": "weather"}]
)
def test_a_body_without_a_name_agrees_with_no_header(params: dict[str, object]) -> None:
    for headers in (modern(), modern(name=None), modern(name="None"), modern(name="7")):
        assert answer(admit, request(params=params), headers, PeerDetector()) == (400, -32020)


def test_a_method_that_has_no_name_needs_no_header_for_it() -> None:
    for name in (None, "anything"):
        assert let_in(request("tools/list", {}), modern("tools/list", name), PeerDetector())


@pytest.mark.spec("R1200")
@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "tasks/update", "tasks/cancel"])
def test_the_methods_of_tasks_are_named_by_the_task(method: str) -> None:
    row = JULY_2026.method(method, frozenset({TASKS}))
    assert row is not None
    params = {"name": "t1"} if method == "tools/call" else {"taskId": "t1"}
    body = request(method, params, meta=WITH_TASKS)
    sent = headers_for_request(row, JULY_2026, name_of(row, split_params(body.params), body.params))
    assert ("Mcp-Name", "t1") in sent
    headers = lowercase_headers([(name.encode(), value.encode()) for name, value in sent])
    assert let_in(body, headers, PeerDetector(), current=serves_tasks).method is row
    other = {**headers, b"mcp-name": b"t2"}
    assert answer(admit, body, other, PeerDetector(), current=serves_tasks) == (400, -32020)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_may_lack_the_header_that_proxies_need(method: str) -> None:
    # FastMCP 4.1 sends none (D71).
    body = request(method, {"taskId": "t1"}, meta=WITH_TASKS)
    found = let_in(body, modern(method, None), PeerDetector(), current=serves_tasks)
    assert found.method.name == method


@pytest.mark.spec("R1205", "R1207")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_method_of_an_extension_that_the_caller_did_not_declare_is_refused_with_400(
    method: str,
) -> None:
    body, headers = request(method, {"taskId": "t1"}), modern(method, "t1")
    assert answer(admit, body, headers, PeerDetector(), current=serves_tasks) == (400, -32021)
    refused = refusal(admit, body, headers, PeerDetector(), current=serves_tasks)
    assert refused.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    # The headers come first (D4), and a server without the extension has no such method.
    other = modern(method, "t2")
    assert answer(admit, body, other, PeerDetector(), current=serves_tasks) == (400, -32020)
    assert answer(admit, body, headers, PeerDetector()) == (404, -32601)
    without_tasks = Identity(SERVER, ServerCapabilities())
    found = answer(admit, body, headers, PeerDetector(), current=lambda: without_tasks)
    assert found == (404, -32601)


def test_a_task_that_is_not_named_agrees_with_no_header() -> None:
    for params in ({}, {"taskId": 1}, {"taskId": None}, {"name": "t1"}):
        found = answer(
            admit,
            request("tasks/get", params, meta=WITH_TASKS),
            modern("tasks/get", "t1"),
            PeerDetector(),
            current=serves_tasks,
        )
        assert found == (400, -32020)
    row = methods.EXT_GET_TASK
    assert name_of(row, split_params(Raw(b"")), Raw(b"")) is None
    assert name_of(row, split_params(Raw(b'{"taskId":"t"}')), Raw(b"{}")) == "t"
    assert name_of(methods.LIST_TOOLS, split_params(Raw(b"{}")), Raw(b"{}")) is None
    assert name_of(methods.READ_RESOURCE, split_params(Raw(b'{"uri":"a:b"}')), Raw(b"{}")) == "a:b"
    assert name_of(methods.CALL_TOOL, split_params(Raw(b'{"name":"n"}')), Raw(b"{}")) == "n"
    own = replace(row, name_param="jobId")  # of an extension that somebody wrote
    assert name_of(own, split_params(Raw(b"")), Raw(b"")) is None
    assert name_of(own, split_params(Raw(b"{}")), Raw(b'{"jobId":"j"}')) == "j"
    assert (
        refusal(name_of, own, split_params(Raw(b"{}")), Raw(b'{"jobId":1e999}')).kind
        is FaultKind.PARSE
    )


@pytest.mark.spec("R0867")
@pytest.mark.parametrize(
    "method",
    [
        "unknown/method",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/get",
        "sampling/createMessage",
        "notifications/cancelled",
        "notifications/message",
        "x" * 9999,
    ],
)
def test_a_method_that_the_newest_revision_does_not_have_is_not_found(method: str) -> None:
    headers = modern(method[:8000], None)
    if len(method) > 8000:
        assert answer(admit, request(method), headers, PeerDetector()) == (400, -32020)
        return
    for known in (None, ENDED, session(NOVEMBER_2025)):
        assert answer(admit, request(method), headers, PeerDetector(), known) == (404, -32601)


def test_an_unknown_method_is_compared_with_its_header_all_the_same() -> None:
    for method in ("a\nb", "\x00", "ä"):
        assert answer(admit, request(method), modern(method, None), PeerDetector()) == (400, -32020)
    assert answer(admit, request("a/b"), modern("a/c", None), PeerDetector()) == (400, -32020)


def test_a_method_that_only_a_server_may_send_is_not_found() -> None:
    for method in ("sampling/createMessage", "roots/list"):
        found = answer(admit, request(method, meta=None), {}, PeerDetector(), session(JUNE_2025))
        assert found == (200, -32601)
    admission = let_in(request("ping", {}, None), {}, PeerDetector(), session(JUNE_2025))
    assert admission.method is methods.PING


@pytest.mark.spec("R0919", "R0920")
@pytest.mark.parametrize(
    "known", [None, ENDED, session(NOVEMBER_2025)], ids=["none", "ended", "live"]
)
def test_a_modern_request_ignores_the_session_and_the_event_that_it_names(
    known: Peer | None,
) -> None:
    headers = {**modern(), b"mcp-session-id": b"anything at all", b"last-event-id": b"9"}
    for accepts in (EVERY, MODERN_ONLY):
        assert let_in(request(), headers, PeerDetector(accepts), known).peer.revision is JULY_2026
    assert last_event_id(headers, JULY_2026) is None
    assert headers_for_session(JULY_2026, None) == [("MCP-Protocol-Version", JULY_2026.date)]


@pytest.mark.parametrize(
    "version", [JULY_2026.date, NOVEMBER_2025.date, "2030-01-01", " 2026-07-28 "]
)
def test_the_signs_are_the_version_and_whether_the_request_is_routed(version: str) -> None:
    assert version_headers({}) == VersionHeaders(None, False)
    assert version_headers({b"mcp-method": b"x"}) == VersionHeaders(None, True)
    assert version_headers({b"mcp-protocol-version": version.encode()}) == VersionHeaders(
        version.strip(), False
    )
    assert version_headers(
        {b"mcp-protocol-version": version.encode(), b"mcp-method": b"x"}
    ) == VersionHeaders(version.strip(), True)


def test_params_that_cannot_be_read_are_a_bad_request() -> None:
    bad = replace(request(), raw_params=Raw(b'{"name":1e999}'), split_params=None)
    assert answer(admit, bad, modern(), PeerDetector())[0] == 400


# ---------------------------------------------------------------- anything at all


MCP_HEADERS = [
    b"mcp-protocol-version",
    b"mcp-method",
    b"mcp-name",
    b"mcp-session-id",
    b"last-event-id",
]
WORDS = st.binary(max_size=30) | st.sampled_from(
    [
        b"tools/call",
        b"weather",
        b"\x00",
        b"=?base64?=",
        b"=?base64?d2VhdGhlcg==?=",
        *(r.date.encode() for r in ALL),
    ]
)


@given(
    st.lists(st.tuples(st.sampled_from(MCP_HEADERS), WORDS), max_size=6),
    st.sampled_from([None, ENDED, *(session(revision) for revision in HANDSHAKES)]),
    st.sampled_from([EVERY, MODERN_ONLY, HANDSHAKES]),
    st.sampled_from([META, None, {}]),
    st.sampled_from(["tools/call", "initialize", "tools/list", "server/discover", "x"]),
)
def test_whatever_the_headers_are_a_request_is_let_in_or_refused_with_a_status(
    pairs: list[tuple[bytes, bytes]],
    known: Peer | None,
    accepts: Revisions,
    meta: object,
    method: str,
) -> None:
    headers = combine_headers(pairs)
    before = dict(headers)
    for step in (
        lambda: admit(request(method, meta=meta), headers, PeerDetector(accepts), known),
        lambda: session_id(headers),
        lambda: session_revision(headers, accepts),
        lambda: last_event_id(headers, NOVEMBER_2025),
    ):
        try:
            step()
        except Fault as fault:
            wanted = (200, 404) if fault.kind is FaultKind.METHOD_NOT_FOUND else (400, 404)
            assert status_of(fault, admitted=False) in wanted  # noqa: PT017
    assert headers == before
