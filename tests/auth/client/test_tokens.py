"""Which tokens are believed: every way in which one is not quite right, and the ones that are.

RS-03, RS-05, RS-14, RS-16, and the incidents behind them: FastMCP #3524 (a refresh token as a
bearer), #3430 (HS256 with a public key), CVE-2026-32597 (unknown `crit`), python-sdk's audience
that nobody looked at. Each is sent over HTTP to a live server.
"""

import asyncio
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from auth.challenge import challenge
from auth.protected import READ, RESOURCE, ProtectedSetup, protected
from auth.token_issuer import Issuer, SigningKey, b64, issuing, packed
from colonnade import Introspection, Jwt, Protection
from colonnade.auth.jose import MAX_TOKEN_CHARACTERS, InvalidToken, parse_jwt
from colonnade.auth.seal import KeyRing
from colonnade.auth.server.protection import ProtectedRequest, ProtectionContext
from colonnade.auth.server.verifier import MAX_SKEW_S, SKEW_S
from colonnade.auth.ssrf import Fetcher
from colonnade.protocol.http.security import HttpError
from colonnade.store.memory import MemoryStore
from http_client import Response
from live import Records, live
from scripted_http_server import pooled

NOW = int(time.time())


async def sent(setup: ProtectedSetup, token: str) -> Response:
    return await setup.caller(token).modern("tools/list")


# ---------------------------------------------------------------- what is good


@pytest.mark.spec("R0209", "R0321")
@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
@live
async def test_a_token_signed_by_its_issuer_is_believed(algorithm: str) -> None:
    async with protected() as setup:
        setup.issuer.signing_keys[:] = [SigningKey(algorithm)]
        caller = setup.caller(setup.token())
        answer = await caller.modern("tools/call", {"name": "whoami"})
        assert answer.text == f"{setup.issuer.url}#ann"


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS384", "PS512", "ES384", "ES512"])
@live
async def test_other_algorithms_are_believed_where_they_were_asked_for(algorithm: str) -> None:
    def trust(issuer: Issuer) -> Jwt:
        return Jwt(issuer.url, algorithms=[algorithm])

    async with protected(trust=trust) as setup:
        setup.issuer.signing_keys[:] = [SigningKey(algorithm)]
        assert await setup.status(setup.token()) == 200
    async with protected() as setup:
        setup.issuer.signing_keys[:] = [SigningKey(algorithm)]
        assert await setup.status(setup.token()) == 401


@pytest.mark.parametrize(
    "more",
    [
        {"header": {"typ": "JWT"}},
        {"header": {"typ": None}},
        {"header": {"typ": "application/at+jwt"}},
        {"header": {"kid": None}},
        {"aud": ["https://other.example", RESOURCE]},
        {"aud": "HTTPS://Notes.Example/mcp"},
        {"typ": "Bearer", "nonce": "x"},
        {"token_use": "access"},
        {"sub": None, "client_id": "a program"},
        {"scope": None, "scp": ["notes:read"]},
        {"scope": None, "scp": "notes:read other"},
        {"nbf": NOW - 5},
        {"exp": NOW + 86400.5},
    ],
    ids=lambda more: " ".join(more),
)
@pytest.mark.spec("R0316")
@live
async def test_what_issuers_write_differently_is_read(more: dict[str, Any]) -> None:
    async with protected(scopes=[READ]) as setup:
        assert await setup.status(setup.token(**more)) == 200


@live
async def test_clocks_may_differ_by_so_much_and_no_more() -> None:
    """RS-03."""
    assert SKEW_S <= MAX_SKEW_S <= 60
    now = time.time()
    async with protected(clock=lambda: now) as setup:
        assert await setup.status(setup.token(exp=now - SKEW_S + 1)) == 200
        assert await setup.status(setup.token(exp=now - SKEW_S - 1)) == 401
        assert await setup.status(setup.token(nbf=now + SKEW_S - 1)) == 200
        assert await setup.status(setup.token(nbf=now + SKEW_S + 1)) == 401


# ---------------------------------------------------------------- what is not


CLAIMS: dict[str, dict[str, Any]] = {
    # RS-03
    "expired": {"exp": NOW - 100},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "tomorrow"},
    "an end that is true": {"exp": True},
    "an end beyond all": {"exp": 10**400},
    "an infinite end": {"exp": 1e300},
    "not yet": {"nbf": NOW + 86400},
    "made tomorrow": {"iat": NOW + 86400},
    "another issuer": {"iss": "https://other.example"},
    "no issuer": {"iss": None},
    "two issuers": {"iss": ["x"]},
    "the issuer with two slashes": {"iss": "slash"},
    # RS-05
    "another audience": {"aud": "https://other.example/mcp"},
    "no audience": {"aud": None},
    "an empty audience": {"aud": ""},
    "no audiences": {"aud": []},
    "audiences without us": {"aud": ["https://a.example", "https://b.example"]},
    "our name with more behind": {"aud": RESOURCE + ".evil.example"},
    "our name with a path behind": {"aud": RESOURCE + "/other"},
    "the beginning of our name": {"aud": RESOURCE[:-1]},
    "our origin alone": {"aud": "https://notes.example"},
    "our name in another scheme": {"aud": RESOURCE.replace("https", "http")},
    "our name on another port": {"aud": "https://notes.example:444/mcp"},
    "our path in capitals": {"aud": "https://notes.example/MCP"},
    "an audience that is an object": {"aud": {RESOURCE: True}},
    "an audience inside a list": {"aud": [[RESOURCE]]},
    "an audience in a text of several": {"aud": f"https://a.example {RESOURCE}"},
    # RS-14: other tokens of the same issuer
    "an ID token by its nonce": {"nonce": "x"},
    "an ID token by its hash": {"at_hash": "x"},
    "an ID token by its kind": {"typ": "ID"},
    "a refresh token": {"typ": "Refresh"},
    "a refresh token, said otherwise": {"token_use": "refresh"},
    "a logout token": {"events": {}},
    "nobody's": {"sub": None},
    "nobody's, said with nothing": {"sub": ""},
    "a name that is no text": {"sub": 7},
    "a name with a line in it": {"sub": "ann\nbob"},
    "a name without end": {"sub": "a" * 256},
    # A subject that cannot be used must never become the client: its users would be one.
    "a subject that is a number, with a client": {"sub": 7, "client_id": "app"},
    "a subject that is true, with a client": {"sub": True, "client_id": "app"},
    "an empty subject, with a client": {"sub": "", "client_id": "app"},
    "a subject that is an object, with a client": {"sub": {"id": "ann"}, "client_id": "app"},
    "a subject that is a list, with a client": {"sub": ["ann"], "client_id": "app"},
    "a subject that is too long, with a client": {"sub": "a" * 256, "client_id": "app"},
    "a subject with a line in it, with a client": {"sub": "ann\nbob", "client_id": "app"},
    "a client that is a number": {"sub": None, "client_id": 7},
    "a client that is too long": {"sub": None, "client_id": "a" * 256},
    "bound to a certificate": {"cnf": {"x5t#S256": "x"}},
    "bound to nothing": {"cnf": {}},
    "scopes that are none": {"scope": {"a": 1}},
    "scopes without end": {"scope": " ".join(map(str, range(300)))},
}


@pytest.mark.spec(
    "R0211",
    "R0213",
    "R0322",
    "R0324",
    "R0325",
    "R0328",
    "R0343",
    "R0344",
    "R0424",
    "R0733",
    "R0734",
    "R1285",
)
@pytest.mark.parametrize("name", CLAIMS)
@live
async def test_a_token_whose_claims_are_not_right_is_not_believed(name: str) -> None:
    """RS-03, RS-05, RS-14."""
    more = CLAIMS[name]
    async with protected() as setup:
        if more == {"iss": "slash"}:
            more = {"iss": f"{setup.issuer.url}//"}  # one is D42
        answer = await sent(setup, setup.token(**more))
        assert answer.status == 401
        assert challenge(answer)[1]["error"] == "invalid_token"
        assert await setup.status(setup.token()) == 200


@pytest.mark.parametrize("sub", [7, "", {"id": "ann"}, "a" * 256, None], ids=repr)
@pytest.mark.parametrize("asked_about", [False, True])
@live
async def test_a_subject_that_cannot_be_used_is_refused_and_never_becomes_its_client(
    sub: Any, asked_about: bool
) -> None:
    """RS-03: all users of one client would share their handles, sessions and state."""
    async with protected(trust=introspected if asked_about else None) as setup:
        claims = {**setup.claims(client_id="app"), "sub": sub}
        setup.issuer.introspection_results["t"] = {"active": True, **claims}
        answer = await sent(setup, "t" if asked_about else setup.signing_key.sign(claims))
        assert answer.status == 401
        said = challenge(answer)[1]
        assert said["error"] == "invalid_token"
        assert "claim sub" in said["error_description"]
        assert "a" * 200 not in said["error_description"]


@live
async def test_a_client_is_never_the_user_whose_subject_equals_its_id() -> None:
    """RS-03, RFC 9068, 5: an attacker may choose a client_id that is the subject of a user."""
    async with protected() as setup:
        user = setup.token(sub="ann")
        client = setup.token(sub=None, client_id="ann")
        names = [
            (await setup.caller(token).modern("tools/call", {"name": "whoami"})).text
            for token in (user, client)
        ]
        assert names == [f"{setup.issuer.url}#ann", f"{setup.issuer.url} client ann"]


Forge = Callable[[ProtectedSetup], str]


def _header(**header: Any) -> Forge:
    return lambda setup: setup.token(header=header)


def _unsigned(setup: ProtectedSetup) -> str:
    return f"{packed({'alg': 'none', 'typ': 'at+jwt'})}.{packed(setup.claims())}."


def _unsigned_with_something(setup: ProtectedSetup) -> str:
    return f"{packed({'alg': 'none'})}.{packed(setup.claims())}.AAAA"


def _confused(setup: ProtectedSetup) -> str:
    """HS256, with the published key as the secret."""
    text = f"{packed({'alg': 'HS256', 'typ': 'at+jwt', 'kid': 'one'})}.{packed(setup.claims())}"
    secret = json.dumps(setup.signing_key.jwk).encode()
    return f"{text}.{b64(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def _by_stranger(**header: Any) -> Forge:
    """Signed by a key of the attacker's own, which the token offers."""

    def forge(setup: ProtectedSetup) -> str:
        key = SigningKey()
        said = {name: key.jwk if value == "own" else value for name, value in header.items()}
        return key.sign(setup.claims(), **said)

    return forge


def _altered(setup: ProtectedSetup) -> str:
    head, _, signature = setup.token().split(".")
    return f"{head}.{packed(setup.claims(sub='root'))}.{signature}"


def _cut(setup: ProtectedSetup) -> str:
    return setup.token()[:-4]


def _respelled(setup: ProtectedSetup) -> str:
    """The same bytes with other last bits."""
    token = setup.token()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) + 1]


def _zero(setup: ProtectedSetup) -> str:
    """CVE-2022-21449: a signature of zeros."""
    return ".".join(setup.token().split(".")[:2]) + f".{b64(bytes(64))}"


def _padded(setup: ProtectedSetup) -> str:
    return setup.token() + "="


def _twice(setup: ProtectedSetup) -> str:
    """A member that is there twice: which one would count?"""
    claims = json.dumps(setup.claims())
    return setup.signing_key.sign(
        claims.replace("{", '{"aud": "https://other.example", ', 1).encode()
    )


def _deep(setup: ProtectedSetup) -> str:
    return setup.signing_key.sign(b"[" * 5000)


def _large(setup: ProtectedSetup) -> str:
    return setup.token(more="x" * MAX_TOKEN_CHARACTERS)


FORGED: dict[str, Forge] = {
    "unsigned": _unsigned,
    "unsigned with a signature": _unsigned_with_something,
    "signed with the public key as a secret": _confused,
    "signed by a stranger": _by_stranger(),
    "signed by a stranger who shows the key": _by_stranger(jwk="own"),
    "signed by a stranger who says where the key is": _by_stranger(jku="http://127.0.0.1:1/k"),
    "signed by a stranger with a certificate": _by_stranger(x5c=["AAAA"], x5u="http://127.0.0.1/"),
    "altered": _altered,
    "cut": _cut,
    "spelled otherwise": _respelled,
    "zeros": _zero,
    "padded": _padded,
    "a member twice": _twice,
    "deep": _deep,
    "large": _large,
    "critical": _header(crit=["exp"]),
    "critical and unknown": _header(crit=["b64"], b64=False),
    "critical of nothing": _header(crit=[]),
    "a proof": _header(typ="dpop+jwt"),
    "a grant": _header(typ="oauth-id-jag+jwt"),
    "a logout": _header(typ="logout+jwt"),
    "a type that is none": _header(typ=7),
    "a key by a path": _header(kid="../../etc/passwd"),
    "a key by a query": _header(kid="' OR 1=1 --"),
    "a key by a URL": _header(kid="http://127.0.0.1:1/"),
    "a key that is no text": _header(kid={"a": 1}),
    "a key without end": _header(kid="k" * 300),
    "another algorithm of the family": _header(alg="ES384"),
    "an algorithm of another family": _header(alg="RS256"),
    "an algorithm that is none": _header(alg=None),
    "an algorithm in capitals": _header(alg="NONE"),
    "an algorithm that is a list": _header(alg=["ES256"]),
    "two parts": lambda setup: "a.b",
    "four parts": lambda setup: setup.token() + ".x",
    "five parts": lambda setup: "a.b.c.d.e",
    "no JSON": lambda setup: setup.signing_key.sign(b"rubbish"),
    "a list": lambda setup: setup.signing_key.sign(["x"]),
    "a word": lambda setup: "rubbish",
}


@pytest.mark.spec("R0211")
@pytest.mark.parametrize("name", FORGED)
@live
async def test_a_forged_token_is_not_believed(name: str) -> None:
    """RS-14, and none of it makes us ask anybody but the issuer."""
    async with protected() as setup:
        token = FORGED[name](setup)
        answer = await sent(setup, token)
        if len(token) > MAX_TOKEN_CHARACTERS:
            assert answer.status in (400, 431)
        elif not token.rstrip("="):
            assert answer.status == 400
        else:
            assert answer.status == 401
            assert challenge(answer)[1]["error"] == "invalid_token"
        assert set(setup.issuer.requested_paths) <= {setup.issuer.place, "/keys"}
        assert await setup.status(setup.token()) == 200


def test_a_token_beyond_its_limit_is_not_even_decoded() -> None:
    """RS-14: our own server refuses such headers before; one that we are mounted in may not."""
    key = SigningKey()
    assert parse_jwt(key.sign({"more": "x" * 8000})).claims
    with pytest.raises(InvalidToken):
        parse_jwt(key.sign({"more": "x" * MAX_TOKEN_CHARACTERS}))


# ---------------------------------------------------------------- several issuers


@live
async def test_each_issuer_signs_for_itself_alone() -> None:
    """A key of one proves nothing about the other, and the same name at two is two people."""
    async with (
        issuing() as other,
        protected(trust=lambda issuer: (Jwt(issuer.url), Jwt(other.url))) as setup,
    ):
        assert setup.protection.issuers == [setup.issuer.url, other.url]
        mine = setup.signing_key.sign(setup.claims())
        theirs = other.signing_keys[0].sign(other.claims(RESOURCE))
        names = [
            (await setup.caller(token).modern("tools/call", {"name": "whoami"})).text
            for token in (mine, theirs)
        ]
        assert names == [f"{setup.issuer.url}#ann", f"{other.url}#ann"]
        assert await setup.status(other.signing_keys[0].sign(setup.claims())) == 401
        assert await setup.status(setup.signing_key.sign(other.claims(RESOURCE))) == 401


# ---------------------------------------------------------------- asked about (RFC 7662)


def introspected(issuer: Issuer) -> Introspection:
    return Introspection(issuer.url, "me", "s3cret/ä")


@live
async def test_an_issuer_is_asked_about_a_token_that_only_it_can_read() -> None:
    async with protected(trust=introspected) as setup:
        setup.issuer.introspection_results["opaque"] = {
            "active": True,
            "token_type": "Bearer",
            **setup.claims(),
        }
        answer = await setup.caller("opaque").modern("tools/call", {"name": "whoami"})
        assert answer.text == f"{setup.issuer.url}#ann"
        assert setup.issuer.secret == "Basic bWU6czNjcmV0JTJGJUMzJUE0"
        assert await setup.status("unknown") == 401
        posted = next(one for one in setup.issuer.server.received if one.path == "/introspect")
        assert posted.body == b"token=opaque&token_type_hint=access_token"


@live
async def test_a_token_that_an_issuer_is_asked_about_may_name_it_with_one_slash_more() -> None:
    """D42: in the token, if that can be read, and in what the issuer says of it."""
    async with protected(trust=introspected) as setup:
        with_slash = {"iss": f"{setup.issuer.url}/"}
        readable = setup.signing_key.sign(setup.claims() | with_slash)
        setup.issuer.introspection_results[readable] = {"active": True, **setup.claims()}
        setup.issuer.introspection_results["opaque"] = {
            "active": True,
            **setup.claims(),
            **with_slash,
        }
        for token in (readable, "opaque"):
            answer = await setup.caller(token).modern("tools/call", {"name": "whoami"})
            assert answer.status == 200
            assert answer.text == f"{setup.issuer.url}#ann"


SAID: dict[str, dict[str, Any]] = {
    "not active": {"active": False},
    "active in a word": {"active": "true"},
    "no audience": {"aud": None},
    "another audience": {"aud": "https://other.example"},
    "another issuer": {"iss": "https://other.example"},
    "expired": {"exp": NOW - 100},
    "no end": {"exp": None},
    "not yet": {"nbf": NOW + 86400},
    "a refresh token": {"token_type": "refresh_token"},
    "nobody's": {"sub": None},
    "a subject that is a number, with a client": {"sub": 7, "client_id": "app"},
    "an empty subject, with a client": {"sub": "", "client_id": "app"},
}


@pytest.mark.parametrize("name", SAID)
@live
async def test_what_an_issuer_says_of_a_token_must_be_right_as_well(name: str) -> None:
    """RS-03, RS-05: the audience is looked at here, too."""
    async with protected(trust=introspected) as setup:
        said = {"active": True, **setup.claims(), **SAID[name]}
        setup.issuer.introspection_results["t"] = {
            key: value for key, value in said.items() if value is not None
        }
        assert await setup.status("t") == 401


@live
async def test_a_token_that_was_taken_back_is_refused_within_a_minute() -> None:
    """RS-16: and until then the issuer is asked once."""
    now = [time.time()]
    async with protected(trust=introspected, clock=lambda: now[0]) as setup:
        setup.issuer.introspection_results["t"] = {
            "active": True,
            **setup.claims(exp=now[0] + 3600),
        }
        assert await setup.status("t") == 200
        assert await setup.status("t") == 200
        assert setup.issuer.requested_paths.count("/introspect") == 1
        setup.issuer.introspection_results.clear()
        now[0] += 59
        assert await setup.status("t") == 401


@pytest.mark.parametrize(("down", "status"), [(False, 401), (True, 503)])
@live
async def test_of_many_who_show_one_bad_token_at_once_the_issuer_hears_once(
    down: bool, status: int
) -> None:
    """RS-16: nor does anybody wait for all who came before to be refused."""
    async with protected(trust=introspected) as setup:
        assert await setup.status("x") == 401  # by now its document is known
        setup.issuer.down = down
        before = setup.issuer.requested_paths.count("/introspect")
        answers = await asyncio.gather(*(setup.status("t") for _ in range(20)))
        assert answers == [status] * 20
        asked = setup.issuer.requested_paths.count("/introspect") - before
        assert asked < 20 / 2  # most come while the first is being asked about
        setup.issuer.down = False
        setup.issuer.introspection_results["t"] = {"active": True, **setup.claims()}
        assert await setup.status("t") == 200  # and it is not held against anybody later


@live
async def test_a_token_is_not_remembered_beyond_its_end() -> None:
    """RS-16."""
    now = [time.time()]
    async with protected(clock=lambda: now[0]) as setup:
        token = setup.token(exp=now[0] + 10)
        assert await setup.status(token) == 200
        now[0] += 10 + SKEW_S + 1
        assert await setup.status(token) == 401


@live
async def test_no_token_and_no_secret_is_kept_or_logged() -> None:
    """RS-16: what is remembered has a digest for a name."""
    with Records(
        "colonnade", "colonnade.auth", "colonnade.server", "colonnade.transport"
    ) as records:
        async with protected(trust=introspected) as setup:
            setup.issuer.introspection_results["opaque-word"] = {"active": True, **setup.claims()}
            assert await setup.status("opaque-word") == 200
            assert await setup.status("other-word") == 401
            setup.issuer.down = True
            assert await setup.status("third-word") == 503
            protection = setup.protection
            kept = repr(protection) + repr(protection._verified) + repr(protection.verifiers)
    said = kept + "".join(records.lines)
    for secret in ("opaque-word", "other-word", "third-word", "s3cret", "bWU6"):
        assert secret not in said


@pytest.mark.spec("R0325", "R0345", "R0618")
@live
async def test_the_token_does_not_reach_those_who_work_for_its_bearer() -> None:
    """RS-06: what a handler does not have, it cannot pass on."""
    seen: list[Any] = []
    async with protected() as setup:

        async def layer(turn: Any, handler: Any) -> Any:
            seen.append(dict(turn.headers))
            return await handler(turn)

        setup.server.add_middleware(layer)
        token = setup.token()
        assert await setup.status(token) == 200
    assert len(seen) == 1
    assert b"host" in seen[0]
    assert token.encode() not in repr(seen).encode()
    assert b"authorization" not in seen[0]


@live
async def test_what_a_verified_token_says_reaches_middleware_and_tools_as_claims() -> None:
    seen: list[Any] = []
    async with protected() as setup:

        async def look(request: Any, call_next: Any) -> Any:
            seen.append(dict(request.claims))
            return await call_next(request)

        setup.server.add_middleware(look)
        assert await setup.status(setup.token(email="ann@example.com")) == 200
    assert seen[0]["email"] == "ann@example.com"
    assert seen[0]["sub"] == "ann"


# ---------------------------------------------------------------- many


def _asked(token: str) -> ProtectedRequest:
    return ProtectedRequest("POST", RESOURCE, {b"authorization": f"Bearer {token}".encode()}, "")


@live
async def test_no_character_of_a_token_can_be_another_one() -> None:
    """RS-14: every position, and whatever is put there, is refused and nothing else."""
    async with issuing() as issuer, pooled() as pool:
        protection = Protection(RESOURCE, Jwt(issuer.url))
        around = ProtectionContext(Fetcher(pool.send), MemoryStore(), KeyRing())
        token = issuer.signing_keys[0].sign(issuer.claims(RESOURCE))
        assert (await protection.authenticate(_asked(token), around)).principal.endswith("#ann")
        chance = random.Random(7)
        for position in range(len(token)):
            for _ in range(3):
                letter = chance.choice("ABCxyz019-_.~+/ =\x00\xff")
                forged = token[:position] + letter + token[position + 1 :]
                if forged == token:
                    continue
                with pytest.raises(HttpError) as caught:
                    await protection.authenticate(_asked(forged), around)
                assert caught.value.status in (400, 401), (position, letter)


@live
async def test_an_issuer_is_asked_once_about_a_token_that_many_show_at_once() -> None:
    """RS-16."""
    async with protected(trust=introspected) as setup:
        setup.issuer.introspection_results["t"] = {"active": True, **setup.claims()}
        statuses = await asyncio.gather(*(setup.status("t") for _ in range(40)))
        assert set(statuses) == {200}
        assert setup.issuer.requested_paths.count("/introspect") == 1
