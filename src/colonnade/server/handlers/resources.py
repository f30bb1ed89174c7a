"""Resources and prompts from functions, and the files of a directory as resources.

Rules: nothing is fetched. A failure is a protocol error with the message of a `ToolError` or an id.
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
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.schema.error_messages import MAX_TEXT_CHARS, truncate
from colonnade.server.handlers.content import (
    Audio,
    File,
    Image,
    Message,
    blocks_of,
    clean,
    encoded,
    size_error,
)
from colonnade.server.handlers.function import Bound, unwrap_group
from colonnade.server.registry import RunPrompt, Values

# A resource is sent in one message, in base64 if it is not text.
MAX_FILE_BYTES = 8 * 1024 * 1024
# Names in the listing of a directory.
MAX_NAMES = 1000

DIRECTORY_TYPE = "inode/directory"
_TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/toml")


class Folder:
    """A directory whose files are resources."""

    def __init__(self, root: str | Path, *, hidden: bool = False) -> None:
        self._root = Path(root).resolve()
        if not self._root.is_dir():
            raise InvalidArgument(f"{root} is not a directory")
        self._hidden = hidden

    def read(self, path: str, uri: str) -> File | t.ResourceContents | None:
        """The contents of a file, or the names in a directory; None if there is neither."""
        names = self._names(path)
        if names is None:
            return None
        try:
            descriptor = self._open(names)
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

    def _open(self, names: list[str]) -> int:
        """A file descriptor; symbolic links are not followed."""
        if os.open not in os.supports_dir_fd:
            return self._open_by_path(names)
        make_reader = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names:
            try:
                found = os.open(name, make_reader, dir_fd=directory)
            finally:
                os.close(directory)
            directory = found
        return directory

    def _open_by_path(self, names: list[str]) -> int:
        """For platforms without `dir_fd`: the real path must be below the root."""
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


def make_reader(folder: Folder, prefix: str) -> Callable[[str], File | t.ResourceContents | None]:
    """The function of the resource template of a directory."""

    def read(path: str) -> File | t.ResourceContents | None:
        return folder.read(path, prefix + path)

    return read


if TYPE_CHECKING:
    from colonnade.server.context.context import Context


def resource_not_found(uri: str) -> Fault:
    """The error of an unknown resource, with its URI in `data`."""
    shown = truncate(uri, MAX_TEXT_CHARS)
    message = f"resource not found: {shown}; list the resources to see what there is"
    return Fault(FaultKind.RESOURCE_MISSING, message, {"uri": uri[:2000]})


async def as_protocol_errors(
    bound: Bound, request: RequestContext, run: Awaitable[t.ProtocolType], name: str = ""
) -> t.ProtocolType:
    """Await a handler; its exceptions become protocol errors that name it `name`."""
    name = name or bound.name
    try:
        return await run
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # even SystemExit ends only this request
        cause = unwrap_group(error)
        if isinstance(cause, Fault | CallerLost):
            raise cause from None
        if isinstance(cause, ToolError):
            raise Fault(FaultKind.INTERNAL, f"{name}: {cause}") from error
        message = bound.environment.error_reporter.report(name, error, request)
        raise Fault(FaultKind.INTERNAL, message) from error


def _check_size(blocks: Iterable[Any]) -> None:
    message = size_error(blocks)
    if message:
        raise ToolError(message)


# ---------------------------------------------------------------- resources


class ResourceReader:
    """Handles `resources/read` by calling a function."""

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
        """Read the resource for this caller."""
        bound = self._bound
        try:
            arguments = bound.decode(msgspec.json.encode(values))
        except Fault:
            raise resource_not_found(params.uri) from None  # no resource has this URI

        if bound.only_arguments or context is not None:
            return await as_protocol_errors(
                bound, request, self._read(arguments, context, params.uri)
            )
        run = bound.environment.run_rounds(
            request, params, lambda context: self._read(arguments, context, params.uri)
        )
        result = await as_protocol_errors(bound, request, run)
        is_retry = params.request_state is not None or params.input_responses is not None
        if is_retry and isinstance(result, t.ReadResourceResult):
            # R1003: it depends on more than its URI, so it must not be cached.
            result = msgspec.structs.replace(result, ttl_ms=0, cache_scope="private")
        return result

    async def _read(
        self, arguments: dict[str, Any], context: "Context | None", uri: str
    ) -> t.ProtocolType:
        try:
            value = await self._bound.call(arguments, context)
        except FileNotFoundError:
            raise resource_not_found(uri) from None
        if value is None:
            raise resource_not_found(uri)
        result = contents_of(value, uri, self._mime_type)
        _check_size(result.contents)
        return msgspec.structs.replace(
            result,
            ttl_ms=self._ttl_ms if result.ttl_ms is None else result.ttl_ms,
            cache_scope=result.cache_scope or self._cache_scope,
        )


def contents_of(value: Any, uri: str, mime_type: str | None) -> "t.ReadResourceResult":
    """The return value of a function as the contents of a resource."""
    if isinstance(value, t.ReadResourceResult):
        return value
    items: list[Any] = [value]
    if isinstance(value, list) and _is_list_of_contents(cast("list[Any]", value), mime_type):
        items = cast("list[Any]", value)
    return t.ReadResourceResult(contents=[_content(item, uri, mime_type) for item in items])


def _is_list_of_contents(values: list[Any], mime_type: str | None) -> bool:
    """Whether each item of a list is a resource content of its own. Any other list is one JSON
    document.

    Strings are separate contents, unless the media type is JSON: then the list is the document.
    """
    parts = (File, t.ResourceContents) if _is_json(mime_type) else _PARTS
    return bool(values) and all(isinstance(value, parts) for value in values)


_PARTS = (str, bytes, File, t.ResourceContents)


def _is_json(mime_type: str | None) -> bool:
    """Whether a media type is JSON: `application/json`, or has the suffix `+json` (RFC 6839)."""
    kind = (mime_type or "").partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


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


def make_prompt_handler(bound: Bound, description: str | None) -> RunPrompt:
    """A handler of `prompts/get` that calls a function."""

    async def run(request: RequestContext, params: "t.GetPromptRequestParams", /) -> t.ProtocolType:
        try:
            arguments = bound.decode(msgspec.json.encode(params.arguments or {}))
        except Fault as fault:
            raise Fault(fault.kind, f"{params.name}: {fault.message}") from None

        async def prompt(context: "Context | None") -> t.ProtocolType:
            result = prompt_result(await bound.call(arguments, context), description)
            _check_size(message.content for message in result.messages)
            return result

        if bound.only_arguments:
            return await as_protocol_errors(bound, request, prompt(None), params.name)
        rounds = bound.environment.run_rounds(request, params, prompt)
        return await as_protocol_errors(bound, request, rounds, params.name)

    return run


def prompt_result(value: Any, description: str | None) -> "t.GetPromptResult":
    """The return value of a function as the messages of a prompt."""
    if isinstance(value, t.GetPromptResult):
        return value
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    messages: list[t.PromptMessage] = []
    for item in items:
        if isinstance(item, t.PromptMessage):
            messages.append(item)
            continue
        message_item = item if isinstance(item, Message) else Message(item)
        messages += [
            t.PromptMessage(role=message_item.role, content=block)
            for block in blocks_of(message_item.content)
        ]
    return t.GetPromptResult(messages=messages, description=description)
