"""`colonnade login`, `logout` and `whoami`: OAuth credentials of a server.

Credentials are stored on this machine, encrypted; every command that uses the same URL uses them.

Rules: a secret is never an option: it comes from the environment. No token is ever printed.
"""

import asyncio
import contextlib
import os
from functools import partial
from typing import Any, NamedTuple

import click

from colonnade.auth.client.storage import StoredLogin
from colonnade.auth.client.tokens import NO_EXPIRY
from colonnade.auth.urls import display_url
from colonnade.cli.connections import CommandLogin, NonInteractiveLogin, show_login_url
from colonnade.cli.errors import AUTHORIZATION, CliError
from colonnade.cli.loader import CONFIG_SUFFIXES, parse_server_file
from colonnade.cli.options import (
    Action,
    ConnectionOptions,
    ServerCommand,
    connection_options,
    is_configuration,
    resolve_target,
    take_connection_options,
)
from colonnade.cli.session import CommandSession, cli_errors, run_connected, show_json
from colonnade.cli.terminal import Terminal
from colonnade.client.auth import log_out, stored_login
from colonnade.errors import RemoteError
from colonnade.text import one_line


class LoginOptions(NamedTuple):
    """The OAuth client that was registered in advance, and the scopes to request."""

    client_id: str = ""
    issuer: str = ""
    secret_env: str = ""
    scopes: tuple[str, ...] = ()
    browser: bool = True


# ---------------------------------------------------------------- click commands


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade login https://example.com/mcp
  colonnade login https://example.com/mcp --no-browser
  colonnade login https://example.com/mcp --client-id ID --issuer https://login.example.com
""",
)
@connection_options
@click.option("--client-id", default="", metavar="ID", help="OAuth client registered in advance.")
@click.option("--issuer", default="", metavar="URL", help="Authorization server of that client.")
@click.option(
    "--client-secret-env",
    "secret_env",
    default="",
    metavar="VARIABLE",
    help="Environment variable with the secret of that client.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="Additional scope to request. May be repeated.",
)
@click.option("--no-browser", is_flag=True, help="Only print the URL of the login page.")
def login(
    client_id: str,
    issuer: str,
    secret_env: str,
    scopes: tuple[str, ...],
    no_browser: bool,
    **options: Any,
) -> Action:
    """Log in to a server in the browser, and store the credentials for all commands.

    TARGET is a URL, or a configuration file and --server. Credentials are stored encrypted, in a
    directory that only you can read; COLONNADE_HOME changes the directory.
    """
    given = LoginOptions(client_id, issuer, secret_env, scopes, not no_browser)
    return partial(login_target, take_connection_options(options), given)


@click.command(cls=ServerCommand, epilog="Example: colonnade logout https://example.com/mcp")
@connection_options
def logout(**options: Any) -> Action:
    """Revoke the tokens that are stored for a server, and delete them.

    The client that was registered for the login is deleted, too: the next login registers another.

    TARGET is a URL, or a configuration file and --server.
    """
    return partial(logout_target, take_connection_options(options))


@click.command(cls=ServerCommand, epilog="Example: colonnade whoami https://example.com/mcp --json")
@connection_options
def whoami(**options: Any) -> Action:
    """Show the credentials that are stored for a server: issuer, client, scopes, expiry.

    TARGET is a URL, or a configuration file and --server. No request is sent, and no token is
    printed.
    """
    return partial(whoami_target, take_connection_options(options))


# ---------------------------------------------------------------- login


def login_target(options: ConnectionOptions, given: LoginOptions) -> int:
    """Log in to a server; return the exit code. Raises `CliError`."""
    options = _with_url(options, "login")
    terminal = Terminal()
    with cli_errors(options):
        auth = CommandLogin(
            client_id=given.client_id,
            client_secret=_secret(given),
            issuer=given.issuer,
            scopes=given.scopes,
            browser=given.browser,
            on_show=lambda url: show_login_url(terminal, url),
            keep=True,
        )

    async def action(session: CommandSession) -> int:
        with contextlib.suppress(RemoteError):
            await session.servers.list_tools()  # some servers respond with 401 only now
        held = await stored_login(auth, resolve_target(options).target)
        where = one_line(resolve_target(options).shown)
        if held is None:
            session.terminal.show(f"{where} does not require authentication")
        else:
            session.terminal.show(
                f"logged in to {where}, by {one_line(display_url(held.client.issuer))}"
            )
        return 0

    return run_connected(options, action, auth=auth)


def _secret(given: LoginOptions) -> str:
    if not given.secret_env:
        return ""
    if given.secret_env not in os.environ:
        raise CliError(f"--client-secret-env {given.secret_env}: the variable is not set")
    return os.environ.pop(given.secret_env)  # the browser would inherit it


def _with_url(options: ConnectionOptions, command: str) -> ConnectionOptions:
    """The options with a URL as target. Raises `CliError` if there is none."""
    if is_configuration(options.target):
        options = _with_server_url(options, command)
    if not (isinstance(options.target, str) and "://" in options.target):
        if isinstance(options.target, str) and options.target.lower().endswith(CONFIG_SUFFIXES):
            parse_server_file(options.target)  # raises: there is no such file
        raise CliError(
            f"{command} is for URLs",
            hint="a server that is started as a process takes its secrets from --env NAME",
        )
    return options


def _with_server_url(options: ConnectionOptions, command: str) -> ConnectionOptions:
    """The options with the URL of the server that `--server` chooses."""
    from colonnade.cli.config_target import TrustPrompt, configuration
    from colonnade.cli.connections import url_in

    config = configuration(options, Terminal(), TrustPrompt())
    if not options.server:
        names = one_line(", ".join(config.entries))
        if not names:
            raise CliError(f"{options.target} has no servers")
        raise CliError(
            f"{options.target} has several servers",
            hint=f"choose one: {command} {options.target} --server KEY; servers are {names}",
        )
    with cli_errors(options):
        url = asyncio.run(url_in(config, options.server))
    return options._replace(target=url or (options.server,), server="")


# ---------------------------------------------------------------- whoami, logout


def whoami_target(options: ConnectionOptions) -> int:
    """Show the stored credentials of a server; return the exit code. Raises `CliError`."""
    options = _with_url(options, "whoami")
    held, terminal = _stored(options), Terminal()
    where = one_line(resolve_target(options).shown)
    if held is None:
        raise CliError(
            f"not logged in to {where}", AUTHORIZATION, hint=f"run colonnade login {where}"
        )
    facts = _facts(held)
    if options.as_json:
        show_json(facts, terminal)
    else:
        for name, value in facts.items():
            terminal.show(f"{name}: {one_line(str(value))}")
    return 0


def _facts(held: StoredLogin) -> dict[str, Any]:
    """What is shown of stored credentials: nothing that is secret."""
    import datetime

    tokens = held.tokens
    expires = "unknown"
    if tokens.expires_at != NO_EXPIRY:
        at = datetime.datetime.fromtimestamp(tokens.expires_at, datetime.UTC)
        expires = at.isoformat(timespec="seconds")
    return {
        "server": held.discovery.server,
        "issuer": tokens.issuer,
        "client": held.client.client_id,
        "scopes": " ".join(tokens.granted),
        "expires": expires,
        "refresh": "automatic" if tokens.refresh_token else "by logging in again",
        "bound": "to a key of this machine (DPoP)" if tokens.key else "no",
    }


def _stored(options: ConnectionOptions) -> StoredLogin | None:
    with cli_errors(options):
        return asyncio.run(
            stored_login(NonInteractiveLogin(keep=True), resolve_target(options).target)
        )


def logout_target(options: ConnectionOptions) -> int:
    """Revoke and delete the credentials of a server; return the exit code. Raises `CliError`."""
    options = _with_url(options, "logout")
    where = one_line(resolve_target(options).shown)
    with cli_errors(options):
        found = asyncio.run(log_out(NonInteractiveLogin(keep=True), resolve_target(options).target))
    if not found.logged_in:
        if not found.registered:
            raise CliError(f"not logged in to {where}", AUTHORIZATION)
        Terminal().show(f"not logged in to {where}; deleted the client registration")
        return 0
    revoked = found.revoked
    note = "" if revoked else "; the token could not be revoked, and is valid until it expires"
    Terminal().show(f"logged out of {where}{note}")
    return 0
