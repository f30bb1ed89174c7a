"""Principals with colliding ids at one gateway process: the small version of scripts/isolation."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.isolation import Figures, IsolationClient, Options, run
from gateway.isolation_server import Findings

SMALL = Options(principals=20, messages=800, at_once=8, processes=8, lines=3)


def check(figures: Figures) -> None:
    assert figures.foreign == []
    assert figures.failures == []
    assert figures.total >= SMALL.messages
    # Each kind of message was there, or nothing was shown.
    for kind in ("forms", "logs", "reports", "to pipe", "to old", "to new"):
        assert figures.calls[kind] > 0, kind


def test_nothing_of_one_principal_reaches_another(tmp_path: Path) -> None:
    figures = asyncio.run(run(SMALL, tmp_path))
    check(figures)
    assert figures.refused["sessions of others"] > 0
    assert len(figures.refusals) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"pooled": True}, {"unauthenticated": True}])
def test_nor_in_a_pool_of_processes_nor_without_authentication(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    check(asyncio.run(run(SMALL._replace(**more), tmp_path)))


# ---------------------------------------------------------------- it finds what it looks for

TOKEN = f"{'h' * 40}.{'p' * 60}.{'s' * 86}"


@pytest.mark.parametrize("part", [TOKEN, TOKEN.split(".")[1], TOKEN.split(".")[2]])
@pytest.mark.parametrize("cut", [0, 7, 59])
def test_a_token_or_a_part_of_it_is_found_wherever_a_read_ends(
    tmp_path: Path, part: str, cut: int
) -> None:
    (tmp_path / "tokens.txt").write_text(f"{TOKEN}\n{'h' * 40}.{'q' * 60}.{'t' * 86}")
    findings = Findings(tmp_path)
    body = json.dumps({"a": "x" * 1000, "authorization": f"Bearer {part}", "b": "y"}).encode()
    place = body.index(part.encode()) + cut
    tail = findings.look(b"", body[:place], "a server")
    findings.look(tail, body[place:], "a server")
    assert "received an inbound token" in (tmp_path / "findings.txt").read_text()


def test_the_form_of_another_is_foreign() -> None:
    figures = Figures()
    client = IsolationClient(figures, 0, "2025-11-25", "")
    other = IsolationClient(figures, 0, "2025-11-25", "")
    client._answer({"message": f"{other.canary} form 1", "requestedSchema": {}})
    assert figures.foreign == [f"{client.canary} was asked '{other.canary} form 1'"]
    assert not figures.is_good


def test_a_connection_is_idle_as_soon_as_its_response_was_read() -> None:
    # One that became idle later was left open for minutes, and was used after the gateway had
    # closed it: a failure that was none.
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    async def check_idle() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            client = IsolationClient(Figures(), port, "2025-11-25", "")
            await client._request("ping", {}, 1)
            (connection,) = client._idle
            await client.close()
            await connection.writer.wait_closed()
            await ended.wait()

    asyncio.run(check_idle())
