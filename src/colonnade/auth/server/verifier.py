"""Verification of access tokens: the verifier interface, and the checks on claims.

    StaticTokens({"a-word-for-today": ("ann", {"notes:read"})})        # for development

Rules: a token is accepted only if it was issued for this server (`aud`), by this issuer (`iss`),
is valid now (`exp`, `nbf`, `iat`), and is an access token. If the issuer cannot be reached, the
token is rejected. No token and no client secret appears in an error, a log line or a `repr`.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeGuard, cast
from urllib.parse import quote_plus, urlsplit

from msgspec import Struct

from colonnade.auth.jose import (
    InvalidToken,
    Json,
    UnverifiedJwt,
    decode_json_object,
    is_jwt,
    parse_jwt,
    quote_claim,
)
from colonnade.auth.ssrf import Fetcher, is_loopback_host, parse_networks
from colonnade.auth.urls import issuer_metadata_urls, same_issuer
from colonnade.errors import CannotFetch, ChannelError, InvalidArgument, InvalidArgumentType
from colonnade.ports import EndpointRequest, EndpointResponse, Seal, Store

log: logging.Logger = logging.getLogger("colonnade.auth")

FRESH_S: Final = 3600.0
RETRY_S: Final = 5.0
OK: Final = 200


class LoopLock:
    """An `asyncio.Lock` of the running event loop: `async with lock():`."""

    def __init__(self) -> None:
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __call__(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


def check_url(url: str, what: str) -> str:
    """A configured URL. Raises `LocalProtocolError` if it is invalid or not https."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentType(f"{what} is a URL as a string, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and set(url).isdisjoint(' "<>\\^`{|}#')
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    if not host or not plain or not secure or port == 0 or "@" in parts.netloc:
        raise InvalidArgument(
            f"{what} {url[:200]!r} is not a valid URL: it must begin with https:// (http:// only "
            "for a loopback host), and have no fragment and no password"
        )
    return url


class IssuerMetadata:
    """The metadata document of one issuer, fetched on first use and cached."""

    def __init__(self, issuer: str, url: str = "") -> None:
        self._issuer = issuer
        # Where the document is; the well-known locations of the issuer if empty.
        self._url = url
        self._document: dict[str, Any] = {}
        self._raw = b""
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._lock = LoopLock()

    async def read(self, now: float, fetcher: Fetcher) -> dict[str, Any]:
        """The decoded document. Raises `ChannelError` if it is not available."""
        if self._is_due(now):
            async with self._lock():
                if self._is_due(now):
                    await self._fetch(now, fetcher)
                    self._asked_at = now
        if self._fetched_at is None:
            raise ChannelError(f"{self._issuer} publishes no metadata with itself as the issuer")
        return self._document

    def _is_due(self, now: float) -> bool:
        if self._fetched_at is not None and now - self._fetched_at < FRESH_S:
            return False
        return self._asked_at is None or now - self._asked_at >= RETRY_S

    async def raw(self, now: float, fetcher: Fetcher) -> bytes:
        """The document as it was published. Raises `ChannelError` if it is not available."""
        await self.read(now, fetcher)
        return self._raw

    async def endpoint(self, name: str, now: float, fetcher: Fetcher) -> str:
        """An endpoint URL of the document. Raises `ChannelError` if it names none."""
        found = (await self.read(now, fetcher)).get(name)
        if not isinstance(found, str):
            raise ChannelError(f"the metadata of {self._issuer} has no {name}; configure it")
        return found

    async def _fetch(self, now: float, fetcher: Fetcher) -> None:
        for url in [self._url] if self._url else issuer_metadata_urls(self._issuer):
            try:
                fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
                if fetched.status != OK:
                    continue
                found = decode_json_object(fetched.body)
            except CannotFetch as error:
                log.warning("cannot fetch the metadata of an issuer: %s: %s", error, error.why)
                continue
            except InvalidToken:
                continue
            if same_issuer(found.get("issuer"), self._issuer):  # D42
                self._document, self._raw, self._fetched_at = found, fetched.body, now
                return
            log.warning("%s is the metadata of another issuer than %s; ignored", url, self._issuer)


# ---------------------------------------------------------------- verifier


# RS-03: clocks differ by seconds; a larger value would accept expired tokens.
SKEW_S: Final = 30.0
MAX_SKEW_S: Final = 60.0
# A token has dozens of scopes at most.
MAX_SCOPES: Final = 256
MAX_SUBJECT_CHARACTERS: Final = 255
# Some 30,000 years; far larger integers do not fit a float.
MAX_TIME_S: Final = 1e12

# Claims that only ID tokens, logout tokens and other JWTs have.
_OTHER_TOKEN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash", "s_hash", "events", "sub_jwk"})
# Claims in which issuers name the type of a token, and their names for an access token.
_TYPE_CLAIMS = ("typ", "token_use", "token_type")
_ACCESS_TYPES = frozenset({"bearer", "dpop", "access", "access_token", "at+jwt", "jwt", "n_a"})


class VerifiedToken(Struct, frozen=True):
    """The content of a verified access token; `dpop_thumbprint` if it is bound to a key."""

    principal: str
    scopes: frozenset[str]
    expires_at: float | None
    dpop_thumbprint: str = ""
    claims: Mapping[str, Any] = {}


class TokenVerifier(Protocol):
    """Verifies the access tokens of one issuer."""

    @property
    def issuer(self) -> str | None:
        """The issuer URL for the resource metadata; None if there is no authorization server."""
        ...

    @property
    def cache_ttl_s(self) -> float:
        """How long a verified token may be cached."""
        ...

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Whether this token looks like one of this issuer; nothing is verified yet."""
        ...

    async def verify(
        self, token: str, signed: UnverifiedJwt | None, resource: str, now: float, fetcher: Fetcher
    ) -> VerifiedToken:
        """Verify a token. Raises `InvalidToken`; `ChannelError` if the issuer is unreachable."""
        ...

    async def metadata(self, now: float, fetcher: Fetcher) -> bytes | None:
        """The issuer's metadata document as published. Raises `ChannelError` if unavailable."""
        ...


class ProtectionContext(Struct, frozen=True):
    """What `Protection` needs of the server: fetcher, store and seal."""

    fetcher: Fetcher
    store: Store
    seal: Seal


class TokenIssuer(Protocol):
    """An authorization server that is a part of the protected server: it issues the tokens that it
    verifies, and has HTTP endpoints beside the one of MCP."""

    @property
    def issuer(self) -> str:
        """The issuer URL. Raises `LocalProtocolError` before `bind`."""
        ...

    @property
    def cache_ttl_s(self) -> float:
        """How long a verified token may be cached."""
        ...

    def bind(self, resource: str, scopes: Sequence[str]) -> None:
        """Issue tokens for this resource, which requires these scopes. Raises `LocalProtocolError`
        if it issues tokens for another one."""
        ...

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Whether this token looks like one of this issuer; nothing is verified yet."""
        ...

    async def start(self, now: float, context: ProtectionContext) -> None:
        """Check the state in a store that is shared. Raises `ChannelError` if the server must not
        start with it."""
        ...

    async def verify_issued(
        self, token: str, signed: UnverifiedJwt | None, now: float, context: ProtectionContext
    ) -> VerifiedToken:
        """Verify a token. Raises `InvalidToken`; `ChannelError` if that is not possible now."""
        ...

    async def metadata(self, now: float, fetcher: Fetcher) -> bytes | None:
        """The metadata document of the issuer."""
        ...

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        """The HTTP methods of the endpoint at a path; empty if there is none."""
        ...

    async def respond(
        self, request: EndpointRequest, now: float, context: ProtectionContext
    ) -> EndpointResponse:
        """The response of the endpoint at the path of a request."""
        ...


def is_authorization_server(verifier: object) -> TypeGuard[TokenIssuer]:
    """Whether a verifier is an authorization server, too."""
    return hasattr(verifier, "verify_issued") and not isinstance(verifier, type)


class IssuerVerifier:
    """Base of verifiers with a network issuer: its metadata, and the checks on claims."""

    def __init__(
        self, issuer: str, audience: str | Iterable[str], networks: Iterable[str], skew_s: float
    ) -> None:
        self.issuer: str = check_url(issuer, "the issuer")
        if not 0 <= skew_s <= MAX_SKEW_S:
            raise InvalidArgument(f"skew_s is {skew_s:g}; give 0 to {MAX_SKEW_S:g} seconds")
        self._document = IssuerMetadata(issuer)
        self._audiences = frozenset([audience] if isinstance(audience, str) else audience)
        if "" in self._audiences:
            raise InvalidArgument("audience= is empty; pass the name of this server")
        self._networks = tuple(networks) if not isinstance(networks, str) else networks
        parse_networks(self._networks)
        self._skew_s = skew_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer!r})"

    async def metadata(self, now: float, fetcher: Fetcher) -> bytes | None:
        """The issuer's metadata document. Raises `ChannelError` if it is not available."""
        return await self._document.raw(now, self._fetcher_for_issuer(fetcher))

    def _fetcher_for_issuer(self, fetcher: Fetcher) -> Fetcher:
        """The fetcher with access to the networks that were configured for this issuer."""
        here = is_loopback_host(urlsplit(self.issuer).hostname or "")
        return fetcher.with_access(loopback=here, networks=self._networks)

    def _is_our_audience(self, audience: str, resource: str) -> bool:
        if self._audiences:
            return audience in self._audiences
        return audience == resource or normalize_resource(audience) == normalize_resource(resource)

    def _check_claims(self, claims: Json, resource: str, now: float) -> VerifiedToken:
        """Check the claims of a token, after its signature or by introspection."""
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not any(
            isinstance(one, str) and self._is_our_audience(one, resource)
            for one in cast("list[Any]", named)
        ):
            ours = " or ".join(sorted(self._audiences)) or resource
            detail = f"aud {quote_claim(audience)}, expected {ours}"
            raise InvalidToken("the token is not for this server", detail)
        expires_at = time_claim(claims, "exp")
        if expires_at is None or now >= expires_at + self._skew_s:
            raise InvalidToken("the token has expired", _describe_time("exp", expires_at, now))
        for name in ("nbf", "iat"):
            since = time_claim(claims, name)
            if since is not None and since > now + self._skew_s:
                raise InvalidToken("the token is not valid yet", _describe_time(name, since, now))
        _check_token_type(claims)
        principal = self.issuer + _subject(claims)
        return VerifiedToken(
            principal, _scopes(claims), expires_at, _dpop_thumbprint(claims), claims
        )


class StaticTokens:
    """Fixed tokens for development, each with a principal and, optionally, scopes.

    `StaticTokens({"word": "ann"})`, or `{"word": ("ann", {"notes:read"})}`. They never expire.
    """

    issuer: None = None
    cache_ttl_s: float = 0.0

    def __init__(self, tokens: Mapping[str, str | tuple[str, Iterable[str]]]) -> None:
        if not isinstance(tokens, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _static_tokens_error(f"the tokens are a dict, not {type(tokens).__name__}")
        self._tokens: dict[bytes, VerifiedToken] = {}
        for token, value in tokens.items():
            if not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise _static_tokens_error(f"a token is a string, not {type(token).__name__}")
            name, scopes = _principal_and_scopes(value)
            if not token or not name:
                raise InvalidArgument("a token and its principal are non-empty strings")
            self._tokens[_digest(token)] = VerifiedToken(name, scopes, None)

    def __repr__(self) -> str:
        return f"StaticTokens({len(self._tokens)} tokens)"

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Whether it is one of these tokens."""
        return _digest(token) in self._tokens

    async def verify(
        self, token: str, signed: UnverifiedJwt | None, resource: str, now: float, fetcher: Fetcher
    ) -> VerifiedToken:
        """The principal and scopes of a token. Raises `InvalidToken`."""
        found = self._tokens.get(_digest(token))
        if found is None:
            raise InvalidToken("unknown token")
        return found

    async def metadata(self, now: float, fetcher: Fetcher) -> bytes | None:
        """None: there is no authorization server."""
        return None


def parse_if_jwt(token: str) -> UnverifiedJwt | None:
    """Parse a token that has the form of a JWT, without verification; None for an opaque one.

    Raises `InvalidToken` for a malformed JWT.
    """
    return parse_jwt(token) if is_jwt(token) else None


def normalize_resource(url: str) -> str:
    """A resource URL in one form (R0316, R0317): scheme and host in lower case, no empty path."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{mark}{host.lower()}{slash + path if path else ''}"


def _principal_and_scopes(value: object) -> tuple[str, frozenset[str]]:
    """The value of a static token. Raises `InvalidArgumentType` for any other shape.

    A wrong shape may unpack, too: the keys of a dict would be one principal for many clients.
    """
    if isinstance(value, str):
        return value, frozenset()
    pair = cast("Sequence[object]", value) if isinstance(value, tuple | list) else ()
    if len(pair) != 2:
        what = f"{len(pair)} values" if pair else type(cast("object", value)).__name__
        raise _static_tokens_error(f"the value is a principal, or one and its scopes, not {what}")
    name, scopes = pair
    if not isinstance(name, str):
        raise _static_tokens_error(f"principals are strings, not {type(name).__name__}")
    if isinstance(scopes, str | Mapping) or not isinstance(scopes, Iterable):
        kind = type(cast("object", scopes)).__name__
        raise _static_tokens_error(f"scopes are a set of strings, not {kind}")
    words = list(cast("Iterable[object]", scopes))
    if not all(isinstance(word, str) and word for word in words):
        raise _static_tokens_error("scopes are a set of non-empty strings")
    return name, frozenset(cast("list[str]", words))


def _static_tokens_error(problem: str) -> InvalidArgumentType:
    """An error without the token, which is a secret."""
    return InvalidArgumentType(
        f"StaticTokens: {problem}; write StaticTokens({{'a-word': 'ann'}}), or with scopes "
        "StaticTokens({'a-word': ('ann', {'notes:read'})})",
        argument="tokens",
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _check_token_type(claims: Json) -> None:
    """Raise `InvalidToken` for an ID token, a refresh token, or any other signed JWT."""
    types = [claims[name] for name in _TYPE_CLAIMS if name in claims]
    if not all(isinstance(one, str) for one in types):
        raise InvalidToken("this is not an access token")
    kinds = {one.lower() for one in types}
    foreign = claims.keys() & _OTHER_TOKEN_CLAIMS
    if kinds & _ACCESS_TYPES:
        foreign -= {"nonce"}  # some issuers put it into access tokens, too
    if foreign or not kinds <= _ACCESS_TYPES:
        raise InvalidToken("this is not an access token")


def time_claim(claims: Json, name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > MAX_TIME_S:
        raise InvalidToken("the token is malformed")
    return float(found)


def _describe_time(name: str, at: float | None, now: float) -> str:
    """A time claim and its distance from now, for the log."""
    if at is None:
        return f"no {name}"
    away = f"{now - at:.0f} s ago" if at <= now else f"in {at - now:.0f} s"
    return f"{name} {at:.0f}, {away}"


def _subject(claims: Json) -> str:
    """The part of a principal's name after the issuer: a user, or a client that acts for itself.

    If `sub` is present, only it is used, and an unusable one rejects the token: otherwise all
    users of a client would become the same principal. A client never becomes the user whose `sub`
    equals its client id (RFC 9068, 5): an issuer URL contains no space and no `#`.
    """
    name, mark = ("sub", "#") if "sub" in claims else ("client_id", " client ")
    subject = claims.get(name)
    if subject is None and name == "client_id":
        raise InvalidToken("the token has no subject: neither the claim sub nor client_id")
    return mark + check_subject(subject, name)


def check_subject(subject: object, name: str = "sub") -> str:
    """A subject that a principal can be named by. Raises `InvalidToken`."""
    if not isinstance(subject, str) or not subject.isprintable():
        raise InvalidToken(f"the token's claim {name} is not a string of printable characters")
    if not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS:
        raise InvalidToken(
            f"the token's claim {name} must have 1 to {MAX_SUBJECT_CHARACTERS} characters"
        )
    return subject


def _scopes(claims: Json) -> frozenset[str]:
    """The scopes: a string (RFC 8693), or the array that some issuers use."""
    claim = claims.get("scope", claims.get("scp", ""))
    scopes = claim.split() if isinstance(claim, str) else claim
    if not isinstance(scopes, list) or len(cast("list[Any]", scopes)) > MAX_SCOPES:
        raise InvalidToken("the token is malformed")
    return frozenset(word for word in cast("list[Any]", scopes) if isinstance(word, str))


def _dpop_thumbprint(claims: Json) -> str:
    """The thumbprint of the key that a token is bound to (RFC 9449, 6); empty if unbound."""
    found = claims.get("cnf")
    if found is None:
        return ""
    thumb = cast("Json", found).get("jkt") if isinstance(found, dict) else None
    if not isinstance(thumb, str) or not thumb:
        # Bound to something that is not supported, such as a client certificate.
        raise InvalidToken("the token is bound by an unsupported confirmation method")
    return thumb


# ---------------------------------------------------------------- introspection


class Introspection(IssuerVerifier):
    """Verifies tokens by introspection (RFC 7662), authenticated as the client `client_id`.

    A result is cached for a few seconds, and never beyond the expiry of the token.
    """

    cache_ttl_s: float = 20.0

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        *,
        endpoint: str | None = None,
        audience: str | Iterable[str] = (),
        networks: Iterable[str] = (),
        skew_s: float = SKEW_S,
    ) -> None:
        super().__init__(issuer, audience, networks, skew_s)
        self._endpoint = check_url(endpoint, "endpoint") if endpoint is not None else None
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"  # RFC 6749, 2.3.1
        self._credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Any token that does not name another issuer."""
        return signed is None or same_issuer(signed.claims.get("iss", self.issuer), self.issuer)

    async def verify(
        self, token: str, signed: UnverifiedJwt | None, resource: str, now: float, fetcher: Fetcher
    ) -> VerifiedToken:
        """Ask the issuer. Raises `InvalidToken`; `ChannelError` without a valid response."""
        wider = self._fetcher_for_issuer(fetcher)
        url = self._endpoint or await self._document.endpoint("introspection_endpoint", now, wider)
        headers = [
            ("authorization", self._credentials),
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
        ]
        body = f"token={quote_plus(token)}&token_type_hint=access_token"
        fetched = await wider.fetch("POST", url, headers, body.encode())
        if fetched.status != OK or fetched.media_type != "application/json":
            raise ChannelError(f"the issuer responded {fetched.status} to an introspection request")
        claims = decode_json_object(fetched.body)
        if claims.get("active") is not True:
            raise InvalidToken("the token is not active")
        if not same_issuer(claims.get("iss", self.issuer), self.issuer):
            detail = f"iss {quote_claim(claims.get('iss'))}, expected {self.issuer}"
            raise InvalidToken("the token is from another issuer", detail)
        return self._check_claims(claims, resource, now)
