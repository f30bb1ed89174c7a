"""A model's words for a server that asks for them, as far as a person lets it have them.

What the server wants to say to the model is shown whole before it is said (R0096, R0097), and what
the model answered is shown before the server gets it (R0099).

Rules: with nobody to ask the answer is no. What a server or a model wrote cannot act on the
terminal, nor pose as ours.
"""

from typing import Any, Final, cast

from msgspec import UNSET

from colonnade.cli.consent import set_in
from colonnade.cli.screen import Screen
from colonnade.cli.talking import sentence
from colonnade.cli.text import clean, one_line
from colonnade.errors import ColonnadeError, Declined
from colonnade.host.models import OpenAICompatible
from colonnade.protocol import types as t
from colonnade.providers.content import in_words, parts

YES: Final = frozenset({"y", "yes"})


async def lend(
    model: OpenAICompatible, params: t.CreateMessageRequestParams, who: str, screen: Screen
) -> t.CreateMessageResult:
    """What the model says to a server, if a person agrees to the question and to the answer.
    Raises `Declined`."""
    if not screen.can_ask:
        screen.note(
            f"colonnade: {who} asks for the model's words, and nobody is here to allow it\n"
        )
        raise Declined("there is nobody to ask")
    screen.note(f"{screen.emphasis(f'{who} wants your model to answer this:')}\n")
    if params.system_prompt:
        screen.note(_set_in("system", params.system_prompt))
    for message in params.messages:
        given: Any = message.content
        blocks = cast("list[t.ContentBlock]", given if isinstance(given, list) else [given])
        screen.note(_set_in(message.role, "\n".join(map(in_words, parts(blocks, UNSET)))))
    screen.note(f"  (in {params.max_tokens} tokens at the most)\n")
    await _agree(screen, "  let it answer? yes or no [no] ")
    try:
        result = await model.sample(params)
    except ColonnadeError as error:
        screen.note(f"colonnade: {sentence(error)}\n")
        raise Declined("the model has no answer") from None
    assert isinstance(result.content, t.TextContent), "it was offered no tools"
    screen.note(_set_in("assistant", result.content.text))
    await _agree(screen, f"  send this to {who}? yes or no [no] ")
    return result


async def _agree(screen: Screen, words: str) -> None:
    if (await screen.ask(words) or "").lower() not in YES:
        raise Declined("the user said no")


def _set_in(role: str, text: str) -> str:
    """What somebody else wrote, set in, so that it cannot pose as a line of ours."""
    return f"  {one_line(role)}:\n{set_in(clean(text, lines=True).strip())}"
