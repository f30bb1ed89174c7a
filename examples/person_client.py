"""OAuth login of a user: authorization code with PKCE, in a browser.

    python examples/person_client.py https://example.com/mcp

Tokens are stored on this machine, encrypted, and refreshed: the next run opens no browser.
"""

import asyncio
import sys

from colonnade import Login, LoginRequired, connect


async def main(url: str) -> None:
    async with connect(url, auth=Login(keep=True)) as client:
        print(f"{client.name} has", *(tool.name for tool in await client.list_tools()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        asyncio.run(main(sys.argv[1]))
    except LoginRequired as error:
        sys.exit(f"not logged in: {error}")
