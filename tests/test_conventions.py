"""Conventions of the source: a class name is used once, and no error message is read back.

Each check is shown twice: the package passes it, and a small bad example does not.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from layers import Module, given, read

COLONNADE = read(Path(__file__).resolve().parent.parent / "src" / "colonnade")

# Facts that a library puts into its message and nowhere else, by module.
LIBRARY_MESSAGES = {
    "host.config.toml_editor": "tomllib: line and column of a syntax error",
    "protocol.schema.validate": "jsonschema_rs: the first line, without the whole schema",
    "signatures.codecs": "msgspec: the path of the wrong member",
    "signatures.pydantic_codec": "pydantic: the first line, without the address of its page",
    "cli.errors": "the words of an error of Python, on one line",
    "cli.loader": "Python: that an ImportError is about a relative import",
}
_TAKES_APART = frozenset(
    [
        "startswith",
        "endswith",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "removeprefix",
        "removesuffix",
        "find",
        "index",
        "replace",
        "splitlines",
    ]
)
_SEARCHES = frozenset({"search", "match", "fullmatch", "findall"})
_ERRORS = ("Error", "Exception", "Fault", "Refusal")


def repeated_classes(modules: dict[str, Module]) -> Iterator[str]:
    """Class names that stand for two classes."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.at(node.lineno))
    for name, places in sorted(found.items()):
        if len(places) > 1:
            yield f"{name}: {', '.join(places)}"


def parsed_messages(modules: dict[str, Module]) -> Iterator[str]:
    """Places that take a decision, or a part, out of the message of an error."""
    for module in modules.values():
        if module.name in LIBRARY_MESSAGES:
            continue
        for function in ast.walk(module.tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                names = _errors_of(function)
                for node in ast.walk(function):
                    if _reads_back(node, names):
                        yield f"{module.at(getattr(node, 'lineno', 0))}: {ast.unparse(node)}"


def _errors_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    caught = {
        node.name
        for node in ast.walk(function)
        if isinstance(node, ast.ExceptHandler) and node.name is not None
    }
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return caught | {
        one.arg
        for one in arguments
        if one.annotation is not None
        and any(word in ast.unparse(one.annotation) for word in _ERRORS)
    }


def _reads_back(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_message(one, names) for one in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _TAKES_APART:
            return _is_message(node.func.value, names)
        return node.func.attr in _SEARCHES and any(_is_message(one, names) for one in node.args)
    return False


def _is_message(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in names
        case ast.Attribute(attr="message" | "args", value=ast.Name(id=name)):
            return name in names
        case ast.Subscript(value=value):
            return _is_message(value, names)
        case _:
            return False


def test_no_class_name_is_used_twice() -> None:
    assert list(repeated_classes(COLONNADE)) == []


def test_no_error_message_is_parsed() -> None:
    assert list(parsed_messages(COLONNADE)) == []


def test_the_modules_that_read_the_messages_of_libraries_exist() -> None:
    assert LIBRARY_MESSAGES.keys() <= COLONNADE.keys()


def test_a_class_name_that_is_used_twice_is_found() -> None:
    modules = given(server__app="class Visit: ...", client__client="def f():\n    class Visit: ...")
    assert list(repeated_classes(modules)) == ["Visit: server.app:1, client.client:2"]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    try: g()\n    except ValueError as error:\n        return 'x' in str(error)",
        "def f(fault: Fault):\n    return fault.message.partition(': ')",
        "def f(error: Exception):\n    return re.search('x', str(error))",
        "def f(error: OSError):\n    return error.args[0] == 'x'",
    ],
)
def test_a_message_that_is_read_back_is_found(source: str) -> None:
    (sentence,) = parsed_messages(given(server__app=source))
    assert sentence.startswith("server.app:")
