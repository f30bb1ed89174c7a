"""Two links in memory, for tests: what one sends, the other receives.

Rules: no loop, no clock. The lines that a stranger might send are written by hand here; what
our own sides send is written by `colonnade.protocol` alone.
"""

import json
from collections import deque
from typing import Any

import msgspec

from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.link.events import LinkEvent, RequestReceived, Send
from colonnade.protocol.link.link import DuplexLink, sends
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import ALL, Revision, Revisions

JSON = dict[str, Any]

READER = t.Implementation(name="reader", version="1.0")
LIBRARY = t.Implementation(name="library", version="2.0")

ABLE_CLIENT = t.ClientCapabilities(
    roots=t.RootsCapability(list_changed=True),
    sampling=t.SamplingCapability(tools={}, context={}),
    elicitation=t.ElicitationCapability(form={}, url={}),
    tasks=t.ClientTasksCapability(listing={}, cancel={}),
    extensions={t.TASKS_EXTENSION_ID: {}},
)
ABLE_SERVER = t.ServerCapabilities(
    logging={},
    completions={},
    prompts=t.PromptsCapability(list_changed=True),
    resources=t.ResourcesCapability(list_changed=True, subscribe=True),
    tools=t.ToolsCapability(list_changed=True),
    tasks=t.ServerTasksCapability(listing={}, cancel={}),
    extensions={t.TASKS_EXTENSION_ID: {}},
)


# ---------------------------------------------------------------- the sides


def only(revision: Revision) -> Revisions:
    """A side that speaks nothing else."""
    return Revisions([revision])


def client_of(
    revision: Revision, can: t.ClientCapabilities = ABLE_CLIENT, accepts: Revisions | None = None
) -> DuplexLink:
    """A client before its first word."""
    return DuplexLink(Side.CLIENT, Identity(READER, can), accepts or only(revision))


def server_of(
    revision: Revision, can: t.ServerCapabilities = ABLE_SERVER, accepts: Revisions | None = None
) -> DuplexLink:
    """A server that has heard nothing yet."""
    return DuplexLink(Side.SERVER, Identity(LIBRARY, can), accepts or only(revision))


def open_both(client: DuplexLink, server: DuplexLink) -> tuple[list[LinkEvent], list[LinkEvent]]:
    """Open the conversation, and let every line arrive; what each side learned."""
    if not client.accepts.handshakes:
        theirs = server.identity.capabilities
        client.adopt(Peer(client.accepts.enveloped[0], theirs, server.identity.info))
        return [], []
    return deliver(client, server, from_client=[client.initialize(0.0).data])


def opened(
    revision: Revision,
    client_can: t.ClientCapabilities = ABLE_CLIENT,
    server_can: t.ServerCapabilities = ABLE_SERVER,
) -> tuple[DuplexLink, DuplexLink]:
    """Both sides, ready."""
    client, server = client_of(revision, client_can), server_of(revision, server_can)
    open_both(client, server)
    return client, server


def deliver(
    client: DuplexLink,
    server: DuplexLink,
    from_client: list[bytes] | None = None,
    from_server: list[bytes] | None = None,
    now: float = 0.0,
) -> tuple[list[LinkEvent], list[LinkEvent]]:
    """Carry lines to and fro until both are silent; what the client and the server learned."""
    learned: dict[Side, list[LinkEvent]] = {Side.CLIENT: [], Side.SERVER: []}
    lines = deque[tuple[DuplexLink, bytes]]()
    lines.extend((server, data) for data in from_client or ())
    lines.extend((client, data) for data in from_server or ())
    while lines:
        link, data = lines.popleft()
        events = link.receive(data, now)
        other = server if link is client else client
        lines.extend((other, line) for line in sends(events))
        learned[link.side] += [event for event in events if not isinstance(event, Send)]
    return learned[Side.CLIENT], learned[Side.SERVER]


def call(server: DuplexLink, data: bytes) -> Exchange:
    """What a server makes of a request that it serves."""
    (event,) = server.receive(data, 0.0)
    assert isinstance(event, RequestReceived), event
    return event.exchange


# ---------------------------------------------------------------- lines of strangers


def line(**members: Any) -> bytes:
    """A message as anybody might write it."""
    return json.dumps({"jsonrpc": "2.0"} | members).encode()


def envelope(revision: Revision, can: JSON | None = None, **more: Any) -> JSON:
    """What a request says of its sender, where it must."""
    if revision.handshake:
        return dict(more)
    return {
        t.PROTOCOL_VERSION_KEY: revision.date,
        t.CLIENT_CAPABILITIES_KEY: can or {},
        **more,
    }


def request(
    revision: Revision,
    id: Any,
    method: str,
    params: JSON | None = None,
    can: JSON | None = None,
    **meta: Any,
) -> bytes:
    """A request of a stranger at this revision."""
    said = envelope(revision, can, **meta)
    whole = (params or {}) | ({"_meta": said} if said else {})
    return line(id=id, method=method, **({"params": whole} if whole else {}))


def initialize(date: str, id: Any = 0, can: JSON | None = None) -> bytes:
    """The first word of a stranger."""
    info = {"name": "stranger", "version": "0"}
    params = {"protocolVersion": date, "capabilities": can or {}, "clientInfo": info}
    return line(id=id, method="initialize", params=params)


INITIALIZED = line(method="notifications/initialized")


def served(
    revision: Revision,
    can: JSON | None = None,
    accepts: Revisions | None = None,
    server_can: t.ServerCapabilities = ABLE_SERVER,
) -> DuplexLink:
    """A server that a stranger has opened a conversation with, as far as that is needed."""
    server = server_of(revision, server_can, accepts)
    if revision.handshake:
        server.receive(initialize(revision.date, can=can), 0.0)
        server.receive(INITIALIZED, 0.0)
    return server


def decoded(data: bytes | None) -> Any:
    """A line of ours, read by somebody else."""
    assert data is not None
    return json.loads(data)


def sent_messages(events: list[LinkEvent]) -> list[Any]:
    """All that a link answered."""
    return [decoded(data) for data in sends(events)]


def refusal(events: list[LinkEvent]) -> JSON:
    """The one error that a link answered with."""
    (answer,) = sent_messages(events)
    return answer["error"]


def state(link: DuplexLink) -> Any:
    """All that a link would remember."""
    running = [exchange.request.id for exchange in link._incoming]
    levels = [exchange.peer.log_level for exchange in link._incoming]
    batches = len(link._incoming._waiting), link._incoming.batch is not None
    return msgspec.json.encode(link.snapshot()), running, levels, batches


def earlier(revision: Revision) -> tuple[Revision, ...]:
    """This one and all before it."""
    return ALL[: ALL.index(revision) + 1]
