"""How a client has a request answered: from what it kept, or by the server, in as many rounds as
that takes; and what it hears beside the answers.

Rules: every wait ends. Giving up a call tells the server so. An answer that took questions is never
kept. Errors say which server it was.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS, Cache, ListBudget
from colonnade.client.connection import Speaker
from colonnade.client.input_callbacks import Answering, Answers, Hearing, Visits
from colonnade.client.probe import Opening
from colonnade.client.roots import Watching
from colonnade.client.subscriptions import LISTS, UPDATED, Listenings
from colonnade.client.tools import Tools
from colonnade.client.transports import MemoryWay, OneWay, Way
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
    ToolError,
)
from colonnade.ports import Carry, Conversation, Progressing, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import convert_to, decode_as, readable_items
from colonnade.protocol.exchange import decode_result
from colonnade.protocol.input_requests import InputRequest, checked_input_requests, retry_params
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.in_flight import MAX_PAUSED_S
from colonnade.protocol.link.link import MAX_S, PING, SET_LEVEL, TIMEOUT_S
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import EVERY, ChangeNotifications, LogControl, Revision, Revisions
from colonnade.protocol.types import InputRequiredResult

log: logging.Logger = logging.getLogger("colonnade.client")

# A sleep may end that much early, by the last digit of the time alone; nobody sleeps for so little.
ROUNDING_S = 1e-6


class Pinging:
    """Pings one server while nothing else is said, in a task of its own."""

    def __init__(self, speaker: Speaker, every_s: float, timeout_s: float) -> None:
        self._speaker = speaker
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on."""
        if self._task is None:
            self._speaker.watched = True
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No more; at any time, and twice."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._speaker.closed:
            quiet_s = 0.0 if self._speaker.busy else loop.time() - self._speaker.heard_at
            if quiet_s < self._every_s - ROUNDING_S:  # R0071
                await asyncio.sleep(self._every_s - quiet_s)
            elif not await self._ping():
                await asyncio.sleep(self._every_s)

    async def _ping(self) -> bool:
        """Whether the server answered; there may be nobody to ask, or no such question."""
        conversation = self._speaker.conversation
        peer = conversation.link.peer
        if self._speaker.over or peer is None or PING not in peer.revision.methods:
            return False
        try:
            await conversation.request(PING, t.RequestParams(), self._timeout_s)
        except ColonnadeError as error:
            name = self._speaker.way.name
            if not isinstance(error, ChannelError) or (error.status and not error.not_sent):
                log.debug("server %r refuses to be pinged: %s", name, error)
                self._speaker.note()  # it is there, and said so
                return True
            log.warning("server %r did not answer a ping: %s", name, error)  # R0074
            await conversation.leave("it did not answer a ping")  # R0072
            return False
        self._speaker.note()
        return True


# A server that asks again and again never answers; ours stop at so many themselves.
MAX_ROUNDS = 10
# The first is no round of questions.
NUMBERS = range(MAX_ROUNDS + 1)

T = TypeVar("T")


class Rounds:
    """What is left of the time of one call that is answered with questions, since it `began`."""

    def __init__(self, method: str, server: str, timeout_s: float, began: float) -> None:
        self._method = method
        self._server = server
        # A call that was given more time than all calls have is given it once, not in each round.
        self._server_s = max(MAX_S, timeout_s)
        self._people_s = MAX_PAUSED_S
        self._ends_at = began + self._server_s

    @property
    def _call(self) -> str:
        return f"{self._method} of server {self._server!r}" if self._server else self._method

    async def of_server(self, asking: Awaitable[T]) -> T:
        """What the server says, while it has time. Raises `TimedOut`, and what that raises."""
        words = f"{self._call} was not done within {self._server_s:g} s, in all its rounds"
        return await _until(self._ends_at, asking, words, self._server)

    async def of_people(self, answering: Awaitable[T]) -> T:
        """What people say, while they have time. Raises `TimedOut`, and what that raises."""
        began = asyncio.get_running_loop().time()
        words = f"nobody answered the questions of {self._call} within {MAX_PAUSED_S:g} s"
        try:
            return await _until(began + self._people_s, answering, words, self._server)
        finally:
            took_s = asyncio.get_running_loop().time() - began
            self._people_s -= took_s
            self._ends_at += took_s


async def _until(end: float, waiting: Awaitable[T], words: str, server: str) -> T:
    bound = asyncio.timeout_at(end)
    try:
        async with bound:
            return await waiting
    except TimeoutError:
        if bound.expired():
            raise TimedOut(words, server=server or None) from None
        raise


# What is logged is wanted, where a handler was given; more or less is for `set_log_level`.
LOG_LEVEL: t.LoggingLevel = "info"
# For a level of logs, or a subscription, at the beginning of a conversation: a server that does not
# answer that is used without it.
RESTORE_S = 10.0
# Of the questions that a server has open by request, together: as much as one message may have.
MAX_ASKED_BYTES = 64 * 1024 * 1024
# Items of one page that cannot be read and are named in the log, one line each.
MAX_LEFT_OUT = 10
ELSEWHERE = (
    "this client is used in another event loop or thread than the one that it was opened in; "
    "connect where it is used, inside the same asyncio.run, or take colonnade.sync.connect, which "
    "any thread can use"
)
NO_LOOP = (
    "no asyncio event loop runs here; begin with asyncio.run(main()), and under trio or without "
    "any loop take colonnade.sync.connect (under trio in trio.to_thread.run_sync)"
)
LOG_MESSAGE = "notifications/message"
SUBSCRIBE = "resources/subscribe"
ROOTS_CHANGED = "notifications/roots/list_changed"
VISITED = "notifications/elicitation/complete"
# What a change of a list makes stale.
STALE: dict[str, tuple[str, ...]] = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}

# What a server may say may be kept.
CACHEABLE = frozenset(
    name for revision in EVERY for name, row in revision.methods.items() if row.cacheable
)

R = TypeVar("R", bound=t.ProtocolType)

OnLog: TypeAlias = Callable[[t.LoggingMessageNotificationParams], Any]
# How far it is, of how much, and in words.
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
Headers = Iterable[tuple[str, str]]


class Behalf(NamedTuple):
    """For whom a request is made, where that is not whoever made the client: who answers what it
    is asked, who may be given what was kept, and what is to be logged, if anything."""

    answers: Answering
    principal: str = ""
    log_level: t.LoggingLevel | None = None


class Asker:
    """One server, as far as asking it and hearing it goes. What is asked is the client's."""

    def __init__(
        self,
        way: Way | Carry,
        answers: Answers | None = None,
        *,
        info: t.Implementation,
        accepts: Revisions = EVERY,
        timeout_s: float = TIMEOUT_S,
        open_s: float | None = None,
        on_log: OnLog | None = None,
        on_progress: OnProgress | None = None,
        ping_s: float | None = None,
        max_list_bytes: int = MAX_LIST_BYTES,
        max_list_items: int = MAX_LIST_ITEMS,
    ) -> None:
        self.timeout_s: float = timeout_s
        self._max_list_bytes = max_list_bytes
        self._max_list_items = max_list_items
        self.instructions: str | None = None
        self._answers = answers or Answers()
        self._accepts = accepts
        self._on_log = on_log
        self._on_progress = on_progress
        self._level: t.LoggingLevel | None = LOG_LEVEL if on_log is not None else None
        self._asked_bytes = 0
        self._hearing = Hearing()
        self._visits = Visits(self._answers)
        self._found: Peer | None = None
        self._cache = Cache()
        self._listenings = Listenings(self._stale)
        identity = Identity(info, self._answers.capabilities)
        self._way: Way = OneWay(way) if callable(way) else way
        # An opening may take longer than a call: what is to be started may have to be fetched.
        seconds = timeout_s if open_s is None else open_s
        self._speaker = Speaker(self._way, self, identity, accepts, seconds, renewed=self._renewed)
        self._tools = Tools(self._way.name)
        # Held by the one call that lists them for their output schemas.
        self._learning = asyncio.Lock()
        self._is_local = isinstance(self._way, MemoryWay)
        self._closing: asyncio.Task[None] | None = None
        # The one that it was opened in: to ask for it at each call takes a system call, in some
        # Pythons.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._watches: list[Pinging | Watching] = []
        if ping_s is not None:
            self._watches.append(Pinging(self._speaker, ping_s, timeout_s))
        if self._answers.roots is not None:
            self._watches.append(Watching(self._answers.roots, self._tell_of_roots))

    # ------------------------------------------------------------ opening and closing

    async def open(self, revision: Revision | None = None) -> None:
        """Begin to speak, in this revision or in the newest that both sides have.

        Raises where there is none, or nobody.
        """
        self._loop = running_loop()
        self._thread = get_ident()
        if revision is not None:
            self._speaker.limit(Revisions([revision]))
        try:
            opening = await self._speaker.open()
            self._met(opening)
            await self._set_level(self.conversation, opening)
        except ColonnadeError as error:
            raise self._named(error) from error.__cause__
        self._speaker.note()
        self._start_watches()

    def _start_watches(self) -> None:
        """Where a conversation lasts, and may be told of things, it is looked after."""
        if self.peer.revision.handshake:
            for watch in self._watches:
                watch.start()

    async def _tell_of_roots(self) -> None:
        """R0088: others can be reached now. Nothing where that is no news, or there is nobody."""
        if ROOTS_CHANGED in self.peer.revision.methods and not self._speaker.over:
            with contextlib.suppress(ChannelError):  # who asks again gets the new ones anyway
                await self.conversation.notify(ROOTS_CHANGED)

    def _met(self, opening: Opening) -> None:
        result = opening.result
        self.instructions = result.instructions
        self._found = None
        if isinstance(result, t.DiscoverResult):
            info = convert_to(t.ResultMeta, result.meta or {}).server_info
            self._found = Peer(opening.revision, result.capabilities, info)

    async def _renewed(self, conversation: Conversation, opening: Opening) -> None:
        """Another conversation has begun: what was said for the whole of the last is said again."""
        self._met(opening)
        self._cache.clear()
        self._tools.clear()
        if opening.revision.change_notifications is ChangeNotifications.SESSION:
            await self._set_level(conversation, opening)
            for uri in sorted(self._listenings.followed):
                follow = t.SubscribeRequestParams(uri=uri)
                await self._restore(conversation, SUBSCRIBE, follow)
            self._listenings.resume()
        else:
            error = ConnectionLost("the server speaks another revision now: listen anew")
            self._listenings.end(error, subscribed=False)

    async def _set_level(self, conversation: Conversation, opening: Opening) -> None:
        """Say what is to be logged, where that is said once for all requests and not with each."""
        by_method = opening.revision.log_control is LogControl.BY_METHOD
        if (
            by_method
            and self._level is not None
            and opening.result.capabilities.logging is not None
        ):
            level = t.SetLevelRequestParams(level=self._level)
            await self._restore(conversation, SET_LEVEL, level)

    async def _restore(
        self, conversation: Conversation, method: str, params: t.RequestParams
    ) -> None:
        """Ask for what holds for a whole conversation; a server that refuses it does without."""
        try:
            await conversation.request(method, params, min(self.timeout_s, RESTORE_S))
        except (RemoteError, LocalProtocolError, TimedOut) as error:
            log.warning("%s does not take %s: %s", self._way.name or "the server", method, error)

    async def close(self, why: str = "the client was closed") -> None:
        """End the conversation: what waits for an answer learns so. At any time, and twice.

        Whoever gives up waiting for the end does not stop it.
        """
        self._check_loop()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(why))
        await asyncio.shield(self._closing)

    async def _close(self, why: str) -> None:
        self._listenings.end(ConnectionLost(why))
        for watch in self._watches:
            await watch.stop()
        await self._speaker.close(why)
        await self._hearing.caught_up()
        await self._hearing.close()

    def _check_loop(self) -> None:
        """Raise `LocalProtocolError` where this is not the event loop that it was opened in: what
        is waited for there never comes here.

        There is one running loop in a thread, so that this needs not ask which it is, which takes a
        system call in some Pythons.
        """
        loop = self._loop
        if loop is not None and (get_ident() != self._thread or not loop.is_running()):
            raise LocalProtocolError(ELSEWHERE)

    async def caught_up(self) -> None:
        """Wait until the handlers of progress and logs have seen all that came before, for as long
        as calls wait for that themselves."""
        await self._hearing.caught_up()

    # ------------------------------------------------------------ who is there

    @property
    def name(self) -> str:
        """What this server is called in errors: as it was connected, or as it calls itself."""
        if self._way.name:
            return self._way.name
        info = self.peer.info if self._found is not None or not self._speaker.over else None
        return info.name if info is not None else ""

    @property
    def conversation(self) -> Conversation:
        """The conversation that is held now."""
        return self._speaker.conversation

    @property
    def peer(self) -> Peer:
        """Who is on the other side, and in which revision. Raises before it is known."""
        peer = self._found or self._speaker.conversation.link.peer
        if peer is None:
            raise LocalProtocolError("this client is not open yet")
        return peer

    def _named(self, error: ColonnadeError) -> ColonnadeError:
        """The same error, with the server that it is about."""
        name = self._way.name
        if isinstance(error, RemoteError | LocalProtocolError | ToolError) or not name:
            return error
        return error.with_server(name)

    # ------------------------------------------------------------ requests

    async def _ask(
        self,
        method: str,
        params: t.RequestParams,
        kind: type[R],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        headers: Headers = (),
        *,
        fresh: bool = False,
        behalf: Behalf | None = None,
        budget: ListBudget | None = None,
    ) -> R:
        """The result of a request, after as many rounds of questions as it takes. A `budget` is
        for a page of a list."""
        self._check_loop()
        answering: Answering = self._answers
        principal, level = "", self._level
        if behalf is not None:
            answering, principal, level = behalf
        cacheable = method in CACHEABLE
        if cacheable and not fresh:
            kept = self._kept(method, params, principal)
            if kept is not None:
                return self._read(method, kept, budget)
        seconds = self.timeout_s if timeout_s is None else timeout_s
        progressed = None
        if on_progress is not None:
            progressed = _unheard if on_progress is ignored else self._reporting(on_progress)
        made: dict[str, int] = {}
        first = params
        began = (self._loop or asyncio.get_running_loop()).time()
        rounds: Rounds | None = None
        for number in NUMBERS:
            changes = self._cache.changes
            said = params if level is None else self._with_level(params, level)
            try:
                asking = self._speaker.request(method, said, seconds, progressed, headers)
                # The first has this bound already, and most calls have no other.
                raw = await (asking if rounds is None else rounds.of_server(asking))
            except RemoteError as error:
                await self._hearing.caught_up()
                if number == MAX_ROUNDS:
                    raise
                rounds = rounds or Rounds(method, self._way.name, seconds, began)
                visiting = self._visits.answer(error, made, self.peer, seconds, answering)
                if not await rounds.of_people(visiting):
                    raise
                continue
            except ColonnadeError as error:
                raise self._named(error) from error.__cause__
            result = self._read(method, raw, budget)
            if not isinstance(result, InputRequiredResult):
                # R1003: after a question it depends on the answer; after a change it may be older.
                if cacheable and params is first and changes == self._cache.changes:
                    self._keep(method, params, raw, result, principal)
                if self._hearing.behind:
                    await self._hearing.caught_up()
                return result
            if number == MAX_ROUNDS:
                break
            rounds = rounds or Rounds(method, self._way.name, seconds, began)
            answers = await rounds.of_people(answering.to_all(self._asked(method, result)))
            shaper = self.conversation.link.encoder(self.peer.revision)
            params = retry_params(
                cast("t.InputResponseRequestParams", params), result, answers, shaper
            )
        words = f"{method} was answered with questions {MAX_ROUNDS + 1} times, and only asks back"
        raise self._named(RemoteProtocolError(words))

    def _asked(self, method: str, result: t.InputRequiredResult) -> dict[str, InputRequest]:
        try:
            return checked_input_requests(result, self._answers.capabilities, self.peer.revision)
        except Fault as fault:
            words = f"{method} asks for what this client does not offer: {fault.message}"
            raise self._named(RemoteProtocolError(words)) from None

    def _read(self, method: str, raw: Raw, budget: ListBudget | None) -> Any:
        if budget is not None:
            budget.add_page(len(raw))
        peer = self._found or self.peer
        row = peer.revision.methods[method]
        try:
            return decode_result(row, raw, peer)
        except Fault as fault:
            kept, wrong = raw, list[str]()
            if budget is not None and row.result is not None:
                kept, wrong = readable_items(row.result, raw)
            if not wrong:
                raise self._named(fault) from None
        for words in wrong[:MAX_LEFT_OUT]:
            log.warning("%s: an item of %s is left out: %s", self._whose, method, words)
        if len(wrong) > MAX_LEFT_OUT:
            log.warning("%s: %d items of %s are left out", self._whose, len(wrong), method)
        return self._read(method, kept, None)

    @property
    def _whose(self) -> str:
        return f"server {self.name!r}" if self.name else "the server"

    def _with_level(self, params: t.RequestParams, level: t.LoggingLevel) -> t.RequestParams:
        """What is to be logged, where each request says so."""
        if self.peer.revision.log_control is not LogControl.PER_REQUEST:
            return params
        meta: dict[str, Any] = params.meta or {}
        return replace(params, meta=meta | {t.LOG_LEVEL_KEY: level})

    def _reporting(self, handler: OnProgress) -> Progressing:
        def progressed(params: t.ProgressNotificationParams) -> None:
            size = len(params.message or "")
            self._hearing.tell(handler, params.progress, params.total, params.message, size=size)

        return progressed

    # ------------------------------------------------------------ what may be kept

    def _kept(self, method: str, params: t.RequestParams, principal: str) -> Raw | None:
        if not self.peer.revision.typed_results or self._speaker.closed:
            return None
        return self._cache.get(principal, method, params, _now())

    def _keep(
        self, method: str, params: t.RequestParams, raw: Raw, result: t.ProtocolType, principal: str
    ) -> None:
        if self.peer.revision.typed_results and isinstance(result, t.CacheableResult):
            self._cache.put(principal, method, params, raw, result, _now())

    # ------------------------------------------------------------ news

    def answer(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The answer to a question that the server sent by request."""
        return self._answered(request)

    async def _answered(self, request: RequestContext) -> bytes | None:
        size = len(request.exchange.request.params or b"")
        if self._asked_bytes and self._asked_bytes + size > MAX_ASKED_BYTES:
            words = f"the questions that are open have more than {MAX_ASKED_BYTES} bytes"
            request.fault = Fault(
                FaultKind.TOO_MANY, f"{words}; ask again when others are answered"
            )
            return request.exchange.fail(request.fault)
        self._asked_bytes += size
        self._speaker.busy += 1  # who asks one thing at a time answers no ping meanwhile
        try:
            return await self._answers.answer(request)
        finally:
            self._asked_bytes -= size
            self._speaker.busy -= 1
            self._speaker.note()

    def told(self, told: NotificationReceived) -> None:
        """What the server tells beside its answers."""
        method = told.method.name
        self._speaker.note()
        try:
            if method == LOG_MESSAGE:
                if self._on_log is not None:
                    said = decode_as(t.LoggingMessageNotificationParams, told.params)
                    self._hearing.tell(self._on_log, said, size=len(told.params))
                return
            if method == VISITED:
                ended = decode_as(t.ElicitationCompleteNotificationParams, told.params)
                self._visits.complete(ended.elicitation_id)
            elif method == UPDATED:
                changed = decode_as(t.ResourceUpdatedNotificationParams, told.params)
                self._cache.forget_resource(changed.uri)
            elif method in LISTS:
                self._cache.forget(STALE[LISTS[method]])
                if LISTS[method] == "tools":
                    self._tools.clear()
            self._listenings.hear(told)
        except Fault as fault:  # R0233: never answered
            log.debug("ignored %s: %s", method, fault.message)

    def _stale(self) -> None:
        """News was missed: what was kept may be older than that."""
        self._cache.clear()
        self._tools.clear()

    def missed(self) -> None:
        """The session goes on, and told something that nobody heard."""
        self._stale()
        self._listenings.missed_in_session()

    def gone(self) -> None:
        """The conversation has ended."""
        if self._way.repeats and not self._speaker.closed:
            self._listenings.lose()
        else:
            self._listenings.end(ConnectionLost("the connection ended"))


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs here. Raises `LocalProtocolError` where that is not asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise LocalProtocolError(NO_LOOP) from None


def ignored(progress: float, total: float | None, message: str | None) -> None:
    """Progress that nobody looks at still begins the time-out anew."""


def _unheard(params: t.ProgressNotificationParams) -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
