"""What `colonnade login`, `logout` and `whoami` do.

A login is kept on this machine, encrypted; every command that speaks to the same address uses it.

Rules: a secret is never typed as a flag: it comes from the environment. No token is ever shown.
"""

import asyncio
import contextlib
import os
from typing import Any, NamedTuple

from colonnade.auth.client.storage import StoredLogin
from colonnade.auth.client.tokens import NO_EXPIRY
from colonnade.auth.urls import display_url
from colonnade.cli.credentials import CommandLogin, KeptLogin, show_page
from colonnade.cli.errors import AUTHORIZATION, Trouble
from colonnade.cli.loader import CONFIGURATIONS, read
from colonnade.cli.options import Terms, is_configuration, reach
from colonnade.cli.session import Desk, show_json, talk, telling
from colonnade.cli.terminal import Screen
from colonnade.client.auth import log_out, stored_login
from colonnade.errors import RemoteError
from colonnade.text import one_line


class Client(NamedTuple):
    """The client that was registered beforehand, and what to ask for, as it was typed."""

    client_id: str = ""
    issuer: str = ""
    secret_env: str = ""
    scopes: tuple[str, ...] = ()
    browser: bool = True


# ---------------------------------------------------------------- login


def login_target(terms: Terms, client: Client) -> int:
    """Log in to a server; the exit code. Raises `Trouble`."""
    terms = _addressed(terms, "login")
    screen = Screen()
    with telling(terms):
        auth = CommandLogin(
            client_id=client.client_id,
            client_secret=_secret(client),
            issuer=client.issuer,
            scopes=client.scopes,
            browser=client.browser,
            on_show=lambda url: show_page(screen, url),
            keep=True,
        )

    async def deed(desk: Desk) -> int:
        with contextlib.suppress(RemoteError):
            await desk.reached.list_tools()  # some servers ask who it is only now
        held = await stored_login(auth, reach(terms).target)
        where = one_line(reach(terms).shown)
        if held is None:
            desk.screen.show(f"{where} asks nobody who they are")
        else:
            desk.screen.show(
                f"logged in to {where}, by {one_line(display_url(held.client.issuer))}"
            )
        return 0

    return talk(terms, deed, auth=auth)


def _secret(client: Client) -> str:
    if not client.secret_env:
        return ""
    if client.secret_env not in os.environ:
        raise Trouble(f"--client-secret-env {client.secret_env}: there is no such variable")
    return os.environ.pop(client.secret_env)  # which the browser would inherit


def _addressed(terms: Terms, verb: str) -> Terms:
    """The same with the address that is meant. Raises `Trouble` where there is none."""
    if is_configuration(terms.target):
        terms = _chosen(terms, verb)
    if not (isinstance(terms.target, str) and "://" in terms.target):
        if isinstance(terms.target, str) and terms.target.lower().endswith(CONFIGURATIONS):
            read(terms.target)  # which says that it is not there
        raise Trouble(
            f"{verb} is for an address; a server that is started here takes what it needs from "
            "its environment: --env NAME"
        )
    return terms


def _chosen(terms: Terms, verb: str) -> Terms:
    """The address of the server that was chosen of a configuration."""
    from colonnade.cli.config_session import address_in
    from colonnade.cli.config_target import Trusting, configuration

    config = configuration(terms, Screen(), Trusting())
    if not terms.server:
        names = one_line(", ".join(config.entries))
        words = f"{terms.target} has several servers; say which: {verb} {terms.target} --server KEY"
        raise Trouble(f"{words}; there are {names}" if names else f"{terms.target} has no servers")
    with telling(terms):
        url = asyncio.run(address_in(config, terms.server))
    return terms._replace(target=url or (terms.server,), server="")


# ---------------------------------------------------------------- whoami, logout


def whoami_target(terms: Terms) -> int:
    """Show the login that is kept for a server; the exit code. Raises `Trouble`."""
    terms = _addressed(terms, "whoami")
    held, screen = _kept(terms), Screen()
    where = one_line(reach(terms).shown)
    if held is None:
        raise Trouble(f"nobody is logged in to {where}; colonnade login {where}", AUTHORIZATION)
    facts = _facts(held)
    if terms.as_json:
        show_json(facts, screen)
    else:
        for name, value in facts.items():
            screen.show(f"{name}: {one_line(str(value))}")
    return 0


def _facts(held: StoredLogin) -> dict[str, Any]:
    """What may be shown of a login: nothing that opens a door."""
    import datetime

    tokens = held.tokens
    end = "when the server says so"
    if tokens.expires_at != NO_EXPIRY:
        at = datetime.datetime.fromtimestamp(tokens.expires_at, datetime.UTC)
        end = at.isoformat(timespec="seconds")
    return {
        "server": held.discovery.server,
        "issuer": tokens.issuer,
        "client": held.client.client_id,
        "scopes": " ".join(tokens.granted),
        "ends": end,
        "renewed": "by itself" if tokens.refresh_token else "by logging in again",
        "bound": "to a key of this machine" if tokens.key else "to nothing",
    }


def _kept(terms: Terms) -> StoredLogin | None:
    with telling(terms):
        return asyncio.run(stored_login(KeptLogin(keep=True), reach(terms).target))


def logout_target(terms: Terms) -> int:
    """Give back and forget the login of a server; the exit code. Raises `Trouble`."""
    terms = _addressed(terms, "logout")
    where = one_line(reach(terms).shown)
    with telling(terms):
        revoked = asyncio.run(log_out(KeptLogin(keep=True), reach(terms).target))
    if revoked is None:
        raise Trouble(f"nobody is logged in to {where}", AUTHORIZATION)
    told = "" if revoked else "; its issuer was not told, and its token ends by itself"
    Screen().show(f"logged out of {where}{told}")
    return 0
