"""A server in somebody's file: `server.py`, `server.py:name`, `package.module:name`.

The file is loaded as `python server.py` would see it, with its folder first on the path, but under
its own name: what stands below `if __name__ == "__main__"` does not run. `colonnade run` also
serves a file that calls `run()` without that line, where it calls it, and one that makes its server
below.

Rules: nothing of the file is guessed at without running it, and it is run once; twice only where it
makes its server as a program. Whatever is wrong with it is a `Trouble` that says what to do.
"""

import contextlib
import importlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, overload

from colonnade.cli.errors import FAILED, Trouble, Voice, named

if TYPE_CHECKING:  # it is loaded when it is certain that there is a file to load
    from colonnade.server.server import Server
    from colonnade.transport.http_server.app import HttpApp

# What a server is called where nobody says so, the likeliest first.
NAMES: Final = ("server", "mcp", "app")
# What a file is called that is run as a program.
MAIN: Final = "__main__"
# Endings of files that Python runs; a file without one may be a script.
ENDINGS: Final = (".py", ".pyw", "")
# Files that hold servers of a host rather than being one.
CONFIGURATIONS: Final = (".json", ".jsonc", ".json5", ".toml", ".yaml", ".yml")

# What such a file is called mostly, the likeliest first.
USUAL: Final = ("mcp.json", ".mcp.json")


class Target:
    """What somebody typed: a file or a module, and the name of a server in it."""

    def __init__(self, place: str, name: str, *, is_file: bool) -> None:
        self.place = place
        self.name = name
        self.path: str = os.path.abspath(place) if is_file else ""
        # What is first on the path.
        self.folder: str = os.path.dirname(self.path) if is_file else os.getcwd()

    def __str__(self) -> str:
        """What says the same in any folder."""
        place = self.path or self.place
        return f"{place}:{self.name}" if self.name else place


def read(words: str) -> Target:
    """Understand a target. Raises `Trouble` where there is no such file."""
    place, name = words, ""
    if not os.path.exists(words):
        before, colon, after = words.rpartition(":")
        if colon and all(part.isidentifier() for part in after.split(".")):
            place, name = before, after
        elif colon and not after:
            place = before
    if "://" in place:
        raise Trouble(f"{place} is an address, and this starts a server: name its file")
    if os.path.isdir(place):
        raise Trouble(_folder(place))
    if os.path.exists(place):
        if os.path.splitext(place)[1].lower() in CONFIGURATIONS:
            raise Trouble(
                f"{place} is a configuration, which says how servers are started; name the file "
                f"of a server, or see what it has: colonnade ls {place}"
            )
        if os.path.splitext(place)[1] not in ENDINGS:
            raise Trouble(f"{place} is no Python file; name the one that has the server in it")
        return Target(place, name, is_file=True)
    files = (*ENDINGS[:2], *CONFIGURATIONS)
    if os.sep in place or place.lower().endswith(files) or not _is_module(place):
        raise Trouble(_missing(place))
    return Target(place, name, is_file=False)


def _is_module(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


def _folder(place: str) -> str:
    files = sorted(each for each in os.listdir(place) if each.endswith(".py"))
    likely = [f"{name}.py" for name in (*NAMES, "main") if f"{name}.py" in files]
    best = (likely or files or ["server.py"])[0]
    return f"{place} is a folder; name a file in it, such as {os.path.join(place, best)}"


def _missing(place: str) -> str:
    folder = os.path.dirname(place)
    if folder and not os.path.isdir(folder):
        return f"there is no folder {folder}, and so no file {place}"
    stem, ending = os.path.splitext(os.path.basename(place))
    names = sorted(os.listdir(folder or "."))
    usual: list[str] = []
    if ending.lower() in CONFIGURATIONS:
        usual = [name for name in USUAL if name in names]
        names = [name for name in names if name.lower().endswith(CONFIGURATIONS)]
    stems = {os.path.splitext(name)[0]: name for name in names}
    near = stems.get(_nearest(stem, stems)) or next(iter(usual), None)
    where = folder or os.getcwd()
    return f"there is no file {place}; " + (
        f"did you mean {os.path.join(folder, near)}?" if near else f"look into {where}"
    )


def _nearest(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, words, n=1)), "")


# ---------------------------------------------------------------- loading


class _Fresh(SourceFileLoader):
    """Loads a script as Python does: from its text, whatever may be kept of it."""

    def path_stats(self, path: Any) -> Any:
        raise OSError  # so that nothing is looked up or kept


class _RunsItself(BaseException):
    """The file serves while it is loaded; not an `Exception`, which the file may catch."""


class OnStdio(Protocol):
    """Serves a server whose file calls `run()` or `serve()` while it is loaded."""

    def run(self, server: "Server") -> None: ...

    async def serve(self, server: "Server") -> None: ...


@overload
def load(target: Target, voice: Voice) -> "Server": ...
@overload
def load(target: Target, voice: Voice, *, apps: Literal[True]) -> "Server | HttpApp": ...
def load(target: Target, voice: Voice, *, apps: bool = False) -> "Server | HttpApp":
    """Run the file and find its server; with `apps` also what `server.asgi(…)` made there, where
    it is named. Raises `Trouble` where that cannot be."""
    from colonnade.server.server import Server

    module = _loaded(target, voice, None)
    if apps and target.name:
        from colonnade.transport.http_server.app import HttpApp

        value: Any = module
        for part in target.name.split("."):
            value = getattr(value, part, None)
        if isinstance(value, HttpApp):
            return value
        if callable(value) and not isinstance(value, type | Server) and _is_asgi(value):
            raise Trouble(
                f"{target.name!r} in {target.place} is {_kind(value)}, which is not made by "
                f"server.asgi(); put it around: served = server.asgi(around={target.name})",
                mendable=True,
            )
    return _choose(target, module, Server)


def load_or_serve(target: Target, voice: Voice, on_stdio: OnStdio) -> "Server | None":
    """Run the file and find its server; None where the file called `run()` and was served by
    `on_stdio`. Raises `Trouble`."""
    from colonnade.server.server import Server

    if target.name:  # which server that is, is known once all of the file has run
        return load(target, voice)
    once = _Once(on_stdio)
    module = _loaded(target, voice, once)
    if once.served:
        return None
    try:
        return _choose(target, module, Server)
    except _NoServer:
        if not (target.path and _has_main(target.path)):
            raise
        # It makes its server below `if __name__ == "__main__":`, so that has to run as well.
        _loaded(target, voice, once, MAIN)
        if once.served:
            return None
        raise


def _has_main(path: str) -> bool:
    """Whether a file that was loaded a moment ago does more when it is run as a program."""
    with open(path, "rb") as file:
        return MAIN.encode() in file.read()


class _NoServer(Trouble):
    """There is no server among the names of the file."""


class _Once:
    """Whether anything was served on stdio. There is one input, so one server."""

    def __init__(self, on_stdio: OnStdio) -> None:
        self._on_stdio = on_stdio
        self.served = False

    def take(self) -> OnStdio:
        if self.served:
            raise _RunsItself
        self.served = True
        return self._on_stdio


def _loaded(target: Target, voice: Voice, once: _Once | None, name: str = "") -> ModuleType:
    from colonnade.server.server import Server

    _put_first(target.folder)
    sys.argv = [target.place]
    try:
        with _serving(Server, once):
            return _run_file(target.path, name) if target.path else _import(target)
    except Trouble:
        raise
    except _RunsItself:
        words = f'below `if __name__ == "__main__":`, or start it with `python {target.place}`'
        words = f"{target.place} serves while it is loaded; put its run() {words}"
        raise Trouble(words, FAILED, mendable=True) from None
    except SystemExit as error:
        words = f"{target.place} ended with exit code {error.code!r} while it was loaded"
        words += '; put what ends it below `if __name__ == "__main__":`'
        raise Trouble(words, FAILED, lines=voice.trace(error), mendable=True) from None
    except Exception as error:
        words = _why(target, error)
        raise Trouble(words, FAILED, lines=voice.trace(error), mendable=True) from None


def _is_asgi(value: Any) -> bool:
    """Whether this looks like an application of a web framework."""
    import inspect

    call = getattr(value, "__call__", value)  # noqa: B004
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def _put_first(folder: str) -> None:
    """The folder of the file instead of that of the command, as `python file.py` has it."""
    script = sys.argv[0]
    scripts = (os.path.abspath(script), os.path.realpath(script))
    ours = {"", os.getcwd()} | {os.path.dirname(path) for path in scripts}
    if sys.path and sys.path[0] in ours:
        del sys.path[0]
    sys.path.insert(0, folder)


@contextlib.contextmanager
def _serving(kind: Any, once: _Once | None) -> Generator[None]:
    """What `run()` and `serve()` do while the file is loaded: on stdio serve by `once`, if there
    is one; anything else gives itself away."""

    def run(server: "Server", transport: str = "stdio", **_: object) -> None:
        if once is None or transport != "stdio":
            raise _RunsItself
        once.take().run(server)

    async def serve(server: "Server", transport: str = "stdio", **_: object) -> None:
        if once is None or transport != "stdio":
            raise _RunsItself
        await once.take().serve(server)

    before = {"run": kind.run, "serve": kind.serve}
    kind.run, kind.serve = run, serve
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


def _run_file(path: str, name: str = "") -> ModuleType:
    if not name:
        name = os.path.splitext(os.path.basename(path))[0]
        if name in sys.modules or name in sys.stdlib_module_names:
            name = f"{name}_"  # so that what is called so already stays what it is
    loader = _Fresh(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import(target: Target) -> ModuleType:
    try:
        return importlib.import_module(target.place)
    except ModuleNotFoundError as error:
        if error.name and f"{target.place}.".startswith(f"{error.name}."):
            words = f"there is no module {target.place} in {os.getcwd()} or where Python looks"
            raise Trouble(words + _as_file(target.place)) from None
        raise


def _as_file(module: str) -> str:
    path = module.replace(".", os.sep) + ".py"
    return f"; {path} is a file here" if os.path.exists(path) else ""


def _why(target: Target, error: Exception) -> str:
    """One sentence for what was raised while the file was loaded."""
    if isinstance(error, SyntaxError) and error.filename and os.path.exists(error.filename):
        place = os.path.relpath(error.filename)
        return f"{place} has an error in line {error.lineno}: {error.msg}"
    words = f"{target.place} could not be loaded: {named(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        if missing not in sys.modules and not _is_beside(target.folder, missing):
            return f"{words}; install it: {sys.executable} -m pip install {missing}"
    elif isinstance(error, ImportError) and "relative import" in str(error) and target.path:
        package = os.path.basename(target.folder)
        stem = os.path.splitext(os.path.basename(target.path))[0]
        above = os.path.dirname(target.folder)
        return f"{words}; name it as a module, {package}.{stem}, from {above}"
    return words


def _is_beside(folder: str, module: str) -> bool:
    return any(os.path.exists(os.path.join(folder, module + end)) for end in ("", ".py"))


# ---------------------------------------------------------------- choosing


def _choose(target: Target, module: ModuleType, kind: "type[Server]") -> "Server":
    found: dict[str, Server] = {
        name: value for name, value in vars(module).items() if isinstance(value, kind)
    }
    if target.name:
        return _named(target, module, found, kind)
    for name in NAMES:
        if name in found:
            return found[name]
    inner = [id(one) for server in found.values() for one in server.mounted]
    outer = {id(one): name for name, one in found.items() if id(one) not in inner}
    if len(outer) == 1:
        return found[next(iter(outer.values()))]
    place = target.place
    if not outer:
        raise _NoServer(_none(place, module), mendable=True)
    names = sorted(outer.values())
    words = f"{place} has several servers ({', '.join(names)}); say which one: {place}:{names[0]}"
    raise Trouble(words, mendable=True)


def _named(
    target: Target, module: ModuleType, found: "dict[str, Server]", kind: "type[Server]"
) -> "Server":
    value: Any = module
    for part in target.name.split("."):
        if not hasattr(value, part):
            near = _nearest(part, found) or _nearest(part, dir(value))
            words = f"{target.place} has no {target.name!r}; "
            if near:
                words += f"did you mean {near!r}?"
            elif found:
                words += f"its servers are {', '.join(sorted(found))}"
            else:
                words += "and no server at all"
            raise Trouble(words, mendable=True)
        value = getattr(value, part)
    if isinstance(value, kind):
        return value
    words = f"{target.name!r} in {target.place} is {_kind(value)}, not a colonnade.Server"
    if callable(value) and not isinstance(value, type):
        words += f"; if it makes one, call it there and name what it gives: s = {target.name}()"
    elif found:
        words += f"; its servers are {', '.join(sorted(found))}"
    raise Trouble(words, mendable=True)


def _none(place: str, module: ModuleType) -> str:
    for name in NAMES:
        if hasattr(module, name):
            what = _kind(getattr(module, name))
            return f"{place} has no colonnade.Server; its {name!r} is {what}"
    return f'{place} has no colonnade.Server; make one in it: server = Server("name")'


def _kind(value: object) -> str:
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    kind = type(value)
    name = kind.__qualname__
    name = name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


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
