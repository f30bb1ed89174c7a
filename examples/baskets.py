"""State between calls: a handle that the caller passes, and its state in a store.

A handle belongs to the principal that created it, and expires when it is not used. With
`SqliteStore` the state is shared by several processes, and persistent.

Run it with `python examples/baskets.py` (stdio) or `colonnade serve examples/baskets.py` (HTTP).
"""

from dataclasses import dataclass, field

from colonnade import BlockingContext, Context, Server, ToolError

server = Server("grocer", version="1.0", instructions="Open a basket, fill it, check it out.")

PRICES = {"oats": 240, "pears": 320, "cheese": 890}


@dataclass
class Basket:
    items: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> int:
        return sum(PRICES[name] * count for name, count in self.items.items())


baskets = server.handles("basket", Basket, ttl_s=3600)


@server.tool
async def open_basket(ctx: Context) -> str:
    """Open an empty basket; its handle is good for an hour after its last use."""
    return await baskets.create(ctx, Basket())


@server.tool
async def put(basket: str, item: str, count: int = 1, *, ctx: Context) -> Basket:
    """Put something into a basket.

    Args:
        basket: The handle from open_basket.
        item: What to put in.
        count: How many.
    """
    if item not in PRICES:
        raise ToolError(f"No {item!r} here; there are {', '.join(PRICES)}.")
    kept = await baskets.get(ctx, basket)
    kept.items[item] = kept.items.get(item, 0) + count
    await baskets.put(ctx, basket, kept)
    return kept


@server.tool
def check_out(basket: str, ctx: BlockingContext) -> str:
    """Pay; the handle names nothing afterwards."""
    total = baskets.get(ctx, basket).total
    baskets.drop(ctx, basket)
    return f"{total / 100:.2f} paid"


if __name__ == "__main__":
    server.run()
