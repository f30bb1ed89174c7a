"""What a server sends: words are shown, pictures, sounds and files are named, and kept where asked.

Rules: a file is written into the folder that was named and nowhere else, whatever a server calls
it; nothing that is there is overwritten or followed. Names are made of letters, digits, `.`, `-`
and `_`, and never begin with a dot.
"""

import base64
import binascii
import mimetypes
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from colonnade.cli.screen import Screen
from colonnade.cli.text import one_line
from colonnade.cli.trouble import Trouble
from colonnade.errors import RemoteProtocolError
from colonnade.protocol import types as t

# A name of a file, without what makes it different from others.
MAX_NAME = 80
# Others of the same name in the folder, until another name should be thought of.
MAX_SAME = 10_000

_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
# Where several are usual, the system's own tables do not agree.
_ENDINGS = {
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "text/markdown": ".md",
    "text/plain": ".txt",
}


class Folder:
    """Where files are kept; nowhere, if nobody said so."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        if self._path is None:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Trouble(f"--out {path}: it cannot be made: {error.strerror}") from None

    def __bool__(self) -> bool:
        return self._path is not None

    def keep(self, name: str, mime_type: str | None, data: bytes) -> str:
        """Write a file under a name like this one; what it is called in the end."""
        assert self._path is not None
        stem, ending = os.path.splitext(safe_name(name))
        ending = ending or ending_of(mime_type)
        for number in range(1, MAX_SAME):
            path = self._path / (f"{stem}-{number}{ending}" if number > 1 else stem + ending)
            try:
                with open(path, "xb") as file:
                    file.write(data)
                return str(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise Trouble(f"{path} cannot be written: {error.strerror}") from None
        raise Trouble(f"{self._path} has {MAX_SAME} files that are called {stem}; choose another")


def safe_name(name: str) -> str:
    """A name that is a name in any folder, and nothing else."""
    last = name.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    plain = _FORBIDDEN.sub("-", last).lstrip(".-")[-MAX_NAME:].lstrip(".-")
    return plain or "file"


def ending_of(mime_type: str | None) -> str:
    """What files of this type end with."""
    plain = (mime_type or "").partition(";")[0].strip().lower()
    return _ENDINGS.get(plain) or mimetypes.guess_extension(plain) or ".bin"


def decoded(data: str, what: str) -> bytes:
    """What travelled as base64. Raises `RemoteProtocolError`."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"{what} is no base64, and cannot be shown or kept") from None


# ---------------------------------------------------------------- blocks


def show_blocks(
    blocks: Iterable[t.ContentBlock], screen: Screen, folder: Folder, name: str
) -> None:
    """Show the blocks of a result in their order, and keep what is no text."""
    for block in blocks:
        match block:
            case t.TextContent():
                screen.show(block.text)
            case t.ImageContent() | t.AudioContent():
                data = decoded(block.data, f"a block of type {block.type}")
                screen.write(_kept(block.type, block.mime_type, data, folder, name))
            case t.EmbeddedResource():
                _show_resource(block.resource, screen, folder)
            case t.ResourceLink():
                title = one_line(t.display_name(block))
                screen.write(f"[link {one_line(block.uri)}, {title}]\n")
            case t.UnknownContent():
                screen.write(f"[a block of type {one_line(block.type)}; --json shows it]\n")


def _show_resource(resource: t.ResourceContents, screen: Screen, folder: Folder) -> None:
    if resource.text is not None and not folder:
        screen.show(resource.text)
        return
    data = contents_of(resource)
    screen.write(_kept("file", resource.mime_type, data, folder, resource.uri))


def contents_of(resource: t.ResourceContents) -> bytes:
    """The bytes of a resource."""
    if resource.text is not None:
        return resource.text.encode("utf-8", "surrogatepass")
    return decoded(resource.blob or "", f"the content of {one_line(resource.uri)}")


def _kept(what: str, mime_type: str | None, data: bytes, folder: Folder, name: str) -> str:
    told = f"{what} {one_line(mime_type)}".strip()
    if folder:
        return f"[{told}, {len(data)} bytes: {folder.keep(name, mime_type, data)}]\n"
    if what == "file":
        told += f" {one_line(name)}"
    return f"[{told}, {len(data)} bytes; --out DIR keeps it]\n"


def show_contents(contents: list[t.ResourceContents], screen: Screen, folder: Folder) -> None:
    """Show what a resource holds: text as it is, bytes as they are where nobody looks at them."""
    for one in contents:
        if folder:
            screen.write(_kept("file", one.mime_type, contents_of(one), folder, one.uri))
        elif one.text is not None:
            screen.show(one.text, ended=len(contents) > 1)
        elif screen.is_terminal or len(contents) > 1:
            screen.write(_kept("file", one.mime_type, contents_of(one), folder, one.uri))
        else:
            screen.write_bytes(contents_of(one))


def plain_blocks(blocks: Iterable[t.ContentBlock]) -> list[Any]:
    """Blocks as JSON has them."""
    return [b.whole.members if isinstance(b, t.UnknownContent) else b for b in blocks]
