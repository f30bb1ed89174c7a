"""Where to log in: from a server's refusal to the endpoints of its authorization server.

The documents that are found choose the rules, not a revision, which is not known yet (D20): a
server with a document of its own (RFC 9728) is of 2025-06-18 or later; where there is none
anywhere, the rules of 2025-03-26 hold, on the server's own origin and nowhere else.

Rules: a document is used only where it names what it was asked about (R: the resource, the issuer).
What does not answer is not the same as what is not there: only the latter leads on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from colonnade.auth.client.steps import JSON, OK, Flow, Reply, fetch, object_in, text_in, texts_in
from colonnade.auth.urls import (
    canonical,
    covers,
    issuer_places,
    origin,
    parts_of,
    resource_places,
    same_issuer,
    secure,
    shown,
)
from colonnade.errors import AuthError, ConnectionLost
from colonnade.protocol.http.challenges import Challenges
from colonnade.protocol.http.rules import VERSION_HEADER
from colonnade.protocol.revision import NEWEST

# Servers list one or two; each is another party to be asked.
MAX_ISSUERS = 16
S256 = "S256"


class Resource(Struct, frozen=True):
    """What a server says of itself: what it is called, who issues its tokens, what they may do."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None
    dpop_required: bool = False


class Issuer(Struct, frozen=True):
    """An authorization server by its own document, checked; `legacy` by the rules of 2025-03-26."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    legacy: bool = False
    # RFC 9207: whether each answer of it says who it is.
    names_itself: bool = False
    pkce: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    algorithms: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    dpop: tuple[str, ...] | None = None
    # Whether a URL is a client to it.
    takes_documents: bool = False


class Found(Struct, frozen=True):
    """Where one server's tokens come from."""

    server: str
    resource: str
    issuer: Issuer
    scopes: tuple[str, ...] | None = None
    dpop_required: bool = False


def discover(server: str, challenges: Challenges, wanted: Sequence[str] = ()) -> Flow[Found]:
    """Find the authorization server of a server that has refused us.

    `wanted` are issuers to prefer where a server lists several; where a program insists on one,
    `insist` says so afterwards. Raises `AuthError` where there is none that may be used,
    `ChannelError` where somebody does not answer.
    """
    described = yield from resource_of(server, challenges)
    if described is None:
        return Found(server, canonical(server), (yield from _legacy(server)))
    named = described.issuers
    issuer = next((one for w in wanted for one in named if same_issuer(one, w)), named[0])
    document = yield from issuer_document(issuer)
    scopes, bound = described.scopes, described.dpop_required
    return Found(server, described.resource, document, scopes, bound)


# ---------------------------------------------------------------- the resource


def resource_of(server: str, challenges: Challenges) -> Flow[Resource | None]:
    """What the server says of itself (CL-01, CL-02); None where it says nothing anywhere."""
    named = challenges.parameter("resource_metadata")
    if named is not None:
        place = secure(named, "the resource_metadata of the server's refusal")
        reply = yield from fetch("GET", place, _ASKING)
        found = _document(reply, place)
        if found is None:
            raise AuthError(f"{shown(place)} should say who issues tokens, and is no document")
        return read_resource(found, server, place)
    for place in resource_places(server):
        reply = yield from fetch("GET", place, _ASKING)
        found = _document(reply, place)
        if found is not None:
            return read_resource(found, server, place)
    return None


def read_resource(found: Mapping[str, Any], server: str, place: str) -> Resource:
    """A document of RFC 9728. Raises `AuthError` where it is of another server (CL-03)."""
    where = shown(place)
    resource = text_in(found, "resource")
    if resource is None:
        raise AuthError(f"{where} names no resource, so that it may be anybody's document")
    parts_of(resource, f"the resource in {where}")
    if not covers(resource, server):
        raise AuthError(
            f"{where} is the document of {shown(resource)}, and not of {shown(server)}; "
            "a token for one must not be got for the other"
        )
    issuers = texts_in(found, "authorization_servers") or ()
    if not issuers:
        raise AuthError(f"{where} names no authorization server; ask its operator which one it is")
    return Resource(
        resource,
        issuers[:MAX_ISSUERS],
        texts_in(found, "scopes_supported"),
        found.get("dpop_bound_access_tokens_required") is True,
    )


# ---------------------------------------------------------------- the issuer


def issuer_document(issuer: str) -> Flow[Issuer]:
    """The document of an issuer (CL-04). Raises `AuthError` where there is none of its own."""
    secure(issuer, "the issuer that the server names")
    if "?" in issuer or "#" in issuer:
        raise AuthError(f"the issuer {shown(issuer)} has a query or a fragment, as none may")
    strangers: list[str] = []
    for place in issuer_places(issuer):
        reply = yield from fetch("GET", place, _ASKING)
        found = _document(reply, place)
        if found is None:
            continue
        if not same_issuer(found.get("issuer"), issuer):  # CL-05
            strangers.append(shown(place))
            continue
        # What it calls itself is what its answers and tokens call it, to the letter (RFC 9207).
        return read_issuer(found, str(found["issuer"]))
    if strangers:
        raise AuthError(
            f"{strangers[0]} says that it is another issuer than {shown(issuer)}, so that it is "
            "not used; the server, or its authorization server, is set up wrongly or not honest"
        )
    raise AuthError(f"the authorization server {shown(issuer)} has no document where one should be")


def read_issuer(found: Mapping[str, Any], issuer: str, *, legacy: bool = False) -> Issuer:
    """A document that names its issuer. Raises `AuthError` for endpoints that may not be used."""

    def endpoint(name: str) -> str:
        url = text_in(found, name)
        if url is None:
            return ""
        what = f"the {name} of {shown(issuer)}"
        secure(url, what)
        if "#" in url:
            raise AuthError(f"{what} has a fragment, as none may")
        if legacy and origin(url) != origin(issuer):
            raise AuthError(
                f"{what} is on another origin, and without a document of the server itself "
                "(RFC 9728) only its own is trusted"
            )
        return url

    return Issuer(
        issuer=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=endpoint("token_endpoint"),
        registration_endpoint=endpoint("registration_endpoint"),
        revocation_endpoint=endpoint("revocation_endpoint"),
        legacy=legacy,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        pkce=texts_in(found, "code_challenge_methods_supported"),
        methods=texts_in(found, "token_endpoint_auth_methods_supported"),
        algorithms=texts_in(found, "token_endpoint_auth_signing_alg_values_supported"),
        scopes=texts_in(found, "scopes_supported"),
        dpop=texts_in(found, "dpop_signing_alg_values_supported"),
        takes_documents=found.get("client_id_metadata_document_supported") is True,
    )


def _legacy(server: str) -> Flow[Issuer]:
    """2025-03-26: the document at the root of the server's origin, then its usual paths (CL-06)."""
    base = origin(server)
    secure(base, "the server's URL")
    place = issuer_places(base)[0]
    reply = yield from fetch("GET", place, _ASKING)
    found = _document(reply, place)
    if found is not None:
        # Both forms of an origin have this document; any other one is somebody else's.
        named = text_in(found, "issuer")
        if named not in (base, base + "/"):
            raise AuthError(
                f"{shown(place)} says that it is another issuer than {base}, so that it is not used"
            )
        return read_issuer(found, named, legacy=True)
    return Issuer(
        issuer=base,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        legacy=True,
    )


# 2025-03-26 wants the revision said, though none is agreed on yet (R0199).
_ASKING = (("accept", JSON), (VERSION_HEADER, NEWEST.date))


def _document(reply: Reply, place: str) -> dict[str, Any] | None:
    """The document that was asked for; None where there is none. Raises `ConnectionLost` where
    nobody could say: what is only late must not look like what is not there."""
    if reply.status >= 500 or reply.status in (408, 425, 429):
        raise ConnectionLost(f"{shown(place)} answered with {reply.status}; try again later")
    return object_in(reply.body) if reply.status == OK else None
