"""The sandbox of a child: each way out is closed with it, and open without it.

Rules: a real server that tries each way; without a sandbox the same attempt succeeds, so that no
test passes for another reason.
"""

import asyncio
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.client.connect import connect
from colonnade.errors import CannotConnect, ConnectionLost, InvalidArgument, InvalidArgumentType
from colonnade.transport.process import sandbox as sandbox_file
from colonnade.transport.process.child import start_child
from colonnade.transport.process.posix import marked
from colonnade.transport.process.sandbox import (
    STRICT,
    WORKSPACE,
    GivenSandbox,
    Mounts,
    Sandbox,
    is_too_much,
    sandbox_of,
    sandboxed_command,
    shown_with,
)
from live import Records
from transport.bubblewrap import need_bubblewrap
from transport.child_processes import (
    SHORT_S,
    WAIT_S,
    ChildConversation,
    alive,
    child_conversation,
    nothing_left,
    on_asyncio,
    until,
    wait_until,
)

SUPPORT = Path(__file__).resolve().parents[2] / "support/transport"
HOSTILE = SUPPORT / "hostile_server.py"
SERVER = SUPPORT / "stdio_server.py"
# Whoever runs as root has no limit of processes, in a sandbox or not.
NOBODY = 65534


class Machine:
    """The files, sockets and processes that a hostile server is after."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "project"
        self.data = folder / "data"
        self.outside = folder / "outside"
        for one in (self.home / ".ssh", self.project / ".git/hooks", self.data, self.outside):
            one.mkdir(parents=True)
        (self.home / ".ssh/id").write_text("secret")
        (self.project / "notes.txt").write_text("notes")
        (self.project / ".git/config").write_text("")
        (self.data / "data.txt").write_text("data")
        self.unique = secrets.token_hex(8)
        self.daemon = f"86400.{secrets.randbelow(10**9):09d}"
        self.env: dict[str, str] = {}

    @contextmanager
    def running(self) -> Generator[None]:
        """Sockets that listen, and a process that everything may trace."""
        code = (
            "import ctypes, sys; ctypes.CDLL(None).prctl(0x59616d61, -1); "
            "print(flush=True); sys.stdin.read()"
        )
        libc = ctypes.CDLL(None, use_errno=True)
        key = secrets.randbelow(2**31 - 1) + 1
        memory = libc.shmget(key, 4096, 0o1600)
        made = Path("/tmp", f"from-{self.unique}")
        made.write_text("")
        pipe = subprocess.PIPE
        with (
            socket.create_server(("127.0.0.1", 0)) as loopback,
            socket.socket(socket.AF_UNIX) as abstract,
            socket.socket(socket.AF_UNIX) as named,
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code, self.unique], stdin=pipe, stdout=pipe
            ) as victim,
        ):
            abstract.bind(f"\0{self.unique}")
            abstract.listen()
            path = str(self.home / "s")
            named.bind(path)
            named.listen()
            assert victim.stdout is not None
            victim.stdout.readline()
            self.env = {
                "KEY_FILE": str(self.home / ".ssh/id"),
                "HOME_FOLDER": str(self.home),
                "DATA_FOLDER": str(self.data),
                "OUTSIDE": str(self.outside),
                "UNIQUE": self.unique,
                "PORT": str(loopback.getsockname()[1]),
                "SOCKET": path,
                "VICTIM": str(victim.pid),
                "MEMORY_KEY": str(key),
                "BYTES": str(256 * 1024 * 1024),
                "FILES": "200",
                "FORKS": "200",
                "DAEMON": self.daemon,
            }
            try:
                yield
            finally:
                libc.shmctl(memory, 0, None)
                for left in (made, Path("/tmp", self.unique)):
                    left.unlink(missing_ok=True)
                for pid in self.daemons():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert victim.stdin is not None
                victim.stdin.close()

    def daemons(self) -> list[int]:
        """The processes that it left."""
        found: list[int] = []
        for one in Path("/proc").iterdir():
            if one.name.isdigit():
                with suppress(OSError):
                    if self.daemon.encode() in (one / "cmdline").read_bytes().split(b"\0"):
                        found.append(int(one.name))
        return found


@asynccontextmanager
async def hostile(
    machine: Machine, sandbox: GivenSandbox, cwd: Path | None = None
) -> AsyncGenerator[ChildConversation]:
    """A conversation with a hostile server in a sandbox that shows it its own file."""
    chosen = sandbox_of(sandbox)
    child = await start_child(
        [sys.executable, "-I", "-S", HOSTILE],
        cwd=cwd or machine.project,
        env=machine.env,
        grace_s=SHORT_S,
        sandbox=chosen.with_reads(str(HOSTILE)) if chosen is not None else None,
    )
    try:
        yield ChildConversation(child, [])
    finally:
        await child.close("the test ended")


async def outcome(machine: Machine, attempt: str, sandbox: GivenSandbox) -> str:
    async with hostile(machine, sandbox) as conversation:
        return await conversation.call(attempt)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Machine]:
    need_bubblewrap(monkeypatch)
    made = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    with made.running():
        yield made


LIMITED = Sandbox(memory_mb=128, open_files=64)

# The attempts that a sandbox stops: with `strict`, and with `workspace`.
STOPPED = (
    *("reads_a_key", "lists_the_home_folder", "reads_a_key_by_a_path_of_proc"),
    *("reads_a_granted_folder", "writes_a_granted_folder", "writes_outside"),
    *("leaves_a_file_in_tmp", "connects_to_a_socket_of_the_user", "sees_another_process"),
    *("signals_another_process", "traces_another_process", "may_gain_privileges"),
    *("makes_a_namespace", "uses_shared_memory", "writes_a_hook_of_git"),
    "replaces_the_folder_of_git",
)
# Those that `workspace` allows.
ONLY_STRICT = (
    *("writes_its_working_folder", "commits", "connects_to_loopback"),
    "connects_to_an_abstract_socket",
)


async def outcomes(machine: Machine, sandbox: GivenSandbox) -> dict[str, bool]:
    """Which attempts succeed."""
    async with hostile(machine, sandbox) as conversation:
        return {one: await conversation.call(one) == "done" for one in (*ONLY_STRICT, *STOPPED)}


@on_asyncio
async def test_every_way_out_is_open_without_a_sandbox(machine: Machine) -> None:
    assert [one for one, done in (await outcomes(machine, None)).items() if not done] == []


@pytest.mark.spec("R1312", "R1313", "R1315")
@on_asyncio
async def test_every_way_out_is_closed_by_the_strict_sandbox(machine: Machine) -> None:
    assert [one for one, done in (await outcomes(machine, "strict")).items() if done] == []


@on_asyncio
async def test_a_workspace_is_written_and_has_the_network_and_no_other_way_out(
    machine: Machine,
) -> None:
    found = await outcomes(machine, "workspace")
    assert [one for one, done in found.items() if done] == list(ONLY_STRICT)


@pytest.mark.spec("R1314")
@on_asyncio
async def test_what_is_granted_is_there_and_nothing_else(machine: Machine) -> None:
    data = str(machine.data)
    async with hostile(machine, Sandbox(read=(data,))) as conversation:
        assert await conversation.call("reads_its_working_folder") == "done"
        assert await conversation.call("reads_a_granted_folder") == "done"
        assert await conversation.call("writes_a_granted_folder") == "OSError"
        assert await conversation.call("writes_its_working_folder") == "OSError"
    async with hostile(machine, Sandbox(write=("../../data",))) as conversation:
        assert await conversation.call("writes_a_granted_folder") == "done"
        assert await conversation.call("writes_outside") != "done"
        assert await conversation.call("connects_to_loopback") != "done"
    assert (machine.data / "written.txt").read_text() == "here"
    async with hostile(machine, Sandbox(network=True)) as conversation:
        assert await conversation.call("connects_to_loopback") == "done"
        assert await conversation.call("writes_its_working_folder") == "OSError"
    async with hostile(machine, Sandbox(read=("~/.ssh",))) as conversation:
        assert await conversation.call("reads_a_key") == "done"


@on_asyncio
async def test_a_server_in_the_home_folder_does_not_see_it(machine: Machine) -> None:
    """Its working folder is granted only where it is not the home folder itself."""
    for preset in ("strict", "workspace"):
        async with hostile(machine, preset, cwd=machine.home) as conversation:
            assert await conversation.call("reads_a_key") == "FileNotFoundError"
            assert await conversation.call("lists_the_home_folder") == "FileNotFoundError"
            assert await conversation.call("writes_its_working_folder") == "done"  # its own home
    assert not (machine.home / "written.txt").exists()


@pytest.mark.parametrize("attempt", ["takes_much_memory", "opens_many_files"])
@on_asyncio
async def test_memory_and_open_files_have_limits(machine: Machine, attempt: str) -> None:
    assert await outcome(machine, attempt, LIMITED) in ("MemoryError", "OSError")
    assert await outcome(machine, attempt, "strict") == "done"


FORKS = "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i + 1)); done; echo done"


@pytest.mark.parametrize(("processes", "printed"), [(32, ""), (512, "done\n")])
def test_processes_have_a_limit_for_everybody_but_root(
    monkeypatch: pytest.MonkeyPatch, processes: int, printed: str
) -> None:
    program = need_bubblewrap(monkeypatch)
    argv = ["/bin/sh", "-c", FORKS]
    env = {"PATH": "/usr/bin:/bin"}
    line = sandboxed_command(
        program, Sandbox(processes=processes), argv, name="a", cwd="/usr", env=env
    )
    is_root = os.geteuid() == 0
    ran = subprocess.run(
        line,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd="/",
        env=env,
        user=NOBODY if is_root else None,
        group=NOBODY if is_root else None,
        extra_groups=[] if is_root else None,
    )
    assert ran.stdout == printed, ran.stderr


@on_asyncio
async def test_a_daemon_ends_with_its_sandbox(machine: Machine) -> None:
    async with hostile(machine, "strict") as conversation:
        assert await conversation.call("leaves_a_process") == "done"
        await until(lambda: len(machine.daemons()) == 1)
    await until(lambda: machine.daemons() == [])
    async with hostile(machine, None) as conversation:
        assert await conversation.call("leaves_a_process") == "done"
        await until(lambda: len(machine.daemons()) == 1)
    assert len(machine.daemons()) == 1  # it is found by nothing, and the test kills it


def test_a_process_does_not_stay_behind_its_sandbox(machine: Machine) -> None:
    """The kernel ends it, whatever becomes of the process that started the sandbox."""
    argv = ["/bin/sh", "-c", f"sleep {machine.daemon} & exit 0"]
    env = {"PATH": os.environ["PATH"]}
    line = sandboxed_command(
        shutil.which("bwrap") or "", STRICT, argv, name="a", cwd=str(machine.project), env=env
    )
    null = subprocess.DEVNULL
    assert subprocess.run(line, env=env, stdout=null, stderr=null, check=False).returncode == 0
    wait_until(lambda: machine.daemons() == [])


@on_asyncio
async def test_a_home_folder_is_empty_or_its_own(machine: Machine) -> None:
    program = ["/bin/sh", "-c", "ls -A ~; echo > ~/kept; exit 1"]

    async def run(sandbox: GivenSandbox, name: str = "a") -> tuple[str, ...]:
        child = await start_child(program, name=name, cwd=machine.project, sandbox=sandbox)
        with suppress(ConnectionLost):
            await ChildConversation(child, []).call()
        await child.close()
        return tuple(child.printed)

    assert [await run("strict"), await run("strict")] == [(), ()]
    assert [await run("workspace"), await run("workspace")] == [(), ("kept",)]
    assert await run("workspace", "another") == ()
    kept = Path(os.environ["COLONNADE_HOME"], "sandbox")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert len(list(kept.iterdir())) == 2


@on_asyncio
async def test_a_process_in_a_sandbox_has_no_capabilities(machine: Machine) -> None:
    program = ["/bin/sh", "-c", "grep -h '^Cap' /proc/self/status; exit 1"]
    child = await start_child(program, cwd=machine.project, sandbox="strict")
    with suppress(ConnectionLost):
        await ChildConversation(child, []).call()
    await child.close()
    assert {line.split()[1] for line in child.printed} == {"0" * 16}


# ---------------------------------------------------------------- links that a server may have made


def line_of(machine: Machine, sandbox: Sandbox, program: str = "/bin/sh") -> list[str]:
    env = {"PATH": "/usr/bin:/bin"}
    cwd = str(machine.project)
    return sandboxed_command("bwrap", sandbox, [program], name="a", cwd=cwd, env=env)


def shows(line: list[str], path: Path) -> bool:
    return str(path) in line


def test_a_link_in_a_writable_folder_grants_nothing_at_the_next_start(machine: Machine) -> None:
    """What a server makes of `data` while it runs is not what was granted."""
    data = machine.project / "data"
    data.mkdir()
    granted = Sandbox(read=("data",), write=(".",))
    assert shows(line_of(machine, granted), data)
    data.rmdir()
    data.symlink_to(machine.home / ".ssh")
    with pytest.raises(CannotConnect, match=r"is a link that it may have made itself"):
        line_of(machine, granted)
    # In a folder that it cannot write the user has made the link.
    assert shows(line_of(machine, Sandbox(read=("data",))), machine.home / ".ssh")


def test_the_link_to_a_program_in_a_writable_folder_is_not_followed(machine: Machine) -> None:
    keys, tools = machine.home / ".ssh", machine.project / "some/tools"
    tools.mkdir(parents=True)
    (keys / "id").chmod(0o700)
    (tools / "server").symlink_to(keys / "id")
    program = str(tools / "server")
    assert not shows(line_of(machine, WORKSPACE, program), keys)
    assert shows(line_of(machine, STRICT, program), keys)


def test_an_environment_of_python_in_the_workspace_is_read_only(machine: Machine) -> None:
    venv, base = machine.project / ".venv", machine.outside / "python"
    for one in (venv, base):
        (one / "bin").mkdir(parents=True)
        (one / "lib").mkdir()
    (base / "bin/python").touch(mode=0o755)
    (venv / "bin/python").symlink_to(base / "bin/python")
    line = line_of(machine, WORKSPACE, ".venv/bin/python")
    for folder in (venv, base):
        at = line.index(str(folder))
        assert line[at - 1 : at + 2] == ["--ro-bind", str(folder), str(folder)]


def test_a_program_in_the_home_folder_shows_nothing_beside_it(machine: Machine) -> None:
    (machine.home / "tool").touch(mode=0o755)
    for folder in (machine.home / ".local/bin", machine.home / ".local/lib"):
        folder.mkdir(parents=True)
    (machine.home / ".local/bin/tool").touch(mode=0o755)
    line = line_of(machine, STRICT, str(machine.home / "tool"))
    assert shows(line, machine.home / "tool")
    assert not shows(line, machine.home)
    line = line_of(machine, STRICT, str(machine.home / ".local/bin/tool"))
    assert shows(line, machine.home / ".local/bin")
    assert not shows(line, machine.home / ".local")


def test_folders_that_hold_more_than_one_server_are_too_much(machine: Machine) -> None:
    home = str(machine.home)
    for path in (
        "/",
        "/etc",
        "/tmp",
        "/run/user/1000",
        "/proc/1/root",
        home,
        str(Path(home).parent),
    ):
        assert is_too_much(path, home), path
    for path in (machine.project, machine.data, Path("/srv/app")):
        assert not is_too_much(str(path), home)
    assert shown_with(str(machine.home / "server.py")) == str(machine.home / "server.py")
    assert shown_with(str(machine.project / "server.py")) == str(machine.project)


# ---------------------------------------------------------------- what a sandbox is


def test_a_sandbox_is_a_preset_a_table_or_none() -> None:
    assert sandbox_of(None) is None
    assert sandbox_of(False) is None
    assert sandbox_of("strict") == Sandbox() == sandbox_of({})
    assert sandbox_of({"preset": "workspace", "read": ["~/data"], "network": False}) == Sandbox(
        read=("~/data",), write=(".",), keep_home=True
    )
    assert sandbox_of({"write": ["out"]}) == Sandbox(write=("out",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("none", "the preset of a sandbox is"),
        (True, "a table of values"),
        ({"preset": 1}, "the preset of a sandbox is"),
        ({"allow": []}, "unknown key 'allow'; known keys: preset, read"),
        ({"read": "x"}, "read of a sandbox is a list of paths"),
        ({"read": [1]}, "read of a sandbox is a list of paths"),
        ({"write": ["a\0b"]}, "NUL"),
        ({"network": "host"}, "network of a sandbox is true or false"),
        ({"processes": 0}, "processes of a sandbox is a whole number above 0"),
        ({"memory_mb": True}, "memory_mb of a sandbox is a whole number above 0"),
    ],
)
def test_what_is_no_sandbox_is_refused(given: Any, words: str) -> None:
    with pytest.raises((InvalidArgument, InvalidArgumentType), match=words):
        sandbox_of(given)


def test_a_sandbox_is_described_in_a_line() -> None:
    assert STRICT.describe() == "no network, reads ."
    assert WORKSPACE.describe() == "network, writes ., keeps its home folder"
    assert (
        Sandbox(read=("~/d",), processes=9).describe()
        == "no network, reads ., reads ~/d, processes 9"
    )


def test_a_sandbox_is_for_a_command() -> None:
    with pytest.raises(InvalidArgument, match="a sandbox is for a command, and this is a URL"):
        connect("https://example.com/mcp", sandbox="strict")


# ---------------------------------------------------------------- without bubblewrap


@on_asyncio
async def test_a_server_is_not_started_where_there_is_no_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with nothing_left(), pytest.raises(CannotConnect, match=r"bwrap. is not installed") as caught:
        await start_child([sys.executable, HOSTILE], name="git", sandbox="strict")
    assert "apt install bubblewrap" in caught.value.hint
    assert caught.value.server == "git"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo bubblewrap 0.6.1", "is too old"),
        ("[ $1 = --version ] && echo bubblewrap 0.9.0 && exit; echo no namespaces; exit 1",
         "cannot make one here: no namespaces"),
        ("[ $1 = --version ] && echo bubblewrap 0.9.0 && exit; exit 1", "does not say why"),
    ],
)  # fmt: skip
@on_asyncio
async def test_a_server_is_not_started_where_bubblewrap_makes_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with nothing_left(), pytest.raises(CannotConnect, match=words):
        await start_child([sys.executable, HOSTILE], sandbox="strict")


@on_asyncio
async def test_a_server_is_not_started_on_a_system_without_sandboxes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_file.sys, "platform", "darwin")
    with pytest.raises(CannotConnect, match="there is no sandbox for darwin"):
        await sandbox_file.find_bubblewrap("git")


@on_asyncio
async def test_a_program_or_folder_that_is_not_there_is_named(machine: Machine) -> None:
    for argv, sandbox, words in (
        (["no-such-program"], STRICT, "there is no command 'no-such-program'"),
        (["./notes.txt"], STRICT, "may not be run"),
        (["./missing"], STRICT, "there is no command './missing'"),
        (["sh"], Sandbox(read=("missing",)), "missing' of its sandbox is not there"),
    ):
        with nothing_left(), pytest.raises(CannotConnect, match=words):
            await start_child(argv, cwd=machine.project, sandbox=sandbox)


# ---------------------------------------------------------------- the life of a child in a sandbox


IN_SANDBOX = Sandbox(read=(str(SUPPORT),))


@on_asyncio
async def test_a_client_speaks_with_a_server_in_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    need_bubblewrap(monkeypatch)
    with nothing_left():
        async with connect(str(SERVER), sandbox="strict", server_name="ours") as client:
            assert (await client.call_tool("echo", {"text": "grüß"})).text == "grüß"


@pytest.mark.parametrize(
    "mode", ["serves", "is_a_wrapper", "floods_its_errors", "ignores_the_end", "heeds_sigterm"]
)
@on_asyncio
async def test_a_server_that_can_answer_is_heard_in_a_sandbox(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    need_bubblewrap(monkeypatch)
    with Records("colonnade.transport"):
        async with child_conversation(mode, sandbox=IN_SANDBOX) as conversation:
            assert await conversation.call() == "fine"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("exits_with_1", r"exited with 1 .*No module named 'git'"),
        ("dies_by_a_signal", r"was killed by SIGSEGV during"),
        ("forks_and_exits", r"exited with 5 during"),
    ],
)
@on_asyncio
async def test_the_end_of_a_server_in_a_sandbox_is_reported_for_what_it_was(
    monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    need_bubblewrap(monkeypatch)
    with Records("colonnade.transport"):
        async with child_conversation(mode, sandbox=IN_SANDBOX) as conversation:
            with pytest.raises(ConnectionLost, match=words):
                await conversation.call()


@on_asyncio
async def test_one_that_waits_for_sigterm_may_clean_up_in_a_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_bubblewrap(monkeypatch)
    with Records("colonnade.transport"):
        async with child_conversation("heeds_sigterm", sandbox=IN_SANDBOX, grace_s=WAIT_S) as one:
            await one.call()
            process = one.child._process
            process.close_input()
            assert not await process.wait(SHORT_S)
            process.kill(force=False)
            assert await process.wait(WAIT_S)
            await until(lambda: one.child.lost is not None)
            assert process.status == 0
            assert one.stderr_lines == ["ready", "SIGTERM came"]


@on_asyncio
async def test_the_end_of_its_input_is_enough_for_a_good_one_in_a_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_bubblewrap(monkeypatch)
    async with child_conversation("serves", sandbox=IN_SANDBOX, grace_s=WAIT_S) as conversation:
        await conversation.call()
        await conversation.child.close()
        assert conversation.child._process.status == 0


@pytest.mark.parametrize("mode", ["ignores_the_end", "stops_itself"])
@on_asyncio
async def test_one_that_will_not_end_is_killed_in_its_sandbox(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    need_bubblewrap(monkeypatch)
    with Records("colonnade.transport"):
        async with child_conversation(mode, sandbox=IN_SANDBOX) as conversation:
            calling = asyncio.ensure_future(conversation.call())
            if mode == "ignores_the_end":
                assert await calling == "fine"
            else:
                await until(lambda: is_stopped(conversation.mark))
            await conversation.child.close("enough")
            assert conversation.child._process.over
            await asyncio.gather(calling, return_exceptions=True)


def is_stopped(mark: bytes) -> bool:
    entries = (Path(f"/proc/{pid}/stat").read_text() for pid in marked(mark))
    return any(one.rpartition(") ")[2].startswith("T") for one in entries)


@pytest.mark.parametrize("mode", ["forks", "forks_a_daemon"])
@on_asyncio
async def test_what_it_started_ends_with_its_sandbox(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    need_bubblewrap(monkeypatch)
    with Records("colonnade.transport"):
        async with child_conversation(mode, sandbox=IN_SANDBOX) as conversation:
            await conversation.call()
            assert len(alive(conversation.child.pid, conversation.mark)) > 2
            await conversation.child.close()
            assert alive(conversation.child.pid, conversation.mark) == set()


KILLED = """
import asyncio, os, signal, sys
sys.path[:0] = {path!r}
from colonnade.transport.process.child import start_child
from colonnade.transport.process.sandbox import Sandbox

async def main():
    child = await start_child(["/bin/sh", "-c", "sleep {daemon} & wait"], sandbox=Sandbox())
    print(flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_parent_that_is_killed_takes_its_sandboxes_with_it(machine: Machine) -> None:
    code = KILLED.format(path=[one for one in sys.path if one], daemon=machine.daemon)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        wait_until(lambda: bool(machine.daemons()))
        parent.kill()
    wait_until(lambda: machine.daemons() == [])


def test_no_value_of_the_environment_is_in_the_command_line(machine: Machine) -> None:
    env = {"PATH": "/usr/bin:/bin", "TOKEN": "canary-of-a-secret"}
    line = sandboxed_command("bwrap", STRICT, ["sh"], name="a", cwd="/srv", env=env)
    assert "canary-of-a-secret" not in " ".join(line)


def test_a_mount_that_is_named_twice_is_the_last_one() -> None:
    mounts = Mounts()
    mounts.add("/usr/share", write=True)
    mounts.add("/usr/share")
    assert list(mounts.arguments()) == ["--ro-bind", "/usr/share", "/usr/share"]
