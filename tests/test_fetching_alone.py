"""Which modules may open connections: a URL that came from outside is fetched by the guarded fetcher.

SF-01. A new module that opens connections fails here until it is decided what it fetches:
a URL of the user's own choice, or one that came from outside, which is for `auth/ssrf.py`.
"""

import ast
from pathlib import Path

import colonnade
from layers import Module, given, imports, read

COLONNADE = read(Path(colonnade.__file__).resolve().parent)

# The HTTP client: its own folder, and who puts it together with the fetcher or a user's own URL.
HTTP_CLIENT = "colonnade.transport.http_client.pool"
CLIENT_OF = {
    "transport.http_client.endpoint",  # a user's URL, and the endpoint of the same origin that it names
    "transport.http_client.conversation",  # a user's URL
    "transport.http_client.resumption",  # a user's URL
    "transport.http_client.legacy_sse",  # a user's URL
    "client.transports",  # makes the pool for a user's URL
    "client.auth",  # gives a pool to the fetcher, for a login
    "cli.commands.issuer",  # gives a pool to the fetcher, for client ID metadata documents
    "cli.doctor.network",  # a user's URL, and the path /mcp beside it; documents by the fetcher
    "cli.doctor.targets",  # makes the pool for both
    "host.agent.openai_model",  # a user's URL, of the endpoint of a model
    "host.credentials",  # gives a pool to the fetcher, for the login of a caller
    "server.auth",  # gives a pool to the fetcher, for issuers
}
# Who has the seam in hand, and gives it to the fetcher.
HANDS = {"auth.client.credentials", "client.auth", "client.transports"}
# Other ways to a socket: libraries, and the calls of a loop.
LIBRARIES = ("urllib.request", "http.client", "ftplib", "smtplib", "xmlrpc", "telnetlib", "aiohttp")
CALLS = {"create_connection", "open_connection", "sock_connect", "connect_ex", "getaddrinfo"}
CALLS_OF = {
    "auth.ssrf": {"getaddrinfo"},
    "store.redis": {
        "open_connection"
    },  # of its own connections to the Redis server of the operator
    "cli.doctor.network": {"getaddrinfo"},  # of a user's URL, to say what is wrong with its name
    "transport.http_server.runner": {"getaddrinfo"},  # to serve on
    "transport.http_client.connect": {
        "create_connection",
        "getaddrinfo",
        "sock_connect",
    },  # of the pool
}
SEAM = "colonnade.ports.HttpSend"


def touching(modules: dict[str, Module]) -> set[str]:
    """The modules that name the HTTP client."""
    return {
        module.name
        for module in modules.values()
        for found in imports(module)
        if found.target.startswith(HTTP_CLIENT) and module.name != "transport.http_client.pool"
    }


def calling(modules: dict[str, Module]) -> dict[str, set[str]]:
    """The modules that make connections of their own, and how."""
    found: dict[str, set[str]] = {}
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                if name in CALLS:
                    found.setdefault(module.name, set()).add(name)
        for one in imports(module):
            if one.target.startswith(LIBRARIES):
                found.setdefault(module.name, set()).add(one.target)
    return found


def holding(modules: dict[str, Module]) -> set[str]:
    """The modules that name the seam through which requests go to an address."""
    return {
        module.name
        for module in modules.values()
        for found in imports(module)
        if found.target == SEAM
    }


def test_sf_01_only_these_modules_know_the_http_client() -> None:
    assert touching(COLONNADE) == CLIENT_OF


def test_sf_01_only_these_modules_make_connections() -> None:
    assert calling(COLONNADE) == CALLS_OF


def test_sf_01_only_the_fetcher_sends_to_an_address() -> None:
    assert holding(COLONNADE) == {"auth.ssrf", *HANDS}
    sending = [
        node
        for name in HANDS
        for node in ast.walk(COLONNADE[name].tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "send"
    ]
    assert sending == []


def test_a_module_that_goes_around_the_fetcher_is_found() -> None:
    bad = given(
        auth__keys="import urllib.request",
        auth__flow="from colonnade.ports import HttpSend",
        client__icons="def f():\n    from colonnade.transport.http_client.pool import HttpPool",
        host__skills="async def f(loop): await loop.create_connection(None, 'a', 1)",
    )
    assert touching(bad) == {"client.icons"}
    assert holding(bad) == {"auth.flow"}
    assert calling(bad) == {
        "auth.keys": {"urllib.request"},
        "host.skills": {"create_connection"},
    }
