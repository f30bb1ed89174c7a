"""A client for Chat Completions endpoints: OpenAI's, or a compatible one.

    url = "https://api.openai.com/v1"
    model = OpenAICompatible(url, model="gpt-5-mini", key_env="OPENAI_API_KEY")
    run = await host.run(model, "Is it warm in Oslo?")

Rules: https, or plain http to this machine. The API key is sent to that one URL: no error, log line
or repr has it, and no redirect is followed. Every wait and every size has a limit. A request is
sent again only if the endpoint says that it was not processed (429, 503).
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

# A Chat Completions message.
Message: TypeAlias = dict[str, Any]

# Tool calls of one reply; no model means more, and each needs a result.
MAX_CALLS_OF_A_REPLY: Final = 256

REPLY: Final = "reply of a model (a Chat Completions message, a completion, or a string)"


def read_reply(given: object) -> tuple[Message, str]:
    """The message of a reply, with normalised tool calls, and the finish reason.

    A reply is a string, a message, or a completion, as JSON or as an object of OpenAI's library.
    Raises `LocalProtocolError` or `RemoteProtocolError` for anything else.
    """
    if isinstance(given, str):
        return {"role": "assistant", "content": given}, ""
    reply, reason = as_object(given, REPLY), ""
    if "choices" in reply:
        choices: object = reply["choices"]
        if not isinstance(choices, list) or not choices:
            raise RemoteProtocolError("the completion has no choices")
        choice = as_object(cast("list[object]", choices)[0], "choice of a completion")
        reason = str(choice.get("finish_reason") or "")
        reply = as_object(choice.get("message"), REPLY)
    if "content" not in reply and not reply.get("tool_calls"):
        raise RemoteProtocolError("the model's reply has neither content nor tool calls")
    # OpenAI's library adds null for missing members; only `content` may be null.
    message = {name: value for name, value in reply.items() if value is not None}
    message |= {"role": "assistant", "content": reply.get("content")}
    calls = _calls(reply.get("tool_calls"))
    message.pop("tool_calls", None)
    return message | {"tool_calls": calls} if calls else message, reason


def _calls(given: object) -> list[dict[str, Any]]:
    """Tool calls as they are sent back: each with a unique id, and arguments in a string."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise RemoteProtocolError("the model's tool_calls are not a list")
    listed = list(cast("Sequence[object]", given))
    if len(listed) > MAX_CALLS_OF_A_REPLY:
        message = f"the model made {len(listed)} calls at once; the limit is {MAX_CALLS_OF_A_REPLY}"
        raise RemoteProtocolError(message)
    calls: list[dict[str, Any]] = []
    used_ids: set[str] = set()
    for number, one in enumerate(listed):
        found = as_object(one, "call of a tool")
        function = as_object(found.get("function") or {}, "call of a tool")
        arguments: object = function.get("arguments")
        written = arguments if isinstance(arguments, str) else encode(arguments or {}).decode()
        id = found.get("id")
        if not isinstance(id, str) or not id or id in used_ids:  # some providers leave it out
            id = f"call_{number}"
            while id in used_ids:
                id += "_"
        used_ids.add(id)
        # A provider rejects the whole conversation for an invalid name that its model made up.
        name = safe_name(str(function.get("name") or "nameless"))
        named = {"name": name, "arguments": written}
        calls.append({"id": id, "type": "function", "function": named})
    return calls


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message: its content, or the text parts of it."""
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    found = [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)]
    return "".join(str(part.get("text") or "") for part in found if part.get("type") == "text")


def conversation(messages: str | Iterable[object]) -> list[Message]:
    """Messages as plain objects; a string is a user message."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [as_object(one, "message of a conversation") for one in messages]


def shorten(text: str, most: int) -> str:
    """A text of at most `most` characters, with a note of how much is missing."""
    if len(text) <= most:
        return text
    left = len(text) - most
    return f"{text[:most]}\n[truncated: {left} more characters; request less of it]"


def user_part(part: ContentPart, most: int) -> dict[str, Any]:
    """A part of a user message: an image is sent as an image, anything else as text."""
    if isinstance(part, ImagePart):
        url = f"data:{part.mime_type};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": shorten(part_as_text(part), most)}


def with_tool_results(messages: Iterable[Message], text: str) -> list[Message]:
    """The conversation with a result for every tool call; this text, if there was none.

    A provider rejects a conversation with a tool call that has no result, which an interruption
    leaves behind.
    """
    result: list[Message] = []
    waiting: list[str] = []

    def settle() -> None:
        result.extend({"role": "tool", "tool_call_id": id, "content": text} for id in waiting)
        waiting.clear()

    for message in messages:
        if message.get("role") == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
        else:
            settle()
        result.append(message)
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        waiting += [call["id"] for call in calls]
    settle()
    return result


# Characters of one part of a message, as of a result.
MAX_CHARACTERS: Final = 50_000
# Finish reasons, and the stop reasons of MCP.
REASONS: Final = {"stop": "endTurn", "length": "maxTokens"}


def sampling_request(params: t.CreateMessageRequestParams, length: str) -> dict[str, Any]:
    """The members of a Chat Completions request for a sampling request. `length` is the name of the
    token limit."""
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
    return {"role": one.role, "content": [user_part(part, MAX_CHARACTERS) for part in found]}


def sampling_result(completion: Mapping[str, Any], model: str) -> t.CreateMessageResult:
    """The result of a sampling request. Raises `RemoteProtocolError` if the model made tool
    calls."""
    message, reason = read_reply(completion)
    if message.get("tool_calls"):
        raise RemoteProtocolError("the model made tool calls, although there are no tools")
    return t.CreateMessageResult(
        role="assistant",
        content=t.TextContent(text=text_of(message)),
        model=str(completion.get("model") or model),
        stop_reason=REASONS.get(reason, reason or None),
    )


log: logging.Logger = logging.getLogger("colonnade.host")

PATH: Final = "/chat/completions"

# A large model may take minutes.
TIMEOUT_S: Final = 300.0
# Far more than any model writes.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
# The attempts for an endpoint that is busy, and the longest delay before each.
MAX_ATTEMPTS: Final = 4
MAX_DELAY_S: Final = 30.0
FIRST_DELAY_S: Final = 1.0
# Characters of an endpoint's error message.
MAX_SAID: Final = 500

# The name of the token limit. OpenAI has a new one, which others do not know.
LENGTH: Final = "max_tokens"
NEW_LENGTH: Final = "max_completion_tokens"
NEW_HOSTS: Final = frozenset({"api.openai.com"})

BUSY: Final = frozenset({429, 503})
FORBIDDEN: Final = frozenset({401, 403})
# Too short to be a secret, and to be searched for in a text.
MIN_KEY: Final = 4


class KeyRefused(AuthError):
    """The endpoint of a model rejects the API key. It has nothing to do with an MCP server."""


class OpenAICompatible:
    """A model at a Chat Completions endpoint. It is a function of (messages, tools), as `host.run`
    takes.

    - `url` is the base URL (`https://api.openai.com/v1`, `http://127.0.0.1:11434/v1`).
    - `key` is the API key, or `key_env` the environment variable that has it; neither if the
      endpoint needs none.
    - `options` are further members of each request, such as `{"temperature": 0}`.

    Calling it raises `KeyRefused` (401, 403; an `AuthError`), `RemoteError` for any other error
    response, `ChannelError` if there is no response. A request to a busy endpoint (429, 503) is
    sent again after a delay, which is logged as a warning of `colonnade.host`.
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
                    f"the environment variable {key_env} is not set; it should have the API key"
                )
        if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
            raise InvalidArgument("the API key has characters that are not allowed in a header")
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
        """The completion."""
        asked: dict[str, Any] = {"messages": messages}
        if tools:  # an empty list is refused
            asked["tools"] = tools
        return await self.ask(asked)

    async def sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Answer a sampling request: for `on_input_request` of a host or `on_sample` of a client. A
        person should approve it before and after."""
        length = NEW_LENGTH if urlsplit(self.url).hostname in NEW_HOSTS else LENGTH
        return sampling_result(await self.ask(sampling_request(params, length)), self.model)

    async def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request with these members and return the response."""
        body = encode({"model": self.model, **self._options, **asked})
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._ask(body)
        except TimeoutError:
            message = f"{self._where} did not respond within {self.timeout_s:g} s"
            raise TimedOut(message) from None

    @property
    def _where(self) -> str:
        return f"the model {self.model!r} at {urlsplit(self.url).netloc}"

    async def _ask(self, body: bytes) -> dict[str, Any]:
        headers = [("content-type", "application/json"), ("accept", "application/json")]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        if self._tls is None and self.url.startswith("https:"):
            self._tls = default_tls()
        pool = HttpPool(context=self._tls)  # one for each request: they are seconds apart
        try:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                async with await pool.send("POST", self.url, headers, body) as answer:
                    data = await answer.read_all(MAX_ANSWER_BYTES)
                if answer.status == 200:
                    return self._read(data)
                wait_s = retry_delay(answer.status, answer.header("retry-after"), attempt, time())
                if wait_s is None:
                    raise self._refusal(answer.status, data)
                message = "%s responded with %d; trying again in %g s (attempt %d of %d)"
                log.warning(message, self._where, answer.status, wait_s, attempt, MAX_ATTEMPTS)
                await asyncio.sleep(wait_s)
            raise AssertionError("the last attempt has no delay")
        finally:
            await pool.close()

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            found: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        if not isinstance(found, dict) or "choices" not in found:
            raise RemoteProtocolError(
                f"{self._where} did not return a completion; is the URL right?"
            )
        return cast("dict[str, Any]", found)

    def _refusal(self, status: int, data: bytes) -> AuthError | RemoteError:
        detail = self._error_detail(data)
        if status in FORBIDDEN:
            missing = "" if self._key else "; no key was given"
            error = KeyRefused(f"{self._where} rejected the API key ({status}){missing}{detail}")
            error.status = status
            return error
        hint = "; is the URL right?" if 300 <= status < 400 or status == 404 else ""
        refused = RemoteError(status, f"{self._where} rejected the request{hint}{detail}")
        refused.status = status
        return refused

    def _error_detail(self, data: bytes) -> str:
        """The error message of an endpoint, without the API key."""
        text = _error_message(data)
        if self._key and len(self._key) >= MIN_KEY:
            text = text.replace(self._key, "…")
        return f": {text[:MAX_SAID]}" if text else ""


def _endpoint(url: str) -> str:
    """The URL of the endpoint. Raises `LocalProtocolError` for one that must not be used."""
    try:
        require_https(url, "the URL of the model")
    except AuthError as error:
        raise InvalidArgument(str(error)) from None
    if "?" in url or "#" in url:
        raise InvalidArgument("the URL of the model must not have a query or a fragment")
    return url.rstrip("/").removesuffix(PATH) + PATH


def retry_delay(status: int, retry_after: str | None, attempt: int, now: float) -> float | None:
    """The delay before the next attempt; None if there is none.

    `retry_after` is a number of seconds, or a date (RFC 9110, 10.2.3).
    """
    if status not in BUSY or attempt >= MAX_ATTEMPTS:
        return None
    default = FIRST_DELAY_S * 2 ** (attempt - 1)
    if retry_after is None:
        return default
    if retry_after.isdecimal():
        wait_s = float(retry_after[:9])
    else:
        try:
            wait_s = parsedate_to_datetime(retry_after).timestamp() - now
        except (ValueError, OverflowError, TypeError):
            return default
    return max(wait_s, 0.0) if wait_s <= MAX_DELAY_S else None


def _error_message(data: bytes) -> str:
    """The message in the body of an error, in one line."""
    try:
        found: Any = msgspec.json.decode(data)
        error: Any = found.get("error", found)
        message: Any = error if isinstance(error, str) else error.get("message", "")
    except (msgspec.DecodeError, UnicodeError, RecursionError, AttributeError):
        return ""  # most likely an HTML page of a proxy
    return " ".join(str(message).split())
