"""A server with OAuth: access tokens (JWT) of your own identity provider, and scopes.

    ISSUER=https://login.example.com RESOURCE=https://diary.example.com/mcp \
        python examples/diary.py 8000

The provider issues tokens for the audience RESOURCE; its keys (JWKS) are discovered from its
metadata and refreshed. The scope `diary:read` allows reading the caller's diary, `diary:write`
writing it. Without a port the server uses stdio, where no token is required.
"""

import os
import sys

from colonnade import Context, Jwt, Protection, Server, ToolError

ISSUER = os.environ.get("ISSUER", "https://login.example.com")
RESOURCE = os.environ.get("RESOURCE", "https://diary.example.com/mcp")

auth = Protection(
    RESOURCE,
    Jwt(ISSUER),
    scopes=["diary:read"],  # required for all requests
    implies={"diary:write": ["diary:read"]},  # write includes read
)
server = Server("diary", version="1.0", auth=auth)
# By principal, which is issuer and subject, so that no two users share a diary.
diaries: dict[str, list[str]] = {}


@server.tool(read_only=True)
def read(ctx: Context) -> list[str]:
    """What the caller wrote, oldest first."""
    return diaries.get(ctx.principal, [])


@server.tool(scopes={"diary:write"})
def write(entry: str, ctx: Context) -> str:
    """Write into the caller's own diary."""
    if not entry.strip():
        raise ToolError("There is nothing in this entry; write something.")
    diaries.setdefault(ctx.principal, []).append(entry)
    return f"{len(diaries[ctx.principal])} entries"


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("http", port=int(sys.argv[1]))
    else:
        server.run()
