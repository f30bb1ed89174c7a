"""Web pages as clients, over real sockets: those of admitted origins can, and others cannot."""

from typing import Any

import pytest

from colonnade.errors import LoginRequired
from colonnade.protocol.http.security import Headers, HostPolicy
from colonnade.protocol.revision import JULY_2026, Revisions
from http_client import Response
from http_service import ABLE, REPORT
from live import live, served_app

APP = "https://app.example.com"
POLICY = HostPolicy.of("localhost:*", "127.0.0.1:*", origins=[APP])
MODERN_ONLY = Revisions((JULY_2026,))
ASKS: dict[str, Any] = {
    "origin": APP,
    "access_control_request_method": "POST",
    "access_control_request_headers": "content-type,mcp-method,mcp-param-region",
    "content_type": None,
    "accept": "*/*",
}


def is_shared(answer: Response) -> bool:
    """Whether a browser hands this answer to the page."""
    assert "access-control-allow-credentials" not in answer.headers
    shared = answer.headers.get("access-control-allow-origin")
    assert shared in (None, APP)
    if shared:
        assert answer.headers["vary"] == "origin"
    return shared == APP


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages"])
@live
async def test_a_browser_that_asks_first_is_answered_before_anything_else(path: str) -> None:
    async def verify(headers: Headers) -> str:
        raise LoginRequired("log in")  # browsers ask without credentials

    async with served_app(policy=POLICY, verify=verify) as s:
        answer = await s.caller.request("OPTIONS", path=path, **ASKS)
        assert (answer.status, answer.body) == (200, b"")
        assert is_shared(answer)
        assert "POST" in answer.headers["access-control-allow-methods"] or path == "/sse"
        assert answer.headers["access-control-allow-headers"].endswith(", mcp-param-region")
        s.app.draining = True
        assert (await s.caller.request("OPTIONS", path=path, **ASKS)).status == 200
        assert not s.service.turns
        assert len(s.app.reaper) == 0


@live
async def test_only_the_methods_that_are_answered_are_allowed() -> None:
    async with served_app(MODERN_ONLY, policy=POLICY) as s:
        answer = await s.caller.request("OPTIONS", **ASKS)
        assert answer.headers["access-control-allow-methods"] == "POST"


@live
async def test_a_page_of_another_origin_is_403_and_told_nothing() -> None:
    async with served_app(policy=POLICY) as s:
        for origin in ("https://evil.example", "null", f"{APP}.evil", "http://app.example.com"):
            asks: dict[str, Any] = {**ASKS, "origin": origin}
            answer = await s.caller.request("OPTIONS", **asks)
            assert answer.status == 403
            assert not is_shared(answer)
            posted = await s.caller.modern("tools/list", origin=origin)
            assert posted.status == 403
            assert not is_shared(posted)
        elsewhere: dict[str, Any] = {**ASKS, "host": "evil.example"}
        foreign = await s.caller.request("OPTIONS", **elsewhere)
        assert foreign.status == 403
        assert not s.service.turns


@live
async def test_options_that_ask_for_nothing_are_405() -> None:
    async with served_app(policy=POLICY) as s:
        choices: list[dict[str, Any]] = [{}, {"origin": APP}]
        for headers in choices:
            answer = await s.caller.request("OPTIONS", content_type=None, **headers)
            assert answer.status == 405
            assert is_shared(answer) == bool(headers)


@live
async def test_every_answer_to_an_admitted_page_can_be_read_by_it() -> None:
    async with served_app(policy=POLICY) as s:
        page: dict[str, Any] = {"origin": APP}
        answers = {
            200: await s.caller.modern("tools/list", **page),
            404: await s.caller.modern("no/such", **page),
            415: await s.caller.modern("tools/list", content_type="text/plain", **page),
            406: await s.caller.modern("tools/list", accept="image/png", **page),
            405: await s.caller.request("PUT", **page),
            400: await s.caller.request("POST", b"{", **page),
        }
        for status, answer in answers.items():
            assert answer.status == status
            assert is_shared(answer)
        wire, streamed = await s.caller.stream("tools/call", REPORT, **page)
        assert streamed.is_stream
        assert is_shared(streamed)
        await streamed.read()
        wire.close()
        assert not is_shared(await s.caller.modern("tools/list"))


@live
async def test_a_page_can_open_a_session_and_see_its_name() -> None:
    async with served_app(policy=POLICY) as s:
        opened = await s.caller.initialize("2025-11-25", ABLE, origin=APP)
        assert is_shared(opened)
        assert "Mcp-Session-Id" in opened.headers["access-control-expose-headers"]
        assert is_shared(await s.caller.ask("tools/list", origin=APP))
        wire, notification = await s.caller.get(origin=APP)
        assert is_shared(notification)
        wire.close()
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
        assert is_shared(await s.caller.post(told, origin=APP))
