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
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from colonnade.auth.places import secure
from colonnade.errors import (
    AuthError,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.host.replies import Message
from colonnade.host.sampling import asked_of_model, said_by_model
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.transport.http_client import HttpPool, usual_tls

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
            raise LocalProtocolError("give key= or key_env=, not both")
        if key_env is not None:
            key = os.environ.get(key_env, "").strip()
            if not key:
                raise LocalProtocolError(
                    f"the environment has no {key_env}, where the key should be"
                )
        if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
            raise LocalProtocolError("the key has characters that no header can carry")
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
        """What the model says to a server that wants its words: an answer for `on_question`, or for
        `on_sample` of a client. Whether it may is for a person to say, before and after."""
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
            self._tls = usual_tls()
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
        secure(url, "the URL of the model")
    except AuthError as error:
        raise LocalProtocolError(str(error)) from None
    if "?" in url or "#" in url:
        raise LocalProtocolError("the URL of the model ends where its path ends")
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
