"""The tools that ask: the user, the client's model, and for its folders, in every way there is.

Rules: as in `server`, which mounts this one without a name in front.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from colonnade import Ask, Context, Roots, Sample, Server, ToolError
from colonnade.protocol import types as t
from wire.server_content import ICON, MARKS, NOTE

asking = Server("asking")


@dataclass
class Order:
    name: str
    amount: Annotated[int, Meta(ge=1, le=9, title="Amount", description="How many.")]
    price: float = 1.5
    gift: bool = False
    size: Literal["S", "M", "L"] = "M"
    colours: list[Literal["red", "blue"]] = field(default_factory=list[Literal["red", "blue"]])


@asking.tool
async def order(ctx: Context) -> str:
    """Asks with a form that has a field of every kind."""
    given = await ctx.elicit("What shall it be?", Order, key="order")
    return f"{given.amount} {given.size} {'/'.join(given.colours)} for {given.name}"


CHOICES = t.ElicitSchema(
    properties={
        "titled": t.PrimitiveSchema(
            type="string",
            title="Titled",
            one_of=[t.EnumOption(const="a", title="First"), t.EnumOption(const="b", title="Next")],
        ),
        "several": t.PrimitiveSchema(
            type="array",
            items=t.EnumItems(
                any_of=[t.EnumOption(const="x", title="Ex"), t.EnumOption(const="y", title="Why")]
            ),
            min_items=1,
            max_items=2,
            default=["x"],
        ),
        "mail": t.PrimitiveSchema(
            type="string", format="email", min_length=3, max_length=99, default="a@example.com"
        ),
        "old": t.PrimitiveSchema(type="string", enum=["1", "2"], enum_names=["One", "Two"]),
    },
    required=["several"],
    dialect="https://json-schema.org/draft/2020-12/schema",
)


@asking.tool
async def choose(ctx: Context) -> str:
    """Asks with a form that is written out."""
    return str(sorted((await ctx.elicit_form("Choose", CHOICES, key="choice")).items()))


@asking.tool
async def book(seat: Annotated[str, Ask("Which seat?", key="seat")], flight: str = "F1") -> str:
    """Has a parameter that the user is asked for."""
    return f"{flight}: {seat}"


@asking.tool
async def maybe_book(seat: Annotated[str | None, Ask("Which seat?", key="seat")]) -> str:
    """Has a parameter that the user may leave open."""
    return f"seat {seat}"


@asking.tool
async def visit(ctx: Context) -> str:
    """Sends the user to an address, and says when the visit is over."""
    await ctx.elicit_url("Sign in", "https://example.com/sign-in", id="visit-1", key="visit")
    await ctx.elicitation_complete("visit-1")
    return "visited"


@asking.tool
async def visit_first(ctx: Context) -> str:
    """Is to be called again after a visit, where a revision says so by an error."""
    address = "https://example.com/pay"
    await ctx.elicit_url("Pay", address, id="visit-2", key="pay", by_error=True)
    return "paid"


@asking.tool
async def write(ctx: Context) -> str:
    """Lets the client's model write, with all that can be said to one."""
    said = [
        t.SamplingMessage(
            role="user", content=t.TextContent(text="Look", annotations=MARKS, meta=NOTE)
        ),
        t.SamplingMessage(
            role="user",
            content=[
                t.ImageContent(data="aW1n", mime_type="image/png", annotations=MARKS, meta=NOTE),
                t.AudioContent(data="c25k", mime_type="audio/wav", annotations=MARKS, meta=NOTE),
            ],
            meta=NOTE,
        ),
    ]
    reply = await ctx.sample(
        said,
        max_tokens=50,
        system="Be brief.",
        temperature=0.5,
        stop=["END"],
        preferences=t.ModelPreferences(
            hints=[t.ModelHint(name="small")],
            cost_priority=0.5,
            speed_priority=1,
            intelligence_priority=0,
        ),
        key="write",
    )
    return f"{reply.model}: {reply.text}"


LOOK_UP = t.Tool(
    name="look_up",
    title="Look up",
    description="Looks a word up.",
    input_schema={"type": "object", "properties": {"word": {"type": "string"}}},
    icons=[ICON],
)


@asking.tool
async def write_with_tools(ctx: Context) -> str:
    """Lets the client's model call a tool of its own, and gives it the result."""
    ask = t.SamplingMessage(role="user", content=t.TextContent(text="What is a colonnade?"))
    choice = t.ToolChoice(mode="required")
    first = await ctx.sample([ask], tools=[LOOK_UP], tool_choice=choice, key="first")
    uses = [block for block in first.blocks if isinstance(block, t.ToolUseContent)]
    results = [
        t.ToolResultContent(
            tool_use_id=use.id,
            content=[t.TextContent(text="a porch"), t.ResourceLink(uri="notes://p", name="p")],
            structured_content={"word": "porch"},
            is_error=False,
            meta=NOTE,
        )
        for use in uses
    ]
    turns = [
        ask,
        t.SamplingMessage(role="assistant", content=[replace(use, meta=NOTE) for use in uses]),
        t.SamplingMessage(role="user", content=list(results)),
    ]
    last = await ctx.sample(turns, tools=[LOOK_UP], key="last")
    return last.text


@asking.tool
async def folders(ctx: Context) -> str:
    """Asks for the client's folders."""
    return ", ".join(f"{root.name or '?'}={root.uri}" for root in await ctx.roots(key="roots"))


charges: dict[str, int] = {}


@asking.tool
async def pay(key: str, ctx: Context) -> str:
    """Does something once, though it asks twice."""

    def charge() -> int:
        charges[key] = charges.get(key, 0) + 1
        return charges[key]

    number = await ctx.once("charge", charge)
    sure = await ctx.elicit("Sure?", bool, key="sure")
    name = await ctx.elicit("In whose name?", str, key="name")
    return f"charge {number} of {charges[key]}, {name}, {sure}"


@asking.tool
async def all_at_once(ctx: Context) -> str:
    """Asks the user, the model and the client in one round."""
    name, reply, roots = await ctx.ask(
        Ask("Your name?", str, key="name"),
        Sample("Greet", max_tokens=5, key="greeting"),
        Roots(key="roots"),
    )
    return f"{reply.text} {name} {len(roots)}"


async def fail() -> None:
    raise ToolError("it is too late for questions")


@asking.tool
async def hasty(ctx: Context) -> str:
    """Asks, and fails before anybody can answer."""
    await asyncio.gather(ctx.sample("Wait", key="wait"), fail())
    return "never"


@asking.tool(single_use=True)
async def vote(ctx: Context) -> str:
    """Takes each answer once."""
    return "yes" if await ctx.elicit("For or against?", bool, key="vote") else "no"
