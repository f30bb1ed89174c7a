"""Many principals with colliding ids at one gateway: nothing of one may reach another.

    python tests/support/gateway/isolation.py [--principals N] [--messages N] …

This is `scripts/isolation`, which says what is done. A client has a canary; it is in all that the
client sends, and so in all that is about it. The clients are written here and send what they like:
the same ids for all of them, cancellations of requests that others have, sessions and states of
others.

Rules: every byte that a client receives is searched. A call without the result that belongs to it is
a failure, as a foreign canary is.
"""

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import os
import random
import re
import resource
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from auth.token_issuer import issuing
from colonnade.protocol.http.sse import EventStreamParser
from gateway.isolation_server import CANARY, TAIL, Findings

PROGRAM = Path(__file__).with_name("isolation_server.py")
MEASURED = Path(__file__).with_name("measured_gateway.py")
ROOT = Path(__file__).resolve().parents[3]
NEW = "2026-07-28"
SESSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
# Those whose clients can be asked.
ELICITS = ("2025-06-18", "2025-11-25", NEW)
# The audience of the tokens; the port is another one.
AUDIENCE = "http://127.0.0.1:8000/mcp"
# The variable with the key of the gateway, which its store needs.
KEY = "ISOLATION_KEY"
SERVERS = ("pipe", "old", "new")
CALLS = 4
LISTINGS = 5
# Far more than any call takes.
WAIT_S = 120.0
PREFIX = "io.modelcontextprotocol/"
FORM = re.compile(r"(cnry[0-9a-f]{16}) form (\d+)")


class Options(NamedTuple):
    """What is run."""

    principals: int = 1000
    messages: int = 1_000_000
    at_once: int = 24
    processes: int = 24
    connections: int = 0
    lines: int = 25
    seconds: float = 3600.0
    pooled: bool = False
    unauthenticated: bool = False
    rounds: int = 1
    idle: float = 0.0
    trace: bool = False


class Figures:
    """What was counted."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.received_bytes = 0
        self.calls: Counter[str] = Counter()
        self.foreign: list[str] = []
        self.failures: list[str] = []
        self.refused: Counter[str] = Counter()
        self.memory_mib: dict[str, float] = {}
        # What the gateway says of its own memory, by the moment.
        self.measured: dict[str, dict[str, Any]] = {}
        self.facts: dict[str, Any] = {}
        self.refusals: set[bytes] = set()

    @property
    def total(self) -> int:
        return sum(self.messages.values())

    @property
    def is_good(self) -> bool:
        return not self.foreign and not self.failures

    def _kinds(self) -> Counter[str]:
        """The failures, counted without the numbers and canaries in them."""
        return Counter(re.sub(r"cnry\w+|\d+", "…", words) for words in self.failures)

    def lines(self) -> list[str]:
        """The figures, for people."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.messages.items()))
        calls = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.calls.items()))
        refused = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.refused.items()))
        memory = ", ".join(f"{name} {size:.0f}" for name, size in self.memory_mib.items())
        return [
            f"messages   {self.total:,}: {kinds}",
            f"calls      {calls}",
            f"refused    {refused or 'nothing'}; {len(self.refusals)} refusals of a state differ",
            f"received   {self.received_bytes:,} bytes by clients",
            *(f"{name:10} {value}" for name, value in self.facts.items()),
            f"memory MiB {memory}",
            *(f"  {name:20} {describe_memory(one)}" for name, one in self.measured.items()),
            *(f"FOREIGN    {words}" for words in self.foreign[:20]),
            *(f"FAILED     {count} like {words}" for words, count in self._kinds().items()),
            *(f"FAILED     {words}" for words in self.failures[:20]),
            f"foreign    {len(self.foreign)}, failed {len(self.failures)}",
        ]


class Connection:
    """One connection of a client; what it reads is searched for the canaries of others."""

    def __init__(
        self, client: "IsolationClient", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._client = client
        self._reader = reader
        self.writer = writer
        self._tail = b""

    def _search(self, data: bytes) -> bytes:
        figures, client = self._client.figures, self._client
        figures.received_bytes += len(data)
        both = self._tail + data
        for found in CANARY.findall(both):
            if found != client.canary_bytes:
                figures.foreign.append(f"{client.canary} received {found.decode()}")
        self._tail = both[-19:]
        return data

    async def head(self) -> tuple[int, dict[str, str]]:
        head = self._search(await self._reader.readuntil(b"\r\n\r\n"))
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def body(self, headers: dict[str, str]) -> AsyncGenerator[bytes]:
        """The pieces of a body."""
        if headers.get("transfer-encoding") != "chunked":
            yield self._search(await self._reader.readexactly(int(headers["content-length"])))
            return
        while True:
            size = int(await self._reader.readline(), 16)
            data = await self._reader.readexactly(size + 2)
            if size == 0:
                return
            yield self._search(data[:-2])


class IsolationClient:
    """A client of the gateway, of one revision, with a canary of its own."""

    def __init__(self, figures: Figures, port: int, revision: str, token: str) -> None:
        self.figures = figures
        self.canary = f"cnry{secrets.token_hex(8)}"
        self.canary_bytes = self.canary.encode()
        self.revision = revision
        self.session = ""
        self.state: tuple[dict[str, Any], str] | None = None
        self._port = port
        self._token = token
        self._idle: list[Connection] = []
        self._ids = itertools.count(1)
        self._running: set[int] = set()

    # ------------------------------------------------------------ HTTP

    async def _post(
        self, message: dict[str, Any] | None, verb: str = "POST", **headers: str
    ) -> AsyncGenerator[dict[str, Any]]:
        """Send a message, and read the messages of the response. Raises `LookupError` for an error
        status."""
        body = b"" if message is None else json.dumps(message).encode()
        lines = [
            f"{verb} /mcp HTTP/1.1",
            f"host: 127.0.0.1:{self._port}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            f"content-length: {len(body)}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        if self._token:
            lines.append(f"authorization: Bearer {self._token}")
        if self._idle:
            connection = self._idle.pop()
        else:
            streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
            connection = Connection(self, *streams)
        done = False
        try:
            connection.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            self.figures.messages["sent"] += 1
            status, got = await connection.head()
            self.session = self.session or got.get("mcp-session-id", "")
            parser = EventStreamParser() if "event-stream" in got.get("content-type", "") else None
            whole = b""
            async for piece in connection.body(got):
                if parser is None:
                    whole += piece
                    continue
                for event in parser.feed(piece):
                    if event.data:
                        self.figures.messages["received"] += 1
                        yield json.loads(event.data)
            done = True
            if status >= 400:
                raise LookupError(status, whole)
            if whole:
                self.figures.messages["received"] += 1
                yield json.loads(whole)
        finally:
            if done and len(self._idle) < CALLS:
                self._idle.append(connection)
            else:
                connection.writer.close()

    def _headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        if self.revision == NEW:
            headers = {"mcp_protocol_version": NEW, "mcp_method": method}
            return headers | ({"mcp_name": params["name"]} if "name" in params else {})
        headers = {"mcp_session_id": self.session} if self.session else {}
        if self.session and self.revision >= "2025-06-18":
            headers["mcp_protocol_version"] = self.revision
        return headers

    async def _request(self, method: str, params: dict[str, Any], token: int) -> dict[str, Any]:
        """The result of a request, whose forms are answered on the way."""
        meta: dict[str, Any] = {"progressToken": token}
        if self.revision == NEW:
            meta[PREFIX + "protocolVersion"] = NEW
            meta[PREFIX + "clientCapabilities"] = {"elicitation": {"form": {}}}
            meta[PREFIX + "logLevel"] = "debug"
        sent = {
            "jsonrpc": "2.0",
            "id": token,
            "method": method,
            "params": {**params, "_meta": meta},
        }
        async with aclosing(self._post(sent, **self._headers(method, params))) as messages:
            async for message in messages:
                if "method" not in message:
                    if message.get("id") != token:
                        self.figures.failures.append(f"a response to {message.get('id')!r}")
                    if "error" in message:
                        raise LookupError(message["error"])
                    return message["result"]
                if "id" in message:
                    answer = self._answer(message["params"])
                    reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                    async for _ in self._post(reply, **self._headers("", {})):
                        pass
                self._check(message)
        raise LookupError("the response ended without a result")

    def _check(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        kind = {"message": "logs", "progress": "reports"}.get(message["method"].rpartition("/")[2])
        if kind is not None:
            self.figures.calls[kind] += 1
        has_message = message["method"] != "notifications/progress" or "message" in params
        if has_message and self.canary not in json.dumps(params):
            self.figures.failures.append(f"{message['method']} without the canary: {params}")

    def _answer(self, params: dict[str, Any]) -> dict[str, Any]:
        found = FORM.fullmatch(params["message"])
        if found is None or found[1] != self.canary:
            self.figures.foreign.append(f"{self.canary} was asked {params['message']!r}")
            return {"action": "decline"}
        self.figures.calls["forms"] += 1
        (name,) = params["requestedSchema"]["properties"]
        return {"action": "accept", "content": {name: f"{self.canary} answer {found[2]}"}}

    # ------------------------------------------------------------ what it does

    async def open(self) -> None:
        if self.revision != NEW:
            can = {"elicitation": {}} if self.revision in ELICITS else {}
            info = {"name": self.canary, "version": "1"}
            params = {"protocolVersion": self.revision, "capabilities": can, "clientInfo": info}
            await self._request("initialize", params, 0)
            started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            async for _ in self._post(started, **self._headers("", {})):
                pass
            await self._request("logging/setLevel", {"level": "debug"}, next(self._ids))
        names: list[str] = []
        for _ in range(LISTINGS):  # a list does not wait long for a process that starts
            listed = await self._request("tools/list", {}, next(self._ids))
            names = sorted(tool["name"] for tool in listed["tools"])
            if len(names) == len(SERVERS):
                break
        if names != [f"{server}__work" for server in sorted(SERVERS)]:
            self.figures.failures.append(f"tools are {names}")

    async def call(self, server: str) -> None:
        """One call, with its rounds."""
        number = next(self._ids)
        ask = self.revision in ELICITS
        params: dict[str, Any] = {
            "name": f"{server}__work",
            "arguments": {"canary": self.canary, "number": number, "lines": self.lines, "ask": ask},
        }
        self.figures.calls[f"to {server}"] += 1
        self._running.add(number)
        try:
            async with asyncio.timeout(WAIT_S):
                result = await self._request("tools/call", params, number)
                for _ in range(10):
                    if result.get("resultType") != "input_required":
                        break
                    self.state = params, result["requestState"]
                    given = {
                        key: self._answer(one["params"])
                        for key, one in result["inputRequests"].items()
                    }
                    again = {"inputResponses": given, "requestState": result["requestState"]}
                    result = await self._request("tools/call", params | again, number)
            (block,) = result["content"]
            said = f"{self.canary} answer {number}" if ask else "nothing"
            known = self.canary if server != "new" else ""
            expected = f"{self.canary} result {number}: {said}; {known}"
            if not self.remembers and server == "pipe":
                expected = expected.removesuffix(self.canary)
            if block["text"] != expected:
                self.figures.failures.append(f"{server}: {block['text']!r} is not {expected!r}")
        except (LookupError, ValueError, OSError, TimeoutError, EOFError) as error:
            words = f"{self.revision} {server} {number}: {type(error).__name__} {error}"
            self.figures.failures.append(words)
        finally:
            self._running.discard(number)

    remembers = True
    lines = 5

    async def cancel_another(self) -> None:
        """Cancel a request that this client has not sent: its id is one that others use now."""
        if self.revision == NEW:
            return
        free = [number for number in range(1, 60) if number not in self._running]
        params = {"requestId": random.choice(free), "reason": self.canary}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        async for _ in self._post(message, **self._headers("", {})):
            pass
        self.figures.calls["cancellations of others"] += 1

    async def intrude(self, other: "IsolationClient") -> None:
        """Use the session, or a state, of another client."""
        if other.session and self.revision != NEW:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers = self._headers("", {}) | {"mcp_session_id": other.session}
            try:
                async for _ in self._post(ping, **headers):
                    pass
            except LookupError as error:
                if error.args[0] == 404:
                    self.figures.refused["sessions of others"] += 1
                    return
            self.figures.failures.append("the session of another was not refused")
        elif other.state is not None and self.revision == NEW:
            params, state = other.state
            number = next(self._ids)
            try:
                await self._request("tools/call", params | {"requestState": state}, number)
            except LookupError as error:
                self.figures.refused["states of others"] += 1
                refusal = error.args[-1]
                if isinstance(refusal, bytes):
                    refusal = json.loads(refusal)["error"]
                self.figures.refusals.add(json.dumps(refusal).encode())
                return
            self.figures.failures.append("the state of another was not refused")

    async def close(self) -> None:
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    async def end_session(self) -> None:
        """End the session, as a client does that needs it no longer."""
        if not self.session:
            return
        try:
            async for _ in self._post(None, "DELETE", **self._headers("", {})):
                pass
        except (LookupError, OSError, EOFError) as error:
            words = f"{self.revision} DELETE: {type(error).__name__} {error}"
            self.figures.failures.append(words)
        await self.close()


# ---------------------------------------------------------------- processes


class ProcessFigures(NamedTuple):
    """Of a process: the memory, now and at most, and the time on a processor."""

    mib: float
    peak_mib: float
    cpu_s: float


def figures_of(pid: int) -> ProcessFigures:
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = {
        name: int(value.split()[0]) / 1024
        for name, _, value in (line.partition(":") for line in status.splitlines())
        if name in ("VmRSS", "VmHWM")
    }
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return ProcessFigures(sizes["VmRSS"], sizes["VmHWM"], cpu_s)


@asynccontextmanager
async def running(
    *command: str, ends_with_stdin: bool, **options: Any
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process that is ended afterwards: by the end of its stdin, or by a signal."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, **options
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            if not ends_with_stdin and process.returncode is None:
                process.terminate()
        await process.wait()


async def first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        return (await process.stdout.readline()).decode().strip()


def describe_memory(measured: dict[str, Any]) -> str:
    """What a gateway says of its memory, for people."""
    words = (
        f"{measured['resident_mib']:.0f} MiB, {measured['trimmed_mib']:.0f} once free memory is "
    )
    words += f"given back, {measured['objects']:,} objects, {measured['tasks']} tasks"
    return words + (f", {measured['live_mib']:.1f} MiB live" if "live_mib" in measured else "")


async def measured(process: asyncio.subprocess.Process, output: Path) -> dict[str, Any]:
    """What a gateway says of its memory now."""
    before = len(output.read_text().splitlines()) if output.exists() else 0
    process.send_signal(signal.SIGUSR1)
    async with asyncio.timeout(WAIT_S):
        while True:
            lines = output.read_text().splitlines(keepends=True) if output.exists() else []
            if len(lines) > before and lines[-1].endswith("\n"):
                return json.loads(lines[-1])
            await asyncio.sleep(0.05)


def write_config(folder: Path, options: Options, ports: dict[str, str], issuer: str) -> Path:
    """The configuration of the gateway, as an operator writes it."""
    command = [str(PROGRAM), "stdio", str(folder), *(["pooled"] if options.pooled else [])]
    sharing = 'sharing = "pooled"' if options.pooled else 'sharing = "caller"'
    connections = f"max_sessions = {options.connections}" if options.connections else ""
    idle = f"[defaults]\nidle_s = {options.idle:g}" if options.idle else ""
    auth = f'[gateway.auth]\nissuer = "{issuer}"\n' if issuer else ""
    # A program of this clone needs to find the package; nothing else is passed on to it.
    path = json.dumps(os.pathsep.join(sys.path))
    text = f"""
[gateway]
wait_s = 20
url = "{AUDIENCE}"
store = "sqlite:{folder / "store.db"}"
keys = ["${{env:{KEY}}}"]

{auth}
[audit]
path = "{folder / "audit"}"
heads = "{folder / "heads.db"}"

[[policy]]
action = "allow"

{idle}

[servers.pipe]
command = {json.dumps(sys.executable)}
args = {json.dumps(command)}
revision = "2025-11-25"
{sharing}
max_sessions = {options.processes}

[servers.pipe.env]
PYTHONPATH = {path}

[servers.old]
url = "http://127.0.0.1:{ports["old"]}/mcp"
revision = "2025-11-25"
{connections}

[servers.new]
url = "http://127.0.0.1:{ports["new"]}/mcp"
revision = "2026-07-28"
"""
    file = folder / "colonnade.toml"
    file.write_text(text)
    return file


# ---------------------------------------------------------------- the run


async def run(options: Options, folder: Path, say: Any = None) -> Figures:
    """Run all of it; the figures say whether it was good."""
    figures = Figures()
    began = time.monotonic()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    async with AsyncExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        issuer = await stack.enter_async_context(issuing())
        key = issuer.signing_keys[0]
        tokens = [
            key.sign(issuer.claims(AUDIENCE, sub=f"user{number}", exp=int(time.time()) + 7200))
            for number in range(options.principals * min(options.rounds, 2))
        ]
        (folder / "tokens.txt").write_text("\n".join(tokens))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment["COLONNADE_HOME"] = str(folder / "home")
        ports: dict[str, str] = {}
        for kind in ("old", "new"):
            command = (sys.executable, str(PROGRAM), kind, str(folder))
            process = await stack.enter_async_context(
                running(*command, ends_with_stdin=True, env=environment)
            )
            ports[kind] = await first_line(process)
        file = write_config(folder, options, ports, "" if options.unauthenticated else issuer.url)
        trust = ("-m", "colonnade", "config", "trust", str(file), "--yes")
        trusting = await asyncio.create_subprocess_exec(
            sys.executable, *trust, env=environment, stderr=asyncio.subprocess.PIPE
        )
        _, words = await trusting.communicate()
        assert trusting.returncode == 0, words.decode()
        log = stack.enter_context((folder / "gateway.log").open("wb"))
        # What the gateway itself knows must not reach a server, nor a client.
        secret = {"ISOLATION_OPERATOR": f"cnry{secrets.token_hex(8)}"}
        memory = folder / "memory.jsonl"
        command = (sys.executable, str(MEASURED), str(memory), "gateway", str(file), "--port", "0")
        command = (*command, "--log-level", "debug")
        if options.trace:
            environment["PYTHONTRACEMALLOC"] = "1"
        if options.idle:
            environment["MEASURED_IDLE_S"] = f"{options.idle / 2:g}"
        environment |= secret | {KEY: base64.b64encode(secrets.token_bytes(32)).decode()}
        process = await stack.enter_async_context(
            running(*command, ends_with_stdin=False, env=environment, stderr=log)
        )
        line = await first_line(process)
        served = re.search(r":(\d+)/mcp", line)
        if served is None:
            log.flush()
            raise RuntimeError((folder / "gateway.log").read_text())
        port = int(served[1])
        figures.memory_mib["before"] = figures_of(process.pid).mib
        figures.measured["before"] = await measured(process, memory)
        for number in range(options.rounds):
            # The principals of the first rounds come again; those of the last are others.
            others = number > 0 and number == options.rounds - 1
            first = options.principals if others else 0
            own = tokens[first : first + options.principals]
            clients = make_clients(options, figures, port, own)
            wanted = options.messages * (number + 1) // options.rounds
            await drive(options._replace(messages=wanted), figures, clients, process.pid, say)
            words = f"round {number + 1}" + (", others" if others else "")
            figures.measured[words] = await measured(process, memory)
            if number == options.rounds - 1:
                measure_end(figures, process.pid)
            for client in clients:
                await client.end_session()
            figures.measured[f"{words}, ended"] = await measured(process, memory)
        seconds = time.monotonic() - began
        figures.facts["time"] = f"{seconds:.0f} s, {figures.total / seconds:,.0f} messages/s"
        figures.memory_mib["sessions ended"] = figures_of(process.pid).mib
        if options.idle:
            await asyncio.sleep(3 * options.idle)
            figures.measured["idle"] = await measured(process, memory)
        stops_at = time.monotonic()
        process.terminate()
        code = await process.wait()
        if code:
            figures.failures.append(f"the gateway ended with exit code {code}")
        figures.facts["end"] = f"exit code {code} after {time.monotonic() - stops_at:.1f} s"
    search_files(folder, figures)
    return figures


def make_clients(
    options: Options, figures: Figures, port: int, tokens: list[str]
) -> list[IsolationClient]:
    revisions = SESSIONS if options.unauthenticated else (*SESSIONS, NEW)
    clients: list[IsolationClient] = []
    for number, token in enumerate(tokens):
        revision = revisions[number % len(revisions)]
        given = "" if options.unauthenticated else token
        clients.append(IsolationClient(figures, port, revision, given))
        if revision != NEW and number % 10 == 0:
            # Another session of the same principal is another client.
            clients.append(IsolationClient(figures, port, revision, given))
    for client in clients:
        client.remembers = not options.pooled
        client.lines = options.lines
    return clients


async def drive(
    options: Options, figures: Figures, clients: list[IsolationClient], pid: int, say: Any
) -> None:
    """Let the clients call until there were enough messages; each is visited at least once."""
    left = list(clients)
    # Those that were visited, the longest ago first; a client is visited once at a time.
    visited: deque[IsolationClient] = deque()
    visits = 0
    ends_at = time.monotonic() + options.seconds

    async def visit(client: IsolationClient, *, first: bool) -> None:
        others = random.sample(clients, 3)
        try:
            if first:
                await client.open()
                await asyncio.gather(*(client.call("pipe") for _ in range(CALLS)))
            await asyncio.gather(
                *(client.call(("old", "new")[number % 2]) for number in range(2 * CALLS)),
                client.cancel_another(),
            )
            for other in others:
                if other is not client and other._token != client._token:
                    await client.intrude(other)
        except (LookupError, OSError, EOFError, ValueError) as error:
            figures.failures.append(f"{client.revision}: {type(error).__name__} {error}")
        finally:
            if len(clients) > 100:
                await client.close()

    async def worker() -> None:
        nonlocal visits
        while (left or figures.total < options.messages) and time.monotonic() < ends_at:
            first = bool(left)
            client = left.pop() if left else visited.popleft()
            visits += 1
            await visit(client, first=first)
            visited.append(client)
            if say is not None and visits % 100 == 0:
                now = figures_of(pid)
                say(
                    f"{visits} visits, {figures.total:,} messages, {now.mib:.0f} MiB, "
                    f"{now.cpu_s:.0f} s, foreign {len(figures.foreign)}, "
                    f"failed {len(figures.failures)}"
                )

    await asyncio.gather(*(worker() for _ in range(min(options.at_once, len(clients)))))
    seen = len(clients) - len(left)
    figures.facts["clients"] = f"{seen:,} of {options.principals:,} principals, {visits:,} visits"
    if left or figures.total < options.messages:
        figures.failures.append(f"it was not done after {options.seconds:g} s")
    for client in clients:
        await client.close()


def measure_end(figures: Figures, pid: int) -> None:
    now = figures_of(pid)
    figures.memory_mib |= {"peak": now.peak_mib, "after": now.mib}
    figures.facts["processor"] = f"{now.cpu_s:.0f} s of the gateway"


def search_files(folder: Path, figures: Figures) -> None:
    """Search what the gateway has written, and read what the servers have found."""
    findings = Findings(folder)
    found = folder / "findings.txt"
    if found.exists():
        figures.foreign += found.read_text().splitlines()
    received = (folder / "received.txt").read_text().split()
    figures.facts["servers"] = (
        f"{sum(map(int, received)):,} bytes received by {len(received)} processes"
    )
    searched = 0
    files = [folder / "gateway.log", *folder.glob("store.db*"), *folder.glob("heads.db*")]
    files += [path for path in (folder / "audit").rglob("*") if path.is_file()]
    for path in files:
        with path.open("rb") as file:
            tail = b""
            while data := file.read(2**20):
                searched += len(data)
                if findings.has_token(tail + data):
                    figures.foreign.append(f"an inbound token is in {path.name}")
                tail = data[-TAIL:]
    figures.facts["files"] = f"{searched:,} bytes of log, audit log and store searched"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/isolation")
    parser.add_argument("--principals", type=int, default=Options().principals)
    parser.add_argument("--messages", type=int, default=Options().messages)
    parser.add_argument("--at-once", type=int, default=Options().at_once)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--lines", type=int, default=Options().lines)
    parser.add_argument("--seconds", type=float, default=Options().seconds)
    parser.add_argument("--rounds", type=int, default=Options().rounds)
    parser.add_argument("--idle", type=float, default=Options().idle)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--keep-memory", type=Path)
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--unauthenticated", action="store_true")
    given = vars(parser.parse_args())
    given["processes"] = given["processes"] or given["at_once"]
    kept = given.pop("keep_memory")

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(run(Options(**given), Path(folder), say))
    print("\n".join(figures.lines()))
    if kept is not None:
        kept.write_text(json.dumps(figures.measured, indent=1))
    sys.exit(0 if figures.is_good else 1)


if __name__ == "__main__":
    main()
