"""The clients of the proxy: dynamic registration (RFC 7591), and client ID metadata documents.

Rules: documents are fetched by the SSRF-safe fetcher, without redirects, and cached as HTTP says.
What a client states is shown as its own claim: none of it is verified (see `client_metadata`).
"""

import hmac
import re
import secrets
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from colonnade.auth.jose import InvalidToken, decode_json_object
from colonnade.auth.server.client_metadata import (
    MAX_DOCUMENT_BYTES,
    NONE,
    is_document_url,
    read_document,
    read_metadata,
    same_redirect,
)
from colonnade.auth.server.oauth_forms import OAuthFailure, Parameters
from colonnade.auth.server.proxy.context import DAY_S, ProxyContext
from colonnade.auth.server.proxy.records import ProxyRecord, StoredRecord, digest
from colonnade.auth.server.proxy.responses import (
    PageFailure,
    basic_credentials,
    check_quota,
    invalid_client,
    json_response,
    source_of,
)
from colonnade.auth.ssrf import FetchedResponse
from colonnade.errors import CannotFetch
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import FORBIDDEN, UNAVAILABLE

CREATED: Final = 201
BASIC, POST = "client_secret_basic", "client_secret_post"
METHODS: Final = (NONE, BASIC, POST)

# A registration that no user has used to log in; and one, after its last login or refresh.
UNUSED_S: Final = DAY_S
USED_S: Final = 400 * DAY_S
# A registration is stored again, for longer, at most this often.
TOUCH_S: Final = DAY_S
HOUR_S: Final = 3600.0

# Without a lifetime of its own; and the longest that is believed: a client that is taken over is
# then known by its new document.
DOCUMENT_S: Final = 300.0
MAX_DOCUMENT_S: Final = DAY_S
# Documents that are cached in an hour; others are fetched each time.
MAX_DOCUMENTS_PER_HOUR: Final = 200
# Documents that are fetched in ten minutes: a stranger names the URL, and must not make this server
# send many requests to another, or wait for many. A document that was good within a week has quotas
# of its own, in all and for its URL: requests for others must not keep its users from a login. Of
# the others some are fetched from one host, and fewer from one URL, as it may stay bad. Errors are
# not cached: the draft (4.4) forbids that.
FETCHES_S: Final = 600.0
MAX_FETCHES: Final = 3000
MAX_FETCHES_OF_GOOD: Final = 1000
MAX_FETCHES_PER_HOST: Final = 100
MAX_FETCHES_PER_URL: Final = 20
GOOD_DOCUMENT_S: Final = 7 * DAY_S

_MAX_AGE = re.compile(r"(?:^|[ ,])max-age *= *\"?([0-9]{1,10})")


class ProxyClient(ProxyRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A client of the proxy; `document` if it is known by its metadata document."""

    client_id: str
    redirect_uris: tuple[str, ...]
    name: str = ""
    method: str = NONE
    secret_digest: str = ""
    document: bool = False
    used: bool = False

    @property
    def host(self) -> str:
        """The host of the metadata document, which is verified; empty without one."""
        return urlsplit(self.client_id).netloc if self.document else ""

    def redirect_for(self, uri: str) -> str | None:
        """The redirect URI of a request, if it is registered; None if it is not."""
        return uri if any(same_redirect(one, uri) for one in self.redirect_uris) else None


# ---------------------------------------------------------------- dynamic registration


async def register(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The registration endpoint. Raises `OAuthFailure`."""
    if not context.settings.registration:
        raise OAuthFailure("access_denied", "this server does not register clients", FORBIDDEN)
    try:
        stated = decode_json_object(request.body)
    except InvalidToken:
        raise OAuthFailure("invalid_client_metadata", "the body is not a JSON object") from None
    method = stated.get("token_endpoint_auth_method", BASIC)
    if method not in METHODS:
        raise OAuthFailure(
            "invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(METHODS)}"
        )
    metadata = read_metadata(stated, context.settings.redirect_schemes)
    _check_grants(stated)
    most = context.settings.max_registrations_per_hour
    await check_quota(context.storage, "registrations", HOUR_S, most, source_of(request))
    secret = "" if method == NONE else secrets.token_urlsafe(32)
    client = ProxyClient(
        client_id=secrets.token_urlsafe(24),
        redirect_uris=metadata.redirect_uris,
        name=metadata.name,
        method=method,
        secret_digest=digest(secret) if secret else "",
        expires_at=context.now + UNUSED_S,
    )
    await context.storage.add("client", client.client_id, client)
    answer: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(context.now),
        "client_name": client.name,
        "redirect_uris": metadata.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if secret:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    return json_response(CREATED, answer)


def _check_grants(stated: dict[str, Any]) -> None:
    """Raise `OAuthFailure` for a client that could do nothing here (RFC 7591, 2)."""
    for name, needed in (("grant_types", "authorization_code"), ("response_types", "code")):
        listed = stated.get(name, [needed])
        if not isinstance(listed, list) or needed not in listed:
            raise OAuthFailure("invalid_client_metadata", f"{name} must include {needed}")


# ---------------------------------------------------------------- known clients


async def find_client(context: ProxyContext, client_id: str, source: str) -> ProxyClient:
    """The client of an authorization request. `source` is the address of the user's browser, if
    known.
    Raises `PageFailure` for an unknown client."""
    if not client_id:
        raise PageFailure("The request names no client.")
    if client_id.startswith(("https://", "http://")):
        if not context.settings.client_documents:
            raise PageFailure("This server does not accept client metadata documents.")
        return await _find_document(context, client_id, source)
    found = await load_client(context, client_id)
    if found is None:
        raise PageFailure(
            "The application is not registered here, or its registration has expired. Start the"
            " login again from the application; if that does not help, remove the server there and"
            " add it again."
        )
    return found.value


async def load_client(context: ProxyContext, client_id: str) -> StoredRecord[ProxyClient] | None:
    """A registered client; None if it is unknown."""
    return await context.storage.load("client", client_id, ProxyClient)


async def keep_client(context: ProxyContext, client_id: str) -> None:
    """Keep the registration of a client for longer: a user has logged in with it."""
    found = await load_client(context, client_id)
    if found is None or found.value.expires_at > context.now + USED_S - TOUCH_S:
        return
    later = msgspec.structs.replace(found.value, used=True, expires_at=context.now + USED_S)
    # One that fails was made by another login of the same client.
    await context.storage.swap("client", client_id, found.raw, later)


async def authenticate_client(
    context: ProxyContext, request: EndpointRequest, fields: Parameters
) -> str:
    """The client id of a token request. Raises `OAuthFailure` (401) if it is not proven.

    A client that is known by its document is public: it has no secret, and its codes are bound to
    its PKCE verifier.
    """
    basic = basic_credentials(request)
    if basic is not None and (
        fields.get("client_secret") or fields.get("client_id") not in ("", basic[0])
    ):
        raise OAuthFailure("invalid_request", "the client is authenticated twice")
    client_id, secret = basic or (fields.get("client_id"), fields.get("client_secret"))
    if not client_id:
        raise invalid_client("the request names no client")
    if client_id.startswith(("https://", "http://")):
        if secret:
            raise invalid_client()
        return client_id
    found = await load_client(context, client_id)
    if found is None:
        raise invalid_client("the client is unknown, or its registration has expired")
    expected = found.value.secret_digest
    if bool(secret) is not bool(expected):
        raise invalid_client()
    if expected and not hmac.compare_digest(digest(secret), expected):
        raise invalid_client()
    return client_id


# ---------------------------------------------------------------- metadata documents


async def _find_document(context: ProxyContext, client_id: str, source: str) -> ProxyClient:
    """The client of a metadata document, cached or fetched. Raises `PageFailure`."""
    if not is_document_url(client_id, local=context.settings.is_loopback):
        raise PageFailure("The client id of the application is not the URL of a document.")
    found = await context.storage.load_raw("document", client_id, ProxyClient)
    if found is not None and found.value is not None and found.value.expires_at > context.now:
        return found.value
    is_good = await _count_fetch(context, client_id, source)
    fetcher = context.fetcher.with_access(loopback=context.settings.is_loopback, networks=())
    try:
        fetched = await fetcher.fetch(
            "GET",
            client_id,
            [("accept", "application/json")],
            max_bytes=MAX_DOCUMENT_BYTES,
            redirects=False,
        )
    except CannotFetch:
        message = "The metadata document of the application cannot be fetched. Try again later."
        raise PageFailure(message, UNAVAILABLE) from None
    fresh_s = fresh_seconds(fetched)
    try:
        metadata = read_document(fetched, client_id, context.settings.redirect_schemes)
    except OAuthFailure as failure:
        problem = failure.description
        message = f"The metadata document of the application cannot be used: {problem}."
        raise PageFailure(message) from None
    client = ProxyClient(
        client_id=client_id,
        redirect_uris=metadata.redirect_uris,
        name=metadata.name,
        document=True,
        expires_at=context.now + fresh_s,
    )
    if (fresh_s > 0 or not is_good) and await _may_store(context, source):
        await context.storage.mark("good document", client_id, GOOD_DOCUMENT_S)
        if fresh_s > 0:
            before = found.raw if found is not None else None
            await context.storage.swap("document", client_id, before, client)
    return client


async def _may_store(context: ProxyContext, source: str) -> bool:
    try:
        await check_quota(context.storage, "documents", HOUR_S, MAX_DOCUMENTS_PER_HOUR, source)
    except OAuthFailure:
        return False
    return True


async def _count_fetch(context: ProxyContext, client_id: str, source: str) -> bool:
    """Whether the document was good the last time. Raises `PageFailure` if too many were fetched,
    in all or from one place."""
    storage, url = context.storage, digest(client_id)
    try:
        if await storage.is_marked("good document", client_id):
            await check_quota(storage, "fetches of good documents", FETCHES_S, MAX_FETCHES, source)
            await check_quota(storage, f"fetches {url}", FETCHES_S, MAX_FETCHES_OF_GOOD, source)
            return True
        await check_quota(storage, "fetches", FETCHES_S, MAX_FETCHES, source)
        await check_quota(storage, f"fetches {url}", FETCHES_S, MAX_FETCHES_PER_URL, source)
        host = digest(urlsplit(client_id).hostname or "")
        await check_quota(storage, f"fetches {host}", FETCHES_S, MAX_FETCHES_PER_HOST, source)
    except OAuthFailure:
        message = "Too many applications ask for a login. Try again later."
        raise PageFailure(message, UNAVAILABLE) from None
    return False


def fresh_seconds(fetched: FetchedResponse) -> float:
    """How long a response may be cached (RFC 9111): 0 for not at all."""
    control = fetched.headers.get("cache-control", "").lower()
    if any(word in control for word in ("no-store", "no-cache", "private")):
        return 0.0
    found = _MAX_AGE.search(control)
    if found is None:
        return DOCUMENT_S
    age = fetched.headers.get("age", "0").strip()
    elapsed = int(age) if age.isdigit() and len(age) <= 10 else 0
    return float(max(0, min(int(found[1]) - elapsed, int(MAX_DOCUMENT_S))))
