"""Three replicas behind a real nginx with TLS, on a real Redis, as `examples/deploy/replicas` sets them
up. `scripts/deploy replicas` runs this.

It is no part of `scripts/test`, which needs no nginx.
"""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from colonnade import Client, ColonnadeError, connect
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025
from deploy.nginx import NAME, START_S, NginxProxy, free_port, nginx_proxy, tunnel
from deploy.recipes import REPLICAS, redis_options, replica_addresses, replica_command
from store.redis_server import redis_server

CALLERS = 8
CALLS_BETWEEN = 100
# nginx uses a replica again that was left out: `fail_timeout` of 2 s, and a little more.
LEFT_OUT_S = 2.5


class TripProcess:
    """One replica, as a program on a port that it has again after a restart."""

    def __init__(self, port: int, environ: dict[str, str]) -> None:
        self.port = port
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        words = ["127.0.0.1" if word == "0.0.0.0" else word for word in replica_command()[1:]]
        words[words.index("--port") + 1] = str(self.port)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "colonnade", *words),
            cwd=REPLICAS,
            env={**os.environ, **self._environ},
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            assert b" on http://127.0.0.1:" in await self._process.stdout.readline()

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            async with asyncio.timeout(START_S):
                assert await self._process.wait() == 0


class Trip:
    """The replicas, and nginx in front of them."""

    def __init__(self, replicas: list[TripProcess], proxy: NginxProxy) -> None:
        self.replicas = replicas
        self.proxy = proxy


@contextlib.asynccontextmanager
async def replicated(folder: Path) -> AsyncGenerator[Trip]:
    with redis_server(folder / "redis", redis_options()) as redis:
        environ = {"STORE_URL": redis.url, "TRIP_KEYS": secrets.token_hex(32)}
        ports = {address: free_port() for address in replica_addresses()}
        replicas = [TripProcess(port, environ) for port in ports.values()]
        try:
            await asyncio.gather(*(replica.start() for replica in replicas))
            async with nginx_proxy(ports, folder, "replicas/nginx.conf") as proxy:
                yield Trip(replicas, proxy)
        finally:
            await asyncio.gather(*(replica.stop() for replica in replicas))


@contextlib.asynccontextmanager
async def client_through(
    proxy: NginxProxy, revision: str, patch: pytest.MonkeyPatch, path: str = "/mcp"
) -> AsyncGenerator[Client]:
    """A client that knows nothing but the public address."""
    async with tunnel(proxy) as url:
        for other in ("https_proxy", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(other, raising=False)
        patch.setenv("HTTPS_PROXY", url)
        patch.setenv("SSL_CERT_FILE", str(proxy.authority.file))
        async with connect(
            f"https://{NAME}{path}", revision=revision, on_elicit=lambda _: {"name": "Ann"}
        ) as client:
            assert client.revision == revision
            yield client


def play(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 4 * START_S))


@pytest.mark.parametrize("revision", [revision.date for revision in ALL])
def test_every_revision_is_spoken_through_three_replicas(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        path = "/sse" if revision == ALL[0].date else "/mcp"
        async with (
            replicated(tmp_path) as trip,
            client_through(trip.proxy, revision, monkeypatch, path) as client,
        ):
            for _ in range(6):  # two for each replica
                assert (await client.call_tool("price", {"city": "Oslo"}, returns=int)).data == 120
            if revision not in (ALL[0].date, ALL[1].date):
                for _ in range(3):
                    booked = await client.call_tool("book", {"city": "Cairo"})
                    assert booked.text == "Ann to Cairo"
            written = await client.call_tool("brochure", {"city": "Oslo"})
            assert written.text == "Oslo on three pages"

    play(test())


@pytest.mark.parametrize("revision", [NOVEMBER_2025.date, JULY_2026.date])
def test_no_call_fails_while_each_replica_is_restarted(
    revision: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def test() -> None:
        done, failed, ending = 0, list[str](), False

        async with (
            replicated(tmp_path) as trip,
            client_through(trip.proxy, revision, monkeypatch) as client,
        ):

            async def call() -> None:
                nonlocal done
                while not ending:
                    try:
                        assert (await client.call_tool("price", {"city": "Oslo"})).text == "120"
                    except ColonnadeError as error:
                        failed.append(str(error))
                    done += 1

            async def more_calls() -> None:
                enough, loop = done + CALLS_BETWEEN, asyncio.get_running_loop()
                end = loop.time() + LEFT_OUT_S
                while done < enough or loop.time() < end:
                    await asyncio.sleep(0.01)

            callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
            for replica in trip.replicas:
                await more_calls()
                await replica.stop()
                await more_calls()
                await replica.start()
            await more_calls()
            ending = True
            await asyncio.gather(*callers)
        assert failed == []
        with capsys.disabled():
            print(f" {revision}: {done} calls during three restarts, {len(failed)} failed")

    play(test())
