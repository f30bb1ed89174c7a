"""A Chromium that tests drive by the DevTools protocol: pages, clicks, what a page reports and loads.

    async with chromium() as browser:
        page = await browser.new_page()             # of a user of its own: no cookies are shared
        await page.open("http://127.0.0.1:8000/")
        await page.click("button")
        assert page.problems == []

Rules: it is driven through a pipe, so that no port is open for other programs. A click is that of a
mouse. What a test waits for is an event of the browser, never a time. No name is resolved but those
that a test maps to a loopback port.
"""

import asyncio
import base64
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

WAIT_S = 120.0
# A screenshot is one message.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# The browser looks for it by itself, if no policy forbids it.
ICON = "/favicon.ico"
NAMES = ("chromium", "chromium-browser", "google-chrome")

Json = dict[str, Any]


class DevToolsError(Exception):
    """The browser refused a command, or has ended."""


class Page:
    """A page, and what was reported of it since it was made."""

    def __init__(self, browser: "Chromium", session: str) -> None:
        self._browser = browser
        self._session = session
        self._changed = asyncio.Event()
        self.url = ""
        self.is_loaded = False
        # Errors and messages of the console, exceptions, dialogs, violations of a policy.
        self.problems: list[str] = []
        # URLs of all requests, and the responses of documents by URL: status, headers.
        self.requested: list[str] = []
        self.documents: dict[str, tuple[int, dict[str, str]]] = {}

    @property
    def dialogs(self) -> list[str]:
        """The dialogs that scripts opened."""
        return [one for one in self.problems if one.startswith("dialog")]

    async def send(self, method: str, **params: Any) -> Json:
        """The result of a command."""
        return await self._browser.send(method, params, self._session)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def open(self, url: str, reach: str = "") -> None:
        """Open a URL, and wait until it, or one that begins with `reach`, is loaded."""
        self.url, self.is_loaded = "", False
        await self.send("Page.navigate", url=url)
        await self.reach(reach or url)

    async def reach(self, start: str) -> None:
        """Wait until a page is loaded whose URL begins like this."""
        await self.until(lambda: self.is_loaded and self.url.startswith(start), start)

    async def until(self, done: Callable[[], bool], what: str = "") -> None:
        """Wait until a condition holds, which is checked after every event."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: not reached; the page is {self.url}") from None

    async def click(self, selector: str) -> None:
        """Click on an element, with the mouse."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        box = await self.evaluate(f"(box => [box.x, box.y, box.width, box.height])({place})")
        left, top, width, height = box
        assert width, f"{selector} cannot be seen"
        at = {"x": left + width / 2, "y": top + height / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, **at)

    async def picture(self, width: int, height: int) -> bytes:
        """A screenshot of the window, as PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        found = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def receive(self, method: str, params: Json) -> None:
        """Take note of an event."""
        match method:
            case "Page.frameNavigated" if "parentId" not in params["frame"]:
                self.url, self.is_loaded = params["frame"]["url"], False
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {params['message']}")
                self._browser.post("Page.handleJavaScriptDialog", {"accept": True}, self._session)
            case "Runtime.consoleAPICalled":
                values = [one.get("value", one.get("description")) for one in params["args"]]
                self.problems.append(f"console: {values}")
            case "Runtime.exceptionThrown":
                self.problems.append(f"exception: {params['exceptionDetails']['text']}")
            case "Log.entryAdded":
                entry = params["entry"]
                if not entry.get("url", "").endswith(ICON):
                    self.problems.append(f"{entry['level']}: {entry['text']}")
            case "Audits.issueAdded" if "ContentSecurityPolicy" in params["issue"]["code"]:
                found = params["issue"]["details"]["contentSecurityPolicyIssueDetails"]
                self.problems.append(f"policy: {found['violatedDirective']}")
            case "Network.requestWillBeSent" if not params["request"]["url"].endswith(ICON):
                self.requested.append(params["request"]["url"])
            case "Network.responseReceived" if params["type"] == "Document":
                response = params["response"]
                headers = {name.lower(): value for name, value in response["headers"].items()}
                self.documents[response["url"]] = response["status"], headers
            case _:
                pass
        self._changed.set()


class Chromium:
    """A browser process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._pages: dict[str, Page] = {}

    def post(self, method: str, params: Json, session: str = "") -> "asyncio.Future[Json]":
        """Send a command without waiting for its result."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        result = asyncio.get_running_loop().create_future()
        self._pending[self._number] = result
        self._writer.write(json.dumps(message).encode() + b"\0")
        return result

    async def send(self, method: str, params: Json, session: str = "") -> Json:
        """The result of a command. Raises `DevToolsError`."""
        async with asyncio.timeout(WAIT_S):
            answer = await self.post(method, params, session)
        if "error" in answer:
            raise DevToolsError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    async def new_page(self, *, bypass_csp: bool = False) -> Page:
        """An empty page of a user without cookies."""
        context = await self.send("Target.createBrowserContext", {})
        where = {"url": "about:blank", "browserContextId": context["browserContextId"]}
        target = await self.send("Target.createTarget", where)
        attached = {"targetId": target["targetId"], "flatten": True}
        session = (await self.send("Target.attachToTarget", attached))["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            await page.send(f"{domain}.enable")
        if bypass_csp:
            await page.send("Page.setBypassCSP", enabled=True)
        return page

    async def receive(self) -> None:
        """Receive results and events until the browser ends."""
        try:
            while True:
                line = await self._reader.readuntil(b"\0")
                message: Json = json.loads(line[:-1])
                if "id" in message:
                    self._pending.pop(message["id"]).set_result(message)
                elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                    page.receive(message["method"], message["params"])
        except asyncio.IncompleteReadError:
            for result in self._pending.values():
                if not result.done():
                    result.set_exception(DevToolsError("the browser has ended"))
                    result.exception()  # not every command is waited for


def find_chromium() -> str:
    """The path of a Chromium; empty if there is none."""
    named = os.environ.get("CHROMIUM", "")
    return named or next((path for path in map(shutil.which, NAMES) if path), "")


@asynccontextmanager
async def chromium(hosts: Mapping[str, int] | None = None) -> AsyncGenerator[Chromium]:
    """A browser without a window. `hosts` are those that it can reach beside 127.0.0.1, by https at
    a loopback port, whatever certificate that shows."""
    rules = [f"MAP {host}:443 127.0.0.1:{port}" for host, port in (hosts or {}).items()]
    rules += ["MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The browser reads commands from descriptor 3 and writes to 4; above those until then.
        commands, to_browser = _high_pipe()
        from_browser, results = _high_pipe()
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f'exec "$@" 3<&{commands} 4>&{results}', "bash", find_chromium()),
            "--headless",
            # Its sandbox needs rights that containers do not have; the pages are those of the test.
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-sync"),
            *(
                "--disable-component-update",
                "--disable-default-apps",
                "--ignore-certificate-errors",
            ),
            *("--remote-debugging-pipe", f"--user-data-dir={folder}", "--window-size=800,900"),
            f"--host-resolver-rules={', '.join(rules)}",
            "about:blank",
            pass_fds=(commands, results),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(results)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser, "rb")
        )
        outgoing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(to_browser, "wb"))
        browser = Chromium(reader, outgoing)
        receiver = asyncio.create_task(browser.receive())
        try:
            yield browser
        finally:
            browser.post("Browser.close", {})
            await receiver
            outgoing.close()
            incoming.close()
            async with asyncio.timeout(WAIT_S):
                await process.wait()


def _high_pipe() -> tuple[int, int]:
    """Both ends of a pipe, with numbers that are not those of the browser's own."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
