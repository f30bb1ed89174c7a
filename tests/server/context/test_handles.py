"""State that outlives a call: handles of a principal, and answers that count once."""

from dataclasses import dataclass, field

import pytest

from colonnade import BlockingContext, Context, LocalProtocolError, Server
from colonnade.protocol.revision import ALL, InputRequests, Revision
from colonnade.store.memory import MemoryStore
from live import live
from server.raw_client import JSON, Rejected, raw_client


@dataclass
class Basket:
    items: list[str] = field(default_factory=list[str])


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def shop(clock: Clock) -> Server:
    server = Server("shop", store=MemoryStore(clock=clock))
    baskets = server.handles("basket", Basket, ttl_s=60)

    @server.tool
    async def create(ctx: Context) -> str:
        return await baskets.create(ctx, Basket())

    @server.tool
    def add(basket: str, item: str, ctx: BlockingContext) -> Basket:
        found = baskets.get(ctx, basket)
        found.items.append(item)
        baskets.put(ctx, basket, found)
        return found

    @server.tool
    async def show(basket: str, ctx: Context) -> list[str]:
        return (await baskets.get(ctx, basket)).items

    @server.tool
    def empty(basket: str, ctx: BlockingContext) -> None:
        baskets.drop(ctx, basket)

    @server.tool
    async def refill(basket: str, ctx: Context) -> None:
        await baskets.put(ctx, basket, Basket(["x"]))

    @server.tool
    def create_in_a_thread(ctx: BlockingContext) -> str:
        return baskets.create(ctx, Basket(["t"]))

    @server.tool
    async def forget(basket: str, ctx: Context) -> None:
        await baskets.drop(ctx, basket)

    return server


@pytest.mark.spec("R0614", "R1301", "R1302", "R1303")
@live
async def test_a_handle_leads_back_to_what_its_principal_created(revision: Revision) -> None:
    clock = Clock()
    server = shop(clock)
    async with raw_client(server, revision, principal="ann") as client:
        handle = await client.text("create")
        assert handle.startswith("basket_")
        assert len(handle) > 20
        assert await client.text("create") != handle
        await client.text("add", {"basket": handle, "item": "hat"})
        assert await client.text("show", {"basket": handle}) == '["hat"]'
    async with raw_client(server, revision, principal="eve") as client:
        words = await client.failure("show", {"basket": handle})
        assert words == f"there is no basket '{handle}', or it has expired; create a new one"
        assert "no basket" in await client.failure("refill", {"basket": handle})
        assert "no basket" in await client.failure("empty", {"basket": handle})
    async with raw_client(server, revision, principal="ann") as client:
        assert await client.text("show", {"basket": handle}) == '["hat"]'
        await client.call("empty", {"basket": handle})
        assert "no basket" in await client.failure("show", {"basket": handle})
        other = await client.text("create_in_a_thread")
        assert await client.text("show", {"basket": other}) == '["t"]'
        await client.call("forget", {"basket": other})
        assert "no basket" in await client.failure("forget", {"basket": other})


@live
async def test_a_handle_lives_as_long_as_it_is_used(revision: Revision) -> None:
    clock = Clock()
    async with raw_client(shop(clock), revision) as client:
        handle = await client.text("create")
        for _ in range(3):
            clock.now += 50
            assert await client.text("show", {"basket": handle}) == "[]"
        clock.now += 61
        assert "expired" in await client.failure("show", {"basket": handle})
        for strange in ("", "basket_", "sheep_x", "basket_" + "x" * 1000, "basket_\ud800"):
            if strange.isascii():
                words = await client.failure("show", {"basket": strange})
                assert words.startswith("there is no basket")
                assert len(words) < 300


def test_handles_need_a_type_and_a_time() -> None:
    with pytest.raises(LocalProtocolError, match="above 0"):
        Server("s").handles("x", int, ttl_s=0)
    with pytest.raises(LocalProtocolError, match="need the type"):
        Server("s").handles("x", type(None))


@pytest.mark.spec("R0796")
@pytest.mark.parametrize(
    "revision",
    [one for one in ALL if one.input_requests is InputRequests.IN_RESULT],
    ids=lambda one: one.date,
)
@live
async def test_answers_count_once_where_a_tool_wants_that(revision: Revision) -> None:
    server = Server("bank")
    paid: list[str] = []

    @server.tool(single_use=True)
    async def pay(to: str, ctx: Context) -> str:
        await ctx.roots(key="roots")
        paid.append(to)
        return "paid"

    @server.tool
    async def look(ctx: Context) -> str:
        await ctx.roots(key="roots")
        return "seen"

    answers: JSON = {"roots": {"roots": []}}
    async with raw_client(server, revision) as client:
        for tool, arguments in (("pay", {"to": "bob"}), ("look", {})):
            params: JSON = {"name": tool, "arguments": arguments}
            first = await client.outcome(client.send("tools/call", params))
            retry = params | {"requestState": first["requestState"], "inputResponses": answers}
            await client.outcome(client.send("tools/call", retry))
            if tool == "look":
                await client.outcome(client.send("tools/call", retry))
                continue
            with pytest.raises(Rejected, match="requestState") as caught:
                await client.outcome(client.send("tools/call", retry))
            assert caught.value.code == -32602
    assert paid == ["bob"]
