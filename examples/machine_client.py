"""OAuth client credentials: a program that logs in without a user.

    CLIENT_ID=robot CLIENT_SECRET=... ISSUER=https://login.example.com \\
        python examples/machine_client.py https://example.com/mcp

The issuer is configured here and not by the server: the secret is sent only to that issuer,
whatever the server says. With `private_key=` instead of `client_secret=` no secret is sent.
"""

import asyncio
import os
import sys

from colonnade import ClientCredentials, connect


async def main(url: str) -> None:
    auth = ClientCredentials(
        issuer=os.environ["ISSUER"],
        client_id=os.environ["CLIENT_ID"],
        client_secret=os.environ["CLIENT_SECRET"],
    )
    async with connect(url, auth=auth) as client:
        print(f"{client.name} has", *(tool.name for tool in await client.list_tools()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
