"""Server entries from a dict of a program, without a configuration file.

Rules: what cannot be a server is refused at once, with its key. Nothing is started here.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from colonnade.client.connect import ConnectContext, Target, transport_for
from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.host.config.local_paths import local_paths
from colonnade.host.config.settings import (
    ROOTS_OF_CALLER,
    Config,
    Resolve,
    ServerEntry,
    Settings,
    credentials_problem,
)
from colonnade.transport.process.sandbox import sandbox_of

_TARGET_KEYS = ("type", "command", "args", "env", "cwd", "url", "headers")
# The key of the object that holds the servers, in files.
_FILE_KEYS = ("mcpServers", "servers")


def configured(servers: Mapping[str, Target | ServerEntry] | Config) -> Config:
    """The servers of a program as a configuration. Raises `LocalProtocolError`."""
    if isinstance(servers, Config):
        return servers
    _check_whole(servers)
    return Config(entries={key: entry_of(key, given) for key, given in servers.items()})


def _check_whole(servers: object) -> None:
    """Refuse paths, which are for `from_config`, and the whole content of a file."""
    if not isinstance(servers, Mapping):
        is_file = isinstance(servers, str | os.PathLike | list | tuple)
        hint = "use Host.from_config(…) for files" if is_file else f"not a {type(servers).__name__}"
        raise InvalidArgumentType(f"Host takes a dict of servers by key; {hint}")
    whole = cast("Mapping[str, object]", servers)
    for name in _FILE_KEYS:
        inside = whole.get(name)
        if not isinstance(inside, Mapping):
            continue
        entries = cast("Mapping[str, object]", inside)
        if all(isinstance(one, Mapping) for one in entries.values()):
            hint = f"pass its value, Host(config[{name!r}]), or use Host.from_config(…) for a file"
            raise InvalidArgument(f"{name!r} is the key of the servers in a file; {hint}")


def is_broken(config: Config, before: Config) -> bool:
    """Whether a file cannot be read now that could be read before.

    A syntax error while a user edits a file is no reason to stop every server.
    """
    return not _file_problems(config) <= _file_problems(before)


def _file_problems(config: Config) -> set[tuple[str, str]]:
    """The problems of whole files, without their line."""
    return {
        (problem.place.file if problem.place is not None else "", problem.message)
        for problem in config.problems
        if not problem.server
    }


def has_parts(config: Config) -> bool:
    """Whether a configuration wants an audit log, an inbox, pins, or hidden text contained."""
    if any(one is not None for one in (config.audit, config.approvals, config.pins)):
        return True
    every = [one.settings for one in config.entries.values()]
    return any(name not in (None, "off") for one in every for name in (one.pins, one.contain))


def entry_of(
    key: str, given: Target | ServerEntry, settings: Settings | None = None
) -> ServerEntry:
    """One server as an entry. Raises `LocalProtocolError`."""
    if isinstance(given, ServerEntry):
        if given.key != key:
            message = f"the entry at {key!r} has the key {given.key!r}; both must be the same"
            raise InvalidArgument(message)
        return given
    try:
        if isinstance(given, Mapping):
            given, own = _split(cast("Mapping[str, Any]", given))
            if own is not None and settings is not None:
                raise InvalidArgument("its settings are given twice")
            settings = settings or own
        transport_for(given, ConnectContext(name=key))
        settings = settings or Settings()
        why = credentials_problem(settings, has_url=_has_url(given))
        if why:
            raise InvalidArgument(why, argument="credentials")
    except LocalProtocolError as error:
        raise error.with_server(key) from None  # the same class: a wrong type stays a TypeError
    return ServerEntry(
        key=key,
        resolve=_resolver(given),
        fingerprint=f"{_fingerprint(given)} {settings!r}",
        shown=_shown(given),
        settings=settings,
        local_paths=_local_paths(given),
    )


# ---------------------------------------------------------------- settings in a dict


def _split(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Settings | None]:
    """The target and the settings of a dict with the keys of `colonnade.toml`. Raises
    `LocalProtocolError` for any other key."""
    if given.keys() <= {*_TARGET_KEYS} or any(name in given for name in _FILE_KEYS):
        return given, None
    from colonnade.host.config.formats import SETTINGS

    for name in given:
        if name not in SETTINGS and name not in _TARGET_KEYS:
            raise InvalidArgument(_unknown(str(name), [*_TARGET_KEYS, *SETTINGS]))
    target = {name: value for name, value in given.items() if name in _TARGET_KEYS}
    return target, settings_of({n: v for n, v in given.items() if n in SETTINGS})


def _unknown(name: str, known: list[str]) -> str:
    from colonnade.host.config.formats import SYNONYMS
    from colonnade.protocol.schema.error_messages import suggestion

    if name == "login":
        return "'login' is a key of colonnade.toml; pass Host(auth=…) instead"
    meant = SYNONYMS.get(name, "")
    hint = f"; did you mean {meant!r}?" if meant in known else suggestion(name, known)
    return f"unknown key {name!r}{hint or '; known keys: ' + ', '.join(known)}"


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Validate settings by the types that `colonnade.toml` has. Raises `LocalProtocolError`."""
    from colonnade.host.config.formats import default_settings

    defaults = default_settings()
    valid: dict[str, Any] = {}
    for name, value in given.items():
        if value is None and name == "idle_s":  # never, which a file writes as false
            valid[name] = None
        elif value is not None or defaults[name] is not None:
            valid[name] = _setting(name, value)
    return Settings(**valid)


def _setting(name: str, value: Any) -> Any:
    from colonnade.host.config.formats import NEVER, SETTINGS, ValueKind, scalar_value

    kind = SETTINGS[name].kind
    if kind is ValueKind.SANDBOX:
        return sandbox_of(value) or False
    if kind is ValueKind.STRING:
        text = _string(name, value)
        if name == "revision":
            _check_revision(text)
        return text
    if kind is ValueKind.ROOTS and value == ROOTS_OF_CALLER:
        return value
    if kind in (ValueKind.STRINGS, ValueKind.ROOTS) and isinstance(value, list | tuple):
        items = enumerate(cast("Sequence[Any]", value))
        strings = tuple(_string(f"{name}[{number}]", one) for number, one in items)
        return tuple(map(_absolute, strings)) if name == "roots" else strings
    if kind is ValueKind.TABLE and isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {one: _string(f"{name}.{one}", table[one]) for one in table}
    no_scalar = (ValueKind.STRINGS, ValueKind.ROOTS, ValueKind.TABLE)
    found = None if kind in no_scalar else scalar_value(value, kind)
    if found is None:
        raise InvalidArgument(f"{name}: expected {kind.value}")
    return None if found is NEVER else found


def _string(where: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(cast("os.PathLike[str]", value))
    if not isinstance(value, str):
        raise InvalidArgument(f"{where}: expected a string")
    if "\0" in value:
        raise InvalidArgument(f"{where}: a NUL character is not allowed")
    return value


def _absolute(path: str) -> str:
    """A path from the home folder, or from the current one."""
    if path == "~" or path.startswith(("~/", "~\\")):
        path = os.path.expanduser("~") + path[1:]
    return os.path.abspath(path)


def _check_revision(date: str) -> None:
    from colonnade.protocol.revision import EVERY

    if date not in EVERY.dates:
        message = f"unknown revision; known revisions: {', '.join(EVERY.dates)}"
        raise InvalidArgument(f"revision: {message}")


# ---------------------------------------------------------------- entries


def _resolver(target: Target) -> Resolve:
    async def resolve() -> Any:
        return target

    return resolve


def _fingerprint(target: Target) -> str:
    """Equal for equal targets; an object in this process is equal only to itself."""
    if isinstance(target, str | os.PathLike | Mapping | Sequence):
        return sha256(repr(cast("object", target)).encode()).hexdigest()
    return f"{type(target).__qualname__} at {id(target)}"


def _has_url(target: Target) -> bool:
    if isinstance(target, Mapping):
        return "url" in target
    return isinstance(target, str) and target.lower().startswith(("http://", "https://"))


def _shown(target: Target) -> str:
    """The command or the URL, for people, without headers and environment."""
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        if "url" in entry:
            return str(entry["url"])
        return shlex.join([str(entry.get("command", "")), *map(str, entry.get("args", ()))])
    if isinstance(target, str | os.PathLike):
        return os.fspath(target)
    if isinstance(target, Sequence):
        command = cast("Sequence[str | os.PathLike[str]]", target)
        return shlex.join(os.fspath(word) for word in command)
    return f"a {type(target).__name__} in this process"


def _local_paths(target: Target) -> tuple[str, ...]:
    """What the words of a command, or the name of a file, name in its working folder."""
    if isinstance(target, str | os.PathLike):
        return local_paths(("", os.fspath(target)), os.getcwd())
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        if "url" in entry:
            return ()
        words = (entry.get("command", ""), *entry.get("args", ()))
        return local_paths([str(word) for word in words], str(entry.get("cwd") or os.getcwd()))
    if isinstance(target, Sequence):
        command = cast("Sequence[str | os.PathLike[str]]", target)
        return local_paths([os.fspath(word) for word in command], os.getcwd())
    return ()
