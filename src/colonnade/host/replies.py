"""What a model says, in the form of Chat Completions, made plain: its words, and its calls.

    message, reason = read_reply({"choices": [{"message": {"content": "Hi."}}]})

Rules: pure. What a model or its provider wrote may be anything: what can be read is kept as it
came, so that a provider gets back what it sent; what cannot is an error that says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from colonnade.errors import RemoteProtocolError
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.calls import plain
from colonnade.providers.content import Part, Picture, in_words
from colonnade.providers.names import safe_name

# A message of a conversation, as JSON has it.
Message: TypeAlias = dict[str, Any]

# Calls of one reply that are read; no model means more, and each is answered.
MAX_CALLS_OF_A_REPLY: Final = 256

REPLY: Final = "reply of a model (a message of Chat Completions, a whole completion, or words)"


def read_reply(given: object) -> tuple[Message, str]:
    """The message of a reply, with its calls as they are answered, and why the model stopped.

    A reply is words, a message, or a whole completion, as JSON or from OpenAI's own library.
    Raises `LocalProtocolError` or `RemoteProtocolError` for what is none of them.
    """
    if isinstance(given, str):
        return {"role": "assistant", "content": given}, ""
    found, reason = plain(given, REPLY), ""
    if "choices" in found:
        choices: object = found["choices"]
        if not isinstance(choices, list) or not choices:
            raise RemoteProtocolError(
                "the model's answer has no choice in it, so there is no reply"
            )
        choice = plain(cast("list[object]", choices)[0], "choice of a completion")
        reason = str(choice.get("finish_reason") or "")
        found = plain(choice.get("message"), REPLY)
    if "content" not in found and not found.get("tool_calls"):
        raise RemoteProtocolError("the model's reply has neither words nor calls in it")
    # A library fills in what was not there; null stands nowhere else but for words.
    message = {name: value for name, value in found.items() if value is not None}
    message |= {"role": "assistant", "content": found.get("content")}
    calls = _calls(found.get("tool_calls"))
    message.pop("tool_calls", None)
    return message | {"tool_calls": calls} if calls else message, reason


def _calls(given: object) -> list[dict[str, Any]]:
    """Calls as they are sent back: each with an id of its own, and arguments in a string."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise RemoteProtocolError("the model's tool_calls are no list")
    listed = list(cast("Sequence[object]", given))
    if len(listed) > MAX_CALLS_OF_A_REPLY:
        words = f"the model wants {len(listed)} calls at once; {MAX_CALLS_OF_A_REPLY} are the most"
        raise RemoteProtocolError(words)
    calls: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number, one in enumerate(listed):
        found = plain(one, "call of a tool")
        function = plain(found.get("function") or {}, "call of a tool")
        arguments: object = function.get("arguments")
        written = arguments if isinstance(arguments, str) else encode(arguments or {}).decode()
        id = found.get("id")
        if not isinstance(id, str) or not id or id in seen:  # some providers leave it out
            id = f"call_{number}"
            while id in seen:
                id += "_"
        seen.add(id)
        # A provider refuses a whole conversation for a name that its model made up.
        name = safe_name(str(function.get("name") or "nameless"))
        named = {"name": name, "arguments": written}
        calls.append({"id": id, "type": "function", "function": named})
    return calls


def words_of(message: Mapping[str, Any]) -> str:
    """The words of a message: its content, or the text in the parts of it."""
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    found = [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)]
    return "".join(str(part.get("text") or "") for part in found if part.get("type") == "text")


def conversation(messages: str | Iterable[object]) -> list[Message]:
    """Messages as plain objects; words alone are what a user says."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [plain(one, "message of a conversation") for one in messages]


def cut(text: str, most: int) -> str:
    """A text that is not longer than so many characters, and says what is missing."""
    if len(text) <= most:
        return text
    left = len(text) - most
    return f"{text[:most]}\n[cut here: {left} more characters are left out; ask for less of it]"


def seen(part: Part, most: int) -> dict[str, Any]:
    """A part of what a user says: a picture is shown, all else is said, in so many characters."""
    if isinstance(part, Picture):
        url = f"data:{part.mime_type};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": cut(in_words(part), most)}


def answered(messages: Iterable[Message], words: str) -> list[Message]:
    """The same conversation, where every call has an answer; these words, where it had none.

    A provider refuses a conversation with a call that nobody answered, and after an interruption
    there is one.
    """
    found: list[Message] = []
    waiting: list[str] = []

    def settle() -> None:
        found.extend({"role": "tool", "tool_call_id": id, "content": words} for id in waiting)
        waiting.clear()

    for message in messages:
        if message.get("role") == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
        else:
            settle()
        found.append(message)
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        waiting += [call["id"] for call in calls]
    settle()
    return found
