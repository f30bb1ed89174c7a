"""Authorization server discovery: protected resource metadata (RFC 9728), then RFC 8414 metadata.

The metadata that is found decides which rules apply, since the revision is not known yet (D20): a
server with protected resource metadata is of 2025-06-18 or later; without any, the rules of
2025-03-26 apply, at the server's own origin only.

Rules: a document is used only if it names the resource or the issuer that it was requested for. A
server that does not respond is an error; only a missing document leads to the next location.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from colonnade.auth.client.steps import (
    JSON,
    OK,
    Flow,
    FlowResponse,
    json_object,
    send_request,
    string_list_member,
    string_member,
)
from colonnade.auth.urls import (
    canonical_resource,
    covers,
    display_url,
    issuer_metadata_urls,
    origin,
    parse_url,
    require_https,
    resource_metadata_urls,
    same_issuer,
)
from colonnade.errors import AuthError, ConnectionLost
from colonnade.protocol.http.challenges import Challenges
from colonnade.protocol.http.rules import VERSION_HEADER
from colonnade.protocol.revision import NEWEST

# Servers list one or two.
MAX_ISSUERS = 16
S256 = "S256"


class ProtectedResource(Struct, frozen=True):
    """Protected resource metadata (RFC 9728) of an MCP server."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None
    dpop_required: bool = False


class AuthorizationServer(Struct, frozen=True):
    """Checked metadata of an authorization server; `legacy` by the rules of 2025-03-26."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    legacy: bool = False
    # RFC 9207: whether each authorization response has an `iss` parameter.
    iss_in_response: bool = False
    pkce: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] | None = None
    signing_algorithms: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    dpop_algorithms: tuple[str, ...] | None = None
    # Whether the URL of a client ID metadata document is accepted as a client_id.
    supports_metadata_documents: bool = False


class DiscoveryResult(Struct, frozen=True):
    """The authorization server of an MCP server, and the resource to request tokens for."""

    server: str
    resource: str
    issuer: AuthorizationServer
    scopes: tuple[str, ...] | None = None
    dpop_required: bool = False


def discover(
    server: str, challenges: Challenges, wanted: Sequence[str] = ()
) -> Flow[DiscoveryResult]:
    """Find the authorization server of a server that rejected a request.

    `wanted` are issuers to prefer if the server lists several; `check_issuer` rejects another one
    than the configured one afterwards. Raises `AuthError` if there is no usable authorization
    server, `ChannelError` if a server does not respond.
    """
    described = yield from fetch_resource_metadata(server, challenges)
    if described is None:
        return DiscoveryResult(
            server, canonical_resource(server), (yield from _legacy_issuer(server))
        )
    named = described.issuers
    issuer = next((one for w in wanted for one in named if same_issuer(one, w)), named[0])
    document = yield from fetch_issuer_metadata(issuer)
    scopes, bound = described.scopes, described.dpop_required
    return DiscoveryResult(server, described.resource, document, scopes, bound)


# ---------------------------------------------------------------- the resource


def fetch_resource_metadata(server: str, challenges: Challenges) -> Flow[ProtectedResource | None]:
    """Fetch the protected resource metadata (CL-01, CL-02); None if there is none."""
    named = challenges.parameter("resource_metadata")
    if named is not None:
        place = require_https(named, "the resource_metadata of the server's challenge")
        response = yield from send_request("GET", place, _METADATA_HEADERS)
        document = _json_document(response, place)
        if document is None:
            raise AuthError(
                f"{display_url(place)} has no metadata, though the server's challenge names it"
            )
        return parse_resource_metadata(document, server, place)
    for place in resource_metadata_urls(server):
        response = yield from send_request("GET", place, _METADATA_HEADERS)
        document = _json_document(response, place)
        if document is not None:
            return parse_resource_metadata(document, server, place)
    return None


def parse_resource_metadata(
    document: Mapping[str, Any], server: str, place: str
) -> ProtectedResource:
    """Parse RFC 9728 metadata. Raises `AuthError` if it belongs to another server (CL-03)."""
    where = display_url(place)
    resource = string_member(document, "resource")
    if resource is None:
        raise AuthError(f"the metadata at {where} names no resource, so it cannot be trusted")
    parse_url(resource, f"the resource in {where}")
    if not covers(resource, server):
        raise AuthError(
            f"{where} is the metadata of {display_url(resource)}, not of {display_url(server)}; "
            "a token for one must not be requested for the other"
        )
    issuers = string_list_member(document, "authorization_servers") or ()
    if not issuers:
        raise AuthError(f"{where} names no authorization server; ask its operator which one it is")
    return ProtectedResource(
        resource,
        issuers[:MAX_ISSUERS],
        string_list_member(document, "scopes_supported"),
        document.get("dpop_bound_access_tokens_required") is True,
    )


# ---------------------------------------------------------------- the issuer


def fetch_issuer_metadata(issuer: str) -> Flow[AuthorizationServer]:
    """Fetch the metadata of an issuer (CL-04). Raises `AuthError` if it publishes none."""
    require_https(issuer, "the issuer that the server names")
    if "?" in issuer or "#" in issuer:
        raise AuthError(f"the issuer {display_url(issuer)} must not have a query or a fragment")
    mismatched: list[str] = []
    for place in issuer_metadata_urls(issuer):
        response = yield from send_request("GET", place, _METADATA_HEADERS)
        found = _json_document(response, place)
        if found is None:
            continue
        if not same_issuer(found.get("issuer"), issuer):  # CL-05
            mismatched.append(display_url(place))
            continue
        # Its own spelling is the one that `iss` is compared with, exactly (RFC 9207).
        return parse_issuer_metadata(found, str(found["issuer"]))
    if mismatched:
        raise AuthError(
            f"{mismatched[0]} is the metadata of another issuer than {display_url(issuer)}, so it "
            "is not used; the server or its authorization server is misconfigured or malicious"
        )
    raise AuthError(f"the authorization server {display_url(issuer)} publishes no metadata")


def parse_issuer_metadata(
    document: Mapping[str, Any], issuer: str, *, legacy: bool = False
) -> AuthorizationServer:
    """Parse RFC 8414 metadata of a known issuer. Raises `AuthError` for insecure endpoints."""

    def endpoint(name: str) -> str:
        url = string_member(document, name)
        if url is None:
            return ""
        what = f"the {name} of {display_url(issuer)}"
        require_https(url, what)
        if "#" in url:
            raise AuthError(f"{what} must not have a fragment")
        if legacy and origin(url) != origin(issuer):
            raise AuthError(
                f"{what} is on another origin; without protected resource metadata (RFC 9728) "
                "only the server's own origin is trusted"
            )
        return url

    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=endpoint("token_endpoint"),
        registration_endpoint=endpoint("registration_endpoint"),
        revocation_endpoint=endpoint("revocation_endpoint"),
        legacy=legacy,
        iss_in_response=document.get("authorization_response_iss_parameter_supported") is True,
        pkce=string_list_member(document, "code_challenge_methods_supported"),
        auth_methods=string_list_member(document, "token_endpoint_auth_methods_supported"),
        signing_algorithms=string_list_member(
            document, "token_endpoint_auth_signing_alg_values_supported"
        ),
        scopes=string_list_member(document, "scopes_supported"),
        dpop_algorithms=string_list_member(document, "dpop_signing_alg_values_supported"),
        supports_metadata_documents=document.get("client_id_metadata_document_supported") is True,
    )


def _legacy_issuer(server: str) -> Flow[AuthorizationServer]:
    """2025-03-26: metadata at the root of the server's origin, then the default paths (CL-06)."""
    base = origin(server)
    require_https(base, "the server's URL")
    place = issuer_metadata_urls(base)[0]
    response = yield from send_request("GET", place, _METADATA_HEADERS)
    document = _json_document(response, place)
    if document is not None:
        # Both spellings of the origin have this document; any other issuer is a different server.
        named = string_member(document, "issuer")
        if named not in (base, base + "/"):
            raise AuthError(
                f"{display_url(place)} is the metadata of another issuer than {base}, so it "
                "is not used"
            )
        return parse_issuer_metadata(document, named, legacy=True)
    return AuthorizationServer(
        issuer=base,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        legacy=True,
    )


# 2025-03-26 requires the version header, though no version is negotiated yet (R0199).
_METADATA_HEADERS = (("accept", JSON), (VERSION_HEADER, NEWEST.date))


def _json_document(response: FlowResponse, place: str) -> dict[str, Any] | None:
    """The requested document; None if there is none. Raises `ConnectionLost` for a temporary
    failure, which must not be taken for a missing document."""
    if response.status >= 500 or response.status in (408, 425, 429):
        raise ConnectionLost(
            f"{display_url(place)} responded with {response.status}; try again later"
        )
    return json_object(response.body) if response.status == OK else None
