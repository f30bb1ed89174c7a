"""What a type checker makes of the decorators: a decorated function keeps its exact type.

pyright reads this file in `scripts/check`; pytest runs it, so that what the types promise is true.

Rules: `assert_type` says the type as it is, never a wider one. Wrong uses are in `wrong_uses.txt`.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, Protocol, assert_type

from colonnade import Annotations, Context, Icon, Server
from colonnade.server.registry import PromptEntry, Registry, ResourceEntry, TemplateEntry, ToolEntry

server = Server(
    "types",
    version="1.0",
    title="Types",
    description="For a type checker.",
    website_url="https://example.com",
    icons=[Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"])],
    instructions="Read the types.",
)


class Adds(Protocol):
    """The whole signature: names, kinds and defaults."""

    def __call__(self, a: int, b: int = 2, *, loud: bool = False) -> str: ...


class AddsLater(Protocol):
    def __call__(self, a: int, b: int = 2) -> Coroutine[Any, Any, str]: ...


# ---------------------------------------------------------------- tools


@server.tool
def add(a: int, b: int = 2, *, loud: bool = False) -> str:
    return f"{a + b}{'!' * loud}"


@server.tool(
    title="Sum",
    description="Adds.",
    icons=[Icon(src="https://example.com/i.png")],
    tags={"maths"},
    read_only=True,
    destructive=False,
    idempotent=True,
    open_world=False,
    scopes={"maths:read"},
    timeout_s=2.5,
    inline=True,
    input_schema={"type": "object"},
    structured_only=False,
    single_use=False,
    meta={"example.com/cost": 1},
)
def add_with_keywords(a: int, b: int = 2, *, loud: bool = False) -> str:
    return add(a, b, loud=loud)


@server.tool
async def add_later(a: int, b: int = 2) -> str:
    return add(a, b)


@server.tool(name="later")
async def add_later_with_keywords(a: int, b: int = 2) -> str:
    return add(a, b)


@server.tool()
def no_keywords(a: int) -> int:
    return a


class Counter:
    n = 0

    def step(self, by: int) -> int:
        self.n += by
        return self.n

    async def __call__(self, by: int) -> int:
        return self.step(by)


def test_a_tool_keeps_the_type_of_its_function() -> None:
    kept: list[Adds] = [add, add_with_keywords]
    later: list[AddsLater] = [add_later, add_later_with_keywords]
    assert [one(1, b=3, loud=True) for one in kept] == ["4!", "4!"]
    assert len(later) == 2
    assert_type(add(1), str)
    assert_type(add_with_keywords(1), str)
    assert_type(no_keywords(1), int)


async def types_of_coroutines() -> None:
    assert_type(await add_later(1), str)
    assert_type(await add_later_with_keywords(1, b=2), str)


def test_methods_objects_and_classes_keep_theirs() -> None:
    counter = Counter()
    assert_type(server.tool(counter.step)(2), int)
    assert_type(server.tool(name="count")(counter), Counter)
    assert_type(server.tool(name="made")(Counter), type[Counter])
    assert counter.n == 2


def test_the_decorator_with_keywords_can_be_kept_and_used_for_any_function() -> None:
    reading = server.tool(read_only=True)

    @reading
    def one(a: int) -> int:
        return a

    @reading
    def two(b: str) -> str:
        return b

    assert_type(one(1), int)
    assert_type(two("x"), str)


# ---------------------------------------------------------------- resources


@server.resource("notes://today")
def today() -> str:
    return "today"


@server.resource(
    "notes://{name}",
    name="note",
    title="A note",
    description="One note.",
    mime_type="text/markdown",
    icons=[],
    annotations=Annotations(audience=["user"], priority=0.5),
    tags=["notes"],
    scopes=["notes:read"],
    inline=False,
    ttl_s=60,
    cache_scope="private",
    meta={},
)
async def note(name: str) -> bytes:
    return name.encode()


def test_a_resource_keeps_the_type_of_its_function(tmp_path: Path) -> None:
    assert_type(today(), str)
    plain: Callable[[], str] = today
    named: Callable[[str], Coroutine[Any, Any, bytes]] = note
    assert plain() == "today"
    assert callable(named)
    assert_type(server.files("docs://", tmp_path, hidden=False, mime_type="text/plain"), None)


# ---------------------------------------------------------------- prompts and completions


@server.prompt
def review(code: str, language: Literal["python", "go"] = "python") -> str:
    return f"Review this {language}: {code}"


@server.prompt(name="ask", title="Ask", description="Asks.", tags={"a"}, scopes={"b"}, inline=True)
async def question(about: str, ctx: Context) -> list[str]:
    return [about]


@server.completion(note, "name")
def names(prefix: str) -> list[str]:
    return [prefix]


@server.completion("review", "code")
async def codes(prefix: str, language: str = "") -> tuple[str, ...]:
    return (prefix, language)


def test_prompts_and_completions_keep_the_types_of_their_functions() -> None:
    assert_type(review("x", language="go"), str)
    assert_type(names("x"), list[str])
    later: Callable[[str, Context], Coroutine[Any, Any, list[str]]] = question
    completed: Callable[[str], Coroutine[Any, Any, tuple[str, ...]]] = codes
    assert callable(later)
    assert callable(completed)


# ---------------------------------------------------------------- what is offered


def test_entries_are_found_by_name_and_typed_by_kind() -> None:
    assert_type(server.tools, Registry[ToolEntry])
    assert_type(server.tools["add"], ToolEntry)
    assert_type(server.tools.get("add"), ToolEntry | None)
    assert_type(server.tools["add"].definition.name, str)
    assert_type(server.tools["add"].definition.title, str | None)
    assert_type(server.tools["add"].tags, frozenset[str])
    assert_type(server.tools.names, list[str])
    assert_type([entry.enabled for entry in server.tools], list[bool])
    assert_type(server.resources["notes://today"], ResourceEntry)
    assert_type(server.templates["notes://{name}"], TemplateEntry)
    assert_type(server.prompts["review"], PromptEntry)
    assert "add" in server.tools
