"""Progress, log messages, cancellation and timeouts.

Run it with `python examples/progress.py` (stdio) or `colonnade serve examples/progress.py` (HTTP).
"""

import asyncio

from colonnade import BlockingContext, Context, Server

server = Server("kitchen", version="1.0", instructions="Cooks; some dishes take their time.")

STEPS = ["wash", "chop", "fry", "serve"]
thrown_away: list[str] = []


@server.tool
async def cook(dish: str, ctx: Context) -> str:
    """Cook a dish, and say how far it is: to a caller that asked for progress, and to no other."""
    await ctx.info(f"cooking {dish}")
    for done, step in enumerate(STEPS, start=1):
        await asyncio.sleep(0.01)
        await ctx.progress(done, len(STEPS), f"{step} {dish}")
    await ctx.debug({"dish": dish, "steps": STEPS}, logger="stove")
    return f"{dish} is served"


@server.tool
def weigh(grams: list[int], ctx: BlockingContext) -> int:
    """Add up weights; a function that is not async runs in a thread and reports just the same."""
    total = 0
    for done, weight in enumerate(grams, start=1):
        total += weight
        ctx.progress(done, len(grams))
    if total > 5000:
        ctx.warning(f"{total} g is more than the pan holds")
    return total


@server.tool
async def simmer(dish: str, ctx: Context) -> str:
    """Simmer until the call is cancelled; `finally` and `except CancelledError` run."""
    await ctx.info(f"simmering {dish}")
    try:
        await asyncio.Event().wait()
    finally:
        thrown_away.append(dish)
    return f"{dish} is done"


@server.tool(timeout_s=0.2)
async def bake(minutes: float) -> str:
    """Bake; what takes longer than the tool's own time is an error that the model reads."""
    await asyncio.sleep(minutes * 60)
    return "golden"


@server.tool(read_only=True)
def leftovers() -> list[str]:
    """Dishes of cancelled calls."""
    return thrown_away


if __name__ == "__main__":
    server.run()
