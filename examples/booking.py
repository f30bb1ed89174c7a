"""Elicitation, declared and in a function; sampling; side effects that run once.

The same tools serve clients of every revision: in older ones the server sends a request, in
2026-07-28 an `input_required` result, and the client retries. The code does not depend on it.

Run it with `python examples/booking.py` (stdio) or `colonnade serve examples/booking.py` (HTTP).
"""

from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal

from colonnade import Ask, BlockingContext, Context, Declined, Server

server = Server("booking", version="1.0", instructions="Books flights; it asks what it must know.")

FULL = {"LH7"}
numbers = count(1)
charged: list[str] = []


@dataclass
class Seat:
    row: int
    place: Literal["window", "aisle"] = "aisle"


@dataclass
class Ticket:
    flight: str
    seat: Seat
    meal: str
    number: int


def about_meal(flight: str) -> str | None:
    """The message of the elicitation, or None if it is not needed."""
    return "Which meal would you like?" if flight.startswith("LH") else None


def charge(flight: str) -> int:
    charged.append(flight)
    return next(numbers)


@server.tool
async def book(
    flight: str,
    seat: Annotated[Seat, Ask("Which seat on {flight}?")],
    meal: Annotated[Literal["soup", "curry"] | None, Ask(about_meal)],
    ctx: Context,
) -> Ticket:
    """Book a flight. The seat and the meal are the user's to say, so callers cannot give them."""
    number = await ctx.once("charge", lambda: charge(flight))  # a retry does not charge again
    if flight in FULL and not await ctx.elicit(f"{flight} is full. Join the queue?", bool):
        raise Declined(f"{flight} is full, and the user does not want to wait.")
    return Ticket(flight, seat, meal or "none", number)


@server.tool
def cancel(number: int, ctx: BlockingContext) -> str:
    """Cancel a ticket; a function that is not async asks in the same way, and waits."""
    reason = ctx.elicit(f"Why do you cancel ticket {number}?", str)
    return f"Ticket {number} is cancelled: {reason}"


@server.tool
async def describe(flight: str, ctx: Context) -> str:
    """Let the client's model write a line about a flight."""
    written = await ctx.sample(f"One cheerful line about flight {flight}.", max_tokens=60)
    return written.text.strip()


@server.tool(read_only=True)
def charges() -> list[str]:
    """What was charged so far, in order."""
    return charged


if __name__ == "__main__":
    server.run()
