"""OAuth 2.1 protected resource: authentication and authorization of the requests to a server.

    Server("notes", auth=Protection("https://notes.example.com/mcp", Jwt("https://login.example.com")))

Bearer tokens (RFC 6750), protected resource metadata (RFC 9728), DPoP-bound tokens (RFC 9449).

Rules: every request is authenticated, whatever came before it on its connection or in its session.
An access token is accepted in the `Authorization` header only, and passed on to nothing: no
handler, no other server, no log. Only its digest is cached, for seconds; with `presented` the token
itself is kept in memory, where the grants of `auth` alone read it.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NoReturn, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.jose import (
    ALGORITHMS,
    MAX_TOKEN_CHARACTERS,
    InvalidToken,
    UnverifiedJwt,
    quote_claim,
)
from colonnade.auth.presented import PresentedTokens
from colonnade.auth.server.dpop import DpopNonces, DpopProof, InvalidProof, NonceRequired
from colonnade.auth.server.verifier import (
    ProtectionContext,
    TokenIssuer,
    TokenVerifier,
    VerifiedToken,
    check_url,
    is_authorization_server,
    parse_if_jwt,
)
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.errors import (
    CannotFetch,
    ChannelError,
    ColonnadeError,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
)
from colonnade.ports import SERVER_PRINCIPAL, Caller, EndpointRequest, EndpointResponse, Store
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    FORBIDDEN,
    UNAUTHORIZED,
    UNAVAILABLE,
    Headers,
    HttpError,
)

log: logging.Logger = logging.getLogger("colonnade.auth")

# Each cached token takes some 300 bytes.
MAX_CACHED_TOKENS: Final = 10_000
# Different tokens verified at once: asking an issuer is slow, and made-up tokens cost nothing.
MAX_PENDING_VERIFICATIONS: Final = 1024
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
LEGACY_WELL_KNOWN: Final = "/.well-known/oauth-authorization-server"

# RFC 6750, 2.1, and the scheme of RFC 9449.
_CREDENTIALS = re.compile(rb"(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_SCHEMES = (b"bearer", b"dpop")
# RFC 6749, 3.3.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")

BEARER: Final = "Bearer"
DPOP: Final = "DPoP"


class _PendingVerification(Struct):
    """The verification of one token, shared by all requests that present it."""

    lock: asyncio.Lock
    waiting: int = 0
    # The error of the first request, if the token was rejected.
    error: InvalidToken | HttpError | None = None


class ProtectedRequest(Struct, frozen=True):
    """The parts of an HTTP request that authentication needs.

    `metadata` is the URL of the protected resource metadata, as the client sees it.
    """

    method: str
    url: str
    headers: Headers
    metadata: str


class Protection:
    """Protects a server by access tokens for `resource`, its URL as clients write it.

    `verifiers` verify the tokens of the trusted issuers. `scopes` are required for every request,
    beside those of a tool, resource or prompt. `implies` names scopes that include others:
    `{"admin": {"notes:read", "notes:write"}}`. With `dpop="required"` a token must be bound to a
    key; the proof of a bound token is always checked, with `nonces=True` also for a nonce of this
    server. `presented` keeps the last token of each caller in memory, for a host that exchanges it
    for one of another server. Raises `LocalProtocolError` for invalid settings.
    """

    def __init__(
        self,
        resource: str,
        *verifiers: TokenVerifier | TokenIssuer,
        scopes: Iterable[str] = (),
        implies: Mapping[str, Iterable[str]] | None = None,
        documentation: str | None = None,
        dpop: Literal["accepted", "required"] = "accepted",
        nonces: bool = False,
        presented: PresentedTokens | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(resource, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                "the first argument of Protection is the URL of this server: "
                f"write Protection('http://127.0.0.1:8000/mcp', {type(resource).__name__}(...))",
                argument="resource",
            )
        self.resource: str = check_url(resource, "the resource").rstrip("/")
        if not verifiers:
            raise InvalidArgument(
                "no issuer is trusted, so every request would be rejected; name one: "
                "Jwt('https://login.example.com')"
            )
        for one in verifiers:
            known = hasattr(one, "verify") or is_authorization_server(one)
            if isinstance(one, type) or not known:
                raise InvalidArgumentType(_not_a_verifier(one), argument="verifiers")
        self.verifiers: tuple[TokenVerifier | TokenIssuer, ...] = verifiers
        self.scopes: tuple[str, ...] = _check_scopes(scopes)
        self._authorization_server = self._bind_authorization_server()
        if presented is not None and self._authorization_server is not None:
            raise InvalidArgument(
                "presented= needs tokens of another issuer: no issuer exchanges those of an "
                "OAuthProxy of this server",
                argument="presented",
            )
        self._presented = presented
        self._implies = {name: frozenset(more) for name, more in (implies or {}).items()}
        self._documentation = documentation
        if dpop not in ("accepted", "required"):
            raise InvalidArgument(f"dpop={dpop!r}: it is 'accepted' or 'required'", argument="dpop")
        self._dpop_required = dpop == "required"
        self._nonces = nonces
        self.clock = clock
        self._verified: dict[bytes, tuple[VerifiedToken, float]] = {}
        self._pending: dict[bytes, _PendingVerification] = {}
        here = is_loopback_host(urlsplit(resource).hostname or "")
        if any(one.issuer is None for one in verifiers) and not here:
            log.warning("StaticTokens never expire; for %s use an issuer", resource)

    def __repr__(self) -> str:
        return f"Protection({self.resource!r}, {', '.join(map(repr, self.verifiers))})"

    @property
    def issuers(self) -> list[str]:
        """The authorization servers that issue tokens for this server."""
        return [one.issuer for one in self.verifiers if one.issuer is not None]

    # ------------------------------------------------------------ authorization server

    def _bind_authorization_server(self) -> TokenIssuer | None:
        found = [one for one in self.verifiers if is_authorization_server(one)]
        if len(found) > 1:
            raise InvalidArgument("a server has one OAuthProxy at most; remove the others")
        for one in found:
            one.bind(self.resource, self.scopes)
        return found[0] if found else None

    async def start(self, context: ProtectionContext) -> None:
        """Check what the authorization server has in a shared store, before requests arrive."""
        if self._authorization_server is not None and context.store.is_shared:
            await self._authorization_server.start(self.clock(), context)

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        """The HTTP methods of the authorization server's endpoint at a path; empty without one."""
        server = self._authorization_server
        return server.endpoint_methods(path) if server is not None else ()

    async def respond(
        self, request: EndpointRequest, context: ProtectionContext
    ) -> EndpointResponse:
        """The response of the authorization server's endpoint at the path of a request."""
        assert self._authorization_server is not None
        return await self._authorization_server.respond(request, self.clock(), context)

    # ------------------------------------------------------------ metadata

    def metadata(self, title: str) -> bytes | None:
        """The protected resource metadata (RFC 9728); None without an authorization server."""
        if not self.issuers:
            return None
        document: dict[str, object] = {
            "resource": self.resource,
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": title,
            "dpop_signing_alg_values_supported": list(ALGORITHMS),
        }
        if self.scopes:
            document["scopes_supported"] = list(self.scopes)
        if self._documentation is not None:
            document["resource_documentation"] = self._documentation
        if self._dpop_required:
            document["dpop_bound_access_tokens_required"] = True
        return msgspec.json.encode(document)

    async def legacy_metadata(self, fetcher: Fetcher) -> bytes | None:
        """A copy of the issuer's metadata: clients of 2025-03-26 look for it at our origin."""
        for verifier in self.verifiers:
            try:
                found = await verifier.metadata(self.clock(), fetcher)
            except ChannelError as error:
                log.warning("cannot fetch the metadata of the issuer: %s", error)
            else:
                if found is not None:
                    return found
        return None

    def metadata_paths(self) -> tuple[str, str]:
        """The well-known paths of the metadata: with the path of the resource, and without."""
        return WELL_KNOWN + urlsplit(self.resource).path, WELL_KNOWN

    def url(self, path: str) -> str:
        """A URL at the origin of this server."""
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}{path}"

    # ------------------------------------------------------------ authentication

    async def authenticate(self, request: ProtectedRequest, context: ProtectionContext) -> Caller:
        """Authenticate a request; its caller. Raises `HttpError`."""
        scheme, token = self._credentials(request)
        now = self.clock()
        try:
            verified = await self._verify_cached(token, now, context)
            await self._check_binding(verified, scheme, token, request, now, context)
        except NonceRequired as error:
            self._reject(
                request, "use_dpop_nonce", str(error), DPOP, DpopNonces(context.seal).make(now)
            )
        except InvalidProof as error:
            self._reject(request, "invalid_dpop_proof", str(error), DPOP)
        except InvalidToken as error:
            self._reject(request, "invalid_token", str(error), scheme, detail=error.detail)
        scopes = self.expand_scopes(verified.scopes)
        if not scopes.issuperset(self.scopes):
            raise self.insufficient_scope(frozenset(self.scopes), request.metadata, scheme, scopes)
        if self._presented is not None:
            self._presented.put(verified.principal, token, verified.expires_at)
        return Caller(verified.principal, scopes, verified.expires_at, verified.claims)

    def _credentials(self, request: ProtectedRequest) -> tuple[str, str]:
        """The scheme and the token of a request. Raises `HttpError` if it has none."""
        given = request.headers.get(b"authorization")
        # RS-04: a token in the query or the body is ignored.
        if given is None or given.split(b" ", 1)[0].lower() not in (*_SCHEMES, b"\x00"):
            raise HttpError(
                UNAUTHORIZED, "authentication required", headers=self._challenge_headers(request)
            )
        found = _CREDENTIALS.fullmatch(given)
        if found is None or len(found[2]) > MAX_TOKEN_CHARACTERS:
            message = "the Authorization header is malformed, or was sent twice"
            headers = self._challenge_headers(request, "invalid_request", message)
            raise HttpError(BAD_REQUEST, message, headers=headers)
        return (BEARER if found[1].lower() == b"bearer" else DPOP), found[2].decode("ascii")

    async def _verify_cached(
        self, token: str, now: float, context: ProtectionContext
    ) -> VerifiedToken:
        """Verify a token, or find it in the cache. Raises `InvalidToken`, and `HttpError` (503)."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._cached(digest, now)
        if known is not None:
            return known
        pending = self._pending.get(digest)
        if pending is None:
            if len(self._pending) >= MAX_PENDING_VERIFICATIONS:
                raise _unavailable()
            pending = self._pending[digest] = _PendingVerification(asyncio.Lock())
        pending.waiting += 1
        try:
            async with pending.lock:  # later requests with this token find it cached, or rejected
                if pending.error is not None:
                    raise _copy_error(pending.error)
                return self._cached(digest, now) or await self._verify(digest, token, now, context)
        except (InvalidToken, HttpError) as error:
            pending.error = error
            raise
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                self._pending.pop(digest, None)

    def _cached(self, digest: bytes, now: float) -> VerifiedToken | None:
        known = self._verified.get(digest)
        return known[0] if known is not None and now < known[1] else None

    async def _verify(
        self, digest: bytes, token: str, now: float, context: ProtectionContext
    ) -> VerifiedToken:
        signed = parse_if_jwt(token)
        problem = self._untrusted(signed)
        self._verified.pop(digest, None)
        for verifier in self.verifiers:
            if not verifier.accepts(token, signed):
                continue
            try:
                verified = await self._verify_by(verifier, token, signed, now, context)
            except InvalidToken as error:
                problem = error
            except ColonnadeError as error:
                why = error.why if isinstance(error, CannotFetch) else ""
                log.error("cannot verify a token: %s %s", error, why)
                raise _unavailable() from None
            else:
                name = verified.principal
                if not isinstance(name, str) or name in ("", SERVER_PRINCIPAL):  # pyright: ignore[reportUnnecessaryIsInstance]
                    # All such callers would be one principal; "" is the anonymous one.
                    log.error("%r returned no principal of a caller for a token", verifier)
                    raise InvalidToken("the token has no subject")
                self._cache(digest, verified, now, verifier.cache_ttl_s)
                return verified
        raise problem

    async def _verify_by(
        self,
        verifier: TokenVerifier | TokenIssuer,
        token: str,
        signed: UnverifiedJwt | None,
        now: float,
        context: ProtectionContext,
    ) -> VerifiedToken:
        server = self._authorization_server
        if server is not None and verifier is server:
            return await server.verify_issued(token, signed, now, context)
        other = cast("TokenVerifier", verifier)
        return await other.verify(token, signed, self.resource, now, context.fetcher)

    def _untrusted(self, signed: UnverifiedJwt | None) -> InvalidToken:
        if len(self.issuers) < len(self.verifiers) and (signed is None or not self.issuers):
            return InvalidToken("unknown token")  # static tokens have no issuer
        found = f"iss {quote_claim(signed.claims.get('iss'))}" if signed is not None else "no JWT"
        expected = " or ".join(self.issuers) or "a static token"
        return InvalidToken(
            "the issuer of the token is not trusted here", f"{found}, trusted {expected}"
        )

    def _cache(self, digest: bytes, verified: VerifiedToken, now: float, for_s: float) -> None:
        until = now + for_s
        if verified.expires_at is not None:
            until = min(until, verified.expires_at)
        if until > now:
            while len(self._verified) >= MAX_CACHED_TOKENS:
                self._verified.pop(next(iter(self._verified)))
            self._verified[digest] = (verified, until)

    async def _check_binding(
        self,
        verified: VerifiedToken,
        scheme: str,
        token: str,
        request: ProtectedRequest,
        now: float,
        context: ProtectionContext,
    ) -> None:
        """Raise for a bound token without its proof, and for the DPoP scheme without binding."""
        if not verified.dpop_thumbprint:
            if scheme == DPOP:
                raise InvalidToken("the token is not bound to a key; send it as Bearer")
            if self._dpop_required:
                raise InvalidToken("the token must be bound to a key (DPoP)")
            return
        if scheme != DPOP:
            raise InvalidToken("the token is bound to a key; send it as DPoP, with a proof")
        # Two DPoP headers are joined by a comma, which no proof contains.
        text = request.headers.get(b"dpop", b"").decode("latin-1")
        proof = DpopProof(text, request.method, request.url, token, now)
        if proof.thumbprint != verified.dpop_thumbprint:
            raise InvalidProof("the proof is signed by another key than the token is bound to")
        if self._nonces:
            DpopNonces(context.seal).check(proof.nonce, now)
        await _mark_proof_used(proof, verified.principal, context.store, now)

    # ------------------------------------------------------------ scopes

    def expand_scopes(self, granted: Iterable[str]) -> frozenset[str]:
        """The granted scopes and all that they imply (R0732)."""
        found: set[str] = set()
        waiting = list(granted)
        while waiting:
            scope = waiting.pop()
            if scope not in found:
                found.add(scope)
                waiting += self._implies.get(scope, ())
        return frozenset(found)

    def insufficient_scope(
        self,
        needed: frozenset[str],
        metadata: str,
        scheme: str = BEARER,
        granted: frozenset[str] = frozenset(),
    ) -> HttpError:
        """403 `insufficient_scope`: all scopes that a request needs, at once (R0730)."""
        scopes = sorted({*needed, *self.scopes})
        message = f"this needs the scope {' '.join(scopes)}"
        line = _challenge_header(
            scheme, metadata if self.issuers else "", scopes, "insufficient_scope", message
        )
        detail = f"granted {quote_claim(sorted(granted))}"
        return HttpError(FORBIDDEN, message, headers=(("WWW-Authenticate", line),), detail=detail)

    # ------------------------------------------------------------ error responses

    def _challenge_headers(
        self, request: ProtectedRequest, error: str = "", description: str = ""
    ) -> tuple[tuple[str, str], ...]:
        metadata = request.metadata if self.issuers else ""
        scheme = DPOP if self._dpop_required else BEARER
        line = _challenge_header(scheme, metadata, self.scopes, error, description)
        return (("WWW-Authenticate", line),)

    def _reject(
        self,
        request: ProtectedRequest,
        error: str,
        message: str,
        scheme: str,
        nonce: str = "",
        detail: str = "",
    ) -> NoReturn:
        metadata = request.metadata if self.issuers else ""
        headers = [
            ("WWW-Authenticate", _challenge_header(scheme, metadata, self.scopes, error, message))
        ]
        if nonce:
            headers.append(("DPoP-Nonce", nonce))
        raise HttpError(UNAUTHORIZED, message, headers=tuple(headers), detail=detail) from None


async def _mark_proof_used(proof: DpopProof, principal: str, store: Store, now: float) -> None:
    """Raises `InvalidProof` if the proof was used before, `HttpError` (503) if the store fails."""
    try:
        await proof.use(principal, store, now)
    except InvalidProof:
        raise
    except Exception as error:
        # Errors of Colonnade contain no secret; those of other stores may.
        why = str(error) if isinstance(error, ColonnadeError) else type(error).__name__
        log.error("the store failed while a DPoP proof was checked for replay: %s", why)
        raise _unavailable() from None


def _challenge_header(
    scheme: str, metadata: str, scopes: Iterable[str], error: str, description: str
) -> str:
    """A `WWW-Authenticate` value (RFC 6750, 3; RFC 9728, 5.1), without any text of the client."""
    pairs = {
        "error": error,
        "error_description": description if error else "",
        "resource_metadata": metadata,
        "scope": " ".join(scopes),
        "algs": " ".join(ALGORITHMS) if scheme == DPOP else "",
    }
    parameters = ", ".join(f'{name}="{value}"' for name, value in pairs.items() if value)
    return f"{scheme} {parameters}" if parameters else scheme


def _copy_error(error: InvalidToken | HttpError) -> InvalidToken | HttpError:
    """A copy of an error for another request: each raise needs a traceback of its own."""
    if isinstance(error, InvalidToken):
        return InvalidToken(str(error), error.detail)
    return _unavailable()


def _not_a_verifier(given: object) -> str:
    """The error message for it, without its value: it may be a dict of tokens."""
    url = given if isinstance(given, str) else "https://login.example.com"
    what = given.__name__ if isinstance(given, type) else type(given).__name__
    return (
        f"a verifier is an object such as Jwt({url!r}) or StaticTokens({{'a-word': 'ann'}}), "
        f"not {'the class' if isinstance(given, type) else 'an object of the type'} {what}"
    )


def _check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    listed = [scopes] if isinstance(scopes, str) else list(scopes)
    for word in listed:
        if not _SCOPE.fullmatch(word):
            raise InvalidArgument(f"{word!r} is not a scope: no spaces, quotes or backslashes")
    if "offline_access" in listed:  # R0728: a refresh token is the client's concern
        raise InvalidArgument("offline_access is requested by clients; leave it out")
    return tuple(dict.fromkeys(listed))


def _unavailable() -> HttpError:
    message = "the access token cannot be verified now; try again later"
    return HttpError(UNAVAILABLE, message, kind=FaultKind.INTERNAL, headers=(("Retry-After", "5"),))
