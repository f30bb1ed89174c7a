"""Calls that this program makes itself, as turns: the same that a stranger's request is.

What wraps the host's handler (a policy, a log, a cache) sees no difference between the two.

Rules: nothing here decides; a turn only carries. What a program gave to hear of a call hears of
that call alone, in the order in which it was told.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.asking import OnLog, OnProgress
from colonnade.client.hearing import Hearing
from colonnade.errors import Fault
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, RequestFields
from colonnade.protocol.jsonrpc import NOTHING, Head, Notification, Request, decode, encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.reading import read
from colonnade.protocol.revision import NEWEST
from colonnade.protocol.shape import Shaper

if TYPE_CHECKING:  # most calls ask nothing
    from colonnade.host.questions import Desk
    from colonnade.protocol.questions import Question

# What a local call reports its progress under: each turn hears of itself alone.
TOKEN = 0
_RAW_ID = b"0"

_SHAPER = Shaper(NEWEST)
_members = msgspec.json.Decoder(dict[str, Raw])


class Wishes(NamedTuple):
    """What a local caller says beside the request: how long to wait, which server is meant where
    an address alone does not tell, and that a list is to be asked for anew. Whoever connects from
    elsewhere has none."""

    timeout_s: float | None = None
    server: str | None = None
    fresh: bool = False


NO_WISHES = Wishes()


class LocalTurn(RequestFields):
    """One call of this program, and the way back to it."""

    __slots__ = (
        "_desk",
        "_hearing",
        "_on_log",
        "_on_progress",
        "exchange",
        "fault",
    )

    def __init__(
        self,
        exchange: Exchange,
        desk: "Desk",
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._desk = desk
        self._on_progress = on_progress
        self._on_log = on_log
        self._hearing: Hearing | None = None

    @property
    def wire(self) -> "LocalTurn":
        """There is nothing between the two ends."""
        return self

    @property
    def session(self) -> Session | None:
        """Each call stands for itself."""
        return None

    def post(self, frame: bytes) -> bool:
        """Tell the caller of progress or of a log message."""
        told = decode(frame)
        assert isinstance(told, Notification)
        hearing = self._hearing = self._hearing or Hearing()
        if told.method == "notifications/progress" and self._on_progress is not None:
            news = read(t.ProgressNotificationParams, told.params)
            parts = news.progress, news.total, news.message
            hearing.tell(self._on_progress, *parts, size=len(frame))
        elif told.method == "notifications/message" and self._on_log is not None:
            said = read(t.LoggingMessageNotificationParams, told.params)
            hearing.tell(self._on_log, said, size=len(frame))
        return True

    async def caught_up(self) -> None:
        """Wait until the caller's handlers have seen all that was told, for a limited time."""
        if self._hearing is not None:
            await self._hearing.caught_up()

    async def send(self, frame: bytes) -> None:
        """The same."""
        self.post(frame)

    async def ask(self, question: "Question") -> Raw:
        """Ask the one who answers questions of servers here."""
        return await self._desk.ask(question)

    async def hang_up(self) -> None:
        """There is no connection."""


def local_exchange(method: str, params: t.RequestParams, peer: Peer, caller: str = "") -> Exchange:
    """A request of this program. Raises `LocalProtocolError` for what is no JSON."""
    meta = Raw(encode(params.meta)) if params.meta else NOTHING
    if type(params) is t.CallToolRequestParams:  # nearly all are
        head = Head(meta, params.name, None, params.arguments)
    else:
        head = Head(meta, getattr(params, "name", None), getattr(params, "uri", None))
    request = Request(0, method, Raw(encode(params)), _RAW_ID)
    return Exchange(request, head, NEWEST.methods[method], peer, _SHAPER, caller)


def passed_on(meta: Raw) -> dict[str, Any] | None:
    """What of a `_meta` goes on to the next one: not what belongs to this hop.

    Trace context passes, and what others put there; how the caller speaks and what it wants to be
    told under is between the two of us, and our own client says it anew.
    """
    if not meta:
        return None
    return _kept(_members.decode(meta)) or None


def passed_back(result: t.Noun) -> t.Noun:
    """A result without what its server said of itself: to whoever asked we are the server."""
    meta: dict[str, Any] | None = getattr(result, "meta", None)
    if not meta:
        return result
    kept = None if meta.keys() == _ITSELF else _kept(meta)
    if kept is not None and len(kept) == len(meta):
        return result
    return replace(result, meta=kept or None)


def _kept(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in meta.items() if key in _TRACE or not t.reserved_meta_key(key)
    }


# All that there is in most results.
_ITSELF = {t.SERVER_INFO_KEY}
_TRACE = frozenset({t.TRACEPARENT_KEY, t.TRACESTATE_KEY, t.BAGGAGE_KEY})
