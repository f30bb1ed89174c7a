"""Values of a configuration for people: references as they are written, and no secret beside them.

Rules: what a file says outright may be a secret as well; what is called one, or looks like one, is
blotted out. Blotting is no proof: what must stay secret is referred to.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from colonnade.host.config.entry import Draft, Said
from colonnade.host.config.references import Reference, Template, plain
from colonnade.logs import REDACTED, redact

# A long word of letters and digits alone is more often a key than anything that people read.
_KEY: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_-]{20,}")

# Names of secrets, here, where values are short and names are all that tells: `X-Auth`, `GH_PAT`.
_NAME: Final = re.compile(r"(?i)(?:^|[-_])(?:auth|pat|key)(?:$|[-_])")

_ADDRESS: Final = ("http://", "https://")

# A reference that another program would have understood.
_ODD: Final = re.compile(r"\$\{[^}]*\}")


def shown(draft: Draft) -> str:
    """What is started or reached, in one line, with no secret in it."""
    url = draft.get("url")
    if url is not None:
        return safe_url(url.value)
    return shlex.join(safe_words(command(draft)))


def command(draft: Draft) -> list[Template]:
    """The words of a command line."""
    program, args = draft.get("command"), draft.get("args")
    found: list[Template] = [program.value] if program is not None else []
    return found + list(cast("tuple[Template, ...]", args.value if args is not None else ()))


def words(draft: Draft) -> list[str]:
    """The same, as they are written, whatever is in them."""
    return [one.text for one in command(draft)]


def safe(template: Template, name: str = "") -> str:
    """A value for people; `name` is what it is called, which may say that it is a secret."""
    if not template.references:
        return _literal(template.text, name)
    return "".join(
        reference(part, name) if isinstance(part, Reference) else redact(part)
        for part in template.parts
    )


def reference(part: Reference, name: str = "") -> str:
    """A reference as it is written, without a secret in its default or its words; `name` is what
    the value is called that it stands in."""
    if part.words:
        return f"(what {shlex.join(safe_words([plain(word) for word in part.words]))} prints)"
    if part.default and any(part.default != _literal(part.default, n) for n in (part.name, name)):
        return part.text.replace(part.default, REDACTED)
    return part.text


def _literal(text: str, name: str) -> str:
    if _ODD.fullmatch(text):
        return text
    if _NAME.search(name) or (name and redact(f"{name}={text}") != f"{name}={text}"):
        return REDACTED
    return REDACTED if name and _KEY.fullmatch(text) else redact(text)


def safe_words(given: list[Template]) -> list[str]:
    """Words of a command with what looks like a secret blotted out."""
    return [
        safe_url(one) if one.text.lower().startswith(_ADDRESS) else safe(one, name)
        for one, name in zip(given, names(given), strict=True)
    ]


def names(given: Iterable[Template]) -> Iterator[str]:
    """What the words of a command are called: each value by the option before it."""
    before = ""
    for one in given:
        is_option = one.text.startswith("-")
        yield "" if is_option else before
        before = one.text.lstrip("-") if is_option and "=" not in one.text else ""


def safe_url(url: Template) -> str:
    """An address without what may be a secret in it: who logs in, and what is asked for."""
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


def safe_value(path: tuple[str, ...], said: Said) -> str:
    """Any value of a server, for people."""
    value = said.value
    if isinstance(value, Template):
        return safe_url(value) if path == ("url",) else safe(value, path[-1])
    if path == ("args",):
        return shlex.join(safe_words(list(cast("tuple[Template, ...]", value))))
    if isinstance(value, tuple):
        texts = cast("tuple[Any, ...]", value)
        return shlex.join(safe(one if isinstance(one, Template) else plain(one)) for one in texts)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else "not set" if value is None else str(value)
