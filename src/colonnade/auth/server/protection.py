"""A server that only some may use: whose tokens it believes, and what it tells those without one.

    Server("notes", auth=Protection("https://notes.example.com/mcp", Jwt("https://login.example.com")))

An OAuth 2.1 resource server: RFC 6750 for tokens, RFC 9728 for its own document, RFC 9449 for
tokens that are bound to a key.

Rules: every request is verified, whatever came before it on its connection or in its session. A
token comes in the `Authorization` header, and goes nowhere else: not to a handler, not to another
server, not into a log. Only its digest is remembered, for seconds.
"""

import asyncio
import hashlib
import logging
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.jose import (
    ALGORITHMS,
    MAX_TOKEN_CHARACTERS,
    BadToken,
    Signed,
    coded,
    parse,
    quoted,
    read_key,
    verify,
)
from colonnade.auth.server.issuers import Trust, Trusted, checked_url, read_token
from colonnade.auth.ssrf import Fetcher, is_this_machine
from colonnade.errors import (
    CannotFetch,
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    InvalidArgument,
)
from colonnade.ports import Caller, Seal, Store
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    FORBIDDEN,
    UNAUTHORIZED,
    UNAVAILABLE,
    Headers,
    HttpError,
)

# RFC 9449, 11.1: seconds, not minutes; clocks of clients are worse than those of servers.
PROOF_S: Final = 60.0
# Replicas that share a store have clocks that differ; a proof is remembered for so much longer.
CLOCKS_S: Final = 10.0
# A nonce is taken for so long, so that a client needs a new one now and then, not each time.
NONCE_S: Final = 300.0
MAX_PROOF_CHARACTERS: Final = 4096
MAX_ID_CHARACTERS: Final = 256
PROOF_TYPE: Final = "dpop+jwt"
_TIME = struct.Struct(">d")
_PURPOSE: Final = b"a nonce for DPoP "
PORTS: Final = {"http": 80, "https": 443}


class BadProof(BadToken):
    """The proof is not to be trusted."""


class NonceWanted(BadProof):
    """The proof needs a nonce of ours, which it does not have."""


class Proof:
    """One proof, as far as it is right by itself."""

    def __init__(self, text: str, method: str, url: str, token: str, now: float) -> None:
        """Raises `BadProof` for one that is not for this request."""
        if len(text) > MAX_PROOF_CHARACTERS:
            raise BadProof("the proof is too long")
        try:
            signed = parse(text)
            jwk = signed.header.get("jwk")
            key = read_key(jwk)
            if signed.header.get("typ") != PROOF_TYPE or key is None:
                raise BadProof("the proof is malformed, or shows no public key")
            verify(signed, key, ALGORITHMS)
        except BadProof:
            raise
        except BadToken:
            raise BadProof("the proof is malformed, or not signed by its key") from None
        claims = signed.claims
        self.thumbprint: str = key.thumbprint
        self.id: str = _text(claims.get("jti"))
        self.nonce: str = _text(claims.get("nonce", "none"))
        if claims.get("htm") != method or _normal(_text(claims.get("htu"))) != _normal(url):
            raise BadProof("the proof is for another request")
        at = claims.get("iat")
        # Compared, never subtracted: there are numbers in JSON that no float can hold.
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise BadProof("the proof is malformed")
        if not now - PROOF_S <= at <= now + PROOF_S:
            raise BadProof("the proof is not of this minute")
        self.at: float = at
        if claims.get("ath") != coded(hashlib.sha256(token.encode()).digest()):
            raise BadProof("the proof is for another token")

    async def use(self, principal: str, store: Store, now: float) -> None:
        """Use it up. Raises `BadProof` where it was used before, here or at another replica.

        Raises what a store raises where that cannot be known.
        """
        digest = hashlib.sha256(f"{self.thumbprint} {self.id}".encode()).digest()
        # For as long as it could be accepted, which is longer where its sender's clock is ahead.
        ttl_s = self.at + PROOF_S - now + CLOCKS_S
        if not await store.use_once(principal, b"dpop " + digest, ttl_s):
            raise BadProof("the proof was used before")


class Nonces:
    """Nonces that need no memory: the time, sealed with the keys that replicas share."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def make(self, now: float) -> str:
        """A nonce for the next minutes."""
        return self._seal.seal(_PURPOSE + _TIME.pack(now))

    def check(self, nonce: str, now: float) -> None:
        """Raises `NonceWanted` for one that is not ours, or old."""
        try:
            made = self._seal.unseal(nonce)
        except Fault:
            raise NonceWanted("the proof needs a nonce") from None
        start, stamp = made[: len(_PURPOSE)], made[len(_PURPOSE) :]
        if start != _PURPOSE or len(stamp) != _TIME.size:
            raise NonceWanted("the proof needs a nonce")
        if not 0 <= now - _TIME.unpack(stamp)[0] <= NONCE_S:
            raise NonceWanted("the proof needs a new nonce")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 8 * MAX_ID_CHARACTERS:
        raise BadProof("the proof is malformed")
    return value


def _normal(url: str) -> tuple[str, str, int | None, str]:
    """A URL for comparison (RFC 9449, 4.3): without query and fragment, ports and case alike."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        raise BadProof("the proof is for another request") from None
    return scheme, parts.hostname or "", port or PORTS.get(scheme), parts.path or "/"


log: logging.Logger = logging.getLogger("colonnade.auth")

# Tokens that were verified and are good for some seconds more; each entry takes some 300 bytes.
MAX_REMEMBERED: Final = 10_000
# Different tokens that are being verified; to ask an issuer is slow, and to make up a token free.
MAX_ASKING: Final = 1024
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
LEGACY_WELL_KNOWN: Final = "/.well-known/oauth-authorization-server"

# RFC 6750, 2.1, and the scheme of RFC 9449.
_CREDENTIALS = re.compile(rb"(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_SCHEMES = (b"bearer", b"dpop")
# RFC 6749, 3.3.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")

BEARER: Final = "Bearer"
DPOP: Final = "DPoP"


class Surroundings(Struct, frozen=True):
    """What a protection needs of the server that it stands before."""

    fetcher: Fetcher
    store: Store
    seal: Seal


class _Line(Struct):
    """Those who wait until one token is verified."""

    lock: asyncio.Lock
    length: int = 0
    # What came of it for the first of them, where it was nothing good.
    failed: BadToken | HttpError | None = None


class Asked(Struct, frozen=True):
    """One request as far as it matters here; `metadata` is where our document is for its sender."""

    method: str
    url: str
    headers: Headers
    metadata: str


class Protection:
    """Who may use a server. `resource` is its URL, as clients write it; tokens are made for it.

    `trusts` are those whose tokens are believed. `scopes` are needed for everything; tools,
    resources and prompts have their own beside them. `implies` says which scopes hold others:
    `{"admin": {"notes:read", "notes:write"}}`. With `dpop="required"` a token must be bound to a
    key; a bound one is always checked, and with `nonces=True` only with a nonce of ours.
    Raises `LocalProtocolError` for settings that cannot be meant.
    """

    def __init__(
        self,
        resource: str,
        *trusts: Trust,
        scopes: Iterable[str] = (),
        implies: Mapping[str, Iterable[str]] | None = None,
        documentation: str | None = None,
        dpop: Literal["accepted", "required"] = "accepted",
        nonces: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.resource: str = checked_url(resource, "the resource").rstrip("/")
        if not trusts:
            raise InvalidArgument(
                "nobody's tokens are believed, so nobody could come in; name an issuer: "
                "Jwt('https://login.example.com')"
            )
        self.trusts: tuple[Trust, ...] = trusts
        self.scopes: tuple[str, ...] = _checked_scopes(scopes)
        self._implies = {name: frozenset(more) for name, more in (implies or {}).items()}
        self._documentation = documentation
        if dpop not in ("accepted", "required"):
            raise InvalidArgument(f"dpop={dpop!r}: it is 'accepted' or 'required'", argument="dpop")
        self._dpop_required = dpop == "required"
        self._nonces = nonces
        self.clock = clock
        self._known: dict[bytes, tuple[Trusted, float]] = {}
        self._lines: dict[bytes, _Line] = {}
        here = is_this_machine(urlsplit(resource).hostname or "")
        if any(one.issuer is None for one in trusts) and not here:
            log.warning("StaticTokens never expire; for %s use an issuer", resource)

    def __repr__(self) -> str:
        return f"Protection({self.resource!r}, {', '.join(map(repr, self.trusts))})"

    @property
    def issuers(self) -> list[str]:
        """Who gives out tokens for this server."""
        return [one.issuer for one in self.trusts if one.issuer is not None]

    # ------------------------------------------------------------ documents

    def described(self, title: str) -> bytes | None:
        """Our own document (RFC 9728); None where nobody gives out tokens."""
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

    async def legacy(self, fetcher: Fetcher) -> bytes | None:
        """A copy of our issuer's metadata: clients of 2025-03-26 look for it at our origin."""
        for trust in self.trusts:
            try:
                found = await trust.published(self.clock(), fetcher)
            except ChannelError as error:
                log.warning("the issuer's metadata cannot be copied: %s", error)
            else:
                if found is not None:
                    return found
        return None

    def places(self) -> tuple[str, str]:
        """The paths of our document: with that of the resource, and without."""
        return WELL_KNOWN + urlsplit(self.resource).path, WELL_KNOWN

    def url(self, path: str) -> str:
        """A URL at our own origin."""
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}{path}"

    # ------------------------------------------------------------ who comes in

    async def admit(self, asked: Asked, around: Surroundings) -> Caller:
        """Who sent a request. Raises `Refusal`."""
        scheme, token = self._credentials(asked)
        now = self.clock()
        try:
            trusted = await self._believed(token, now, around)
            await self._check_binding(trusted, scheme, token, asked, now, around)
        except NonceWanted as error:
            self._refuse(asked, "use_dpop_nonce", str(error), DPOP, Nonces(around.seal).make(now))
        except BadProof as error:
            self._refuse(asked, "invalid_dpop_proof", str(error), DPOP)
        except BadToken as error:
            self._refuse(asked, "invalid_token", str(error), scheme, detail=error.detail)
        scopes = self.implied(trusted.scopes)
        if not scopes.issuperset(self.scopes):
            raise self.challenge(frozenset(self.scopes), asked.metadata, scheme, scopes)
        return Caller(trusted.principal, scopes, trusted.expires_at, trusted.claims)

    def _credentials(self, asked: Asked) -> tuple[str, str]:
        """The scheme and the token that a request shows. Raises `Refusal` where it shows none."""
        given = asked.headers.get(b"authorization")
        # RS-04: whatever is in the query or the body is not looked at.
        if given is None or given.split(b" ", 1)[0].lower() not in (*_SCHEMES, b"\x00"):
            raise HttpError(UNAUTHORIZED, "log in to use this server", headers=self._ways(asked))
        found = _CREDENTIALS.fullmatch(given)
        if found is None or len(found[2]) > MAX_TOKEN_CHARACTERS:
            words = "the Authorization header is malformed, or was sent twice"
            ways = self._ways(asked, "invalid_request", words)
            raise HttpError(BAD_REQUEST, words, headers=ways)
        return (BEARER if found[1].lower() == b"bearer" else DPOP), found[2].decode("ascii")

    async def _believed(self, token: str, now: float, around: Surroundings) -> Trusted:
        """What a token says. Raises `BadToken`, and 503 where nobody can say."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._recalled(digest, now)
        if known is not None:
            return known
        line = self._lines.get(digest)
        if line is None:
            if len(self._lines) >= MAX_ASKING:
                raise _unavailable()
            line = self._lines[digest] = _Line(asyncio.Lock())
        line.length += 1
        try:
            async with line.lock:  # whoever shows the same token finds it verified, or refused
                if line.failed is not None:
                    raise _again(line.failed)
                return self._recalled(digest, now) or await self._asked(digest, token, now, around)
        except (BadToken, HttpError) as error:
            line.failed = error
            raise
        finally:
            line.length -= 1
            if not line.length:
                self._lines.pop(digest, None)

    def _recalled(self, digest: bytes, now: float) -> Trusted | None:
        known = self._known.get(digest)
        return known[0] if known is not None and now < known[1] else None

    async def _asked(self, digest: bytes, token: str, now: float, around: Surroundings) -> Trusted:
        signed = read_token(token)
        problem = self._untrusted(signed)
        self._known.pop(digest, None)
        for trust in self.trusts:
            if not trust.takes(token, signed):
                continue
            try:
                trusted = await trust.verify(token, signed, self.resource, now, around.fetcher)
            except BadToken as error:
                problem = error
            except ColonnadeError as error:
                why = error.why if isinstance(error, CannotFetch) else ""
                log.error("a token cannot be verified: %s %s", error, why)
                raise _unavailable() from None
            else:
                if not isinstance(trusted.principal, str) or not trusted.principal:  # pyright: ignore[reportUnnecessaryIsInstance]
                    # All such callers would be one; the name "" is that of anonymous ones.
                    log.error("%r names no principal for a token", trust)
                    raise BadToken("the token does not say whose it is")
                self._remember(digest, trusted, now, trust.remembers_s)
                return trusted
        raise problem

    def _untrusted(self, signed: Signed | None) -> BadToken:
        found = f"iss {quoted(signed.claims.get('iss'))}" if signed is not None else "no JWT"
        expected = " or ".join(self.issuers) or "a static token"
        return BadToken(
            "the issuer of the token is not trusted here", f"{found}, trusted {expected}"
        )

    def _remember(self, digest: bytes, trusted: Trusted, now: float, for_s: float) -> None:
        until = now + for_s
        if trusted.expires_at is not None:
            until = min(until, trusted.expires_at)
        if until > now:
            while len(self._known) >= MAX_REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[digest] = (trusted, until)

    async def _check_binding(
        self,
        trusted: Trusted,
        scheme: str,
        token: str,
        asked: Asked,
        now: float,
        around: Surroundings,
    ) -> None:
        """Raise where a bound token comes without its proof, or a proof with a free token."""
        if not trusted.bound_to:
            if scheme == DPOP:
                raise BadToken("the token is not bound to a key; send it as Bearer")
            if self._dpop_required:
                raise BadToken("the token must be bound to a key (DPoP)")
            return
        if scheme != DPOP:
            raise BadToken("the token is bound to a key; send it as DPoP, with a proof")
        # Two proofs are joined by a comma, which none has in it.
        text = asked.headers.get(b"dpop", b"").decode("latin-1")
        proof = Proof(text, asked.method, asked.url, token, now)
        if proof.thumbprint != trusted.bound_to:
            raise BadProof("the proof is signed by another key than the token is bound to")
        if self._nonces:
            Nonces(around.seal).check(proof.nonce, now)
        await _use(proof, trusted.principal, around.store, now)

    # ------------------------------------------------------------ scopes

    def implied(self, granted: Iterable[str]) -> frozenset[str]:
        """What was granted, and all that it implies (R0732)."""
        found: set[str] = set()
        waiting = list(granted)
        while waiting:
            scope = waiting.pop()
            if scope not in found:
                found.add(scope)
                waiting += self._implies.get(scope, ())
        return frozenset(found)

    def challenge(
        self,
        needed: frozenset[str],
        metadata: str,
        scheme: str = BEARER,
        granted: frozenset[str] = frozenset(),
    ) -> HttpError:
        """403: what a request needs, all of it at once (R0730)."""
        scopes = sorted({*needed, *self.scopes})
        words = f"this needs the scope {' '.join(scopes)}"
        line = _line(scheme, metadata if self.issuers else "", scopes, "insufficient_scope", words)
        detail = f"granted {quoted(sorted(granted))}"
        return HttpError(FORBIDDEN, words, headers=(("WWW-Authenticate", line),), detail=detail)

    # ------------------------------------------------------------ what strangers are told

    def _ways(self, asked: Asked, error: str = "", words: str = "") -> tuple[tuple[str, str], ...]:
        metadata = asked.metadata if self.issuers else ""
        schemes = [DPOP] if self._dpop_required else [BEARER]
        lines = [_line(scheme, metadata, self.scopes, error, words) for scheme in schemes]
        return tuple(("WWW-Authenticate", line) for line in lines)

    def _refuse(
        self,
        asked: Asked,
        error: str,
        words: str,
        scheme: str,
        nonce: str = "",
        detail: str = "",
    ) -> NoReturn:
        metadata = asked.metadata if self.issuers else ""
        headers = [("WWW-Authenticate", _line(scheme, metadata, self.scopes, error, words))]
        if nonce:
            headers.append(("DPoP-Nonce", nonce))
        raise HttpError(UNAUTHORIZED, words, headers=tuple(headers), detail=detail) from None


async def _use(proof: Proof, principal: str, store: Store, now: float) -> None:
    """Raises `BadProof` for a proof that was used before, and 503 where the store cannot say."""
    try:
        await proof.use(principal, store, now)
    except BadProof:
        raise
    except Exception as error:
        # Our own errors have no secret in them; those of other stores may.
        why = str(error) if isinstance(error, ColonnadeError) else type(error).__name__
        log.error("the store cannot say whether a proof was used: %s", why)
        raise _unavailable() from None


def _line(scheme: str, metadata: str, scopes: Iterable[str], error: str, words: str) -> str:
    """One challenge (RFC 6750, 3; RFC 9728, 5.1). Nothing in it was written by a stranger."""
    pairs = {
        "error": error,
        "error_description": words if error else "",
        "resource_metadata": metadata,
        "scope": " ".join(scopes),
        "algs": " ".join(ALGORITHMS) if scheme == DPOP else "",
    }
    said = ", ".join(f'{name}="{value}"' for name, value in pairs.items() if value)
    return f"{scheme} {said}" if said else scheme


def _again(error: BadToken | HttpError) -> BadToken | HttpError:
    """The same for somebody else: a traceback belongs to one."""
    if isinstance(error, BadToken):
        return BadToken(str(error), error.detail)
    return _unavailable()


def _checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    words = [scopes] if isinstance(scopes, str) else list(scopes)
    for word in words:
        if not _SCOPE.fullmatch(word):
            raise InvalidArgument(
                f"{word!r} is no scope: a word without spaces and quotes", argument="scopes"
            )
    if "offline_access" in words:  # R0728: it is about the client's own comfort
        raise InvalidArgument(
            "offline_access is for clients to ask for; leave it out", argument="scopes"
        )
    return tuple(dict.fromkeys(words))


def _unavailable() -> HttpError:
    words = "who you are cannot be verified now; try again later"
    return HttpError(UNAVAILABLE, words, kind=FaultKind.INTERNAL, headers=(("Retry-After", "5"),))
