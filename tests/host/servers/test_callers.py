"""The key of a caller is made of its own principal and session, whichever request came before."""

import gc
from typing import Any
from weakref import ref

from colonnade.host.config.settings import Settings
from colonnade.host.router import LocalRequestContext, local_exchange
from colonnade.host.servers.callers import CallerKey, CallerKeys
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequestKind
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

ANY: Any = None


class NamedSession:
    """A session that is no more than its id; a connection has none."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        self.peer: Peer | None = None


class SessionRequestContext(LocalRequestContext):
    """A request in a session."""

    within: Any = None

    @property
    def session(self) -> Session | None:
        return self.within


def test_callers_that_share_a_client_have_keys_of_their_own() -> None:
    keys = CallerKeys(frozenset(InputRequestKind), Settings())
    # Clients that declare the same share this.
    peer = Peer(NEWEST, t.ClientCapabilities(elicitation=t.ElicitationCapability(form={})))

    def key_of(principal: str, session: NamedSession | None) -> CallerKey:
        exchange = local_exchange("tools/list", t.PaginatedRequestParams(), peer, principal)
        request = SessionRequestContext(exchange, ANY)
        request.within = session
        return keys.key_of(request)

    one, other, pipe = NamedSession("1"), NamedSession("2"), NamedSession()
    callers = [("anna", None), ("ben", None), ("ben", one), ("ben", other), ("anna", other)]
    callers += [("anna", pipe), ("anna", NamedSession())]
    seen = set[CallerKey]()
    for principal, session in [*callers, *callers]:
        key = key_of(principal, session)
        assert key.principal == principal
        assert key.session == ((session.id or session) if session is not None else None)
        assert key.input.form
        again = key_of(principal, session)
        assert again == key
        if session is None or session.id:
            assert again is key  # as the request before it
        seen.add(key)
    assert len(seen) == len(callers)


def test_a_connection_that_has_ended_is_not_kept_by_its_key() -> None:
    keys = CallerKeys(frozenset(InputRequestKind), Settings())
    peer, pipe = Peer(NEWEST, t.ClientCapabilities()), NamedSession()
    pipe.peer = peer
    request = SessionRequestContext(
        local_exchange("tools/list", t.PaginatedRequestParams(), peer, "anna"), ANY
    )
    request.within = pipe
    assert keys.key_of(request).session is pipe
    living = ref(pipe)
    del peer, pipe, request
    gc.collect()
    assert living() is None
