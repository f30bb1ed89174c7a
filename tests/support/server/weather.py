"""A small server for tests of tools, and its list as a client receives it."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from colonnade import Icon, Server
from colonnade.protocol.revision import Revision
from server.raw_client import raw_client


@dataclass
class Forecast:
    city: str
    days: int


def weather() -> Server:
    """A server with one tool that has all that a definition may have."""
    server = Server("weather", version="1.0", title="Weather", instructions="Ask for a city.")

    @server.tool(
        title="Forecast",
        tags={"public"},
        read_only=True,
        idempotent=True,
        icons=[Icon(src="https://example.com/i.png")],
        meta={"example.com/cost": 3},
    )
    async def forecast(city: str, days: Annotated[int, Meta(ge=1, le=10)] = 3) -> Forecast:
        """Forecast for a city.

        A second paragraph, which models read, too.

        Args:
            city: Name of the city.
        """
        return Forecast(city, days)

    return server


async def listed(server: Server, revision: Revision) -> list[dict[str, Any]]:
    """The tools as a client of this revision lists them."""
    async with raw_client(server, revision) as client:
        return (await client.ask("tools/list"))["tools"]
