"""Identity providers as data: GitHub, Google, Microsoft Entra, Okta, Auth0, Keycloak, Amazon
Cognito, Slack, Discord, WorkOS.

    OAuthProxy(github(client_id, client_secret))

Each function returns a `Provider`. Beside what differs from the standards stands the page of the
provider's documentation that says so; docs/authorization-providers.md says what to set there.

Rules: data only. A difference that needs code is a field of `Provider`.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from colonnade import __version__
from colonnade.auth.server.proxy.provider import POST, TENANT, Provider
from colonnade.errors import InvalidArgument

OPENID: Final = ("openid", "profile", "email")
# Without it these providers issue no refresh token.
OFFLINE: Final = (*OPENID, "offline_access")

# https://learn.microsoft.com/en-us/entra/identity-platform/id-token-claims-reference (`iss`): the
# tenant of personal accounts.
_PERSONAL_TENANT: Final = "9188040d-6c67-4c5b-b112-36a304b66dad"
_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_USER_POOL = re.compile(r"([a-z]{2}(?:-[a-z]+)+-[0-9]+)_[0-9A-Za-z]+")


def github(
    client_id: str,
    client_secret: str,
    *,
    scopes: Iterable[str] = (),
    server: str = "https://github.com",
) -> Provider:
    """GitHub: an OAuth app or a GitHub App; `server` is the URL of a GitHub Enterprise Server."""
    base = _base("server", server)
    # https://docs.github.com/en/enterprise-server@latest/rest/using-the-rest-api/getting-started-with-the-rest-api
    api = "https://api.github.com" if base == "https://github.com" else f"{base}/api/v3"
    return Provider(
        name="GitHub",
        issuer=base,
        client_id=client_id,
        client_secret=client_secret,
        scopes=_strings("scopes", scopes),
        # https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps:
        # no discovery, a form unless JSON is accepted, scopes separated by commas in responses;
        # https://docs.github.com/en/apps/oauth-apps/maintaining-oauth-apps/troubleshooting-oauth-app-access-token-request-errors:
        # errors with status 200.
        discovers=False,
        authorization_endpoint=f"{base}/login/oauth/authorize",
        token_endpoint=f"{base}/login/oauth/access_token",
        granted_separator=",",
        auth_method=POST,
        # https://docs.github.com/en/rest/users/users#get-the-authenticated-user: no ID token. The
        # login can be changed and taken by another user, the id cannot.
        identity="userinfo",
        userinfo_endpoint=f"{api}/user",
        subject_claims=("id",),
        name_claims=("name", "login"),
        # https://docs.github.com/en/rest/apps/oauth-applications#delete-an-app-token
        revocation_endpoint=f"{api}/applications/{quote(client_id, safe='')}/token",
        revocation_method="DELETE",
    )


def google(
    client_id: str,
    client_secret: str,
    *,
    scopes: Iterable[str] = OPENID,
    hosted_domain: str = "",
) -> Provider:
    """Google; `hosted_domain` accepts the users of one Google Workspace only."""
    return Provider(
        name="Google",
        issuer="https://accounts.google.com",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_strings("scopes", scopes),
        metadata_url="https://accounts.google.com/.well-known/openid-configuration",
        # https://developers.google.com/identity/openid-connect/openid-connect#validatinganidtoken
        token_issuers=("https://accounts.google.com", "accounts.google.com"),
        auth_method=POST,
        # https://developers.google.com/identity/protocols/oauth2/web-server#offline: a refresh
        # token is issued for `offline` only, and only at a consent, which is asked for once.
        authorization_parameters={
            "access_type": "offline",
            "prompt": "consent",
            **({"hd": hosted_domain} if hosted_domain else {}),
        },
        # https://developers.google.com/identity/openid-connect/openid-connect#hd-param: the
        # parameter can be changed by the user, the claim cannot.
        required_claims={"hd": (hosted_domain,)} if hosted_domain else {},
        # https://developers.google.com/identity/protocols/oauth2/web-server#tokenrevoke: revokes
        # what the user granted to the application, for all of its tokens.
        revokes_every_login=True,
    )


def entra(
    client_id: str,
    client_secret: str,
    *,
    tenant: str,
    scopes: Iterable[str] = OFFLINE,
    tenants: Iterable[str] = (),
) -> Provider:
    """Microsoft Entra ID; `tenant` is a tenant id, or `organizations`, `common` or `consumers`.

    `tenants` are the ids that are accepted if `tenant` is `organizations` or `common`.
    """
    tenant = _PERSONAL_TENANT if tenant == "consumers" else tenant.lower()
    many = tenant in ("common", "organizations")
    if not many and not _GUID.fullmatch(tenant):
        raise InvalidArgument(
            f"tenant is {tenant[:100]!r}: give the tenant id (a GUID, on the overview page of the "
            "tenant), or organizations, common or consumers",
            argument="tenant",
        )
    base = "https://login.microsoftonline.com"
    accepted = tuple(one.lower() for one in _strings("tenants", tenants))
    return Provider(
        name="Microsoft",
        issuer=f"{base}/{tenant}/v2.0",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_strings("scopes", scopes),
        # https://learn.microsoft.com/en-us/entra/identity-platform/v2-protocols-oidc
        metadata_url=f"{base}/{tenant}/v2.0/.well-known/openid-configuration",
        # https://learn.microsoft.com/en-us/entra/identity-platform/access-tokens#validate-the-issuer:
        # for many tenants the metadata has a template, ID tokens the issuer of their tenant, and a
        # key the issuer that it may be used for.
        metadata_issuer=f"{base}/{TENANT}/v2.0" if many else "",
        # https://learn.microsoft.com/en-us/entra/identity-platform/id-token-claims-reference: `sub`
        # belongs to one application, `tid` to the tenant that signed the user in.
        subject_claims=("tid", "sub") if many else ("sub",),
        required_claims={"tid": accepted} if accepted else {},
        auth_method=POST,
        # https://learn.microsoft.com/en-us/entra/identity-platform/userinfo: the userinfo endpoint
        # is part of Microsoft Graph, and the ID token has what it has. No revocation endpoint.
    )


def okta(
    client_id: str,
    client_secret: str,
    *,
    domain: str,
    authorization_server: str = "default",
    scopes: Iterable[str] = OFFLINE,
) -> Provider:
    """Okta; `authorization_server` is the id of a custom one, empty for the organization's own."""
    base = _base("domain", domain)
    # https://developer.okta.com/docs/concepts/auth-servers/: the issuer has a path, except for the
    # authorization server of the organization; a custom one needs API Access Management.
    issuer = f"{base}/oauth2/{authorization_server}" if authorization_server else base
    return Provider(
        name="Okta",
        issuer=issuer,
        client_id=client_id,
        client_secret=client_secret,
        # https://developer.okta.com/docs/guides/refresh-tokens/main/: offline_access, and the grant
        # type Refresh Token of the application.
        scopes=_strings("scopes", scopes),
        # https://developer.okta.com/docs/api/openapi/okta-oauth/oauth/customas/: below the issuer.
        metadata_url=f"{issuer}/.well-known/openid-configuration",
    )


def auth0(
    client_id: str,
    client_secret: str,
    *,
    domain: str,
    audience: str = "",
    scopes: Iterable[str] = OFFLINE,
) -> Provider:
    """Auth0; `audience` is the identifier of an API, if its access tokens are used upstream."""
    base = _base("domain", domain)
    return Provider(
        name="Auth0",
        # https://auth0.com/docs/secure/tokens/id-tokens/validate-id-tokens: a slash at the end.
        issuer=f"{base}/",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_strings("scopes", scopes),
        metadata_url=f"{base}/.well-known/openid-configuration",
        # https://auth0.com/docs/secure/tokens/access-tokens/get-access-tokens: without an audience
        # the access token is opaque, and for the userinfo endpoint alone.
        authorization_parameters={"audience": audience} if audience else {},
        # https://auth0.com/docs/get-started/applications/application-settings: the default.
        auth_method=POST,
    )


def keycloak(
    client_id: str,
    client_secret: str,
    *,
    server: str,
    realm: str,
    scopes: Iterable[str] = OFFLINE,
    networks: Iterable[str] = (),
) -> Provider:
    """Keycloak; `server` is its URL, with `/auth` at the end for versions before 17.

    `networks` are the private ranges in which it may be: `["10.0.0.0/8"]`.
    """
    # https://www.keycloak.org/securing-apps/oidc-layers: everything is below the realm.
    issuer = f"{_base('server', server)}/realms/{quote(realm, safe='')}"
    return Provider(
        name="Keycloak",
        issuer=issuer,
        client_id=client_id,
        client_secret=client_secret,
        # https://www.keycloak.org/docs/latest/server_admin/#_offline-access: a refresh token ends
        # with the browser session, unless it is an offline token.
        scopes=_strings("scopes", scopes),
        metadata_url=f"{issuer}/.well-known/openid-configuration",
        networks=_strings("networks", networks),
    )


def cognito(
    client_id: str,
    client_secret: str,
    *,
    user_pool: str,
    domain: str,
    scopes: Iterable[str] = OPENID,
) -> Provider:
    """Amazon Cognito; `user_pool` is `eu-west-1_AbCdEfGhI`, `domain` the one of its login pages."""
    found = _USER_POOL.fullmatch(user_pool)
    if found is None:
        raise InvalidArgument(
            f"user_pool is {user_pool[:100]!r}: give the id of a user pool, as eu-west-1_AbCdEfGhI",
            argument="user_pool",
        )
    # https://docs.aws.amazon.com/cognito/latest/developerguide/federation-endpoints.html: issuer
    # and keys are at the host of the region, the endpoints at the domain of the user pool.
    issuer = f"https://cognito-idp.{found[1]}.amazonaws.com/{user_pool}"
    base = _base("domain", domain)
    return Provider(
        name="Amazon Cognito",
        issuer=issuer,
        client_id=client_id,
        client_secret=client_secret,
        # Scopes that the client does not have are an error, offline_access among them: a refresh
        # token is issued without it.
        scopes=_strings("scopes", scopes),
        discovers=False,
        authorization_endpoint=f"{base}/oauth2/authorize",
        token_endpoint=f"{base}/oauth2/token",
        jwks_url=f"{issuer}/.well-known/jwks.json",
        # https://docs.aws.amazon.com/cognito/latest/developerguide/amazon-cognito-user-pools-using-the-id-token.html:
        # access tokens are JWTs of the same issuer and keys.
        required_claims={"token_use": ("id",)},
        name_claims=("name", "cognito:username", "email"),
        # https://docs.aws.amazon.com/cognito/latest/developerguide/revocation-endpoint.html
        revocation_endpoint=f"{base}/oauth2/revoke",
    )


def slack(
    client_id: str,
    client_secret: str,
    *,
    user_scopes: Iterable[str] = (),
    team: str = "",
) -> Provider:
    """Slack: Sign in with Slack, or, with `user_scopes`, a user token for the Web API.

    `team` accepts the users of one workspace only: `T0G9PQBBK`.
    """
    scopes = _strings("user_scopes", user_scopes)
    if scopes:
        # https://docs.slack.dev/authentication/installing-with-oauth: scopes of users have a
        # parameter of their own, and are separated by commas;
        # https://docs.slack.dev/reference/methods/oauth.v2.access: an error is `"ok": false` with
        # status 200, and the token of the user is in `authed_user`.
        return Provider(
            name="Slack",
            issuer="https://slack.com",
            client_id=client_id,
            client_secret=client_secret,
            scopes=scopes,
            discovers=False,
            authorization_endpoint="https://slack.com/oauth/v2/authorize",
            token_endpoint="https://slack.com/api/oauth.v2.access",
            authorization_parameters={"team": team} if team else {},
            scope_parameter="user_scope",
            scope_separator=",",
            granted_separator=",",
            token_member="authed_user",
            identity="userinfo",
            # https://docs.slack.dev/reference/methods/auth.test
            userinfo_endpoint="https://slack.com/api/auth.test",
            subject_claims=("team_id", "user_id"),
            name_claims=("user",),
            required_claims={"team_id": (team,)} if team else {},
        )
    # https://docs.slack.dev/authentication/sign-in-with-slack: these scopes cannot be mixed with
    # others; https://docs.slack.dev/reference/methods/openid.connect.userInfo: the ids of user and
    # workspace are in claims with a prefix.
    return Provider(
        name="Slack",
        issuer="https://slack.com",
        client_id=client_id,
        client_secret=client_secret,
        scopes=OPENID,
        metadata_url="https://slack.com/.well-known/openid-configuration",
        authorization_parameters={"team": team} if team else {},
        subject_claims=("https://slack.com/team_id", "https://slack.com/user_id"),
        required_claims={"https://slack.com/team_id": (team,)} if team else {},
        # https://slack.com/.well-known/openid-configuration: no revocation endpoint (RFC 7009).
    )


def discord(
    client_id: str, client_secret: str, *, scopes: Iterable[str] = ("identify",)
) -> Provider:
    """Discord; the scope `identify` is needed to know the user."""
    # https://docs.discord.com/developers/topics/oauth2
    return Provider(
        name="Discord",
        issuer="https://discord.com",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_strings("scopes", scopes),
        discovers=False,
        authorization_endpoint="https://discord.com/oauth2/authorize",
        token_endpoint="https://discord.com/api/oauth2/token",
        # https://docs.discord.com/developers/resources/user#get-current-user: no ID token.
        identity="userinfo",
        userinfo_endpoint="https://discord.com/api/v10/users/@me",
        subject_claims=("id",),
        name_claims=("global_name", "username"),
        # https://docs.discord.com/developers/topics/oauth2: if one token is revoked, so are all
        # tokens of the user for this application.
        revokes_every_login=True,
        # https://docs.discord.com/developers/reference#user-agent
        user_agent=f"DiscordBot (colonnade, {__version__})",
    )


def workos(
    client_id: str, client_secret: str, *, domain: str, scopes: Iterable[str] = OFFLINE
) -> Provider:
    """WorkOS: an OAuth application of Connect; `domain` is that of AuthKit, `acme.authkit.app`."""
    base = _base("domain", domain)
    return Provider(
        name="WorkOS",
        issuer=base,
        client_id=client_id,
        client_secret=client_secret,
        # https://workos.com/docs/reference/workos-connect/authorize: offline_access for a refresh
        # token, and a nonce is required.
        scopes=_strings("scopes", scopes),
        metadata_url=f"{base}/.well-known/openid-configuration",
        # https://workos.com/docs/reference/workos-connect/token: credentials in the body.
        auth_method=POST,
    )


def _base(argument: str, text: str) -> str:
    """The URL of a host, given as `acme.okta.com` or as a URL, without a slash at the end."""
    url = (text if "://" in text else f"https://{text}").rstrip("/")
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidArgument(
            f"{argument} is {text[:100]!r}: give a host, as login.example.com", argument=argument
        )
    return url


def _strings(argument: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):  # each letter would be one of them
        message = f"{argument}= is a list: write {argument}=[{values[:100]!r}]"
        raise InvalidArgument(message, argument=argument)
    return tuple(values)
