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

import html
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.jose import InvalidToken, SigningKey, decode_json_object, generate_key
from colonnade.auth.server.client_metadata import (
    MAX_DOCUMENT_BYTES,
    MAX_URI_CHARACTERS,
    ClientMetadata,
    is_document_url,
    read_document,
    read_metadata,
    same_redirect,
)
from colonnade.auth.server.oauth_forms import (
    OAuthFailure,
    Parameters,
    RedirectFailure,
    check_challenge,
    client_redirect,
    error_body,
    fits_challenge,
    parse_body,
    parse_fields,
)
from colonnade.auth.server.pages import page, page_headers
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.auth.urls import ISSUER_DOCUMENT, OPENID_DOCUMENT
from colonnade.errors import CannotFetch, InvalidArgument

T = TypeVar("T")

CODE_TTL_S: Final = 60.0
# Above what a day of development needs; the oldest are forgotten.
MAX_CLIENTS: Final = 1000
MAX_CODES: Final = 1000
MAX_REFRESH_TOKENS: Final = 10_000
MAX_USERS: Final = 50

OK, CREATED, SEE_OTHER, BAD_REQUEST, NOT_FOUND = 200, 201, 303, 400, 404
JSON: Final = "application/json"
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
_SCOPES = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{0,1000}")
# What is asked for, and passes through the login page.
_AUTHORIZATION_FIELDS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "nonce",
)


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


class IssuerLogin(Struct, frozen=True):
    """A verified authorization request."""

    client: IssuerClient
    redirect_uri: str
    challenge: str
    resource: str


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
        except RedirectFailure as failure:
            return _redirect(failure.url(self.url))
        except OAuthFailure as failure:
            if request.path == "/authorize":
                content = f"<p>{html.escape(failure.description)}</p>"
                return _page("Not signed in", content, status=BAD_REQUEST)
            return _json(error_body(failure), BAD_REQUEST)

    async def _respond(self, request: IssuerRequest, fetcher: Fetcher) -> IssuerResponse:
        match request.method, request.path:
            case "GET", "/keys":
                return _json(self._jwks())
            case "GET", path if path.startswith("/.well-known/") and path in ENDPOINTS:
                return _json(self._metadata())
            case "GET", "/authorize":
                asked = parse_fields(request.query)
                login = await self._check_authorization(asked, fetcher)
                if self._auto:
                    return self._sign_in(asked, login, self.users[0])
                return self._login_page(asked, login)
            case "POST", "/authorize":
                asked = parse_body(request.body)
                login = await self._check_authorization(asked, fetcher)
                return self._sign_in(asked, login, asked.get("user"))
            case "POST", "/register":
                return self._register(request.body)
            case "POST", "/token":
                return self._token(parse_body(request.body))
            case "POST", "/revoke":
                return self._revoke(parse_body(request.body))
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
            message = "the body is not a JSON object"
            raise OAuthFailure("invalid_client_metadata", message) from None
        client = _client(secrets.token_urlsafe(16), read_metadata(wanted, None))
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
        if not is_document_url(client_id, local=False):
            raise _unknown_client()
        try:
            fetched = await fetcher.fetch(
                "GET", client_id, [("accept", JSON)], max_bytes=MAX_DOCUMENT_BYTES, redirects=False
            )
        except CannotFetch as error:
            raise OAuthFailure("invalid_client", f"{error}: {error.why}") from None
        client = _client(client_id, read_document(fetched, client_id, None))
        _remember(self._clients, client_id, client, MAX_CLIENTS)
        return client

    # ------------------------------------------------------------ authorization

    async def _check_authorization(self, asked: Parameters, fetcher: Fetcher) -> "IssuerLogin":
        """Check an authorization request. Raises `OAuthFailure`, and `RedirectFailure` once client
        and redirect URI are verified."""
        client = await self._find_client(asked.get("client_id"), fetcher)
        redirect = asked.get("redirect_uri")
        if not any(same_redirect(one, redirect) for one in client.redirect_uris):
            message = "the redirect_uri is not registered for this client"
            raise OAuthFailure("invalid_request", message)
        try:
            if asked.get("response_type") != "code":
                raise OAuthFailure("unsupported_response_type", "response_type must be code")
            challenge = check_challenge(asked)
            if not _SCOPES.fullmatch(asked.get("scope")):
                raise OAuthFailure("invalid_scope", "scope is a list of words")
            # A proxy has tokens of its own; those that it gets here are for no server.
            default = (self.url,) if client is self._proxy else ()
            resource = _resource(asked.resources or default)
        except OAuthFailure as failure:
            raise RedirectFailure(redirect, asked.get("state"), failure) from None
        return IssuerLogin(client, redirect, challenge, resource)

    def _sign_in(self, asked: Parameters, login: "IssuerLogin", user: str) -> IssuerResponse:
        state = asked.get("state")
        if user not in self.users:
            failure = OAuthFailure("access_denied", "the user did not sign in")
            raise RedirectFailure(login.redirect_uri, state, failure)
        code = secrets.token_urlsafe(32)
        issued = IssuerCode(
            login.client.client_id,
            login.redirect_uri,
            login.challenge,
            user,
            asked.get("scope"),
            login.resource,
            asked.get("nonce"),
            self._clock() + CODE_TTL_S,
        )
        _remember(self._codes, code, issued, MAX_CODES)
        return _redirect(client_redirect(login.redirect_uri, self.url, state, code=code))

    def _login_page(self, asked: Parameters, login: "IssuerLogin") -> IssuerResponse:
        escape = html.escape
        facts = {
            "Client": login.client.name or login.client.client_id,
            "Redirects to": login.redirect_uri,
            "For the server": login.resource,
            "Scopes": asked.get("scope") or "none",
        }
        passed = {name: asked.get(name) for name in _AUTHORIZATION_FIELDS if asked.get(name)}
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{escape(value)}">'
            for name, value in {**passed, "resource": login.resource}.items()
        )
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
        buttons = "".join(
            f'<button name="user" value="{escape(user)}">Sign in as {escape(user)}</button>'
            for user in self.users
        )
        deny = f'<button name="user" value="{DENY}">Do not sign in</button>'
        form = (
            f'<form method="post" action="/authorize">{hidden}'
            f'<div class="buttons">{buttons}{deny}</div></form>'
        )
        words = "<p>This login is for development: it asks for no password.</p>"
        return _page("Sign in", f"{words}<dl>{listed}</dl>{form}", login.redirect_uri)

    # ------------------------------------------------------------ tokens

    def _token(self, form: Parameters) -> IssuerResponse:
        client_id = form.get("client_id")
        if self._known_client(client_id) is None:
            raise _unknown_client()
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange_code(form, client_id)
            case "refresh_token":
                return self._refresh(form, client_id)
            case _:
                raise OAuthFailure(
                    "unsupported_grant_type", "grant_type is authorization_code or refresh_token"
                )

    def _exchange_code(self, form: Parameters, client_id: str) -> IssuerResponse:
        issued = self._codes.pop(form.get("code"), None)
        if issued is None or issued.client_id != client_id or self._clock() >= issued.expires_at:
            raise OAuthFailure("invalid_grant", "the code is unknown, used or expired")
        if form.get("redirect_uri") != issued.redirect_uri:
            raise OAuthFailure("invalid_grant", "redirect_uri is not the one of the login")
        if not fits_challenge(form.get("code_verifier"), issued.challenge):
            raise OAuthFailure("invalid_grant", "code_verifier does not fit the code_challenge")
        _check_resource(form, issued.resource)
        family = secrets.token_hex(16)
        tokens = self._issue(issued.user, client_id, issued.scope, issued.resource, family)
        if "openid" in issued.scope.split():
            tokens["id_token"] = self._id_token(issued)
        return _json(tokens)

    def _refresh(self, form: Parameters, client_id: str) -> IssuerResponse:
        known = self._refresh_tokens.get(form.get("refresh_token"))
        if known is None or known.client_id != client_id or known.family in self._ended_families:
            raise OAuthFailure("invalid_grant", "the refresh token is unknown or revoked")
        if known.used:
            # OAuth 2.1, 4.3.1: one of the two who have it has stolen it, so the login ends.
            self._end_family(known.family)
            message = "the refresh token was used twice; the login has ended"
            raise OAuthFailure("invalid_grant", message)
        _check_resource(form, known.resource)
        scope = form.get("scope") or known.scope
        if not set(scope.split()) <= set(known.scope.split()):
            raise OAuthFailure("invalid_scope", "more scopes than the login has")
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

    def _revoke(self, form: Parameters) -> IssuerResponse:
        known = self._refresh_tokens.get(form.get("token"))
        if known is not None and known.client_id == form.get("client_id"):
            self._end_family(known.family)
        return IssuerResponse(OK)

    def _end_family(self, family: str) -> None:
        _remember(self._ended_families, family, None, MAX_REFRESH_TOKENS)


def _remember(known: dict[str, T], name: str, value: T, limit: int) -> None:
    while len(known) >= limit:
        known.pop(next(iter(known)))
    known[name] = value


def _client(client_id: str, metadata: ClientMetadata) -> IssuerClient:
    return IssuerClient(client_id, metadata.redirect_uris, metadata.name)


def _unknown_client() -> OAuthFailure:
    message = "the client is not registered here; this issuer forgets on restart"
    return OAuthFailure("invalid_client", message)


def _check_resource(form: Parameters, resource: str) -> None:
    if form.resources not in ((), (resource,)):
        raise OAuthFailure("invalid_target", "resource is not the one of the login")


def _resource(named: tuple[str, ...]) -> str:
    """The resource that a token is requested for. Raises `OAuthFailure` unless it is one URL."""
    failure = OAuthFailure(
        "invalid_target", "resource must be the URL of the MCP server (RFC 8707)"
    )
    if len(named) != 1 or len(named[0]) > MAX_URI_CHARACTERS:
        raise failure
    try:
        parts = urlsplit(named[0])
    except ValueError:
        raise failure from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "#" in named[0]:
        raise failure
    return named[0]


def _json(found: object, status: int = OK) -> IssuerResponse:
    headers = {"cache-control": "no-store"}
    return IssuerResponse(status, msgspec.json.encode(found), headers=headers)


def _redirect(url: str) -> IssuerResponse:
    headers = {"location": url, "cache-control": "no-store"}
    return IssuerResponse(SEE_OTHER, headers=headers)


def _page(title: str, content: str, redirect: str = "", status: int = OK) -> IssuerResponse:
    headers = dict(page_headers(redirect))
    media_type = headers.pop("content-type")
    return IssuerResponse(status, page(title, content), media_type, headers)
