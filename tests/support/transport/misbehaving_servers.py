"""Servers that misbehave: run as a process, with the name of one of them as the only argument.

    python misbehaving_servers.py ignores_the_end

Rules: the standard library alone, and nothing that takes time to import, so that it starts fast.
Nothing is asserted here; the tests look at what comes of it. One that is about to misbehave says
"ready" on its standard error first.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MODES: dict[str, Callable[[], None]] = {}


def mode(function: Callable[[], None]) -> Callable[[], None]:
    MODES[function.__name__] = function
    return function


# ---------------------------------------------------------------- what a server does


def requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            yield message


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def say(message: Any) -> None:
    write(json.dumps(message).encode() + b"\n")


def reply(id: Any, text: str = "fine") -> None:
    result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    say({"jsonrpc": "2.0", "id": id, "result": result})


def ready() -> None:
    os.write(2, b"ready\n")


def for_ever() -> None:
    while True:
        time.sleep(3600)


def called() -> Any:
    """The id of the next call; for ever where there is none."""
    for request in requests():
        return request["id"]
    return for_ever()


@mode
def serves() -> None:
    for request in requests():
        answer(request)


def answer(request: dict[str, Any]) -> None:
    """Whatever a client opens with, and any call."""
    result: dict[str, Any] = {"capabilities": {"tools": {}}}
    if request["method"] == "initialize":
        result |= {"protocolVersion": request["params"]["protocolVersion"]}
        result |= {"serverInfo": {"name": "zoo", "version": "1"}}
    elif request["method"] == "server/discover":
        (date,) = {value for key, value in request["params"]["_meta"].items() if "Version" in key}
        result |= {"supportedVersions": [date], "resultType": "complete"}
        result |= {"ttlMs": 0, "cacheScope": "private"}
    else:
        return reply(request["id"])
    return say({"jsonrpc": "2.0", "id": request["id"], "result": result})


@mode
def shows_what_it_hears() -> None:
    for line in sys.stdin.buffer:
        os.write(2, line)
        message = json.loads(line)
        if "id" in message and message.get("method") != "tools/call":
            answer(message)


# ---------------------------------------------------------------- ends


@mode
def exits_with_0() -> None:
    sys.exit(0)


@mode
def exits_with_1() -> None:
    sys.exit("ModuleNotFoundError: No module named 'git'")


@mode
def exits_in_a_call() -> None:
    called()
    sys.stderr.write("Traceback (most recent call last):\n\x1b[31mKeyError: 'log'\x1b[0m\n")
    sys.exit(3)


@mode
def dies_by_a_signal() -> None:
    called()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


@mode
def answers_and_exits() -> None:
    reply(called())
    os._exit(0)


@mode
def tells_its_secret() -> None:
    called()
    sys.exit(f"the key {os.environ['API_KEY']} is not valid, in {os.environ['HOME_OF_IT']}")


@mode
def closes_its_output() -> None:
    called()
    os.close(1)
    for_ever()


@mode
def closes_its_input() -> None:
    os.close(0)
    ready()
    for_ever()


@mode
def ignores_the_end() -> None:
    """Neither the end of its input nor SIGTERM ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    serves()
    for_ever()


@mode
def heeds_sigterm() -> None:
    """Only SIGTERM ends it, once; and it says so."""

    def end(*_: object) -> None:
        os.write(2, b"SIGTERM came\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    ready()
    serves()
    for_ever()


@mode
def stops_itself() -> None:
    called()
    os.kill(os.getpid(), signal.SIGSTOP)
    for_ever()


# ---------------------------------------------------------------- families


def fork(*, leaves: bool) -> int:
    """A process that shares our streams and heeds nothing; it may leave our group, too."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if leaves:
            os.setsid()
            if os.fork():
                os._exit(0)
        os.write(writing, b"%d\n" % os.getpid())
        for_ever()
    pid = int(os.read(reading, 20))
    if leaves:
        os.wait()
    return pid


@mode
def forks_and_exits() -> None:
    """What it leaves behind holds the pipes."""
    called()
    fork(leaves=False)
    os._exit(5)


@mode
def forks() -> None:
    pid = fork(leaves=False)
    for request in requests():
        reply(request["id"], str(pid))


@mode
def forks_a_daemon() -> None:
    """What it leaves behind has left its session, and is nobody's child."""
    pid = fork(leaves=True)
    for request in requests():
        reply(request["id"], str(pid))


def spawn_apart(depth: int = 0) -> list[int]:
    """A process with a session of its own, no environment and no stream of ours; and its own
    children, of the same kind. They never end by themselves."""
    code = (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "depth, pids = int(sys.argv[1]), []\n"
        "if depth:\n"
        "    more = subprocess.Popen([sys.executable, '-IS', '-c', sys.argv[2], str(depth - 1),"
        " sys.argv[2]], env={}, start_new_session=True, stdout=subprocess.PIPE)\n"
        "    pids = more.stdout.readline().split()\n"
        "print(os.getpid(), *(int(one) for one in pids), flush=True)\n"
        "os.close(1)\n"
        "while True:\n"
        "    signal.pause()\n"
    )
    import subprocess

    made = subprocess.Popen(
        [sys.executable, "-IS", "-c", code, str(depth), code],
        env={},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert made.stdout is not None
    return [int(one) for one in made.stdout.readline().split()]


@mode
def spawns_apart() -> None:
    """What it starts has a session and an empty environment of its own, and children like it."""
    pids = spawn_apart(2)
    for request in requests():
        reply(request["id"], " ".join(map(str, pids)))


@mode
def spawns_apart_and_ignores_the_end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = spawn_apart(1)
    for request in requests():
        reply(request["id"], " ".join(map(str, pids)))
    while True:
        time.sleep(60)


@mode
def is_a_wrapper() -> None:
    """As package managers are: who serves is a child, and it ends with that one."""
    pid = os.fork()
    if pid == 0:
        serves()
        os._exit(7)
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status))


# ---------------------------------------------------------------- output


@mode
def prints_a_banner() -> None:
    write(b"\x1b[1mWelcome to \xf0\x9f\x90\x99 1.0\x1b[0m\n[info] it starts\n\n")
    write(b'{"level": "info", "message": "a log in JSON"}\n')
    for request in requests():
        write(b"{'a': 'dict of Python'}\n[debug] sends {\"jsonrpc\": 1}\r\n42\n")
        reply(request["id"])


@mode
def prints_and_exits() -> None:
    write(b"usage: tool [options]\n")
    sys.exit(2)


@mode
def prints_for_ever() -> None:
    while True:
        write(b"y\n" * 1000)


@mode
def half_a_line_and_a_pause() -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "res' % called())
    for_ever()


@mode
def half_a_line_and_the_end() -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "res' % called())
    os._exit(0)


@mode
def forgets_the_last_newline() -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[]}}' % called())
    os._exit(0)


@mode
def a_huge_line() -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"a": "' % called())
    while True:
        write(b"x" * 65536)


@mode
def is_not_utf8() -> None:
    for request in requests():
        write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xfe"}}\n')
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"caf\xe9"}}\n' % request["id"])


def broken(reply: bytes) -> None:
    """Answer with this, the id filled in, and stay."""
    for request in requests():
        write(reply.replace(b"ID", b"%d" % request["id"]) + b"\n")


@mode
def nests_too_deep() -> None:
    deep = b'{"x":' * 10_000 + b"1" + b"}" * 10_000
    broken(b'{"jsonrpc":"2.0","id":ID,"result":%b}' % deep)


@mode
def nests_too_deep_and_says_its_id_last() -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    broken(b'{"result":{"x":%b},"jsonrpc":"2.0","id":ID}' % deep)


@mode
def says_nan() -> None:
    broken(b'{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "x": NaN}}')


@mode
def is_cut_off() -> None:
    broken(b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te')


@mode
def says_a_member_twice() -> None:
    broken(b'{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"result":{"content":[]}}')


@mode
def carriage_returns() -> None:
    for request in requests():
        result = {"resultType": "complete", "content": []}
        write(
            b"\r\n\n"
            + json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        )
        write(b" \r\n\r\n")


@mode
def floods_its_errors() -> None:
    line = b"x" * 1023 + b"\n"
    for request in requests():
        for _ in range(4096):
            os.write(2, line)
        os.write(2, b"and an end without a newline")
        reply(request["id"])


# ---------------------------------------------------------------- time and ids


@mode
def starts_slowly() -> None:
    time.sleep(0.3)
    serves()


@mode
def never_reads() -> None:
    ready()
    for_ever()


@mode
def says_nothing() -> None:
    for _ in requests():
        pass


@mode
def answers_twice() -> None:
    for request in requests():
        reply(request["id"])
        reply(request["id"], "again")


@mode
def answers_another() -> None:
    for request in requests():
        reply(request["id"] + 1000)
        reply(str(request["id"]))


# ---------------------------------------------------------------- what it was given


@mode
def shows_what_it_was_given() -> None:
    for request in requests():
        given = {
            "environ": dict(os.environ),
            "cwd": os.getcwd(),
            "leads": [os.getpid() == os.getpgid(0), os.getpid() == os.getsid(0)],
            "open": sorted(int(name) for name in os.listdir("/proc/self/fd")),
            "argv": sys.argv,
        }
        reply(request["id"], json.dumps(given))


if __name__ == "__main__":
    MODES[sys.argv[1]]()
