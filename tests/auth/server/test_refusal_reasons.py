"""A refused token leaves a trace: in the server's log, in the client's error, and in doctor's report.

One table, over a real server and a real issuer on this machine: for each reason the line of the log,
what `connect` raises, what the command prints, and what `colonnade doctor` says. `pytest -s -k table`
prints it.
"""

import asyncio
import logging
import re
from typing import Any

import pytest

from auth.protected import RESOURCE, WRITE, ProtectedSetup, protected
from auth.token_issuer import SigningKey
from cli.doctor.test_url import failure, looked_at
from colonnade import Jwt, connect
from colonnade.cli.session import error_message
from colonnade.errors import AuthError, LoginRequired, ScopeRequired
from colonnade.logs import redact
from colonnade.protocol.http.security import HttpError
from colonnade.transport.http_server.authentication import (
    MAX_LOGGED_PAIRS,
    REFUSAL_LOG_S,
    RefusalLog,
)
from live import live

REASONS = ("audience", "expiry", "issuer", "signature", "scope")
WORDS = {
    "audience": "invalid_token: the token is not for this server",
    "expiry": "invalid_token: the token has expired",
    "issuer": "invalid_token: the issuer of the token is not trusted here",
    "signature": "invalid_token: the signature of the token is invalid",
    "scope": "insufficient_scope: it needs the scope notes:admin",
}
DETAILS = {
    "audience": rf"aud 'https://other\.example/mcp', expected {re.escape(RESOURCE)}",
    "expiry": r"exp \d+, 36\d\d s ago",
    "issuer": r"iss 'https://login\.other\.example', trusted http://127\.0\.0\.1:\d+",
    "signature": r"alg ES256, kid 'one'",
    "scope": r"granted \['notes:read'\]",
}


def token(setup: ProtectedSetup, reason: str) -> str:
    """A token that is good but for one thing."""
    now = setup.claims()["iat"]
    if reason == "signature":
        return SigningKey(id="one").sign(setup.claims())  # under the name of the issuer's own key
    wrong: dict[str, dict[str, Any]] = {
        "audience": {"audience": "https://other.example/mcp"},
        "expiry": {"iat": now - 7200, "exp": now - 3600},
        "issuer": {"iss": "https://login.other.example"},
        "scope": {},
    }
    return setup.token(**wrong[reason])


class Row:
    """What was seen of one refused token."""

    def __init__(self, log: str, error: AuthError, doctor: tuple[str, str]) -> None:
        self.log = log
        self.error = error
        self.command = error_message(error)
        self.doctor = doctor

    def __str__(self) -> str:
        said, fix = self.doctor
        lines = [("log", self.log), ("client", str(self.error)), ("command", self.command)]
        return "\n".join(
            f"  {who:8}{words}" for who, words in [*lines, ("doctor", f"{said} -> {fix}")]
        )


async def row(reason: str, caplog: pytest.LogCaptureFixture) -> Row:
    needed = ["notes:admin"] if reason == "scope" else []
    async with protected(scopes=needed) as setup:
        bad = token(setup, reason)
        url = f"http://127.0.0.1:{setup.site.port}/mcp"
        caplog.clear()
        with pytest.raises(AuthError) as raised:
            async with connect(url, headers={"Authorization": f"Bearer {bad}"}):
                pass
        (line,) = [one.getMessage() for one in caplog.records if one.name == "colonnade.auth"]
        assert redact(line) == line  # as --log-json writes it
        _, words, fix, code = failure(
            await looked_at(url, headers=(f"Authorization: Bearer {bad}",))
        )
        assert code == 3
        seen = f"{caplog.text}{raised.value}{words}{fix}"
        assert not any(part in seen for part in bad.split("."))
        return Row(line, raised.value, (words, fix))


@pytest.mark.parametrize("reason", REASONS)
@live
async def test_a_refused_token_is_explained_to_the_operator_the_caller_and_doctor(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = await row(reason, caplog)
    detail = DETAILS[reason]
    assert re.fullmatch(
        rf"refused 127\.0\.0\.1: {re.escape(WORDS[reason])} \({detail}\)", found.log
    )
    status = 403 if reason == "scope" else 401
    assert re.fullmatch(
        rf"127\.0\.0\.1:\d+ answered server/discover with {status}: {re.escape(WORDS[reason])}",
        str(found.error),
    )
    assert isinstance(found.error, ScopeRequired if reason == "scope" else LoginRequired)
    assert (found.error.reason, found.error.status) == (WORDS[reason], status)
    said, fix = found.doctor
    if reason == "scope":
        assert found.error.scopes == ("notes:admin",)
        assert said == f"access is forbidden (403): {WORDS[reason]}"
        assert fix == "get a token with the scope notes:admin"
    else:
        assert found.error.token_sent
        assert "; send another token: " in found.command
        assert said == f"it rejects the Authorization header that you send: {WORDS[reason]}"
        assert fix == "get a new token for this server"


@live
async def test_the_table_of_refusals_can_be_printed(caplog: pytest.LogCaptureFixture) -> None:
    for reason in REASONS:
        print(f"{reason}\n{await row(reason, caplog)}")


@live
async def test_a_missing_scope_of_one_tool_is_named_to_the_caller_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with protected() as setup:
        url = f"http://127.0.0.1:{setup.site.port}/mcp"
        caplog.clear()
        async with connect(url, headers={"Authorization": f"Bearer {setup.token()}"}) as client:
            with pytest.raises(ScopeRequired) as raised:
                await client.call_tool("erase", {"name": "x"})
    assert str(raised.value).endswith(f"403: insufficient_scope: it needs the scope {WRITE}")
    assert f"insufficient_scope: it needs the scope {WRITE} (granted ['notes:read'])" in caplog.text


@live
async def test_a_login_that_begins_without_a_token_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with protected() as setup:
        caplog.clear()
        assert await setup.status(None) == 401
        assert await setup.status(setup.token()) == 200
        assert not [one for one in caplog.records if one.name == "colonnade.auth"]


@live
async def test_a_client_that_tries_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with protected() as setup:
        caplog.clear()
        for _ in range(20):
            await setup.status(setup.token(audience="https://other.example"))
        bad = await setup.status(setup.token(exp=1))
        assert bad == 401
        lines = [one.getMessage() for one in caplog.records if one.name == "colonnade.auth"]
        assert len(lines) == 2  # one for each reason


@live
async def test_claims_that_a_stranger_wrote_cannot_break_a_line_or_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with protected(trust=lambda issuer: Jwt(issuer.url)) as setup:
        caplog.clear()
        for iss in ("a\nERROR forged\x1b[31m\u202e" + "x" * 3000, ["a"] * 1000, {"a": "b" * 9000}):
            await setup.status(setup.token(iss=iss))
            await asyncio.sleep(0)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "colonnade.auth"]
    assert line.isprintable()
    assert line.isascii()
    assert len(line) < 500
    assert r"'a\nERROR forged\x1b[31m\u202e" in line


@live
async def test_a_verifier_of_the_programs_own_is_logged_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from auth.protected import Bearer, notes
    from colonnade.transport.http_server.runner import listening

    async def verify(headers: Any) -> str:
        raise LoginRequired(f"who is {headers[b'authorization'].decode()}?")

    caplog.set_level(logging.INFO, "colonnade.requests")
    async with listening(notes().asgi(verify=verify, access_log=True), port=0) as site:
        caller = Bearer(site.port, "s3cret")
        assert (await caller.modern("tools/list")).status == 401
        await caller.__aexit__()
    assert "refused 127.0.0.1: verify= raised LoginRequired" in caplog.text
    (line,) = [one for one in caplog.records if one.name == "colonnade.requests"]
    assert line.getMessage() == "refused with 401: verify= raised LoginRequired"
    assert "s3cret" not in str(vars(line))
    assert "s3cret" not in caplog.text


# ---------------------------------------------------------------- how often


def refusal(reason: str) -> HttpError:
    line = f'Bearer error="invalid_token", error_description="{reason}"'
    return HttpError(401, reason, headers=(("WWW-Authenticate", line),))


def test_what_was_left_out_is_counted_in_the_next_line(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for second in range(5):
        log.note(refusal("old"), "10.0.0.1", float(second))
    log.note(refusal("old"), "10.0.0.1", REFUSAL_LOG_S)
    log.note(refusal("old"), "10.0.0.2", REFUSAL_LOG_S)
    assert [one.getMessage() for one in caplog.records] == [
        "refused 10.0.0.1: invalid_token: old",
        "refused 10.0.0.1: invalid_token: old; 4 more like it since it was last logged",
        "refused 10.0.0.2: invalid_token: old",
    ]


def test_a_thousand_addresses_write_no_thousand_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for number in range(4 * MAX_LOGGED_PAIRS):
        log.note(refusal("old"), f"10.0.{number // 256}.{number % 256}", 0.0)
    assert len(caplog.records) == MAX_LOGGED_PAIRS + 1
    log.note(refusal("old"), "10.1.0.0", REFUSAL_LOG_S)  # and those of a minute ago are forgotten
    assert len(caplog.records) == MAX_LOGGED_PAIRS + 2


def test_what_refuses_no_credentials_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    log.note(HttpError(413, "too large"), "10.0.0.1", 0.0)
    log.note(HttpError(401, "log in", headers=(("WWW-Authenticate", "Bearer"),)), "10.0.0.1", 0.0)
    assert caplog.records == []
    assert logging.getLogger("colonnade.auth").isEnabledFor(logging.WARNING)
