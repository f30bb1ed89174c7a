"""The battery of logins (`scripts/interop login`): what it plays, and that it notices what is wrong."""

import asyncio
import fcntl
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from interop.login.parts import CLIENTS, Traffic
from interop.login.simulated_clock import SimulatedClock
from interop.login.table import main
from live import live
from scripted_http_server import ReceivedRequest, http_response

PROVIDER_TOKEN = "refresh-ann-0123456789abcdef"
ACCESS, REFRESH = "eyJ.access-token-of-a.signature", "refresh-token-of-client-a"


def traffic() -> Traffic:
    """Traffic in which a client has got its tokens."""
    provider: Any = SimpleNamespace(issued={PROVIDER_TOKEN}, server=SimpleNamespace(received=[]))
    found = Traffic(provider)
    form = {"grant_type": "authorization_code", "client_id": "a", "code": "c"}
    tokens = {"access_token": ACCESS, "refresh_token": REFRESH}
    found.note(*request("POST /oauth/token", urlencode(form)), response(tokens))
    assert found.misplaced() == []
    return found


def request(start: str, body: str = "", **headers: str) -> tuple[str, dict[str, str], bytes]:
    return f"{start} HTTP/1.1", headers, body.encode()


def response(content: object) -> bytes:
    return http_response(200, json.dumps(content).encode())


def test_each_client_is_pinned() -> None:
    assert [str(client) for client in CLIENTS] == [
        "Colonnade",
        "Python mcp 2.3.0",
        "Python mcp 1.30.0",
        "TypeScript client 2.4.0",
        "TypeScript sdk 1.32.2",
    ]
    assert main("cobol") == 1


@pytest.mark.parametrize("token", [PROVIDER_TOKEN, ACCESS, REFRESH])
def test_a_token_in_a_response_is_noticed(token: str) -> None:
    found = traffic()
    found.note(*request("GET /oauth/authorize?client_id=b"), response(f"x {token} y"))
    assert len(found.misplaced()) == 1


def test_a_token_of_ours_at_the_provider_is_noticed() -> None:
    found = traffic()
    body = f"token={REFRESH}".encode()
    found.provider.server.received.append(ReceivedRequest("POST", "/token", {}, body))
    assert len(found.misplaced()) == 1


@pytest.mark.parametrize(("client", "problems"), [("a", 0), ("b", 1)])
def test_a_response_for_another_client_than_that_of_the_token_is_noticed(
    client: str, problems: int
) -> None:
    found = traffic()
    said = json.dumps({"user": "ann", "client": client, "pid": 1})
    answer = response({"result": {"content": [{"type": "text", "text": said}]}})
    found.note(*request("POST /mcp", authorization=f"Bearer {ACCESS}"), answer)
    assert len(found.misplaced()) == problems


def test_logins_and_refreshes_are_counted_by_client() -> None:
    found = traffic()
    for _ in range(2):
        found.note(*request("GET /notes/oauth/authorize?client_id=b"), response({}))
    form = {"grant_type": "refresh_token", "client_id": "a", "refresh_token": REFRESH}
    tokens = {"access_token": "another-access-token", "refresh_token": "another-refresh-token"}
    found.note(*request("POST /notes/oauth/token", urlencode(form)), response(tokens))
    refused = http_response(400, b'{"error": "invalid_grant"}')
    found.note(*request("POST /notes/oauth/token", urlencode(form)), refused)
    assert (found.authorizations, found.refreshes) == ({"b": 2}, {"a": 1})
    assert found.counts == {"authorize 200": 2, "token 200": 2, "token 400": 1}


@live
async def test_the_clock_moves_between_the_requests_of_a_client_that_locks_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "clock"
    clock = SimulatedClock(path)
    await clock.forward(60)
    with path.open("rb") as request:
        fcntl.flock(request, fcntl.LOCK_SH)
        moving = asyncio.create_task(clock.forward(900))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not moving.done()
        assert clock.offset == 60
    await moving
    assert SimulatedClock(path).offset == 960
