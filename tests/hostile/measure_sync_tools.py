"""What calls of sync tools that were hung up leave behind in a server: memory, and free threads.

    .venv/bin/python tests/hostile/measure_sync_tools.py

A server runs in a process of its own. 72 calls of a tool that blocks are sent and hung up, then 200
calls of another tool with arguments of nearly 4 MiB each, which are hung up, too. Printed are the
memory of the server before and after, its threads, and how a good call of a third tool is answered.
Rules: loopback only, a free port, every wait has an end, and the server ends with this script.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, cast

SLOW_CALLS = 72
LARGE_CALLS = 200
LARGE_BYTES = 4_000_000
BLOCK_S = 300.0
ANSWER_S = 5.0
MIB = 1024 * 1024
REVISION = "2026-07-28"
KEYS = "io.modelcontextprotocol/"


def serve() -> None:
    """The server: one tool that blocks, one that takes rows, one that is quick."""
    from colonnade import Server

    server = Server("measured")

    @server.tool
    def block() -> str:
        time.sleep(BLOCK_S)
        return "awake"

    @server.tool
    def count(rows: list[str]) -> int:
        return len(rows)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    server.run("http", port=0)


def call(port: int, tool: str, arguments: str) -> socket.socket:
    """Send a call on a connection of its own."""
    meta = {
        f"{KEYS}protocolVersion": REVISION,
        f"{KEYS}clientInfo": {"name": "measure", "version": "1"},
        f"{KEYS}clientCapabilities": {},
    }
    params = f'{{"_meta":{json.dumps(meta)},"name":"{tool}","arguments":{arguments}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {REVISION}\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(head.encode() + body)
    return connection


def memory_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def settled_bytes(pid: int) -> int:
    """The memory once it has stopped changing, within ten seconds."""
    last = memory_bytes(pid)
    for _ in range(20):
        time.sleep(0.5)
        now = memory_bytes(pid)
        if abs(now - last) < MIB:
            return now
        last = now
    return last


def answer(port: int) -> str:
    """How a good call of another tool is answered, and after how long."""
    began = time.monotonic()
    connection = call(port, "add", '{"a":3,"b":4}')
    connection.settimeout(ANSWER_S)
    try:
        status = connection.recv(4096).split(b"\r\n")[0].decode()
    except TimeoutError:
        return f"no answer within {ANSWER_S:.0f} s"
    finally:
        connection.close()
    return f"{status} after {1000 * (time.monotonic() - began):.0f} ms"


def attack(pid: int, port: int) -> None:
    print(f"another tool, at first:       {answer(port)}")
    before = settled_bytes(pid)
    print(f"memory at first:              {before / MIB:.0f} MiB, {threads(pid)} threads")
    slow: list[socket.socket] = []
    for at_once in range(0, SLOW_CALLS, 8):  # each begins before the next ones come
        slow += [call(port, "block", "{}") for _ in range(min(8, SLOW_CALLS - at_once))]
        time.sleep(0.2)
        for connection in slow:
            connection.close()
        time.sleep(0.1)
    print(f"after {SLOW_CALLS} calls hung up:       {threads(pid)} threads")
    rows = "[" + ",".join(['"' + 37 * "x" + '"'] * (LARGE_BYTES // 40)) + "]"
    for _ in range(LARGE_CALLS // 20):
        large = [call(port, "count", f'{{"rows":{rows}}}') for _ in range(20)]
        time.sleep(0.2)
        for connection in large:
            connection.close()
    after = settled_bytes(pid)
    print(f"after {LARGE_CALLS} calls of {LARGE_BYTES / MIB:.1f} MiB: {after / MIB:.0f} MiB")
    print(f"kept with no client:          {(after - before) / MIB:.0f} MiB")
    print(f"another tool, at last:        {answer(port)}")


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
        return
    process = subprocess.Popen(
        [sys.executable, __file__, "serve"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        line = cast("IO[bytes]", process.stdout).readline().decode()
        attack(process.pid, int(line.split("127.0.0.1:")[1].split("/")[0]))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
