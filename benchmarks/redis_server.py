"""A Redis server for the rows about replicas: its own port, no file, ended with its row.

Every command that it executes can be counted by name and key. Rules: ends only what it started.
"""

import contextlib
import re
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import redis

from benchmarks.peers import ROOT, Missing

START_S = 30.0
# What a line of MONITOR has: the time, the database and the sender (`lua` inside of a script), and the
# command with its arguments.
_MONITORED = re.compile(rb'^\+[\d.]+ \[\d+ (\S+)\] "([^"]*)"(.*)$')

LEASE = "renewal of a replica's lease"
CHECK = "PING of an idle connection"


class RedisServer:
    """A running server."""

    def __init__(self, port: int, pid: int) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.pid = pid
        self.client: Any = redis.Redis.from_url(self.url)
        self._port = port

    def used_bytes(self) -> int:
        """What its data takes."""
        return self.client.info("memory")["used_memory"]

    @contextlib.contextmanager
    def monitor(self) -> "Generator[CommandMonitor]":
        """Count the commands of all clients from here on."""
        with socket.create_connection(("127.0.0.1", self._port), START_S) as sock:
            sock.sendall(b"MONITOR\r\n")
            yield CommandMonitor(sock, self.client)


class CommandMonitor:
    """The commands that a server has executed, by kind."""

    def __init__(self, sock: socket.socket, client: Any) -> None:
        self._sock = sock
        self._client = client
        self._marks = 0

    def taken(self) -> Counter[str]:
        """What was executed since the last time: leases and checks by name, the rest by its command."""
        self._marks += 1
        mark = f"mark {self._marks}"
        self._client.echo(mark)  # which comes after all that was executed before
        data = b""
        while mark.encode() not in data:
            data += self._sock.recv(1 << 20)
        kinds: Counter[str] = Counter()
        for line in data.split(b"\r\n"):
            found = _MONITORED.match(line)
            if found is not None and found[1] != b"lua" and found[2].upper() != b"ECHO":
                kinds[_kind(found[2].decode().upper(), found[3])] += 1
        return kinds


def _kind(command: str, arguments: bytes) -> str:
    if command == "PING":
        return CHECK
    return LEASE if command.startswith("EVAL") and b":e:replica " in arguments else command


@contextlib.contextmanager
def redis_server() -> Generator[RedisServer]:
    """A server of its own, without a file. Raises `Missing` if there is none on this machine."""
    find = subprocess.run([ROOT / "scripts" / "redis"], capture_output=True, text=True, check=False)
    if find.returncode:
        raise Missing(find.stderr.strip())
    with socket.socket() as one, tempfile.TemporaryDirectory() as folder:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.close()
        words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        with subprocess.Popen([find.stdout.strip(), *words], stdout=subprocess.DEVNULL) as process:
            try:
                _wait(port)
                yield RedisServer(port, process.pid)
            finally:
                process.terminate()


def _wait(port: int) -> None:
    end = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        if time.monotonic() > end:
            raise RuntimeError("the Redis server did not start")
        time.sleep(0.01)
