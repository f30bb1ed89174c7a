"""What the servers here all have, whichever SDK they are made with.

Rules: imports nothing of ours and nothing of an SDK.
"""

import asyncio
import base64

NAME, VERSION = "equivalent", "1.0"
INSTRUCTIONS = "Everything that a client can ask for."
# A picture of one red pixel, and a sound without a single sample.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=")
LANGUAGES = ["pascal", "python", "go"]
# A call that is not cancelled by then never will be.
PATIENCE_S = 20.0


def starting_with(prefix: str) -> list[str]:
    """The completions of a language."""
    return [language for language in LANGUAGES if language.startswith(prefix)]


class Waits:
    """Calls that wait to be cancelled, and what became of the last one."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.how = "never began"

    async def one(self) -> str:
        """Wait to be cancelled."""
        try:
            await asyncio.sleep(PATIENCE_S)
            self.how = "waited to the end"
        except asyncio.CancelledError:
            self.how = "was cancelled"
            raise
        finally:
            self.ended.set()
        return self.how

    async def last(self) -> str:
        """How the last one ended."""
        await asyncio.wait_for(self.ended.wait(), PATIENCE_S)
        return self.how
