"""Tools at work: bad arguments, every way to fail, and where a function runs."""

import asyncio
import logging
import sys
import threading
from typing import Literal

import pytest

from colonnade import (
    Context,
    Server,
    ToolError,
)
from colonnade.protocol.revision import Revision
from live import live
from server.raw_client import Rejected, raw_client, text_content
from server.weather import weather

# ---------------------------------------------------------------- bad arguments


@live
async def test_bad_arguments_are_told_in_words_that_name_tool_argument_and_wish(
    revision: Revision,
) -> None:
    server = weather()

    @server.tool
    async def paint(colour: Literal["red", "green"], size: int = 1) -> None: ...

    async with raw_client(server, revision) as client:
        for tool, arguments, told in (
            ("forecast", {}, "forecast: missing required argument 'city'"),
            ("forecast", {"city": 3.5}, "forecast: city: expected a string, got a number"),
            (
                "forecast",
                {"city": "Oslo", "days": 11},
                "forecast: days: expected at most 10, got 11",
            ),
            (
                "forecast",
                {"city": "Oslo", "dys": 2},
                "forecast: unknown argument 'dys'; did you mean 'days'?",
            ),
            (
                "paint",
                {"colour": "blue"},
                "paint: colour: expected one of 'red', 'green', got another string",
            ),
        ):
            assert await client.refused(tool, arguments) == told


@live
async def test_loose_values_are_taken_where_the_type_has_no_string(revision: Revision) -> None:
    server = weather()
    async with raw_client(server, revision) as client:
        assert await client.text("forecast", {"city": "Oslo", "days": "4"}) == (
            '{"city":"Oslo","days":4}'
        )
        assert "4" in await client.text("forecast", {"city": "Oslo", "days": 4.0})


@live
async def test_an_unknown_tool_is_a_protocol_error_in_every_revision(revision: Revision) -> None:
    """D16."""
    async with raw_client(weather(), revision) as client:
        for params in ({"name": "nope"}, {"name": "forecast", "arguments": []}, {}):
            with pytest.raises(Rejected) as caught:
                await client.ask("tools/call", params)
            assert caught.value.code == -32602


# ---------------------------------------------------------------- failures


@live
async def test_a_tool_error_is_read_by_the_model(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def forecast() -> str:
        raise ToolError("No city 'Olso'. Did you mean 'Oslo'?")

    @server.tool
    def forecast_in_a_thread() -> str:
        raise ToolError("no city")

    async with raw_client(server, revision) as client:
        assert await client.failure("forecast") == "No city 'Olso'. Did you mean 'Oslo'?"
        assert await client.failure("forecast_in_a_thread") == "no city"


@live
async def test_a_crash_tells_the_caller_an_id_and_the_log_everything(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def crash() -> str:
        raise ValueError("a secret")

    @server.tool
    def crash_in_a_thread() -> str:
        return next(iter(()))

    @server.tool
    def leaves() -> str:
        sys.exit(3)

    @server.tool
    async def gives_up() -> str:
        raise asyncio.CancelledError

    async with raw_client(server, revision) as client:
        told = await client.failure("crash")
        assert told.startswith("crash failed (id ")
        assert "secret" not in told
        id = told.removeprefix("crash failed (id ").removesuffix(")")
        assert id in caplog.text
        assert "a secret" in caplog.text
        assert "failed (id" in await client.failure("crash_in_a_thread")
        assert "failed (id" in await client.failure("leaves")
        assert "gives_up failed (id" in await client.failure("gives_up")
        assert await client.failure("crash") != told  # and the next one is served


@live
async def test_a_number_that_json_has_not_is_named_wherever_it_stands(revision: Revision) -> None:
    server = Server("s", debug=True)

    @server.tool
    async def alone() -> float:
        return float("nan")

    @server.tool
    async def within() -> list[float]:
        return [float("inf")]

    async with raw_client(server, revision) as client:
        for name in ("alone", "within"):
            assert "NaN and Infinity are not JSON" in await client.failure(name)


@live
async def test_debug_shows_the_caller_what_happened(revision: Revision) -> None:
    server = Server("s", debug=True)

    @server.tool
    async def crash() -> str:
        raise ValueError("shown")

    async with raw_client(server, revision) as client:
        assert "ValueError('shown')" in await client.failure("crash")


def test_tracebacks_are_rationed(caplog: pytest.LogCaptureFixture) -> None:
    from colonnade.server.handlers.function import MAX_TRACEBACKS, TRACEBACKS_S, ErrorReporter

    now = 1000.0
    reporter = ErrorReporter(clock=lambda: now)
    with caplog.at_level(logging.ERROR):
        for _ in range(MAX_TRACEBACKS + 1):
            reporter.report("x", ValueError("v"))
        assert [bool(record.exc_info) for record in caplog.records][-2:] == [True, False]
        now += TRACEBACKS_S + 1
        reporter.report("x", ValueError("v"))
    assert caplog.records[-1].exc_info


@live
async def test_a_time_out_is_told_and_stops_the_function(revision: Revision) -> None:
    server = Server("s")
    stopped = asyncio.Event()

    @server.tool(timeout_s=0.01)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool(timeout_s=5)
    async def own_time_out() -> str:
        raise TimeoutError("of its own")

    async with raw_client(server, revision) as client:
        assert await client.failure("slow") == "slow did not finish within 0.01 s; try less"
        assert stopped.is_set()
        assert "failed (id" in await client.failure("own_time_out")


# ---------------------------------------------------------------- where it runs


@live
async def test_sync_functions_run_in_a_thread_unless_inline(revision: Revision) -> None:
    server = Server("s")
    here = threading.get_ident()

    @server.tool
    def threaded() -> bool:
        return threading.get_ident() == here

    @server.tool(inline=True)
    def inline() -> bool:
        return threading.get_ident() == here

    @server.tool(inline=True)
    def inline_that_waits(ctx: Context) -> str:
        return ctx.principal or ctx.info("x") or "never"  # type: ignore[return-value]

    async with raw_client(server, revision) as client:
        assert await client.text("threaded") == "false"
        assert await client.text("inline") == "true"
        assert "failed (id" in await client.failure("inline_that_waits")


@live
async def test_one_slow_function_does_not_hold_up_the_others(revision: Revision) -> None:
    server = Server("s")
    gate = threading.Event()

    @server.tool
    def slow() -> str:
        assert gate.wait(60)
        return "slow"

    @server.tool
    async def quick() -> str:
        return "quick"

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        assert await client.text("quick") == "quick"
        gate.set()
        assert text_content(await client.outcome(id)) == "slow"


@live
async def test_a_cancelled_call_is_not_answered_and_its_function_is_stopped(
    revision: Revision,
) -> None:
    server = Server("s")
    begun, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        client.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
        async with asyncio.timeout(60):
            await stopped.wait()
        assert not [one for one in client.received if one.get("id") == id]


@live
async def test_progress_and_log_reach_who_wants_them(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 3, "one")
        await ctx.progress(2.5, 3)
        await ctx.debug("quiet")
        await ctx.warning({"loud": True}, "logger")
        return f"{ctx.revision} {ctx.principal!r} {ctx.session is not None}"

    async with raw_client(server, revision) as client:
        assert await client.text("work") == f"{revision.date} '' {revision.handshake}"
        assert client.notifications("notifications/progress") == []
        quiet = client.notifications("notifications/message")
        assert len(quiet) == (1 if revision.handshake else 0)
        meta = {"progressToken": "t"}
        if not revision.handshake:
            meta["io.modelcontextprotocol/logLevel"] = "debug"
        else:
            await client.ask("logging/setLevel", {"level": "debug"})
        await client.call("work", _meta=meta)
        first, second = client.notifications("notifications/progress")
        assert (first["progressToken"], first["progress"], first["total"]) == ("t", 1, 3)
        assert first.get("message") == (None if revision.date == "2024-11-05" else "one")
        assert second["progress"] == 2.5
        loud = client.notifications("notifications/message")[len(quiet) :]
        assert [(one["level"], one["data"]) for one in loud] == [
            ("debug", "quiet"),
            ("warning", {"loud": True}),
        ]
