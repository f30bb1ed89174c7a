"""Change notifications of a server, and the listeners of `subscriptions/listen`.

Rules: pending notifications are bounded: a slow listener gets one `list_changed` for any number of
changes, and one that falls too far behind is ended.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeAlias

from colonnade.ports import RequestContext, Seal, Store
from colonnade.protocol import types as t

if TYPE_CHECKING:
    from colonnade.protocol.subscriptions import Subscription

ChangeCallback: TypeAlias = Callable[[str, t.NotificationParams], None]
# Those of tasks have a type of their own.
SubjectParams: TypeAlias = "t.NotificationParams | t.ExtTaskStatusNotificationParams"


class ChangeNotifier:
    """Publishes the changes of one server."""

    def __init__(self) -> None:
        # By id, so that thousands can be added and removed in constant time.
        self._callbacks: dict[int, ChangeCallback] = {}
        self._ids = count()
        self._waiting: dict[tuple[str, str | None], t.NotificationParams] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # Called at once, in the publishing thread: outer servers that forward the change.
        self.observers: list[ChangeCallback] = []
        # The observer that passes changes on to other processes.
        self._shared: ChangeCallback | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver changes in this event loop from now on."""
        self._loop = loop

    def stop(self) -> None:
        """Drop pending changes and deliver no more."""
        self._loop = None
        self._waiting.clear()

    async def share(
        self, store: Store, seal: Seal | None, server: str, exit_stack: AsyncExitStack
    ) -> None:
        """Pass changes on to other processes of this server, and theirs to the callbacks here,
        until the stack is closed; encrypted with `seal`."""
        from colonnade.replicas.changes import SharedChanges

        if (
            self._shared is not None and self._shared in self.observers
        ):  # of an event loop that was closed
            self.observers.remove(self._shared)
        shared = SharedChanges(store, server, self.deliver, seal)
        publish = self._shared = shared.publish
        self.observers.append(publish)
        exit_stack.callback(self.observers.remove, publish)
        exit_stack.push_async_callback(shared.stop)
        await shared.start()

    def watch(self, callback: ChangeCallback) -> Callable[[], None]:
        """Call `callback` for every change until the returned function is called."""
        id = next(self._ids)
        self._callbacks[id] = callback

        def unwatch() -> None:
            self._callbacks.pop(id, None)

        return unwatch

    def publish(self, method: str, params: t.NotificationParams) -> None:
        """Notify all callbacks in the next iteration of the event loop."""
        for observer in self.observers:
            observer(method, params)
        self.deliver(method, params)

    def deliver(self, method: str, params: t.NotificationParams) -> None:
        """Notify the callbacks, but no observers: for a change that another replica published."""
        loop = self._loop
        if loop is None:
            return  # not serving: later clients list the current state
        if _running() is loop:
            self._queue(method, params)
        else:
            loop.call_soon_threadsafe(self._queue, method, params)

    def _queue(self, method: str, params: t.NotificationParams) -> None:
        first = not self._waiting
        self._waiting[method, getattr(params, "uri", None)] = params
        if first:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (method, _), params in waiting.items():
            for callback in tuple(self._callbacks.values()):
                callback(method, params)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# ---------------------------------------------------------------- listener


class ChangeSource(Protocol):
    """What a listener is notified by."""

    def watch(self, callback: ChangeCallback) -> Callable[[], None]:
        """Call `callback` for every change until the returned function is called."""
        ...


# Pending notifications of one slow listener.
MAX_WAITING = 256


class Listener:
    """A subscription and its pending notifications."""

    def __init__(self, subscription: "Subscription", request: RequestContext) -> None:
        self._subscription = subscription
        self._request = request
        self._waiting: dict[tuple[str, str | None], SubjectParams] = {}
        self._ended: str | None = None
        # Set while the subscription is acknowledged and nothing is pending.
        self._idle: asyncio.Future[None] | None = None
        # Nothing is sent before that.
        self.acknowledged: asyncio.Event = asyncio.Event()

    async def run(self, changes: "ChangeSource") -> t.ProtocolType:
        """Acknowledge, then send notifications until one side ends the subscription."""
        unwatch = changes.watch(self.on_change)
        try:
            await self._acknowledge()
            self.acknowledged.set()
            while self._ended is None:
                if not self._waiting:
                    self._idle = asyncio.get_running_loop().create_future()
                    try:
                        await self._idle
                    finally:
                        self._idle = None
                await self._send_pending()
            for frame in self._subscription.end(self._ended):
                await self._request.send(frame)
        finally:
            unwatch()
        return t.SubscriptionsListenResult()  # already sent

    async def _acknowledge(self) -> None:
        """A separate method, so that the frame, which names all resources, is freed afterwards."""
        frame = self._subscription.acknowledge()
        if frame is not None:
            await self._request.send(frame)

    async def _send_pending(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (method, _), params in waiting.items():
            frame = self._subscription.notification(method, params)
            if frame is not None:
                await self._request.send(frame)

    def on_change(self, method: str, params: SubjectParams) -> None:
        """Send a notification, if the subscription includes it."""
        subject: str | None = getattr(params, "uri", None) or getattr(params, "task_id", None)
        if not self._subscription.wants(method, subject):
            return
        if self._idle is not None and not self._waiting and not self._idle.done():
            # Most listeners keep up, and there may be thousands: send without waking their task.
            frame = self._subscription.notification(method, params)
            if frame is None or self._request.post(frame):
                return
        self._waiting[method, subject] = params  # repeated changes are merged
        if len(self._waiting) > MAX_WAITING:
            self.end("too many pending notifications; listen again, and list everything again")
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def end(self, reason: str) -> None:
        """End the subscription after its pending notifications."""
        self._ended = self._ended or reason
        self._wake()
