"""The pictures of docs/approvals.md: a person at a terminal (tmux), and what the screen shows.

    python tests/support/cli/inbox_pictures.py docs

A host runs in one window, `colonnade inbox watch` in another. What is typed is sent as keys.

Rules: every wait is for something that the screen shows, and has an end. The screens are pictures as
they are; nothing is written by hand.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pictures import picture

WAIT_S = 60.0
COLUMNS, LINES = 98, 60

SHOP = """
import asyncio

from colonnade import Context, Host, Inbox, Policy, Refused, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings

shop = Server("shop")


@shop.tool
def order(fruit: str, count: int) -> str:
    "Order fruit."
    return f"ordered {count} {fruit}"


@shop.tool
async def slogan(ctx: Context) -> str:
    "Let the model write a slogan."
    return (await ctx.sample("Write a slogan for plums.", max_tokens=50)).text


def model(request):
    return "Plums: " + request.params.messages[0].content.text


async def main():
    servers = {"shop": entry_of("shop", shop, Settings(sampling=True))}
    inbox = Inbox(socket=True)
    async with Host(servers, policy=Policy(), inbox=inbox, on_input_request=model) as host:
        for name, arguments in (
            ("shop__order", {"fruit": "plum", "count": 3}),
            ("shop__order", {"fruit": "plum\\u200b", "count": 300}),
            ("shop__slogan", {}),
        ):
            try:
                print((await host.call_tool(name, arguments)).text, flush=True)
            except Refused as refused:
                print("refused:", refused, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
"""


class Window:
    """A terminal of tmux, in a server of its own."""

    def __init__(self, socket: Path, name: str, folder: Path, env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(socket)]
        self._name = name
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        shell = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), "sh"]
        self._run("new-session", "-d", "-s", name, *size, "-c", str(folder), *shell)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, text=True, timeout=WAIT_S
        )
        return done.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self._run("send-keys", "-t", self._name, "-l", text)
        self._run("send-keys", "-t", self._name, "Enter")

    def press(self, key: str) -> None:
        """Press a key."""
        self._run("send-keys", "-t", self._name, key)

    def screen(self) -> str:
        """What it shows."""
        return self._run("capture-pane", "-p", "-t", self._name).rstrip()

    def until(self, words: str, times: int = 1) -> str:
        """Wait until the screen has these words so many times."""
        end = time.monotonic() + WAIT_S
        while (shown := self.screen()).count(words) < times:
            assert time.monotonic() < end, f"no {words!r} in:\n{shown}"
            time.sleep(0.05)
        return shown

    def until_prompt(self) -> str:
        """Wait until the command has ended."""
        end = time.monotonic() + WAIT_S
        while not (shown := self.screen()).endswith("$"):
            assert time.monotonic() < end, f"no prompt in:\n{shown}"
            time.sleep(0.05)
        return shown

    def clear(self) -> None:
        """Clear the screen."""
        self._run("send-keys", "-t", self._name, "-R", "")
        self._run("clear-history", "-t", self._name)


def take_pictures(target: Path) -> None:
    """Make the pictures."""
    with TemporaryDirectory(prefix="cn-") as made:
        folder = Path(made) / "shop"
        folder.mkdir()
        (folder / "shop.py").write_text(SHOP, "utf-8")
        bin_folder = Path(sys.executable).parent
        env = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "HOME": made,
            "COLONNADE_HOME": str(Path(made) / "state"),
            "PS1": "$ ",
            "TERM": "screen",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        socket = folder / "tmux"
        host = Window(socket, "host", folder, env)
        person = Window(socket, "person", folder, env)
        try:
            _photograph(host, person, target)
        finally:
            subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False)


CALL_IT = "call it? yes, no, session, project, always or ? [no]"
SEND_IT = "send it to the model? yes, no or edit [no]"
SEND_THIS = "send this to shop (for shop__slogan)? yes, no or edit [no]"


def _photograph(host: Window, person: Window, target: Path) -> None:
    person.until_prompt()
    host.type(f"{sys.executable} shop.py")
    person.type("colonnade inbox watch")
    person.until(CALL_IT)
    person.type("yes")
    person.until(CALL_IT, 2)
    person.type("no")
    shown = person.until(CALL_IT, 3)
    _save(target / "approve.svg", shown.rpartition("-> shop__slogan")[0])
    person.clear()
    person.type("project")
    person.until(SEND_IT)
    person.type("edit")
    person.until("Enter when done:")
    person.type("2")
    person.until("user (Enter keeps it):")
    person.type("Write a short slogan for plums.")
    person.until("Enter when done:", 2)
    person.type("")
    person.until(SEND_IT, 2)
    person.type("yes")
    person.until(SEND_THIS)
    person.type("yes")
    shown = person.until("accepted", 3)
    began = shown.index("shop (for shop__slogan) requests sampling")
    _save(target / "sampling.svg", f"$ colonnade inbox watch\n…\n{shown[began:]}")
    assert "Plums: Write a short slogan for plums." in host.until("short slogan")
    assert "refused: the user denied it" in host.screen()
    person.press("C-d")
    person.until_prompt()
    person.clear()
    person.type("colonnade policy ls")
    rule = person.until_prompt().splitlines()
    id = next(line for line in rule if "allow" in line).split()[0]
    person.type(f"colonnade policy forget {id}")
    person.until_prompt()
    person.type("colonnade policy ls")
    shown = person.until_prompt()
    assert "no decisions are remembered" in shown
    lines = shown.splitlines()
    first = next(n for n, line in enumerate(lines) if "allow" in line)
    # The folder of this run is not one to show.
    text = re.sub(r"/\S*/cn-\w+/", "/srv/", "\n".join(lines[first:]))
    _save(target / "remembered.svg", f"$ colonnade policy ls\n{text}")


def _save(path: Path, shown: str) -> None:
    lines = shown.strip().splitlines()
    while lines and lines[-1].strip() == "$":
        lines.pop()
    command = lines[0].removeprefix("$ ")
    path.write_text(picture(command, "\n".join(lines[1:])), "utf-8")


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
