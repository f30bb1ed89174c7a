"""`WWW-Authenticate` challenges: which schemes a server accepts, and where its metadata is.

Rules: pure. The header is untrusted: what does not fit the grammar (RFC 9110, 11.6.1) ends the
parsing, and what was parsed before it counts. Only `reason` is repeated into an error: short, on
one line, and without invisible characters.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from colonnade.text import visible

# All `WWW-Authenticate` lines of one response; a challenge takes some hundred characters.
MAX_CHARACTERS = 16 * 1024
# Bearer, DPoP, Basic, Negotiate: no server needs more than this.
MAX_CHALLENGES = 16
MAX_PARAMETERS = 32

# How much of the reason is shown in an error.
MAX_REASON = 300

INSUFFICIENT_SCOPE: Final = "insufficient_scope"
BEARER: Final = "bearer"
DPOP: Final = "dpop"

_SPACE = re.compile(r"[ \t]*")
_SEPARATOR = re.compile(r"[ \t,]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_QUOTED = re.compile(r'"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_ESCAPE = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """One authentication scheme that a server accepts, in lower case, with its parameters."""

    scheme: str
    parameters: Mapping[str, str]

    @property
    def error(self) -> str:
        """The error code of RFC 6750; empty if there is none."""
        return self.parameters.get("error", "")

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that this request needs; None if they are not named."""
        scope = self.parameters.get("scope")
        return None if scope is None else tuple(dict.fromkeys(scope.split()))


class Challenges(Struct, frozen=True):
    """All challenges of one response."""

    all: tuple[Challenge, ...] = ()

    def get(self, scheme: str) -> Challenge | None:
        """The first challenge of a scheme."""
        return next((one for one in self.all if one.scheme == scheme), None)

    @property
    def token_challenges(self) -> tuple[Challenge, ...]:
        """Those that take an access token, DPoP before Bearer: a bound token is preferred."""
        found = (self.get(DPOP), self.get(BEARER))
        return tuple(one for one in found if one is not None)

    def parameter(self, name: str) -> str | None:
        """A parameter of the first token challenge that has it."""
        return next(
            (one.parameters[name] for one in self.token_challenges if name in one.parameters), None
        )

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that this request needs; None if no token challenge names any."""
        return next((one.scopes for one in self.token_challenges if one.scopes is not None), None)

    @property
    def reason(self) -> str:
        """Why the token was rejected: `invalid_token: the token has expired`; empty if unknown.
        Missing scopes are named."""
        for one in self.token_challenges:
            if one.error:
                words = one.parameters.get("error_description", "")
                if one.error == INSUFFICIENT_SCOPE and one.scopes:
                    words = f"it needs the scope {' '.join(one.scopes)}"
                said = f"{one.error}: {words}" if words else one.error
                line = visible(" ".join(said.split()))
                return line[:MAX_REASON] + ("…" if len(line) > MAX_REASON else "")
        return ""

    @property
    def wants_dpop(self) -> bool:
        """Whether a token must, or may, be bound to a key."""
        return self.get(DPOP) is not None


def read_challenges(lines: Iterable[str]) -> Challenges:
    """Parse the challenges of every `WWW-Authenticate` line of a response."""
    text = ",".join(lines)[:MAX_CHARACTERS]
    found: list[Challenge] = []
    at = _after(_SEPARATOR, text, 0)
    while at < len(text) and len(found) < MAX_CHALLENGES:
        scheme = _TOKEN.match(text, at)
        if scheme is None:
            break
        at = scheme.end()
        parameters: dict[str, str] = {}
        if text[at : at + 1] in (" ", "\t"):
            at = _read_parameters(text, _after(_SPACE, text, at), parameters)
        found.append(Challenge(scheme.group().lower(), parameters))
        if at < len(text) and text[at - 1 : at] not in (",", " ", "\t") and text[at] != ",":
            break
        at = _after(_SEPARATOR, text, at)
    return Challenges(tuple(found))


def _read_parameters(text: str, at: int, into: dict[str, str]) -> int:
    """Parse the parameters of one scheme; returns where they end. Of two with one name the first
    counts."""
    token68 = _TOKEN68.match(text, at)
    if token68 is not None and not _is_parameter(text, at):
        return token68.end()
    while at < len(text) and len(into) < MAX_PARAMETERS:
        name = _TOKEN.match(text, at)
        if name is None or not _is_parameter(text, at):
            return at  # the next scheme begins here, or something unknown
        equals = _after(_SPACE, text, name.end())
        value = _after(_SPACE, text, equals + 1)
        quoted, plain = _QUOTED.match(text, value), _TOKEN.match(text, value)
        matched = quoted or plain
        assert matched is not None  # as `_is_parameter` has seen
        said = _ESCAPE.sub(r"\1", quoted.group(1)) if quoted is not None else matched.group()
        into.setdefault(name.group().lower(), said)
        at = _after(_SPACE, text, matched.end())
        if text[at : at + 1] != ",":
            return at
        at = _after(_SEPARATOR, text, at)
    return at


def _is_parameter(text: str, at: int) -> bool:
    """Whether `name = value` stands here, and not a scheme or its token68."""
    name = _TOKEN.match(text, at)
    if name is None:
        return False
    equals = _after(_SPACE, text, name.end())
    if text[equals : equals + 1] != "=":
        return False
    value = _after(_SPACE, text, equals + 1)
    return _QUOTED.match(text, value) is not None or _TOKEN.match(text, value) is not None


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    matched = pattern.match(text, at)
    return at if matched is None else matched.end()
