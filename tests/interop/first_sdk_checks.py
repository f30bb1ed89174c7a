"""What our client must see at servers on the official Python SDK as it was at first, 1.0 to 1.8.

They do not survive a probe: they stop reading at it, stay alive, and exit at the next message.

Rules: as of tests/interop/server_checks.py.
"""

import asyncio

from colonnade.errors import RemoteError
from interop.server_runs import (
    MODEL_SAYS,
    ServerRun,
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
EXPECTED = {
    "add": "5",
    "steps": "done",
    "talk": "said",
    "ask_model": MODEL_SAYS,
    "ask_roots": "file://",
}


async def plan(run: ServerRun) -> None:
    """List, call, read, get and complete all that there is."""
    client = run.client
    assert client.server is not None
    assert client.server.name == NAME
    await run.attempt("ping", client.ping())
    await list_all(run)
    await run.check("fail", _fails(run))
    run.left_out["fail"] = "it is called on its own"
    await call_all(run, CALLS, EXPECTED)
    del run.left_out["fail"]
    await read_all(run, {"name": "ada"})
    await get_all(run, {"language": "go"})
    # The SDK has a decorator for completions, and declares none.
    await run.check("complete", _completes(run))
    await complete_all(run)
    if run.server.version.startswith("1.0."):
        run.left_out["progress"] = "mcp 1.0 does not read the token"
    else:
        await run.check("progress", _progresses(run))
    await run.check("logging", _logs(run))
    await run.check("at once", _at_once(run))
    await run.check("unknown tool", _unknown(run))


async def _fails(run: ServerRun) -> None:
    run.calls += 1
    run.called.add("fail")
    result = await run.client.call_tool("fail")
    assert result.is_error
    assert "It cannot be done" in result.text


async def _completes(run: ServerRun) -> None:
    run.calls += 1
    found = await run.client.complete("language", "p", prompt="review")
    assert list(found.values) == ["pascal", "python"]


async def _progresses(run: ServerRun) -> None:
    seen: list[tuple[float, float | None]] = []

    def step(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total))
        run.stir()

    await run.call("steps", on_progress=step)
    await run.heard(lambda: len(seen) >= 3, "progress")
    assert seen == [(1, 3), (2, 3), (3, 3)]


async def _logs(run: ServerRun) -> None:
    await run.call("talk")
    await run.heard(lambda: "a word" in run.logged, "the word")


async def _at_once(run: ServerRun) -> None:
    calls = [run.call("add", {"a": nth, "b": 1000}) for nth in range(AT_ONCE)]
    results = await asyncio.gather(*calls)
    assert [result.text for result in results] == [str(1000 + nth) for nth in range(AT_ONCE)]


async def _unknown(run: ServerRun) -> None:
    run.calls += 1
    try:
        result = await run.client.call_tool("no_such_tool")
    except RemoteError as error:
        assert "no_such_tool" in error.message  # noqa: PT017
    else:
        assert result.is_error
        assert "no_such_tool" in result.text
