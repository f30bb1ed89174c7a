"""A server that has a secret, shows it in all that it offers and answers, and asks for one."""

import os
import sys

from colonnade import Context, Server


def secretive(name: str, secret: str) -> Server:
    server = Server(name, instructions=f"{name} keeps {secret}")

    @server.tool(description=f"Gives {secret}.")
    async def give(ctx: Context) -> str:
        await ctx.info(f"log of {secret}")
        await ctx.progress(1, 1, f"progress of {secret}")
        return secret

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit(f"Say {secret}", str)

    @server.resource(f"{name}://{secret}")
    def resource() -> str:
        return secret

    @server.prompt
    def say() -> str:
        return secret

    _ = give, ask, resource, say
    return server


if __name__ == "__main__":
    secretive(sys.argv[1], os.environ["CANARY"]).run()
