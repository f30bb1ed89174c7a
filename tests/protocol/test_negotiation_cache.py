"""The cache of `_meta` envelopes: what is found again, and what is decoded each time."""

import pytest
from msgspec import Raw

from colonnade.protocol.negotiation_cache import EnvelopeCache

VERSION = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"'


def envelope(token: str) -> Raw:
    return Raw(f'{{{VERSION},"progressToken":{token}}}'.encode())


@pytest.mark.parametrize("first", ["1", '"one"'])
@pytest.mark.parametrize("second", ["2", '"two"'])
def test_an_envelope_is_found_again_whatever_its_progress_token(first: str, second: str) -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    assert cache.get(envelope(first)) is None
    cache.put(envelope(first), "peer")
    assert cache.get(envelope(second)) == "peer"
    assert len(cache) == 1


@pytest.mark.parametrize(
    "meta",
    [
        b'{"progressToken":',
        b'{"progressToken":1.5}',
        rb'{"progressToken":"a\u0062"}',
        b'{"progressToken":1,"progressToken":2}',
        b'{"progressToken":1,"example.com/own":2}',
        b"{ " + VERSION.encode() + b',"progressToken":1}',
    ],
    ids=["not JSON", "not a token", "escaped", "twice", "another member", "white space"],
)
def test_an_envelope_whose_token_cannot_be_left_out_is_not_remembered(meta: bytes) -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    cache.put(Raw(meta), "peer")
    assert cache.get(Raw(meta)) is None
    assert len(cache) == 0


@pytest.mark.parametrize(
    "end",
    ["x}", "1", "1]", '1,"a":2}', "1" * 16 + "}", '"a"', '"a","b":"c"}', '"a":"}'],
)
def test_an_envelope_that_goes_on_after_its_token_is_not_that_of_the_last_one(end: str) -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    cache.put(envelope("1"), "peer")
    assert cache.get(Raw(f'{{{VERSION},"progressToken":{end}'.encode())) is None


def test_an_envelope_with_escapes_is_decoded_again_if_a_token_is_added() -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    escaped = VERSION + r',"progress\u0054oken":1'
    cache.put(Raw(f"{{{escaped}}}".encode()), "peer")
    assert cache.get(Raw(f'{{{escaped},"progressToken":2}}'.encode())) is None


def test_an_envelope_is_found_again_after_that_of_another_client() -> None:
    cache: EnvelopeCache[str] = EnvelopeCache()
    cache.put(envelope("1"), "peer")
    cache.put(Raw(b'{"io.modelcontextprotocol/logLevel":"debug"}'), "other")
    assert cache.get(envelope("2")) == "peer"
    assert cache.get(envelope("3")) == "peer"
