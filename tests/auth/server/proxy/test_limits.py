"""What strangers can make the proxy store, fetch or wait for is bounded, and shared fairly."""

import asyncio
import json
import secrets
from typing import Any

import pytest

from auth.documents import DocumentHost
from auth.proxied import ORIGIN, REDIRECT, HttpReply, ProxySetup, proxied, send
from auth.upstream import UpstreamReplica, query_of
from colonnade import Protection
from colonnade.auth.client.steps import FlowContext
from colonnade.auth.client.tokens import dpop_proof
from colonnade.auth.jose import generate_key
from colonnade.auth.server.client_metadata import MAX_URI_CHARACTERS, MAX_URIS_CHARACTERS
from colonnade.auth.server.proxy import registration
from colonnade.auth.server.proxy.authorize import MAX_STATE_CHARACTERS
from colonnade.auth.server.proxy.grants import RETRY_S
from colonnade.auth.server.proxy.proxy import OAuthProxy
from colonnade.errors import ChannelError
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store.limits import OVERHEAD_BYTES, StoreLimits
from colonnade.store.memory import MemoryStore
from live import live


async def register_from(setup: ProxySetup, address: str, **headers: str) -> HttpReply:
    """A registration by a client at an address."""
    body = json.dumps({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}).encode()
    kind = {"content-type": "application/json"}
    kind |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await send(setup.app, "POST", f"{ORIGIN}/oauth/register", kind, body, client=address)


class MarkedStore(MemoryStore):
    """A store that counts what is marked as used."""

    marked = 0

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        self.marked += 1
        return await super().use_once(principal, mark, ttl_s)


class MeetingStore(MemoryStore):
    """A store in which so many readers of each counter wait for each other."""

    meeting: asyncio.Barrier | None = None

    async def get(self, principal: str, key: str) -> bytes | None:
        found = await super().get(principal, key)
        if self.meeting is not None and " count " in key:
            await self.meeting.wait()
        return found


@live
async def test_registrations_at_the_same_time_use_up_no_more_than_a_share() -> None:
    store = MeetingStore(is_shared=True)
    async with proxied(store=store, max_registrations_per_hour=20) as setup:
        store.meeting = asyncio.Barrier(40)
        replies = await asyncio.gather(*(register_from(setup, "8.8.8.8") for _ in range(40)))
        assert [one.status for one in replies].count(201) == 3
        store.meeting = None
        assert (await register_from(setup, "8.8.4.4")).status == 201
        assert (await register_from(setup, "1.1.1.1")).status == 201


@live
async def test_one_stranger_does_not_use_up_the_registrations_of_all() -> None:
    async with proxied(max_registrations_per_hour=20) as setup:
        # One subscriber has one IPv4 address, or a network of IPv6 addresses.
        for one, same in (("8.8.8.8", "::ffff:8.8.8.8"), ("2a00:1450::1", "2a00:1450::ffff:2")):
            statuses = [(await register_from(setup, at)).status for at in (one, same, one, same)]
            assert statuses == [201, 201, 201, 503]
        assert (await register_from(setup, "1.1.1.1")).status == 201
        # Of a proxy server the whole is counted.
        behind = [(await register_from(setup, "10.0.0.1")).status for _ in range(20)]
        assert behind == [201] * 13 + [503] * 7


@pytest.mark.parametrize(
    "place", ["2a00:1450:7:{:x}00::1", "2a00:1450:{:x}::1", "2a00:1457:{:x}::1", "8.8.{}.8"]
)
@live
async def test_no_network_uses_up_the_registrations_of_all(place: str) -> None:
    async with proxied() as setup:
        assert setup.proxy.settings.max_registrations_per_hour == 500
        strangers = [await register_from(setup, place.format(n % 256)) for n in range(500)]
        assert [one.status for one in strangers].count(201) <= 201
        for other in ("1.1.1.1", "2606:4700::1", "9.9.9.9"):
            assert (await register_from(setup, other)).status == 201


@live
async def test_the_clients_of_a_trusted_proxy_server_have_shares_of_their_own() -> None:
    options = {"trusted_proxies": ["10.0.0.0/24"]}
    async with proxied(options=options, max_registrations_per_hour=20) as setup:

        async def from_client(address: str, **more: str) -> int:
            forwarded = {"x_forwarded_for": address, **more}
            return (await register_from(setup, "10.0.0.1", **forwarded)).status

        assert [await from_client("8.8.8.8") for _ in range(5)] == [201] * 3 + [503] * 2
        # What a client writes in front of its own address gives it no other share.
        assert await from_client("9.9.9.9, 8.8.8.8") == 503
        assert await from_client("1.1.1.1") == 201
        # A client of an internal network is one, too, since it is known to be no proxy server.
        assert [await from_client("192.168.0.7") for _ in range(5)] == [201] * 3 + [503] * 2
        # Those that the proxy server does not name share what one client may do.
        unnamed = [await from_client("8.8.8.8", forwarded=f"for=1.2.3.{n}") for n in range(5)]
        assert unnamed == [201] * 3 + [503] * 2
        # And from anywhere else the header means nothing.
        direct = [
            (await register_from(setup, "4.4.4.4", x_forwarded_for=f"5.5.5.{n}")).status
            for n in range(5)
        ]
        assert direct == [201] * 3 + [503] * 2
        assert await from_client("2606:4700::1") == 201


@live
async def test_a_refused_registration_leaves_no_counter_and_uses_up_no_share() -> None:
    async with proxied(max_registrations_per_hour=20) as setup:
        for n in range(9):
            assert (await register_from(setup, f"8.8.{n}.8")).status == 201
        before = await setup.store.names(SERVER_PRINCIPAL, "", "", 1000)
        for n in range(50):
            assert (await register_from(setup, f"8.8.{100 + n}.8")).status == 503
        assert await setup.store.names(SERVER_PRINCIPAL, "", "", 1000) == before
        assert (await register_from(setup, "1.1.1.1")).status == 201


@live
async def test_the_log_says_that_a_proxy_server_hides_who_registers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxied(max_registrations_per_hour=3) as setup:
        for _ in range(6):
            await register_from(setup, "10.0.0.1", x_forwarded_for="8.8.8.8")
    (record,) = [one for one in caplog.records if "no more registrations" in one.message]
    assert "name it in trusted_proxies" in record.message


@live
async def test_strangers_do_not_make_the_server_fetch_documents_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "MAX_FETCHES_PER_HOST", 5)
    monkeypatch.setattr(registration, "MAX_FETCHES", 8)
    async with proxied() as setup:
        fetched: list[str] = []

        class NoDocument:
            async def fetch(self, method: str, url: str, *rest: Any, **more: Any) -> Any:
                fetched.append(url)
                raise registration.CannotFetch("it cannot be fetched", "")

            def with_access(self, **more: Any) -> "NoDocument":
                return self

        guard: Any = setup.app._guard
        guard._fetcher = NoDocument
        for host in ("victim.example", "VICTIM.example", "other.example", "third.example"):
            for number in range(4):
                client = {"client_id": f"https://{host}/{number}", "redirect_uris": [REDIRECT]}
                reply = await setup.browser().get(setup.authorization_url(client))
                assert reply.status == 503
        hosts = [url.split("/")[2].lower() for url in fetched]
        assert hosts.count("victim.example") == 5
        assert len(hosts) <= 8
        setup.clock.forward(registration.FETCHES_S)
        client = {"client_id": "https://victim.example/x", "redirect_uris": [REDIRECT]}
        await setup.browser().get(setup.authorization_url(client))
        assert fetched[-1] == "https://victim.example/x"


@live
async def test_requests_for_bad_documents_do_not_keep_the_users_of_a_good_one_from_a_login() -> (
    None
):
    async with proxied() as setup:
        host = DocumentHost()
        client, url = host.serve(setup), host.document["client_id"]
        host.headers["cache-control"] = "no-store"  # so that it is fetched for each request
        assert (await setup.browser().get(setup.authorization_url(client))).form
        for number in range(registration.MAX_FETCHES_PER_HOST + 20):
            bad = {**client, "client_id": f"{url}/{number}"}
            await setup.browser().get(setup.authorization_url(bad))
        assert len(host.fetched) == registration.MAX_FETCHES_PER_HOST
        assert (await setup.browser().get(setup.authorization_url(client))).form
        assert host.fetched[-1] == url


@live
async def test_a_bad_document_is_not_fetched_for_every_request_that_names_it() -> None:
    async with proxied() as setup:
        host = DocumentHost(redirect_uris=[])
        client = host.serve(setup)
        for _ in range(registration.MAX_FETCHES_PER_URL + 5):
            await setup.browser().get(setup.authorization_url(client))
        assert len(host.fetched) == registration.MAX_FETCHES_PER_URL
        other = DocumentHost(client_id=f"{client['client_id']}/2")
        other.fetched = host.fetched
        found = other.serve(setup)  # the host has more of its own
        reply = await setup.browser().get(
            setup.authorization_url({**found, "client_id": f"{client['client_id']}/2"})
        )
        assert reply.form


@live
async def test_one_stranger_does_not_use_up_the_fetches_from_a_host() -> None:
    async with proxied() as setup:
        host = DocumentHost()
        client = host.serve(setup)
        for number in range(registration.MAX_FETCHES_PER_HOST):
            bad = {**client, "client_id": f"{client['client_id']}/{number}"}
            await send(setup.app, "GET", setup.authorization_url(bad), client="8.8.8.8")
        assert len(host.fetched) == registration.MAX_FETCHES_PER_HOST // 10 + 1
        assert (await setup.browser().get(setup.authorization_url(client))).form


def test_all_that_strangers_can_store_leaves_room_in_the_smallest_store() -> None:
    proxy = OAuthProxy(UpstreamReplica(f"{ORIGIN}/oauth/callback").provider())
    Protection(f"{ORIGIN}/mcp", proxy)
    uri, record = MAX_URI_CHARACTERS, OVERHEAD_BYTES + 1024
    clients = 24 * (proxy.settings.max_registrations_per_hour + registration.MAX_DOCUMENTS_PER_HOUR)
    logins = 2 * proxy.settings.max_logins_per_10_min  # two windows of ten minutes overlap
    stored = clients * (MAX_URIS_CHARACTERS + record)
    stored += logins * (2 * uri + MAX_STATE_CHARACTERS + record)
    assert stored < StoreLimits().total_bytes


@live
async def test_a_decision_beyond_the_limit_leaves_nothing_in_the_store() -> None:
    store = MarkedStore(is_shared=True)
    async with proxied(store=store, max_logins_per_10_min=2) as setup:
        client, browser = await setup.register(), setup.browser()
        for decision in ("deny", "approve"):
            await browser.decide(await browser.get(setup.authorization_url(client)), decision)
        marked = store.marked
        for decision in ("deny", "approve"):
            page = await browser.get(setup.authorization_url(client))
            reply = await browser.decide(page, decision)
            assert query_of(reply.next_url)["error"] == "temporarily_unavailable"
        assert store.marked == marked == 2


@live
async def test_a_proof_for_a_code_or_token_that_is_made_up_leaves_nothing_in_the_store() -> None:
    store = MarkedStore(is_shared=True)
    async with proxied(store=store) as setup:
        flow = FlowContext(setup.clock, lambda: secrets.token_urlsafe(32))
        client = {"client_id": "https://anyone.example/client", "redirect_uris": [REDIRECT]}
        key = generate_key()
        for _ in range(3):
            proof = dpop_proof(key, flow, "POST", f"{ORIGIN}/oauth/token")
            assert (await setup.exchange(client, "made-up", proof=proof)).status == 400
            assert (await setup.refresh(client, "made-up", proof=proof)).status == 400
        assert store.marked == 0


@live
async def test_a_provider_that_hangs_does_not_make_every_request_wait_for_it() -> None:
    async with proxied(life_s=None) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        asked: list[float] = []

        async def confirm(*given: Any) -> None:
            asked.append(setup.clock.now)
            raise ChannelError("it took longer than 10 s")

        replica: Any = setup.replica
        replica.confirm = confirm
        setup.clock.forward(3700)
        tokens = (await setup.refresh(client, tokens["refresh_token"])).json
        for _ in range(10):
            setup.clock.forward(setup.proxy.cache_ttl_s)
            await setup.whoami(tokens["access_token"])
        assert len(asked) <= 2 + 10 * setup.proxy.cache_ttl_s / RETRY_S
