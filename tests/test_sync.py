"""The client that waits: the same names, in scripts, threads, notebooks and at exit.

Rules: what happens at exit is seen in an interpreter of its own.
"""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from client.misbehaving_http_server import SESSION, MisbehavingHttpServer, tool_result
from client.shop import HERE, shop, site
from client.task_server import TaskServer
from colonnade import Client, Server, sync
from colonnade.client.connect import connect as connect_in_loop
from colonnade.client.subscriptions import Change
from colonnade.client.tasks.task import ClientTask
from colonnade.errors import CannotConnect, ConnectionLost, LocalProtocolError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.sync import SyncClient, SyncTask, connect
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    response_head,
    scripted_http_server,
)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("colonnade.sync")]


def test_every_name_of_the_client_is_here_with_the_same_parameters() -> None:
    names = {name for name in vars(Client) if not name.startswith("_")}
    names |= {"close", "name"}
    names -= {"forward", "listen_to_tasks", "share_schemas"}  # for gateways
    assert names <= set(vars(SyncClient))
    for name in names:
        theirs, ours = inspect.getattr_static(Client, name), vars(SyncClient)[name]
        if isinstance(theirs, property):
            assert isinstance(ours, property)
            continue
        assert list(inspect.signature(theirs).parameters.values()) == list(
            inspect.signature(ours).parameters.values()
        ), name
    given = inspect.signature(connect).parameters.values()
    assert list(given) == list(inspect.signature(connect_in_loop).parameters.values())


def test_every_name_of_a_task_is_here_with_the_same_parameters() -> None:
    names = {name for name in vars(ClientTask) if not name.startswith("_")}
    # Of the protocol, for the client itself, and for gateways.
    names -= {"abandon", "immediate_result", "outcome", "outcome_or_cancel", "watch"}
    assert names <= set(vars(SyncTask))
    for name in names:
        theirs, ours = inspect.getattr_static(ClientTask, name), vars(SyncTask)[name]
        if not isinstance(theirs, property):
            expected = list(inspect.signature(theirs).parameters.values())
            assert list(inspect.signature(ours).parameters.values()) == expected, name


def test_a_started_task_is_iterated_over_and_waited_for() -> None:
    server = TaskServer(JULY_2026, poll_ms=100)
    # Its reader runs in the loop of the client; the task ends with its first message.
    said: list[str | None] = []
    with connect(server_channel(server), on_progress=lambda *one: said.append(one[2])) as client:
        task = client.start_task("book")
        assert (task.tool, task.status, task.done) == ("book", "working", False)
        assert (task.message, task.immediate_response) == (None, None)
        assert repr(task) == "ClientTask('book', working)"
        again = client.resume_task(task.handle or "")
        assert again.refresh() == again.state
        assert not again.respond()
        server.message = "chapter 1"
        server.end()
        assert [state.status for state in task] == ["working", "completed"]
        assert task.result(returns=str).data == "a book"
        task.cancel()
    assert said == ["chapter 1"]


def server_channel(server: TaskServer) -> Any:
    """A channel to a scripted server, which is opened in the loop of the client."""

    def carry(link: Any, events: Any) -> Any:
        return server.carry(link, events)

    return carry


def test_calls_wait_for_their_answers(revision: Revision) -> None:
    with connect(shop(), revision=revision.date) as client:
        assert client.revision == revision.date
        assert client.name == "shop"
        assert client.instructions == "Ask for one thing."
        assert client.server is not None
        assert client.capabilities.tools is not None
        assert len(client.list_tools()) == 5
        assert client.call_tool("add", {"a": 1, "b": 2}, returns=int).data == 3
        assert client.list_resources() == []
        assert [one.name for one in client.list_resource_templates()] == ["thing"]
        assert [one.text for one in client.read_resource("shop://hat").contents] == ["a hat"]
        assert [one.name for one in client.list_prompts()] == ["haggle"]
        assert client.get_prompt("haggle", {"price": "9"}).messages
        assert client.complete("mood", "k", prompt="haggle").values == ["kind"]
        prompts = client.ask("prompts/list", t.PaginatedRequestParams())
        assert isinstance(prompts, t.ListPromptsResult)
        client.ping()
        if revision.handshake:
            client.subscribe("shop://hat")
            client.unsubscribe("shop://hat")
        assert repr(client) == "Client('shop')"
    assert threads() == []


def test_a_child_and_a_site_are_reached_in_the_same_way() -> None:
    with connect(HERE) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        with pytest.raises(ConnectionLost, match="exited with 3 during 'die'"):
            client.call_tool("die")
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3

    async def use() -> None:
        async with site() as here:

            def script() -> Any:
                with connect(f"http://127.0.0.1:{here.port}/mcp") as client:
                    return client.call_tool("add", {"a": 1, "b": 2}).data

            assert await asyncio.to_thread(script) == 3

    asyncio.run(use())
    assert threads() == []


def test_it_works_where_a_loop_runs_already_as_in_a_notebook() -> None:
    async def cell() -> None:
        with connect(shop()) as client:
            assert client.call_tool("add", {"a": 1, "b": 2}).data == 3

    asyncio.run(cell())
    assert threads() == []


def test_many_threads_use_one_client_and_many_clients_one_loop() -> None:
    found: list[Any] = []
    with connect(shop()) as client, connect(shop()) as other:

        def work(number: int) -> None:
            one = client if number % 2 else other
            found.append(one.call_tool("add", {"a": number, "b": 0}).data)

        workers = [threading.Thread(target=work, args=[number]) for number in range(20)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert threads().count("colonnade.sync") == 1
    assert sorted(found) == list(range(20))
    assert threads() == []


def test_handlers_may_block_and_may_use_the_client(revision: Revision) -> None:
    steps: list[float] = []

    def ask(asked: Any) -> str:
        time.sleep(0.01)
        return f"as blue as {client.call_tool('add', {'a': 1, 'b': 1}).text}"

    def step(done: float, of: float | None, words: str | None) -> None:
        steps.append(done)

    with connect(shop(), revision=revision.date, on_elicit=ask) as client:
        assert client.call_tool("count", {"to": 3}, on_progress=step).text == "counted"
        asked = client.call_tool("ask")
        assert asked.text == "as blue as 2" or not revision.elicitation.modes
    assert steps == [1, 2, 3]


def test_handlers_that_turn_out_to_be_asynchronous_are_waited_for() -> None:
    steps: list[float] = []

    class Asks:
        async def __call__(self, asked: Any) -> str:
            await asyncio.sleep(0)
            return "as blue as it gets"

    asks = Asks()

    class Notes:
        async def __call__(self, done: float, of: float | None, words: str | None) -> None:
            await asyncio.sleep(0)
            steps.append(done)

    for ask in (asks, lambda asked: asks(asked)):
        with connect(shop(), on_elicit=ask, on_progress=Notes()) as client:
            assert client.call_tool("ask").text == "as blue as it gets"
            assert client.call_tool("count", {"to": 3}).text == "counted"
    assert steps == [1, 2, 3, 1, 2, 3]


def test_what_a_child_writes_beside_its_messages_is_heard() -> None:
    request: list[str] = []
    threads_of: set[str] = set()

    def hear(line: str) -> None:
        threads_of.add(threading.current_thread().name.partition("_")[0])
        request.append(line)

    with connect(HERE, on_stderr=hear) as client, pytest.raises(ConnectionLost, match="till"):
        client.call_tool("die")
    assert request == ["the till is empty"]
    assert threads_of == {"colonnade.sync handler"}


def test_changes_are_a_loop_that_waits(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def one() -> None:
        server.disable("two")

    @server.tool
    def two() -> None: ...

    with connect(server, revision=revision.date) as client:
        with client.listen(tools=True) as changes:
            client.call_tool("one")
            for change in changes:
                assert change == Change("tools")
                break
        with client.listen(tools=True) as changes:
            client.close()
            with pytest.raises(ConnectionLost):
                next(changes)
    assert threads() == []


def test_errors_are_those_of_the_client_and_leave_nothing_behind() -> None:
    with pytest.raises(CannotConnect, match="there is no command"):
        connect(["there is no such command"])
    with pytest.raises(LocalProtocolError, match="a command is a list"):
        connect("uvx something")
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    with connect(server) as client, pytest.raises(TimedOut):
        client.call_tool("wait", timeout_s=0.05)
    client.close()
    with pytest.raises(ConnectionLost, match="the client was closed"):
        client.list_tools()
    assert threads() == []


def test_closing_ends_what_waits_in_another_thread() -> None:
    server, begun = Server("slow"), threading.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    raised: list[BaseException] = []
    client = connect(server)

    def call() -> None:
        try:
            client.call_tool("wait")
        except ConnectionLost as error:
            raised.append(error)

    worker = threading.Thread(target=call)
    worker.start()
    assert begun.wait(60)
    client.close()
    worker.join(60)
    assert len(raised) == 1
    assert threads() == []


def test_an_interrupt_cancels_the_call_and_the_server_learns_so() -> None:
    server, begun, cancelled = Server("slow"), threading.Event(), threading.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt() -> None:
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    with connect(server) as client:
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("wait")
        helper.join(60)
        assert cancelled.wait(60)
        client.ping()
    assert threads() == []


def test_the_loops_own_thread_cannot_wait_for_itself() -> None:
    with connect(shop()) as client:

        async def inside() -> None:
            client.list_tools()

        wait_for: Callable[[Any], Any] = vars(client)["_thread"].wait_for
        with pytest.raises(LocalProtocolError, match="its own event loop thread"):
            wait_for(inside())


def test_a_fork_of_this_process_is_told_to_connect_anew() -> None:
    with connect(shop()) as client:
        thread = vars(client)["_thread"]
        thread.pid += 1  # as it looks from there
        try:
            with pytest.raises(LocalProtocolError, match="connect after the fork"):
                client.list_tools()
        finally:
            thread.pid -= 1


def test_who_forgets_to_close_is_closed_at_exit_with_nothing_left() -> None:
    script = (
        "import os, sys\n"
        "from colonnade.sync import connect\n"
        f"client = connect({HERE!r})\n"
        "print(client.call_tool('add', {'a': 1, 'b': 2}).data)\n"
        "print(client.call_tool('where').data['word'])\n"
    )
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    # asyncio says of a slow machine that it is slow.
    said = [line for line in run.stderr.splitlines() if not line.endswith(" seconds")]
    assert (run.returncode, run.stdout, said) == (0, "3\n\n", [])


def test_who_forgets_to_close_leaves_a_session_behind_a_name_all_the_same() -> None:
    """By then no name can be resolved any more, and what was connected may be closed."""
    request: list[str] = []

    async def note(connection: AcceptedConnection, one: ReceivedRequest) -> None:
        request.append(one.headers["mcp-session-id"])
        await connection.send(response_head(202, "Content-Length: 0"))

    script = (
        "import sys\n"
        "from colonnade.sync import connect\n"
        "from colonnade.transport.http_client.pool import HttpPool\n"
        "HttpPool.__init__.__kwdefaults__['idle_s'] = 0.0\n"
        "print(connect(sys.argv[1], revision='2025-11-25').call_tool('t').text)\n"
    )

    async def handler() -> tuple[bytes, bytes]:
        async with scripted_http_server(
            MisbehavingHttpServer(NOVEMBER_2025, tool_result, {"DELETE": note}).serve
        ) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            run = await asyncio.create_subprocess_exec(
                *[sys.executable, "-X", "dev", "-W", "error", "-c", script, url],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            return await asyncio.wait_for(run.communicate(), 60)

    said, complained = asyncio.run(handler())
    # asyncio says of a slow machine that it is slow.
    complaints = [line for line in complained.splitlines() if not line.endswith(b" seconds")]
    assert (said.strip(), complaints) == (b"done", [])
    assert request == [SESSION]


def test_the_module_offers_what_it_says() -> None:
    assert set(sync.__all__) == {"Changes", "SyncClient", "SyncCompleter", "SyncTask", "connect"}
