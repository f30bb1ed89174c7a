"""Tool calls between two links of one process: what is opened without a message is what the message
would have opened, and all that is not plain must be sent."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import asdict, replace

from colonnade.errors import Fault, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import (
    MAX_DEPTH,
    ResultResponse,
    decode,
    encode_error,
    is_bare_call,
    is_plainly_valid,
    plain_result,
)
from colonnade.protocol.link.in_flight import MAX_RUNNING
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.revision import ALL, Revision
from protocol.input_requests import text
from protocol.links import call, opened, server_of

MODERN = [revision for revision in ALL if not revision.handshake][-1]
HANDSHAKES = [revision for revision in ALL if revision.handshake]
CALL = "tools/call"
PARAMS = t.CallToolRequestParams(name="add", arguments=Raw(b'{"a":[3],"b":4}'))
DEEP = b'{"a":' * (MAX_DEPTH - 1) + b"1" + b"}" * (MAX_DEPTH - 1)


def pair(revision: Revision = MODERN) -> tuple[DuplexLink, DuplexLink]:
    """Both links, after a first call."""
    client, server = opened(revision)
    id, data = client.request(CALL, PARAMS, now=0.0)
    assert call(server, data).settle(text("done")) is not None
    assert client.settle_call(id)
    return client, server


def direct(
    client: DuplexLink,
    server: DuplexLink,
    params: t.RequestParams = PARAMS,
    *,
    timeout_s: float = 60.0,
    progress: bool = True,
) -> Exchange | None:
    return client.call(server, params, 1.0, timeout_s, 600.0, progress)


def fields(exchange: Exchange) -> dict[str, Any]:
    """All that a handler can see of an exchange."""
    request = asdict(exchange.request) | {"frame": b""}
    shown: dict[str, Any] = asdict(exchange) | {"request": request, "deliver": None}
    bare = is_bare_call(exchange.request, exchange.params)
    return shown | {"all": bytes(exchange.request.params), "bare": bare}


@pytest.mark.parametrize("progress", [False, True])
def test_a_call_is_opened_as_its_message_would_have_been(progress: bool) -> None:
    client, server = pair()
    found = direct(client, server, progress=progress)
    assert found is not None
    assert found.settle(text("done")) is not None
    assert client.settle_call(found.request.id)
    again, twin = pair()
    _, data = again.request(CALL, PARAMS, now=1.0, progress=progress)
    sent = call(twin, data)
    token = found.progress_token
    assert token == sent.progress_token == (2 if progress else None)
    assert sent.settle(text("done")) is not None
    encoders = {"encoder": None}
    assert fields(found) | encoders == fields(sent) | encoders


def test_a_call_can_be_cancelled_and_times_out_like_any_other() -> None:
    client, server = pair()
    first, second = direct(client, server), direct(client, server, timeout_s=5.0)
    assert first is not None
    assert second is not None
    assert client.next_deadline == 6.0
    cancellation = client.cancel(first.request.id)
    assert cancellation is not None
    server.receive(cancellation, 1.0)
    assert first.settled
    assert first.settle(text("late")) is None
    assert len(client.tick(6.0)) == 2
    assert not client.settle_call(second.request.id)


def test_the_first_call_of_a_client_is_sent() -> None:
    client, server = opened(MODERN)
    assert direct(client, server) is None


@pytest.mark.parametrize("revision", HANDSHAKES, ids=str)
def test_calls_of_a_session_are_sent(revision: Revision) -> None:
    assert direct(*pair(revision)) is None


def test_after_either_side_has_closed_a_call_is_sent() -> None:
    client, server = pair()
    server.close()
    assert direct(client, server) is None
    client, server = pair()
    client.close()
    assert direct(client, server) is None


@pytest.mark.parametrize(
    "params",
    [
        t.ReadResourceRequestParams(uri="notes://a"),
        replace(PARAMS, name="größe"),
        replace(PARAMS, meta={"example.com/own": 1}),
        replace(PARAMS, task=t.TaskMetadata()),
        replace(PARAMS, request_state="s"),
        replace(PARAMS, input_responses={}),
        replace(PARAMS, arguments=Raw(b"")),
        replace(PARAMS, arguments=Raw('{"a":"ö"}'.encode())),
        replace(PARAMS, arguments=Raw(b"{")),
        replace(PARAMS, arguments=Raw(DEEP)),
    ],
    ids=["other", "name", "meta", "task", "state", "responses", "none", "text", "invalid", "deep"],
)
def test_a_call_that_is_not_plain_is_sent(params: t.RequestParams) -> None:
    client, server = pair()
    assert direct(client, server, params) is None
    assert direct(client, server) is not None


def test_a_call_that_would_be_refused_is_sent() -> None:
    client, _ = pair()
    earlier = server_of(HANDSHAKES[0])
    assert direct(client, earlier) is None  # which refuses the revision
    without_tools = server_of(MODERN, t.ServerCapabilities())
    assert direct(client, without_tools) is None


def test_a_call_for_which_there_is_no_room_is_sent_and_none_of_it_is_left() -> None:
    client, server = pair()
    while direct(client, server) is not None:
        pass
    assert len(server._incoming) == MAX_RUNNING == len(client._outgoing)


def test_a_call_without_a_timeout_is_refused_and_none_of_it_is_left() -> None:
    client, server = pair()
    with pytest.raises(LocalProtocolError, match="a timeout is"):
        direct(client, server, timeout_s=0.0)
    assert not len(server._incoming)


# ---------------------------------------------------------------- what needs no decoding


def test_the_result_of_a_response_is_found_without_decoding_it() -> None:
    client, server = pair()
    found = direct(client, server)
    assert found is not None
    data = found.settle(text("done"))
    assert data is not None
    result = plain_result(data, found.request.raw_id)
    assert result is not None
    assert decode(data) == ResultResponse(found.request.id, result)


@pytest.mark.parametrize(
    "response",
    [
        encode_error(b"7", -32603, "no"),
        b'{"id":7,"result":{},"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":}}',
        '{"jsonrpc":"2.0","id":7,"result":{"a":"ö"}}'.encode(),
    ],
    ids=["error", "another order", "not JSON", "not ASCII"],
)
def test_any_other_response_is_decoded(response: bytes) -> None:
    assert plain_result(response, b"7") is None


@pytest.mark.parametrize("depth", range(MAX_DEPTH - 4, MAX_DEPTH + 2))
@pytest.mark.parametrize(("start", "end"), [(b'{"":', b"}"), (b"[", b"]")])
def test_what_is_plainly_valid_is_never_too_deep_for_a_message(
    depth: int, start: bytes, end: bytes
) -> None:
    inner = start * depth + b"1" + end * depth
    message = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":%b}}' % inner
    try:
        decode(message)
    except Fault:
        assert not is_plainly_valid(inner)


def test_what_is_long_and_shallow_is_plainly_valid() -> None:
    assert is_plainly_valid(b'{"a":"%b"}' % (b"x" * 10_000))
    assert is_plainly_valid(b"{}")
