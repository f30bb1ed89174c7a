"""What our client must see at servers on the official Python SDK as it was at first, 1.0 to 1.8.

They do not survive a probe: they stop reading at it, stay alive, and exit at the next message.

Rules: as of tests/interop/server_checks.py.
"""

import asyncio

from colonnade.errors import RemoteError
from interop.server_runs import (
    MODEL_SAYS,
    Visit,
    call_all,
    complete_all,
    get_all,
    list_all,
    read_all,
)
from interop.servers.shared_data import NAME

AT_ONCE = 20
CALLS = {"add": {"a": 2, "b": 3}, "steps": {}, "talk": {}, "ask_model": {}, "ask_roots": {}}
# Words in what each tool says.
SAID = {
    "add": "5",
    "steps": "done",
    "talk": "said",
    "ask_model": MODEL_SAYS,
    "ask_roots": "file://",
}


async def plan(visit: Visit) -> None:
    """List, call, read, get and complete all that there is."""
    client = visit.client
    assert client.server is not None
    assert client.server.name == NAME
    await visit.attempt("ping", client.ping())
    await list_all(visit)
    await visit.check("fail", _fails(visit))
    visit.left_out["fail"] = "it is called on its own"
    await call_all(visit, CALLS, SAID)
    del visit.left_out["fail"]
    await read_all(visit, {"name": "ada"})
    await get_all(visit, {"language": "go"})
    # The SDK has a decorator for completions, and declares none.
    await visit.check("complete", _completes(visit))
    await complete_all(visit)
    if visit.stranger.version.startswith("1.0."):
        visit.left_out["progress"] = "mcp 1.0 does not read the token"
    else:
        await visit.check("progress", _progresses(visit))
    await visit.check("logging", _logs(visit))
    await visit.check("at once", _at_once(visit))
    await visit.check("unknown tool", _unknown(visit))


async def _fails(visit: Visit) -> None:
    visit.calls += 1
    visit.called.add("fail")
    result = await visit.client.call_tool("fail")
    assert result.is_error
    assert "It cannot be done" in result.text


async def _completes(visit: Visit) -> None:
    visit.calls += 1
    found = await visit.client.complete("language", "p", prompt="review")
    assert list(found.values) == ["pascal", "python"]


async def _progresses(visit: Visit) -> None:
    seen: list[tuple[float, float | None]] = []

    def step(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total))
        visit.stir()

    await visit.call("steps", on_progress=step)
    await visit.heard(lambda: len(seen) >= 3, "progress")
    assert seen == [(1, 3), (2, 3), (3, 3)]


async def _logs(visit: Visit) -> None:
    await visit.call("talk")
    await visit.heard(lambda: "a word" in visit.logged, "the word")


async def _at_once(visit: Visit) -> None:
    calls = [visit.call("add", {"a": nth, "b": 1000}) for nth in range(AT_ONCE)]
    results = await asyncio.gather(*calls)
    assert [result.text for result in results] == [str(1000 + nth) for nth in range(AT_ONCE)]


async def _unknown(visit: Visit) -> None:
    visit.calls += 1
    try:
        result = await visit.client.call_tool("no_such_tool")
    except RemoteError as error:
        assert "no_such_tool" in error.message  # noqa: PT017
    else:
        assert result.is_error
        assert "no_such_tool" in result.text
