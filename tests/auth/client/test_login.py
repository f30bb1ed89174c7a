"""A person logs in to a real server, by a real issuer in a process of its own, through the listener.

Rules: the browser is a thread that follows one redirect, as browsers do.
"""

import asyncio
import json
import threading
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from auth.issuer import Issuer, issuing
from colonnade import (
    ClientCredentials,
    Context,
    Introspection,
    Jwt,
    LocalProtocolError,
    Login,
    LoginRequired,
    Protection,
    RemoteProtocolError,
    ScopeRequired,
    Server,
    connect,
)
from colonnade.auth.client.authorization_code import AuthorizationRefused
from colonnade.auth.client.credentials import LogoutResult, ServerCredentials
from colonnade.auth.client.login import Auth
from colonnade.auth.client.storage import TokenStorage
from colonnade.client.auth import log_out, stored_login
from colonnade.ports import RequestCredentials
from colonnade.protocol.revision import Revision
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_client.connect import HeaderLines
from colonnade.transport.http_client.endpoint import HttpEndpoint
from colonnade.transport.http_client.pool import HttpPool
from colonnade.transport.http_server.runner import HttpRunner
from live import live, live_for
from scripted_http_server import (
    AcceptedConnection,
    answer_every_request,
    http_response,
    pooled,
    scripted_http_server,
)


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


class Browser:
    """Opens pages, and remembers which."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, url: str) -> None:
        self.opened.append(url)
        threading.Thread(target=self._visit, args=(url,)).start()

    def _visit(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=60) as page:  # which follows to the listener
            assert page.status == 200
            assert b"close this window" in page.read()


def notes(auth: Protection) -> Server:
    server = Server("notes", version="1", auth=auth)

    @server.tool
    def whoami(ctx: Context) -> str:
        return ctx.principal

    @server.tool(scopes={"notes:write"})
    def erase() -> str:
        return "erased"

    return server


@asynccontextmanager
async def serving(
    issuer: Issuer,
    *,
    protection_options: dict[str, Any] | None = None,
    asks: bool = False,
    make: Callable[[Protection], Server] = notes,
    **options: Any,
) -> AsyncGenerator[str]:
    """A server that believes the issuer, at its own address; `protection_options` is more for `Protection`. Where
    it asks the issuer about tokens, it learns within a minute what was revoked."""
    # The port is known when it is served, and the resource is its URL.
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    trust: Jwt | Introspection = Jwt(issuer.url, **options)
    if asks:
        trust = Introspection(issuer.url, "robot", "robot-secret", **options)
    protection = Protection(url, trust, **(protection_options or {}))
    site = HttpRunner(make(protection).asgi(), port=port)
    await site.start()
    try:
        yield url
    finally:
        await site.stop()


def person(browser: Browser, **options: Any) -> Login:
    return Login(browser=False, on_show=browser, **options)


@pytest.mark.spec("R0187", "R0309")
@live
async def test_a_person_logs_in_once_and_is_known(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        browser = Browser()
        auth = person(browser)
        for _ in range(2):
            async with connect(url, auth=auth) as client:
                said = await client.call_tool("whoami", {})
                assert said.text.endswith("ann")
        assert len(browser.opened) == 1
        assert issuer.count("authorization_code") == 1


@pytest.mark.spec("R0188", "R0235")
def test_on_a_pipe_there_is_no_login() -> None:
    for target in (["uvx", "server"], __file__, Server("x")):
        with pytest.raises(LocalProtocolError, match="auth= goes with a URL"):
            connect(target, auth=Login())


@live
async def test_without_a_login_a_server_is_shut_and_says_so(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        with pytest.raises(LoginRequired):
            await connect(url)


@live
async def test_tokens_are_renewed_before_they_end_and_nobody_logs_in_again(issuer: Issuer) -> None:
    async with serving(issuer, skew_s=0) as url:
        browser, clock = Browser(), Clock()
        auth = person(browser)
        async with server_credentials(auth, url, clock) as shown:
            first = await shown.obtain("POST", url)
            assert first.headers == ()
            assert await shown.handle_rejection([first], 401, [challenge(url)], "")
            before = await shown.obtain("POST", url)
            clock.ahead = 3590.0  # still good: the new one is got beside it, and nobody waits
            assert await shown.obtain("POST", url) == before
            await done(shown)
            after = await shown.obtain("POST", url)
            assert after.generation != before.generation
            clock.ahead = 3 * 3600.0  # over: whoever asks waits for the next one
            again = await shown.obtain("POST", url)
            assert again.generation not in (before.generation, after.generation)
        assert issuer.count("refresh_token") == 2
        assert issuer.count("reused") == 0
        assert len(browser.opened) == 1


@live
async def test_what_was_revoked_means_that_somebody_logs_in_again(issuer: Issuer) -> None:
    clock = Clock()
    async with serving(issuer, asks=True, protection_options={"clock": clock}) as url:
        browser = Browser()
        auth = person(browser)
        async with connect(url, auth=auth) as client:
            assert (await client.call_tool("whoami", {})).text.endswith("ann")
            assert issuer.count("authorization_code") == len(browser.opened) == 1
            issuer.tell("revoke")
            clock.ahead = 60.0  # after which the server asks about the token again
            assert (await client.call_tool("whoami", {})).text.endswith("ann")
            assert issuer.count("refresh_token") == 1  # tried, and refused: it was revoked
            assert issuer.count("authorization_code") == len(browser.opened) == 2
            assert (await client.call_tool("whoami", {})).text.endswith("ann")
        assert issuer.count("authorization_code") == len(browser.opened) == 2


@live
async def test_keys_that_change_are_found_and_the_client_goes_on(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        browser = Browser()
        auth = person(browser)
        async with connect(url, auth=auth) as client:
            for _ in range(3):
                issuer.tell("rotate")
                assert (await client.call_tool("whoami", {})).text.endswith("ann")
        assert len(browser.opened) == 1


@live
async def test_a_tool_that_needs_more_asks_for_more_once(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        browser = Browser()
        async with connect(url, auth=person(browser)) as client:
            assert (await client.call_tool("erase", {})).text == "erased"
            assert (await client.call_tool("erase", {})).text == "erased"
        assert "notes%3Awrite" not in browser.opened[0]
        assert "notes%3Awrite" in browser.opened[1]
        assert len(browser.opened) == 2


@live
async def test_a_program_logs_in_by_itself_and_its_secret_goes_to_its_issuer(
    issuer: Issuer,
) -> None:
    async with serving(issuer) as url:
        auth = ClientCredentials(issuer=issuer.url, client_id="robot", client_secret="robot-secret")
        async with connect(url, auth=auth) as client:
            assert (await client.call_tool("whoami", {})).text.endswith("robot")
        assert issuer.count("client_credentials") == 1


@live
async def test_a_login_is_kept_for_the_next_program_and_given_back(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    async with serving(issuer) as url:
        browser = Browser()
        for _ in range(2):
            async with connect(url, auth=person(browser, keep=True)) as client:
                assert (await client.call_tool("whoami", {})).text.endswith("ann")
        assert len(browser.opened) == 1
        held = await stored_login(Login(keep=True), url)
        assert held is not None
        for file in (tmp_path / "home").iterdir():
            assert file.stat().st_mode & 0o077 == 0
            data = file.read_bytes()
            for secret in (held.tokens.access_token, held.tokens.refresh_token, issuer.url, url):
                assert secret.encode() not in data
        assert await log_out(Login(keep=True), url) == LogoutResult(True, True, True)
        assert issuer.count("revoked") == 2
        assert await stored_login(Login(keep=True), url) is None
        assert await log_out(Login(keep=True), url) == LogoutResult()
        async with connect(url, auth=person(browser, keep=True)) as client:
            assert (await client.call_tool("whoami", {})).text.endswith("ann")
        again = await stored_login(Login(keep=True), url)
        assert again is not None
        assert again.client.client_id != held.client.client_id  # it was forgotten, too


@pytest.mark.slow
@live_for(600)
async def test_a_thousand_calls_whose_token_was_revoked_make_one_login(issuer: Issuer) -> None:
    clock = Clock()
    async with serving(issuer, asks=True, protection_options={"clock": clock}) as url:
        browser = Browser()
        auth = person(browser)
        async with connect(url, auth=auth) as client:
            issuer.tell("revoke")
            clock.ahead = 60.0  # after which the server asks about the token again
            calls = [client.call_tool("whoami", {}) for _ in range(1000)]
            answers = await asyncio.gather(*calls)
        assert len(answers) == 1000
        assert {answer.text[-3:] for answer in answers} == {"ann"}
        assert issuer.count("refresh_token") == 1
        assert issuer.count("authorization_code") == len(browser.opened) == 2


@live
async def test_a_login_that_nobody_makes_is_asked_for_once_by_all(issuer: Issuer) -> None:
    asked: list[str] = []

    def declined(url: str) -> str:
        asked.append(url)
        state = url.partition("state=")[2].partition("&")[0]
        where = f"error=access_denied&state={state}&iss={issuer.url}"
        return f"http://127.0.0.1:1/callback?{where}"

    auth = Login(on_redirect=declined, redirect_uri="http://127.0.0.1:1/callback")
    async with serving(issuer) as url, server_credentials(auth, url, Clock()) as shown:
        nothing = await shown.obtain("POST", url)
        tries = [shown.handle_rejection([nothing], 401, [challenge(url)], "") for _ in range(100)]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert {type(one) for one in ends} == {AuthorizationRefused}
        with pytest.raises(LoginRequired, match="access_denied"):  # and a moment later
            await shown.handle_rejection([nothing], 401, [challenge(url)], "")
    assert len(asked) == 1


@live
async def test_whoever_gives_up_stops_nobody_else(issuer: Issuer) -> None:
    go = threading.Event()
    browser = Browser()

    def slow(url: str) -> None:
        threading.Thread(target=lambda: (go.wait(60), browser(url))).start()

    auth = Login(browser=False, on_show=slow)
    async with serving(issuer) as url, server_credentials(auth, url, Clock()) as shown:
        nothing = await shown.obtain("POST", url)
        first = asyncio.ensure_future(shown.handle_rejection([nothing], 401, [challenge(url)], ""))
        second = asyncio.ensure_future(shown.handle_rejection([nothing], 401, [challenge(url)], ""))
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert await second
        assert (await shown.obtain("POST", url)).headers


@live
async def test_a_step_up_that_is_not_enough_is_an_error_and_not_a_loop(issuer: Issuer) -> None:
    browser = Browser()
    async with serving(issuer) as url, server_credentials(person(browser), url, Clock()) as shown:
        so_far = [await shown.obtain("POST", url)]
        assert await shown.handle_rejection(so_far, 401, [challenge(url)], "")
        for nth in range(2):
            so_far.append(await shown.obtain("POST", url))
            scope = f'{challenge(url)}, error="insufficient_scope", scope="s{nth}"'
            assert await shown.handle_rejection(so_far, 403, [scope], "")
        so_far.append(await shown.obtain("POST", url))
        scope = f'{challenge(url)}, error="insufficient_scope", scope="s9"'
        with pytest.raises(ScopeRequired, match="giving up"):
            await shown.handle_rejection(so_far, 403, [scope], "")
    assert len(browser.opened) == 3


@pytest.mark.spec("R0323")
@live
async def test_cl_27_cl_28_a_token_goes_to_the_server_it_was_got_for_and_nowhere_else(
    issuer: Issuer,
) -> None:
    browser = Browser()
    async with serving(issuer) as url, server_credentials(person(browser), url, Clock()) as shown:
        assert await shown.handle_rejection(
            [await shown.obtain("POST", url)], 401, [challenge(url)], ""
        )
        [(name, value)] = (await shown.obtain("POST", f"{url}?a=1")).headers
        assert name == "authorization"
        assert value.startswith("Bearer ey")
        for other in (
            "http://127.0.0.1:1/mcp",
            "https://evil.example/mcp",
            "https://127.0.0.1/mcp",
        ):
            assert (await shown.obtain("POST", other)).headers == ()
            assert (shown.cached("GET", other) or await shown.obtain("GET", other)).headers == ()


def authorization_in(headers: HeaderLines | list[tuple[str, str]]) -> str:
    """The value of `Authorization` in the headers of a request; empty if it has none."""
    lines = headers if isinstance(headers, HeaderLines) else HeaderLines(headers)
    pairs = dict(line.split(": ", 1) for line in lines.text.splitlines())
    return pairs.get("authorization", "")


@pytest.mark.spec("R0205", "R0206", "R0320", "R0319")
@live
async def test_cl_27_it_is_in_every_request_and_never_in_a_url(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        seen: list[tuple[str, str, str]] = []
        auth = person(Browser())
        async with connect(url, auth=auth, revision="2025-11-25") as client:
            way: Any = client._connection.transport
            send = way._pool.send

            async def watched(method: str, there: str, headers: Any, body: bytes = b"") -> Any:
                seen.append((method, there, authorization_in(headers)))
                return await send(method, there, headers, body)

            way._pool.send = watched
            await client.call_tool("whoami", {})
            await client.ping()
        assert {method for method, *_ in seen} >= {"POST", "DELETE"}
        assert all(shown.startswith("Bearer ") for *_, shown in seen)
        assert all(there == url for _, there, _ in seen)


@pytest.mark.spec("R0723")
@live
async def test_every_request_of_a_client_carries_its_token(
    issuer: Issuer, revision: Revision
) -> None:
    """Calls, lists and subscriptions; also where the server would answer without it."""
    async with serving(issuer) as url:
        seen: list[tuple[bytes, str]] = []
        async with connect(url, auth=person(Browser()), revision=revision.date) as client:
            way: Any = client._connection.transport
            send = way._pool.send

            async def watched(method: str, there: str, headers: Any, body: bytes = b"") -> Any:
                seen.append((body, authorization_in(headers)))
                return await send(method, there, headers, body)

            way._pool.send = watched
            await client.list_tools()
            await client.call_tool("whoami", {})
            async with client.listen(tools=True):
                await client.call_tool("whoami", {})
        methods = [json.loads(body)["method"] for body, _ in seen]
        assert methods == ["tools/list", "tools/call", "subscriptions/listen", "tools/call"]
        assert all(shown.startswith("Bearer ey") for _, shown in seen)


class Careless:
    """A server_credentials that shows its token to whomever; what is sent where is not up to it."""

    def cached(self, method: str, url: str) -> RequestCredentials:
        return RequestCredentials("1", (("authorization", "Bearer canary"),))

    async def obtain(self, method: str, url: str) -> RequestCredentials:
        return self.cached(method, url)

    async def handle_rejection(
        self,
        sent_before: Sequence[RequestCredentials],
        status: int,
        lines: Sequence[str],
        nonce: str,
    ) -> bool:
        return False

    def set_nonce(self, nonce: str) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@live
async def test_cl_27_no_redirect_takes_a_token_to_another_origin(status: int) -> None:
    async with scripted_http_server(answer_every_request) as other, pooled() as pool:

        async def moved(connection: AcceptedConnection) -> None:
            while True:
                await connection.receive()
                await connection.send(
                    http_response(status, b"", "text/plain", f"Location: {other.url}")
                )

        async with scripted_http_server(moved) as server:
            endpoint = HttpEndpoint(pool, server.url, credentials=Careless())
            for method in ("POST", "GET", "DELETE"):
                with pytest.raises(RemoteProtocolError, match=r"another server|not followed"):
                    await endpoint.send(method, [], b"{}" if method == "POST" else b"")
            shown = [one.headers.get("authorization") for one in server.received]
            assert shown == ["Bearer canary"] * 3
        assert other.connection_count == 0


# ---------------------------------------------------------------- a server_credentials by itself


class Clock:
    """The time of day, and as much later as a test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        import time

        return time.time() + self.ahead


def challenge(url: str) -> str:
    metadata = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    return f'Bearer resource_metadata="{metadata}"'


@asynccontextmanager
async def server_credentials(
    auth: Auth, url: str, clock: Callable[[], float]
) -> AsyncGenerator[ServerCredentials]:
    pool = HttpPool()
    shown = ServerCredentials(auth, url, pool.send, TokenStorage(MemoryStore()), clock=clock)
    try:
        yield shown
    finally:
        await shown.close()
        await pool.close()


async def done(shown: ServerCredentials) -> None:
    """Wait for what is under way."""
    work = shown._work
    assert work is not None
    await asyncio.wait([work])
    await asyncio.sleep(0)
