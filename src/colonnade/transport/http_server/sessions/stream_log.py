"""An event stream whose events are also in a log of the store, for clients that resume elsewhere;
delete with 2025-11-25.

Rules: an event is in the log before it is written to a connection, and the log is there before the
event to resume from, which has no message. If the store does not respond, the stream goes on
without its log, which gets the events later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from colonnade.transport.http_server.sessions.record import LoggedEvents
from colonnade.transport.http_server.sessions.streams import QUEUE_BYTES, ResumableBytes, Stream

# Events that came while the one before was appended are one entry, up to this size.
ENTRY_BYTES = 256 * 1024


class LoggedStream(Stream):
    """A stream that is logged from its start on.

    `append` adds an entry to the log and never raises; it returns whether the entry is in the log.
    `on_put` and `on_finished` are called after events have become readable, and after the last.
    """

    def __init__(
        self,
        name: str,
        ledger: ResumableBytes,
        *,
        append: "Callable[[LoggedStream, LoggedEvents], Awaitable[bool]]",
        spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        on_put: Callable[[Stream], None],
        on_finished: Callable[[Stream], None],
        primed: bool,
        retry_ms: int,
    ) -> None:
        super().__init__(name, ledger, streamable=True, primed=primed, retry_ms=retry_ms)
        # The replicas where clients have resumed it, which get a message for each new entry.
        self.followers: set[str] = set()
        self._append = append
        self._spawn = spawn
        self._on_put = on_put
        self._on_finished = on_finished
        self._unlogged: list[tuple[int, bytes]] = []
        self._unlogged_bytes = 0
        self._number = 0
        # The number of the last logged event. `is_behind` is whether the log lacks events, or the
        # end of the stream.
        self._logged_number = 0
        self.is_behind: bool = False
        self._ending = False
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Become an event stream, which has a log from here on."""
        if self.has_started or self.is_finished:
            return
        # Responses that a batch has already; usually none.
        self._unlogged = list(enumerate(self.frames(), 1))
        self._number = self.last_number
        self._logged = asyncio.get_running_loop().create_future()
        super().start()
        self._write()

    def put_response(self, frame: bytes) -> None:
        """Add a message; it can be read as soon as it is in the log."""
        if not self.has_started:
            super().put_response(frame)
        elif not self.is_finished and not self._ending:
            self._number += 1
            self._unlogged.append((self._number, frame))
            self._unlogged_bytes += len(frame)
            self._write()

    def finish(self) -> None:
        """End it after the messages that are not in the log yet."""
        if not self.has_started or self.is_finished:
            super().finish()
        else:
            self._ending = True
            self._write()

    def forget(self) -> None:
        """End it now; the rest is logged afterwards."""
        for number, frame in self._unlogged:
            if number > self.last_number:
                super().put_response(frame)
        if self.has_started and not self.is_finished:
            self._ending = True
            self._write()
        super().finish()
        super().forget()

    async def wait_for_reader(self) -> None:
        """Wait while the log or the reader has much to take."""
        while self._writer is not None and self._unlogged_bytes > QUEUE_BYTES:
            await asyncio.wait({self._writer})
        await super().wait_for_reader()

    @property
    def newest(self) -> int:
        """The number of the newest event that the client may have. Another process may have read
        that event in the log before the store has acknowledged it here."""
        return max(self._number, self._last)

    async def catch_up(self) -> bool:
        """Log all missing events. Returns whether the log is complete."""
        if self.is_behind:
            self._write()
        while self._writer is not None:
            await asyncio.wait({self._writer})
        return not self.is_behind

    def _write(self) -> None:
        if self._writer is None:
            self._writer = self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while await self._write_entry():
                pass
        finally:
            self._writer = None
            self._set_logged()

    def _set_logged(self) -> None:
        if self._logged is not None and not self._logged.done():
            self._logged.set_result(None)

    async def _write_entry(self) -> bool:
        """Log what there is, then let it be read; False if there is no more for now."""
        # Events that could not be logged before come first, so that the log has no gap.
        left = self._unlogged
        if self._logged_number < self._last:
            left = [event for event in self._entries if event[0] > self._logged_number]
            left += [event for event in self._unlogged if event[0] > self._last]
        count = size = 0
        for _, frame in left:
            if count and size + len(frame) > ENTRY_BYTES:
                break
            count += 1
            size += len(frame)
        batch = left[:count]
        is_last = self._ending and count == len(left)
        events = LoggedEvents(batch, is_last, self.for_notifications, self.scopes)
        is_logged = await self._append(self, events)
        self._set_logged()
        if is_logged and batch:
            self._logged_number = batch[-1][0]
        self.is_behind = not is_logged
        # Without the store, events are still readable here.
        for number, frame in batch if is_logged else left:
            if number > self.last_number:
                super().put_response(frame)
        self._unlogged = [event for event in self._unlogged if event[0] > self._last]
        self._unlogged_bytes = sum(len(frame) for _, frame in self._unlogged)
        self._on_put(self)
        is_over = is_last or (self._ending and not is_logged and not self._unlogged)
        if is_over and not self.is_finished:
            super().finish()
            self._on_finished(self)
        if self._unlogged:
            return True
        return is_logged and (count < len(left) or (self._ending and not is_last))
