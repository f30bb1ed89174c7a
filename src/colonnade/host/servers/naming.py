"""Qualified names of tools and prompts (`server__tool`), namespaces, aliases and collisions.

    qualified_name("files", "read")         # "files__read"
    qualified_name("files", "notes.read")   # "files__notes_read_14a9bb38830b"

A name is two parts with two underscores between them, and each part is a function of one thing: the
first of the namespace, which is the server's key unless the configuration sets another, the second
of the name on the server. A part that model providers would reject, that is too long, or that could
be mistaken for another one, ends in a digest of what it stands for; no other part may end like
that. So different servers have different prefixes, and a rule for `files__*` is for that server
only.

`limit` is the length of a name: shorter for a gateway, whose clients put prefixes of their own
before it.

Rules: pure. A name does not depend on which other servers there are, or on what they offer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from colonnade.host.config.settings import HostProblem, Settings
from colonnade.providers.tool_calls import (
    DIGEST_CHARACTERS,
    MAX_NAME_CHARACTERS,
    is_safe,
    name_with_digest,
)

BETWEEN: Final = "__"
# The length of names that model providers accept.
NAME_LIMIT: Final = MAX_NAME_CHARACTERS
# Two digests with something before each: a shorter name could not be told from another.
MIN_NAME_LIMIT: Final = 40
# Half of a name: the rest is enough for most tools, and a digest with words before it fits.
MAX_NAMESPACE: Final = NAME_LIMIT // 2
# Duplicate names that one message lists.
MAX_NAMED: Final = 5

_DIGESTED = re.compile(rf".+_[0-9a-f]{{{DIGEST_CHARACTERS}}}")
_UNDERSCORES = re.compile(r"__+")

# The key of a server, its settings, and the names that it lists, in its order.
ListedNames: TypeAlias = tuple[str, Settings, Iterable[str]]


def qualified_name(namespace: str, name: str, limit: int = NAME_LIMIT) -> str:
    """The qualified name of a tool or prompt: always valid for model providers, always with
    `__`, and never longer than `limit`, which is `MIN_NAME_LIMIT` to `NAME_LIMIT`."""
    first = _first(namespace, limit)
    room = limit - len(first) - len(BETWEEN)
    is_plain = (
        is_safe(name)
        and len(name) <= room
        and not name.startswith("_")  # three underscores in a row are misread
        and not _DIGESTED.fullmatch(name)
    )
    return f"{first}{BETWEEN}{name if is_plain else name_with_digest(name, room, 'item')}"


def _first(namespace: str, limit: int = NAME_LIMIT) -> str:
    most = limit // 2
    if len(namespace) <= most and namespace_problem(namespace) is None:
        return namespace
    return _UNDERSCORES.sub("_", name_with_digest(namespace, most, "server"))


def namespace_problem(namespace: str) -> str | None:
    """Why a namespace cannot be used in names as it is written; None if it can."""
    if not namespace:
        return "a namespace must not be empty"
    if not is_safe(namespace[:MAX_NAME_CHARACTERS]):
        return f"the namespace {namespace!r} may have letters a-z, digits, '_' and '-' only"
    if len(namespace) > MAX_NAMESPACE:
        return f"the namespace {namespace!r} is longer than {MAX_NAMESPACE} characters"
    if BETWEEN in namespace or namespace[0] == "_" or namespace[-1] == "_":
        return (
            f"the namespace {namespace!r} may neither begin nor end with '_' nor contain '__', "
            "which separates it from a name"
        )
    if _DIGESTED.fullmatch(namespace):
        return f"the namespace {namespace!r} ends like a digest; change its end"
    return None


def alias_problem(alias: str) -> str | None:
    """Why this cannot be an alias; None if it can."""
    if not is_safe(alias):
        return (
            f"the alias {alias!r} may have 1 to {MAX_NAME_CHARACTERS} letters a-z, digits, '_' "
            "and '-' only: model providers reject other names"
        )
    if BETWEEN in alias:
        return f"the alias {alias!r} contains '__', which is for names with a namespace; use '_'"
    return None


def is_shown(settings: Settings, name: str) -> bool:
    """Whether the settings show an item, by its name on the server."""
    if any(fnmatchcase(name, pattern) for pattern in settings.hidden):
        return False
    return settings.only is None or any(fnmatchcase(name, pattern) for pattern in settings.only)


class NameClaims:
    """What a configuration alone says about names: the namespace of each server, and the aliases.

    - `namespaces`: by key. A server whose namespace belongs to another is left out: an ambiguous
      name is worse than none. The key of a server is reserved for it; of two servers that want the
      same namespace, the first has it.
    - `aliases`: the key of the server and the name on it that each stands for; the first of two
      wins.
    - `problems`: what is wrong.
    """

    def __init__(self, servers: Iterable[tuple[str, Settings]]) -> None:
        settings = dict(servers)
        problems: list[HostProblem] = []
        self.namespaces: Mapping[str, str] = _namespaces(settings, problems)
        self.aliases: Mapping[str, tuple[str, str]] = _aliases(settings, problems)
        self.problems: tuple[HostProblem, ...] = tuple(problems)


def _namespaces(settings: Mapping[str, Settings], problems: list[HostProblem]) -> dict[str, str]:
    owners = {key: key for key, one in settings.items() if one.namespace in (None, key)}
    for key, one in settings.items():
        wanted = one.namespace
        if wanted is None or wanted == key:
            continue
        if problem := namespace_problem(wanted):
            message = f"{problem}; for now names of server {key!r} begin with '{_first(wanted)}__'"
            problems.append(HostProblem(key, message))
        owner = owners.setdefault(wanted, key)
        if owner != key:
            message = (
                f"server {key!r} wants the namespace {wanted!r}, which belongs to server "
                f"{owner!r}; {key!r} is not used until it has another"
            )
            problems.append(HostProblem(key, message))
    own = {key: namespace for namespace, key in owners.items()}
    return {key: own[key] for key in settings if key in own}


def _aliases(
    settings: Mapping[str, Settings], problems: list[HostProblem]
) -> dict[str, tuple[str, str]]:
    aliases: dict[str, tuple[str, str]] = {}
    for key, one in settings.items():
        for alias, name in one.aliases.items():
            if problem := alias_problem(alias):
                problems.append(HostProblem(key, f"{problem} (for {name!r} of server {key!r})"))
                continue
            first = aliases.setdefault(alias, (key, name))
            if first != (key, name):
                message = (
                    f"the alias {alias!r} stands for {first[1]!r} of server {first[0]!r} already; "
                    f"choose another one for {name!r} of server {key!r}"
                )
                problems.append(HostProblem(key, message))
    return aliases


class QualifiedName(NamedTuple):
    """The qualified name of an item, the key of its server, its name on that server, and the
    aliases that stand for it as well."""

    name: str
    server: str
    own: str
    aliases: tuple[str, ...] = ()


class NameIndex:
    """The qualified names of one kind of item, of all servers, at one moment.

    It is made from the lists of the servers, in the order of the configuration, and keeps that
    order. What the configuration hides has no name in it. No name is longer than `limit`.
    """

    def __init__(self, listings: Iterable[ListedNames], limit: int = NAME_LIMIT) -> None:
        known = [(key, settings, list(names)) for key, settings, names in listings]
        claims = NameClaims((key, settings) for key, settings, _ in known)
        aliases: dict[tuple[str, str], list[str]] = {}
        for alias, target in claims.aliases.items():
            aliases.setdefault(target, []).append(alias)
        self._by_own_name: dict[tuple[str, str], QualifiedName] = {}
        self._by_name: dict[str, QualifiedName] = {}
        problems = list(claims.problems)
        for key, settings, names in known:
            namespace = claims.namespaces.get(key)
            if namespace is None:
                continue
            repeated: dict[str, None] = {}
            for own in names:
                if not is_shown(settings, own):
                    continue
                if (key, own) in self._by_own_name:
                    repeated[own] = None
                    continue
                qualified = qualified_name(namespace, own, limit)
                named = QualifiedName(qualified, key, own, tuple(aliases.get((key, own), ())))
                if self._by_name.setdefault(qualified, named) is not named:
                    problems.append(HostProblem(key, _collision(named, self._by_name[qualified])))
                    continue
                self._by_own_name[key, own] = named
                self._by_name.update(dict.fromkeys(named.aliases, named))
            if repeated:
                problems.append(HostProblem(key, _duplicates(key, list(repeated))))
        self.problems: tuple[HostProblem, ...] = tuple(problems)

    def find(self, name: str) -> QualifiedName | None:
        """What a qualified name or an alias stands for."""
        return self._by_name.get(name)

    def of(self, server: str, own: str) -> QualifiedName | None:
        """The qualified name of an item, by its server and its name there."""
        return self._by_own_name.get((server, own))

    def __iter__(self) -> Iterator[QualifiedName]:
        return iter(self._by_own_name.values())

    def __len__(self) -> int:
        return len(self._by_own_name)


def _collision(late: QualifiedName, first: QualifiedName) -> str:
    return (
        f"{late.own!r} of server {late.server!r} has the same qualified name {late.name!r} as "
        f"{first.own!r} of server {first.server!r}; it is hidden until one of them is renamed"
    )


def _duplicates(key: str, names: list[str]) -> str:
    named = ", ".join(map(repr, names[:MAX_NAMED]))
    if len(names) > MAX_NAMED:
        named += f" and {len(names) - MAX_NAMED} others"
    return f"server {key!r} lists {named} more than once; the first of each is used"
