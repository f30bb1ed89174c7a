"""The metadata documents of the proxy: RFC 8414, OpenID Connect Discovery, JWKS.

Rules: URLs come from the configured issuer. What a document announces is what the endpoints do.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from colonnade.auth.jose import ALGORITHMS
from colonnade.auth.server.proxy.context import (
    AUTHORIZE,
    INTROSPECT,
    JWKS,
    REGISTER,
    REVOKE,
    TOKEN,
    ProxyContext,
    ProxySettings,
)
from colonnade.auth.server.proxy.registration import METHODS
from colonnade.auth.server.proxy.responses import json_response
from colonnade.auth.urls import ISSUER_DOCUMENT, OPENID_DOCUMENT
from colonnade.ports import EndpointResponse
from colonnade.protocol.http.security import OK

# Documents change with the configuration, and keys are published a day before they sign.
CACHED: Final = (("cache-control", "max-age=300"),)


def metadata_document(settings: ProxySettings) -> dict[str, Any]:
    """The authorization server metadata (RFC 8414)."""
    document: dict[str, Any] = {
        "issuer": settings.issuer,
        "authorization_endpoint": settings.url(AUTHORIZE),
        "token_endpoint": settings.url(TOKEN),
        "revocation_endpoint": settings.url(REVOKE),
        "jwks_uri": settings.url(JWKS),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": list(METHODS),
        "revocation_endpoint_auth_methods_supported": list(METHODS),
        "code_challenge_methods_supported": ["S256"],
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": settings.client_documents,
        "protected_resources": [settings.resource],
    }
    if settings.scopes:
        document["scopes_supported"] = list(settings.scopes)
    if settings.registration:
        document["registration_endpoint"] = settings.url(REGISTER)
    if settings.introspection is not None:
        document["introspection_endpoint"] = settings.url(INTROSPECT)
        document["introspection_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    return document


def openid_document(settings: ProxySettings) -> dict[str, Any]:
    """The same as OpenID Connect Discovery has it. No ID tokens are issued, but clients that read
    this document expect these members."""
    return metadata_document(settings) | {
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }


def document_paths(settings: ProxySettings) -> dict[str, str]:
    """The well-known paths of the documents, by path: with the issuer's path after the well-known
    part (RFC 8414), before it (OpenID), and without it for a proxy server that removes it."""
    prefix = urlsplit(settings.issuer).path
    return {
        path: name
        for name in (ISSUER_DOCUMENT, OPENID_DOCUMENT)
        for path in (
            f"/.well-known/{name}{prefix}",
            f"{prefix}/.well-known/{name}",
            f"/.well-known/{name}",
        )
    }


def respond_document(settings: ProxySettings, name: str) -> EndpointResponse:
    """A metadata document."""
    make = metadata_document if name == ISSUER_DOCUMENT else openid_document
    return json_response(OK, make(settings), CACHED)


async def respond_jwks(context: ProxyContext) -> EndpointResponse:
    """The JSON Web Key Set."""
    keys = await context.keys.jwks(context.storage, context.now)
    return json_response(OK, {"keys": keys}, CACHED)
