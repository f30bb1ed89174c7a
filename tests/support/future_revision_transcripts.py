"""The golden transcripts, run in the sixth revision: `pytest -p future_revision` with this file.

Rules: `tests/test_future_revision.py` runs this; without the plugin there are only five.
"""

import re

import pytest

from colonnade.protocol.revision import ALL, JULY_2026
from future_revision import SIXTH
from script import Script
from test_transcripts import SCRIPTS, golden, run_script

DATE = re.compile(r"20\d\d-\d\d-\d\d")
# A script that writes a date out is about that revision, and would be written anew by hand.
REPLAYED = [
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


@pytest.mark.parametrize("script", REPLAYED, ids=lambda script: script.name)
def test_a_conversation_goes_as_in_the_newest_but_for_what_was_changed(script: Script) -> None:
    assert ALL[-1] is SIXTH
    text, _ = run_script(script, SIXTH)
    known = undated(golden(script, JULY_2026).read_text("utf-8"))
    text_lines = undated(text)
    assert len(text_lines) == len(known)
    for mine, theirs in zip(text_lines, known, strict=True):
        assert mine == theirs or any(word in mine for word in OTHERWISE)
