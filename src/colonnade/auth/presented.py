"""Access tokens that callers presented, in memory: the subjects of token exchanges for them.

    presented = PresentedTokens()
    Protection("https://gateway.example.com/mcp", Jwt(...), presented=presented)

Rules: a token is put here by the protection of a server, after it was verified, and read by the
grants of `auth` alone: it is sent to the configured issuer of an exchange and nowhere else. It is
never stored, logged, copied or shown, and each request of a principal replaces the one before.
"""

import time
from collections.abc import Callable
from typing import Final, NoReturn

from colonnade.errors import LoginRequired

# Principals whose last token is kept; beyond that the one that has been silent longest loses its.
MAX_PRINCIPALS: Final = 10_000
# How long after the last request of its principal a token is kept: as long as a long call runs.
MAX_KEPT_S: Final = 3600.0


class PresentedTokens:
    """The token that each principal presented last, for as long as it is valid."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # The token and when it is forgotten, by principal; the latest request last.
        self.__tokens: dict[str, tuple[str, float]] = {}

    def __repr__(self) -> str:
        return "PresentedTokens()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("tokens that callers presented cannot be copied or pickled")

    def put(self, principal: str, token: str, expires_at: float | None) -> None:
        """Keep the verified token of a request, in place of the previous one."""
        now = self._clock()
        until = now + MAX_KEPT_S
        tokens = self.__tokens
        tokens.pop(principal, None)
        tokens[principal] = (token, until if expires_at is None else min(until, expires_at))
        oldest = next(iter(tokens))
        if len(tokens) > MAX_PRINCIPALS or tokens[oldest][1] <= now:
            del tokens[oldest]

    def subject_of(self, principal: str) -> str:
        """The token of a principal, for a grant. Raises `LoginRequired` if there is none."""
        token, until = self.__tokens.get(principal, ("", 0.0))
        if not token or self._clock() >= until:
            self.__tokens.pop(principal, None)
            raise LoginRequired(
                "the caller has presented no valid access token to exchange; send the request "
                "again with one"
            )
        return token
