"""Requests of OAuth endpoints and their errors: parameters, PKCE, authorization responses.

What an authorization server of ours reads of a request: the proxy, and the issuer for development.

Rules: a parameter that is there twice is refused (RFC 6749, 3.1), one without a value counts as
absent. An error goes to a redirect URI only as a `RedirectFailure`, which is for verified ones. No
I/O.
"""

import hmac
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from msgspec import Struct

from colonnade.auth.client.authorization_code import code_challenge
from colonnade.auth.urls import with_query
from colonnade.protocol.http.security import BAD_REQUEST

FORM: Final = "application/x-www-form-urlencoded"
# An authorization request has a dozen parameters; a redirect URI and a state are the long ones.
MAX_FIELDS: Final = 64
MAX_QUERY_CHARACTERS: Final = 16 * 1024
# All that an endpoint reads. Others are ignored, whatever they contain (RFC 6749, 3.1): Microsoft
# describes errors with line breaks, and a login hint may have any letters.
PARAMETERS: Final = frozenset(
    {
        *("client_id", "client_secret", "redirect_uri", "response_type", "response_mode", "scope"),
        *("state", "code_challenge", "code_challenge_method", "dpop_jkt", "prompt", "request"),
        *("request_uri", "resource", "code", "error", "iss", "decision", "grant_type", "nonce"),
        *("code_verifier", "refresh_token", "token", "user"),
    }
)

Pairs = tuple[tuple[str, str], ...]

# RFC 7636, 4.2: SHA-256 in base64url, as a thumbprint of a key is (RFC 7638).
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
# RFC 7636, 4.1.
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class OAuthFailure(Exception):
    """An OAuth error: to the client as JSON, or by the redirect URI once that is verified."""

    def __init__(
        self, error: str, description: str, status: int = BAD_REQUEST, headers: Pairs = ()
    ) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


class RedirectFailure(Exception):
    """An OAuth error for a verified redirect URI.

    Anyone can register a URI, and anyone can send a user to it by a request that fails. So the
    browser is sent there by itself only if the user has `approved` the client (R0339).
    """

    def __init__(
        self, uri: str, state: str, failure: OAuthFailure, *, approved: bool = True
    ) -> None:
        super().__init__(failure.error)
        self.uri = uri
        self.state = state
        self.failure = failure
        self.approved = approved

    def url(self, issuer: str) -> str:
        """The authorization response with the error."""
        error, description = self.failure.error, self.failure.description
        return client_redirect(
            self.uri, issuer, self.state, error=error, error_description=description
        )


class Parameters(Struct, frozen=True):
    """The parameters of a request; `resources` are all that it names (RFC 8707)."""

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """A parameter; empty if absent."""
        return self.values.get(name, "")


def parse_fields(text: str) -> Parameters:
    """Parse a query or a form. Raises `OAuthFailure`."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise OAuthFailure("invalid_request", "the request is too long")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise OAuthFailure("invalid_request", "the parameters are malformed") from None
    values: dict[str, str] = {}
    resources: list[str] = []
    for name, value in pairs:
        if name in PARAMETERS and not (value.isascii() and value.isprintable()):
            raise OAuthFailure("invalid_request", "a parameter has invalid characters")
        if name == "resource":
            resources += [value] if value else []
        elif name in values:
            raise OAuthFailure("invalid_request", "a parameter is there twice")
        else:
            values[name] = value
    given = {name: value for name, value in values.items() if value}
    return Parameters(given, tuple(resources))


def parse_body(body: bytes) -> Parameters:
    """Parse the body of a form. Raises `OAuthFailure`."""
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        raise OAuthFailure("invalid_request", "the form is malformed") from None
    return parse_fields(text)


# ---------------------------------------------------------------- PKCE (RFC 7636)


def check_challenge(fields: Parameters) -> str:
    """The PKCE challenge of an authorization request. Raises `OAuthFailure` without S256."""
    challenge = fields.get("code_challenge")
    if fields.get("code_challenge_method") != "S256" or not is_digest(challenge):
        raise OAuthFailure("invalid_request", "PKCE with S256 is required")
    return challenge


def is_digest(text: str) -> bool:
    """Whether this has the form of a PKCE challenge, or of a thumbprint."""
    return _CHALLENGE.fullmatch(text) is not None


def is_verifier(text: str) -> bool:
    """Whether this has the form of a PKCE verifier."""
    return _VERIFIER.fullmatch(text) is not None


def fits_challenge(verifier: str, challenge: str) -> bool:
    """Whether a verifier is the one of a challenge."""
    return is_verifier(verifier) and hmac.compare_digest(code_challenge(verifier), challenge)


# ---------------------------------------------------------------- responses


def client_redirect(uri: str, issuer: str, state: str, **parameters: str) -> str:
    """An authorization response: the redirect URI with parameters, `state` and `iss` (RFC 9207)."""
    pairs = list(parameters.items())
    if state:
        pairs.append(("state", state))
    pairs.append(("iss", issuer))
    # RFC 6749, 3.1.2: the query of a redirect URI is kept.
    return with_query(uri, pairs)


def error_body(failure: OAuthFailure) -> dict[str, str]:
    """The JSON of an error response (RFC 6749, 5.2)."""
    return {"error": failure.error, "error_description": failure.description}
