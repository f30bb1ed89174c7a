"""Log lines as JSON: one for each record, whatever is in it, and nothing that looks like a secret."""

import io
import json
import logging
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.logs import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_MEMBERS,
    REDACTED,
    JsonFormatter,
    json_handler,
    log_json,
    redact,
    redact_data,
)

JSON = dict[str, Any]


class Lines:
    """A logger of its own, and the lines that it wrote."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.log = logging.Logger("tests.logs")
        self.log.addHandler(json_handler(self._stream))

    @property
    def last(self) -> JSON:
        text = self._stream.getvalue()
        assert text.endswith("\n")
        assert text.count("\n") == len(text.splitlines())
        return json.loads(text.splitlines()[-1])


# ---------------------------------------------------------------- lines


def test_a_record_is_one_line_with_its_time_level_logger_and_message() -> None:
    lines = Lines()
    lines.log.warning("%s is %d", "a", 1)
    line = lines.last
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "tests.logs", "message": "a is 1"}


def test_the_time_is_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 1_000_000_000.25})
    assert json.loads(JsonFormatter().format(record))["time"] == "2001-09-09T01:46:40.250Z"


def test_what_was_given_beside_the_words_is_there_too() -> None:
    lines = Lines()
    request = {"method": "tools/call", "ms": 1.5, "tags": ["a", "b"], "code": None, "ok": True}
    lines.log.info("x", extra={"request": request, "level": "not this", "_hidden": 1})
    assert lines.last["request"] == request
    assert lines.last["level"] == "info"
    assert "_hidden" not in lines.last


def test_an_exception_is_its_traceback_in_one_member() -> None:
    lines = Lines()
    try:
        raise ZeroDivisionError("by token=abcdef")
    except ZeroDivisionError:
        lines.log.exception("it failed")
    error = lines.last["error"]
    assert error.startswith("Traceback")
    assert "ZeroDivisionError" in error
    assert "abcdef" not in error
    lines.log.error("where", stack_info=True)
    assert "Stack" in lines.last["error"]


class Stubborn:
    """Shows itself to nobody."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_nothing_that_is_logged_can_break_the_line() -> None:
    lines = Lines()
    endless: list[Any] = []
    endless.append(endless)
    strange: list[Any] = [
        "a\r\nb\u2028c\x00d\x1b[31m",
        "\ud800 half",
        float("nan"),
        float("inf"),
        10**400,
        b"\xff",
        {1: 2, None: 3},
        {"a", "b"},
        endless,
        object(),
        Stubborn(),
        [Stubborn()],
    ]
    for value in strange:
        lines.log.warning("%s", "x", extra={"value": value})
        assert "value" in lines.last
    lines.log.warning("%d", "not a number")
    assert "cannot be shown" in lines.last["message"]
    lines.log.warning("%s", Stubborn())
    assert "cannot be shown" in lines.last["message"]
    lines.log.warning("a\nb")
    assert lines.last["message"] == "a\nb"
    try:
        raise Unshowable
    except Unshowable:
        lines.log.exception("x")
    assert lines.last["error"]


def test_what_is_far_too_long_is_cut() -> None:
    lines = Lines()
    lines.log.warning("x" * (MAX_CHARACTERS + 50), extra={"many": list(range(1000))})
    assert lines.last["message"].endswith("… (50 characters more)")
    assert len(lines.last["message"]) < MAX_CHARACTERS + 50
    assert len(lines.last["many"]) == MAX_MEMBERS


@contextmanager
def own_root() -> Generator[None]:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:], level = before
        root.setLevel(level)


def test_a_whole_process_can_log_as_json() -> None:
    stream = io.StringIO()
    with own_root():
        log_json(stream, logging.INFO)
        logging.getLogger("colonnade.server").info("started")
        logging.getLogger("colonnade.server").debug("unheard")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    started, old = (json.loads(line) for line in stream.getvalue().splitlines())
    assert started["message"] == "started"
    assert old["logger"] == "py.warnings"


# ---------------------------------------------------------------- secrets

# The secret, and a text with it.
CANARY = "c4n4ryC4N4RY0123456789abcdef"
TEXTS = [
    f"Authorization: Bearer {CANARY}",
    f"authorization: bearer {CANARY} and more",
    f"Bearer   {CANARY}",
    f"DPoP {CANARY}",
    f"Basic {CANARY}==",
    f"password={CANARY}",
    f"passwd: {CANARY}",
    f"client_secret={CANARY}&scope=all",
    f'{{"access_token": "{CANARY}", "n": 1}}',
    f"{{'refresh_token': '{CANARY}'}}",
    f'"apiKey":"{CANARY}"',
    f"x-api-key: {CANARY}",
    f"api-key = {CANARY}",
    f"requestState={CANARY}",
    f"Cookie: session={CANARY}",
    f"https://ann:{CANARY}@example.com/path",
    f"GET /mcp?token={CANARY}&x=1",
    f"sk-{CANARY}",
    f"sk-ant-api03-{CANARY}-{CANARY}",
    f"sk_live_{CANARY}",
    f"ghp_{CANARY}",
    f"github_pat_{CANARY}",
    f"glpat-{CANARY}",
    f"xoxb-{CANARY}",
    f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.{CANARY}",
    f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}",
    f'secret="a \\"quoted\\" {CANARY}"',
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_looks_like_a_secret_is_blotted_out(text: str) -> None:
    assert CANARY not in redact(text)
    assert REDACTED in redact(text)
    lines = Lines()
    lines.log.warning("%s", text, extra={"deep": [{"text": text}]})
    assert CANARY not in json.dumps(lines.last)


@pytest.mark.parametrize("name", ["password", "apiKey", "client_secret", "Authorization", "token"])
def test_a_member_that_is_named_like_a_secret_is_blotted_out_whatever_it_is(name: str) -> None:
    lines = Lines()
    for value in (CANARY, 12345, [CANARY], {"x": CANARY}):
        lines.log.warning("x", extra={"facts": {name: value}, f"my_{name}": value})
        assert lines.last["facts"] == {name: REDACTED}
        assert lines.last[f"my_{name}"] == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "tools/call 'forecast' by 'ada' (2026-07-28): ok, 3.1 ms",
        "max_tokens=1000",
        "basic authentication failed",
        "the bearer of news",
        "https://example.com/a/b?c=d",
        "user@example.com",
        "a secretary, a token of thanks",
        "refused 127.0.0.1: invalid_token: the token has expired",
        "refused 127.0.0.1: invalid_token: this is no access token",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text


def test_data_is_blotted_by_its_look_and_by_its_name_and_else_left_alone() -> None:
    data = {"user": "ann", "n": [1, None, True], "apiKey": "k", "say": ("Bearer abcdef0123456789",)}
    assert redact_data(data) == {
        "user": "ann",
        "n": [1, None, True],
        "apiKey": REDACTED,
        "say": [REDACTED],
    }
    deep: Any = {"password": "swordfish"}
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert "swordfish" not in str(redact_data(deep))


@given(st.text(max_size=400))
def test_every_text_can_be_blotted(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize(
    "part",
    [
        *("token", "token ", "password='", 'token"    =    ', "password=\\", "Bearer ", "://"),
        *("-----BEGIN PRIVATE KEY-----", "-", "eyJaaaaaaaa", "eyJaaaaaaaa.", "sk-a-", "gh"),
    ],
)
def test_no_text_takes_long(part: str) -> None:
    """Linear time: a line of the greatest length takes milliseconds, and is given a second."""
    text = part * (MAX_CHARACTERS // len(part))
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 1.0
