"""What people type who come from another library, where it costs us nothing to take it."""

import asyncio
from typing import Any

from colonnade import BlockingContext, Context, Server, connect
from colonnade.protocol.revision import ALL
from colonnade.testing import connect as connect_in_memory
from colonnade.testing import every_revision

START_S = 60.0


@every_revision
async def test_progress_may_be_reported(revision: str) -> None:
    server, heard = Server("shop"), list[float]()

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.report_progress(1, 2)

    @server.tool
    def block(ctx: BlockingContext) -> None:
        ctx.report_progress(2, total=2, message="done")

    def step(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with connect_in_memory(server, revision, on_progress=step) as client:
        await client.call_tool("wait")
        await client.call_tool("block")
    assert heard == [1, 2]


def test_streamable_http_is_http() -> None:
    async def served() -> list[str]:
        server = Server("shop")
        address: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            server.serve(transport="streamable-http", port=0, started=address.set_result)
        )
        try:
            where = await asyncio.wait_for(address, START_S)
            spoken: list[str] = []
            for revision in ALL[1:]:  # the first one has another transport
                async with connect(where.url, revision=revision.date) as client:
                    spoken.append(client.revision)
            return spoken
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    assert asyncio.run(served()) == [revision.date for revision in ALL[1:]]
