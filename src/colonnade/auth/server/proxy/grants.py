"""Grants: one login of one user with one client, its codes, refresh tokens and upstream tokens.

    code      used once; a second use ends its grant
    grant     who, which client, which scopes; the generation of its refresh token
    upstream  the tokens of the provider, refreshed by one process for all

A refresh token is sealed, and names its grant and generation. Its use makes the next generation,
once a minute. The one before stays valid until its successor, or an access token of it, was used
once: a response that was lost does not end the login. It stays valid for that minute in any case,
and both give tokens of the same generation: of several calls at once that find an expired token,
some clients refresh for each, and keep the response that arrives last. Any older one ends the
grant: it was stolen, or its thief has the newer one (OAuth 2.1, 4.3.1).

Rules: one compare and swap for each transition, so that of two replicas one succeeds. A grant that
has ended is deleted, with the provider's tokens; what is left of it is its id, in tokens that are
no longer accepted. Tokens of the provider that no grant holds any more are revoked there. Those of
a refresh that cannot be stored are kept in memory, until they can.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.auth.jose import InvalidToken, base64url_decode
from colonnade.auth.server.oauth_forms import OAuthFailure, fits_challenge
from colonnade.auth.server.proxy.context import ProxyContext, UnsavedLogin, UpstreamLogin
from colonnade.auth.server.proxy.provider import UpstreamRefused, UpstreamTokens, UpstreamUser
from colonnade.auth.server.proxy.records import ProxyRecord, StoredRecord
from colonnade.errors import ChannelError, ColonnadeError, Refused

log: logging.Logger = logging.getLogger("colonnade.auth")

# OAuth 2.1, 4.1.2: at most ten minutes; a client exchanges it at once.
CODE_S: Final = 60.0
# A used code is remembered for as long as a stolen one may turn up.
USED_CODE_S: Final = 3600.0
# For so long after a refresh token was replaced it is accepted, and its successor is not replaced:
# several calls, or processes of one client, refresh at almost the same time, and which response
# arrives last is not known here.
REUSE_S: Final = 60.0
# Changes of one grant by several requests at once.
ATTEMPTS: Final = 8
# Claims of the provider that are kept with a grant.
MAX_CLAIMS_BYTES: Final = 8 * 1024
# Logins of one user, of all clients; with one more the one that was not used for longest ends.
MAX_LOGINS_PER_USER: Final = 100
# After this long a code can no longer be used, by the clock of any replica, and its login counts as
# abandoned; its tokens are in the store for this long, to be revoked.
ABANDONED_S: Final = 2 * CODE_S
KEPT_ABANDONED_S: Final = 600.0
# Abandoned logins are looked for this often, by all processes together; so many are revoked.
SWEEP_S: Final = 60.0
MAX_SWEPT: Final = 20
# A request waits this long for a revocation at the provider, which is of no concern to its client.
REVOKE_S: Final = 5.0


class Grant(ProxyRecord, frozen=True, kw_only=True):
    """One login of one user with one client. Not `active` before its code was used."""

    id: str
    client_id: str
    # The issuer that the subject belongs to: with another provider it would be another user.
    provider: str
    subject: str
    scopes: tuple[str, ...]
    created_at: float
    name: str = ""
    claims: Mapping[str, Any] = {}
    active: bool = False
    generation: int = 0
    # Whether a token of this generation was used, so that the one before is no longer accepted.
    confirmed: bool = False
    # Until when this generation is not replaced, and the one before is accepted.
    reuse_until: float = 0.0
    # The key that its tokens are bound to (RFC 9449); empty for none.
    dpop_key: str = ""


class IssuedCode(ProxyRecord, frozen=True, kw_only=True):
    """An authorization code: whose it is, and what it is bound to."""

    grant_id: str
    client_id: str
    redirect_uri: str
    challenge: str
    valid_until: float
    used: bool = False
    dpop_key: str = ""


class RefreshToken(Struct, frozen=True, array_like=True):
    """The content of a refresh token."""

    grant_id: str
    generation: int


def invalid_grant(
    description: str = "the grant is invalid, has ended, or was used before",
) -> OAuthFailure:
    """400 `invalid_grant` (RFC 6749, 5.2): the client has to log in again."""
    return OAuthFailure("invalid_grant", description)


# ---------------------------------------------------------------- creation


async def create_grant(
    context: ProxyContext,
    *,
    client_id: str,
    redirect_uri: str,
    challenge: str,
    dpop_key: str,
    scopes: tuple[str, ...],
    user: UpstreamUser,
    tokens: UpstreamTokens,
) -> str:
    """Store a grant that waits for its code to be used; the code."""
    storage, now = context.storage, context.now
    grant_id = secrets.token_urlsafe(18)
    expires_at = now + KEPT_ABANDONED_S
    grant = Grant(
        id=grant_id,
        client_id=client_id,
        provider=context.provider.issuer,
        subject=user.subject,
        scopes=scopes,
        name=user.name,
        claims=_bounded_claims(user),
        created_at=now,
        expires_at=expires_at,
    )
    login = UpstreamLogin(tokens=tokens, checked_at=now, issued_at=now, expires_at=expires_at)
    code = secrets.token_urlsafe(32)
    issued = IssuedCode(
        grant_id=grant_id,
        client_id=client_id,
        redirect_uri=redirect_uri,
        challenge=challenge,
        dpop_key=dpop_key,
        valid_until=now + CODE_S,
        expires_at=now + USED_CODE_S,
    )
    await storage.add("upstream", grant_id, login)
    await storage.add("grant", grant_id, grant)
    await storage.add_member("pending", "", _pending_name(grant), expires_at)
    await storage.add("code", code, issued)
    await storage.add_member("user", user.subject, grant_id, now + ABANDONED_S)
    return code


def _pending_name(grant: Grant) -> str:
    """The name of a login whose code was not used yet; names are in the order of their times."""
    return f"{int(grant.created_at + ABANDONED_S):012d} {grant.id}"


def _bounded_claims(user: UpstreamUser) -> dict[str, Any]:
    claims = dict(user.claims)
    try:
        if len(msgspec.json.encode(claims)) <= MAX_CLAIMS_BYTES:
            return claims
    except TypeError:
        pass
    log.warning("the claims of a user are too large, or not JSON; they are left out")
    return {}


async def is_issued(context: ProxyContext, code: str) -> bool:
    """Whether a code was issued here, used or not."""
    return await context.storage.load("code", code, IssuedCode) is not None


async def use_code(
    context: ProxyContext,
    code: str,
    client_id: str,
    redirect_uri: str,
    verifier: str,
    dpop_key: str,
) -> Grant:
    """The grant of a code, which is used by this. Raises `OAuthFailure`."""
    storage, now = context.storage, context.now
    found = await storage.load("code", code, IssuedCode)
    if found is None:
        raise invalid_grant()
    issued = found.value
    # One swap: of two requests with one code, in any replica, one comes first.
    first = not issued.used and await storage.swap(
        "code", code, found.raw, replace(issued, used=True)
    )
    if not first and not await _is_waiting(context, issued.grant_id):
        # RFC 6749, 4.1.2: one of them has stolen it, so what it gave is taken back.
        log.warning("an authorization code was used twice; its grant has ended")
        await end_grant(context, issued.grant_id, revoke=True)
        raise invalid_grant()
    if (
        issued.client_id != client_id
        or issued.redirect_uri != redirect_uri
        or not fits_challenge(verifier, issued.challenge)
        or now >= issued.valid_until
        or issued.dpop_key not in ("", dpop_key)
    ):
        await end_grant(context, issued.grant_id, revoke=True)
        raise invalid_grant()
    return await _activate(context, issued.grant_id, dpop_key)


async def _is_waiting(context: ProxyContext, grant_id: str) -> bool:
    """Whether a grant has given no token yet: the store has failed while its code was used."""
    found = await context.storage.load("grant", grant_id, Grant)
    return found is not None and not found.value.active


async def _activate(context: ProxyContext, grant_id: str, dpop_key: str) -> Grant:
    """Make a grant last, and its upstream tokens with it."""
    storage = context.storage
    found = await storage.load("grant", grant_id, Grant)
    login = await storage.load("upstream", grant_id, UpstreamLogin)
    if found is None or login is None:
        raise invalid_grant()
    if found.value.active:  # another request has used the code since this one looked
        await end_grant(context, grant_id, revoke=True)
        raise invalid_grant()
    grant = replace(
        found.value,
        active=True,
        generation=1,
        dpop_key=dpop_key,
        expires_at=_expiry(context, found.value.created_at),
    )
    lasting = replace(login.value, expires_at=grant.expires_at)
    if not (
        await storage.swap("upstream", grant_id, login.raw, lasting)
        and await storage.swap("grant", grant_id, found.raw, grant)
    ):
        # Another request uses the code at this moment; what it gets is taken back.
        await end_grant(context, grant_id, revoke=True)
        raise invalid_grant()
    await storage.remove_member("pending", "", _pending_name(grant))
    await storage.add_member("user", grant.subject, grant_id, grant.expires_at)
    await _limit_logins(context, grant)
    return grant


async def _limit_logins(context: ProxyContext, new: Grant) -> None:
    """End the login of a user that was not used for longest, if there are too many."""
    storage = context.storage
    listed = await storage.members("user", new.subject, MAX_LOGINS_PER_USER + 1)
    if len(listed) <= MAX_LOGINS_PER_USER:
        return
    others: list[Grant] = []
    for grant_id in listed:
        found = await storage.load("grant", grant_id, Grant)
        if found is None:
            await storage.remove_member("user", new.subject, grant_id)
        elif found.value.active and grant_id != new.id:
            others.append(found.value)
    if len(others) >= MAX_LOGINS_PER_USER:
        await end_grant(context, min(others, key=lambda one: one.expires_at).id)


def _expiry(context: ProxyContext, created_at: float) -> float:
    settings = context.settings
    return min(context.now + settings.login_idle_s, created_at + settings.login_max_s)


# ---------------------------------------------------------------- refresh tokens


def refresh_token(context: ProxyContext, grant: Grant) -> str:
    """The refresh token of the grant's current generation."""
    return context.storage.seal_token("refresh", RefreshToken(grant.id, grant.generation))


def read_refresh_token(context: ProxyContext, token: str) -> RefreshToken | None:
    """The content of a refresh token of this issuer; None for anything else."""
    try:
        data = base64url_decode(token)
    except InvalidToken:
        return None
    return context.storage.unseal_token("refresh", data, RefreshToken)


async def rotate(context: ProxyContext, token: str, client_id: str) -> Grant:
    """The grant with its next generation. Raises `OAuthFailure`; ends the grant of a token that was
    replaced before."""
    presented = read_refresh_token(context, token)
    if presented is None:
        raise invalid_grant()
    for _ in range(ATTEMPTS):
        found = await load_grant(context, presented.grant_id)
        if found is None or found.value.client_id != client_id:
            raise invalid_grant()
        grant = found.value
        if _may_repeat(context, grant, presented.generation):
            await confirm(context, found, presented.generation)
            return grant  # a response with the current one was lost, or is on its way
        if presented.generation == grant.generation:
            later = _next_generation(context, grant)
            if await context.storage.swap("grant", grant.id, found.raw, later):
                await _extend(context, later)
                return later
        else:
            log.warning("a refresh token was used again after it was replaced; its grant has ended")
            await end_grant(context, grant.id, revoke=True)
            raise invalid_grant()
    raise ChannelError("the grant in the store keeps changing")


def _next_generation(context: ProxyContext, grant: Grant) -> Grant:
    return replace(
        grant,
        generation=grant.generation + 1,
        confirmed=False,
        reuse_until=context.now + REUSE_S,
        expires_at=_expiry(context, grant.created_at),
    )


def _may_repeat(context: ProxyContext, grant: Grant, generation: int) -> bool:
    """Whether a refresh token of this generation gives the current one again."""
    is_previous = generation == grant.generation - 1
    if is_previous and not grant.confirmed:
        return True
    return (is_previous or generation == grant.generation) and context.now < grant.reuse_until


async def _extend(context: ProxyContext, grant: Grant) -> None:
    """Keep what belongs to a grant for as long as the grant."""
    storage = context.storage
    for _ in range(ATTEMPTS):
        login = await storage.load("upstream", grant.id, UpstreamLogin)
        if login is None:
            return
        lasting = replace(login.value, expires_at=grant.expires_at)
        if await storage.swap("upstream", grant.id, login.raw, lasting):
            break
    await storage.add_member("user", grant.subject, grant.id, grant.expires_at)


async def confirm(context: ProxyContext, found: StoredRecord[Grant], generation: int) -> None:
    """Note that a token of the current generation has arrived at its client."""
    grant = found.value
    if generation == grant.generation and not grant.confirmed:
        # If it fails, another request has confirmed it, or has rotated.
        confirmed = replace(grant, confirmed=True)
        await context.storage.swap("grant", grant.id, found.raw, confirmed)


# ---------------------------------------------------------------- the life of a grant


async def load_grant(context: ProxyContext, grant_id: str) -> StoredRecord[Grant] | None:
    """A grant that is active and has not expired; None if there is none, or if it is of a provider
    that was configured before: neither its user nor its tokens are known to this one."""
    found = await context.storage.load("grant", grant_id, Grant)
    if found is None or found.value.provider != context.provider.issuer:
        return None
    return found if found.value.active else None


async def end_grant(context: ProxyContext, grant_id: str, *, revoke: bool = False) -> None:
    """End a grant: its tokens are no longer accepted. With `revoke` the provider's are revoked."""
    storage = context.storage
    found = await storage.load("grant", grant_id, Grant)
    login = await storage.load("upstream", grant_id, UpstreamLogin)
    await storage.delete("grant", grant_id)
    await storage.delete("upstream", grant_id)
    unsaved = context.unsaved.pop(grant_id, None)
    if found is None:
        return
    await storage.remove_member("user", found.value.subject, grant_id)
    if revoke and login is not None:
        tokens = unsaved.login.tokens if unsaved is not None else login.value.tokens
        await revoke_tokens(context, tokens, found.value.subject)


async def revoke_tokens(context: ProxyContext, tokens: UpstreamTokens, subject: str) -> None:
    """Revoke tokens at the provider, which no grant holds. Raises nothing if that fails.

    Not if the user has other logins here, or if that is not known: some providers end all of them.
    """
    with contextlib.suppress(UpstreamRefused, ChannelError, Refused, TimeoutError):
        if subject and await context.storage.members("user", subject, 1):
            return
        async with asyncio.timeout(REVOKE_S):
            await context.provider.revoke(context.fetcher, context.now, tokens)


async def revoke_abandoned(context: ProxyContext) -> None:
    """End logins whose codes were never used, and revoke their tokens; now and then, by one process
    for all. Raises nothing if the store does not respond."""
    storage = context.storage
    with contextlib.suppress(ChannelError, Refused):
        if not await storage.claim("sweep", "", b"1", SWEEP_S):
            return
        for name in await storage.members("pending", "", MAX_SWEPT):
            due, _, grant_id = name.partition(" ")
            if int(due) > context.now:
                return
            await storage.remove_member("pending", "", name)
            found = await storage.load("grant", grant_id, Grant)
            if found is not None and not found.value.active:
                await end_grant(context, grant_id, revoke=True)


# ---------------------------------------------------------------- upstream tokens


# Longer than a refresh can take: metadata, keys and tokens are fetched for 10 s each at most. Two
# refreshes at once would use one refresh token twice, and many providers end the login then.
LEASE_S: Final = 60.0
# A request waits this long for the refresh of another process, which may have died.
WAIT_S: Final = 20.0
# A refresh that is not urgent is tried this often, by all processes together.
RETRY_S: Final = 30.0
# An access token is refreshed this share of its lifetime before it expires, and this long at most.
REFRESH_SHARE, MAX_REFRESH_AHEAD_S = 0.1, 60.0
# Logins whose new tokens wait in memory for a store that fails.
MAX_UNSAVED: Final = 1000
# If the provider does not respond, a login whose token has no expiry is accepted for this long.
MAX_UNCHECKED_S: Final = 24 * 3600.0

Due = Literal["no", "soon", "now"]


class LoginEnded(Exception):
    """The provider no longer accepts the login of a grant, which has ended."""


async def ensure_upstream(context: ProxyContext, grant: Grant) -> UpstreamLogin:
    """The login at the provider, known to be good, and refreshed if it is due.

    Raises `LoginEnded` if the provider refuses it for good, `ChannelError` if it does not respond.
    """
    await _store_unsaved(context)
    found = await _load_upstream(context, grant)
    due = _due(context, found.value)
    if due == "no":
        return found.value
    # A provider that hangs must not make every request wait for it, while the login is good.
    if due == "soon" and not await context.storage.claim("attempt", grant.id, b"1", RETRY_S):
        return found.value
    return await _refresh_once(context, grant, wait=due == "now")


def _due(context: ProxyContext, login: UpstreamLogin) -> Due:
    now, expires_at = context.now, login.tokens.expires_at
    if expires_at is None:
        return "soon" if now - login.checked_at >= context.settings.upstream_check_s else "no"
    if now >= expires_at:
        return "now"
    ahead_s = min((expires_at - login.issued_at) * REFRESH_SHARE, MAX_REFRESH_AHEAD_S)
    return "soon" if now >= expires_at - ahead_s and login.tokens.refresh_token else "no"


async def _refresh_once(context: ProxyContext, grant: Grant, *, wait: bool) -> UpstreamLogin:
    """Refresh in one process; the others use what it stores, and wait for it if they have to."""
    storage, owner = context.storage, secrets.token_bytes(16)
    mine = await storage.claim("lease", grant.id, owner, LEASE_S)
    if not mine and wait:
        async with storage.released("lease", grant.id) as released:
            mine = await storage.claim("lease", grant.id, owner, LEASE_S)  # returned meanwhile
            if not mine:
                with contextlib.suppress(TimeoutError, StopAsyncIteration):
                    async with asyncio.timeout(WAIT_S):
                        await anext(released)
    if mine:
        return await _complete(_refresh_with_lease(context, grant, owner))
    found = await _load_upstream(context, grant)
    if _due(context, found.value) == "now":
        raise ChannelError("another process could not refresh the login at the provider")
    return found.value


async def _complete(work: Coroutine[Any, Any, UpstreamLogin]) -> UpstreamLogin:
    """The result of work that is completed even if this request is cancelled: a new refresh token
    that is not stored is lost, and the login with it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=LEASE_S)
        if task.done() and not task.cancelled():
            task.exception()  # of interest to no request
        raise


async def _refresh_with_lease(context: ProxyContext, grant: Grant, owner: bytes) -> UpstreamLogin:
    try:
        found = await _load_upstream(context, grant)
        if _due(context, found.value) == "no":
            return found.value
        return await _refresh(context, grant, found, owner)
    finally:
        # While new tokens are not stored, no other process may use the refresh token before.
        if grant.id not in context.unsaved:
            with contextlib.suppress(ColonnadeError):  # then it expires
                await context.storage.release("lease", grant.id, owner)


async def _load_upstream(context: ProxyContext, grant: Grant) -> StoredRecord[UpstreamLogin]:
    """The stored login, or the one that replaces it and is not stored yet. Raises `LoginEnded`, and
    ends the grant, without one."""
    found = await context.storage.load("upstream", grant.id, UpstreamLogin)
    if found is None:
        await end_grant(context, grant.id)
        raise LoginEnded
    unsaved = context.unsaved.get(grant.id)
    if unsaved is not None and unsaved.replaced == found.value.tokens:
        return StoredRecord(unsaved.login, found.raw)
    return found


async def _refresh(
    context: ProxyContext, grant: Grant, found: StoredRecord[UpstreamLogin], owner: bytes
) -> UpstreamLogin:
    login = found.value
    try:
        tokens = await _renewed_tokens(context, grant, login)
    except UpstreamRefused as refused:
        newer = await context.storage.load("upstream", grant.id, UpstreamLogin)
        if newer is not None and newer.value.tokens != login.tokens:
            return newer.value  # refreshed by a process whose lease had expired
        log.info("the provider ended a login: %s", refused.error or "no reason given")
        await end_grant(context, grant.id)
        raise LoginEnded from None
    except ChannelError:
        if _due(context, login) == "now" or not _may_stay_unchecked(context, login):
            raise
        return login
    issued_at = login.issued_at if tokens == login.tokens else context.now
    later = replace(login, tokens=tokens, checked_at=context.now, issued_at=issued_at)
    unsaved = context.unsaved.get(grant.id)
    replaced = unsaved.replaced if unsaved is not None else login.tokens
    if tokens == login.tokens:
        return await _replace(context, grant.id, found.raw, replaced, later)
    # From here on the refresh token before may be worthless, and the new one is only here.
    _keep_unsaved(context, grant.id, UnsavedLogin(later, replaced, owner))
    try:
        stored = await _replace(context, grant.id, found.raw, replaced, later)
    except (ChannelError, Refused) as error:
        log.error("new tokens of a login cannot be stored, and are kept in memory: %s", error)
        return later
    except LoginEnded:
        context.unsaved.pop(grant.id, None)
        raise
    context.unsaved.pop(grant.id, None)
    return stored


async def _replace(
    context: ProxyContext, grant_id: str, raw: bytes, replaced: UpstreamTokens, later: UpstreamLogin
) -> UpstreamLogin:
    """Store a login in the place of the one with the tokens before; the one that is stored in the
    end. Raises `LoginEnded`, and what the store raises."""
    for _ in range(ATTEMPTS):
        if await context.storage.swap("upstream", grant_id, raw, later):
            return later
        # The grant was extended, or has ended, meanwhile.
        again = await context.storage.load("upstream", grant_id, UpstreamLogin)
        if again is None:
            raise LoginEnded
        if again.value.tokens != replaced:
            return again.value  # of a later refresh, by a process that took the expired lease
        raw, later = again.raw, replace(later, expires_at=again.value.expires_at)
    raise ChannelError("the login in the store keeps changing")


def _keep_unsaved(context: ProxyContext, grant_id: str, unsaved: UnsavedLogin) -> None:
    while len(context.unsaved) >= MAX_UNSAVED and grant_id not in context.unsaved:
        context.unsaved.pop(next(iter(context.unsaved)))
    context.unsaved[grant_id] = unsaved


async def _store_unsaved(context: ProxyContext) -> None:
    """Store the tokens of refreshes that could not be stored, of any login."""
    for grant_id, unsaved in list(context.unsaved.items()):
        try:
            found = await context.storage.load("upstream", grant_id, UpstreamLogin)
            if found is not None and found.value.tokens == unsaved.replaced:
                later = replace(unsaved.login, expires_at=found.value.expires_at)
                await _replace(context, grant_id, found.raw, unsaved.replaced, later)
        except (ChannelError, Refused):
            return  # the store fails still
        except LoginEnded:
            pass
        if context.unsaved.get(grant_id) is unsaved:
            del context.unsaved[grant_id]
            with contextlib.suppress(ColonnadeError):
                await context.storage.release("lease", grant_id, unsaved.owner)


async def _renewed_tokens(
    context: ProxyContext, grant: Grant, login: UpstreamLogin
) -> UpstreamTokens:
    """The tokens that are good now: refreshed, or checked if they do not expire."""
    provider, fetcher, now, tokens = context.provider, context.fetcher, context.now, login.tokens
    if tokens.expires_at is None:
        await provider.confirm(fetcher, now, tokens, grant.subject)
        return tokens
    if not tokens.refresh_token:
        raise UpstreamRefused(
            "the login has expired, and cannot be refreshed",
            provider=provider.name,
            error="login_required",
        )
    return await provider.refresh(fetcher, now, tokens)


def _may_stay_unchecked(context: ProxyContext, login: UpstreamLogin) -> bool:
    return context.now - login.checked_at < context.settings.upstream_check_s + MAX_UNCHECKED_S
