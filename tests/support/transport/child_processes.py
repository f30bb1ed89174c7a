"""Child processes for tests: a misbehaving server, a conversation with it, and what it left behind.

    @on_both_loops
    async def test_…(…) -> None:
        async with child_conversation("exits_with_1") as conversation:
            with pytest.raises(ConnectionLost): await conversation.call()

Rules: whatever a test does, no process, task, thread or descriptor is left after `child_conversation`.
"""

import asyncio
import functools
import inspect
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec

import msgspec
import pytest
import uvloop

from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import JULY_2026
from colonnade.transport.duplex import ClientDuplex
from colonnade.transport.process.child import Child, start_child
from colonnade.transport.process.posix import marked, members
from live import _watched

P = ParamSpec("P")

SCRIPT = Path(__file__).with_name("misbehaving_servers.py")
# For what must come, on a machine that does other things, too.
WAIT_S = 60.0
# For what must not come, and for a child that will not end by itself.
SHORT_S = 0.2
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_asyncio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in asyncio's own loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        _run("asyncio", test(*args, **kwargs))

    return run


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in asyncio's own loop, and in uvloop's."""

    def run(*args: Any, loop: str, **kwargs: Any) -> None:
        _run(loop, test(*args, **kwargs))

    signature = inspect.signature(test)
    more = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    functools.update_wrapper(run, test)
    parameters = [*signature.parameters.values(), more]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    # The second run is slow, and left out by `scripts/test core`.
    kinds = ["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)]
    return pytest.mark.parametrize("loop", kinds)(run)


def _run(loop: str, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_watched(test, 5 * WAIT_S))


def misbehaving_server(mode: str) -> list[str]:
    """The command of one of the misbehaving servers."""
    return [sys.executable, "-I", "-S", str(SCRIPT), mode]


class SilentClient:
    """A client that responds to nothing."""

    def __init__(self) -> None:
        self.ended = 0

    async def handle_request(self, request: RequestContext) -> bytes | None:
        return None

    def on_notification(self, told: NotificationReceived) -> None: ...

    def on_missed_notifications(self) -> None: ...

    def on_closed(self) -> None:
        self.ended += 1


class ChildConversation:
    """A child, and the conversation with it."""

    def __init__(self, child: Child, stderr_lines: list[str]) -> None:
        self.child = child
        self.stderr_lines = stderr_lines
        self.client = SilentClient()
        info = t.Implementation(name="c", version="1")
        link = DuplexLink(Side.CLIENT, Identity(info, t.ClientCapabilities()))
        link.adopt(JULY_2026)
        self.duplex: ClientDuplex = child.open_conversation(link, self.client)

    async def call(self, tool: str = "git_log", timeout_s: float = WAIT_S) -> str:
        """The text of a tool's answer."""
        params = t.CallToolRequestParams(name=tool)
        raw = await self.duplex.request("tools/call", params, timeout_s)
        return "".join(one["text"] for one in msgspec.json.decode(raw)["content"])

    async def ready(self) -> None:
        """Wait until the child says on its standard error that it is."""
        await until(lambda: "ready" in self.stderr_lines)

    @property
    def mark(self) -> bytes:
        return self.child._command.mark.encode()


@asynccontextmanager
async def child_conversation(
    mode: str, *, grace_s: float = SHORT_S, **options: Any
) -> AsyncGenerator[ChildConversation]:
    """A conversation with a misbehaving server; afterwards nothing is left of it."""
    stderr_lines: list[str] = []
    with nothing_left():
        child = await start_child(
            misbehaving_server(mode),
            name="git",
            grace_s=grace_s,
            on_stderr=stderr_lines.append,
            **options,
        )
        conversation = ChildConversation(child, stderr_lines)
        try:
            yield conversation
        finally:
            await child.close("the test ended")
            assert alive(child.pid, conversation.mark) == set()


def alive(group: int, word: bytes = b"") -> set[int]:
    """The living processes of a group, and all that carry a mark."""
    return {*members(group), *(marked(word) if word else ())}


@contextmanager
def nothing_left() -> Generator[None]:
    """No process, thread or descriptor more than before. What an earlier test left may go."""
    before = _held()
    yield
    for thread in threading.enumerate():
        # asyncio waits for a process in a thread, which ends a moment later.
        if "waitpid-" in thread.name:
            thread.join(WAIT_S)
    left = _held() - before
    assert not left, f"left behind: {list(left.elements())}"


def _held() -> Counter[str]:
    """Our descriptors of files, pipes and processes, our threads, and our children, dead or
    alive."""
    held: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            held[target] += target.startswith(("pipe:", "anon_inode:[pidfd]", "/"))
    for task in os.listdir("/proc/self/task"):
        # A thread may end in the meantime.
        with suppress(OSError):
            children = Path(f"/proc/self/task/{task}/children").read_text().split()
            held.update(f"process {child}" for child in children)
    held.update(f"thread {thread.name}" for thread in threading.enumerate())
    return held


async def until(true: Callable[[], bool]) -> None:
    """Wait until this is true, by looking again and again."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.005)


def wait_until(true: Callable[[], bool]) -> None:
    """The same without a loop."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
