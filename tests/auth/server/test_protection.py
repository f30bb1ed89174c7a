"""A protected server as strangers, and those with a token, see it over HTTP.

The cases of the resource server (RS) that concern what is answered: statuses, challenges, the
documents, scopes, and that no path leads around them. What a token must be like is in
`test_tokens.py`, keys are in `test_jwt_keys.py`, proofs in `test_proofs.py`.
"""

import json
from typing import Any, Literal, cast

import pytest

from auth.challenge import challenge
from auth.protected import METADATA, READ, RESOURCE, WRITE, Bearer, notes, protected
from colonnade import Introspection, Jwt, LocalProtocolError, Protection, Server, StaticTokens
from colonnade.auth.server.verifier import VerifiedToken
from colonnade.errors import InvalidArgumentType
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol.revision import ALL, Revision
from colonnade.testing import connect
from http_client import Caller, opening
from live import Records, live

HANDSHAKES = [one for one in ALL if one.handshake]


# ---------------------------------------------------------------- 401


@pytest.mark.spec("R0195", "R0205", "R0308", "R0384", "R0389", "R0235")
@live
async def test_who_shows_no_token_is_told_where_to_get_one_and_for_what() -> None:
    """RS-01, RS-12: and not that anything was wrong with what they did not send."""
    async with protected(scopes=[READ]) as setup:
        for given in (None, "Basic YTpi", "Negotiate x"):
            answer = await setup.caller().modern("tools/list", authorization=given)
            assert answer.status == 401
            scheme, said = challenge(answer)
            assert scheme == "Bearer"
            assert said == {"resource_metadata": METADATA, "scope": READ}


@pytest.mark.spec("R0205", "R0210", "R0211", "R0217")
@live
async def test_who_shows_a_bad_token_is_told_so() -> None:
    """RS-03, RS-08."""
    async with protected(scopes=[READ]) as setup:
        answer = await setup.caller(setup.token(exp=1)).modern("tools/list")
        assert answer.status == 401
        _, said = challenge(answer)
        assert said["error"] == "invalid_token"
        assert said["error_description"] == "the token has expired"
        assert (said["resource_metadata"], said["scope"]) == (METADATA, READ)


@pytest.mark.spec("R0205", "R0319")
@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer ", "Bearer a b", "Bearer a,b", "Bearer \u00e9", "bearer=x", "DPoP"]
)
@live
async def test_a_malformed_header_is_a_malformed_request(given: str) -> None:
    """RS-08."""
    async with protected() as setup:
        answer = await setup.caller().modern("tools/list", authorization=given)
        if given == "bearer=x":
            assert answer.status == 401  # no scheme that is known
        else:
            assert answer.status == 400
            assert challenge(answer)[1]["error"] == "invalid_request"


@pytest.mark.spec("R0205")
@live
async def test_two_tokens_are_none() -> None:
    """RS-08: a proxy may have looked at the other one."""
    async with protected() as setup:
        wire = await setup.caller().wire()
        lines = [f"Authorization: Bearer {setup.token(sub=who)}" for who in ("ann", "bob")]
        head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{setup.site.port}\r\n"
        accept = "Accept: text/event-stream\r\n"
        await wire.send((head + accept + "\r\n".join(lines) + "\r\n\r\n").encode())
        assert (await wire.head()).status == 400


@pytest.mark.spec("R0205", "R0208", "R0319")
@live
async def test_a_token_in_the_query_or_the_body_is_not_looked_at() -> None:
    """RS-04."""
    async with protected() as setup:
        token = setup.token()
        path = f"/mcp?access_token={token}"
        assert (await setup.caller().modern("tools/list", path=path)).status == 401
        body = f"access_token={token}".encode()
        form = "application/x-www-form-urlencoded"
        answer = await setup.caller().request("POST", body, content_type=form)
        assert answer.status in (401, 415)
        meta = {"authorization": f"Bearer {token}", "access_token": token}
        assert (await setup.caller().modern("tools/list", meta=meta)).status == 401


@pytest.mark.spec("R0207", "R0342", "R0723", "R0047", "R1300")
@live
async def test_every_request_needs_its_token_whatever_came_before_it(revision: Revision) -> None:
    """RS-07: in a session, on its stream, at its end; and each path that can dispatch (MCPwn)."""
    async with protected() as setup:
        known = setup.caller(setup.token())
        headers: dict[str, Any] = {}
        if revision.handshake:
            await known.initialize(revision.date)
            headers["mcp_session_id"] = known.session
        for method in ("GET", "POST", "DELETE"):
            for path in ("/mcp", "/mcp/", "/sse", "/messages/?session_id=x", "/messages/"):
                for token in (None, "rubbish", setup.token(exp=1)):
                    unknown = Bearer(setup.site.port, token)
                    async with unknown:
                        body = json.dumps(opening(revision.date)).encode()
                        answer = await unknown.request(
                            method, body if method == "POST" else b"", path, **headers
                        )
                    assert answer.status in (401, 404, 405), (method, path)
                    if path == "/mcp":
                        assert answer.status == 401


@pytest.mark.parametrize(
    "path",
    ["/mcp/", "//mcp", "/mcp/.", "/%6dcp", "/%6Dcp/", "/mcp;x", "/MCP", "/mcp%00", "/%2fmcp", "/"],
)
@live
async def test_no_spelling_of_the_path_leads_around_the_token(path: str) -> None:
    """GHSA-5j8j-256g-vvp5: it is ours, and closed, or it is nothing."""
    async with protected() as setup:
        answer = await setup.caller().modern("tools/list", path=path)
        assert answer.status in (400, 401, 404)


@live
async def test_where_the_issuer_does_not_answer_nobody_comes_in() -> None:
    """Neither a stranger nor a friend; and they are asked to come back, not to log in."""
    async with protected() as setup:
        setup.issuer.down = True
        with Records("colonnade.auth") as records:
            answer = await setup.caller(setup.token()).modern("tools/list")
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert setup.token() not in "".join(records.lines)
        assert await setup.status(None) == 401


# ---------------------------------------------------------------- documents


@pytest.mark.spec("R0302", "R0306", "R0307", "R0385", "R0386", "R0387")
@live
async def test_our_document_is_at_both_well_known_places_and_for_everybody() -> None:
    """RS-02, RS-11: with no route that the author had to write."""
    async with protected(scopes=[READ], documentation="https://notes.example/help") as setup:
        for path in ("/mcp", ""):
            where = f"/.well-known/oauth-protected-resource{path}"
            answer = await setup.caller().request("GET", path=where, origin="https://page.example")
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.headers["content-type"] == "application/json"
            document = answer.json
            assert document["resource"] == RESOURCE
            assert document["authorization_servers"] == [setup.issuer.url]
            assert document["scopes_supported"] == [READ]
            assert document["bearer_methods_supported"] == ["header"]
            assert document["resource_name"] == "Notes"
            assert document["resource_documentation"] == "https://notes.example/help"
        asked = await setup.caller().request(
            "OPTIONS", path="/.well-known/oauth-protected-resource", origin="https://page.example"
        )
        assert asked.status == 200
        assert asked.headers["access-control-allow-headers"] == "*"


@pytest.mark.spec("R0197", "R0200", "R0201")
@live
async def test_the_first_clients_find_the_issuers_own_document_at_our_root() -> None:
    """2025-03-26: those clients look at the origin of the server, and nowhere else."""
    async with protected() as setup:
        where = "/.well-known/oauth-authorization-server"
        answer = await setup.caller().request("GET", path=where)
        assert answer.status == 200
        assert answer.json == setup.issuer.metadata
        setup.issuer.down = True
        assert (await setup.caller().request("GET", path=where)).json == setup.issuer.metadata


@live
async def test_where_the_issuer_has_no_document_there_is_none_to_copy() -> None:
    async with protected() as setup:
        setup.issuer.down = True
        where = "/.well-known/oauth-authorization-server"
        answer = await setup.caller().request("GET", path=where)
        assert answer.status == 404
        assert "not found; the MCP endpoint is" in answer.json["error"]["message"]


@live
async def test_around_another_application_the_documents_are_still_ours() -> None:
    async def theirs(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"theirs"})
        else:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})

    async with protected(options={"around": theirs}) as setup:
        ours = await setup.caller().request("GET", path="/.well-known/oauth-protected-resource")
        assert ours.json["resource"] == RESOURCE
        assert (await setup.caller().request("GET", path="/.well-known/x")).body == b"theirs"


@live
async def test_under_a_mount_the_challenge_leads_to_the_document_that_we_can_serve() -> None:
    """We never see the root there; the document says the same, below where we are mounted."""
    async with protected() as setup:
        sent: list[Any] = []
        host = f"127.0.0.1:{setup.site.port}".encode()

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def ask(method: str, path: str) -> Any:
            sent.clear()
            scope = {
                "type": "http",
                "method": method,
                "path": f"/api{path}",
                "root_path": "/api",
                "headers": [(b"host", host), (b"accept", b"text/event-stream")],
            }
            await setup.site.app(scope, receive, send)
            return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

        _, headers, _ = await ask("GET", "/mcp")
        below = "/.well-known/oauth-protected-resource/mcp"
        assert f"https://notes.example/api{below}".encode() in headers[b"www-authenticate"]
        status, _, body = await ask("GET", below)
        assert (status, json.loads(body)["resource"]) == (200, RESOURCE)


# ---------------------------------------------------------------- 403


@pytest.mark.spec(
    "R0205",
    "R0729",
    "R0730",
    "R0393",
    "R0135",
    "R0137",
    "R0425",
    "R0426",
    "R0427",
    "R0428",
    "R0429",
    "R0430",
    "R0431",
    "R0432",
)
@live
async def test_what_needs_more_scopes_says_all_of_them_at_once() -> None:
    """RS-08, RS-09: for tools, resources and prompts, in the modern way and in sessions."""
    wanted = [
        ("tools/call", {"name": "erase", "arguments": {"name": "x"}}, {WRITE, READ}),
        ("resources/read", {"uri": "notes://shut"}, {WRITE, "notes:see", READ}),
        ("prompts/get", {"name": "plan"}, {WRITE, READ}),
    ]
    async with protected(scopes=[READ]) as setup:
        sessions = [setup.caller(setup.token()) for _ in HANDSHAKES]
        for caller, one in zip(sessions, HANDSHAKES, strict=True):
            await caller.initialize(one.date)
        for method, params, scopes in wanted:
            asks = [setup.caller(setup.token()).modern(method, params)]
            asks += [caller.ask(method, params) for caller in sessions]
            for ask in asks:
                answer = await ask
                assert answer.status == 403
                scheme, said = challenge(answer)
                assert (scheme, said["error"]) == ("Bearer", "insufficient_scope")
                assert set(said["scope"].split()) == scopes
                assert said["resource_metadata"] == METADATA
                assert said["error_description"].startswith("this needs the scope ")
                assert answer.json["id"] == 1


@live
async def test_a_token_without_what_everything_needs_is_refused_for_everything() -> None:
    """RS-09."""
    async with protected(scopes=[READ, "notes:see"]) as setup:
        answer = await setup.caller(setup.token(scope="other")).modern("tools/list")
        assert answer.status == 403
        assert challenge(answer)[1]["scope"] == f"{READ} notes:see"


@live
async def test_a_batch_with_one_message_too_much_is_refused_whole() -> None:
    """D26, RS-09."""
    async with protected() as setup:
        caller = setup.caller(setup.token())
        await caller.initialize("2025-03-26")
        calls = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            for id, params in enumerate(
                [{"name": "whoami"}, {"name": "erase", "arguments": {"name": "x"}}]
            )
        ]
        answer = await caller.post(calls)
        assert answer.status == 403
        assert challenge(answer)[1]["scope"] == WRITE


@pytest.mark.spec("R0111")
@live
async def test_with_the_scopes_it_works_and_lists_show_what_may_be_used(revision: Revision) -> None:
    """RS-13: the list is filtered, and what it leaves out is closed all the same."""
    async with protected() as setup:
        for scope, seen in (("notes:read", ["whoami"]), (WRITE, ["erase", "whoami"])):
            caller = setup.caller(setup.token(scope=scope))
            if revision.handshake:
                await caller.initialize(revision.date)
            ask = caller.ask if revision.handshake else caller.modern
            listed = (await ask("tools/list")).json["result"]["tools"]
            assert sorted(tool["name"] for tool in listed) == seen
            prompts = (await ask("prompts/list")).json["result"]["prompts"]
            assert len(prompts) == (scope == WRITE)
            called = await ask("tools/call", {"name": "erase", "arguments": {"name": "x"}})
            assert called.status == (200 if scope == WRITE else 403)


@pytest.mark.spec("R0732")
@live
async def test_a_broader_scope_holds_the_narrower_ones() -> None:
    """RS-10."""
    implies = {"admin": {WRITE}, WRITE: {READ}}
    async with protected(scopes=[READ], implies=implies) as setup:
        answer = await setup.caller(setup.token(scope="admin")).modern(
            "tools/call", {"name": "erase", "arguments": {"name": "x"}}
        )
        assert answer.status == 200
        assert await setup.status(setup.token(scope=WRITE)) == 200
        assert await setup.status(setup.token(scope="other")) == 403


@live
async def test_scopes_of_this_very_request_count_not_those_that_opened_the_session() -> None:
    async with protected() as setup:
        caller = setup.caller(setup.token(scope=WRITE))
        await caller.initialize("2025-11-25")
        erase = {"name": "erase", "arguments": {"name": "x"}}
        assert (await caller.ask("tools/call", erase)).status == 200
        caller.token = setup.token(scope=READ)
        assert (await caller.ask("tools/call", erase)).status == 403
        caller.token = setup.token(scope=WRITE)
        assert (await caller.ask("tools/call", erase)).status == 200


@pytest.mark.spec("R0151", "R0152")
@live
async def test_a_template_and_a_completion_of_what_is_closed_are_closed() -> None:
    """RS-13, FastMCP #3494: every way to something passes the same gate."""
    server = notes()

    @server.resource("secrets://{name}", scopes={WRITE})
    def secret(name: bool) -> str:
        return str(name)

    @server.prompt(scopes={WRITE})
    def paint(color: Literal["crimson"]) -> str:
        return color

    async with protected(server=server) as setup:
        caller = setup.caller(setup.token())
        read = await caller.modern("resources/read", {"uri": "secrets://true"})
        assert read.status == 403
        ref = {"type": "ref/resource", "uri": "secrets://{name}"}
        asked = {"ref": ref, "argument": {"name": "name", "value": ""}}
        completed = await caller.modern("completion/complete", asked)
        assert completed.status == 403
        ref = {"type": "ref/prompt", "name": "paint"}
        asked = {"ref": ref, "argument": {"name": "color", "value": ""}}
        completed = await caller.modern("completion/complete", asked)
        assert completed.status == 403
        assert b"crimson" not in completed.body
        allowed = setup.caller(setup.token(scope=WRITE))
        assert b"crimson" in (await allowed.modern("completion/complete", asked)).body


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Protection("https://a.example/mcp"), "no issuer is trusted"),
        (lambda: Protection("http://a.example/mcp", Jwt("https://b.example")), "https://"),
        (lambda: Protection("a.example/mcp", Jwt("https://b.example")), "https://"),
        (lambda: Protection("https://a.example/mcp#x", Jwt("https://b.example")), "fragment"),
        (lambda: Protection("https://u:p@a.example", Jwt("https://b.example")), "password"),
        (lambda: Jwt("http://b.example"), "https://"),
        (lambda: Jwt("https://b.example", skew_s=61), "skew_s"),
        (lambda: Jwt("https://b.example", audience=""), "audience= is empty"),
        (lambda: Jwt("https://b.example", algorithms=["HS256"]), "supported are"),
        (lambda: Jwt("https://b.example", algorithms=["none"]), "supported are"),
        (lambda: Jwt("https://b.example", algorithms=[]), "supported are"),
        (lambda: Jwt("https://b.example", networks=["10.0.0.1/8"]), "networks"),
        (
            lambda: Introspection("https://b.example", "a", "b", endpoint="http://c.example"),
            "https",
        ),
        (lambda: StaticTokens({"": "ann"}), "empty"),
        (lambda: StaticTokens({"word": (cast("str", 7), ())}), "strings"),
        (lambda: StaticTokens({"word": ""}), "non-empty"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_at_once(make: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        make()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        # The keys of this dict would be a principal and a scope, the same for every client.
        ({"s3cret": {"client_id": "ann", "scopes": ["stock:read"]}}, "not dict"),
        ({"s3cret": ("ann", "stock:read")}, "a set of strings, not str"),
        ({"s3cret": ("ann", {"stock:read": True})}, "a set of strings, not dict"),
        ({"s3cret": ("ann", [7])}, "non-empty strings"),
        ({"s3cret": ("ann", 7)}, "not int"),
        ({"s3cret": ("ann",)}, "not 1 values"),
        ({"s3cret": ("ann", "a", "b")}, "not 3 values"),
        ({"s3cret": None}, "not NoneType"),
        ({"s3cret": (["ann"], ["stock:read"])}, "principals are strings, not list"),
        ({b"s3cret": "ann"}, "a token is a string, not bytes"),
        (["s3cret"], "a dict, not list"),
    ],
)
def test_static_tokens_of_another_shape_are_refused_without_the_token(
    tokens: Any, words: str
) -> None:
    with pytest.raises(InvalidArgumentType, match=words) as raised:
        StaticTokens(tokens)
    assert "write StaticTokens({'a-word': 'ann'}), or with scopes" in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Protection(_any(StaticTokens({"s3cret": "ann"}))), r"mcp', StaticTokens\("),
        (lambda: Protection(RESOURCE, _any("https://b.example")), r"Jwt\('https://b.example'\)"),
        (lambda: Protection(RESOURCE, _any({"s3cret": "ann"})), "an object of the type dict"),
        (lambda: Protection(RESOURCE, _any(Jwt)), "the class Jwt"),
        (lambda: Jwt(_any(7)), "the issuer is a URL as a string, not int"),
        (lambda: Server("s", auth=_any(StaticTokens({"s3cret": "ann"}))), r"mcp', StaticTokens\("),
    ],
)
def test_arguments_of_another_type_are_refused_with_what_to_write(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentType, match=words) as raised:
        make()
    assert "s3cret" not in str(raised.value)


def _any(value: Any) -> Any:
    return value


@pytest.mark.spec("R0728")
@pytest.mark.parametrize("scope", ["offline_access", "two words", 'a"b', ""])
def test_scopes_that_are_none_are_refused_and_offline_access_with_them(scope: str) -> None:
    """RS-11."""
    with pytest.raises(LocalProtocolError, match=r"scope|offline_access"):
        Protection("https://a.example", Jwt("https://b.example"), scopes=[scope])


def test_two_ways_to_say_who_comes_in_are_one_too_many() -> None:
    server = Server("s", auth=Protection(RESOURCE, Jwt("https://b.example")))

    async def verify(headers: object) -> str:
        return "anybody"

    with pytest.raises(LocalProtocolError, match="verify="):
        server.asgi(verify=verify)


def test_what_is_mounted_is_as_closed_as_the_server_that_it_is_mounted_in() -> None:
    """CVE-2026-33032: a way to the same tools that nobody guards."""
    inner = notes(auth=Protection(RESOURCE, Jwt("https://b.example")))
    with pytest.raises(LocalProtocolError, match="has its own auth="):
        Server("outer").mount(inner)
    shared = Protection(RESOURCE, Jwt("https://b.example"))
    Server("outer", auth=shared).mount(notes(auth=shared))
    Server("outer", auth=shared).mount(notes())


def test_an_issuer_alone_is_no_protection() -> None:
    with pytest.raises(LocalProtocolError, match="takes Protection"):
        Server("s", auth=Jwt("https://b.example"))  # type: ignore[arg-type]


@pytest.mark.spec("R1319")
@live
async def test_words_for_development_let_in_who_they_stand_for() -> None:
    words = StaticTokens({"open-sesame": ("ann", {WRITE}), "knock": "bob"})
    async with protected(trust=lambda _: words) as setup:
        caller = setup.caller("open-sesame")
        assert (await caller.modern("tools/call", {"name": "whoami"})).text == "ann"
        erase = {"name": "erase", "arguments": {"name": "x"}}
        assert (await caller.modern("tools/call", erase)).status == 200
        assert (await setup.caller("knock").modern("tools/call", erase)).status == 403
        answer = await setup.caller("knocked").modern("tools/list")
        assert answer.status == 401
        assert challenge(answer)[1]["error_description"] == "unknown token"
        assert "resource_metadata" not in challenge(answer)[1]  # nobody gives them out
        where = "/.well-known/oauth-protected-resource"
        assert (await setup.caller().request("GET", path=where)).status == 404


class Nameless(StaticTokens):
    """Believes a token, and gives it a principal that is none."""

    def __init__(self, principal: Any) -> None:
        super().__init__({"word": "ann"})
        self._principal = principal

    async def verify(self, *given: Any, **more: Any) -> VerifiedToken:
        return VerifiedToken(self._principal, frozenset(), None)


@pytest.mark.parametrize("principal", ["", 7, None, SERVER_PRINCIPAL])
@live
async def test_a_token_that_is_believed_for_no_principal_is_refused(principal: Any) -> None:
    """All its callers would be one, and "" is the name of anonymous ones."""
    async with protected(trust=lambda _: Nameless(principal)) as setup:
        answer = await setup.caller("word").modern("tools/list")
        assert answer.status == 401
        assert challenge(answer)[1]["error"] == "invalid_token"


@pytest.mark.spec("R0188", "R0235")
@live
async def test_without_http_nobody_is_asked_for_a_token() -> None:
    """On a pipe, and in memory, the caller is whoever started the server."""
    server = notes(auth=Protection(RESOURCE, Jwt("https://b.example")))
    async with connect(server) as client:
        assert (await client.call_tool("whoami")).text == ""


@live
async def test_a_caller_without_a_guard_is_answered_as_before() -> None:
    from colonnade.transport.http_server.runner import HttpRunner

    site = HttpRunner(notes().asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            assert (await caller.call("whoami")).status == 200
            where = "/.well-known/oauth-protected-resource/mcp"
            assert (await caller.request("GET", path=where)).status == 404
    finally:
        await site.stop(0.0)
