"""Access tokens of the proxy, and the endpoints for tokens: token, revocation (RFC 7009),
introspection (RFC 7662).

An access token is a JWT (RFC 9068) for one resource. It is valid while its grant is, and the login
at the provider. It names no token of the provider, and nothing of the user but the subject.

Rules: a client is authenticated before anything of its request is looked at. An error tells a
client what to do, and nothing of a grant that is not its own.
"""

import hmac
import logging
import secrets
from typing import Any, Final, cast

from colonnade.auth.jose import (
    ES256,
    InvalidToken,
    UnverifiedJwt,
    is_jwt,
    parse_jwk,
    parse_jwt,
    quote_claim,
    verify_signature,
)
from colonnade.auth.server.dpop import MAX_PROOF_AGE_S, DpopProof, InvalidProof
from colonnade.auth.server.oauth_forms import OAuthFailure, Parameters, is_verifier
from colonnade.auth.server.pages import NO_STORE
from colonnade.auth.server.proxy.authorize import check_resources
from colonnade.auth.server.proxy.context import TOKEN, ProxyContext
from colonnade.auth.server.proxy.grants import (
    Grant,
    LoginEnded,
    confirm,
    end_grant,
    ensure_upstream,
    invalid_grant,
    is_issued,
    load_grant,
    read_refresh_token,
    refresh_token,
    revoke_abandoned,
    rotate,
    use_code,
)
from colonnade.auth.server.proxy.records import digest
from colonnade.auth.server.proxy.registration import authenticate_client, keep_client
from colonnade.auth.server.proxy.responses import (
    basic_credentials,
    invalid_client,
    json_response,
    parse_form,
)
from colonnade.auth.server.verifier import VerifiedToken
from colonnade.errors import ChannelError
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import OK

log: logging.Logger = logging.getLogger("colonnade.auth")

TOKEN_TYPE: Final = "at+jwt"
# A token is announced to expire this share of its lifetime earlier, and this long at most. Clients
# use it to the last moment by their own clocks, and some begin a login if it is refused then.
EARLY_SHARE, MAX_EARLY_S = 0.1, 30.0
INACTIVE: Final = {"active": False}


# ---------------------------------------------------------------- the token endpoint


async def token(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The token endpoint. Raises `OAuthFailure`, `ChannelError`."""
    fields = parse_form(request)
    client_id = await authenticate_client(context, request, fields)
    check_resources(context, fields)
    proof = _read_proof(context, request)
    kind = fields.get("grant_type")
    if kind == "authorization_code":
        grant = await _by_code(context, fields, client_id, proof)
        scopes = grant.scopes
    elif kind == "refresh_token":
        grant, scopes = await _by_refresh_token(context, fields, client_id, proof)
    elif kind:
        raise OAuthFailure("unsupported_grant_type", "the grant type is not supported")
    else:
        raise OAuthFailure("invalid_request", "the request has no grant_type")
    answer: dict[str, Any] = {
        "access_token": await issue(context, grant, scopes),
        "token_type": "DPoP" if grant.dpop_key else "Bearer",
        "expires_in": announced_lifetime(context),
        "refresh_token": refresh_token(context, grant),
        "scope": " ".join(scopes),
    }
    await revoke_abandoned(context)
    return json_response(OK, answer)


def _read_proof(context: ProxyContext, request: EndpointRequest) -> DpopProof | None:
    """The proof of possession in a request (RFC 9449); None without one."""
    text = request.headers.get(b"dpop", b"").decode("latin-1")
    if not text:
        return None
    try:
        return DpopProof(text, "POST", context.settings.url(TOKEN), None, context.now)
    except InvalidProof as error:
        raise OAuthFailure("invalid_dpop_proof", str(error)) from None


async def _use_proof(context: ProxyContext, proof: DpopProof | None) -> str:
    """The thumbprint of the key of a proof, which is used by this; empty without a proof.

    For a code or a token that is known: what is made up must leave nothing in the store.
    """
    if proof is None:
        return ""
    name = f"{proof.thumbprint} {proof.id}"
    if not await context.storage.use_once("dpop", name, 2 * MAX_PROOF_AGE_S):
        raise OAuthFailure("invalid_dpop_proof", "the proof was used before")
    return proof.thumbprint


async def _by_code(
    context: ProxyContext, fields: Parameters, client_id: str, proof: DpopProof | None
) -> Grant:
    verifier = fields.get("code_verifier")
    if not fields.get("code") or not is_verifier(verifier):
        raise OAuthFailure("invalid_request", "the request has no code, or no code_verifier")
    if not await is_issued(context, fields.get("code")):
        raise invalid_grant()
    dpop_key = await _use_proof(context, proof)
    return await use_code(
        context, fields.get("code"), client_id, fields.get("redirect_uri"), verifier, dpop_key
    )


async def _by_refresh_token(
    context: ProxyContext, fields: Parameters, client_id: str, proof: DpopProof | None
) -> tuple[Grant, tuple[str, ...]]:
    if not fields.get("refresh_token"):
        raise OAuthFailure("invalid_request", "the request has no refresh_token")
    presented = read_refresh_token(context, fields.get("refresh_token"))
    found = await load_grant(context, presented.grant_id) if presented is not None else None
    if found is None or found.value.client_id != client_id:
        raise invalid_grant()
    dpop_key = await _use_proof(context, proof)
    if found.value.dpop_key != dpop_key:  # RFC 9449, 5
        raise invalid_grant("the token is bound to another key")
    asked = fields.get("scope").split()
    if not found.value.scopes and asked:
        asked = []
    if not set(asked) <= set(found.value.scopes):
        raise OAuthFailure("invalid_scope", "the scope is larger than that of the grant")
    try:
        await ensure_upstream(context, found.value)
    except LoginEnded:
        raise invalid_grant("the login at the identity provider has ended") from None
    except ChannelError as error:
        # Many clients begin a login if a refresh fails, which is not possible now either. The new
        # access token is not accepted before the provider responds.
        log.warning("a login is extended without its provider: %s", error)
    grant = await rotate(context, fields.get("refresh_token"), client_id)
    await keep_client(context, client_id)
    return grant, tuple(dict.fromkeys(asked)) or grant.scopes


# ---------------------------------------------------------------- revocation


async def revoke(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The revocation endpoint (RFC 7009): ends the grant of a token. Raises `OAuthFailure`."""
    fields = parse_form(request)
    client_id = await authenticate_client(context, request, fields)
    given = fields.get("token")
    if not given:
        raise OAuthFailure("invalid_request", "the request has no token")
    found = await load_grant(context, await _grant_of(context, given))
    if found is not None:
        if found.value.client_id != client_id:
            raise OAuthFailure("unauthorized_client", "the token is of another client")
        await end_grant(context, found.value.id, revoke=True)
    return json_response(OK, {})  # also for a token that is unknown or has ended


async def _grant_of(context: ProxyContext, given: str) -> str:
    """The id of the grant of an access or refresh token; empty for anything else."""
    if is_jwt(given):
        try:
            return (await check_claims(context, given, None))["grant"]
        except InvalidToken:
            return ""
    presented = read_refresh_token(context, given)
    return presented.grant_id if presented is not None else ""


# ---------------------------------------------------------------- introspection


async def introspect(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The introspection endpoint (RFC 7662), for the resource itself: with the configured
    credentials, and for access tokens. Raises `OAuthFailure`, `ChannelError`."""
    expected = context.settings.introspection
    given = basic_credentials(request)
    if expected is None or given is None:
        raise invalid_client()
    if not hmac.compare_digest(digest(*given), digest(*expected)):
        raise invalid_client()
    text = parse_form(request).get("token")
    if not is_jwt(text):
        return json_response(OK, INACTIVE, NO_STORE)
    try:
        verified = await verify(context, text, None)
    except InvalidToken:
        return json_response(OK, INACTIVE, NO_STORE)
    claims = verified.claims
    names = ("iss", "aud", "sub", "client_id", "scope", "exp", "iat", "jti")
    answer = {name: claims[name] for name in names} | {
        "active": True,
        "token_type": "DPoP" if verified.dpop_thumbprint else "Bearer",
        "username": principal(context, claims["sub"]),
    }
    if verified.dpop_thumbprint:  # RFC 9449, 6.2
        answer["cnf"] = {"jkt": verified.dpop_thumbprint}
    return json_response(OK, answer, NO_STORE)


# ---------------------------------------------------------------- access tokens


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
