"""Replicas of identity providers on loopback: each answers as the provider itself does.

    async with replicated("github") as replica, pooled() as pool:
        replica.provider                  # the preset, with the replica in the place of the provider
        replica.user = "bob"              # who logs in next
        replica.end_logins()              # as a user who removes the application there

A replica is strict: it checks the client and how it authenticates, the redirect URI, PKCE, single
use of codes, and the rotation of refresh tokens, and answers an error in the provider's own way.

Rules: nothing of the package is used to sign or to answer. The time is the test's (`replica.now`).
"""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import msgspec

from auth.token_issuer import SigningKey
from colonnade.auth.server.proxy import presets
from colonnade.auth.server.proxy.provider import Provider
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    ScriptedHttpServer,
    http_response,
    scripted_http_server,
)

Json = dict[str, Any]
R = TypeVar("R", bound="ProviderReplica")

CLIENT_ID = "client-1"
CLIENT_SECRET = "secret-canary-of-the-client"
TENANT = "11111111-2222-3333-4444-555555555555"
FORM = "application/x-www-form-urlencoded"
NOW = 1_700_000_000.0
# Making one takes a while.
_RSA = SigningKey("RS256", "rsa")


class OAuthRefusal(Exception):
    """An OAuth error of the provider."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        super().__init__(error)
        self.error, self.description, self.status = error, description, status


class ProviderReplica:
    """An OpenID provider as most are; the others say how they differ."""

    preset: ClassVar[Provider]
    # Paths; empty for what the provider does not have.
    base_path: ClassVar[str] = ""
    metadata_path: ClassVar[str] = "/.well-known/openid-configuration"
    authorize_path: ClassVar[str] = "/authorize"
    token_path: ClassVar[str] = "/token"
    keys_path: ClassVar[str] = "/keys"
    user_path: ClassVar[str] = ""
    revoke_path: ClassVar[str] = "/revoke"
    issuer_end: ClassVar[str] = ""
    # How a client authenticates, and which scope a refresh token needs.
    basic: ClassVar[bool] = True
    refresh_scope: ClassVar[str] = "offline_access"
    rotates: ClassVar[bool] = True
    refused_status: ClassVar[int] = 400

    def __init__(self, server: ScriptedHttpServer) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"
        self.now = NOW
        self.user = "ann"
        self.life_s = 3600
        self.key = _RSA
        self.codes: dict[str, dict[str, str]] = {}
        # By access token and by refresh token: the user, and the scopes.
        self.access: dict[str, tuple[str, str, float]] = {}
        self.refreshes: dict[str, tuple[str, str]] = {}
        # What a test answers in the place of the replica; by path.
        self.answers: dict[str, bytes] = {}
        # A replica that accepts requests and never answers.
        self.silent = False
        # Changes of the claims of the next ID tokens.
        self.claims: Json = {}
        self.provider = rebased(self.preset, self.url)

    # ------------------------------------------------------------ what a test sees

    @property
    def issuer(self) -> str:
        return f"{self.url}{self.base_path}{self.issuer_end}"

    @property
    def paths(self) -> list[str]:
        """The paths of all requests so far."""
        return [urlsplit(one.path).path for one in self.server.received]

    def forms(self, path: str) -> list[dict[str, str]]:
        """The forms that were sent to a path."""
        found = [one for one in self.server.received if urlsplit(one.path).path == path]
        return [dict(parse_qsl(one.body.decode())) for one in found if one.method == "POST"]

    def end_logins(self) -> None:
        """As if all users had removed the application."""
        self.access.clear()
        self.refreshes.clear()

    # ------------------------------------------------------------ HTTP

    def answer(self, request: ReceivedRequest) -> bytes:
        path = urlsplit(request.path).path
        if path in self.answers:
            return self.answers[path]
        form = dict(parse_qsl(request.body.decode())) if request.method == "POST" else {}
        asked = dict(parse_qsl(urlsplit(request.path).query))
        try:
            return self.route(request, path, form, asked)
        except OAuthRefusal as refusal:
            return self.refusal(refusal, request)

    def route(
        self, request: ReceivedRequest, path: str, form: dict[str, str], asked: dict[str, str]
    ) -> bytes:
        at = self.base_path
        match request.method, path:
            case "GET", _ if path == at + self.metadata_path:
                return sent(self.metadata())
            case "GET", _ if path == at + self.keys_path:
                return sent({"keys": [self.key.jwk | {"alg": self.key.algorithm}]})
            case "GET", _ if path == at + self.authorize_path:
                return self.authorize(asked)
            case "POST", _ if path == at + self.token_path:
                return self.token(request, form)
            case "GET", _ if self.user_path and path == self.user_path:
                return self.user_info(request)
            case "POST", _ if self.revoke_path and path == at + self.revoke_path:
                return self.revoke(request, form)
            case _:
                return sent({"error": "not_found"}, 404)

    def refusal(self, refusal: OAuthRefusal, request: ReceivedRequest) -> bytes:
        found = {"error": refusal.error, "error_description": refusal.description}
        return sent(found, refusal.status)

    def metadata(self) -> Json:
        at = self.url + self.base_path
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": at + self.authorize_path,
            "token_endpoint": at + self.token_path,
            "jwks_uri": at + self.keys_path,
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        return found | ({"revocation_endpoint": at + self.revoke_path} if self.revoke_path else {})

    # ------------------------------------------------------------ authorization

    def authorize(self, asked: dict[str, str]) -> bytes:
        if asked.get("client_id") != CLIENT_ID or asked.get("response_type") != "code":
            return sent({"error": "invalid_request"}, 400)
        back = {"state": asked["state"]}
        try:
            self.check_authorization(asked)
        except OAuthRefusal as refusal:
            back |= {"error": refusal.error}
        else:
            code = back["code"] = f"code-{secrets.token_hex(8)}"
            self.codes[code] = asked | {"user": self.user}
        place = f"Location: {asked['redirect_uri']}?{urlencode(back)}"
        return http_response(302, b"", "", place)

    def check_authorization(self, asked: dict[str, str]) -> None:
        if asked.get("code_challenge_method") != "S256" or not asked.get("nonce"):
            raise OAuthRefusal("invalid_request")

    # ------------------------------------------------------------ tokens

    def token(self, request: ReceivedRequest, form: dict[str, str]) -> bytes:
        self.check_client(request, form)
        if form.get("grant_type") == "authorization_code":
            return sent(self.grant(self.take_code(form)))
        if form.get("grant_type") == "refresh_token":
            return sent(self.refreshed(form.get("refresh_token", "")))
        raise OAuthRefusal("unsupported_grant_type")

    def check_client(self, request: ReceivedRequest, form: dict[str, str]) -> None:
        if self.basic:
            client = basic_credentials(request)
        else:
            client = form.get("client_id", ""), form.get("client_secret", "")
        if client != (CLIENT_ID, CLIENT_SECRET):
            raise OAuthRefusal("invalid_client", "unknown client", 401)

    def take_code(self, form: dict[str, str]) -> dict[str, str]:
        code = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            code is None
            or code["redirect_uri"] != form.get("redirect_uri")
            or code["code_challenge"] != challenge
        ):
            raise OAuthRefusal("invalid_grant", "the code is unknown", self.refused_status)
        return code

    def grant(self, code: dict[str, str]) -> Json:
        """The response to a code."""
        user, scope = code["user"], code.get("scope", "")
        found = self.access_token(user, scope)
        if "openid" in scope.split():
            found["id_token"] = self.id_token(user, nonce=code["nonce"])
        if self.issues_refresh_token(code):
            found["refresh_token"] = self.refresh_token(user, scope)
        return found

    def issues_refresh_token(self, code: dict[str, str]) -> bool:
        return self.refresh_scope in code.get("scope", "").split()

    def access_token(self, user: str, scope: str) -> Json:
        token = f"access-{user}-{secrets.token_hex(8)}"
        self.access[token] = user, scope, self.now + self.life_s
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "scope": scope,
        }

    def refresh_token(self, user: str, scope: str) -> str:
        token = f"refresh-{user}-{secrets.token_hex(8)}"
        self.refreshes[token] = user, scope
        return token

    def refreshed(self, token: str) -> Json:
        """The response to a refresh token."""
        found = self.refreshes.get(token)
        if found is None:
            raise self.dead_refresh_token()
        user, scope = found
        response = self.access_token(user, scope)
        if "openid" in scope.split():
            response["id_token"] = self.id_token(user)
        if self.rotates:
            del self.refreshes[token]
            response["refresh_token"] = self.refresh_token(user, scope)
        return response

    def dead_refresh_token(self) -> OAuthRefusal:
        description = "The refresh token is invalid or expired."
        return OAuthRefusal("invalid_grant", description, self.refused_status)

    def id_claims(self, user: str) -> Json:
        return {"iss": self.issuer, "sub": f"sub-{user}", "aud": CLIENT_ID, "name": user.title()}

    def id_token(self, user: str, **more: Any) -> str:
        times = {"iat": int(self.now), "exp": int(self.now) + 3600}
        claims = self.id_claims(user) | times | more | self.claims
        kept = {name: value for name, value in claims.items() if value is not None}
        return self.key.sign(kept, typ="JWT")

    def user_info(self, request: ReceivedRequest) -> bytes:
        raise NotImplementedError

    def bearer(self, request: ReceivedRequest) -> str | None:
        """The user of the access token of a request."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        user, _, until = self.access.get(token, ("", "", 0.0))
        return user if user and self.now < until else None

    def revoke(self, request: ReceivedRequest, form: dict[str, str]) -> bytes:
        self.check_client(request, form)
        self.refreshes.pop(form.get("token", ""), None)
        self.access.pop(form.get("token", ""), None)
        return sent(None)


class GitHubReplica(ProviderReplica):
    """GitHub: a form or JSON by `accept`, errors with status 200, no ID token.

    A GitHub App has tokens that expire, and refresh tokens that are used once.
    """

    preset = presets.github(CLIENT_ID, CLIENT_SECRET)
    metadata_path = "/no-metadata"
    authorize_path = "/login/oauth/authorize"
    token_path = "/login/oauth/access_token"
    user_path = "/user"
    basic = False
    is_app = False

    def check_authorization(self, asked: dict[str, str]) -> None:
        if asked.get("code_challenge_method") != "S256" or "nonce" in asked:
            raise OAuthRefusal("invalid_request")

    def route(
        self, request: ReceivedRequest, path: str, form: dict[str, str], asked: dict[str, str]
    ) -> bytes:
        if path != self.authorize_path and "user-agent" not in request.headers:
            return http_response(403, b"Request forbidden by administrative rules.", "text/plain")
        if request.method == "DELETE" and path == f"/applications/{CLIENT_ID}/token":
            return self.delete_token(request)
        return super().route(request, path, form, asked)

    def token(self, request: ReceivedRequest, form: dict[str, str]) -> bytes:
        answered = super().token(request, form)
        return self.formatted(json.loads(answered.partition(b"\r\n\r\n")[2]), request)

    def formatted(self, found: Json, request: ReceivedRequest) -> bytes:
        if request.headers.get("accept") == "application/json":
            return sent(found)
        return http_response(200, urlencode(found).encode(), FORM)

    def refusal(self, refusal: OAuthRefusal, request: ReceivedRequest) -> bytes:
        codes = {
            "invalid_grant": "bad_verification_code",
            "invalid_client": "incorrect_client_credentials",
        }
        error = codes.get(refusal.error, refusal.error)
        return self.formatted({"error": error, "error_description": refusal.description}, request)

    def dead_refresh_token(self) -> OAuthRefusal:
        description = "The refresh token passed is incorrect or expired."
        return OAuthRefusal("bad_refresh_token", description)

    def grant(self, code: dict[str, str]) -> Json:
        return self.tokens(code["user"], code.get("scope", ""))

    def refreshed(self, token: str) -> Json:
        found = self.refreshes.pop(token, None)
        if found is None:
            raise self.dead_refresh_token()
        return self.tokens(*found)

    def tokens(self, user: str, scope: str) -> Json:
        found = self.access_token(user, scope)
        found |= {"token_type": "bearer", "scope": scope.replace(" ", ",")}
        if not self.is_app:
            del found["expires_in"]
            return found
        # Strings in older documentation, numbers today.
        found |= {"expires_in": str(self.life_s), "refresh_token_expires_in": "15811200"}
        return found | {"refresh_token": self.refresh_token(user, scope)}

    def user_info(self, request: ReceivedRequest) -> bytes:
        user = self.bearer(request)
        if user is None:
            return sent({"message": "Bad credentials", "status": "401"}, 401)
        number = {"ann": 583231, "bob": 583232}[user]
        return sent({"login": user, "id": number, "node_id": "MDQ6", "name": user.title()})

    def bearer(self, request: ReceivedRequest) -> str | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        user, _, until = self.access.get(token, ("", "", 0.0))
        return user if user and (not self.is_app or self.now < until) else None

    def delete_token(self, request: ReceivedRequest) -> bytes:
        if basic_credentials(request) != (CLIENT_ID, CLIENT_SECRET):
            return sent({"message": "Requires authentication"}, 401)
        token = json.loads(request.body)["access_token"]
        if self.access.pop(token, None) is None:
            return sent({"message": "Not Found"}, 404)
        return http_response(204)


class GoogleReplica(ProviderReplica):
    """Google: a refresh token only offline and at a consent; the scheme may miss in `iss`."""

    preset = presets.google(CLIENT_ID, CLIENT_SECRET)
    authorize_path = "/o/oauth2/v2/auth"
    basic = False
    rotates = False
    short_issuer = False

    def __init__(self, server: ScriptedHttpServer) -> None:
        super().__init__(server)
        self.consented: set[str] = set()

    def check_authorization(self, asked: dict[str, str]) -> None:
        super().check_authorization(asked)
        if "offline_access" in asked["scope"].split():
            raise OAuthRefusal("invalid_scope")

    def issues_refresh_token(self, code: dict[str, str]) -> bool:
        first = code["user"] not in self.consented
        self.consented.add(code["user"])
        return code.get("access_type") == "offline" and (first or code.get("prompt") == "consent")

    def id_claims(self, user: str) -> Json:
        claims = super().id_claims(user) | {"hd": "example.com", "azp": CLIENT_ID}
        return claims | ({"iss": self.url.removeprefix("http://")} if self.short_issuer else {})


class EntraReplica(ProviderReplica):
    """Microsoft Entra: one path for each tenant, no revocation, ID tokens of the user's tenant."""

    preset = presets.entra(CLIENT_ID, CLIENT_SECRET, tenant=TENANT)
    base_path = f"/{TENANT}"
    metadata_path = "/v2.0/.well-known/openid-configuration"
    authorize_path = "/oauth2/v2.0/authorize"
    token_path = "/oauth2/v2.0/token"
    keys_path = "/discovery/v2.0/keys"
    issuer_end = "/v2.0"
    revoke_path = ""
    basic = False
    # The tenant of the next user.
    tenant = TENANT

    def id_claims(self, user: str) -> Json:
        claims = super().id_claims(user)
        return claims | {"iss": f"{self.url}/{self.tenant}/v2.0", "tid": self.tenant, "ver": "2.0"}

    def dead_refresh_token(self) -> OAuthRefusal:
        description = "AADSTS700082: The refresh token has expired due to inactivity."
        return OAuthRefusal("invalid_grant", description)


class EntraManyTenantsReplica(EntraReplica):
    """Entra for all organizations: a template in the place of the issuer."""

    preset = presets.entra(CLIENT_ID, CLIENT_SECRET, tenant="organizations")
    base_path = "/organizations"

    @property
    def issuer(self) -> str:
        return f"{self.url}/{{tenantid}}/v2.0"


class OktaReplica(ProviderReplica):
    """Okta: the custom authorization server `default`."""

    preset = presets.okta(CLIENT_ID, CLIENT_SECRET, domain="acme.okta.com")
    base_path = "/oauth2/default"
    authorize_path = "/v1/authorize"
    token_path = "/v1/token"
    keys_path = "/v1/keys"
    revoke_path = "/v1/revoke"


class Auth0Replica(ProviderReplica):
    """Auth0: a slash at the end of the issuer; a JWT only for an audience; 403 for a dead token."""

    preset = presets.auth0(
        CLIENT_ID, CLIENT_SECRET, domain="acme.eu.auth0.com", audience="https://api.example.com"
    )
    authorize_path = "/authorize"
    token_path = "/oauth/token"
    keys_path = "/.well-known/jwks.json"
    revoke_path = "/oauth/revoke"
    issuer_end = "/"
    basic = False
    refused_status = 403

    def grant(self, code: dict[str, str]) -> Json:
        found = super().grant(code)
        if code.get("audience"):
            claims = {"iss": self.issuer, "aud": code["audience"], "sub": f"sub-{code['user']}"}
            opaque = self.access.pop(found["access_token"])
            found["access_token"] = self.key.sign(claims, typ="at+jwt")
            self.access[found["access_token"]] = opaque
        return found

    def dead_refresh_token(self) -> OAuthRefusal:
        return OAuthRefusal("invalid_grant", "Unknown or invalid refresh token.", 403)


class KeycloakReplica(ProviderReplica):
    """Keycloak: everything below the realm, and members of its own in responses."""

    preset = presets.keycloak(
        CLIENT_ID, CLIENT_SECRET, server="https://sso.example.com", realm="staff"
    )
    base_path = "/realms/staff"
    authorize_path = "/protocol/openid-connect/auth"
    token_path = "/protocol/openid-connect/token"
    keys_path = "/protocol/openid-connect/certs"
    revoke_path = "/protocol/openid-connect/revoke"

    def access_token(self, user: str, scope: str) -> Json:
        more = {"refresh_expires_in": 1800, "not-before-policy": 0, "session_state": "c0ffee"}
        return super().access_token(user, scope) | more

    def id_claims(self, user: str) -> Json:
        return super().id_claims(user) | {"typ": "ID", "preferred_username": user}

    def dead_refresh_token(self) -> OAuthRefusal:
        return OAuthRefusal("invalid_grant", "Token is not active")


class CognitoReplica(ProviderReplica):
    """Amazon Cognito: issuer and endpoints on two hosts, `token_use`, refresh tokens that stay."""

    preset = presets.cognito(
        CLIENT_ID,
        CLIENT_SECRET,
        user_pool="eu-west-1_AbCdEfGhI",
        domain="acme.auth.eu-west-1.amazoncognito.com",
    )
    metadata_path = "/no-metadata"
    authorize_path = "/oauth2/authorize"
    token_path = "/oauth2/token"
    keys_path = "/eu-west-1_AbCdEfGhI/.well-known/jwks.json"
    revoke_path = "/oauth2/revoke"
    issuer_end = "/eu-west-1_AbCdEfGhI"
    rotates = False

    def check_authorization(self, asked: dict[str, str]) -> None:
        super().check_authorization(asked)
        if not {"openid", "profile", "email", "phone"}.issuperset(asked["scope"].split()):
            raise OAuthRefusal("invalid_scope")

    def issues_refresh_token(self, code: dict[str, str]) -> bool:
        return True

    def id_claims(self, user: str) -> Json:
        claims = super().id_claims(user) | {"token_use": "id", "cognito:username": user}
        return claims | {"name": None}

    def access_token(self, user: str, scope: str) -> Json:
        found = super().access_token(user, scope)
        del found["scope"]
        return found

    def revoke(self, request: ReceivedRequest, form: dict[str, str]) -> bytes:
        self.check_client(request, form)
        if not form["token"].startswith("refresh-"):
            raise OAuthRefusal("unsupported_token_type")
        self.refreshes.pop(form["token"], None)
        return sent(None)


class SlackReplica(ProviderReplica):
    """Slack's Web API: `ok`, commas between scopes, the token of the user in `authed_user`."""

    preset = presets.slack(CLIENT_ID, CLIENT_SECRET, user_scopes=["users:read", "chat:write"])
    metadata_path = "/no-metadata"
    authorize_path = "/oauth/v2/authorize"
    token_path = "/api/oauth.v2.access"
    user_path = "/api/auth.test"
    revoke_path = ""

    def check_authorization(self, asked: dict[str, str]) -> None:
        if " " in asked.get("user_scope", " ") or "scope" in asked:
            raise OAuthRefusal("invalid_scope")

    def refusal(self, refusal: OAuthRefusal, request: ReceivedRequest) -> bytes:
        codes = {"invalid_grant": "invalid_code", "invalid_client": "bad_client_secret"}
        return sent({"ok": False, "error": codes.get(refusal.error, refusal.error)})

    def dead_refresh_token(self) -> OAuthRefusal:
        return OAuthRefusal("invalid_refresh_token")

    def grant(self, code: dict[str, str]) -> Json:
        user, scope = code["user"], code["user_scope"]
        tokens = self.user_tokens(user, scope)
        return {
            "ok": True,
            "app_id": "A0KRD7HC3",
            "access_token": "xoxb-token-of-the-bot",
            "token_type": "bot",
            "scope": "commands",
            "team": {"id": "T9TK3CUKW", "name": "Slack Softball Team"},
            "authed_user": {"id": f"U{user.upper()}", **tokens},
        }

    def user_tokens(self, user: str, scope: str) -> Json:
        found = self.access_token(user, scope) | {"token_type": "user"}
        return found | {"refresh_token": self.refresh_token(user, scope)}

    def refreshed(self, token: str) -> Json:
        found = self.refreshes.pop(token, None)
        if found is None:
            raise self.dead_refresh_token()
        return {"ok": True, **self.user_tokens(*found), "team": {"id": "T9TK3CUKW"}}

    def user_info(self, request: ReceivedRequest) -> bytes:
        user = self.bearer(request)
        if user is None:
            return sent({"ok": False, "error": "invalid_auth"})
        team = {"team": "Softball", "team_id": "T9TK3CUKW"}
        return sent({"ok": True, "user": user, "user_id": f"U{user.upper()}", **team})


class SlackSignInReplica(ProviderReplica):
    """Sign in with Slack: OpenID, with claims that have a prefix, and `ok`."""

    preset = presets.slack(CLIENT_ID, CLIENT_SECRET)
    authorize_path = "/openid/connect/authorize"
    token_path = "/api/openid.connect.token"
    keys_path = "/openid/connect/keys"
    revoke_path = ""

    def issues_refresh_token(self, code: dict[str, str]) -> bool:
        return True

    def access_token(self, user: str, scope: str) -> Json:
        return {"ok": True, **super().access_token(user, scope)}

    def id_claims(self, user: str) -> Json:
        prefix = "https://slack.com/"
        ids = {f"{prefix}user_id": f"U{user.upper()}", f"{prefix}team_id": "T9TK3CUKW"}
        return super().id_claims(user) | ids | {"sub": f"U{user.upper()}"}

    def refusal(self, refusal: OAuthRefusal, request: ReceivedRequest) -> bytes:
        codes = {"invalid_grant": "invalid_code", "invalid_client": "bad_client_secret"}
        return sent({"ok": False, "error": codes.get(refusal.error, refusal.error)})

    def dead_refresh_token(self) -> OAuthRefusal:
        return OAuthRefusal("invalid_refresh_token")


class DiscordReplica(ProviderReplica):
    """Discord: no ID token, a user agent of a certain form, one revocation for all tokens."""

    preset = presets.discord(CLIENT_ID, CLIENT_SECRET)
    metadata_path = "/no-metadata"
    authorize_path = "/oauth2/authorize"
    token_path = "/api/oauth2/token"
    user_path = "/api/v10/users/@me"
    revoke_path = "/api/oauth2/token/revoke"
    refresh_scope = "identify"

    def check_authorization(self, asked: dict[str, str]) -> None:
        if "nonce" in asked or "identify" not in asked["scope"].split():
            raise OAuthRefusal("invalid_scope")

    def route(
        self, request: ReceivedRequest, path: str, form: dict[str, str], asked: dict[str, str]
    ) -> bytes:
        agent = request.headers.get("user-agent", "")
        if path != self.authorize_path and not agent.startswith("DiscordBot ("):
            return http_response(403, b"error code: 1010", "text/plain")
        return super().route(request, path, form, asked)

    def user_info(self, request: ReceivedRequest) -> bytes:
        user = self.bearer(request)
        if user is None:
            return sent({"message": "401: Unauthorized", "code": 0}, 401)
        number = {"ann": "80351110224678912", "bob": "80351110224678913"}[user]
        return sent({"id": number, "username": user, "global_name": user.title()})

    def revoke(self, request: ReceivedRequest, form: dict[str, str]) -> bytes:
        self.check_client(request, form)
        self.end_logins()
        return sent({})


class WorkOSReplica(ProviderReplica):
    """WorkOS: an OAuth application of Connect at a domain of AuthKit."""

    preset = presets.workos(CLIENT_ID, CLIENT_SECRET, domain="acme.authkit.app")
    authorize_path = "/oauth2/authorize"
    token_path = "/oauth2/token"
    keys_path = "/oauth2/jwks"
    revoke_path = "/oauth2/revoke"
    basic = False

    def id_claims(self, user: str) -> Json:
        return super().id_claims(user) | {"org_id": "org_01", "sid": "app_consent_01"}


REPLICAS: dict[str, type[ProviderReplica]] = {
    "github": GitHubReplica,
    "google": GoogleReplica,
    "entra": EntraReplica,
    "entra for many tenants": EntraManyTenantsReplica,
    "okta": OktaReplica,
    "auth0": Auth0Replica,
    "keycloak": KeycloakReplica,
    "cognito": CognitoReplica,
    "slack": SlackReplica,
    "sign in with slack": SlackSignInReplica,
    "discord": DiscordReplica,
    "workos": WorkOSReplica,
}


def sent(found: object, status: int = 200) -> bytes:
    return http_response(status, b"" if found is None else json.dumps(found).encode())


def basic_credentials(request: ReceivedRequest) -> tuple[str, str]:
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    if scheme != "Basic":
        return "", ""
    id, _, secret = base64.b64decode(coded).decode().partition(":")
    return unquote_plus(id), unquote_plus(secret)


def rebased(provider: Provider, url: str) -> Provider:
    """The preset with the origin of a replica in all of its URLs."""

    def moved(old: str) -> str:
        if not old:
            return old
        if "://" not in old:
            return url.partition("://")[2]
        host = old.partition("://")[2]
        return url + host[host.find("/") :] if "/" in host else url

    names = (
        "issuer",
        "metadata_issuer",
        "metadata_url",
        "authorization_endpoint",
        "token_endpoint",
        "userinfo_endpoint",
        "revocation_endpoint",
        "jwks_url",
    )
    changed: Json = {name: moved(getattr(provider, name)) for name in names}
    changed["token_issuers"] = tuple(moved(one) for one in provider.token_issuers)
    return msgspec.structs.replace(provider, **changed)


@asynccontextmanager
async def served(kind: type[R]) -> AsyncGenerator[R]:
    """A replica of this class, for as long as this is entered."""
    found: list[R] = []

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            if found[0].silent:
                await connection.wait_closed()
                return
            await connection.send(found[0].answer(request))

    async with scripted_http_server(handler) as server:
        found.append(kind(server))
        yield found[0]


@asynccontextmanager
async def replicated(name: str) -> AsyncGenerator[ProviderReplica]:
    """The replica of a provider, for as long as this is entered."""
    async with served(REPLICAS[name]) as replica:
        yield replica
