"""What the server of these tests is made of: blocks that say all that any revision lets them say.

Rules: small, so that transcripts can be read; every optional member is set somewhere.
"""

from pathlib import Path
from typing import Any

from colonnade import Annotations, Icon
from colonnade.protocol import types as t

FOLDER = Path(__file__).resolve().parent / "files"
# Nobody looks at them, so they need not be whole.
PIXEL = b"\x89PNG"
SILENCE = b"RIFF"

ICON = Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"], theme="light")
MARKS = Annotations(
    audience=["user", "assistant"], priority=0.5, last_modified="2025-01-12T15:00:58Z"
)
NOTE: dict[str, Any] = {"example.com/note": True}


def contents() -> list[t.ResourceContents]:
    """Contents in both forms, with all that they can say."""
    return [
        t.ResourceContents(uri="notes://a", mime_type="text/plain", text="a", meta=NOTE),
        t.ResourceContents(uri="notes://b", mime_type="image/png", blob="aW1n", meta=NOTE),
    ]


def blocks() -> list[t.ContentBlock]:
    """One block of every kind."""
    text, blob = contents()
    return [
        t.TextContent(text="words", annotations=MARKS, meta=NOTE),
        t.ImageContent(data="aW1n", mime_type="image/png", annotations=MARKS, meta=NOTE),
        t.AudioContent(data="c25k", mime_type="audio/wav", annotations=MARKS, meta=NOTE),
        t.ResourceLink(
            uri="notes://plain",
            name="plain",
            title="Plain",
            description="A plain note.",
            mime_type="text/plain",
            size=6,
            annotations=MARKS,
            icons=[ICON],
            meta=NOTE,
        ),
        t.EmbeddedResource(resource=text, annotations=MARKS, meta=NOTE),
        t.EmbeddedResource(resource=blob),
    ]
