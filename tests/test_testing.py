"""What people test their servers with: a client in memory, scripts, a clock, five revisions."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from colonnade import Context, Declined, LocalProtocolError, Sample, Server, testing
from colonnade.errors import RemoteError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, InputRequests, Revision
from colonnade.testing import Clock, Record, Said, connect, every_revision
from live import live, until

DATES = [one.date for one in ALL]


def asking() -> Server:
    server = Server("s")

    @server.tool
    async def say(ctx: Context, *, words: str = "a word") -> str:
        return (await ctx.sample(words)).text

    @server.tool
    async def seat(ctx: Context, flight: str = "SK1") -> str:
        return await ctx.elicit(f"Which seat on {flight}?", str)

    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await ctx.ask(Sample("first"), Sample("second"))
        return f"{one.text} {two.text}"

    @server.tool
    def crash() -> int:
        raise KeyError("SK1")

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal} in {ctx.revision}"

    return server


# ---------------------------------------------------------------- connecting


@every_revision
async def test_a_test_runs_once_in_every_revision(revision: str) -> None:
    async with connect(asking(), revision) as client:
        assert client.revision == revision
        assert (await client.call_tool("who")).text == f" in {revision}"


@live
async def test_without_a_word_it_is_the_newest_that_the_server_speaks() -> None:
    async with connect(asking()) as client:
        assert client.revision == DATES[-1]
    async with connect(Server("s", revisions=DATES[1:3])) as client:
        assert client.revision == DATES[2]


@live
async def test_a_revision_that_there_is_not_or_that_is_not_spoken_is_said_so() -> None:
    with pytest.raises(ValueError, match=r"no such revision: \['2020-01-01'\]"):
        async with connect(asking(), "2020-01-01"):
            pass
    words = "Server.'s'. does not speak 2024-11-05; it speaks 2026-07-28, 2025-11-25"
    with pytest.raises(LocalProtocolError, match=words):
        async with connect(Server("s", revisions=DATES[3:]), DATES[0]):
            pass


@live
async def test_what_crashed_is_shown_unless_it_is_not_wanted(revision: Revision) -> None:
    async with connect(asking(), revision.date) as client:
        assert (await client.call_tool("crash")).text.endswith(": KeyError('SK1')")
    async with connect(asking(), revision.date, debug=False) as client:
        assert "KeyError" not in (await client.call_tool("crash")).text


@live
async def test_a_caller_may_have_a_name_and_scopes(revision: Revision) -> None:
    server = asking()

    @server.tool(scopes={"write"})
    def write() -> str:
        return "written"

    async with connect(server, revision.date, principal="ann") as client:
        assert (await client.call_tool("who")).text == f"ann in {revision.date}"
        with pytest.raises(RemoteError, match="write"):
            await client.call_tool("write")
    async with connect(server, revision.date, principal="ann", scopes=["write"]) as client:
        assert (await client.call_tool("write")).text == "written"


@live
async def test_the_lifespan_is_entered_by_the_first_and_left_by_the_last(
    revision: Revision,
) -> None:
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        log.append("enter")
        yield
        log.append("leave")

    server = Server("s", lifespan=lifespan)

    @server.tool
    def there() -> str:
        return "there"

    first_is_over, second_goes_on = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with connect(server, revision.date) as client:
            await second_goes_on.wait()
            assert (await client.call_tool("there")).text == "there"
        first_is_over.set()

    async def second() -> None:
        async with connect(server, revision.date) as client:
            second_goes_on.set()
            await first_is_over.wait()
            assert log == ["enter"]
            assert (await client.call_tool("there")).text == "there"

    await asyncio.gather(first(), second())
    assert log == ["enter", "leave"]
    async with connect(server, revision.date):
        assert log == ["enter", "leave", "enter"]


@live
async def test_what_one_client_changes_another_hears(revision: Revision) -> None:
    server = asking()
    async with (
        connect(server, revision.date) as one,
        connect(server, revision.date) as other,
        other.listen(tools=True) as changes,
    ):
        server.disable("crash")
        assert (await anext(changes)).kind == "tools"
        assert "crash" not in [tool.name for tool in await one.list_tools()]


@live
async def test_a_lifespan_that_fails_fails_the_test() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        async with connect(Server("s", lifespan=lifespan)):
            pass


# ---------------------------------------------------------------- the record


@live
async def test_the_record_has_what_was_said_both_ways_in_its_order(revision: Revision) -> None:
    async with connect(asking(), revision.date, answers=["hi"]) as client:
        await client.call_tool("say")
    said = [one.message.get("method") for one in client.record if one.by == "client"]
    assert said.count("tools/call") == (
        1 if revision.input_requests is InputRequests.AS_REQUEST else 2
    )
    first, *_ = client.record
    assert isinstance(first, Said)
    assert first.by == "client"
    (call, *_) = client.record.said("client", "tools/call")
    assert call["params"]["name"] == "say"
    asked = client.record.said("server", "sampling/createMessage")
    assert len(asked) == (1 if revision.input_requests is InputRequests.AS_REQUEST else 0)
    assert len(client.record.said("client")) + len(client.record.said("server")) == len(
        client.record
    )
    lines = str(client.record).splitlines()
    assert lines[0].startswith('client: {"jsonrpc":"2.0","id":1,')
    assert lines[1].startswith('server: {"jsonrpc":"2.0","id":1,"result":')


def test_a_record_keeps_the_last_of_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "MAX_RECORDED", 2)
    record = Record()
    for number in (b"1", b"2", b"[3]"):
        record.add(testing.Side.CLIENT, number)
    assert list(record) == [Said("client", 2), Said("client", [3])]
    assert record.said(method="x") == []


# ---------------------------------------------------------------- scripts


@every_revision
async def test_scripted_answers_are_given_in_their_order(revision: str) -> None:
    whole = t.CreateMessageResult(
        role="assistant", content=t.TextContent(text="c"), model="m", stop_reason="endTurn"
    )
    async with connect(asking(), revision, answers=["a", "b", whole]) as client:
        assert (await client.call_tool("both")).text == "a b"
        assert (await client.call_tool("say")).text == "c"
        words = [testing.words_of(one) for one in client.asked]
        assert words == ["first", "second", "a word"]


@every_revision
async def test_answers_may_be_chosen_by_words_of_the_question(revision: str) -> None:
    answers = {"sec": "2", "first": lambda asked: f"{asked.max_tokens} tokens"}
    async with connect(asking(), revision, answers=answers) as client:
        assert (await client.call_tool("both")).text == "1000 tokens 2"
        assert (await client.call_tool("both")).text == "1000 tokens 2"


@every_revision(since="2025-06-18")
async def test_a_form_is_answered_declined_and_left(revision: str) -> None:
    async with connect(
        asking(), revision, answers=[{"value": "12A"}, "3C", Declined, Declined("no"), None]
    ) as client:
        said = [(await client.call_tool("seat")).text for _ in range(5)]
        asked = client.asked[0]
        assert isinstance(asked, t.ElicitRequestParams)
        assert asked.message == "Which seat on SK1?"
    assert said[:2] == ["12A", "3C"]
    assert said[2:4] == ["the user declined the request"] * 2
    assert said[4] == "the user cancelled the request"


@every_revision
async def test_without_answers_the_client_cannot_be_asked(revision: str) -> None:
    async with connect(asking(), revision) as client:
        try:
            result = await client.call_tool("say")
            assert result.is_error
            words = result.text
        except RemoteError as error:
            words = error.message
        assert "which the client does not support" in words
        assert not client.asked


@every_revision
async def test_a_question_that_nobody_expected_fails_the_test(revision: str) -> None:
    for answers, why in (
        ([], r"all scripted answers are used up \(0 requests before\)"),
        ({"another": "x"}, r"no scripted answer matches it: \['another'\]"),
    ):
        expected = f"unexpected request of the server, 'a word': {why}"
        with pytest.raises(AssertionError, match=expected):
            await call_and_hide_it(revision, answers)


async def call_and_hide_it(revision: str, answers: Any) -> None:
    async with connect(asking(), revision, answers=answers) as client:
        with contextlib.suppress(AssertionError):
            await client.call_tool("say")


@every_revision
async def test_and_so_it_does_where_the_test_fails_for_its_consequence(revision: str) -> None:
    with pytest.raises(AssertionError, match="unexpected request of the server, 'a word'"):
        async with connect(asking(), revision, answers=[]) as client:
            assert (await client.call_tool("say")).data == "x"


@every_revision
async def test_an_answer_that_nobody_asked_for_fails_the_test(revision: str) -> None:
    words = "1 scripted answers were not used: 'b'; the server sent 1 requests"
    with pytest.raises(AssertionError, match=words):
        async with connect(asking(), revision, answers=["a", "b"]) as client:
            await client.call_tool("say")
    with pytest.raises(AssertionError, match="not used: 'never'"):
        async with connect(asking(), revision, answers={"a word": "a", "never": "b"}) as client:
            await client.call_tool("say")
    with pytest.raises(ZeroDivisionError):  # what failed first is what is told
        async with connect(asking(), revision, answers=["a"]):
            _ = 1 / 0


@every_revision
async def test_a_handler_s_own_assertion_fails_the_test(revision: str) -> None:
    def strict(asked: t.CreateMessageRequestParams) -> str:
        assert asked.max_tokens == 5, "too many tokens"
        return "x"

    with pytest.raises(AssertionError, match="too many tokens"):
        async with connect(asking(), revision, on_sample=strict) as client:
            await client.call_tool("say")


@every_revision(since="2025-06-18")
async def test_an_answer_that_does_not_fit_its_form_fails_the_test(revision: str) -> None:
    with pytest.raises(LocalProtocolError, match="value: expected a string"):
        async with connect(asking(), revision, answers=[{"value": 5}]) as client:
            await client.call_tool("seat")


# ---------------------------------------------------------------- the clock


def slow() -> Server:
    server = Server("slow")
    notes = server.handles("note", str, ttl_s=60)

    @server.tool(timeout_s=20)
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    @server.tool
    async def tick(ctx: Context, times: int) -> str:
        loop, begun = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        heard: list[float] = []
        for _ in range(times):
            await asyncio.sleep(10)
            heard.append(round(loop.time() - begun))
        return str(heard)

    @server.tool
    async def write(ctx: Context, words: str) -> str:
        return await notes.create(ctx, words)

    @server.tool
    async def read(ctx: Context, note: str) -> str:
        return await notes.get(ctx, note)

    @server.tool
    async def say(ctx: Context) -> str:
        return (await ctx.sample("a word")).text

    return server


@every_revision
async def test_a_tool_s_time_out_is_over_when_its_time_is(revision: str) -> None:
    clock = Clock()
    async with connect(slow(), revision, clock=clock) as client:
        napping = asyncio.ensure_future(client.call_tool("nap", {"seconds": 1000}))
        await clock.advance(19.9)
        assert not napping.done()
        await clock.advance(0.2)
        assert (await napping).text == "nap did not finish within 20 s; try less"


@every_revision
async def test_a_call_s_time_out_is_over_when_its_time_is(revision: str) -> None:
    clock = Clock()
    async with connect(slow(), revision, clock=clock, timeout_s=15) as client:
        napping = asyncio.ensure_future(client.call_tool("nap", {"seconds": 1000}))
        await clock.advance(14)
        assert not napping.done()
        await clock.advance(2)
        with pytest.raises(TimedOut, match="no answer to tools/call within 15 s"):
            await napping


@every_revision
async def test_every_alarm_rings_at_its_own_time(revision: str) -> None:
    clock = Clock()
    async with connect(slow(), revision, clock=clock) as client:
        ticking = asyncio.ensure_future(client.call_tool("tick", {"times": 4}))
        await clock.advance(45)
        assert (await ticking).text == "[10, 20, 30, 40]"


@every_revision
async def test_handles_end_with_their_time(revision: str) -> None:
    clock = Clock()
    async with connect(slow(), revision, clock=clock) as client:
        note = (await client.call_tool("write", {"words": "hi"})).text
        await clock.advance(59)
        assert (await client.call_tool("read", {"note": note})).text == "hi"
        await clock.advance(59)  # it was used, and lives on
        assert (await client.call_tool("read", {"note": note})).text == "hi"
        await clock.advance(61)
        assert "has expired" in (await client.call_tool("read", {"note": note})).text


@every_revision(since="2026-07-28")
async def test_a_sealed_state_ends_with_its_time_also_in_a_mounted_server(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A client that gives people more time than ours does.
    monkeypatch.setattr("colonnade.client.request.MAX_PAUSED_S", 1000.0)
    outer, clock = Server("outer"), Clock()
    outer.mount(slow(), "inner")

    async def dither(asked: t.CreateMessageRequestParams) -> str:
        await clock.advance(waits)
        return "at last"

    async with connect(outer, revision, clock=clock, on_sample=dither) as client:
        waits = 599.0
        assert (await client.call_tool("inner_say")).text == "at last"
        waits = 601.0
        with pytest.raises(RemoteError, match=r"requestState .* expired"):
            await client.call_tool("inner_say")


@live
async def test_time_stands_still_and_goes_on_where_it_was_when_the_test_is_over() -> None:
    server, clock = slow(), Clock()
    loop = asyncio.get_running_loop()
    inner = Server("inner")
    server.mount(inner)
    async with connect(server, clock=clock):
        assert server.clock() == inner.clock() == clock.time()
        before, day = loop.time(), clock.time()
        await clock.advance(5)
        await asyncio.to_thread(time.sleep, 0.01)
        assert loop.time() == clock.monotonic() == before + 5
        assert clock.time() == pytest.approx(day + 5)
    assert server.clock is inner.clock is time.time
    assert "time" not in vars(loop)
    assert "call_at" not in vars(loop)
    assert abs(loop.time() - time.monotonic()) < 60


@live
async def test_one_clock_may_be_shared_by_several_connections() -> None:
    server, clock = slow(), Clock()
    async with connect(server, clock=clock) as one:
        napping = asyncio.ensure_future(one.call_tool("nap", {"seconds": 10}))
        async with connect(server, clock=clock) as other:
            note = (await other.call_tool("write", {"words": "hi"})).text
        assert server.clock() == clock.time()
        await clock.advance(11)
        assert (await napping).text == "rested"
        assert (await one.call_tool("read", {"note": note})).text == "hi"
    assert server.clock is time.time


@every_revision
async def test_a_clean_up_that_takes_its_time_ends_though_the_clock_stands_still(
    revision: str,
) -> None:
    server, log = Server("s"), list[str]()

    @server.tool
    async def wait() -> None:
        log.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            log.append("cleaned up")

    async with connect(server, revision, clock=Clock()) as client:
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await until_begun(log)
    assert log == ["begun", "cleaned up"]
    with pytest.raises(Exception, match="the client was closed"):
        await calling


async def until_begun(log: list[str]) -> None:
    while not log:
        await asyncio.sleep(0)


@live
async def test_a_clock_says_what_it_cannot_do() -> None:
    clock = Clock()
    with pytest.raises(LocalProtocolError, match="this clock is not in use"):
        await clock.advance(1)
    with clock:
        with pytest.raises(LocalProtocolError, match="needs seconds from 0"):
            await clock.advance(-1)
        with pytest.raises(LocalProtocolError, match="this loop already has a clock"), Clock():
            pass
        with clock:
            await clock.advance(1)
        await clock.advance(1)
    with pytest.raises(LocalProtocolError, match="not in use"):
        await clock.advance(1)


def test_a_clock_rules_one_loop_at_a_time() -> None:
    clock = Clock()

    async def enter() -> None:
        with clock:
            pass

    async def outer() -> None:
        with clock:
            await asyncio.to_thread(asyncio.run, enter())

    with pytest.raises(LocalProtocolError, match="another loop"):
        asyncio.run(outer())
    asyncio.run(enter())


def test_a_clock_says_that_it_needs_a_loop_of_asyncio_s_own() -> None:
    async def enter() -> None:
        with Clock():
            pass

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(LocalProtocolError, match=r"this is uvloop\.Loop"),
    ):
        runner.run(enter())


@live
async def test_an_alarm_that_rings_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "MAX_ALARMS", 20)
    loop, handle = asyncio.get_running_loop(), list[asyncio.TimerHandle]()

    def again() -> None:
        handle[:] = [loop.call_later(0, again)]

    with Clock() as clock:
        again()
        with pytest.raises(LocalProtocolError, match="more than 20 timers within 5 s"):
            await clock.advance(5)
        handle[0].cancel()


# ---------------------------------------------------------------- pytest


def test_the_revisions_of_a_test_are_all_or_those_of_a_span() -> None:
    async def one(revision: str) -> None: ...

    def dates(test: Any) -> Any:
        (mark,) = test.pytestmark
        assert mark.args[0] == "revision"
        return mark.args[1]

    assert dates(every_revision(one)) == DATES
    assert dates(every_revision(since=DATES[2])(one)) == DATES[2:]
    assert dates(every_revision(since=DATES[1], until=DATES[3])(one)) == DATES[1:4]
    with pytest.raises(ValueError, match="no such revision"):
        every_revision(since="yesterday")

    async def none() -> None: ...

    with pytest.raises(LocalProtocolError, match="none has no parameter `revision`") as caught:
        every_revision(none)
    assert "none(revision: str), connect(server, revision)" in str(caught.value)


def test_a_plain_test_is_run_as_it_is() -> None:
    seen: list[str] = []

    @every_revision
    def plain(revision: str) -> None:
        seen.append(revision)

    plain(revision="x")
    assert seen == ["x"]


@pytest.mark.parametrize("still", [False, True])
def test_a_test_that_hangs_fails_also_if_its_clock_stands_still(
    still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "TEST_S", 0.05)

    @every_revision
    async def hang(revision: str) -> None:
        with Clock() if still else contextlib.nullcontext():
            await asyncio.sleep(1000)

    with pytest.raises(AssertionError, match=r"hang did not end within 0\.05 s"):
        hang(revision="x")


def test_a_test_that_is_cancelled_is_cancelled() -> None:
    @every_revision
    async def give_up(revision: str) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        give_up(revision="x")


SAMPLE = """
import pytest
from colonnade import Server
from colonnade.testing import connect, every_revision

server = Server("s")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

@pytest.fixture
def three() -> int:
    return 3

@pytest.mark.parametrize("b", [1, 2])
@every_revision
async def test_add(revision: str, three: int, b: int) -> None:
    async with connect(server, revision) as client:
        result = await client.call_tool("add", {"a": three, "b": b}, returns=int)
        assert result.data == three + b

@every_revision
def test_plain(revision: str) -> None:
    assert revision
"""


def test_plain_pytest_runs_it_with_fixtures_and_parameters_and_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    command = [sys.executable, "-m", "pytest", "-v", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "15 passed" in done.stdout, done.stdout + done.stderr
    assert "test_add[2024-11-05-1]" in done.stdout


def test_importing_it_loads_neither_pytest_nor_anything_heavy() -> None:
    heavy = ["pytest", "pydantic", "uvicorn", "cryptography", "click", "jsonschema_rs", "sqlite3"]
    code = f"import sys, colonnade.testing; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_guard_of_a_test_leaves_no_thread() -> None:
    @every_revision
    async def quick(revision: str) -> None: ...

    before = threading.active_count()
    for _ in range(20):
        quick(revision="x")
    asyncio.run(_settled(before))


async def _settled(before: int) -> None:
    await until(lambda: threading.active_count() <= before)
