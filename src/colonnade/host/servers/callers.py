"""Callers of one server: which sessions each may use, what the server may ask of it, and how often.

A caller is a principal, the session in which its client is connected, and the input requests that
the client can answer and the settings allow. A server that keeps state for a connection has
sessions for each of them; whether one of them may be used by another caller is decided here.

Rules: no I/O. A session is found by its key, however many there are. What the client of one caller
declared is never declared to a server for another.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import ReferenceType, ref

from msgspec import Struct

from colonnade.client.input_callbacks import SamplingRate
from colonnade.host.config.settings import ROOTS_OF_CALLER, Settings
from colonnade.ports import RequestContext
from colonnade.protocol.input_requests import (
    NO_INPUT,
    InputCapabilities,
    InputRequestKind,
)
from colonnade.protocol.negotiation import Peer


class KeyedSession(Hashable, Protocol):
    """A session as the index sees it. `key` is that of its caller, None for all; `had_calls` is
    whether it has served more than lists."""

    key: "CallerKey | None"
    had_calls: bool
    calls: dict[Any, None]

    @property
    def accepts_calls(self) -> bool: ...


K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=KeyedSession)

# Principals whose sampling requests are counted; the one that sampled longest ago is forgotten.
MAX_SAMPLING_PRINCIPALS = 10_000
# Clients whose capabilities are remembered.
MAX_KNOWN_PEERS = 1000


class CallerKey(NamedTuple):
    """A caller: its principal, the session of its client (its id, or the connection itself; None in
    revisions without sessions), and the input requests that a server may send to it."""

    principal: str
    session: Hashable = None
    input: InputCapabilities = NO_INPUT


NO_CALLER = CallerKey("")


class LastCaller(NamedTuple):
    """Who made the last call of a session, without the request, which has ended."""

    principal: str
    peer: Peer
    claims: Mapping[str, Any]


class KnownPeer(Struct):
    """The client of a caller, the input requests that reach it, and those that are declared to the
    server for it. `last` is the key that was made last: most requests have that of the one
    before."""

    peer: ReferenceType[Peer]
    asked: InputCapabilities
    declared: InputCapabilities
    last: CallerKey = NO_CALLER


class CallerKeys:
    """The keys of the callers of one server: `kinds` are the input requests that the host lets
    through, and the settings of the server may allow fewer."""

    def __init__(self, kinds: frozenset[InputRequestKind], settings: Settings) -> None:
        elicits = InputRequestKind.ELICIT in kinds and settings.elicitation
        samples = InputRequestKind.SAMPLE in kinds and settings.sampling
        roots = InputRequestKind.ROOTS in kinds and settings.roots == ROOTS_OF_CALLER
        self.allowed: InputCapabilities = NO_INPUT
        # Roots of the configuration are declared for every caller, and answered by the host.
        self._has_own_roots = False
        if settings.sharing != "shared":
            self._has_own_roots = bool(settings.roots) and settings.roots != ROOTS_OF_CALLER
            self.allowed = InputCapabilities(
                elicits, elicits, samples, samples, samples, roots, roots
            )
        # By the identity of the peer, for as long as that lives: all requests of a session have the
        # same, and so have those of a client that declares the same in each.
        self._known: dict[int, KnownPeer] = {}

    def key_of(self, request: RequestContext) -> CallerKey:
        """The caller of a request."""
        exchange, session, place = request.exchange, request.session, None
        if session is not None:
            # The id is the same in all replicas. A connection without one is kept in the key, so
            # that no later one can be taken for it.
            place = session.id or session
        known = self._known.get(id(exchange.peer)) or self._of(exchange.peer)
        key = known.last
        if (
            key.principal != exchange.principal
            or key.session != place
            or key.input is not known.declared
        ):
            key = known.last = CallerKey(exchange.principal, place, known.declared)
            if session is not None and place is session:
                known.last = NO_CALLER  # a connection has its peer: neither would ever go
        return key

    def _of(self, peer: Peer) -> KnownPeer:
        known = self._known.get(id(peer))
        if known is None:
            asked = InputCapabilities.of(peer).limited_to(self.allowed)
            declared = asked._replace(roots=True) if self._has_own_roots else asked
            if len(self._known) >= MAX_KNOWN_PEERS:
                self._known.clear()
            key, all_known = id(peer), self._known
            # Before the identity can be that of another one.
            living = ref(peer, lambda _: all_known.pop(key, None))
            known = self._known[key] = KnownPeer(living, asked, declared)
        return known

    def asked_of(self, request: RequestContext) -> InputCapabilities:
        """The input requests that reach the caller of a request."""
        return self._of(request.exchange.peer).asked


class SessionIndex(Generic[S]):
    """The open sessions of one server, by the key of their caller; those without one are for all
    callers."""

    def __init__(self) -> None:
        self._all: dict[S, None] = {}
        self._common: dict[S, None] = {}
        self._by_key: dict[CallerKey, dict[S, None]] = {}
        self._by_principal: dict[str, dict[S, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[S]:
        return iter(self._all)

    def __contains__(self, session: S) -> bool:
        return session in self._all

    def add(self, session: S) -> None:
        """Add a session under its key."""
        self._all[session] = None
        key = session.key
        if key is None:
            self._common[session] = None
        else:
            self._by_key.setdefault(key, {})[session] = None
            self._by_principal.setdefault(key.principal, {})[session] = None

    def remove(self, session: S) -> None:
        """Remove a session."""
        del self._all[session]
        key = session.key
        if key is None:
            del self._common[session]
            return
        _discard(self._by_key, key, session)
        _discard(self._by_principal, key.principal, session)

    def give(self, session: S, key: CallerKey) -> None:
        """Let another caller use a session, instead of the one that did."""
        if session.key != key:
            self.remove(session)
            session.key = key
            self.add(session)

    def common(self) -> S | None:
        """One that all callers use."""
        for session in self._common:
            if session.accepts_calls:
                return session
        return None

    def of(self, key: CallerKey) -> S | None:
        """One of a caller."""
        return _accepting(self._by_key.get(key, ()))

    def for_list(self, principal: str) -> S | None:
        """Any one of a principal: a list is read by the host, so nothing is asked about it."""
        return _accepting(self._by_principal.get(principal, ()))

    def unclaimed(self, key: CallerKey) -> S | None:
        """One of the same principal and capabilities that was opened to read lists, and has served
        no call."""
        for session in self._by_key.get(key._replace(session=None), ()):
            if session.accepts_calls and not session.had_calls:
                return session
        return None

    def idle(self, input: InputCapabilities | None) -> S | None:
        """One of any caller with these capabilities, or with any, that has no call: for a pool."""
        for session in self._all:
            key = session.key
            fits = key is not None and (input is None or key.input == input)
            if fits and session.accepts_calls and not session.calls:
                return session
        return None


def _accepting(sessions: Iterable[S]) -> S | None:
    for session in sessions:
        if session.accepts_calls:
            return session
    return None


def _discard(index: dict[K, dict[S, None]], key: K, session: S) -> None:
    sessions = index.get(key)
    if sessions is not None:
        sessions.pop(session, None)
        if not sessions:
            del index[key]


class SamplingRates:
    """How often a server samples, for each principal: each request costs that one money."""

    def __init__(self) -> None:
        self._rates: OrderedDict[str, SamplingRate] = OrderedDict()

    def check(self, principal: str, now: float) -> None:
        """Count a sampling request of a call of this principal. Raises `Fault`."""
        rate = self._rates.get(principal)
        if rate is None:
            rate = self._rates[principal] = SamplingRate()
            if len(self._rates) > MAX_SAMPLING_PRINCIPALS:
                self._rates.popitem(last=False)
        self._rates.move_to_end(principal)
        rate.check(now)
