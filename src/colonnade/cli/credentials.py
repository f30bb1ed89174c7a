"""How the commands log in: with what is kept on this machine, or in a browser.

Rules: nobody's browser is opened where nobody sits in front of it: then it is said what to type.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.login import Auth, Login
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import Flow, FlowContext
from colonnade.auth.client.tokens import Tokens
from colonnade.auth.jose import SigningKey
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import display_url
from colonnade.cli.errors import BY_HEADER
from colonnade.cli.terminal import Screen
from colonnade.errors import LoginRequired


class CommandLogin(Login):
    """A login of the command: the one of this address, whichever client it was made with."""

    @property
    def account(self) -> str:
        """There is one for each address."""
        return ""


class KeptLogin(CommandLogin):
    """The same where nobody can be asked: what is kept is used and renewed."""

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Somebody has to log in, and not here."""
        where = display_url(discovery.server)
        hint = f"log in: colonnade login {where}, or send a token: {BY_HEADER}"
        raise LoginRequired(f"{where} wants to know who you are", hint=hint)
        yield


def login_for(url: str, screen: Screen, *, ask: bool = True) -> Auth | None:
    """How every command that speaks to an address logs in, where it must; None for an address
    that nothing secret is sent to. Without `ask` no browser is opened."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        return None
    if not screen.can_ask or not ask:
        return KeptLogin(keep=True)
    return CommandLogin(keep=True, on_show=lambda url: show_page(screen, url))


def show_page(screen: Screen, url: str) -> None:
    """Tell a person where to log in."""
    screen.note(f"colonnade: to log in, open this page, if it does not open by itself:\n{url}\n")
