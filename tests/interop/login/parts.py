"""The parts of a login: a provider, two processes with a proxy, browsers, and clients of each SDK.

    client --- relay or nginx --- two processes of our_server.py, one store --- provider
    browser -----/                                                                /
       \\-------------------------------------------------------------------------/

The provider is a strict replica without registration. Its access tokens live for a minute, and a
refresh token is used once.

Rules: real processes and sockets. Nothing of an SDK is imported here. What the parts send to each
other is kept and looked at: a token of the provider goes to no client, a token of ours to no provider,
and a token of one client to no other.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import parse_qsl, urlsplit

from auth.provider_replicas import CLIENT_ID, CLIENT_SECRET, Json, OktaReplica
from auth.proxied import Browser, send_http
from auth.upstream import UpstreamReplica, query_of
from interop.peers import installed
from interop.third_party_servers import node
from relay import Relay, RelayedProcesses
from scripted_http_server import ReceivedRequest, ScriptedHttpServer

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "our_server.py"
LIFE_S = 60
# A command of a client takes milliseconds; this ends one that hangs, on the slowest machine.
COMMAND_S = 120.0
USERS = ("ann", "bob")
# 401 if a token has expired, and 503 if the provider does not respond.
USUAL = frozenset({"200", "201", "202", "303", "401", "503"})
# What may be a token; those of all parts have more signs.
_WORD = re.compile(r"[A-Za-z0-9._~-]{16,}")


class LoginProvider(OktaReplica):
    """The provider. A browser says by its cookie who its user is; every token is remembered."""

    def __init__(self, server: ScriptedHttpServer) -> None:
        super().__init__(server)
        self.life_s = LIFE_S
        self.counts: Counter[str] = Counter()
        self.issued: set[str] = set()

    @property
    def authorizations(self) -> int:
        return self.counts["authorizations"]

    def route(
        self, request: ReceivedRequest, path: str, form: dict[str, str], asked: dict[str, str]
    ) -> bytes:
        if path == self.base_path + self.authorize_path:
            self.counts["authorizations"] += 1
            self.user = request.headers["cookie"].removeprefix("user=")
        return super().route(request, path, form, asked)

    def access_token(self, user: str, scope: str) -> Json:
        found = super().access_token(user, scope)
        self.issued.add(found["access_token"])
        return found

    def refresh_token(self, user: str, scope: str) -> str:
        token = super().refresh_token(user, scope)
        self.issued.add(token)
        return token

    def id_token(self, user: str, **more: Any) -> str:
        token = super().id_token(user, **more)
        self.issued.add(token)
        return token

    def refreshed(self, token: str) -> Json:
        found = super().refreshed(token)
        self.counts["refreshes"] += 1
        return found

    def dead_refresh_token(self) -> Any:
        self.counts["refused refreshes"] += 1
        return super().dead_refresh_token()

    def revoke_grants(self, user: str) -> None:
        """As if a user had removed the application."""
        self.refreshes = {one: of for one, of in self.refreshes.items() if of[0] != user}
        self.access = {one: of for one, of in self.access.items() if of[0] != user}


class LiveBrowser(Browser):
    """The browser of one user, who has logged in at the provider and allows each client."""

    def __init__(self, origin: str, provider: str, user: str) -> None:
        super().__init__(send_http, UpstreamReplica(""), origin)
        self.provider = provider
        self.user = user

    async def authorize(self, url: str, user: str = "", decision: str = "approve") -> str:
        """Follow an authorization URL; the URL of the client's callback."""
        reply = await self.get(url)
        for _ in range(6):
            if reply.form:
                assert reply.status == 200
                reply = await self.decide(reply, decision)
                continue
            target = reply.next_url
            if target.startswith(self.provider + "/"):
                reply = await send_http("GET", target, {"cookie": f"user={self.user}"}, b"")
            elif target.startswith(self.origin + "/"):
                reply = await self.get(target)
            else:
                assert target, f"{reply.status}: {reply.text}"
                return target
        raise AssertionError("the login goes around in circles")


# ---------------------------------------------------------------- what is sent


class Traffic:
    """What passed the relay: counts for each client, and tokens that went to the wrong place."""

    def __init__(self, provider: LoginProvider) -> None:
        self.provider = provider
        self.counts: Counter[str] = Counter()
        # The client that each of our tokens was issued to.
        self.owners: dict[str, str] = {}
        self.authorizations: Counter[str] = Counter()
        self.refreshes: Counter[str] = Counter()
        self.problems: list[str] = []
        # Responses with a status that no login and no call should have, and why a client logged in.
        self.unusual: list[str] = []
        self._refusals: dict[str, str] = {}

    def note(self, line: str, headers: dict[str, str], body: bytes, response: bytes) -> None:
        """Look at one request and its response."""
        target = urlsplit(line.split()[1])
        head, _, content = response.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1].decode() if head else "none"
        words = set(_WORD.findall(response.decode("latin-1")))
        if found := words & self.provider.issued:
            self.problems.append(f"{line}: {len(found)} tokens of the provider were sent")
        if found := words & self.owners.keys():
            self.problems.append(f"{line}: {len(found)} tokens were sent again")
        if target.path.endswith("/oauth/authorize"):
            client = dict(parse_qsl(target.query))["client_id"]
            self.authorizations[client] += 1
            if client in self._refusals:
                self.unusual.append(f"a login after {self._refusals[client]}")
        elif target.path.endswith("/oauth/token"):
            self._note_tokens(dict(parse_qsl(body.decode())), status, content)
        elif target.path.endswith("/mcp") and status == "200":
            self._note_answer(line, headers, content)
        elif status == "401" and (token := headers.get("authorization", "").partition(" ")[2]):
            why = re.search(r'error_description="([^"]*)"', head.decode("latin-1"))
            self._refusals[self.owners.get(token, "")] = f"{line}: 401 {why[1] if why else ''}"
        kind = target.path.rpartition("/")[2] if "/oauth/" in target.path else "mcp"
        self.counts[f"{kind} {status}"] += 1
        if status not in USUAL:
            self.unusual.append(f"{line}: {status} {content[:160].decode('latin-1')}")

    def _note_tokens(self, form: dict[str, str], status: str, content: bytes) -> None:
        client = form.get("client_id", "")
        self.refreshes[client] += form["grant_type"] == "refresh_token" and status == "200"
        if status == "200":
            tokens = json.loads(content)
            for name in ("access_token", "refresh_token"):
                self.owners[tokens[name]] = client

    def _note_answer(self, line: str, headers: dict[str, str], content: bytes) -> None:
        token = headers.get("authorization", "").partition(" ")[2]
        named = re.search(rb'\\"client\\": \\"([^\\]+)\\"', content)
        if named is not None and self.owners.get(token) not in ("", named[1].decode()):
            self.problems.append(f"{line}: the response names another client than its token")

    def misplaced(self) -> list[str]:
        """Tokens that were sent to the wrong place."""
        found = list(self.problems)
        for request in self.provider.server.received:
            text = f"{request.path} {request.headers} {request.body.decode('latin-1')}"
            if set(_WORD.findall(text)) & self.owners.keys():
                found.append(f"{request.method} {request.path}: the provider got a token of ours")
        return found


# ---------------------------------------------------------------- our processes


@dataclass(frozen=True)
class Address:
    """Where clients find the server; with a prefix, that something in front removes or keeps."""

    origin: str
    prefix: str = ""
    path: str = "/mcp"

    @property
    def issuer(self) -> str:
        return self.origin + self.prefix

    @property
    def url(self) -> str:
        return f"{self.issuer}/mcp"


class ProxyProcesses(RelayedProcesses):
    """Two processes of our_server.py, and a relay in front of them; `address` if it is not that of
    the relay."""

    def __init__(
        self,
        provider: LoginProvider,
        clock: Path,
        store: str,
        log: IO[bytes],
        address: Address | None = None,
    ) -> None:
        super().__init__(PROGRAM, count=2, log=log, environment=dict(os.environ))
        self.provider = provider
        self.clock = clock
        self.store = store
        self._address = address

    @property
    def address(self) -> Address:
        return self._address or Address(self.relay.url)

    async def __aenter__(self) -> Self:
        # The processes have to know the address.
        self.relay = await Relay([]).__aenter__()
        try:
            for _ in range(self.count):
                self.relay.ports.append(await self._start(0))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def arguments_of_next(self) -> list[str]:
        address = self.address
        spec = {
            "resource": address.url,
            "issuer": address.issuer,
            "path": address.path,
            "provider": self.provider.issuer,
            "client": [CLIENT_ID, CLIENT_SECRET],
            "store": self.store,
            "clock": str(self.clock),
        }
        return [json.dumps(spec)]


# ---------------------------------------------------------------- clients


@dataclass(frozen=True)
class LoginClient:
    """A client implementation that logs in."""

    name: str
    program: str
    era: str
    package: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def command(self, url: str, clock: Path, folder: Path) -> list[str]:
        given = {"url": url, "era": self.era, "clock": str(clock), "folder": str(folder)}
        spec = json.dumps(given)
        if not self.package:
            return [sys.executable, "-W", "error", str(HERE / self.program), spec]
        home = installed(self.package, self.version)
        if self.program.endswith(".mjs"):
            return [node(), str(HERE / self.program), str(home), spec]
        return [str(home / "bin" / "python"), "-I", str(HERE / self.program), spec]


OURS = LoginClient("Colonnade", "client_ours.py", "2026-07-28")
MCP_2 = LoginClient("Python mcp", "client_mcp.py", "2026-07-28", "mcp", "2.3.0")
MCP_1 = LoginClient("Python mcp", "client_mcp.py", "2025-11-25", "mcp", "1.30.0")
TYPESCRIPT_2 = LoginClient(
    *("TypeScript client", "client_typescript.mjs", "2026-07-28"),
    *("@modelcontextprotocol/client", "2.4.0"),
)
TYPESCRIPT_1 = LoginClient(
    *("TypeScript sdk", "client_typescript.mjs", "2025-11-25"),
    *("@modelcontextprotocol/sdk", "1.32.2"),
)
CLIENTS = (OURS, MCP_2, MCP_1, TYPESCRIPT_2, TYPESCRIPT_1)


class ClientFailed(Exception):
    """A command of a client failed; the message is what the client printed."""


@dataclass
class ClientProcess:
    """A client of one user, as a process, and the user's browser."""

    client: LoginClient
    browser: LiveBrowser
    process: asyncio.subprocess.Process
    client_id: str = ""
    logins: int = 0
    calls: int = 0
    pids: set[int] = field(default_factory=set[int])

    def __str__(self) -> str:
        return f"{self.client}, {self.user}"

    @property
    def user(self) -> str:
        return self.browser.user

    async def do(self, what: str, calls: int = 1) -> Any:
        """The result of a command; the user logs in if a page is opened. Raises `ClientFailed`."""
        async with asyncio.timeout(COMMAND_S):
            await self._send({"do": what, "calls": calls})
            while True:
                said = await self._read()
                if "done" in said:
                    return said["done"]
                if "failed" in said:
                    raise ClientFailed(f"{self}, {what}: {said['failed']}")
                await self._log_in(said["open"], listens=said.get("listens", False))

    async def call(self, calls: int = 1) -> None:
        """Call the tool, and see that each response is for this user and this client."""
        found = await self.do("call", calls)
        assert len(found) == calls
        for said in map(json.loads, found):
            self.calls += 1
            self.pids.add(said["pid"])
            assert said["user"] == f"sub-{self.user}", f"{self}: {said}"
            assert said["client"] == self.client_id, f"{self}: {said}"

    async def _log_in(self, url: str, *, listens: bool) -> None:
        self.logins += 1
        self.client_id = query_of(url)["client_id"]
        back = await self.browser.authorize(url)
        if listens:
            reply = await send_http("GET", back, {}, b"")
            assert reply.status == 200, reply.text
        else:
            await self._send({"callback": back})

    async def _send(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        await self.process.stdin.drain()

    async def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise ClientFailed(f"{self} ended with {await self.process.wait()}")
        return json.loads(line)


@contextlib.asynccontextmanager
async def client_process(
    client: LoginClient,
    browser: LiveBrowser,
    processes: ProxyProcesses,
    folder: Path,
) -> AsyncGenerator[ClientProcess]:
    """A client that runs, and is not connected yet."""
    command = client.command(processes.address.url, processes.clock, folder)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=processes.log, limit=2**20
    )
    try:
        yield ClientProcess(client, browser, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()
