"""URL elicitations of one session that callers were sent, and the notification of completion.

In one revision a URL elicitation has an id, and the server says when it is complete; in others it
has none, and the server finds out when the call is repeated. A caller of that revision gets an id
in any case, and the notification: from the server, or when the server has gone on without asking
for the URL again.

Rules: the id that a caller gets begins with the key of the server, so that those of two servers
differ. A notification goes to the client that was sent the elicitation, and to no other.
"""

import secrets
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from colonnade.client.request import ELICITATION_COMPLETE
from colonnade.errors import FaultKind, RemoteError
from colonnade.ports import RequestContext, Session
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode_notification
from colonnade.protocol.negotiation import Peer

# URL elicitations of one session that may still become complete; the oldest are forgotten.
MAX_ASKED = 100
# 64 bits: ids need to differ, and give no access to anything.
ID_BYTES = 8


class AskedUrl(NamedTuple):
    """A URL elicitation that a caller was sent: the id that the caller knows, and the request."""

    id: str
    url: str
    exchange: Exchange
    session: Session | None

    @property
    def frame(self) -> bytes:
        """The notification that it is complete."""
        params = t.ElicitationCompleteNotificationParams(elicitation_id=self.id)
        return encode_notification(ELICITATION_COMPLETE, self.exchange.encoder.params(params))


def url_of_request(request: InputRequest) -> str | None:
    """The URL of a URL elicitation; None for any other input request."""
    params = request.params
    return params.url if isinstance(params, t.ElicitRequestParams) and request.is_url else None


class SessionUrlElicitations:
    """The URL elicitations of the session of one server, by the id that the server gave them, or
    that they were given here."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.asked: OrderedDict[str, AskedUrl] = OrderedDict()

    def prepare(self, request: InputRequest, context: RequestContext) -> InputRequest:
        """A request as it is sent to a caller: with an id, if its revision has one."""
        params, url = request.params, url_of_request(request)
        if url is None or not isinstance(params, t.ElicitRequestParams):
            return request
        if not _has_ids(context):
            return request
        own_id = params.elicitation_id or self._earlier_id(url, context)
        id = self._add(own_id or secrets.token_hex(ID_BYTES), url, context)
        return InputRequest(replace(params, elicitation_id=id))

    def forget(self, request: InputRequest) -> None:
        """Forget one that was declined, as it was sent."""
        params = request.params
        if isinstance(params, t.ElicitRequestParams) and params.elicitation_id is not None:
            self.asked.pop(params.elicitation_id.removeprefix(f"{self._server}/"), None)

    def pass_on(self, error: RemoteError, server: Peer, context: RequestContext) -> None:
        """Give the URL elicitations that an error requires the ids that a caller gets."""
        rules = server.revision
        if (
            not rules.elicitation.url_required_error
            or error.code != rules.codes[FaultKind.URL_ELICITATION_REQUIRED]
            or not _has_ids(context)
        ):
            return
        given: object = error.data
        data = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        found: Any = data.get("elicitations")
        if isinstance(found, list):
            changed = [self._passed_on(one, context) for one in cast("list[Any]", found)]
            error.data = data | {"elicitations": changed}

    def _passed_on(self, elicitation: Any, context: RequestContext) -> Any:
        if not isinstance(elicitation, dict):
            return elicitation
        members = cast("dict[str, Any]", elicitation)
        id, url = members.get("elicitationId"), members.get("url")
        if not isinstance(id, str) or not isinstance(url, str):
            return members
        return members | {"elicitationId": self._add(id, url, context)}

    def _add(self, own_id: str, url: str, context: RequestContext) -> str:
        id = f"{self._server}/{own_id}"
        self.asked[own_id] = AskedUrl(id, url, context.exchange, context.session)
        if len(self.asked) > MAX_ASKED:
            self.asked.popitem(last=False)
        return id

    def _earlier_id(self, url: str, context: RequestContext) -> str | None:
        """The id of the same URL in an earlier round of this call."""
        for own_id, asked in self.asked.items():
            if asked.exchange is context.exchange and asked.url == url:
                return own_id
        return None

    # ------------------------------------------------------------ complete

    def complete(self, own_id: str) -> AskedUrl | None:
        """The elicitation that the server says is complete, by the id that it gave it; None if it
        was sent to no caller, or is complete already."""
        return self.asked.pop(own_id, None)

    def completed(self, context: RequestContext, asked_again: Collection[str]) -> list[bytes]:
        """The notifications for the elicitations of a call that its server has gone on after."""
        done = [
            own_id
            for own_id, asked in self.asked.items()
            if asked.exchange is context.exchange and asked.url not in asked_again
        ]
        return [self.asked.pop(own_id).frame for own_id in done]


def _has_ids(context: RequestContext) -> bool:
    return context.exchange.peer.revision.elicitation.url_required_error
