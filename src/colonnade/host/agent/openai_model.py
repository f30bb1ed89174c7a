"""A model behind an endpoint that speaks Chat Completions: OpenAI's, or one of the many like it.

    url = "https://api.openai.com/v1"
    model = OpenAICompatible(url, model="gpt-5-mini", key_env="OPENAI_API_KEY")
    run = await host.run(model, "Is it warm in Oslo?")

Rules: https, or plain http to this machine. The key is sent to that one address and shown to
nobody: no error, log line or printed value has it, and no redirect is followed. Every wait and
every size has a bound. What is sent again is only what was not taken, where the endpoint says so
(429, 503).
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from colonnade.auth.urls import require_https
from colonnade.errors import (
    AuthError,
    InvalidArgument,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.tool_calls import (
    ContentPart,
    ImagePart,
    as_object,
    content_parts,
    part_as_text,
    safe_name,
)
from colonnade.transport.http_client.pool import HttpPool, default_tls

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
    found, reason = as_object(given, REPLY), ""
    if "choices" in found:
        choices: object = found["choices"]
        if not isinstance(choices, list) or not choices:
            raise RemoteProtocolError(
                "the model's answer has no choice in it, so there is no reply"
            )
        choice = as_object(cast("list[object]", choices)[0], "choice of a completion")
        reason = str(choice.get("finish_reason") or "")
        found = as_object(choice.get("message"), REPLY)
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
        found = as_object(one, "call of a tool")
        function = as_object(found.get("function") or {}, "call of a tool")
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
    return [as_object(one, "message of a conversation") for one in messages]


def shorten(text: str, most: int) -> str:
    """A text that is not longer than so many characters, and says what is missing."""
    if len(text) <= most:
        return text
    left = len(text) - most
    return f"{text[:most]}\n[cut here: {left} more characters are left out; ask for less of it]"


def seen(part: ContentPart, most: int) -> dict[str, Any]:
    """A part of what a user says: a picture is shown, all else is said, in so many characters."""
    if isinstance(part, ImagePart):
        url = f"data:{part.mime_type};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": shorten(part_as_text(part), most)}


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


# Of one part of what a server says, as of a result.
MAX_CHARACTERS: Final = 50_000
# Why a model stopped, in the words of the protocol.
REASONS: Final = {"stop": "endTurn", "length": "maxTokens"}


def asked_of_model(params: t.CreateMessageRequestParams, length: str) -> dict[str, Any]:
    """The members of a request. `length` is what the endpoint calls the bound of an answer."""
    messages: list[Message] = []
    if params.system_prompt:
        messages.append({"role": "system", "content": params.system_prompt})
    messages += [_message(one) for one in params.messages]
    asked: dict[str, Any] = {"messages": messages, length: params.max_tokens}
    if params.temperature is not None:
        asked["temperature"] = params.temperature
    if params.stop_sequences:
        asked["stop"] = params.stop_sequences
    return asked


def _message(one: t.SamplingMessage) -> Message:
    blocks: list[Any] = one.content if isinstance(one.content, list) else [one.content]
    found = content_parts(blocks, UNSET)
    if one.role != "user" or not any(isinstance(part, ImagePart) for part in found):
        return {"role": one.role, "content": "\n".join(map(part_as_text, found))}
    return {"role": one.role, "content": [seen(part, MAX_CHARACTERS) for part in found]}


def said_by_model(completion: Mapping[str, Any], model: str) -> t.CreateMessageResult:
    """The answer to a server. Raises `RemoteProtocolError` where a model did not just speak."""
    message, reason = read_reply(completion)
    if message.get("tool_calls"):
        raise RemoteProtocolError("the model wants tools called, and was offered none")
    return t.CreateMessageResult(
        role="assistant",
        content=t.TextContent(text=words_of(message)),
        model=str(completion.get("model") or model),
        stop_reason=REASONS.get(reason, reason or None),
    )


log: logging.Logger = logging.getLogger("colonnade.host")

PATH: Final = "/chat/completions"

# A large model thinks for minutes before it says its first word.
TIMEOUT_S: Final = 300.0
# Far more than any model writes.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
# An endpoint that takes nothing now is asked again so often, and waited for so long each time.
MAX_TRIES: Final = 4
MAX_PAUSE_S: Final = 30.0
FIRST_PAUSE_S: Final = 1.0
# What an endpoint says with an error, in characters.
MAX_SAID: Final = 500

# What bounds an answer. OpenAI has another word for it by now, which others do not know.
LENGTH: Final = "max_tokens"
NEW_LENGTH: Final = "max_completion_tokens"
NEW_HOSTS: Final = frozenset({"api.openai.com"})

BUSY: Final = frozenset({429, 503})
FORBIDDEN: Final = frozenset({401, 403})
# Too short to be a secret, or to be looked for in words.
MIN_KEY: Final = 4


class KeyRefused(AuthError):
    """The endpoint of a model does not take the key. No MCP server has to do with it."""


class OpenAICompatible:
    """A model at an endpoint. It is a function of (messages, tools), as `host.run` wants.

    - `url` is the base (`https://api.openai.com/v1`, `http://127.0.0.1:11434/v1`).
    - `key`, or `key_env` for the variable that has it; neither, where the endpoint wants none.
    - `options` are further members of each request, such as `{"temperature": 0}`.

    Calling it raises `KeyRefused` (401, 403; an `AuthError`), `RemoteError` for any other refusal,
    `ChannelError` where nothing was answered. One that is busy (429, 503) is asked again after a
    wait, which is logged as a warning of `colonnade.host`.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key: str | None = None,
        key_env: str | None = None,
        timeout_s: float = TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if key is not None and key_env is not None:
            raise InvalidArgument("give key= or key_env=, not both")
        if key_env is not None:
            key = os.environ.get(key_env, "").strip()
            if not key:
                raise InvalidArgument(
                    f"the environment has no {key_env}, where the key should be", argument="key_env"
                )
        if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
            raise InvalidArgument("the key has characters that no header can carry", argument="key")
        self.url: str = _endpoint(url)
        self.model: str = model
        self.timeout_s: float = timeout_s
        self._key = key
        self._options = dict(options or {})
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.url.removesuffix(PATH)!r}, model={self.model!r})"

    async def __call__(
        self, messages: list[Message], tools: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """The whole completion."""
        asked: dict[str, Any] = {"messages": messages}
        if tools:  # an empty list is refused
            asked["tools"] = tools
        return await self.ask(asked)

    async def sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Answer a sampling request: for `on_input_request` of a host or `on_sample` of a client. A
        person should approve it before and after."""
        length = NEW_LENGTH if urlsplit(self.url).hostname in NEW_HOSTS else LENGTH
        return said_by_model(await self.ask(asked_of_model(params, length)), self.model)

    async def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One request with these members, and the whole answer to it."""
        body = encode({"model": self.model, **self._options, **asked})
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._ask(body)
        except TimeoutError:
            words = f"{self._where} did not answer within {self.timeout_s:g} s"
            raise TimedOut(words) from None

    @property
    def _where(self) -> str:
        return f"the model {self.model!r} at {urlsplit(self.url).netloc}"

    async def _ask(self, body: bytes) -> dict[str, Any]:
        headers = [("content-type", "application/json"), ("accept", "application/json")]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        if self._tls is None and self.url.startswith("https:"):
            self._tls = default_tls()
        pool = HttpPool(context=self._tls)  # one a request: replies are seconds apart
        try:
            for tried in range(1, MAX_TRIES + 1):
                async with await pool.send("POST", self.url, headers, body) as answer:
                    data = await answer.whole(MAX_ANSWER_BYTES)
                if answer.status == 200:
                    return self._read(data)
                wait_s = pause(answer.status, answer.header("retry-after"), tried, time())
                if wait_s is None:
                    raise self._refusal(answer.status, data)
                words = "%s answered %d; it is asked again in %g s (%d of %d tries)"
                log.warning(words, self._where, answer.status, wait_s, tried, MAX_TRIES)
                await asyncio.sleep(wait_s)
            raise AssertionError("the last try has no pause")
        finally:
            await pool.close()

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            found: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        if not isinstance(found, dict) or "choices" not in found:
            raise RemoteProtocolError(
                f"{self._where} answered with no completion; is its URL right?"
            )
        return cast("dict[str, Any]", found)

    def _refusal(self, status: int, data: bytes) -> AuthError | RemoteError:
        said = self._said(data)
        if status in FORBIDDEN:
            missing = "" if self._key else "; no key was given"
            error = KeyRefused(f"{self._where} does not take the key ({status}){missing}{said}")
            error.status = status
            return error
        hint = "; is its URL right?" if 300 <= status < 400 or status == 404 else ""
        refused = RemoteError(status, f"{self._where} refused the request{hint}{said}")
        refused.status = status
        return refused

    def _said(self, data: bytes) -> str:
        """What an endpoint says with an error, without our key."""
        text = _words(data)
        if self._key and len(self._key) >= MIN_KEY:
            text = text.replace(self._key, "…")
        return f": {text[:MAX_SAID]}" if text else ""


def _endpoint(url: str) -> str:
    """The address of the interface. Raises `LocalProtocolError` for one that must not be used."""
    try:
        require_https(url, "the URL of the model")
    except AuthError as error:
        raise InvalidArgument(str(error)) from None
    if "?" in url or "#" in url:
        raise InvalidArgument("the URL of the model ends where its path ends")
    return url.rstrip("/").removesuffix(PATH) + PATH


def pause(status: int, retry_after: str | None, tried: int, now: float) -> float | None:
    """How long to wait before the request is sent again; None where it is not.

    `retry_after` is a number of seconds, or a date (RFC 9110, 10.2.3).
    """
    if status not in BUSY or tried >= MAX_TRIES:
        return None
    usual = FIRST_PAUSE_S * 2 ** (tried - 1)
    if retry_after is None:
        return usual
    if retry_after.isdecimal():
        wait_s = float(retry_after[:9])
    else:
        try:
            wait_s = parsedate_to_datetime(retry_after).timestamp() - now
        except (ValueError, OverflowError, TypeError):
            return usual
    return max(wait_s, 0.0) if wait_s <= MAX_PAUSE_S else None


def _words(data: bytes) -> str:
    """The words in the body of an error, in one line."""
    try:
        found: Any = msgspec.json.decode(data)
        error: Any = found.get("error", found)
        said: Any = error if isinstance(error, str) else error.get("message", "")
    except (msgspec.DecodeError, UnicodeError, RecursionError, AttributeError):
        return ""  # a page of a proxy, most likely
    return " ".join(str(said).split())
