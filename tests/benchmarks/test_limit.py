"""The limit is one only if it sends what we send: the same bytes, from both.

Rules: real processes on pipes; nothing depends on a time.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVERS = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "servers"
HELLO: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def said(program: str, *frames: dict[str, Any]) -> bytes:
    """The last line that a server says to these."""
    lines = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    command = [sys.executable, str(SERVERS / program), "stdio"]
    run = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=True)
    return run.stdout.splitlines()[-1]


def call(meta: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {"name": "add", "arguments": {"a": 3, "b": 4}} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": 10_000_000, "method": "tools/call", "params": params}


def test_a_single_request_is_answered_with_the_same_bytes() -> None:
    from benchmarks.wire import ENVELOPE

    assert said("limit.py", call(ENVELOPE)) == said("colonnade_server.py", call(ENVELOPE))


def test_a_call_in_a_session_is_answered_with_the_same_bytes() -> None:
    assert said("limit.py", call()) == said("colonnade_server.py", *HELLO, call())
