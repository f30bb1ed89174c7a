"""Replicas that run requests for each other: a server in each, and the context of a caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from colonnade import Context, Server
from colonnade.errors import Fault
from colonnade.middleware import rate_limit
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import Request, encode, split_params
from colonnade.protocol.negotiation import Callers, Peer
from colonnade.protocol.revision import EVERY, Revision
from colonnade.replicas.remote_request import RemoteRequests
from colonnade.replicas.replica import Replica
from replicas.shared_store import ReplicaFixture

NOVEMBER_2025 = next(revision for revision in EVERY if revision.date == "2025-11-25")
JULY_2026 = next(revision for revision in EVERY if revision.date == "2026-07-28")

CAPABILITIES = t.ClientCapabilities(
    elicitation=t.ElicitationCapability(form={}), sampling=t.SamplingCapability()
)

Answer = Callable[[InputRequest], Awaitable[Raw]]


class CallerContext(NonHttpRequestFields):
    """A request as it arrived at the caller, with all that is sent to its client."""

    def __init__(
        self,
        server: Server,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        revision: Revision = NOVEMBER_2025,
        answer: Answer | None = None,
        method: str = "tools/call",
        params: Mapping[str, Any] | None = None,
        principal: str = "ada",
        scopes: frozenset[str] | None = None,
        claims: Mapping[str, Any] | None = None,
    ) -> None:
        if params is None:
            params = {
                "name": tool,
                "arguments": dict(arguments or {}),
                "_meta": {"progressToken": "p"},
            }
        raw = Raw(encode(params))
        peer = Peer(
            revision,
            CAPABILITIES,
            t.Implementation(name="test", version="1"),
            "debug" if revision is JULY_2026 else None,
        )
        row = revision.method(method)
        assert row is not None
        self.exchange = Exchange(
            Request("id-7", method, raw, b'"id-7"'),
            split_params(raw),
            row,
            peer,
            server.identity.encoder(revision),
            principal,
            scopes=scopes,
        )
        self.fault: Fault | None = None
        self.frames: list[dict[str, Any]] = []
        self.asked: list[InputRequest] = []
        self.hang_ups = 0
        self.ready = asyncio.Event()
        self.ready.set()
        self._answer = answer
        self._claims = claims or {}

    @property
    def session(self) -> None:
        return None

    @property
    def claims(self) -> Mapping[str, Any]:
        return self._claims

    @property
    def callers(self) -> Callers:
        return Callers.AUTHENTICATED

    async def send(self, frame: bytes) -> None:
        await self.ready.wait()
        self.frames.append(msgspec.json.decode(frame))

    def post(self, frame: bytes) -> bool:
        return False

    async def ask(self, input_request: InputRequest) -> Raw:
        self.asked.append(input_request)
        assert self._answer is not None
        return await self._answer(input_request)

    async def hang_up(self) -> None:
        self.hang_ups += 1

    @property
    def progress(self) -> list[float]:
        """The progress that the client was sent."""
        return [
            frame["params"]["progress"]
            for frame in self.frames
            if frame["method"] == "notifications/progress"
        ]


class RemoteReplica:
    """A replica with a server whose tools say what they do, and its requests for others."""

    def __init__(
        self,
        replica: Replica,
        clock: Callable[[], float],
        on_effect: Callable[[str], None] | None = None,
    ) -> None:
        self.replica = replica
        self.effects: list[str] = []
        self._on_effect = on_effect or self.effects.append
        self.running = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = 0
        self.server = self._server()
        self.remote = RemoteRequests(replica, self.server, clock=clock)

    def _server(self) -> Server:
        server = Server("remote", middleware=[rate_limit(1000)])

        @server.tool
        async def echo(text: str, ctx: Context) -> str:
            self._on_effect(text)
            return f"{text} for {ctx.principal} at {ctx.revision}"

        @server.tool
        async def count(to: int, ctx: Context) -> int:
            for number in range(1, to + 1):
                await ctx.progress(number, to)
            return to

        @server.tool
        async def hold(ctx: Context, aloud: bool = False) -> str:
            self.running.set()
            if aloud:
                await ctx.progress(1)
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            self._on_effect("held")
            return "held"

        @server.tool
        async def book(ctx: Context) -> str:
            seat = await ctx.elicit("Which seat?", str)
            self._on_effect(seat)
            return f"booked {seat}"

        @server.tool
        async def impatient(ctx: Context) -> str:
            try:
                async with asyncio.timeout(1.0):
                    return await ctx.elicit("Quick?", str)
            except TimeoutError:
                return "too late"

        @server.tool
        async def large(size: int) -> str:
            return "x" * size

        @server.tool
        async def about(ctx: Context) -> dict[str, Any]:
            await ctx.hang_up()
            return {
                "claims": ctx.claims,
                "principal": ctx.principal,
                "client": ctx.client.name if ctx.client else None,
                "headers": dict(ctx.headers),
            }

        _ = (echo, count, hold, book, impatient, large, about)
        return server


async def remote_replicas(replicas: ReplicaFixture, number: int) -> list[RemoteReplica]:
    """Replicas that are started."""
    return [RemoteReplica(await replicas.started(), replicas.clock.time) for _ in range(number)]


def outcome(response: bytes | None) -> Any:
    """The structured or plain result of a call, or its error."""
    assert response is not None
    message = msgspec.json.decode(response)
    assert message["id"] == "id-7"
    if "error" in message:
        return message["error"]
    result = message["result"]
    return result["content"][0]["text"] if result.get("content") else result
