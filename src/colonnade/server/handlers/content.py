"""What a handler may return, and what it becomes: content blocks and structured values.

Rules: pure; nothing is fetched. A file is read when its block is made, by whoever returns it.
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

# Each is said once; an author has few keys, and one that is made up anew each time is cut short.
MAX_WARNINGS = 256

# What a repr shows of a value: as much as people read in one line.
MAX_SHOWN_CHARACTERS = 60
MAX_SHOWN = 5

# Pipes are given up at 64 MiB unread, and structured data goes out twice. What is larger belongs
# behind a link, or on pages.
MAX_RESULT_BYTES = 32 * 1024 * 1024

Block: TypeAlias = t.ContentBlock


class Image:
    """A picture: bytes with a format, or a file."""

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: "str | Path | None" = None,
        format: str | None = None,
    ) -> None:
        self._data, guessed = _load(data, path)
        self._type = _typed("image", format, guessed, path) or "image/png"

    def __repr__(self) -> str:
        return f"Image({self._type}, {len(self._data)} bytes)"

    def block(self) -> Block:
        """The content block."""
        return t.ImageContent(data=_base64(self._data), mime_type=self._type)


class Audio:
    """A sound: bytes with a format, or a file."""

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: "str | Path | None" = None,
        format: str | None = None,
    ) -> None:
        self._data, guessed = _load(data, path)
        self._type = _typed("audio", format, guessed, path) or "audio/wav"

    def __repr__(self) -> str:
        return f"Audio({self._type}, {len(self._data)} bytes)"

    def block(self) -> Block:
        """The content block."""
        return t.AudioContent(data=_base64(self._data), mime_type=self._type)


class File:
    """A file's contents, embedded in the result."""

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
            self._data, guessed = _load(data, path)
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
    """A resource that the client may read, not its contents."""

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
        self._noun = t.ResourceLink(
            uri=uri,
            name=name or uri.rpartition("/")[2] or uri,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            meta=named_meta(meta, "Link"),
        )

    def __repr__(self) -> str:
        return f"Link({_short(self._noun.uri)})"

    def block(self) -> Block:
        """The content block."""
        return self._noun


class ToolReturn:
    """Everything about a result, for handlers that want to say it all."""

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
        self.meta: dict[str, Any] | None = named_meta(meta, "ToolReturn")
        self.is_error = is_error

    def __repr__(self) -> str:
        said = [_short(self.content)]
        if self.data is not UNSET:
            said.append(f"data={_short(self.data)}")
        if self.meta:
            said.append(f"meta={_short(self.meta)}")
        if self.is_error:
            said.append("is_error=True")
        return f"Result({', '.join(said)})"


class Message:
    """One message of a prompt: text, or anything that a tool could return, and who says it."""

    def __init__(self, content: Any, role: t.Role = "user") -> None:
        if role not in ("user", "assistant"):
            raise InvalidArgument(
                f"{role!r} is no role of a message, 'user' and 'assistant' are, and the text comes "
                "first: write Message('hello', 'user')",
                argument="role",
            )
        self.content = content
        self.role: t.Role = role

    def __repr__(self) -> str:
        return f"Message({_short(self.content)}, {self.role!r})"


def named_meta(meta: dict[str, Any] | None, owner: str) -> dict[str, Any] | None:
    """The `_meta` of an author, with a word in the log for keys that break the rule (R0348).

    They are not refused: some hosts read nothing but `openai/toolInvocation/invoking`.
    """
    for key in meta or ():
        if not t.valid_meta_key(key):
            _warn_of_key(owner, key)
    return meta


@lru_cache(MAX_WARNINGS)
def _warn_of_key(owner: str, key: str) -> None:
    log.warning(
        "%s: some clients refuse the key %.80r in meta; use letters, digits, '-', '_' and '.', "
        "with a domain of yours in front: 'example.com/colour'",
        owner,
        key,
    )


def _short(value: Any) -> str:
    """A value in few words, for people and logs: no data is poured out."""
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


_SHOWN = (Image, Audio, File, Link)
_BLOCKS = (TextContent, t.ImageContent, t.AudioContent, t.ResourceLink, t.EmbeddedResource)


def _uri(path: "str | Path | None") -> str:
    if path is None:
        return "file:///data"
    from pathlib import Path

    return Path(path).absolute().as_uri()


def _load(data: bytes | None, path: "str | Path | None") -> tuple[bytes, str | None]:
    if (data is None) is (path is None):
        raise InvalidArgument("give either the bytes or a path, and not both")
    if data is not None:
        return data, None
    import mimetypes
    from pathlib import Path

    path = Path(cast("str | Path", path))
    return path.read_bytes(), mimetypes.guess_type(path.name)[0]


def _typed(
    kind: str, format: str | None, guessed: str | None, path: "str | Path | None"
) -> str | None:
    """The type of a file by its format, or its name; one of another kind is refused."""
    if format:
        return f"{kind}/{format}"
    if guessed is not None and not guessed.startswith(f"{kind}/"):
        raise InvalidArgument(
            f"{path} looks like {guessed}, not like {kind}; give its format=", argument="format"
        )
    return guessed


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def is_content(value: Any) -> bool:
    """Whether a value shows itself as content, rather than being data."""
    if isinstance(value, (*_SHOWN, *_BLOCKS)):
        return True
    return any(hasattr(value, name) for name in ("_repr_png_", "_repr_jpeg_"))


def blocks_of(value: Any) -> list[Block]:
    """A value as content blocks: text, pictures, or its JSON."""
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
    if isinstance(value, _SHOWN):
        return value.block()
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, bytes):
        return File(value).block()
    for name, kind in (("_repr_png_", "png"), ("_repr_jpeg_", "jpeg")):
        shown = getattr(value, name, None)
        if shown is not None:
            drawn = shown()
            data = base64.b64decode(drawn) if isinstance(drawn, str) else cast("bytes", drawn)
            return Image(data, format=kind).block()
    return TextContent(text=_words(value))


def _words(value: Any) -> str:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise LocalProtocolError("a handler returned a generator; return the list of its items")
    try:
        return encoded(value).decode()
    except LocalProtocolError:
        kind = type(value).__name__
        log.warning("a handler returned a %s, which has no JSON; the caller gets its str()", kind)
        return clean(str(value))


def clean(text: str) -> str:
    """Text that can be sent: halves of characters, which UTF-8 has not, are put right."""
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
def _any() -> Codec:
    codec = Signature(_result).output()
    assert codec is not None
    return codec


def encoded(value: Any, codec: Codec | None = None) -> bytes:
    """A value as JSON, of its type where that is known. Raises `LocalProtocolError`."""
    codec = codec or _any()
    try:
        return codec.encode(value)
    except LocalProtocolError:
        try:
            plain = msgspec.to_builtins(value)
            mended = _cleaned(plain)
        except Exception:
            mended = plain = None
        if mended is plain or mended == plain:  # NaN is not even itself
            raise
    return codec.encode(codec.decode(msgspec.json.encode(mended)))


def too_large(blocks: Iterable[Any], data: Any = None) -> str:
    """What to say of contents that are too large to be sent; nothing where they are not."""
    size = len(data) if isinstance(data, Raw | str) else 0
    for block in blocks:
        if type(block) is TextContent:  # most of all
            size += len(block.text)
            continue
        inner = getattr(block, "resource", block)
        parts = (getattr(inner, name, None) for name in ("text", "data", "blob"))
        size += sum(len(part) for part in parts if isinstance(part, str))
    if size <= MAX_RESULT_BYTES:
        return ""
    return f"the result has {size} bytes, of which {MAX_RESULT_BYTES} can be sent; ask for less"


def text_result(value: str) -> CallToolResult:
    """A text that is data, too: the very same in both places, so that it is written once."""
    shown = clean(value)
    return CallToolResult(content=[TextContent(text=shown)], structured_content=shown)


def data_result(value: Any, data: bytes, text: bool) -> CallToolResult:
    """A value that has an output schema, and its JSON, as a result.

    With `text=False` structured data has no copy in words, for clients that read both.
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
