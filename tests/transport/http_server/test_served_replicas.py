"""A program as three processes on one store, behind one URL, as `scripts/conform replicas` has it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from colonnade import connect
from live import live

TESTS = Path(__file__).resolve().parents[2]
SERVE = TESTS / "support" / "served_replicas.py"
EVERYTHING = TESTS / "conformance" / "everything_server.py"


@pytest.mark.parametrize("calls", [6, 0])
@live
async def test_the_exit_code_says_whether_each_process_got_requests(
    calls: int, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", SERVE, EVERYTHING, tmp_path / "store.db"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        if calls:
            async with connect(url, revision="2025-11-25") as client:
                for _ in range(calls):
                    assert not (await client.call_tool("test_simple_text")).is_error
    finally:
        process.terminate()
        _, errors = await process.communicate()
    words = b"" if calls else b"only 0 of the processes got a request\n"
    assert (process.returncode, errors) == (0 if calls else 1, words)
