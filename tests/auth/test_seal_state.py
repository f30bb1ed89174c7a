"""A `requestState` on its way: made by an interview, sealed, held by a stranger, opened, and spent."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from colonnade.auth.seal import CLOCK_SKEW_S, KEY_BYTES, MAX_SEALED_CHARACTERS, KeyRing, SingleUse
from colonnade.errors import Fault, FaultKind, Refused
from colonnade.ports import Store
from colonnade.protocol.input_rounds import (
    InputRounds,
    RequestState,
    open_request_state,
    subject_of,
)
from colonnade.protocol.revision import JULY_2026, Revision
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from protocol.input_requests import SEAT, elicit
from protocol.links import call, request, server_of

KEY = bytes(range(KEY_BYTES))
LIVES_S = 600.0
CALL: dict[str, Any] = {"name": "book", "arguments": {"flight": "DY 620"}}
SUBJECT = subject_of(Raw(json.dumps(CALL).encode()))
BOUND: dict[str, Any] = {
    "principal": "ada",
    "method": "tools/call",
    "subject": SUBJECT,
    "now": 1000.0,
}


def first_round(revision: Revision, ring: KeyRing) -> str:
    """A handler asks; what it needs to know on the retry, in the client's hands."""
    exchange = call(
        server_of(revision), request(revision, 1, "tools/call", CALL, {"elicitation": {}})
    )
    interview = InputRounds(exchange.peer, exchange.method)
    interview.ask(SEAT)
    result = interview.result(
        ring.seal, principal="ada", subject=SUBJECT, expires_at=1000.0 + LIVES_S
    )
    assert isinstance(result.request_state, str)
    return result.request_state


def opened(state: str, ring: KeyRing, **changed: Any) -> RequestState:
    return open_request_state(state, ring.unseal, **(BOUND | changed))


def refused(state: str, ring: KeyRing, **changed: Any) -> None:
    with pytest.raises(Fault) as caught:
        opened(state, ring, **changed)
    assert caught.value.kind is FaultKind.INVALID_PARAMS


# ---------------------------------------------------------------- what it is bound to


@pytest.mark.spec("R0791", "R0792", "R0793", "R0795", "R0808")
def test_a_state_opens_for_its_caller_request_and_time_and_for_nothing_else(
    revision: Revision,
) -> None:
    ring = KeyRing([KEY])
    state = first_round(revision, ring)
    memory = opened(state, ring)
    assert (memory.principal, memory.round, len(memory.asked)) == ("ada", 1, 1)
    assert "ada" not in state
    assert opened(state, ring, now=1000.0 + LIVES_S - 0.001) == memory
    for principal in ("eve", "", "Ada", "ada "):
        refused(state, ring, principal=principal)
    for method in ("prompts/get", "resources/read", ""):
        refused(state, ring, method=method)
    for other in (CALL | {"name": "cancel"}, CALL | {"arguments": {"flight": "DY 621"}}, {}):
        refused(state, ring, subject=subject_of(Raw(json.dumps(other).encode())))
    for now in (1000.0 + LIVES_S, 1e12):
        refused(state, ring, now=now)


@pytest.mark.spec("R0791", "R0792", "R0793")
def test_a_state_that_was_made_or_changed_elsewhere_is_refused(revision: Revision) -> None:
    ring = KeyRing([KEY], audience="airline")
    state = first_round(revision, ring)
    assert opened(state, KeyRing([b"\1" * KEY_BYTES, KEY], audience="airline"))
    refused(state, KeyRing([KEY], audience="railway"))
    refused(state, KeyRing([b"\1" * KEY_BYTES], audience="airline"))
    refused(state[:-1] + ("A" if state[-1] != "A" else "B"), ring)
    refused(state.swapcase(), ring)
    refused(first_round(revision, KeyRing()), ring)


@pytest.mark.spec("R0791")
@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"\x80\x04.", b"[1]", b'{"a":1,"a":2}'])
def test_what_was_sealed_for_something_else_is_no_state(content: bytes) -> None:
    """RQ-08: a state is JSON, whatever else our own seal may open to."""
    ring = KeyRing([KEY])
    refused(ring.seal(content), ring)


@pytest.mark.spec("R0792")
def test_answers_that_are_too_large_to_travel_end_the_call_in_words(revision: Revision) -> None:
    ring = KeyRing([KEY])
    exchange = call(
        server_of(revision), request(revision, 1, "tools/call", CALL, {"elicitation": {}})
    )
    interview = InputRounds(exchange.peer, exchange.method)
    interview.keep("page", b'"' + b"x" * MAX_SEALED_CHARACTERS + b'"')
    interview.ask(elicit("Which page?"))
    with pytest.raises(Fault, match="the maximum is"):
        interview.result(ring.seal, principal="ada", subject=SUBJECT, expires_at=2000.0)


# ---------------------------------------------------------------- single use


def run_on_store(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 60))


async def spends(once: SingleUse, state: str, ring: KeyRing, **changed: Any) -> bool:
    """What a server does with a retry: open it, take it, and only then run the handler."""
    memory = opened(state, ring, **changed)
    try:
        await once.spend(state, memory, now=(BOUND | changed)["now"])
    except Fault as fault:
        return not in_words(fault)
    return True


def in_words(fault: Fault) -> bool:
    assert fault.kind is FaultKind.INVALID_PARAMS
    assert "call again without it" in fault.message
    return True


@pytest.mark.parametrize("revision", [JULY_2026], ids=["2026-07-28"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_of_a_hundred_replays_at_once_exactly_one_has_an_effect(
    revision: Revision, kind: str, tmp_path: Path
) -> None:
    """RQ-05, in both stores."""

    async def body() -> None:
        def make() -> Store:
            return SqliteStore(tmp_path / "store.db") if kind == "sqlite" else shared

        shared = MemoryStore()
        stores = [make(), make()]  # two replicas
        ring = KeyRing([KEY])
        for _ in range(3):
            state = first_round(revision, ring)
            took = await asyncio.gather(
                *(spends(SingleUse(stores[n % 2]), state, ring) for n in range(100))
            )
            assert took.count(True) == 1
            assert not await spends(SingleUse(stores[0]), state, ring)
        for store in stores:
            await store.close()

    run_on_store(body)


@pytest.mark.parametrize("revision", [JULY_2026], ids=["2026-07-28"])
def test_another_spelling_of_a_spent_state_is_refused_too(revision: Revision) -> None:
    async def body() -> None:
        ring, once = KeyRing([KEY]), SingleUse(MemoryStore())
        state = first_round(revision, ring)
        assert await spends(once, state, ring)
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for other in (f"{state}=", f"{state}==", f"{state}\n", f" {state}"):
            refused(other, ring)
        for letter in set(letters) - {state[-1]}:  # the last one has bits that mean nothing
            refused(state[:-1] + letter, ring)

    run_on_store(body)


@pytest.mark.parametrize("revision", [JULY_2026], ids=["2026-07-28"])
def test_a_spent_state_is_remembered_for_longer_than_it_could_be_opened(
    revision: Revision,
) -> None:
    async def body() -> None:
        clock = [0.0]
        store = MemoryStore(clock=lambda: clock[0])
        ring, once = KeyRing([KEY]), SingleUse(store)
        state = first_round(revision, ring)
        assert await spends(once, state, ring)
        clock[0] += LIVES_S + CLOCK_SKEW_S - 0.001
        behind = 1000.0 + LIVES_S - 0.001  # a replica whose clock is slow by the whole skew
        assert not await spends(once, state, ring, now=behind)
        clock[0] += 2.0
        refused(state, ring, now=1000.0 + LIVES_S)
        await store.put("eve", "k", b"", None)
        assert await store.get("ada", "k") is None
        assert len(store._things) == 1  # and then it is forgotten

    run_on_store(body)


@pytest.mark.parametrize("revision", [JULY_2026], ids=["2026-07-28"])
def test_other_states_and_callers_are_not_concerned(revision: Revision) -> None:
    async def body() -> None:
        ring, once = KeyRing([KEY]), SingleUse(MemoryStore())
        one, two = first_round(revision, ring), first_round(revision, ring)
        assert await spends(once, one, ring)
        assert await spends(once, two, ring)
        assert not await spends(once, one, ring)

    run_on_store(body)


@pytest.mark.parametrize("revision", [JULY_2026], ids=["2026-07-28"])
def test_where_the_store_cannot_say_the_state_does_not_pass(revision: Revision) -> None:
    async def body() -> None:
        ring, store = KeyRing([KEY]), MemoryStore(limits=StoreLimits(principal_entries=1))
        once = SingleUse(store)
        assert await spends(once, first_round(revision, ring), ring)
        with pytest.raises(Refused):
            await spends(once, first_round(revision, ring), ring)

    run_on_store(body)
