"""`colonnade issuer`: an authorization server for development, so that a server has a login.

Rules: it asks for no password, so it binds a loopback address and no other. Standard output has the
URL and the line to paste; the warning is on standard error.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from colonnade.cli.errors import INTERRUPTED, UNREACHABLE, CliError, Reporter
from colonnade.cli.options import Action
from colonnade.errors import LocalProtocolError

if TYPE_CHECKING:
    from colonnade.auth.server.issuer import DevelopmentIssuer
    from colonnade.server.server import Server
    from colonnade.transport.http_client.pool import HttpPool
    from colonnade.transport.http_server.custom_routes import HttpRequest, HttpResponse
    from colonnade.transport.http_server.runner import HttpRunner

HOST: Final = "127.0.0.1"
PORT: Final = 9000
# In the line to paste: where `colonnade serve` serves.
RESOURCE: Final = "http://127.0.0.1:8000/mcp"


@click.command(
    epilog="""\b
Examples:
  colonnade issuer                               one user, ann
  colonnade issuer --user ann --user bob         a login page with two buttons
  colonnade issuer --auto --ttl-s 60             no page, and tokens that expire soon
"""
)
@click.option(
    "--host",
    metavar="HOST",
    default=HOST,
    show_default=True,
    help="Loopback address to bind.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=PORT,
    help=f"Port to bind; 0 for any that is free.  [default: {PORT}]",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    help="User who can sign in. May be repeated.  [default: ann]",
)
@click.option(
    "--ttl-s",
    type=float,
    metavar="SECONDS",
    default=3600.0,
    help="Lifetime of access tokens.  [default: 3600]",
)
@click.option("--auto", is_flag=True, help="Sign in the first user without a page.")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Origin whose web pages may log in, as http://localhost:6274 (CORS). May be repeated.",
)
def issuer(
    host: str,
    port: int,
    users: tuple[str, ...],
    ttl_s: float,
    auto: bool,
    origins: tuple[str, ...],
) -> Action:
    """Serve a login for development: an authorization server that asks for no password.

    Not for production: everything that can reach it signs in as any user, so it binds a loopback
    address only. Clients register themselves, or have a client ID metadata document. Everything is
    in memory, and forgotten when it ends.
    """
    return partial(serve_issuer, host, port, users or ("ann",), ttl_s, auto, origins)


def serve_issuer(
    host: str,
    port: int,
    users: tuple[str, ...],
    ttl_s: float,
    auto: bool,
    origins: tuple[str, ...],
) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code. Raises `CliError`."""
    from colonnade.auth.server.issuer import DevelopmentIssuer
    from colonnade.auth.ssrf import is_loopback_host
    from colonnade.transport.http_client.pool import HttpPool
    from colonnade.transport.http_server.runner import AddressError, bind, run

    if not is_loopback_host(host):
        raise CliError(
            f"{host} is not a loopback address, and this issuer asks for no password",
            hint="leave out --host; for other machines use an identity provider",
        )
    try:
        bound = bind(host, port)
    except AddressError as error:
        raise CliError(str(error), UNREACHABLE) from None
    with bound:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{bound.getsockname()[1]}"

        def started(_: "HttpRunner") -> None:
            announce(development)

        try:
            development = DevelopmentIssuer(url, users, ttl_s=ttl_s, auto=auto)
            app = issuer_server(development, HttpPool()).asgi()
            interrupted = run(app, host, port, bound=bound, started=started, origins=origins)
        except LocalProtocolError as error:
            raise CliError(str(error)) from None
    return INTERRUPTED if interrupted else 0


def announce(issuer: "DevelopmentIssuer") -> None:
    """Print where the issuer is, and how a server uses it."""
    from colonnade.transport.http_server.runner import print_line

    Reporter().info("this login is for development, not for production: it asks for no password")
    print_line(f"issuer on {issuer.url}, users: {', '.join(issuer.users)}")
    print_line(f'auth=Protection("{RESOURCE}", Jwt("{issuer.url}"))')


def issuer_server(issuer: "DevelopmentIssuer", pool: "HttpPool") -> "Server":
    """A server whose HTTP routes are the endpoints of the issuer; it has no tools."""
    from colonnade.auth.server.issuer import ENDPOINTS, IssuerRequest
    from colonnade.auth.ssrf import Fetcher
    from colonnade.server.server import Server
    from colonnade.transport.http_server.custom_routes import HttpResponse

    server = Server("issuer")
    fetcher = Fetcher(pool.send)

    async def respond(request: "HttpRequest") -> "HttpResponse":
        query = request.scope.get("query_string", b"").decode("latin-1")
        body = await request.body() if request.method == "POST" else b""
        found = await issuer.respond(
            IssuerRequest(request.method, request.path, query, body), fetcher
        )
        return HttpResponse(found.body, found.status, found.headers, found.media_type)

    for path, methods in ENDPOINTS.items():
        server.route(path, methods=methods)(respond)
    return server
