"""Adds and removes server entries in the text of a configuration file, in any format.

Rules: text in, text out; nothing is read or written here. The rest of the text stays the same, to
the byte.
"""

from typing import Any, cast

from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.formats import FileFormat
from colonnade.host.config.settings import ConfigSyntaxError


def find(file_format: FileFormat, text: str) -> dict[str, Any]:
    """Every entry by the name of its server. Raises `ConfigSyntaxError`."""
    if file_format.syntax == "toml":
        whole: Any = toml_text.read(text)
    else:
        node = json_text.read(text, comments=file_format.syntax == "jsonc")
        if node is None:
            return {}
        whole = node.value
        if not isinstance(whole, dict):
            raise ConfigSyntaxError(text, node.start, "expected an object")
    found = cast("dict[str, Any]", whole).get(file_format.servers, {})
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def put(file_format: FileFormat, text: str, name: str, entry: dict[str, Any]) -> str:
    """The text with this entry, which replaces one of the same name. Raises `ConfigSyntaxError`."""
    keys = (file_format.servers, name)
    if file_format.syntax == "toml":
        return toml_text.put(text, keys, entry)
    return json_text.put(text, keys, entry, comments=file_format.syntax == "jsonc")


def remove(file_format: FileFormat, text: str, name: str) -> str:
    """The text without the entry. Raises `ConfigSyntaxError`, and `KeyError` if there is none."""
    keys = (file_format.servers, name)
    if file_format.syntax == "toml":
        return toml_text.remove(text, keys)
    return json_text.remove(text, keys, comments=file_format.syntax == "jsonc")


def is_before(file_format: FileFormat, before: str, text: str, name: str) -> bool:
    """Whether `before` is the text without the entry, to the byte."""
    try:
        if name in find(file_format, before):
            return False
        return put(file_format, before, name, find(file_format, text)[name]) == text
    except (ConfigSyntaxError, KeyError, TypeError):
        return False


def snippet(file_format: FileFormat, name: str, entry: dict[str, Any]) -> str:
    """A file with nothing but this entry."""
    return put(file_format, "", name, entry)
