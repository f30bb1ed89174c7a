"""The audit log: which lines a call writes, what is in them, and what happens if they cannot be
written."""

import asyncio
import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw

from colonnade.errors import InvalidArgument, Refused, RemoteError
from colonnade.host.policy.audit import file as audit_file
from colonnade.host.policy.audit.lines import MAX_LINE_BYTES, DigestKey
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.audit.verify import verify
from colonnade.host.policy.request import Consent, Decision, Denial
from colonnade.protocol import types as t
from host.audited import ALLOWED, DENIED, KEY, call, files, lines, opened, request, result
from live import live


def decoded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(folder)]


def events(folder: Path) -> list[str]:
    return [line["event"] for line in decoded(folder)]


# ---------------------------------------------------------------- lines


@pytest.mark.spec("R0146")
@live
async def test_a_call_is_proposed_decided_executed_and_returned(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    id = call(log)
    await log.close()
    found = decoded(tmp_path / "audit")
    names = [line["event"] for line in found]
    assert names == ["opened", "proposed", "decided", "executed", "returned", "closed"]
    assert [line["seq"] for line in found] == [1, 2, 3, 4, 5, 6]
    assert len({line["run"] for line in found}) == 1
    for line in found[1:5]:
        assert line["call"] == id
        assert (line["principal"], line["client"]) == ("alex", "chat")
        assert (line["server"], line["name"], line["method"]) == ("files", "read", "tools/call")
    proposed, decision, executed, returned = found[1:5]
    assert proposed["revision"] == "2026-07-28"
    assert proposed["definition"] == "de" * 32
    assert (decision["action"], decision["rule"]) == ("allow", "colonnade.toml:12")
    assert decision["policy"] == "7f2a"
    assert executed["server_revision"] == "2025-06-18"
    assert returned["duration_us"] >= 0


@live
async def test_times_are_utc_with_nanoseconds(tmp_path: Path) -> None:
    log = opened(tmp_path, clock=lambda: 1_795_000_000_000_000_001)
    call(log)
    await log.close()
    assert {line["time"] for line in decoded(tmp_path)} == {"2026-11-18T11:06:40.000000001Z"}


@live
async def test_digests_need_the_key_and_are_equal_for_equal_bytes(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for arguments in ({"pin": "hush"}, {"pin": "hush"}, {"pin": "other"}):
        call(log, request(arguments))
    await log.close()
    proposed = [one["arguments"] for one in decoded(tmp_path) if one["event"] == "proposed"]
    first, second, third = (one["digest"] for one in proposed)
    assert first == second != third
    assert first == DigestKey(KEY).digest(b'{"pin":"hush"}').decode()
    assert DigestKey(b"another").digest(b'{"pin":"hush"}').decode() != first
    assert b"hush" not in b"".join(lines(tmp_path))
    assert KEY.hex().encode() not in b"".join(lines(tmp_path))


@live
async def test_the_key_of_a_user_is_not_in_the_folder_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        log = AuditLog(tmp_path / "audit")
        call(log)
        await log.close()
    found = decoded(tmp_path / "audit")
    assert len({one["key"] for one in found if one["event"] == "opened"}) == 1
    assert len({one["arguments"]["digest"] for one in found if one["event"] == "proposed"}) == 1
    key = tmp_path / "home" / "audit.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert all(key.read_bytes() not in file.read_bytes() for file in files(tmp_path / "audit"))


@live
async def test_without_a_place_for_the_key_a_run_has_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    log = AuditLog(tmp_path / "audit")
    call(log)
    await log.close()
    assert "cannot be compared" in caplog.text
    assert verify(str(tmp_path / "audit")).is_valid


@live
async def test_an_approval_is_asked_and_answered(tmp_path: Path) -> None:
    log = opened(tmp_path)
    asked = request()
    id = log.proposed(asked)
    log.asked(id, asked, ALLOWED)
    log.answered(id, asked, Consent("7F2A", "alex", "remembered:3"))
    other = log.proposed(asked)
    log.asked(other, asked, ALLOWED)
    log.answered(other, asked, Denial("declined by alex"))
    log.abandoned(other, asked, Refused("declined by alex"))
    await log.close()
    found = {(one["event"], one.get("call")): one for one in decoded(tmp_path)}
    assert found["asked", id]["rule"] == "colonnade.toml:12"
    granted, refused = found["answered", id], found["answered", other]
    assert (granted["action"], granted["approval"], granted["by"]) == ("allow", "7F2A", "alex")
    assert granted["rule"] == "remembered:3"
    assert (refused["action"], refused["reason"]) == ("deny", "declined by alex")
    assert found["failed", other]["error"] == "Refused"


@live
async def test_an_error_is_a_failure_and_a_cancelled_call_is_abandoned(tmp_path: Path) -> None:
    log = opened(tmp_path)
    asked = request()
    log.abandoned(log.proposed(asked), asked, RemoteError(-32603, "disk of 10.0.0.7 is full"))
    log.abandoned(log.proposed(asked), asked, asyncio.CancelledError())
    await log.close()
    failed, abandoned = (one for one in decoded(tmp_path) if "error" in one)
    assert (failed["event"], failed["error"], failed["code"]) == ("failed", "RemoteError", -32603)
    assert (abandoned["event"], abandoned["error"]) == ("abandoned", "CancelledError")
    # What a server says in an error is contents.
    assert b"10.0.0.7" not in b"".join(lines(tmp_path))


@live
async def test_an_error_result_is_marked_as_one(tmp_path: Path) -> None:
    log = opened(tmp_path)
    asked = request()
    broken = t.CallToolResult(content=[t.TextContent(text="broken")], is_error=True)
    log.returned(log.proposed(asked), asked, broken)
    log.returned(log.proposed(asked), asked, Raw(b'{"action":"accept"}'))
    await log.close()
    error, answer = (one for one in decoded(tmp_path) if one["event"] == "returned")
    assert error["is_error"] is True
    assert answer["is_error"] is False
    assert answer["result"]["bytes"] == len(b'{"action":"accept"}')


def test_without_an_event_loop_lines_are_written_at_once(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.proposed(request())
    assert events(tmp_path) == ["opened", "proposed"]


def test_calls_of_several_threads_are_all_in_one_chain(tmp_path: Path) -> None:
    log = opened(tmp_path)

    def work() -> None:
        for _ in range(50):
            call(log)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    asyncio.run(log.close())
    report = verify(str(tmp_path))
    assert report.is_valid
    assert report.lines == 2 + 4 * 50 * 4
    assert len({one["call"] for one in decoded(tmp_path) if "call" in one}) == 200


@live
async def test_events_are_with_the_operating_system_after_one_iteration_of_the_loop(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    asked = request()
    id = log.proposed(asked)
    log.decided(id, asked, ALLOWED)
    log.executed(id, asked, "2025-06-18")
    assert not files(tmp_path)
    await asyncio.sleep(0)
    assert events(tmp_path) == ["opened", "proposed", "decided", "executed"]
    log.returned(id, asked, result())
    await asyncio.sleep(0)
    assert events(tmp_path)[-1] == "returned"
    await log.close()


@live
async def test_what_is_proposed_and_not_sent_is_written_soon(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.proposed(request())
    while not files(tmp_path):
        await asyncio.sleep(0.001)
    assert events(tmp_path) == ["opened", "proposed"]
    await log.close()


@live
async def test_a_required_call_is_with_the_operating_system_before_it_is_sent(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path, required=True)
    asked = request()
    id = log.proposed(asked)
    log.decided(id, asked, ALLOWED)
    waiting = log.executed(id, asked, "2025-06-18")
    assert events(tmp_path) == ["opened", "proposed", "decided", "executed"]
    assert waiting is not None
    await waiting
    await log.close()


@live
async def test_a_result_is_recorded_as_it_was_when_it_came(tmp_path: Path) -> None:
    log = opened(tmp_path, contents="all")
    asked, came = request(), result("as it came")
    log.returned(log.proposed(asked), asked, came)
    came.content.append(t.TextContent(text="changed"))
    await log.close()
    text = b"".join(lines(tmp_path))
    assert b"as it came" in text
    assert b"changed" not in text


@live
async def test_a_closed_log_begins_another_run(tmp_path: Path) -> None:
    log = opened(tmp_path)
    call(log)
    await log.close()
    await log.close()
    call(log)
    await log.close()
    assert len(files(tmp_path)) == 2
    assert verify(str(tmp_path)).is_valid


@pytest.mark.parametrize("wrong", [{"contents": "some"}, {"redact": ["a", ""]}])
def test_a_wrong_argument_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        opened(tmp_path, **wrong)


# ---------------------------------------------------------------- files


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
@live
async def test_only_the_owner_can_read_the_folder_and_its_files(tmp_path: Path) -> None:
    log = opened(tmp_path / "deep" / "audit")
    call(log)
    await log.close()
    assert stat.S_IMODE((tmp_path / "deep" / "audit").stat().st_mode) == 0o700
    assert [stat.S_IMODE(one.stat().st_mode) for one in files(tmp_path / "deep" / "audit")] == [
        0o600
    ]


@live
async def test_a_run_goes_on_in_another_file_with_the_same_chain(tmp_path: Path) -> None:
    log = opened(tmp_path, max_file_bytes=4000)
    for _ in range(20):
        call(log)
    await log.close()
    assert len(files(tmp_path)) > 5
    assert all(one.stat().st_size < 8000 for one in files(tmp_path))
    heads = [json.loads(one.read_bytes().splitlines()[0]) for one in files(tmp_path)]
    assert [one["event"] for one in heads] == ["opened"] + ["continued"] * (len(heads) - 1)
    assert [one["part"] for one in heads] == list(range(1, len(heads) + 1))
    report = verify(str(tmp_path))
    assert report.is_valid
    assert report.lines == 20 * 4 + len(heads) + 1


@live
async def test_a_run_begins_with_the_last_line_of_the_one_before(tmp_path: Path) -> None:
    runs: list[str] = []
    for _ in range(3):
        log = opened(tmp_path)
        runs.append(call(log).partition("-")[0])
        await log.close()
    heads = {one["run"]: one["previous"] for one in decoded(tmp_path) if one["event"] == "opened"}
    assert [one["run"] for one in heads[runs[1]]] == [runs[0]]
    assert [one["run"] for one in heads[runs[2]]] == [runs[1]]


@live
async def test_two_logs_that_write_at_the_same_time_have_files_of_their_own(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    for _ in range(5):
        call(first)
        call(second)
        await asyncio.sleep(0)
    await first.close()
    await second.close()
    third = opened(tmp_path)
    call(third)
    await third.close()
    assert len(files(tmp_path)) == 3
    assert verify(str(tmp_path)).is_valid
    head = [one for one in decoded(tmp_path) if one["event"] == "opened" and one["previous"]]
    # The second found the first, and the third the last lines of both.
    assert sorted(len(one["previous"]) for one in head) == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    log = opened(tmp_path)
    call(log)
    child = os.fork()
    if not child:
        try:
            call(log)
            asyncio.run(log.close())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    call(log)
    asyncio.run(log.close())
    assert len(files(tmp_path)) == 2
    assert verify(str(tmp_path)).is_valid


KILLED = """
import sys
from live import live
from host.audited import call, opened
from pathlib import Path

log = opened(Path(sys.argv[1]), max_file_bytes=200_000)
print("ready", flush=True)
while True:
    call(log)
    print("x", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("calls", [1, 50, 400])
def test_a_process_that_is_killed_leaves_a_valid_log(tmp_path: Path, calls: int) -> None:
    support = Path(__file__).parents[3] / "support"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": f"{support}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        },
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"ready\n"
        for _ in range(calls):
            assert process.stdout.readline() == b"x\n"
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    report = verify(str(tmp_path))
    assert report.is_valid, report.findings
    assert report.lines >= calls * 4 + 1
    assert "no end" in report.notes[-1].message
    # The next run follows it, and nothing is missed.
    log = opened(tmp_path)
    call(log)
    asyncio.run(log.close())
    assert verify(str(tmp_path)).is_valid


# ---------------------------------------------------------------- errors


class Disk:
    """`os.write` of the audit log: a disk with some room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write: Callable[[int, Any], int] = os.write
        monkeypatch.setattr(audit_file.os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if threading.current_thread() is not threading.main_thread():
            return self._write(descriptor, data)
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(descriptor, bytes(data)[: self.room])
        self.room -= written
        return written


@live
async def test_a_full_disk_is_reported_once_and_the_next_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path)
    call(log)
    await asyncio.sleep(0)
    disk = Disk(monkeypatch, room=100)
    for _ in range(3):
        call(log)
        await asyncio.sleep(0)
    assert log.dropped == 12
    assert caplog.text.count("cannot be written") == 1
    disk.room = 10**9
    call(log)
    await log.close()
    assert log.dropped == 0
    dropped = [one for one in decoded(tmp_path) if one["event"] == "dropped"]
    assert [one["count"] for one in dropped] == [12]
    report = verify(str(tmp_path))
    assert report.is_valid
    assert report.dropped == 12


@live
async def test_half_of_a_line_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    call(log)
    await asyncio.sleep(0)
    before = files(tmp_path)[0].read_bytes()
    Disk(monkeypatch, room=100)
    call(log)
    await asyncio.sleep(0)
    assert files(tmp_path)[0].read_bytes() == before


@live
async def test_what_cannot_be_removed_is_left_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    call(log)
    await asyncio.sleep(0)
    disk = Disk(monkeypatch, room=100)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(audit_file.os, "ftruncate", fail)
    call(log)
    await asyncio.sleep(0)
    disk.room = 10**9
    call(log)
    await log.close()
    assert len(files(tmp_path)) == 2
    assert [one.kind for one in verify(str(tmp_path)).findings] == ["cut"]


@live
async def test_a_folder_that_cannot_be_created_loses_events_and_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("a file")
    log = opened(tmp_path / "audit")
    call(log)
    await asyncio.sleep(0)
    assert log.dropped == 4
    assert caplog.text.count("cannot be written") == 1
    (tmp_path / "audit").unlink()
    call(log)
    await log.close()
    assert events(tmp_path / "audit")[:2] == ["opened", "dropped"]
    assert verify(str(tmp_path / "audit")).is_valid


@live
async def test_a_required_log_that_cannot_be_written_refuses_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, required=True)
    asked = request()
    waiting = log.executed(log.proposed(asked), asked, "2025-06-18")
    assert waiting is not None
    await waiting
    disk = Disk(monkeypatch, room=0)
    with pytest.raises(Refused, match="cannot be written") as refused:
        log.executed(log.proposed(asked), asked, "2025-06-18")
    assert refused.value.reason == "audit"
    assert str(tmp_path) not in str(refused.value)  # callers need not know paths
    disk.room = 10**9
    waiting = log.executed(log.proposed(asked), asked, "2025-06-18")
    assert waiting is not None
    await waiting
    await log.close()


@live
async def test_a_required_log_that_lost_an_event_of_a_call_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, required=True)
    asked = request()
    id = log.proposed(asked)
    disk = Disk(monkeypatch, room=0)
    log.asked(id, asked, ALLOWED)
    await asyncio.sleep(0)
    assert log.dropped == 2
    disk.room = 10**9  # before it is sent, so the next line can be written
    with pytest.raises(Refused, match="some of its events were lost"):
        log.executed(id, asked, "2025-06-18")
    waiting = log.executed(log.proposed(asked), asked, "2025-06-18")
    assert waiting is not None
    await waiting
    await log.close()


@live
async def test_a_required_log_is_on_the_disk_before_a_call_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def count(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr(audit_file.os, "fsync", count)
    log = opened(tmp_path, required=True)
    asked = request()
    calls = [log.executed(log.proposed(asked), asked, "2025-06-18") for _ in range(50)]
    size = files(tmp_path)[0].stat().st_size
    synced.clear()
    await asyncio.gather(*(one for one in calls if one is not None))
    assert synced == [size]  # one for all of them
    await log.close()


@live
async def test_a_disk_that_cannot_be_synchronised_refuses_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, required=True)
    asked = request()
    waiting = log.executed(log.proposed(asked), asked, "2025-06-18")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(audit_file.os, "fsync", fail)
    assert waiting is not None
    with pytest.raises(Refused, match="cannot be written"):
        await waiting
    monkeypatch.undo()
    await log.close()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed")
@live
async def test_a_file_that_is_removed_is_noticed_and_another_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_file, "CHECK_S", 0.0)
    log = opened(tmp_path)
    call(log)
    await asyncio.sleep(0)
    files(tmp_path)[0].unlink()
    call(log)
    await asyncio.sleep(0)
    call(log)
    await log.close()
    assert "its file was removed" in caplog.text
    report = verify(str(tmp_path))
    assert [one.kind for one in report.findings] == ["file"]
    assert report.dropped > 0


@live
async def test_an_event_that_cannot_be_encoded_is_counted_and_the_others_are_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path)
    asked = request()
    id = log.proposed(asked)
    log.decided(id, asked, Decision("allow", cast("Any", 5), False, "7f2a", ""))
    log.returned(id, asked, result())
    await log.close()
    assert events(tmp_path) == ["opened", "proposed", "dropped", "returned", "closed"]
    assert "cannot be recorded" in caplog.text
    assert verify(str(tmp_path)).is_valid


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
@live
async def test_a_folder_that_others_can_write_to_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit").chmod(0o777)
    log = opened(tmp_path / "audit", max_file_bytes=2000)
    for _ in range(3):
        call(log)
    await log.close()
    assert caplog.text.count("other users can write") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="owners are those of POSIX")
def test_a_folder_of_another_user_is_open_to_others_and_one_of_the_administrator_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit").chmod(0o755)
    seen = list((tmp_path / "audit").stat())
    assert not audit_file.is_open_to_others(os.stat_result(seen))
    seen[4] = os.getuid() + 1
    assert audit_file.is_open_to_others(os.stat_result(seen))
    seen[4] = 0
    assert not audit_file.is_open_to_others(os.stat_result(seen))


# ---------------------------------------------------------------- sizes


@live
async def test_a_line_is_bounded_whatever_was_sent(tmp_path: Path) -> None:
    log = opened(tmp_path, contents="all")
    long = "x" * 1_000_000
    huge = request({"text": long}, server=long, name=long, principal=long, client=long)
    id = log.proposed(huge)
    log.decided(id, huge, DENIED)
    log.answered(id, huge, Denial(long))
    log.returned(id, huge, result(long))
    log.abandoned(log.proposed(huge), huge, RemoteError(1, long))
    wide = request({f"token{number}": 1 for number in range(2000)})
    log.proposed(wide)
    deep = request(Raw(b"[" * 900 + b"]" * 900))
    log.proposed(deep)
    await log.close()
    found = lines(tmp_path)
    assert max(map(len, found)) < MAX_LINE_BYTES // 2
    first = json.loads(found[1])
    assert first["name"].endswith("… (1000000 characters)")
    assert len(first["name"]) < 300
    assert first["arguments"]["bytes"] == 1_000_011
    assert first["arguments"]["content"] == {"omitted": "more than 32768 bytes"}
    assert verify(str(tmp_path)).is_valid


@live
async def test_calls_that_never_end_are_not_kept_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colonnade.host.policy.audit import log as audit

    monkeypatch.setattr(audit, "MAX_OPEN_CALLS", 10)
    log = opened(tmp_path)
    ids = [log.proposed(request()) for _ in range(20)]
    log.returned(ids[0], request(), result())  # one that was forgotten
    log.returned(ids[-1], request(), result())
    await log.close()
    first, last = (one for one in decoded(tmp_path) if one["event"] == "returned")
    assert "duration_us" not in first
    assert "duration_us" in last
    assert first["principal"] == "alex"


@live
async def test_a_log_that_can_be_written_reports_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "colonnade.audit"):
        log = opened(tmp_path)
        call(log)
        await log.close()
    assert caplog.records == []
