"""What clients are told whose requests a shutdown ends: whether they may have had an effect."""

import asyncio

from colonnade.errors import EFFECT_UNKNOWN
from http_service import Marks, reporting
from live import live, served_app


@live
async def test_a_request_that_is_ended_while_it_is_handled_may_have_had_an_effect() -> None:
    async with served_app() as s:
        calling = asyncio.create_task(s.caller.call("wait"))
        await s.service.marks.reached("wait begun")
        await s.app.drain(0.0)
        response = await calling
        assert response.status == 503
        assert EFFECT_UNKNOWN in response.json["error"]["message"]


@live
async def test_a_call_in_a_session_that_is_ended_while_it_runs_may_have_had_an_effect() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.asking("tools/call", reporting(steps=1, wait=True))
        await stream.numbered()
        await s.app.drain(0.0)
        error = (await stream.message())["error"]
        assert error["message"].endswith(EFFECT_UNKNOWN)
        assert "try again" not in error["message"]
        assert error["data"] == {"effectUnknown": True}


@live
async def test_a_request_whose_credentials_are_not_verified_yet_had_no_effect() -> None:
    marks = Marks()

    async def verify(headers: object) -> str:
        marks.mark("asked")
        await marks.reached("never")
        return "alice"

    async with served_app(verify=verify) as s:
        calling = asyncio.create_task(s.caller.call("wait"))
        await marks.reached("asked")
        await s.app.drain(0.0)
        response = await calling
        assert response.status == 503
        message = response.json["error"]["message"]
        assert message == "the server is shutting down; try again"
