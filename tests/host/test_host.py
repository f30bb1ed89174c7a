"""A host with real servers: what it lists, calls, reads and says when something is wrong."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import CannotConnect, Context, Host, RemoteError, Server, ToolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, HostProblem, Settings
from colonnade.host.servers.session import Status
from colonnade.transport.http_server.runner import HttpRunner
from live import live

NOTES = """
from colonnade import Server

server = Server("whatever it calls itself", instructions="Notes are short.")


@server.tool
def read(path: str) -> str:
    return f"read {path}"


@server.resource("notes://today")
def today() -> str:
    return "nothing"


server.run()
"""


def weather() -> Server:
    server = Server("weather", instructions="Cities are in English.")

    @server.tool(read_only=True)
    def forecast(city: str, days: int = 3) -> str:
        """Forecast for a city."""
        return f"{city}: sun for {days} days"

    @server.tool
    def fail() -> None:
        raise ToolError("It is broken.")

    @server.tool
    async def walk(ctx: Context) -> int:
        await ctx.progress(1, 2, "half")
        await ctx.progress(2, 2, "done")
        return 7

    @server.resource("weather://{city}")
    def now(city: str) -> str:
        return f"rain in {city}"

    @server.prompt
    def plan(city: str) -> str:
        return f"Plan a day in {city}."

    @server.completion(plan, "city")
    def cities(prefix: str) -> list[str]:
        return [city for city in ("Oslo", "Osaka") if city.startswith(prefix)]

    _ = forecast, fail, walk, now, cities
    return server


@asynccontextmanager
async def served(server: Server) -> AsyncGenerator[str]:
    """The address of a server, over HTTP on a free port."""
    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/mcp"
    finally:
        await site.stop(0.0)


@live
async def test_one_catalogue_has_what_servers_in_memory_in_a_process_and_at_a_url_offer(
    tmp_path: Any,
) -> None:
    file = tmp_path / "notes.py"
    file.write_text(NOTES)
    async with served(weather()) as url:
        servers = {"here": weather(), "files": [sys.executable, str(file)], "web": url}
        async with Host(servers) as host:
            tools = await host.list_tools()
            assert [tool.name for tool in tools] == [
                "here__forecast",
                "here__fail",
                "here__walk",
                "files__read",
                "web__forecast",
                "web__fail",
                "web__walk",
            ]
            assert (tools[3].server, tools[3].original) == ("files", "read")
            assert host.problems == []
            for server in ("here", "web"):
                result = await host.call_tool(f"{server}__forecast", {"city": "Oslo"})
                assert result.data == "Oslo: sun for 3 days"
            assert (await host.call_tool("files__read", {"path": "a"})).text == "read a"
            assert host.instructions == {
                "here": "Cities are in English.",
                "files": "Notes are short.",
                "web": "Cities are in English.",
            }


@live
async def test_a_call_starts_its_own_server_and_no_other() -> None:
    async with Host({"a": weather(), "b": [sys.executable, "-c", "raise SystemExit(9)"]}) as host:
        await host.call_tool("a__forecast", {"city": "Rome"})
        assert [one.state for one in host.status()] == ["ready", "idle"]


@live
async def test_a_tool_keeps_all_that_its_server_says_of_it_but_its_name() -> None:
    async with Host({"w": weather()}) as host:
        tool = (await host.list_tools())[0]
        assert tool.description == "Forecast for a city."
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.input_schema["required"] == ["city"]


@live
async def test_an_error_of_a_tool_is_a_result() -> None:
    async with Host({"w": weather()}) as host:
        result = await host.call_tool("w__fail")
        assert result.is_error
        assert result.text == "It is broken."


@live
async def test_progress_reaches_who_called() -> None:
    heard: list[Any] = []
    async with Host({"w": weather()}) as host:
        result = await host.call_tool(
            "w__walk", on_progress=lambda *change: heard.append(change), returns=int
        )
        assert result.data == 7
        assert heard == [(1, 2, "half"), (2, 2, "done")]


@live
async def test_resources_are_read_by_their_own_addresses_and_prompts_by_names() -> None:
    async with Host({"w": weather()}) as host:
        contents = (await host.read_resource("weather://Oslo")).contents
        assert contents[0].text == "rain in Oslo"
        assert [one.uri_template for one in await host.list_resource_templates()] == [
            "weather://{city}"
        ]
        prompts = await host.list_prompts()
        assert [(one.name, one.server, one.original) for one in prompts] == [
            ("w__plan", "w", "plan")
        ]
        messages = (await host.get_prompt("w__plan", {"city": "Oslo"})).messages
        assert "Oslo" in str(messages[0].content)
        assert (await host.complete("city", "Os", prompt="w__plan")).values == ["Oslo", "Osaka"]


@live
async def test_an_address_that_two_servers_have_is_read_of_neither_until_one_is_named() -> None:
    async with Host({"a": weather(), "b": weather()}) as host:
        with pytest.raises(
            RemoteError, match=r"several servers have the resource .*: 'a', 'b' .*; pass server="
        ) as caught:
            await host.read_resource("weather://Oslo")
        assert "server=" in str(caught.value)
        contents = (await host.read_resource("weather://Oslo", server="b")).contents
        assert contents[0].text == "rain in Oslo"


@live
async def test_a_wrong_name_is_answered_with_what_is_near() -> None:
    async with Host({"weather": weather()}) as host:
        with pytest.raises(RemoteError, match="did you mean 'weather__forecast'"):
            await host.call_tool("weather__forcast")
        with pytest.raises(RemoteError, match="did you mean 'weather__forecast'"):
            await host.call_tool("wether__forecast")
        with pytest.raises(RemoteError, match="there is no server 'wether'; did you mean"):
            await host.read_resource("x://y", server="wether")
        with pytest.raises(RemoteError, match="has no prompt 'weather__plam'; did you mean"):
            await host.get_prompt("weather__plam")
        with pytest.raises(RemoteError, match="names begin with the server"):
            await host.call_tool("zzz")


@live
async def test_what_a_configuration_hides_is_neither_listed_nor_called() -> None:
    settings = Settings(hidden=("fail", "plan"))
    async with Host({"w": entry_of("w", weather(), settings)}) as host:
        assert [tool.original for tool in await host.list_tools()] == ["forecast", "walk"]
        assert await host.list_prompts() == []
        with pytest.raises(RemoteError, match="has no tool"):
            await host.call_tool("w__fail")
        with pytest.raises(RemoteError, match="has no prompt"):
            await host.get_prompt("w__plan", {"city": "Oslo"})
    async with Host({"w": entry_of("w", weather(), Settings(only=("f*",)))}) as host:
        assert [tool.original for tool in await host.list_tools()] == ["forecast", "fail"]
        with pytest.raises(RemoteError, match="has no tool"):
            await host.call_tool("w__walk")


@live
async def test_an_alias_leads_to_its_tool_and_a_namespace_stands_before_names() -> None:
    settings = Settings(namespace="sky", aliases={"look": "forecast"})
    async with Host({"w": entry_of("w", weather(), settings)}) as host:
        tool = (await host.list_tools())[0]
        assert (tool.name, tool.server, tool.aliases) == ("sky__forecast", "w", ("look",))
        assert host.tool("look") is host.tool("sky__forecast") is tool
        assert host.tool("sky__nothing") is host.tool("nothing") is None
        assert (await host.call_tool("look", {"city": "Rome"})).text == "Rome: sun for 3 days"


@live
async def test_a_server_that_is_switched_off_is_not_there() -> None:
    async with Host({"w": entry_of("w", weather(), Settings(enabled=False))}) as host:
        assert host.servers == ()
        assert await host.list_tools() == []


@live
async def test_a_broken_server_is_a_problem_and_no_others() -> None:
    bad = [sys.executable, "-c", "import sys; print('no such disk', file=sys.stderr); sys.exit(3)"]
    async with Host({"bad": bad, "good": weather()}) as host:
        assert [tool.server for tool in await host.list_tools()] == ["good"] * 3
        (problem,) = host.problems
        assert problem.server == "bad"
        assert "no such disk" in problem.message
        assert "bad" in problem.message


def test_what_can_be_no_server_is_refused_at_once_with_its_key() -> None:
    with pytest.raises(Exception, match="server 'x'"):
        Host({"x": "not a command line"})


@live
async def test_problems_of_a_configuration_are_told_beside_those_of_servers() -> None:
    config = Config(entries={}, problems=(HostProblem("x", "it has no command"),))
    async with Host(config) as host:
        assert [problem.message for problem in host.problems] == ["it has no command"]


@live
async def test_a_program_hears_of_servers_that_start_and_fail_and_may_start_them_anew(
    tmp_path: Path,
) -> None:
    good = tmp_path / "good"
    code = f"""
import pathlib
if not pathlib.Path({str(good)!r}).exists():
    raise SystemExit("not yet")
{NOTES}"""
    events: list[tuple[str, str]] = []

    def on_event(status: Status) -> None:
        events.append((status.key, status.state))

    servers = {"late": [sys.executable, "-c", code], "w": weather()}
    async with Host(servers, on_event=on_event) as host:
        await host.call_tool("w__forecast", {"city": "Oslo"})
        assert events == [("w", "starting"), ("w", "ready")]
        with pytest.raises(CannotConnect, match="not yet"):
            await host.call_tool("late__read", {"path": "a"})
        assert events[-1][0] == "late"
        good.write_text("")
        host.restart("late")
        assert (await host.call_tool("late__read", {"path": "a"})).text == "read a"
        assert events[-1] == ("late", "ready")
