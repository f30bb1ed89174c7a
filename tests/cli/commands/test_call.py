"""`colonnade call`, `read`, `prompt` and `complete`: one request each, and its answer."""

import base64
import json
import re
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from cli.commands.test_ls import EXAMPLES, HOSTILE, said
from cli.process import COMMAND, WAIT_S, Process, command, environment, written
from cli.scripted_server import scripted_program, tool

FORECAST = 'forecast(city: string, days: integer 1 to 10 = 3, start: date = "2026-01-01", unit: "C" | "F" = "C")'
ECHO = """
from colonnade import Server

server = Server("echo")


@server.tool
def echo(
    text: str = "",
    flag: bool | None = None,
    count: int | None = None,
    share: float = 0.5,
    tags: list[str] = [],
    sizes: list[int] = [],
    more: dict[str, int] | None = None,
    either: str | int = "",
) -> str:
    return repr((text, flag, count, share, tags, sizes, more, either))
"""


def told(folder: Path, *arguments: str, input: str = "", **more: str) -> tuple[int, str]:
    """The exit code and the sentence of a command that gives nothing."""
    done = command(folder, *arguments, input=input, **more)
    assert done.stdout == ""
    return done.returncode, done.stderr


# ---------------------------------------------------------------- call


def test_a_tool_is_called_and_its_words_are_the_output() -> None:
    assert said(EXAMPLES, "call", "weather.py", "forecast", "city=Oslo", "days=1") == (
        '{"city":"Oslo","unit":"C","days":[{"day":"2026-01-01","high":4,"sky":"sun"}]}\n'
    )


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_tool_is_called_in_every_revision_over_http(revision: str) -> None:
    with Process(EXAMPLES, "serve", "progress.py", "--port", "0") as served:
        served.up()
        url = f"http://127.0.0.1:{served.port}/mcp"
        arguments = ("call", url, "weigh", "grams=1", "grams=2", "--as", revision)
        assert said(EXAMPLES, *arguments) == "3\n"


def test_a_tool_that_fails_says_so_on_the_other_stream() -> None:
    sentence = "colonnade: forecast returned an error: No city 'Olso'. Did you mean 'Oslo'?\n"
    assert told(EXAMPLES, "call", "weather.py", "forecast", "city=Olso") == (1, sentence)
    done = command(EXAMPLES, "call", "weather.py", "forecast", "city=Olso", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["isError"] is True


def test_a_crash_is_told_with_the_log_of_its_server_and_with_its_reason_where_that_is_asked_for() -> (
    None
):
    arguments = ("call", "travel.py", "refund", "euros=3", "days_left=0")
    code, words = told(EXAMPLES, *arguments)
    assert code == 1
    logged, *_, last, said = words.splitlines()
    assert re.fullmatch(r"colonnade: server 'travel.py' \(pid \d+\) logged:", logged)
    assert re.fullmatch(r"    ZeroDivisionError: (float )?division by zero", last)
    assert re.fullmatch(r"colonnade: refund returned an error: refund failed \(id \w+\)", said)
    debugged = told(EXAMPLES, *arguments, "--debug")[1]
    assert re.search(r"ZeroDivisionError\('(float )?division by zero'\)\n$", debugged)


TYPED = {
    "text=a=b": "text='a=b'",
    "text=12": "text='12'",
    "text=": "text=''",
    "flag=yes": "flag=True",
    "flag=false": "flag=False",
    "count=5": "count=5",
    "count=5.0": "count=5",
    "count=null": "count=None",
    "share=1e-1": "share=0.1",
    "tags=a": "tags=['a']",
    "tags=a tags=b": "tags=['a', 'b']",
    'tags=["a","b"] tags=c': "tags=['a', 'b', 'c']",
    "sizes=1 sizes=2": "sizes=[1, 2]",
    'more={"a":1}': "more={'a': 1}",
    "either=5": "either='5'",
    "either:=5": "either=5",
    'text:="a"': "text='a'",
    "@more.json": "text='from a file'",
    "@more.json text=typed": "text='typed'",
    "-": "text='from input'",
}
ORDER = ["text", "flag", "count", "share", "tags", "sizes", "more", "either"]
PLAIN = ["''", "None", "None", "0.5", "[]", "[]", "None", "''"]


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written(tmp_path_factory.mktemp("echo"), server=ECHO)
    (folder / "more.json").write_text('{"text": "from a file"}')
    (folder / "list.json").write_text("[1]")
    (folder / "bad.json").write_text('{"secret": ')
    return folder


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_typed_is_of_the_type_that_the_tool_wants(echo: Path, typed: str) -> None:
    words = typed.split(" ")
    done = command(echo, "call", "server.py", "echo", *words, input='{"text": "from input"}')
    assert (done.returncode, done.stderr) == (0, "")
    name, _, value = TYPED[typed].partition("=")
    expected = [value if one == name else plain for one, plain in zip(ORDER, PLAIN, strict=True)]
    assert done.stdout == f"({', '.join(expected)})\n"


MISTYPED = {
    "forecast": f"forecast: missing city; its signature is {FORECAST}",
    "forecast dys=2 city=Oslo": f"forecast: it has no argument dys (did you mean days?); its signature is {FORECAST}",
    "forecast wind=2": f"forecast: it has no argument wind; missing city; its signature is {FORECAST}",
    "forecast city=Oslo days=11": (
        f"forecast: days: expected at most 10, got 11; its signature is {FORECAST}"
    ),
    "forecast city=Oslo days=few": (
        f"forecast: days: expected an integer, got a string; its signature is {FORECAST}"
    ),
    "forecast city=Oslo unit=K": (
        f"forecast: unit: expected one of 'C', 'F', got another string; its signature is {FORECAST}"
    ),
    "forecast city=Oslo city=Cairo": "city is given twice",
    "forecast city:=Oslo": "city:=: invalid JSON: JSON is malformed: invalid character (byte 0)",
    "forecast Oslo": "Oslo is not an argument; expected key=value, key:=json, @file or -",
    "forecast =Oslo": "=Oslo is not an argument; expected key=value, key:=json, @file or -",
    "forecast @none.json": "@none.json cannot be read: No such file or directory",
    "forcast city=Oslo": "there is no tool forcast; did you mean forecast?",
    "unlike": "there is no tool unlike; tools are forecast, record, close, spread",
}


@pytest.mark.parametrize("typed", MISTYPED)
def test_what_does_not_fit_is_told_with_what_is_wanted(typed: str) -> None:
    words = typed.split(" ")
    assert told(EXAMPLES, "call", "weather.py", *words) == (2, f"colonnade: {MISTYPED[typed]}\n")


def test_the_only_tool_there_is_is_named(echo: Path) -> None:
    assert told(echo, "call", "server.py", "sing") == (
        2,
        "colonnade: there is no tool sing; the only tool is echo\n",
    )


def test_what_is_no_object_is_told_without_a_word_of_it(echo: Path) -> None:
    assert told(echo, "call", "server.py", "echo", "@list.json") == (
        2,
        "colonnade: list.json: expected a JSON object with a member for each argument\n",
    )
    assert told(echo, "call", "server.py", "echo", "@bad.json") == (
        2,
        "colonnade: bad.json: invalid JSON: Input data was truncated\n",
    )
    assert told(echo, "call", "server.py", "echo", "-", input="") == (
        2,
        "colonnade: stdin: invalid JSON: Input data was truncated\n",
    )


def test_nothing_is_sent_that_does_not_fit(tmp_path: Path) -> None:
    """The server would die of a call, and does not."""
    schema = tool(properties={"path": {"type": "string"}}, required=["path"])
    written(tmp_path, hand=scripted_program(tools_list=schema, tools_call="die"))
    assert told(tmp_path, "call", "hand.py", "look", "pth=x") == (
        2,
        (
            "colonnade: look: it has no argument pth (did you mean path?); missing path; "
            "its signature is look(path: string)\n"
        ),
    )


def test_a_tool_that_does_not_say_what_it_takes_is_given_all(tmp_path: Path) -> None:
    answer = {"content": [{"type": "text", "text": "done"}]}
    for number, schema in enumerate(
        [tool(), tool(additionalProperties=True), tool(properties=5), {"tools": [BAD]}]
    ):
        written(
            tmp_path, **{f"hand{number}": scripted_program(tools_list=schema, tools_call=answer)}
        )
        assert said(tmp_path, "call", f"hand{number}.py", "look", "any=thing") == "done\n"


# A schema that nobody can check anything against.
BAD = {"name": "look", "inputSchema": {"type": "object", "properties": {"any": {"$ref": "x://y"}}}}


def test_the_whole_result_is_given_to_programs() -> None:
    found = json.loads(said(EXAMPLES, "call", "media.py", "best", "--json"))
    assert found["content"] == [{"type": "text", "text": "The best day was thu."}]
    assert found["structuredContent"] == {"day": "thu"}
    assert found["isError"] is False
    assert found["_meta"]["example.com/shown"] is True


def test_data_without_words_is_shown_as_it_is(tmp_path: Path) -> None:
    written(
        tmp_path,
        hand=scripted_program(
            tools_list=tool(), tools_call={"content": [], "structuredContent": {"a": 1}}
        ),
    )
    assert said(tmp_path, "call", "hand.py", "look") == '{"a":1}\n'


def test_a_result_that_breaks_the_promise_of_its_tool_is_shown_and_told(tmp_path: Path) -> None:
    look = {"name": "look", "inputSchema": {"type": "object"}}
    promise = {"type": "object", "properties": {"a": {"type": "integer"}}}
    answer = {"content": [{"type": "text", "text": "so"}], "structuredContent": {"a": "b"}}
    tools = {"tools": [{**look, "outputSchema": promise}]}
    written(tmp_path, hand=scripted_program(tools_list=tools, tools_call=answer))
    done = command(tmp_path, "call", "hand.py", "look")
    assert (done.returncode, done.stdout) == (5, "so\n")
    assert "look returned data outside its output schema: a: expected an integer" in done.stderr


# ---------------------------------------------------------------- pictures, sounds, files

REPORT = """\
24 sold this week.
[image image/png, 82 bytes; --out DIR saves it]
mon,3
tue,5
wed,2
thu,8
fri,6
[link sales://thu, The best day]
"""


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    assert said(EXAMPLES, "call", "media.py", "report") == REPORT


def test_what_is_no_text_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    for stem in ("report", "report-2"):
        table = f"week{stem[6:]}"
        assert said(EXAMPLES, "call", "media.py", "report", "--out", str(out)) == (
            "24 sold this week.\n"
            f"[image image/png, 82 bytes: {out}/{stem}.png]\n"
            f"[file text/csv, 29 bytes: {out}/{table}.csv]\n"
            "[link sales://thu, The best day]\n"
        )
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "week.csv").read_text() == "mon,3\ntue,5\nwed,2\nthu,8\nfri,6"


def test_a_block_that_nobody_knows_is_named_and_whole_for_programs(tmp_path: Path) -> None:
    block = {"type": "hologram", "depth": 3}
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call={"content": [block]}))
    assert said(tmp_path, "call", "hand.py", "look") == (
        "[block of type hologram; --json shows it]\n"
    )
    found = json.loads(said(tmp_path, "call", "hand.py", "look", "--json"))
    assert found["content"] == [block]


def test_what_is_no_base64_is_told(tmp_path: Path) -> None:
    block = {"type": "image", "data": "?!", "mimeType": "image/png"}
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call={"content": [block]}))
    assert told(tmp_path, "call", "hand.py", "look") == (
        5,
        "colonnade: a block of type image is not valid base64\n",
    )


def test_words_go_as_they_are_where_there_is_no_terminal(tmp_path: Path) -> None:
    written(tmp_path, server=HOSTILE)
    assert said(tmp_path, "call", "server.py", "look", "path=x") == "\x1b[2Jgone\n"
    # An error is for people, always.
    assert told(tmp_path, "call", "server.py", "fail") == (
        1,
        "colonnade: fail returned an error: \\x1b[2Jgone\n",
    )


# ---------------------------------------------------------------- read


def test_text_is_read_as_it_is() -> None:
    assert said(EXAMPLES, "read", "notes.py", "notes://garden") == "# Garden\n\nThe beans are up.\n"


def test_bytes_are_read_as_they_are() -> None:
    done = subprocess.run(
        [*COMMAND, "read", "notes.py", "backup://notes.zip"],
        cwd=EXAMPLES,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=WAIT_S,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    with zipfile.ZipFile(BytesIO(done.stdout)) as archive:
        assert archive.read("garden.md").endswith(b"The beans are up.\n")


def test_a_resource_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    arguments = ("read", "notes.py", "notes://garden", "--out", str(tmp_path))
    assert said(EXAMPLES, *arguments) == f"[file text/markdown, 28 bytes: {tmp_path}/garden.md]\n"
    assert (tmp_path / "garden.md").read_text() == "# Garden\n\nThe beans are up.\n"


def test_a_resource_is_given_to_programs_as_the_protocol_has_it() -> None:
    found = json.loads(said(EXAMPLES, "read", "notes.py", "backup://notes.zip", "--json"))
    (one,) = found["contents"]
    assert (one["uri"], one["mimeType"]) == ("backup://notes.zip", "application/zip")
    assert base64.b64decode(one["blob"]).startswith(b"PK")


def test_several_contents_are_shown_one_after_the_other(tmp_path: Path) -> None:
    contents = [
        {"uri": "a://1", "text": "one"},
        {"uri": "a://2", "blob": "AAAA", "mimeType": "x/y"},
    ]
    written(tmp_path, hand=scripted_program(resources_read={"contents": contents}))
    assert said(tmp_path, "read", "hand.py", "a://") == (
        "one\n[file x/y a://2, 3 bytes; --out DIR saves it]\n"
    )


def test_a_resource_that_is_not_there_is_told() -> None:
    code, words = told(EXAMPLES, "read", "notes.py", "notes://nothing")
    assert code == 5
    assert words.startswith("colonnade: ")
    assert "resource not found: notes://nothing" in words


# ---------------------------------------------------------------- prompt

REVIEW = """\
user:
Review this by our rules, worst problem first.

user:
Names are nouns and verbs. A function fits on a screen.

user:
```python
x = 1
```

assistant:
The worst problem is
"""


def test_a_prompt_is_shown_message_by_message() -> None:
    assert said(EXAMPLES, "prompt", "prompts.py", "review", "code=x = 1") == REVIEW


def test_a_prompt_is_given_to_programs_as_the_protocol_has_it() -> None:
    arguments = ("prompt", "prompts.py", "shorten", "text=much", "words=3", "--json")
    (message,) = json.loads(said(EXAMPLES, *arguments))["messages"]
    assert message["role"] == "user"
    assert "at most 3 words" in message["content"]["text"]


PROMPTED = {
    "review": "review: missing code; its signature is review(code, language = …)",
    "review cod=1": (
        "review: it has no argument cod (did you mean code?); missing code; its signature is review(code, language = …)"
    ),
    "review code:=1": "code: expected a string",
    "review code=1 code=2": "code is given twice",
    "reveiw": "there is no prompt reveiw; did you mean review?",
}


@pytest.mark.parametrize("typed", PROMPTED)
def test_a_prompt_that_lacks_something_is_not_asked_for(typed: str) -> None:
    words = typed.split(" ")
    assert told(EXAMPLES, "prompt", "prompts.py", *words) == (2, f"colonnade: {PROMPTED[typed]}\n")


# ---------------------------------------------------------------- complete


def test_an_argument_is_completed() -> None:
    arguments = ("complete", "prompts.py", "prompt:invite", "person")
    assert said(EXAMPLES, *arguments, "a") == "ada\nalan\n"
    assert said(EXAMPLES, *arguments, "g", "team=core") == "grace\nguido\n"
    assert json.loads(said(EXAMPLES, *arguments, "g", "team=docs", "--json")) == {
        "completion": {"values": [], "total": 0, "hasMore": False}
    }


def test_a_variable_of_a_template_is_completed() -> None:
    template = "template:notes://{name}"
    assert said(EXAMPLES, "complete", "notes.py", template, "name", "ga") == "garden\n"
    assert said(EXAMPLES, "complete", "notes.py", template, "name").count("\n") == 3


def test_that_there_are_more_is_told_beside_them(tmp_path: Path) -> None:
    found = {"completion": {"values": ["a", "b"], "total": 9, "hasMore": True}}
    written(tmp_path, hand=scripted_program(completion_complete=found))
    done = command(tmp_path, "complete", "hand.py", "prompt:x", "y")
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    assert (
        done.stderr
        == "colonnade: the first 2 of 9 values are shown; a longer PREFIX narrows them\n"
    )


def test_what_cannot_be_completed_is_told() -> None:
    assert told(EXAMPLES, "complete", "notes.py", "note", "name", "g") == (
        2,
        (
            "colonnade: note cannot be completed; expected prompt:NAME, or "
            "template:URI as colonnade ls lists it\n"
        ),
    )
