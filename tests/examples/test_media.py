"""The media example: blocks of every kind, each as the revision can know it."""

import base64
import io
import struct
import wave
from typing import Any

from colonnade.protocol.revision import OutputRoot, Revision
from examples.example_client import run_example


def size(block: dict[str, Any]) -> tuple[int, int]:
    """The width and the height of a picture."""
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    data = base64.b64decode(block["data"])
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_pictures_and_sounds(revision: Revision) -> None:
    with run_example("media.py", revision) as client:
        assert size(client.call("chart")["content"][0]) == (5, 8)
        assert size(client.call("swatch", grey=10)["content"][0]) == (8, 8)
        (sound,) = client.call("tone")["content"]
        if "audio" in revision.blocks:
            assert (sound["type"], sound["mimeType"]) == ("audio", "audio/wav")
            data = sound["data"]
        else:  # as a file, which the first revision can know
            assert sound["resource"]["mimeType"] == "audio/wav"
            data = sound["resource"]["blob"]
        with wave.open(io.BytesIO(base64.b64decode(data))) as file:
            assert file.getnframes() == 400


def test_several_blocks_and_a_link_that_leads_somewhere(revision: Revision) -> None:
    with run_example("media.py", revision) as client:
        words, picture, table, link = client.call("report")["content"]
        assert words["text"] == "24 sold this week."
        assert size(picture) == (5, 8)
        assert table["resource"]["text"].splitlines()[0] == "mon,3"
        if "resource_link" in revision.blocks:
            assert (link["type"], link["uri"]) == ("resource_link", "sales://thu")
        else:
            assert "sales://thu" in link["text"]
        (read,) = client.ask("resources/read", {"uri": "sales://thu"})["contents"]
        assert read["text"] == '{"thu":8}'


def test_a_result_that_says_it_all(revision: Revision) -> None:
    with run_example("media.py", revision) as client:
        result = client.call("best")
        assert result["content"][0]["text"] == "The best day was thu."
        if revision.output_root is not OutputRoot.NONE:
            assert result["structuredContent"] == {"day": "thu"}
        assert result["_meta"]["example.com/shown"] is True
