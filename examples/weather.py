"""Tools: typed arguments, structured output, tool annotations, errors that a model can act on.

Run it with `python examples/weather.py` (stdio) or `colonnade serve examples/weather.py` (HTTP).
"""

from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Annotated, Literal

from msgspec import Meta

from colonnade import Server, ToolError

server = Server("weather", version="1.0", instructions="Forecasts and stations. Cities by name.")

HIGHS = {"Oslo": 4, "Lisbon": 18, "Cairo": 27, "Quito": 20}
stations: dict[str, float] = {"harbour": 3.5, "airport": 1.0}


@dataclass
class Day:
    day: date
    high: float
    sky: Literal["sun", "cloud", "rain"]


@dataclass
class Forecast:
    city: str
    unit: Literal["C", "F"]
    days: list[Day]


@server.tool(title="Forecast", read_only=True)
async def forecast(
    city: str,
    days: Annotated[int, Meta(ge=1, le=10)] = 3,
    start: date = date(2026, 1, 1),
    unit: Literal["C", "F"] = "C",
) -> Forecast:
    """Forecast for a city.

    Args:
        city: Name of the city, in English.
        days: How many days, from the first on.
        start: The first day.
    """
    if city not in HIGHS:
        near = get_close_matches(city, HIGHS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(HIGHS)}."
        raise ToolError(f"No city {city!r}. {hint}")
    high = HIGHS[city] if unit == "C" else HIGHS[city] * 9 / 5 + 32
    sky: list[Literal["sun", "cloud", "rain"]] = ["sun", "cloud", "rain"]
    coming = [Day(start + timedelta(n), high + n, sky[n % 3]) for n in range(days)]
    return Forecast(city, unit, coming)


@server.tool(title="Record a measurement", destructive=False, idempotent=True)
def record(station: str, celsius: Annotated[float, Meta(ge=-90, le=60)]) -> float:
    """Keep what a station measured; gives the mean of all stations."""
    stations[station] = celsius
    return round(sum(stations.values()) / len(stations), 1)


@server.tool(title="Close a station", destructive=True, idempotent=True)
def close(station: str) -> None:
    """Forget a station and what it measured."""
    if stations.pop(station, None) is None:
        raise ToolError(f"No station {station!r}; there are {', '.join(stations) or 'none left'}.")


@server.tool(read_only=True)
def spread() -> dict[str, float]:
    """How far the coldest and the warmest station are apart. It fails where none is left."""
    return {"celsius": max(stations.values()) - min(stations.values())}


if __name__ == "__main__":
    server.run()
