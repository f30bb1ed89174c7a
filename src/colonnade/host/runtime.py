"""What all servers of a host have in common: the handler, the generation in force, and its end.

Rules: a reload puts a whole new snapshot in the place of the old one, at once: servers whose entry
is the same are in both, and the others leave when the last call on them is done. Nobody waits for
that. Whoever watches is told once of a reload.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from colonnade.client.callback_queue import Hearing
from colonnade.client.request import running_loop
from colonnade.errors import LocalProtocolError
from colonnade.host.agent.search import Looking
from colonnade.host.config.settings import Config, Entry
from colonnade.host.input_requests import Desk, asking_of
from colonnade.host.router import Handling, HostResult, LocalTurn, Wishes, local_exchange
from colonnade.host.servers.generation import Claim, Hosted, Snapshot
from colonnade.host.servers.listings import Kind
from colonnade.host.servers.naming import Claims
from colonnade.host.servers.session import Seat
from colonnade.host.servers.supervisor import State, Status, Supervised
from colonnade.ports import Handler, Middleware, Turn, stack
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequestKind as Asked

if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.client.login import Auth

log: logging.Logger = logging.getLogger("colonnade.host")

CLOSED = "this host is closed; make another one"
# What it has opened lives in the loop in which it was opened.
ELSEWHERE = "this host is used in another event loop; make another one for this loop"

ALL: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")


class Changes(NamedTuple):
    """Lists that are others now (`tools`, `prompts`, `resources`, `templates`), and the servers
    that they are of."""

    kinds: tuple[Kind, ...]
    servers: tuple[str, ...]


OnChange: TypeAlias = Callable[[Changes], Any]
OnEvent: TypeAlias = Callable[[Status], Any]


class Roof:
    """Everything of a host but what programs type."""

    def __init__(
        self,
        config: Config,
        desk: Desk,
        *,
        layers: Iterable[Middleware],
        wait_s: float,
        on_event: OnEvent | None = None,
        auth: "Callable[[str], Auth | None] | None" = None,
        info: t.Implementation | None = None,
    ) -> None:
        self.desk = desk
        self._info = info
        self.looking: Looking = Looking()
        self._wait_s = wait_s
        self._on_event = on_event
        self._auth = auth
        self._layers: list[Middleware] = [_checked(one) for one in layers]
        self._watchers: dict[object, OnChange] = {}
        self._hearing = Hearing()
        self._leaving: dict[asyncio.Task[None], Hosted] = {}
        self._states: dict[Supervised, State] = {}
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.snapshot: Snapshot = self._made(config, None)
        self._handling = Handling(self._now, wait_s)
        # For requests of clients that connect to this host.
        self.handler: Handler = stack(self._handling.handle, self._layers)

    def use(self, layer: Middleware) -> None:
        """Put a layer inside those that are there."""
        self._layers.append(_checked(layer))
        self.handler = stack(self._handling.handle, self._layers)

    def answer(self, turn: Turn, wishes: Wishes) -> Awaitable[HostResult]:
        """The result of a request of this program, through all middleware, and where it comes
        from. No `lists` and no `tool` where the middleware has answered by itself."""
        if not self._layers:
            return self._handling.answer(turn, wishes)
        return self._through_middleware(turn, wishes)

    async def _through_middleware(self, turn: Turn, wishes: Wishes) -> HostResult:
        # Middleware may pass on another turn, and return another result: what belongs to this call
        # alone is therefore held by the handler at the end of its own stack.
        answered: HostResult | None = None

        async def innermost(turn: Turn) -> t.ProtocolType:
            nonlocal answered
            answered = await self._handling.answer(turn, wishes)
            return answered.result

        result = await stack(innermost, self._layers)(turn)
        return HostResult(result) if answered is None else answered._replace(result=result)

    def _now(self) -> Snapshot:
        """The servers of this moment. Raises `LocalProtocolError` where there are none any more."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)
        loop = running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise LocalProtocolError(ELSEWHERE)
            self._loop = loop
        return self.snapshot

    # ------------------------------------------------------------ generations

    def _made(self, config: Config, before: Snapshot | None) -> Snapshot:
        enabled = {key: one for key, one in config.entries.items() if one.settings.enabled}
        claims = Claims((key, entry.settings) for key, entry in enabled.items())
        hosted: dict[str, Hosted] = {}
        for key, namespace in claims.namespaces.items():
            entry = enabled[key]
            won = {alias: own for alias, (of, own) in claims.aliases.items() if of == key}
            claim = Claim(namespace, won)
            old = before.hosted.get(key) if before is not None else None
            if old is not None and _is_same(old, entry, claim):
                old.entry = entry  # which may stand in another line now
                hosted[key] = old
            else:
                hosted[key] = Hosted(entry, claim, self._supervise, self._listing, self._changed)
        generation = before.generation + 1 if before is not None else 1
        problems = (*config.problems, *claims.problems)
        return Snapshot(generation, hosted, claims.aliases, problems)

    def _supervise(self, entry: Entry, opened: Callable[[Supervised, Seat], None]) -> Supervised:
        return Supervised(
            entry,
            asks=(Asked.ELICIT, Asked.SAMPLE) if self.desk.is_open else (),
            asking=asking_of(entry.key),
            auth=self._auth,
            info=self._info,
            on_open=opened,
            on_change=self._noted if self._on_event is not None else None,
        )

    def _listing(self, method: str, caller: str) -> LocalTurn:
        """Lists are asked for by the host itself, in the conversation of whoever looks."""
        params = t.PaginatedRequestParams()
        return LocalTurn(local_exchange(method, params, self.desk.peer, caller), self.desk)

    def reload(self, config: Config) -> None:
        """This is what holds from now on. Raises `LocalProtocolError` after the end."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)
        before = self.snapshot
        after = self._made(config, before)
        self.snapshot = after
        gone = [one for key, one in before.hosted.items() if after.hosted.get(key) is not one]
        come = [key for key, one in after.hosted.items() if before.hosted.get(key) is not one]
        for one in gone:
            task = asyncio.get_running_loop().create_task(one.leave())
            self._leaving[task] = one
            task.add_done_callback(self._left)
        if gone or come:
            servers = dict.fromkeys([*(one.key for one in gone), *come])
            self._tell(Changes(ALL, tuple(servers)))

    def _left(self, task: "asyncio.Task[None]") -> None:
        one = self._leaving.pop(task)
        self._states.pop(one.supervised, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("server %r could not be stopped", one.key, exc_info=error)

    # ------------------------------------------------------------ news

    def watch(self, callback: OnChange) -> Callable[[], None]:
        """Tell this one of changes, until what is returned is called."""
        mark = object()
        self._watchers[mark] = callback

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    def _changed(self, server: str, kinds: Sequence[Kind]) -> None:
        if server in self.snapshot.hosted:
            self._tell(Changes(tuple(kinds), (server,)))

    def _tell(self, changes: Changes) -> None:
        for callback in list(self._watchers.values()):
            self._hearing.tell(callback, changes)

    def _noted(self, supervised: Supervised) -> None:
        status = supervised.status
        if self._on_event is not None and self._states.get(supervised) != status.state:
            self._states[supervised] = status.state
            self._hearing.tell(self._on_event, status)

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """End every server at once; at any time, and twice."""
        self._is_closed = True
        self._watchers.clear()
        leaving = dict(self._leaving)
        for task in leaving:
            task.cancel()
        everyone = {*self.snapshot.hosted.values(), *leaving.values()}
        if leaving:
            await asyncio.wait(leaving)
        if everyone:
            await asyncio.gather(*(one.close() for one in everyone))
        await self._hearing.close()


def _checked(layer: Middleware) -> Middleware:
    """A layer that forgot to hand on what it was answered is told so, by its name."""

    async def checked(turn: Turn, inner: Handler) -> t.ProtocolType:
        made: object = layer(turn, inner)
        result = await made if isawaitable(made) else None
        if result is None:
            name = getattr(layer, "__qualname__", type(layer).__qualname__)
            words = "a layer is async, and returns what it got: return await handler(turn)"
            raise LocalProtocolError(f"the layer {name} gave no answer; {words}")
        return result

    return checked


def _is_same(hosted: Hosted, entry: Entry, claim: Claim) -> bool:
    """Whether nothing has changed for a server, so that it stays as it is."""
    return hosted.entry.fingerprint == entry.fingerprint and hosted.claim == claim
