"""A small authorization server for development and tests: `colonnade issuer`.

    issuer = DevelopmentIssuer("http://127.0.0.1:9000", ["ann", "bob"])
    response = await issuer.respond(IssuerRequest("GET", "/keys"), fetcher)

Authorization code with PKCE (S256), dynamic registration (RFC 7591), client ID metadata documents,
resource indicators (RFC 8707), JWT access tokens (RFC 9068), refresh tokens that rotate, revocation
(RFC 7009), `iss` in responses (RFC 9207). The login page has a button for each user. An
`OAuthProxy` on this machine is the client `proxy`, which is known, and gets ID tokens.

Rules: never for production, so it serves a loopback host only, keeps everything in memory, and asks
for no password. What a client sends is checked as a production server does, so that a client that
works here works there. All clients are public. No socket and no clock of its own.
"""

import base64
import hashlib
import hmac
import html
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.jose import InvalidToken, SigningKey, decode_json_object, generate_key
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.auth.urls import ISSUER_DOCUMENT, OPENID_DOCUMENT, with_query
from colonnade.errors import CannotFetch, InvalidArgument
from colonnade.protocol.elicitation import UNSAFE_SCHEMES

T = TypeVar("T")

CODE_TTL_S: Final = 60.0
# Above what a day of development needs; the oldest are forgotten.
MAX_CLIENTS: Final = 1000
MAX_CODES: Final = 1000
MAX_REFRESH_TOKENS: Final = 10_000
MAX_BODY_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 64
MAX_REDIRECT_URIS: Final = 10
MAX_URL_CHARACTERS: Final = 2048
MAX_NAME_CHARACTERS: Final = 200
MAX_USERS: Final = 50

OK, CREATED, SEE_OTHER, BAD_REQUEST, NOT_FOUND = 200, 201, 303, 400, 404
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"
# The client of an `OAuthProxy` on any port of this machine.
PROXY_CLIENT: Final = "proxy"
_PROXY_REDIRECTS = ("http://127.0.0.1/oauth/callback", "http://localhost/oauth/callback")
# The button that does not sign in.
DENY: Final = "deny"

# Path and methods of each endpoint, for what serves them.
ENDPOINTS: Final[dict[str, tuple[str, ...]]] = {
    f"/.well-known/{ISSUER_DOCUMENT}": ("GET",),
    f"/.well-known/{OPENID_DOCUMENT}": ("GET",),
    "/keys": ("GET",),
    "/authorize": ("GET", "POST"),
    "/register": ("POST",),
    "/token": ("POST",),
    "/revoke": ("POST",),
}

_USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
# RFC 7636, 4.1 and 4.2.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_SCOPES = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{0,1000}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
# What is asked for, and passes through the login page.
_AUTHORIZATION_FIELDS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "resource",
    "nonce",
)

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:32em;margin:3em auto;padding:0 1em}"
    "button{font:inherit;display:block;width:100%;margin:.5em 0;padding:.5em}"
    "dt{font-weight:bold}dd{margin:0 0 .5em;overflow-wrap:anywhere}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # `no-referrer` would make the origin of the form `null`
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class IssuerRequest(Struct, frozen=True):
    """An HTTP request: `query` without the question mark, the complete body."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""


class IssuerResponse(Struct, frozen=True):
    """An HTTP response."""

    status: int
    body: bytes = b""
    media_type: str = JSON
    headers: Mapping[str, str] = {}


class IssuerClient(Struct, frozen=True):
    """A client: registered, or described by the document at its id."""

    client_id: str
    redirect_uris: tuple[str, ...]
    name: str = ""


class IssuerCode(Struct, frozen=True):
    """An authorization code that was not used yet."""

    client_id: str
    redirect_uri: str
    challenge: str
    user: str
    scope: str
    resource: str
    nonce: str
    expires_at: float


class IssuedRefreshToken(Struct):
    """A refresh token; all that came of one login are a family."""

    client_id: str
    user: str
    scope: str
    resource: str
    family: str
    used: bool = False


class IssuerError(Exception):
    """An OAuth error response. `redirect` is where it is sent, once client and URI are verified."""

    def __init__(self, error: str, description: str, redirect: str = "", state: str = "") -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.redirect = redirect
        self.state = state


class DevelopmentIssuer:
    """An authorization server at `url`, a loopback URL, which signs in `users` without a password.

    With `auto` the first user is signed in without a page. Raises `LocalProtocolError` for another
    host or an unusable name.
    """

    def __init__(
        self,
        url: str,
        users: Iterable[str] = ("ann",),
        *,
        ttl_s: float = 3600.0,
        auto: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not is_loopback_host(parts.hostname or "") or parts.path:
            raise InvalidArgument(
                f"{url[:200]!r} is not a loopback URL: this issuer asks for no password, so it "
                "serves this machine only",
                argument="url",
            )
        self.url = url
        self.users: tuple[str, ...] = tuple(dict.fromkeys(users))
        if not 0 < len(self.users) <= MAX_USERS:
            raise InvalidArgument(f"give 1 to {MAX_USERS} users", argument="users")
        for user in self.users:
            if not _USER_NAME.fullmatch(user) or user == DENY:
                raise InvalidArgument(
                    f"{user[:100]!r} is not a user: give a short name, as ann", argument="users"
                )
        if not 1 <= ttl_s <= 86_400:
            raise InvalidArgument(f"ttl_s is {ttl_s:g}; give 1 to 86400 seconds", argument="ttl_s")
        self._ttl_s = ttl_s
        self._auto = auto
        self._clock = clock
        self._key: SigningKey = generate_key()
        self._key.key_id = self._key.thumbprint[:16]
        self._clients: dict[str, IssuerClient] = {}
        self._proxy = IssuerClient(PROXY_CLIENT, _PROXY_REDIRECTS, "authorization proxy")
        self._codes: dict[str, IssuerCode] = {}
        self._refresh_tokens: dict[str, IssuedRefreshToken] = {}
        self._ended_families: dict[str, None] = {}

    async def respond(self, request: IssuerRequest, fetcher: Fetcher) -> IssuerResponse:
        """The response to a request; `fetcher` fetches client ID metadata documents."""
        try:
            return await self._respond(request, fetcher)
        except IssuerError as error:
            if error.redirect:
                found = {"error": error.error, "error_description": error.description}
                return self._redirect(error.redirect, found, error.state)
            if request.path == "/authorize":
                return _page(
                    "Not signed in", f"<p>{html.escape(error.description)}</p>", status=BAD_REQUEST
                )
            return _json(
                {"error": error.error, "error_description": error.description}, BAD_REQUEST
            )

    async def _respond(self, request: IssuerRequest, fetcher: Fetcher) -> IssuerResponse:
        match request.method, request.path:
            case "GET", "/keys":
                return _json(self._jwks())
            case "GET", path if path.startswith("/.well-known/") and path in ENDPOINTS:
                return _json(self._metadata())
            case "GET", "/authorize":
                asked = _fields(request.query)
                client = await self._check_authorization(asked, fetcher)
                if self._auto:
                    return self._sign_in(asked, self.users[0])
                return self._login_page(asked, client)
            case "POST", "/authorize":
                asked = _fields(_text(request.body))
                await self._check_authorization(asked, fetcher)
                return self._sign_in(asked, asked.get("user", ""))
            case "POST", "/register":
                return self._register(request.body)
            case "POST", "/token":
                return self._token(_fields(_text(request.body)))
            case "POST", "/revoke":
                return self._revoke(_fields(_text(request.body)))
            case _:
                return _json({"error": "not_found"}, NOT_FOUND)

    # ------------------------------------------------------------ metadata

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }

    def _jwks(self) -> dict[str, Any]:
        jwk = {**self._key.public_jwk, "kid": self._key.key_id, "use": "sig", "alg": "ES256"}
        return {"keys": [jwk]}

    # ------------------------------------------------------------ clients

    def _register(self, body: bytes) -> IssuerResponse:
        try:
            wanted = decode_json_object(body)
        except InvalidToken:
            raise IssuerError("invalid_client_metadata", "the body is not a JSON object") from None
        client = _client(secrets.token_urlsafe(16), wanted)
        _remember(self._clients, client.client_id, client, MAX_CLIENTS)
        return _json(
            {
                "client_id": client.client_id,
                "client_id_issued_at": int(self._clock()),
                "client_name": client.name,
                "redirect_uris": client.redirect_uris,
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            },
            CREATED,
        )

    def _known_client(self, client_id: str) -> IssuerClient | None:
        return self._proxy if client_id == PROXY_CLIENT else self._clients.get(client_id)

    async def _find_client(self, client_id: str, fetcher: Fetcher) -> IssuerClient:
        known = self._known_client(client_id)
        if known is not None:
            return known
        if not client_id.startswith("https://"):
            raise IssuerError(
                "invalid_client",
                "the client is not registered here; this issuer forgets on restart",
            )
        try:
            fetched = await fetcher.fetch(
                "GET", client_id, [("accept", JSON)], max_bytes=MAX_BODY_BYTES
            )
            document = decode_json_object(fetched.body) if fetched.status == OK else {}
        except CannotFetch as error:
            raise IssuerError("invalid_client", f"{error}: {error.why}") from None
        except InvalidToken:
            document = {}
        # The document must be that of this very id.
        if document.get("client_id") != client_id:
            raise IssuerError(
                "invalid_client", "the client_id is not the URL of a document about it"
            )
        client = _client(client_id, document)
        _remember(self._clients, client_id, client, MAX_CLIENTS)
        return client

    # ------------------------------------------------------------ authorization

    async def _check_authorization(self, asked: dict[str, str], fetcher: Fetcher) -> IssuerClient:
        """Check an authorization request. Raises `IssuerError`; by redirect, once that is safe."""
        client = await self._find_client(asked.get("client_id", ""), fetcher)
        redirect, state = asked.get("redirect_uri", ""), asked.get("state", "")
        if not any(_is_same_redirect(redirect, one) for one in client.redirect_uris):
            raise IssuerError(
                "invalid_request", "the redirect_uri is not registered for this client"
            )

        def refuse(error: str, description: str) -> IssuerError:
            return IssuerError(error, description, redirect, state)

        if asked.get("response_type") != "code":
            raise refuse("unsupported_response_type", "response_type must be code")
        if asked.get("code_challenge_method") != "S256":
            raise refuse("invalid_request", "PKCE is required: code_challenge_method must be S256")
        if not _CHALLENGE.fullmatch(asked.get("code_challenge", "")):
            raise refuse("invalid_request", "code_challenge must have 43 characters of base64url")
        if not _SCOPES.fullmatch(asked.get("scope", "")):
            raise refuse("invalid_scope", "scope is a list of words")
        # A proxy has tokens of its own; those that it gets here are for no server.
        default = self.url if client is self._proxy else ""
        if not _is_resource(asked.setdefault("resource", default)):
            raise refuse("invalid_target", "resource must be the URL of the MCP server (RFC 8707)")
        return client

    def _sign_in(self, asked: dict[str, str], user: str) -> IssuerResponse:
        redirect, state = asked["redirect_uri"], asked.get("state", "")
        if user not in self.users:
            raise IssuerError("access_denied", "the user did not sign in", redirect, state)
        code = secrets.token_urlsafe(32)
        issued = IssuerCode(
            asked["client_id"],
            redirect,
            asked["code_challenge"],
            user,
            asked.get("scope", ""),
            asked["resource"],
            asked.get("nonce", ""),
            self._clock() + CODE_TTL_S,
        )
        _remember(self._codes, code, issued, MAX_CODES)
        return self._redirect(redirect, {"code": code}, state)

    def _redirect(self, uri: str, found: dict[str, str], state: str) -> IssuerResponse:
        pairs = {**found, **({"state": state} if state else {}), "iss": self.url}
        headers = {"location": with_query(uri, list(pairs.items())), "cache-control": "no-store"}
        return IssuerResponse(SEE_OTHER, headers=headers)

    def _login_page(self, asked: dict[str, str], client: IssuerClient) -> IssuerResponse:
        escape = html.escape
        facts = {
            "Client": client.name or client.client_id,
            "Redirects to": asked["redirect_uri"],
            "For the server": asked["resource"],
            "Scopes": asked.get("scope", "") or "none",
        }
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{escape(asked[name])}">'
            for name in _AUTHORIZATION_FIELDS
            if name in asked
        )
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
        buttons = "".join(
            f'<button name="user" value="{escape(user)}">Sign in as {escape(user)}</button>'
            for user in self.users
        )
        deny = f'<button name="user" value="{DENY}">Do not sign in</button>'
        form = f'<form method="post" action="/authorize">{hidden}{buttons}{deny}</form>'
        words = "<p>This login is for development: it asks for no password.</p>"
        return _page("Sign in", f"{words}<dl>{listed}</dl>{form}", asked["redirect_uri"])

    # ------------------------------------------------------------ tokens

    def _token(self, form: dict[str, str]) -> IssuerResponse:
        client_id = form.get("client_id", "")
        if self._known_client(client_id) is None:
            raise IssuerError(
                "invalid_client",
                "the client is not registered here; this issuer forgets on restart",
            )
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange_code(form, client_id)
            case "refresh_token":
                return self._refresh(form, client_id)
            case _:
                raise IssuerError(
                    "unsupported_grant_type", "grant_type is authorization_code or refresh_token"
                )

    def _exchange_code(self, form: dict[str, str], client_id: str) -> IssuerResponse:
        issued = self._codes.pop(form.get("code", ""), None)
        if issued is None or issued.client_id != client_id or self._clock() >= issued.expires_at:
            raise IssuerError("invalid_grant", "the code is unknown, used or expired")
        if form.get("redirect_uri") != issued.redirect_uri:
            raise IssuerError("invalid_grant", "redirect_uri is not the one of the login")
        if not _is_verifier(form.get("code_verifier", ""), issued.challenge):
            raise IssuerError("invalid_grant", "code_verifier does not fit the code_challenge")
        if form.get("resource", issued.resource) != issued.resource:
            raise IssuerError("invalid_target", "resource is not the one of the login")
        family = secrets.token_hex(16)
        tokens = self._issue(issued.user, client_id, issued.scope, issued.resource, family)
        if "openid" in issued.scope.split():
            tokens["id_token"] = self._id_token(issued)
        return _json(tokens)

    def _refresh(self, form: dict[str, str], client_id: str) -> IssuerResponse:
        known = self._refresh_tokens.get(form.get("refresh_token", ""))
        if known is None or known.client_id != client_id or known.family in self._ended_families:
            raise IssuerError("invalid_grant", "the refresh token is unknown or revoked")
        if known.used:
            # OAuth 2.1, 4.3.1: one of the two who have it has stolen it, so the login ends.
            self._end_family(known.family)
            raise IssuerError(
                "invalid_grant", "the refresh token was used twice; the login has ended"
            )
        if form.get("resource", known.resource) != known.resource:
            raise IssuerError("invalid_target", "resource is not the one of the login")
        scope = form.get("scope", known.scope)
        if not set(scope.split()) <= set(known.scope.split()):
            raise IssuerError("invalid_scope", "more scopes than the login has")
        known.used = True
        return _json(self._issue(known.user, client_id, scope, known.resource, known.family))

    def _issue(
        self, user: str, client_id: str, scope: str, resource: str, family: str
    ) -> dict[str, Any]:
        now = self._clock()
        claims = {
            "iss": self.url,
            "sub": user,
            "aud": resource,
            "client_id": client_id,
            "scope": scope,
            "iat": int(now),
            "exp": int(now + self._ttl_s),
            "jti": secrets.token_hex(16),
        }
        refresh_token = secrets.token_urlsafe(32)
        known = IssuedRefreshToken(client_id, user, scope, resource, family)
        _remember(self._refresh_tokens, refresh_token, known, MAX_REFRESH_TOKENS)
        return {
            "access_token": self._key.sign({"typ": "at+jwt"}, claims),
            "token_type": "Bearer",
            "expires_in": int(self._ttl_s),
            "refresh_token": refresh_token,
            "scope": scope,
        }

    def _id_token(self, issued: IssuerCode) -> str:
        """Who has signed in, for the client (OpenID Connect Core, 2)."""
        now = self._clock()
        claims = {
            "iss": self.url,
            "sub": issued.user,
            "aud": issued.client_id,
            "iat": int(now),
            "exp": int(now + self._ttl_s),
            **({"nonce": issued.nonce} if issued.nonce else {}),
        }
        return self._key.sign({"typ": "JWT"}, claims)

    def _revoke(self, form: dict[str, str]) -> IssuerResponse:
        known = self._refresh_tokens.get(form.get("token", ""))
        if known is not None and known.client_id == form.get("client_id"):
            self._end_family(known.family)
        return IssuerResponse(OK)

    def _end_family(self, family: str) -> None:
        _remember(self._ended_families, family, None, MAX_REFRESH_TOKENS)


def _remember(known: dict[str, T], name: str, value: T, limit: int) -> None:
    while len(known) >= limit:
        known.pop(next(iter(known)))
    known[name] = value


def _text(body: bytes) -> str:
    if len(body) > MAX_BODY_BYTES:
        raise IssuerError("invalid_request", "the body is too large")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise IssuerError("invalid_request", "the body is not a form") from None


def _fields(text: str) -> dict[str, str]:
    """The fields of a form or a query. Raises `IssuerError` if one is repeated (RFC 6749, 3.1)."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise IssuerError("invalid_request", "the parameters cannot be read") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise IssuerError("invalid_request", "a parameter was sent twice")
    return found


def _client(client_id: str, wanted: Mapping[str, Any]) -> IssuerClient:
    """A client of its metadata (RFC 7591). Raises `IssuerError`."""
    listed = wanted.get("redirect_uris")
    uris = cast("list[object]", listed) if isinstance(listed, list) else []
    if not 0 < len(uris) <= MAX_REDIRECT_URIS:
        words = f"redirect_uris must have 1 to {MAX_REDIRECT_URIS} URIs"
        raise IssuerError("invalid_redirect_uri", words)
    good = [uri for uri in uris if isinstance(uri, str) and _is_redirect_uri(uri)]
    if len(good) != len(uris):
        words = "a redirect URI is https, a loopback http URL, or of a program's own scheme"
        raise IssuerError("invalid_redirect_uri", words)
    name = wanted.get("client_name")
    shown = name[:MAX_NAME_CHARACTERS] if isinstance(name, str) else ""
    return IssuerClient(client_id, tuple(good), shown)


def _is_redirect_uri(uri: str) -> bool:
    if not 0 < len(uri) <= MAX_URL_CHARACTERS or not uri.isascii() or not uri.isprintable():
        return False
    if not set(uri).isdisjoint(' "<>\\^`{|}#;'):  # among them what would end a directive of the CSP
        return False
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if "@" in parts.netloc or not _SCHEME.fullmatch(parts.scheme):
        return False
    if parts.scheme == "http":
        return is_loopback_host(host)
    return bool(host) if parts.scheme == "https" else parts.scheme not in UNSAFE_SCHEMES


def _is_same_redirect(given: str, registered: str) -> bool:
    """Whether they are equal; on a loopback address any port is (RFC 8252, 7.3)."""
    if given == registered:
        return True
    if not _is_redirect_uri(given):
        return False
    one, other = urlsplit(given), urlsplit(registered)
    if one.scheme != "http" or not is_loopback_host(one.hostname or ""):
        return False
    return one._replace(netloc=one.hostname or "") == other._replace(netloc=other.hostname or "")


def _is_resource(resource: str) -> bool:
    if len(resource) > MAX_URL_CHARACTERS or not resource.isascii() or not resource.isprintable():
        return False
    try:
        parts = urlsplit(resource)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "#" not in resource


def _is_verifier(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    digest = hashlib.sha256(verifier.encode()).digest()
    found = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return hmac.compare_digest(found, challenge)


def _json(found: object, status: int = OK) -> IssuerResponse:
    headers = {"cache-control": "no-store"}
    return IssuerResponse(status, msgspec.json.encode(found), headers=headers)


def _page(title: str, body: str, redirect: str = "", status: int = OK) -> IssuerResponse:
    """A page without a script. `redirect` is where its form leads to in the end: browsers apply
    `form-action` to redirects, too."""
    parts = urlsplit(redirect)
    there = f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; "
        f"base-uri 'none'; form-action 'self'{f' {there}' if redirect else ''}"
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>"
    )
    headers = {**_PAGE_HEADERS, "content-security-policy": policy}
    return IssuerResponse(status, text.encode(), HTML, headers)
