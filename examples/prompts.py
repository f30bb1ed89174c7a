"""Prompts: typed arguments, several messages, images and embedded resources, completion.

Run it with `python examples/prompts.py` (stdio) or `colonnade serve examples/prompts.py` (HTTP).
"""

from enum import Enum
from typing import Literal

from colonnade import File, Message, Server

server = Server("editor", version="1.0", instructions="Prompts for people who write and review.")

GUIDES = {
    "python": "Names are nouns and verbs. A function fits on a screen.",
    "go": "Handle every error where it happens. Accept interfaces, return structs.",
}
TEAMS = {"docs": ["ada", "alan", "barbara"], "core": ["grace", "guido"]}


class Tone(Enum):
    FRIENDLY = "friendly"
    PLAIN = "plain"


@server.prompt(title="Review code")
def review(code: str, language: Literal["python", "go"] = "python") -> list[Message]:
    """Ask for a review, with the house rules of the language at hand.

    Args:
        code: What is to be reviewed.
        language: What it is written in.
    """
    rules = File(GUIDES[language], uri=f"guide://{language}", mime_type="text/plain")
    return [
        Message(["Review this by our rules, worst problem first.", rules]),
        Message(f"```{language}\n{code}\n```"),
        Message("The worst problem is", role="assistant"),
    ]


@server.prompt
def shorten(text: str, words: int = 50, keep_names: bool = True) -> str:
    """Ask for a shorter text. Arguments are sent as strings and decoded to their types."""
    names = "Keep every name." if keep_names else "Names may go."
    return f"Say this in at most {words} words. {names}\n\n{text}"


@server.prompt
def invite(team: Literal["docs", "core"], person: str, tone: Tone = Tone.FRIENDLY) -> str:
    """Ask for an invitation to a meeting."""
    return f"Write a {tone.value} invitation for {person} of the {team} team."


# `team`, `tone`, `language` and `keep_names` are completed from their types.
@server.completion(invite, "person")
def people(prefix: str, team: str = "") -> list[str]:
    everyone = TEAMS.get(team) or [name for members in TEAMS.values() for name in members]
    return [name for name in everyone if name.startswith(prefix)]


if __name__ == "__main__":
    server.run()
