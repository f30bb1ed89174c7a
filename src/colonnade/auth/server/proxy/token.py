"""The token endpoint: authorization code and refresh token; revocation (RFC 7009), introspection
(RFC 7662).

Rules: a client is authenticated before anything of its request is looked at. An error tells a
client what to do, and nothing of a grant that is not its own.
"""

import hmac
import logging
import re
from typing import Any, Final

from colonnade.auth.jose import InvalidToken, is_jwt
from colonnade.auth.server.dpop import MAX_PROOF_AGE_S, DpopProof, InvalidProof
from colonnade.auth.server.proxy.access_tokens import check_claims, issue, principal, verify
from colonnade.auth.server.proxy.authorize import check_resources
from colonnade.auth.server.proxy.context import TOKEN, ProxyContext
from colonnade.auth.server.proxy.grants import (
    Grant,
    LoginEnded,
    end_grant,
    ensure_upstream,
    invalid_grant,
    is_issued,
    load_grant,
    read_refresh_token,
    refresh_token,
    rotate,
    use_code,
)
from colonnade.auth.server.proxy.records import digest
from colonnade.auth.server.proxy.registration import authenticate_client, keep_client
from colonnade.auth.server.proxy.responses import (
    NO_STORE,
    OAuthFailure,
    Parameters,
    basic_credentials,
    invalid_client,
    json_response,
    parse_form,
)
from colonnade.errors import ChannelError
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import OK

log: logging.Logger = logging.getLogger("colonnade.auth")

# RFC 7636, 4.1.
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
INACTIVE: Final = {"active": False}


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
        "expires_in": int(context.settings.access_token_s),
        "refresh_token": refresh_token(context, grant),
        "scope": " ".join(scopes),
    }
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
    if not fields.get("code") or not _VERIFIER.fullmatch(verifier):
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
