"""A folder as resources: each file by its path below it, and nothing outside of it.

Rules: a path is taken apart and walked one name at a time, and no name may be a link, so that
neither `..` nor an absolute path nor a link leads out, also if somebody changes the folder
meanwhile. What is too large, or no plain file, is not there.
"""

import errno
import mimetypes
import os
import stat
from collections.abc import Callable
from pathlib import Path

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.server.content import File

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
            raise LocalProtocolError(f"{root} is no folder")
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
