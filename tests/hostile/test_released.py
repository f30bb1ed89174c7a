"""What a call took is released when the call ends, and not when the garbage collector runs.

Python frees what nothing refers to at once, and a circle of objects when its cyclic collector
looks, which may be a thousand calls later. A result of 16 MiB in a circle is 16 MiB until then; so
here the collector is off. An object that the collector does not know (`gc=False`) in a circle is
never freed at all.
"""

import asyncio
import gc
import logging
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import CoroutineType, FrameType, TracebackType
from typing import Any

import pytest

from colonnade import Context, Server, connect
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import ColonnadeError
from colonnade.gateway.held_calls import HeldLimits
from colonnade.protocol.codec.encode import MAX_KEPT
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.memory import connected_pair, serve_end
from gateway.recorded import INFO, NEW, OLD, Cell, recorded, revision_of, server_started
from live import live, until

# How often each call is made before the memory is compared, and meanwhile.
WARM, CALLS = 3, 10
# As many lists as an encoder keeps, and more.
LISTS = 2 * MAX_KEPT
# Each argument and each result. The last call may still be in memory, in six places at most; if each
# call left its text in one place, that would be more.
BIG = "y" * 100_000
LEFT_BYTES = 6 * len(BIG)
# Iterations of the loop in which the tasks of the last call end.
TURNS = 50


def works() -> Server:
    server = Server("works")
    server.tool(plain)
    server.tool(in_a_thread)
    server.tool(reports)
    server.tool(forms)
    server.tool(samples)
    server.tool(roots)
    server.tool(raises)
    server.tool(waits)
    server.tool(timeout_s=0.01)(late)
    server.tool(task=True)(goes_on)
    server.resource("text://big")(big)
    server.prompt(words)
    return server


async def plain(text: str) -> str:
    return text


def in_a_thread(text: str) -> str:
    return text


async def reports(text: str, ctx: Context) -> str:
    for step in range(3):
        await ctx.progress(step + 1, 3)
    return text


async def forms(text: str, ctx: Context) -> str:
    await ctx.elicit("Which seat?", str)
    return text


async def samples(text: str, ctx: Context) -> str:
    await ctx.sample("Think.")
    return text


async def roots(text: str, ctx: Context) -> str:
    await ctx.roots()
    return text


async def raises(text: str) -> str:
    raise ValueError(text)


async def waits(text: str) -> str:
    await asyncio.Event().wait()
    return text


async def late(text: str) -> str:
    return await waits(text)


async def goes_on(text: str) -> str:
    return text


async def big() -> str:
    return BIG


async def words(text: str) -> str:
    return text


class Calls:
    """Each kind of call of a client, by name."""

    def __init__(self, client: Client, prefix: str = "") -> None:
        self.client = client
        self.prefix = prefix
        self.uri = "text://big"
        self.cell: Cell | None = None

    def forget(self) -> None:
        """Clear the records of wires, which are no part of a call, and what a gateway knows of tasks
        that it was not told the end of."""
        if self.cell is None:
            return
        for wire in (*self.cell.front, *self.cell.back):
            wire.frames.clear()
            wire.places.clear()
        followers = self.cell.gateway._tasks.followers
        for followed in list(followers._in_sessions):
            followers.forget(*followed)

    def tool(self, name: str, **options: Any) -> Awaitable[Any]:
        return self.client.call_tool(self.prefix + name, {"text": BIG}, **options)

    async def fails(self, call: Awaitable[Any]) -> None:
        with suppress(ColonnadeError):
            await call

    async def cancelled(self) -> None:
        call = asyncio.ensure_future(self.tool("waits"))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def task(self) -> None:
        started = await self.client.start_task(self.prefix + "goes_on", {"text": BIG})
        await started.result()

    def make(self, kind: str) -> Awaitable[Any]:
        match kind:
            case "progress":
                return self.tool("reports", on_progress=lambda *_: None)
            case "an unknown tool":
                return self.fails(self.tool("nothing"))
            case "arguments that do not fit":
                arguments = {"text": [BIG]}
                return self.fails(self.client.call_tool(self.prefix + "plain", arguments))
            case "a resource":
                return self.client.read_resource(self.uri)
            case "an unknown resource":
                return self.fails(self.client.read_resource(f"text://{BIG[:4000]}"))
            case "a prompt":
                return self.client.get_prompt(self.prefix + "words", {"text": BIG})
            case "a cancelled call":
                return self.cancelled()
            case "a task":
                return self.task()
            case "a list":
                return self.client.list_tools()
            case tool:
                return self.tool(tool)


KINDS = [
    *("plain", "in_a_thread", "progress", "forms", "samples", "roots", "raises", "late"),
    *("an unknown tool", "arguments that do not fit", "a resource", "an unknown resource"),
    *("a prompt", "a cancelled call", "a task", "a list"),
]


def user() -> InputCallbacks:
    return InputCallbacks(on_elicit=lambda _: "12A", on_sample=lambda _: "a thought", roots=["/"])


# ---------------------------------------------------------------- the connections

Opened = Callable[[], Any]


@asynccontextmanager
async def over_memory(revision: str) -> AsyncGenerator[Calls]:
    server = works()
    async with server_started(server):
        near, far = connected_pair()
        serve_end(far, server)
        client = Client(near.open_conversation, user(), info=INFO)
        await client.open(revision_of(revision))
        yield Calls(client)
        await client.close()


@asynccontextmanager
async def over_http(revision: str) -> AsyncGenerator[Calls]:
    # A stream that can be resumed keeps its events for a while; that is no leak.
    limits = Limits(max_resumable_streams_per_session=0)
    site = HttpRunner(HttpApp(works(), limits=limits), port=0)
    await site.start()
    options: dict[str, Any] = {"on_elicit": lambda _: "12A", "on_sample": lambda _: "a thought"}  # pyright: ignore[reportUnknownLambdaType]
    try:
        async with connect(site.url, revision=revision, roots=["/"], **options) as client:
            yield Calls(client)
    finally:
        await site.stop(0.0)


@asynccontextmanager
async def through_a_gateway(downstream: str, upstream: str) -> AsyncGenerator[Calls]:
    settings: dict[str, Any] = {"sampling": True, "roots": "caller"}
    # The outcome of a held call is kept for a client that asks again; here it is not.
    settings["limits"] = HeldLimits(outcome_bytes=1000)
    async with recorded(works(), upstream=upstream, downstream=downstream, **settings) as cell:
        calls = Calls(await cell.connect(user(), tasks=True), "s__")
        await calls.client.list_tools()
        calls.uri = (await calls.client.list_resources())[0].uri
        calls.cell = cell
        yield calls


WAYS: dict[str, Opened] = {
    f"memory {OLD}": lambda: over_memory(OLD),
    f"memory {NEW}": lambda: over_memory(NEW),
    f"HTTP {OLD}": lambda: over_http(OLD),
    f"HTTP {NEW}": lambda: over_http(NEW),
    f"gateway {OLD} to {OLD}": lambda: through_a_gateway(OLD, OLD),
    f"gateway {OLD} to {NEW}": lambda: through_a_gateway(OLD, NEW),
    f"gateway {NEW} to {OLD}": lambda: through_a_gateway(NEW, OLD),
    f"gateway {NEW} to {NEW}": lambda: through_a_gateway(NEW, NEW),
}

# ---------------------------------------------------------------- what is alive


@contextmanager
def without_collector() -> Generator[None]:
    gc.collect()
    gc.disable()
    # A record has the exception that it is about, and pytest keeps records.
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
        tracemalloc.stop()


def alive() -> Counter[str]:
    """The objects of calls that exist, by their type."""
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        module = str(kind.__module__)
        if module == "colonnade.store.memory":
            continue  # records of tasks and of outcomes, each with its time
        if module.startswith("colonnade"):
            found[kind.__name__] += 1
        elif issubclass(kind, FrameType):
            found[f"the frame of {one.f_code.co_name}"] += 1
        elif issubclass(kind, BaseException | TracebackType | CoroutineType | asyncio.Future):
            found[kind.__name__] += 1
    return found


async def settled() -> None:
    """Let the tasks of the last call end, those in threads and of other connections too."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def left_after(calls: Calls, kind: str) -> str:
    """What is left of some calls; empty if nothing is."""
    times = LISTS if kind == "a list" else CALLS
    for _ in range(WARM):
        await calls.make(kind)
    await settled()
    with without_collector():
        before = alive()
        tracemalloc.start()
        calls.forget()
        for _ in range(times):
            await calls.make(kind)
        calls.forget()
        await settled()

        def is_too_much() -> bool:
            # The result of a task is kept, to be fetched again.
            return tracemalloc.get_traced_memory()[0] > LEFT_BYTES and kind != "a task"

        def left() -> dict[str, int]:
            return {name: count for name, count in (alive() - before).items() if count >= times}

        with suppress(TimeoutError):  # a connection that was closed ends when its peer has read it
            await until(lambda: not is_too_much())
        size = f"{tracemalloc.get_traced_memory()[0]:,} bytes" if is_too_much() else ""
        tracemalloc.stop()  # a look at all objects is a list of some megabytes
        with suppress(TimeoutError):
            await until(lambda: not left())
        return " ".join([size, *(f"{count} {name}" for name, count in left().items())])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_call_waits_for_the_garbage_collector(way: str, kind: str) -> None:
    @live
    async def exercise() -> None:
        async with WAYS[way]() as calls:
            assert await left_after(calls, kind) == ""

    exercise()
