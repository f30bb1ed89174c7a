"""The roots of a client: paths and `file://` URLs, and a watcher for paths that come and go.

Rules: a root is a `file://` URL without `..`. A path that is not accessible is not listed while it
is not. A URL is passed on without a check.
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

# Interval of the checks, short enough that an unplugged disk is usually noticed before the next
# `roots/list`.
WATCH_S = 30.0

RootInputs: TypeAlias = Iterable[t.Root | Path | str]
GivenRoots: TypeAlias = RootInputs | Callable[[], RootInputs | Awaitable[RootInputs]]


class ClientRoots:
    """The configured roots, and which of them are accessible."""

    def __init__(self, given: GivenRoots) -> None:
        self._given: GivenRoots = ()
        self._missing: frozenset[str] = frozenset()
        self.replace(given)

    def replace(self, given: GivenRoots) -> None:
        """Replace the roots. Raises `LocalProtocolError` for an invalid one."""
        if not callable(given):
            given = tuple(given)
            for one in given:
                to_root(one)
        self._given = given

    @property
    def has_paths(self) -> bool:
        """Whether there are paths to watch."""
        return not callable(self._given) and any(map(_is_path, self._given))

    async def reachable(self) -> list[t.Root]:
        """The roots that are accessible."""
        given = self._given
        if callable(given):
            made = given()
            given = await made if inspect.isawaitable(made) else made
        listed = list(given)
        missing = await self._find_missing(listed)
        return [root for root in map(to_root, listed) if root.uri not in missing]

    async def changed(self) -> bool:
        """Whether other paths are accessible than at the last check."""
        before = self._missing
        await self._find_missing(list(cast("RootInputs", self._given)))
        return before != self._missing

    async def _find_missing(self, listed: list[t.Root | Path | str]) -> frozenset[str]:
        paths = [one for one in listed if _is_path(one)]
        # A network path may be slow.
        missing = await asyncio.to_thread(_unreachable, paths) if paths else frozenset[str]()
        for uri in sorted(missing - self._missing):
            log.warning("the root %s is not accessible, and not listed", uri)
        self._missing = missing
        return missing


def _unreachable(paths: list[t.Root | Path | str]) -> frozenset[str]:
    return frozenset(
        to_root(path).uri for path in paths if not os.access(cast("Path | str", path), os.R_OK)
    )


def _is_path(given: t.Root | Path | str) -> bool:
    return isinstance(given, Path) or (isinstance(given, str) and not _is_file_url(given))


def _is_file_url(text: str) -> bool:
    return text.lower().startswith("file://")


def to_root(given: t.Root | Path | str) -> t.Root:
    """A root from a path, a `file://` URL, or a root.

    Raises `LocalProtocolError` for a URL of another scheme, or one with `..`.
    """
    if isinstance(given, t.Root) or (isinstance(given, str) and _is_file_url(given)):
        root = given if isinstance(given, t.Root) else t.Root(uri=given)
        _check(root.uri)
        return root
    path = Path(os.path.abspath(given))  # resolves every `..`
    return t.Root(uri=path.as_uri(), name=path.name or None)


def _check(uri: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file" or not parts.path.startswith("/"):
        raise InvalidArgument(
            f"{uri[:80]!r} is not a root: write a path, or file:///…", argument="roots"
        )
    if ".." in unquote(parts.path).replace("\\", "/").split("/") or "\0" in unquote(parts.path):
        raise InvalidArgument(
            f"{uri[:80]!r} contains '..'; name the folder itself", argument="roots"
        )


class RootsWatcher:
    """Checks the paths at intervals, and calls back when others are accessible."""

    def __init__(self, roots: ClientRoots, on_change: Callable[[], Awaitable[None]]) -> None:
        self._roots = roots
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, if there are paths to watch."""
        if self._task is None and self._roots.has_paths:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the task. May be called at any time, and more than once."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            if self._roots.has_paths and await self._roots.changed():
                await self._on_change()
