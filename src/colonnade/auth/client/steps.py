"""The steps of authorization, as a generator yields them: one text for every shell and every test.

    flow = some_flow(...)
    step = next(flow)          # Fetch, Listen, Visit, Load, Save, Erase
    step = flow.send(outcome)  # what came of it, or flow.throw(error)

Rules: no I/O, no clock of its own, no lock: whoever drives a flow does what it says, and may stop
at any step. What a stranger wrote is cleaned before a person reads it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from colonnade.auth.urls import shown
from colonnade.errors import AuthError
from colonnade.text import has_hidden, visible

T = TypeVar("T")

# Of what a stranger says of an error.
MAX_SAID_CHARACTERS = 200

OK: Final = 200
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


class Fetch(Struct, frozen=True):
    """Send a request; the outcome is a `Reply`. `secret` where what it holds must go nowhere else:
    then no redirect is followed."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    secret: bool = False

    def __repr__(self) -> str:
        return f"Fetch({self.method} {shown(self.url)})"


class Reply(Struct, frozen=True):
    """What came back: names of headers in lower case, the body whole."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for one, value in self.headers if one == name), None)

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"


class Listen(Struct, frozen=True):
    """Be ready for a browser to come back; the outcome is the redirect URI to use. `again` is one
    that was used before, and is kept where that is possible."""

    again: str = ""


class Visit(Struct, frozen=True):
    """Send a person to this page; the outcome is the query that the browser came back with."""

    url: str
    state: str

    def __repr__(self) -> str:
        return f"Visit({shown(self.url)})"


class Load(Struct, frozen=True):
    """Look up what is kept under a name; the outcome is bytes or None."""

    name: str


class Save(Struct, frozen=True):
    """Keep this under a name."""

    name: str
    value: bytes

    def __repr__(self) -> str:
        return f"Save({self.name!r}, {len(self.value)} bytes)"


class Erase(Struct, frozen=True):
    """Keep nothing under a name."""

    name: str


class Obtain(Struct, frozen=True):
    """Ask the program for something of its own, such as an assertion; the outcome is its text."""

    what: Callable[[], Any]


Step: TypeAlias = Fetch | Listen | Visit | Load | Save | Erase | Obtain
Flow: TypeAlias = Generator[Step, Any, T]


class Chance(Struct, frozen=True):
    """What a flow cannot know by itself: the time of day, and what nobody can guess."""

    now: Callable[[], float]
    secret: Callable[[], str]


def fetch(
    method: str,
    url: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    secret: bool = False,
) -> Flow[Reply]:
    """One request. Raises what its shell raises: `ChannelError`, `AuthError`."""
    return (yield Fetch(method, url, tuple(headers), body, secret))


def member(body: bytes, what: str) -> dict[str, Any]:
    """A JSON object. Raises `AuthError` for anything else."""
    found = object_in(body)
    if found is None:
        raise AuthError(f"{what} is no JSON object")
    return found


def object_in(body: bytes) -> dict[str, Any] | None:
    """The JSON object that a body is; None for anything else."""
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def text_in(found: Mapping[str, Any], name: str) -> str | None:
    """A member that is a text and not empty."""
    value = found.get(name)
    return value if isinstance(value, str) and value else None


def texts_in(found: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """A member that is a list of texts; what else is in it is left out. None where it is none."""
    value = found.get(name)
    if not isinstance(value, list):
        return None
    listed = cast("list[object]", value)
    return tuple(one for one in listed if isinstance(one, str) and one)


def said(text: object) -> str:
    """What a stranger wrote, for a person: short, printable, one line."""
    if not isinstance(text, str):
        return ""
    seen = visible(text[: 4 * MAX_SAID_CHARACTERS])
    # What is left of those that are not seen joins two others.
    clean = "".join(one if one.isprintable() or has_hidden(one) else " " for one in seen)
    return " ".join(clean.split())[:MAX_SAID_CHARACTERS]


def refusal_in(reply: Reply) -> tuple[str, str]:
    """The error of an OAuth endpoint and what it says of it; empty where it does not say."""
    found = object_in(reply.body) or {}
    return said(found.get("error")), said(found.get("error_description"))
