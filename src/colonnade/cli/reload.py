"""Serving a file that somebody is writing: when it changes, the process begins again.

It begins again in place: the same process number, the same port, the same terminal, and nobody
between it and a signal. What is watched is the file and all that it imported from its folder.

Rules: a change that Python cannot read ends nothing. A file that is still being written is waited
for. Nothing but modification times is asked, so every editor and every file system will do.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from colonnade.cli.target import Target
from colonnade.cli.trouble import Trouble, Voice

# How often files are looked at; a change counts once it has stayed the same for one more look.
LOOK_S = 0.25
# A server that changed may take so long to leave its lifespan before it is begun again.
LEAVE_S = 2.0
# For the process that comes next, if one line on standard output told already where it serves.
CHANGED: Final = "COLONNADE_CHANGED"

Stamp = tuple[int, int]


class Files:
    """Files in and below a folder, and which of them has changed since it was first seen."""

    def __init__(self, folder: str, *paths: str) -> None:
        self.folder = folder
        self._more = set(paths)
        self._known: dict[str, Stamp] = {}
        self._last: dict[str, Stamp] = {}
        self._lock = threading.Lock()
        self.see()

    def see(self) -> None:
        """What was imported by now is as it should be."""
        with self._lock:
            for path in self._paths():
                self._known.setdefault(path, _stamp(path))

    def add(self, error: BaseException | None) -> None:
        """Watch what an error is about, too, and whatever there is beside it."""
        while error is not None:
            self._more |= {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
            self._more.add(getattr(error, "filename", None) or "")
            error = error.__cause__ or error.__context__
        self._list()
        self.see()

    def changed(self) -> str:
        """One that has changed, and stayed the same for one more look; if none, nothing."""
        with self._lock:
            for path in self._paths():
                stamp = _stamp(path)
                known = self._known.setdefault(path, stamp)
                if stamp != known and stamp == self._last.get(path) and any(stamp):
                    self._known[path] = stamp
                    return path
                self._last[path] = stamp
        return ""

    def changed_or_new(self) -> str:
        """The same, where a file that was not there before counts, too."""
        for path in self._list():
            self._known.setdefault(path, (0, 0))
        return self.changed()

    def _list(self) -> set[str]:
        found: set[str] = set()
        for folder in {self.folder, *(os.path.dirname(p) for p in self._more)}:
            if self._is_beside(os.path.join(folder, "")):
                with contextlib.suppress(OSError):
                    names = [n for n in os.listdir(folder) if n.endswith(".py")]
                    found |= {os.path.join(folder, name) for name in names}
        self._more |= found
        return found

    def _paths(self) -> Iterator[str]:
        for module in list(sys.modules.values()):
            path = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(path, str) and self._is_beside(path):
                yield path
        for path in list(self._more):
            if self._is_beside(path):
                yield path

    def _is_beside(self, path: str) -> bool:
        """Whether it is somebody's own, and not what they installed."""
        if not path.startswith(os.path.join(self.folder, "")) or "site-packages" in path:
            return False
        pythons = (os.path.join(sys.prefix, ""), os.path.join(sys.base_prefix, ""))
        return self.folder.startswith(pythons) or not path.startswith(pythons)


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)  # gone, or about to be there again
    return (found.st_mtime_ns, found.st_size)


class Watch:
    """Looks at files until one of them has changed, and then has it all begin again.

    `arguments` are those of the command, without the port and the target.
    """

    def __init__(self, words: str, target: Target, voice: Voice, arguments: list[str]) -> None:
        self._words = words
        self._voice = voice
        self._arguments = arguments
        # What changed before this process began, if it said already where it serves.
        self.since: str = os.environ.pop(CHANGED, "")
        self._is_told = bool(self.since)
        self._cwd = os.getcwd()
        self._environment = dict(os.environ)
        self._start = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
        sys.dont_write_bytecode = True  # kept code is told from new by whole seconds
        self._files = Files(target.folder, target.path)
        self._end: Callable[[], None] | None = None
        self._over = threading.Event()
        self.changed: str = ""

    # ------------------------------------------------------------ while it is served

    def begin(self) -> None:
        """Watch, in a thread: a loop that is stuck is begun again, too."""
        threading.Thread(target=self._watch, name="colonnade-reload", daemon=True).start()

    def loaded(self) -> None:
        """The file was loaded, and what it imports: changes count from here on."""
        self._files.see()

    def served(self, end: Callable[[], None], port: int) -> None:
        """It is served: how to end it, and on which port to go on."""
        self._end = end
        self._arguments += ["--port", str(port)]
        self._is_told = True
        if self.changed:
            self._leave()

    def over(self) -> None:
        """It is not served any more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            path = self._files.changed()
            if path and self._is_readable(path):
                self.changed = path
                self._leave()
                if not self._over.wait(LEAVE_S):
                    self.again()
                return

    def _leave(self) -> None:
        if self._end is not None:
            self._end()
            self._end()  # nobody who writes a file wants to wait for its old calls

    def _is_readable(self, path: str) -> bool:
        """Whether Python can read it; if not, that is said, once."""
        try:
            with open(path, "rb") as file:
                compile(file.read(), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            place = f"{self._shown(path)}, line {error.lineno}"
            self._voice.say(f"{place}: {error.msg}; what was there before serves on")
            return False
        except (OSError, ValueError):  # gone again, or no text
            return False
        return True

    # ------------------------------------------------------------ while it cannot be

    def wait(self, trouble: Trouble) -> None:
        """Say what is wrong, and wait until something has changed that may mend it."""
        self._over.set()
        self._files.add(trouble.__context__)
        signal.signal(signal.SIGTERM, _exit)
        words = f"{trouble.words}; it is tried again when a file changes"
        self._voice.complain(Trouble(words, lines=trouble.lines))
        quiet = threading.Event()
        while not self.changed:
            quiet.wait(LOOK_S)
            self.changed = self._files.changed_or_new()

    # ------------------------------------------------------------ once more

    def again(self) -> NoReturn:
        """Begin again, as if it was typed anew."""
        command = [*self._start, *self._arguments, "--", self._words]
        environment = self._environment
        if self._is_told:
            environment = environment | {CHANGED: self._shown(self.changed)}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os.chdir(self._cwd)
        if sys.platform == "win32":  # where nothing can begin again in place
            import subprocess

            os._exit(subprocess.call(command, env=environment))
        os.execve(sys.executable, command, environment)

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._cwd)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)
