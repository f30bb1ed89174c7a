"""Bytes of an idle session, a stream, a task and a principal: in Redis, and in a replica.

    scripts/bench replica_sizes [COUNT]

A Redis server and two replicas, each a process of its own on loopback. The memory of a replica is its
resident set, that of Redis `used_memory`: both before and after COUNT of a thing are there, divided by
COUNT. Buffers of the kernel are not counted. What one entry of a session takes by itself, without the
index of its principal, is what Redis says (`MEMORY USAGE`).
"""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.redis_server import START_S, RedisServer, redis_server
from benchmarks.streams import room
from colonnade import Context, Limits, RunLimits, Server
from colonnade.server.tasks.options import TaskOptions
from colonnade.store.limits import StoreLimits
from colonnade.store.redis import RedisStore

COUNT = 10_000
# Entries whose size Redis is asked for.
SAMPLED = 1000
MANY = 10_000_000
# A replica is not used while the other is.
MINUTES_S = 3600.0
REVISION = "2025-11-25"


# ---------------------------------------------------------------- a replica


async def verify(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"x-principal", b"").decode()


def serve(url: str) -> None:
    """One replica, until SIGTERM."""
    limits = StoreLimits(principal_entries=MANY, principal_bytes=2**40)
    tasks = TaskOptions(max_unfinished=MANY, max_kept=MANY, requests_per_s=None)
    server = Server("sizes", store=RedisStore(url, limits=limits), keys=[b"k" * 32], tasks=tasks)

    @server.tool(task=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.progress(step, 3)
        return "done"

    @server.resource("text://one")
    def one() -> str:
        return "one"

    server.run(
        "http",
        port=0,
        verify=verify,
        limits=Limits(
            max_sessions=MANY,
            max_sessions_per_principal=MANY,
            max_concurrent_requests=MANY,
            max_concurrent_requests_per_principal=MANY,
        ),
        run_limits=RunLimits(max_connections=MANY, keep_alive_timeout_s=MINUTES_S),
    )


class ReplicaProcess:
    """A replica, and one connection to it."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.replica_sizes", "serve", url],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
        self._streams: list[socket.socket] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def post(self, message: dict[str, Any], principal: str, session: str = "") -> tuple[str, Any]:
        """Send a message; the session of its response, and its result."""
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "x-principal": principal,
        }
        if session:
            headers |= {"mcp-session-id": session, "mcp-protocol-version": REVISION}
        body = json.dumps({"jsonrpc": "2.0", **message})
        self._connection.request("POST", "/mcp", body, headers)
        response = self._connection.getresponse()
        data = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{response.status}: {data.decode()}")
        if data.startswith(b"{"):
            read = json.loads(data)
            if "error" in read:
                raise RuntimeError(str(read["error"]))
            return response.getheader("mcp-session-id") or session, read["result"]
        return session, None

    def open_session(self, principal: str) -> str:
        params = {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "sizes", "version": "1"},
        }
        message = {"id": 1, "method": "initialize", "params": params}
        session, _ = self.post(message, principal)
        self.post({"method": "notifications/initialized"}, principal, session)
        return session

    def open_stream(self, principal: str, session: str) -> None:
        """Open the stream of a session for notifications, and leave it open."""
        stream = socket.create_connection(("127.0.0.1", self.port), START_S)
        lines = (
            "GET /mcp HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            "accept: text/event-stream",
            f"x-principal: {principal}",
            f"mcp-session-id: {session}",
            f"mcp-protocol-version: {REVISION}",
        )
        stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = stream.recv(4096)
        if b" 200 " not in head:
            raise RuntimeError(head.decode())
        self._streams.append(stream)

    def delete(self, principal: str, session: str) -> None:
        """End a session."""
        headers = {"x-principal": principal, "mcp-session-id": session}
        headers["mcp-protocol-version"] = REVISION
        self._connection.request("DELETE", "/mcp", headers=headers)
        response = self._connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read().decode()}")
        response.read()

    def create_task(self, principal: str, session: str) -> str:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": 3_600_000}}
        _, result = self.post(
            {"id": 2, "method": "tools/call", "params": params}, principal, session
        )
        return result["task"]["taskId"]

    def task_result(self, principal: str, session: str, task: str) -> None:
        """Wait until a task has ended."""
        message = {"id": 3, "method": "tasks/result", "params": {"taskId": task}}
        self.post(message, principal, session)

    def end(self) -> None:
        for stream in self._streams:
            stream.close()
        self._process.terminate()
        self._process.wait(START_S)


# ---------------------------------------------------------------- measurement


class Sizes:
    """What is measured: Redis, the replica that is asked, and another one."""

    def __init__(
        self, redis: RedisServer, first: ReplicaProcess, second: ReplicaProcess, count: int
    ) -> None:
        self._redis = redis
        self._first = first
        self._second = second
        self._count = count
        self._before = self._read()

    def _read(self) -> tuple[int, int, int]:
        return self._redis.used_bytes(), self._first.resident_bytes(), self._second.resident_bytes()

    def start(self) -> None:
        self._before = self._read()

    def report(self, what: str) -> tuple[float, ...]:
        """Print and return the bytes of one of them, in each place."""
        each = tuple(
            (now - before) / self._count
            for before, now in zip(self._before, self._read(), strict=True)
        )
        show(what, each)
        return each


def show(what: str, each: Iterable[float]) -> None:
    print(f"{what:<44}" + "".join(f"{size:>12,.0f}" for size in each), flush=True)


def entry_bytes(redis: RedisServer) -> float:
    """What Redis says of the entries of sessions, without the index of their principal."""
    keys = islice(redis.client.scan_iter(match="*:e:session *", count=1000), SAMPLED)
    sizes = [redis.client.memory_usage(key) for key in keys]
    return sum(sizes) / len(sizes)


def measure(count: int) -> None:
    with redis_server() as redis:
        first, second = ReplicaProcess(redis.url), ReplicaProcess(redis.url)
        try:
            # What the first of each thing loads is not of one thing.
            for replica in (first, second):
                session = replica.open_session("warm")
                replica.open_stream("warm", session)
                replica.task_result("warm", session, replica.create_task("warm", session))
            sizes = Sizes(redis, first, second, count)
            print(f"a replica without any: {first.resident_bytes() / 2**20:.0f} MiB")
            print(
                f"{count:,} of each, bytes of one{'':<21}"
                f"{'Redis':>12}{'replica':>12}{'another':>12}"
            )
            sizes.start()
            sessions = [first.open_session("ann") for _ in range(count)]
            one_session = sizes.report("idle session")
            show("  its entry alone (MEMORY USAGE)", [entry_bytes(redis)])
            sizes.start()
            for session in sessions:
                second.post({"id": 1, "method": "ping"}, "ann", session)
            sizes.report("its copy in another replica")
            sizes.start()
            for session in sessions:
                first.open_stream("ann", session)
            sizes.report("open stream for notifications")
            sizes.start()
            tasks = [first.create_task("ann", sessions[0]) for _ in range(count)]
            for task in tasks:
                first.task_result("ann", sessions[0], task)
            sizes.report("task that has ended, kept for its result")
            sizes.start()
            for number in range(count):
                first.open_session(f"principal {number}")
            both = sizes.report("principal with one idle session")
            beside = (two - one for two, one in zip(both, one_session, strict=True))
            show("principal, beside its session", beside)
        finally:
            first.end()
            second.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        measure(min(int(sys.argv[1]) if sys.argv[1:] else COUNT, room()))
