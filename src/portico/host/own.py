"""The servers of a program that has no configuration file, as entries.

Rules: what can be no server is refused at once, with its key. Nothing is started here.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from portico.client.targets import Surroundings, Target, way_to
from portico.errors import LocalProtocolError
from portico.host.settings import Config, Entry, Resolve, Settings


def configured(servers: Mapping[str, Target | Entry] | Config) -> Config:
    """What a program gave, as a configuration. Raises `LocalProtocolError`."""
    if isinstance(servers, Config):
        return servers
    return Config(entries={key: entry_of(key, given) for key, given in servers.items()})


def is_broken(config: Config, before: Config) -> bool:
    """Whether a file cannot be read now that could be before.

    A comma too many, while somebody writes, is no reason to stop every server.
    """
    return not _of_files(config) <= _of_files(before)


def _of_files(config: Config) -> set[tuple[str, str]]:
    """What is wrong with whole files, wherever in them."""
    return {
        (problem.place.file if problem.place is not None else "", problem.words)
        for problem in config.problems
        if not problem.server
    }


def entry_of(key: str, given: Target | Entry, settings: Settings | None = None) -> Entry:
    """One server as an entry; an entry is one already."""
    if isinstance(given, Entry):
        if given.key != key:
            words = f"the entry at {key!r} calls itself {given.key!r}; a server has one key"
            raise LocalProtocolError(words)
        return given
    try:
        way_to(given, Surroundings(name=key))
    except LocalProtocolError as error:
        raise LocalProtocolError(f"server {key!r}: {error}") from None
    settings = settings or Settings()
    return Entry(
        key=key,
        resolve=_resolving(given),
        fingerprint=f"{_fingerprint(given)} {settings!r}",
        shown=_shown(given),
        settings=settings,
    )


def _resolving(target: Target) -> Resolve:
    async def resolve() -> Any:
        return target

    return resolve


def _fingerprint(target: Target) -> str:
    """Equal for what means the same; an object in this process is only like itself."""
    if isinstance(target, str | os.PathLike | Mapping | Sequence):
        return sha256(repr(cast("object", target)).encode()).hexdigest()
    return f"{type(target).__qualname__} at {id(target)}"


def _shown(target: Target) -> str:
    """For people: what is started or reached, without headers and environment."""
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        if "url" in entry:
            return str(entry["url"])
        return shlex.join([str(entry.get("command", "")), *map(str, entry.get("args", ()))])
    if isinstance(target, str | os.PathLike):
        return os.fspath(target)
    if isinstance(target, Sequence):
        words = cast("Sequence[str | os.PathLike[str]]", target)
        return shlex.join(os.fspath(word) for word in words)
    return f"a {type(target).__name__} in this process"
