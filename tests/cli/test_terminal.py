"""At a terminal: questions are asked, progress is drawn, an interrupt ends it all."""

import json
import os
import shlex
import socket
import sys
import time
from pathlib import Path

import pytest

from cli.commands.test_ls import EXAMPLES, HOSTILE
from cli.process import WAIT_S, command, written
from cli.terminal import END_OF_INPUT, INTERRUPT, PseudoTerminal
from colonnade.cli.terminal import browser, can_open

BOOK = ("call", "travel.py", "book", "train=EC 171")
BOTH = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])

# Every kind of field that there is, and a page to visit.
ASKING = """
from typing import Annotated, Literal

from msgspec import Meta

from colonnade import Context, Server

server = Server("desk\\x1b[2J", version="1")


@server.tool
async def fill(ctx: Context) -> str:
    from dataclasses import dataclass

    @dataclass
    class Form:
        name: str
        age: Annotated[int, Meta(ge=18, le=99)]
        share: float = 0.5
        colour: Literal["red", "green"] = "green"
        nick: str | None = None
        sure: bool = False

    found = await ctx.elicit("Who are you?\\n\\x1b[2Jcolonnade: all checks passed", Form)
    return repr((found.name, found.age, found.share, found.colour, found.nick, found.sure))


@server.tool
async def visit(url: str, ctx: Context) -> str:
    await ctx.elicit_url("Sign in first.", url)
    return "visited"


@server.tool
async def lure(ctx: Context) -> str:
    from dataclasses import dataclass

    CLICK = "\x1b]8;;https://evil.example\x1b\\\\here\x1b]8;;\x1b\\\\"

    @dataclass
    class Form:
        choice: Literal["https://evil.example/one", "two"]
        link: Annotated[str, Meta(description="or https://evil.example")] = (
            "https://evil.example/default"
        )

    found = await ctx.elicit(f"Look {CLICK}, or at https://evil.example", Form)
    return found.link


@server.tool
async def wait(ctx: Context) -> str:
    import asyncio

    await ctx.progress(1, 4, "one \\x1b[2Jquarter")
    await asyncio.Event().wait()
    return "never"
"""


@pytest.fixture(scope="module")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("server"), server=ASKING, hostile=HOSTILE)


# ---------------------------------------------------------------- forms


@pytest.mark.spec("R0589", "R0591", "R0624")
@BOTH
def test_a_question_is_asked_reviewed_and_answered(revision: str) -> None:
    with PseudoTerminal(EXAMPLES, *BOOK, "--as", revision, piped=True, NO_COLOR="1") as terminal:
        terminal.answer("car (integer): ", "first")
        assert (
            terminal.until("car (integer): ") == "first\n    expected an integer\n  car (integer): "
        )
        terminal.type("3\n")
        terminal.answer("window (yes or no) [yes]: ", "")
        terminal.answer("send, edit, decline or cancel? [send] ", "edit")
        terminal.answer("car (integer) [3]: ", "4")
        terminal.answer("window (yes or no) [yes]: ", "no")
        assert "  car = 4\n  window = no\n" in terminal.until("decline or cancel? [send] ")
        terminal.type("\n")
        code, shown = terminal.end()
        assert code == 0
        assert shown.startswith("travel (travel.py) asks:\n  | Which seat on EC 171?\n")
        assert terminal.output() == '{"train":"EC 171","seat":{"car":4,"window":false}}\n'


@pytest.mark.spec("R0590")
@BOTH
@pytest.mark.parametrize("said", ["decline", "cancel"])
def test_a_question_can_be_declined_and_left(revision: str, said: str) -> None:
    with PseudoTerminal(EXAMPLES, *BOOK, "--as", revision, NO_COLOR="1") as terminal:
        terminal.answer("car (integer): ", "3")
        terminal.answer("window (yes or no) [yes]: ", "")
        terminal.answer("decline or cancel? [send] ", "perhaps")
        terminal.answer("decline or cancel? [send] ", said)
        why = {
            "decline": "the user declined the request",
            "cancel": "the user cancelled the request",
        }
        code, shown = terminal.end()
        assert (code, shown.splitlines()[-1]) == (
            1,
            f"colonnade: book returned an error: {why[said]}",
        )


def test_the_end_of_the_input_leaves_a_question() -> None:
    with PseudoTerminal(EXAMPLES, *BOOK) as terminal:
        terminal.until("car (integer): ")
        terminal.type(END_OF_INPUT)
        code, shown = terminal.end()
    assert code == 1
    assert shown.endswith("colonnade: book returned an error: the user cancelled the request\n")


def test_every_kind_of_field_can_be_filled_in(server_folder: Path) -> None:
    with PseudoTerminal(server_folder, "call", "server.py", "fill", piped=True) as terminal:
        terminal.answer("name (text): ", "")
        terminal.answer("a value is required\n  name (text): ", "Ada")
        terminal.answer("age (integer from 18 to 99): ", "7")
        terminal.answer("must be at least 18\n  age (integer from 18 to 99): ", "36")
        terminal.answer("share (number) [0.5]: ", "1")
        terminal.answer("    1  red\n    2  green\n  colour (a number or a name) [green]: ", "1")
        terminal.answer("nick (text, optional): ", "")
        terminal.answer("sure (yes or no) [no]: ", "yes")
        terminal.answer("decline or cancel? [send] ", "send")
        assert terminal.end()[0] == 0
        assert terminal.output() == "('Ada', 36, 1.0, 'red', None, True)\n"


def test_what_a_server_asks_cannot_act_on_the_terminal_or_pose_as_ours(server_folder: Path) -> None:
    with PseudoTerminal(server_folder, "call", "server.py", "fill", NO_COLOR="1") as terminal:
        terminal.until("name (text): ")
        assert terminal.shown.startswith(
            "desk\\x1b[2J (server.py) asks:\n"
            "  | Who are you?\n"
            "  | \\x1b[2Jcolonnade: all checks passed\n"
            "  (Enter accepts the value in brackets; Ctrl-D cancels)\n"
        )


def test_nobody_hurries_a_person(server_folder: Path) -> None:
    """The time-out of a call stands still while its question waits."""
    # A server must be able to start in that time on a machine that has much else to do.
    arguments = ("--timeout", "5", "--as", "2025-11-25")
    with PseudoTerminal(EXAMPLES, *BOOK, *arguments, piped=True) as terminal:
        terminal.until("car (integer): ")
        # Another call runs out of time in the meantime, which the first one would have, too.
        slow = command(server_folder, "call", "server.py", "wait", "--timeout", "5")
        assert slow.returncode == 4
        words = "no answer to tools/call within 5 s; whether it had an effect is unknown"
        assert words in slow.stderr
        terminal.type("3\n")
        terminal.answer("window (yes or no) [yes]: ", "")
        terminal.answer("decline or cancel? [send] ", "")
        assert terminal.end()[0] == 0


def test_without_a_terminal_a_question_is_refused_at_once() -> None:
    done = command(EXAMPLES, *BOOK)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "colonnade: travel (travel.py) asks 'Which seat on EC 171?'; declined, because there "
        "is no terminal\n"
        "colonnade: book returned an error: the user declined the request\n"
    )


def test_a_model_is_never_asked() -> None:
    done = command(EXAMPLES, "call", "booking.py", "describe", "flight=LH1")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        "colonnade: this needs sampling, which the client does not support (-32021)\n"
    )


# ---------------------------------------------------------------- pages

# What a browser is here: it notes what it was told, and to whom it could tell what it shows.
BROWSER = """
import json, os, sys
links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd"))
         if os.path.exists(f"/proc/self/fd/{fd}")}
with open(sys.argv[1] + ".part", "w") as file:
    json.dump({"argv": sys.argv[2:], "links": sorted(set(links.values()))}, file)
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""


def with_browser(folder: Path) -> tuple[Path, str]:
    """What a browser has noted, once it was opened, and the words that open it."""
    (folder / "browser.py").write_text(BROWSER)
    noted = folder / "noted"
    words = [sys.executable, "-I", str(folder / "browser.py"), str(noted)]
    return noted, shlex.join(words)


def wait_for(noted: Path) -> None:
    """Until the browser has noted all that it wants to."""
    end = time.monotonic() + WAIT_S
    while not noted.exists():
        assert time.monotonic() < end, "no page was opened"
        time.sleep(0.01)


ODD = {
    "https://example.com/a?b=c": [],
    "http://127.0.0.1:1/a": [],
    "http://example.com/": [
        "the URL is not https: others on the network can read and change the page"
    ],
    "https://xn--80ak6aa92e.com/": ["the host has characters that may look like others (Punycode)"],
    "https://bank.com@evil.example/": [
        "the part before the @ is not the host, and may be meant to look like it"
    ],
    "https://192.0.2.1/": ["the host is an IP address, not a name"],
}


@pytest.mark.spec("R0592", "R0632", "R0634")
@BOTH
def test_a_page_is_shown_whole_with_its_host_before_anybody_agrees(
    server_folder: Path, revision: str
) -> None:
    url = "https://example.com/sign-in?for=desk"
    arguments = ("call", "server.py", "visit", f"url={url}", "--as", revision)
    with PseudoTerminal(
        server_folder, *arguments, NO_COLOR="1", BROWSER="", DISPLAY="", WAYLAND_DISPLAY=""
    ) as terminal:
        assert terminal.until("agree, decline or cancel? [decline] ") == (
            "desk\\x1b[2J (server.py) asks you to open a URL:\n"
            "  | Sign in first.\n"
            f"  URL   {url}\n"
            "  host  example.com\n"
            "  (if you trust it, open it yourself; agree when you are done)\n"
            "agree, decline or cancel? [decline] "
        )
        terminal.type("agree\n")
        code, shown = terminal.end()
        assert (code, shown.splitlines()[-1]) == (0, "visited")


@pytest.mark.spec("R0629", "R0635")
@pytest.mark.parametrize("url", ODD)
def test_what_is_odd_about_an_address_is_told(server_folder: Path, url: str) -> None:
    with PseudoTerminal(server_folder, "call", "server.py", "visit", f"url={url}") as terminal:
        shown = terminal.answer("agree, decline or cancel? [decline] ", "")
        found = [line for line in shown.splitlines() if "warning" in line]
        assert found == [f"  warning: {warning}" for warning in ODD[url]]
        assert terminal.end()[0] == 1


@pytest.mark.spec("R0630")
def test_no_page_is_ever_fetched(server_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as page:
        url = f"http://127.0.0.1:{page.getsockname()[1]}/"
        with PseudoTerminal(server_folder, "call", "server.py", "visit", f"url={url}") as terminal:
            terminal.answer("agree, decline or cancel? [decline] ", "agree")
            assert terminal.end()[0] == 0
        page.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has come
            page.accept()


@pytest.mark.spec("R0631", "R0633")
def test_a_page_is_opened_for_who_says_so_and_where_nobody_of_us_can_look(
    server_folder: Path, tmp_path: Path
) -> None:
    noted, words = with_browser(tmp_path)
    url = "https://example.com/sign-in?for=desk&$(touch%20x)"
    arguments = ("call", "server.py", "visit", f"url={url}")
    with PseudoTerminal(server_folder, *arguments, BROWSER=words) as terminal:
        terminal.answer("open, agree, decline or cancel? [decline] ", "open")
        terminal.until("open, agree, decline or cancel? [decline] ")
        wait_for(noted)
        terminal.type("agree\n")
        code, shown = terminal.end()
        assert (code, shown.splitlines()[-1]) == (0, "visited")
    found = json.loads(noted.read_text())
    assert found["argv"] == [url]
    # Its three streams, and what it opened itself to look at them: none leads to us.
    assert [one for one in found["links"] if not one.startswith("/proc/")] == ["/dev/null"]


@pytest.mark.spec("R0631")
@pytest.mark.parametrize("said", ["agree", "decline", "cancel", "", "o pen", "0", END_OF_INPUT])
def test_a_page_is_opened_for_nobody_else(server_folder: Path, tmp_path: Path, said: str) -> None:
    noted, words = with_browser(tmp_path)
    url = "https://example.com/"
    with PseudoTerminal(
        server_folder, "call", "server.py", "visit", f"url={url}", BROWSER=words
    ) as terminal:
        terminal.answer("open, agree, decline or cancel? [decline] ", said)
        if said in ("o pen", "0"):
            terminal.answer("open, agree, decline or cancel? [decline] ", "agree")
        terminal.end()
    assert list(tmp_path.iterdir()) == [tmp_path / "browser.py"]
    assert not noted.exists()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "app:start", "--version", "http://[", "x y"])
def test_what_is_no_page_is_opened_for_nobody(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, words = with_browser(tmp_path)
    monkeypatch.setenv("BROWSER", words)
    assert can_open("https://example.com/")
    assert not can_open(url)
    nothing = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    assert browser({"BROWSER": "'", **nothing}) == browser(nothing)
    assert browser({"BROWSER": f"{sys.executable} %s:other"}) == [sys.executable, "%s"]


@pytest.mark.spec("R0607")
@pytest.mark.parametrize(("said", "code"), [("agree", 0), ("cancel", 1), (INTERRUPT, 130)])
def test_who_visits_a_page_says_when_to_go_on_or_to_stop_whatever_the_server_tells(
    server_folder: Path, tmp_path: Path, said: str, code: int
) -> None:
    """The server never tells that the visit is over."""
    _open_page(server_folder, tmp_path, said, code, "2025-11-25")


@pytest.mark.spec("R0936")
@pytest.mark.parametrize(("said", "code"), [("agree", 0), ("cancel", 1), (INTERRUPT, 130)])
def test_who_visits_a_page_says_when_to_go_on_or_to_stop(
    server_folder: Path, tmp_path: Path, said: str, code: int
) -> None:
    _open_page(server_folder, tmp_path, said, code, "2026-07-28")


def _open_page(server_folder: Path, folder: Path, said: str, code: int, revision: str) -> None:
    noted, words = with_browser(folder)
    page = "url=https://example.com/"
    arguments = ("call", "server.py", "visit", page, "--as", revision)
    with PseudoTerminal(server_folder, *arguments, BROWSER=words) as terminal:
        terminal.answer("open, agree, decline or cancel? [decline] ", "open")
        wait_for(noted)
        terminal.answer("open, agree, decline or cancel? [decline] ", said)
        assert terminal.end()[0] == code


@pytest.mark.spec("R0636")
def test_an_address_is_a_link_nowhere_but_where_it_is_what_is_asked_for(
    server_folder: Path,
) -> None:
    """Neither by what a terminal obeys, nor by what it finds itself."""
    with PseudoTerminal(server_folder, "call", "server.py", "lure", NO_COLOR="1") as terminal:
        terminal.answer("choice (a number or a name): ", "1")
        terminal.answer("link (text) [", "")
        terminal.answer("decline or cancel? [send] ", "")
        code, shown = terminal.end()
    assert code == 0
    before, _, answered = shown.rpartition("[send] ")
    assert "\x1b" not in shown
    assert "https://evil" not in before
    assert before.count("https:// evil.example") == 7
    assert "https://evil.example/default" in answered  # which is what was sent


# ---------------------------------------------------------------- progress


def test_progress_is_one_line_that_is_drawn_anew_and_taken_away() -> None:
    with PseudoTerminal(EXAMPLES, "call", "travel.py", "compare", piped=True) as terminal:
        code, shown = terminal.end()
        assert terminal.output() == "EC 171 costs 38 euros\n"
    first = "[##########..........]  50%  asking for Paris to Lyon"
    last = "[####################] 100%  asking for Berlin to Prague"
    blank = [" " * len(first), " " * len(last)]
    assert (code, shown) == (0, f"\r{first}\r{blank[0]}\r\r{last}\r{blank[1]}\r")


def test_progress_is_not_drawn_where_nobody_looks() -> None:
    done = command(EXAMPLES, "call", "travel.py", "compare")
    assert (done.returncode, done.stdout, done.stderr) == (0, "EC 171 costs 38 euros\n", "")


def test_words_of_a_result_cannot_act_on_the_terminal(server_folder: Path) -> None:
    with PseudoTerminal(server_folder, "call", "hostile.py", "look", "path=x") as terminal:
        assert terminal.end() == (0, "\\x1b[2Jgone\n")


def test_bytes_are_not_shown_at_a_terminal() -> None:
    with PseudoTerminal(EXAMPLES, "read", "notes.py", "backup://notes.zip") as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert shown.startswith("[file application/zip backup://notes.zip, ")
    assert shown.endswith(" bytes; --out DIR saves it]\n")


# ---------------------------------------------------------------- interrupts


def test_an_interrupt_ends_a_call_and_the_server(server_folder: Path) -> None:
    with PseudoTerminal(server_folder, "call", "server.py", "wait", piped=True) as terminal:
        terminal.until("one \\x1b[2Jquarter")
        children = _children(terminal.process.pid)
        assert children
        terminal.type(INTERRUPT)
        code, shown = terminal.end()
    assert code == 130
    assert "Traceback" not in shown
    assert [pid for pid in children if _is_alive(pid)] == []


def test_an_interrupt_ends_a_question(server_folder: Path) -> None:
    with PseudoTerminal(EXAMPLES, *BOOK) as terminal:
        terminal.until("car (integer): ")
        terminal.type(INTERRUPT)
        code, shown = terminal.end()
    assert code == 130
    assert "Traceback" not in shown


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else [pid]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
