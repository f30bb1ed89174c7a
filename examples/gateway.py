"""Two servers of different revisions behind one gateway.

python examples/gateway.py            # stdio, for a client that starts it
python examples/gateway.py http       # HTTP, on a free port
"""

import sys

from colonnade import Gateway, Host, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings

weather, notes = Server("weather", version="1.0"), Server("notes", version="1.0")


@weather.tool
def forecast(city: str) -> str:
    """The weather of tomorrow."""
    return f"sun in {city}"


@notes.tool
def write(text: str) -> int:
    """Write a note; returns its length."""
    return len(text)


# As if it had not been updated since November 2025.
older = entry_of("notes", notes, Settings(revision="2025-11-25"))
gateway = Gateway(Host({"weather": weather, "notes": older}), name="house", version="1.0")

if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        gateway.run("http", port=0)
    else:
        gateway.run()
