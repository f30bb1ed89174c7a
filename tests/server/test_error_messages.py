"""Error messages for mistakes of authors, when something is registered, and of callers, by revision.

    pytest tests/server/test_error_messages.py --rewrite-transcripts

writes `mistakes.md` anew; what was written is then read by a person before it is kept.

Rules: a case says which words must be in its text: who, which argument, what came, what is wanted.
"""

import asyncio
import inspect
import json
import logging
import re
import socket
import textwrap
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import pytest
from msgspec import Meta

from colonnade import Ask, Depends, Server, connect
from colonnade.middleware import rate_limit
from colonnade.protocol.revision import ALL, Revision
from live import live
from server.raw_client import JSON, Client, raw_client, text_content

if TYPE_CHECKING:
    from decimal import Decimal

GOLDEN = Path(__file__).with_name("mistakes.md")
HEAD = """\
# Mistakes and their error messages

Written by `test_error_messages.py`, and reviewed. Each text says who made the mistake, where, what
came and what is wanted.
"""


class AuthorsMistake(NamedTuple):
    """Something that cannot work, and the words that its text must have."""

    make: Callable[[Server], Any]
    wanted: tuple[str, ...]


# ---------------------------------------------------------------- an author's

AUTHORS: list[AuthorsMistake] = []
Make = Callable[[Server], Any]


def mistake(*wanted: str) -> Callable[[Make], Make]:
    """A case: its name is the heading, its body what the author wrote."""

    def add(make: Make) -> Make:
        AUTHORS.append(AuthorsMistake(make, wanted))
        return make

    return add


@dataclass
class Leg:
    stops: list[dict[str, int]]


def get_user(session: Any) -> str:
    return session


def get_session(user: Annotated[str, Depends(get_user)]) -> str:
    return user


get_user.__annotations__["session"] = Annotated[str, Depends(get_session)]


@mistake("send", "'to'", "socket", "Depends")
def a_type_without_a_json_form(server: Server) -> None:
    @server.tool
    def send(to: socket.socket) -> None: ...


@mistake("total", "'numbers'", "list")
def positional_arguments(server: Server) -> None:
    @server.tool
    def total(*numbers: int) -> int: ...


@mistake("count", "generator", "return a list", "ctx.progress")
def a_generator(server: Server) -> None:
    @server.tool
    def count(below: int) -> Generator[int]:
        yield from range(below)


@mistake("price", "Shop", "'self'", "server.tool(shop.price)")
def an_unbound_method(server: Server) -> None:
    class Shop:
        @server.tool
        def price(self, item: str) -> int: ...

    Shop()


@mistake("page", "{path*}", "{+path}", "list[str]")
def a_list_expression_for_a_string_in_a_uri_template(server: Server) -> None:
    @server.resource("docs://{path*}")
    def page(path: str) -> str: ...


@mistake("'custom_route'", "@server.route")
def a_name_of_another_library(server: Any) -> None:
    @server.custom_route("/version")
    async def version(request: Any) -> Any: ...


@mistake("mount", "'prefix'", "namespace=")
def a_keyword_of_another_library(server: Any) -> None:
    server.mount(Server("maps"), prefix="maps")


@mistake("pay", "'amount'", "Decimal", "TYPE_CHECKING")
def a_type_that_only_the_type_checker_knows(server: Server) -> None:
    @server.tool
    def pay(amount: "Decimal") -> None: ...


@mistake("forecast", "'days'", "'three'", "an integer")
def a_default_of_another_type(server: Server) -> None:
    @server.tool
    def forecast(city: str, days: int = "three") -> str: ...  # type: ignore[assignment]


@mistake("forecast", "'town'", "'city'")
def a_docstring_that_describes_an_unknown_argument(server: Server) -> None:
    @server.tool
    def forecast(city: str) -> str:
        """Forecast for a city.

        Args:
            town: Its name.
        """
        return city


@mistake("'forecast'", "twice", "rename")
def two_tools_with_the_same_name(server: Server) -> None:
    @server.tool
    def forecast(city: str) -> str: ...

    @server.tool(name="forecast")
    def forecast_for_days(city: str, days: int) -> str: ...


@mistake("'get forecast'", "A-Z a-z 0-9 _ . -", "'get_forecast'")
def a_tool_name_that_some_clients_hide(server: Server) -> None:
    @server.tool(name="get forecast")
    def forecast(city: str) -> str: ...


@mistake("@server.tool", "name='forecast'")
def a_tool_name_without_its_keyword(server: Server) -> None:
    server.tool("forecast")  # type: ignore[call-overload]


@mistake("search", "input_schema", "'array'", "'object'")
def an_input_schema_whose_type_is_not_object(server: Server) -> None:
    @server.tool(input_schema={"type": "array", "items": {"type": "string"}})
    def search(**arguments: Any) -> str: ...


@mistake("note", "'folder'", "'name'", "notes://{folder}/{name}")
def a_uri_template_variable_that_the_function_does_not_take(server: Server) -> None:
    @server.resource("notes://{folder}/{name}")
    def note(name: str) -> str: ...


@mistake("'review'", "'lang'", "'language'")
def a_completion_of_an_unknown_argument(server: Server) -> None:
    @server.prompt
    def review(code: str, language: str) -> str: ...

    @server.completion(review, "lang")
    def languages(prefix: str) -> list[str]: ...


@mistake("book", "'leg'", "'stops'", "flat")
def an_ask_for_a_type_that_a_form_cannot_have(server: Server) -> None:
    @server.tool
    def book(flight: str, leg: Annotated[Leg, Ask("Which leg of {flight}?")]) -> str: ...


@mistake("book", "'seat'", "'plane'", "'flight'")
def an_ask_that_names_an_unknown_argument(server: Server) -> None:
    @server.tool
    def book(flight: str, seat: Annotated[str, Ask("Which seat on {plane}?")]) -> str: ...


@mistake("book", "'seats'", "Ask", "Annotated")
def an_ask_inside_of_a_type(server: Server) -> None:
    @server.tool
    def book(seats: list[Annotated[str, Ask("Which seat?")]]) -> str: ...


@mistake("whoami", "get_user", "get_session")
def circular_dependencies(server: Server) -> None:
    @server.tool
    def whoami(user: Annotated[str, Depends(get_user)]) -> str: ...


@mistake("weather", "open_db", "asynccontextmanager")
def a_lifespan_that_is_not_a_context_manager(server: Server) -> None:
    async def open_db(server: Server) -> AsyncGenerator[None]:
        yield

    Server("weather", lifespan=open_db)  # type: ignore[arg-type]


@mistake("lifespan", "int", "asynccontextmanager")
def a_lifespan_that_returns_a_number(server: Server) -> None:
    numbered = Server("weather", lifespan=lambda: 3)  # type: ignore[arg-type]

    async def main() -> None:
        async with connect(numbered):
            pass

    asyncio.run(main())


@mistake("Timing", "class", "Timing()", "call_next")
def a_middleware_that_is_a_class(server: Server) -> None:
    class Timing:
        async def __call__(self, request: Any, call_next: Any) -> Any: ...

    server.add_middleware(Timing)  # type: ignore[arg-type]


@mistake("per_s", "'20'", "rate_limit(20")
def a_rate_limit_in_words(server: Server) -> None:
    server.add_middleware(rate_limit("20"))  # type: ignore[arg-type]


@mistake("'2025-06-19'", "'2025-06-18'")
def a_revision_that_does_not_exist(server: Server) -> None:
    Server("weather", revisions=["2025-06-19"])


@mistake("loop", "await server.serve('http')")
def running_in_a_running_event_loop(server: Server) -> None:
    async def main() -> None:
        server.run("http", port=8000)

    asyncio.run(main())


def said_to_an_author(case: AuthorsMistake) -> str:
    """The text of the exception, or of the warning where it goes on."""
    records = Recorded()
    logger = logging.getLogger("colonnade.server")
    logger.addHandler(records)
    try:
        case.make(Server("weather"))
    except Exception as error:
        assert not records.lines
        return f"{type(error).__name__}: {error}"
    finally:
        logger.removeHandler(records)
    (line,) = records.lines
    return f"logged: {line}"


class Recorded(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def shown_to_an_author(case: AuthorsMistake) -> str:
    source = inspect.getsource(case.make)
    body = textwrap.dedent(source[source.index(") -> None:\n") + len(") -> None:\n") :])
    body = _shown(body)
    return f"### {_heading(case.make)}\n\n```python\n{body}\n```\n\n> {said_to_an_author(case)}\n"


def _shown(source: str) -> str:
    """Code as a person writes it: without marks for our tools, one empty line at a time."""
    source = re.sub(r"  # (?:type: ignore|noqa).*", "", source)
    return re.sub(r"\n{3,}", "\n\n", source).rstrip()


def _heading(make: Any) -> str:
    title: str = make.__name__.capitalize()
    names = {"json": "JSON", "uri": "URI", "ask": "Ask"}
    return " ".join(names.get(word, word) for word in title.split("_"))


# ---------------------------------------------------------------- a caller's


@dataclass
class Place:
    city: str
    zip: int


def weather() -> Server:
    server = Server("weather")

    @server.tool
    async def forecast(
        city: str,
        days: Annotated[int, Meta(ge=1, le=10)] = 3,
        unit: Literal["celsius", "kelvin"] = "celsius",
        since: date | None = None,
        places: list[Place] = [],  # noqa: B006
    ) -> str:
        return city

    @server.prompt
    def review(code: str, language: Literal["python", "go"] = "python") -> str:
        return code

    @server.resource("notes://{name}")
    def note(name: str) -> str | None:
        return None

    return server


class CallersMistake(NamedTuple):
    """A request that cannot be served, and the words that every answer to it must have."""

    heading: str
    sent: tuple[str, JSON] | bytes
    wanted: tuple[str, ...]


def call(heading: str, arguments: Any, *wanted: str) -> CallersMistake:
    params = {"name": "forecast", "arguments": arguments}
    return CallersMistake(heading, ("tools/call", params), ("forecast", *wanted))


def ask(heading: str, method: str, params: JSON, *wanted: str) -> CallersMistake:
    return CallersMistake(heading, (method, params), wanted)


FUTURE: JSON = {
    "io.modelcontextprotocol/protocolVersion": "2031-01-01",
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALLERS = [
    call("A string for a number", {"city": "Oslo", "days": "many"}, "days", "integer", "a string"),
    call("A missing argument", {"days": 3}, "'city'", "missing"),
    call("Null for an argument", {"city": None}, "city", "a string", "null"),
    call("A misspelt argument", {"city": "Oslo", "dyas": 3}, "'dyas'", "'days'"),
    call("An unknown argument", {"city": "Oslo", "colour": "red"}, "'colour'", "'unit'"),
    call("A number out of its range", {"city": "Oslo", "days": 12}, "days", "at most 10", "12"),
    call(
        "A value that is not one of the choices",
        {"city": "Oslo", "unit": "celcius"},
        "unit",
        "'celsius'",
        "string",
    ),
    call(
        "A string that is not a date",
        {"city": "Oslo", "since": "May"},
        "since",
        "2026-01-31",
        "string",
    ),
    call(
        "An invalid nested field",
        {"city": "Oslo", "places": [{"city": "Oslo", "zip": 1}, {"city": "Bergen", "zip": "x"}]},
        *("places[1].zip", "an integer", "a string"),
    ),
    call("Several mistakes at once", {"days": 0, "unit": 5}, "'city'", "days", "unit", "5"),
    call("Arguments as an array", ["Oslo", 3], "an object", "an array"),
    ask(
        "A call without the name of a tool",
        "tools/call",
        {"arguments": {}},
        "CallToolRequestParams",
        "`name`",
    ),
    ask("An unknown tool", "tools/call", {"name": "forcast"}, "'forcast'", "'forecast'"),
    ask("An unknown prompt", "prompts/get", {"name": "summary"}, "'summary'", "list the prompts"),
    ask("A prompt without its argument", "prompts/get", {"name": "review"}, "review", "'code'"),
    ask(
        "A prompt with an invalid argument",
        "prompts/get",
        {"name": "review", "arguments": {"code": "x", "language": "pyton"}},
        *("review", "language", "'python'"),
    ),
    ask(
        "An unknown resource",
        "resources/read",
        {"uri": "notes://olso"},
        *("notes://olso", "list the resources"),
    ),
    ask("A URI that is not a string", "resources/read", {"uri": 5}, "`uri`", "str", "int"),
    ask("An unknown cursor", "tools/list", {"cursor": "page2"}, "cursor", "without one"),
    ask(
        "A completion of an unknown argument",
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "lang", "value": "p"},
        },
        *("review", "'lang'", "'language'"),
    ),
    ask("A misspelt method", "tools/cal", {}, "tools/cal"),
    CallersMistake(
        "A message that is not JSON", b'{"jsonrpc": "2.0", "id": 1, "method": }', ("JSON",)
    ),
    CallersMistake(
        "An unknown revision",
        json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": FUTURE}}
        ).encode(),
        ("2031-01-01", "2026-07-28"),
    ),
]


async def answered(client: Client, sent: tuple[str, JSON] | bytes) -> JSON:
    """What comes back: a result, or an error."""
    before = len(client.received)
    if isinstance(sent, bytes):
        client.send_raw(sent)
    else:
        client.send(*sent)
    await client.until(lambda: len(client.received) > before)
    return client.received[before]


def said_to_a_caller(answer: JSON) -> str:
    if "error" not in answer:
        assert answer["result"]["isError"]
        return f"`isError` {text_content(answer['result'])}"
    error = answer["error"]
    data = f" {json.dumps(error['data'])}" if "data" in error else ""
    return f"`{error['code']}` {error['message']}{data}"


def shown_to_a_caller(case: CallersMistake, said: dict[str, str]) -> str:
    """The request, and its answers; revisions that say the same share a line."""
    if isinstance(case.sent, bytes):
        request = case.sent.decode()
    else:
        request = f"{case.sent[0]} {json.dumps(case.sent[1])}"
    lines: dict[str, list[str]] = {}
    for revision, text in said.items():
        lines.setdefault(text, []).append(revision)
    answers = "\n".join(f"- {', '.join(dates)}: {text}" for text, dates in lines.items())
    return f"### {case.heading}\n\n    {request}\n\n{answers}\n"


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("case", AUTHORS, ids=lambda case: case.make.__name__)
def test_an_author_is_told_who_where_what_came_and_what_is_wanted(case: AuthorsMistake) -> None:
    text = said_to_an_author(case)
    assert [word for word in case.wanted if word not in text] == [], text


@live
async def test_a_caller_is_told_who_where_what_came_and_what_is_wanted(revision: Revision) -> None:
    async with raw_client(weather(), revision) as client:
        for case in CALLERS:
            text = said_to_a_caller(await answered(client, case.sent))
            assert [word for word in case.wanted if word not in text] == [], (case.heading, text)
        assert (await client.text("forecast", {"city": "Oslo"})) == "Oslo"


async def every_answer() -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in CALLERS]
    for revision in ALL:
        async with raw_client(weather(), revision) as client:
            for said, case in zip(found, CALLERS, strict=True):
                said[revision.date] = said_to_a_caller(await answered(client, case.sent))
    return found


def test_the_texts_are_what_they_were_when_they_were_read(rewrite_transcripts: bool) -> None:
    parts = [HEAD, "## Mistakes of server authors\n", *map(shown_to_an_author, AUTHORS)]
    source = textwrap.dedent("".join(inspect.getsourcelines(weather)[0][3:-2])).rstrip()
    parts += [f"## Mistakes of callers\n\n```python\n{_shown(source)}\n```\n"]
    said = asyncio.run(every_answer())
    parts += [shown_to_a_caller(case, one) for case, one in zip(CALLERS, said, strict=True)]
    text = "\n".join(parts)
    if rewrite_transcripts:
        GOLDEN.write_text(text, "utf-8")
    assert len(AUTHORS) >= 12
    assert len(CALLERS) >= 12
    assert text == GOLDEN.read_text("utf-8")
