"""The identity provider behind the proxy: authorization URL, code, user, refresh, revocation.

    provider = github("Iv1.8a61f9b3a7aba766", os.environ["GITHUB_SECRET"])      # presets.py
    tokens = await provider.exchange_code(fetcher, now, code=..., ...)
    user = await provider.identify(fetcher, now, tokens)

One class for all providers: how they differ is data (`presets.py`). What no provider can be
confused by is done for each: a token response may be JSON or a form, an error may come with status
200, `expires_in` may be a string, and `token_type` may be missing.

Rules: everything is fetched by the guarded `Fetcher`. The nonce of an ID token is checked where the
code is exchanged, its signature, issuer, audience and expiry there and whenever it is used. No
secret, code or token is in a `repr`, an error or a log line. `UpstreamRefused` means that the login
has ended; what may pass, and what the operator must correct, is a `ChannelError`.
"""

import base64
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, quote_plus, urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.client.steps import FORM, JSON, printable_text, string_member
from colonnade.auth.client.tokens import (
    NO_EXPIRY,
    encode_form,
    expiry_time,
    fits_header,
)
from colonnade.auth.jose import (
    ALGORITHMS,
    InvalidToken,
    Json,
    check_algorithms,
    decode_json_object,
    parse_jwt,
    quote_claim,
)
from colonnade.auth.server.jwt import KeySet, verify_with_any
from colonnade.auth.server.verifier import (
    MAX_SUBJECT_CHARACTERS,
    OK,
    SKEW_S,
    IssuerMetadata,
    check_url,
    time_claim,
)
from colonnade.auth.ssrf import FetchedResponse, Fetcher, is_loopback_host, parse_networks
from colonnade.auth.urls import display_url, require_https, same_issuer, with_query
from colonnade.errors import AuthError, ChannelError, InvalidArgument

# A token response has an access, a refresh and an ID token of some 10 KiB each at most; a user's
# profile a few KiB.
MAX_RESPONSE_BYTES: Final = 256 * 1024
MAX_NAME_CHARACTERS: Final = 200
# In the issuer of a provider with many tenants; the claim `tid` of an ID token takes its place.
TENANT: Final = "{tenantid}"

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
# Our own error codes, beside those that providers send.
LOGIN_REQUIRED: Final = "login_required"
INVALID_ID_TOKEN: Final = "invalid_id_token"
INVALID_TOKEN: Final = "invalid_token"
OTHER_USER: Final = "other_user"
OTHER_ISSUER: Final = "other_issuer"

# The operator must correct these; a login is not to blame, and is not ended by them.
_CONFIGURATION_ERRORS = frozenset(
    {
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        # GitHub
        "application_suspended",
        "incorrect_client_credentials",
        "redirect_uri_mismatch",
        # Slack
        "bad_client_secret",
        "bad_redirect_uri",
        "invalid_client_id",
    }
)
_TEMPORARY_ERRORS = frozenset(
    {
        "server_error",
        "slow_down",
        "temporarily_unavailable",
        # Slack
        "fatal_error",
        "internal_error",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
    }
)
_TEMPORARY_STATUSES = frozenset({408, 425, 429})
# The token is gone already: RFC 7009, 2.2.1, and 404 and 422 of GitHub.
_REVOKED_ERRORS = frozenset({"invalid_token", "invalid_grant", "unsupported_token_type"})
_REVOKED_STATUSES = frozenset({200, 202, 204, 404, 422})
_TENANT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class UpstreamRefused(AuthError):
    """The provider refused for good: a new login is needed.

    `error` is its error code (`invalid_grant`), or one of ours: `login_required` if there is no
    refresh token, `invalid_id_token`, `invalid_token` for an access token, `other_user`,
    `other_issuer`.
    """

    def __init__(self, message: str, *, provider: str, error: str) -> None:
        super().__init__(message)
        self.provider = provider
        self.error = error


class UpstreamUnavailable(ChannelError):
    """The provider did not give a usable response; the login may still be good.

    `error` is its error code, if it sent one, and `status` the HTTP status.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        error: str = "",
        status: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        self.error = error
        self.status = status


class UpstreamTokens(Struct, frozen=True):
    """The tokens of one login at the provider; `expires_at` is None if the access token does not
    expire."""

    access_token: str
    expires_at: float | None
    refresh_token: str = ""
    scopes: frozenset[str] = frozenset()
    id_token: str = ""

    def __repr__(self) -> str:
        return f"UpstreamTokens(expires_at={self.expires_at}, scopes={sorted(self.scopes)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("expires_at", self.expires_at), ("scopes", self.scopes)]


class UpstreamUser(Struct, frozen=True):
    """A user at the provider: `subject` is unique there and never changes, `name` is for people."""

    subject: str
    name: str = ""
    claims: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"UpstreamUser({self.subject!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("subject", self.subject)]


class ProviderCache:
    """The metadata and the keys of a provider, fetched on first use."""

    def __init__(self, provider: "Provider") -> None:
        self.metadata: IssuerMetadata = IssuerMetadata(
            provider.documented_issuer, provider.metadata_url
        )
        self.keys: KeySet = KeySet(provider.find_keys)


class Provider(Struct, frozen=True, kw_only=True, eq=False):
    """An identity provider, and the one client that is registered there.

    `issuer` namespaces the principals. Endpoints that are empty are found by discovery
    (RFC 8414, OpenID Connect). Raises `LocalProtocolError` for invalid settings.
    """

    # Shown on the consent page.
    name: str
    issuer: str
    client_id: str
    client_secret: str = ""
    # Requested at every login.
    scopes: tuple[str, ...] = ()
    # ---- Where it is.
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    revocation_endpoint: str = ""
    jwks_url: str = ""
    # Whether it publishes metadata, and where, if that is not below the issuer.
    discovers: bool = True
    metadata_url: str = ""
    # The `issuer` in its metadata, and `iss` of ID tokens, if they differ from the issuer.
    metadata_issuer: str = ""
    token_issuers: tuple[str, ...] = ()
    # Private ranges in which it may be: `("10.0.0.0/8",)`.
    networks: tuple[str, ...] = ()
    # ---- Who the user is.
    identity: Literal["id_token", "userinfo"] = "id_token"
    # Several claims are joined by a slash.
    subject_claims: tuple[str, ...] = ("sub",)
    # The first of them that there is.
    name_claims: tuple[str, ...] = ("name", "preferred_username", "email")
    # Claims that must have one of these values: a tenant, a workspace.
    required_claims: Mapping[str, tuple[str, ...]] = {}
    algorithms: tuple[str, ...] = ALGORITHMS
    # ---- How it differs from the standards.
    auth_method: Literal["client_secret_basic", "client_secret_post"] = BASIC
    authorization_parameters: Mapping[str, str] = {}
    scope_parameter: str = "scope"
    scope_separator: str = " "
    # In token responses.
    granted_separator: str = " "
    # The member of the response to a code that holds the user's tokens.
    token_member: str = ""
    # DELETE sends the access token as JSON; POST is RFC 7009.
    revocation_method: Literal["POST", "DELETE"] = "POST"
    # Whether revoking one token ends every login of the user, also those of other clients.
    revokes_every_login: bool = False
    user_agent: str = "colonnade"

    _cache: ProviderCache | None = None

    def __post_init__(self) -> None:
        check_url(self.issuer, f"{self.name}: the issuer")
        for name in _URLS:
            url = cast("str", getattr(self, name))
            if url:
                check_url(url, f"{self.name}: {name}")
        if not self.client_id or not isinstance(self.client_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f"{self.name}: client_id is the id of the client that you registered there",
                argument="client_id",
            )
        if not isinstance(self.client_secret, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                f"{self.name}: client_secret is a string", argument="client_secret"
            )
        check_algorithms(self.algorithms)
        parse_networks(self.networks)
        # Also in a copy with other settings, which must not use the keys of this one.
        msgspec.structs.force_setattr(self, "_cache", ProviderCache(self))

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, issuer={self.issuer!r}, client_id={self.client_id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("issuer", self.issuer), ("client_id", self.client_id)]

    @property
    def documented_issuer(self) -> str:
        """The `issuer` that its metadata must name."""
        return self.metadata_issuer or self.issuer

    # ------------------------------------------------------------ authorization code

    async def authorization_url(
        self,
        fetcher: Fetcher,
        now: float,
        *,
        redirect_uri: str,
        state: str,
        code_challenge: str,
        nonce: str,
    ) -> str:
        """Where the browser is sent to log in. Raises `ChannelError`."""
        endpoint = await self._require("authorization_endpoint", fetcher, now)
        try:
            require_https(endpoint, f"the authorization_endpoint of {self.name}")
        except AuthError as error:
            raise UpstreamUnavailable(str(error), provider=self.name) from None
        pairs = [
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", redirect_uri),
            ("state", state),
            ("code_challenge", code_challenge),
            ("code_challenge_method", "S256"),
        ]
        if self.scopes:
            pairs.append((self.scope_parameter, self.scope_separator.join(self.scopes)))
        if self.identity == "id_token":
            pairs.append(("nonce", nonce))
        return with_query(endpoint, [*pairs, *self.authorization_parameters.items()])

    async def check_response(self, fetcher: Fetcher, now: float, issuer: str) -> None:
        """Check the `iss` of an authorization response; empty without one (RFC 9207, 2.4). Raises
        `UpstreamRefused` if it is of another provider, or of none although this one always sends
        it; `ChannelError` if that is not known."""
        expected = (self.issuer, *self.token_issuers)
        if issuer and not any(same_issuer(issuer, one) for one in expected):
            raise self._refused(OTHER_ISSUER, "the response is from another identity provider")
        if not issuer and self.discovers:
            document = await self._caches.metadata.read(now, self._with_access(fetcher))
            if document.get("authorization_response_iss_parameter_supported") is True:
                raise self._refused(OTHER_ISSUER, "the response does not name its issuer")

    async def exchange_code(
        self,
        fetcher: Fetcher,
        now: float,
        *,
        code: str,
        redirect_uri: str,
        code_verifier: str,
        nonce: str,
    ) -> UpstreamTokens:
        """The tokens for an authorization code. Raises `UpstreamRefused`, `ChannelError`."""
        form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", code_verifier),
        ]
        response = await self._request_token(fetcher, now, form, "the authorization code")
        found: object = response
        if self.token_member:
            # Beside it is the token of a bot, which belongs to no user.
            found = response.get(self.token_member)
        tokens = self._read_tokens(found, now, frozenset(self.scopes))
        if self.identity == "id_token":
            if not tokens.id_token:
                raise self._malformed("its token response has no id_token", OK)
            await self._verify_id_token(fetcher, now, tokens.id_token, nonce)
        return tokens

    async def refresh(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamTokens:
        """New tokens; the refresh token is kept if none is returned. Raises `UpstreamRefused` if
        the login has ended, `ChannelError` if that is not known."""
        if not tokens.refresh_token:
            raise self._refused(LOGIN_REQUIRED, "it issued no refresh token, so log in again")
        form = [("grant_type", "refresh_token"), ("refresh_token", tokens.refresh_token)]
        response = await self._request_token(fetcher, now, form, "the refresh of a login")
        found: object = response
        if self.token_member:
            member = response.get(self.token_member)
            nested = isinstance(member, dict) and "access_token" in member
            found = cast("Json", member) if nested else response
        new = self._read_tokens(found, now, tokens.scopes)
        id_token = new.id_token or tokens.id_token
        if self.identity == "id_token" and new.id_token and tokens.id_token:
            same = await self._check_same_user(fetcher, now, new.id_token, tokens.id_token)
            id_token = id_token if same else tokens.id_token
        refresh_token = new.refresh_token or tokens.refresh_token
        return msgspec.structs.replace(new, refresh_token=refresh_token, id_token=id_token)

    async def revoke(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> None:
        """Revoke the tokens, if the provider can end this login alone. Raises `ChannelError`.

        If it would end every login of the user (`revokes_every_login`), nothing is sent.
        """
        if self.revokes_every_login:
            return
        endpoint = await self._find_endpoint("revocation_endpoint", fetcher, now)
        if not endpoint:
            return
        if self.revocation_method == "DELETE":
            headers = [("authorization", self._basic()), ("content-type", JSON)]
            body = msgspec.json.encode({"access_token": tokens.access_token})
        else:
            kind = "refresh_token" if tokens.refresh_token else "access_token"
            token = tokens.refresh_token or tokens.access_token
            headers, body = self._authenticated([("token", token), ("token_type_hint", kind)])
        response = await self._fetch(fetcher, self.revocation_method, endpoint, headers, body)
        if response.status in _REVOKED_STATUSES:
            return
        document = _decode(response) or {}
        error = printable_text(document.get("error"))
        if error not in _REVOKED_ERRORS:
            raise self._unavailable(response.status, error, "the revocation of a token")

    # ------------------------------------------------------------ user

    async def identify(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamUser:
        """The user of a login: by the ID token, or by the userinfo endpoint. Raises
        `UpstreamRefused`, `ChannelError`."""
        if self.identity == "id_token":
            claims = await self._verify_id_token(fetcher, now, tokens.id_token, None)
        else:
            claims = await self._user_info(fetcher, now, tokens.access_token)
        self._check_required(claims)
        return UpstreamUser(self._subject(claims), self._display_name(claims), claims)

    async def confirm(
        self, fetcher: Fetcher, now: float, tokens: UpstreamTokens, subject: str
    ) -> None:
        """Ask whether a login is still good, if its access token does not expire. Raises
        `UpstreamRefused` if it has ended, `ChannelError` if that is not known.

        An ID token says nothing of that, and has expired long before: the userinfo endpoint is
        asked. Without one the login lasts as long as it may here.
        """
        if self.identity == "userinfo":
            found, expected = (await self.identify(fetcher, now, tokens)).subject, subject
        elif not await self._find_endpoint("userinfo_endpoint", fetcher, now):
            return
        else:
            # OpenID Connect Core, 5.3.2: `sub` is that of the ID token.
            claims = await self._user_info(fetcher, now, tokens.access_token)
            found, expected = claims.get("sub"), parse_jwt(tokens.id_token).claims.get("sub")
        if found != expected:
            raise self._refused(OTHER_USER, "it names another user than at the login")

    async def _user_info(self, fetcher: Fetcher, now: float, token: str) -> Json:
        endpoint = await self._require("userinfo_endpoint", fetcher, now)
        headers = [("authorization", f"Bearer {token}")]
        response = await self._fetch(fetcher, "GET", endpoint, headers)
        document = _decode(response)
        error, description = _oauth_error(document, [token])
        if response.status == 401:
            raise self._refused(INVALID_TOKEN, "it refused the access token", description)
        if response.status != OK:
            raise self._unavailable(response.status, error, "the question who the user is")
        if document is None:
            raise self._malformed("its response about the user is not a JSON object", OK)
        if document.get("ok") is False:
            if error in _TEMPORARY_ERRORS:
                raise self._unavailable(response.status, error, "the question who the user is")
            raise self._refused(error or INVALID_TOKEN, "it refused the access token", description)
        return document

    def _check_required(self, claims: Json) -> None:
        for name, allowed in self.required_claims.items():
            value = claims.get(name)
            if not isinstance(value, str) or value not in allowed:
                found = f"{name} is {quote_claim(value)}, not {' or '.join(allowed)}"
                raise self._refused("access_denied", f"this user is not accepted: {found}")

    def _subject(self, claims: Json) -> str:
        """The subject. Raises `UpstreamUnavailable` if it is missing: no user gets another's."""
        parts: list[str] = []
        for name in self.subject_claims:
            value = claims.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value or not value.isprintable():
                raise self._malformed(f"the user has no usable {name}", OK)
            parts.append(value)
        subject = "/".join(parts)
        if len(subject) > MAX_SUBJECT_CHARACTERS or any("/" in one for one in parts[:-1]):
            raise self._malformed(f"the user has no usable {self.subject_claims[0]}", OK)
        return subject

    def _display_name(self, claims: Json) -> str:
        found = (printable_text(claims.get(name)) for name in self.name_claims)
        return next((name for name in found if name), "")[:MAX_NAME_CHARACTERS]

    # ------------------------------------------------------------ ID tokens

    async def _verify_id_token(
        self, fetcher: Fetcher, now: float, id_token: str, nonce: str | None
    ) -> Json:
        """The claims of an ID token (OpenID Connect Core, 3.1.3.7). Raises `UpstreamRefused`;
        `ChannelError` if the keys of the provider are not available."""
        try:
            signed = parse_jwt(id_token)
            self._check_issuer(signed.claims)
            kind = signed.header.get("typ", "JWT")
            if not isinstance(kind, str) or kind.lower() not in ("jwt", "application/jwt"):
                raise InvalidToken("it is another kind of JWT", f"typ {quote_claim(kind)}")
            keys = await self._caches.keys.matching(
                signed.key_id, signed.algorithm, now, self._with_access(fetcher)
            )
            # A key set of many tenants says which key is of which of them (see `entra`).
            usable = [key for key in keys if not key.issuer or _names(key.issuer, signed.claims)]
            verify_with_any(signed, usable, self.algorithms, self.issuer)
            self._check_audience(signed.claims)
            _check_times(signed.claims, now)
            if nonce is not None:
                _check_nonce(signed.claims, nonce)
        except InvalidToken as error:
            detail = f" ({error.detail})" if error.detail else ""
            raise self._refused(
                INVALID_ID_TOKEN, f"its ID token is refused: {error}{detail}"
            ) from None
        return signed.claims

    def _check_issuer(self, claims: Json) -> None:
        expected = self.token_issuers or (self.documented_issuer,)
        if any(_names(one, claims) for one in expected):
            return
        detail = f"iss {quote_claim(claims.get('iss'))}, expected {' or '.join(expected)}"
        raise InvalidToken("it is from another issuer", detail)

    def _check_audience(self, claims: Json) -> None:
        audience: Any = claims.get("aud")
        named = cast("list[Any]", audience if isinstance(audience, list) else [audience])
        party = claims.get("azp", None if len(named) > 1 else self.client_id)
        if self.client_id not in named or party != self.client_id:
            detail = f"aud {quote_claim(claims.get('aud'))}, expected {self.client_id}"
            raise InvalidToken("it is for another client", detail)

    async def _check_same_user(self, fetcher: Fetcher, now: float, new: str, old: str) -> bool:
        """OpenID Connect Core, 12.2: a refreshed login is the login of the same user.

        False if the keys are not available. The new refresh token must not be lost for that: the
        response came from the token endpoint by TLS, which that chapter accepts as well (3.1.3.7).
        """
        try:
            claims = await self._verify_id_token(fetcher, now, new, None)
            verified = True
        except ChannelError:
            claims, verified = parse_jwt(new).claims, False
        before = parse_jwt(old).claims  # verified at the login
        if any(claims.get(name) != before.get(name) for name in ("iss", *self.subject_claims)):
            raise self._refused(OTHER_USER, "it refreshed the login of one user with another's")
        return verified

    # ------------------------------------------------------------ token endpoint

    async def _request_token(
        self, fetcher: Fetcher, now: float, form: list[tuple[str, str]], what: str
    ) -> Json:
        """The decoded response of the token endpoint. Raises as `refresh` does."""
        endpoint = await self._require("token_endpoint", fetcher, now)
        headers, body = self._authenticated(form)
        response = await self._fetch(fetcher, "POST", endpoint, headers, body)
        status = response.status
        document = _decode(response)
        secrets = [value for name, value in form if name != "grant_type"]
        error, description = _oauth_error(document, [*secrets, self.client_secret])
        if status >= 500 or status in _TEMPORARY_STATUSES or error in _TEMPORARY_ERRORS:
            raise self._unavailable(status, error, what)
        if error in _CONFIGURATION_ERRORS or (status == 401 and not error):
            raise UpstreamUnavailable(
                f"{self.name} refused the client{_reason(error, description)}",
                provider=self.name,
                error=error,
                status=status,
                hint="check client_id and client_secret, and what is registered there",
            )
        # GitHub and Slack send errors with status 200.
        if error:
            raise self._refused(error, f"it refused {what}", description)
        if status != OK:
            raise self._unavailable(status, "", what)
        if document is None:
            raise self._malformed("its token response is neither a JSON object nor a form", status)
        return document

    def _read_tokens(self, found: object, now: float, granted: frozenset[str]) -> UpstreamTokens:
        """The tokens of a response; `granted` are the scopes if it names none (RFC 6749, 5.1)."""
        document = cast("Json", found) if isinstance(found, dict) else {}
        token = string_member(document, "access_token")
        if token is None or not fits_header(token):
            where = f" in {self.token_member}" if self.token_member else ""
            raise self._malformed(f"its token response has no usable access_token{where}", OK)
        refresh_token = string_member(document, "refresh_token") or ""
        id_token = string_member(document, "id_token") or ""
        if not fits_header(refresh_token) or not fits_header(id_token):
            raise self._malformed("its token response has an unusable token", OK)
        expires_at = expiry_time(document.get("expires_in"), now)
        scope = string_member(document, "scope")
        return UpstreamTokens(
            token,
            None if expires_at == NO_EXPIRY else expires_at,
            refresh_token,
            granted if scope is None else self._split_scopes(scope),
            id_token,
        )

    def _split_scopes(self, scope: str) -> frozenset[str]:
        words = scope.split(self.granted_separator)
        return frozenset(word.strip() for word in words if word.strip())

    def _authenticated(
        self, form: Sequence[tuple[str, str]]
    ) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and body of a form with client authentication (RFC 6749, 2.3.1)."""
        headers = [("content-type", FORM)]
        if not self.client_secret:
            form = [*form, ("client_id", self.client_id)]
        elif self.auth_method == POST:
            client = [("client_id", self.client_id), ("client_secret", self.client_secret)]
            form = [*form, *client]
        else:
            headers.append(("authorization", self._basic()))
        return headers, encode_form(form)

    def _basic(self) -> str:
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    # ------------------------------------------------------------ endpoints

    @property
    def _caches(self) -> ProviderCache:
        assert self._cache is not None, "set by __post_init__"
        return self._cache

    async def find_keys(self, now: float, fetcher: Fetcher) -> str:
        """The URL of its keys. Raises `ChannelError`."""
        return self.jwks_url or await self._caches.metadata.endpoint("jwks_uri", now, fetcher)

    async def _find_endpoint(self, name: str, fetcher: Fetcher, now: float) -> str:
        """An endpoint as configured or discovered; empty if there is none."""
        given = cast("str", getattr(self, name))
        if given or not self.discovers:
            return given
        document = await self._caches.metadata.read(now, self._with_access(fetcher))
        return string_member(document, name) or ""

    async def _require(self, name: str, fetcher: Fetcher, now: float) -> str:
        found = await self._find_endpoint(name, fetcher, now)
        if not found:
            raise UpstreamUnavailable(f"{self.name} has no {name}", provider=self.name)
        return found

    def _with_access(self, fetcher: Fetcher) -> Fetcher:
        """The fetcher with access to the networks that were configured for this provider."""
        here = is_loopback_host(urlsplit(self.issuer).hostname or "")
        return fetcher.with_access(loopback=here, networks=self.networks)

    async def _fetch(
        self,
        fetcher: Fetcher,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes = b"",
    ) -> FetchedResponse:
        # Without `accept`, GitHub responds with a form; without `user-agent`, with 403.
        every = [("accept", JSON), ("user-agent", self.user_agent), *headers]
        wider = self._with_access(fetcher)
        return await wider.fetch(method, url, every, body, max_bytes=MAX_RESPONSE_BYTES)

    # ------------------------------------------------------------ errors

    def _refused(self, error: str, words: str, description: str = "") -> UpstreamRefused:
        message = f"{self.name}: {words}{_reason(error, description)}"
        return UpstreamRefused(message, provider=self.name, error=error)

    def _unavailable(self, status: int, error: str, what: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"{self.name} responded with {status} to {what}{_reason(error, '')}",
            provider=self.name,
            error=error,
            status=status,
            hint="try again later",
        )

    def _malformed(self, words: str, status: int) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"{self.name}: {words} ({display_url(self.issuer)})", provider=self.name, status=status
        )


_URLS = (
    "authorization_endpoint",
    "token_endpoint",
    "userinfo_endpoint",
    "revocation_endpoint",
    "jwks_url",
    "metadata_url",
)


def _decode(response: FetchedResponse) -> Json | None:
    """A response that is a JSON object or a form; None for anything else."""
    if response.media_type == FORM:
        try:
            pairs = parse_qsl(response.body.decode("ascii"), strict_parsing=True, max_num_fields=64)
        except ValueError:
            return None
        found = dict(pairs)
        return dict[str, Any](found) if len(found) == len(pairs) else None
    try:
        return decode_json_object(response.body)
    except InvalidToken:
        return None


def _oauth_error(document: Json | None, secrets: Sequence[str]) -> tuple[str, str]:
    """`error` and `error_description`, without any of the secrets that were sent."""
    if document is None or (document.get("access_token") and "error" not in document):
        return "", ""
    error, description = document.get("error"), document.get("error_description")
    return printable_text(error, secrets), printable_text(description, secrets)


def _reason(error: str, description: str) -> str:
    reason = ": ".join(one for one in (error, description) if one)
    return f" ({reason})" if reason else ""


def _names(issuer: str, claims: Json) -> bool:
    """Whether claims are of an issuer, which may be that of many tenants."""
    if TENANT in issuer:
        tenant = claims.get("tid")
        if not isinstance(tenant, str) or not _TENANT_ID.fullmatch(tenant):
            return False
        issuer = issuer.replace(TENANT, tenant)
    return same_issuer(claims.get("iss"), issuer)


def _check_times(claims: Json, now: float) -> None:
    expires_at = time_claim(claims, "exp")
    if expires_at is None or now >= expires_at + SKEW_S:
        raise InvalidToken("it has expired")
    for name in ("nbf", "iat"):
        since = time_claim(claims, name)
        if since is not None and since > now + SKEW_S:
            raise InvalidToken("it is not valid yet")


def _check_nonce(claims: Json, nonce: str) -> None:
    found = claims.get("nonce")
    if not isinstance(found, str) or not hmac.compare_digest(found.encode(), nonce.encode()):
        raise InvalidToken("its nonce is not the one of this login")
