"""Logins of the callers of a host: each connects its own account, and no other can for it."""

import asyncio
import logging
import secrets
from collections.abc import Generator
from pathlib import Path

import pytest

from auth.issuer import Issuer, issuing
from auth.upstream_setup import LINK, UpstreamSetup, UserBrowser, upstream_setup
from colonnade import Host, HostInputRequest, LoginRequired
from colonnade.auth.client.upstream import UpstreamClient
from colonnade.errors import Declined
from colonnade.protocol import types as t
from colonnade.store.sqlite import SqliteStore
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
