"""The headers that a client sends: what every request has, and what mirrors its body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import (
    FaultKind,
    LocalProtocolError,
    RemoteProtocolError,
)
from colonnade.protocol import methods
from colonnade.protocol.http.rules import (
    check_routing,
    headers_for_request,
    headers_for_session,
    headers_for_stream,
    name_of,
)
from colonnade.protocol.http.security import (
    lowercase_headers,
    parse_accept,
)
from colonnade.protocol.jsonrpc import split_params
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import PeerDetector
from colonnade.protocol.revision import (
    JULY_2026,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    Revision,
)
from posts import let_in, refusal, request

# ---------------------------------------------------------------- what a client sends


@pytest.mark.spec("R0247")
def test_every_post_accepts_json_and_streams(revision: Revision) -> None:
    sent = dict(headers_for_request(methods.LIST_TOOLS, revision))
    assert sent["Accept"] == "application/json, text/event-stream"
    assert sent["Content-Type"] == "application/json"
    answers = parse_accept(sent["Accept"].encode())
    assert answers.json
    assert answers.events


@pytest.mark.spec("R0266")
def test_a_get_accepts_streams(revision: Revision) -> None:
    sent = dict(headers_for_stream(revision, "s1", "stream-1/7"))
    assert sent["Accept"] == "text/event-stream"
    assert sent["Last-Event-ID"] == "stream-1/7"
    assert "Last-Event-ID" not in dict(headers_for_stream(revision, "s1"))
    assert "Last-Event-ID" not in dict(headers_for_stream(revision, "s1", ""))


@pytest.mark.parametrize("after", ["a\r\nHost: evil", "ü", "\x00"])
def test_an_event_id_that_no_header_can_carry_is_not_sent(after: str) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be sent back"):
        headers_for_stream(NOVEMBER_2025, "s1", after)


@pytest.mark.spec("R0285")
def test_the_session_id_is_repeated_on_every_request(revision: Revision) -> None:
    for sent in (
        headers_for_request(methods.LIST_TOOLS, revision, session="s1"),
        headers_for_stream(revision, "s1"),
        headers_for_session(revision, "s1"),
    ):
        assert ("Mcp-Session-Id", "s1") in sent


@pytest.mark.spec("R0356", "R0357")
def test_every_request_after_the_handshake_names_the_agreed_revision(revision: Revision) -> None:
    for sent in (
        headers_for_request(methods.LIST_TOOLS, revision, session="s1"),
        headers_for_request(methods.INITIALIZED, revision, session="s1"),
        headers_for_stream(revision, None),
        headers_for_session(revision, "s1"),
    ):
        assert ("MCP-Protocol-Version", revision.date) in sent
        assert "Mcp-Method" not in dict(sent)


def test_before_a_revision_is_agreed_on_and_in_the_oldest_no_version_is_named() -> None:
    for sent in (
        headers_for_request(methods.INITIALIZE, None),
        headers_for_request(methods.LIST_TOOLS, NOVEMBER_2024, session="s1"),
        headers_for_stream(MARCH_2025, "s1"),
    ):
        assert "MCP-Protocol-Version" not in dict(sent)


NAMED = [
    (methods.LIST_TOOLS, {}, None),
    (methods.CALL_TOOL, {"name": "get_weather"}, "get_weather"),
    (methods.GET_PROMPT, {"name": "wetter für heute"}, "=?base64?d2V0dGVyIGbDvHIgaGV1dGU=?="),
    (methods.READ_RESOURCE, {"uri": "file:///a/b.json"}, "file:///a/b.json"),
    (methods.READ_RESOURCE, {"uri": "file:///ä"}, "=?base64?ZmlsZTovLy/DpA==?="),
    (methods.CALL_TOOL, {"name": "=?base64?x?="}, "=?base64?PT9iYXNlNjQ/eD89?="),
]


@pytest.mark.spec("R0849", "R0863", "R0870", "R0871", "R0889", "R0894", "R0895")
@pytest.mark.parametrize(("row", "params", "name"), NAMED)
def test_a_modern_post_mirrors_version_method_and_name(
    row: Method, params: dict[str, str], name: str | None
) -> None:
    body = request(row.name, params)
    sent = headers_for_request(row, JULY_2026, name_of(row, split_params(body.params), body.params))
    found = dict(sent)
    assert len(found) == len(sent)
    assert found["MCP-Protocol-Version"] == JULY_2026.date
    assert found["Mcp-Method"] == row.name
    assert found.get("Mcp-Name") == name
    headers = lowercase_headers([(key.encode(), value.encode()) for key, value in sent])
    assert let_in(body, headers, PeerDetector()).method is row


def test_a_request_that_needs_a_name_cannot_be_sent_without() -> None:
    with pytest.raises(LocalProtocolError, match="tools/call needs 'name'"):
        headers_for_request(methods.CALL_TOOL, JULY_2026)
    assert headers_for_request(methods.CALL_TOOL, NOVEMBER_2025)


# ---------------------------------------------------------------- anything at all


@pytest.mark.spec("R0871", "R0889", "R0892")
@given(st.text(max_size=200))
def test_every_name_travels_and_none_can_leave_its_header(name: str) -> None:
    sent = headers_for_request(methods.CALL_TOOL, JULY_2026, name)
    assert all(part.isascii() and part.isprintable() for pair in sent for part in pair)
    headers = lowercase_headers([(key.encode(), value.encode()) for key, value in sent])
    body = request(params={"name": name})
    assert let_in(body, headers, PeerDetector()).params.name == name


@pytest.mark.spec("R0909")
@given(st.text(max_size=20), st.text(max_size=20))
def test_no_name_passes_for_another(said: str, meant: str) -> None:
    sent = headers_for_request(methods.CALL_TOOL, JULY_2026, said)
    headers = lowercase_headers([(key.encode(), value.encode()) for key, value in sent])
    body = request(params={"name": meant})
    if said == meant:
        check_routing(headers, body, methods.CALL_TOOL, split_params(body.params))
    else:
        fault = refusal(check_routing, headers, body, methods.CALL_TOOL, split_params(body.params))
        assert fault.kind is FaultKind.HEADER_MISMATCH
