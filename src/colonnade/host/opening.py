"""Opens a seat: looks up what an entry refers to, reaches the server, and says what went wrong.

Rules: every opening ends. What was looked up is handed on and kept by nobody. A server is offered
only what the host can answer and its settings allow; one that all callers share is offered nothing.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, cast

from colonnade.client.client import Client
from colonnade.client.connect import PING_S, accepted, own_name
from colonnade.client.targets import Surroundings, way_to
from colonnade.errors import (
    NO_OUTPUT,
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    LocalProtocolError,
    Output,
    Refused,
    TimedOut,
)
from colonnade.host.seats import Asking, Seat
from colonnade.host.settings import Entry
from colonnade.protocol import types as t
from colonnade.protocol.questions import Kind

if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.logins import Auth

# Of standard error, in an error.
QUOTED_LINES = 5

# What went wrong before the server was tried, or by nobody's fault: it has not crashed.
NO_CRASH = (AuthError, LocalProtocolError, Refused)


class Opener:
    """How the seats of one server are opened. `auth` says who we are at an address, where the
    entry does not."""

    def __init__(
        self,
        entry: Entry,
        asks: Collection[Kind],
        asking: Asking,
        auth: "Callable[[str], Auth | None] | None" = None,
        ping_s: float | None = PING_S,
        info: t.Implementation | None = None,
    ) -> None:
        settings = entry.settings
        shared = settings.sharing == "shared"
        allowed = {Kind.ELICIT: settings.elicitation, Kind.SAMPLE: settings.sampling}
        self.asks: frozenset[Kind] = frozenset(
            kind for kind in asks if allowed.get(kind) and not shared
        )
        self._roots = () if shared else settings.roots
        self._entry = entry
        self._asking = asking
        self._auth = auth
        self._ping_s = ping_s
        self._info = info

    async def open(self, seat: Seat) -> None:
        """Open a seat. Raises one of `NO_CRASH`, or `CannotConnect` with what the server wrote."""
        seconds = self._entry.settings.start_s
        try:
            async with asyncio.timeout(seconds):
                client = self._furnished(seat, await self._target())
                await client.open()
        except TimeoutError:
            late = TimedOut(f"it did not start within {seconds:g} s")
            raise self._failed(seat, late) from None
        except NO_CRASH as error:
            error.about(self._entry.key)
            raise
        except ColonnadeError as error:
            raise self._failed(seat, error) from error
        if seat.over:
            raise self._failed(seat, seat.why)

    async def _target(self) -> object:
        try:
            return await self._entry.resolve()
        except ColonnadeError:
            raise
        except Exception as error:
            words = f"what its configuration refers to is not there: {error}"
            raise LocalProtocolError(words) from error

    def _furnished(self, seat: Seat, target: object) -> Client:
        settings = self._entry.settings
        url = address_of(target)
        around = Surroundings(
            name=self._entry.key,
            auth=self._auth(url) if url and self._auth and not names_us(target) else None,
            on_stderr=seat.hear if is_command(target) else None,
        )
        return seat.furnish(
            way_to(target, around),
            asks=self.asks,
            asking=self._asking,
            roots=self._roots,
            info=self._info or own_name(),
            accepts=accepted(settings.revision),
            timeout_s=settings.timeout_s,
            open_s=settings.start_s,
            ping_s=self._ping_s,
            max_list_bytes=settings.max_list_bytes,
            max_list_items=settings.max_list_items,
        )

    def _failed(self, seat: Seat, error: ColonnadeError) -> CannotConnect:
        output = error.output if isinstance(error, ChannelError) else NO_OUTPUT
        output = output or Output(stderr=seat.last_lines(QUOTED_LINES))
        failed = CannotConnect(error.sentence, server=error.server, output=output)
        return failed.about(self._entry.key)


# ---------------------------------------------------------------- targets


def is_command(target: object) -> bool:
    """Whether a target is started here, so that it has a standard error."""
    if isinstance(target, Mapping):
        return "command" in target
    if isinstance(target, str | os.PathLike):
        return not address_of(cast("str | os.PathLike[str]", target))
    return isinstance(target, list | tuple)


def address_of(target: object) -> str:
    """The URL of a target that has one."""
    found: object = target
    if isinstance(target, Mapping):
        found = cast("Mapping[str, object]", target).get("url")
    is_url = isinstance(found, str) and found.lower().startswith(("http://", "https://"))
    return found if is_url and isinstance(found, str) else ""


def names_us(target: object) -> bool:
    """Whether an entry says itself who we are."""
    if not isinstance(target, Mapping):
        return False
    headers = cast("Mapping[str, object]", target).get("headers")
    if not isinstance(headers, Mapping):
        return False
    return any(name.lower() == "authorization" for name in cast("Mapping[str, object]", headers))
