"""A person logs in: the authorization code, with everything that binds it to us (OAuth 2.1, 4.1).

Rules: PKCE with S256 always. What comes back is judged in this order: is it the answer to our
question (`state`), is it from whom we asked (`iss`), and only then what it says. Of an answer that
is not, nothing is shown or used.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl

from msgspec import Struct

from colonnade.auth.client.discovery import S256, Found, Issuer
from colonnade.auth.client.steps import Chance, Flow, Visit, said
from colonnade.auth.client.tokens import Holder, Tokens, ask_token, read_tokens
from colonnade.auth.jose import coded
from colonnade.auth.urls import secure, shown, with_query
from colonnade.errors import AuthError, LoginRequired
from colonnade.protocol.http.challenges import Challenges

OFFLINE = "offline_access"
# Every parameter that an answer may have is short, and there are seven at most.
MAX_ANSWER_CHARACTERS = 16 * 1024
MAX_ANSWER_PARTS = 32
# PKCE: 43 to 128 characters (RFC 7636, 4.1).
MIN_VERIFIER, MAX_VERIFIER = 43, 128


class Attempt(Struct, frozen=True):
    """One question to an authorization server, and whom it was put to (CL-23)."""

    issuer: str
    names_itself: bool
    legacy: bool
    state: str
    verifier: str

    def __repr__(self) -> str:
        return f"Attempt({shown(self.issuer)})"


def check_pkce(issuer: Issuer) -> None:
    """CL-21: refuse an authorization server that does not say that it knows PKCE with S256."""
    if issuer.legacy and issuer.pkce is None:
        return  # nobody had to say so then; it is sent all the same
    if issuer.pkce is None or S256 not in issuer.pkce:
        raise AuthError(
            f"{shown(issuer.issuer)} does not say that it protects codes by PKCE with S256 "
            "(code_challenge_methods_supported), so that nobody is sent there"
        )


def choose_scopes(
    given: Sequence[str], before: Sequence[str], challenges: Challenges, found: Found
) -> tuple[str, ...]:
    """The scopes to ask for: those of the refusal, else those of the document, with what was asked
    before (CL-10, CL-30), and a refresh token's where the issuer knows it (CL-29)."""
    asked: Iterable[str] | None = challenges.scopes
    if asked is None and not given and not before:
        asked = found.scopes
    wanted = dict.fromkeys([*given, *before, *(asked or ())])
    wanted.pop(OFFLINE, None)
    if OFFLINE in (found.issuer.scopes or ()):
        wanted[OFFLINE] = None
    return tuple(wanted)


def log_in(found: Found, holder: Holder, redirect_uri: str, scopes: Sequence[str]) -> Flow[Tokens]:
    """Send a person to the issuer, and get tokens for the code that comes back."""
    issuer = found.issuer
    check_pkce(issuer)
    page = secure(issuer.authorization_endpoint, "the authorization endpoint")
    attempt = begin(issuer, holder.chance)
    pairs = [
        ("response_type", "code"),
        ("client_id", holder.client.client_id),
        ("redirect_uri", redirect_uri),
        ("code_challenge", challenge_of(attempt.verifier)),
        ("code_challenge_method", S256),
        ("state", attempt.state),
        ("resource", found.resource),
    ]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    if OFFLINE in scopes:
        pairs.append(("prompt", "consent"))  # OpenID Connect Core, 11
    if holder.bound is not None:
        pairs.append(("dpop_jkt", holder.bound.thumbprint))  # RFC 9449, 10
    query: str = yield Visit(with_query(page, pairs), attempt.state)
    code = read_answer(query, attempt)
    pairs = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", attempt.verifier),
        ("resource", found.resource),
    ]
    answer = yield from ask_token(issuer, holder, pairs)
    return read_tokens(answer, issuer, found.resource, holder, scopes)


def begin(issuer: Issuer, chance: Chance) -> Attempt:
    """A question of its own: a state and a verifier that nobody has seen before."""
    verifier = chance.secret()
    assert MIN_VERIFIER <= len(verifier) <= MAX_VERIFIER, "CL-18"
    state = chance.secret()
    return Attempt(issuer.issuer, issuer.names_itself, issuer.legacy, state, verifier)


def challenge_of(verifier: str) -> str:
    """What is shown of a verifier (RFC 7636, 4.2)."""
    return coded(hashlib.sha256(verifier.encode()).digest())


def read_answer(query: str, attempt: Attempt) -> str:
    """The code in an authorization response. Raises `AuthError`, `LoginRequired` for a refusal."""
    parts = _parts(query)
    state = parts.get("state", "")
    if not hmac.compare_digest(state.encode(), attempt.state.encode()):  # CL-20
        raise AuthError("the browser came back with the answer to another question; log in again")
    _check_issuer(parts, attempt)
    error = said(parts.get("error"))
    if error:
        words = said(parts.get("error_description"))
        told = f"{error}: {words}" if words else error
        raise LoginRequired(f"{shown(attempt.issuer)} did not let you in ({told})")
    code = parts.get("code", "")
    if not code:
        raise AuthError(f"{shown(attempt.issuer)} sent the browser back without a code")
    return code


def _check_issuer(parts: dict[str, str], attempt: Attempt) -> None:
    """RFC 9207, 2.4, in all its cases (CL-23 to CL-25): compared as it is written."""
    named = parts.get("iss")
    if named is None:
        if attempt.names_itself:
            raise AuthError(
                f"the answer does not say that it is of {shown(attempt.issuer)}, which always "
                "says so; it may be of somebody else, and is not used"
            )
        return
    same = (attempt.issuer, attempt.issuer + "/") if attempt.legacy else (attempt.issuer,)
    if named not in same:
        raise AuthError(
            f"the answer is of another issuer than {shown(attempt.issuer)}, and is not used"
        )


def _parts(query: str) -> dict[str, str]:
    if len(query) > MAX_ANSWER_CHARACTERS:
        raise AuthError("the browser came back with more than any answer holds")
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_ANSWER_PARTS
        )
    except ValueError:
        raise AuthError("the browser came back with something that is no answer") from None
    if len({name for name, _ in pairs}) != len(pairs):  # RFC 6749, 3.1
        raise AuthError("the browser came back with an answer that says something twice")
    return dict(pairs)
