"""A program with two logins in use and a server that it started itself, until its input ends.

python two_logins.py URL ISSUER    with the secret of a client in ROBOT_SECRET
"""

import asyncio
import os
import sys
from pathlib import Path

from colonnade import ClientCredentials, Login, connect

CHILD = Path(__file__).resolve().parents[3] / "examples" / "weather.py"


def robot(issuer: str, secret: str) -> ClientCredentials:
    return ClientCredentials(issuer=issuer, client_id="robot", client_secret=secret, keep=True)


async def main(url: str, issuer: str) -> None:
    def show(page: str) -> None:
        print(page, flush=True)

    person = Login(keep=True, browser=False, on_show=show)
    program = robot(issuer, os.environ["ROBOT_SECRET"])
    async with (
        connect(url, auth=person) as one,
        connect(url, auth=program) as two,
        connect([sys.executable, str(CHILD)]) as three,
    ):
        said = [(await client.call_tool("whoami", {})).text for client in (one, two)]
        tools = await three.list_tools()
        print("ready", *(words.rpartition("#")[2] for words in said), len(tools), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
