"""Tool calls of models, names that providers accept, and results as text, images and documents.

Rules: no I/O. Content that a provider does not support becomes a placeholder with its type and
size, so that the model knows of it. Invalid base64 is never passed on: a provider would refuse the
whole conversation.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import UNSET

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode


class ModelToolCall(NamedTuple):
    """A tool call of a model: the safe name of the tool, its arguments, and the id of the call."""

    id: str
    name: str
    arguments: dict[str, Any]
    # The error in the arguments; empty if they are valid.
    problem: str
    # The format of the result.
    form: str


def as_object(given: object, what: str) -> dict[str, Any]:
    """A call as a dict: from JSON, or from an object of the provider's library."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    dump = getattr(given, "model_dump", None)
    if callable(dump):
        return cast("Callable[[], dict[str, Any]]", dump)()
    raise InvalidArgumentType(f"this is not a {what}, as JSON or from its library: {type(given)!r}")


def required_string(found: dict[str, Any], key: str, what: str) -> str:
    """A required member of a call. Raises `LocalProtocolError` if it is missing."""
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"this is not a {what}: it has no {key}")
    return value


def parse_arguments(written: object) -> tuple[dict[str, Any], str]:
    """The arguments, and the error in them; models may send an empty string for none."""
    if written is None or written == "":
        return {}, ""
    if isinstance(written, str):
        try:
            written = msgspec.json.decode(written)
        except (msgspec.MsgspecError, RecursionError) as error:
            return {}, f"the arguments are not valid JSON ({error}); write one JSON object"
    if not isinstance(written, dict):
        return {}, "the arguments are not a JSON object; write one, with a member for each"
    return cast("dict[str, Any]", written), ""


# The image types that both providers support.
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF: Final = "application/pdf"


class TextPart(NamedTuple):
    """Text."""

    text: str


class ImagePart(NamedTuple):
    """An image, in base64."""

    data: str
    mime_type: str


class PdfPart(NamedTuple):
    """A PDF, in base64, and its name."""

    data: str
    name: str


ContentPart: TypeAlias = TextPart | ImagePart | PdfPart


def content_parts(content: Sequence[t.ContentBlock], structured: Any) -> list[ContentPart]:
    """The content of a result. Its structured content is included if there is no text."""
    found = [part for block in content for part in _block_parts(block)]
    if structured is not UNSET and not any(isinstance(part, TextPart) for part in found):
        found.insert(0, TextPart(encode(structured).decode()))
    return found


def part_as_text(part: ContentPart) -> str:
    """A part as text, for APIs that accept only text."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ImagePart):
        return placeholder("image", part.mime_type, part.data)
    return placeholder(f"document {part.name}", PDF, part.data)


def placeholder(what: str, mime_type: str | None, data: str) -> str:
    """The placeholder for content that is not supported."""
    kind = f" {mime_type}" if mime_type else ""
    return f"[{what}{kind}, {decoded_size(data)} bytes: not shown here]"


def decoded_size(data: str) -> int:
    """The decoded size of base64."""
    return len(data) * 3 // 4 - data.count("=", -2)


def _block_parts(block: t.ContentBlock) -> list[ContentPart]:
    match block:
        case t.TextContent():
            return [TextPart(block.text)] if block.text else []
        case t.ImageContent():
            return [_image_or_placeholder("image", block.mime_type, block.data)]
        case t.AudioContent():
            return [TextPart(placeholder("audio", block.mime_type, block.data))]
        case t.ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            return [TextPart(f"[link {t.display_name(block)}: {block.uri}{kind}]")]
        case t.EmbeddedResource():
            return [_resource_part(block.resource)]
        case _:
            return [TextPart(f"[{block.type}: not shown here]")]


def _resource_part(found: t.ResourceContents) -> ContentPart:
    if found.blob is None:
        return TextPart(f"{found.uri}:\n{found.text}")
    if found.mime_type == PDF and is_base64(found.blob):
        return PdfPart(found.blob, found.uri.rpartition("/")[2] or found.uri)
    return _image_or_placeholder(f"file {found.uri}", found.mime_type, found.blob)


def _image_or_placeholder(what: str, mime_type: str | None, data: str) -> ContentPart:
    kind = (mime_type or "").partition(";")[0].strip().lower()
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if kind in IMAGE_TYPES and is_base64(data):
        return ImagePart(data, kind)
    return TextPart(placeholder(what, mime_type, data))


def is_base64(data: str) -> bool:
    """Whether this is valid base64, and not empty."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


# The limit of OpenAI and Anthropic; a longer name makes them refuse the whole request.
MAX_NAME_CHARACTERS: Final = 64
# Hexadecimal digits of a digest: 48 bits, so that collisions do not happen by chance.
DIGEST_CHARACTERS: Final = 12

_SAFE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def is_safe(name: str) -> bool:
    """Whether model providers accept this name as it is."""
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """This name if it is safe; otherwise its safe characters, with a digest of the whole."""
    return name if is_safe(name) else name_with_digest(name)


def name_with_digest(name: str, room: int = MAX_NAME_CHARACTERS, unreadable: str = "tool") -> str:
    """The safe characters of a name and a digest of the whole, in at most `room` characters."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    readable = _UNSAFE.sub("_", name)[: room - DIGEST_CHARACTERS - 1].strip("_")
    return f"{readable or unreadable}_{digest}"


def original_name(safe: str, names: Iterable[str]) -> str | None:
    """The one of these names whose safe name this is; None if there is none.

    Raises `LocalProtocolError` if there are several: one tool has the name that is generated for
    another, and a guess could call the wrong one.
    """
    meant = {name for name in names if safe_name(name) == safe}
    if len(meant) > 1:
        raise InvalidArgument(
            f"{safe!r} is the safe name of several tools: {', '.join(map(repr, sorted(meant)))}; "
            "call one of them by its own name with call_tool"
        )
    return meant.pop() if meant else None
