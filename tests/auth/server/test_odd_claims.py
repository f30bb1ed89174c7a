"""Whatever JSON is in a token or a proof, it is believed or refused: no other exception.

An exception that is no refusal is a status 500 and a traceback at the door of a server. Everything
here is signed by the right key, so that nothing is refused before it is looked at.
"""

import asyncio
import hashlib
import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from auth.token_issuer import SigningKey, b64
from colonnade import Jwt, Protection
from colonnade.auth.jose import (
    InvalidToken,
    JsonWebKey,
    decode_json_object,
    parse_jwk,
    parse_jwt,
    quote_claim,
    verify_signature,
)
from colonnade.auth.seal import KeyRing
from colonnade.auth.server.dpop import DpopProof, InvalidProof
from colonnade.auth.server.protection import ProtectedRequest, ProtectionContext
from colonnade.auth.server.verifier import parse_if_jwt
from colonnade.auth.ssrf import Fetcher
from colonnade.ports import Caller
from colonnade.protocol.http.security import HttpError
from colonnade.store.memory import MemoryStore

ISSUER, RESOURCE = "https://login.example", "https://notes.example/mcp"
SIGNING_KEY = SigningKey("EdDSA")
HOLDER = SigningKey("EdDSA", id="")
NOW = time.time()
TOKEN = "token"

MANY = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# What has no value in Python, or none that can be shown: what stands for it here, and its JSON.
RAW = {
    "<infinite>": "1e999",
    "<-infinite>": "-1e999",
    "<too many digits>": "1" + "0" * 5000,
    **{f"<{depth} deep>": "[" * depth + "]" * depth for depth in (100, 800, 900, 940, 3000)},
}
DEEP = "<940 deep>"

# Every character that JSON can escape, halves of characters among them.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 1e300, 2**63, 2**64, -1, 0, NOW, True]),
)
TEXTS = st.one_of(
    ANY_TEXT,
    st.sampled_from(
        ["", "\ud800", "\udfff", "\0", "a\nb", "a" * 300, "https://[", "https://a:b/", "//", "none"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=6,
) | st.sampled_from(list(RAW))

CLAIM_NAMES = (
    *("iss", "aud", "sub", "client_id", "exp", "nbf", "iat", "scope", "scp", "cnf"),
    *("typ", "token_use", "token_type", "nonce", "at_hash", "active"),
)
PROOF_NAMES = ("jti", "htm", "htu", "iat", "ath", "nonce", "exp")
HEADER_NAMES = ("typ", "alg", "kid", "jwk", "crit", "x5c", "jku")
KEY_NAMES = ("kty", "crv", "x", "y", "n", "e", "use", "key_ops", "alg", "kid", "d")


def some(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | TEXTS, VALUES, max_size=3)


def written(value: Any) -> bytes:
    text = json.dumps(value)
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text.encode()


def signed(key: SigningKey, header: dict[str, Any], claims: dict[str, Any]) -> str:
    text = f"{b64(written(header))}.{b64(written(claims))}"
    return f"{text}.{b64(key.signature(text.encode()))}"


class FixedKeys:
    """The keys of an issuer that need not be fetched."""

    async def matching(self, *given: Any) -> list[JsonWebKey]:
        found = parse_jwk(SIGNING_KEY.jwk)
        assert found is not None
        return [found]


async def unreachable(*given: Any, **more: Any) -> Any:
    raise AssertionError("nothing is fetched here")


def admitted(authorization: str, proof: str = "") -> Caller | HttpError:
    async def admit() -> Caller:
        issuer = Jwt(ISSUER)
        issuer._keys = FixedKeys()  # type: ignore[assignment]
        protection = Protection(RESOURCE, issuer)
        headers = {b"authorization": authorization.encode(), b"dpop": proof.encode()}
        around = ProtectionContext(Fetcher(unreachable), MemoryStore(), KeyRing())
        return await protection.authenticate(
            ProtectedRequest("POST", RESOURCE, headers, ""), around
        )

    try:
        return asyncio.run(admit())
    except HttpError as refusal:
        return refusal


def claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": RESOURCE, "sub": "ann", "exp": NOW + 3600, **more}


def proof_claims(token: str, **more: Any) -> dict[str, Any]:
    ath = b64(hashlib.sha256(token.encode()).digest())
    said = {"jti": "one", "htm": "POST", "htu": RESOURCE, "iat": time.time(), "ath": ath}
    return {**said, **more}


PROOF_HEADER = {"typ": "dpop+jwt", "alg": "EdDSA", "jwk": HOLDER.jwk}
BOUND = signed(
    SIGNING_KEY,
    {"alg": "EdDSA", "typ": "at+jwt", "kid": "one"},
    claims(cnf={"jkt": HOLDER.thumbprint}),
)


def test_what_is_right_is_believed() -> None:
    good = admitted(f"DPoP {BOUND}", signed(HOLDER, PROOF_HEADER, proof_claims(BOUND)))
    assert isinstance(good, Caller)
    assert good.principal == f"{ISSUER}#ann"


def test_a_claim_that_is_nested_deeper_than_python_calls_is_quoted_for_the_log() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep, deep, deep, deep, deep]
    assert quote_claim(deep) == "[(list), (list), (list), (list), and 1 more]"
    assert quote_claim(["a", 1, None, {}]) == "['a', 1, None, (dict)]"


@MANY
@example({}, {"alg": DEEP})
@example({"exp": 10**400}, {})
@example({"exp": "<infinite>"}, {})
@example({"nbf": -(10**400), "iat": "<-infinite>"}, {})
@example({"scope": {"a": DEEP}}, {})
@example({"cnf": {"jkt": ["a"]}}, {})
@example({"aud": [DEEP]}, {})
@example({"typ": DEEP}, {"typ": DEEP})
@example({"sub": "\ud800"}, {"kid": "\ud800"})
@given(some(CLAIM_NAMES), some(HEADER_NAMES))
def test_a_token_with_any_claims_is_believed_or_refused(
    said: dict[str, Any], head: dict[str, Any]
) -> None:
    header = {"alg": "EdDSA", "typ": "at+jwt", "kid": "one", **head}
    found = admitted(f"Bearer {signed(SIGNING_KEY, header, claims(**said))}")
    if isinstance(found, Caller):
        assert found.principal.startswith(ISSUER)
        found.principal.encode()
        " ".join(found.scopes).encode()
    else:
        assert found.status in (400, 401)


@MANY
@example({"iat": 10**400}, {}, {})
@example({"iat": "<infinite>"}, {}, {})
@example({"jti": "\ud800"}, {}, {})
@example({"htu": "https://["}, {}, {})
@example({"htu": "https://a:99999999/"}, {}, {})
@example({}, {"jwk": DEEP}, {})
@example({}, {}, {"kty": {}, "crv": []})
@example({}, {}, {"kty": "RSA", "n": "AA", "e": "AQAB"})
@given(some(PROOF_NAMES), some(HEADER_NAMES), some(KEY_NAMES))
def test_a_proof_with_any_claims_is_believed_or_refused(
    said: dict[str, Any], head: dict[str, Any], key: dict[str, Any]
) -> None:
    header = {**PROOF_HEADER, "jwk": {**HOLDER.jwk, **key}, **head}
    text = signed(HOLDER, header, proof_claims(BOUND, **said))
    found = admitted(f"DPoP {BOUND}", text)
    assert isinstance(found, Caller) or found.status == 401
    with suppress(InvalidProof):
        DpopProof(text, "POST", RESOURCE, TOKEN, NOW)


@MANY
@given(st.binary(max_size=200) | VALUES.map(written))
def test_any_bytes_are_a_json_object_or_no_token(data: bytes) -> None:
    with suppress(InvalidToken):
        json.dumps(decode_json_object(data), ensure_ascii=False).encode()


@MANY
@given(st.text(max_size=200) | st.text("ABCxyz019-_.=", max_size=100))
def test_any_text_is_a_token_or_none(text: str) -> None:
    with suppress(InvalidToken):
        parse_if_jwt(text)
    with suppress(InvalidToken):
        parse_jwt(text)


KEYS = [SigningKey(name).jwk for name in ("ES256", "ES384", "ES512", "EdDSA", "RS256")]


@MANY
@given(st.sampled_from(KEYS), some(KEY_NAMES), st.binary(max_size=300))
def test_any_key_and_any_signature_verify_or_do_not(
    jwk: dict[str, Any], said: dict[str, Any], signature: bytes
) -> None:
    key = parse_jwk({**jwk, **said})
    if key is None:
        return
    for algorithm in ("ES256", "EdDSA", "RS256", "PS256"):
        text = f"{b64(written({'alg': algorithm}))}.{b64(b'{}')}.{b64(signature or b'x')}"
        with pytest.raises(InvalidToken):
            verify_signature(parse_jwt(text), key, (algorithm,))


@pytest.mark.parametrize("number", [2**2047, 2**2048 - 2, 3**1300, 2**4096 - 1])
@pytest.mark.parametrize("exponent", [2, 3, 4, 65536, 65537, 2**32 - 1])
def test_a_modulus_that_nobody_made_from_primes_verifies_nothing(
    number: int, exponent: int
) -> None:
    def coded(value: int) -> str:
        return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))

    key = parse_jwk({"kty": "RSA", "n": coded(number), "e": coded(exponent)})
    if key is None:
        return
    for algorithm in ("RS256", "PS256"):
        for signature in (b"\0", b"\1" * 256, coded(number - 1).encode()):
            text = f"{b64(written({'alg': algorithm}))}.{b64(b'{}')}.{b64(signature)}"
            with pytest.raises(InvalidToken):
                verify_signature(parse_jwt(text), key, (algorithm,))
