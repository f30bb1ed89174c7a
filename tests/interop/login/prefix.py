"""Logins behind a path prefix: nginx in front of two processes, each request to the next of them.

The server is at /notes/mcp. nginx passes /notes/ on, with the prefix or without it, and the two
documents whose paths are not below the prefix (RFC 8414, 3.1; RFC 9728, 3.1). Every other path is
404, so that a client that leaves the prefix out is noticed.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from auth.provider_replicas import served
from auth.proxied import send_http
from deploy.nginx import AROUND, ATTEMPTS, free_port, running
from interop.login.parts import (
    USERS,
    Address,
    ClientProcess,
    LiveBrowser,
    LoginClient,
    LoginProvider,
    ProxyProcesses,
    client_process,
)
from interop.login.simulated_clock import SimulatedClock

PREFIX = "/notes"
CALLS = 6
SITE = """\
upstream notes {{ {servers} }}
log_format paths '$status $request_method $uri $upstream_addr';
server {{
    listen 127.0.0.1:{port};
    access_log {folder}/paths.log paths;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header Connection "";
    proxy_buffering off;
    location {prefix}/ {{ proxy_pass http://notes{tail}; }}
    location = /.well-known/oauth-authorization-server{prefix} {{ proxy_pass http://notes; }}
    location = /.well-known/oauth-protected-resource{prefix}/mcp {{ proxy_pass http://notes; }}
    location / {{ return 404; }}
}}
"""


@contextlib.asynccontextmanager
async def prefixed(
    provider: LoginProvider, folder: Path, *, keeps_prefix: bool
) -> AsyncGenerator[ProxyProcesses]:
    """Two processes behind nginx."""
    path = f"{PREFIX}/mcp" if keeps_prefix else "/mcp"
    for _ in range(ATTEMPTS):
        port = free_port()
        address = Address(f"http://127.0.0.1:{port}", PREFIX, path)
        with (folder / "log").open("ab") as log:
            async with ProxyProcesses(
                provider, folder / "clock", str(folder / "store.db"), log, address
            ) as processes:
                write_configuration(folder, port, processes.relay.ports, keeps_prefix=keeps_prefix)
                async with running(folder, port) as listens:
                    if listens:
                        yield processes
                        return
    raise RuntimeError((folder / "error.log").read_text("utf-8"))


def write_configuration(
    folder: Path, port: int, ports: Sequence[int], *, keeps_prefix: bool
) -> None:
    """Write the configuration of nginx."""
    servers = " ".join(f"server 127.0.0.1:{one};" for one in ports)
    tail = "" if keeps_prefix else "/"
    site = SITE.format(servers=servers, port=port, folder=folder, prefix=PREFIX, tail=tail)
    (folder / "weather.conf").write_text(site, "utf-8")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(user=user, folder=folder), "utf-8")


async def check_documents(address: Address) -> None:
    """See that each document is where the RFCs say, and names URLs with the prefix."""
    at, well_known = address.origin, f"{address.origin}/.well-known"
    reply = await send_http("POST", address.url, {"content-type": "application/json"}, b"{}")
    assert reply.status == 401, reply.status
    place = f"{well_known}/oauth-protected-resource{PREFIX}/mcp"
    assert f'resource_metadata="{place}"' in reply.header("www-authenticate")
    described = (await send_http("GET", place, {}, b"")).json
    assert described["resource"] == address.url
    assert described["authorization_servers"] == [address.issuer]
    for document in (
        f"{well_known}/oauth-authorization-server{PREFIX}",
        f"{address.issuer}/.well-known/oauth-authorization-server",
        f"{address.issuer}/.well-known/openid-configuration",
    ):
        found = (await send_http("GET", document, {}, b"")).json
        assert found["issuer"] == address.issuer
        urls = [value for name, value in found.items() if name.endswith(("_endpoint", "_uri"))]
        assert len(urls) == 5
        assert all(url.startswith(f"{at}{PREFIX}/oauth/") for url in urls), urls
    keys = await send_http("GET", found["jwks_uri"], {}, b"")
    assert keys.json["keys"]


async def play_prefix(
    clients: Sequence[LoginClient], folder: Path, *, keeps_prefix: bool
) -> dict[str, str]:
    """Let each client log in, call, refresh and call again; what went wrong, or "", by client."""
    clock = SimulatedClock(folder / "clock")
    found: dict[str, str] = {}
    async with (
        served(LoginProvider) as provider,
        prefixed(provider, folder, keeps_prefix=keeps_prefix) as processes,
    ):
        provider.now = clock()
        await check_documents(processes.address)
        for number, client in enumerate(clients):
            for user in USERS:
                home = folder / f"{number}-{user}"
                home.mkdir()
                browser = LiveBrowser(processes.address.origin, provider.url, user)
                async with client_process(client, browser, processes, home) as process:
                    try:
                        await _use(process, clock, provider)
                        found[str(process)] = ""
                    except Exception as error:  # what a client does wrong is in the table
                        found[str(process)] = f"{type(error).__name__}: {error}"
    lines = (folder / "paths.log").read_text("utf-8").splitlines()
    found["paths that are not there"] = ", ".join(
        sorted({line.rpartition(" ")[0] for line in lines if line.startswith("404")})
    )
    return found


async def _use(process: ClientProcess, clock: SimulatedClock, provider: LoginProvider) -> None:
    for _ in range(2):
        await process.do("connect")
        for _ in range(CALLS):
            await process.call()
        await process.do("close")
        await clock.forward(1000)
        provider.now = clock()
    assert process.logins == 1, f"{process.logins} logins"
    assert len(process.pids) == 2, "one process got all requests"
