"""A server that tries to leave its sandbox: a call of a tool with the name of an attempt makes it.

Rules: the standard library alone. Paths, ports and pids come from the environment. The text of the
result is "done" for an attempt that succeeds, and otherwise the name of its error.
"""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ATTEMPTS: dict[str, Callable[[], None]] = {}
LIBC = ctypes.CDLL(None, use_errno=True)
GIVEN = os.environ
CLONE_NEWUSER = 0x10000000
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17


def attempt(function: Callable[[], None]) -> Callable[[], None]:
    ATTEMPTS[function.__name__] = function
    return function


def check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@attempt
def reads_a_key() -> None:
    assert Path(GIVEN["KEY_FILE"]).read_text() == "secret"


@attempt
def lists_the_home_folder() -> None:
    assert ".ssh" in os.listdir(GIVEN["HOME_FOLDER"])


@attempt
def reads_a_key_by_a_path_of_proc() -> None:
    Path(f"/proc/{GIVEN['VICTIM']}/root/{GIVEN['KEY_FILE']}").read_text()


@attempt
def reads_its_working_folder() -> None:
    assert Path("notes.txt").read_text() == "notes"


@attempt
def writes_its_working_folder() -> None:
    Path("written.txt").write_text("here")


@attempt
def reads_a_granted_folder() -> None:
    assert Path(GIVEN["DATA_FOLDER"], "data.txt").read_text() == "data"


@attempt
def writes_a_granted_folder() -> None:
    Path(GIVEN["DATA_FOLDER"], "written.txt").write_text("here")


@attempt
def writes_outside() -> None:
    Path(GIVEN["OUTSIDE"], "written.txt").write_text("here")


@attempt
def leaves_a_file_in_tmp() -> None:
    Path("/tmp", GIVEN["UNIQUE"]).write_text("here")
    assert Path("/tmp", "from-" + GIVEN["UNIQUE"]).exists()  # made by the test


@attempt
def writes_a_hook_of_git() -> None:
    Path(".git/hooks/pre-commit").write_text("#!/bin/sh\n")


@attempt
def replaces_the_folder_of_git() -> None:
    os.rename(".git", ".git-before")


@attempt
def commits() -> None:
    Path(".git/index").write_text("")


@attempt
def connects_to_loopback() -> None:
    socket.create_connection(("127.0.0.1", int(GIVEN["PORT"])), timeout=30).close()


@attempt
def connects_to_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\0" + GIVEN["UNIQUE"])


@attempt
def connects_to_a_socket_of_the_user() -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(GIVEN["SOCKET"])


@attempt
def sees_another_process() -> None:
    pids = [one for one in os.listdir("/proc") if one.isdigit()]
    lines: list[bytes] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    if not any(GIVEN["UNIQUE"].encode() in line for line in lines):
        raise ProcessLookupError


@attempt
def signals_another_process() -> None:
    os.kill(int(GIVEN["VICTIM"]), 0)


@attempt
def traces_another_process() -> None:
    pid = int(GIVEN["VICTIM"])
    check(LIBC.ptrace(PTRACE_SEIZE, pid, None, None))
    LIBC.ptrace(PTRACE_DETACH, pid, None, None)


@attempt
def may_gain_privileges() -> None:
    if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
        raise PermissionError


@attempt
def makes_a_namespace() -> None:
    check(LIBC.unshare(CLONE_NEWUSER))


@attempt
def uses_shared_memory() -> None:
    check(LIBC.shmget(int(GIVEN["MEMORY_KEY"]), 1, 0o600))


@attempt
def forks_without_end() -> None:
    pids: list[int] = []
    reading, writing = os.pipe()
    try:
        for _ in range(int(GIVEN["FORKS"])):
            pid = os.fork()
            if not pid:
                os.close(writing)
                os.read(reading, 1)  # until its parent closes the pipe
                os._exit(0)
            pids.append(pid)
    finally:
        os.close(writing)
        os.close(reading)
        for pid in pids:
            os.waitpid(pid, 0)


@attempt
def takes_much_memory() -> None:
    bytearray(int(GIVEN["BYTES"]))


@attempt
def opens_many_files() -> None:
    opened: list[int] = []
    try:
        for _ in range(int(GIVEN["FILES"])):
            opened += [os.open("/dev/null", os.O_RDONLY)]
    finally:
        for one in opened:
            os.close(one)


@attempt
def leaves_a_process() -> None:
    """A daemon: it forks twice, and has neither the session nor the environment of its parent."""
    code = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.execve('/bin/sleep', ['sleep', sys.argv[1]], {})"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, GIVEN["DAEMON"]],
        env={},
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            ATTEMPTS[message["params"]["name"]]()
            text = "done"
        except Exception as error:
            text = type(error).__name__
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
