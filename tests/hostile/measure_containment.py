"""What results with hidden text and error codes of a hostile server cost a host: the longest block
of the loop, time, and the size of metrics.

    python tests/hostile/measure_containment.py            every case, each in a process of its own
    python tests/hostile/measure_containment.py text       one of them

- `text`: 16 MiB of text with one hidden character, called twice.
- `spread`: a million characters of text, every second of which is hidden.
- `members`: structured content of 38 MB in a million members, one of which hides text.
- `messages`: a log message of 16 MiB, and one with a million members.
- `codes`: 3,000 errors of tools, each with another code, and a scrape of the metrics.

Each of the first four is read by a program (`Host.call_tool`) and by a client of a gateway, without
and with containment: the difference is its cost. The first three are also contained alone, decoded
and as they were written, without what it takes to receive them.

Rules: loopback only (a child on pipes), bounded in count, ends by itself; nothing is asserted here.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from msgspec import Raw  # noqa: E402

from colonnade import (  # noqa: E402
    Containment,
    Gateway,
    Host,
    RemoteError,
    Telemetry,
    connect,
)
from colonnade.host.policy.containment import aside  # noqa: E402
from colonnade.protocol import types as t  # noqa: E402
from colonnade.protocol.codec.decode import decode_unchecked  # noqa: E402
from colonnade.protocol.forwarded import RelayedToolResult  # noqa: E402
from hostile.loop_gaps import LoopGaps  # noqa: E402

CASES = ("text", "spread", "members", "messages", "codes")
REVISION = "2025-11-25"
MIB = 1024 * 1024
CODES = 3_000


# ---------------------------------------------------------------- the server, in a child


def result_of(case: str) -> str:
    """The result of the only tool, as JSON."""
    content: list[Any] = [{"type": "text", "text": "ok"}]
    if case == "text":
        content[0]["text"] = "x" * (16 * MIB) + "\u202e"
    elif case == "spread":
        content[0]["text"] = "x\u202e" * 500_000
    result: dict[str, Any] = {"content": content}
    if case == "members":
        members = {f"member {nth:07d}": f"value {nth:07d}" for nth in range(1_000_000)}
        members["member 0500000"] = "a\u202eb"
        result["structuredContent"] = members
    return json.dumps(result, ensure_ascii=False)


def serve(case: str) -> None:
    """Answer on standard output until standard input ends."""
    out, called, result = sys.stdout, 0, result_of(case)

    def send(text: str) -> None:
        out.write(text + "\n")
        out.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},'
        match message["method"]:
            case "initialize":
                opened = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}, "logging": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                }
                send(f'{head}"result":{json.dumps(opened)}}}')
            case "tools/list":
                tools = [{"name": "read", "inputSchema": {"type": "object"}}]
                send(f'{head}"result":{{"tools":{json.dumps(tools)}}}}}')
            case "tools/call" if case == "codes":
                called += 1
                send(f'{head}"error":{{"code":{-40_000 - called},"message":"no"}}}}')
            case "tools/call":
                if case == "messages":
                    for data in (
                        "x" * (16 * MIB) + "\u202e",
                        {str(n): n for n in range(1_000_000)},
                    ):
                        params = {"level": "error", "data": data}
                        said = {"method": "notifications/message", "params": params}
                        send(json.dumps({"jsonrpc": "2.0", **said}, ensure_ascii=False))
                send(f'{head}"result":{result}}}')
            case _:
                send(f'{head}"result":{{}}}}')


# ---------------------------------------------------------------- who reads it


async def measured(what: str, work: Awaitable[Any]) -> None:
    gaps, began = LoopGaps(), time.perf_counter()
    watch = asyncio.create_task(gaps.watch())
    await asyncio.sleep(0.01)
    outcome = await work
    await asyncio.sleep(0.01)
    watch.cancel()
    print(
        f"{what:44} {time.perf_counter() - began:7.2f} s   longest block "
        f"{gaps.longest * 1e3:6.0f} ms (processor {gaps.used * 1e3:6.0f} ms)   {outcome}",
        flush=True,
    )


async def read(case: str) -> None:
    for containment in (None, Containment()):
        entry = {"command": sys.executable, "args": [__file__, "--serve", case]}
        async with Host({"s": entry}, containment=containment) as host:
            gateway = Gateway(host)
            how = "contained" if containment else "as it is"

            async def by_program() -> str:
                result = await host.call_tool("s__read", on_log=lambda message: None)
                return f"{len(result.text)} characters"

            await host.list_tools()
            for _ in range(2):
                await measured(f"{case}, by a program, {how}", by_program())
            async with connect(gateway, revision=REVISION, on_log=lambda message: None) as client:

                async def by_client() -> str:
                    result = await client.call_tool("s__read")
                    return f"{len(result.text)} characters"

                await client.list_tools()
                await measured(f"{case}, through a gateway, {how}", by_client())
    if case != "messages":
        await contain_alone(case)


async def contain_alone(case: str) -> None:
    written = result_of(case).encode()
    decoded = decode_unchecked(t.CallToolResult, Raw(written))
    relayed = decode_unchecked(RelayedToolResult, Raw(written))
    contain = Containment().contain

    async def by_program() -> str:
        await aside(contain, decoded)
        return ""

    async def by_gateway() -> str:
        await aside(contain, relayed, None, Raw(written))
        return ""

    await measured(f"{case}, alone, decoded", by_program())
    await measured(f"{case}, alone, as it was written", by_gateway())


async def measure_codes() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    command = [sys.executable, __file__, "--serve", "codes"]
    async with connect(command, revision=REVISION, telemetry=telemetry) as client:
        for _ in range(CODES):
            try:
                await client.call_tool("read")
            except RemoteError:
                continue
    prometheus = telemetry.recorder.prometheus
    assert prometheus is not None
    began = time.perf_counter()
    text = prometheus.expose()[1]
    seconds = time.perf_counter() - began
    print(f"codes: {CODES} errors   {len(text) / 1e6:.2f} MB of metrics   {seconds:.3f} s a scrape")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:]:
        asyncio.run(measure_codes() if sys.argv[1] == "codes" else read(sys.argv[1]))
    else:
        for case in CASES:
            subprocess.run([sys.executable, __file__, case], check=False, timeout=600)


if __name__ == "__main__":
    main()
