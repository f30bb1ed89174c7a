"""A cache of decoded `_meta` envelopes.

Clients repeat their `_meta` in every request, so it is decoded once. Only the progress token
differs, and is left out of the comparison: decoding the whole envelope takes a fifth of the time
of a call over HTTP.

Rules: no I/O. Bytes are compared, never their meaning. The size of the cache is limited.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from colonnade.protocol.jsonrpc import NOTHING
from colonnade.protocol.types import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
)

V = TypeVar("V")

# Larger ones and more of them are decoded each time: a client must not fill our memory.
MAX_REMEMBERED = 256
MAX_REMEMBERED_BYTES = 4096
# A counter of requests stays below this; every JSON decoder reads it exactly.
MAX_DIGITS = 15
# A UUID has 38 with its quotes; `check_progress_token` accepts more.
MAX_TOKEN_BYTES = 128

_TOKEN = PROGRESS_TOKEN_KEY.encode()
_QUOTE, _BACKSLASH = b'"\\'
# What is written around the token, after other members.
_AROUND_TOKEN = len(b',"":') + len(_TOKEN)


class _Members(Struct, gc=False, omit_defaults=True):
    """The members of an envelope, each as it is written."""

    version: Raw = msgspec.field(name=PROTOCOL_VERSION_KEY, default=NOTHING)
    capabilities: Raw = msgspec.field(name=CLIENT_CAPABILITIES_KEY, default=NOTHING)
    client_info: Raw = msgspec.field(name=CLIENT_INFO_KEY, default=NOTHING)
    log_level: Raw = msgspec.field(name=LOG_LEVEL_KEY, default=NOTHING)
    token: Raw = msgspec.field(name=PROGRESS_TOKEN_KEY, default=NOTHING)


_decode = msgspec.json.Decoder(_Members).decode
_encode = msgspec.json.Encoder().encode


class EnvelopeCache(Generic[V]):
    """A value for each of the last `_meta` envelopes."""

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Raw, V]] = {}
        self._last: tuple[Raw, V] | None = None
        # The last envelope as it begins if a progress token follows as its last member.
        self._before_token = b""

    def __len__(self) -> int:
        return len(self._kept)

    def last(self, meta: Raw) -> V | None:
        """The value of the last envelope, if this one is the same."""
        last = self._last
        return last[1] if last is not None and meta == last[0] else None

    def get(self, meta: Raw) -> V | None:
        """The value of an envelope; None if it must be decoded."""
        last = self._last
        if last is not None and meta == last[0]:  # the comparison stops at the first difference
            return last[1]
        raw, head = bytes(meta), self._before_token
        if (
            last is not None
            and head
            and raw.startswith(head)
            and raw[-1:] == b"}"
            and _is_plain(raw[len(head) : -1])
        ):
            return last[1]
        key = _key(raw)
        found = self._kept.get(key) if key is not None else None
        if found is None:
            return None
        self._remember(found)
        return found[1]

    def put(self, meta: Raw, value: V) -> None:
        """Remember the value of an envelope, unless it could never be found again."""
        key = _key(bytes(meta))
        if key is None or len(key) > MAX_REMEMBERED_BYTES:
            return
        if len(self._kept) >= MAX_REMEMBERED:
            self._kept.clear()
        kept = self._kept[key] = Raw(key), value
        self._remember(kept)

    def _remember(self, kept: tuple[Raw, V]) -> None:
        key = bytes(kept[0])
        self._last = kept
        # With escapes the token may be in the envelope already.
        self._before_token = b"" if b"\\" in key else b'%b,"%b":' % (key[:-1], _TOKEN)


def _key(raw: bytes) -> bytes | None:
    """The bytes to compare: the envelope without its progress token. None if the token cannot be
    left out: it is not plain, or there are other members, or a duplicate one.

    Encoded again, these members and the token are as long as before only if nothing else was
    there, and each in its shortest form.
    """
    if raw.find(_TOKEN) < 0:
        return raw
    try:
        members = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    token = bytes(members.token)
    if not _is_plain(token):
        return None
    members.token = NOTHING
    key = _encode(members)
    return key if len(key) + _AROUND_TOKEN + len(token) == len(raw) else None


def _is_plain(token: bytes) -> bool:
    """Whether a progress token is a short number, or a short string of visible ASCII characters
    without escapes: it is valid then, and nothing but a token."""
    if token.isdigit():
        return len(token) <= MAX_DIGITS
    return (
        len(token) <= MAX_TOKEN_BYTES
        and token.isascii()
        and token.count(_QUOTE) == 2
        and token.startswith(b'"')
        and token.endswith(b'"')
        and _BACKSLASH not in token
        and token.decode().isprintable()
    )
