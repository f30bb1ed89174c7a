"""What a result says, in the few kinds that model providers know: words, pictures, documents.

Rules: pure. What a provider does not take is named in words, with its kind and its size, so that
the model knows that it was there. What is no base64 is never passed on: a provider would refuse
the whole conversation for it.
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
    """What a model wants: the tool by its safe name, its arguments, and the id of the answer."""

    id: str
    name: str
    arguments: dict[str, Any]
    # What is wrong with the arguments; nothing where they can be sent.
    problem: str
    # How the answer is to be written.
    form: str


def as_object(given: object, what: str) -> dict[str, Any]:
    """A call as a plain object: as it came in JSON, or as a provider's own library gives it."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    dump = getattr(given, "model_dump", None)
    if callable(dump):
        return cast("Callable[[], dict[str, Any]]", dump)()
    raise InvalidArgumentType(f"this is not a {what}, as JSON or from its library: {type(given)!r}")


def required_string(found: dict[str, Any], key: str, what: str) -> str:
    """A member that every call has. Raises `LocalProtocolError` where it is missing."""
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"this is not a {what}: it has no {key}")
    return value


def parse_arguments(written: object) -> tuple[dict[str, Any], str]:
    """The arguments, and what is wrong with them; models write none where there are none."""
    if written is None or written == "":
        return {}, ""
    if isinstance(written, str):
        try:
            written = msgspec.json.decode(written)
        except (msgspec.MsgspecError, RecursionError) as error:
            return {}, f"the arguments are no JSON ({error}); write one JSON object"
    if not isinstance(written, dict):
        return {}, "the arguments are no JSON object; write one, with a member for each"
    return cast("dict[str, Any]", written), ""


# Both providers see these, and no others.
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF: Final = "application/pdf"


class TextPart(NamedTuple):
    """Words."""

    text: str


class ImagePart(NamedTuple):
    """A picture, in base64."""

    data: str
    mime_type: str


class PdfPart(NamedTuple):
    """A PDF, in base64, and what it is called."""

    data: str
    name: str


ContentPart: TypeAlias = TextPart | ImagePart | PdfPart


def content_parts(content: Sequence[t.ContentBlock], structured: Any) -> list[ContentPart]:
    """All that a result says. Its data is said where there are no words."""
    found = [part for block in content for part in _block_parts(block)]
    if structured is not UNSET and not any(isinstance(part, TextPart) for part in found):
        found.insert(0, TextPart(encode(structured).decode()))
    return found


def part_as_text(part: ContentPart) -> str:
    """A part for who takes only words."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ImagePart):
        return placeholder("image", part.mime_type, part.data)
    return placeholder(f"document {part.name}", PDF, part.data)


def placeholder(what: str, mime_type: str | None, data: str) -> str:
    """What stands for something that cannot be shown."""
    kind = f" {mime_type}" if mime_type else ""
    return f"[{what}{kind}, {decoded_size(data)} bytes: not shown here]"


def decoded_size(data: str) -> int:
    """How many bytes are in this base64."""
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
    """Whether this is base64 of something, and nothing else."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


# What OpenAI and Anthropic both accept; one name beyond it makes them refuse the whole request.
MAX_NAME_CHARACTERS: Final = 64
# Of a digest, in hexadecimal digits: 48 bits, so that nobody meets a clash by chance.
DIGEST_CHARACTERS: Final = 12

_SAFE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def is_safe(name: str) -> bool:
    """Whether model providers accept this name as it is."""
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """This name where it is safe; else what can be read of it, with a digest of all of it."""
    return name if is_safe(name) else name_with_digest(name)


def name_with_digest(name: str, room: int = MAX_NAME_CHARACTERS, unreadable: str = "tool") -> str:
    """What can be read of a name, with a digest of all of it, in so many characters."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    readable = _UNSAFE.sub("_", name)[: room - DIGEST_CHARACTERS - 1].strip("_")
    return f"{readable or unreadable}_{digest}"


def original_name(safe: str, names: Iterable[str]) -> str | None:
    """Which of these names a model means by a safe name; None where it is none of them.

    Raises `LocalProtocolError` where it is several: somebody called a thing what our digest calls
    another, and guessing would call the wrong one.
    """
    meant = {name for name in names if safe_name(name) == safe}
    if len(meant) > 1:
        raise InvalidArgument(
            f"{safe!r} is what models are told for all of {', '.join(map(repr, sorted(meant)))}; "
            "call one of them by its own name with call_tool"
        )
    return meant.pop() if meant else None
