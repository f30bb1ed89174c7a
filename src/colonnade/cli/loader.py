"""Load a server from a Python file or module: `server.py`, `server.py:name`, `package.module:name`.

The file is loaded as `python server.py` loads it, with its folder first on `sys.path`, but under
its own name: the code below `if __name__ == "__main__":` does not run. `colonnade run` also serves
a file that calls `run()` outside of that block, and a file that makes its server inside of it.
The second half of the module is `serve --reload`: watch the files, and restart the process.

Rules: nothing is inferred from the file without running it, and it runs once; twice only if it
makes its server below `if __name__ == "__main__":`. Every problem is a `CliError` with a hint.
"""

import contextlib
import importlib
import importlib.util
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, overload

from colonnade.cli.errors import FAILED, CliError, Reporter, describe_exception

if TYPE_CHECKING:  # imported when it is known that there is a file to load
    from colonnade.server.server import Server
    from colonnade.transport.http_server.app import HttpApp

# The default names of a server in its module, in order of preference.
SERVER_NAMES: Final = ("server", "mcp", "app")
# The name of a module that runs as a program.
MAIN: Final = "__main__"
# Suffixes of Python files; a file without a suffix may be a script.
PYTHON_SUFFIXES: Final = (".py", ".pyw", "")
# Suffixes of configuration files, which list servers.
CONFIG_SUFFIXES: Final = (".json", ".jsonc", ".json5", ".toml", ".yaml", ".yml")

# Usual names of configuration files, in order of preference.
CONFIG_NAMES: Final = ("mcp.json", ".mcp.json")


class ServerFile:
    """A file or module, and the name of a server in it, as given on the command line."""

    def __init__(self, source: str, name: str, *, is_file: bool) -> None:
        self.source = source
        self.name = name
        self.path: str = os.path.abspath(source) if is_file else ""
        # The first folder of `sys.path`.
        self.folder: str = os.path.dirname(self.path) if is_file else os.getcwd()

    def __str__(self) -> str:
        """The same target, valid in any working directory."""
        source = self.path or self.source
        return f"{source}:{self.name}" if self.name else source


def parse_server_file(text: str) -> ServerFile:
    """Parse `FILE[:NAME]` or `MODULE[:NAME]`. Raises `CliError` if there is no such file."""
    source, name = text, ""
    if not os.path.exists(text):
        before, colon, after = text.rpartition(":")
        if colon and all(part.isidentifier() for part in after.split(".")):
            source, name = before, after
        elif colon and not after:
            source = before
    if "://" in source:
        raise CliError(
            f"{source} is a URL, and this command starts a server", hint="give a Python file"
        )
    if os.path.isdir(source):
        raise CliError(f"{source} is a directory", hint=f"give a file, such as {_likely(source)}")
    if os.path.exists(source):
        if os.path.splitext(source)[1].lower() in CONFIG_SUFFIXES:
            raise CliError(
                f"{source} is a configuration file, not a server",
                hint=f"give the file of a server; colonnade ls {source} lists the servers",
            )
        if os.path.splitext(source)[1] not in PYTHON_SUFFIXES:
            raise CliError(
                f"{source} is not a Python file", hint="give the file that defines the server"
            )
        return ServerFile(source, name, is_file=True)
    files = (*PYTHON_SUFFIXES[:2], *CONFIG_SUFFIXES)
    if os.sep in source or source.lower().endswith(files) or not _is_module(source):
        raise _missing_file(source)
    return ServerFile(source, name, is_file=False)


def _is_module(source: str) -> bool:
    return all(part.isidentifier() for part in source.split("."))


def _likely(folder: str) -> str:
    """The file in a folder that most likely defines the server."""
    files = sorted(each for each in os.listdir(folder) if each.endswith(".py"))
    likely = [f"{name}.py" for name in (*SERVER_NAMES, "main") if f"{name}.py" in files]
    return os.path.join(folder, (likely or files or ["server.py"])[0])


# `localhost:8000/mcp`, `localhost/mcp` and `example.com/mcp`.
_URL_WITHOUT_SCHEME: Final = re.compile(
    r"((\[[0-9a-fA-F:]+\]|[\w.-]+):\d+|localhost|\w[\w-]*(\.[\w-]+)+(?=/))(/.*)?"
)


def _missing_file(source: str) -> CliError:
    folder = os.path.dirname(source)
    if _URL_WITHOUT_SCHEME.fullmatch(source) and not (folder and os.path.isdir(folder)):
        from colonnade.client.connect import suggested_url  # on use

        hint = f"did you mean {suggested_url(source)}?"
        return CliError(f"there is no file {source}", hint=hint)
    if folder and not os.path.isdir(folder):
        return CliError(f"there is no directory {folder}, and so no file {source}")
    stem, suffix = os.path.splitext(os.path.basename(source))
    names = sorted(os.listdir(folder or "."))
    usual: list[str] = []
    if suffix.lower() in CONFIG_SUFFIXES:
        usual = [name for name in CONFIG_NAMES if name in names]
        names = [name for name in names if name.lower().endswith(CONFIG_SUFFIXES)]
    stems = {os.path.splitext(name)[0]: name for name in names}
    from colonnade.text import closest  # on use

    near = stems.get(closest(stem, stems)) or next(iter(usual), None)
    hint = f"did you mean {os.path.join(folder, near)}?" if near else f"see {folder or os.getcwd()}"
    return CliError(f"there is no file {source}", hint=hint)


# ---------------------------------------------------------------- loading


class _UncachedLoader(SourceFileLoader):
    """Loads a script as Python does: from its source, without cached bytecode."""

    def path_stats(self, path: Any) -> Any:
        raise OSError  # so that no bytecode is read or written


class _ServedDuringLoad(BaseException):
    """The file serves while it is loaded. Not an `Exception`, which the file may catch."""


class StdioRunner(Protocol):
    """Serves a server whose file calls `run()` or `serve()` while it is loaded."""

    def run(self, server: "Server") -> None: ...

    async def serve(self, server: "Server") -> None: ...


@overload
def load(file: ServerFile, reporter: Reporter) -> "Server": ...
@overload
def load(file: ServerFile, reporter: Reporter, *, apps: Literal[True]) -> "Server | HttpApp": ...
def load(file: ServerFile, reporter: Reporter, *, apps: bool = False) -> "Server | HttpApp":
    """Run the file and find its server; with `apps` also an application made by `server.asgi(…)`,
    if its name is given. Raises `CliError`."""
    from colonnade.server.server import Server

    module = _load_module(file, reporter, None)
    if apps and file.name:
        from colonnade.transport.http_server.app import HttpApp

        value: Any = module
        for part in file.name.split("."):
            value = getattr(value, part, None)
        if isinstance(value, HttpApp):
            return value
        if callable(value) and not isinstance(value, type | Server) and _is_asgi(value):
            raise CliError(
                f"{file.name!r} in {file.source} is {_type_name(value)}, which server.asgi() did "
                "not make",
                hint=f"wrap it: app = server.asgi(around={file.name})",
                retry_on_change=True,
            )
    return _choose_server(file, module, Server)


def load_or_serve(file: ServerFile, reporter: Reporter, runner: StdioRunner) -> "Server | None":
    """Run the file and find its server; None if the file called `run()` itself, and `runner`
    served it. Raises `CliError`."""
    from colonnade.server.server import Server

    if file.name:  # the whole file must have run to know which server that is
        return load(file, reporter)
    single = _SingleRun(runner)
    module = _load_module(file, reporter, single)
    if single.served:
        return None
    try:
        return _choose_server(file, module, Server)
    except _NoServer:
        if not (file.path and _has_main(file.path)):
            raise
        # The server is made below `if __name__ == "__main__":`, so that must run as well.
        _load_module(file, reporter, single, MAIN)
        if single.served:
            return None
        raise


def _has_main(path: str) -> bool:
    """Whether a file has an `if __name__ == "__main__":` block."""
    with open(path, "rb") as file:
        return MAIN.encode() in file.read()


class _NoServer(CliError):
    """The module has no server."""


class _SingleRun:
    """Hands out the runner once: there is one standard input, so one server."""

    def __init__(self, runner: StdioRunner) -> None:
        self._runner = runner
        self.served = False

    def take(self) -> StdioRunner:
        if self.served:
            raise _ServedDuringLoad
        self.served = True
        return self._runner


def _load_module(
    file: ServerFile, reporter: Reporter, single: _SingleRun | None, name: str = ""
) -> ModuleType:
    from colonnade.server.server import Server

    _set_search_path(file.folder)
    sys.argv = [file.source]
    try:
        with _run_replaced(Server, single):
            return _run_file(file.path, name) if file.path else _import_module(file)
    except CliError:
        raise
    except _ServedDuringLoad:
        raise CliError(
            f"{file.source} calls run() while it is loaded",
            FAILED,
            hint='move run() below `if __name__ == "__main__":`, or start it with '
            f"`python {file.source}`",
            retry_on_change=True,
        ) from None
    except SystemExit as error:
        raise CliError(
            f"{file.source} exited with status {error.code!r} while it was loaded",
            FAILED,
            hint='move the code that exits below `if __name__ == "__main__":`',
            traceback=reporter.traceback(error),
            retry_on_change=True,
        ) from None
    except Exception as error:
        summary, hint = _load_error(file, error)
        raise CliError(
            summary,
            FAILED,
            hint=hint,
            traceback=reporter.traceback(error),
            retry_on_change=True,
        ) from None


def _is_asgi(value: Any) -> bool:
    """Whether this looks like an ASGI application."""
    import inspect

    call = getattr(value, "__call__", value)  # noqa: B004
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def _set_search_path(folder: str) -> None:
    """Put the folder of the file first on `sys.path`, as `python file.py` does."""
    script = sys.argv[0]
    scripts = (os.path.abspath(script), os.path.realpath(script))
    ours = {"", os.getcwd()} | {os.path.dirname(path) for path in scripts}
    if sys.path and sys.path[0] in ours:
        del sys.path[0]
    sys.path.insert(0, folder)


@contextlib.contextmanager
def _run_replaced(kind: Any, single: _SingleRun | None) -> Generator[None]:
    """Replace `Server.run` and `Server.serve` while the file is loaded: on stdio, use the runner,
    if there is one; raise otherwise."""

    def run(server: "Server", transport: str = "stdio", **_: object) -> None:
        if single is None or transport != "stdio":
            raise _ServedDuringLoad
        single.take().run(server)

    async def serve(server: "Server", transport: str = "stdio", **_: object) -> None:
        if single is None or transport != "stdio":
            raise _ServedDuringLoad
        await single.take().serve(server)

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
            name = f"{name}_"  # another module has this name
    loader = _UncachedLoader(name, path)
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


def _import_module(file: ServerFile) -> ModuleType:
    try:
        return importlib.import_module(file.source)
    except ModuleNotFoundError as error:
        if error.name and f"{file.source}.".startswith(f"{error.name}."):
            path = file.source.replace(".", os.sep) + ".py"
            hint = f"{path} is a file here" if os.path.exists(path) else ""
            raise CliError(
                f"there is no module {file.source} in {os.getcwd()} or on sys.path", hint=hint
            ) from None
        raise


def _load_error(file: ServerFile, error: Exception) -> tuple[str, str]:
    """The summary and the hint for an exception that was raised while the file was loaded."""
    if isinstance(error, SyntaxError) and error.filename and os.path.exists(error.filename):
        path = os.path.relpath(error.filename)
        return f"{path} has a syntax error in line {error.lineno}: {error.msg}", ""
    summary = f"{file.source} could not be loaded: {describe_exception(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        if missing not in sys.modules and not _is_beside(file.folder, missing):
            return summary, f"install it: {sys.executable} -m pip install {missing}"
    elif isinstance(error, ImportError) and file.path and _has_relative_import(error):
        package = os.path.basename(file.folder)
        stem = os.path.splitext(os.path.basename(file.path))[0]
        above = os.path.dirname(file.folder)
        return summary, f"give it as a module, {package}.{stem}, from {above}"
    return summary, ""


def _has_relative_import(error: ImportError) -> bool:
    """Whether a relative import failed for want of a package. Python gives no other sign of it."""
    return not isinstance(error, ModuleNotFoundError) and "relative import" in error.msg


def _is_beside(folder: str, module: str) -> bool:
    return any(os.path.exists(os.path.join(folder, module + end)) for end in ("", ".py"))


# ---------------------------------------------------------------- choosing


def _choose_server(file: ServerFile, module: ModuleType, kind: "type[Server]") -> "Server":
    servers: dict[str, Server] = {
        name: value for name, value in vars(module).items() if isinstance(value, kind)
    }
    if file.name:
        return _named_server(file, module, servers, kind)
    for name in SERVER_NAMES:
        if name in servers:
            return servers[name]
    inner = [id(one) for server in servers.values() for one in server.mounted]
    outer = {id(one): name for name, one in servers.items() if id(one) not in inner}
    if len(outer) == 1:
        return servers[next(iter(outer.values()))]
    if not outer:
        raise _no_server(file.source, module)
    names = sorted(outer.values())
    raise CliError(
        f"{file.source} has several servers ({', '.join(names)})",
        hint=f"choose one: {file.source}:{names[0]}",
        retry_on_change=True,
    )


def _named_server(
    file: ServerFile, module: ModuleType, servers: "dict[str, Server]", kind: "type[Server]"
) -> "Server":
    value: Any = module
    known = f"its servers are {', '.join(sorted(servers))}" if servers else ""
    for part in file.name.split("."):
        if not hasattr(value, part):
            from colonnade.text import closest  # on use

            near = closest(part, servers) or closest(part, dir(value))
            raise CliError(
                f"{file.source} has no {file.name!r}",
                hint=f"did you mean {near!r}?" if near else known or "it has no server",
                retry_on_change=True,
            )
        value = getattr(value, part)
    if isinstance(value, kind):
        return value
    hint = known
    if callable(value) and not isinstance(value, type):
        hint = f"if it makes one, assign the result to a name in the file: server = {file.name}()"
    raise CliError(
        f"{file.name!r} in {file.source} is {_type_name(value)}, not a colonnade.Server",
        hint=hint,
        retry_on_change=True,
    )


def _no_server(source: str, module: ModuleType) -> _NoServer:
    summary, hint = f"{source} has no colonnade.Server", 'add one: server = Server("name")'
    for name in SERVER_NAMES:
        if hasattr(module, name):
            hint = f"its {name!r} is {_type_name(getattr(module, name))}"
            break
    return _NoServer(summary, hint=hint, retry_on_change=True)


def _type_name(value: object) -> str:
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    kind = type(value)
    name = kind.__qualname__
    name = name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


# ---------------------------------------------------------------- reload


# The interval between checks; a change counts when the file is the same at the next check.
POLL_S = 0.25
# How long a server may take to shut down before the process is restarted.
SHUTDOWN_S = 2.0
# Tells the restarted process which file changed, so that it does not print its URL again.
RELOADED_ENV: Final = "COLONNADE_CHANGED"
# Gives a worker process of `serve --workers` the numbers of the sockets that it inherits: the one
# to listen on, and the one to its parent.
WORKER_ENV: Final = "COLONNADE_WORKER_SOCKETS"

Stamp = tuple[int, int]


class WatchedFiles:
    """Python files below a folder, and which of them has changed since it was first seen."""

    def __init__(self, folder: str, *paths: str) -> None:
        self.folder = folder
        self._extra = set(paths)
        self._known: dict[str, Stamp] = {}
        self._last: dict[str, Stamp] = {}
        self._lock = threading.Lock()
        self.record()

    def record(self) -> None:
        """Take the files that are imported by now as unchanged."""
        with self._lock:
            for path in self._paths():
                self._known.setdefault(path, _stamp(path))

    def add(self, error: BaseException | None) -> None:
        """Watch the files of a traceback as well, and the files beside them."""
        while error is not None:
            self._extra |= {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
            self._extra.add(getattr(error, "filename", None) or "")
            error = error.__cause__ or error.__context__
        self._list()
        self.record()

    def changed(self) -> str:
        """A file that has changed, and is the same as at the last check; empty if there is none."""
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
        """The same; a new file counts as changed, too."""
        for path in self._list():
            self._known.setdefault(path, (0, 0))
        return self.changed()

    def _list(self) -> set[str]:
        found: set[str] = set()
        for folder in {self.folder, *(os.path.dirname(p) for p in self._extra)}:
            if self._is_local(os.path.join(folder, "")):
                with contextlib.suppress(OSError):
                    names = [n for n in os.listdir(folder) if n.endswith(".py")]
                    found |= {os.path.join(folder, name) for name in names}
        self._extra |= found
        return found

    def _paths(self) -> Iterator[str]:
        for module in list(sys.modules.values()):
            path = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(path, str) and self._is_local(path):
                yield path
        for path in list(self._extra):
            if self._is_local(path):
                yield path

    def _is_local(self, path: str) -> bool:
        """Whether a file is the user's own, not an installed one."""
        if not path.startswith(os.path.join(self.folder, "")) or "site-packages" in path:
            return False
        pythons = (os.path.join(sys.prefix, ""), os.path.join(sys.base_prefix, ""))
        return self.folder.startswith(pythons) or not path.startswith(pythons)


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)  # deleted, or being replaced
    return (found.st_mtime_ns, found.st_size)


def own_command() -> list[str]:
    """How this process was started, without its arguments; call it before a file is loaded."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]


class Reloader:
    """Watches files until one of them has changed, then restarts the process.

    `arguments` are those of the command, without the port and the target.
    """

    def __init__(
        self, text: str, file: ServerFile, reporter: Reporter, arguments: list[str]
    ) -> None:
        self._target = text
        self._reporter = reporter
        self._arguments = arguments
        # The file whose change restarted this process, if the URL was printed before that.
        self.changed_before: str = os.environ.pop(RELOADED_ENV, "")
        self._is_announced = bool(self.changed_before)
        self._cwd = os.getcwd()
        self._environment = dict(os.environ)
        self._command = own_command()
        sys.dont_write_bytecode = True  # cached bytecode is compared by whole seconds
        self._files = WatchedFiles(file.folder, file.path)
        self._stop_server: Callable[[], None] | None = None
        self._stopped = threading.Event()
        self.changed: str = ""

    # ------------------------------------------------------------ while the server runs

    def start(self) -> None:
        """Start watching, in a thread, so that a blocked event loop is restarted as well."""
        threading.Thread(target=self._watch, name="colonnade-reload", daemon=True).start()

    def on_loaded(self) -> None:
        """The file and its imports are loaded: later changes count."""
        self._files.record()

    def on_served(self, stop: Callable[[], None], port: int) -> None:
        """The server listens: how to stop it, and the port to keep."""
        self._stop_server = stop
        self._arguments += ["--port", str(port)]
        self._is_announced = True
        if self.changed:
            self._stop()

    def stop(self) -> None:
        """The server has stopped."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_S):
            path = self._files.changed()
            if path and self._compiles(path):
                self.changed = path
                self._stop()
                if not self._stopped.wait(SHUTDOWN_S):
                    self.restart()
                return

    def _stop(self) -> None:
        if self._stop_server is not None:
            self._stop_server()
            self._stop_server()  # the second time: do not wait for running calls

    def _compiles(self, path: str) -> bool:
        """Whether Python can compile a file; if not, report that once."""
        try:
            with open(path, "rb") as file:
                compile(file.read(), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            where = f"{self._shown(path)}, line {error.lineno}"
            self._reporter.info(f"{where}: {error.msg}; the server runs on without the change")
            return False
        except (OSError, ValueError):  # deleted again, or not text
            return False
        return True

    # ------------------------------------------------------------ while the file is broken

    def wait(self, error: CliError) -> None:
        """Report an error, and wait for a change that may fix it."""
        self._stopped.set()
        self._files.add(error.__context__)
        signal.signal(signal.SIGTERM, _exit)
        hint = "; ".join(filter(None, [error.hint, "waiting for a file to change"]))
        self._reporter.error(CliError(error.summary, hint=hint, traceback=error.traceback))
        quiet = threading.Event()
        while not self.changed:
            quiet.wait(POLL_S)
            self.changed = self._files.changed_or_new()

    # ------------------------------------------------------------ restart

    def restart(self) -> NoReturn:
        """Replace this process by a new one with the same command line."""
        command = [*self._command, *self._arguments, "--", self._target]
        environment = self._environment
        if self._is_announced:
            environment = environment | {RELOADED_ENV: self._shown(self.changed)}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os.chdir(self._cwd)
        if sys.platform == "win32":  # a process cannot be replaced there
            import subprocess

            os._exit(subprocess.call(command, env=environment))
        os.execve(sys.executable, command, environment)

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._cwd)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)
