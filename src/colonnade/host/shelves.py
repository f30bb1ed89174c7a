"""One list of one server, as it last came: asked for when somebody wants it, and kept.

Rules: a list that does not come costs its own server, and nobody else: whoever looks waits for so
long, learns what the matter is, and goes on without. What came once is kept until the server says
that it has changed, or for a while where it never would; what did not come is not asked for again
by everybody who looks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from colonnade.errors import ColonnadeError, ConnectionLost, Fault, RemoteProtocolError, TimedOut

log: logging.Logger = logging.getLogger("colonnade.host")

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]

# Whoever looks at the whole catalogue waits no longer for one server. One that has to be fetched
# first goes on starting, and is there when somebody looks again.
WAIT_S = 20.0
# A server that could not be listed is not asked again for so long, but by who wants it fresh.
RETRY_S = 30.0
# A server that does not tell of changes may have made some: who looks after so long asks again.
UNTOLD_S = 60.0
# A list is not asked for again within so long because of a name that is not in it: models make up
# names faster than servers make tools.
ANEW_S = 5.0


class Listed(Protocol):
    """What is on a shelf."""

    def is_like(self, other: Any) -> bool:
        """Whether the other says the same."""
        ...


T = TypeVar("T", bound=Listed)


class Shelf(Generic[T]):
    """One list of a server. `what` it is stands in errors; `ask` asks the server for it, for a
    caller, and may take `limit_s`; `came` is told of one that is another than those who looked have
    seen, and `is_told` says whether the server tells when it changes."""

    def __init__(
        self,
        server: str,
        what: str,
        ask: Callable[[str], Awaitable[T]],
        limit_s: float,
        came: Callable[[], None],
        is_told: Callable[[], bool],
    ) -> None:
        self.content: T | None = None
        self.error: ColonnadeError | None = None
        self._server = server
        self._what = f"the {what} of server {server!r}"
        self._ask = ask
        self._limit_s = limit_s
        self._came = came
        self._is_told = is_told
        self._is_stale = True
        # Somebody looked and did not find it; somebody was told already that it has changed.
        self._was_missed = False
        self._was_told = False
        self._changes = 0
        self.failed_at: float = 0.0
        self._came_at = -ANEW_S
        self._begun_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it is here, nobody said that it has changed, and somebody would."""
        if self._is_stale:
            return False
        return self._is_told() or _now() < self._came_at + UNTOLD_S  # R1006, R1013

    @property
    def is_busy(self) -> bool:
        """Whether it is being asked for."""
        return self._task is not None

    def expire(self) -> None:
        """It has changed, and whoever wants to know was told: who looks next asks."""
        self._is_stale = self._was_told = True
        self._changes += 1
        self.error = None

    def doubt(self) -> None:
        """It may have changed, and nobody knows: who looks next asks."""
        self._is_stale = True
        self.error = None

    async def seen(self, caller: str, wait_s: float, *, fresh: bool = False) -> T | None:
        """What is there within that time; what came before where nothing newer does.

        Never raises: `problem` says what went wrong.
        """
        if self.is_fresh and not fresh:
            return self.content
        now = _now()
        if self._task is None:
            if self.error is not None and not fresh and now < self.failed_at + RETRY_S:
                return self.content
            self._begin(caller)
        assert self._task is not None
        seconds = self._begun_at + wait_s - now
        if seconds > 0:
            await asyncio.wait([self._task], timeout=seconds)
        if self.content is None:
            self._was_missed = True
        return self.content

    async def come(self, caller: str) -> T:
        """The list as it is now, however long it takes; what came a moment ago is now. Raises what
        went wrong."""
        if self._is_stale or _now() >= self._came_at + ANEW_S:
            if self._task is None:
                self._begin(caller)
            assert self._task is not None
            await asyncio.wait([self._task])
        if self.error is not None or self.content is None:
            words = f"{self._what} are not asked for any more: it was closed meanwhile"
            error = self.error or ConnectionLost(words, server=self._server)
            raise error.with_traceback(None)
        return self.content

    def spare(self, error: ColonnadeError) -> None:
        """Another list could not be asked for, so that it is of no use to ask for this one."""
        if self._is_stale and self._task is None:
            self._fail(error)

    @property
    def is_late(self) -> bool:
        """Whether somebody looked and went on without it, and it may still come."""
        return self.error is None and self.content is None and self._was_missed

    @property
    def problem(self) -> str | None:
        """What is the matter, for people; None where nothing is."""
        if self.is_late:
            return f"{self._what} have not come yet; look again later"
        return told(self.error, self._server) if self.error is not None else None

    def _begin(self, caller: str) -> None:
        self._begun_at = _now()
        self._task = asyncio.get_running_loop().create_task(self._run(caller))

    async def _run(self, caller: str) -> None:
        changes = self._changes
        try:
            async with asyncio.timeout(self._limit_s):
                content = await self._ask(caller)
        except TimeoutError:
            words = f"{self._what} did not come within {self._limit_s:g} s"
            self._fail(TimedOut(words, server=self._server))
        except Fault as fault:
            words = f"{self._what} cannot be read: {fault.message}"
            self._fail(RemoteProtocolError(words, server=self._server))
        except ColonnadeError as error:
            self._fail(error)
        except Exception as error:
            log.error("%s cannot be listed", self._what, exc_info=error)
            words = f"{self._what} cannot be listed: {error}"
            self._fail(ColonnadeError(words, server=self._server))
        else:
            self._keep(content, changes)
        finally:
            self._task = None

    def _keep(self, content: T, changes: int) -> None:
        is_other = self._was_missed if self.content is None else not content.is_like(self.content)
        is_news = is_other and not self._was_told
        self.content, self.error = content, None
        self._is_stale = changes != self._changes
        self._was_missed, self._was_told = False, self._is_stale
        self._came_at = _now()
        if is_news:
            self._came()

    def _fail(self, error: ColonnadeError) -> None:
        self.error = error
        self.failed_at = _now()

    async def close(self) -> None:
        """Nobody looks any more."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def told(error: ColonnadeError, server: str) -> str:
    """What went wrong with a server, with its name."""
    return str(error) if error.server == server else f"server {server!r}: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()
