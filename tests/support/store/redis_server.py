"""A Redis server of its own for tests: its own port, its own folder, stopped at the end."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis

ROOT = Path(__file__).resolve().parents[3]
# Far more than a start takes.
PATIENCE_S = 30.0


@cache
def _find() -> tuple[str, str]:
    """The path of a server, or why there is none."""
    found = shutil.which("redis-server")
    if found and not os.environ.get("COLONNADE_REDIS"):
        return found, ""
    script = ROOT / "scripts" / "redis"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", done.stderr.strip())


def redis_path() -> str:
    """The path of a server. Without one the test is skipped, or fails if it is required."""
    path, problem = _find()
    if not path:
        if os.environ.get("COLONNADE_REQUIRE_REDIS"):
            pytest.fail(f"no Redis server: {problem}")
        pytest.skip(f"no Redis server: {problem}")
    return path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RedisServer:
    """A server process; `start` again after `kill` has the same port and folder."""

    def __init__(
        self, folder: Path, *options: str, is_sentinel: bool = False, port: int | None = None
    ) -> None:
        self.port = port or free_port()
        self.folder = folder
        self._options = options
        self._is_sentinel = is_sentinel
        self._path = redis_path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self, **options: Any) -> Any:
        return redis.Redis(port=self.port, **options)

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True, parents=True)
        command = [self._path, "--bind", "127.0.0.1", "--dir", str(self.folder), *self._options]
        if "--port" not in self._options:
            command += ["--port", str(self.port)]
        if self._is_sentinel:  # which writes what it learns into its file
            (self.folder / "sentinel.conf").touch()
            command[1:1] = [str(self.folder / "sentinel.conf"), "--sentinel"]
        else:
            command += ["--save", "", "--enable-debug-command", "yes"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1.0) as one:
                    if "--tls-port" in self._options:
                        return
                    one.sendall(b"PING\r\n")
                    # Also one that wants a password first is there.
                    if not one.recv(64).startswith(b"-LOADING"):
                        return
            except OSError:
                pass
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the Redis server did not start"
            time.sleep(0.01)

    @contextmanager
    def busy(self, seconds: float) -> Generator[None, None, None]:
        """A server that responds to nothing for so long.

        Not by SIGSTOP: `scripts/flaky --stall` would let it go on.
        """
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall(f"DEBUG SLEEP {seconds}\r\n".encode())
            with socket.create_connection(("127.0.0.1", self.port), 0.05) as asking:
                with suppress(TimeoutError):
                    while True:
                        asking.sendall(b"PING\r\n")
                        asking.recv(64)
                yield

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_server(folder: Path, options: Sequence[str] = ()) -> Generator[RedisServer, None, None]:
    """A running server."""
    server = RedisServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
