"""Golden conversations: each script of `transcripts/scripts`, played in each revision that it is for.

    pytest tests/test_transcripts.py --rewrite-transcripts

writes what comes of them; what was written is then read by a person before it is kept.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import official
from actors import Actors
from official_lines import complaints
from portico.protocol.methods import Side
from portico.protocol.revision import ALL, Revision
from stage import Script, Stage, parse

FOLDER = Path(__file__).resolve().parent / "transcripts"
VALUES: dict[str, Any] = json.loads((FOLDER / "values.json").read_text("utf-8"))
SCRIPTS = [
    parse(path.stem, path.read_text("utf-8")) for path in sorted((FOLDER / "scripts").glob("*.txt"))
]
PLAYS = [(script, revision) for script in SCRIPTS for revision in ALL if script.holds_in(revision)]

by_play = pytest.mark.parametrize(
    ("script", "played_in"), PLAYS, ids=[f"{script.name}-{date.date}" for script, date in PLAYS]
)


def play(script: Script, revision: Revision) -> Stage:
    stage = Stage(script, revision, VALUES)
    stage.play(Actors(stage).act)
    return stage


@by_play
def test_a_conversation_is_what_it_was_when_it_was_read(
    script: Script, played_in: Revision, rewrite_transcripts: bool
) -> None:
    golden = FOLDER / played_in.date / f"{script.name}.txt"
    stage = Stage(script, played_in, VALUES)
    text = stage.play(Actors(stage).act)
    if rewrite_transcripts:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@by_play
def test_every_message_of_ours_is_one_that_the_official_schema_allows(
    script: Script, played_in: Revision
) -> None:
    if not official.available():
        print(f"no official schemas at {official.ROOT}: only the golden text was compared")
        return
    for message in play(script, played_in).emitted:
        assert complaints(message) == [], message.members
