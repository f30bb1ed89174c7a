"""Our own client, which logs in and stays logged in: `scripts/interop login`.

    python client_ours.py '{"url": "http://...", "clock": "/...", "folder": "/..."}'

Reads commands and prints responses, a line of JSON each, as `client_mcp.py` does. The login is kept
in an encrypted file in the folder, and each connection has a new `Login`, as after a restart.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from interop.login.simulated_clock import SimulatedClock

SPEC = json.loads(sys.argv[1])
# Before the import: the client takes its clock when it is imported.
time.time = SimulatedClock(Path(SPEC["clock"]))

from colonnade import Client, Login, connect  # noqa: E402


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def main(spec: dict[str, Any]) -> None:
    os.environ["COLONNADE_HOME"] = spec["folder"]
    client: Client | None = None
    stack = contextlib.AsyncExitStack()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        try:
            if command["do"] == "connect":
                auth = Login(
                    keep=True, browser=False, on_show=lambda url: report(open=url, listens=True)
                )
                client = await stack.enter_async_context(connect(spec["url"], auth=auth))
                report(done=client.revision)
            elif command["do"] == "close":
                await stack.aclose()
                report(done="closed")
            else:
                assert client is not None
                calls = (client.call_tool("whoami", {}) for _ in range(command["calls"]))
                report(done=[result.text for result in await asyncio.gather(*calls)])
        except Exception:
            report(failed=traceback.format_exc())


if __name__ == "__main__":
    asyncio.run(main(SPEC))
