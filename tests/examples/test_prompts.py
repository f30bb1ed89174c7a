"""The prompts example: typed arguments, messages of several kinds, completions."""

from typing import Any

import pytest

from colonnade.protocol.revision import Revision
from examples.example_client import Guest, Rejected, visit


def prompt(guest: Guest, name: str, **arguments: str) -> list[dict[str, Any]]:
    return guest.ask("prompts/get", {"name": name, "arguments": arguments})["messages"]


def complete(
    guest: Guest, name: str, argument: str, value: str, context: dict[str, str] | None = None
) -> list[str]:
    params: dict[str, Any] = {
        "ref": {"type": "ref/prompt", "name": name},
        "argument": {"name": argument, "value": value},
    }
    if context is not None:
        params["context"] = {"arguments": context}
    return guest.ask("completion/complete", params)["completion"]["values"]


def test_prompts_have_messages_and_arguments_that_arrive_as_what_they_are(
    revision: Revision,
) -> None:
    with visit("prompts.py", revision) as guest:
        listed = guest.ask("prompts/list")["prompts"]
        assert [one["name"] for one in listed] == ["review", "shorten", "invite"]
        assert [one["required"] for one in listed[0]["arguments"]] == [True, False]
        words, guide, code, begun = prompt(guest, "review", code="x = 1")
        assert words["content"]["text"].startswith("Review this")
        assert guide["content"]["resource"]["uri"] == "guide://python"
        assert code["content"]["text"] == "```python\nx = 1\n```"
        assert begun["role"] == "assistant"
        (short,) = prompt(guest, "shorten", text="Long.", words="7", keep_names="false")
        assert short["content"]["text"] == "Say this in at most 7 words. Names may go.\n\nLong."
        with pytest.raises(Rejected, match=r"-32602.*words"):
            prompt(guest, "shorten", text="Long.", words="few")
        with pytest.raises(Rejected, match=r"-32602.*code"):
            prompt(guest, "review")


def test_arguments_complete_by_their_types_or_by_what_was_filled_in(revision: Revision) -> None:
    with visit("prompts.py", revision) as guest:
        assert complete(guest, "review", "language", "p") == ["python"]
        assert complete(guest, "shorten", "keep_names", "f") == ["false"]
        assert complete(guest, "invite", "tone", "") == ["friendly", "plain"]
        assert complete(guest, "invite", "person", "g") == ["grace", "guido"]
        if revision.knows("2025-06-18", None):
            assert complete(guest, "invite", "person", "", {"team": "core"}) == ["grace", "guido"]
            assert complete(guest, "invite", "person", "a", {"team": "docs"}) == ["ada", "alan"]
