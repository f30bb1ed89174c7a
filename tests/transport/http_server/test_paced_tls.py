"""The paced transport between a connection and TLS, without sockets."""

import asyncio
from typing import Any, cast

from colonnade.transport.http_server.paced_tls import (
    HIGH_BYTES,
    PIECE_BYTES,
    PacedProtocol,
)

LARGE = bytes(range(256)) * (HIGH_BYTES // 64)


class FullTls:
    """A TLS transport that pauses after each write until a test lets it take more."""

    def __init__(self) -> None:
        self.protocol: asyncio.Protocol
        self.limits = (0, 0)
        self.written: list[bytes] = []
        self.unsent = 0
        self.calls: list[str] = []

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (high, low)
        if self.unsent:
            self.protocol.pause_writing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return f"the {name}"

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return bool(self.calls)

    def write(self, data: memoryview) -> None:
        assert not self.unsent, "it is paused"
        self.written.append(bytes(data))
        self.unsent = len(data)
        self.protocol.pause_writing()

    def take(self) -> None:
        self.unsent = 0
        self.protocol.resume_writing()

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause reading")

    def resume_reading(self) -> None:
        self.calls.append("resume reading")


class Seen(asyncio.Protocol):
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


def connected(unsent: int = 0) -> tuple[FullTls, Seen, asyncio.Transport]:
    tls, seen = FullTls(), Seen()
    tls.unsent = unsent
    tls.protocol = PacedProtocol(seen)
    tls.protocol.connection_made(cast("asyncio.Transport", tls))
    return tls, seen, seen.transport


def test_any_byte_that_the_socket_does_not_take_pauses() -> None:
    tls, _, _ = connected()
    assert tls.limits == (1, 0)


def test_the_end_of_the_handshake_is_sent_before_a_response() -> None:
    tls, seen, transport = connected(unsent=200)
    transport.write(b"response")
    assert tls.written == []
    tls.take()
    assert tls.written == [b"response"]
    assert seen.told == []


def test_a_large_write_goes_on_in_pieces_and_the_rest_counts() -> None:
    tls, seen, transport = connected()
    transport.write(LARGE)
    assert [len(piece) for piece in tls.written] == [PIECE_BYTES]
    assert transport.get_write_buffer_size() == len(LARGE)
    assert seen.told == ["pause"]
    transport.write(b"more")
    assert seen.told == ["pause"]
    while tls.unsent:
        tls.take()
    assert b"".join(tls.written) == LARGE + b"more"
    assert max(map(len, tls.written)) == PIECE_BYTES
    assert seen.told == ["pause", "resume"]
    assert transport.get_write_buffer_size() == 0


def test_a_small_write_does_not_pause_the_connection() -> None:
    tls, seen, transport = connected()
    transport.write(b"one")
    transport.write(b"")
    transport.write(b"two")
    assert (tls.written, transport.get_write_buffer_size()) == ([b"one"], 6)
    tls.take()
    tls.take()
    assert (tls.written, transport.get_write_buffer_size()) == ([b"one", b"two"], 0)
    assert seen.told == []


def test_close_writes_the_rest_first_and_closes_once() -> None:
    tls, _, transport = connected()
    transport.write(LARGE)
    transport.close()
    transport.close()
    transport.write(b"too late")
    assert transport.is_closing()
    while tls.unsent:
        assert tls.calls == []
        tls.take()
    transport.close()
    assert tls.calls == ["close"]
    assert b"".join(tls.written) == LARGE


def test_close_with_nothing_to_write_closes_at_once() -> None:
    tls, _, transport = connected()
    transport.close()
    assert tls.calls == ["close"]


def test_abort_drops_the_rest() -> None:
    tls, _, transport = connected()
    transport.write(LARGE)
    transport.abort()
    assert tls.calls == ["abort"]
    assert transport.get_write_buffer_size() == PIECE_BYTES
    tls.take()
    assert len(tls.written) == 1


def test_a_lost_connection_drops_the_rest_and_is_not_kept() -> None:
    tls, seen, transport = connected()
    transport.write(LARGE)
    tls.protocol.connection_lost(None)
    transport.write(b"too late")
    tls.take()
    assert transport.is_closing()
    assert transport.get_write_buffer_size() == 0
    assert len(tls.written) == 1
    assert seen.told == ["pause", "lost"]


def test_what_is_read_passes_through() -> None:
    tls, seen, transport = connected()
    tls.protocol.data_received(b"request")
    transport.pause_reading()
    transport.resume_reading()
    assert seen.told == [b"request"]
    assert tls.calls == ["pause reading", "resume reading"]
    assert transport.get_extra_info("sslcontext") == "the sslcontext"
