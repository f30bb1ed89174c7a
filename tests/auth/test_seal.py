"""The seal: what it opens, what it refuses, and what it never says.

Rules: what a stranger may hand in is tried in every form; a refusal is the same for all of them.
"""

import base64
import copy
import os
import pickle
import random
import secrets
import subprocess
import sys
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.auth import seal as module
from colonnade.auth.seal import (
    KEY_BYTES,
    MAX_SEALED_CHARACTERS,
    MAX_SECRET_BYTES,
    TAG_BYTES,
    KeyRing,
)
from colonnade.errors import Fault, FaultKind

OLD, NEW, OTHER = (secrets.token_bytes(KEY_BYTES) for _ in range(3))
SECRET = b'{"principal":"ada","answers":{"seat":"12A"}}'
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def refused(ring: KeyRing, text: str) -> Fault:
    with pytest.raises(Fault) as caught:
        ring.unseal(text)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    return caught.value


# ---------------------------------------------------------------- what opens


@given(st.binary(max_size=300))
def test_what_was_sealed_opens_to_the_same_bytes(secret: bytes) -> None:
    ring = KeyRing([NEW])
    assert ring.unseal(ring.seal(secret)) == secret


def test_the_sealed_text_shows_nothing_and_is_never_the_same_twice() -> None:
    """RQ-06: of nonces that are drawn, as many as a test can wait for."""
    ring = KeyRing()
    texts = {ring.seal(SECRET) for _ in range(1000)}
    assert len(texts) == 1000
    assert len({decoded(text)[5:17] for text in texts}) == 1000
    for text in texts:
        assert set(text) <= set(ALPHABET)
        assert not any(part in decoded(text) for part in (b"principal", b"answers", SECRET[-9:]))


def test_rq_06_no_nonce_comes_twice_in_a_hundred_million_seals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it is drawn by the system for each seal, so that how likely it is can be reckoned."""
    drawn: list[bytes] = []

    def token_bytes(size: int) -> bytes:
        drawn.append(os.urandom(size))
        return drawn[-1]

    ring = KeyRing([NEW])
    monkeypatch.setattr(module.secrets, "token_bytes", token_bytes)
    texts = [ring.seal(SECRET) for _ in range(1000)]
    assert [decoded(text)[5:-TAG_BYTES][: -len(SECRET)] for text in texts] == drawn
    seals, nonces = 10**8, 2 ** (8 * len(drawn[0]))
    assert seals**2 / (2 * nonces) < 1e-12  # the bound of a birthday


def test_an_old_key_of_the_ring_opens_and_the_first_one_seals() -> None:
    """RQ-06: and no more, once it was taken off the ring."""
    before, during, after = KeyRing([OLD]), KeyRing([NEW, OLD]), KeyRing([NEW])
    held = before.seal(SECRET)
    assert during.unseal(held) == SECRET
    assert after.unseal(during.seal(SECRET)) == SECRET
    refused(before, during.seal(SECRET))
    refused(after, held)


def test_replicas_that_share_a_ring_open_each_others() -> None:
    one, two = KeyRing([NEW, OLD]), KeyRing([OLD, NEW])
    assert two.unseal(one.seal(SECRET)) == SECRET
    assert one.unseal(two.seal(SECRET)) == SECRET
    assert not one.private


def test_a_ring_without_keys_makes_its_own_and_says_that_nobody_else_can_open() -> None:
    """RQ-06."""
    one, two = KeyRing(), KeyRing()
    assert one.private
    assert one.unseal(one.seal(SECRET)) == SECRET
    refused(two, one.seal(SECRET))


def test_another_key_does_not_open_even_under_the_name_of_the_right_one() -> None:
    """RQ-03."""
    ours, theirs = KeyRing([NEW]), KeyRing([OTHER])
    text = theirs.seal(SECRET)
    refused(ours, text)
    head = decoded(ours.seal(b""))[:5]
    refused(ours, encoded(head + decoded(text)[5:]))


def test_servers_that_share_keys_and_not_their_audience_do_not_open_each_others() -> None:
    """RQ-04."""
    bank, shop = KeyRing([NEW], audience="bank"), KeyRing([NEW], audience="shop")
    assert KeyRing([NEW], audience="bank").unseal(bank.seal(SECRET)) == SECRET
    refused(shop, bank.seal(SECRET))
    refused(KeyRing([NEW]), bank.seal(SECRET))
    refused(bank, KeyRing([NEW]).seal(SECRET))


# ---------------------------------------------------------------- what a stranger hands in


@pytest.mark.spec("R0791", "R0792", "R0793")
@pytest.mark.parametrize("secret", [b"", b"x", b"xy", b"xyz", SECRET], ids=len)
def test_every_single_bit_that_is_turned_is_noticed(secret: bytes) -> None:
    """RQ-03."""
    ring = KeyRing([NEW, OLD])
    data = decoded(ring.seal(secret))
    for place in range(len(data) * 8):
        turned = bytearray(data)
        turned[place // 8] ^= 1 << place % 8
        refused(ring, encoded(bytes(turned)))


@pytest.mark.spec("R0791", "R0792", "R0793")
@pytest.mark.parametrize("secret", [b"", b"x", b"xy"], ids=len)
def test_every_other_spelling_of_the_same_text_is_refused(secret: bytes) -> None:
    """RQ-03."""
    ring = KeyRing([NEW])
    text = ring.seal(secret)
    for place in range(len(text)):
        for letter in ALPHABET + "+/= \n.":
            if letter != text[place]:
                refused(ring, text[:place] + letter + text[place + 1 :])
    for other in (f"{text}=", f"{text}==", f" {text}", f"{text}\n", f"{text}A", f"A{text}"):
        refused(ring, other)
    for place in range(len(text) + 1):
        for letter in "=\n .\0é":
            refused(ring, text[:place] + letter + text[place:])


@pytest.mark.spec("R0791", "R0792", "R0793")
def test_every_part_and_every_extension_is_refused() -> None:
    """RQ-03."""
    ring = KeyRing([NEW])
    text, data = ring.seal(SECRET), decoded(ring.seal(SECRET))
    for end in range(len(text)):
        refused(ring, text[:end])
        refused(ring, text[end + 1 :])
    for end in range(len(data)):
        refused(ring, encoded(data[:end]))
    for more in (b"\0", b"\0" * 16, data):
        refused(ring, encoded(data + more))
    middle = bytearray(data)
    middle[20], middle[21] = middle[21], middle[20] ^ 1
    refused(ring, encoded(bytes(middle)))


@pytest.mark.spec("R0791")
def test_parts_of_two_sealed_texts_do_not_open_together() -> None:
    """RQ-03."""
    ring = KeyRing([NEW, OLD])
    one, two = decoded(ring.seal(SECRET)), decoded(ring.seal(SECRET))
    old = decoded(KeyRing([OLD]).seal(SECRET))
    for cut in range(1, len(one)):
        for other in (two, old):
            mixed = one[:cut] + other[cut:]
            if mixed not in (one, other):
                refused(ring, encoded(mixed))


@pytest.mark.spec("R0791")
def test_another_version_of_the_codec_is_refused() -> None:
    """RQ-03."""
    ring = KeyRing([NEW])
    data = decoded(ring.seal(SECRET))
    for version in set(range(256)) - {1}:
        refused(ring, encoded(bytes([version]) + data[1:]))


@pytest.mark.spec("R0791")
@given(st.one_of(st.text(), st.text(ALPHABET), st.binary().map(encoded)))
def test_rubbish_is_refused_and_raises_nothing_else(text: str) -> None:
    refused(KeyRing([NEW]), text)


@pytest.mark.spec("R0791")
@pytest.mark.parametrize("text", ["", "A", "=", "====", "\0", "\ud800", "é" * 99, "{}", "null"])
def test_odd_little_texts_are_refused(text: str) -> None:
    refused(KeyRing([NEW]), text)


@pytest.mark.slow
@pytest.mark.spec("R0791")
def test_a_hundred_thousand_random_changes_are_all_refused() -> None:
    ring, dice = KeyRing([NEW, OLD]), random.Random(11)
    data = decoded(ring.seal(SECRET))
    for _ in range(100_000):
        changed = bytearray(data)
        for _ in range(dice.randint(1, 8)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        if bytes(changed) != data:
            refused(ring, encoded(bytes(changed)))


def test_one_refusal_for_every_reason() -> None:
    """RQ-07."""
    ring = KeyRing([NEW])
    text = ring.seal(SECRET)
    reasons = {
        "nothing": "",
        "rubbish": "?!",
        "another key": KeyRing([OTHER]).seal(SECRET),
        "another audience": KeyRing([NEW], audience="x").seal(SECRET),
        "truncated": text[:-4],
        "changed": text[:-1] + ("A" if text[-1] != "A" else "B"),
        "too large": "A" * (MAX_SEALED_CHARACTERS + 1),
    }
    faults = [refused(ring, reason) for reason in reasons.values()]
    assert len({(fault.message, repr(fault.data), repr(fault)) for fault in faults}) == 1
    assert all(fault.__cause__ is None and fault.__suppress_context__ for fault in faults)
    assert "call again without it" in faults[0].message


def test_rq_07_whatever_was_changed_takes_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody learns from the time that it takes how near they were: whatever has our form is given
    to the cipher whole, once, and nothing else looks at it before. The cipher takes the same time
    for every tag. What is no form of ours at all is refused before, and everybody can see that."""
    real = module.load_cipher()
    tried: list[bytes] = []

    class Watched:
        def __init__(self, key: bytes) -> None:
            self._cipher = real(key)

        def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
            tried.append(nonce + data)
            return self._cipher.decrypt(nonce, data, associated)

    ring = KeyRing([NEW])
    data = decoded(ring.seal(SECRET))
    monkeypatch.setattr(module, "load_cipher", lambda: Watched)
    for place in range(5, len(data)):
        for bit in (1, 128):
            turned = bytearray(data)
            turned[place] ^= bit
            refused(ring, encoded(bytes(turned)))
            assert tried == [bytes(turned[5:])]
            tried.clear()
    assert ring.unseal(encoded(data)) == SECRET
    assert tried == [data[5:]]


# ---------------------------------------------------------------- sizes


def test_as_much_as_fits_travels_and_not_a_byte_more() -> None:
    ring = KeyRing([NEW])
    text = ring.seal(b"x" * MAX_SECRET_BYTES)
    assert len(text) <= MAX_SEALED_CHARACTERS
    assert ring.unseal(text) == b"x" * MAX_SECRET_BYTES
    with pytest.raises(Fault, match="the maximum is") as caught:
        ring.seal(b"x" * (MAX_SECRET_BYTES + 1))
    assert caught.value.kind is FaultKind.INTERNAL


def test_what_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """RQ-08."""
    ring = KeyRing([NEW])
    monkeypatch.setattr(module, "MAX_SECRET_BYTES", 10**6)
    text = ring.seal(b"x" * MAX_SEALED_CHARACTERS)
    refused(ring, text)
    refused(ring, "A" * 100_000_000)


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("size", [0, 1, 16, 24, 31, 33, 64])
def test_a_key_of_another_size_is_refused_without_showing_it(size: int) -> None:
    key = secrets.token_bytes(size) if size > 4 else b"zz"[:size]
    with pytest.raises(ValueError, match="32 bytes") as caught:
        KeyRing([NEW, key])
    assert_hidden(str(caught.value), key or NEW, NEW)


def assert_hidden(text: str, *keys: bytes) -> None:
    for key in keys:
        shown = (repr(key), str(key), key.hex(), base64.b64encode(key).decode(), encoded(key))
        assert not any(form.strip("b'\"=") in text for form in shown if len(key) > 4)


def test_a_key_is_in_no_text_about_the_ring_and_in_no_error() -> None:
    ring = KeyRing([NEW, OLD], audience="bank")
    texts = [repr(ring), str(ring), f"{ring!r:>99}", ascii(ring), ring.seal(SECRET)]
    data = decoded(ring.seal(SECRET))
    broken = encoded(data[:-1] + bytes([data[-1] ^ 1]))
    for text in ("", ring.seal(SECRET)[:-1], KeyRing([OTHER]).seal(SECRET), broken):
        try:
            ring.unseal(text)
        except Fault as fault:
            texts.append("".join(traceback.format_exception(fault)))
            shown = traceback.TracebackException.from_exception(fault, capture_locals=True)
            texts.append("".join(shown.format()))
    assert len(texts) == 13
    for text in texts:
        assert_hidden(text, NEW, OLD)


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_ring_cannot_be_pickled_or_copied(leak: object) -> None:
    assert callable(leak)
    with pytest.raises(TypeError, match="KeyRing"):
        leak(KeyRing([NEW]))


# ---------------------------------------------------------------- what it costs to have it


LOADED = "print(any(name.startswith('cryptography') for name in sys.modules))"


def printed(code: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_library_is_loaded_when_something_is_sealed_and_not_before() -> None:
    code = f"""
import sys
from colonnade.auth.seal import KeyRing, SingleUse
from colonnade.errors import Fault
ring = KeyRing()
{LOADED}
for rubbish in ("", "rubbish", "A" * 200, "A" * 10**6):
    try:
        ring.unseal(rubbish)
    except Fault:
        pass
{LOADED}
ring.seal(b"")
{LOADED}
"""
    assert printed(code) == ["False", "False", "True"]


def test_the_library_is_loaded_when_something_of_ours_is_opened() -> None:
    key = secrets.token_bytes(KEY_BYTES)
    text = KeyRing([key]).seal(b"x")
    code = f"""
import sys
from colonnade.auth.seal import KeyRing
ring = KeyRing([bytes.fromhex("{key.hex()}")])
{LOADED}
print(ring.unseal("{text}").decode())
{LOADED}
"""
    assert printed(code) == ["False", "x", "True"]


@pytest.mark.parametrize(("parameter", "loaded"), [("", "False"), ("ctx: Context", "True")])
def test_an_application_loads_the_library_before_its_first_caller_if_it_may_ask(
    parameter: str, loaded: str
) -> None:
    code = f"""
import sys
from colonnade import Context, Server
server, inner = Server("outer"), Server("inner")
@inner.tool
async def maybe({parameter}) -> str:
    return "x"
server.mount(inner)
{LOADED}
server.asgi()
{LOADED}
"""
    assert printed(code) == ["False", loaded]
