"""From a function to a resource or a prompt: what it returns, as the protocol wants it.

Rules: pure but for running the function; nothing is fetched. A failure is a protocol error here,
in the author's words or with an id.
"""

import asyncio
import base64
import errno
import mimetypes
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from colonnade.errors import Fault, FaultKind, InvalidArgument, ToolError
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.schema.error_messages import MAX_TEXT_CHARS, truncate
from colonnade.server.handlers.content import (
    Audio,
    File,
    Image,
    Message,
    blocks_of,
    clean,
    encoded,
    too_large,
)
from colonnade.server.handlers.function import Bound, single
from colonnade.server.options import CallerLost
from colonnade.server.registry import RunPrompt, Values

# A resource travels as one message, in base64 where it is no text.
MAX_FILE_BYTES = 8 * 1024 * 1024
# Names of a folder that are listed.
MAX_NAMES = 1000

DIRECTORY_TYPE = "inode/directory"
_TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/toml")


class Folder:
    """One folder whose files may be read."""

    def __init__(self, root: str | Path, *, hidden: bool = False) -> None:
        self._root = Path(root).resolve()
        if not self._root.is_dir():
            raise InvalidArgument(f"{root} is no folder")
        self._hidden = hidden

    def read(self, path: str, uri: str) -> File | t.ResourceContents | None:
        """The contents of a file, or the names in a folder; None for what is not there."""
        names = self._names(path)
        if names is None:
            return None
        try:
            descriptor = self._walk(names)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return None
            raise
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return self._list(descriptor, uri)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES)
        finally:
            os.close(descriptor)
        return _file(data, names[-1], uri)

    def _names(self, path: str) -> list[str] | None:
        names = [name for name in path.split("/") if name]
        for name in names:
            if name in (".", "..") or "\\" in name or "\0" in name or ":" in name:
                return None
            if name.startswith(".") and not self._hidden:
                return None
        return None if path.startswith("/") else names

    def _walk(self, names: list[str]) -> int:
        """A descriptor of what is there; no step follows a link."""
        if os.open not in os.supports_dir_fd:
            return self._walk_by_name(names)
        reading = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        place = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names:
            try:
                found = os.open(name, reading, dir_fd=place)
            finally:
                os.close(place)
            place = found
        return place

    def _walk_by_name(self, names: list[str]) -> int:
        """Where descriptors of folders do not exist: the real path must be below the root."""
        path = self._root.joinpath(*names)
        if path.resolve() != path:
            raise OSError(errno.ELOOP, "a link")
        return os.open(path, os.O_RDONLY)

    def _list(self, descriptor: int, uri: str) -> t.ResourceContents:
        names = sorted(os.listdir(descriptor))
        shown = [name for name in names if self._hidden or not name.startswith(".")]
        return t.ResourceContents(
            uri=uri, mime_type=DIRECTORY_TYPE, text="\n".join(shown[:MAX_NAMES])
        )


def _file(data: bytes, name: str, uri: str) -> File:
    kind = mimetypes.guess_type(name)[0]
    is_text = kind is None or kind.startswith("text/") or kind in _TEXT_TYPES
    if is_text and b"\0" not in data:
        try:
            return File(data.decode(), uri=uri, mime_type=kind or "text/plain")
        except UnicodeDecodeError:
            pass
    return File(data, uri=uri, mime_type=kind)


def reading(folder: Folder, prefix: str) -> Callable[[str], File | t.ResourceContents | None]:
    """The function that a template of files is bound to."""

    def read(path: str) -> File | t.ResourceContents | None:
        return folder.read(path, prefix + path)

    return read


if TYPE_CHECKING:
    from colonnade.server.context.context import Context


def missing(uri: str) -> Fault:
    """A resource that is not there, with its address, as the specification wants it."""
    shown = truncate(uri, MAX_TEXT_CHARS)
    words = f"resource not found: {shown}; list the resources to see what there is"
    return Fault(FaultKind.RESOURCE_MISSING, words, {"uri": uri[:2000]})


async def guarded(
    bound: Bound, request: RequestContext, run: Awaitable[t.ProtocolType], name: str = ""
) -> t.ProtocolType:
    """Run a function whose failures are protocol errors; `name` is what the caller calls it."""
    name = name or bound.name
    try:
        return await run
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # whatever a function raises, it ends its own call alone
        cause = single(error)
        if isinstance(cause, Fault | CallerLost):
            raise cause from None
        if isinstance(cause, ToolError):
            raise Fault(FaultKind.INTERNAL, f"{name}: {cause}") from error
        words = bound.surroundings.crashes.words(name, error, request)
        raise Fault(FaultKind.INTERNAL, words) from error


def _check_size(blocks: Iterable[Any]) -> None:
    words = too_large(blocks)
    if words:
        raise ToolError(words)


# ---------------------------------------------------------------- resources


class ResourceReader:
    """What answers `resources/read` for a function."""

    def __init__(
        self,
        bound: Bound,
        mime_type: str | None,
        ttl_ms: int | None = None,
        cache_scope: "t.CacheScope | None" = None,
    ) -> None:
        self._bound = bound
        self._mime_type = mime_type
        self._ttl_ms = ttl_ms
        self._cache_scope: t.CacheScope | None = cache_scope

    async def run(
        self,
        request: RequestContext,
        params: "t.ReadResourceRequestParams",
        values: Values,
        context: "Context | None" = None,
        /,
    ) -> t.ProtocolType:
        """Read it, for this caller."""
        bound = self._bound
        try:
            arguments = bound.decode(msgspec.json.encode(values))
        except Fault:
            raise missing(params.uri) from None  # such an address is nobody's

        if bound.alone or context is not None:
            return await guarded(bound, request, self._read(arguments, context, params.uri))
        run = bound.surroundings.interviewed(
            request, params, lambda context: self._read(arguments, context, params.uri)
        )
        result = await guarded(bound, request, run)
        answered = params.request_state is not None or params.input_responses is not None
        if answered and isinstance(result, t.ReadResourceResult):
            # R1003: it depends on more than its address, so nobody may keep it.
            result = msgspec.structs.replace(result, ttl_ms=0, cache_scope="private")
        return result

    async def _read(
        self, arguments: dict[str, Any], context: "Context | None", uri: str
    ) -> t.ProtocolType:
        try:
            value = await self._bound.call(arguments, context)
        except FileNotFoundError:
            raise missing(uri) from None
        if value is None:
            raise missing(uri)
        result = contents_of(value, uri, self._mime_type)
        _check_size(result.contents)
        return msgspec.structs.replace(
            result,
            ttl_ms=self._ttl_ms if result.ttl_ms is None else result.ttl_ms,
            cache_scope=result.cache_scope or self._cache_scope,
        )


def contents_of(value: Any, uri: str, mime_type: str | None) -> "t.ReadResourceResult":
    """What a function returned, as the contents of a resource."""
    if isinstance(value, t.ReadResourceResult):
        return value
    items: list[Any] = [value]
    if isinstance(value, list) and _several(cast("list[Any]", value)):
        items = cast("list[Any]", value)
    return t.ReadResourceResult(contents=[_content(item, uri, mime_type) for item in items])


def _several(values: list[Any]) -> bool:
    """A list of contents is several contents; a list of anything else is one, as JSON."""
    parts = (str, bytes, File, t.ResourceContents)
    return bool(values) and all(isinstance(value, parts) for value in values)


def _content(value: Any, uri: str, mime_type: str | None) -> t.ResourceContents:
    if isinstance(value, t.ResourceContents):
        return value
    if isinstance(value, File):
        return value.contents
    if isinstance(value, Image | Audio):
        block = cast("t.ImageContent | t.AudioContent", value.block())
        return t.ResourceContents(uri=uri, mime_type=block.mime_type, blob=block.data)
    if isinstance(value, bytes):
        blob = base64.b64encode(value).decode()
        kind = mime_type or "application/octet-stream"
        return t.ResourceContents(uri=uri, mime_type=kind, blob=blob)
    if isinstance(value, str):
        return t.ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=clean(value))
    text = encoded(value).decode()
    return t.ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)


# ---------------------------------------------------------------- prompts


def prompter(bound: Bound, description: str | None) -> RunPrompt:
    """What answers `prompts/get` for a function."""

    async def run(request: RequestContext, params: "t.GetPromptRequestParams", /) -> t.ProtocolType:
        try:
            arguments = bound.decode(msgspec.json.encode(params.arguments or {}))
        except Fault as fault:
            raise Fault(fault.kind, f"{params.name}: {fault.message}") from None

        async def prompt(context: "Context | None") -> t.ProtocolType:
            result = prompted(await bound.call(arguments, context), description)
            _check_size(message.content for message in result.messages)
            return result

        if bound.alone:
            return await guarded(bound, request, prompt(None), params.name)
        asked = bound.surroundings.interviewed(request, params, prompt)
        return await guarded(bound, request, asked, params.name)

    return run


def prompted(value: Any, description: str | None) -> "t.GetPromptResult":
    """What a function returned, as the messages of a prompt."""
    if isinstance(value, t.GetPromptResult):
        return value
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    messages: list[t.PromptMessage] = []
    for item in items:
        if isinstance(item, t.PromptMessage):
            messages.append(item)
            continue
        said = item if isinstance(item, Message) else Message(item)
        messages += [
            t.PromptMessage(role=said.role, content=block) for block in blocks_of(said.content)
        ]
    return t.GetPromptResult(messages=messages, description=description)
