"""Huge results: the same bytes as others, and an error instead of the end of the process without
memory for them."""

import subprocess
import sys
from typing import Any

import pytest
from msgspec import Raw

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec import encode as codec
from colonnade.protocol.codec.encode import HUGE, Encoder, encode_finite
from colonnade.protocol.jsonrpc import encode, encode_large
from colonnade.protocol.revision import Revisions

TEXT = "é\n" * HUGE
OLD, NEW = (Revisions.of(date)[0] for date in ("2025-06-18", "2026-07-28"))
RESULTS: dict[str, t.ProtocolType] = {
    "text": t.CallToolResult(content=[t.TextContent(text=TEXT)]),
    "text twice": t.CallToolResult(content=[t.TextContent(text=TEXT)], structured_content=TEXT),
    "data": t.CallToolResult(content=[], structured_content=Raw(encode({"a": TEXT}))),
    "image": t.CallToolResult(content=[t.ImageContent(data=TEXT, mime_type="image/png")]),
    "embedded": t.CallToolResult(
        content=[t.EmbeddedResource(resource=t.ResourceContents(uri="a:b", text=TEXT))]
    ),
    "resource": t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", blob=TEXT)]),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("revision", [OLD, NEW], ids=lambda one: one.date)
def test_a_huge_result_is_encoded_like_a_small_one(
    name: str, revision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, origin = RESULTS[name], revision
    wrap = name == "text twice" or None
    found = Encoder(revision).response(b"1", result, None, wrap)
    whole = Encoder(revision).result(result, origin, wrap)
    monkeypatch.setattr(codec, "HUGE", 10 * len(found))
    assert Encoder(revision).response(b"1", result, None, wrap) == found
    assert Encoder(revision).result(result, origin, wrap) == whole


@pytest.mark.parametrize("name", RESULTS)
def test_a_huge_result_is_encoded_in_the_way_that_survives_a_lack_of_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[object] = []

    def counting(value: object) -> bytes:
        used.append(value)
        return encode_large(value)

    monkeypatch.setattr(codec, "encode_large", counting)
    Encoder(NEW).response(b"1", RESULTS[name])
    assert used
    used.clear()
    Encoder(NEW).response(b"1", t.CallToolResult(content=[t.TextContent(text="small")]))
    assert not used


def test_what_json_cannot_hold_is_refused_in_a_huge_value_too() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        encode_large([TEXT, object()])


def test_a_lack_of_memory_is_not_tried_again() -> None:
    def write(_: object) -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        encode_finite("text", write)


# The memory of the process may grow by half of what the encoded text takes.
LACKING = """
import resource, sys
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.revision import Revisions

text = "x" * 64_000_000
result = t.CallToolResult(content=[t.TextContent(text=text)], structured_content=text)
if sys.argv[1] == "blob":
    result = t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", blob=text)])
encoder = Encoder(Revisions.of("2026-07-28")[0])
encoder.response(b"1", t.CallToolResult(content=[]))
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 32_000_000,) * 2)
try:
    encoder.response(b"1", result)
except MemoryError:
    print("no memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set by way of /proc")
@pytest.mark.parametrize("kind", ["text", "blob"])
def test_a_huge_result_without_memory_for_it_is_an_error(kind: str) -> None:
    command = [sys.executable, "-c", LACKING, kind]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "no memory\n", "")
