"""`verify`: each way to change an audit log is found, and what a killed process leaves is not."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.host.policy.audit import file as audit_file
from colonnade.host.policy.audit import verify as audit_verify
from colonnade.host.policy.audit.lines import (
    MAX_LINE_BYTES,
    AuditLine,
    StoredHead,
    line_digest,
)
from colonnade.host.policy.audit.verify import (
    AuditFinding,
    VerifyReport,
    last_lines,
    lines_of_call,
    read_calls,
    verify,
)
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store.memory import MemoryStore
from host.audited import ALLOWED, DENIED, call, files, opened, request, result
from live import live

HOST = audit_file.host_name()


async def write(folder: Path, calls: int = 3, max_file_bytes: int = 10**9) -> None:
    """One run."""
    log = opened(folder, max_file_bytes=max_file_bytes)
    for number in range(calls):
        call(log, request({"number": number}))
    await log.close()


def kinds(folder: Path, *, archived: bool = False) -> list[str]:
    return [one.kind for one in verify(str(folder), archived=archived).findings]


def change(file: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a file."""
    changed = edit(file.read_bytes().splitlines())
    file.write_bytes(b"".join(line + b"\n" for line in changed))


# ---------------------------------------------------------------- lines


@live
async def test_a_log_as_it_was_written_is_valid(tmp_path: Path) -> None:
    for _ in range(3):
        await write(tmp_path, 20, max_file_bytes=6000)
    report = verify(str(tmp_path))
    assert report.is_valid
    assert report.notes == []
    assert report.runs == 3
    assert report.files > 6
    assert report.lines == 3 * (20 * 4 + 1) + report.files


@live
async def test_every_line_that_is_deleted_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    await write(tmp_path)
    for file in files(tmp_path):
        before = file.read_bytes()
        count = len(before.splitlines())
        is_newest = file == files(tmp_path)[-1]
        # Without a store, the end of the newest file is only missed: see the notes.
        for number in range(count - 1 if is_newest else count):
            change(file, lambda found, n=number: found[:n] + found[n + 1 :])
            assert kinds(tmp_path), (file, number)
        file.write_bytes(before)
    assert kinds(tmp_path) == []


@live
async def test_every_byte_that_is_altered_is_found(tmp_path: Path) -> None:
    await write(tmp_path, 1)
    await write(tmp_path, 1)
    first = files(tmp_path)[0]
    before = first.read_bytes()
    for place in range(0, len(before), 7):
        altered = bytearray(before)
        altered[place] ^= 0x01
        first.write_bytes(bytes(altered))
        assert kinds(tmp_path), place
    first.write_bytes(before)
    assert kinds(tmp_path) == []


@live
async def test_an_altered_line_is_found_at_the_next_one(tmp_path: Path) -> None:
    await write(tmp_path)
    change(files(tmp_path)[0], lambda found: [one.replace(b'"allow"', b'"deny"') for one in found])
    report = verify(str(tmp_path))
    assert [(one.line, one.kind) for one in report.findings] == [
        (number, "altered") for number in (4, 8, 12)
    ]
    assert str(report.findings[0]).startswith(f"{files(tmp_path)[0].name}:4: ")


@live
async def test_two_lines_that_are_swapped_are_found(tmp_path: Path) -> None:
    await write(tmp_path)

    def swap(found: list[bytes]) -> list[bytes]:
        found[3], found[6] = found[6], found[3]
        return found

    change(files(tmp_path)[0], swap)
    assert {"missing", "order"} <= set(kinds(tmp_path))


@live
async def test_two_neighbours_that_are_swapped_with_their_numbers_are_found(tmp_path: Path) -> None:
    await write(tmp_path)

    def swap(found: list[bytes]) -> list[bytes]:
        third, fourth = found[2], found[3]
        found[2] = fourth.replace(b'"seq":4', b'"seq":3')
        found[3] = third.replace(b'"seq":3', b'"seq":4')
        return found

    change(files(tmp_path)[0], swap)
    assert "altered" in kinds(tmp_path)


@live
async def test_lines_that_are_swapped_between_two_files_are_found(tmp_path: Path) -> None:
    await write(tmp_path)
    await write(tmp_path)
    first, second = files(tmp_path)
    ours, theirs = first.read_bytes().splitlines(), second.read_bytes().splitlines()
    change(first, lambda found: [*found[:4], theirs[4], *found[5:]])
    change(second, lambda found: [*found[:4], ours[4], *found[5:]])
    report = verify(str(tmp_path))
    assert {(one.file, one.line, one.kind) for one in report.findings} >= {
        (first.name, 5, "foreign"),
        (second.name, 5, "foreign"),
    }


@live
async def test_lines_that_are_swapped_between_two_files_of_one_run_are_found(
    tmp_path: Path,
) -> None:
    await write(tmp_path, 10, max_file_bytes=6000)
    first, second = files(tmp_path)[:2]
    ours, theirs = first.read_bytes().splitlines(), second.read_bytes().splitlines()
    change(first, lambda found: [*found[:4], theirs[4], *found[5:]])
    change(second, lambda found: [*found[:4], ours[4], *found[5:]])
    assert {one.file for one in verify(str(tmp_path)).findings} == {first.name, second.name}


@live
async def test_a_line_that_is_added_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    change(file, lambda found: [*found[:3], b"not JSON", *found[3:]])
    assert "unreadable" in kinds(tmp_path)
    change(file, lambda found: [*found[:3], found[2], *found[4:]])
    assert "order" in kinds(tmp_path)


@live
async def test_a_line_after_the_end_of_a_run_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    last = json.loads(file.read_bytes().splitlines()[-1])
    forged = {**last, "seq": last["seq"] + 1, "event": "noted"}
    forged["prev"] = line_digest(file.read_bytes().splitlines()[-1])
    change(file, lambda found: [*found, json.dumps(forged).encode()])
    assert kinds(tmp_path) == ["order"]


@live
async def test_a_head_inside_of_a_file_and_a_file_without_one_are_found(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    before = file.read_bytes()
    change(file, lambda found: found[1:])
    assert "order" in kinds(tmp_path)
    file.write_bytes(before)
    change(file, lambda found: [*found, found[0]])
    assert "order" in kinds(tmp_path)


@live
async def test_a_head_of_another_format_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    change(
        files(tmp_path)[0],
        lambda found: [one.replace(b'"format":1', b'"format":2') for one in found],
    )
    assert "unreadable" in kinds(tmp_path)


# ---------------------------------------------------------------- files


@live
async def test_a_file_that_is_cut_is_found_once_another_run_follows(tmp_path: Path) -> None:
    await write(tmp_path)
    await write(tmp_path)
    first = files(tmp_path)[0]
    change(first, lambda found: found[:6])
    report = verify(str(tmp_path))
    assert [(one.file, one.kind) for one in report.findings] == [(first.name, "cut")]
    first.write_bytes(first.read_bytes()[:-20])
    assert kinds(tmp_path) == ["cut"]


@live
async def test_a_file_that_is_cut_in_the_middle_of_a_run_is_found(tmp_path: Path) -> None:
    await write(tmp_path, 20, max_file_bytes=6000)
    second = files(tmp_path)[1]
    before = second.read_bytes()
    for end in (b"", before[:-1], before[: len(before) // 2], before[: before.rindex(b'{"time"')]):
        second.write_bytes(end)
        assert kinds(tmp_path), len(end)
    second.write_bytes(before[:-1])
    first, _ = verify(str(tmp_path)).findings
    assert (first.file, first.kind) == (second.name, "cut")


@live
async def test_every_file_that_is_missing_from_the_middle_is_found(tmp_path: Path) -> None:
    for _ in range(3):
        await write(tmp_path, 10, max_file_bytes=6000)
    every = files(tmp_path)
    newest = every[-1]
    assert len(every) >= 6
    for file in every:
        before = file.read_bytes()
        file.unlink()
        report = verify(str(tmp_path))
        assert report.is_valid == (file == newest)
        if file == newest:
            assert "no end" in report.notes[-1].message
        file.write_bytes(before)
    assert kinds(tmp_path) == []


@live
async def test_a_run_that_is_missing_is_named_by_the_one_after_it(tmp_path: Path) -> None:
    for _ in range(3):
        await write(tmp_path)
    first, second, third = files(tmp_path)
    run = second.name.split("-")[1]
    second.unlink()
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.file, finding.line, finding.kind) == (third.name, 1, "run")
    assert run in finding.message
    assert kinds(tmp_path, archived=True) == ["run"]
    # The oldest files may be kept elsewhere, if one says so.
    third.unlink()
    await write(tmp_path)
    assert kinds(tmp_path) == []
    first.unlink()
    assert kinds(tmp_path) == ["run"]
    report = verify(str(tmp_path), archived=True)
    assert report.is_valid
    assert [one.kind for one in report.notes] == ["run"]


@live
async def test_the_oldest_files_of_a_run_may_be_archived(tmp_path: Path) -> None:
    await write(tmp_path, 20, max_file_bytes=6000)
    for file in files(tmp_path)[:2]:
        file.unlink()
    assert kinds(tmp_path) == ["file"]
    assert kinds(tmp_path, archived=True) == []


@live
async def test_a_file_that_is_renamed_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    began, run, part = file.name.split("-")
    file.rename(tmp_path / f"{began}-{run[::-1]}-{part}")
    assert {"name", "foreign"} <= set(kinds(tmp_path))


@live
async def test_a_copy_of_a_file_is_found(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    (tmp_path / file.name.replace("000001", "000002")).write_bytes(file.read_bytes())
    assert kinds(tmp_path)


@live
async def test_runs_of_several_processes_at_the_same_time_are_valid(tmp_path: Path) -> None:
    logs = [opened(tmp_path, max_file_bytes=5000) for _ in range(4)]
    for _ in range(10):
        for log in logs:
            call(log)
        await asyncio.sleep(0)
    for log in logs:
        await log.close()
    await write(tmp_path)
    assert verify(str(tmp_path)).is_valid
    assert len(last_lines(str(tmp_path))) == 1  # all others are followed by the last one


@live
async def test_the_end_of_a_run_beside_another_is_missed_once_a_run_follows(
    tmp_path: Path,
) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    for _ in range(3):
        call(first)
        call(second)
        await asyncio.sleep(0)
    await first.close()
    await second.close()
    await write(tmp_path)
    for file in files(tmp_path)[:2]:
        before = file.read_bytes()
        change(file, lambda found: found[:-1])
        assert "cut" in kinds(tmp_path)
        file.write_bytes(before)


@live
async def test_an_unfinished_line_is_no_finding_and_the_next_run_follows_it(tmp_path: Path) -> None:
    await write(tmp_path)
    file = files(tmp_path)[0]
    before = file.read_bytes()
    for cut in (1, 20, 200):
        file.write_bytes(before[:-cut])
        report = verify(str(tmp_path))
        assert report.is_valid
        assert "incomplete" in report.notes[0].message
    await write(tmp_path)
    report = verify(str(tmp_path))
    assert report.is_valid
    assert "incomplete" in report.notes[0].message


@live
async def test_an_empty_file_of_a_process_that_was_killed_at_once_is_no_finding(
    tmp_path: Path,
) -> None:
    await write(tmp_path)
    (tmp_path / "20990101T000000.000000Z-0123456789abcdef-000001.jsonl").write_bytes(b"")
    report = verify(str(tmp_path))
    assert report.is_valid
    assert "empty" in report.notes[0].message


# ---------------------------------------------------------------- heads in a store


async def heads(store: MemoryStore) -> list[StoredHead]:
    return await audit_file.stored_heads(store)


@live
async def test_a_cut_end_and_a_removed_newest_file_are_found_with_a_store(tmp_path: Path) -> None:
    store = MemoryStore()
    for _ in range(2):
        log = opened(tmp_path, heads=store)
        call(log)
        await log.close()
    kept = await heads(store)
    assert len(kept) == 2
    assert verify(str(tmp_path), kept, host=HOST).is_valid
    newest = files(tmp_path)[-1]
    before = newest.read_bytes()
    change(newest, lambda found: found[:-1])
    assert verify(str(tmp_path)).is_valid
    (finding,) = verify(str(tmp_path), kept, host=HOST).findings
    assert (finding.file, finding.kind) == (newest.name, "cut")
    assert "the store" in finding.message
    newest.write_bytes(before)
    newest.unlink()
    (finding,) = verify(str(tmp_path), kept, host=HOST).findings
    assert finding.kind == "run"
    # On another host, or of another folder, it may be where it belongs.
    assert verify(str(tmp_path), kept, host="other").is_valid


@live
async def test_a_log_that_was_written_anew_is_found_with_a_store(tmp_path: Path) -> None:
    store = MemoryStore()
    log = opened(tmp_path, heads=store)
    call(log)
    await log.close()
    file = files(tmp_path)[0]
    found, digest = list[bytes](), ""
    for line in file.read_bytes().splitlines():
        forged = json.loads(line) | {"prev": digest}
        if "principal" in forged:
            forged["principal"] = "mallory"
        found.append(json.dumps(forged, separators=(",", ":")).encode())
        digest = line_digest(found[-1])
    change(file, lambda _: found)
    assert verify(str(tmp_path)).is_valid  # nothing in the folder can show it
    report = verify(str(tmp_path), await heads(store), host=HOST)
    assert [one.kind for one in report.findings] == ["altered"]


@live
async def test_a_forged_run_is_found_with_a_store(tmp_path: Path) -> None:
    store = MemoryStore()
    log = opened(tmp_path, heads=store)
    call(log)
    await log.close()
    await write(tmp_path)  # by somebody who cannot write to the store
    forged = files(tmp_path)[-1]
    assert verify(str(tmp_path)).is_valid  # nothing in the folder can show it
    report = verify(str(tmp_path), await heads(store), host=HOST)
    assert [(one.file, one.kind) for one in report.findings] == [(forged.name, "unknown")]
    # The next run names it, as every run in the folder: that is no proof.
    log = opened(tmp_path, heads=store)
    call(log)
    await log.close()
    report = verify(str(tmp_path), await heads(store), host=HOST)
    assert [(one.file, one.kind) for one in report.findings] == [(forged.name, "unknown")]
    # Nor are others that it named itself.
    assert len(verify(str(tmp_path), [], host=HOST).findings) == 3


@live
async def test_a_run_that_pretends_to_be_the_oldest_is_found_with_a_store(tmp_path: Path) -> None:
    store = MemoryStore()
    log = opened(tmp_path, heads=store)
    call(log)
    await log.close()
    other = tmp_path / "other"
    await write(other)
    (old,) = files(other)
    forged = tmp_path / f"20200101T000000.000000Z-{old.name.split('-', 1)[1]}"
    forged.write_bytes(old.read_bytes())
    report = verify(str(tmp_path), await heads(store), host=HOST)
    assert [(one.file, one.kind) for one in report.findings] == [(forged.name, "unknown")]


@live
async def test_runs_from_before_there_was_a_store_are_known_by_the_first_that_it_has(
    tmp_path: Path,
) -> None:
    await write(tmp_path)
    await write(tmp_path)
    store = MemoryStore()
    log = opened(tmp_path, heads=store)
    call(log)
    await log.close()
    assert verify(str(tmp_path), await heads(store), host=HOST).is_valid


@live
async def test_the_last_line_is_in_the_store_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "HEADS_S", 0.001)
    store = MemoryStore()
    log = opened(tmp_path, heads=store)
    call(log)
    while True:
        kept = await heads(store)
        if kept and kept[0].seq == 5:
            break
        await asyncio.sleep(0.001)
    assert verify(str(tmp_path), kept, host=HOST).is_valid
    await log.close()
    assert (await heads(store))[0].seq == 6


@live
async def test_a_store_that_does_not_respond_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from colonnade.errors import CannotConnect

    class Broken(MemoryStore):
        async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
            raise CannotConnect("no store here")

    log = opened(tmp_path, heads=Broken())
    call(log)
    await asyncio.sleep(0)
    await log.close()
    assert caplog.text.count("no store here") == 1
    assert verify(str(tmp_path)).is_valid


@live
async def test_other_entries_of_a_store_are_no_heads(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.put(SERVER_PRINCIPAL, "audit x", b"not JSON", None)
    await store.put(SERVER_PRINCIPAL, "task x", b"{}", None)
    assert await heads(store) == []


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * (3 * MAX_LINE_BYTES),
        b"\n" * 10_000,
        bytes(range(256)) * 100,
        b"[" * 100_000 + b"\n",
        b'{"time":1}\n',
    ],
    ids=["zeros", "newlines", "binary", "brackets", "wrong types"],
)
def test_any_file_is_read_in_bounded_memory_and_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "20260101T000000.000000Z-0123456789abcdef-000001.jsonl").write_bytes(content)
    report = verify(str(tmp_path))
    assert not report.is_valid
    assert len(report.findings) <= audit_verify.MAX_FINDINGS + 1
    assert list(read_calls(str(tmp_path), lambda _: True)) == []
    assert list(lines_of_call(str(tmp_path), "0123456789abcdef-1")) == []
    assert last_lines(str(tmp_path)) == []


def test_a_huge_file_is_not_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "20260101T000000.000000Z-0123456789abcdef-000001.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte
    assert kinds(tmp_path) == ["unreadable"]
    assert last_lines(str(tmp_path)) == []


def test_links_and_other_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    name = "20260101T000000.000000Z-0123456789abcdef-00000{}.jsonl"
    os.symlink("/dev/zero", tmp_path / name.format(1))
    os.symlink(tmp_path / "notes.txt", tmp_path / name.format(2))
    report = verify(str(tmp_path))
    assert report == VerifyReport(findings=[], notes=[])


def test_a_folder_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_verify, "MAX_FILES", 2)
    for part in range(3):
        (tmp_path / f"20260101T000000.000000Z-0123456789abcdef-00000{part}.jsonl").touch()
    with pytest.raises(OSError, match="more than 2"):
        verify(str(tmp_path))


@live
async def test_a_new_run_looks_at_the_files_that_were_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_verify, "MAX_RECENT_FILES", 2)
    long = opened(tmp_path)
    call(long)
    await asyncio.sleep(0)
    for _ in range(5):
        await write(tmp_path)
    run = call(long).partition("-")[0]
    await long.close()
    now = max(one.stat().st_mtime_ns for one in files(tmp_path))
    os.utime(files(tmp_path)[0], ns=(now + 1, now + 1))
    assert run in [one.run for one in last_lines(str(tmp_path))]


# ---------------------------------------------------------------- calls


def everything(_: AuditLine) -> bool:
    return True


@live
async def test_the_calls_of_a_log_have_their_decision_and_outcome(tmp_path: Path) -> None:
    log = opened(tmp_path)
    done = call(log)
    denied = log.proposed(request())
    log.decided(denied, request(), DENIED)
    log.abandoned(denied, request(), ValueError("x"))
    running = log.proposed(request())
    log.decided(running, request(), ALLOWED)
    log.executed(running, request(), "2025-06-18")
    await log.close()
    found = {one.call: one for one in read_calls(str(tmp_path), everything)}
    assert list(found) == [done, denied, running]
    assert (found[done].decision, found[done].outcome) == ("allow", "returned")
    assert (found[denied].decision, found[denied].rule) == ("deny", "colonnade.toml:14")
    assert (found[denied].outcome, found[denied].error) == ("failed", "ValueError")
    assert (found[running].outcome, found[running].was_sent) == ("", True)
    shown = [line.event for line, _ in lines_of_call(str(tmp_path), denied)]
    assert shown == ["proposed", "decided", "failed"]
    only = read_calls(str(tmp_path), lambda line: line.name == "write")
    assert list(only) == []


@live
async def test_old_runs_are_skipped_by_the_time_of_their_files(tmp_path: Path) -> None:
    await write(tmp_path, 1)
    file = files(tmp_path)[0]
    changed = file.stat().st_mtime_ns
    assert len(list(read_calls(str(tmp_path), everything, changed))) == 1
    assert list(read_calls(str(tmp_path), everything, changed + 1)) == []


@live
async def test_calls_without_an_outcome_are_not_kept_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_verify, "MAX_OPEN_CALLS", 3)
    log = opened(tmp_path)
    ids = [log.proposed(request()) for _ in range(10)]
    log.returned(ids[9], request(), result())
    await log.close()
    assert {one.call for one in read_calls(str(tmp_path), everything)} == set(ids)


def test_a_finding_is_one_line() -> None:
    assert str(AuditFinding("a.jsonl", 3, "altered", "was altered")) == "a.jsonl:3: was altered"
    assert str(AuditFinding("a.jsonl", 0, "file", "is missing")) == "a.jsonl: is missing"
