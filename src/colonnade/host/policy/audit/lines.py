"""The lines of an audit log: their members, the hash chain, digests, redaction, and file names.

A line is one JSON object. It has the time, the run of the process that wrote it, its number in
that run, and `prev`: the SHA-256 of the line before it, as it is in the file. The first line of a
file is its head. A run that does not fit into one file goes on in the next, with the same chain.
The head of a run names the last lines of the runs before it (`previous`), so a run that is removed
is missed.

Rules: no I/O. A line has a bounded size, whatever a client or a server sent. Text that another
party wrote is redacted and truncated before it is in a line; contents are in it only if they are
configured.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b, sha256
from time import gmtime, strftime
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct

from colonnade.logs import REDACTED, is_secret_name, redact

# How much of a request and its result is in the log, beside digests.
AuditContents: TypeAlias = Literal["none", "arguments", "all"]
CONTENTS: Final[tuple[AuditContents, ...]] = ("none", "arguments", "all")

FORMAT = 1
# Names of tools, servers, clients and principals: longer than any that a person can tell apart.
MAX_NAME = 256
# Messages and reasons: what a person reads of one.
MAX_TEXT = 1024
# Arguments or a result that are recorded as they are. Larger ones have a digest and their size: a
# line has to be redacted and written while the event loop waits.
MAX_CONTENT_BYTES = 32 * 1024
# Characters of one text that are searched for secrets, and the most that are kept.
MAX_SEARCHED = MAX_CONTENT_BYTES
# Combinations of names that are kept encoded, and the characters of one.
MAX_KNOWN = 1024
MAX_KNOWN_CHARACTERS = 2048
# Nesting of contents; deeper values are left out.
MAX_DEPTH = 32
# A line that was written here is far smaller; a reader does not read on.
MAX_LINE_BYTES = 1024 * 1024
# Runs that one run follows: as many as there are processes that write to one folder at a time.
MAX_PREVIOUS = 64
# The key of a run in the store.
HEAD_PREFIX = "audit "
# Shorter values of environment variables are words that occur by chance.
MIN_SECRET = 8
MAX_SECRETS = 256

HEADS = ("opened", "continued")
CLOSED = "closed"
DROPPED = "dropped"
# The events that end a call.
OUTCOMES = ("returned", "failed", "abandoned")

_encode = msgspec.json.encode


# ---------------------------------------------------------------- files


# Sorted by name, files are in the order in which their runs began, and then in that of their parts.
_FILE = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-([0-9a-f]{16})-(\d{6})\.jsonl")


class FileName(NamedTuple):
    """The name of an audit file: when its run began, the run, and the part of it."""

    began: str
    run: str
    part: int

    def __str__(self) -> str:
        return f"{self.began}-{self.run}-{self.part:06d}.jsonl"


def parse_file_name(name: str) -> FileName | None:
    """The parts of the name of an audit file; None if it is not one."""
    found = _FILE.fullmatch(name)
    return FileName(found[1], found[2], int(found[3])) if found is not None else None


def file_time(time_ns: int) -> str:
    """When a run began, as its files are named."""
    second, fraction = divmod(time_ns // 1000, 1_000_000)
    return strftime("%Y%m%dT%H%M%S", gmtime(second)) + f".{fraction:06d}Z"


# ---------------------------------------------------------------- lines


class PreviousRun(Struct, frozen=True):
    """The last line of another run that a run has found when it began; `began` is when the other
    one did."""

    run: str
    began: str
    seq: int
    digest: str


class StoredHead(Struct, frozen=True):
    """The last line of a run, as a store has it: apart from the files, so that a file that is
    removed, or the end of one, is missed."""

    run: str
    seq: int
    digest: str
    host: str
    folder: str
    time: str


class AuditLine(Struct, frozen=True, kw_only=True):
    """What a reader needs of a line; `audit show` prints all of it."""

    time: str
    run: str
    seq: int
    event: str
    prev: str
    call: str = ""
    input: str = ""
    principal: str = ""
    client: str = ""
    server: str = ""
    method: str = ""
    name: str = ""
    # Of a decision, and of the answer to an approval.
    action: str = ""
    rule: str = ""
    by: str = ""
    # Why there is no answer.
    ended: str = ""
    # Of an outcome.
    is_error: bool = False
    error: str = ""
    # Of a head.
    part: int = 0
    format: int = 0
    host: str = ""
    previous: tuple[PreviousRun, ...] = ()
    # Of events that were lost.
    count: int = 0


_line_decoder: Final = msgspec.json.Decoder(AuditLine)


def decode_line(line: bytes) -> AuditLine | None:
    """A line, without its newline; None if it is not one of an audit log."""
    try:
        return _line_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def line_digest(line: bytes) -> str:
    """The digest of a line, without its newline, as the next line has it."""
    return sha256(line).hexdigest()


def members(fields: Mapping[str, Any]) -> bytes:
    """The members of a line as JSON, without braces."""
    return _encode(fields)[1:-1]


class LineChain:
    """Numbers and chains the lines of one run."""

    __slots__ = ("_begins", "_run", "_second", "digest", "run", "seq")

    def __init__(self, run: str, seq: int = 0, digest: str = "") -> None:
        self.run: str = run
        # Of the last line.
        self.seq: int = seq
        self.digest: str = digest
        self._run = b'","run":"%b","seq":' % run.encode()
        self._second, self._begins = -1, b""

    def line(self, body: bytes, time_ns: int) -> bytes:
        """The next line, without its newline."""
        second = time_ns // 1_000_000_000
        if second != self._second:
            self._second = second
            self._begins = strftime('{"time":"%Y-%m-%dT%H:%M:%S.', gmtime(second)).encode()
        self.seq += 1
        line = b'%b%09dZ%b%d,%b,"prev":"%b"}' % (
            self._begins,
            time_ns - second * 1_000_000_000,
            self._run,
            self.seq,
            body,
            self.digest.encode(),
        )
        self.digest = sha256(line).hexdigest()
        return line


# ---------------------------------------------------------------- digests


class DigestKey:
    """Digests of contents, with a key: a plain digest of a short argument can be guessed by trying
    every value."""

    __slots__ = ("_keyed", "id")

    def __init__(self, key: bytes) -> None:
        derived = blake2b(key, person=b"colonnade audit").digest()
        # The state after the key, from which each digest goes on.
        self._keyed = blake2b(digest_size=32, key=derived)
        # Tells which key was used, and nothing of it.
        self.id: str = blake2b(derived, digest_size=8).hexdigest()

    def digest(self, data: bytes) -> bytes:
        """The BLAKE2b of bytes with the key (RFC 7693), 32 bytes in hexadecimal digits."""
        state = self._keyed.copy()
        state.update(data)
        return state.hexdigest().encode()


# ---------------------------------------------------------------- redaction


class Redactor:
    """Removes secrets from what is recorded: by their form, by their name, and the values of
    environment variables whose names are those of secrets.

    `names` are further names of members and parameters whose values are not recorded.
    """

    def __init__(self, names: Iterable[str] = (), environment: Mapping[str, str] | None = None):
        given = "|".join(re.escape(name) for name in names)
        self._names = re.compile(given, re.IGNORECASE) if given else None
        # As the named secrets of `logs`: a string, or one word.
        value = r"""("(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[^\s,;&"'}\])]++)"""
        self._named = (
            re.compile(rf"""((?:{given})["']?\s{{0,4}}[=:]\s{{0,4}}+){value}""", re.IGNORECASE)
            if given
            else None
        )
        self._values = _secret_values(environment or {})
        # Most names occur in every line of a call, and in many calls.
        self._cached = lru_cache(maxsize=1024)(self._label)

    def text(self, text: str) -> str:
        """Text without secrets. Of a long text only the beginning is searched and kept: more than a
        line has."""
        text = text[:MAX_SEARCHED]
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        text = redact(text)
        if self._named is not None:
            text = self._named.sub(rf"\1{REDACTED}", text)
        return text

    def name(self, text: str) -> str:
        """A name, without secrets and truncated."""
        if not text:
            return ""
        return self._cached(text) if len(text) <= MAX_TEXT else self._label(text)

    def message(self, text: str) -> str:
        """A message, without secrets and truncated."""
        return truncate(self.text(text), MAX_TEXT, len(text))

    def content(self, raw: bytes) -> Any:
        """Contents without secrets: plain data of JSON, or a note why there is none."""
        if len(raw) > MAX_CONTENT_BYTES:
            return {"omitted": f"more than {MAX_CONTENT_BYTES} bytes"}
        try:
            return self._data(msgspec.json.decode(raw), 0)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {"omitted": "not JSON"}

    def _label(self, text: str) -> str:
        return truncate(self.text(text), MAX_NAME, len(text))

    def _is_secret(self, name: str) -> bool:
        return is_secret_name(name) or (
            self._names is not None and self._names.search(name) is not None
        )

    def _data(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return encodable(self.text(value))
        if not isinstance(value, dict | list):
            return value
        if depth == MAX_DEPTH:
            return "[omitted: nested too deeply]"
        if isinstance(value, list):
            return [self._data(item, depth + 1) for item in cast("list[Any]", value)]
        return {
            encodable(self.text(key)): REDACTED
            if self._is_secret(key)
            else self._data(item, depth + 1)
            for key, item in cast("dict[str, Any]", value).items()
        }


class NameMembers:
    """Encodes names as members, redacted and truncated. The same names are in many lines, so what
    was encoded is kept."""

    __slots__ = ("_fields", "_known", "_name")

    def __init__(self, redactor: Redactor, *fields: str) -> None:
        self._fields = fields
        self._name = redactor.name
        self._known: dict[tuple[str, ...], bytes] = {}

    def encode(self, names: tuple[str, ...]) -> bytes:
        """The members, without braces."""
        found = self._known.get(names)
        if found is None:
            pairs = zip(self._fields, names, strict=True)
            found = members({field: self._name(text) for field, text in pairs})
            if sum(map(len, names)) <= MAX_KNOWN_CHARACTERS:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[names] = found
        return found


def _secret_values(environment: Mapping[str, str]) -> re.Pattern[str] | None:
    found = {
        value
        for name, value in environment.items()
        if len(value) >= MIN_SECRET and is_secret_name(name)
    }
    if not found:
        return None
    # The longest first: one may be the beginning of another.
    longest = sorted(found, key=lambda value: (-len(value), value))[:MAX_SECRETS]
    return re.compile("|".join(map(re.escape, longest)))


def truncate(text: str, limit: int, length: int) -> str:
    """Text of at most `limit` characters, with a mark that says how long it was."""
    if len(text) > limit:
        text = f"{text[:limit]}… ({length} characters)"
    return encodable(text)


def encodable(text: str) -> str:
    """Text that can be encoded: a lone surrogate becomes its escape."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
