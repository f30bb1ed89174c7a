"""The API reference as Markdown, made from the source: every public name with every parameter.

    python -m docs.site.reference FOLDER

Public are the names of the package itself, and what the modules of `MODULES` offer. Signatures and
defaults are taken from the code, descriptions from docstrings and from the comment above a field.

Rules: nothing is written by hand here, so that a page cannot differ from the code; the same source
gives the same text.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import colonnade

# Where the pages are in the documentation, and what is imported by its own module name.
FOLDER = "docs/reference"
MODULES = ("testing", "sync", "middleware", "logs")
# The heading of a page and what it is about, by the first part of the modules of its names.
TITLES = {
    "server": ("Servers", "`Server`, the context of a handler, results, dependencies."),
    "client": ("Clients", "`connect` and `Client`: tools, resources, prompts of one server."),
    "host": ("Hosts", "`Host`: many servers in one application, and the agent loop."),
    "auth": ("Authorization", "OAuth: token verification in servers, login in clients."),
    "transport": ("HTTP", "Limits of the HTTP server, and custom HTTP routes."),
    "ports": ("Requests and middleware", "`RequestContext`, `Handler` and `Middleware`, callers."),
    "protocol": ("Protocol types", "Types of the specification that are part of the API."),
    "telemetry": ("Telemetry", "`Telemetry`: OpenTelemetry and Prometheus."),
    "errors": ("Errors", "Every exception; all of them derive from `ColonnadeError`."),
}
# A signature that is longer has one parameter on a line.
WIDTH = 88

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Parameter:
    """One parameter, field or property, as it is shown."""

    name: str
    annotation: str = ""
    default: str | None = None
    words: str = ""

    def line(self) -> str:
        """Its entry in a list."""
        shown = f"{self.name}: {self.annotation}" if self.annotation else self.name
        if self.default is not None:
            shown += f" = {self.default}"
        return f"- `{shown}`" + (f"  \n  {self.words}" if self.words else "")


@dataclass
class Entry:
    """A public name: its signatures, what is said of it, and what belongs to it."""

    name: str
    kind: str
    signatures: list[str] = field(default_factory=list[str])
    text: str = ""
    bases: list[str] = field(default_factory=list[str])
    parameters: list[Parameter] = field(default_factory=list[Parameter])
    attributes: list[Parameter] = field(default_factory=list[Parameter])
    members: list["Entry"] = field(default_factory=list["Entry"])

    def summary(self) -> str:
        """The first sentence."""
        prose = self.text.partition("\n\n")[0].replace("\n", " ")
        return re.split(r"(?<=[.!?])\s", prose, maxsplit=1)[0].rstrip(":")

    def markdown(self, level: int = 2, prefix: str = "") -> Iterator[str]:
        """Its part of a page."""
        # A heading is an anchor: without the word, `Host.tool` would have that of `HostTool`.
        yield f"{'#' * level} {'Method ' if prefix else ''}`{prefix}{self.name}`"
        if self.signatures:
            yield "```python\n" + "\n".join(self.signatures) + "\n```"
        if self.bases:
            yield "Bases: " + ", ".join(f"`{base}`" for base in self.bases)
        if self.text:
            yield self.text
        if self.parameters:
            yield "Fields:" if self.kind == "struct" else "Parameters:"
            yield "\n".join(one.line() for one in self.parameters)
        if self.attributes:
            yield "Attributes:"
            yield "\n".join(one.line() for one in self.attributes)
        for member in self.members:
            yield from member.markdown(level + 1, f"{self.name}.")


# ---------------------------------------------------------------- source


class Source:
    """One module: its tree, its lines, and the values of its names."""

    def __init__(self, module: str) -> None:
        self.module = import_module(module)
        text = inspect.getsource(self.module)
        self.tree = ast.parse(text)
        self.lines = text.splitlines()

    def find(self, qualname: str) -> list[ast.stmt]:
        """The statements that define a name; several, where it is overloaded."""
        inside: list[ast.stmt] = self.tree.body
        found: list[ast.stmt] = []
        for part in qualname.split("."):
            found = [node for node in inside if _name_of(node) == part]
            inside = [one for node in found if isinstance(node, ast.ClassDef) for one in node.body]
        return found

    def class_of(self, qualname: str) -> ast.ClassDef:
        """The definition of a class."""
        (node,) = (node for node in self.find(qualname) if isinstance(node, ast.ClassDef))
        return node

    def written(self, node: ast.expr | None) -> str:
        """An expression as a reader wants it: without quotes, and without our own prefixes."""
        if node is None:
            return ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        return re.sub(r"\b(?:t|contextlib|os)\.(?=[A-Z])", "", ast.unparse(_Unquoted().visit(node)))

    def default(self, node: ast.expr | None) -> str | None:
        """A default: the value of a constant that has a name, or the expression."""
        match node:
            case None:
                return None
            case ast.Call(func=ast.Name(id="field"), keywords=given):
                named = {one.arg: one.value for one in given}
                return self.default(named.get("default"))
            case _:
                pass
        try:
            value = eval(compile(ast.Expression(node), "default", "eval"), vars(self.module))
        except Exception:
            return ast.unparse(node)
        plain = value is None or isinstance(value, bool | int | float | str | bytes)
        return repr(value) if plain else ast.unparse(node)

    def comment(self, node: ast.stmt) -> str:
        """The comment above a field, or behind it."""
        found: list[str] = []
        number = node.lineno - 2
        while number >= 0 and (line := self.lines[number].strip()).startswith("#"):
            found.insert(0, line.lstrip("# "))
            number -= 1
        behind = self.lines[node.lineno - 1][node.end_col_offset or 0 :].strip()
        if not found and behind.startswith("# ") and "pyright" not in behind:
            found = [behind.lstrip("# ")]
        words = " ".join(found)
        return "" if set(words) <= {"-", " "} or words.startswith("---") else words


class _Unquoted(ast.NodeTransformer):
    """An annotation without quotes and markers; a Literal keeps its quotes."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id="Literal")):
                return node
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
                return self.visit(kind)
            case _:
                return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return ast.parse(node.value, mode="eval").body
        return node


@cache
def source(module: str) -> Source:
    return Source(module)


def _name_of(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None


def prose(text: str | None) -> str:
    """A docstring as Markdown: examples become blocks of code."""
    lines = re.sub(r" \(R\d{4}(?:, R\d{4})*\)", "", inspect.cleandoc(text or "")).splitlines()
    made: list[str] = []
    example: list[str] = []
    for line in [*lines, ""]:
        if line.startswith((">>>", "...")):
            example.append(line)
            continue
        if example:
            made += ["", "```pycon", *example, "```", ""]
            example = []
        made.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip()


def mention(name: str, text: str) -> str:
    """What a docstring says of one parameter: the sentences that name it."""
    plain = " ".join(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split())
    # What stands in code has points and semicolons of its own.
    codes = re.findall(r"`[^`]*`", plain)
    sentences = re.split(r"(?<=[.;]) ", re.sub(r"`[^`]*`", "\0", plain))
    found: list[str] = []
    for sentence in sentences:
        inside = [codes.pop(0) for _ in range(sentence.count("\0"))]
        if any(re.match(rf"`{name}\b", code) for code in inside):
            for code in inside:
                sentence = sentence.replace("\0", code, 1)
            found.append(sentence)
    words = " ".join(found)
    return re.sub(r";$", ".", words[:1].upper() + words[1:])


# ---------------------------------------------------------------- functions


def functions(nodes: list[ast.stmt]) -> tuple[list[Function], Function]:
    """The signatures that callers see, and the definition that has the docstring."""
    all_ = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    overloads = [
        one for one in all_ if any(ast.unparse(d) == "overload" for d in one.decorator_list)
    ]
    return overloads or all_[-1:], all_[-1]


def parameters(function: Function, where: Source, *, bound: bool) -> list[tuple[str, Parameter]]:
    """The parameters of one signature, each with the signs that stand before it."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found: list[tuple[str, Parameter]] = []
    for number, (one, default) in enumerate(zip(plain, defaults, strict=True)):
        if bound and number == 0:
            continue
        found.append(("", _parameter(one, default, where)))
    slash = len(given.posonlyargs) - bound
    if given.posonlyargs and slash > 0:
        found.insert(slash, ("/", Parameter("/")))
    if given.vararg:
        found.append(("*", _parameter(given.vararg, None, where)))
    elif given.kwonlyargs:
        found.append(("*", Parameter("*")))
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(("", _parameter(one, default, where)))
    if given.kwarg:
        found.append(("**", _parameter(given.kwarg, None, where)))
    return found


def _parameter(one: ast.arg, default: ast.expr | None, where: Source) -> Parameter:
    return Parameter(one.arg, where.written(one.annotation), where.default(default))


def signature(name: str, function: Function, where: Source, *, bound: bool) -> str:
    """One signature as code."""
    parts: list[str] = []
    for signs, one in parameters(function, where, bound=bound):
        if one.name in "/*":
            parts.append(one.name)
            continue
        shown = f"{signs}{one.name}"
        if one.annotation:
            shown += f": {one.annotation}"
        if one.default is not None:
            shown += f" = {one.default}" if one.annotation else f"={one.default}"
        parts.append(shown)
    word = "async def " if isinstance(function, ast.AsyncFunctionDef) else "def "
    if function.name == "__init__":
        word, end = "class ", ""
    else:
        end = f" -> {where.written(function.returns)}" if function.returns else ""
    line = f"{word}{name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{word}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def described(
    functions_: list[Function], where: Source, text: str, *, bound: bool
) -> list[Parameter]:
    """Every parameter of some signatures once, with what is said of it; keywords one by one."""
    found: dict[str, Parameter] = {}
    for function in functions_:
        for signs, one in parameters(function, where, bound=bound):
            if one.name in "/*":
                continue
            options = re.fullmatch(r"Unpack\[(\w+)\]", one.annotation) if signs == "**" else None
            if options is None:
                found.setdefault(one.name, Parameter(signs + one.name, one.annotation, one.default))
                continue
            for option in keywords(options[1], where):
                found.setdefault(option.name, option)
    for name, one in found.items():
        one.words = mention(name, text) or one.words
    return list(found.values())


def keywords(name: str, where: Source) -> list[Parameter]:
    """The keys of a TypedDict, those of its bases first."""
    kind, home = _resolved(name, where)
    found: list[Parameter] = []
    node = home.class_of(kind)
    for base in node.bases:
        if (base_name := ast.unparse(base)) != "TypedDict":
            found += keywords(base_name, home)
    return [*found, *_fields(node, home)]


def _resolved(name: str, where: Source) -> tuple[str, Source]:
    """Where a name that a module uses is defined, also one for type checkers alone."""
    if where.find(name):
        return name, where
    for node in ast.walk(where.tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return name, source(str(node.module))
    raise LookupError(f"{name} of {where.module.__name__} is not found")


def function_entry(name: str, nodes: list[ast.stmt], where: Source, *, bound: bool) -> Entry:
    shown, definition = functions(nodes)
    text = prose(ast.get_docstring(definition))
    made = Entry(name, "function", text=text)
    made.signatures = [signature(name, one, where, bound=bound) for one in shown]
    made.parameters = described(shown, where, text, bound=bound)
    return made


# ---------------------------------------------------------------- classes


def class_entry(name: str, cls: type[Any], public: set[type[Any]]) -> Entry:
    """A class with its constructor, its attributes, and its methods; a public base has its own."""
    where = source(cls.__module__)
    node = where.class_of(cls.__qualname__)
    made = Entry(name, "class", text=prose(ast.get_docstring(node)))
    # What is its own, or of a base that has no entry: those of the class first.
    own: list[tuple[ast.ClassDef, Source]] = []
    for one in cls.__mro__:
        if one is not cls and one in public:
            made.bases.append(one.__name__)
        elif one.__module__.startswith("colonnade") and not any(
            one in base.__mro__ for base in cls.__mro__[1:] if base in public
        ):
            home = source(one.__module__)
            own.append((home.class_of(one.__qualname__), home))
    if any(hasattr(cls, one) for one in ("__struct_fields__", "_fields", "__dataclass_fields__")):
        made.kind = "struct"
        for holder, home in reversed(own):
            made.parameters += _fields(holder, home)
        for one in made.parameters:
            one.words = mention(one.name, made.text) or one.words
    _constructor(made, own)
    seen: set[str] = {one.name for one in made.parameters} if made.kind == "struct" else set()
    for holder, home in own:
        _members(made, holder, home, seen)
    return made


def _fields(node: ast.ClassDef, where: Source) -> list[Parameter]:
    """The annotated names of a class, with the comment above each."""
    return [
        Parameter(
            one.target.id,
            where.written(one.annotation),
            where.default(one.value),
            where.comment(one),
        )
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and not one.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(one.annotation)
    ]


def _constructor(made: Entry, own: list[tuple[ast.ClassDef, Source]]) -> None:
    for holder, home in own:
        nodes = [node for node in holder.body if _name_of(node) == "__init__"]
        if nodes and not made.parameters:
            shown, definition = functions(nodes)
            text = "\n\n".join([made.text, prose(ast.get_docstring(definition))])
            made.signatures = [signature(made.name, one, home, bound=True) for one in shown]
            made.parameters = described(shown, home, text, bound=True)
            made.attributes = _assigned(definition, home)
            return


def _assigned(function: Function, where: Source) -> list[Parameter]:
    """What a constructor sets on the object for others to read."""
    return [
        Parameter(one.target.attr, where.written(one.annotation), None, where.comment(one))
        for one in ast.walk(function)
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Attribute)
        and not one.target.attr.startswith("_")
    ]


def _members(made: Entry, holder: ast.ClassDef, home: Source, seen: set[str]) -> None:
    if made.kind != "struct":
        for one in _fields(holder, home):
            if one.name not in seen and one.name not in {known.name for known in made.attributes}:
                seen.add(one.name)
                made.attributes.append(one)
    by_name: dict[str, list[ast.stmt]] = {}
    for node in holder.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            by_name.setdefault(node.name, []).append(node)
    for name, nodes in by_name.items():
        # What has no docstring is for our own modules.
        if name.startswith("_") or name in seen or not _documented(nodes):
            continue
        seen.add(name)
        marks = {ast.unparse(mark) for node in nodes for mark in _decorators(node)}
        if marks & {"property", "cached_property"}:
            _, getter = functions(nodes[:1])
            words = " ".join(prose(ast.get_docstring(getter)).split())
            made.attributes.append(Parameter(name, home.written(getter.returns), None, words))
        else:
            bound = "staticmethod" not in marks
            made.members.append(function_entry(name, nodes, home, bound=bound))


def _documented(nodes: list[ast.stmt]) -> bool:
    marks = {ast.unparse(mark) for node in nodes for mark in _decorators(node)}
    return "property" in marks or bool(ast.get_docstring(functions(nodes)[1]))


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


# ---------------------------------------------------------------- pages


def entry(name: str, value: object, home: str, public: set[type[Any]]) -> Entry:
    """A public name of a module."""
    if isinstance(value, type):
        return class_entry(name, value, public)
    where = source(str(getattr(value, "__module__", home)) if callable(value) else home)
    nodes = where.find(name)
    if not nodes:
        where = source(home)
        nodes = where.find(name)
    if isinstance(nodes[-1], ast.FunctionDef | ast.AsyncFunctionDef):
        return function_entry(name, nodes, where, bound=False)
    node = nodes[-1]
    assert isinstance(node, ast.AnnAssign | ast.Assign)
    line = f"{name} = {where.written(node.value)}"
    return Entry(name, "alias", signatures=[line], text=where.comment(node))


@dataclass
class Group:
    """One page: its title, what it is about, how its names are imported, and its entries."""

    title: str
    words: str
    module: str
    entries: list[Entry] = field(default_factory=list[Entry])


def groups() -> dict[str, Group]:
    """The pages by their names."""
    homes: dict[str, str] = vars(colonnade)["_HOMES"]
    values = {name: getattr(colonnade, name) for name in homes}
    public = {value for value in values.values() if isinstance(value, type)}
    made: dict[str, Group] = {}
    for name in sorted(values, key=lambda one: (_rank(homes[one]), one.lower(), one)):
        first = homes[name].partition(".")[0]
        page = made.setdefault(first, Group(*TITLES.get(first, (first, "")), "colonnade"))
        page.entries.append(entry(name, values[name], f"colonnade.{homes[name]}", public))
    known = {one.name: one for page in made.values() for one in page.entries}
    _complete(list(known.values()), {})
    for module in MODULES:
        where = source(f"colonnade.{module}")
        names = getattr(where.module, "__all__", None) or [
            node.name
            for node in where.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
        ]
        found = [
            entry(name, getattr(where.module, name), where.module.__name__, public)
            for name in dict.fromkeys(names)
        ]
        _complete(found, known)
        name = where.module.__name__
        words = prose(where.module.__doc__).partition("\n\n")[0]
        made[module] = Group(f"`{name}`", words, name, found)
    return made


def _complete(entries: list[Entry], known: dict[str, Entry]) -> None:
    """Words for a parameter that has none of its own: those of its class, or of its counterpart."""
    for one in entries:
        other = known.get(one.name)
        _take(one.parameters, other.parameters if other else [], "")
        members = {member.name: member for member in other.members} if other else {}
        for member in one.members:
            counterpart = members.get(member.name)
            _take(
                member.parameters,
                [*(counterpart.parameters if counterpart else ()), *one.parameters],
                one.text,
            )


def _take(parameters: list[Parameter], others: list[Parameter], text: str) -> None:
    words = {other.name: other.words for other in reversed(others)}
    for one in parameters:
        one.words = one.words or words.get(one.name, "") or mention(one.name.lstrip("*"), text)


def _rank(home: str) -> int:
    first = home.partition(".")[0]
    return list(TITLES).index(first) if first in TITLES else len(TITLES)


def pages() -> dict[str, str]:
    """The Markdown of every page, by its path in the clone."""
    made: dict[str, str] = {}
    index = ["# API reference", "Every public name, made from the source."]
    for key, group in groups().items():
        parts = [f"# {group.title}", group.words]
        parts.append(f"```python\nfrom {group.module} import {_few(group.entries)}\n```")
        index += [f"## [{group.title}]({key}.md)", group.words]
        lines: list[str] = []
        for one in group.entries:
            parts += one.markdown()
            lines.append(f"- [`{one.name}`]({key}.md#{one.name.lower()}): {one.summary()}")
        index.append("\n".join(lines))
        made[f"{FOLDER}/{key}.md"] = "\n\n".join(filter(None, parts)) + "\n"
    return {f"{FOLDER}/README.md": "\n\n".join(filter(None, index)) + "\n", **made}


def _few(entries: list[Entry]) -> str:
    line = ", ".join(one.name for one in entries)
    if len(line) < WIDTH - 30:
        return line
    return (
        "(\n" + textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="    ") + ",\n)"
    )


def main() -> int:
    if len(sys.argv) != 2:
        print("name the folder to write the pages into", file=sys.stderr)
        return 2
    for path, text in pages().items():
        file = Path(sys.argv[1]) / Path(path).name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
