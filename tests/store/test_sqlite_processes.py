"""Several processes on one file: real ones, started, stopped and killed.

Rules: a process says on its output what was acknowledged to it, and nothing before that.
"""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore
from store.store_fixture import PATIENCE_S

PREFACE = """
import asyncio, os, sys, warnings
from colonnade.errors import LocalProtocolError
from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore

LIMITS = StoreLimits(log_entries=100_000)
path, me = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

async def main():
    # With -X dev asyncio complains of a machine that stalls.
    asyncio.get_running_loop().slow_callback_duration = 3600.0
    store = SqliteStore(path, limits=LIMITS)
    await scene(store)
    await store.close()

"""


@contextmanager
def process(path: Path, body: str, me: str = "") -> Generator["subprocess.Popen[str]", None, None]:
    """A process of its own that plays a scene; killed, if it is still there, at the end."""
    code = f"{PREFACE}async def scene(store):\n{body}\nasyncio.run(main())"
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", code, str(path), me],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def ended(child: "subprocess.Popen[str]") -> list[str]:
    """Let a process go on, and what it said by its proper end."""
    said, complaints = child.communicate("go\n", timeout=PATIENCE_S)
    assert (child.returncode, complaints) == (0, "")
    return said.splitlines()


CLAIM = """
    sys.stdin.readline()
    for n in range(40):
        if await store.add("ada", f"{n}", me.encode(), None):
            say("won", n)
        say("number", await store.append("ada", "log", me.encode(), None))
    claims = [store.add("ada", f"{n}", me.encode(), None) for n in range(40, 80)]
    for n, won in enumerate(await asyncio.gather(*claims), 40):
        if won:
            say("won", n)
"""


def test_processes_that_make_one_file_at_once_share_it_and_each_claim_has_one_winner(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    with ExitStack() as stack:
        children = [stack.enter_context(process(path, CLAIM, f"p{n}")) for n in range(5)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        said = {f"p{n}": ended(child) for n, child in enumerate(children)}
    won = {line.split()[1]: me for me, lines in said.items() for line in lines if "won" in line}
    assert sum("won" in line for lines in said.values() for line in lines) == len(won) == 80
    numbers = {
        int(line.split()[1]): me for me, lines in said.items() for line in lines if "number" in line
    }
    assert sorted(numbers) == list(range(1, 201))

    async def compare() -> None:
        store = SqliteStore(path)
        for key, me in won.items():
            assert await store.get("ada", key) == me.encode()
        assert {n: me.decode() for n, me in await store.read("ada", "log", 0)} == numbers
        await store.close()

    asyncio.run(compare())


INCREMENT = """
    sys.stdin.readline()
    lost = 0

    async def increment():
        nonlocal lost
        while True:
            before = await store.get("ada", "n")
            after = b"%d" % (int(before or b"0") + 1)
            if await store.swap("ada", "n", before, after, 3600.0):
                return int(after)
            lost += 1

    for n in range(150):
        say("swapped", await increment())
    for n in range(30):
        for number in await asyncio.gather(*(increment() for _ in range(5))):
            say("swapped", number)
    for number in await asyncio.gather(*(store.count("ada", "c", 1, 3600.0) for _ in range(100))):
        say("counted", number)
    for n in range(100):
        say("counted", await store.count("ada", "c", 1, 3600.0))
    say("lost", lost)
"""


def test_no_increment_of_two_processes_is_lost_by_swap_or_by_count(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with ExitStack() as stack:
        children = [stack.enter_context(process(path, INCREMENT)) for _ in range(2)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        words = [line.split() for child in children for line in ended(child)]
    said = [(verb, int(number)) for verb, number in words]
    assert sorted(number for verb, number in said if verb == "swapped") == list(range(1, 601))
    assert sorted(number for verb, number in said if verb == "counted") == list(range(1, 401))
    assert sum(number for verb, number in said if verb == "lost") > 0  # they did meet

    async def compare() -> None:
        store = SqliteStore(path)
        assert await store.get("ada", "n") == b"600"
        assert await store.get("ada", "c") == b"400"
        await store.close()

    asyncio.run(compare())


WRITE = """
    n = 0
    while True:
        n += 1
        await asyncio.gather(
            store.put("ada", f"{n}", b"%d" % n * 1000, None),
            store.append("ada", "log", b"%d" % n, None),
        )
        say(n)
"""


@pytest.mark.parametrize("after", [1, 7, 60])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, after: int) -> None:
    path = tmp_path / "store.db"
    with process(path, WRITE) as child:
        assert child.stdout is not None
        for _ in range(after):
            child.stdout.readline()
        child.kill()
        rest = child.stdout.read().splitlines()
    acknowledged = after + len([line for line in rest if line])

    async def compare() -> None:
        store = SqliteStore(path, limits=StoreLimits(log_entries=100_000))
        for n in range(1, acknowledged + 1):
            assert await store.get("ada", f"{n}") == b"%d" % n * 1000
        log = await store.read("ada", "log", 0)
        assert len(log) >= acknowledged
        assert log == [(n, b"%d" % n) for n in range(1, len(log) + 1)]
        assert await store.append("ada", "log", b"", None) == len(log) + 1
        await store.close()

    asyncio.run(compare())


ANSWER = """
    async with store.listen("ada", "questions") as heard:
        say("ready")
        async for question in heard:
            await store.publish("ada", "answers", question.upper())
            if question == b"bye":
                return
"""


def test_processes_hear_each_other(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def ask(child: "subprocess.Popen[str]") -> None:
        assert child.stdout is not None
        store = SqliteStore(path)
        async with asyncio.timeout(PATIENCE_S), store.listen("ada", "answers") as answers:
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
            for word in (b"first", b"second", b"bye"):
                await store.publish("eve", "questions", b"not for you")
                await store.publish("ada", "questions", word)
                assert await anext(answers) == word.upper()
        await store.close()

    with process(path, ANSWER) as child:
        asyncio.run(ask(child))
        assert ended(child) == []


FORK = """
    warnings.simplefilter("ignore")  # newer Pythons say, rightly, that this is a bad idea
    await store.put("ada", "k", b"v", None)
    child = os.fork()
    if child == 0:
        try:
            await store.get("ada", "k")
        except LocalProtocolError as error:
            say(error)
        os._exit(0)
    os.waitpid(child, 0)
    say(await store.get("ada", "k"))
"""


def test_a_store_that_was_used_before_a_fork_says_so_and_does_not_hang(tmp_path: Path) -> None:
    with process(tmp_path / "store.db", FORK) as child:
        said = ended(child)
    assert said == ["this store was used before a fork; make one after it", "b'v'"]


FORGET = """
    await store.put("ada", "k", b"v", None)
    async with store.listen("ada", "t"):
        say("done")
    raise SystemExit(0)
"""


def test_a_store_that_nobody_closed_does_not_keep_the_process(tmp_path: Path) -> None:
    with process(tmp_path / "store.db", FORGET) as child:
        assert ended(child) == ["done"]
