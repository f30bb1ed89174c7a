"""Finding the revision of servers that answer, refuse, die, lie or say nothing: in memory, on a
pipe and over HTTP."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from client.scripted_server import ALL_OF_IT, INFO, JSON, Refusal, Replies, ScriptedServer
from colonnade import Client, connect
from colonnade.client import connection as speaking
from colonnade.client import probe as finding
from colonnade.errors import (
    AuthError,
    CannotConnect,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol.revision import ALL, NEWEST, Revision
from colonnade.transport.memory import connected_pair
from live import live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    chunk,
    events,
    http_response,
    scripted_http_server,
    stream,
)
from scripted_http_server import ScriptedHttpServer as HttpRunner

HANDSHAKES = pytest.mark.parametrize(
    "revision", [one for one in ALL if one.handshake], ids=lambda one: one.date
)
SERVER = str(Path(__file__).resolve().parents[1] / "support/client/probe_server.py")


@pytest.fixture(autouse=True)
def forgetful() -> Generator[None]:
    """Every test begins without memory."""
    memory: dict[Any, Any] = vars(finding.ERA_CACHE)["_known"]
    memory.clear()
    yield
    memory.clear()


def no(code: int, message: str = "no") -> Callable[[JSON], JSON]:
    def refuse(params: JSON) -> JSON:
        raise Refusal(code, message)

    return refuse


@asynccontextmanager
async def met(
    spoken: Revision, replies: Replies | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A client that is connected to a scripted server in memory."""
    near, far = connected_pair()
    server = ScriptedServer(far, spoken, replies or {}, ALL_OF_IT)
    far.join(server)
    async with connect(near, **options) as client:
        yield client, server


def methods(heard: list[JSON]) -> list[str]:
    return [one["method"] for one in heard if "method" in one]


# ---------------------------------------------------------------- in memory


@pytest.mark.spec("R0951")
@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_a_server_of_any_revision_is_found(revision: Revision) -> None:
    replies = {"server/discover": no(-32601)} if revision.handshake else {"initialize": no(-32601)}
    async with met(revision, replies) as (client, server):
        assert client.revision == revision.date
        assert client.instructions == "be kind"
        assert methods(server.received)[0] == "server/discover"
        assert (server.requests("initialize") != []) is revision.handshake


@live
async def test_a_revision_is_pinned_or_limited(revision: Revision) -> None:
    for wanted in (revision.date, [revision.date], (revision.date, NEWEST.date)):
        replies = {"server/discover": no(-32601)} if revision.handshake else {}
        async with met(revision, replies, revision=wanted) as (client, server):
            assert client.revision == revision.date
            probed = wanted != revision.date and wanted != [revision.date]
            assert (server.requests("server/discover") != []) is (probed or not revision.handshake)


@HANDSHAKES
@live
async def test_the_probe_that_nobody_answers_costs_one_short_wait(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaking, "PROBE_S", 0.05)
    async with met(revision, {"server/discover": lambda params: None}) as (client, server):
        assert client.revision == revision.date
        assert methods(server.received)[:3] == [
            "server/discover",
            "notifications/cancelled",
            "initialize",
        ]


@live
async def test_a_slow_modern_server_that_refuses_the_handshake_is_found_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speaking, "PROBE_S", 0.05)
    asked: list[JSON] = []

    def slow(params: JSON) -> JSON | None:
        asked.append(params)
        if len(asked) == 1:
            return None
        kept = {"ttlMs": 0, "cacheScope": "private", "capabilities": {}}
        return kept | {"supportedVersions": [NEWEST.date]}

    replies = {"server/discover": slow, "initialize": no(-32022)}
    async with met(NEWEST, replies) as (client, _):
        assert client.revision == NEWEST.date


@live
async def test_a_server_that_answers_nothing_at_all_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speaking, "PROBE_S", 0.05)
    silence: Replies = {name: lambda params: None for name in ("server/discover", "initialize")}
    with pytest.raises(TimedOut, match="server 'mute': no answer to initialize within"):
        async with met(ALL[0], silence, timeout_s=0.1, server_name="mute"):
            raise AssertionError("nobody answered")


@live
async def test_what_a_server_says_it_supports_is_checked() -> None:
    def liar(params: JSON) -> JSON:
        kept = {"ttlMs": 0, "cacheScope": "private", "capabilities": {}}
        return kept | {"supportedVersions": ["2099-01-01", ALL[2].date]}

    async with met(ALL[2], {"server/discover": liar}) as (client, server):
        assert client.revision == ALL[2].date
        (greeting,) = server.requests("initialize")
        assert greeting["params"]["protocolVersion"] == ALL[2].date
    with pytest.raises(RemoteProtocolError, match="server 'liar': no revision in common"):
        async with met(ALL[2], {"server/discover": liar}, revision=NEWEST.date, server_name="liar"):
            raise AssertionError("there is none")


@HANDSHAKES
@live
async def test_who_wants_only_modern_ones_is_told_what_to_do(revision: Revision) -> None:
    replies = {"server/discover": no(-32601)}
    with pytest.raises(RemoteProtocolError, match="connect without revision="):
        async with met(revision, replies, revision=NEWEST.date):
            raise AssertionError("it is too old")


# ---------------------------------------------------------------- a child


def child(mode: str, revision: Revision) -> list[str]:
    return [sys.executable, "-I", SERVER, mode, revision.date]


@pytest.mark.spec("R0844")
@live
async def test_a_modern_child_is_found_by_the_probe() -> None:
    async with connect(child("modern", NEWEST)) as client:
        assert client.revision == NEWEST.date
        assert await client.list_tools() == []


@HANDSHAKES
@live
async def test_a_child_that_dies_of_the_probe_is_started_again_and_greeted(
    revision: Revision,
) -> None:
    async with connect(child("dying", revision)) as client:
        assert client.revision == revision.date
        assert await client.list_tools() == []


@HANDSHAKES
@live
async def test_a_child_that_is_mute_after_the_probe_and_then_exits_is_started_again_and_greeted(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stdio server on Python `mcp` 1.0 to 1.8."""
    monkeypatch.setattr(speaking, "PROBE_S", 0.2)
    target = child("mute", revision)
    async with connect(target) as client:
        assert client.revision == revision.date
        assert await client.list_tools() == []
    # Remembered after the first time: a probe now would be a wait without an end.
    monkeypatch.setattr(speaking, "PROBE_S", 3600.0)
    async with connect(target, timeout_s=3600.0) as client:
        assert client.revision == revision.date


@live
async def test_a_child_that_is_mute_and_exits_at_every_start_is_an_error_with_its_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speaking, "PROBE_S", 0.2)
    words = "import sys\nif 'initialize' not in input(): input()\nsys.exit('no licence')"
    with pytest.raises(CannotConnect, match=r"exited with 1.*no licence"):
        await connect([sys.executable, "-I", "-c", words])


def test_a_probe_takes_half_of_a_short_limit_so_that_a_handshake_can_follow() -> None:
    """A host whose `start_s` is 10 gave up on every server that does not answer a probe."""
    assert speaking.probe_s(10.0) == 5.0
    assert speaking.probe_s(60.0) == 10.0


@pytest.mark.spec("R0930")
@live
async def test_how_a_child_wants_to_be_spoken_to_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speaking, "PROBE_S", 0.2)
    target = child("silent", ALL[1])
    for _ in range(2):  # silence alone is believed the second time
        async with connect(target) as client:
            assert client.revision == ALL[1].date
    monkeypatch.setattr(speaking, "PROBE_S", 3600.0)  # which would be a wait without an end
    async with connect(target, timeout_s=3600.0) as client:
        assert client.revision == ALL[1].date


@live
async def test_a_child_that_was_too_slow_once_is_not_taken_for_an_older_one_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first time a package manager has to fetch it, say."""
    fetched = tmp_path / "fetched"
    target = [*child("slow", NEWEST), str(fetched), ALL[1].date]
    monkeypatch.setattr(speaking, "PROBE_S", 0.2)
    async with connect(target) as client:
        assert client.revision == ALL[1].date
    fetched.touch()
    monkeypatch.setattr(speaking, "PROBE_S", 30.0)
    for _ in range(2):
        async with connect(target) as client:
            assert client.revision == NEWEST.date


@pytest.mark.spec("R0846", "R0932")
@pytest.mark.parametrize("served", [one for one in ALL if one.handshake], ids=lambda one: one.date)
@live
async def test_who_speaks_only_modern_ones_asks_an_older_child_first(served: Revision) -> None:
    with pytest.raises(RemoteProtocolError, match="has no server/discover"):
        await connect(child("older", served), revision=NEWEST.date)


@live
async def test_a_child_that_dies_of_everything_is_one_error_with_its_last_lines() -> None:
    words = "import sys; sys.stderr.write('no licence\\n'); sys.exit(7)"
    with pytest.raises(CannotConnect, match=r"server 'shop' \(pid \d+\) exited with 7.*no licence"):
        await connect([sys.executable, "-I", "-c", words], server_name="shop")


# ---------------------------------------------------------------- over HTTP

Answers = Callable[[ReceivedRequest], bytes]


def reply(heard: ReceivedRequest, result: JSON, *lines: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": heard.message["id"], "result": result}
    return http_response(200, json.dumps(message).encode(), "application/json", *lines)


def refusal(
    heard: ReceivedRequest, code: int, status: int, data: Any = None, *, id: bool = True
) -> bytes:
    error: JSON = {"code": code, "message": "no"} | ({"data": data} if data is not None else {})
    message: JSON = {"jsonrpc": "2.0", "error": error}
    if id:
        message["id"] = heard.message["id"]
    return http_response(status, json.dumps(message).encode())


def opened(heard: ReceivedRequest, revision: Revision) -> bytes:
    said = {"protocolVersion": revision.date, "capabilities": {"tools": {}}, "serverInfo": INFO}
    return reply(heard, said)


def discovered(heard: ReceivedRequest, *dates: str) -> bytes:
    kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "capabilities": {}}
    return reply(heard, kept | {"supportedVersions": list(dates)})


class Script:
    """What a server answers to each method; a list is one answer after the other."""

    def __init__(self, **answers: Answers | list[Answers]) -> None:
        self.answers = answers
        self.said: list[str] = []

    async def handler(self, connection: AcceptedConnection) -> None:
        while True:
            heard = await connection.receive()
            method = heard.message["method"] if heard.method == "POST" else heard.method
            self.said.append(method)
            answer = self.answers.get(method.replace("/", "_"))
            if isinstance(answer, list):
                answer = answer.pop(0)
            if answer is not None:
                await connection.send(answer(heard))
            elif heard.method == "POST" and "id" not in heard.message:
                await connection.send(http_response(202))
            else:
                await connection.send(http_response(405))


@asynccontextmanager
async def site(script: Script) -> AsyncGenerator[HttpRunner]:
    async with scripted_http_server(script.handler) as server:
        yield server


@live
async def test_a_modern_site_is_asked_once_and_needs_no_more() -> None:
    script = Script(server_discover=lambda heard: discovered(heard, NEWEST.date))
    async with site(script) as server, connect(server.url) as client:
        assert client.revision == NEWEST.date
    assert script.said == ["server/discover"]
    (heard,) = server.received
    assert heard.headers["mcp-method"] == "server/discover"
    assert heard.headers["mcp-protocol-version"] == NEWEST.date


OLD_ANSWERS: dict[str, Answers] = {
    "empty 400": lambda heard: http_response(400),
    "400 with words": lambda heard: http_response(
        400, b"Bad Request: No valid session ID", "text/plain"
    ),
    "400 with an error": lambda heard: refusal(heard, -32000, 400),
    "400 without an id": lambda heard: refusal(heard, -32600, 400, id=False),
    "404": lambda heard: http_response(404, b"<html>", "text/html"),
    "404 with unknown method": lambda heard: refusal(heard, -32601, 404),
    "406": lambda heard: http_response(406),
    "415": lambda heard: http_response(415),
    "200 with unknown method": lambda heard: refusal(heard, -32601, 200),
    "200 with something else": lambda heard: reply(heard, {"tools": []}),
    "version unsupported, without versions": lambda heard: refusal(heard, -32022, 400),
}


@pytest.mark.parametrize("case", OLD_ANSWERS)
@live
async def test_a_site_that_gives_no_modern_answer_is_greeted(case: str) -> None:
    script = Script(
        server_discover=OLD_ANSWERS[case], initialize=lambda heard: opened(heard, ALL[3])
    )
    async with site(script) as server, connect(server.url) as client:
        assert client.revision == ALL[3].date
    assert script.said[:3] == ["server/discover", "initialize", "notifications/initialized"]


MODERN_ANSWERS: dict[str, tuple[Answers, str]] = {
    "versions": (
        lambda heard: refusal(
            heard, -32022, 400, {"supported": ["2099-01-01"], "requested": NEWEST.date}
        ),
        "no revision in common",
    ),
    "headers": (lambda heard: refusal(heard, -32020, 400), "no"),
    "capabilities": (
        lambda heard: refusal(heard, -32021, 400, {"requiredCapabilities": {"roots": {}}}),
        "no",
    ),
}


@pytest.mark.parametrize("case", MODERN_ANSWERS)
@live
async def test_a_modern_error_is_never_fallen_back_from(case: str) -> None:
    answer, words = MODERN_ANSWERS[case]
    script = Script(server_discover=answer)
    async with site(script) as server:
        with pytest.raises((RemoteError, RemoteProtocolError), match=words):
            await connect(server.url)
    assert script.said == ["server/discover"]


@live
async def test_a_modern_site_that_names_an_older_version_is_greeted_in_it() -> None:
    data = {"supported": [ALL[2].date], "requested": NEWEST.date}
    script = Script(
        server_discover=lambda heard: refusal(heard, -32022, 400, data),
        initialize=lambda heard: opened(heard, ALL[2]),
    )
    async with site(script) as server, connect(server.url) as client:
        assert client.revision == ALL[2].date
        (greeting,) = server.posts("initialize")
        assert greeting["params"]["protocolVersion"] == ALL[2].date


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429, 500, 502, 503])
@pytest.mark.parametrize("with_error", [False, True], ids=["empty", "with an error"])
@live
async def test_what_speaks_of_the_way_decides_nothing(status: int, with_error: bool) -> None:
    def answer(heard: ReceivedRequest) -> bytes:
        return refusal(heard, -32603, status) if with_error else http_response(status)

    script = Script(server_discover=answer)
    kinds = {401: LoginRequired, 403: AuthError}.get(status, Exception)
    async with site(script) as server:
        for _ in range(2):
            with pytest.raises(kinds):
                await connect(server.url)
    assert script.said == ["server/discover"] * 2


@live
async def test_a_site_that_was_greeted_once_is_greeted_at_once_until_that_is_wrong() -> None:
    old: Answers = lambda heard: opened(heard, ALL[1])  # noqa: E731
    new: Answers = lambda heard: refusal(heard, -32022, 400)  # noqa: E731
    script = Script(
        server_discover=[
            lambda heard: http_response(400),
            lambda heard: discovered(heard, NEWEST.date),
        ],
        initialize=[old, old, new],
    )
    async with site(script) as server:
        for expected in (ALL[1], ALL[1], NEWEST):
            async with connect(server.url) as client:
                assert client.revision == expected.date
    asked = [one for one in script.said if one in ("server/discover", "initialize")]
    greeting, probe = "initialize", "server/discover"
    assert asked == [probe, greeting, greeting, greeting, probe]


@live
async def test_who_was_greeted_only_because_somebody_wished_so_is_asked_the_next_time() -> None:
    script = Script(
        server_discover=lambda heard: discovered(heard, NEWEST.date),
        initialize=lambda heard: opened(heard, ALL[2]),
    )
    async with site(script) as server:
        async with connect(server.url, revision=ALL[2].date) as client:
            assert client.revision == ALL[2].date
        async with connect(server.url) as client:
            assert client.revision == NEWEST.date


@live
async def test_a_site_of_the_first_revision_is_found_by_its_stream() -> None:
    streams: list[AcceptedConnection] = []

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            heard = await connection.receive()
            if heard.method == "GET":
                streams.append(connection)
                await connection.send(stream(), chunk(b"event: endpoint\ndata: /post\n\n"))
                await connection.wait_closed()
            elif heard.path == "/post":
                await connection.send(http_response(202))
                if heard.message["method"] == "initialize":
                    told = {"protocolVersion": ALL[0].date, "capabilities": {}, "serverInfo": INFO}
                    answer = {"jsonrpc": "2.0", "id": heard.message["id"], "result": told}
                    await streams[-1].send(chunk(events(answer)))
            else:
                await connection.send(http_response(405))

    async with scripted_http_server(handler) as server:
        for times in range(2):
            async with connect(server.url) as client:
                assert client.revision == ALL[0].date
            wasted = [one for one in server.received if one.method == "POST" and one.path == "/mcp"]
            assert len(wasted) == 2, f"the second of {times + 1} remembers"


@live
async def test_a_page_that_is_no_server_is_an_error_that_says_so() -> None:
    page = http_response(200, b"<html>welcome</html>", "text/html")
    script = Script(server_discover=lambda heard: page, initialize=lambda heard: page)
    async with site(script) as server:
        with pytest.raises(RemoteProtocolError, match=r"not MCP.*welcome"):
            await connect(server.url)


@live
async def test_giving_up_in_the_middle_leaves_nothing_behind() -> None:
    waiting = asyncio.Event()

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        waiting.set()
        await connection.wait_closed()

    async with scripted_http_server(handler) as server:
        connecting = asyncio.ensure_future(_connected(server.url))
        await waiting.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await until(lambda: server.open == 0)


async def _connected(url: str) -> Client:
    return await connect(url)
