"""`python -m colonnade` by fork: a process that has imported the command forks once for each run.

    fork_server().run(folder, ["ls", "server.py"], input="", env=environment())

Most of what a short command takes is its imports, and there are a thousand commands in the tests.

Rules: a run has a process of its own, with its streams, folder, environment and exit code; nothing
of the command has run before the fork. What is decided when Python starts is not for this.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

WAIT_S = 60.0
SIZE_BYTES = 4
STREAMS = 3

# ---------------------------------------------------------------- in the tests


class ForkServer:
    """Runs commands, any number of them at once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            subprocess.run(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                timeout=WAIT_S,
                check=True,
            )

    def run(
        self, folder: Path, arguments: Sequence[str], *, input: str, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        ends = [os.pipe() for _ in range(STREAMS + 1)]
        stdin, *outputs = ends
        given = [stdin[0], *(write for _, write in outputs)]
        job = json.dumps({"folder": str(folder), "arguments": arguments, "env": dict(env)}).encode()
        with self._lock:
            socket.send_fds(self._socket, [len(job).to_bytes(SIZE_BYTES)], given)
            self._socket.sendall(job)
        for end in given:
            os.close(end)
        found = [""] * len(outputs)
        threads = [
            threading.Thread(target=_collect, args=(read, found, at), daemon=True)
            for at, (read, _) in enumerate(outputs)
        ]
        for thread in threads:
            thread.start()
        with contextlib.suppress(BrokenPipeError), open(stdin[1], "w") as writer:
            writer.write(input)
        for thread in threads:
            thread.join(WAIT_S)
        stdout, stderr, code = found
        if not code.endswith("\n"):
            raise subprocess.TimeoutExpired(list(arguments), WAIT_S, stdout, stderr)
        return subprocess.CompletedProcess(arguments, int(code), stdout, stderr)


def _collect(end: int, found: list[str], at: int) -> None:
    with open(end) as reader:
        found[at] = reader.read()


@cache
def fork_server() -> ForkServer:
    """The one of this run; it ends with it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    return ForkServer({**env, "PYTHONWARNINGS": "error"})


# ---------------------------------------------------------------- in its own process


def _import_command() -> None:
    for package in ("colonnade.cli", "colonnade.cli.commands", "colonnade.cli.doctor"):
        folder = importlib.import_module(package)
        for module in pkgutil.iter_modules(folder.__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in ("client.connect", "transport.process.child"):
        importlib.import_module(f"colonnade.{name}")


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each run; returns in the process of a run, with its streams in place."""
    while True:
        size, given, _, _ = socket.recv_fds(connection, SIZE_BYTES, STREAMS + 1)
        if not size:
            os._exit(0)
        job = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
        # One process waits for another, so that this one never waits.
        if os.fork() == 0:
            connection.close()
            # Before the fork: where it is ignored, what ends at once cannot be waited for.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, status = given
            run = os.fork()
            if run == 0:
                os.close(status)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                return json.loads(job)
            for stream in streams:
                os.close(stream)
            for stream in range(STREAMS):
                os.close(stream)
            code = os.waitstatus_to_exitcode(os.waitpid(run, 0)[1])
            os.write(status, f"{code}\n".encode())
            os._exit(0)
        for stream in given:
            os.close(stream)


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    # No child of the tests, which look for children that are left.
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.path.pop(0)
    _import_command()
    job = _serve(connection)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *job["arguments"]]
    sys.orig_argv[1:] = ["-m", "colonnade", *job["arguments"]]
    runpy.run_module("colonnade", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
