"""A tour of a running server over HTTP, in every revision, message by message.

    python examples/walk.py

Starts `travel.py` as a process on a free port, connects to it with `http.client` alone, to show the
HTTP requests, and stops it. Needs no terminal and no keys.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

JSON = dict[str, Any]

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
NEWEST = REVISIONS[-1]
META = "io.modelcontextprotocol/"
CAN: JSON = {"elicitation": {}}
WAIT_S = 20.0
WIDTH = 98
STYLED = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def title(words: str) -> None:
    print(f"\n\033[1m{words}\033[0m" if STYLED else f"\n{words}")


def line(words: str) -> None:
    print(f"  {words if len(words) <= WIDTH else words[: WIDTH - 1] + '…'}", flush=True)


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Client:
    """A client of one revision: sessions, except in the newest one."""

    def __init__(self, port: int, revision: str = NEWEST) -> None:
        self.port = port
        self.revision = revision
        self.session: str | None = None
        self._id = 0
        if revision != NEWEST:
            info = {"name": "walk", "version": "1.0"}
            said: JSON = {"protocolVersion": revision, "capabilities": CAN, "clientInfo": info}
            self.result("initialize", said)
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {}).close()

    def _post(self, message: JSON, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        headers |= {"Content-Type": "application/json", "Connection": "close"}
        headers["Accept"] = "application/json, text/event-stream"
        if self.session is not None:
            headers["Mcp-Session-Id"] = self.session
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        self.session = response.headers.get("Mcp-Session-Id", self.session)
        return response

    def messages(self, method: str, params: JSON | None = None) -> Generator[JSON]:
        """The messages in the response to a request, as they arrive; the result is the last."""
        self._id += 1
        params = dict(params or {})
        headers: dict[str, str] = {}
        if self.revision == NEWEST:
            said: JSON = {f"{META}protocolVersion": NEWEST, f"{META}clientCapabilities": CAN}
            params["_meta"] = params.get("_meta", {}) | said
            headers = {"Mcp-Protocol-Version": NEWEST, "Mcp-Method": method}
            if "name" in params or "uri" in params:
                headers["Mcp-Name"] = params.get("name") or params["uri"]
        elif self.session is not None:
            headers = {"Mcp-Protocol-Version": self.revision}
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        with self._post(message, headers) as response:
            if response.headers["Content-Type"] == "application/json":
                yield json.load(response)
                return
            while text := response.readline():
                if text.startswith(b"data: {"):
                    yield json.loads(text[6:])

    def result(self, method: str, params: JSON | None = None) -> JSON:
        """The result only."""
        *_, last = self.messages(method, params)
        if "error" in last:
            raise SystemExit(f"{method}: {last['error']}")
        return last["result"]

    def call(self, tool: str, **arguments: Any) -> JSON:
        return self.result("tools/call", {"name": tool, "arguments": arguments})

    def reply(self, id: Any, result: JSON) -> None:
        """Send the response to an input request."""
        headers = {"Mcp-Protocol-Version": self.revision}
        self._post({"jsonrpc": "2.0", "id": id, "result": result}, headers).close()


# ---------------------------------------------------------------- the tour


def discovery(client: Client) -> None:
    title("Discovery: one request, no handshake")
    found = client.result("server/discover")
    line(f"versions      {' '.join(found['supportedVersions'])}")
    line(f"capabilities  {', '.join(found['capabilities'])}")
    line(f"instructions  {found['instructions']}")


def tools(client: Client) -> None:
    title("Tools: schemas from signatures, without parameters that are elicited")
    for tool in client.result("tools/list")["tools"]:
        given = [
            f"{name}: {one['type']}" + (f" = {one['default']}" if "default" in one else "")
            for name, one in tool["inputSchema"].get("properties", {}).items()
        ]
        line(f"{tool['name']}({', '.join(given)})")
        line(f"    {tool['description']}")


def calls(client: Client) -> None:
    title("A call, and one with invalid arguments")
    line("find(start='Paris', end='Lyon', at_most=2)")
    for train in client.call("find", start="Paris", end="Lyon", at_most=2)["structuredContent"]:
        line(f"    {shown(train)}")
    line("find(start='Paris', at_most=20)")
    line(f"    isError: {client.call('find', start='Paris', at_most=20)['content'][0]['text']}")


def progress(client: Client) -> None:
    title("Progress notifications")
    for message in client.messages(
        "tools/call", {"name": "compare", "_meta": {"progressToken": 1}}
    ):
        if "method" in message:
            params = message["params"]
            line(f"{params['progress']:g} of {params['total']:g}: {params['message']}")
        else:
            line(message["result"]["content"][0]["text"])


def elicitation(port: int) -> None:
    title("Elicitation, in two revisions: seat: Annotated[Seat, Ask('Which seat on {train}?')]")
    params: JSON = {"name": "book", "arguments": {"train": "TGV 6607"}}
    answer = {"action": "accept", "content": {"car": 12, "window": True}}
    line(f"{NEWEST}: an input_required result, and a retry of the call")
    client = Client(port)
    asked = client.result("tools/call", params)
    ((key, question),) = asked["inputRequests"].items()
    state = asked["requestState"]
    line(f"    <- {question['method']}: {question['params']['message']}")
    line(f"       requestState, encrypted: {len(state)} characters")
    line(f"    -> {shown(answer)}")
    again = params | {"inputResponses": {key: answer}, "requestState": state}
    line(f"    <- {shown(client.result('tools/call', again)['structuredContent'])}")
    older = Client(port, "2025-11-25")
    line("2025-11-25: a request of the server")
    for message in older.messages("tools/call", params):
        if "method" in message:
            line(f"    <- {message['method']}: {message['params']['message']}")
            line(f"    -> {shown(answer)}")
            older.reply(message["id"], answer)
        else:
            line(f"    <- {shown(message['result']['structuredContent'])}")


def resources(client: Client) -> None:
    title("A resource, and a subscription")
    read = client.result("resources/read", {"uri": "trips://mine"})["contents"][0]["text"]
    line(f"trips://mine: {len(json.loads(read))} trips")
    stream = client.messages(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["trips://mine"]}}
    )
    line(f"<- {next(stream)['method']}")
    other = Client(client.port, "2025-11-25")
    for message in other.messages("tools/call", {"name": "book", "arguments": {"train": "EC 171"}}):
        if "method" in message:
            other.reply(message["id"], {"action": "accept", "content": {"car": 3}})
    update = next(stream)
    line(f"<- {update['method']}: {update['params']['uri']}, after another client booked")
    stream.close()


def crash(client: Client, log: Path) -> None:
    title("An exception: the caller gets an error id, the log has the traceback")
    words = client.call("refund", euros=45.0, days_left=0)["content"][0]["text"]
    line(f"the caller  {words}")
    logged = next(text for text in log.read_text("utf-8").splitlines() if words in text)
    line(f"the log     {logged}")


def revisions(port: int) -> None:
    title("The same call in each revision")
    for revision in REVISIONS:
        result = Client(port, revision).call("find", start="Berlin", end="Prague")
        parts = [f"{len(result['content'])} text block"]
        if "structuredContent" in result:
            parts.append(f"data {shown(result['structuredContent'])}")
        if "resultType" in result:
            parts.append(result["resultType"])
        line(f"{revision}  {', '.join(parts)}")


def end(client: Client, server: "subprocess.Popen[str]", log: Path) -> None:
    title("Graceful shutdown: SIGTERM during a call")
    running = client.messages("tools/call", {"name": "compare", "_meta": {"progressToken": 2}})
    line(f"compare  {next(running)['params']['message']}")
    server.send_signal(signal.SIGTERM)
    *_, last = running
    line(f"compare  {last['result']['content'][0]['text']}")
    if server.wait(WAIT_S) or "the office is closed" not in log.read_text("utf-8"):
        raise SystemExit(f"the server did not end well: {server.returncode}")
    line("the call finished, the lifespan was closed, the process exited with 0")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("w") as errors:
            command = [sys.executable, str(Path(__file__).with_name("travel.py")), "0"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert server.stdout is not None
        try:
            first = server.stdout.readline().strip()
            if not first:
                raise SystemExit(f"the server did not start:\n{log.read_text('utf-8')}")
            port = int(first.removesuffix("/mcp").rpartition(":")[2])
            title(f"{first} (process {server.pid})")
            client = Client(port)
            for step in (discovery, tools, calls, progress):
                step(client)
            elicitation(port)
            resources(client)
            crash(client, log)
            revisions(port)
            end(client, server, log)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # stops the server, too
    try:
        main()
    except BrokenPipeError:  # output was closed, as by `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
