"""The prompts example: typed arguments, messages of several kinds, completions."""

from typing import Any

import pytest

from colonnade.protocol.revision import Revision
from examples.example_client import ExampleClient, Rejected, run_example


def prompt(client: ExampleClient, name: str, **arguments: str) -> list[dict[str, Any]]:
    return client.ask("prompts/get", {"name": name, "arguments": arguments})["messages"]


def complete(
    client: ExampleClient,
    name: str,
    argument: str,
    value: str,
    context: dict[str, str] | None = None,
) -> list[str]:
    params: dict[str, Any] = {
        "ref": {"type": "ref/prompt", "name": name},
        "argument": {"name": argument, "value": value},
    }
    if context is not None:
        params["context"] = {"arguments": context}
    return client.ask("completion/complete", params)["completion"]["values"]


def test_prompts_have_messages_and_arguments_that_arrive_as_what_they_are(
    revision: Revision,
) -> None:
    with run_example("prompts.py", revision) as client:
        listed = client.ask("prompts/list")["prompts"]
        assert [one["name"] for one in listed] == ["review", "shorten", "invite"]
        assert [one["required"] for one in listed[0]["arguments"]] == [True, False]
        words, guide, code, begun = prompt(client, "review", code="x = 1")
        assert words["content"]["text"].startswith("Review this")
        assert guide["content"]["resource"]["uri"] == "guide://python"
        assert code["content"]["text"] == "```python\nx = 1\n```"
        assert begun["role"] == "assistant"
        (short,) = prompt(client, "shorten", text="Long.", words="7", keep_names="false")
        assert short["content"]["text"] == "Say this in at most 7 words. Names may go.\n\nLong."
        with pytest.raises(Rejected, match=r"-32602.*words"):
            prompt(client, "shorten", text="Long.", words="few")
        with pytest.raises(Rejected, match=r"-32602.*code"):
            prompt(client, "review")


def test_arguments_complete_by_their_types_or_by_what_was_filled_in(revision: Revision) -> None:
    with run_example("prompts.py", revision) as client:
        assert complete(client, "review", "language", "p") == ["python"]
        assert complete(client, "shorten", "keep_names", "f") == ["false"]
        assert complete(client, "invite", "tone", "") == ["friendly", "plain"]
        assert complete(client, "invite", "person", "g") == ["grace", "guido"]
        if revision.knows("2025-06-18", None):
            assert complete(client, "invite", "person", "", {"team": "core"}) == ["grace", "guido"]
            assert complete(client, "invite", "person", "a", {"team": "docs"}) == ["ada", "alan"]
