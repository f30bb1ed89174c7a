"""What a result says, in the few kinds that model providers know: words, pictures, documents.

Rules: pure. What a provider does not take is named in words, with its kind and its size, so that
the model knows that it was there. What is no base64 is never passed on: a provider would refuse
the whole conversation for it.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import UNSET

from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

# Both providers see these, and no others.
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF: Final = "application/pdf"


class Text(NamedTuple):
    """Words."""

    text: str


class Picture(NamedTuple):
    """A picture, in base64."""

    data: str
    mime_type: str


class Document(NamedTuple):
    """A PDF, in base64, and what it is called."""

    data: str
    name: str


Part: TypeAlias = Text | Picture | Document


def parts(content: Sequence[t.ContentBlock], structured: Any) -> list[Part]:
    """All that a result says. Its data is said where there are no words."""
    found = [part for block in content for part in _parts(block)]
    if structured is not UNSET and not any(isinstance(part, Text) for part in found):
        found.insert(0, Text(encode(structured).decode()))
    return found


def in_words(part: Part) -> str:
    """A part for who takes only words."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Picture):
        return named("image", part.mime_type, part.data)
    return named(f"document {part.name}", PDF, part.data)


def named(what: str, mime_type: str | None, data: str) -> str:
    """What stands for something that cannot be shown."""
    kind = f" {mime_type}" if mime_type else ""
    return f"[{what}{kind}, {size(data)} bytes: not shown here]"


def size(data: str) -> int:
    """How many bytes are in this base64."""
    return len(data) * 3 // 4 - data.count("=", -2)


def _parts(block: t.ContentBlock) -> list[Part]:
    match block:
        case t.TextContent():
            return [Text(block.text)] if block.text else []
        case t.ImageContent():
            return [_seen("image", block.mime_type, block.data)]
        case t.AudioContent():
            return [Text(named("audio", block.mime_type, block.data))]
        case t.ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            return [Text(f"[link {t.display_name(block)}: {block.uri}{kind}]")]
        case t.EmbeddedResource():
            return [_embedded(block.resource)]
        case _:
            return [Text(f"[{block.type}: not shown here]")]


def _embedded(found: t.ResourceContents) -> Part:
    if found.blob is None:
        return Text(f"{found.uri}:\n{found.text}")
    if found.mime_type == PDF and is_base64(found.blob):
        return Document(found.blob, found.uri.rpartition("/")[2] or found.uri)
    return _seen(f"file {found.uri}", found.mime_type, found.blob)


def _seen(what: str, mime_type: str | None, data: str) -> Part:
    kind = (mime_type or "").partition(";")[0].strip().lower()
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if kind in PICTURES and is_base64(data):
        return Picture(data, kind)
    return Text(named(what, mime_type, data))


def is_base64(data: str) -> bool:
    """Whether this is base64 of something, and nothing else."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False
