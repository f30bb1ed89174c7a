"""Who we are to one server, shown with each request: the shell around the flows.

Rules: one renewal at a time, in all tasks and, by the vault, in all processes; nobody who has a
good token waits for one. A request is sent again only where the server has refused it unread, and
only a few times. Tokens go to the server they were got for, and nowhere else. What is secret is in
no error, no log and no `repr`.
"""

import asyncio
import contextlib
import inspect
import logging
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from colonnade.auth.client.discovery import Found, discover
from colonnade.auth.client.login import Auth, Login
from colonnade.auth.client.loopback import Loopback, open_browser
from colonnade.auth.client.steps import (
    Chance,
    Erase,
    Fetch,
    Flow,
    Listen,
    Load,
    Obtain,
    Reply,
    Save,
    Step,
    Visit,
)
from colonnade.auth.client.storage import Held, Vault, forget, lease_name, recall, remember
from colonnade.auth.client.tokens import (
    GrantRefused,
    Holder,
    Tokens,
    check_dpop,
    proof,
    refresh,
    revoke,
)
from colonnade.auth.jose import SigningKey, generate, read_private_key
from colonnade.auth.ssrf import Fetcher, is_this_machine
from colonnade.auth.urls import canonical, origin, parts_of, secure, shown
from colonnade.errors import (
    AuthError,
    CannotConnect,
    CannotFetch,
    ChannelError,
    ColonnadeError,
    LoginRequired,
    ScopeRequired,
)
from colonnade.ports import HttpSend, Shown
from colonnade.protocol.http.challenges import DPOP, Challenges, read_challenges

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
    bound = read_private_key(held.tokens.key) if held.tokens.key else None
    found, scopes = held.found, held.tokens.requested
    client, tokens = yield from auth.grant(found, chance, bound, scopes)
    new = Held(found, client, tokens)
    yield from remember(new, auth.account)
    return new


def _renewed(auth: Auth, held: Held, found: Found, chance: Chance) -> Flow[Held | None]:
    """The same login with new tokens, or None where that cannot be."""
    if not held.tokens.refresh_token or not held.client.lasts(chance.now()):
        return None
    bound = read_private_key(held.tokens.key) if held.tokens.key else None
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
    bound = read_private_key(held.tokens.key) if held.tokens.key else None
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


log: logging.Logger = logging.getLogger("colonnade.auth")

# Logins that one request may cause: one, and a step up, and one that the step up was short of.
MAX_LOGINS = 3
# New nonces for one request: a server changes them now and then, not with every word.
MAX_NONCES = 2
# How often we look whether another process has finished.
LOOK_S = 0.1
# For another process that is at it; a person may sit in front of it.
OTHERS_S = 600.0
# After a renewal that failed while the old token is still good.
PAUSE_S = 5.0
# 256 bits, as text: a verifier of PKCE has 43 characters at least.
SECRET_BYTES: Final = 48

T = TypeVar("T")


class Passport:
    """What one client shows to one server."""

    def __init__(
        self,
        auth: Auth,
        server: str,
        send: HttpSend,
        vault: Vault,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = parts_of(server, "the server's URL")
        self._auth = auth
        self._server = canonical(server)
        self._origin = origin(server)
        self._vault = vault
        self._chance = Chance(clock, lambda: secrets.token_urlsafe(SECRET_BYTES))
        here = is_this_machine(parts.hostname or "")
        self._fetcher = Fetcher(send, loopback=here, networks=auth.networks)
        self._held: Held | None = None
        self._key: SigningKey | None = None
        self._looked = False
        self._work: asyncio.Task[Held | None] | None = None
        self._quiet_until = 0.0
        # What could not be got, for whom, and until when it is not tried again.
        self._failed: tuple[str, bool, ColonnadeError, float] | None = None
        # The server's own; those of its issuer live in a flow.
        self._nonce = ""

    def __repr__(self) -> str:
        return f"Passport({shown(self._server)})"

    # ------------------------------------------------------------ what is shown

    def at_hand(self, method: str, url: str) -> Shown | None:
        """The same as `show`, where there is nothing to wait for; else None."""
        held = self._held
        if held is not None and held.tokens.is_fresh(self._chance.now()):
            return self._shown(held, method, url)
        return self._shown(None, method, url) if held is None and self._looked else None

    async def show(self, method: str, url: str) -> Shown:
        """The headers that say who we are; none where nobody has asked yet."""
        return self._shown(await self._current(), method, url)

    def _shown(self, held: Held | None, method: str, url: str) -> Shown:
        if held is None or origin(url) != self._origin:
            return Shown("", ())
        tokens = held.tokens
        if tokens.token_type != DPOP:
            return Shown(tokens.generation, (("authorization", f"Bearer {tokens.access_token}"),))
        key, token = self._bound(tokens), tokens.access_token
        signed = proof(key, self._chance, method, url, nonce=self._nonce, token=token)
        lines = (("authorization", f"DPoP {token}"), ("dpop", signed))
        return Shown(tokens.generation, lines, nonce=self._nonce)

    def _bound(self, tokens: Tokens) -> SigningKey:
        if self._key is None:
            self._key = read_private_key(tokens.key)
        return self._key

    async def _current(self) -> Held | None:
        """What we hold, renewed where it is about to end."""
        if not self._looked:
            self._hold(await self._drive(recall(self._server, self._auth.account)))
            self._looked = True
        held, now = self._held, self._chance.now()
        if held is None or held.tokens.is_fresh(now):
            return held
        if held.tokens.lasts(now):
            # Nobody waits for it: the old one is good until the new one is there.
            if self._work is None and now >= self._quiet_until:
                self._begin(self._renew(held.tokens.generation))
            return held
        if self._work is None:
            self._begin(self._renew(held.tokens.generation))
        await self._joined()
        latest = self._held
        return latest if latest is not None and latest.tokens.lasts(self._chance.now()) else None

    def _hold(self, held: Held | None) -> None:
        self._held = held
        self._key = None

    async def held(self) -> Held | None:
        """What is kept for this server, as it is."""
        return await self._drive(recall(self._server, self._auth.account))

    async def log_out(self) -> bool | None:
        """Give back and forget what is kept; None where nothing is."""
        held = await self.held()
        if held is None:
            return None
        flow = give_back(self._auth, held, self._chance)
        return await self._drive(flow)

    # ------------------------------------------------------------ what is refused

    async def refused(
        self, shown_before: Sequence[Shown], status: int, lines: Sequence[str], nonce: str
    ) -> bool:
        """Whether to send a request again that was refused (401, 403), after what was shown each
        time so far. Raises `AuthError` where that would not help, `ChannelError` where somebody
        does not answer."""
        last = shown_before[-1]
        challenges = read_challenges(lines)
        bound = challenges.get(DPOP)
        if status == 401 and bound is not None and bound.error == "use_dpop_nonce" and last.lines:
            nonces = sum(one.generation == last.generation for one in shown_before)
            self._nonce = nonce
            return bool(nonce) and nonce != last.nonce and nonces <= MAX_NONCES
        asked = [one for one in challenges.token_challenges if one.error == "insufficient_scope"]
        if status == 403 and not asked:
            return False
        generations = list(dict.fromkeys(one.generation for one in shown_before))
        if len(generations) > MAX_LOGINS:
            kind = ScopeRequired if status == 403 else LoginRequired
            said = f" ({challenges.reason})" if challenges.reason else ""
            words = f"{shown(self._server)} goes on refusing after {MAX_LOGINS} logins{said}"
            raise _with_status(kind(f"{words}; giving up"), status)
        fresh = len(generations) > 1
        refusal = Refusal(challenges, last.generation, status == 403, fresh)
        await self._renewed_for(refusal, status)
        return True

    async def _renewed_for(self, refusal: Refusal, status: int) -> None:
        """Get something else to show than what was refused."""
        try:
            if self._work is not None:
                await self._joined()
                if self._generation not in ("", refusal.generation) and not refusal.needs_scope:
                    return
            if self._work is None:
                self._check_failed(refusal)
                self._begin(self._authorize(refusal))
            await self._joined()
        except AuthError as error:
            if self._work is None:
                until = self._chance.now() + PAUSE_S
                self._failed = (refusal.generation, refusal.needs_scope, error, until)
            raise _with_status(error, status) from None

    def _check_failed(self, refusal: Refusal) -> None:
        """Raise what came of the same a moment ago: a thousand requests that were refused at once
        must not open a thousand pages, one after the other."""
        if self._failed is None or self._chance.now() >= self._failed[3]:
            self._failed = None
        elif self._failed[:2] == (refusal.generation, refusal.needs_scope):
            raise self._failed[2].copy()

    @property
    def _generation(self) -> str:
        return self._held.tokens.generation if self._held is not None else ""

    def heard(self, nonce: str) -> None:
        """The server gave a nonce for the next proof."""
        self._nonce = nonce

    # ------------------------------------------------------------ one at a time

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[Held | None] = asyncio.get_running_loop().create_task(work)
        self._work = task
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[Held | None]") -> None:
        self._work = None
        if task.cancelled():
            return
        error, held = task.exception(), self._held
        now = self._chance.now()
        if error is None and task.result() is None and held is not None and held.tokens.lasts(now):
            self._quiet_until = held.tokens.expires_at  # nothing newer, and this is still good
        elif error is None:
            self._hold(task.result())
        else:
            self._quiet_until = self._chance.now() + PAUSE_S
            log.debug("%s: no new token: %s", shown(self._server), error)

    async def _joined(self) -> None:
        """Wait for what is under way, in a task of its own: whoever gives up stops nobody else."""
        task = self._work
        if task is None:
            return
        await asyncio.wait([task])
        if task.cancelled():
            raise CannotConnect("the client was closed while it logged in")
        error = task.exception()
        if isinstance(error, ColonnadeError):
            raise error.copy()
        if error is not None:
            raise error

    async def _renew(self, generation: str) -> Held | None:
        def is_done(held: Held | None) -> bool:
            return held is not None and held.tokens.generation != generation

        flow = renew(self._auth, self._server, generation, self._chance)
        return await self._alone(flow, is_done)

    async def _authorize(self, refusal: Refusal) -> Held | None:
        def is_done(held: Held | None) -> bool:
            newer = held is not None and held.tokens.generation != refusal.generation
            return newer and not refusal.needs_scope

        flow = authorize(self._auth, self._server, refusal, self._chance)
        return await self._alone(flow, is_done)

    async def _alone(self, flow: Flow[T], is_done: Callable[[Held | None], bool]) -> Any:
        """Drive a flow while no other process does; or take what the other one has got."""
        name = lease_name(self._server, self._auth.account)
        latest = asyncio.get_running_loop().time() + OTHERS_S
        try:
            while asyncio.get_running_loop().time() < latest:
                async with self._vault.lease(name) as ours:
                    if ours:
                        return await self._drive(flow)
                held = await self._drive(recall(self._server, self._auth.account))
                if is_done(held):
                    return held
                await asyncio.sleep(LOOK_S)
            raise LoginRequired("another process has been logging in for too long; try again")
        finally:
            flow.close()

    async def close(self) -> None:
        """Nobody shows anything any more."""
        task = self._work
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._vault.close()

    # ------------------------------------------------------------ what a flow wants

    async def _drive(self, flow: Flow[T]) -> T:
        page = Page(self._auth)
        try:
            step = next(flow)
            while True:
                try:
                    outcome = await self._do(step, page)
                except ColonnadeError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as ended:
            return ended.value
        finally:
            await page.close()

    async def _do(self, step: Step, page: "Page") -> Any:
        match step:
            case Fetch():
                return await self._fetch(step)
            case Load():
                return await self._vault.load(step.name)
            case Save():
                return await self._vault.save(step.name, step.value)
            case Erase():
                return await self._vault.erase(step.name)
            case Listen():
                return await page.listen(step.again)
            case Visit():
                return await page.visit(step.url, step.state, self._server)
            case Obtain():
                return await _called(step.what)

    async def _fetch(self, step: Fetch) -> Reply:
        try:
            fetched = await self._fetcher.fetch(step.method, step.url, step.headers, step.body)
        except CannotFetch as error:
            raise CannotConnect(f"{error}: {error.why}") from None
        return Reply(fetched.status, tuple(fetched.headers.items()), fetched.body)


class Page:
    """A person in front of a page of one login: where they are sent, and how they come back."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._loopback: Loopback | None = None

    async def listen(self, again: str) -> str:
        """The redirect URI of this login."""
        auth = self._login()
        if auth.on_visit is not None:
            return auth.redirect_uri
        if self._loopback is None:
            self._loopback = Loopback()
            return await self._loopback.open(again, insist=bool(auth.redirect_uri))
        return again

    async def visit(self, url: str, state: str, server: str) -> str:
        """Send the person to a page; the query that they came back with."""
        auth = self._login()
        secure(url.partition("?")[0], "the page to log in at")
        if auth.on_visit is not None:
            back = await _called(auth.on_visit, url)
            if not isinstance(back, str):
                raise LoginRequired("nobody logged in: on_visit gave no URL")
            return back.partition("#")[0].partition("?")[2] or back
        assert self._loopback is not None
        waiting = asyncio.ensure_future(self._loopback.wait(state, auth.login_s))
        try:
            await asyncio.sleep(0)  # so that it waits before anybody can come
            (auth.on_show or _tell)(url)
            if auth.browser:
                await open_browser(url)
            return await waiting
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, ColonnadeError):
                await waiting

    def _login(self) -> Login:
        auth = self._auth
        if not isinstance(auth, Login):
            raise LoginRequired("somebody has to log in, and this is a program")
        return auth

    async def close(self) -> None:
        """They need not come back any more."""
        if self._loopback is not None:
            await self._loopback.close()


def _tell(url: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody listens
        sys.stderr.write(f"colonnade: to log in, open this page:\n{url}\n")
        sys.stderr.flush()


async def _called(what: Callable[..., Any], *arguments: Any) -> Any:
    """What a program's function gives, in a thread where it would block us."""
    if inspect.iscoroutinefunction(what):
        return await what(*arguments)
    value = await asyncio.to_thread(what, *arguments)
    return await value if inspect.isawaitable(value) else value


def _with_status(error: AuthError, status: int) -> AuthError:
    error.status = status
    return error
