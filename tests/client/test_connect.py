"""One call that takes what people have: every kind of target, in every revision, and a sentence for
each that is none."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, assert_type, cast

import pytest

from client.shop import HERE, shop, site
from colonnade import Client, Context, Host, Login, Server, connect
from colonnade.client.connect import PendingClient, command_name
from colonnade.client.transports import ProcessTransport
from colonnade.errors import (
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    InvalidArgumentType,
    LocalProtocolError,
    RemoteError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import ALL, NEWEST, Revision
from colonnade.sync import connect as connect_blocking
from colonnade.transport.memory import connected_pair, serve_end
from live import Records, live, live_for, until
from scripted_http_server import AcceptedConnection, http_response, scripted_http_server

COMMAND = [sys.executable, HERE]


@asynccontextmanager
async def targets() -> AsyncGenerator[dict[str, Any]]:
    """Every kind of target, all of them the same shop."""
    server = shop()
    await server.start()
    near, far = connected_pair()
    serve_end(far, server)
    try:
        async with site() as here:
            url = f"http://127.0.0.1:{here.port}/mcp"
            yield {
                "a server": shop(),
                "a channel": near,
                "a URL": url,
                "an entry with a URL": {"type": "http", "url": url, "headers": {"X-Key": "k"}},
                "a file": HERE,
                "a path": Path(HERE),
                "a command": COMMAND,
                "an entry with a command": {"command": COMMAND[0], "args": COMMAND[1:]},
            }
    finally:
        await server.stop()


async def tour(client: Client) -> None:
    assert [tool.name for tool in await client.list_tools()] == [
        "add",
        "where",
        "die",
        "ask",
        "count",
    ]
    assert (await client.call_tool("add", {"a": 2, "b": 3}, returns=int)).data == 5
    read = await client.read_resource("shop://hat")
    assert [one.text for one in read.contents] == ["a hat"]
    assert [one.name for one in await client.list_prompts()] == ["haggle"]
    await client.ping()


@live_for(600)
async def test_every_kind_of_target_is_the_same_server_in_every_revision(
    revision: Revision,
) -> None:
    async with targets() as all_of_them:
        for kind, target in all_of_them.items():
            async with connect(target, revision=revision.date) as client:
                assert client.revision == revision.date, kind
                await tour(client)


@live_for(600)
async def test_without_a_wish_the_newest_is_spoken_and_every_target_is_known_by_a_name() -> None:
    async with targets() as all_of_them:
        names: dict[str, str] = {}
        for kind, target in all_of_them.items():
            async with connect(target) as client:
                assert client.revision == NEWEST.date, kind
                assert client.instructions == "Ask for one thing."
                names[kind] = client.name
        place = names.pop("a URL")
        assert place.startswith("127.0.0.1:")
        assert names.pop("an entry with a URL") == place
        assert set(names.values()) == {"shop"}
    async with connect(shop(), server_name="corner") as client:
        assert client.name == "corner"


OLDEST = pytest.mark.parametrize(
    "revision", [one for one in ALL if one.handshake], ids=lambda one: one.date
)


@OLDEST
@live
async def test_an_entry_may_ask_for_the_older_transport(revision: Revision) -> None:
    async with site() as here:
        entry = {"type": "sse", "url": f"http://127.0.0.1:{here.port}/sse"}
        async with connect(entry, revision=revision.date) as client:
            assert client.revision == revision.date
            await tour(client)


@live
async def test_the_older_transport_is_greeted_at_once_and_speaks_no_newer_revision() -> None:
    async with site() as here:
        entry = {"type": "sse", "url": f"http://127.0.0.1:{here.port}/sse"}
        async with connect(entry) as client:
            assert client.revision == ALL[3].date
        with pytest.raises(LocalProtocolError, match=r"has no HTTP\+SSE transport"):
            await connect(entry, revision=NEWEST.date)


@live
async def test_a_url_of_the_older_transport_is_found_by_itself() -> None:
    async with site() as here, connect(f"http://127.0.0.1:{here.port}/sse") as client:
        assert client.revision == ALL[3].date
        await tour(client)


# ---------------------------------------------------------------- awaiting and entering


@live
async def test_it_can_be_awaited_and_closed_or_entered(revision: Revision) -> None:
    client = await connect(shop(), revision=revision.date)
    assert_type(client, Client)
    assert (await client.call_tool("add", {"a": 1, "b": 1}, returns=int)).data == 2
    await client.close()
    await client.close()
    with pytest.raises(ConnectionLost, match="the client was closed before tools/list"):
        await client.list_tools()
    async with connect(shop(), revision=revision.date) as entered, await connect(shop()) as other:
        assert_type(entered, Client)
        assert (await other.call_tool("add", {"a": 1, "b": 1})).data == 2


@live
async def test_nothing_happens_before_it_is_awaited_and_it_is_awaited_once() -> None:
    connecting = connect(["there is no such command"])
    assert_type(connecting, PendingClient)
    with pytest.raises(CannotConnect, match="there is no command"):
        await connecting
    with pytest.raises(LocalProtocolError, match="call connect again"):
        await connecting


@live_for(600)
async def test_it_is_closed_from_any_task_in_any_order(revision: Revision) -> None:
    async with targets() as all_of_them:
        for kind, target in all_of_them.items():
            client = await connect(target, revision=revision.date)
            other = await connect(shop())
            calling = asyncio.ensure_future(client.list_tools())
            await asyncio.gather(
                asyncio.ensure_future(client.close()), asyncio.ensure_future(client.close())
            )
            await other.close()
            result = (await asyncio.gather(calling, return_exceptions=True))[0]
            assert isinstance(result, list | ConnectionLost), kind


@live
async def test_a_server_is_started_with_the_first_and_stopped_with_the_last() -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncGenerator[None]:
        told.append("start")
        yield
        told.append("stop")

    server = Server("s", lifespan=lifespan)
    async with connect(server):
        async with connect(server):
            pass
        assert told == ["start"]
    assert told == ["start", "stop"]


# ---------------------------------------------------------------- what else is said


@live
async def test_handlers_are_what_the_client_can_be_asked(revision: Revision) -> None:
    steps: list[float] = []

    def stepped(done: float, of: float | None, words: str | None) -> None:
        steps.append(done)

    async with connect(
        shop(), revision=revision.date, on_elicit=lambda asked: "red", on_progress=stepped
    ) as client:
        assert (await client.call_tool("count", {"to": 3})).text == "counted"
        assert steps == [1, 2, 3]
        asked = await client.call_tool("ask")
        assert asked.text == ("red" if revision.elicitation.modes else asked.text)
        assert asked.is_error is not bool(revision.elicitation.modes)
    async with connect(shop(), revision=revision.date) as client:
        if revision.handshake:
            assert (await client.call_tool("ask")).is_error
        else:
            with pytest.raises(RemoteError, match="which the client does not support"):
                await client.call_tool("ask")


@live
async def test_a_child_gets_its_folder_and_its_variables(tmp_path: Path) -> None:
    async with connect(COMMAND, cwd=tmp_path, env={"SHOP_WORD": "open"}) as client:
        told = (await client.call_tool("where")).data
        assert told == {"cwd": str(tmp_path.resolve()), "word": "open"}
    entry = {"command": COMMAND[0], "args": COMMAND[1:], "env": {"SHOP_WORD": "entry"}}
    async with connect({**entry, "cwd": str(tmp_path)}, env={"SHOP_WORD": "mine"}) as client:
        told = (await client.call_tool("where")).data
        assert told == {"cwd": str(tmp_path.resolve()), "word": "mine"}


@live
async def test_headers_go_with_every_request_to_a_url() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(http_response(401))

    async with scripted_http_server(handler) as server:
        with pytest.raises(ColonnadeError, match="401"):
            await connect(server.url, headers={"Authorization": "Bearer t"})
        entry = {"url": server.url, "headers": {"X-Key": "k"}}
        with pytest.raises(ColonnadeError, match="401"):
            await connect(entry, headers=[("Authorization", "Bearer u")])
    first, second = server.received
    assert first.headers["authorization"] == "Bearer t"
    assert (second.headers["authorization"], second.headers["x-key"]) == ("Bearer u", "k")


@live
async def test_the_time_out_is_the_clients_unless_a_call_has_its_own(revision: Revision) -> None:
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    async with connect(server, revision=revision.date, timeout_s=0.5) as client:
        with pytest.raises(TimedOut, match=r"server 'slow': .*; whether it had an effect"):
            await client.call_tool("wait")
    async with connect(server, revision=revision.date) as client:
        with pytest.raises(TimedOut):
            await client.call_tool("wait", timeout_s=0.05)


@live
async def test_a_failure_names_a_server_whose_name_is_in_every_other_word() -> None:
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    async with connect(server, server_name="e", timeout_s=0.5) as client:
        with pytest.raises(TimedOut, match=r"^server 'e': "):
            await client.call_tool("wait")


# ---------------------------------------------------------------- a child that dies


@pytest.mark.spec("R0039", "R0843")
@live
async def test_a_child_that_dies_is_told_with_the_call_and_is_started_for_the_next(
    revision: Revision,
) -> None:
    async with connect(HERE, revision=revision.date) as client:
        words = r"^server 'shop' \(pid \d+\) exited with 3 during 'die'; whether it had an effect "
        with pytest.raises(ConnectionLost, match=words + r"is unknown; its last lines: the till"):
            await client.call_tool("die")
        await tour(client)


@live
async def test_a_child_that_dies_while_it_is_idle_is_started_again_and_that_is_said_once() -> None:
    async with connect(HERE) as client:
        with Records("colonnade.client") as records:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            way = cast("ProcessTransport", client._transport)
            assert way.child is not None
            os.kill(way.child.pid, signal.SIGKILL)
            await until(lambda: client.conversation.link.phase is Phase.CLOSED)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    (line,) = records.lines
    assert re.match(r"WARNING server 'shop' \(pid \d+\) was killed by ", line), line
    assert line.endswith("; it was restarted, and its state in memory is lost")


CHATTY = """
import os, sys
from colonnade import Server

server = Server("chatty")

@server.tool
def pid() -> int:
    print("a line\\nanother", file=sys.stderr, flush=True)
    return os.getpid()
"""


@live
async def test_what_a_child_wrote_last_stands_after_the_sentence_that_it_was_started_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    request: list[str] = []
    async with connect(str(tmp_path / "chatty.py"), on_stderr=request.append) as client:
        with Records("colonnade.client") as records:
            pid = (await client.call_tool("pid", returns=int)).data
            await until(lambda: "another" in request)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: client.conversation.link.phase is Phase.CLOSED)
            await client.call_tool("pid")
    (line,) = records.lines
    told = "; it was restarted, and its state in memory is lost; its last lines:"
    assert line.endswith(f"{told}\n    a line\n    another")


# ---------------------------------------------------------------- sentences


def to(anything: Any) -> PendingClient:
    """What a type checker would not let pass."""
    return connect(anything)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a command line": (
        lambda: connect("uvx mcp-server-git --repository 'my repo'"),
        r"never becomes a command; .*: connect\(\['uvx', 'mcp-server-git', '--repos.*', 'my repo'\]",
    ),
    "a word": (lambda: connect("git"), r"for a URL write https://git, for a command a list"),
    "no scheme": (lambda: connect("localhost:8000/mcp"), "write http://localhost:8000/mcp, for"),
    "no scheme, elsewhere": (lambda: connect("example.com/mcp"), "write https://example.com/mcp,"),
    "half an address": (lambda: connect("[::1"), r"write https://\[::1, for"),
    "nothing": (lambda: connect(""), r"a command is a list: connect\(\['uvx'"),
    "half a quote": (lambda: connect("run 'it"), r"a command is a list: connect\(\['run'"),
    "a missing file": (lambda: connect("no/such/server.py"), "there is no file 'no/such/serv"),
    "a folder": (lambda: connect(str(Path(HERE).parent)), "is a folder; name the file in it"),
    "another file": (lambda: connect(sys.executable), "if it is a program, write connect"),
    "another scheme": (lambda: connect("ws://host/mcp"), "is not an HTTP URL"),
    "a URL without a host": (lambda: connect("http:///mcp"), "looks like https://example.com"),
    "a URL with a password": (lambda: connect("http://me:pw@host/mcp"), "send it in a header"),
    "an empty command": (lambda: connect([]), "a command is a list of strings"),
    "a command of numbers": (lambda: to([1]), "a command is a list of strings"),
    "an empty program": (lambda: connect([""]), "the first word of a command is the program"),
    "a number": (lambda: to(5), "int cannot be connected to; connect to a URL"),
    "bytes": (lambda: to(b"x"), "bytes cannot be connected to"),
    "None": (lambda: to(None), "NoneType cannot be connected to"),
    "a class": (lambda: to(Client), "cannot be connected to"),
    "an empty entry": (lambda: connect({}), "either a url or a command"),
    "an entry with both": (lambda: connect({"url": "http://h", "command": "c"}), "either a url"),
    "a whole configuration": (lambda: connect({"mcpServers": {}}), "one entry of it"),
    "an entry with a file": (lambda: connect({"url": "server.py"}), "begins with https://"),
    "an entry of another type": (
        lambda: connect({"url": "http://h/mcp", "type": "stdio"}),
        "has the type http or sse, not 'stdio'",
    ),
    "a command of another type": (
        lambda: connect({"command": "c", "type": "http"}),
        "has the type stdio, not 'http'",
    ),
    "arguments in one string": (
        lambda: connect({"command": "c", "args": "-x"}),
        "args is a list of its arguments",
    ),
    "numbers in an environment": (
        lambda: connect({"command": "c", "env": {"A": 1}}),
        "env of an entry has a value that is not a string",
    ),
    "headers that are a list": (
        lambda: connect({"url": "http://h/mcp", "headers": []}),
        "headers of an entry is an object",
    ),
    "headers for a command": (
        lambda: connect(["c"], headers={"a": "b"}),
        "headers go with a URL, and this is a command",
    ),
    "a folder for a URL": (lambda: connect("http://h/mcp", cwd="/"), "env and cwd are for a comm"),
    "an ear for a URL": (
        lambda: connect("http://h/mcp", on_stderr=print),
        "on_stderr goes with a command, and this is a URL",
    ),
    "an ear for a server": (
        lambda: connect(shop(), on_stderr=print),
        "on_stderr goes with a command, and this is a server in this process",
    ),
    "variables for a server": (lambda: connect(shop(), env={}), "env and cwd are for a command"),
    "headers of the protocol": (
        lambda: connect("http://h/mcp", headers={"Mcp-Session-Id": "x"}),
        "is set by the client itself",
    ),
    "a header with a line break": (
        lambda: connect("http://h/mcp", headers={"X": "a\r\nb: c"}),
        "characters that a header cannot have",
    ),
    "a header without a name": (
        lambda: connect("http://h/mcp", headers={"X Y": "a"}),
        "is not a header name",
    ),
    "authorization": (
        lambda: connect("https://h/mcp", auth=cast("Any", "t")),
        "goes into headers=",
    ),
    "plain authorization": (lambda: connect("http://h/mcp", auth=Login()), "needs https"),
    "authorization of a command": (lambda: connect(["x"], auth=Login()), "use env= there"),
    "authorization of a file": (lambda: connect(__file__, auth=Login()), "use env= there"),
    "authorization twice": (
        lambda: connect("https://h/mcp", auth=Login(), headers={"authorization": "x"}),
        "and not both",
    ),
    "no time": (lambda: connect(shop(), timeout_s=0), "seconds above 0"),
    "endless time": (lambda: connect(shop(), timeout_s=float("inf")), "seconds above 0"),
    "no such revision": (lambda: connect(shop(), revision="2020-01-01"), "no such revision"),
    "no revision": (lambda: connect(shop(), revision=[]), "no such revision"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_right_is_refused_at_once_with_what_to_write(case: str) -> None:
    wrong, words = WRONG[case]
    with pytest.raises(LocalProtocolError, match=words):
        wrong()


def test_a_module_is_answered_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weather.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocalProtocolError, match=r"; did you mean 'weather.py'\?"):
        connect("weather")


@live
async def test_what_needs_async_with_says_so() -> None:
    pending: Any = connect(shop())
    hint = r": write async with connect\(\.\.\.\) as client, or .* from colonnade\.sync import"
    with pytest.raises(TypeError, match="does not support 'with'" + hint), pending:
        raise AssertionError
    with pytest.raises(AttributeError, match="'list_tools'; the client is not open yet" + hint):
        await pending.list_tools()
    with pytest.raises(AttributeError, match=r"object has no attribute 'fly'$"):
        pending.fly()


@live
async def test_arguments_that_are_no_dict_are_refused_with_what_to_write() -> None:
    wrong: Any = "Oslo"
    async with connect(shop()) as client, Host({"shop": shop()}) as host:
        for call in (client.call_tool, client.get_prompt, host.call_tool, host.get_prompt):
            with pytest.raises(
                InvalidArgumentType, match=r"arguments of add are a dict, .*not str"
            ):
                await call("add", wrong)


def test_a_string_never_becomes_a_command_even_where_a_program_of_that_name_is() -> None:
    for text in ("sh", "sh -c 'echo hi'", "/bin/sh", "/bin/sh -c true"):
        with pytest.raises(LocalProtocolError):
            connect(text)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["uvx", "mcp-server-git@1.2", "--repository", "."], "mcp-server-git"),
        (["npx", "-y", "@modelcontextprotocol/server-everything"], "server-everything"),
        (["/usr/bin/python3.11", "-m", "my.server"], "my.server"),
        (["uv", "run", "server.py"], "server"),
        (["node", "/a/b/index.js"], "index"),
        (["python"], "python"),
        (["python", "-I", "-c", "import this"], "python"),
        (["node", "-e", "serve()"], "node"),
        (["./own-program", "serve"], "own-program"),
    ],
)
def test_a_command_is_called_by_what_it_runs(argv: list[str], name: str) -> None:
    assert command_name(argv) == name


@live
async def test_a_site_that_nobody_serves_is_an_error_that_names_it() -> None:
    async with site() as here:
        url = f"http://127.0.0.1:{here.port}/mcp"
    with pytest.raises(CannotConnect, match=rf"127.0.0.1:{here.port} cannot be reached"):
        await connect(url)


@pytest.mark.parametrize("waits", [True, False])
@live
async def test_what_a_child_writes_beside_its_messages_is_heard_to_the_last_line(
    waits: bool,
) -> None:
    request: list[str] = []

    async def later(line: str) -> None:
        await asyncio.sleep(0)
        request.append(line)

    secret = "correct-horse-battery"
    target = {"command": sys.executable, "args": ["-I", "-c", NOISY], "env": {"KEY": secret}}
    with pytest.raises(CannotConnect, match="exited with 3 during initialize") as lost:
        await connect(target, on_stderr=later if waits else request.append)
    # It is started twice, since some die of the first question that they do not know.
    assert request == ["the key is [redacted]", "and no more"] * 2
    assert secret not in str(lost.value)


NOISY = """
import os, sys
sys.stdin.readline()
sys.stderr.write(f"the key is {os.environ['KEY']}\\nand no more")
sys.stderr.flush()
os._exit(3)
"""


# ---------------------------------------------------------------- a child that exits at its start


EXITS = {
    "at once": "import sys; print('no key', file=sys.stderr); sys.exit(3)",
    "at the first message": "import sys; sys.stdin.readline(); print('no key', file=sys.stderr); "
    "sys.exit(3)",
}


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
@live
async def test_a_child_that_exits_at_its_start_was_not_reached(
    revision: Revision, code: str
) -> None:
    command = [sys.executable, "-I", "-c", code]
    with pytest.raises(CannotConnect, match=r"exited with 3 during .*; its last lines: no key"):
        await connect(command, revision=revision.date)


@live
async def test_who_closes_while_it_is_opened_is_told_so() -> None:
    """That is not the server's fault, and is said as it always was."""
    near, _ = connected_pair()
    connecting = connect(near)
    opening = asyncio.ensure_future(connecting.__aenter__())
    await asyncio.sleep(0)
    await connecting.__aexit__()
    with pytest.raises(ConnectionLost, match="the client was closed"):
        await opening


# ---------------------------------------------------------------- who the client is


def mirror() -> Server:
    server = Server("mirror")

    @server.tool
    def who(ctx: Context) -> str:
        info = ctx.client
        assert info is not None
        return f"{info.name}|{info.version}|{info.title}"

    return server


@live
async def test_a_program_says_who_it_is(revision: Revision) -> None:
    given: dict[str, Any] = {"name": "planner", "version": "1.2", "title": "Trip planner"}
    title = "Trip planner" if revision.knows(*t.field_ranges(t.Implementation)["title"]) else None
    async with connect(mirror(), revision=revision.date, **given) as client:
        assert (await client.call_tool("who")).data == f"planner|1.2|{title}"
        assert client.name == "mirror"  # which is the server's
    async with connect(mirror(), revision=revision.date, name="planner") as client:
        assert (await client.call_tool("who")).data == "planner|0|None"
    async with connect(mirror(), revision=revision.date) as client:
        assert (await client.call_tool("who")).data.startswith("colonnade|")


@live
async def test_a_host_says_which_program_it_is_part_of(tmp_path: Path) -> None:
    given: dict[str, Any] = {"name": "planner", "version": "1.2", "title": "Trip planner"}
    async with Host({"m": mirror()}, **given) as host:
        assert (await host.call_tool("m__who")).data == "planner|1.2|Trip planner"
    async with Host({"m": mirror()}) as host:
        assert (await host.call_tool("m__who")).data.startswith("colonnade|")
    with pytest.raises(LocalProtocolError, match=r"version= and title= need name="):
        Host({"m": mirror()}, version="1")
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}')
    async with Host.from_config(path, **given) as host:
        await host.reload({"m": mirror()})
        assert (await host.call_tool("m__who")).data == "planner|1.2|Trip planner"


def test_a_program_without_a_loop_says_who_it_is_too() -> None:
    with connect_blocking(mirror(), name="planner", version="2", server_name="m") as client:
        assert client.call_tool("who").data == "planner|2|None"
        assert client.name == "m"


@pytest.mark.parametrize("given", [{"version": "1"}, {"title": "T"}, {"name": ""}])
def test_who_a_client_is_needs_a_name(given: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="name="):
        connect(mirror(), **given)
