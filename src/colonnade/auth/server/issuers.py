"""Whose tokens a server believes: those signed by an issuer, those that it is asked about, and
some words for development.

    Jwt("https://login.example.com")                                   # signed, keys by discovery
    Introspection("https://login.example.com", "me", "secret")         # asked about, RFC 7662
    StaticTokens({"a-word-for-today": ("ann", {"notes:read"})})        # on your own machine

Rules: a token counts only if it was made for this server (its audience), by this issuer, for now,
and as an access token. Where the issuer cannot be asked, nobody is let in. No token, and no secret
of ours, is in an error, a log or a `repr`.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeGuard, cast
from urllib.parse import quote_plus, urlsplit

from msgspec import Struct

from colonnade.auth.jose import (
    ALGORITHMS,
    BadToken,
    Json,
    Key,
    Signed,
    checked_algorithms,
    is_compact,
    parse,
    quoted,
    read_key,
    read_object,
    verify,
)
from colonnade.auth.ssrf import Fetcher, is_this_machine, opened
from colonnade.auth.urls import issuer_places, same_issuer
from colonnade.errors import CannotFetch, ChannelError, InvalidArgument


class Turnstile:
    """A lock that belongs to no loop before it is used: `async with turnstile():`."""

    def __init__(self) -> None:
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __call__(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


log: logging.Logger = logging.getLogger("colonnade.auth")

FRESH_S: Final = 3600.0
RETRY_S: Final = 5.0


def checked_url(url: str, what: str) -> str:
    """A URL that somebody configured. Raises `LocalProtocolError` for one that is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and set(url).isdisjoint(' "<>\\^`{|}#@')
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host))
    if not host or not plain or not secure or port == 0:
        raise InvalidArgument(
            f"{what} {url[:200]!r} is no URL to use here: it begins with https:// (http:// only "
            "for this machine), and has no fragment and no password"
        )
    return url


class Document:
    """An issuer's metadata, fetched when it is first needed."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._found: dict[str, Any] = {}
        self._raw = b""
        self._found_at: float | None = None
        self._asked_at: float | None = None
        self._turnstile = Turnstile()

    async def read(self, now: float, fetcher: Fetcher) -> dict[str, Any]:
        """What it says. Raises `ChannelError` where there is none."""
        if self._is_due(now):
            async with self._turnstile():
                if self._is_due(now):
                    await self._look(now, fetcher)
                    self._asked_at = now
        if self._found_at is None:
            raise ChannelError(f"{self._issuer} has no metadata that names it as the issuer")
        return self._found

    def _is_due(self, now: float) -> bool:
        if self._found_at is not None and now - self._found_at < FRESH_S:
            return False
        return self._asked_at is None or now - self._asked_at >= RETRY_S

    async def copy(self, now: float, fetcher: Fetcher) -> bytes:
        """The document as it was published. Raises `ChannelError` where there is none."""
        await self.read(now, fetcher)
        return self._raw

    async def endpoint(self, name: str, now: float, fetcher: Fetcher) -> str:
        """One of the URLs in it. Raises `ChannelError` where it has none."""
        found = (await self.read(now, fetcher)).get(name)
        if not isinstance(found, str):
            raise ChannelError(f"the metadata of {self._issuer} has no {name}; configure it")
        return found

    async def _look(self, now: float, fetcher: Fetcher) -> None:
        for url in issuer_places(self._issuer):
            try:
                fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
                if fetched.status != OK:
                    continue
                found = read_object(fetched.body)
            except CannotFetch as error:
                log.warning("the metadata of an issuer cannot be read: %s: %s", error, error.why)
                continue
            except BadToken:
                continue
            if same_issuer(found.get("issuer"), self._issuer):  # D42
                self._found, self._raw, self._found_at = found, fetched.body, now
                return
            log.warning("%s describes another issuer than %s, and is not used", url, self._issuer)


# A key that an issuer took back is trusted for no longer than this.
KEYS_FRESH_S: Final = 600.0
# An issuer that does not answer may be away for so long; then its tokens are no longer believed.
STALE_S: Final = 3600.0
# A token with a key that nobody knows makes us look again, this often at most: RS-15.
LOOK_AGAIN_S: Final = 30.0
# And an issuer that failed is asked again after this.
KEYS_RETRY_S: Final = 5.0
# Issuers that serve many tenants have some dozens.
MAX_KEYS: Final = 256


class KeySet:
    """The keys of one issuer; `find` says where they are, and may have to ask for that."""

    def __init__(self, find: Callable[[float, Fetcher], Awaitable[str]]) -> None:
        self._find = find
        self._keys: tuple[Key, ...] = ()
        self._loaded_at: float | None = None
        self._asked_at: float | None = None
        self._failed = False
        self._turnstile = Turnstile()

    async def matching(
        self, key_id: str, algorithm: str, now: float, fetcher: Fetcher
    ) -> list[Key]:
        """The keys that a token may be signed with. Raises `ChannelError` where none are known."""
        if self._is_due(key_id, now):
            turn = self._turnstile()
            # Whoever can be judged by the keys that we have does not wait for others.
            if not (turn.locked() and self._is_known(key_id) and self._is_usable(now)):
                async with turn:
                    if self._is_due(key_id, now):
                        await self._load(now, fetcher)
                        self._asked_at = now
        if not self._is_usable(now):
            raise ChannelError("the keys of the issuer are not known")
        named = [key for key in self._keys if not key_id or key.id == key_id]
        return [key for key in named if key.fits(algorithm)]

    def _is_due(self, key_id: str, now: float) -> bool:
        if self._asked_at is not None and now - self._asked_at < KEYS_RETRY_S:
            return False
        if self._loaded_at is None or self._failed or now - self._loaded_at > KEYS_FRESH_S:
            return True
        return not self._is_known(key_id) and now - self._loaded_at > LOOK_AGAIN_S

    def _is_known(self, key_id: str) -> bool:
        return not key_id or any(key.id == key_id for key in self._keys)

    def _is_usable(self, now: float) -> bool:
        return self._loaded_at is not None and now - self._loaded_at <= STALE_S

    async def _load(self, now: float, fetcher: Fetcher) -> None:
        self._failed = True
        try:
            url = await self._find(now, fetcher)
            fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
            if fetched.status != OK:
                raise ChannelError(f"the issuer answered {fetched.status} for its keys")
            listed = read_object(fetched.body).get("keys")
            if not isinstance(listed, list):
                raise BadToken("no keys")
        except (ChannelError, BadToken) as error:
            why = error.why if isinstance(error, CannotFetch) else error
            log.warning("the keys of an issuer cannot be read: %s: %s", error, why)
            return
        found = [read_key(one) for one in cast("list[Any]", listed)[:MAX_KEYS]]
        self._keys = tuple(key for key in found if key is not None)
        self._loaded_at, self._failed = now, False


# RS-03: clocks differ by seconds; more would let in what has expired.
SKEW_S: Final = 30.0
MAX_SKEW_S: Final = 60.0
# A token without a key id is tried with so many keys, and no more: each try takes time.
MAX_TRIES: Final = 8
# Scopes are words; a token has dozens at most.
MAX_SCOPES: Final = 256
MAX_SUBJECT_CHARACTERS: Final = 255
# Far beyond the life of everybody; and what is larger is no float.
MAX_TIME_S: Final = 1e12
OK = 200

# RFC 9068, and what issuers wrote before it. Other types are other things: `oauth-id-jag+jwt` is
# a grant, `dpop+jwt` a proof, `logout+jwt` an event.
_TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt", "application/jwt"})
# What only an ID token, or a message to somebody else, has in it.
_FOREIGN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash", "s_hash", "events", "sub_jwk"})
# Where issuers say what kind of token it is, and how they call an access token.
_KIND_CLAIMS = ("typ", "token_use", "token_type")
_ACCESS_KINDS = frozenset({"bearer", "dpop", "access", "access_token", "at+jwt", "jwt", "n_a"})


class Trusted(Struct, frozen=True):
    """What a token says, after it was believed: who, by whom, what for, how long."""

    principal: str
    scopes: frozenset[str]
    expires_at: float | None
    bound_to: str = ""
    claims: Mapping[str, Any] = {}


class Trust(Protocol):
    """Somebody whose tokens are believed."""

    @property
    def issuer(self) -> str | None:
        """Who it is, for those who want a token; None where nobody can be asked for one."""
        ...

    @property
    def remembers_s(self) -> float:
        """How long an answer may be remembered."""
        ...

    def takes(self, token: str, signed: Signed | None) -> bool:
        """Whether this looks like one of its tokens."""
        ...

    async def verify(
        self, token: str, signed: Signed | None, resource: str, now: float, fetcher: Fetcher
    ) -> Trusted:
        """What a token says. Raises `BadToken`, and `ChannelError` where that cannot be known."""
        ...

    async def published(self, now: float, fetcher: Fetcher) -> bytes | None:
        """What it says about itself, as it says it. Raises `ChannelError` where it does not."""
        ...


class _Issuer:
    """What all have in common who can be asked over the network."""

    def __init__(
        self, issuer: str, audience: str | Iterable[str], networks: Iterable[str], skew_s: float
    ) -> None:
        self.issuer: str = checked_url(issuer, "the issuer")
        if not 0 <= skew_s <= MAX_SKEW_S:
            raise InvalidArgument(
                f"skew_s is {skew_s:g}; give 0 to {MAX_SKEW_S:g} seconds", argument="skew_s"
            )
        self._document = Document(issuer)
        self._audiences = frozenset([audience] if isinstance(audience, str) else audience)
        if "" in self._audiences:
            raise InvalidArgument(
                "an empty audience= would be anybody's; name this server", argument="audience"
            )
        self._networks = tuple(networks) if not isinstance(networks, str) else networks
        opened(self._networks)
        self._skew_s = skew_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer!r})"

    async def published(self, now: float, fetcher: Fetcher) -> bytes | None:
        """Its metadata. Raises `ChannelError` where there is none."""
        return await self._document.copy(now, self._widened(fetcher))

    def _widened(self, fetcher: Fetcher) -> Fetcher:
        """A fetcher for this issuer, which its operator named."""
        here = is_this_machine(urlsplit(self.issuer).hostname or "")
        return fetcher.opened(loopback=here, networks=self._networks)

    def _is_ours(self, audience: str, resource: str) -> bool:
        if self._audiences:
            return audience in self._audiences
        return audience == resource or spelled(audience) == spelled(resource)

    def _believe(self, claims: Json, resource: str, now: float) -> Trusted:
        """The checks that every token has to pass, however it was verified."""
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not any(
            isinstance(one, str) and self._is_ours(one, resource)
            for one in cast("list[Any]", named)
        ):
            ours = " or ".join(sorted(self._audiences)) or resource
            detail = f"aud {quoted(audience)}, expected {ours}"
            raise BadToken("the token is not for this server", detail)
        expires_at = _time(claims, "exp")
        if expires_at is None or now >= expires_at + self._skew_s:
            raise BadToken("the token has expired", _passed("exp", expires_at, now))
        for name in ("nbf", "iat"):
            since = _time(claims, name)
            if since is not None and since > now + self._skew_s:
                raise BadToken("the token is not valid yet", _passed(name, since, now))
        _check_kind(claims)
        principal = self.issuer + _subject(claims)
        return Trusted(principal, _scopes(claims), expires_at, _bound(claims), claims)


class Jwt(_Issuer):
    """An issuer whose tokens are signed; its keys are found by its metadata, or at `jwks_url`.

    `audience` is how it calls this server where that is not the server's URL (`api://notes`).
    `algorithms` are those that are accepted. `networks` are ranges of your own in which the
    issuer may be: `["10.0.0.0/8"]`. Raises `LocalProtocolError` for settings that are none.
    """

    remembers_s: float = 60.0

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | Iterable[str] = (),
        jwks_url: str | None = None,
        algorithms: Iterable[str] = ALGORITHMS,
        networks: Iterable[str] = (),
        skew_s: float = SKEW_S,
    ) -> None:
        super().__init__(issuer, audience, networks, skew_s)
        self._jwks_url = checked_url(jwks_url, "jwks_url") if jwks_url is not None else None
        self._algorithms = checked_algorithms(algorithms)
        self._keys = KeySet(self._find_keys)

    async def _find_keys(self, now: float, fetcher: Fetcher) -> str:
        return self._jwks_url or await self._document.endpoint("jwks_uri", now, fetcher)

    def takes(self, token: str, signed: Signed | None) -> bool:
        """Whether the token says that it is of this issuer; the signature proves it."""
        return self._is_mine(signed)

    def _is_mine(self, signed: Signed | None) -> TypeGuard[Signed]:
        return signed is not None and same_issuer(signed.claims.get("iss"), self.issuer)

    async def verify(
        self, token: str, signed: Signed | None, resource: str, now: float, fetcher: Fetcher
    ) -> Trusted:
        """What a token says. Raises `BadToken`, and `ChannelError` where no keys are known."""
        if not self._is_mine(signed):
            raise BadToken("the token is of another issuer")
        kind = signed.header.get("typ", "jwt")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise BadToken("this is no access token")
        wider = self._widened(fetcher)
        keys = await self._keys.matching(signed.key_id, signed.algorithm, now, wider)
        detail = f"kid {quoted(signed.header.get('kid'))}, issuer {self.issuer}"
        problem = BadToken("the token is signed with a key that the issuer does not have", detail)
        for key in keys[:MAX_TRIES]:
            try:
                verify(signed, key, self._algorithms)
            except BadToken as error:
                problem = error
            else:
                return self._believe(signed.claims, resource, now)
        raise problem


class Introspection(_Issuer):
    """An issuer that is asked about each token (RFC 7662), with a name and a secret of ours.

    What it said is remembered for a few seconds, never longer than the token is good for.
    """

    remembers_s: float = 20.0

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
        self._endpoint = checked_url(endpoint, "endpoint") if endpoint is not None else None
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"  # RFC 6749, 2.3.1
        self._credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def takes(self, token: str, signed: Signed | None) -> bool:
        """Any token that does not say that it is somebody else's."""
        return signed is None or same_issuer(signed.claims.get("iss", self.issuer), self.issuer)

    async def verify(
        self, token: str, signed: Signed | None, resource: str, now: float, fetcher: Fetcher
    ) -> Trusted:
        """What the issuer says of a token. Raises `BadToken`; `ChannelError` if it says nothing."""
        wider = self._widened(fetcher)
        url = self._endpoint or await self._document.endpoint("introspection_endpoint", now, wider)
        headers = [
            ("authorization", self._credentials),
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
        ]
        body = f"token={quote_plus(token)}&token_type_hint=access_token"
        fetched = await wider.fetch("POST", url, headers, body.encode())
        if fetched.status != OK or fetched.media != "application/json":
            raise ChannelError(f"the issuer answered {fetched.status} when asked about a token")
        claims = read_object(fetched.body)
        if claims.get("active") is not True:
            raise BadToken("the token is not active")
        if not same_issuer(claims.get("iss", self.issuer), self.issuer):
            detail = f"iss {quoted(claims.get('iss'))}, expected {self.issuer}"
            raise BadToken("the token is of another issuer", detail)
        return self._believe(claims, resource, now)


class StaticTokens:
    """Tokens that are written in the program, for development: each with who it is, and scopes.

    `StaticTokens({"word": "ann"})`, or `{"word": ("ann", {"notes:read"})}`. They never expire.
    """

    issuer: None = None
    remembers_s: float = 0.0

    def __init__(self, tokens: Mapping[str, str | tuple[str, Iterable[str]]]) -> None:
        self._tokens: dict[bytes, Trusted] = {}
        for token, who in tokens.items():
            name, scopes = (who, ()) if isinstance(who, str) else who
            if not token or not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument("a token and who it stands for are strings, not empty")
            self._tokens[_digest(token)] = Trusted(name, frozenset(scopes), None)

    def __repr__(self) -> str:
        return f"StaticTokens({len(self._tokens)} tokens)"

    def takes(self, token: str, signed: Signed | None) -> bool:
        """Whether it is one of them."""
        return _digest(token) in self._tokens

    async def verify(
        self, token: str, signed: Signed | None, resource: str, now: float, fetcher: Fetcher
    ) -> Trusted:
        """Who it stands for. Raises `BadToken`."""
        found = self._tokens.get(_digest(token))
        if found is None:
            raise BadToken("the token is not known")
        return found

    async def published(self, now: float, fetcher: Fetcher) -> bytes | None:
        """Nothing: nobody gives them out."""
        return None


def read_token(token: str) -> Signed | None:
    """A token that has the form of a JWT, not trusted yet. Raises `BadToken` for a broken one."""
    return parse(token) if is_compact(token) else None


def spelled(url: str) -> str:
    """A resource in one spelling (R0316, R0317): case where there is none, no empty path."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}{mark}{host.lower()}{slash + path if path else ''}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _check_kind(claims: Json) -> None:
    """Raise for an ID token, a refresh token, and what else an issuer signs."""
    said = [claims[name] for name in _KIND_CLAIMS if name in claims]
    if not all(isinstance(one, str) for one in said):
        raise BadToken("this is no access token")
    kinds = {one.lower() for one in said}
    foreign = claims.keys() & _FOREIGN_CLAIMS
    if kinds & _ACCESS_KINDS:
        foreign -= {"nonce"}  # which some issuers put into access tokens, too
    if foreign or not kinds <= _ACCESS_KINDS:
        raise BadToken("this is no access token")


def _time(claims: Json, name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > MAX_TIME_S:
        raise BadToken("the token is malformed")
    return float(found)


def _passed(name: str, at: float | None, now: float) -> str:
    """How far from now a time of a token is, for the log."""
    if at is None:
        return f"no {name}"
    away = f"{now - at:.0f} s ago" if at <= now else f"in {at - now:.0f} s"
    return f"{name} {at:.0f}, {away}"


def _subject(claims: Json) -> str:
    """The rest of a principal's name after the issuer: a user, or a client that acts for itself.

    A `sub` that is present is the only one that counts: where it cannot be used, the token is
    refused, since all users of a client would otherwise become the client. And a client is never
    the user whose `sub` equals its id (RFC 9068, 5): no issuer has a space or a `#` in its URL.
    """
    name, mark = ("sub", "#") if "sub" in claims else ("client_id", " client ")
    found = claims.get(name)
    if found is None and name == "client_id":
        raise BadToken("the token does not say whose it is: it has no claim sub, and no client_id")
    if not isinstance(found, str) or not found.isprintable():
        raise BadToken(f"the token's claim {name} is not a string of printable characters")
    if not 0 < len(found) <= MAX_SUBJECT_CHARACTERS:
        raise BadToken(
            f"the token's claim {name} must have 1 to {MAX_SUBJECT_CHARACTERS} characters"
        )
    return mark + found


def _scopes(claims: Json) -> frozenset[str]:
    """What it allows: a text (RFC 8693), or the list that some issuers make of it."""
    found = claims.get("scope", claims.get("scp", ""))
    words = found.split() if isinstance(found, str) else found
    if not isinstance(words, list) or len(cast("list[Any]", words)) > MAX_SCOPES:
        raise BadToken("the token is malformed")
    return frozenset(word for word in cast("list[Any]", words) if isinstance(word, str))


def _bound(claims: Json) -> str:
    """The key that a token is bound to (RFC 9449, 6): its thumbprint; empty where it is free."""
    found = claims.get("cnf")
    if found is None:
        return ""
    thumb = cast("Json", found).get("jkt") if isinstance(found, dict) else None
    if not isinstance(thumb, str) or not thumb:
        # Bound to something that cannot be checked here, such as a certificate.
        raise BadToken("the token is bound in a way that is not known here")
    return thumb
