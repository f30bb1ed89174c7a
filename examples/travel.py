"""Tools, elicitation, progress, a resource and a lifespan in one server; `walk.py` is a tour of it.

Run it with `python examples/travel.py` (stdio), or with a port (HTTP; 0 is any free one), or with
`colonnade serve examples/travel.py`.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from colonnade import Ask, Context, Server, ToolError


@asynccontextmanager
async def open_office(server: Server) -> AsyncGenerator[list["Booking"]]:
    yield []
    print("the office is closed", file=sys.stderr)


server = Server(
    "travel", version="1.0", instructions="Finds and books trains.", lifespan=open_office
)


@dataclass
class Train:
    number: str
    leaves: str
    euros: int


@dataclass
class Seat:
    car: int
    window: bool = True


@dataclass
class Booking:
    train: str
    seat: Seat


TRAINS = {
    ("Paris", "Lyon"): [Train("TGV 6607", "08:00", 59), Train("TGV 6611", "10:00", 45)],
    ("Berlin", "Prague"): [Train("EC 171", "07:16", 38)],
}


@server.tool(title="Find trains", read_only=True)
async def find(start: str, end: str, at_most: Annotated[int, Meta(ge=1, le=9)] = 1) -> list[Train]:
    """Find trains from one city to another, the earliest first."""
    if (start, end) not in TRAINS:
        known = "; ".join(" to ".join(pair) for pair in TRAINS)
        raise ToolError(f"No trains from {start} to {end}. There are {known}.")
    return TRAINS[start, end][:at_most]


@server.tool
async def book(
    train: str, seat: Annotated[Seat, Ask("Which seat on {train}?")], ctx: Context
) -> Booking:
    """Book a train. The user says which seat."""
    booking = Booking(train, seat)
    ctx.state.append(booking)
    server.updated("trips://mine")
    return booking


@server.resource("trips://mine", mime_type="application/json")
async def trips(ctx: Context) -> list[Booking]:
    """What was booked so far."""
    return ctx.state


@server.tool
async def compare(ctx: Context) -> str:
    """Ask every carrier for its cheapest train; it takes a moment."""
    for done, pair in enumerate(TRAINS, start=1):
        await ctx.progress(done, len(TRAINS), f"asking for {' to '.join(pair)}")
        await asyncio.sleep(0.3)
    best = min((train for trains in TRAINS.values() for train in trains), key=lambda t: t.euros)
    return f"{best.number} costs {best.euros} euros"


@server.tool
async def refund(euros: float, days_left: int) -> float:
    """What is paid back. It has a bug, so that you can see what a crash looks like."""
    return euros / days_left


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run(
            "http",
            port=int(sys.argv[1]),
            started=lambda site: print(f"travel 1.0 on {site.url}", flush=True),
        )
    else:
        server.run()
