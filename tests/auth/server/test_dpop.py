"""Tokens that are bound to a key (DPoP, RFC 9449), against a live server.

A stolen token is worth nothing without its key, and a stolen proof nothing for another request.
"""

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from auth.challenge import challenge
from auth.protected import RESOURCE, ProtectedSetup, notes, protected
from auth.token_issuer import SigningKey, b64
from colonnade.auth.server.dpop import MAX_PROOF_AGE_S, NONCE_TTL_S, DpopProof, InvalidProof
from colonnade.errors import ConnectionLost, LocalProtocolError, Refused, TimedOut
from colonnade.ports import Store
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from http_client import Response
from live import Records, live
from store.store_fixture import Clock

KEY = SigningKey(id="")


def proof(
    token: str, key: SigningKey = KEY, header: dict[str, Any] | None = None, **more: Any
) -> str:
    """A good proof, but for what is said; what is None is left out."""
    said = {
        "jti": str(uuid4()),
        "htm": "POST",
        "htu": RESOURCE,
        "iat": int(time.time()),
        "ath": b64(hashlib.sha256(token.encode()).digest()),
        **more,
    }
    claims = {name: value for name, value in said.items() if value is not None}
    return key.sign(claims, **{"typ": "dpop+jwt", "kid": None, "jwk": key.jwk, **(header or {})})


def rewritten(token: str, name: str, text: bytes) -> str:
    """A good proof, with this text for the value of a claim that is a number."""
    claims = base64.urlsafe_b64decode(proof(token).split(".")[1] + "==")
    said = re.sub(rb'"%s": [0-9]+' % name.encode(), b'"%s": %s' % (name.encode(), text), claims)
    assert said != claims
    return KEY.sign(said, typ="dpop+jwt", kid=None, jwk=KEY.jwk)


def bound(setup: ProtectedSetup, key: SigningKey = KEY, **more: Any) -> str:
    return setup.token(cnf={"jkt": key.thumbprint}, **more)


async def sent(
    setup: ProtectedSetup, token: str, proof: str | None, scheme: str = "DPoP"
) -> Response:
    given = f"{scheme} {token}"
    return await setup.caller().modern("tools/list", authorization=given, dpop=proof)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256", "PS256"])
@live
async def test_a_bound_token_with_its_proof_is_believed(algorithm: str) -> None:
    async with protected() as setup:
        key = SigningKey(algorithm, id="")
        token = bound(setup, key)
        assert (await sent(setup, token, proof(token, key))).status == 200
        assert (await sent(setup, token, proof(token, key), "dpop")).status == 200


WRONG: dict[str, Callable[[str], str | None]] = {
    "none": lambda token: None,
    "rubbish": lambda token: "rubbish",
    "two": lambda token: f"{proof(token)}, {proof(token)}",
    "of another key": lambda token: proof(token, SigningKey(id="")),
    "that shows another key": lambda token: proof(token, SigningKey(id=""), {"jwk": KEY.jwk}),
    "that shows no key": lambda token: proof(token, header={"jwk": None}),
    "that shows a private key": lambda token: proof(token, header={"jwk": {**KEY.jwk, "d": "AA"}}),
    "that is no proof": lambda token: proof(token, header={"typ": "at+jwt"}),
    "of another method": lambda token: proof(token, htm="GET"),
    "of another method's spelling": lambda token: proof(token, htm="post"),
    "of another place": lambda token: proof(token, htu="https://notes.example/other"),
    "of another server": lambda token: proof(token, htu="https://evil.example/mcp"),
    "of another port": lambda token: proof(token, htu="https://notes.example:444/mcp"),
    "without encryption": lambda token: proof(token, htu="http://notes.example/mcp"),
    "of no place": lambda token: proof(token, htu=None),
    "of another token": lambda token: proof("other"),
    "of no token": lambda token: proof(token, ath=None),
    "of yesterday": lambda token: proof(token, iat=time.time() - MAX_PROOF_AGE_S - 60),
    "of tomorrow": lambda token: proof(token, iat=time.time() + MAX_PROOF_AGE_S + 3600),
    "of no time": lambda token: proof(token, iat=None),
    "of a time that is true": lambda token: proof(token, iat=True),
    "of a time beyond all numbers": lambda token: proof(token, iat=10**400),
    "of a time before all numbers": lambda token: proof(token, iat=-(10**400)),
    "of an infinite time": lambda token: rewritten(token, "iat", b"1e999"),
    "of a time that is an object": lambda token: proof(token, iat={}),
    "without a name": lambda token: proof(token, jti=None),
    "with an endless name": lambda token: proof(token, jti="x" * 5000),
    "with a name that is no Unicode": lambda token: proof(token, jti="\ud800"),
    "with a nonce that is no Unicode": lambda token: proof(token, nonce="\udfff"),
    "for a place that is no Unicode": lambda token: proof(token, htu=f"{RESOURCE}\ud800"),
    "with a name that is a number": lambda token: proof(token, jti=7),
    "unsigned": lambda token: ".".join(proof(token).split(".")[:2]) + ".AAAA",
    "unsigned and saying so": lambda token: proof(token, header={"alg": "none"}),
    "signed with a secret": lambda token: proof(token, header={"alg": "HS256"}),
    "critical": lambda token: proof(token, header={"crit": ["x"]}),
}


@pytest.mark.parametrize("name", WRONG)
@live
async def test_a_bound_token_with_a_wrong_proof_is_refused(name: str) -> None:
    async with protected() as setup:
        token = bound(setup)
        answer = await sent(setup, token, WRONG[name](token))
        assert answer.status == 401
        scheme, said = challenge(answer)
        assert (scheme, said["error"]) == ("DPoP", "invalid_dpop_proof")
        assert "ES256" in said["algs"].split()
        assert (await sent(setup, token, proof(token))).status == 200


@pytest.mark.parametrize(
    "url", ["HTTPS://notes.example/mcp", "https://NOTES.example:443/mcp", f"{RESOURCE}?a=b#c"]
)
@live
async def test_the_same_place_may_be_spelled_otherwise(url: str) -> None:
    async with protected() as setup:
        token = bound(setup)
        assert (await sent(setup, token, proof(token, htu=url))).status == 200


@live
async def test_a_bound_token_is_no_bearer_token_and_a_free_one_needs_no_proof() -> None:
    """A stolen token must not be worth more when its proof is left out."""
    async with protected() as setup:
        token, free = bound(setup), setup.token()
        for given in (None, proof(token)):
            answer = await sent(setup, token, given, "Bearer")
            assert answer.status == 401
            assert challenge(answer)[1]["error"] == "invalid_token"
        assert (await sent(setup, free, None, "Bearer")).status == 200
        answer = await sent(setup, free, proof(free), "DPoP")
        assert answer.status == 401
        assert challenge(answer)[1]["error"] == "invalid_token"


@live
async def test_a_proof_is_good_for_one_request() -> None:
    async with protected() as setup:
        token = bound(setup)
        once = proof(token)
        assert (await sent(setup, token, once)).status == 200
        answer = await sent(setup, token, once)
        assert answer.status == 401
        assert challenge(answer)[1]["error_description"] == "the proof was used before"
        again = proof(token, jti="a name")
        assert (await sent(setup, token, again)).status == 200
        other = SigningKey(id="")
        theirs = bound(setup, other)
        # Names are each key's own: nobody uses up somebody else's.
        assert (await sent(setup, theirs, proof(theirs, other, jti="a name"))).status == 200


@live
async def test_where_a_proof_is_required_a_free_token_is_refused() -> None:
    async with protected(dpop="required") as setup:
        answer = await setup.caller().modern("tools/list")
        assert challenge(answer)[0] == "DPoP"
        assert (await sent(setup, setup.token(), None, "Bearer")).status == 401
        token = bound(setup)
        assert (await sent(setup, token, proof(token))).status == 200
        where = "/.well-known/oauth-protected-resource"
        document = (await setup.caller().request("GET", path=where)).json
        assert document["dpop_bound_access_tokens_required"] is True


@live
async def test_with_nonces_a_proof_needs_one_of_ours_that_is_not_old() -> None:
    now = [time.time()]
    async with protected(nonces=True, clock=lambda: now[0]) as setup:
        token = bound(setup)
        answer = await sent(setup, token, proof(token))
        assert answer.status == 401
        assert challenge(answer)[1]["error"] == "use_dpop_nonce"
        nonce = answer.headers["dpop-nonce"]
        assert (await sent(setup, token, proof(token, nonce=nonce))).status == 200
        assert (await sent(setup, token, proof(token, nonce=nonce))).status == 200
        for wrong in ("made up", nonce[:-2], nonce + "AA"):
            answer = await sent(setup, token, proof(token, nonce=wrong))
            assert challenge(answer)[1]["error"] == "use_dpop_nonce"
        # What our ring sealed for another purpose is no nonce.
        sealed = setup.server._keys.seal(b'{"answers": {}}')
        answer = await sent(setup, token, proof(token, nonce=sealed))
        assert challenge(answer)[1]["error"] == "use_dpop_nonce"
        now[0] += NONCE_TTL_S + 1
        token = bound(setup, exp=now[0] + 60)
        answer = await sent(setup, token, proof(token, nonce=nonce, iat=now[0]))
        assert challenge(answer)[1]["error"] == "use_dpop_nonce"


@live
async def test_a_proof_for_a_session_says_each_method(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected() as setup:
        token = bound(setup)
        caller = setup.caller()
        given = f"DPoP {token}"
        body = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":'
        body += b'"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
        opened = await caller.request("POST", body, authorization=given, dpop=proof(token))
        caller.session, caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        bad = await caller.request("DELETE", authorization=given, dpop=proof(token))
        assert bad.status == 401
        good = proof(token, htm="DELETE")
        assert (await caller.request("DELETE", authorization=given, dpop=good)).status == 200


# ---------------------------------------------------------------- the memory of used proofs


async def used(proof: DpopProof, store: Store, now: float) -> bool:
    try:
        await proof.use("ann", store, now)
    except InvalidProof:
        return False
    return True


def a_proof(now: float, **more: Any) -> DpopProof:
    said: dict[str, Any] = {"iat": now, **more}
    return DpopProof(proof("token", **said), "POST", RESOURCE, "token", now)


@live
async def test_a_client_with_thousands_of_requests_a_second_is_not_locked_out() -> None:
    """2,000 requests a second for as long as a proof is remembered, and each of them only once."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    one = a_proof(clock.now)
    for second in range(75):
        clock.now += 1.0
        one.at = clock.now
        for number in range(2000):
            one.id = f"{second} {number}"
            await one.use("ann", store, clock.now)
    assert not await used(one, store, clock.now)
    await store.put("ann", "k", b"v", None)  # and nothing of the caller's own room is taken
    assert store._usage["ann"].entries == 1


@pytest.mark.parametrize("early_s", [-MAX_PROOF_AGE_S, 0.0, MAX_PROOF_AGE_S])
@live
async def test_a_proof_is_remembered_for_as_long_as_it_could_be_accepted(early_s: float) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    once = a_proof(clock.now, iat=clock.now + early_s)
    assert await used(once, store, clock.now)
    until = clock.now + early_s + MAX_PROOF_AGE_S
    while clock.now <= until:
        assert not await used(once, store, clock.now)
        clock.now += 1.0


@live
async def test_a_proof_is_used_once_by_all_processes_that_share_a_store(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "store.db") for _ in range(2)]
    try:
        for number in range(20):
            now = time.time()
            once = a_proof(now, jti=f"{number}")
            uses = [used(once, store, now) for store in stores for _ in range(5)]
            assert (await asyncio.gather(*uses)).count(True) == 1
    finally:
        for store in stores:
            await store.close()


@live
async def test_more_proofs_than_may_be_remembered_are_refused_with_503() -> None:
    store = MemoryStore(limits=StoreLimits(principal_marks=3))
    async with protected(server=notes(store=store)) as setup:
        token, other = bound(setup), bound(setup, sub="bob")
        statuses = [(await sent(setup, token, proof(token))).status for _ in range(4)]
        assert statuses == [200, 200, 200, 503]
        assert (await sent(setup, other, proof(other))).status == 200


class BrokenStore(MemoryStore):
    """A store that fails in one way whenever it is asked."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self._problem = problem

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        raise self._problem


@pytest.mark.parametrize(
    "problem",
    [
        Refused("the store is full"),
        ConnectionLost("the store failed: disk I/O error"),
        TimedOut("another process held the store"),
        LocalProtocolError("this store is closed"),
        OSError("No space left on device"),
        RuntimeError("a password of the store"),
    ],
    ids=lambda problem: type(problem).__name__,
)
@live
async def test_a_store_that_fails_is_503_and_not_a_traceback(problem: Exception) -> None:
    async with protected(server=notes(store=BrokenStore(problem))) as setup:
        token = bound(setup)
        given = proof(token)
        with Records("colonnade.auth", "colonnade.transport") as records:
            answer = await sent(setup, token, given)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert b"Traceback" not in answer.body
        (line,) = records.lines
        assert type(problem).__name__ in line or str(problem) in line
        for secret in (token, given, "password", "Traceback"):
            assert secret not in line
            assert secret.encode() not in answer.body
        assert await setup.status(setup.token()) == 200  # which needs no store
