"""The names of one catalogue: of each server's tools and prompts, and the way back to them.

    catalogue_name("files", "read")         # "files__read"
    catalogue_name("files", "notes.read")   # "files__notes_read_14a9bb38830b"

A name is two parts with two underscores between them, and each part is a function of one thing: the
first of the namespace, which is the server's key unless the configuration says another, the second
of the server's own name. A part that model providers would refuse, that is too long, or that could
be taken for another one, ends in a digest of what it stands for; no other part may look as if it
did. So different servers have different first parts, and what is allowed of `files__*` is allowed
of that server only.

Rules: pure. Nothing of a name depends on which other servers there are, or on what they offer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from colonnade.host.config.settings import Problem, Settings
from colonnade.providers.tool_calls import (
    DIGEST_CHARACTERS,
    MAX_NAME_CHARACTERS,
    is_safe,
    name_with_digest,
)

BETWEEN: Final = "__"
# Half of a name: what is left is enough for most tools, and a digest with words before it fits.
MAX_NAMESPACE: Final = 32
# Of the names that a server repeats, in one sentence for people.
MAX_TOLD: Final = 5

_DIGESTED = re.compile(rf".+_[0-9a-f]{{{DIGEST_CHARACTERS}}}")
_UNDERSCORES = re.compile(r"__+")

# A server's key, how it is shown, and the names that it lists, in its order.
Listing: TypeAlias = tuple[str, Settings, Iterable[str]]


def catalogue_name(namespace: str, name: str) -> str:
    """What a server's tool or prompt is called in a catalogue: always safe, always with `__`."""
    first = _first(namespace)
    room = MAX_NAME_CHARACTERS - len(first) - len(BETWEEN)
    is_plain = (
        is_safe(name)
        and len(name) <= room
        and not name.startswith("_")  # nobody counts three underscores right
        and not _DIGESTED.fullmatch(name)
    )
    return f"{first}{BETWEEN}{name if is_plain else name_with_digest(name, room, 'item')}"


def _first(namespace: str) -> str:
    if namespace_trouble(namespace) is None:
        return namespace
    return _UNDERSCORES.sub("_", name_with_digest(namespace, MAX_NAMESPACE, "server"))


def namespace_trouble(namespace: str) -> str | None:
    """Why a namespace does not stand in names as it is written; None if it does."""
    if not namespace:
        return "a namespace is not empty"
    if not is_safe(namespace[:MAX_NAME_CHARACTERS]):
        return f"the namespace {namespace!r} may have letters a-z, digits, '_' and '-' only"
    if len(namespace) > MAX_NAMESPACE:
        return f"the namespace {namespace!r} is longer than {MAX_NAMESPACE} characters"
    if BETWEEN in namespace or namespace[0] == "_" or namespace[-1] == "_":
        return (
            f"the namespace {namespace!r} may neither begin nor end with '_' nor have two of them "
            "together: '__' is what stands between it and a name"
        )
    if _DIGESTED.fullmatch(namespace):
        return f"the namespace {namespace!r} ends like a digest; take another end"
    return None


def alias_trouble(alias: str) -> str | None:
    """Why this cannot be an alias; None if it can."""
    if not is_safe(alias):
        return (
            f"the alias {alias!r} may have 1 to {MAX_NAME_CHARACTERS} letters a-z, digits, '_' "
            "and '-' only: "
            "model providers refuse other names"
        )
    if BETWEEN in alias:
        return f"the alias {alias!r} has '__' in it, as only names with a namespace have; use one"
    return None


def is_shown(settings: Settings, name: str) -> bool:
    """Whether a configuration shows what the server calls so."""
    if any(fnmatchcase(name, pattern) for pattern in settings.hidden):
        return False
    return settings.only is None or any(fnmatchcase(name, pattern) for pattern in settings.only)


class Claims:
    """What a configuration alone says of names: the namespace of each server, and the aliases.

    - `namespaces`: by key. A server is not in it whose namespace is another's: a name that leads
      to one of two servers is worse than none. Its own key is nobody else's to take; of two that
      ask for the same one, the first has it.
    - `aliases`: the key and the server's own name that each leads to; the first of two has it.
    - `problems`: what is wrong, a sentence each.
    """

    def __init__(self, servers: Iterable[tuple[str, Settings]]) -> None:
        settings = dict(servers)
        problems: list[Problem] = []
        self.namespaces: Mapping[str, str] = _namespaces(settings, problems)
        self.aliases: Mapping[str, tuple[str, str]] = _aliases(settings, problems)
        self.problems: tuple[Problem, ...] = tuple(problems)


def _namespaces(settings: Mapping[str, Settings], problems: list[Problem]) -> dict[str, str]:
    holders = {key: key for key, one in settings.items() if one.namespace in (None, key)}
    for key, one in settings.items():
        wanted = one.namespace
        if wanted is None or wanted == key:
            continue
        if trouble := namespace_trouble(wanted):
            words = f"{trouble}; until then names of server {key!r} begin with '{_first(wanted)}__'"
            problems.append(Problem(key, words))
        holder = holders.setdefault(wanted, key)
        if holder != key:
            words = (
                f"server {key!r} asks for the namespace {wanted!r}, which is that of server "
                f"{holder!r}; nothing of {key!r} is shown until it has another"
            )
            problems.append(Problem(key, words))
    own = {key: namespace for namespace, key in holders.items()}
    return {key: own[key] for key in settings if key in own}


def _aliases(
    settings: Mapping[str, Settings], problems: list[Problem]
) -> dict[str, tuple[str, str]]:
    aliases: dict[str, tuple[str, str]] = {}
    for key, one in settings.items():
        for alias, name in one.aliases.items():
            if trouble := alias_trouble(alias):
                problems.append(Problem(key, f"{trouble} (for {name!r} of server {key!r})"))
                continue
            first = aliases.setdefault(alias, (key, name))
            if first != (key, name):
                words = (
                    f"the alias {alias!r} is for {first[1]!r} of server {first[0]!r} already, and "
                    f"cannot be for {name!r} of server {key!r} as well"
                )
                problems.append(Problem(key, words))
    return aliases


class Named(NamedTuple):
    """One thing in a catalogue: its name there, whose it is, and the server's own name for it.

    `aliases` lead to it as well.
    """

    name: str
    server: str
    own: str
    aliases: tuple[str, ...] = ()


class Names:
    """The names of one kind of thing, of all servers, as they stand at one moment.

    It is made of what servers list, in the order of the configuration, and keeps that order. What
    a configuration hides has no name here and is not led to.
    """

    def __init__(self, listings: Iterable[Listing]) -> None:
        known = [(key, settings, list(names)) for key, settings, names in listings]
        claims = Claims((key, settings) for key, settings, _ in known)
        aliases: dict[tuple[str, str], list[str]] = {}
        for alias, meant in claims.aliases.items():
            aliases.setdefault(meant, []).append(alias)
        self._made: dict[tuple[str, str], Named] = {}
        self._led: dict[str, Named] = {}
        problems = list(claims.problems)
        for key, settings, names in known:
            namespace = claims.namespaces.get(key)
            if namespace is None:
                continue
            twice: dict[str, None] = {}
            for own in names:
                if not is_shown(settings, own):
                    continue
                if (key, own) in self._made:
                    twice[own] = None
                    continue
                made = catalogue_name(namespace, own)
                named = Named(made, key, own, tuple(aliases.get((key, own), ())))
                if self._led.setdefault(made, named) is not named:
                    problems.append(Problem(key, _clash(named, self._led[made])))
                    continue
                self._made[key, own] = named
                self._led.update(dict.fromkeys(named.aliases, named))
            if twice:
                problems.append(Problem(key, _repeated(key, list(twice))))
        self.problems: tuple[Problem, ...] = tuple(problems)

    def find(self, name: str) -> Named | None:
        """What a name or an alias of the catalogue leads to."""
        return self._led.get(name)

    def of(self, server: str, own: str) -> Named | None:
        """How something of a server is named, by what the server calls it."""
        return self._made.get((server, own))

    def __iter__(self) -> Iterator[Named]:
        return iter(self._made.values())

    def __len__(self) -> int:
        return len(self._made)


def _clash(late: Named, first: Named) -> str:
    return (
        f"{late.own!r} of server {late.server!r} would be called {late.name!r}, as {first.own!r} "
        f"of server {first.server!r} is; it is not shown until one of them has another name"
    )


def _repeated(key: str, names: list[str]) -> str:
    told = ", ".join(map(repr, names[:MAX_TOLD]))
    if len(names) > MAX_TOLD:
        told += f" and {len(names) - MAX_TOLD} others"
    return f"server {key!r} lists {told} more than once; the first of each is what is called"
