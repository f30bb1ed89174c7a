"""Two ends in one process: order, turns of the loop, bounds, and an end that leaves nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from msgspec import Raw

from colonnade import Context, Server
from colonnade.client.client import Client
from colonnade.errors import (
    ColonnadeError,
    ConnectionLost,
    LocalProtocolError,
    RemoteError,
    ToolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import MAX_DEPTH
from colonnade.protocol.link.in_flight import MAX_RUNNING
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import NEWEST, Revision
from colonnade.transport import memory
from colonnade.transport.memory import End, connected_pair, serve_end
from http_service import FakeService
from live import live, until

INFO = t.Implementation(name="c", version="1")


class Listener:
    """A reader that writes down what it gets."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.closed: list[str] = []
        self.waited = 0
        self.raises = False
        self.on_hearing: Callable[[bytes], None] = lambda frame: None

    def receive(self, frame: bytes) -> None:
        self.heard.append(frame)
        self.on_hearing(frame)
        if self.raises:
            self.raises = False
            raise RuntimeError("this reader stumbles")

    def close(self, why: str) -> None:
        self.closed.append(why)

    async def ended(self, timeout_s: float) -> None:
        self.waited += 1


def listened() -> tuple[End, End, Listener, Listener]:
    """Both ends, and who listens at each."""
    near, far = connected_pair()
    at_near, at_far = Listener(), Listener()
    near.join(at_near)
    far.join(at_far)
    return near, far, at_near, at_far


class Served:
    """A server that waits until it is told to go on, and a client of it."""

    def __init__(self, client: Client, near: End, far: End, began: asyncio.Event) -> None:
        self.client = client
        self.near = near
        self.far = far
        self.began = began


@asynccontextmanager
async def served(revision: Revision, ended: list[str]) -> AsyncGenerator[Served]:
    server, began = Server("s"), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a clean-up takes its time
            ended.append("wait")

    await server.start()
    near, far = connected_pair()
    client = Client(near.open_conversation, info=INFO)
    serve_end(far, server)
    await client.open(revision)
    try:
        yield Served(client, near, far, began)
    finally:
        await near.close()
        await server.stop()


# ---------------------------------------------------------------- messages


@live
async def test_messages_arrive_in_order_and_at_once_where_nobody_is_reading() -> None:
    near, far, at_near, at_far = listened()
    frames = [b"%d" % number for number in range(500)]
    for frame in frames:
        near.write(frame)
        far.write(frame + b"!")
        if len(at_far.heard) < memory.FRAMES_A_TURN:
            assert at_far.heard[-1:] == [frame]
            assert at_near.heard[-1:] == [frame + b"!"]
    assert len(at_far.heard) == memory.FRAMES_A_TURN  # the rest is for later turns of the loop
    await until(lambda: at_far.heard == frames)
    await until(lambda: at_near.heard == [frame + b"!" for frame in frames])
    near.write(b"at once again")
    assert at_far.heard[-1] == b"at once again"


@live
async def test_an_answer_that_is_written_while_reading_arrives_in_a_later_turn() -> None:
    near, far = connected_pair()
    depth: list[int] = []

    class Ball(Listener):
        def __init__(self, back: End) -> None:
            super().__init__()
            self.back = back
            self.inside = False

        def receive(self, frame: bytes) -> None:
            assert not self.inside
            self.inside = True
            depth.append(len(depth))
            if len(depth) < 10_000:  # far more than Python's stack would take
                self.back.write(frame)
            self.inside = False

    near.join(Ball(near))
    far.join(Ball(far))
    near.write(b"ball")
    await until(lambda: len(depth) == 10_000)


@live
async def test_what_was_written_before_somebody_listens_waits_for_them() -> None:
    near, far = connected_pair()
    near.write(b"early")
    listener = Listener()
    far.join(listener)
    assert listener.heard == []
    await until(lambda: listener.heard == [b"early"])
    with pytest.raises(LocalProtocolError, match="has a reader already"):
        far.join(listener)


@live
async def test_everything_is_overheard_as_it_is_written() -> None:
    said: list[tuple[Side, bytes]] = []
    near, far = connected_pair(lambda side, frame: said.append((side, frame)))
    near.write(b"a")
    far.write(b"b")
    await near.close()
    near.write(b"to nobody")
    assert said == [(Side.CLIENT, b"a"), (Side.SERVER, b"b")]


@live
async def test_a_reader_that_stumbles_gets_the_rest_all_the_same() -> None:
    near, _far, _, at_far = listened()
    heard: list[object] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
    at_far.raises = True
    for frame in (b"1", b"2", b"3"):
        near.write(frame)
    await until(lambda: at_far.heard == [b"1", b"2", b"3"])
    loop.set_exception_handler(before)
    assert [str(one) for one in heard] == ["this reader stumbles"]


# ---------------------------------------------------------------- bounds


@live
async def test_who_sends_notices_waits_while_much_is_unread() -> None:
    near, _far, _, at_far = listened()
    for _ in range(memory.FRAMES_A_TURN + 2):
        near.write(b"x" * (memory.DRAIN_BYTES // 2))
    await near.drain()
    assert len(at_far.heard) >= memory.FRAMES_A_TURN - 2
    await near.drain()


@live
async def test_who_waits_to_send_learns_of_the_end() -> None:
    near, far = connected_pair()
    near.write(b"x" * (memory.DRAIN_BYTES + 1))  # nobody listens there
    waiting = asyncio.ensure_future(near.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    await far.close("far enough")
    await near.close()
    with pytest.raises(ConnectionLost):
        await waiting


@live
async def test_more_than_can_be_kept_ends_the_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MAX_UNREAD_BYTES", 10)
    near, far, at_near, at_far = listened()

    def answer_much(frame: bytes) -> None:
        if frame == b"begin":  # whoever is reading reads no more before that is done
            far.write(b"go on")

    def write_much(frame: bytes) -> None:
        for _ in range(4):
            near.write(b"xxxx")

    at_far.on_hearing, at_near.on_hearing = answer_much, write_much
    near.write(b"begin")
    assert at_near.closed == at_far.closed == []  # not inside the write
    await until(lambda: bool(at_near.closed and at_far.closed))
    assert at_far.heard == [b"begin", b"xxxx", b"xxxx"]
    assert at_far.closed == at_near.closed == ["the server left 10 bytes unread"]
    with pytest.raises(ConnectionLost, match="10 bytes unread"):
        await near.drain()
    far.write(b"too late")
    assert at_near.heard == [b"go on"]


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("closing", ["near", "far"])
@live
async def test_closing_either_end_ends_both_and_what_was_said_before_arrives(closing: str) -> None:
    near, far, at_near, at_far = listened()
    mine, theirs = (near, at_far) if closing == "near" else (far, at_near)
    mine.write(b"last words")
    await mine.close("that is all")
    assert theirs.heard == [b"last words"]
    assert at_near.closed == at_far.closed == ["that is all"]
    assert at_near.waited == at_far.waited == 1
    near.write(b"a")
    far.write(b"b")
    await asyncio.sleep(0)
    assert theirs.heard == [b"last words"]


@live
async def test_closing_twice_and_from_many_tasks_is_closing_once() -> None:
    near, far, at_near, at_far = listened()
    await asyncio.gather(near.close("a"), far.close("b"), near.close("c"))
    await far.close("d")
    assert at_near.closed == at_far.closed == ["a"]


@pytest.mark.parametrize("closing", ["near", "far"])
@live
async def test_a_call_that_runs_is_stopped_when_either_side_closes(
    revision: Revision, closing: str
) -> None:
    ended: list[str] = []
    async with served(revision, ended) as stage:
        calling = asyncio.ensure_future(stage.client.call_tool("wait"))
        await stage.began.wait()
        await (stage.near if closing == "near" else stage.far).close("the end came")
        assert ended == ["wait"]
        with pytest.raises(ConnectionLost, match="the end came during 'wait'"):
            await calling
        with pytest.raises(ConnectionLost, match="before tools/list"):
            await stage.client.list_tools()
    # `live` sees that no task is left.


@live
async def test_a_service_is_watched_for_as_long_as_somebody_is_served(revision: Revision) -> None:
    service = FakeService()
    near, far = connected_pair()
    client = Client(near.open_conversation, info=INFO)
    serve_end(far, service, principal="ann")
    await client.open(revision)
    assert service.watchers == 1
    await client.close()
    assert service.watchers == 0
    assert set(service.principals) <= {"ann"}


# ---------------------------------------------------------------- what crashed


@live
async def test_what_crashed_is_shown_to_the_connection_that_wants_it_and_to_no_other(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def crash() -> None:
        raise KeyError("secret")

    @server.resource("a://b")
    def resource() -> str:
        raise KeyError("secret")

    @server.prompt
    def prompt() -> str:
        raise KeyError("secret")

    async def connect(*, debug: bool) -> Client:
        near, far = connected_pair()
        client = Client(near.open_conversation, info=INFO)
        serve_end(far, server, debug=debug)
        await client.open(revision)
        return client

    async def words(client: Client) -> list[str]:
        found = [(await client.call_tool("crash")).text]
        for asked in (client.read_resource("a://b"), client.get_prompt("prompt")):
            with pytest.raises(Exception, match="failed") as caught:
                await asked
            found.append(str(caught.value))
        return found

    await server.start()
    insider, unknown = await connect(debug=True), await connect(debug=False)
    for said in await words(insider):
        assert "KeyError('secret')" in said
    for said in await words(unknown):
        assert "failed (id " in said
        assert "secret" not in said
        assert "KeyError" not in said
    await insider.close()
    await unknown.close()
    await server.stop()


# ---------------------------------------------------------------- calls


def zoo() -> Server:
    server = Server("zoo", version="1")

    @server.tool
    async def echo(value: Any) -> Any:
        return value

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    return server


@asynccontextmanager
async def connected(server: Server, **who: Any) -> AsyncGenerator[Served]:
    near, far = connected_pair()
    client = Client(near.open_conversation, info=INFO)
    await server.start()
    serve_end(far, server, **who)
    await client.open(NEWEST)
    try:
        yield Served(client, near, far, asyncio.Event())
    finally:
        await client.close()
        await server.stop()


@live
async def test_a_client_that_calls_again_and_again_lets_other_tasks_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with connected(zoo()) as one:
        counting = asyncio.ensure_future(count())
        for number in range(10 * memory.FRAMES_A_TURN):
            assert (await one.client.call_tool("add", {"a": number})).data == number + 1
        assert turns >= 10
        assert not one.client.conversation.link.snapshot().sent
        counting.cancel()
        await asyncio.wait([counting])


@live
async def test_not_even_servers_that_are_clients_of_servers_fill_the_stack() -> None:
    depth = 150  # more than Python's stack would take
    clients: list[Client] = []

    def link(number: int) -> Server:
        server = Server(f"link {number}")

        @server.tool
        async def deeper() -> int:
            inner = clients[number + 1 :]
            return 1 + (await inner[0].call_tool("deeper")).data if inner else 1

        return server

    async with AsyncExitStack() as stack:
        for number in range(depth):
            one = await stack.enter_async_context(connected(link(number)))
            clients.append(one.client)
        async with asyncio.timeout(60):
            assert (await clients[0].call_tool("deeper")).data == depth


@live
async def test_each_call_is_answered_in_the_context_of_its_caller() -> None:
    server = zoo()
    note: ContextVar[str] = ContextVar("note")
    clients: list[Client] = []

    @server.tool
    async def look() -> str:
        return note.get()

    @server.tool
    async def look_inside() -> str:
        note.set("inside")
        return (await clients[0].call_tool("look")).text

    async with connected(server) as one:
        clients.append(one.client)

        async def caller(name: str, tool: str, turns: int) -> str:
            note.set(name)
            await one.client.call_tool("look")
            for _ in range(turns):
                await asyncio.sleep(0)
            return (await one.client.call_tool(tool)).text

        for turns in range(6):
            first, second = caller("one", "look_inside", 1), caller("two", "look", turns)
            assert await asyncio.gather(first, second) == ["inside", "two"]


@live
async def test_a_tool_may_call_its_own_server_through_the_client_that_called_it() -> None:
    server = zoo()
    clients: list[Client] = []

    @server.tool
    async def twice(n: int) -> int:
        if n == 0:
            return 1
        return 2 * (await clients[0].call_tool("twice", {"n": n - 1})).data

    async with connected(server) as one:
        clients.append(one.client)
        for _ in range(2):
            assert (await one.client.call_tool("twice", {"n": 20})).data == 2**20
        assert not one.client.conversation.link.snapshot().sent


@live
async def test_a_call_that_ends_its_own_conversation_is_told_so_and_does_not_hang() -> None:
    server, ends = zoo(), []

    @server.tool
    async def leave() -> str:
        ends[0]._close("the line was cut")
        return "too late"

    async with connected(server) as one:
        await one.client.call_tool("add", {"a": 1})
        await asyncio.sleep(0)
        ends.append(one.near)
        with pytest.raises(ConnectionLost, match="the line was cut during 'leave'"):
            await one.client.call_tool("leave")


@live
async def test_a_timeout_that_is_none_is_refused() -> None:
    async with connected(zoo()) as one:
        for seconds in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(LocalProtocolError, match="a number of seconds above 0"):
                await one.client.call_tool("add", {"a": 1}, timeout_s=seconds)
        assert (await one.client.call_tool("add", {"a": 1})).data == 2


@live
async def test_an_argument_that_is_no_number_is_refused_and_not_sent_as_nothing() -> None:
    async with connected(zoo()) as one:
        for strange in (float("nan"), float("inf")):
            with pytest.raises(LocalProtocolError, match=r"at `a\.x`: JSON has no NaN"):
                await one.client.call_tool("echo", {"value": None, "a": {"x": strange}})


@live
async def test_one_request_more_than_may_run_is_refused_in_its_own_words() -> None:
    server, gate = zoo(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    async with connected(server) as one:
        waiting = [asyncio.ensure_future(one.client.call_tool("wait")) for _ in range(MAX_RUNNING)]
        while len(one.client.conversation.link.snapshot().sent) < MAX_RUNNING:
            await asyncio.sleep(0)
        with pytest.raises(RemoteError, match="too many requests at once"):
            await one.client.call_tool("add", {"a": 1})
        gate.set()
        assert {(await call).data for call in waiting} == {"done"}


@live
async def test_a_log_level_that_changes_counts_from_the_next_call_on() -> None:
    server, seen = zoo(), []

    @server.middleware
    async def look(turn: Any, call: Any) -> Any:
        seen.append(turn.exchange.log_level)
        return await call(turn)

    async with connected(server) as one:
        await one.client.call_tool("add", {"a": 1})
        await one.client.call_tool("add", {"a": 1})
        await one.client.set_log_level("debug")
        await one.client.call_tool("add", {"a": 1})
        await one.client.set_log_level("error")
        await one.client.call_tool("add", {"a": 1})
    assert seen[-4:] == [None, None, "debug", "error"]


@live
async def test_scopes_that_change_count_from_the_next_call_on() -> None:
    server, seen = zoo(), []

    @server.middleware
    async def look(turn: Any, call: Any) -> Any:
        exchange: Exchange = turn.exchange
        seen.append((exchange.principal, exchange.scopes))
        return await call(turn)

    async with connected(server, principal="ada", scopes=["read"]) as one:
        await one.client.call_tool("add", {"a": 1})
        await one.client.call_tool("add", {"a": 1})
        served_link = one.far._reader.link  # type: ignore[union-attr]
        served_link.scopes = frozenset({"read", "write"})
        await one.client.call_tool("add", {"a": 1})
    assert seen[-2:] == [("ada", frozenset({"read"})), ("ada", frozenset({"read", "write"}))]


# ---------------------------------------------------------------- calls without messages


def nest(depth: int) -> Any:
    """A list in a list, so many times."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def menagerie(seen: list[Any]) -> Server:
    """Tools with results of every kind; `seen` is what middleware saw of each request."""
    server = zoo()

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def invalid() -> t.CallToolResult:
        return t.CallToolResult(content=[], structured_content=Raw(b"{"))

    @server.tool
    async def deep() -> t.CallToolResult:
        return t.CallToolResult(content=[], structured_content=nest(MAX_DEPTH))

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.progress(step)
        return "done"

    @server.middleware
    async def look(request: Any, call_next: Any) -> Any:
        token = request.exchange.progress_token
        seen.append((request.method, request.params, request.tool, request.arguments, token))
        return await call_next(request)

    return server


CALLS: list[tuple[str, Any]] = [
    ("add", {"a": 1}),
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": "3"}),
    ("add", {"a": 1.5}),
    ("add", {"c": 1}),
    ("add", {}),
    ("echo", {"value": "größer"}),
    ("echo", {"value": nest(MAX_DEPTH - 4)}),
    ("echo", {"value": nest(MAX_DEPTH)}),
    ("echo", {"value": "x" * 100_000}),
    ("echo", {"value": None}),
    ('a "tool"', {}),
    ("größer", {}),
    ("fail", {}),
    ("invalid", {}),
    ("deep", {}),
    ("steps", {}),
]


async def outcomes(server: Server, on_frame: memory.OnFrame | None) -> list[Any]:
    """What a client gets for each call, and its progress."""
    near, far = connected_pair(on_frame)
    client = Client(near.open_conversation, info=INFO)
    await server.start()
    serve_end(far, server)
    await client.open(NEWEST)
    found: list[Any] = []
    try:
        await client.call_tool("add", {"a": 1})
        for name, arguments in CALLS:
            progress: list[float] = []
            try:
                result = await client.call_tool(
                    name, arguments, on_progress=lambda step, *_, to=progress: to.append(step)
                )
                outcome: Any = (result.content, result.meta, result.is_error, result._structured)
            except ColonnadeError as error:
                outcome = (type(error), str(error))
            found.append((name, outcome, progress))
    finally:
        await client.close()
        await server.stop()
    return found


@live
async def test_a_call_without_messages_has_the_outcome_that_it_has_with_them() -> None:
    seen: list[Any] = []
    sent: list[Any] = []
    frames: list[bytes] = []
    expected = await outcomes(menagerie(sent), lambda side, frame: frames.append(frame))
    assert await outcomes(menagerie(seen), None) == expected
    assert seen == sent
    assert len(frames) > 2 * len(CALLS)


@live
async def test_a_plain_call_is_not_encoded_and_its_handler_has_a_task_of_its_own() -> None:
    server = zoo()
    tasks: list[Any] = []

    @server.tool
    async def which() -> str:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        return "done"

    async with connected(server) as one:
        await one.client.call_tool("which")
        written: list[bytes] = []
        one.near.write = one.far.write = written.append  # type: ignore[method-assign]
        try:
            assert (await one.client.call_tool("which")).data == "done"
            assert written == []
        finally:
            del one.near.write, one.far.write
        assert asyncio.current_task() not in tasks
        assert tasks[0] is not tasks[1]


@live
async def test_a_call_that_is_cancelled_at_once_does_not_run_to_its_end() -> None:
    server, ran, go_on = zoo(), list[str](), asyncio.Event()

    @server.tool
    async def note() -> None:
        ran.append("note")
        await go_on.wait()
        ran.append("end")

    async with connected(server) as one:
        go_on.set()
        await one.client.call_tool("note")
        go_on.clear()
        call = asyncio.ensure_future(one.client.call_tool("note"))
        await asyncio.sleep(0)  # it is open at the server, and with eager tasks it has begun
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        assert (await one.client.call_tool("add", {"a": 1})).data == 2
    assert ran in (["note", "end"], ["note", "end", "note"])


@live
async def test_a_result_does_not_overtake_messages_that_are_queued() -> None:
    order: list[str] = []
    server = zoo()

    async with connected(server) as one:

        @server.tool
        async def late() -> int:
            one.near._queue(b'{"jsonrpc":"2.0","method":"notifications/unknown"}')
            return 3

        await one.client.call_tool("add", {"a": 1})
        receive = one.client.conversation.receive  # type: ignore[attr-defined]

        def note(frame: bytes) -> None:
            order.append(frame[:60].decode())
            receive(frame)

        one.client.conversation.receive = note  # type: ignore[attr-defined]
        assert (await one.client.call_tool("late")).data == 3
    order = [frame for frame in order if "list_changed" not in frame]
    assert ["unknown" in frame for frame in order] == [True, False]
