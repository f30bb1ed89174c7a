"""A real nginx with the configuration of `examples/deploy`, and a way to it by its public name.

Rules: all of it is on loopback, in a folder of the test, and is ended with the test. Of the
configuration nothing is changed but ports, and where the certificate is.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from certificates import Authority

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
NAME = "mcp.example.com"
START_S = 30.0
# Another process may take a port between our look and nginx's.
ATTEMPTS = 5

AROUND = """\
{user}
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/weather.conf;
}}
"""


def program() -> str:
    """Where nginx is; Debian keeps it where only root looks."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which("nginx", path=path)
    if found is None:
        raise RuntimeError("there is no nginx here; scripts/deploy says how to get it")
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@dataclass
class NginxProxy:
    """An nginx that runs: its ports, and whom to trust."""

    plain: int
    tls: int
    authority: Authority
    folder: Path

    async def said(self, request: bytes, *, tls: bool = True) -> bytes:
        """What is answered to bytes, until the connection is closed."""
        context = self.authority.trusting() if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.tls if tls else self.plain,
            ssl=context,
            server_hostname=NAME if tls else None,
        )
        try:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(START_S):
                return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


def configured(text: str, upstreams: Mapping[str, int], plain: int, tls: int, folder: Path) -> str:
    """The configuration of an example, with the ports and the certificate of a test."""
    live = f"/etc/letsencrypt/live/{NAME}"
    for address, port in upstreams.items():
        assert address in text, address
        text = text.replace(address, f"127.0.0.1:{port}")
    changes = {
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{tls} ssl;",
        f"{live}/fullchain.pem": f"{folder}/server.pem",
        f"{live}/privkey.pem": f"{folder}/server.pem",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@contextlib.asynccontextmanager
async def nginx_proxy(
    upstreams: Mapping[str, int], folder: Path, example: str = "nginx.conf", **changed: str
) -> AsyncGenerator[NginxProxy]:
    """nginx in front of ports, each instead of an address in the configuration of an example;
    `changed` replaces settings, to see what they do."""
    authority = Authority(folder)
    authority.serving(NAME)  # writes the certificate
    text = (DEPLOY / example).read_text("utf-8")
    for name, value in changed.items():
        lines = [line for line in text.splitlines() if line.strip().startswith(f"{name} ")]
        assert lines, name
        for line in lines:
            text = text.replace(line, f"{name} {value};" if value else "")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(user=user, folder=folder), "utf-8")
    for _ in range(ATTEMPTS):
        plain, tls = free_port(), free_port()
        here = configured(text, upstreams, plain, tls, folder)
        (folder / "weather.conf").write_text(here, "utf-8")
        async with running(folder, plain) as listens:
            if listens:
                yield NginxProxy(plain, tls, authority, folder)
                return
    raise RuntimeError((folder / "error.log").read_text("utf-8"))


@contextlib.asynccontextmanager
async def running(folder: Path, port: int) -> AsyncGenerator[bool]:
    """nginx with the configuration in a folder; whether it listens at the port."""
    command = [program(), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t", "-q"], check=True, timeout=START_S)
    process = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    try:
        yield await _answers(process, port)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, START_S)


async def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether it listens, before it gives up or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while process.poll() is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return True
    return False


@contextlib.asynccontextmanager
async def tunnel(proxy: NginxProxy) -> AsyncGenerator[str]:
    """A proxy that leads whoever asks for the public name to nginx here; its address."""
    pipes: set[asyncio.Task[None]] = set()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(f"CONNECT {NAME}:443 ".encode()), head
        there, back = await asyncio.open_connection("127.0.0.1", proxy.tls)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        both = [asyncio.create_task(_pipe(reader, back)), asyncio.create_task(_pipe(there, writer))]
        pipes.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, back):
            one.close()

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
