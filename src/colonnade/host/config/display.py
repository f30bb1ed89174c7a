"""Redacted display of configuration values: references as they are written, without secrets.

Rules: a literal value may be a secret as well; one that is named like a secret, or looks like one,
is redacted. Redaction is no guarantee: secrets should be references.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from colonnade.host.config.entry import EntryDraft, EntryField
from colonnade.host.config.references import Reference, ValueTemplate, literal
from colonnade.logs import REDACTED, redact
from colonnade.transport.process.sandbox import Sandbox

# A long word of letters and digits is more often a key than anything that people read.
_KEY: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_-]{20,}")

# Names of secrets where values are short and only the name tells: `X-Auth`, `GH_PAT`.
_NAME: Final = re.compile(r"(?i)(?:^|[-_])(?:auth|pat|key)(?:$|[-_])")

_URL_PREFIXES: Final = ("http://", "https://")

# A reference of another program.
_FOREIGN_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def shown(draft: EntryDraft) -> str:
    """The command or the URL, in one line, redacted."""
    url = draft.get("url")
    if url is not None:
        return safe_url(url.value)
    return shlex.join(safe_words(command(draft)))


def command(draft: EntryDraft) -> list[ValueTemplate]:
    """The command and its arguments."""
    program, args = draft.get("command"), draft.get("args")
    found: list[ValueTemplate] = [program.value] if program is not None else []
    return found + list(cast("tuple[ValueTemplate, ...]", args.value if args is not None else ()))


def words(draft: EntryDraft) -> list[str]:
    """The command and its arguments as they are written, not redacted."""
    return [one.text for one in command(draft)]


def safe(template: ValueTemplate, name: str = "") -> str:
    """A redacted value; `name` is its key, which may be that of a secret."""
    if not template.references:
        return _safe_literal(template.text, name)
    return "".join(
        reference(part, name) if isinstance(part, Reference) else redact(part)
        for part in template.parts
    )


def reference(part: Reference, name: str = "") -> str:
    """A reference as it is written, with its default and its arguments redacted; `name` is the key
    of the value that it is in."""
    if part.words:
        return f"(output of {shlex.join(safe_words([literal(word) for word in part.words]))})"
    if part.default and any(
        part.default != _safe_literal(part.default, n) for n in (part.name, name)
    ):
        return part.text.replace(part.default, REDACTED)
    return part.text


def _safe_literal(text: str, name: str) -> str:
    if _FOREIGN_REFERENCE.fullmatch(text):
        return text
    if _NAME.search(name) or (name and redact(f"{name}={text}") != f"{name}={text}"):
        return REDACTED
    return REDACTED if name and _KEY.fullmatch(text) else redact(text)


def safe_words(given: list[ValueTemplate]) -> list[str]:
    """Redacted arguments of a command."""
    return [
        safe_url(one) if one.text.lower().startswith(_URL_PREFIXES) else safe(one, name)
        for one, name in zip(given, names(given), strict=True)
    ]


def names(given: Iterable[ValueTemplate]) -> Iterator[str]:
    """The names of arguments: each value has the name of the option before it."""
    before = ""
    for one in given:
        is_option = one.text.startswith("-")
        yield "" if is_option else before
        before = one.text.lstrip("-") if is_option and "=" not in one.text else ""


def safe_url(url: ValueTemplate) -> str:
    """A URL without user info, and with the values of its query redacted."""
    text = safe(url)
    try:
        parts = urlsplit(text)
    except ValueError:
        return REDACTED
    query = "&".join(
        f"{pair.partition('=')[0]}={pair.partition('=')[2] if '${' in pair else REDACTED}"
        for pair in parts.query.split("&")
        if pair
    )
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, query, "")) if parts.scheme else text


def safe_value(path: tuple[str, ...], entry_field: EntryField) -> str:
    """Any value of an entry, redacted."""
    value = entry_field.value
    if isinstance(value, ValueTemplate):
        return safe_url(value) if path == ("url",) else safe(value, path[-1])
    if path == ("args",):
        return shlex.join(safe_words(list(cast("tuple[ValueTemplate, ...]", value))))
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return shlex.join(
            safe(one if isinstance(one, ValueTemplate) else literal(one)) for one in items
        )
    if isinstance(value, Sandbox):
        return value.describe()
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else "not set" if value is None else str(value)
