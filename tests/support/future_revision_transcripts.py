"""The golden conversations, played in the sixth revision: `pytest -p future_revision` with this very file.

Rules: `tests/test_future_revision.py` runs this; without the plugin there are only five.
"""

import re

import pytest

from colonnade.protocol.revision import ALL, JULY_2026
from future_revision import SIXTH
from script import Script
from test_transcripts import SCRIPTS, golden, play

DATE = re.compile(r"20\d\d-\d\d-\d\d")
# A script that writes a date out is about that revision, and would be written anew by hand.
PLAYS = [
    script
    for script in SCRIPTS
    if script.holds_in(SIXTH) and not any(DATE.search(step) for step in script.steps)
]
# What the sixth says otherwise.
OTHERWISE = ("structuredContent", "outputSchema")


def undated(text: str) -> list[str]:
    """The lines of a conversation, with the newest revisions as one."""
    newest = rf"{SIXTH.date}(\W{{1,4}}{JULY_2026.date})?|{JULY_2026.date}"
    return re.sub(newest, "newest", text).splitlines()


@pytest.mark.parametrize("script", PLAYS, ids=lambda script: script.name)
def test_a_conversation_goes_as_in_the_newest_but_for_what_was_changed(script: Script) -> None:
    assert ALL[-1] is SIXTH
    text, _ = play(script, SIXTH)
    known = undated(golden(script, JULY_2026).read_text("utf-8"))
    played = undated(text)
    assert len(played) == len(known)
    for mine, theirs in zip(played, known, strict=True):
        assert mine == theirs or any(word in mine for word in OTHERWISE)
