"""The command as a process: what it is given, what it writes, how it ends.

Rules: every wait is for something that the process writes or does, and has an end.
"""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Self

from cli.fork_server import fork_server

WAIT_S = 60.0
COMMAND = [sys.executable, "-m", "colonnade"]
HUNG_UP = (
    "WARNING colonnade.transport: SIGHUP: running calls may finish, then this process ends; "
    "nothing is reloaded"
)
# The same as it is installed; `python -m` would find what is called colonnade in its own folder.
SCRIPT = [sys.executable, str(Path(sys.executable).with_name("colonnade"))]
AT_START = ("PYTHON", "LANG", "LC_")
NEWEST = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}

WEATHER = """
from colonnade import Server

server = Server("weather", version="1.0")


@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    return {**kept, "PYTHONWARNINGS": "error", **more}


def command(
    folder: Path, *arguments: str, input: str = "", **more: str
) -> "subprocess.CompletedProcess[str]":
    """Run it to its end."""
    # What Python reads when it starts needs one that starts.
    if not any(name.startswith(AT_START) for name in more):
        return fork_server().run(folder, arguments, input=input, env=environment(**more))
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        input=input,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(**more),
    )


def request(method: str, params: dict[str, Any] | None = None, id: int = 1) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {**(params or {}), "_meta": META},
    }


def call(tool: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", {"name": tool, "arguments": arguments}, id)


class Lines:
    """What comes out of a stream, line by line, with an end to every wait."""

    def __init__(self, stream: IO[str]) -> None:
        self.all: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._queue.put(line)
        self._queue.put(None)

    def next(self) -> str:
        """The next line; nothing at the end."""
        line = self._queue.get(timeout=WAIT_S)
        if line is None:
            self._queue.put(None)
            return ""
        self.all.append(line.rstrip("\n"))
        return self.all[-1]

    def until(self, words: str) -> str:
        """The next line that has these words."""
        while True:
            before = len(self.all)
            line = self.next()
            if words in line:
                return line
            assert len(self.all) > before, f"no {words!r} in {self.all}"

    def rest(self) -> list[str]:
        """Everything up to the end, from the beginning."""
        while True:
            before = len(self.all)
            self.next()
            if len(self.all) == before:
                return self.all


class Process:
    """A command that goes on until it is ended."""

    def __init__(
        self, folder: Path, *arguments: str, start: list[str] = COMMAND, **more: str
    ) -> None:
        self.process = subprocess.Popen(
            [*start, *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**more),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.input = self.process.stdin
        self.out = Lines(self.process.stdout)
        self.err = Lines(self.process.stderr)
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    # ------------------------------------------------------------ stdio

    def say(self, message: Any) -> None:
        self.input.write(json.dumps(message) + "\n")
        self.input.flush()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message on standard input."""
        self.say(message)
        line = self.out.next()
        assert line, self.err.rest()
        return json.loads(line)

    # ------------------------------------------------------------ HTTP

    def up(self) -> str:
        """The line that says where it is served, once it is."""
        line = self.out.next()
        assert line, self.err.rest()
        self.port = int(line.rpartition(":")[2].partition("/")[0])
        return line

    def begin(self, message: dict[str, Any], **headers: str) -> http.client.HTTPConnection:
        """Post a message; the answer is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        own = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": NEWEST,
            "mcp-method": message["method"],
        }
        if "name" in message["params"]:
            own["mcp-name"] = message["params"]["name"]
        connection.request("POST", "/mcp", json.dumps(message), own | headers)
        return connection

    def post(self, message: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
        """The status and the body of the answer."""
        connection = self.begin(message, **headers)
        try:
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    # ------------------------------------------------------------ end

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(WAIT_S)


def written(folder: Path, **files: str) -> Path:
    """A folder with files in it: `server="…"` is server.py."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
