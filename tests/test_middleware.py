"""Ready-made layers: what they let through, what they refuse, what they say, and what they keep.

Rules: the clock is the test's own; nothing here waits for time to pass.
"""

import asyncio
import gc
import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from colonnade import Context, Server, ToolError
from colonnade.errors import Fault, FaultKind, LocalProtocolError, LoginRequired
from colonnade.logs import json_handler
from colonnade.middleware import (
    MAX_CALLERS,
    TokenBucket,
    _Callers,
    by_caller,
    by_server,
    log,
    rate_limit,
    timeout,
)
from colonnade.ports import Handler, Middleware, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, InputRequests, Revision
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live, until
from server.raw_client import Client, Rejected, accept, raw_client

JSON = dict[str, Any]


class Clock:
    """The time that a test says it is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Gate:
    """A tool that begins, and goes on when it may."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def wait(self) -> str:
        self.begun.release()
        await self.go.wait()
        return "done"

    async def running(self, count: int = 1) -> None:
        async with asyncio.timeout(60):
            for _ in range(count):
                await self.begun.acquire()


def serving(*layers: Middleware, gate: Gate | None = None, **settings: Any) -> Server:
    server = Server("s", version="1", **settings)
    for layer in layers:
        server.add_middleware(layer)

    @server.tool
    def hi() -> str:
        return "hi"

    @server.tool
    async def wait() -> str:
        assert gate is not None
        return await gate.wait()

    @server.tool
    def fail(secret: str) -> str:
        raise ToolError("it cannot be done")

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str) -> str:
        return f"hello {name}"

    return server


# ---------------------------------------------------------------- calls a second


@live
async def test_a_caller_gets_a_burst_and_then_so_many_a_second(revision: Revision) -> None:
    clock = Clock()
    async with raw_client(serving(rate_limit(2, burst=3, clock=clock)), revision) as client:
        for _ in range(3):
            assert await client.text("hi") == "hi"
        for _ in range(5):  # who goes on trying waits no longer
            words = await client.failure("hi")
            assert words == "too many calls; at most 2 a second; try again in 1 s"
        clock.now += 0.5
        assert await client.text("hi") == "hi"
        await client.failure("hi")
        clock.now += 3600.0  # a rest fills it, and no more than that
        for _ in range(3):
            assert await client.text("hi") == "hi"
        await client.failure("hi")
        clock.now -= 7200.0  # a clock that goes back gives nothing, and breaks nothing
        await client.failure("hi")


@live
async def test_what_is_no_tool_call_is_refused_by_an_error_that_says_when(
    revision: Revision,
) -> None:
    clock = Clock()
    async with raw_client(serving(rate_limit(0.1, clock=clock)), revision) as client:
        assert (await client.ask("prompts/list"))["prompts"]
        clock.now += 2.5
        refused: list[tuple[str, JSON]] = [
            ("tools/list", {}),
            ("resources/read", {"uri": "notes://a"}),
            ("prompts/get", {"name": "greet", "arguments": {"name": "x"}}),
        ]
        for method, params in refused:
            with pytest.raises(Rejected) as caught:
                await client.ask(method, params)
            assert caught.value.code == 429
            assert caught.value.message.endswith("at most 0.1 a second; try again in 8 s")
            assert caught.value.data == {"retryAfterMs": 7500}
        clock.now += 7.5
        assert (await client.ask("tools/list"))["tools"]


async def verify(headers: Headers) -> str:
    token = headers.get(b"authorization", b"")
    if not token:
        raise LoginRequired("log in")
    return token.removeprefix(b"Bearer ").decode()


@live
async def test_over_http_it_is_429_with_retry_after_and_the_next_caller_is_served() -> None:
    clock = Clock()
    site = HttpRunner(serving(rate_limit(0.25, clock=clock)).asgi(verify=verify), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            ada: JSON = {"authorization": "Bearer ada"}
            assert (await caller.modern("tools/list", **ada)).status == 200
            answer = await caller.modern("tools/list", id="mine", **ada)
            assert (answer.status, answer.code) == (429, 429)
            assert answer.headers["retry-after"] == "4"
            assert answer.json["id"] == "mine"
            assert answer.json["error"]["data"] == {"retryAfterMs": 4000}
            call = await caller.modern("tools/call", {"name": "hi"}, **ada)
            assert call.status == 200
            assert call.json["result"]["isError"] is True
            assert (await caller.modern("tools/list", authorization="Bearer bob")).status == 200
            assert (await caller.modern("tools/list")).status == 401
            clock.now += 4.0
            assert (await caller.modern("tools/list", **ada)).status == 200
    finally:
        await site.stop(0.0)


@live
async def test_in_a_session_the_same_error_is_an_answer_like_any_other() -> None:
    site = HttpRunner(serving(rate_limit(0.25, clock=Clock())).asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            await caller.initialize(NOVEMBER_2025.date)
            assert (await caller.ask("tools/list")).status == 200
            answer = await caller.ask("tools/list", id=2)
            # Clients of these revisions take another status for the end of the session.
            assert (answer.status, answer.code) == (200, 429)
    finally:
        await site.stop(0.0)


@live
async def test_each_principal_is_counted_by_itself(revision: Revision) -> None:
    server = serving(rate_limit(1, clock=Clock()))
    async with (
        raw_client(server, revision, principal="ada") as ada,
        raw_client(server, revision, principal="ada") as also_ada,
        raw_client(server, revision, principal="bob") as bob,
    ):
        assert await ada.text("hi") == "hi"
        await also_ada.failure("hi")
        assert await bob.text("hi") == "hi"


@live
async def test_without_a_principal_a_pipe_is_counted_by_itself_where_it_is_known(
    revision: Revision,
) -> None:
    server = serving(rate_limit(1, clock=Clock()))
    async with raw_client(server, revision) as one, raw_client(server, revision) as two:
        assert await one.text("hi") == "hi"
        await one.failure("hi")
        if revision.handshake:
            assert await two.text("hi") == "hi"
        else:  # a request that stands for itself belongs to nobody
            await two.failure("hi")


@live
async def test_limits_of_several_middlewares_add_up(revision: Revision) -> None:
    clock = Clock()
    server = serving(rate_limit(2, each=by_server, clock=clock), rate_limit(1, clock=clock))
    async with (
        raw_client(server, revision, principal="ada") as ada,
        raw_client(server, revision, principal="bob") as bob,
        raw_client(server, revision, principal="cy") as cy,
    ):
        assert await ada.text("hi") == "hi"
        assert await bob.text("hi") == "hi"
        assert "at most 2 a second" in await cy.failure("hi")


@live
async def test_methods_that_are_not_named_do_not_count(revision: Revision) -> None:
    layer = rate_limit(0.01, methods={"tools/call"}, clock=Clock())
    async with raw_client(serving(layer), revision) as client:
        for _ in range(5):
            assert (await client.ask("tools/list"))["tools"]
        assert await client.text("hi") == "hi"
        await client.failure("hi")


@pytest.mark.spec("R0150")
@live
async def test_completions_are_limited_from_the_start(revision: Revision) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "pick"},
        "argument": {"name": "colour", "value": "r"},
    }

    def picking(**settings: Any) -> Server:
        server = Server("s", version="1", **settings)

        @server.prompt
        def pick(colour: bool) -> str:
            return str(colour)

        return server

    async with raw_client(picking(completions_per_s=0.001), revision) as client:
        assert (await client.ask("completion/complete", params))["completion"]
        with pytest.raises(Rejected) as caught:
            await client.ask("completion/complete", params)
        assert caught.value.code == 429
        assert (await client.ask("prompts/list"))["prompts"]
    async with raw_client(picking(completions_per_s=None), revision) as client:
        for _ in range(3):
            assert (await client.ask("completion/complete", params))["completion"]


# ---------------------------------------------------------------- calls at once


@live
async def test_so_many_calls_run_at_once_and_each_end_makes_room(revision: Revision) -> None:
    gate = Gate()
    server = serving(rate_limit(at_once=2), gate=gate)
    async with raw_client(server, revision, principal="ada") as ada:
        running = [ada.send("tools/call", {"name": "wait"}) for _ in range(2)]
        await gate.running(2)
        words = await ada.failure("hi")
        assert words == (
            "2 calls are running already; wait for one of them to finish; try again in 1 s"
        )
        with pytest.raises(Rejected) as caught:
            await ada.ask("tools/list")
        assert caught.value.code == 429
        async with raw_client(server, revision, principal="bob") as bob:
            assert await bob.text("hi") == "hi"
        gate.go.set()
        for id in running:
            assert (await ada.outcome(id))["content"]
        assert await ada.text("hi") == "hi"


@live
async def test_a_call_that_fails_or_is_given_up_makes_room_too(revision: Revision) -> None:
    gate = Gate()
    left = asyncio.Event()

    async def watch(request: RequestContext, handler: Handler) -> t.ProtocolType:
        try:
            return await handler(request)
        except asyncio.CancelledError:
            left.set()
            raise

    server = serving(watch, rate_limit(at_once=1), gate=gate)
    async with raw_client(server, revision) as client:
        assert "cannot be done" in await client.failure("fail", {"secret": "x"})
        with pytest.raises(Rejected, match="no tool"):
            await client.call("nope")
        id = client.send("tools/call", {"name": "wait"})
        await gate.running()
        await client.failure("hi")
        client.notify("notifications/cancelled", {"requestId": id})
        async with asyncio.timeout(60):
            await left.wait()
        assert await client.text("hi") == "hi"


@live
async def test_a_subscription_holds_no_place_unless_it_is_named() -> None:
    listen = {"notifications": {"toolsListChanged": True}}
    async with raw_client(serving(rate_limit(at_once=1)), JULY_2026) as client:
        for count in (1, 2):
            client.send("subscriptions/listen", listen)
            await client.until(lambda n=count: _acknowledged(client) == n)
        assert await client.text("hi") == "hi"
    named = rate_limit(at_once=1, methods={"subscriptions/listen"})
    async with raw_client(serving(named), JULY_2026) as client:
        client.send("subscriptions/listen", listen)
        await client.until(lambda: _acknowledged(client) == 1)
        with pytest.raises(Rejected) as caught:
            await client.ask("subscriptions/listen", listen)
        assert caught.value.code == 429
        assert await client.text("hi") == "hi"


def _acknowledged(client: Client) -> int:
    return len(client.notifications("notifications/subscriptions/acknowledged"))


# ---------------------------------------------------------------- what is kept


def test_the_table_of_callers_is_bounded_and_the_rest_share_one_bucket() -> None:
    callers = _Callers(1.0, 1, places=2)
    a = callers.find("a", 0.0)
    assert a.take(1.0, 1, 0.0) == 0.0
    b = callers.find("b", 0.0)
    assert b.take(1.0, 1, 0.0) == 0.0
    others = {id(callers.find(f"c{n}", 0.0)) for n in range(100)}
    assert len(others) == 1
    assert others.isdisjoint({id(a), id(b)})
    assert len(callers) == 2
    assert callers.find("a", 0.5) is a  # and a stranger costs those who have a place nothing


def test_who_rests_is_forgotten_and_nobody_else() -> None:
    callers = _Callers(1.0, 10, places=MAX_CALLERS)
    for n in range(1000):
        assert callers.find(n, 0.0).take(1.0, 10, 0.0) == 0.0
    busy = callers.find("busy", 0.0)
    busy.running = 1
    spent = callers.find("spent", 1.0)
    for _ in range(10):
        spent.take(1.0, 10, 1.0)
    for n in range(600):  # each call clears away more than it adds
        callers.find(f"new {n}", 2.0)
    assert len(callers) <= 602
    assert callers.find("busy", 2.0) is busy
    assert callers.find("spent", 2.0) is spent


def test_a_refusal_takes_nothing_from_a_bucket() -> None:
    bucket = TokenBucket(1, 0.0)
    assert bucket.take(2.0, 1, 0.0) == 0.0
    assert {bucket.take(2.0, 1, 0.1) for _ in range(1000)} == {0.4}
    assert bucket.take(2.0, 1, 0.5) == 0.0


def test_a_bucket_fills_again_with_time_and_up_to_its_burst() -> None:
    rate, burst = 50.0, 200
    bucket = TokenBucket(burst, 0.0)
    assert not any(bucket.take(rate, burst, 0.0) for _ in range(burst))
    assert bucket.take(rate, burst, 0.0)
    assert bucket.take(rate, burst, 0.5 / rate)
    assert not bucket.take(rate, burst, 1.5 / rate)
    assert bucket.take(rate, burst, 1.5 / rate)
    assert [bucket.take(rate, burst, 1e6) for _ in range(2 * burst)].count(0.0) == burst


@live
async def test_a_session_that_is_gone_is_not_kept_by_its_bucket() -> None:
    seen: list[Any] = []

    def each(request: RequestContext) -> Any:
        seen.append(by_caller(request))
        return seen[-1]

    server = serving(rate_limit(0.001, each=each, clock=Clock()))
    for _ in range(20):
        async with raw_client(server, NOVEMBER_2025) as client:
            assert await client.text("hi") == "hi"
        del client
    assert len(seen) == 20

    def gone() -> bool:
        gc.collect()
        return all(key() is None for key in seen)

    await until(gone)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rate_limit(),
        lambda: rate_limit(0),
        lambda: rate_limit(-1),
        lambda: rate_limit(float("nan")),
        lambda: rate_limit(float("inf")),
        lambda: rate_limit(burst=3),
        lambda: rate_limit(burst=3, at_once=1),
        lambda: rate_limit(1, burst=0),
        lambda: rate_limit(at_once=0),
        lambda: rate_limit(1, places=0),
        lambda: timeout(0),
        lambda: timeout(float("nan")),
    ],
)
def test_limits_that_are_none_are_refused_when_they_are_made(make: Callable[[], Any]) -> None:
    with pytest.raises(LocalProtocolError):
        make()


# ---------------------------------------------------------------- time


@live
async def test_what_takes_too_long_is_stopped(revision: Revision) -> None:
    gate = Gate()
    server = serving(timeout(0.01), gate=gate)

    @server.prompt
    async def slow() -> str:
        await gate.go.wait()
        return "late"

    async with raw_client(server, revision) as client:
        assert await client.failure("wait") == "wait did not finish within 0.01 s; try less"
        with pytest.raises(Rejected) as caught:
            await client.ask("prompts/get", {"name": "slow"})
        assert caught.value.code == -32603
        assert caught.value.message == "slow did not finish within 0.01 s; try less"


@live
async def test_what_is_in_time_or_not_named_is_left_alone(revision: Revision) -> None:
    gate = Gate()
    async with raw_client(serving(timeout(3600)), revision) as client:
        assert await client.text("hi") == "hi"
    async with raw_client(
        serving(timeout(0.001, methods={"prompts/get"}), gate=gate), revision
    ) as client:
        id = client.send("tools/call", {"name": "wait"})
        await gate.running()
        gate.go.set()
        assert (await client.outcome(id))["content"]


@live
async def test_a_subscription_has_no_time_out() -> None:
    server = serving(timeout(0.001))
    async with raw_client(server, JULY_2026) as client:
        client.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.until(lambda: _acknowledged(client) == 1)
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, passed.set)  # timers ring in their order
        await passed.wait()
        server.tool(name="new")(lambda: "x")
        await client.until(lambda: client.notifications("notifications/tools/list_changed"))


@live
async def test_the_time_stands_still_while_a_person_answers(revision: Revision) -> None:
    deadlines: list[float | None] = []

    async def spy(request: RequestContext, handler: Handler) -> t.ProtocolType:
        deadline: asyncio.Timeout | None = getattr(request, "_deadline", None)

        def note() -> None:
            if deadline is not None:
                deadlines.append(deadline.when())

        server.state = note
        return await handler(request)

    def answer(method: str, params: JSON) -> JSON:
        server.state()
        return {"roots": []}

    server = Server("s", version="1")
    server.add_middleware(timeout(3600))
    server.add_middleware(spy)

    @server.tool
    async def ask(ctx: Context) -> str:
        server.state()
        first, second = await asyncio.gather(ctx.roots(key="a"), ctx.roots(key="b"))
        server.state()
        return f"{len(first) + len(second)} roots"

    async with raw_client(server, revision, answer=answer) as client:
        assert await client.text("ask") == "0 roots"
    if revision.input_requests is InputRequests.AS_REQUEST:
        before, *asked, after = deadlines
        assert before is not None
        assert asked == [None, None]
        assert after is not None
        assert after >= before


@live
async def test_a_time_out_of_the_handlers_own_is_not_taken_for_ours(revision: Revision) -> None:
    server = serving(timeout(3600))

    @server.tool
    async def own() -> str:
        raise TimeoutError("the database")

    async with raw_client(server, revision) as client:
        assert (await client.failure("own")).startswith("own failed (id ")


@live
async def test_a_caller_who_goes_is_no_time_out(revision: Revision) -> None:
    gate = Gate()
    outcomes: list[str] = []

    async def watch(request: RequestContext, handler: Handler) -> t.ProtocolType:
        try:
            return await handler(request)
        except BaseException as error:
            outcomes.append(type(error).__name__)
            raise

    async with raw_client(serving(watch, timeout(3600), gate=gate), revision) as client:
        id = client.send("tools/call", {"name": "wait"})
        await gate.running()
        client.notify("notifications/cancelled", {"requestId": id})
        assert await client.text("hi") == "hi"
    assert outcomes == ["CancelledError"]


@live
async def test_behind_a_timeout_a_request_has_the_same_fields(revision: Revision) -> None:
    seen: list[list[Any]] = []

    async def look(request: RequestContext, handler: Handler) -> t.ProtocolType:
        names = sorted(name for name in vars(RequestContext) if not name.startswith("_"))
        fields = [getattr(request, name) for name in names]
        seen.append([field for field in fields if not callable(field)])
        return await handler(request)

    async with raw_client(serving(look, timeout(3600), look), revision) as client:
        assert await client.text("hi") == "hi"
    assert seen[0] == seen[1]
    assert len(seen[0]) == 16  # the four methods are left out


# ---------------------------------------------------------------- the log


class Log:
    """What is logged while this is entered: the words, and the JSON lines."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("colonnade.requests")
        self._stream = io.StringIO()
        self._handler = json_handler(self._stream)
        self.words: list[str] = []
        self._words = logging.Handler()
        self._words.emit = lambda record: self.words.append(record.getMessage())  # type: ignore[method-assign]

    def __enter__(self) -> "Log":
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(self._handler)
        self.logger.addHandler(self._words)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self._handler)
        self.logger.removeHandler(self._words)
        self.logger.setLevel(logging.NOTSET)

    @property
    def lines(self) -> list[JSON]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    @property
    def requests(self) -> list[JSON]:
        return [line["request"] for line in self.lines]


@live
async def test_one_record_says_who_what_how_long_and_what_became_of_it(revision: Revision) -> None:
    clock = Clock()

    async def later(request: RequestContext, handler: Handler) -> t.ProtocolType:
        clock.now += 0.0125
        return await handler(request)

    server = serving(log(clock=clock), later)
    info = {"io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"}}
    meta = {} if revision.handshake else info
    with Log() as found:
        async with raw_client(server, revision, principal="ada", meta=meta) as client:
            await client.text("hi")
    (line,) = found.lines
    assert line["level"] == "info"
    assert line["logger"] == "colonnade.requests"
    assert line["request"] == {
        "method": "tools/call",
        "name": "hi",
        "principal": "ada",
        "revision": revision.date,
        "client": "client 1",
        "outcome": "ok",
        "ms": 12.5,
    }
    words = f"tools/call 'hi' by 'ada' ({revision.date}): ok, 12.5 ms"
    assert found.words == [words]
    assert line["message"] == words


@live
async def test_every_outcome_has_its_word_and_no_argument_is_ever_logged(
    revision: Revision,
) -> None:
    secret = "hunter2-and-more"
    gate = Gate()

    async def crash(request: RequestContext, handler: Handler) -> t.ProtocolType:
        if request.exchange.params.name == "crash":
            raise ZeroDivisionError(secret)
        return await handler(request)

    server = serving(log(), crash, gate=gate)

    @server.tool
    async def ask(word: str, ctx: Context) -> str:
        return f"{await ctx.elicit(word, str)}{secret}"

    with Log() as found:
        async with raw_client(server, revision, answer=accept(value=secret)) as client:
            await client.failure("fail", {"secret": secret})
            with pytest.raises(Rejected):
                await client.ask("resources/read", {"uri": "nowhere://x"})
            with pytest.raises(Rejected):
                await client.call("crash")
            await client.call("ask", {"word": secret})
            id = client.send("tools/call", {"name": "wait", "arguments": {}})
            await gate.running()
            client.notify("notifications/cancelled", {"requestId": id})
            await client.ask("tools/list")
    missing = revision.codes[FaultKind.RESOURCE_MISSING]
    asked = ["asks", "ok"] if revision.input_requests is InputRequests.IN_RESULT else ["ok"]
    if not revision.elicitation.modes:
        asked = ["tool error"]
    said = [(one["outcome"], one.get("code")) for one in found.requests]
    ends = [("tool error", None), ("fault", missing), ("crash", -32603)]
    ends += [(word, None) for word in (*asked, "cancelled", "ok")]
    assert sorted(said, key=str) == sorted(ends, key=str)
    assert secret not in json.dumps(found.lines)


@live
async def test_what_inner_middleware_refuses_is_logged_with_its_code() -> None:
    server = serving(log(), rate_limit(0.001, clock=Clock()))
    with Log() as found:
        async with raw_client(server, JULY_2026) as client:
            await client.ask("tools/list")
            with pytest.raises(Rejected):
                await client.ask("tools/list")
            await client.failure("hi")
    assert [(one["outcome"], one.get("code")) for one in found.requests] == [
        ("ok", None),
        ("fault", 429),
        ("tool error", None),
    ]


@live
async def test_an_address_is_logged_without_what_may_be_secret_in_it(revision: Revision) -> None:
    with Log() as found:
        async with raw_client(serving(log()), revision) as client:
            for uri in (
                "https://ann:hunter2@example.com/a?token=abc#frag",
                "notes://x?key=abc",
                "urn:isbn:12?secret=1",
                "x" * 100_000,
                "notes://line\r\nline",
            ):
                with pytest.raises(Rejected):
                    await client.ask("resources/read", {"uri": uri})
    names = [one["name"] for one in found.requests]
    assert names[:3] == ["https://example.com/a", "notes://x", "urn:isbn:12"]
    assert len(names[3]) == 128
    assert all("\n" not in words and "\r" not in words for words in found.words)


@live
async def test_the_trace_that_a_request_belongs_to_is_named_where_it_is_well_formed() -> None:
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    bad = [
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "not a trace",
        5,
    ]
    with Log() as found:
        async with raw_client(serving(log()), JULY_2026) as client:
            for parent in (good, *bad):
                await client.ask("tools/list", {"_meta": {"traceparent": parent}})
    traces = [one.get("trace") for one in found.requests]
    assert traces == ["4bf92f3577b34da6a3ce929d0e0e4736", *[None] * len(bad)]
    spans = [one.get("span") for one in found.requests]
    assert spans == ["00f067aa0ba902b7", *[None] * len(bad)]


@live
async def test_nothing_is_put_into_words_that_nobody_reads() -> None:
    quiet = logging.Logger("quiet", logging.WARNING)
    async with raw_client(serving(log(quiet)), JULY_2026) as client:
        assert await client.text("hi") == "hi"
    loud = logging.Logger("loud")
    stream = io.StringIO()
    loud.addHandler(json_handler(stream))
    async with raw_client(serving(log(loud, level=logging.WARNING)), JULY_2026) as client:
        assert await client.text("hi") == "hi"
    assert json.loads(stream.getvalue())["level"] == "warning"


@live
async def test_who_the_client_says_it_is_changes_nothing_but_the_log() -> None:
    """R1131: the same request gets the same answer, whoever says that they sent it."""
    server = serving(log(), rate_limit(100))
    found: list[Any] = []
    with Log() as logged:
        for name in ("client", "claude-desktop", "../../etc/passwd\r\n", "x" * 5000):
            info = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            async with raw_client(server, JULY_2026, meta=info) as client:
                found.append(
                    [
                        await client.ask("server/discover"),
                        await client.ask("tools/list"),
                        await client.call("hi"),
                        await client.ask("resources/read", {"uri": "notes://a"}),
                    ]
                )
    assert all(answers == found[0] for answers in found)
    assert [one["client"][:8] for one in logged.requests[::4]] == [
        "client 1",
        "claude-d",
        "../../et",
        "xxxxxxxx",
    ]


def test_every_revision_has_a_code_for_too_many() -> None:
    assert {revision.codes[FaultKind.TOO_MANY] for revision in ALL} == {429}
    assert Fault(FaultKind.TOO_MANY, "x").kind is FaultKind.TOO_MANY
