"""The diary, as a process of its own, with an identity provider that the test plays."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from auth.challenge import challenge
from auth.protected import Bearer
from auth.token_issuer import Issuer, issuing
from live import live

DIARY = Path(__file__).resolve().parent.parent.parent / "examples" / "diary.py"
RESOURCE = "https://diary.example.com/mcp"


@asynccontextmanager
async def served(issuer: Issuer) -> AsyncGenerator[int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DIARY),
        "0",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ISSUER": issuer.url, "RESOURCE": RESOURCE},
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("diary 1.0 on http://127.0.0.1:"), line
        yield int(line.rsplit(":", 1)[1].partition("/")[0])
    finally:
        process.terminate()
        await process.wait()


@live
async def test_each_person_has_a_diary_and_only_who_may_write_writes() -> None:
    async with issuing() as issuer, served(issuer) as port:

        async def call(who: str, scope: str, tool: str, **arguments: Any) -> Any:
            token = issuer.signing_keys[0].sign(issuer.claims(RESOURCE, sub=who, scope=scope))
            async with Bearer(port, token) as caller:
                return await caller.modern("tools/call", {"name": tool, "arguments": arguments})

        wrote = await call("ann", "diary:write", "write", entry="Rain again.")
        assert wrote.text == "1 entries"
        read = await call("ann", "diary:read", "read")
        assert read.json["result"]["structuredContent"] == ["Rain again."]
        other = await call("bob", "diary:read", "read")
        assert other.json["result"]["structuredContent"] == []
        refused = await call("bob", "diary:read", "write", entry="x")
        assert refused.status == 403
        assert challenge(refused)[1]["scope"] == "diary:read diary:write"
        async with Bearer(port, None) as unknown:
            assert (await unknown.modern("tools/list")).status == 401
