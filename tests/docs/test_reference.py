"""The API reference that is made from the source has every public name, and every parameter."""

import inspect
import re
from types import ModuleType
from typing import Any, TypedDict

import pytest

import colonnade
from docs.site import reference
from docs.site.reference import Entry, Parameter, Source, mention, prose

# Every entry by the name of its module and its own.
ENTRIES = {
    (group.module, entry.name): entry
    for group in reference.groups().values()
    for entry in group.entries
}
PUBLIC: list[str] = list(vars(colonnade)["_HOMES"])


def accepted(function: Any) -> set[str]:
    """The names of the parameters that a caller may give; those behind `*` and `**` have none."""
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    found = inspect.signature(function).parameters
    return {name for name, one in found.items() if one.kind not in variadic} - {"self", "cls"}


def shown(entry: Entry) -> set[str]:
    return {one.name for one in entry.parameters}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_with_every_parameter_of_its_constructor(name: str) -> None:
    entry = ENTRIES["colonnade", name]
    value = getattr(colonnade, name)
    if isinstance(value, type) and issubclass(value, Exception) and "__init__" not in vars(value):
        return  # its base has the constructor
    if inspect.isfunction(value):
        assert accepted(value) <= shown(entry)
    elif isinstance(value, type) and not getattr(value, "_is_protocol", False):
        fields = getattr(value, "__struct_fields__", None)
        assert (set(fields) if fields else accepted(value)) <= shown(entry)


@pytest.mark.parametrize(
    "name", [name for name in PUBLIC if isinstance(getattr(colonnade, name), type)]
)
def test_every_method_that_has_a_docstring_is_there_with_every_parameter(name: str) -> None:
    entry, cls = ENTRIES["colonnade", name], getattr(colonnade, name)
    members = {member.name: member for member in entry.members}
    attributes = {one.name for one in (*entry.attributes, *entry.parameters)}
    for attribute, value in vars(cls).items():
        function = getattr(value, "__func__", value)
        if attribute.startswith("_") or not function.__doc__:
            continue
        if inspect.isfunction(function) and function.__name__ == attribute:  # and is no alias
            missing = accepted(function) - shown(members[attribute])
            assert not missing, f"{name}.{attribute}: {missing}"
        elif isinstance(value, property):
            assert attribute in attributes


@pytest.mark.parametrize("module", reference.MODULES)
def test_the_public_names_of_the_other_modules_are_there(module: str) -> None:
    loaded = reference.source(f"colonnade.{module}").module
    assert isinstance(loaded, ModuleType)
    names = {name for home, name in ENTRIES if home == loaded.__name__}
    assert names
    assert set(getattr(loaded, "__all__", names)) == names


def test_a_page_and_a_line_of_the_index_exist_for_every_name() -> None:
    pages = reference.pages()
    index = pages[f"{reference.FOLDER}/README.md"]
    whole = "\n".join(pages.values())
    for _, name in ENTRIES:
        assert f"\n## `{name}`\n" in whole
        assert re.search(rf"^- \[`{name}`\]\(\w+\.md#{name.lower()}\): ", index, re.MULTILINE)


def test_the_keywords_of_a_decorator_and_of_a_transport_are_listed_one_by_one() -> None:
    server = {member.name: member for member in ENTRIES["colonnade", "Server"].members}
    assert {"name", "timeout_s", "scopes", "output_schema"} <= shown(server["tool"])
    assert {"transport", "host", "port", "path", "log_json"} <= shown(server["run"])


def test_the_same_source_makes_the_same_pages() -> None:
    assert reference.pages() == reference.pages()


# ---------------------------------------------------------------- the parts


class Base(TypedDict, total=False):
    # Where it is.
    place: str


class Options(Base, total=False):
    size: int  # how large it is


def built(name: str = "x", /, *rest: int, size: "int | None" = None) -> "dict[str, int]":
    """Build. `name` is what it is called; `size` how large it is. Not `place`.

    >>> built("a")
    {}
    """
    return {}


def test_a_signature_is_as_it_is_written() -> None:
    where = Source(__name__)
    entry = reference.function_entry("built", where.find("built"), where, bound=False)
    assert entry.signatures == [
        "def built(name: str = 'x', /, *rest: int, size: int | None = None) -> dict[str, int]"
    ]
    assert entry.parameters == [
        Parameter("name", "str", "'x'", "`name` is what it is called."),
        Parameter("*rest", "int"),
        Parameter("size", "int | None", "None", "`size` how large it is."),
    ]


def test_the_keys_of_a_typed_dict_have_the_words_of_their_comments() -> None:
    assert reference.keywords("Options", Source(__name__)) == [
        Parameter("place", "str", None, "Where it is."),
        Parameter("size", "int", None, "how large it is"),
    ]


def test_an_example_becomes_a_block() -> None:
    assert '```pycon\n>>> built("a")\n```' in prose(built.__doc__)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a", "`a` is first."),
        ("b", "`b=1; x` is a code with a semicolon. And `b` again."),
        ("c", ""),
    ],
)
def test_a_parameter_has_the_sentences_that_name_it(name: str, words: str) -> None:
    text = "`a` is first; `b=1; x` is a code with a semicolon. And `b` again. See `cc`."
    assert mention(name, text) == words
