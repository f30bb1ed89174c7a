"""A person is asked whether a configuration may be used, with all that it wants in front of them.

Rules: what is shown is whole, and acts on no terminal: nothing is cut, and nothing is left out.
Nobody is asked where nobody sits, and no answer is no.
"""

import sys

from colonnade.cli.screen import Screen
from colonnade.cli.text import clean
from colonnade.host.trust import TrustQuestion

WARNING = (
    "This is dangerous if you do not know who wrote it: it runs code on this machine, with the "
    "same rights as you have."
)
_WORDS = {
    "run": "starts",
    "in": "in the folder",
    "reach": "speaks to",
    "set": "with the variable",
    "send": "with the header",
    "read": "with variables of",
    "ask": "asks the program",
}


def wanted(question: TrustQuestion) -> str:
    """All that a file wants, as text."""
    lines: list[str] = []
    server = None
    for wish in question.wishes:
        if wish.server != server:
            server = wish.server
            lines.append(f"  {server}")
        lines.append(f"    {_WORDS[wish.what]}: {wish.text}")
        lines += [f"      ! {danger}" for danger in wish.dangers]
    return "".join(f"{line}\n" for line in lines)


def ask_trust(question: TrustQuestion) -> bool:
    """Show it to whoever sits here, and ask; no, where nobody does."""
    screen = Screen()
    if not screen.can_ask:
        return False
    why = "has changed since it was trusted" if question.changed else "was never trusted here"
    screen.note(f"{clean(question.file)} {why}. It wants this:\n{wanted(question)}")
    screen.note(f"{screen.emphasis(WARNING)}\nTrust it? [y/N] ")
    answer = sys.stdin.readline().strip().lower()
    return answer in ("y", "yes")
