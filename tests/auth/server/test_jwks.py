"""The keys of an issuer: fetched once, followed as they change, and never more often than allowed.

RS-15. Time is the test's own; the issuer is a live one on this machine.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.connects import connects, dns
from auth.denied_forms import urls
from auth.token_issuer import Issuer, SigningKey, issuing
from colonnade.auth.jose import InvalidToken, parse_jwk
from colonnade.auth.server.jwt import FRESH_S, RETRY_S, STALE_S, UNKNOWN_KEY_RETRY_S, Jwt
from colonnade.auth.server.verifier import Introspection, VerifiedToken, parse_if_jwt
from colonnade.auth.ssrf import Fetcher
from colonnade.auth.urls import issuer_metadata_urls
from colonnade.errors import ChannelError
from live import live
from scripted_http_server import pooled

US = "https://notes.example/mcp"


class JwksSetup:
    """An issuer, somebody who trusts it, and a clock."""

    def __init__(self, issuer: Issuer, fetcher: Fetcher) -> None:
        self.issuer = issuer
        self.trust = Jwt(issuer.url)
        self.fetcher = fetcher
        self.now = float(issuer.claims(US)["iat"])

    @property
    def fetches(self) -> int:
        return sum(path.endswith("/keys") for path in self.issuer.requested_paths)

    async def verify(
        self, key: SigningKey | None = None, iss: str = "", **header: Any
    ) -> VerifiedToken:
        claims = self.issuer.claims(US, iat=self.now, exp=self.now + 300)
        claims |= {"iss": iss} if iss else {}
        token = (key or self.issuer.signing_keys[0]).sign(claims, **header)
        return await self.trust.verify(token, parse_if_jwt(token), US, self.now, self.fetcher)


@asynccontextmanager
async def jwks_setup(path: str = "") -> AsyncGenerator[JwksSetup]:
    async with issuing(path) as issuer, pooled() as pool:
        yield JwksSetup(issuer, Fetcher(pool.send))


@live
async def test_keys_are_fetched_once_for_all_who_come_at_once() -> None:
    """RS-15."""
    async with jwks_setup() as b:
        await asyncio.gather(*(b.verify() for _ in range(50)))
        assert b.fetches == 1
        b.now += FRESH_S - 1
        await b.verify()
        assert b.fetches == 1
        b.now += 2
        await asyncio.gather(*(b.verify() for _ in range(50)))
        assert b.fetches == 2


@live
async def test_a_new_key_is_found_and_an_old_one_forgotten() -> None:
    """Rotation: the new key is beside the old one, then alone."""
    async with jwks_setup() as b:
        await b.verify()
        old, new = b.issuer.signing_keys[0], SigningKey(id="two")
        b.issuer.signing_keys.append(new)
        b.now += UNKNOWN_KEY_RETRY_S + 1
        await b.verify(new)
        await b.verify(old)
        assert b.fetches == 2
        b.issuer.signing_keys[:] = [new]
        b.now += FRESH_S + 1
        await b.verify(new)
        with pytest.raises(InvalidToken):
            await b.verify(old)


@live
async def test_tokens_with_made_up_keys_make_us_ask_only_so_often() -> None:
    """RS-15."""
    async with jwks_setup() as b:
        await b.verify()
        for minute in range(10):
            before = b.fetches
            for number in range(60):
                b.now += 1
                with pytest.raises(InvalidToken):
                    await b.verify(SigningKey(id=f"{minute}-{number}"))
            assert b.fetches - before <= 2
        await b.verify()


@live
async def test_keys_that_cannot_be_fetched_anew_are_used_for_a_while_and_then_no_more() -> None:
    """RS-15."""
    async with jwks_setup() as b:
        await b.verify()
        b.issuer.down = True
        b.now += FRESH_S + 1
        await b.verify()
        b.now += STALE_S - FRESH_S
        with pytest.raises(ChannelError):
            await b.verify()
        b.issuer.down = False
        b.now += RETRY_S + 1
        await b.verify()


@live
async def test_an_issuer_that_fails_is_not_asked_by_everybody() -> None:
    """RS-15."""
    async with jwks_setup() as b:
        b.issuer.down = True
        for _ in range(20):
            with pytest.raises(ChannelError):
                await b.verify()
        assert len(b.issuer.requested_paths) <= len(issuer_metadata_urls(b.issuer.url))
        b.issuer.down = False
        b.now += RETRY_S + 1
        await b.verify()


@live
async def test_keys_that_are_not_for_us_are_passed_over() -> None:
    """RS-15."""
    async with jwks_setup() as b:
        key = b.issuer.signing_keys[0]
        small = SigningKey("RS256", "small", 1024).jwk
        b.issuer.extra_keys = [
            None,
            "x",
            {},
            {"kty": "oct", "k": "AAAA", "kid": "one"},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "one"},
            {"kty": "RSA", "n": "A" * 9000, "e": "AQAB", "kid": "one"},
            {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "one"},
            {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "one"},
            {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA", "kid": "one"},
            {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "one"},
            {**small, "kid": "one"},
            {**key.jwk, "use": "enc"},
            {**key.jwk, "key_ops": ["sign"]},
            {**key.jwk, "alg": "ES384"},
            {**key.jwk, "d": "AAAA"},
            {**key.jwk, "kid": 7},
        ]
        assert [parse_jwk(one) for one in b.issuer.extra_keys[:13]] == [None] * 13
        await b.verify()
        b.issuer.signing_keys.clear()
        b.now += FRESH_S + 1
        with pytest.raises(InvalidToken):
            await b.verify(key)


@live
async def test_the_right_key_is_found_among_many_without_a_name() -> None:
    async with jwks_setup() as b:
        pens = [SigningKey(id=str(number)) for number in range(4)]
        b.issuer.signing_keys[:] = pens
        await b.verify(pens[3], kid=None)
        with pytest.raises(InvalidToken):
            await b.verify(SigningKey(), kid=None)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@live
async def test_keys_are_found_by_each_document_in_its_place(place: int) -> None:
    async with jwks_setup("/tenant") as b:
        b.issuer.place = issuer_metadata_urls(b.issuer.url)[place].partition(
            str(b.issuer.server.port)
        )[2]
        await b.verify()
        asked = [path for path in b.issuer.requested_paths if ".well-known" in path]
        wanted = issuer_metadata_urls(b.issuer.url)[: place + 1]
        assert asked == [url.partition(str(b.issuer.server.port))[2] for url in wanted]


@live
async def test_a_document_that_names_another_issuer_is_not_used() -> None:
    async with jwks_setup() as b:
        b.issuer.metadata["issuer"] = f"{b.issuer.url}//"
        with pytest.raises(ChannelError):
            await b.verify()
        assert b.fetches == 0


@live
async def test_a_document_and_a_token_may_have_one_slash_more_and_name_the_same_person() -> None:
    """D42."""
    async with jwks_setup() as b:
        plain = await b.verify()
        b.issuer.metadata["issuer"] = f"{b.issuer.url}/"
        b.trust = Jwt(b.issuer.url)  # which has not read the metadata yet
        assert (await b.verify(iss=f"{b.issuer.url}/")).principal == plain.principal
        assert b.fetches == 2
        with pytest.raises(InvalidToken, match="another issuer"):
            await b.verify(iss=f"{b.issuer.url}//")


@live
async def test_no_document_of_an_issuer_leads_to_a_denied_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SF-01: where the keys are is the issuer's word, and not the operator's. The same for the
    endpoint that is asked about tokens."""
    dns(monkeypatch, lambda name: ["10.0.0.1"])
    forms = [url for url in dict.fromkeys(urls(1)) if "127." not in url and "::1" not in url][::7]
    assert len(forms) > 250
    async with jwks_setup() as b:
        for url in forms:
            b.issuer.metadata["jwks_uri"] = b.issuer.metadata["introspection_endpoint"] = url
            b.trust = Jwt(b.issuer.url)
            with connects() as seen:
                with pytest.raises(ChannelError):
                    await b.verify()
                asked = Introspection(b.issuer.url, "me", "secret")
                with pytest.raises(ChannelError):
                    await asked.verify("token", None, US, b.now, b.fetcher)
            # An issuer on this machine may name this machine: `[::0.0.0.1]` is one of the forms.
            assert set(seen) <= {"127.0.0.1", "::1"}, url
            assert b.fetches == 0
