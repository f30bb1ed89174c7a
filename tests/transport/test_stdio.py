"""Servers as processes, spoken to in raw lines, in every revision.

Rules: what a process writes to its standard output is messages, each a line, and nothing else;
every line is held against the closed official schema of its revision, where that is at hand.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.protocol.jsonrpc import MAX_LINE_BYTES
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import (
    ALL,
    JULY_2026,
    NOVEMBER_2025,
    ChangeNotifications,
    InputRequests,
    Revision,
)
from official import DATES, available
from official_lines import complaints
from script_runner import Message

JSON = dict[str, Any]
SCRIPT = Path(__file__).resolve().parents[1] / "support/transport/stdio_server.py"
WAIT_S = 60.0
CAN: JSON = {"roots": {}, "sampling": {}}


class Process:
    """A server process, and the lines between it and us."""

    def __init__(self, process: "subprocess.Popen[bytes]", revision: Revision) -> None:
        self.process = process
        self.revision = revision
        self.lines: list[JSON] = []
        self._methods: dict[Any, str] = {}
        self._next = 10

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def read(self) -> Any:
        """The next line, which is a message of the revision."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the process ended: {self.errors()!r}"
        message = json.loads(line)
        self.lines.append(message)
        for one in message if isinstance(message, list) else [message]:
            if available() and self.revision.date in DATES:
                answers = self._methods.get(one.get("id"))
                found = complaints(Message(Side.SERVER, one, self.revision, answers))
                assert not found, (one, found)
        return message

    def errors(self) -> str:
        """Everything that was written to standard error, after the end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def waiting(self) -> None:
        """Wait until a tool says on standard error that it waits."""
        assert self.process.stderr is not None
        while b"waiting" not in self.process.stderr.readline():
            pass

    def has_written(self, size: int) -> None:
        """Wait until so many bytes are in the pipe, unread."""
        assert self.process.stdout is not None
        unread, end = bytearray(4), time.monotonic() + WAIT_S
        while int.from_bytes(unread, sys.byteorder) < size:
            assert time.monotonic() < end
            time.sleep(0.005)
            fcntl.ioctl(self.process.stdout, termios.FIONREAD, unread)

    def send(self, method: str, params: JSON | None = None) -> Any:
        self._next += 1
        self._methods[self._next] = method
        members = dict(params or {})
        if not self.revision.handshake:
            members["_meta"] = {
                **members.get("_meta", {}),
                "io.modelcontextprotocol/protocolVersion": self.revision.date,
                "io.modelcontextprotocol/clientCapabilities": CAN,
            }
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": members}
        self.say(message)
        return self._next

    def answer(self, id: Any) -> JSON:
        """The answer to a request; everything before it is kept in `lines`."""
        while True:
            message = self.read()
            if message.get("id") == id and "method" not in message:
                return message

    def open(self) -> None:
        if self.revision.handshake:
            params = {
                "protocolVersion": self.revision.date,
                "capabilities": CAN,
                "clientInfo": {"name": "c", "version": "1"},
            }
            result = self.answer(self.send("initialize", params))["result"]
            assert result["protocolVersion"] == self.revision.date
            self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            result = self.answer(self.send("server/discover"))["result"]
            assert self.revision.date in result["supportedVersions"]

    def call(self, tool: str, **arguments: Any) -> str:
        params = {"name": tool, "arguments": arguments}
        return self.answer(self.send("tools/call", params))["result"]["content"][0]["text"]

    def end(self) -> None:
        """Close the input; the process must end by itself, and well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WAIT_S) == 0


@contextmanager
def serving(revision: Revision, script: Path = SCRIPT, **changes: str) -> Generator[Process]:
    environment = {**os.environ, **changes}
    environment.pop("PYTHONUNBUFFERED", None)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        yield Process(process, revision)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


@pytest.mark.spec("R0040", "R0043")
def test_a_conversation_in_lines_which_nothing_that_prints_can_disturb(
    revision: Revision,
) -> None:
    with serving(revision) as server:
        server.open()
        assert server.call("echo", text="hällo\nwörld") == "hällo\nwörld"
        assert server.call("noisy") == "silent"
        assert server.call("greedy") == "''b''"
        assert server.call("echo", text="still there") == "still there"
        server.end()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""
        errors = server.errors()
    for words in (
        *("printed before it runs", "printed in the lifespan", "a stray print", "and flushed"),
        *("below Python", "from a child", "lifespan left"),
    ):
        assert words in errors


def test_progress_questions_and_changes_go_over_the_pipe(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        params: JSON = {"name": "report", "_meta": {"progressToken": "p"}}
        server.answer(server.send("tools/call", params))
        progress = [one for one in server.lines if one.get("method") == "notifications/progress"]
        assert [one["params"]["progress"] for one in progress] == [1, 2, 3]
        for tool in ("ask", "ask_in_a_thread"):
            id = server.send("tools/call", {"name": tool})
            first = server.read()
            if revision.input_requests is InputRequests.AS_REQUEST:
                assert first["method"] == "roots/list"
                server.say({"jsonrpc": "2.0", "id": first["id"], "result": {"roots": []}})
                result = server.answer(id)["result"]
            else:
                (key,) = first["result"]["inputRequests"]
                state = first["result"]["requestState"]
                again = {
                    "name": tool,
                    "requestState": state,
                    "inputResponses": {key: {"roots": []}},
                }
                result = server.answer(server.send("tools/call", again))["result"]
            assert result["content"][0]["text"] == "0 roots"
        if revision.change_notifications is ChangeNotifications.LISTEN:
            server.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            assert server.read()["method"] == "notifications/subscriptions/acknowledged"
        server.call("grow")
        while not [x for x in server.lines if "list_changed" in x.get("method", "")]:
            server.read()
        assert server.call("grown") == "grown"
        server.end()


@pytest.mark.spec("R0842")
@pytest.mark.parametrize("tool", ["waits", "stubborn", "stuck"])
def test_the_end_of_the_input_is_the_end_of_the_process_whatever_runs(
    revision: Revision, tool: str
) -> None:
    with serving(revision) as server:
        server.open()
        server.send("tools/call", {"name": tool})
        server.waiting()
        server.end()
        assert "lifespan left" in server.errors()


@pytest.mark.parametrize("revision", ALL[-2:], ids=lambda one: one.date)
def test_calls_that_came_before_the_end_of_the_input_are_answered(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        ids = [server.send("tools/call", {"name": "noisy"}) for _ in range(3)]
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert {server.read()["id"] for _ in ids} == set(ids)
        assert server.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("revision", ALL[-2:], ids=lambda one: one.date)
def test_sigterm_ends_it_well(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        id = None
        if revision.change_notifications is ChangeNotifications.LISTEN:
            id = server.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            server.read()
        server.process.send_signal(signal.SIGTERM)
        if id is not None:
            assert server.answer(id)["result"]
        assert server.process.wait(WAIT_S) == 0
        assert "lifespan left" in server.errors()


@pytest.mark.parametrize("revision", ALL[-1:], ids=lambda one: one.date)
def test_interrupted_it_ends_without_a_traceback(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(WAIT_S) == 0
        assert "Traceback" not in server.errors()


def test_what_is_no_message_is_answered_and_the_next_one_is_served(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        for line, code in (
            (b"{nonsense\n", -32700),
            (b"\xff\xfe\n", -32700),
            (b"[]\n", -32600),
            (b'{"jsonrpc":"1.0","id":1,"method":"x"}\n', -32600),
            (b'{"a":"' + b"x" * MAX_LINE_BYTES + b'"}\n', None),
        ):
            server.write(line)
            error = server.read()["error"]
            assert code is None or error["code"] == code, line[:80]
        server.write(b"\n\r\n  \n")  # empty lines are nothing
        assert server.call("echo", text="fine") == "fine"
        server.end()


@pytest.mark.parametrize("revision", ALL[-1:], ids=lambda one: one.date)
def test_a_client_that_reads_late_gets_everything(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        size = 3_000_000
        ids = [
            server.send("tools/call", {"name": "large", "arguments": {"size": size}})
            for _ in range(3)
        ]
        server.has_written(50_000)  # the pipe is nearly full, and the server must not wait in it
        ids.append(server.send("tools/call", {"name": "echo", "arguments": {"text": "x"}}))
        found = [server.read() for _ in ids]
        assert {one["id"] for one in found} == set(ids)
        server.end()


@pytest.mark.parametrize("revision", ALL[-1:], ids=lambda one: one.date)
def test_a_client_that_stops_reading_and_goes_away_ends_it(revision: Revision) -> None:
    with serving(revision) as server:
        server.open()
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.send("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        assert server.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
def test_input_from_a_file_is_read_and_answered(revision: Revision, tmp_path: Path) -> None:
    lines: list[JSON] = []
    meta: JSON = {}
    if revision.handshake:
        params = {
            "protocolVersion": revision.date,
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        lines.append({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        lines.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
    else:
        meta = {
            "io.modelcontextprotocol/protocolVersion": revision.date,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    call = {"name": "echo", "arguments": {"text": "from a file"}, "_meta": meta}
    lines.append({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with path.open() as source, out.open("wb") as target:
        run = subprocess.run(
            [sys.executable, str(SCRIPT)],
            stdin=source,
            stdout=target,
            stderr=subprocess.PIPE,
            timeout=WAIT_S,
        )
    assert run.returncode == 0, run.stderr
    last = json.loads(out.read_text().splitlines()[-1])
    assert last["result"]["content"][0]["text"] == "from a file"


def test_one_pipe_carries_both_ways_of_opening() -> None:
    older, newer = NOVEMBER_2025, JULY_2026
    with serving(older) as server:
        server.open()
        assert server.call("echo", text="old") == "old"
        server.revision = newer
        assert server.call("echo", text="new") == "new"
        server.revision = older
        assert server.call("echo", text="old again") == "old again"


# What few servers need, and each of them loads when it does.
NOT_AT_FIRST = """
    uvicorn uvloop httptools pyreqwest cryptography jsonschema_rs pydantic annotated_types attr
    sqlite3 click
    json copy dataclasses difflib fnmatch graphlib hashlib hmac importlib.util ipaddress mimetypes
    ntpath pathlib random secrets urllib.parse
    colonnade.auth colonnade.middleware colonnade.store colonnade.logs colonnade.client
    colonnade.protocol.subscriptions colonnade.client.probe
    colonnade.protocol.elicitation colonnade.protocol.http.security colonnade.protocol.http.param_headers
    colonnade.protocol.input_rounds colonnade.protocol.input_requests colonnade.signatures.form
    colonnade.signatures.pydantic_codec colonnade.protocol.uritemplate
    colonnade.protocol.types.server colonnade.protocol.types.client colonnade.protocol.types.tasks
    colonnade.server.context.ask colonnade.server.context.blocking colonnade.server.handlers.completion colonnade.server.context.context
    colonnade.server.auth colonnade.server.handlers.resources colonnade.server.context.handles colonnade.server.handlers.input_rounds
    colonnade.server.options
    colonnade.server.handlers.resources colonnade.server.handlers.input_rounds
"""
# What only a handshake needs.
NOT_WITHOUT_ONE = "colonnade.protocol.types.lifecycle"


def test_a_server_on_a_pipe_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    script = tmp_path / "small.py"
    script.write_text(
        "import asyncio, sys\n"  # which loads dataclasses itself from Python 3.14 on
        "before = {*sys.modules}\n"
        "from colonnade import Server\n"
        "server = Server('s')\n"
        "@server.tool\n"
        "def loaded(unused: int = 0) -> list[str]:\n"
        '    """What is loaded by now."""\n'
        "    return sorted({*sys.modules} - before)\n"
        "server.run()\n"
    )
    for revision in (JULY_2026, NOVEMBER_2025):
        with serving(revision, script) as server:
            if revision is NOVEMBER_2025:
                server.open()
            found = set(json.loads(server.call("loaded")))
        assert found & {*NOT_AT_FIRST.split()} == set()
        if revision is JULY_2026:
            assert found & {*NOT_WITHOUT_ONE.split()} == set()
        assert "colonnade.server.handlers.tools" in found
