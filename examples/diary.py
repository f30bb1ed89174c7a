"""A server that only people with a token may use, behind an identity provider of your own.

    ISSUER=https://login.example.com RESOURCE=https://diary.example.com/mcp \
        python examples/diary.py 8000

The provider signs tokens (JWT) for the audience RESOURCE; its keys are found by its metadata and
followed as they change. A token with the scope `diary:read` may read its own diary, one with
`diary:write` may write into it. Without a port it speaks on stdio, where the caller is whoever
started it, and no token is asked for.
"""

import os
import sys

from colonnade import Context, Jwt, Protection, Server, ToolError

ISSUER = os.environ.get("ISSUER", "https://login.example.com")
RESOURCE = os.environ.get("RESOURCE", "https://diary.example.com/mcp")

auth = Protection(
    RESOURCE,
    Jwt(ISSUER),
    scopes=["diary:read"],  # for everything
    implies={"diary:write": ["diary:read"]},  # who may write may read
)
server = Server("diary", version="1.0", auth=auth)
# Each under its owner: a principal is an issuer and a name there, so no two people share one.
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
