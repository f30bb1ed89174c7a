"""Dependencies: made, shared, cleaned up, replaced; for a call or for the server."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Annotated

import pytest

from colonnade import BlockingContext, Context, Depends, LocalProtocolError, Server, ToolError
from colonnade.protocol.revision import Revision
from live import live
from server.raw_client import raw_client


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> str:
        self.lines.append(line)
        return line


@live
async def test_a_dependency_is_made_once_a_call_and_cleaned_up_in_reverse(
    revision: Revision,
) -> None:
    server, log = Server("s"), Log()

    async def base() -> AsyncGenerator[str]:
        yield log("base")
        log("base closed")

    def middle(base: Annotated[str, Depends(base)]) -> Generator[str]:
        yield log(f"middle({base})")
        log("middle closed")

    class Settings:
        def __init__(self) -> None:
            self.name = "settings"

    @server.tool
    async def use(
        one: Annotated[str, Depends(base)],
        two: Annotated[str, Depends(middle)],
        settings: Annotated[Settings, Depends(Settings)],
        number: int = 1,
        three: str = Depends(middle),  # type: ignore[assignment]
    ) -> str:
        return f"{one} {two} {three} {settings.name} {number}"

    async with raw_client(server, revision) as client:
        (tool,) = (await client.ask("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["number"]
        expected = "base middle(base) middle(base) settings 1"
        assert await client.text("use") == expected
        assert log.lines == ["base", "middle(base)", "middle closed", "base closed"]
        assert await client.text("use") == expected
        assert len(log.lines) == 8


@live
async def test_a_dependency_sees_what_became_of_the_call(revision: Revision) -> None:
    server, log = Server("s"), Log()

    async def transaction() -> AsyncGenerator[str]:
        try:
            yield "open"
        except ToolError as error:
            log(f"rolled back: {error}")
            raise
        else:
            log("committed")

    def in_a_thread() -> Generator[str]:
        try:
            yield "open"
        except ToolError:
            log("thread saw it")
            raise

    @server.tool
    def change(
        fail: bool,
        one: Annotated[str, Depends(transaction)],
        two: Annotated[str, Depends(in_a_thread)],
    ) -> str:
        if fail:
            raise ToolError("no")
        return "done"

    async with raw_client(server, revision) as client:
        assert await client.text("change", {"fail": False}) == "done"
        assert await client.failure("change", {"fail": True}) == "no"
    assert log.lines == ["committed", "thread saw it", "rolled back: no"]


@live
async def test_one_of_the_server_lives_as_long_as_the_server(revision: Revision) -> None:
    server, log = Server("s"), Log()
    gate = asyncio.Event()

    async def pool() -> AsyncGenerator[str]:
        log("pool")
        await gate.wait()
        yield "pool"
        log("pool closed")

    async def database(pool: Annotated[str, Depends(pool, scope="server")]) -> AsyncGenerator[str]:
        yield log(f"db({pool})")
        log("db closed")

    @server.tool
    async def use(db: Annotated[str, Depends(database, scope="server")]) -> str:
        return db

    async with raw_client(server, revision) as client:
        ids = [client.send("tools/call", {"name": "use"}) for _ in range(3)]
        await asyncio.sleep(0)
        client.notify("notifications/cancelled", {"requestId": ids[0]})
        gate.set()
        for id in ids[1:]:
            assert (await client.outcome(id))["content"][0]["text"] == "db(pool)"
        assert await client.text("use") == "db(pool)"
        assert log.lines == ["pool", "db(pool)"]
    assert log.lines == ["pool", "db(pool)", "db closed", "pool closed"]


@live
async def test_one_that_fails_is_tried_again_and_fails_its_call_only(revision: Revision) -> None:
    server, tries = Server("s"), list[int]()

    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ToolError("not up yet")
        return "up"

    @server.tool
    async def use(it: Annotated[str, Depends(flaky, scope="server")]) -> str:
        return it

    async with raw_client(server, revision) as client:
        assert await client.failure("use") == "not up yet"
        assert await client.text("use") == "up"


@live
async def test_overrides_stand_in_for_a_while(revision: Revision) -> None:
    server = Server("s")

    def real() -> str:
        raise AssertionError("no database in tests")

    async def fake(ctx: Context) -> str:
        return f"fake {ctx.revision}"

    def user(db: Annotated[str, Depends(real)]) -> str:
        return f"user of {db}"

    @server.tool
    async def use(user: Annotated[str, Depends(user)]) -> str:
        return user

    async with raw_client(server, revision) as client:
        with server.overrides({real: fake}):
            assert await client.text("use") == f"user of fake {revision.date}"
        assert "failed (id" in await client.failure("use")


@live
async def test_overrides_reach_what_is_mounted(revision: Revision) -> None:
    outer, server, inner = Server("o"), Server("s"), Server("i")

    def real() -> str:
        return "real"

    @inner.tool
    async def use(it: Annotated[str, Depends(real)]) -> str:
        return it

    server.mount(inner)
    outer.mount(server)
    async with raw_client(outer, revision) as client:
        with outer.overrides({real: lambda: "fake"}):
            assert await client.text("use") == "fake"
        assert await client.text("use") == "real"


@live
async def test_sync_dependencies_run_in_threads(revision: Revision) -> None:
    server = Server("s")
    here = threading.get_ident()

    def where(ctx: BlockingContext) -> bool:
        ctx.info("in a thread")
        return threading.get_ident() == here

    @server.tool
    async def use(it: Annotated[bool, Depends(where)]) -> bool:
        return it

    async with raw_client(server, revision) as client:
        assert await client.text("use") == "false"


def test_what_could_never_be_resolved_is_refused_at_registration() -> None:
    server = Server("s")

    def needs_a_value(x: int) -> int:
        return x

    async def of_a_call(ctx: Context) -> str:
        return ctx.principal

    def shared(x: Annotated[str, Depends(of_a_call)]) -> str:
        return x

    def self_made(x: int = 1) -> int:
        return x

    def loop_a(b: Annotated[int, Depends(lambda: loop_b)]) -> int:
        return b

    loop_b = loop_a

    async def blocking(ctx: BlockingContext) -> None: ...

    def circle(x: int = 0) -> int:
        return x

    circle.__annotations__["x"] = Annotated[int, Depends(circle)]
    cases = {
        "needs a default": Depends(needs_a_value),
        "cannot depend on a call": Depends(of_a_call, scope="server"),
        "give it scope='server', too": Depends(shared, scope="server"),
        "depends on itself": Depends(circle),
        "an async function takes Context": Depends(blocking),
    }
    for words, depends in cases.items():

        def use(it: object = depends) -> None: ...

        with pytest.raises(LocalProtocolError, match=words):
            server.tool(use)
    with pytest.raises(LocalProtocolError, match="takes a function"):
        Depends(3)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="scopes 'call' and 'server'"):
        Depends(self_made, scope="session")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="an async function takes Context"):
        server.tool(blocking)
    assert len(server.tools) == 0
