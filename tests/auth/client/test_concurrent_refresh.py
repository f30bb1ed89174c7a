"""A thousand calls over four processes, at the moment when the token that they share ends."""

import asyncio
import sys
from pathlib import Path

import pytest

from auth.client.test_login import Browser, person, serving
from auth.issuer import Issuer, issuing
from auth.login_process import ended
from colonnade import connect
from colonnade.auth.client.storage import encode_record, login_key
from colonnade.client.auth import FileTokenStorage, stored_login
from live import live_for

PROCESSES, CALLS = 4, 250


@pytest.mark.slow
def test_cl_31_a_thousand_calls_of_four_processes_cause_one_refresh_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path))
    with issuing() as issuer:
        live_for(600)(crowded)(issuer, tmp_path)


async def crowded(issuer: Issuer, home: Path) -> None:
    async with serving(issuer, skew_s=0) as url:
        browser = Browser()
        auth = person(browser, keep=True)
        async with connect(url, auth=auth):
            pass
        held = await stored_login(auth, url)
        assert held is not None
        script = Path(__file__).resolve().parents[2] / "support/auth/login_process.py"
        command = [sys.executable, "-W", "error", str(script), url, str(home), str(CALLS)]
        pipe = asyncio.subprocess.PIPE
        callers = [
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            for _ in range(PROCESSES)
        ]
        try:
            for one in callers:
                assert one.stdout is not None
                assert await one.stdout.readline() == b"ready\n"
            storage = FileTokenStorage("")
            name = login_key(url, held.client.issuer, held.client.client_id)
            await storage.save(name, encode_record(ended(held)))
            await storage.close()
            assert issuer.count("refresh_token") == 0
            issuer.tell("hold")
            for one in callers:
                assert one.stdin is not None
                one.stdin.write(b"go\n")
            waiting = 0
            for one in callers:
                assert one.stdout is not None
                waiting += int((await one.stdout.readline()).removeprefix(b"waiting "))
            assert waiting == PROCESSES * CALLS == 1000  # all in flight, before anything is new
            issuer.tell("release")
            said = [await one.communicate() for one in callers]
        finally:
            for one in callers:
                if one.returncode is None:
                    one.kill()
                    await one.wait()
        assert [out.decode().strip() for out, _ in said] == [str(CALLS)] * PROCESSES
        assert issuer.count("refresh_token") == 1
        assert issuer.count("reused") == 0
        assert len(browser.opened) == 1
