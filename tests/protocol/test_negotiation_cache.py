"""The cache of `_meta` envelopes: what is found again, and what is decoded each time."""

import pytest
from msgspec import Raw

from colonnade.protocol.negotiation_cache import EnvelopeCache

VERSION = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"'


def envelope(token: str) -> Raw:
    return Raw(f'{{{VERSION},"progressToken":{token}}}'.encode())


def test_an_envelope_is_found_again_whatever_its_progress_token() -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    assert cache.get(envelope("1")) is None
    cache.put(envelope("1"), "peer")
    assert cache.get(envelope("2")) == "peer"
    assert len(cache) == 1


@pytest.mark.parametrize(
    "meta",
    [
        b'{"progressToken":',
        b'{"progressToken":"a string"}',
        b'{"progressToken":1,"progressToken":2}',
        b'{"progressToken":1,"example.com/own":2}',
        b"{ " + VERSION.encode() + b',"progressToken":1}',
    ],
    ids=["not JSON", "not a number", "twice", "another member", "white space"],
)
def test_an_envelope_whose_token_cannot_be_left_out_is_not_remembered(meta: bytes) -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    cache.put(Raw(meta), "peer")
    assert cache.get(Raw(meta)) is None
    assert len(cache) == 0
