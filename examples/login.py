"""A server with a login, and its client: both use the authorization server `colonnade issuer`.

    colonnade issuer --user ann --user bob               # the login, for development only
    python examples/login.py 8000                        # the server
    python examples/login.py http://127.0.0.1:8000/mcp   # the client, which opens a browser

In production, ISSUER is your identity provider, and nothing else changes. Without an argument the
server uses stdio, where no token is required.
"""

import asyncio
import os
import sys

from colonnade import Context, Jwt, Login, Protection, Server, connect

ISSUER = os.environ.get("ISSUER", "http://127.0.0.1:9000")
RESOURCE = os.environ.get("RESOURCE", "http://127.0.0.1:8000/mcp")

server = Server("login", version="1.0", auth=Protection(RESOURCE, Jwt(ISSUER)))


@server.tool(read_only=True)
def whoami(ctx: Context) -> str:
    """Who the caller is: the issuer, and the user there."""
    return ctx.principal


async def main(url: str) -> None:
    async with connect(url, auth=Login(client_name="login example")) as client:
        print("logged in as", (await client.call_tool("whoami")).text)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            server.run()
        case [port] if port.isdecimal():
            server.run("http", port=int(port))
        case [url]:
            asyncio.run(main(url))
        case _:
            sys.exit(__doc__)
