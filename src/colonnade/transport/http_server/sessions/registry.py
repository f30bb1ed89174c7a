"""All sessions of one application, by `Mcp-Session-Id`: open, find, expire; delete with 2025-11-25.

Rules: a session belongs to one principal, and does not exist for any other. The number of sessions,
their age and what is kept of them is bounded; when there are too many, the least recently used one
ends, never one with a connected client.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Final

import msgspec

from colonnade.ports import Service
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Network
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import Headers
from colonnade.protocol.jsonrpc import Request, encode_result
from colonnade.protocol.link.events import Send
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer, callers_of, negotiate
from colonnade.protocol.revision import Revisions
from colonnade.transport.http_server.request import IncomingRequest, Limits, RequestReaper, overload
from colonnade.transport.http_server.sessions.session import (
    HttpSession,
    SessionResources,
    respond_at_once,
)

# A session without a second request by then was abandoned after initialize.
FIRST_USE_S = 60.0
# Most clients send their second request by then; until then a new session is not evicted.
SECOND_REQUEST_S = 1.0
# How often all sessions are checked for those that have expired.
CHECK_SESSIONS_S = 15.0
# 192 bits: it cannot be guessed (R0283).
ID_BYTES = 24


class SessionRegistry:
    """All sessions of one application."""

    def __init__(self, service: Service, limits: Limits, reaper: RequestReaper) -> None:
        self.shared: SessionResources = SessionResources(service, limits, self._shrink)
        self._service = service
        self._limits = limits
        self._next_check = 0.0
        # The least recently used come first.
        self._by_id: OrderedDict[str, HttpSession] = OrderedDict()
        # Those that were opened and never used: a flood of `initialize` makes only these.
        self._unused: dict[str, HttpSession] = {}
        reaper.call_periodically(self._tick)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._by_id.values()))

    def named(self, headers: Headers, principal: str) -> HttpSession | None:
        """The session of the header. Raises 400 for what cannot be a session id."""
        session = self._by_id.get(headers[b"mcp-session-id"].decode("latin-1"))
        if session is None:
            return self.find(rules.session_id(headers), principal)
        return self._used(session, principal)

    def find(self, id: str | None, principal: str) -> HttpSession | None:
        """The session with this id, if it belongs to this principal; to find it keeps it alive."""
        session = self._by_id.get(id) if id is not None else None
        return self._used(session, principal) if session is not None else None

    async def restore(self, id: str | None, principal: str) -> HttpSession | None:
        """The session with this id that is not here, or not as it is now. Raises `Fault`."""
        return None

    def _used(self, session: HttpSession, principal: str) -> HttpSession | None:
        if session.link.principal != principal:
            return None
        now = self.shared.clock()
        if now - session.created > self._limits.max_session_age_s:
            self.end(session, "the session has reached its maximum age; send initialize again")
            return None
        session.used = now
        self._unused.pop(session.id, None)
        self._by_id.move_to_end(session.id)
        return session

    async def open(self, incoming: IncomingRequest, request: Request) -> None:
        """Respond to `initialize` and open a session. Raises `Fault`, and then none was opened."""
        accepts = self._service.accepts
        params = decode_as(t.InitializeRequestParams, request.params)
        negotiate(params.protocol_version, accepts)
        self._make_room(incoming.principal)
        identity = self._service.identity.for_callers(callers_of(incoming.principal))
        link = DuplexLink(Side.SERVER, identity, accepts, incoming.principal)
        id = secrets.token_urlsafe(ID_BYTES)
        network = watch_link(link, self._service, incoming, id)
        events = link.take(request, self.shared.clock())
        session = self._by_id[id] = self._unused[id] = await self._create(id, link)
        if network is not None and self._service.telemetry is not None:
            revision = session.peer.revision
            session.on_ended = self._service.telemetry.session_opened(revision, network)
        responses = [event.data for event in events if isinstance(event, Send)]
        await respond_at_once(incoming, responses, rules.OK, [(b"mcp-session-id", id.encode())])

    async def _create(self, id: str, link: DuplexLink) -> HttpSession:
        """A new session. Raises `Fault` if it cannot be kept."""
        return HttpSession(id, link, self.shared)

    async def delete(self, session: HttpSession) -> None:
        """End a session that its client needs no longer. Raises `Fault`."""
        self.end(session, "the client ended the session")

    def end(self, session: HttpSession, why: str) -> None:
        """End a session; its id is never valid again (R0287)."""
        self._unused.pop(session.id, None)
        if self._by_id.pop(session.id, None) is not None:
            session.close(why)

    # ------------------------------------------------------------ limits

    def _make_room(self, principal: str) -> None:
        """If there are too many sessions, end the least recently used one without a client."""
        limits = self._limits
        if principal:
            mine = [s for s in self._by_id.values() if s.link.principal == principal]
            if len(mine) >= limits.max_sessions_per_principal:
                self._evict(mine)
        if len(self._by_id) >= limits.max_sessions:
            self._evict(self._least_used())

    def _least_used(self) -> Iterator[HttpSession]:
        """The order of eviction: those that were opened and never used, then by last use."""
        young = self.shared.clock() - SECOND_REQUEST_S
        yield from takewhile(lambda session: session.created < young, self._unused.values())
        yield from (s for s in self._by_id.values() if s.id not in self._unused)
        yield from self._unused.values()

    def _evict(self, sessions: Iterable[HttpSession]) -> None:
        idle = next((session for session in sessions if not session.busy), None)
        if idle is None:
            raise overload("too many sessions; end one that is no longer needed")
        self.end(idle, "evicted by a newer session")

    def _shrink(self) -> None:
        """Too many events are kept: drop those of the least recently used sessions."""
        for session in self._by_id.values():
            if self.shared.ledger.size <= self._limits.max_resumable_bytes:
                return
            session.shrink(0)

    # ------------------------------------------------------------ timeouts and shutdown

    def _tick(self, now: float) -> bool:
        for session in list(self.shared.waiting_sessions):
            session.tick(now)
        if now >= self._next_check:
            self._next_check = now + CHECK_SESSIONS_S
            for session in self:
                self.check(session, now)
        return bool(self._by_id)

    def check(self, session: HttpSession, now: float) -> None:
        """Forget streams that were not resumed in time; end a session that has been idle."""
        session.shrink(self._limits.max_resumable_bytes_per_session, now)
        if not session.busy:
            unused = now - session.used
            never = session.id in self._unused and unused > FIRST_USE_S
            if never or unused > self._limits.session_idle_timeout_s:
                self.end(session, "the session was idle for too long")

    def drain(self) -> None:
        """Disconnect clients that only wait for notifications."""
        for session in self:
            session.drain()

    def close(self, why: str) -> None:
        """End all of them."""
        for session in self:
            self.end(session, why)


def watch_link(
    link: DuplexLink, service: Service, incoming: IncomingRequest, session_id: str = ""
) -> Network | None:
    """Record what a link answers itself; returns the connection, None without telemetry."""
    if service.telemetry is None:
        return None
    network = incoming.network_in(session_id)
    link.on_answered = partial(service.telemetry.answered, network)
    return network


# ---------------------------------------------------------------- stateless


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
    callers = callers_of(incoming.principal)
    identity = without_session(service.identity.for_callers(callers))
    link = DuplexLink(Side.SERVER, identity, service.accepts, incoming.principal)
    watch_link(link, service, incoming)
    events = link.take(request, 0.0)
    responses = [event.data for event in events if isinstance(event, Send)]
    await respond_at_once(incoming, responses, rules.OK)


async def answer_ping(
    incoming: IncomingRequest, request: Request, peer: Peer, service: Service
) -> None:
    """Respond to `ping`, as the link of a session does."""
    if service.telemetry is not None:
        service.telemetry.answered(incoming.network_in(""), request, peer, None)
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
