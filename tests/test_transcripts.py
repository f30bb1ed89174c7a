"""Golden conversations: each script of `transcripts/scripts`, played in each revision that it is for.

    pytest tests/test_transcripts.py --rewrite-transcripts

writes what comes of them; what was written is then read by a person before it is kept.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import official
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, Revision
from http_script_runner import HttpScriptRunner
from official_lines import complaints
from script import Script, parse
from script_actions import ScriptActions
from script_runner import ARROWS, Message, ScriptRunner

FOLDER = Path(__file__).resolve().parent / "transcripts"
VALUES: dict[str, Any] = json.loads((FOLDER / "values.json").read_text("utf-8"))
SCRIPTS = [
    parse(path.stem, path.read_text("utf-8")) for path in sorted((FOLDER / "scripts").glob("*.txt"))
]
RUNS = [(script, revision) for script in SCRIPTS for revision in ALL if script.holds_in(revision)]
DECISIONS = [f"D{number}" for number in range(1, 36)]

by_script = pytest.mark.parametrize(
    ("script", "tested_revision"), RUNS, ids=[f"{script.name}-{date.date}" for script, date in RUNS]
)
by_revision = pytest.mark.parametrize(
    "tested_revision", ALL, ids=[revision.date for revision in ALL]
)


def golden(script: Script, revision: Revision) -> Path:
    return FOLDER / revision.date / f"{script.name}.txt"


@cache
def run_script(script: Script, revision: Revision) -> tuple[str, list[Message]]:
    """The text of a conversation, and the messages of ours in it."""
    if not script.ours:
        http = HttpScriptRunner(script, revision, VALUES)
        return http.run(), http.emitted
    runner = ScriptRunner(script, revision, VALUES)
    return runner.run(ScriptActions(runner).act), runner.emitted


@by_script
def test_a_conversation_is_what_it_was_when_it_was_read(
    script: Script, tested_revision: Revision, rewrite_transcripts: bool
) -> None:
    text, _ = run_script(script, tested_revision)
    path = golden(script, tested_revision)
    if rewrite_transcripts:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@by_script
def test_every_message_of_ours_is_one_that_the_official_schema_allows(
    script: Script, tested_revision: Revision
) -> None:
    if not official.available():
        print(f"no official schemas at {official.ROOT}: only the golden text was compared")
        return
    _, messages = run_script(script, tested_revision)
    for message in messages:
        assert complaints(message) == [], message.members


def test_a_member_that_a_revision_does_not_know_is_complained_of() -> None:
    if not official.available():
        print(f"no official schemas at {official.ROOT}: nothing can be complained of")
        return
    tool = {"name": "forecast", "title": "Forecast", "inputSchema": {"type": "object"}}
    members = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}
    found = {
        revision.date: complaints(Message(Side.SERVER, members, revision, "tools/list"))
        for revision in ALL
        if revision.handshake
    }
    assert [date for date, words in found.items() if words] == ["2024-11-05", "2025-03-26"]
    assert any("title" in words for words in found["2024-11-05"])


def test_there_is_a_golden_file_for_every_script_and_no_other() -> None:
    found = {path for revision in ALL for path in (FOLDER / revision.date).glob("*")}
    assert found == {golden(script, revision) for script, revision in RUNS}


def test_every_decision_is_shown_or_carried_by_a_part_that_the_readme_names() -> None:
    shown = {name for script in SCRIPTS for name in re.findall(r"\bD\d+\b", " ".join(script.words))}
    readme = (FOLDER / "README.md").read_text("utf-8")
    carried = set(re.findall(r"^\| (D\d+) \| `", readme, re.MULTILINE))
    assert shown | carried == set(DECISIONS)
    assert not shown & carried


def said_in(revision: Revision) -> set[tuple[Side, str]]:
    """The methods in the golden files of a revision, each with the side that said it."""
    found: set[tuple[Side, str]] = set()
    for script, tested_revision in RUNS:
        if tested_revision is revision and script.ours:
            for line in golden(script, revision).read_text("utf-8").splitlines():
                for side, arrow in ARROWS.items():
                    if line.startswith(arrow):
                        names = re.findall(r'"method":"([^"]+)"', line)
                        found |= {(side, name) for name in names}
    return found


@by_revision
def test_every_method_is_said_in_each_revision_by_each_side_that_may_say_it(
    tested_revision: Revision,
) -> None:
    rows = [*tested_revision.methods.values()]
    rows += [row for extension in tested_revision.extensions.values() for row in extension.values()]
    wanted = {(side, row.name) for row in rows for side in row.senders}
    assert wanted - said_in(tested_revision) == set()


def test_every_value_has_a_use() -> None:
    texts = [" ".join(script.steps) for script in SCRIPTS]
    always = {"client-info", "server-info", "client-can", "server-can"}
    unused = {
        name
        for name in VALUES.keys() - always
        if not any(re.search(rf"(?<![\w-]){name}(?![\w-])", text) for text in texts)
    }
    assert unused == set()
