"""Credentials of the commands: the login stored on this machine, or a login in the browser.

Rules: a browser is opened only if there is a terminal; otherwise the error says what to run.
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
from colonnade.cli.errors import TOKEN_OPTION
from colonnade.cli.terminal import Terminal
from colonnade.errors import LoginRequired


class CommandLogin(Login):
    """The login of the command: one for each URL, whichever OAuth client it was made with."""

    @property
    def account(self) -> str:
        """One account for each URL."""
        return ""


class NonInteractiveLogin(CommandLogin):
    """The same without a user: the stored login is used and refreshed."""

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Refuse a new login."""
        where = display_url(discovery.server)
        hint = f"log in: colonnade login {where}, or send a token: {TOKEN_OPTION}"
        raise LoginRequired(f"{where} requires authentication", hint=hint)
        yield


def login_for(url: str, terminal: Terminal, *, ask: bool = True) -> Auth | None:
    """How commands log in to a URL, if it asks for it; None for a URL that credentials are never
    sent to. Without `ask` no browser is opened."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        return None
    if not terminal.can_ask or not ask:
        return NonInteractiveLogin(keep=True)
    return CommandLogin(keep=True, on_show=lambda url: show_login_url(terminal, url))


def show_login_url(terminal: Terminal, url: str) -> None:
    """Print the URL of the login page."""
    terminal.note(f"colonnade: to log in, open this page if it does not open by itself:\n{url}\n")
