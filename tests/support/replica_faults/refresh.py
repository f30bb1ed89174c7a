"""One token refresh among calls of three replicas whose token has expired."""

import asyncio
import os
import sys
import time
from pathlib import Path

from auth.client.test_login import Browser, serving
from auth.issuer import issuing
from colonnade import connect
from colonnade.client.auth import stored_login
from colonnade.store.redis import RedisStore
from http_client import Caller
from replica_faults.refresh_process import shared_login
from replica_faults.report import Report
from store.redis_server import redis_server

PROGRAM = Path(__file__).with_name("refresh_process.py")
REPLICAS = 3
START_S = 60.0
# A machine that needs longer than this to start three processes fails the test.
MAX_LIFE_S = 200.0


async def refresh_once(folder: Path, *, calls: int = 50, life_s: float = 8.0) -> Report:
    """Call three replicas at once when the token that they share has expired. On a busy machine it
    may expire while they start; then they are started again with a token that lives longer."""
    while True:
        report = await _refresh(folder / f"{life_s:g}", calls, life_s)
        if report is not None:
            return report
        life_s *= 4
        assert life_s < MAX_LIFE_S, "the replicas do not start"


async def _refresh(folder: Path, calls: int, life_s: float) -> Report | None:
    """The report; None if the token has expired before the calls."""
    report = Report("refresh")
    folder.mkdir()
    with redis_server(folder / "redis") as redis, issuing() as issuer:
        async with serving(issuer, skew_s=0) as upstream:
            browser, store = Browser(), RedisStore(redis.url)
            issuer.tell("life", life_s)
            auth = shared_login(store, on_show=browser)
            async with connect(upstream, auth=auth):
                pass
            login = await stored_login(auth, upstream)
            assert login is not None
            processes = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-W", "error", PROGRAM, redis.url, upstream),
                    stdout=asyncio.subprocess.PIPE,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                )
                for _ in range(REPLICAS)
            ]
            try:
                ports = [await _port(process) for process in processes]
                issuer.tell("life", 3600.0)
                if issuer.count("refresh_token") or time.time() > login.tokens.expires_at:
                    return None
                # Not a pause: the token is over when the clock says so.
                await asyncio.sleep(max(login.tokens.expires_at - time.time(), 0.0) + 0.1)
                issuer.tell("hold")
                work = [asyncio.create_task(_call(ports[n % REPLICAS])) for n in range(calls)]
                await asyncio.sleep(1.0)  # all are on their way before there is a new token
                waiting = sum(not one.done() for one in work)
                issuer.tell("release")
                texts = await asyncio.gather(*work)
            finally:
                for process in processes:
                    if process.returncode is None:
                        process.terminate()
                    await process.wait()
                await store.close()
        refreshes, reused = issuer.count("refresh_token"), issuer.count("reused")
    good = sum("ann" in text for text in texts)
    report.say(
        f"{calls} calls at {REPLICAS} replicas, {waiting} of them waited for the token: {good} "
        f"succeeded, {refreshes} refresh, {len(browser.opened)} login"
    )
    if (good, refreshes, reused, len(browser.opened)) != (calls, 1, 0, 1):
        report.problems.append(f"{refreshes} refreshes, {reused} reused, {set(texts)}")
    return report


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        url = (await process.stdout.readline()).decode()
    return int(url.split("http://")[1].split(":")[1].split("/")[0])


async def _call(port: int) -> str:
    async with Caller(port) as caller:
        response = await caller.call("whoami")
        return response.body.decode()
