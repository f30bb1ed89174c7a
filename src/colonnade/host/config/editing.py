"""The entries of servers in the text of a configuration file: found, put in, taken out, undone.

Rules: text in, text out, nothing is read or written here; what the text says besides is left as it
is, to the byte.
"""

from typing import Any, cast

from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.formats import Dialect
from colonnade.host.config.settings import Broken


def find(dialect: Dialect, text: str) -> dict[str, Any]:
    """Every entry by the name of its server. Raises `Broken`."""
    if dialect.syntax == "toml":
        whole: Any = toml_text.read(text)
    else:
        node = json_text.read(text, comments=dialect.syntax == "jsonc")
        if node is None:
            return {}
        whole = node.value
        if not isinstance(whole, dict):
            raise Broken(text, node.start, "an object in braces should stand here")
    found = cast("dict[str, Any]", whole).get(dialect.servers, {})
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def put(dialect: Dialect, text: str, name: str, entry: dict[str, Any]) -> str:
    """The text with this entry, in the place of one of its name. Raises `Broken`."""
    keys = (dialect.servers, name)
    if dialect.syntax == "toml":
        return toml_text.put(text, keys, entry)
    return json_text.put(text, keys, entry, comments=dialect.syntax == "jsonc")


def take(dialect: Dialect, text: str, name: str) -> str:
    """The text without the entry. Raises `Broken`, and `KeyError` if there is none."""
    keys = (dialect.servers, name)
    if dialect.syntax == "toml":
        return toml_text.take(text, keys)
    return json_text.take(text, keys, comments=dialect.syntax == "jsonc")


def is_before(dialect: Dialect, before: str, text: str, name: str) -> bool:
    """Whether a text is another one from before the entry was put into it, to the byte."""
    try:
        if name in find(dialect, before):
            return False
        return put(dialect, before, name, find(dialect, text)[name]) == text
    except (Broken, KeyError, TypeError):
        return False


def snippet(dialect: Dialect, name: str, entry: dict[str, Any]) -> str:
    """A file with nothing but this entry."""
    return put(dialect, "", name, entry)
