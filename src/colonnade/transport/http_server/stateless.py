"""Stateless mode: the handshake revisions without sessions, so that any process serves any POST.

`HttpApp(stateless=True)` issues no `Mcp-Session-Id`. `initialize` gets its response, and nothing is
kept of it; later requests are handled in the revision of their `MCP-Protocol-Version` header, as
those of a client that declared no capabilities. Not offered is what outlives a request:
server-to-client requests (elicitation, sampling, roots), subscriptions, the GET stream,
`list_changed`, log messages, resumption, batches. 2026-07-28 loses nothing by it.

Rules: no state is kept between requests.
"""

from typing import Final

import msgspec

from colonnade.ports import Service
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http import rules
from colonnade.protocol.jsonrpc import Request, encode_result
from colonnade.protocol.link.events import Send
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer, negotiate
from colonnade.protocol.revision import Revisions
from colonnade.transport.http_server.request import IncomingRequest
from colonnade.transport.http_server.session import respond_at_once

NO_BATCHES: Final = "this server keeps no sessions, and takes no batches; post each message alone"


def peers_without_session(accepts: Revisions) -> dict[bytes | None, Peer]:
    """The peer of a request, by its version header; None is a request without one (D6)."""
    peers: dict[bytes | None, Peer] = {
        revision.date.encode(): Peer(revision, t.ClientCapabilities())
        for revision in accepts.handshakes
    }
    for revision in accepts:
        if revision.http.sessions and not revision.http.version_header:
            peers[None] = peers[revision.date.encode()]
    return peers


async def answer_initialize(incoming: IncomingRequest, request: Request, service: Service) -> None:
    """Respond to `initialize`, and keep nothing of it. Raises `Fault`."""
    params = decode_as(t.InitializeRequestParams, request.params)
    negotiate(params.protocol_version, service.accepts)
    identity = without_session(service.identity)
    link = DuplexLink(Side.SERVER, identity, service.accepts, incoming.principal)
    events = link.take(request, 0.0)
    responses = [event.data for event in events if isinstance(event, Send)]
    await respond_at_once(incoming, responses, rules.OK)


async def answer_ping(incoming: IncomingRequest, request: Request) -> None:
    """Respond to `ping`, as the link of a session does."""
    await respond_at_once(incoming, [encode_result(request.raw_id, b"{}")], rules.OK)


def without_session(identity: Identity) -> Identity:
    """The identity of the server, without the capabilities that need a session."""
    offered = identity.capabilities
    assert isinstance(offered, t.ServerCapabilities)
    capabilities = msgspec.structs.replace(
        offered,
        tools=t.ToolsCapability() if offered.tools is not None else None,
        prompts=t.PromptsCapability() if offered.prompts is not None else None,
        resources=t.ResourcesCapability() if offered.resources is not None else None,
        logging=None,
    )
    return msgspec.structs.replace(identity, capabilities=capabilities)
