"""Access tokens of the proxy: JWTs (RFC 9068) for one resource, verified with their grant.

Rules: a token is valid while its grant is, and the login at the provider. It names no token of the
provider, and nothing of the user but the subject.
"""

import secrets
from typing import Any, Final, cast

from colonnade.auth.jose import (
    ES256,
    InvalidToken,
    UnverifiedJwt,
    parse_jwk,
    parse_jwt,
    quote_claim,
    verify_signature,
)
from colonnade.auth.server.proxy.context import ProxyContext
from colonnade.auth.server.proxy.grants import (
    Grant,
    LoginEnded,
    confirm,
    ensure_upstream,
    load_grant,
)
from colonnade.auth.server.verifier import VerifiedToken

TOKEN_TYPE: Final = "at+jwt"
# A token is announced to expire this share of its lifetime earlier, and this long at most. Clients
# use it to the last moment by their own clocks, and some begin a login if it is refused then.
EARLY_SHARE, MAX_EARLY_S = 0.1, 30.0


async def issue(context: ProxyContext, grant: Grant, scopes: tuple[str, ...]) -> str:
    """A new access token for a grant."""
    settings, now = context.settings, context.now
    key = await context.keys.current(context.storage, now)
    claims: dict[str, Any] = {
        "iss": settings.issuer,
        "aud": settings.resource,
        "sub": grant.subject,
        "client_id": grant.client_id,
        "scope": " ".join(scopes),
        "jti": secrets.token_urlsafe(12),
        "iat": int(now),
        "exp": int(now + settings.access_token_s),
        "grant": grant.id,
        "generation": grant.generation,
    }
    if grant.dpop_key:
        claims["cnf"] = {"jkt": grant.dpop_key}
    return key.sign({"typ": TOKEN_TYPE}, claims)


def announced_lifetime(context: ProxyContext) -> int:
    """The `expires_in` of a token response: the lifetime of an access token for its client."""
    life_s = context.settings.access_token_s
    return int(life_s - min(life_s * EARLY_SHARE, MAX_EARLY_S))


async def check_claims(
    context: ProxyContext, token: str, signed: UnverifiedJwt | None
) -> dict[str, Any]:
    """The claims of a token of this issuer that has not expired. Raises `InvalidToken`."""
    signed = signed or parse_jwt(token)
    claims, settings = signed.claims, context.settings
    if signed.header.get("typ") != TOKEN_TYPE:
        raise InvalidToken("this is not an access token")
    key = await context.keys.find(signed.key_id, context.storage, context.now)
    public = parse_jwk({**key.public_jwk, "kid": key.key_id}) if key is not None else None
    if public is None:
        detail = f"kid {quote_claim(signed.header.get('kid'))}"
        raise InvalidToken("the token is signed with an unknown key", detail)
    verify_signature(signed, public, (ES256,))
    if claims.get("iss") != settings.issuer:
        raise InvalidToken("the token is from another issuer")
    if claims.get("aud") != settings.resource:
        detail = f"aud {quote_claim(claims.get('aud'))}, expected {settings.resource}"
        raise InvalidToken("the token is not for this server", detail)
    if context.now >= cast("int", claims["exp"]):
        raise InvalidToken("the token has expired")
    return claims


async def verify(context: ProxyContext, token: str, signed: UnverifiedJwt | None) -> VerifiedToken:
    """The user of a token whose grant and upstream login are good.

    Raises `InvalidToken`, and `ChannelError` if the provider or the store does not respond.
    """
    claims = await check_claims(context, token, signed)
    found = await load_grant(context, claims["grant"])
    if found is None or found.value.client_id != claims["client_id"]:
        raise InvalidToken("the login of the token has ended")
    grant = found.value
    await confirm(context, found, claims["generation"])
    try:
        await ensure_upstream(context, grant)
    except LoginEnded:
        raise InvalidToken("the login of the token has ended") from None
    named = {"name": grant.name} if grant.name else {}
    return VerifiedToken(
        principal(context, grant.subject),
        frozenset(claims["scope"].split()),
        float(claims["exp"]),
        grant.dpop_key,
        claims={**grant.claims, **named, **claims},
    )


def principal(context: ProxyContext, subject: str) -> str:
    """The principal of a user: the provider's issuer and subject, in the form that `Jwt` has."""
    return f"{context.provider.issuer}#{subject}"
