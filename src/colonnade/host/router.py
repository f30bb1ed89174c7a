"""The one handler of a host: a request comes in, the server that it is for answers it.

Whoever calls, this program or a stranger who connected to it, comes through here, and so does
whatever is put around it: a policy, a log, a cache.

Rules: nothing is known here of where a turn comes from. A call takes the servers as they are when
it begins, and uses no others. Names are changed, and what in `_meta` belongs to one hop; nothing
else of a request or a result is.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.callback_queue import Hearing
from colonnade.client.request import OnLog, OnProgress
from colonnade.errors import (
    ChannelError,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
)
from colonnade.host.servers.generation import Hosted, Snapshot
from colonnade.host.servers.listings import Kind, Offer, Offers
from colonnade.ports import Session, Turn
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, RequestFields
from colonnade.protocol.jsonrpc import (
    NOTHING,
    Notification,
    Request,
    SplitParams,
    decode,
    encode,
    is_bare_call,
    refuse_duplicate_members,
)
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

if TYPE_CHECKING:  # most calls ask nothing
    from colonnade.host.input_requests import Desk
    from colonnade.protocol.input_requests import InputRequest

# What a local call reports its progress under: each turn hears of itself alone.
TOKEN = 0
_RAW_ID = b"0"

_SHAPER = Encoder(NEWEST)
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
            news = decode_as(t.ProgressNotificationParams, told.params)
            parts = news.progress, news.total, news.message
            hearing.tell(self._on_progress, *parts, size=len(frame))
        elif told.method == "notifications/message" and self._on_log is not None:
            said = decode_as(t.LoggingMessageNotificationParams, told.params)
            hearing.tell(self._on_log, said, size=len(frame))
        return True

    async def caught_up(self) -> None:
        """Wait until the caller's handlers have seen all that was told, for a limited time."""
        if self._hearing is not None:
            await self._hearing.caught_up()

    async def send(self, frame: bytes) -> None:
        """The same."""
        self.post(frame)

    async def ask(self, question: "InputRequest") -> Raw:
        """Ask the one who answers questions of servers here."""
        return await self._desk.ask(question)

    async def hang_up(self) -> None:
        """There is no connection."""


def local_exchange(method: str, params: t.RequestParams, peer: Peer, caller: str = "") -> Exchange:
    """A request of this program. Raises `LocalProtocolError` for what is no JSON."""
    meta = Raw(encode(params.meta)) if params.meta else NOTHING
    if type(params) is t.CallToolRequestParams:  # nearly all are
        head = SplitParams(meta, params.name, None, params.arguments)
    else:
        head = SplitParams(meta, getattr(params, "name", None), getattr(params, "uri", None))
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


def passed_back(result: t.ProtocolType) -> t.ProtocolType:
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


CALL = "tools/call"


class HostResult(NamedTuple):
    """A result, and where it comes from: the lists that a list was made of, or the server's list in
    which a tool was found, and the server's own name for it."""

    result: t.ProtocolType
    lists: Sequence[Offer[Any, Any]] = ()
    tool: tuple[Offers, str] | None = None


# What a caller in this program asks for beside the request; None for a client that connected.
Row: TypeAlias = Callable[[Turn, Wishes | None], Awaitable[HostResult]]


class Handling:
    """Answers requests with what the servers of the moment answer.

    `now` gives the snapshot that is in force; `wait_s` is how long whoever looks at everything
    waits for one server.
    """

    def __init__(self, now: Callable[[], Snapshot], wait_s: float) -> None:
        self._now = now
        self._wait_s = wait_s
        self._rows: dict[str, Row] = {
            CALL: self._call_tool,
            "tools/list": self._list_tools,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
        }

    async def handle(self, turn: Turn) -> t.ProtocolType:
        """The result of a request from a client that connected. Raises as `answer` does."""
        return (await self.answer(turn, None)).result

    def answer(self, turn: Turn, wishes: Wishes | None) -> Awaitable[HostResult]:
        """The result of a request, and where it comes from. Raises `Fault` for what cannot be
        answered, and whatever the server's own answer raises."""
        row = self._rows.get(turn.exchange.method.name)
        if row is None:
            words = f"there is no {turn.exchange.method.name} here"
            raise Fault(FaultKind.METHOD_NOT_FOUND, words)
        return row(turn, wishes)

    # ------------------------------------------------------------ lists

    async def _list_tools(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        lists = await self._gathered(turn, "tools", wishes)
        return HostResult(t.ListToolsResult(tools=_items(lists)), lists)

    async def _list_prompts(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        lists = await self._gathered(turn, "prompts", wishes)
        return HostResult(t.ListPromptsResult(prompts=_items(lists)), lists)

    async def _list_resources(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        lists = await self._gathered(turn, "resources", wishes)
        return HostResult(t.ListResourcesResult(resources=_items(lists)), lists)

    async def _list_templates(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        lists = await self._gathered(turn, "templates", wishes)
        found = _items(lists)
        return HostResult(t.ListResourceTemplatesResult(resource_templates=found), lists)

    async def _gathered(
        self, turn: Turn, kind: Kind, wishes: Wishes | None
    ) -> list[Offer[Any, Any]]:
        """All of it is one page: a cursor is nothing that we gave anybody."""
        if decode_as(t.PaginatedRequestParams, turn.exchange.request.params).cursor is not None:
            raise Fault(FaultKind.INVALID_PARAMS, "this cursor is not one of ours; begin anew")
        snapshot, caller = self._now(), turn.exchange.principal
        with _holding(snapshot):
            fresh = wishes is not None and wishes.fresh
            shelves = await snapshot.gather(kind, caller, self._wait_s, fresh=fresh)
        return [shelf.content for shelf in shelves.values() if shelf.content is not None]

    # ------------------------------------------------------------ calls

    async def _call_tool(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        head, request = turn.exchange.params, turn.exchange.request
        if wishes is not None:  # it was written in this program, a moment ago
            name, arguments = str(head.name), head.arguments
        elif is_bare_call(request, head):  # as nearly all are: they were split already
            refuse_duplicate_members(head.arguments)
            name, arguments = str(head.name), head.arguments
        else:
            params = decode_as(t.CallToolRequestParams, request.params)
            name, arguments = params.name, params.arguments
        snapshot, caller = self._now(), turn.exchange.principal
        holder = snapshot.holder("tools", name, caller)
        holder.hold()
        try:
            own = snapshot.known("tools", name, holder, caller)
            if own is None:
                own = await snapshot.asked_for("tools", name, holder, caller)
            meta = passed_on(head.meta) if head.meta else None
            asked = t.CallToolRequestParams(name=own, arguments=arguments, meta=meta)
            offers = holder.offers(caller)
            return HostResult(await _ask(turn, wishes, holder, CALL, asked), (), (offers, own))
        finally:
            holder.release()

    async def _get_prompt(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        params = decode_as(t.GetPromptRequestParams, turn.exchange.request.params)
        snapshot = self._now()
        holder = snapshot.holder("prompts", params.name, turn.exchange.principal)
        holder.hold()
        try:
            own = await self._prompt(snapshot, params.name, holder, turn)
            meta = passed_on(turn.exchange.params.meta)
            asked = t.GetPromptRequestParams(name=own, arguments=params.arguments, meta=meta)
            return HostResult(await _ask(turn, wishes, holder, "prompts/get", asked))
        finally:
            holder.release()

    async def _prompt(self, snapshot: Snapshot, name: str, holder: Hosted, turn: Turn) -> str:
        caller = turn.exchange.principal
        own = snapshot.known("prompts", name, holder, caller)
        if own is not None:
            return own
        return await snapshot.asked_for("prompts", name, holder, caller)

    async def _read_resource(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        params = decode_as(t.ReadResourceRequestParams, turn.exchange.request.params)
        asked = t.ReadResourceRequestParams(
            uri=params.uri, meta=passed_on(turn.exchange.params.meta)
        )
        return await self._at(turn, wishes, params.uri, "resources/read", asked)

    async def _at(
        self,
        turn: Turn,
        wishes: Wishes | None,
        uri: str,
        method: str,
        params: t.RequestParams,
    ) -> HostResult:
        """Ask the server that has an address, or the one that was named."""
        snapshot, meant = self._now(), wishes.server if wishes is not None else None
        if meant is not None:
            holder = snapshot.server(meant)
            holder.hold()
        else:
            with _holding(snapshot):
                caller = turn.exchange.principal
                holder = await snapshot.reader(uri, caller, self._wait_s)
                holder.hold()
        try:
            return HostResult(await _ask(turn, wishes, holder, method, params))
        finally:
            holder.release()

    async def _complete(self, turn: Turn, wishes: Wishes | None) -> HostResult:
        params = decode_as(t.CompleteRequestParams, turn.exchange.request.params)
        params = replace(params, meta=passed_on(turn.exchange.params.meta))
        if isinstance(params.ref, t.ResourceTemplateReference):
            uri = params.ref.uri
            return await self._at(turn, wishes, uri, "completion/complete", params)
        snapshot = self._now()
        holder = snapshot.holder("prompts", params.ref.name, turn.exchange.principal)
        holder.hold()
        try:
            own = await self._prompt(snapshot, params.ref.name, holder, turn)
            asked = replace(params, ref=replace(params.ref, name=own))
            return HostResult(await _ask(turn, wishes, holder, "completion/complete", asked))
        finally:
            holder.release()


@contextmanager
def _holding(snapshot: Snapshot) -> Generator[None]:
    """While somebody looks at all servers, none of them goes."""
    for one in snapshot.hosted.values():
        one.hold()
    try:
        yield
    finally:
        for one in snapshot.hosted.values():
            one.release()


def _items(lists: Sequence[Offer[Any, Any]]) -> list[Any]:
    return [one for offer in lists for one in offer.nouns.values()]


async def _ask(
    turn: Turn, wishes: Wishes | None, holder: Hosted, method: str, params: t.RequestParams
) -> t.ProtocolType:
    seconds = (wishes or NO_WISHES).timeout_s
    reporting = _reporting(turn)
    try:
        result = await holder.supervised.ask(
            turn, method, params, timeout_s=seconds, on_progress=reporting
        )
    except Fault as fault:  # what the server said, and not what was asked of us, is wrong
        told = RemoteProtocolError(fault.message, server=fault.server).with_server(holder.key)
        raise told from fault
    except ChannelError as error:
        error.with_server(holder.key)
        raise
    except RemoteError as error:
        error.server = holder.key
        raise
    return passed_back(result)


def _reporting(turn: Turn) -> OnProgress | None:
    """Tells whoever asked how it is getting on; None where they do not want to know."""
    exchange, wire = turn.exchange, turn.wire
    if exchange.progress_token is None:
        return None

    def report(progress: float, total: float | None, message: str | None) -> Awaitable[None] | None:
        try:
            frame = exchange.progress(progress, total, message)
        except LocalProtocolError:  # it went backwards, which is the server's mistake
            return None
        return None if frame is None or wire.post(frame) else wire.send(frame)

    return report
