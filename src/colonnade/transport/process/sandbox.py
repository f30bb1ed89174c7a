"""The sandbox of a child process: what it may read and write, its network, and its limits.

    Sandbox()                                        # its working folder to read, and nothing else
    Sandbox(read=("~/data",), write=(".",), network=True)

The sandbox is made by bubblewrap (`bwrap`) with namespaces of Linux, without root: a file system
of its own with the programs of the system, an empty home folder and an empty `/tmp`; no process but
its own, no network unless it is granted, no capabilities, no new privileges, no further namespaces.
A shell inside of it sets the limits and is replaced by the program.

Not kept out: attacks on the kernel (system calls are not filtered), on what is granted, and with
`network` on every address and abstract socket that this machine can reach. The limit of processes
does not hold for root.

Rules: a child that is to have a sandbox and cannot have one is not started. Nothing is granted that
was not asked for, except the working folder, to read, and the folder of the program. No value of
the environment is in an argument.
"""

import asyncio
import errno
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from colonnade.errors import CannotConnect, InvalidArgument, InvalidArgumentType

# Private memory of one process; a server that needs more is configured. Reserved address space,
# of which V8 has much, does not count.
MEMORY_MB = 4096
# Processes and threads of one sandbox: npx, its shells and node have some 50.
PROCESSES = 512
# The usual limit of a login.
OPEN_FILES = 1024
# What fits into `/tmp`, and into a home folder that is not kept: both are memory.
TMPFS_BYTES = 512 * 1024 * 1024

PROGRAM: Final = "bwrap"
# The first that can forbid further user namespaces.
OLDEST: Final = (0, 8)
# A probe takes milliseconds.
PROBE_S: Final = 10.0
# The units of `ulimit -d`.
_KIBIBYTES_IN_MB: Final = 1024

# What programs need of the system, to read; none of it is private.
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/run/current-system"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ca-certificates.conf"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/os-release"),
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/fonts"),
)
# Folders that are never granted by being the working folder or that of a program, and those whose
# content is not either.
TOO_MUCH: Final = frozenset(
    {"/", "/etc", "/home", "/root", "/tmp", "/var", "/opt", "/mnt", "/boot"}
)
NEVER_BELOW: Final = ("/proc", "/sys", "/dev", "/run")
# Read by programs outside of the sandbox, which would run what is written there.
PROTECTED: Final = (
    *(".git/hooks", ".git/config", ".mcp.json", "colonnade.toml", ".envrc"),
    *(".vscode", ".cursor", ".codex", ".claude", ".idea"),
)

# Limits of the shell, as arguments; `-u` is processes in bash, and `-p` in dash.
LIMITS_SCRIPT: Final = (
    'ulimit -c 0 && ulimit -n "$1" && ulimit -d "$2" '
    '&& { ulimit -u "$3" 2> /dev/null || ulimit -p "$3"; } && shift 3 && exec "$@"'
)
SHELL: Final = "/bin/sh"
# The home folder inside: not where the real one is, so that nothing is ever mounted below a folder
# in which the server may have made links.
HOME: Final = "/home/sandbox"
# bubblewrap's status for a child that a signal ended is 128 and the signal.
SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a child process may do; everything else it may not.

    - `read` and `write` are files and folders beside its working folder, which it may read.
      Relative paths are those of the working folder; `~` is the home folder.
    - `network` is the whole network of this machine, with its loopback addresses, or none.
    - `keep_home` keeps its home folder for the next start of the same command; nothing else sees
      it. Otherwise it is empty at each start.
    - `memory_mb` is for each process; `processes` (with threads) and `open_files` are counts.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False
    keep_home: bool = False
    memory_mb: int = MEMORY_MB
    processes: int = PROCESSES
    open_files: int = OPEN_FILES

    def __post_init__(self) -> None:
        for name in ("read", "write"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(one, str) and one for one in given):
                raise InvalidArgumentType(f"{name} of a sandbox is a list of paths")
            if any("\0" in one for one in given):
                raise InvalidArgument(f"a path in {name} of a sandbox has a NUL in it")
            object.__setattr__(self, name, tuple(given))
        for name in ("network", "keep_home"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentType(f"{name} of a sandbox is true or false")
        for name in ("memory_mb", "processes", "open_files"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise InvalidArgument(f"{name} of a sandbox is a whole number above 0")

    def describe(self) -> str:
        """Its privileges in a line, for people."""
        granted = ["network" if self.network else "no network"]
        granted += [
            f"reads {one}" for one in dict.fromkeys((".", *self.read)) if one not in self.write
        ]
        granted += [f"writes {one}" for one in self.write]
        granted += ["keeps its home folder"] if self.keep_home else []
        changed = [
            f"{name} {getattr(self, name)}"
            for name in ("memory_mb", "processes", "open_files")
            if getattr(self, name) != getattr(STRICT, name)
        ]
        return ", ".join([*granted, *changed])

    def with_reads(self, *paths: str) -> "Sandbox":
        """The same with further paths to read."""
        return replace(self, read=(*self.read, *paths))


STRICT: Final = Sandbox()
# For servers that npx and uvx download, and that work on the files of a project.
WORKSPACE: Final = Sandbox(write=(".",), network=True, keep_home=True)
PRESETS: Final[Mapping[str, Sandbox]] = {"strict": STRICT, "workspace": WORKSPACE}
KEYS: Final = ("preset", *(one.name for one in fields(Sandbox)))

GivenSandbox: TypeAlias = Sandbox | str | Mapping[str, Any] | bool | None


def sandbox_of(given: GivenSandbox) -> Sandbox | None:
    """A sandbox by the name of a preset, or by its values; None for None and False. Raises
    `InvalidArgument` and `InvalidArgumentType`."""
    if given is None or given is False or isinstance(given, Sandbox):
        return given or None
    if isinstance(given, str):
        return _preset(given)
    if not isinstance(given, Mapping):
        raise InvalidArgumentType(
            f"a sandbox is {_NAMES}, a table of values, or False for none", argument="sandbox"
        )
    values = dict(given)
    base = _preset(values.pop("preset", "strict"))
    for name in values:
        if name not in KEYS:
            known = ", ".join(KEYS)
            raise InvalidArgument(f"unknown key {name!r}; known keys: {known}", argument="sandbox")
    for name in ("read", "write"):
        more = values.get(name)
        if isinstance(more, list | tuple):
            values[name] = (*getattr(base, name), *cast("Sequence[Any]", more))
    return replace(base, **values)


_NAMES = " or ".join(f'"{name}"' for name in PRESETS)


def _preset(name: object) -> Sandbox:
    found = PRESETS.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(f"the preset of a sandbox is {_NAMES}", argument="sandbox")
    return found


# ---------------------------------------------------------------- bubblewrap


async def find_bubblewrap(server: str) -> str:
    """The path of a bubblewrap that can make a sandbox here. Raises `CannotConnect`."""
    if sys.platform != "linux":
        raise _unavailable(server, f"there is no sandbox for {sys.platform}", "run it on Linux")
    program = shutil.which(PROGRAM)
    if program is None or not os.path.isabs(program):
        hint = "install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"
        raise _unavailable(server, "bubblewrap (bwrap) is not installed", hint)
    if program not in _probed:
        problem = await _probe(program)
        if problem:
            raise _unavailable(server, *problem)
        _probed.add(program)
    return program


# Those that have made a sandbox. What fails may be repaired while this process runs.
_probed: set[str] = set()


def _unavailable(server: str, why: str, hint: str) -> CannotConnect:
    message = f"cannot start server {server!r}: it is to have a sandbox, and {why}"
    return CannotConnect(message, server=server, hint=f"{hint}, or set sandbox = false for it")


async def _probe(program: str) -> tuple[str, str] | None:
    """Why no sandbox can be made, and what to do; None if one can."""
    newer = f"install bubblewrap {'.'.join(map(str, OLDEST))} or newer"
    mounts = Mounts()
    mounts.add_system()
    minimal = [*isolation(network=False), *mounts.arguments(), "--", SHELL, "-c", ":"]
    try:
        _, said = await _run(program, "--version")
        if tuple(map(int, re.findall(r"\d+", said)[:2])) < OLDEST:
            return f"{program} is too old", newer
        status, said = await _run(program, *minimal)
    except OSError as error:  # a timeout is one
        return f"{program} does not run: {error.strerror or 'it does not end'}", newer
    if status == 0:
        return None
    lines = said.strip().splitlines() or ["it does not say why"]
    hint = "allow user namespaces without root (on Ubuntu: an AppArmor profile for bwrap)"
    return f"bubblewrap cannot make one here: {lines[-1][:200]}", hint


async def _run(*argv: str) -> tuple[int | None, str]:
    """The status of a short command, and what it printed. Raises `OSError`."""
    stream = asyncio.subprocess
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=stream.DEVNULL, stdout=stream.PIPE, stderr=stream.STDOUT
    )
    try:
        async with asyncio.timeout(PROBE_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode(errors="replace")


def isolation(*, network: bool) -> list[str]:
    """The arguments of bubblewrap that do not depend on the child."""
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        "--unshare-cgroup-try",
        *([] if network else ["--unshare-net"]),
        # What is left when the program exits is killed with its namespace.
        "--die-with-parent",
        *("--disable-userns", "--cap-drop", "ALL"),
        *("--proc", "/proc", "--dev", "/dev"),
    ]


class Mounts:
    """The file system of a sandbox: what is where, by path. A later entry replaces an earlier
    one."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, ...]] = {}

    def add_system(self) -> None:
        """Show what programs need of the system, and an empty `/tmp`."""
        for path in SYSTEM:
            if os.path.exists(path):
                self._entries[path] = ("--ro-bind", os.path.realpath(path), path)
        for path in ("/tmp", "/var/tmp"):
            self.add_empty(path)

    def add_empty(self, path: str) -> None:
        """An empty folder, in memory."""
        self._entries[path] = ("--size", str(TMPFS_BYTES), "--tmpfs", path)

    def add(self, path: str, *, place: str = "", write: bool = False) -> None:
        """Show a file or folder, to read or to write: in a place, or where it is and where it is a
        link to."""
        real = os.path.realpath(path)
        for where in (place,) if place else dict.fromkeys((path, real)):
            self._entries[where] = ("--bind" if write else "--ro-bind", real, where)

    def protect(self, folder: str) -> None:
        """Make read-only what programs outside would run, unless it was granted itself."""
        for name in PROTECTED:
            path = os.path.join(folder, name)
            if os.path.realpath(path) != path or not os.path.exists(path):
                continue
            # A folder that something is mounted on cannot be renamed and made anew.
            if os.path.dirname(path) != folder:
                above = os.path.dirname(path)
                self._entries.setdefault(above, ("--bind", above, above))
            self._entries.setdefault(path, ("--ro-bind", path, path))

    def arguments(self) -> Iterator[str]:
        """The arguments of bubblewrap: a folder before what is in it."""
        for _, entry in sorted(self._entries.items(), key=lambda one: len(Path(one[0]).parts)):
            yield from entry


def sandboxed_command(
    bubblewrap: str,
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    name: str,
    cwd: str | None,
    env: Mapping[str, str],
) -> list[str]:
    """The command line that runs a command in its sandbox. Raises `CannotConnect` for a path that
    cannot be granted, and `OSError` for a program that cannot be run."""
    return _CommandLine(bubblewrap, sandbox, argv, name, cwd, env).build()


class _CommandLine:
    """The command line of one child. Paths are absolute, and not resolved unless it is said."""

    def __init__(
        self,
        bubblewrap: str,
        sandbox: Sandbox,
        argv: Sequence[str],
        name: str,
        cwd: str | None,
        env: Mapping[str, str],
    ) -> None:
        self._bubblewrap = bubblewrap
        self._sandbox = sandbox
        self._argv = argv
        self._name = name
        self._home = os.path.abspath(os.path.expanduser("~"))
        self._folder = os.path.abspath(cwd or os.getcwd())
        self._has_folder = not is_too_much(self._folder, self._home)
        self._program = _find_program(argv[0], self._folder, env)
        # The working folder counts only where it may be shown at all.
        given = [one for one in sandbox.write if one != "." or self._has_folder]
        self._writes = [self._absolute(one) for one in given]
        self._real_writes = [os.path.realpath(one) for one in self._writes]

    def build(self) -> list[str]:
        mounts = Mounts()
        mounts.add_system()
        if self._sandbox.keep_home:
            kept = _kept_home(self._name, self._argv, self._folder)
            mounts.add(str(kept), place=HOME, write=True)
        else:
            mounts.add_empty(HOME)
        if self._has_folder:
            mounts.add(self._check(self._folder))
        for path in self._sandbox.read:
            mounts.add(self._check(self._absolute(path)))
        for path in self._writes:
            mounts.add(self._check(path), write=True)
        for path in self._program_folders():
            mounts.add(path)
        for path in self._real_writes:
            mounts.protect(path)
        start = self._folder if self._has_folder else HOME
        return [
            *(self._bubblewrap, *isolation(network=self._sandbox.network), *mounts.arguments()),
            *("--setenv", "HOME", HOME, "--setenv", "TMPDIR", "/tmp", "--chdir", start),
            *("--", SHELL, "-c", LIMITS_SCRIPT, "sandbox", *_limits(self._sandbox)),
            *(self._program, *self._argv[1:]),
        ]

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = self._home + path[1:]
        return os.path.normpath(os.path.join(self._folder, path))

    def _check(self, path: str) -> str:
        """A path that is to be shown. Raises `CannotConnect` if it is not there, or if the server
        may have put a link there that leads to something else."""
        if not os.path.exists(path):
            raise self._refused(path, "is not there", "create it")
        if self._is_its_own_link(path):
            raise self._refused(path, "is a link that it may have made itself", "replace the link")
        return path

    def _is_its_own_link(self, path: str) -> bool:
        """Whether a path in a folder that it may write leads out of that folder."""
        real = os.path.realpath(path)
        return self._is_writable(path) and not any(_is_in(real, one) for one in self._real_writes)

    def _is_writable(self, path: str) -> bool:
        """Whether the server may replace what is at a path."""
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        folders = {*self._writes, *self._real_writes}
        return any(_is_in(one, two) and one != two for one in (path, place) for two in folders)

    def _refused(self, path: str, why: str, hint: str) -> CannotConnect:
        message = f"cannot start server {self._name!r}: {path!r} of its sandbox {why}"
        return CannotConnect(
            message, server=self._name, hint=f"{hint}, or take it out of the sandbox"
        )

    def _program_folders(self) -> Iterator[str]:
        """What the program needs that is not of the system: its folder, or its installation; those
        of each link on the way to it, since a virtual environment is known by the first."""
        path, seen = self._program, set[str]()
        while path not in seen and not any(_is_in(path, one) for one in SYSTEM):
            seen.add(path)
            found = self._installation(path)
            yield found
            # What is below a mounted folder cannot be replaced; in any other folder that it may
            # write the server may change the link for the next start.
            if self._is_writable(path) and os.path.dirname(found) not in self._real_writes:
                return
            if os.path.islink(path):
                path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))

    def _installation(self, program: str) -> str:
        folder = os.path.dirname(program)
        prefix = os.path.dirname(folder)
        is_prefix = os.path.basename(folder) == "bin" and os.path.isdir(os.path.join(prefix, "lib"))
        is_local = prefix == os.path.join(self._home, ".local")
        if is_prefix and not is_local and not is_too_much(prefix, self._home):
            return prefix
        is_own = is_too_much(folder, self._home) or os.path.realpath(folder) in self._real_writes
        return program if is_own else folder


def is_too_much(folder: str, home: str) -> bool:
    """Whether a folder has more in it than the files of one server: the home folder, one that it is
    in, or one of the system."""
    try:
        paths = {folder, os.path.realpath(folder)}
    except OSError:  # it may not be looked at
        return True
    for path in paths:
        if path in TOO_MUCH or any(_is_in(path, one) for one in NEVER_BELOW):
            return True
        if _is_in(home, path) or _is_in(os.path.realpath(home), path):
            return True
    return False


def shown_with(file: str) -> str:
    """What a sandbox shows of the file that a program runs: its folder, or the file alone if more
    is in there."""
    folder = os.path.dirname(os.path.abspath(file))
    return file if is_too_much(folder, os.path.abspath(os.path.expanduser("~"))) else folder


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _find_program(word: str, folder: str, env: Mapping[str, str]) -> str:
    if not os.path.dirname(word):
        found = shutil.which(word, path=env.get("PATH"))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.path.abspath(found)
    path = os.path.normpath(os.path.join(folder, word))
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


def _kept_home(name: str, argv: Sequence[str], folder: str) -> Path:
    """The home folder of one command, which no other sandbox sees."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    start = Path(os.environ.get("COLONNADE_HOME") or os.path.join(state, "colonnade"))
    key = hashlib.sha256("\0".join((name, folder, *argv)).encode("utf-8", "surrogateescape"))
    made = start / "sandbox" / key.hexdigest()[:32]
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    made.parent.chmod(0o700)
    return made


def _limits(sandbox: Sandbox) -> list[str]:
    """Arguments of `LIMITS_SCRIPT`: no limit can be higher than that of this process."""
    import resource  # not on Windows

    def lowest(wanted: int, kind: int, unit: int = 1) -> str:
        hard = resource.getrlimit(kind)[1]
        return str(wanted if hard == resource.RLIM_INFINITY else min(wanted, hard // unit))

    return [
        lowest(sandbox.open_files, resource.RLIMIT_NOFILE),
        lowest(sandbox.memory_mb * _KIBIBYTES_IN_MB, resource.RLIMIT_DATA, 1024),
        lowest(sandbox.processes, resource.RLIMIT_NPROC),
    ]
