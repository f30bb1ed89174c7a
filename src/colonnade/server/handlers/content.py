"""Return values of handlers, and their conversion to content blocks and structured content.

Rules: nothing is fetched. A file is read when its object is created, by the handler.
"""

import base64
import inspect
import logging
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw

from colonnade.errors import InvalidArgument, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.types import CallToolResult, TextContent
from colonnade.signatures.codecs import Codec
from colonnade.signatures.signature import Signature

if TYPE_CHECKING:
    from pathlib import Path

log: logging.Logger = logging.getLogger("colonnade.server")

# Each key is logged once; bounded, since keys may be generated.
MAX_WARNINGS = 256

# Limits of a repr: one line.
MAX_SHOWN_CHARACTERS = 60
MAX_SHOWN = 5

# A pipe with 64 MiB of unread output is closed, and structured data is sent twice. Larger results
# need a link or pagination.
MAX_RESULT_BYTES = 32 * 1024 * 1024

Block: TypeAlias = t.ContentBlock


class Image:
    """An image: bytes with a format, or a file by its path: `Image("logo.png")`."""

    def __init__(
        self,
        data: "bytes | str | Path | None" = None,
        *,
        path: "str | Path | None" = None,
        format: str | None = None,
    ) -> None:
        self._data, guessed, path = _load(data, path)
        self._type = _mime_type("image", format, guessed, path) or "image/png"

    def __repr__(self) -> str:
        return f"Image({self._type}, {len(self._data)} bytes)"

    def block(self) -> Block:
        """The content block."""
        return t.ImageContent(data=_base64(self._data), mime_type=self._type)


class Audio:
    """Audio: bytes with a format, or a file by its path: `Audio("bell.wav")`."""

    def __init__(
        self,
        data: "bytes | str | Path | None" = None,
        *,
        path: "str | Path | None" = None,
        format: str | None = None,
    ) -> None:
        self._data, guessed, path = _load(data, path)
        self._type = _mime_type("audio", format, guessed, path) or "audio/wav"

    def __repr__(self) -> str:
        return f"Audio({self._type}, {len(self._data)} bytes)"

    def block(self) -> Block:
        """The content block."""
        return t.AudioContent(data=_base64(self._data), mime_type=self._type)


class File:
    """The contents of a file, embedded in the result."""

    def __init__(
        self,
        data: bytes | str | None = None,
        *,
        path: "str | Path | None" = None,
        uri: str | None = None,
        mime_type: str | None = None,
    ) -> None:
        if isinstance(data, str):
            self._text: str | None = data
            self._data, guessed = b"", "text/plain"
        else:
            self._text = None
            self._data, guessed, _ = _load(data, path)
        self._type = mime_type or guessed or "application/octet-stream"
        self._uri = uri or _uri(path)

    def __repr__(self) -> str:
        size = f"{len(self._data)} bytes" if self._text is None else _count(self._text)
        return f"File({_short(self._uri)}, {self._type}, {size})"

    @property
    def contents(self) -> t.ResourceContents:
        """The contents of a resource."""
        if self._text is not None:
            return t.ResourceContents(uri=self._uri, mime_type=self._type, text=clean(self._text))
        blob = _base64(self._data)
        return t.ResourceContents(uri=self._uri, mime_type=self._type, blob=blob)

    def block(self) -> Block:
        """The content block."""
        return t.EmbeddedResource(resource=self.contents)


class Link:
    """A link to a resource, without its contents."""

    def __init__(
        self,
        uri: str,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: "t.Annotations | None" = None,
        icons: "list[t.Icon] | None" = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if size is not None and size < 0:
            raise InvalidArgument(
                f"Link: size is {size}; give a number of bytes, 0 or more", argument="size"
            )
        self._link = t.ResourceLink(
            uri=uri,
            name=name or uri.rpartition("/")[2] or uri,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            meta=check_meta(meta, "Link"),
        )

    def __repr__(self) -> str:
        return f"Link({_short(self._link.uri)})"

    def block(self) -> Block:
        """The content block."""
        return self._link


class ToolReturn:
    """A tool result with explicit content, structured content, `_meta` and `isError`."""

    def __init__(
        self,
        content: Any = None,
        *,
        data: Any = UNSET,
        meta: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        self.content = content
        self.data = data
        self.meta: dict[str, Any] | None = check_meta(meta, "ToolReturn")
        self.is_error = is_error

    def __repr__(self) -> str:
        parts = [_short(self.content)]
        if self.data is not UNSET:
            parts.append(f"data={_short(self.data)}")
        if self.meta:
            parts.append(f"meta={_short(self.meta)}")
        if self.is_error:
            parts.append("is_error=True")
        return f"Result({', '.join(parts)})"


class Message:
    """One message of a prompt: text or other content, and its role."""

    def __init__(self, content: Any, role: t.Role = "user") -> None:
        if role not in ("user", "assistant"):
            raise InvalidArgument(
                f"{role!r} is not a role, which is 'user' or 'assistant'; the content comes first: "
                "write Message('hello', 'user')",
                argument="role",
            )
        self.content = content
        self.role: t.Role = role

    def __repr__(self) -> str:
        return f"Message({_short(self.content)}, {self.role!r})"


def check_meta(meta: dict[str, Any] | None, owner: str) -> dict[str, Any] | None:
    """Log a warning for invalid keys of `_meta` (R0348).

    They are not refused: some hosts need keys such as `openai/toolInvocation/invoking`.
    """
    for key in meta or ():
        if not t.valid_meta_key(key):
            _warn_about_meta_key(owner, key)
    return meta


@lru_cache(MAX_WARNINGS)
def _warn_about_meta_key(owner: str, key: str) -> None:
    log.warning(
        "%s: some clients refuse the key %.80r in meta; use letters, digits, '-', '_' and '.', "
        "with your domain as a prefix: 'example.com/colour'",
        owner,
        key,
    )


def _short(value: Any) -> str:
    """A short repr of a value, without its data."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, list | tuple | set | dict):
        items = cast("list[Any]", value)
        if len(items) > MAX_SHOWN:
            return f"<{type(items).__name__} of {len(items)}>"
        if isinstance(value, list):
            return f"[{', '.join(map(_short, items))}]"
    text = repr(value[: MAX_SHOWN_CHARACTERS + 1] if isinstance(value, str) else cast(Any, value))
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


def _count(text: str) -> str:
    return f"{len(text)} characters"


_CONTENT_CLASSES = (Image, Audio, File, Link)
_BLOCKS = (TextContent, t.ImageContent, t.AudioContent, t.ResourceLink, t.EmbeddedResource)


def _uri(path: "str | Path | None") -> str:
    if path is None:
        return "file:///data"
    from pathlib import Path

    return Path(path).absolute().as_uri()


def _load(
    data: "bytes | str | Path | None", path: "str | Path | None"
) -> "tuple[bytes, str | None, str | Path | None]":
    """The bytes, their MIME type by the name of the file, and the path of the file."""
    if (data is None) is (path is None):
        raise InvalidArgument("give either the bytes or a path, not both")
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), None, None
    import mimetypes
    from pathlib import Path

    given = Path(cast("str | Path", data if path is None else path))
    return given.read_bytes(), mimetypes.guess_type(given.name)[0], given


def _mime_type(
    kind: str, format: str | None, guessed: str | None, path: "str | Path | None"
) -> str | None:
    """The MIME type by format or file name. Raises if it is not of this kind."""
    if format:
        return f"{kind}/{format}"
    if guessed is not None and not guessed.startswith(f"{kind}/"):
        raise InvalidArgument(
            f"{path} looks like {guessed}, not {kind}; pass format=", argument="format"
        )
    return guessed


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def is_content(value: Any) -> bool:
    """Whether a value is content rather than data."""
    if isinstance(value, (*_CONTENT_CLASSES, *_BLOCKS)):
        return True
    return any(hasattr(value, name) for name in ("_repr_png_", "_repr_jpeg_"))


def blocks_of(value: Any) -> list[Block]:
    """A value as content blocks: text, images, …, or its JSON as text."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if any(is_content(item) or isinstance(item, bytes) for item in items):
            return [block for item in items for block in blocks_of(item)]
    return [_block(value)]


def _block(value: Any) -> Block:
    if isinstance(value, str):
        return TextContent(text=clean(value))
    if isinstance(value, _CONTENT_CLASSES):
        return value.block()
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, bytes):
        return File(value).block()
    for name, kind in (("_repr_png_", "png"), ("_repr_jpeg_", "jpeg")):
        shown = getattr(value, name, None)
        if shown is not None:
            image = shown()
            data = base64.b64decode(image) if isinstance(image, str) else cast("bytes", image)
            return Image(data, format=kind).block()
    return TextContent(text=_to_text(value))


def _to_text(value: Any) -> str:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise LocalProtocolError("a handler returned a generator; return a list")
    try:
        return encoded(value).decode()
    except LocalProtocolError:
        kind = type(value).__name__
        log.warning("a handler returned a %s, which is not a JSON value; its str() is sent", kind)
        return clean(str(value))


def clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        return {_cleaned(name): _cleaned(item) for name, item in members}
    return value


def _result() -> Any: ...


@cache
def _any_codec() -> Codec:
    codec = Signature(_result).output()
    assert codec is not None
    return codec


def encoded(value: Any, codec: Codec | None = None) -> bytes:
    """A value as JSON, by the codec of its type if given. Raises `LocalProtocolError`."""
    codec = codec or _any_codec()
    try:
        return codec.encode(value)
    except LocalProtocolError:
        try:
            plain = msgspec.to_builtins(value)
            repaired = _cleaned(plain)
        except Exception:
            repaired = plain = None
        if repaired is plain or repaired == plain:  # `is` first: NaN is not equal to itself
            raise
    return codec.encode(codec.decode(msgspec.json.encode(repaired)))


def size_error(blocks: Iterable[Any], data: Any = None) -> str:
    """The error message for contents above the size limit; empty if they are below."""
    size = len(data) if isinstance(data, Raw | str) else 0
    for block in blocks:
        if type(block) is TextContent:  # the most frequent
            size += len(block.text)
            continue
        inner = getattr(block, "resource", block)
        parts = (getattr(inner, name, None) for name in ("text", "data", "blob"))
        size += sum(len(part) for part in parts if isinstance(part, str))
    if size <= MAX_RESULT_BYTES:
        return ""
    return f"the result has {size} bytes; the limit is {MAX_RESULT_BYTES}; request less"


def data_result(value: Any, data: bytes, text: bool) -> CallToolResult:
    """A value that has an output schema, and its JSON, as a result.

    With `text=False` there is no text copy of the structured content.
    """
    if text:
        shown = clean(value) if isinstance(value, str) else data.decode()
        copy: list[Block] = [TextContent(text=shown)]
    else:
        copy = []
    return CallToolResult(content=copy, structured_content=Raw(data))


def result_of(value: Any, *, text: bool = True) -> CallToolResult:
    """A value without an output schema as a result; `text` as in `data_result`."""
    if isinstance(value, CallToolResult):
        return value
    if isinstance(value, ToolReturn):
        content: list[Block] = blocks_of(value.content)
        structured = value.data
        if structured is not UNSET:
            structured = Raw(encoded(structured))
            if not content and text:
                content = [TextContent(text=bytes(structured).decode())]
        return CallToolResult(
            content=content,
            structured_content=structured,
            meta=value.meta,
            is_error=value.is_error or None,
        )
    return CallToolResult(content=blocks_of(value))
