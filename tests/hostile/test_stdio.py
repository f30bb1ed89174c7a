"""Everything that a client can write into a pipe wrong, at a live server in a process of its own.

Rules: each item is followed by a good call, whose answer must come; what a child takes of memory,
threads and descriptors is looked at in the end.
"""

import json
import os
import signal
import subprocess
import tempfile
from typing import Any

import pytest

from hostile.child import Child, child
from hostile.items import (
    ERAS,
    ERROR,
    EVERYTHING,
    LARGE,
    METHOD,
    MISMATCH,
    MODERN,
    PARAMS,
    REQUEST,
    SESSION,
    Era,
    Item,
)
from hostile.sender import LEAKS, check_answer

each_era = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)

MEGABYTE = 1 << 20


def right_codes(item: Item, era: Era) -> tuple[int | None, ...]:
    """A pipe has no headers to compare with, and longer lines than HTTP has bodies."""
    want = item.want(era)
    if want.code == MISMATCH:
        return (METHOD, PARAMS)
    return (REQUEST, PARAMS, None) if want.status == 413 else (want.code,)


def throw(server: Child, item: Item, era: Era) -> None:
    """Throw one line, and a good one after it; both answers must be right."""
    body, want = item.body(era), item.want(era)
    server.write(body + b"\n")
    id = server.ask(era, "echo", value="fine")
    silent = want.silent or not body.strip()
    lines = [server.line() for _ in range(1 if silent else 2)]
    assert not any(leak in line for line in lines for leak in LEAKS)
    answers: list[Any] = [json.loads(line) for line in lines]
    (fine,) = (one for one in answers if one.get("id") == id)
    assert fine["result"]["content"][0]["text"] == '"fine"'
    for answer in answers:
        if answer is not fine:
            codes = right_codes(item, era)
            code = answer["error"]["code"] if "error" in answer else None
            assert code in codes or want.code == ERROR, (item.name, str(answer)[:500])
            check_answer(answer, want._replace(code=want.code if want.code == ERROR else code))


def throw_all(items: list[Item], era: Era) -> None:
    with tempfile.TemporaryFile() as errors:
        with child(stderr=errors) as server:
            server.open(era)
            before = server.census(era)
            for item in items:
                if b"\n" not in item.body(era):
                    throw(server, item, era)
            after = server.census(era)
            server.end()
        errors.seek(0)
        assert b"Traceback" not in errors.read()
    assert after["tasks"] == before["tasks"]
    assert after["descriptors"] == before["descriptors"]
    assert after["objects"] < before["objects"] + 5_000
    # The largest of them had 12 MB; the allocator keeps some of what it was given.
    assert after["memory"] < before["memory"] + 200 * MEGABYTE


@each_era
def test_every_bad_line_is_answered_and_the_next_is_served(era: Era) -> None:
    throw_all(EVERYTHING, era)


@pytest.mark.slow
def test_every_large_line_is_answered_and_the_next_is_served() -> None:
    throw_all(LARGE, MODERN)


@each_era
def test_lines_that_are_hardly_lines_are_read_as_they_are_meant(era: Era) -> None:
    with child() as server:
        server.open(era)
        server.write(b"\n" * 10_000 + b"\r\n" * 10_000 + b" \t\r\n" * 1000)
        frame = era.frame(b'"crlf"')
        server.write(frame + b"\r\n")
        assert server.message()["result"]["content"][0]["text"] == '"crlf"'
        for cut in (1, 20, len(frame) - 1):
            server.write(frame[:cut])
            server.write(frame[cut:] + b"\n")
            assert server.message()["result"]["content"][0]["text"] == '"crlf"'
        for byte in frame + b"\n":  # a byte at a time
            server.write(bytes([byte]))
        assert server.message()["result"]["content"][0]["text"] == '"crlf"'
        server.write(b"\xff" * 100 + b"\n" + frame + b"\n")
        answers = [server.message(), server.message()]
        assert answers[0]["error"]["code"] == -32700
        assert answers[1]["result"]["content"][0]["text"] == '"crlf"'
        server.end()


@pytest.mark.parametrize("rest", [b"", b"{", MODERN.frame()[:50], b"\xff\xfe"])
def test_half_a_line_and_the_end_is_the_end(rest: bytes) -> None:
    with child() as server:
        server.open(SESSION)
        server.write(rest)
        server.end()


def endless(megabytes: int) -> None:
    with child() as server:
        server.open(MODERN)
        assert server.text(MODERN, "echo") == "null"
        before = server.memory()
        peak = 0
        for turn in range(megabytes):
            server.write(b"x" * MEGABYTE)
            if turn % 16 == 0:
                peak = max(peak, server.memory())
        assert peak < before + 64 * MEGABYTE
        server.write(b"\n")
        assert server.message()["error"]["code"] in (-32700, -32600)
        assert server.text(MODERN, "echo", value=1) == "1"
        server.end()


def test_a_line_without_an_end_is_not_kept() -> None:
    endless(64)


@pytest.mark.slow
def test_a_line_of_a_gibibyte_is_not_kept() -> None:
    endless(1024)


def test_a_flood_that_nobody_waits_for_is_answered_in_the_end() -> None:
    """The client writes, and reads nothing until it has written everything."""
    count = 10_000
    with child() as server:
        server.open(SESSION)
        server.write(b"{nonsense\n" * count)
        id = server.ask(SESSION, "echo", value="fine")
        for _ in range(count):
            assert b"-32700" in server.line()
        assert server.message()["id"] == id
        server.end()


def test_an_answer_that_is_too_large_for_any_pipe_is_refused_in_words() -> None:
    with child() as server:
        server.open(MODERN)
        result = server.call(MODERN, "huge", size=40 * MEGABYTE)["result"]
        assert result["isError"]
        assert "request less" in result["content"][0]["text"]
        assert len(server.text(MODERN, "huge", size=10 * MEGABYTE)) == 10 * MEGABYTE
        server.end()


# ---------------------------------------------------------------- streams that are not as they should be


def test_a_log_that_nobody_reads_does_not_stop_the_server() -> None:
    with child(stderr=subprocess.PIPE) as server:
        server.open(MODERN)
        for _ in range(400):  # each is logged, and the pipe holds 64 KiB
            assert "failed (id" in server.text(MODERN, "fails", kind="MemoryError")
        server.end()


def test_a_server_without_a_standard_error_serves() -> None:
    with child(wrapped=("sh", "-c", 'exec "$@" 2>&-', "sh")) as server:
        server.open(SESSION)
        assert "failed (id" in server.text(SESSION, "fails", kind="MemoryError")
        assert server.text(SESSION, "echo") == "null"
        server.end()


def test_a_client_that_closes_everything_ends_the_server() -> None:
    with child() as server:
        server.open(SESSION)
        for _ in range(3):
            server.ask(SESSION, "wait")
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.ask(SESSION, "echo")
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("phase", ["before anything", "in the middle of a line", "during a call"])
def test_a_signal_ends_it_well_at_any_time(phase: str) -> None:
    with child() as server:
        server.open(MODERN)
        assert server.text(MODERN, "echo") == "null"
        if phase == "in the middle of a line":
            server.write(MODERN.frame()[:50])
        elif phase == "during a call":
            server.ask(MODERN, "wait")
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_a_child_that_is_stopped_and_continued_goes_on() -> None:
    with child() as server:
        server.open(MODERN)
        assert server.text(MODERN, "echo") == "null"
        os.kill(server.process.pid, signal.SIGSTOP)
        ids = [server.ask(MODERN, "echo") for _ in range(10)]
        os.kill(server.process.pid, signal.SIGCONT)
        assert [server.message()["id"] for _ in ids] == ids
        server.end()
