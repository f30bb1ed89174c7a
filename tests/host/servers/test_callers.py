"""The key of a caller is made of its own principal and session, whichever request came before."""

from typing import Any

from colonnade.host.config.settings import Settings
from colonnade.host.router import LocalRequestContext, local_exchange
from colonnade.host.servers.callers import CallerKey, CallerKeys
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequestKind
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

ANY: Any = None


class SessionRequestContext(LocalRequestContext):
    """A request in a session that is no more than its name."""

    named: Any = None

    @property
    def session(self) -> Session | None:
        return self.named


def test_callers_that_share_a_client_have_keys_of_their_own() -> None:
    keys = CallerKeys(frozenset(InputRequestKind), Settings())
    # Clients that declare the same share this.
    peer = Peer(NEWEST, t.ClientCapabilities(elicitation=t.ElicitationCapability(form={})))

    def key_of(principal: str, session: str | None) -> CallerKey:
        exchange = local_exchange("tools/list", t.PaginatedRequestParams(), peer, principal)
        request = SessionRequestContext(exchange, ANY)
        request.named = session
        return keys.key_of(request)

    callers = [("anna", None), ("ben", None), ("ben", "s1"), ("ben", "s2"), ("anna", "s2")]
    for principal, session in [*callers, *callers]:
        key = key_of(principal, session)
        assert (key.principal, key.session) == (principal, session)
        assert key.input.form
        assert key_of(principal, session) is key  # as the request before it
