"""A gateway between a client and a server in this process, with both wires recorded.

    async with recorded(server, upstream="2025-11-25", downstream="2026-07-28") as cell:
        result = await cell.client.call_tool("s__book")
        assert cell.server_saw("elicitation/create")
        cell.check()

Rules: every frame on both wires can be checked against the closed official schema of its revision.
"""

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import official
from colonnade import Gateway, Host, Server
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.gateway.held_calls import HeldLimits
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.host.policy.approvals.inbox import Inbox
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.request import Approver
from colonnade.host.policy.rules.rules import Policy
from colonnade.ports import Store
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ChangeNotifications, Revision, Revisions
from colonnade.server.registry import PAGE_SIZE
from colonnade.transport.memory import End, connected_pair, serve_end
from official_lines import complaints
from script_runner import Message

INFO = t.Implementation(name="test client", version="1")
OLD, NEW = "2025-11-25", "2026-07-28"


def revision_of(date: str) -> Revision:
    (found,) = Revisions.of(date)
    return found


# The place of each frame in the order of all wires.
_PLACES = itertools.count()


class RecordedWire:
    """The frames of one connection, by their sender; `places` is the order over all wires."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.frames: list[tuple[Side, Any]] = []
        self.places: list[int] = []

    def add(self, side: Side, frame: bytes) -> None:
        self.frames.append((side, json.loads(frame)))
        self.places.append(next(_PLACES))

    def said(self, side: Side, method: str) -> list[Any]:
        """The params of the requests and notifications of one side."""
        return [
            frame.get("params", {})
            for sender, frame in self.frames
            if sender is side and frame.get("method") == method
        ]

    def results(self, side: Side) -> list[Any]:
        return [
            frame["result"] for sender, frame in self.frames if sender is side and "result" in frame
        ]

    def errors(self, side: Side) -> list[Any]:
        return [
            frame["error"] for sender, frame in self.frames if sender is side and "error" in frame
        ]

    def subscriptions(self) -> list[Any]:
        """What the client listens to: the acknowledged filters of open subscriptions."""
        open_: dict[Any, Any] = {}
        for _, frame in self.frames:
            params = frame.get("params", {})
            match frame.get("method"):
                case "notifications/subscriptions/acknowledged":
                    meta = params["_meta"]
                    open_[meta[t.SUBSCRIPTION_ID_KEY]] = params["notifications"]
                case "notifications/cancelled":
                    open_.pop(params["requestId"], None)
                case None:
                    open_.pop(frame["id"], None)
                case _:
                    pass
        return list(open_.values())

    def check(self) -> None:
        """Every frame is one that the closed schema of the revision allows."""
        if not official.available():
            return
        asked: dict[tuple[Side, Any], str] = {}
        for side, frame in self.frames:
            if "method" in frame and "id" in frame:
                asked[side, frame["id"]] = frame["method"]
        for side, frame in self.frames:
            other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
            answers = None if "method" in frame else asked.get((other, frame.get("id")))
            if answers == "server/discover" and "error" in frame:
                continue  # a probe, to a server that is of no revision yet
            message = Message(side, frame, self.revision, answers)
            assert complaints(message) == [], (self.revision.date, side, frame)


class Cell:
    """A gateway, its client, and what was said on both sides of it."""

    def __init__(self, gateway: Gateway, host: Host, downstream: str, upstream: str) -> None:
        self.gateway = gateway
        self.host = host
        self.downstream = revision_of(downstream)
        self.upstream = revision_of(upstream)
        self.front: list[RecordedWire] = []
        self.back: list[RecordedWire] = []
        self.ends: list[End] = []
        self.entries: dict[str, ServerEntry] = {}
        self.stack: AsyncExitStack = AsyncExitStack()

    async def connect(
        self,
        answers: InputCallbacks | None = None,
        *,
        revision: str | None = None,
        principal: str = "",
        session: str | None = None,
        tasks: bool = False,
        **options: Any,
    ) -> Client:
        """Another client of the gateway; `session` is the id of its session, as over HTTP."""
        wire = RecordedWire(revision_of(revision) if revision else self.downstream)
        self.front.append(wire)
        near, far = connected_pair(wire.add)
        duplex = serve_end(far, self.gateway, principal=principal)
        if session is not None:
            duplex.id = session
        client = Client(near.open_conversation, answers, info=INFO, tasks=tasks, **options)
        await client.open(wire.revision)
        self.stack.push_async_callback(client.close)
        return client

    @property
    def client_wire(self) -> RecordedWire:
        return self.front[0]

    @property
    def server_wire(self) -> RecordedWire:
        """The wire of the server that the last session was opened on."""
        return self.back[-1]

    def listens(self) -> bool:
        """Whether the server notifies the gateway of changes of its tools: it was asked to, or
        always does."""
        if self.upstream.change_notifications is ChangeNotifications.SESSION:
            return bool(self.server_wire.said(Side.CLIENT, "notifications/initialized"))
        return any(one.get("toolsListChanged") for one in self.server_wire.subscriptions())

    def follows(self, uri: str) -> bool:
        """Whether the server notifies the gateway of updates of a resource."""
        wire = self.server_wire
        if self.upstream.change_notifications is ChangeNotifications.SESSION:
            begun = wire.said(Side.CLIENT, "resources/subscribe").count({"uri": uri})
            return begun > wire.said(Side.CLIENT, "resources/unsubscribe").count({"uri": uri})
        return any(uri in one.get("resourceSubscriptions", ()) for one in wire.subscriptions())

    def check(self) -> None:
        for wire in (*self.front, *self.back):
            wire.check()


@asynccontextmanager
async def recorded(
    server: Server,
    *,
    upstream: str,
    downstream: str,
    limits: HeldLimits | None = None,
    clock: Callable[[], float] | None = None,
    store: Store | None = None,
    keys: Iterable[bytes] = (),
    policy: Policy | None = None,
    page_size: int = PAGE_SIZE,
    inbox: Inbox | Approver | None = None,
    audit: AuditLog | None = None,
    **settings: Any,
) -> AsyncGenerator[Cell]:
    """A gateway in front of one server, `s`; the settings are those of the server."""
    cells: list[Cell] = []

    async def resolve() -> End:
        (cell,) = cells
        wire = RecordedWire(cell.upstream)
        cell.back.append(wire)
        near, far = connected_pair(wire.add)
        cell.ends.append(far)
        serve_end(far, server)
        return near

    given = Settings(revision=upstream, **settings)
    entry = ServerEntry(key="s", resolve=resolve, fingerprint="s", settings=given)
    made = Host({"s": entry}, policy=policy, inbox=inbox, audit=audit)
    async with server_started(server), made as host:
        gateway = Gateway(host, store=store, keys=keys, page_size=page_size)
        if limits is not None:
            gateway._bridge.held.limits = limits
        if clock is not None:
            gateway._bridge._clock = gateway._bridge.held.clock = clock
        cell = Cell(gateway, host, downstream, upstream)
        cell.entries = {"s": entry}
        cells.append(cell)
        await gateway.start()
        try:
            async with cell.stack:
                yield cell
        finally:
            await gateway.stop()


@asynccontextmanager
async def server_started(server: Server) -> AsyncGenerator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop()
