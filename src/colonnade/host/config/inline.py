"""The servers of a program that has no configuration file, as entries.

Rules: what can be no server is refused at once, with its key. Nothing is started here.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from colonnade.client.connect import Surroundings, Target, way_to
from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.host.config.settings import Config, Entry, Resolve, Settings

_REACHING = ("type", "command", "args", "env", "cwd", "url", "headers")
# What files have around their servers.
_WHOLE = ("mcpServers", "servers")


def configured(servers: Mapping[str, Target | Entry] | Config) -> Config:
    """What a program gave, as a configuration. Raises `LocalProtocolError`."""
    if isinstance(servers, Config):
        return servers
    _check_whole(servers)
    return Config(entries={key: entry_of(key, given) for key, given in servers.items()})


def _check_whole(servers: object) -> None:
    """Refuse what is for `from_config`, or was taken out of a file with its wrapping."""
    if not isinstance(servers, Mapping):
        is_file = isinstance(servers, str | os.PathLike | list | tuple)
        files = (
            "use Host.from_config(…) for files" if is_file else f"not a {type(servers).__name__}"
        )
        raise InvalidArgumentType(f"a Host takes a dict with a server for each key; {files}")
    whole = cast("Mapping[str, object]", servers)
    for name in _WHOLE:
        inside = whole.get(name)
        if not isinstance(inside, Mapping):
            continue
        entries = cast("Mapping[str, object]", inside)
        if all(isinstance(one, Mapping) for one in entries.values()):
            words = f"give what is inside of it, Host(config[{name!r}])"
            words += ", or use Host.from_config(…) for the file"
            raise InvalidArgument(f"{name!r} is what a file has around its servers; {words}")


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
            raise InvalidArgument(words)
        return given
    try:
        if isinstance(given, Mapping):
            given, own = _split(key, cast("Mapping[str, Any]", given))
            if own is not None and settings is not None:
                raise InvalidArgument("its settings are said twice; say them in one place")
            settings = settings or own
        way_to(given, Surroundings(name=key))
    except LocalProtocolError as error:
        raise error.with_server(key) from None  # the same class: a wrong type stays a TypeError
    settings = settings or Settings()
    return Entry(
        key=key,
        resolve=_resolving(given),
        fingerprint=f"{_fingerprint(given)} {settings!r}",
        shown=_shown(given),
        settings=settings,
    )


# ---------------------------------------------------------------- settings in a dict


def _split(key: str, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Settings | None]:
    """What reaches a server, and how it is kept, as `colonnade.toml` says it. Raises
    `LocalProtocolError` for what is neither."""
    if given.keys() <= {*_REACHING} or any(name in given for name in _WHOLE):
        return given, None
    from colonnade.host.config.formats import SETTINGS

    for name in given:
        if name not in SETTINGS and name not in _REACHING:
            raise InvalidArgument(_unknown(str(name), [*_REACHING, *SETTINGS]))
    reaching = {name: value for name, value in given.items() if name in _REACHING}
    return reaching, _settings(key, {n: v for n, v in given.items() if n in SETTINGS})


def _unknown(name: str, known: list[str]) -> str:
    from colonnade.host.config.formats import MEANT
    from colonnade.protocol.schema.error_messages import suggestion

    if name == "login":
        return "'login' is for colonnade.toml; here it is Host(auth=…) that says who we are"
    meant = MEANT.get(name, "")
    hint = f"; did you mean {meant!r}?" if meant in known else suggestion(name, known)
    return f"there is no {name!r} in an entry{hint or '; there are ' + ', '.join(known)}"


def _settings(key: str, given: Mapping[str, Any]) -> Settings:
    """The same check, in the same words, as of our own file."""
    from colonnade.host.config import lookups
    from colonnade.host.config.entry import Document, Node, Origin, below, drafted
    from colonnade.host.config.formats import NAMED, defaults
    from colonnade.host.config.lookups import Inputs
    from colonnade.host.config.resolve import settings_of

    paper = Document("", "")

    def node(value: Any, name: str) -> Node:
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            members = {one: node(table[one], below(name, one)) for one in table}
            return Node(paper, 0, name, table, members)
        if isinstance(value, list | tuple):
            items = [node(one, name) for one in cast("Sequence[Any]", value)]
            return Node(paper, 0, name, None, None, items)
        if isinstance(value, os.PathLike):
            value = os.fspath(cast("os.PathLike[str]", value))
        return Node(paper, 0, name, value)

    usual = defaults()
    said = {n: v for n, v in given.items() if v is not None or usual[n] is not None}
    if said.get("idle_s", 0) is None:
        said["idle_s"] = False  # which is how a file says never
    # Folders are those of whoever runs this program, as if a file stood where it runs.
    origin = Origin(os.path.join(os.getcwd(), ""), "colonnade", NAMED, os.getcwd())
    draft = drafted(key, node(said, ""), origin)
    around = lookups.Surroundings(os.environ, os.path.expanduser("~"), Inputs(None), {})
    made = settings_of(draft, around) if not draft.problems else Settings()
    if draft.problems:
        wrong = draft.problems[0]
        where = wrong.place.key if wrong.place is not None else ""
        raise InvalidArgument(f"{where}: {wrong.words}")
    return made


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
