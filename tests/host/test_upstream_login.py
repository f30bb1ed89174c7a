"""Logins of the callers of a host: each connects its own account, and no other can for it."""

import asyncio
import logging
import secrets
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from auth.issuer import Issuer, issuing
from auth.upstream_setup import (
    LINK,
    Page,
    UpstreamSetup,
    UserBrowser,
    upstream_setup,
    who_is_there,
)
from colonnade import Host, HostInputRequest, LoginRequired, Server
from colonnade.auth.client.upstream import MAX_LINKS, UpstreamClient
from colonnade.errors import ConnectionLost, Declined
from colonnade.host.credentials import UpstreamCredentials
from colonnade.host.input_requests import InputRequestHandler
from colonnade.host.router import HostRouter, LocalRequestContext, local_exchange
from colonnade.host.servers.generation import Generation
from colonnade.ports import RequestContext, Swap
from colonnade.protocol import types as t
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.runner import HttpRunner
from live import live

KEY = secrets.token_bytes(32)


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


async def link_for(host: Host, user: str) -> str:
    """The URL of the connect page, from the error of a call."""
    with pytest.raises(LoginRequired) as raised:
        await host.caller(user).call_tool("notes__whoami")
    found = LINK.search(str(raised.value))
    assert found is not None, raised.value
    return found[0]


async def connect(setup: UpstreamSetup, host: Host, user: str) -> None:
    """Let a user connect the account of the same name."""
    setup.issuer.tell("subject", user)
    page = await UserBrowser(user).connect(await link_for(host, user))
    assert page.status == 200
    assert "is connected" in page.text


async def who_is(host: Host, user: str) -> str:
    return (await host.caller(user).call_tool("notes__whoami")).text.rpartition("#")[2]


@live
async def test_each_caller_connects_an_account_and_uses_that_one_alone(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        await connect(setup, host, "ann")
        assert await who_is(host, "ann") == "ann"
        await link_for(host, "bob")  # has none yet, whatever ann has
        await connect(setup, host, "bob")
        assert [await who_is(host, user) for user in ("ann", "bob", "ann")] == ["ann", "bob", "ann"]
        assert issuer.count("authorization_code") == 2
        registered = [one for one in issuer.seen() if one.startswith("POST /register")]
        assert len(registered) == 1  # one client, for all callers


@live
async def test_two_callers_share_no_connection_and_no_list(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        issuer.tell("scope", "notes:write")
        await connect(setup, host, "ann")
        assert len(await host.caller("ann").list_tools()) == 2
        assert await host.caller("bob").list_tools() == []
        issuer.tell("scope", "notes:read")
        await connect(setup, host, "bob")
        listed = await asyncio.gather(*(host.caller(one).list_tools() for one in ("ann", "bob")))
        assert [len(tools) for tools in listed] == [2, 1]
        await asyncio.gather(*(who_is(host, user) for user in ("ann", "bob") * 5))
        (status,) = host.status()
        assert status.sessions == 2
    tokens = [set(_tokens(bytes(sent))) for sent in setup.tap.sent]
    assert all(len(one) <= 1 for one in tokens)
    assert len(set().union(*tokens)) == 2


def _tokens(sent: bytes) -> list[bytes]:
    lines = sent.replace(b"\r", b"").split(b"\n")
    return [line for line in lines if line.lower().startswith(b"authorization:")]


@live
async def test_a_client_that_opens_urls_is_asked_and_its_call_goes_on(issuer: Issuer) -> None:
    asked: list[t.ElicitRequestParams] = []
    tasks: list[asyncio.Task[object]] = []

    def on_input_request(request: HostInputRequest) -> object:
        assert isinstance(request.params, t.ElicitRequestParams)
        assert request.params.url is not None
        assert request.calls[0].caller == "ann"
        asked.append(request.params)
        visit = UserBrowser("ann").connect(request.params.url)
        tasks.append(asyncio.get_running_loop().create_task(visit))
        return True

    async with upstream_setup(issuer) as setup:
        upstream = await setup.upstream()
        host = await setup.host(upstream, on_input_request=on_input_request)
        assert await who_is(host, "ann") == "ann"
        await asyncio.gather(*tasks)
        assert await who_is(host, "ann") == "ann"
        (one,) = asked
        assert one.mode == "url"
        assert "ann" not in (one.url or "")  # nothing about the user is in the URL


@live
async def test_a_user_who_declines_is_not_connected(issuer: Issuer) -> None:
    def on_input_request(_: HostInputRequest) -> object:
        raise Declined

    async with upstream_setup(issuer) as setup:
        upstream = await setup.upstream()
        host = await setup.host(upstream, on_input_request=on_input_request)
        with pytest.raises(LoginRequired, match="did not want to connect"):
            await host.caller("ann").call_tool("notes__whoami")


@pytest.mark.spec("R0642", "R0644")
@live
async def test_a_link_opens_nothing_for_another_user_nor_without_a_session(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        link = await link_for(host, "ann")
        page = await UserBrowser("ann").load(link)
        for user, status in (("bob", 403), ("", 401)):
            other = UserBrowser(user)
            assert (await other.load(link)).status == status
            assert (await other.load(link, {"form": page.form})).status == status
        assert issuer.count("authorization_code") == 0
        assert (await UserBrowser("ann").connect(link)).status == 200  # it is still hers
        await link_for(host, "bob")


@pytest.mark.spec("R0643")
@live
async def test_the_response_of_the_issuer_is_for_the_user_who_began_alone(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        # The attack of the specification: ann begins, and bob logs in for her.
        ann, bob = UserBrowser("ann"), UserBrowser("bob")
        page = await ann.confirm(await link_for(host, "ann"))
        back = (await ann.load(page, follow=False)).headers["location"]
        assert (await bob.load(back)).status == 403
        assert issuer.count("authorization_code") == 0
        await link_for(host, "bob")
        assert (await ann.load(back)).status == 200
        assert (await ann.load(back)).status == 403  # once
        assert await who_is(host, "ann") == "ann"
        await link_for(host, "bob")


@live
async def test_a_link_and_its_form_are_used_once_and_by_the_page_itself(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        link, ann = await link_for(host, "ann"), UserBrowser("ann")
        page = await ann.load(link)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        form = {"form": page.form}
        assert (await ann.load(link, form, origin="https://evil.example")).status == 403
        assert (await ann.load(link, form, sec_fetch_site="cross-site")).status == 403
        assert (await ann.load(link, {"form": "made-up"})).status == 403
        assert (await ann.load(link, {})).status == 403
        other = await link_for(host, "ann")
        assert (await ann.load(other, form)).status == 403  # of another link
        assert (await ann.load(link, form)).status == 200
        assert (await ann.load(link, form)).status == 403
        assert (await ann.load(link)).status == 403


@live
async def test_a_response_that_is_malformed_or_unknown_is_a_page_with_an_error(
    issuer: Issuer,
) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        link, ann = await link_for(host, "ann"), UserBrowser("ann")
        base = link.rpartition("/")[0]
        for query, status in (
            ("", 403),
            ("?state=made-up&code=x", 403),
            ("?state=a&state=b", 400),
            ("?" + "&".join(f"p{n}=1" for n in range(1000)), 400),
            ("?state=%ff", 400),
        ):
            assert (await ann.load(f"{base}/callback{query}")).status == status
        assert (await ann.load(base)).status == 403


@live
async def test_a_login_is_kept_encrypted_for_all_processes_which_refresh_it_once(
    issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "logins.db"
    async with upstream_setup(issuer) as setup:
        stores = [SqliteStore(path) for _ in range(3)]
        first = await setup.upstream(store=stores[0], keys=[KEY])
        host = await setup.host(first)
        issuer.tell("life", 0)  # so that each process has to refresh it at once
        await connect(setup, host, "ann")
        issuer.tell("life", 3600)
        hosts = [
            await setup.host(await setup.upstream(store=store, keys=[KEY])) for store in stores[1:]
        ]
        assert await asyncio.gather(*(who_is(one, "ann") for one in hosts)) == ["ann", "ann"]
        assert issuer.count("refresh_token") == 1
        assert issuer.count("reused") == 0
        await setup.stack.aclose()
        for store in stores:
            await store.close()
    kept = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    secret = [line.split()[-1] for sent in setup.tap.sent for line in _tokens(bytes(sent))]
    assert secret
    for one in secret:
        assert one not in kept
        assert one.decode() not in caplog.text


@live
async def test_a_login_that_was_revoked_is_asked_for_again(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        issuer.tell("life", 0)
        await connect(setup, host, "ann")
        issuer.tell("revoke")
        await link_for(host, "ann")
        assert issuer.count("refresh_token") == 1


@live
async def test_more_scopes_are_asked_for_on_the_same_page(issuer: Issuer) -> None:
    async with upstream_setup(issuer, scopes=["notes:read"]) as setup:
        clients = {"notes": UpstreamClient(scopes=["notes:write"])}
        host = await setup.host(await setup.upstream(clients=clients))
        link = await link_for(host, "ann")
        page = await UserBrowser("ann").load(link)
        assert "notes:write notes:read" in page.text
        assert (await UserBrowser("ann").connect(link)).status == 200
        assert (await host.caller("ann").call_tool("notes__erase")).text.endswith("erased")


@live
async def test_a_program_gets_the_link_without_a_call(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        link = await host.caller("ann").connect_url("notes")
        assert link is not None
        assert (await UserBrowser("ann").connect(link)).status == 200
        assert await host.caller("ann").connect_url("notes") is None
        assert len(await host.caller("ann").list_tools()) == 1


@live
async def test_a_caller_without_a_name_has_no_credentials(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        with pytest.raises(LoginRequired, match="has no name"):
            await host.call_tool("notes__whoami")
        assert setup.sent == b""


@live
async def test_calls_that_wait_at_once_go_on_after_one_login(issuer: Issuer) -> None:
    links: list[str] = []
    all_asked = asyncio.Event()

    async def on_input_request(request: HostInputRequest) -> object:
        assert isinstance(request.params, t.ElicitRequestParams)
        links.append(request.params.url or "")
        if len(links) == 3:
            all_asked.set()
        return True

    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream(), on_input_request=on_input_request)
        calls = [asyncio.ensure_future(who_is(host, "ann")) for _ in range(3)]
        await all_asked.wait()
        assert len(set(links)) == 3
        assert (await UserBrowser("ann").connect(links[1])).status == 200
        assert await asyncio.gather(*calls) == ["ann"] * 3
        assert issuer.count("authorization_code") == 1


@live
async def test_a_login_in_another_process_lets_a_waiting_call_go_on(
    issuer: Issuer, tmp_path: Path
) -> None:
    tasks: list[asyncio.Task[object]] = []
    async with upstream_setup(issuer) as setup:
        stores = [SqliteStore(tmp_path / "logins.db") for _ in range(2)]
        here, there = [await setup.upstream(store=store, keys=[KEY]) for store in stores]
        base = (await link_for(await setup.host(there), "bob")).rpartition("/")[0]

        def on_input_request(request: HostInputRequest) -> object:
            assert isinstance(request.params, t.ElicitRequestParams)
            secret = (request.params.url or "").rpartition("/")[2]
            visit = UserBrowser("ann").connect(f"{base}/{secret}")
            tasks.append(asyncio.get_running_loop().create_task(visit))
            return True

        host = await setup.host(here, on_input_request=on_input_request)
        assert await who_is(host, "ann") == "ann"
        assert len(await host.caller("ann").list_tools()) == 1
        await asyncio.gather(*tasks)
        await setup.stack.aclose()
        for store in stores:
            await store.close()


@live
async def test_a_user_who_says_no_at_the_issuer_ends_the_call_that_waits(issuer: Issuer) -> None:
    tasks: list[asyncio.Task[object]] = []

    def on_input_request(request: HostInputRequest) -> object:
        assert isinstance(request.params, t.ElicitRequestParams)
        visit = UserBrowser("ann").connect(request.params.url or "")
        tasks.append(asyncio.get_running_loop().create_task(visit))
        return True

    issuer.tell("deny")
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream(), on_input_request=on_input_request)
        with pytest.raises(LoginRequired, match=r"the login failed: .*access_denied"):
            await host.caller("ann").call_tool("notes__whoami")
        await asyncio.gather(*tasks)


@live
async def test_a_caller_cannot_fill_the_store_with_links(issuer: Issuer) -> None:
    store = MemoryStore()
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream(store=store, keys=[KEY]))
        link = await link_for(host, "ann")
        await store.count("ann", "connect links", MAX_LINKS - 1, 600.0)
        for _ in range(3):
            with pytest.raises(LoginRequired, match="too many links"):
                await host.caller("ann").call_tool("notes__whoami")
        assert len(await store.names("ann", "connect link ", "", 100)) == 1
        await link_for(host, "bob")  # others are not affected
        assert (await UserBrowser("ann").connect(link)).status == 200
        assert await who_is(host, "ann") == "ann"


@live
async def test_a_client_that_the_issuer_has_forgotten_is_registered_again(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        ann = UserBrowser("ann")
        page = await ann.confirm(await link_for(host, "ann"))
        back = (await ann.load(page, follow=False)).headers["location"]
        issuer.tell("forget")  # between the authorization response and the token request
        assert (await ann.load(back)).status == 400
        await connect(setup, host, "ann")
        issuer.tell("life", 0)
        await connect(setup, host, "bob")
        issuer.tell("forget")  # before a refresh: a call finds out
        issuer.tell("life", 3600)
        await connect(setup, host, "bob")
        assert await who_is(host, "bob") == "bob"
        assert len([one for one in issuer.seen() if one.startswith("POST /register")]) == 3


class AskingUpstream(UpstreamCredentials):
    """Credentials that say whether a caller would be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asks: list[bool] = []

    async def connect(
        self, request: RequestContext, required: LoginRequired, *, may_ask: bool = True
    ) -> None:
        self.asks.append(may_ask)
        if not may_ask:
            raise required


@pytest.mark.parametrize(("accepted", "asks"), [(False, [True, True, False]), (True, [False])])
@live
async def test_a_request_waits_for_a_login_and_a_step_up_unless_it_was_accepted(
    accepted: bool, asks: list[bool]
) -> None:
    required = LoginRequired("first a login, then more scopes, then more again")
    required.accepted = accepted

    def current() -> Generation:
        raise required

    upstream = AskingUpstream()
    params = t.CallToolRequestParams(name="notes__erase")
    handler = InputRequestHandler(None)
    request = LocalRequestContext(local_exchange("tools/call", params, handler.peer), handler)
    with pytest.raises(LoginRequired, match="then more again"):
        await HostRouter(current, 1.0, upstream).handle(request)
    assert upstream.asks == asks


@live
async def test_instructions_of_one_account_are_not_shown_to_another_caller(issuer: Issuer) -> None:
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream())
        await connect(setup, host, "ann")
        assert await who_is(host, "ann") == "ann"
        assert host.instructions == {}


@live
async def test_a_call_that_has_become_a_task_is_not_made_again_for_a_login(issuer: Issuer) -> None:
    printed: list[str] = []
    runs = asyncio.Event()

    async def print_all() -> str:
        printed.append("all")
        runs.set()
        await asyncio.Event().wait()
        return "printed"

    def on_input_request(_: HostInputRequest) -> object:
        raise AssertionError("it is not asked")

    async with upstream_setup(issuer, tool=print_all) as setup:
        upstream = await setup.upstream()
        host = await setup.host(upstream, on_input_request=on_input_request)
        link = await host.caller("ann").connect_url("notes")
        assert (await UserBrowser("ann").connect(link or "")).status == 200
        call = asyncio.ensure_future(host.caller("ann").call_tool("notes__print_all"))
        await runs.wait()
        issuer.tell("revoke")
        setup.protection.is_over = True
        with pytest.raises(LoginRequired, match="open http"):
            await call
        setup.protection.is_over = False
        assert printed == ["all"]


@live
async def test_a_refresh_that_outlives_its_lease_does_not_replace_a_newer_login(
    issuer: Issuer,
) -> None:
    store = MemoryStore()
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream(store=store, keys=[KEY]))
        first, second = [await link_for(host, "ann") for _ in range(2)]
        issuer.tell("life", 0)
        assert (await UserBrowser("ann").connect(first)).status == 200
        issuer.tell("life", 3600)
        issuer.tell("hold")
        call = asyncio.ensure_future(who_is(host, "ann"))
        while not (leases := await store.names("ann", "oauth lease", "", 10)):
            await asyncio.sleep(0)
        await store.delete("ann", leases[0])  # as if the process had been suspended
        issuer.tell("subject", "ann at work")
        assert (await UserBrowser("ann").connect(second)).status == 200
        issuer.tell("release")
        assert await call == "ann at work"
        assert await who_is(host, "ann") == "ann at work"


class ForgetfulStore(MemoryStore):
    """A store that does not respond when the first tokens are saved."""

    has_failed = False

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        if not self.has_failed and any(one.key.startswith("oauth tokens") for one in swaps):
            self.has_failed = True
            raise ConnectionLost("the store does not respond")
        return await super().swap_all(swaps)


@live
async def test_a_store_that_fails_between_the_tokens_and_their_record_costs_one_login(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    tasks: list[asyncio.Task[Page]] = []

    def on_input_request(request: HostInputRequest) -> object:
        assert isinstance(request.params, t.ElicitRequestParams)
        visit = UserBrowser("ann").connect(request.params.url or "")
        tasks.append(asyncio.get_running_loop().create_task(visit))
        return True

    async with upstream_setup(issuer) as setup:
        upstream = await setup.upstream(store=ForgetfulStore(), keys=[KEY])
        host = await setup.host(upstream, on_input_request=on_input_request)
        with pytest.raises(LoginRequired, match="the login failed: the store does not respond"):
            await host.caller("ann").call_tool("notes__whoami")
        assert await who_is(host, "ann") == "ann"
        pages = await asyncio.gather(*tasks)
        assert [one.status for one in pages] == [503, 200]
        assert "a login cannot continue" in caplog.text


@live
async def test_the_connect_pages_are_served_around_the_server_of_a_gateway(issuer: Issuer) -> None:
    upstream = UpstreamCredentials("https://gateway.example/connect", identify=who_is_there)
    site = HttpRunner(Server("gateway").asgi(around=upstream), port=0)
    await site.start()
    try:
        base = f"http://127.0.0.1:{site.port}"
        for user, status in (("", 401), ("ann", 403)):
            page = await UserBrowser(user).load(f"{base}/connect/made-up")
            assert page.status == status
            assert page.headers["cache-control"] == "no-store"
    finally:
        await site.stop(0.0)


@live
async def test_a_link_causes_one_registration_at_most(issuer: Issuer) -> None:
    tasks: list[asyncio.Task[Page]] = []

    async def confirm_often(link: str) -> Page:
        ann = UserBrowser("ann")
        form = {"form": (await ann.load(link)).form}
        first = await ann.load(link, form)
        assert [(await ann.load(link, form)).status for _ in range(3)] == [403] * 3
        return first

    def on_input_request(request: HostInputRequest) -> object:
        assert isinstance(request.params, t.ElicitRequestParams)
        visit = confirm_often(request.params.url or "")
        tasks.append(asyncio.get_running_loop().create_task(visit))
        return True

    issuer.tell("closed")
    async with upstream_setup(issuer) as setup:
        host = await setup.host(await setup.upstream(), on_input_request=on_input_request)
        with pytest.raises(LoginRequired, match=r"the login failed: .*no new clients"):
            await host.caller("ann").call_tool("notes__whoami")
        (page,) = await asyncio.gather(*tasks)
        assert page.status == 400
        assert len([one for one in issuer.seen() if one.startswith("POST /register")]) == 1
