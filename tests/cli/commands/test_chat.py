"""`colonnade chat`: a model, servers, and a person who sees each call and says whether it is made."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest

from cli.process import COMMAND, WAIT_S, command, environment, written
from cli.terminal import END_OF_INPUT, INTERRUPT, PseudoTerminal
from colonnade.cli.commands.chat import Chat, servers_of
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from host.endpoint import Endpoint, refused
from host.endpoint import said as hello
from live import live, until
from providers.scripted import RequestContext, Scripted

KEY = "secret"
CALL_IT = "call it? yes, no, session, project, always or ? [no] "

DESK = """
import asyncio
import os

from colonnade import Context, Server, ToolError

server = Server("desk", instructions="Cents.\\x1b[2J")


@server.tool(read_only=True)
def price(fruit: str) -> str:
    "What fruit costs.\\x1b[2J"
    if fruit == "kiwi":
        raise ToolError("No kiwi.\\x1b[2J")
    if fruit == "key":
        return os.environ.get("OPENAI_API_KEY", "there is none")
    return f"{fruit} 25"


@server.tool
def buy(fruit: str, count: int = 1) -> str:
    "Buy fruit."
    return f"bought {count} {fruit}"


@server.tool
async def greet(ctx: Context) -> str:
    "Greet whoever is there."
    return f"Hello {await ctx.elicit('Who are you?', str)}"


@server.tool
async def poem(ctx: Context) -> str:
    "Let the model write."
    return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text


@server.tool
async def wait(ctx: Context) -> str:
    "Wait for ever."
    await ctx.progress(1, 4, "one \\x1b[2Jquarter")
    await asyncio.Event().wait()
    return "never"


@server.prompt
def haggle(fruit: str) -> str:
    "Ask for less."
    return f"Ask for cheaper {fruit}s."


@server.resource("desk://list", title="All of it")
def listed() -> str:
    return "plum 25"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    folder = written(tmp_path_factory.mktemp("chat"), desk=DESK)
    run = [sys.executable, "-P", "-m", "colonnade", "run", str(folder / "desk.py")]
    entry = {"command": run[0], "args": run[1:]}
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no such luck')"]}
    both = {"mcpServers": {"fruit": entry, "broken": broken}}
    (folder / "servers.json").write_text(json.dumps(both))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLONNADE_HOME", str(folder / "home"))
        assert command(folder, "config", "trust", "servers.json", "--yes").returncode == 0
        yield folder


def said(provider: Scripted, role: str, at: int = -1) -> list[Any]:
    """What one request had of a role."""
    return [one["content"] for one in provider.asked[at]["messages"] if one["role"] == role]


def at(provider: "Scripted | Endpoint", **more: str) -> dict[str, Any]:
    url = provider.url if isinstance(provider, Endpoint) else f"{provider.url}/v1"
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "tiny", **more}


def terminal(folder: Path, provider: "Scripted | Endpoint", *more: str) -> PseudoTerminal:
    return PseudoTerminal(folder, "chat", "desk.py", *more, NO_COLOR="1", **at(provider))


# ---------------------------------------------------------------- at a terminal


@pytest.mark.spec("R0138", "R0139", "R0140", "R0141")
def test_the_tools_are_shown_each_call_is_shown_and_asked_for_and_the_answer_is_read(
    folder: Path,
) -> None:
    script: list[RequestContext] = [
        [("desk__buy", {"fruit": "plum\u202e\x1b[2J", "count": 3})],
        [("desk__buy", {"fruit": "pear", "count": 1})],
        "Bought.\x1b[2J",
    ]
    with Scripted(script) as provider, terminal(folder, provider) as chat:
        shown = chat.answer("you> ", "Buy three plums.")
        assert "tiny at 127.0.0.1:" in shown
        assert "may call 5 tools:\n  desk  price, buy, greet, poem, wait\n" in shown
        asked = chat.answer(CALL_IT, "yes")
        assert "-> desk__buy (server desk)\n" in asked
        assert '  | fruit = "plum\\u202e\\u001b[2J"\n  | count = 3\n' in asked
        shown = chat.answer(CALL_IT, "")
        assert "<- desk__buy" in shown
        assert "bought 3 plum" in shown
        chat.answer("you> ", "/quit")
        code, everything = chat.end()
    assert code == 0
    assert "Bought.\\x1b[2J\n" in everything
    assert "\x1b" not in everything
    results = said(provider, "tool")
    assert results[0].startswith("bought 3 plum")
    assert results[1] == "Error: desk__buy was refused: the user denied it"


@pytest.mark.spec("R0141")
def test_a_tool_may_be_allowed_for_the_conversation_and_no_longer(
    folder: Path,
) -> None:
    price = ("desk__price", {"fruit": "plum"})
    with (
        Scripted([[price], [price], "25.", [price], "No."]) as provider,
        terminal(folder, provider) as chat,
    ):
        chat.answer("you> ", "What is a plum?")
        asked = chat.answer(CALL_IT, "session")
        assert "(the tool declares itself read-only)" in asked
        shown = chat.answer("you> ", "/new")
        assert "(allow desk__price (remembered: session))" in shown
        chat.answer("you> ", "Again?")
        chat.answer(CALL_IT, "no")
        chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "tool", 2) == ["plum 25", "plum 25"]
    # The new conversation has nothing of the old one.
    assert said(provider, "user") == ["Again?"]
    assert said(provider, "tool") == ["Error: desk__price was refused: the user denied it"]
    (system,) = said(provider, "system")
    assert "Instructions of the server 'desk' for its tools" in system


def test_a_long_call_says_that_there_is_more_and_shows_it(folder: Path) -> None:
    long = [("desk__price", {"fruit": "a" * 5000 + "end"})]
    with Scripted([long, "Well."]) as provider, terminal(folder, provider) as chat:
        chat.answer("you> ", "Go.")
        asked = chat.answer("[no] ", "show")
        assert "more characters; type show to see them)" in asked
        assert "aend" not in asked
        assert "aend" in chat.answer("[no] ", "no")
        chat.answer("you> ", END_OF_INPUT)
        chat.end()


@pytest.mark.spec("R0103", "R0361", "R0362", "R0363", "R0367", "R0369")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_a_server_s_question_says_who_asks_and_for_which_call(folder: Path, revision: str) -> None:
    with (
        Scripted([[("desk__greet", {})], "Done."]) as provider,
        terminal(folder, provider, "--yes", "--as", revision) as chat,
    ):
        chat.answer("you> ", "Greet me.")
        asked = chat.until("): ")
        assert "desk (for desk__greet) asks:\n  | Who are you?\n" in asked
        chat.type("Eve\n")
        chat.answer("send, edit, decline or cancel? [send] ", "edit")
        chat.answer(" [Eve]: ", "Ada")
        chat.answer("send, edit, decline or cancel? [send] ", "")
        chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "tool") == ["Hello Ada"]


def allow_sampling(folder: Path) -> None:
    """Write a file whose server may request sampling, and trust it."""
    (folder / "colonnade.toml").write_text(
        "[servers.desk]\n"
        f'command = "{sys.executable}"\n'
        'args = ["-P", "-m", "colonnade", "run", "desk.py"]\n'
        "sampling = true\n"
    )
    assert command(folder, "config", "trust", "colonnade.toml", "--yes").returncode == 0


@pytest.mark.spec("R0096", "R0097", "R0099", "R0370")
def test_a_server_gets_the_model_s_words_if_a_person_agrees_before_and_after(
    folder: Path,
) -> None:
    allow_sampling(folder)
    poem: RequestContext = [("desk__poem", {})]
    for first, second in (("yes", "yes"), ("yes", "no"), ("no", "")):
        script: list[RequestContext] = (
            [poem, "Gum.\x1b[2J", "Done."] if first == "yes" else [poem, "Done."]
        )
        with (
            Scripted(script) as provider,
            PseudoTerminal(
                folder, "chat", "colonnade.toml", "--yes", NO_COLOR="1", **at(provider)
            ) as chat,
        ):
            chat.answer("you> ", "Write.")
            asked = chat.answer("send it to the model? yes, no or edit [no] ", first)
            assert "desk (for desk__poem) requests sampling from your model:\n" in asked
            assert "  user:\n  | Rhyme on plum.\n  (at most 9 tokens)\n" in asked
            if first == "yes":
                reply = chat.answer(
                    "send this to desk (for desk__poem)? yes, no or edit [no] ", second
                )
                assert "  assistant:\n  | Gum.\\x1b[2J\n" in reply
            chat.answer("you> ", "/quit")
            assert chat.end()[0] == 0
        result = said(provider, "tool")[0]
        assert (result == "Gum.\\x1b[2J") is (second == "yes")
        if first == "yes":
            assert provider.asked[1]["max_tokens"] == 9


@pytest.mark.spec("R0098")
def test_a_person_edits_what_the_model_is_sent(folder: Path) -> None:
    allow_sampling(folder)
    script: list[RequestContext] = [[("desk__poem", {})], "Bear.", "Done."]
    with (
        Scripted(script) as provider,
        PseudoTerminal(
            folder, "chat", "colonnade.toml", "--yes", NO_COLOR="1", EDITOR="", **at(provider)
        ) as chat,
    ):
        chat.answer("you> ", "Write.")
        chat.answer("send it to the model? yes, no or edit [no] ", "edit")
        chat.answer("a number, or Enter when done: ", "2")
        chat.answer("user (Enter keeps it): ", "Rhyme on pear.")
        chat.answer("a number, or Enter when done: ", "")
        chat.answer("send it to the model? yes, no or edit [no] ", "yes")
        chat.answer("yes, no or edit [no] ", "yes")
        chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "user", 1) == ["Rhyme on pear."]
    assert said(provider, "tool") == ["Bear."]


def test_a_decision_for_the_project_is_a_rule_until_it_is_forgotten(folder: Path) -> None:
    price: RequestContext = [("desk__price", {"fruit": "plum"})]
    for answers in (["project"], [], ["no"]):
        with Scripted([price, "25."]) as provider, terminal(folder, provider) as chat:
            chat.answer("you> ", "What is a plum?")
            for answer in answers:
                chat.answer(CALL_IT, answer)
            shown = chat.answer("you> ", "/quit")
            assert chat.end()[0] == 0
        assert ("(allow desk__price (remembered: project in " in shown) is (answers == [])
        if not answers:
            (line,) = command(folder, "policy", "ls").stdout.splitlines()
            assert line.endswith("server = desk  tools/call desk__price")
            assert command(folder, "policy", "forget", line.split()[0]).returncode == 0


def test_the_rules_of_a_file_decide_what_is_asked_about(folder: Path) -> None:
    (folder / "ruled.toml").write_text(
        "[servers.desk]\n"
        f'command = "{sys.executable}"\n'
        'args = ["-P", "-m", "colonnade", "run", "desk.py"]\n'
        '[[policy]]\ntools = "desk__price"\naction = "allow"\n'
        '[[policy]]\ntools = "desk__buy"\naction = "ask"\n'
    )
    assert command(folder, "config", "trust", "ruled.toml", "--yes").returncode == 0
    calls: RequestContext = [
        ("desk__price", {"fruit": "plum"}),
        ("desk__buy", {"fruit": "plum"}),
    ]
    with (
        Scripted([calls, "Done."]) as provider,
        PseudoTerminal(folder, "chat", "ruled.toml", NO_COLOR="1", **at(provider)) as chat,
    ):
        chat.answer("you> ", "Buy.")
        shown = chat.answer(CALL_IT, "yes")
        assert "-> desk__price (server desk)" in shown
        assert "(allowed by " in shown
        assert "asked by " in shown
        chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "tool") == ["plum 25", "bought 1 plum"]
    done = command(folder, "call", "ruled.toml", "desk__buy", "fruit=plum")
    assert done.returncode != 0
    assert "there is no terminal to ask in" in done.stderr


@pytest.mark.spec("R0062")
def test_an_interrupt_ends_the_turn_and_the_next_one_knows(folder: Path) -> None:
    with (
        Scripted([[("desk__wait", {})], "I see."]) as provider,
        terminal(folder, provider, "--yes") as chat,
    ):
        chat.answer("you> ", "Wait.")
        chat.until("-> desk__wait")
        chat.until("[#####...............]  25%  one \\x1b[2Jquarter")
        chat.type(INTERRUPT)
        chat.until("(interrupted)")
        chat.answer("you> ", "What was that?")
        chat.until("I see.")
        chat.until("you> ")
        chat.type(INTERRUPT)
        chat.until("(press Ctrl-C again, or Ctrl-D, to leave)\n")
        chat.until("you> ")
        chat.type(INTERRUPT)
        code, _ = chat.end()
    assert code == 130
    assert said(provider, "tool") == [
        "the call was interrupted; whether it had an effect is unknown"
    ]


def test_an_interrupt_at_the_prompt_drops_the_line_and_a_line_in_between_counts_anew(
    folder: Path,
) -> None:
    with Scripted(["Hello.", "Well."]) as provider, terminal(folder, provider) as chat:
        for words in ("Good day.", "How are you?"):
            chat.until("you> ")
            chat.type("half a line")
            chat.until("half a line")  # which the terminal shows by itself
            chat.type(INTERRUPT)
            chat.until("(press Ctrl-C again, or Ctrl-D, to leave)\n")
            chat.answer("you> ", words)
        chat.until("Well.")
        chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "user") == ["Good day.", "How are you?"]


@live
async def test_an_interrupt_drops_what_was_read_of_the_line_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-D in the middle of a line hands its beginning to the program."""
    ours, theirs = pty.openpty()
    with open(theirs, encoding="utf-8") as stdin, open(os.dup(theirs), "w") as stderr:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", stderr)
        screen, unused = Terminal(), cast("Any", None)
        chat = Chat(unused, unused, screen, unused)
        line = asyncio.ensure_future(chat._line())
        os.write(ours, f"half a line{END_OF_INPUT}".encode())
        await until(lambda: screen._typed == b"half a line")
        assert chat.interrupt()
        os.write(ours, b"Good day.\n")
        assert await line == "Good day."
        assert chat.interrupt() is False
    os.close(ours)


def test_an_interrupt_instead_of_an_answer_makes_no_call(folder: Path) -> None:
    buy = [("desk__buy", {"fruit": "plum"})]
    with Scripted([buy, "I see."]) as provider, terminal(folder, provider) as chat:
        chat.answer("you> ", "Buy.")
        chat.until(CALL_IT)
        chat.type(INTERRUPT)
        chat.until("(interrupted)")
        chat.answer("you> ", "yes")
        assert "bought" not in chat.answer("you> ", "/quit")
        assert chat.end()[0] == 0
    assert said(provider, "tool")[0].startswith("the call was interrupted")


@pytest.mark.spec("R0139")
def test_commands_show_what_there_is(folder: Path) -> None:
    with Scripted(["Cheaper!", "All."]) as provider, terminal(folder, provider) as chat:
        assert "type /help for help" in chat.answer("you> ", "/help")
        assert "/NAME key=value" in chat.answer("you> ", "/tools")
        tools = chat.answer("you> ", "/tools cost")
        assert "desk__buy(fruit: string, count: integer = 1)  Buy fruit.\n" in tools
        assert "desk__price" in chat.answer("you> ", "/prompts")
        assert "/desk__haggle fruit=…  Ask for less." in chat.answer("you> ", "/resources")
        assert "desk://list  desk  All of it" in chat.answer("you> ", "/servers")
        assert "desk  ready  2026-07-28" in chat.answer("you> ", "/desk__hagle")
        shown = chat.answer("you> ", "/desk__haggle")
        assert "there is no prompt 'desk__hagle'; did you mean desk__haggle?" in shown
        shown = chat.answer("you> ", "/desk__haggle fruit=plum")
        assert "desk__haggle needs fruit" in shown
        assert "Cheaper!" in chat.answer("you> ", "What is in @desk://list?")
        assert "All." in chat.answer("you> ", "@desk://nothing")
        chat.answer("you> ", END_OF_INPUT)
        code, everything = chat.end()
    assert code == 0
    assert "desk://nothing" in everything
    assert "\x1b" not in everything
    assert said(provider, "user") == [
        "Ask for cheaper plums.",
        "I included the resource desk://list. Its contents:\ndesk://list:\nplum 25",
        "What is in @desk://list?",
    ]


def test_a_model_that_fails_ends_the_turn_and_not_the_conversation(folder: Path) -> None:
    busy = (400, {}, refused(f"\x1b[2J{KEY} is wrong"))
    with Endpoint([busy]) as endpoint, terminal(folder, endpoint) as chat:
        chat.answer("you> ", "Hello.")
        assert "rejected the request: \\x1b[2J… is wrong" in chat.answer("you> ", "/quit")
        code, everything = chat.end()
    assert code == 0
    assert KEY not in everything


# ---------------------------------------------------------------- without one


def test_without_a_terminal_lines_are_said_and_answers_are_the_output(folder: Path) -> None:
    script: list[RequestContext] = ["One.", [("desk__price", {"fruit": "kiwi"})], "Two."]
    with Scripted(script) as provider:
        lines = "First\n\nWhat is a kiwi?"
        done = command(folder, "chat", "desk.py", "--yes", input=lines, **at(provider))
    assert (done.returncode, done.stdout) == (0, "One.\nTwo.\n"), done.stderr
    assert "<- error: desk__price" in done.stderr
    assert said(provider, "tool") == ["Error: No kiwi.\\x1b[2J"]
    assert KEY not in done.stderr


@pytest.mark.spec("R0141")
def test_without_a_terminal_nobody_is_asked_and_every_call_is_refused(folder: Path) -> None:
    both = [("desk__price", {"fruit": "plum"}), ("desk__buy", {"fruit": "plum"})]
    with Scripted([both, "No."]) as provider:
        done = command(folder, "chat", "desk.py", input="Buy.\n", **at(provider))
    assert (done.returncode, done.stdout) == (0, "No.\n"), done.stderr
    assert done.stderr.count("there is no terminal to ask in; --yes approves every call") == 2
    told = said(provider, "tool")
    assert told[1] == ("Error: desk__buy was refused: there is no user to approve the call")


def test_a_question_without_a_terminal_is_declined_at_once(folder: Path) -> None:
    with Scripted([[("desk__greet", {}), ("desk__poem", {})], "No."]) as provider:
        done = command(folder, "chat", "desk.py", "--yes", input="Hi.\n", **at(provider))
    assert done.returncode == 0, done.stderr
    assert "declined, because there is no terminal" in done.stderr
    greeted, written_ = said(provider, "tool")
    assert greeted.startswith("Error: ")
    assert written_.startswith("Error: ")


def test_all_servers_of_a_configuration_are_there_and_a_broken_one_is_said(folder: Path) -> None:
    with Scripted([[("fruit__price", {"fruit": "plum"})], "25."]) as provider:
        done = command(folder, "chat", "servers.json", "--yes", input="Go\n", **at(provider))
    assert (done.returncode, done.stdout) == (0, "25.\n"), done.stderr
    assert "may call 5 tools:\n  fruit  price, buy, greet, poem, wait\n" in done.stderr
    assert "broken" in done.stderr
    assert "no such luck" in done.stderr
    assert said(provider, "tool") == ["plum 25"]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("weather.py", "weather"),
        ("tools.weather", "weather"),
        ("tools.server:weather", "weather"),
        ("https://mcp.example.com/mcp?key=1", "mcp-example-com"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1"),
        (("uvx", "mcp-server-git", "--repository", "."), "mcp-server-git"),
        (("npx", "-y", "@modelcontextprotocol/server-files", "/x"), "server-files"),
    ],
)
def test_one_server_is_called_as_it_was_typed(
    target: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, weather=DESK)
    monkeypatch.chdir(tmp_path)
    config = servers_of(ConnectionOptions(target), Terminal())
    assert list(config.entries) == [name]


def test_a_line_of_a_file_is_said_as_well(folder: Path) -> None:
    (folder / "lines.txt").write_text("Hello.")
    with Scripted(["Hi."]) as provider, open(folder / "lines.txt") as lines:
        done = subprocess.run(
            [*COMMAND, "chat", "desk.py"],
            cwd=folder,
            stdin=lines,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=environment(**at(provider)),
        )
    assert (done.returncode, done.stdout) == (0, "Hi.\n"), done.stderr


def test_a_line_that_is_too_long_is_said_to_be(folder: Path) -> None:
    with Scripted([]) as provider:
        done = command(folder, "chat", "desk.py", input="a" * 200_000, **at(provider))
    assert done.returncode == 2
    assert "a line of stdin is longer than 64 KiB" in done.stderr
    assert provider.asked == []


@pytest.mark.parametrize("flags", [(), ("--key-env", "OTHER")])
def test_the_usual_key_goes_to_no_address_that_was_typed(
    folder: Path, flags: tuple[str, ...]
) -> None:
    env = {"OPENAI_MODEL": "tiny", "OPENAI_API_KEY": "sk-usual", "OTHER": "sk-other"}
    with Endpoint([(200, {}, hello("Hi."))]) as endpoint:
        typed = ("chat", "desk.py", "--url", endpoint.url, *flags)
        done = command(folder, *typed, input="Hello.\n", **env)
    assert (done.returncode, done.stdout) == (0, "Hi.\n"), done.stderr
    sent = endpoint.headers[0].get("authorization")
    assert sent == ("Bearer sk-other" if flags else None)


@pytest.mark.parametrize(("target", "server"), [("desk.py", "desk"), ("servers.json", "fruit")])
def test_no_server_sees_the_key_of_the_model(folder: Path, target: str, server: str) -> None:
    with Scripted([[(f"{server}__price", {"fruit": "key"})], "None."]) as provider:
        done = command(folder, "chat", target, "--yes", input="Go\n", **at(provider))
    assert done.returncode == 0, done.stderr
    assert said(provider, "tool") == ["there is none"]


def test_what_a_model_says_beside_its_calls_is_shown_and_is_no_answer(folder: Path) -> None:
    wanted = {"name": "desk__price", "arguments": '{"fruit": "plum"}'}
    both = {
        "role": "assistant",
        "content": "Let me\x1b[2J look.",
        "tool_calls": [{"id": "1", "type": "function", "function": wanted}],
    }
    first = json.dumps({"choices": [{"message": both}]}).encode()
    with Endpoint([(200, {}, first), (200, {}, hello("25."))]) as endpoint:
        done = command(folder, "chat", "desk.py", "--yes", input="Go.", **at(endpoint))
    assert (done.returncode, done.stdout) == (0, "25.\n"), done.stderr
    assert "\n  | Let me\\x1b[2J look.\n-> desk__price" in done.stderr


def test_a_model_that_is_busy_is_said_to_be_asked_again(folder: Path) -> None:
    busy = (429, {"retry-after": "0"}, refused("slow down"))
    with Endpoint([busy, busy, (200, {}, hello("Hello."))]) as endpoint:
        done = command(folder, "chat", "desk.py", input="Hello.\n", **at(endpoint))
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    told = [line for line in done.stderr.splitlines() if "429" in line]
    assert len(told) == 2
    assert told[0].startswith("colonnade: the model 'tiny' at 127.0.0.1:")
    assert told[0].endswith(" responded with 429; trying again in 0 s (attempt 1 of 4)")


def test_a_model_that_cannot_be_asked_is_a_code(folder: Path) -> None:
    with Endpoint([(401, {}, refused("no"))]) as endpoint:
        done = command(folder, "chat", "desk.py", input="Hello.\n", **at(endpoint))
    assert done.returncode == 3
    words = "rejected the API key (401): no; give the key with --key-env VARIABLE, where"
    assert words in done.stderr
    assert "--header-env" not in done.stderr  # which would send the key to the servers
    done = command(folder, "chat", "desk.py", input="Hello.\n", **at(endpoint))
    assert done.returncode == 4


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        ((), {"OPENAI_MODEL": ""}, "missing option --model"),
        (
            ("--url", "127.0.0.1:9/v1"),
            {},
            "colonnade: --url needs a scheme; http://127.0.0.1:9/v1\n",
        ),
        (
            ("--url", "llm.example/v1"),
            {},
            "colonnade: --url needs a scheme; https://llm.example/v1\n",
        ),
        (("--json",), {}, "chat has no --json"),
        (("--url", "http://models.example"), {}, "is not https"),
        (
            ("--url", ""),
            {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""},
            "OpenAI requires an API key",
        ),
        (("--key-env", "NOT_THERE"), {}, "the environment variable NOT_THERE is not set"),
    ],
)
def test_what_was_mistyped_is_said_in_one_sentence(
    folder: Path, arguments: tuple[str, ...], more: dict[str, str], words: str
) -> None:
    env = {"OPENAI_MODEL": "tiny", "OPENAI_BASE_URL": "http://127.0.0.1:1", "OPENAI_API_KEY": KEY}
    done = command(folder, "chat", "desk.py", *arguments, **env | more)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_server_that_failed_is_not_said_to_be_idle(folder: Path) -> None:
    with (
        Scripted([]) as provider,
        PseudoTerminal(folder, "chat", "servers.json", NO_COLOR="1", **at(provider)) as chat,
    ):
        chat.answer("you> ", "/servers")
        shown = chat.answer("you> ", "/quit")
    assert "  fruit   ready" in shown
    assert "  broken  failed" in shown
