"""The listener that waits for a browser: whom it answers, how often, and with what (CL-26)."""

import asyncio
import socket
import sys
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from colonnade.auth.client.credentials import BrowserLogin
from colonnade.auth.client.login import Login
from colonnade.auth.client.loopback import RedirectListener, open_browser
from colonnade.errors import AuthError, LocalProtocolError, LoginRequired
from live import live

STATE = "the-state-that-it-waits-for"


async def say(port: int, target: str, *, host: str | None = None, method: str = "GET") -> str:
    """One request to the listener; all that it answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    named = f"127.0.0.1:{port}" if host is None else host
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {named}\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return data.decode()


async def opened(
    again: str = "", **options: bool
) -> tuple[RedirectListener, str, asyncio.Future[str]]:
    listener = RedirectListener()
    uri = await listener.open(again, **options)
    waiting = asyncio.ensure_future(listener.wait(STATE, 10))
    await asyncio.sleep(0)
    return listener, uri, waiting


@live
async def test_cl_26_it_is_on_the_loopback_address_and_a_port_of_its_own() -> None:
    listener, uri, waiting = await opened()
    other, second, others = await opened()
    assert listener._server is not None
    assert [one.getsockname()[0] for one in listener._server.sockets] == ["127.0.0.1"]
    assert uri == f"http://127.0.0.1:{listener.port}/callback" != second
    waiting.cancel()
    others.cancel()
    await listener.close()
    await other.close()


@live
async def test_cl_26_it_answers_its_own_state_once() -> None:
    listener, _, waiting = await opened()
    answered = await say(listener.port, f"/callback?code=c&state={STATE}&iss=i")
    assert answered.startswith("HTTP/1.1 200")
    assert await waiting == f"code=c&state={STATE}&iss=i"
    again = await say(listener.port, f"/callback?code=other&state={STATE}")
    assert again.startswith("HTTP/1.1 400")
    await listener.close()


@pytest.mark.parametrize(
    "target",
    [
        "/callback",
        "/callback?code=c",
        "/callback?code=c&state=",
        "/callback?code=c&state=other",
        f"/callback?code=c&state={STATE}x",
        f"/callback?code=c&state={STATE}&state={STATE}",
        f"/callback?code=c&state={STATE[:-1]}",
        f"/callback/?code=c&state={STATE}",
        f"/Callback?code=c&state={STATE}",
        f"/?code=c&state={STATE}",
        f"//callback?code=c&state={STATE}",
        f"/callback%3Fcode=c&state={STATE}",
        f"http://127.0.0.1/callback?code=c&state={STATE}",
        "/callback?" + "&".join(f"a{n}=b" for n in range(200)),
        "/favicon.ico",
    ],
)
@live
async def test_cl_26_anything_else_is_answered_with_nothing_and_changes_nothing(
    target: str,
) -> None:
    listener, _, waiting = await opened()
    answered = await say(listener.port, target)
    assert answered.split(" ")[1] in ("400", "404")
    assert not waiting.done()
    await say(listener.port, f"/callback?code=c&state={STATE}")
    assert (await waiting).startswith("code=c")
    await listener.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "", "localhost"])
@live
async def test_cl_26_a_name_that_leads_here_is_no_name_of_ours(host: str) -> None:
    listener, _, waiting = await opened()
    answered = await say(listener.port, f"/callback?code=c&state={STATE}", host=host)
    assert answered.startswith("HTTP/1.1 404")
    assert not waiting.done()
    waiting.cancel()
    await listener.close()


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "GET\r\nX:"])
@live
async def test_cl_26_only_get_is_an_answer(method: str) -> None:
    listener, _, waiting = await opened()
    answered = await say(listener.port, f"/callback?code=c&state={STATE}", method=method)
    assert answered.startswith("HTTP/1.1 405")
    assert not waiting.done()
    waiting.cancel()
    await listener.close()


@live
async def test_its_pages_hold_nothing_of_what_came_in_and_load_nothing() -> None:
    """CVE-2025-62800."""
    listener, _, waiting = await opened()
    evil = "%3Cscript%3Ealert(1)%3C/script%3E"
    pages = [
        await say(listener.port, f"/callback?error={evil}&state=x"),
        await say(listener.port, f"/{evil}"),
        await say(listener.port, f"/callback?error={evil}&error_description={evil}&state={STATE}"),
    ]
    for page in pages:
        assert "script" not in page.lower()
        assert "default-src 'none'" in page
        assert "no-store" in page
    await waiting
    await listener.close()


@live
async def test_what_was_said_before_anybody_asked_is_not_heard() -> None:
    listener = RedirectListener()
    await listener.open()
    for state in ("", STATE):
        answered = await say(listener.port, f"/callback?code=c&state={state}")
        assert answered.startswith("HTTP/1.1 400")
    await listener.close()


@live
async def test_a_wait_ends() -> None:
    """CL-26."""
    listener = RedirectListener()
    await listener.open()
    with pytest.raises(LoginRequired, match="not completed within"):
        async with asyncio.timeout(30):  # of a wait that does not end by itself
            await listener.wait(STATE, 0.01)
    await listener.close()


@live
async def test_whoever_says_nothing_or_too_much_is_let_go() -> None:
    listener, _, waiting = await opened()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"GET /callback HTTP/1.1\r\nX: " + b"x" * 100_000)
    answered = await reader.read()
    assert b"405" in answered or not answered
    writer.close()
    idle = await asyncio.open_connection("127.0.0.1", listener.port)
    await listener.close()  # which waits for nobody
    assert await idle[0].read() == b""
    idle[1].close()
    waiting.cancel()


@live
async def test_the_port_that_was_used_before_is_used_again_if_it_is_free() -> None:
    listener, uri, waiting = await opened()
    waiting.cancel()
    await listener.close()
    again, same, waiting = await opened(uri)
    assert same == uri
    other, another, second = await opened(uri)
    assert another != uri
    third = RedirectListener()
    with pytest.raises(AuthError, match="is in use"):
        await third.open(uri, required=True)
    for one in (waiting, second):
        one.cancel()
    await again.close()
    await other.close()


@live
async def test_a_name_of_this_machine_stays_in_the_redirect_uri() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wanted = f"http://localhost:{port}/back/here"
    listener, uri, waiting = await opened(wanted, required=True)
    assert uri == wanted
    target = f"{urlsplit(uri).path}?code=c&state={STATE}"
    assert (await say(port, target, host=f"localhost:{port}")).startswith("HTTP/1.1 200")
    await waiting
    await listener.close()


# ---------------------------------------------------------------- where a person is sent

NO_PAGES = (
    "javascript:alert(1)//https://as.example",
    "JavaScript:alert(1)",
    "data:text/html,<script>1</script>",
    "file:///etc/passwd",
    "vbscript:msgbox",
    "-https://as.example",
    " https://as.example",
    "//as.example/authorize",
    "ftp://as.example/",
    "",
)


@pytest.mark.spec("R1330")
@pytest.mark.parametrize("url", NO_PAGES)
@live
async def test_cl_09_a_person_is_sent_to_web_pages_and_nowhere_else(url: str) -> None:
    """Whoever shows the page: our browser, or the program; each of the checks by itself."""
    seen: list[str] = []
    page = BrowserLogin(
        Login(browser=False, on_redirect=seen.append, redirect_uri="https://app.example/cb")
    )
    with pytest.raises(AuthError, match="the authorization page"):
        await page.open_page(url, STATE)
    await page.close()
    assert seen == []


SHELL = [
    "`id`",
    "$(id)",
    "a;id",
    "a|id",
    "<a",
    ">a",
    "'a",
    '"a',
    "{a}",
    "^a",
    "\\a",
    "a\tb",
    "a\nb",
]


@pytest.mark.spec("R1330", "R1331", "R1333")
@pytest.mark.parametrize("text", SHELL)
@pytest.mark.parametrize("start", ["https://as.example/a", "https://as.example/a?b="])
@live
async def test_cl_09_characters_of_a_shell_are_rejected_and_logged(
    start: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An endpoint of a metadata document; what we add ourselves is percent-encoded."""
    seen: list[str] = []
    page = BrowserLogin(
        Login(browser=False, on_redirect=seen.append, redirect_uri="https://app.example/cb")
    )
    with pytest.raises(AuthError, match="the authorization page"):
        await page.open_page(start + text, STATE)
    await page.close()
    assert seen == []
    assert "rejected the authorization page" in caplog.text
    assert "https://as.example/a" in caplog.text


@pytest.mark.spec("R1326")
@pytest.mark.parametrize("url", NO_PAGES)
@live
async def test_cl_09_a_browser_opens_web_pages_and_nothing_else(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    with pytest.raises(LocalProtocolError, match="only http and https"):
        await open_browser(url)
    assert opened == []
    for page in ("https://as.example/authorize?a=1&b=$(id)", "http://127.0.0.1:9/authorize"):
        assert await open_browser(page)
        assert opened.pop() == page


@pytest.mark.spec("R1325", "R1326")
@live
async def test_cl_09_no_shell_sees_what_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a browser that is a program here, which writes down what it was given."""
    told, ran = tmp_path / "told", tmp_path / "ran"
    program = tmp_path / "browser.py"
    program.write_text(f"import sys; open({str(told)!r}, 'w').write(sys.argv[1])", "utf-8")
    own = webbrowser.GenericBrowser([sys.executable, str(program), "%s"])
    monkeypatch.setattr("webbrowser.open", own.open)
    url = f"https://as.example/a?x=$(touch {ran})&y=`touch {ran}`;touch {ran}|touch {ran}"
    assert await open_browser(url)
    assert told.read_text("utf-8") == url
    assert not ran.exists()
