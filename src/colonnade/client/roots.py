"""The roots that a program gives: paths and addresses, as a server is told of them.

Rules: a root is a `file://` address with nothing in it that climbs out. A path that cannot be
reached is not told of, for as long as it cannot. An address is the program's word, and passed on.
"""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import unquote, urlsplit

from colonnade.errors import InvalidArgument
from colonnade.protocol import types as t

log: logging.Logger = logging.getLogger("colonnade.client")

# How often paths are looked at: a disk that was unplugged is noticed before anybody asks.
WATCH_S = 30.0

Rooted: TypeAlias = Iterable[t.Root | Path | str]
GivenRoots: TypeAlias = Rooted | Callable[[], Rooted | Awaitable[Rooted]]


class ClientRoots:
    """What was given, and what of it can be reached now."""

    def __init__(self, given: GivenRoots) -> None:
        self._given: GivenRoots = ()
        self._missing: frozenset[str] = frozenset()
        self.replace(given)

    def replace(self, given: GivenRoots) -> None:
        """These from now on. Raises `LocalProtocolError` for what is no root."""
        if not callable(given):
            given = tuple(given)
            for one in given:
                rooted(one)
        self._given = given

    @property
    def watched(self) -> bool:
        """Whether there are paths that may come and go."""
        return not callable(self._given) and any(map(_is_path, self._given))

    async def now(self) -> list[t.Root]:
        """Those that can be reached."""
        given = self._given
        if callable(given):
            made = given()
            given = await made if inspect.isawaitable(made) else made
        listed = list(given)
        missing = await self._look(listed)
        return [root for root in map(rooted, listed) if root.uri not in missing]

    async def changed(self) -> bool:
        """Whether others can be reached than when it was last looked."""
        before = self._missing
        await self._look(list(cast("Rooted", self._given)))
        return before != self._missing

    async def _look(self, listed: list[t.Root | Path | str]) -> frozenset[str]:
        paths = [one for one in listed if _is_path(one)]
        # A path may be far away, and take its time.
        missing = await asyncio.to_thread(_unreachable, paths) if paths else frozenset[str]()
        for uri in sorted(missing - self._missing):
            log.warning("the root %s cannot be reached, and is not told of", uri)
        self._missing = missing
        return missing


def _unreachable(paths: list[t.Root | Path | str]) -> frozenset[str]:
    return frozenset(
        rooted(path).uri for path in paths if not os.access(cast("Path | str", path), os.R_OK)
    )


def _is_path(given: t.Root | Path | str) -> bool:
    return isinstance(given, Path) or (isinstance(given, str) and not _is_address(given))


def _is_address(text: str) -> bool:
    return text.lower().startswith("file://")


def rooted(given: t.Root | Path | str) -> t.Root:
    """A root from a path, a `file://` address, or what it is already.

    Raises `LocalProtocolError` for an address of another kind, or one that climbs out of itself.
    """
    if isinstance(given, t.Root) or (isinstance(given, str) and _is_address(given)):
        root = given if isinstance(given, t.Root) else t.Root(uri=given)
        _check(root.uri)
        return root
    path = Path(os.path.abspath(given))  # which takes out every `..`
    return t.Root(uri=path.as_uri(), name=path.name or None)


def _check(uri: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file" or not parts.path.startswith("/"):
        raise InvalidArgument(
            f"{uri[:80]!r} is no root: write a path, or file:///…", argument="roots"
        )
    if ".." in unquote(parts.path).replace("\\", "/").split("/") or "\0" in unquote(parts.path):
        raise InvalidArgument(
            f"{uri[:80]!r} climbs out of itself; name the folder itself", argument="roots"
        )


class Watching:
    """Looks at paths from time to time, and says when others can be reached."""

    def __init__(self, roots: ClientRoots, told: Callable[[], Awaitable[None]]) -> None:
        self._roots = roots
        self._told = told
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on, if there is anything to look at."""
        if self._task is None and self._roots.watched:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No more; at any time, and twice."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            if self._roots.watched and await self._roots.changed():
                await self._told()
