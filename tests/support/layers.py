"""The rules of who may import whom, and what the protocol may never touch, as checks on source.

Rules: reads our source as text and never imports it, so that an import in a function, under
`TYPE_CHECKING` or in a branch that is never taken counts like any other. Every check takes
sources and gives sentences; no sentence means that all is well.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate

PACKAGE = "colonnade"

# Lowest first. A unit is a file or a folder directly in the package; units in one row do not
# know each other.
ROWS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "log_rate", "text"}),
    frozenset({"protocol"}),
    frozenset({"ports", "signatures"}),
    frozenset({"replicas"}),
    frozenset({"transport", "store", "auth", "middleware", "logs", "providers", "telemetry"}),
    frozenset({"server", "client", "extensions"}),
    frozenset({"host", "sync"}),
    frozenset({"gateway"}),
    frozenset({"cli", "console", "testing"}),
    frozenset({"__main__"}),
)

# The same inside protocol/, where a unit is a file or a folder, and the order is the path of data.
PROTOCOL_ROWS: tuple[frozenset[str], ...] = (
    frozenset({"json_checks", "schema", "types", "uritemplate"}),
    frozenset({"elicitation", "jsonrpc", "methods"}),
    frozenset({"revision"}),
    frozenset({"codec"}),
    frozenset({"extensions", "forwarded", "negotiation_cache"}),
    frozenset({"negotiation"}),
    frozenset({"http", "input_requests"}),
    frozenset({"exchange", "input_rounds"}),
    frozenset({"link", "subscriptions", "tasks"}),
)

# One library, one home: a module, or a folder with everything in it. msgspec is everywhere.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "msgspec": ("",),
    "jsonschema_rs": ("protocol.schema",),
    "pydantic": ("signatures.pydantic_codec",),
    "pydantic_core": ("signatures.pydantic_codec",),
    "pyreqwest": ("transport.http_client",),
    "httptools": ("transport",),
    "uvloop": ("transport",),
    "redis": ("store.redis",),
    "hiredis": ("store.redis",),
    "docket": ("server.tasks.docket",),
    "joserfc": ("auth",),
    "cryptography": ("auth",),
    "keyring": ("auth.client.storage",),
    "opentelemetry": ("telemetry",),
    "prometheus_client": ("telemetry",),
    "pytest": ("testing",),
    "click": ("cli",),
    "rich": ("cli",),
}

# What is documented below the front of a library, by module or by name; all else there may change
# with any release, as may every name with an underscore.
DOCUMENTED: dict[str, tuple[str, ...]] = {
    "asyncio": ("subprocess",),
    # The second in its changes for 8.2 only.
    "click": ("core.ParameterSource", "exceptions.NoArgsIsHelpError", "shell_completion"),
    "cryptography": ("exceptions", "hazmat.primitives"),
    "msgspec": ("inspect", "json", "msgpack", "structs"),
    "opentelemetry": ("context", "metrics", "propagate", "sdk", "trace"),
    "prometheus_client": ("core", "metrics_core"),
    "pydantic": ("json_schema",),
    "redis": ("asyncio", "backoff", "credentials", "exceptions"),
}
PRIVATE_NAME = re.compile(r"_[^_]\w*")

# Modules that do I/O, read a clock, roll dice, or run something beside the caller.
_WORLDLY = """
    asyncio concurrent contextvars ctypes fcntl ftplib getpass glob http locale logging mmap
    multiprocessing os platform queue random sched secrets select selectors shutil signal smtplib
    socket socketserver sqlite3 ssl subprocess tempfile termios threading time tty webbrowser
"""
# Allowed for their types or their pure parts, never for these.
_WORLDLY_CALLS = """
    now utcnow today uuid1 uuid4 getnode urlopen read_text read_bytes write_text write_bytes
    exists is_file is_dir iterdir expanduser resolve cwd home
"""
WORLDLY = frozenset(_WORLDLY.split())
WORLDLY_CALLS = frozenset(_WORLDLY_CALLS.split())
WORLDLY_NAMES = frozenset({"open", "input", "print", "breakpoint"})
WORLDLY_PARTS = frozenset({"urllib.request", "http.client", "http.server", "importlib.metadata"})

DATE = re.compile(r"20\d\d-\d\d-\d\d")
REVISION_NAME = re.compile(r"[A-Z]+_20\d\d")
# Where the dates of revisions may be written: the values, and the since and until beside a type.
DATED = frozenset({"revision", "types", "methods"})
# The one function that gives dates an order: it answers whether a since and an until include it.
ORDERED = ("protocol.revision", "knows")
ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True)
class Import:
    """One name that a module imports: in full, at which line, and whether inside a function."""

    target: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Module:
    """One file of the package, by its dotted name below the package; the root has the name ''."""

    name: str
    source: str
    is_folder: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.name)

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name stands for, in full."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    found[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom):
                start = absolute(self, node)
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{start}.{alias.name}"
        return found

    @property
    def unit(self) -> str:
        return self.name.split(".")[0]

    @property
    def protocol_unit(self) -> str:
        """In protocol/, the file or folder; elsewhere nothing."""
        return protocol_unit_of(self.name)

    def within(self, *homes: str) -> bool:
        return any(home in ("", self.name) or self.name.startswith(home + ".") for home in homes)

    def at(self, line: int) -> str:
        return f"{self.name or '__init__'}:{line}"


def protocol_unit_of(name: str) -> str:
    unit, _, rest = name.partition(".")
    return rest.split(".")[0] if unit == "protocol" else ""


def read(folder: Path) -> dict[str, Module]:
    """Every module under a package folder, by name."""
    modules: dict[str, Module] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        is_folder = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_folder else parts)
        modules[name] = Module(name, path.read_text("utf-8"), is_folder)
    return modules


def given(**sources: str) -> dict[str, Module]:
    """Modules from text, for the tests of these checks: `protocol__link="import time"`."""
    names = {name.replace("__", "."): text for name, text in sources.items()}
    return {name: Module(name, text) for name, text in names.items()}


def imports(module: Module) -> Iterator[Import]:
    """Everything that a module imports, wherever in it the import stands."""

    def walk(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            start = absolute(module, node)
            for alias in node.names:
                yield Import(f"{start}.{alias.name}", node.lineno, deferred)
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, deferred)

    yield from walk(module.tree, False)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The module that a `from` names, with the leading dots resolved."""
    if not node.level:
        return node.module or ""
    here = [PACKAGE, *module.name.split(".")] if module.name else [PACKAGE]
    above = node.level - 1 if module.is_folder else node.level
    start = here[: len(here) - above] if above else here
    return ".".join([*start, *([node.module] if node.module else [])])


def own(module: Module, modules: dict[str, Module]) -> Iterator[tuple[str, int]]:
    """The modules of the package that a module imports, by name below the package."""
    seen: set[tuple[str, int]] = set()
    for found in imports(module):
        head, _, name = found.target.partition(".")
        if head != PACKAGE or name == "__version__":  # a constant of the root, which loads nothing
            continue
        # `from colonnade.protocol import jsonrpc` names a module, `import Link` something in one.
        while name not in modules and name.rpartition(".")[0] in modules and name:
            name = name.rpartition(".")[0]
        if name != module.name and (name, found.line) not in seen:
            seen.add((name, found.line))
            yield name, found.line


def rank(unit: str, rows: Iterable[frozenset[str]]) -> int | None:
    return next((number for number, row in enumerate(rows) if unit in row), None)


def upward(modules: dict[str, Module]) -> Iterator[str]:
    """Imports that do not go down: from a higher row, from beside, or from the package's front."""
    for module in modules.values():
        if module.name and rank(module.unit, ROWS) is None:
            yield f"{module.name}: has no row; decide who may import it"
        for target, line in own(module, modules):
            yield from _judge(module, line, module.unit, target.split(".")[0], ROWS)
            if module.protocol_unit and protocol_unit_of(target):
                yield from _judge(
                    module, line, module.protocol_unit, protocol_unit_of(target), PROTOCOL_ROWS
                )
        if module.protocol_unit and rank(module.protocol_unit, PROTOCOL_ROWS) is None:
            yield f"{module.name}: has no place in the order of protocol/; give it one"


def _judge(
    module: Module, line: int, mine: str, theirs: str, rows: tuple[frozenset[str], ...]
) -> Iterator[str]:
    if mine == theirs:
        return
    if not theirs:
        yield f"{module.at(line)}: imports the public names, which are for users; name the file"
        return
    from_row, to_row = rank(mine, rows), rank(theirs, rows)
    if from_row is not None and (to_row is None or to_row >= from_row):
        way = "sideways" if to_row == from_row else "up"
        yield f"{module.at(line)}: {mine} imports {theirs}, which goes {way}"


def cycles(modules: dict[str, Module]) -> Iterator[str]:
    """Groups of modules that import each other (Tarjan's strongly connected components)."""
    graph = {name: {target for target, _ in own(m, modules)} for name, m in modules.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name] & graph.keys()):
            if target not in index:
                yield from visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            start = stack.index(name)
            knot = stack[start:]
            del stack[start:]
            yield knot

    for name in graph:
        if name not in index:
            for knot in visit(name):
                if len(knot) > 1:
                    yield "a cycle: " + " -> ".join([*knot, knot[0]])


def third_party_imports(modules: dict[str, Module]) -> Iterator[str]:
    """Third-party libraries outside their one home; in protocol/ and
    signatures/ all but msgspec wait for a call."""
    for module in modules.values():
        for found in imports(module):
            library = found.target.split(".")[0]
            if library == PACKAGE or library in sys.stdlib_module_names:
                continue
            if not module.within(*LIBRARIES.get(library, ())):
                home = " or ".join(LIBRARIES.get(library, ())) or "no file yet"
                yield f"{module.at(found.line)}: imports {library}, whose home is {home}"
            elif (
                module.unit in ("protocol", "signatures")
                and library != "msgspec"
                and not found.deferred
            ):
                yield f"{module.at(found.line)}: loads {library} at once; import it where it is used"


def private(modules: dict[str, Module]) -> Iterator[str]:
    """Names of asyncio and of third-party libraries that they do not promise to keep: imported,
    used through their modules, or overridden."""
    for module in modules.values():
        for found in imports(module):
            if _is_private(found.target):
                yield f"{module.at(found.line)}: imports {found.target}, which is private"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _is_private(_dotted(node, module)):
                yield f"{module.at(node.lineno)}: uses {_dotted(node, module)}, which is private"
            elif isinstance(node, ast.ClassDef):
                yield from _overridden(module, node, modules)
        for number, line in enumerate(module.source.splitlines(), 1):
            if "reportPrivateUsage" in line:  # what a type checker has found
                yield f"{module.at(number)}: lets a type checker overlook a private name"


def _is_library(name: str) -> bool:
    library = name.split(".")[0]
    known = library in (PACKAGE, "") or library in sys.stdlib_module_names
    return library == "asyncio" or not known


def _is_private(name: str) -> bool:
    """Whether a dotted name is one of a library, and not documented."""
    library, _, rest = name.partition(".")
    if not _is_library(name) or not rest:
        return False
    if any(PRIVATE_NAME.fullmatch(part) for part in rest.split(".")):
        return True
    public = DOCUMENTED.get(library, ())
    if any(rest == one or rest.startswith(one + ".") for one in public):
        return False
    if any(one.startswith(rest + ".") for one in public):  # on the way to a documented name
        return False
    try:
        return find_spec(f"{library}.{rest.split('.')[0]}") is not None
    except ModuleNotFoundError:  # not a package, or not installed
        return False


def _dotted(node: ast.expr, module: Module) -> str:
    """A name, or one after dots, in full; empty where it does not begin with an import."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    start = module.imported.get(node.id, "") if isinstance(node, ast.Name) else ""
    return ".".join([start, *reversed(parts)]) if start else ""


def _overridden(module: Module, node: ast.ClassDef, modules: dict[str, Module]) -> Iterator[str]:
    """Private names of a library's class that a class of ours has, too."""
    names: set[str] = set()
    for base in _library_bases(module, node, modules):
        names |= _private_names(base)
    for part in ast.walk(node):
        name = ""
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            name = part.name
        elif isinstance(part, ast.Attribute) and names:
            name = part.attr if ast.unparse(part.value) in ("self", "super()") else ""
        if name in names:
            yield f"{module.at(getattr(part, 'lineno', 0))}: {node.name} has {name}, a private name of its base"


def _library_bases(
    module: Module, node: ast.ClassDef, modules: dict[str, Module]
) -> Iterator[type]:
    """The classes of libraries that a class derives from, through classes of ours, too."""
    here = {one.name: one for one in module.tree.body if isinstance(one, ast.ClassDef)}
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        dotted = _dotted(base, module)
        if isinstance(base, ast.Name) and base.id in here:
            yield from _library_bases(module, here[base.id], modules)
        elif dotted.startswith(PACKAGE + "."):
            home, _, name = dotted.removeprefix(PACKAGE + ".").rpartition(".")
            if home in modules:
                for one in modules[home].tree.body:
                    if isinstance(one, ast.ClassDef) and one.name == name:
                        yield from _library_bases(modules[home], one, modules)
        elif dotted and _is_library(dotted):
            found = locate(dotted)
            if isinstance(found, type):
                yield found


def _private_names(base: type) -> set[str]:
    names = {name for name in dir(base) if PRIVATE_NAME.fullmatch(name)}
    for one in base.__mro__:
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):  # written in C
            continue
        names |= set(re.findall(r"\bself\.(_[^_\W]\w*)", source))
    return names


def impure_calls(modules: dict[str, Module]) -> Iterator[str]:
    """I/O, clocks, dice and tasks in protocol/ and signatures/."""
    for module in modules.values():
        if module.unit not in ("protocol", "signatures", "errors"):
            continue
        for found in imports(module):
            if found.target.split(".")[0] in WORLDLY or any(
                found.target.startswith(part) for part in WORLDLY_PARTS
            ):
                yield f"{module.at(found.line)}: imports {found.target}; the protocol does no I/O"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and _is_impure(node.func):
                yield f"{module.at(node.lineno)}: calls {ast.unparse(node.func)}()"
            elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
                yield f"{module.at(node.lineno)}: is asynchronous; the protocol starts no task"
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in (
                "sys.stdin",
                "sys.stdout",
                "sys.stderr",
            ):
                yield f"{module.at(node.lineno)}: touches {ast.unparse(node)}"


def _is_impure(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in WORLDLY_CALLS
    return isinstance(called, ast.Name) and called.id in WORLDLY_NAMES


def dates(modules: dict[str, Module]) -> Iterator[str]:
    """Revisions told apart by their dates or names instead of by a question."""
    for module in modules.values():
        for node in _outside(module.tree, ORDERED[1] if module.name == ORDERED[0] else ""):
            if (
                isinstance(node, ast.Constant)
                and _is_date(node)
                and module.protocol_unit not in DATED
            ):
                yield f"{module.at(node.lineno)}: writes the date {node.value!r}"
            elif isinstance(node, ast.Compare):
                yield from _compared(module, node)
            elif isinstance(node, ast.MatchValue) and _is_revision(node.value):
                yield f"{module.at(node.lineno)}: matches a revision; ask it a question"
            elif isinstance(node, ast.Call) and _is_sorting(node):
                yield f"{module.at(node.lineno)}: sorts by date: {ast.unparse(node)}"


def _outside(node: ast.AST, function: str) -> Iterator[ast.AST]:
    """Every node of a tree but those in functions of one name."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and child.name == function):
            yield from _outside(child, function)


def _compared(module: Module, node: ast.Compare) -> Iterator[str]:
    sides = [node.left, *node.comparators]
    said = f"{module.at(node.lineno)}: compares {ast.unparse(node)}"
    if any(isinstance(op, ORDERING) for op in node.ops) and any(map(_is_date, sides)):
        yield f"{said}; dates have no order here"
    elif not module.within("protocol.revision") and any(map(_is_revision, sides)):
        yield f"{said}; ask the revision a question"


def _is_date(node: ast.expr) -> bool:
    """A string that is a date, or something's `.date` (but not the type `datetime.date`)."""
    if isinstance(node, ast.Constant):
        text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return isinstance(text, str) and DATE.fullmatch(text) is not None
    is_field = isinstance(node, ast.Attribute) and node.attr in ("date", "protocol_version")
    return is_field and ast.unparse(node) != "datetime.date"


def _is_revision(node: ast.expr) -> bool:
    """One of the five values by name, alone or in a tuple that something is looked for in."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_revision, node.elts))
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return REVISION_NAME.fullmatch(name) is not None


def _is_sorting(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "attrgetter":
        return any(isinstance(arg, ast.Constant) and arg.value == "date" for arg in node.args)
    if name not in ("sorted", "sort", "min", "max", "bisect", "bisect_left", "bisect_right"):
        return False
    within = [part for arg in (node.func, *node.args, *node.keywords) for part in ast.walk(arg)]
    return any(isinstance(part, ast.expr) and _is_date(part) for part in within)
