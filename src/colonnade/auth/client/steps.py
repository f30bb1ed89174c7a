"""Steps of an OAuth flow: what a flow generator yields, and the HTTP responses it is sent back.

    flow = some_flow(...)
    step = next(flow)          # SendRequest, OpenRedirectListener, LoadRecord, ...
    step = flow.send(outcome)  # the result of the step, or flow.throw(error)

Rules: no I/O, no clock, no lock. The driver of a flow executes each step, and may stop at any of
them. Text from an authorization server is sanitized before it is shown to a user.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from colonnade.auth.urls import display_url
from colonnade.errors import AuthError, LoginRequired
from colonnade.text import has_hidden, visible

T = TypeVar("T")

# Of an error description that an authorization server sent.
MAX_DESCRIPTION_CHARACTERS = 200
# What a part of a token, a code or a secret looks like. What is shorter is a word.
MIN_SECRET_CHARACTERS = 8
_SECRET_WORDS = re.compile(rf"[\w.~+/=-]{{{MIN_SECRET_CHARACTERS},}}")

OK: Final = 200
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


class SendRequest(Struct, frozen=True):
    """Send an HTTP request; the outcome is a `FlowResponse`."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"SendRequest({self.method} {display_url(self.url)})"


class FlowResponse(Struct, frozen=True):
    """An HTTP response: header names in lower case, the complete body."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for one, value in self.headers if one == name), None)

    def __repr__(self) -> str:
        return f"FlowResponse({self.status}, {len(self.body)} bytes)"


class OpenRedirectListener(Struct, frozen=True):
    """Listen for the redirect of the browser; the outcome is the redirect URI to use.

    `previous` is the redirect URI of an earlier login, used again if its port is free.
    """

    previous: str = ""


class OpenAuthorizationPage(Struct, frozen=True):
    """Send the user to the authorization endpoint; the outcome is the query of the redirect."""

    url: str
    state: str

    def __repr__(self) -> str:
        return f"OpenAuthorizationPage({display_url(self.url)})"


class LoginTimedOut(LoginRequired):
    """The browser was not redirected back in time."""


class LoadRecord(Struct, frozen=True):
    """Read a record from the token storage; the outcome is bytes, or None if there is none."""

    name: str


class SaveRecord(Struct, frozen=True):
    """Write a record to the token storage."""

    name: str
    value: bytes

    def __repr__(self) -> str:
        return f"SaveRecord({self.name!r}, {len(self.value)} bytes)"


class DeleteRecord(Struct, frozen=True):
    """Delete a record from the token storage."""

    name: str


class GetAssertion(Struct, frozen=True):
    """Call a function of the program that returns an assertion; the outcome is its result."""

    function: Callable[[], Any]


FlowStep: TypeAlias = (
    SendRequest
    | OpenRedirectListener
    | OpenAuthorizationPage
    | LoadRecord
    | SaveRecord
    | DeleteRecord
    | GetAssertion
)
Flow: TypeAlias = Generator[FlowStep, Any, T]


class FlowContext(Struct, frozen=True):
    """What a flow needs from outside: the time in seconds, and unguessable random strings."""

    now: Callable[[], float]
    new_secret: Callable[[], str]


def send_request(
    method: str, url: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
) -> Flow[FlowResponse]:
    """Send one HTTP request. Raises what the driver raises: `ChannelError`, `AuthError`."""
    return (yield SendRequest(method, url, tuple(headers), body))


def require_json_object(body: bytes, what: str) -> dict[str, Any]:
    """Decode a JSON object. Raises `AuthError` for anything else."""
    found = json_object(body)
    if found is None:
        raise AuthError(f"{what} is not a JSON object")
    return found


def json_object(body: bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None for anything else."""
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def string_member(document: Mapping[str, Any], name: str) -> str | None:
    """A member that is a non-empty string; None otherwise."""
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def string_list_member(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """The non-empty strings of a member that is an array; None if it is not an array."""
    value = document.get(name)
    if not isinstance(value, list):
        return None
    listed = cast("list[object]", value)
    return tuple(one for one in listed if isinstance(one, str) and one)


def printable_text(text: object, secrets: Sequence[str] = ()) -> str:
    """Sanitize text from an authorization server for a user: short, printable, one line, without
    what it quotes of secrets that were sent."""
    if not isinstance(text, str):
        return ""
    seen = visible(_without_secrets(text[: 4 * MAX_DESCRIPTION_CHARACTERS], secrets))
    # `visible` keeps invisible characters only where they join two others.
    clean = "".join(one if one.isprintable() or has_hidden(one) else " " for one in seen)
    return " ".join(clean.split())[:MAX_DESCRIPTION_CHARACTERS]


def _without_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text without words that are a secret or a part of one: issuers quote what they refuse, some
    of them shortened."""

    long = [one for one in secrets if len(one) >= MIN_SECRET_CHARACTERS]

    def shown(found: re.Match[str]) -> str:
        word = found[0].strip(".")
        return "…" if any(word in one or one in word for one in long) else found[0]

    return _SECRET_WORDS.sub(shown, text) if long else text


def oauth_error(response: FlowResponse, secrets: Sequence[str] = ()) -> tuple[str, str]:
    """`error` and `error_description` of an OAuth error response, without any of the secrets that
    were sent; empty if missing."""
    found = json_object(response.body) or {}
    error, description = found.get("error"), found.get("error_description")
    return printable_text(error, secrets), printable_text(description, secrets)
