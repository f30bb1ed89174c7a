"""The pictures of docs/approvals.md show what the commands print today.

`python tests/support/cli/inbox_pictures.py docs` makes them anew, with tmux.
"""

import inspect
from pathlib import Path

import pytest

from cli.inbox_pictures import CALL_IT, SEND_IT, SEND_THIS
from colonnade.cli import inbox_prompt, remembered_rules
from colonnade.cli.commands import policy
from pictures import said

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("approve.svg", [CALL_IT, "changed since the last approval:", "asked by the default"]),
        ("sampling.svg", [SEND_IT, SEND_THIS, "edit which? a number, or Enter when done:"]),
        ("remembered.svg", ["forgotten: ", "no decisions are remembered"]),
    ],
)
def test_a_picture_shows_the_words_of_today(name: str, words: list[str]) -> None:
    shown = "\n".join(said((DOCS / name).read_text("utf-8")))
    source = "".join(map(inspect.getsource, (inbox_prompt, remembered_rules, policy)))
    for one in words:
        assert one in shown
    # Of prompts whose middle is made of names, the end.
    for one in (CALL_IT, SEND_IT, SEND_THIS):
        assert one.rpartition("? ")[2] in source


def test_the_page_shows_every_picture_and_each_has_a_description() -> None:
    page = (DOCS / "approvals.md").read_text("utf-8")
    for name in ("approve.svg", "sampling.svg", "remembered.svg"):
        assert page.count(f"]({name})") == 1
        assert f"![]({name})" not in page
