"""A host of client ID metadata documents, for an `OAuthProxy`."""

import json
from typing import Any

from auth.proxied import ProxySetup
from colonnade.auth.ssrf import Fetcher

# A public address, so that nothing is resolved.
CLIENT = "https://93.184.216.34/app/client.json"
REDIRECT = "https://app.example/callback"


class DocumentReply:
    """The response of a document's host."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read_all(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise ValueError("too large")
        return self._body

    def close(self) -> None: ...


class DocumentHost:
    """Hosts one document, and counts how often it is fetched."""

    def __init__(self, **stated: Any) -> None:
        self.document: dict[str, Any] = {
            "client_id": CLIENT,
            "client_name": "Documented",
            "redirect_uris": [REDIRECT],
            **stated,
        }
        self.status = 200
        self.headers = {"content-type": "application/json"}
        self.body: bytes | None = None
        self.fetched: list[str] = []

    async def send(
        self, method: str, url: str, headers: Any, body: bytes = b"", *, address: str
    ) -> DocumentReply:
        self.fetched.append(url)
        content = json.dumps(self.document).encode() if self.body is None else self.body
        return DocumentReply(self.status, self.headers, content)

    def serve(self, setup: ProxySetup) -> dict[str, Any]:
        """Make the proxy fetch from here; the client."""
        guard: Any = setup.app._guard
        guard._fetcher = lambda: Fetcher(self.send)
        return {"client_id": CLIENT, "redirect_uris": [REDIRECT]}
