"""`colonnade audit`: what is typed, what is written, how it ends."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from cli.process import command
from colonnade.cli.commands.audit import parse_since
from colonnade.cli.errors import CliError
from colonnade.errors import Refused, RemoteError
from colonnade.host.policy.request import REMEMBERED, Denial, Unanswered
from host.audited import ASKED, DENIED, call, files, opened, request

NOW = 1_795_000_000 * 10**9  # 2026-11-18T11:06:40Z


def write(folder: Path, **options: Any) -> list[str]:
    """A log of four calls; returns their ids."""
    ids: list[str] = []

    async def run() -> None:
        log = opened(folder, **options)
        ids.append(call(log))
        denied = request({"path": "/etc"}, server="web", name="get", principal="kim")
        ids.append(log.proposed(denied))
        log.decided(ids[-1], denied, DENIED)
        failed = request(name="x\x1b[2J", principal="")
        ids.append(log.proposed(failed))
        log.executed(ids[-1], failed, "2025-06-18")
        log.abandoned(ids[-1], failed, RemoteError(-32603, "no"))
        ids.append(log.proposed(request(method="prompts/get")))
        await log.close()

    asyncio.run(run())
    return ids


def test_ls_lists_calls_with_their_outcome(tmp_path: Path) -> None:
    ids = write(tmp_path / "log")
    done = command(tmp_path, "audit", "ls", "log")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("  ") for line in done.stdout.splitlines()]
    assert [[cell.strip() for cell in row if cell.strip()][1:] for row in rows] == [
        [ids[0], "alex", "files", "read", "returned"],
        [ids[2], "-", "files", "x\\x1b[2J", "failed: RemoteError"],
        [ids[1], "kim", "web", "get", "denied by colonnade.toml:14"],
        [ids[3], "alex", "files", "read (prompts/get)", "not sent"],
    ]


def test_ls_tells_a_denial_from_a_call_that_no_person_has_answered(tmp_path: Path) -> None:
    ends: list[Any] = ["expired", "waiting", "cancelled", "no_approver"]
    ends += [Denial("", by="colonnade inbox (process 3)"), Denial("")]
    ends += [Denial("", by=REMEMBERED, rule="deny files__read (remembered: always)")]

    async def run() -> None:
        log = opened(tmp_path / "log")
        asked = request()
        for end in ends:
            id = log.proposed(asked)
            log.decided(id, asked, ASKED)
            log.asked(id, asked, ASKED)
            if isinstance(end, str):
                log.unanswered(id, asked, cast("Unanswered", end), "why")
            else:
                log.answered(id, asked, end)
            log.abandoned(id, asked, Refused("no"))
        await log.close()

    asyncio.run(run())
    done = command(tmp_path, "audit", "ls", "log")
    outcomes = [line.rpartition("  ")[2] for line in done.stdout.splitlines()]
    assert outcomes == [
        "expired without an answer, asked by colonnade.toml:13",
        "no answer in time, asked by colonnade.toml:13",
        "cancelled before an answer, asked by colonnade.toml:13",
        "no way to ask for an approval, asked by colonnade.toml:13",
        "denied by a person: colonnade inbox (process 3)",
        "denied by a person",
        "denied by a remembered decision: deny files__read (remembered: always)",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--server", "web"], [1]),
        (["--principal", "kim"], [1]),
        (["--principal", ""], [2]),
        (["--tool", "g*"], [1]),
        (["--tool", "web__get"], [1]),
        (["--since", "1h"], [0, 2, 1, 3]),
        (["--since", "2999-01-01"], []),
        (["--server", "web", "--tool", "read"], []),
    ],
)
def test_ls_lists_only_what_is_wanted(
    tmp_path: Path, options: list[str], expected: list[int]
) -> None:
    ids = write(tmp_path / "log")
    done = command(tmp_path, "audit", "ls", "log", "--json", *options)
    assert done.returncode == 0
    found = [json.loads(line)["call"] for line in done.stdout.splitlines()]
    assert found == [ids[number] for number in expected]


def test_ls_of_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    done = command(tmp_path, "audit", "ls", "log")
    assert (done.returncode, done.stdout) == (0, "there are no such calls\n")


def test_without_a_folder_the_default_one_is_read(tmp_path: Path) -> None:
    write(tmp_path / "home" / "audit")
    done = command(tmp_path, "audit", "verify", COLONNADE_HOME=str(tmp_path / "home"))
    assert done.stdout.endswith(": valid\n")
    done = command(tmp_path, "audit", "ls", COLONNADE_HOME=str(tmp_path / "other"))
    assert done.returncode == 2
    assert "there is no audit log in" in done.stderr


def test_show_shows_every_line_of_a_call(tmp_path: Path) -> None:
    ids = write(tmp_path / "log")
    done = command(tmp_path, "audit", "show", ids[0], "log")
    assert done.returncode == 0
    for words in ("alex", "files", "proposed", "decided", "colonnade.toml:12", "returned"):
        assert words in done.stdout
    done = command(tmp_path, "audit", "show", ids[0], "log", "--json")
    raw = files(tmp_path / "log")[0].read_text().splitlines()
    assert done.stdout.splitlines() == raw[1:5]
    done = command(tmp_path, "audit", "show", ids[2], "log")
    assert "\x1b" not in done.stdout
    done = command(tmp_path, "audit", "show", "0-1", "log")
    assert done.returncode == 1
    assert "there is no call 0-1" in done.stderr


def test_verify_reports_each_finding_with_file_and_line(tmp_path: Path) -> None:
    write(tmp_path / "log")
    done = command(tmp_path, "audit", "verify", "log")
    assert (done.returncode, done.stdout) == (0, "1 runs, 1 files, 12 lines: valid\n")
    file = files(tmp_path / "log")[0]
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3] + lines[4:]))
    done = command(tmp_path, "audit", "verify", "log")
    assert done.returncode == 1
    assert f"{file.name}:4: lines 4 to 4 of the run are missing before it\n" in done.stdout
    assert done.stdout.endswith("1 runs, 1 files, 11 lines: 1 finding\n")
    done = command(tmp_path, "audit", "verify", "log", "--json")
    assert done.returncode == 1
    value = json.loads(done.stdout)
    assert value["valid"] is False
    assert [(one["file"], one["line"], one["kind"]) for one in value["findings"]] == [
        (file.name, 4, "missing")
    ]


def test_verify_misses_a_cut_end_with_heads_or_when_it_is_strict(tmp_path: Path) -> None:
    write(tmp_path / "log", heads=str(tmp_path / "heads.db"))
    file = files(tmp_path / "log")[0]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    done = command(tmp_path, "audit", "verify", "log")
    assert done.returncode == 0
    assert "(note)" in done.stdout
    assert command(tmp_path, "audit", "verify", "log", "--strict").returncode == 1
    done = command(tmp_path, "audit", "verify", "log", "--heads", "heads.db")
    assert done.returncode == 1
    assert "which the store knows" in done.stdout
    file.unlink()
    done = command(tmp_path, "audit", "verify", "log", "--heads", "heads.db")
    assert done.returncode == 1
    assert "are missing" in done.stdout
    done = command(tmp_path, "audit", "verify", "log", "--heads", "none.db")
    assert done.returncode == 2


def test_verify_reports_a_run_that_the_heads_do_not_know(tmp_path: Path) -> None:
    write(tmp_path / "log", heads=str(tmp_path / "heads.db"))
    verify = ("audit", "verify", "log", "--heads", "heads.db")
    assert command(tmp_path, *verify).returncode == 0
    write(tmp_path / "log")
    assert command(tmp_path, "audit", "verify", "log").returncode == 0
    done = command(tmp_path, *verify)
    assert done.returncode == 1
    assert f"{files(tmp_path / 'log')[-1].name}: the store does not know run " in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("30s", NOW - 30 * 10**9),
        ("2h", NOW - 7200 * 10**9),
        ("7d", NOW - 7 * 86_400 * 10**9),
        ("2026-11-18T11:06:40", NOW),
        ("2026-11-18T12:06:40+01:00", NOW),
        ("999999d", 0),
    ],
)
def test_since_is_an_age_or_a_time(text: str, expected: int) -> None:
    assert parse_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "2", "h", "-1h", "2026-13-01"])
def test_any_other_since_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="not a time"):
        parse_since(text, NOW)
