"""Servers whose definitions change under a host: in this process, and as a process that reads them
from a file when it starts.

    server = Drifting()
    server.lists["tools"][0]["description"] = "Something else."
    server.announce()                          # tools/list_changed

Rules: what is called is counted, so that a test sees whether a call has reached the server.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

from colonnade import Server
from colonnade.protocol import types as t

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
OBJECT = {"type": "object", "properties": {"path": {"type": "string", "description": "A path."}}}
DEFINITIONS: dict[str, list[dict[str, Any]]] = {
    "tools": [
        {"name": "read", "description": "Reads a file.", "inputSchema": OBJECT, "vendor": {"a": 1}},
        {"name": "send", "description": "Sends a mail.", "inputSchema": {"type": "object"}},
    ],
    "prompts": [{"name": "review", "description": "Reviews.", "arguments": [{"name": "code"}]}],
    "resources": [{"uri": "notes://a", "name": "a", "description": "The first note."}],
    "resourceTemplates": [
        {"uriTemplate": "people://{name}", "name": "people", "description": "A person."}
    ],
}


class Drifting(Server):
    """A server that lists what a test wants, and counts its calls."""

    def __init__(self, name: str = "drifting", instructions: str | None = None) -> None:
        super().__init__(name, instructions=instructions)
        self.lists = copy.deepcopy(DEFINITIONS)
        self.calls: list[str] = []
        self.listed: list[str] = []
        self.on_list: Any = None

        @self.tool
        def read(path: str = "") -> str:
            self.calls.append("read")
            return "text"

        @self.tool
        def send() -> str:
            self.calls.append("send")
            return "sent"

        @self.prompt
        def review(code: str = "") -> str:
            self.calls.append("review")
            return "Review it."

        @self.resource("notes://a")
        def note() -> str:
            self.calls.append("note")
            return "a note"

        @self.resource("people://{name}")
        def person(name: str) -> str:
            self.calls.append("person")
            return name

        _ = read, send, review, note, person

    async def respond(self, request: Any) -> bytes | None:
        found = await super().respond(request)
        method = request.exchange.method.name
        if found is None or method not in LISTS:
            return found
        self.listed.append(method)
        message = json.loads(found)
        message["result"][LISTS[method]] = copy.deepcopy(self.lists[LISTS[method]])
        if self.on_list is not None:
            self.on_list(self, method)
        return json.dumps(message).encode()

    def announce(self) -> None:
        """Send `notifications/tools/list_changed`."""
        self._registry.changes.publish("notifications/tools/list_changed", t.NotificationParams())


SCRIPT = """
import json, sys
path = sys.argv[1]
with open(path) as file:
    lists = json.load(file)
def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "file", "version": "1"}
        say({"id": id, "result": {"protocolVersion": version, "capabilities": capabilities,
             "serverInfo": info, "instructions": lists.get("instructions")}})
    elif method == "tools/list":
        say({"id": id, "result": {"tools": lists["tools"]}})
    elif method == "tools/call":
        with open(path + ".calls", "a") as file:
            file.write(message["params"]["name"] + "\\n")
        if message["params"]["name"] == "die":
            sys.exit(3)
        say({"id": id, "result": {"content": [{"type": "text", "text": "done"}]}})
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": "unknown"}})
"""


class FileServer:
    """A server process that reads its definitions from a file when it starts."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "lists.json"
        self.lists: dict[str, Any] = {"tools": copy.deepcopy(DEFINITIONS["tools"])}
        self.lists["tools"].append({"name": "die", "inputSchema": {"type": "object"}})
        self.save()

    def save(self) -> None:
        """Write the definitions, for the next process."""
        self.file.write_text(json.dumps(self.lists))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", SCRIPT, str(self.file)]

    @property
    def calls(self) -> list[str]:
        """The tools that were called, in every process."""
        path = Path(f"{self.file}.calls")
        return path.read_text().split() if path.exists() else []
