"""Every session of one application: found by name, opened, ended; delete with 2025-11-25.

Rules: a session is its principal's alone, and to anybody else it does not exist. How many there
are, how long they live and what is kept of them is bounded; where no place is free, the least
used makes room, never one that somebody is connected to.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import takewhile

from colonnade.ports import Service
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import Headers
from colonnade.protocol.jsonrpc import Request
from colonnade.protocol.link.events import Send
from colonnade.protocol.link.link import Link
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import negotiate
from colonnade.transport.http_server.request import Limits, Sweep, Visit, overload
from colonnade.transport.http_server.session import Session, Shared, answer_at_once

# Who says nothing at all after initialize was never there.
FIRST_USE_S = 60.0
# A client that is there says its second word by then; until then its place is not given away.
SECOND_WORD_S = 1.0
# How often all sessions are looked at, for those that nobody uses any more.
LOOK_S = 15.0
# 192 bits: nobody guesses one (R0283).
ID_BYTES = 24


class Sessions:
    """Every session of one application."""

    def __init__(self, service: Service, limits: Limits, sweep: Sweep) -> None:
        self.shared: Shared = Shared(service, limits, self._shrink)
        self._service = service
        self._limits = limits
        self._next_look = 0.0
        # The least recently used come first.
        self._by_id: OrderedDict[str, Session] = OrderedDict()
        # Those that were opened and never used: who floods us has only these.
        self._unused: dict[str, Session] = {}
        sweep.chore(self._tick)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def named(self, headers: Headers, principal: str) -> Session | None:
        """The session that a request names. Raises 400 for what cannot be the name of one."""
        session = self._by_id.get(headers[b"mcp-session-id"].decode("latin-1"))
        if session is None:
            return self.find(rules.session_id(headers), principal)
        return self._used(session, principal)

    def find(self, id: str | None, principal: str) -> Session | None:
        """The session of this name, if it is this principal's; being asked for keeps it alive."""
        session = self._by_id.get(id) if id is not None else None
        return self._used(session, principal) if session is not None else None

    def _used(self, session: Session, principal: str) -> Session | None:
        if session.link.principal != principal:
            return None
        now = self.shared.clock()
        if now - session.created > self._limits.max_session_age_s:
            self.end(session, "the session has become too old; send initialize again")
            return None
        session.used = now
        self._unused.pop(session.id, None)
        self._by_id.move_to_end(session.id)
        return session

    async def open(self, visit: Visit, request: Request) -> None:
        """Answer `initialize`. Raises `Fault`, and then nothing was opened."""
        accepts = self._service.accepts
        params = decode_as(t.InitializeRequestParams, request.params)
        negotiate(params.protocol_version, accepts)
        self._make_room(visit.principal)
        link = Link(Side.SERVER, self._service.identity, accepts, visit.principal)
        events = link.take(request, self.shared.clock())
        id = secrets.token_urlsafe(ID_BYTES)
        self._by_id[id] = self._unused[id] = Session(id, link, self.shared)
        answers = [event.data for event in events if isinstance(event, Send)]
        await answer_at_once(visit, answers, rules.OK, [(b"mcp-session-id", id.encode())])

    def end(self, session: Session, why: str) -> None:
        """A session is over, and its name with it (R0287)."""
        self._unused.pop(session.id, None)
        if self._by_id.pop(session.id, None) is not None:
            session.close(why)

    # ------------------------------------------------------------ limits

    def _make_room(self, principal: str) -> None:
        """Where no place is free, the least used session ends that nobody is connected to."""
        limits = self._limits
        if principal:
            mine = [s for s in self._by_id.values() if s.link.principal == principal]
            if len(mine) >= limits.max_sessions_per_principal:
                self._evict(mine)
        if len(self._by_id) >= limits.max_sessions:
            self._evict(self._least_used())

    def _least_used(self) -> Iterator[Session]:
        """Whom to end first: those that were opened and left, then the least recently used."""
        young = self.shared.clock() - SECOND_WORD_S
        yield from takewhile(lambda session: session.created < young, self._unused.values())
        yield from (s for s in self._by_id.values() if s.id not in self._unused)
        yield from self._unused.values()

    def _evict(self, sessions: Iterable[Session]) -> None:
        idle = next((session for session in sessions if not session.busy), None)
        if idle is None:
            raise overload("too many sessions; end one that you no longer need")
        self.end(idle, "another session took its place")

    def _shrink(self) -> None:
        """Too much is kept for those who may come back: the least recently used lose theirs."""
        for session in self._by_id.values():
            if self.shared.ledger.size <= self._limits.max_resumable_bytes:
                return
            session.shrink(0)

    # ------------------------------------------------------------ time and end

    def _tick(self, now: float) -> bool:
        for session in list(self.shared.asking):
            session.tick(now)
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            for session in self:
                self.look_at(session, now)
        return bool(self._by_id)

    def look_at(self, session: Session, now: float) -> None:
        """Forget what nobody came back for; end a session that nobody uses."""
        session.shrink(self._limits.max_resumable_bytes_per_session, now)
        if not session.busy:
            unused = now - session.used
            never = session.id in self._unused and unused > FIRST_USE_S
            if never or unused > self._limits.session_idle_timeout_s:
                self.end(session, "the session was not used for too long")

    def drain(self) -> None:
        """Let those go who only wait for news."""
        for session in self:
            session.drain()

    def close(self, why: str) -> None:
        """End all of them."""
        for session in self:
            self.end(session, why)
