"""A server that logs its clients in at places that are not public: every place that a login fetches.

SF-01 to SF-03, with the whole of a login: what a refusal names, what the server's own document
names, and what its issuer's does. Rules: every socket is watched; a name that is not the server's
leads inside, by a DNS of the test's own.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from auth.connects import connects, dns
from auth.denied_forms import urls
from auth.test_ssrf_denied import never
from certificates import Authority
from colonnade.auth.client.credentials import ServerCredentials
from colonnade.auth.client.login import Login
from colonnade.auth.client.storage import TokenStorage
from colonnade.errors import AuthError, ChannelError
from colonnade.store.memory import MemoryStore
from live import live_for
from scripted_http_server import (
    AcceptedConnection,
    ScriptedHttpServer,
    http_response,
    pooled,
    scripted_http_server,
)

pytestmark = pytest.mark.slow

# Some thousand logins, each of which ends after a request or two.
WAIT_S = 240.0
# Where the server is; it is opened, and nothing else is.
HOME = "127.0.0.9"
BACK = "https://app.example/back"
# How many of the forms: what is tried later in a login takes more requests to get there.
PLACES = {
    "resource_metadata": 1,
    "authorization_servers": 3,
    "registration_endpoint": 9,
    "token_endpoint": 9,
}


class Lure:
    """A server, and an issuer beside it, whose documents say what a test wants."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.hand: ScriptedHttpServer
        self.form = ""

    @property
    def url(self) -> str:
        return f"https://public.example:{self.hand.port}"

    def document(self, path: str) -> dict[str, Any] | None:
        if "oauth-protected-resource" in path:
            issuer = self.form if self.place == "authorization_servers" else self.url
            return {"resource": f"{self.url}/mcp", "authorization_servers": [issuer]}
        if path == "/.well-known/oauth-authorization-server":
            said: dict[str, Any] = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "code_challenge_methods_supported": ["S256"],
            }
            return said | ({self.place: self.form} if self.place in said else {})
        return {"client_id": "c"} if path == "/register" else None

    async def handler(self, connection: AcceptedConnection) -> None:
        while True:
            found = self.document((await connection.receive()).path)
            answer = (
                http_response(404)
                if found is None
                else http_response(200, json.dumps(found).encode())
            )
            await connection.send(answer)

    def visited(self, page: str) -> str:
        """A person who says yes, if it comes to that."""
        state = page.partition("state=")[2].partition("&")[0]
        return f"{BACK}?code=c&state={state}"


@pytest.mark.spec("R1286")
@pytest.mark.parametrize("place", PLACES)
@live_for(WAIT_S)
async def test_no_login_leads_to_a_denied_place(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SF-01, SF-02, SF-03."""
    authority, lure = Authority(tmp_path), Lure(place)
    serving, trusting = authority.serving("public.example"), authority.trusting()
    dns(monkeypatch, lambda name: [HOME] if name == "public.example" else ["10.0.0.1"])
    auth = Login(on_redirect=lure.visited, redirect_uri=BACK, networks=[f"{HOME}/32"])
    async with (
        scripted_http_server(never) as listener,
        scripted_http_server(lure.handler, context=serving, host=HOME) as lure.hand,
        pooled(context=trusting) as pool,
    ):
        forms = [u for u in dict.fromkeys(urls(listener.port)) if u.isascii() and u.isprintable()]
        forms = [u for u in forms if '"' not in u and "\\" not in u][:: PLACES[place]]
        named = f'Bearer resource_metadata="{lure.url}/.well-known/oauth-protected-resource/mcp"'
        with connects() as seen:
            for lure.form in forms:
                direct = place == "resource_metadata"
                said = f'Bearer resource_metadata="{lure.form}"' if direct else named
                credentials = ServerCredentials(
                    auth, f"{lure.url}/mcp", pool.send, TokenStorage(MemoryStore())
                )
                before = [await credentials.obtain("POST", f"{lure.url}/mcp")]
                with pytest.raises((AuthError, ChannelError)):
                    await credentials.handle_rejection(before, 401, [said], "")
                await credentials.close()
                assert set(seen) <= {HOME}, lure.form
                seen.clear()
        assert listener.connection_count == 0
        assert len(forms) > 4000 / PLACES[place] * 0.9
        if place != "resource_metadata":
            assert lure.hand.received  # so that it came as far as that
