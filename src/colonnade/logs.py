"""Log records as JSON lines, with secrets redacted.

    handler = json_handler(sys.stderr)
    logging.getLogger("colonnade").addHandler(handler)

Rules: one record is one line, whatever is in it; formatting never raises. Redaction is only
the last line of defence: secrets must not be logged in the first place.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TextIO, cast

# Longer text is truncated before it is searched; a traceback of a deep recursion still fits.
MAX_CHARACTERS = 32 * 1024
# Of the extra attributes of a record: items of a container, and nesting.
MAX_MEMBERS = 100
MAX_DEPTH = 8

REDACTED = "[redacted]"

# Names of secrets, alone or as part of a longer name: `api_key`, `clientSecret`. Not `tokens`,
# which models count.
_NAMES = (
    r"pass(?:word|wd|phrase)|secret|token(?!s)|api[_-]?key|private[_-]?key|access[_-]?key"
    r"|authorization|credential|cookie|request_?state"
)
_SECRET_KEY = re.compile(_NAMES, re.IGNORECASE)
# Every quantifier is possessive or bounded, so that no line takes more than linear time.
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----END))*+(?:-----END[A-Z -]{0,60})?"
    # An underscore joins names, so it is no part of the word.
    r"|(?<![A-Za-z0-9])(?:"
    r"(?i:bearer|dpop)\s++[A-Za-z0-9._~+/=-]{8,}+"
    r"|(?i:basic)\s++(?=[a-z]*+[A-Z0-9+/=])[A-Za-z0-9+/=]{8,}+"
    r"|eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+)?"
    r"|(?:sk|pk|rk)[-_](?:[a-z0-9]{1,10}[-_]){0,3}[A-Za-z0-9]{16}[A-Za-z0-9_-]*+"
    r"|gh[a-z]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+|glpat-[A-Za-z0-9_-]{16,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|xox[a-z]-[A-Za-z0-9-]{10,}+|AIza[A-Za-z0-9_-]{30,}+"
    r")"
)
# An unquoted value is one word, and these two begin a sentence: `invalid_token: the token has
# expired`.
_NAMED_SECRET = re.compile(
    rf"""((?:{_NAMES})[A-Za-z0-9_-]{{0,40}}+["']?\s{{0,4}}[=:]\s{{0,4}}+)"""
    r"""(?!\[redacted|(?:the|this)\s)("(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[^\s,;&"'}\])]++)""",
    re.IGNORECASE,
)
_URL_USERINFO = re.compile(r"(://)[^\s/?#@]{1,512}@")

# The attributes of every record; others come from `extra=`.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}


def redact(text: str) -> str:
    """The text with tokens, keys and named secrets redacted, and truncated if it is too long."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}… ({len(text) - MAX_CHARACTERS} characters more)"
    text = _SECRETS.sub(REDACTED, text)
    text = _NAMED_SECRET.sub(rf"\1{REDACTED}", text)
    return _URL_USERINFO.sub(rf"\1{REDACTED}@", text)


def redact_data(value: Any, depth: int = 0) -> Any:
    """Plain data with secrets redacted, by their form or by their key."""
    if isinstance(value, str):
        return redact(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if depth == MAX_DEPTH:
        return redact(str(cast("Any", value)))
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        return {
            key: REDACTED if is_secret_name(str(key)) else redact_data(item, depth + 1)
            for key, item in members
        }
    return [redact_data(item, depth + 1) for item in cast("list[Any]", value)]


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, and extra attributes."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a newline."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(_message(record)),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD_ATTRIBUTES and name not in line and not name.startswith("_"):
                line[name] = _json_value(value, name)
        error = self._error(record)
        if error:
            line["error"] = redact(error)
        return json.dumps(line, separators=(",", ":"), allow_nan=False)

    def _error(self, record: logging.LogRecord) -> str:
        parts = [record.exc_text or "", record.stack_info or ""]
        if record.exc_info and not record.exc_text:
            try:
                parts[0] = self.formatException(record.exc_info)
            except Exception as failure:  # `__str__` of an exception may raise
                parts[0] = f"(cannot be shown: {type(failure).__name__})"
        return "\n".join(part for part in parts if part)


def json_handler(stream: TextIO | None = None) -> logging.Handler:
    """A handler that writes JSON lines to a stream, standard error without one."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    return handler


def log_json(stream: TextIO | None = None, level: int = logging.WARNING) -> None:
    """Configure the root logger to write JSON lines. Only for applications, not for libraries.

    Python's warnings are logged, too. A later `logging.basicConfig` has no effect.
    """
    root = logging.getLogger()
    root.handlers[:] = [json_handler(stream)]
    root.setLevel(level)
    logging.captureWarnings(True)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as failure:  # arguments that do not match the format, or raise
        return f"{record.msg!s:.200} (its arguments cannot be shown: {type(failure).__name__})"


def _json_value(value: object, name: str = "", depth: int = 0) -> Any:
    """A value as JSON, with secrets redacted."""
    if value is None or isinstance(value, bool | int):
        return None if value is None else REDACTED if is_secret_name(name) else value
    if is_secret_name(name):
        return REDACTED
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, str):
        return redact(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            items = list(cast("Mapping[Any, Any]", value).items())[:MAX_MEMBERS]
            return {redact(str(key)): _json_value(item, str(key), depth + 1) for key, item in items}
        if isinstance(value, list | tuple | set | frozenset):
            items = list(cast("list[Any]", value))[:MAX_MEMBERS]
            return [_json_value(item, "", depth + 1) for item in items]
    try:
        return redact(str(value))
    except Exception as failure:
        return f"(cannot be shown: {type(failure).__name__})"


def is_secret_name(name: str) -> bool:
    """Whether the name of a member, header or variable is that of a secret: `api_key`."""
    return bool(name) and _SECRET_KEY.search(name) is not None
