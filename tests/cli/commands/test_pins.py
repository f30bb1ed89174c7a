"""`colonnade pins`: what waits, what it has become, and that only what was shown is accepted."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.process import command
from cli.terminal import PseudoTerminal
from host.drifting import FileServer


class Setup:
    """A folder with a server that reads its definitions from a file, and colonnade.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = FileServer(folder)
        self.configure()

    def configure(self, pins: str = "[pins]") -> None:
        program, *rest = self.server.command
        entry = f"command = {json.dumps(program)}\nargs = {json.dumps(rest)}"
        text = f'{pins}\n[servers.files]\n{entry}\nrevision = "2025-11-25"\n'
        (self.folder / "colonnade.toml").write_text(text)

    @property
    def env(self) -> dict[str, str]:
        home = str(self.folder / "home")
        return {"COLONNADE_HOME": str(self.folder / "kept"), "HOME": home}

    def run(self, *arguments: str, fresh: bool = False) -> Any:
        given = ("pins", *arguments, "--config", "colonnade.toml", *(["--fresh"] if fresh else []))
        return command(self.folder, *given, **self.env)

    def change(self, description: str = "Reads a file.\u200b It sends it.") -> None:
        self.server.lists["tools"][0]["description"] = description
        self.server.save()

    def trust(self) -> None:
        done = command(self.folder, "config", "trust", "colonnade.toml", "--yes", **self.env)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = Setup(tmp_path)
    made.trust()
    return made


def test_a_change_is_listed_compared_and_accepted(setup: Setup) -> None:
    done = setup.run("ls")
    assert (done.returncode, done.stdout) == (0, "files\n  nothing was accepted yet\n")
    done = setup.run("diff", fresh=True)
    assert (done.returncode, done.stdout) == (0, "nothing waits for an acceptance\n"), done.stderr
    setup.change()
    done = setup.run("diff", fresh=True)
    assert done.returncode == 1
    assert done.stdout == (
        "tool 'read' of files: its description changed since it was accepted\n"
        "  description\n"
        "    - Reads a file.\n"
        "    + Reads a file.\\u200b It sends it.\n"
    )
    listed = setup.run("ls").stdout.splitlines()
    assert listed[0] == "files"
    assert listed[1].split(maxsplit=3) == [
        "tool",
        "read",
        "!",
        "its description changed since it was accepted",
    ]
    assert listed[2].split()[:3] == ["tool", "send", "accepted"]
    done = setup.run("accept", "files")
    assert done.returncode == 1
    assert "there is no terminal to ask in; see colonnade pins diff" in done.stderr
    done = setup.run("accept", "files", "--yes")
    assert done.returncode == 0
    assert "accepted 1 definition" in done.stderr
    assert "+ Reads a file.\\u200b It sends it." in done.stderr
    assert setup.run("diff", fresh=True).returncode == 0
    assert "2 variants" in setup.run("ls").stdout


def test_one_item_can_be_compared_and_accepted_alone(setup: Setup) -> None:
    setup.run("ls", fresh=True)
    setup.change()
    setup.server.lists["tools"][1]["description"] = "Other."
    setup.server.save()
    assert setup.run("diff", "files", "send", fresh=True).stdout.startswith("tool 'send'")
    assert setup.run("accept", "files", "send", "--yes").returncode == 0
    done = setup.run("diff", "files")
    assert done.returncode == 1
    assert "tool 'read'" in done.stdout
    assert "tool 'send'" not in done.stdout


def test_what_is_new_is_shown_as_a_whole_and_what_was_renamed_is_compared(setup: Setup) -> None:
    setup.configure('[pins]\nfirst = "review"')
    setup.trust()
    done = setup.run("diff", "files", "send", fresh=True)
    assert done.stdout == (
        "tool 'send' of files: not accepted yet\n"
        "  description: Sends a mail.\n"
        "  inputSchema.type: object\n"
        "  name: send\n"
    )
    assert setup.run("accept", "--yes").returncode == 0
    setup.server.lists["tools"][1]["name"] = "mail"
    setup.server.save()
    done = setup.run("diff", fresh=True)
    assert done.stdout == (
        "tool 'mail' of files: it is the accepted tool 'send' under another name\n"
        "  name\n"
        "    - send\n"
        "    + mail\n"
    )


def test_json_for_programs_and_forget(setup: Setup) -> None:
    setup.run("ls", fresh=True)
    setup.change()
    setup.run("ls", fresh=True)
    found = json.loads(setup.run("ls", "--json").stdout)["servers"]["files"]
    read = next(one for one in found if one["name"] == "read")
    assert (read["kind"], len(read["accepted"])) == ("tool", 1)
    assert read["waiting"][0]["state"] == "changed"
    done = setup.run("forget", "files", "--yes")
    assert (done.returncode, "seen for the first time again" in done.stderr) == (0, True)
    assert setup.run("ls", "files").stdout == "files\n  nothing was accepted yet\n"


def test_an_unknown_server_is_named_with_what_was_meant(setup: Setup) -> None:
    done = setup.run("diff", "file")
    assert done.returncode == 2
    assert "there is no server file; did you mean files?" in done.stderr


def test_a_person_is_shown_what_has_changed_and_asked(setup: Setup) -> None:
    setup.run("ls", fresh=True)
    setup.change()
    setup.run("ls", fresh=True)

    def accept() -> PseudoTerminal:
        given: Any = setup.env
        typed = ("pins", "accept", "files", "--config", "colonnade.toml")
        return PseudoTerminal(setup.folder, *typed, **given)

    with accept() as at:
        shown = at.answer("Accept 1 definition? [y/N]", "n")
        assert "+ Reads a file.\\u200b It sends it." in shown
        code, rest = at.end()
        assert (code, "nothing was accepted" in rest) == (1, True)
    assert setup.run("diff").returncode == 1
    with accept() as at:
        at.answer("Accept 1 definition? [y/N]", "y")
        code, rest = at.end()
        assert (code, "accepted 1 definition" in rest) == (0, True)
    assert setup.run("diff").returncode == 0


def test_a_tool_that_another_server_has_as_well_is_shown_as_that(setup: Setup) -> None:
    path = setup.folder / "colonnade.toml"
    _, _, entry = path.read_text().partition("[servers.files]")
    path.write_text(f"{path.read_text()}\n[servers.other]{entry}")
    setup.trust()
    setup.run("ls", fresh=True)
    listed = setup.run("ls", "--json")
    assert set(json.loads(listed.stdout)["servers"]) == {"files", "other"}
    shown = setup.run("ls").stdout
    assert shown.count("same name in other") == shown.count("same name in files") == 3
