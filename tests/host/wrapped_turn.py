"""Middleware that passes on a turn of its own, as one does that adds something to a request."""

from colonnade import Handler, RequestContext
from colonnade.errors import Fault
from colonnade.ports import Session, Wire
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, RequestFields


class WrappedTurn(RequestFields):
    """What middleware passes on that adds something to a turn: its members, and no more."""

    def __init__(self, turn: RequestContext) -> None:
        self._turn = turn
        self.exchange: Exchange = turn.exchange
        self.fault: Fault | None = None

    @property
    def wire(self) -> Wire:
        return self._turn.wire

    @property
    def session(self) -> Session | None:
        return self._turn.session


async def wrapping(turn: RequestContext, handler: Handler) -> t.ProtocolType:
    return await handler(WrappedTurn(turn))
