"""A server with an extension, for tests of both sides; as a program it serves stdio.

python extension_server.py
"""

from dataclasses import dataclass

from colonnade import Context, Extension, Server

SEARCH = "com.example/search"
QUERY = "search/query"
FOUND = "search/found"


@dataclass
class Hits:
    titles: list[str]
    caller: str = ""


def search_extension() -> Extension:
    search = Extension(SEARCH, {"languages": ["en", "fr"]})

    @search.method(QUERY)
    async def query(words: str, ctx: Context, limit: int = 2) -> Hits:
        await ctx.notify(FOUND, {"words": words}, extension=SEARCH)
        return Hits([words] * limit, ctx.principal)

    return search


def library() -> Server:
    server = Server("library", extensions=[search_extension()])

    @server.tool
    async def announce(ctx: Context) -> str:
        """Send a notification of the extension."""
        await ctx.notify(FOUND, {"words": "tool"}, extension=SEARCH)
        return "done"

    return server


if __name__ == "__main__":
    library().run()
