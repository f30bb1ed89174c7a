"""A server of a handshake revision that does what it is told, as a process; `modern` needs none.

    python odd_servers.py [legacy | modern | silent | refusing]

Its tools: `who` (its process), `env` (a variable), `ask` (a form, then what was filled in), `hang`
(for ever), `put` (any question), `wait` (until somebody calls `go`), `say` (a log and a line for people), `die`.

Rules: the standard library alone, and nothing that takes time to import. Nothing is asserted here.
"""

import json
import os
import signal
import sys
import time
from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else "legacy"
CAPABILITIES = {"tools": {}, "logging": {}}
INFO = {"name": "odd", "version": "1"}


def say(message: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def reply(id: Any, text: str) -> None:
    say(
        {
            "id": id,
            "result": {"resultType": "complete", "content": [{"type": "text", "text": text}]},
        }
    )


class Server:
    """One conversation."""

    def __init__(self) -> None:
        self.declared: Any = None
        self.calls = 0
        self.asked: dict[str, Any] = {}
        self.waiting: list[Any] = []

    def hear(self, message: dict[str, Any]) -> None:
        id, method = message.get("id"), message.get("method")
        if method is None:
            call = self.asked.pop(str(id), None)
            if call is not None:
                reply(call, json.dumps(message.get("result") or message.get("error")))
        elif method == "initialize":
            self.declared = message["params"]["capabilities"]
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
            say({"id": id, "result": result})
        elif method == "server/discover" and KIND == "modern":
            (date,) = {v for k, v in message["params"]["_meta"].items() if "Version" in k}
            result = {"supportedVersions": [date], "capabilities": CAPABILITIES, "ttlMs": 0}
            say({"id": id, "result": result | {"resultType": "complete", "cacheScope": "private"}})
        elif method == "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "inputSchema": schema} for name in ("who", "hang", "die")]
            say({"id": id, "result": {"tools": tools}})
        elif method == "tools/call":
            params = message["params"]
            getattr(self, params["name"])(id, **params.get("arguments", {}))
        elif id is not None:
            say({"id": id, "error": {"code": -32601, "message": "unknown"}})

    def who(self, id: Any) -> None:
        reply(id, str(os.getpid()))

    def can(self, id: Any) -> None:
        reply(id, json.dumps(self.declared))

    def env(self, id: Any, name: str) -> None:
        reply(id, os.environ.get(name, ""))

    def ask(self, id: Any, canary: str) -> None:
        form = {"type": "object", "properties": {"answer": {"type": "string"}}}
        params = {"message": f"for {canary}", "requestedSchema": form}
        self.put(id, "elicitation/create", params)

    def put(self, id: Any, method: str, params: Any) -> None:
        """Any question, and its answer as it came."""
        self.calls += 1
        key = f"q{self.calls}"
        self.asked[key] = id
        say({"id": key, "method": method, "params": params})

    def ask_later(self, id: Any, canary: str) -> None:
        """Answer first, and ask when nobody has a call here any more."""
        reply(id, "asked")
        self.ask(None, canary)

    def hang(self, id: Any) -> None:
        pass

    def freeze(self, id: Any) -> None:
        time.sleep(3600)

    def wait(self, id: Any) -> None:
        self.waiting.append(id)
        sys.stderr.write("waiting\n")
        sys.stderr.flush()

    def go(self, id: Any) -> None:
        for one in [*self.waiting, id]:
            reply(one, str(os.getpid()))
        self.waiting.clear()

    def say(self, id: Any, text: str) -> None:
        sys.stderr.write(f"\x1b[31m{text}\x1b[0m\n")
        sys.stderr.flush()
        say({"method": "notifications/message", "params": {"level": "error", "data": text}})
        reply(id, "said")

    def die(self, id: Any, text: str = "") -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
        os._exit(3)

    def killed(self, id: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


if KIND == "silent":
    sys.stderr.write("loading a large model\n")
    sys.stderr.flush()
    sys.stdin.buffer.read()
    sys.exit(0)
if KIND == "refusing":
    sys.exit("ModuleNotFoundError: No module named 'git'")
server = Server()
for line in sys.stdin.buffer:
    server.hear(json.loads(line))
