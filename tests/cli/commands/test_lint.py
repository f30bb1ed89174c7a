"""What `colonnade inspect` warns about, and its exit status."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from cli.process import command, written
from cli.scripted_server import scripted_program
from cli.terminal import PseudoTerminal
from colonnade import Server, connect
from colonnade.cli.commands.inspect import Finding, lint, listed, tokens
from colonnade.protocol import types as t
from live import live

ROOT = Path(__file__).resolve().parents[3]
TEXT = {"type": "string", "description": "Some words."}


def tool(
    name: str = "look", about: str | None = "Look.", defs: Any = None, **schema: Any
) -> t.Tool:
    found = {"type": "object", **schema} | ({"$defs": defs} if defs else {})
    return t.Tool(name=name, description=about, input_schema=found)


def found(*tools: t.Tool) -> list[Finding]:
    return lint(list(tools), [], [], [])


def rules(*tools: t.Tool) -> list[tuple[str, str, str]]:
    return [one[:3] for one in found(*tools)]


def test_what_is_well_is_not_spoken_of() -> None:
    assert found(tool(properties={"path": TEXT}, required=["path"]), tool("listen")) == []


def test_a_template_that_never_matches_what_is_meant_is_found() -> None:
    def template(uri: str) -> list[Finding]:
        one = t.ResourceTemplate(uri_template=uri, name="note", description="A note.")
        return lint([], [], [], [one])

    for good in ("x://{path}", "x://{+path}", "x://top{/path*}", "x://{a}{b}"):
        assert template(good) == []
    (starred,) = template("x://{path*}")
    assert starred[:3] == ("warning", "template", "note")
    assert "use `{+path}` for a path" in starred.message
    (broken,) = template("x://{path")
    assert "invalid URI template" in broken.message
    assert "not closed" in broken.message


@pytest.mark.parametrize("name", ["notes.write", "a/b", "was ist das", "x" * 65, "größe", ""])
def test_a_name_that_models_refuse_is_found_with_what_they_would_be_told(name: str) -> None:
    (one,) = found(tool(name))
    assert one[:3] == ("warning", "name", name)
    assert "they are given" in one.message


def test_what_has_no_description_is_found_once_for_each_tool() -> None:
    silent = tool(about=None, properties={"a": {"type": "string"}, "b": TEXT, "c": True})
    assert rules(silent) == [
        ("warning", "description", "look"),
        ("warning", "parameter-description", "look"),
        ("note", "strict", "look"),
    ]
    assert found(silent)[1].message == "parameters `a`, `c` have no description"


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"oneOf": [{"type": "object"}]},
        {"allOf": [{"type": "object"}]},
        {"type": "array"},
        {"enum": [{}]},
    ],
)
def test_a_root_that_is_no_plain_object_is_found(schema: dict[str, Any]) -> None:
    assert ("warning", "root", "look") in rules(tool(**schema))


def test_references_are_found_and_whether_they_have_an_end() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    ref = {"$ref": "#/$defs/Point", "description": "Where."}
    short = tool(properties={"at": ref}, defs={"Point": point})
    (one,) = found(short)
    assert one.rule == "ref"
    assert "#/$defs/Point" in one.message
    assert "inline" in one.message
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    endless = tool(properties={"at": {**ref, "$ref": "#/$defs/Tree"}}, defs={"Tree": tree})
    assert [one.rule for one in found(endless)] == ["ref", "strict"]
    assert "it is recursive" in found(endless)[0].message
    away = tool(properties={"at": {**ref, "$ref": "https://example.com/point"}})
    assert [one.rule for one in found(away)] == ["ref", "schema", "strict"]


def test_a_definition_that_nothing_reaches_is_not_counted() -> None:
    point = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Point"}}}
    assert found(tool(properties={"at": TEXT}, defs={"Point": point})) == []


def test_an_array_without_items_is_found_wherever_an_argument_meets_it() -> None:
    bare = {"type": "array", "description": "All."}
    row = {**bare, "prefixItems": [{"type": "string"}]}
    deep = {"type": "object", "description": "One.", "properties": {"all": {"type": ["array"]}}}
    referred = {"$ref": "#/$defs/Rows", "description": "Rows."}
    for one in (bare, row, deep, referred):
        offered = tool(properties={"at": one, "well": {**bare, "items": {}}}, defs={"Rows": bare})
        (warning,) = [each for each in found(offered) if each.rule == "items"]
        assert warning.level == "warning"
        assert warning.message == "VS Code rejects arrays without `items`: parameter `at`"
    unreached = tool(properties={"at": TEXT}, defs={"Rows": bare})
    assert found(unreached) == []


@live
async def test_what_our_own_servers_offer_has_items_everywhere() -> None:
    server = Server("rows")

    class Point(NamedTuple):
        x: int
        y: str = "b"

    @server.tool
    def look(pair: tuple[int, str], none: tuple[()], many: tuple[int, ...], at: Point) -> list[int]:
        """Look.

        Args:
            pair: Two.
            none: Nothing.
            many: All.
            at: Where.
        """
        return [pair[0], len(none), len(many), at.x]

    class Model(BaseModel):
        pair: tuple[int, str]

    @server.tool
    def see(model: Model) -> int:
        """See.

        Args:
            model: What pydantic describes.
        """
        return model.pair[0]

    async with connect(server) as client:
        tools = await client.list_tools()
    assert [tool.name for tool in tools] == ["look", "see"]
    assert [one.rule for one in lint(tools, [], [], []) if one.level == "warning"] == []


def test_a_parameter_whose_name_models_refuse_is_found() -> None:
    assert rules(tool(properties={"a b": TEXT})) == [("warning", "parameter-name", "look")]


def test_what_is_listed_twice_or_alike_is_found() -> None:
    assert rules(tool(), tool()) == [("warning", "duplicate", "look")]
    assert rules(tool("look"), tool("Look")) == [("warning", "name-clash", "Look")]
    prompt = t.Prompt(name="ask", description="Ask.")
    resource = t.Resource(uri="a://b", name="b", description="B.")
    template = t.ResourceTemplate(uri_template="a://{b}", name="b", description="B.")
    twice = lint([], [prompt] * 2, [resource] * 2, [template] * 3)
    assert [one.where for one in twice] == ["ask", "a://b", "a://{b}"]
    assert "3 times as a template" in twice[2].message


def test_what_costs_much_is_a_note_and_more_tools_than_models_take_is_a_warning() -> None:
    long = tool(about="word " * 1000)
    assert tokens(long) > 1000
    assert rules(long) == [("note", "cost", "look")]
    many = [tool(f"look_{n}", "word " * 50) for n in range(200)]
    assert rules(*many) == [("warning", "count", "tools"), ("note", "cost", "tools")]


def test_what_else_says_nothing_of_itself_is_a_note() -> None:
    prompt = t.Prompt(name="ask", arguments=[t.PromptArgument(name="who")])
    resource = t.Resource(uri="a://b", name="b")
    notes = lint([], [prompt], [resource], [])
    assert {one.level for one in notes} == {"note"}
    assert [one.where for one in notes] == ["ask", "ask", "b"]


def test_a_sentence_names_a_few() -> None:
    assert listed("abcdefgh") == "`a`, `b`, `c`, `d`, `e`, `f` and 2 more"


# ---------------------------------------------------------------- the command

ODD = {
    "tools": [
        {"name": "notes.write", "inputSchema": {"type": "object", "anyOf": [{"type": "object"}]}},
        {"name": "look", "inputSchema": {"type": "object"}, "description": "Look."},
    ]
}


def test_findings_fail_nothing_unless_that_is_asked_for(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=ODD))
    done = command(tmp_path, "inspect", "hand.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(
        "\nwarnings\n"
        "  ! notes.write: model providers reject its name (allowed are letters, digits, _ and -, at "
        "most 64); they are given `notes_write_80c18f42e2d6`\n"
        "  ! notes.write: has no description: a model knows the name only\n"
        "  ! notes.write: its input schema has `anyOf` at its root, which model providers reject; "
        "move it to a parameter\n"
        "  3 warnings; --json names the rules\n"
    )
    assert command(tmp_path, "inspect", "hand.py", "--strict").returncode == 1
    assert command(tmp_path, "inspect", "hand.py", "--strict", "--json").returncode == 1


def test_a_note_alone_never_fails(tmp_path: Path) -> None:
    listed = {"prompts": [{"name": "ask"}]}
    written(tmp_path, hand=scripted_program(prompts_list=listed))
    done = command(tmp_path, "inspect", "hand.py", "--strict")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "  1 note; --json names the rules",
    )


def test_programs_are_given_the_rules_and_the_estimate(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=ODD))
    told = json.loads(command(tmp_path, "inspect", "hand.py", "--json").stdout)
    assert [(one["level"], one["rule"], one["where"]) for one in told["lint"]] == [
        ("warning", "name", "notes.write"),
        ("warning", "description", "notes.write"),
        ("warning", "root", "notes.write"),
    ]
    assert told["tokens"]["tools"] == sum(told["tokens"]["each"].values()) > 0
    assert "estimated" in told["tokens"]["method"]


def test_at_a_terminal_lines_are_wrapped_and_painted_and_nowhere_else(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=ODD))
    with PseudoTerminal(tmp_path, "inspect", "hand.py", size=(24, 60)) as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert "  \x1b[1;33m!\x1b[0m notes.write: model providers reject its name" in shown
    assert "\x1b[1;36mlook\x1b[0m()" in shown
    with PseudoTerminal(tmp_path, "inspect", "hand.py", size=(24, 60), NO_COLOR="1") as terminal:
        code, shown = terminal.end()
    assert "\x1b" not in shown
    assert all(len(line) <= 60 for line in shown.splitlines())
    assert "\x1b" not in command(tmp_path, "inspect", "hand.py").stdout


def test_the_picture_on_the_page_is_what_is_shown_today() -> None:
    """Drawn anew by `scripts/bench chart inspect`."""
    picture = (ROOT / "docs" / "inspect.svg").read_text("utf-8")
    lines = re.findall(r"<text [^>]*>(.*)</text>", picture)
    drawn = [unescape(re.sub(r"<[^>]*>", "", line)) for line in lines]
    assert drawn[0] == "$ colonnade inspect weather.py"
    with PseudoTerminal(
        ROOT / "examples", "inspect", "weather.py", size=(60, 96), NO_COLOR="1"
    ) as now:
        code, shown = now.end()
    assert (code, drawn[1:]) == (0, shown.splitlines())
