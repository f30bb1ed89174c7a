"""A client of an example: a real process, spoken to in raw lines, in one revision.

    with run_example("weather.py", revision) as client:
        result = client.call("forecast", city="Oslo")

Input requests that are requests are answered as they arrive; if they are in a result, the call is
made again with the answers. `client.received` has everything that the process said.

Rules: every line is held against the closed official schema of its revision, where that is at
hand. Standard error must stay empty unless a test takes it. Every wait ends.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, ChangeNotifications, InputRequests, Revision
from official import DATES, available
from official_lines import complaints
from script_runner import Message

JSON = dict[str, Any]
Reply = Callable[[str, JSON], JSON]

EXAMPLES = Path(__file__).resolve().parent.parent.parent.parent / "examples"
WAIT_S = 60.0
MAX_ROUNDS = 8
# The ends of the table; what differs in between has tests of its own below `tests/server`.
OLDEST_AND_NEWEST = (ALL[0], ALL[-1])
CAN: JSON = {"elicitation": {}, "sampling": {}, "roots": {}}


class Rejected(Exception):
    """The process answered with an error of the protocol."""

    def __init__(self, error: JSON) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]


def no_input_expected(method: str, params: JSON) -> JSON:
    raise AssertionError(f"nobody expected {method}: {params}")


class ExampleClient:
    """One client, and the process that it speaks to."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", errors: IO[bytes], revision: Revision
    ) -> None:
        self.process = process
        self.revision = revision
        self.answer: Reply = no_input_expected
        self.received: list[JSON] = []
        self.questions: list[tuple[str, JSON]] = []
        self.log_level: str | None = None
        self._errors = errors
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._methods: dict[Any, str] = {}
        self._next = 0
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    # ------------------------------------------------------------ lines

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send_raw(self, message: JSON) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> JSON:
        """The next message; a question in it is answered."""
        line = self._lines.get(timeout=WAIT_S)
        assert line, f"the process ended: {self.errors()}"
        message: JSON = json.loads(line)
        self.received.append(message)
        if available() and self.revision.date in DATES:
            answers = self._methods.get(message.get("id")) if "method" not in message else None
            found = complaints(Message(Side.SERVER, message, self.revision, answers))
            assert not found, (message, found)
        if "method" in message and "id" in message:
            assert self.revision.input_requests is InputRequests.AS_REQUEST
            result = self._answer(message)
            self.send_raw({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return message

    def errors(self) -> str:
        """What the process wrote to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode()

    # ------------------------------------------------------------ requests

    def send(self, method: str, params: JSON | None = None) -> int:
        """A request, with whatever its revision wants to be said; its id."""
        self._next += 1
        members = dict(params or {})
        if not self.revision.handshake:
            meta = {
                "io.modelcontextprotocol/protocolVersion": self.revision.date,
                "io.modelcontextprotocol/clientCapabilities": CAN,
            }
            if self.log_level is not None:
                meta["io.modelcontextprotocol/logLevel"] = self.log_level
            members["_meta"] = members.get("_meta", {}) | meta
        self._methods[self._next] = method
        self.send_raw({"jsonrpc": "2.0", "id": self._next, "method": method, "params": members})
        return self._next

    def outcome(self, id: int) -> JSON:
        """The answer to a request. Raises `Rejected` for an error."""
        while True:
            message = self.receive()
            if message.get("id") == id and "method" not in message:
                break
        if "error" in message:
            raise Rejected(message["error"])
        return message["result"]

    def ask(self, method: str, params: JSON | None = None) -> JSON:
        """A request and its result; questions by result are answered, and it is sent again."""
        for _ in range(MAX_ROUNDS):
            result = self.outcome(self.send(method, params))
            if result.get("resultType") != "input_required":
                return result
            asked: dict[str, JSON] = result["inputRequests"]
            params = dict(params or {}) | {
                "inputResponses": {key: self._answer(one) for key, one in asked.items()},
                "requestState": result["requestState"],
            }
        raise AssertionError("it asks for ever")

    def _answer(self, question: JSON) -> JSON:
        method, params = question["method"], question.get("params") or {}
        self.questions.append((method, params))
        return self.answer(method, params)

    def call(self, tool: str, **arguments: Any) -> JSON:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def text(self, tool: str, **arguments: Any) -> str:
        """The words of a result that is no error."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return result["content"][0]["text"]

    def failure(self, tool: str, **arguments: Any) -> str:
        """The words of a tool's error."""
        result = self.call(tool, **arguments)
        assert result.get("isError") is True, result
        return result["content"][0]["text"]

    def names(self, kind: str) -> list[str]:
        """The names of all tools, or prompts, that are listed."""
        return [one["name"] for one in self.ask(f"{kind}/list")[kind]]

    def notifications(self, method: str) -> list[JSON]:
        """The params of all notifications of a method so far."""
        return [one.get("params", {}) for one in self.received if one.get("method") == method]

    def wait_for_notification(self, method: str) -> JSON:
        """The params of the first notification of a method, when it has come."""
        while not self.notifications(method):
            self.receive()
        return self.notifications(method)[0]

    def subscribe(self, **wanted: Any) -> None:
        """Ask to hear of changes, in the way of the revision."""
        if self.revision.change_notifications is ChangeNotifications.LISTEN:
            self.send("subscriptions/listen", {"notifications": wanted})
            self.wait_for_notification("notifications/subscriptions/acknowledged")
        else:
            for uri in wanted.get("resourceSubscriptions", ()):
                self.ask("resources/subscribe", {"uri": uri})

    def want_logs(self, level: str) -> None:
        """Ask for log messages of this level and above, in the way of the revision."""
        if self.revision.handshake:
            self.ask("logging/setLevel", {"level": level})
        else:
            self.log_level = level

    # ------------------------------------------------------------ beginning and end

    def open(self) -> None:
        if self.revision.handshake:
            params = {
                "protocolVersion": self.revision.date,
                "capabilities": CAN,
                "clientInfo": {"name": "client", "version": "1"},
            }
            result = self.ask("initialize", params)
            assert result["protocolVersion"] == self.revision.date
            self.send_raw({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            assert self.revision.date in self.ask("server/discover")["supportedVersions"]

    def close(self) -> None:
        """End the input; the process ends by itself, well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WAIT_S) == 0, self.errors()
        self._reader.join(WAIT_S)


@contextmanager
def run_example(example: str, revision: Revision, *, errors: str = "") -> Generator[ExampleClient]:
    """A client of the process of an example. `errors` is text that it writes to standard error."""
    with tempfile.TemporaryFile() as kept:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / example)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=kept,
        )
        try:
            guest = ExampleClient(process, kept, revision)
            guest.open()
            yield guest
            guest.close()
            written = guest.errors()
            assert (errors in written) if errors else (written == ""), written
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
