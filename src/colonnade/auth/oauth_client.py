"""The whole of a client's authorization as one generator, from a refusal to tokens.

    held = yield from authorize(auth, server, refusal, chance)

It looks first at what is kept: somebody else may have logged in, or renewed, meanwhile. Then it
asks the server's documents where to go, renews where it can, and logs in where it must.

Rules: no I/O, no clock, no lock. What was kept of one issuer is nothing to another. A refusal that
logging in again would not change is told at once, so that no server can make a person log in for
ever (CL-30). Only what an issuer itself called invalid is forgotten (CL-31).
"""

from msgspec import Struct

from colonnade.auth.flow import Chance, Flow
from colonnade.auth.flow_discovery import Found, discover
from colonnade.auth.flow_tokens import GrantRefused, Holder, check_dpop, refresh, revoke
from colonnade.auth.keeping import Held, forget, recall, remember
from colonnade.auth.logins import Auth
from colonnade.auth.places import shown
from colonnade.auth.signing import SigningKey, generate, read_key
from colonnade.errors import ChannelError, LoginRequired, ScopeRequired
from colonnade.protocol.httprules_challenges import DPOP, Challenges

# What an issuer calls a refresh token that is over, or a client that it does not know any more.
OVER = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope"})


class Refusal(Struct, frozen=True):
    """A server said no to a request: how, and what it was shown; `fresh` where that had been got
    for this very request."""

    challenges: Challenges
    generation: str = ""
    needs_scope: bool = False
    fresh: bool = False


def authorize(auth: Auth, server: str, refusal: Refusal, chance: Chance) -> Flow[Held]:
    """Tokens that are worth another try. Raises `AuthError`, `ChannelError`."""
    held = yield from recall(server, auth.account)
    if held is not None and _is_newer(held, refusal, chance):
        return held
    _check_hope(held, refusal, server)
    wanted = [auth.issuer] if auth.issuer else []
    if held is not None:
        wanted.append(held.found.issuer.issuer)
    found = yield from discover(server, refusal.challenges, wanted)
    auth.check(found)
    if held is not None and held.found.issuer.issuer != found.issuer.issuer:
        held = None  # the server has moved to another issuer, and what the old one gave stays here
    if held is not None and not refusal.needs_scope and not refusal.fresh:
        renewed = yield from _renewed(auth, held, found, chance)
        if renewed is not None:
            return renewed
    before = held.tokens.requested if held is not None else ()
    scopes = auth.scopes_for(before, refusal.challenges, found)
    bound = _bound(auth, found, refusal.challenges)
    client, tokens = yield from auth.grant(found, chance, bound, scopes)
    new = Held(found, client, tokens)
    yield from remember(new, auth.account)
    return new


def renew(auth: Auth, server: str, generation: str, chance: Chance) -> Flow[Held | None]:
    """Newer tokens before the old ones end, with nobody at hand; None where somebody is needed."""
    held = yield from recall(server, auth.account)
    if held is None or (
        held.tokens.generation != generation and held.tokens.is_fresh(chance.now())
    ):
        return held
    auth.check(held.found)
    if auth.unattended:
        return (yield from _asked_again(auth, held, chance))
    return (yield from _renewed(auth, held, held.found, chance))


def _asked_again(auth: Auth, held: Held, chance: Chance) -> Flow[Held]:
    """A program asks for the same once more: it has no refresh token, and needs none."""
    bound = read_key(held.tokens.key) if held.tokens.key else None
    found, scopes = held.found, held.tokens.requested
    client, tokens = yield from auth.grant(found, chance, bound, scopes)
    new = Held(found, client, tokens)
    yield from remember(new, auth.account)
    return new


def _renewed(auth: Auth, held: Held, found: Found, chance: Chance) -> Flow[Held | None]:
    """The same login with new tokens, or None where that cannot be."""
    if not held.tokens.refresh_token or not held.client.lasts(chance.now()):
        return None
    bound = read_key(held.tokens.key) if held.tokens.key else None
    holder = Holder(held.client, chance, auth.signer, bound)
    try:
        tokens = yield from refresh(found.issuer, holder, held.tokens)
    except GrantRefused as refused:
        if refused.error not in OVER:
            raise
        yield from forget(held)
        return None
    new = Held(found, held.client, tokens)
    yield from remember(new, auth.account)
    return new


def give_back(auth: Auth, held: Held, chance: Chance) -> Flow[bool]:
    """Forget a login, and tell its issuer; whether it took back what it gave. What is kept here
    is gone also where the issuer does not answer."""
    yield from forget(held)
    bound = read_key(held.tokens.key) if held.tokens.key else None
    holder = Holder(held.client, chance, auth.signer, bound)
    try:
        taken = yield from revoke(held.found.issuer, holder, held.tokens.refresh_token)
        other = yield from revoke(held.found.issuer, holder, held.tokens.access_token)
    except ChannelError:
        return False
    return other and (taken or not held.tokens.refresh_token)


def _is_newer(held: Held, refusal: Refusal, chance: Chance) -> bool:
    """Whether what is kept is not what was refused, and may do better."""
    tokens = held.tokens
    if tokens.generation == refusal.generation or not tokens.lasts(chance.now()):
        return False
    needed = refusal.challenges.scopes or ()
    return not refusal.needs_scope or set(needed) <= set(tokens.requested)


def _check_hope(held: Held | None, refusal: Refusal, server: str) -> None:
    """Raise where asking again would only give the same."""
    if refusal.needs_scope:
        needed = refusal.challenges.scopes or ()
        asked = held.tokens.requested if held is not None else ()
        if not set(needed) - set(asked):
            named = " ".join(needed)[:200] or "more"
            raise ScopeRequired(
                f"{shown(server)} wants the scope {named!r}, which was asked for and is not "
                "enough; the account that logged in may not do this"
            )
    elif refusal.fresh and (held is None or not held.tokens.renewed):
        raise LoginRequired(
            f"{shown(server)} refuses the token that its own issuer has just given"
            f"{_said(refusal.challenges)}; "
            "its operator has to look at that"
        )


def _said(challenges: Challenges) -> str:
    return f" ({challenges.reason})" if challenges.reason else ""


def _bound(auth: Auth, found: Found, challenges: Challenges) -> SigningKey | None:
    """A key to bind tokens to, where the server or the program wants that."""
    if not (auth.dpop or found.dpop_required or challenges.wants_dpop):
        return None
    asked = challenges.get(DPOP)
    check_dpop(found.issuer, asked.parameters.get("algs") if asked is not None else None)
    return generate()
