"""Middleware that passes on another `RequestContext`, as one does that adds something to a request."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from colonnade import Handler, RequestContext
from colonnade.errors import Fault
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, RequestFields
from colonnade.protocol.http.security import Headers
from colonnade.protocol.input_requests import InputRequest


class WrappedRequest(RequestFields):
    """A request with the members of the protocol, and no more."""

    def __init__(self, request: RequestContext) -> None:
        self._inner = request
        self.exchange: Exchange = request.exchange
        self.fault: Fault | None = None

    @property
    def claims(self) -> Mapping[str, Any]:
        return self._inner.claims

    @property
    def headers(self) -> Headers:
        return self._inner.headers

    @property
    def session(self) -> Session | None:
        return self._inner.session

    async def send(self, frame: bytes) -> None:
        await self._inner.send(frame)

    def post(self, frame: bytes) -> bool:
        return self._inner.post(frame)

    async def ask(self, input_request: InputRequest) -> Raw:
        return await self._inner.ask(input_request)

    async def hang_up(self) -> None:
        await self._inner.hang_up()


async def wrapping(request: RequestContext, handler: Handler) -> t.ProtocolType:
    return await handler(WrappedRequest(request))
