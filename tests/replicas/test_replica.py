"""Replicas on one store: leases, messages to one and to all, requests, and what is lost."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
import pytest

from colonnade.auth.seal import KeyRing
from colonnade.errors import ConnectionLost, InvalidArgument, Refused
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.replicas import replica as module
from colonnade.replicas.replica import (
    BROADCAST_TOPIC,
    MAX_BODY_BYTES,
    MAX_HANDLERS,
    MESSAGE_VERSION,
    Replica,
    ReplicaLost,
    ReplicaMessage,
    decode_message,
    draw_replica_name,
    is_replica_name,
)
from replicas.shared_store import ReplicaFixture, run_replicas

SENDER = "abcdefghijklmn27"


class Received:
    """A handler that keeps what it gets."""

    def __init__(self, response: bytes | None = None) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._response = response

    async def __call__(self, sender: str, body: bytes) -> bytes | None:
        self.messages.append((sender, body))
        return self._response


def encoded(**fields: object) -> bytes:
    """A message, with these fields changed."""
    values: dict[str, object] = {
        "version": MESSAGE_VERSION,
        "sender": SENDER,
        "form": "message",
        "kind": "news",
        "id": 0,
        "body": b"",
    }
    return msgspec.msgpack.encode(list((values | fields).values()))


# ---------------------------------------------------------------- names and messages


def test_a_name_has_sixteen_characters_that_need_no_escape_and_no_separator() -> None:
    names = {draw_replica_name() for _ in range(1000)}
    assert len(names) == 1000
    assert all(is_replica_name(name) for name in names)
    assert set("".join(names)) == set("abcdefghijklmnopqrstuvwxyz234567")


@pytest.mark.parametrize(
    "text", ["", "a" * 15, "a" * 17, "A" * 16, "a" * 15 + "1", "a" * 16 + "\n"]
)
def test_other_texts_are_no_names(text: str) -> None:
    assert not is_replica_name(text)


def test_a_message_is_decoded_as_it_was_sent() -> None:
    message = ReplicaMessage(MESSAGE_VERSION, SENDER, "request", "news", 7, b"\x00\xff")
    assert decode_message(msgspec.msgpack.encode(message)) == message


def test_a_member_that_a_newer_release_has_added_is_ignored() -> None:
    longer = msgspec.msgpack.encode(
        [MESSAGE_VERSION, SENDER, "message", "news", 0, b"x", 1, "more"]
    )
    message = decode_message(longer)
    assert isinstance(message, ReplicaMessage)
    assert message.body == b"x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encoded(version=MESSAGE_VERSION + 1), "newer release"),
        (msgspec.msgpack.encode([MESSAGE_VERSION + 1, {"all": "new"}]), "newer release"),
        (b"", "malformed"),
        (b"{}", "malformed"),
        (b"\x91" * 100_000, "malformed"),
        (encoded(sender="../etc/passwd"), "malformed"),
        (encoded(form="new"), "malformed"),
        (encoded(kind="k" * 65), "malformed"),
        (encoded(body="text"), "malformed"),
    ],
)
def test_what_cannot_be_read_has_a_reason(data: bytes, reason: str) -> None:
    found = decode_message(data)
    assert isinstance(found, str)
    assert reason in found


# ---------------------------------------------------------------- messages


def test_a_message_to_one_replica_reaches_that_one_only() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b, c = [await replicas.started() for _ in range(3)]
        inboxes = {one: Received() for one in (a, b, c)}
        for one, received in inboxes.items():
            one.handle("news", received)
        await a.send(b.name, "news", b"1")
        await c.send(b.name, "news", b"2")
        await b.send(b.name, "news", b"3")
        await replicas.settle()
        assert inboxes[b].messages == [(a.name, b"1"), (c.name, b"2"), (b.name, b"3")]
        assert not inboxes[a].messages
        assert not inboxes[c].messages

    run_replicas(body)


def test_a_broadcast_reaches_all_others_and_not_its_sender() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b, c = [await replicas.started() for _ in range(3)]
        inboxes = [Received(), Received(), Received()]
        for one, received in zip((a, b, c), inboxes, strict=True):
            one.handle("news", received)
        await a.broadcast("news", b"1")
        await replicas.settle()
        assert [received.messages for received in inboxes] == [
            [],
            [(a.name, b"1")],
            [(a.name, b"1")],
        ]

    run_replicas(body)


def test_handlers_start_in_the_order_of_arrival_and_run_beside_each_other() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        began: list[bytes] = []
        done: list[bytes] = []
        first = asyncio.Event()

        async def handler(_: str, body: bytes) -> None:
            began.append(body)
            if body == b"0":
                await first.wait()
            done.append(body)

        b.handle("news", handler)
        for number in range(5):
            await a.send(b.name, "news", b"%d" % number)
        await replicas.settle()
        assert began == [b"0", b"1", b"2", b"3", b"4"]
        assert done == [b"1", b"2", b"3", b"4"]
        first.set()
        await replicas.settle()
        assert done[-1] == b"0"

    run_replicas(body)


def test_unknown_kinds_and_newer_versions_are_ignored_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        received = Received()
        b.handle("news", received)
        for _ in range(3):
            await a.send(b.name, "unheard-of", b"")
            await replicas.store.publish(SERVER_PRINCIPAL, BROADCAST_TOPIC, encoded(version=99))
            await replicas.store.publish(SERVER_PRINCIPAL, BROADCAST_TOPIC, b"garbage")
        await a.send(b.name, "news", b"still here")
        await replicas.settle()
        assert received.messages == [(a.name, b"still here")]
        lines = [r.getMessage() for r in caplog.records if b.name in r.getMessage()]
        assert len(lines) == 3
        assert sum("unheard-of" in line for line in lines) == 1
        assert sum("newer release" in line for line in lines) == 1

    with caplog.at_level(logging.WARNING, "colonnade.replicas"):
        run_replicas(body)


def test_a_body_of_a_newer_version_is_missed_or_refused_and_an_older_one_is_read() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        old, new = await replicas.started(), await replicas.started()
        at_old, at_new, missed = Received(), Received(), list[str]()
        old.handle("news", at_old)
        old.on_missed(lambda: missed.append("old"))
        new.handle("news", at_new, version=2)
        new.on_missed(lambda: missed.append("new"))
        await new.send(old.name, "news", b"2")
        await new.broadcast("news", b"2")
        await old.send(new.name, "news", b"1")
        with pytest.raises(ReplicaLost, match="older release") as caught:
            await new.request(old.name, "news", b"2")
        assert caught.value.not_sent
        await replicas.settle()
        assert (at_old.messages, at_new.messages) == ([], [(old.name, b"1")])
        assert missed == ["old", "old"]

    run_replicas(body)


def test_a_handler_that_fails_is_logged_and_the_next_message_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        received = Received()

        async def handler(sender: str, body: bytes) -> None:
            if body == b"bad":
                raise ValueError("this one")
            await received(sender, body)

        b.handle("news", handler)
        await a.send(b.name, "news", b"bad")
        await a.send(b.name, "news", b"good")
        await replicas.settle()
        assert received.messages == [(a.name, b"good")]

    run_replicas(body)
    assert "this one" in caplog.text


def test_a_kind_has_one_handler() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a = replicas.make()
        a.handle("news", Received())
        with pytest.raises(InvalidArgument, match="news"):
            a.handle("news", Received())
        with pytest.raises(InvalidArgument):
            a.handle("k" * 65, Received())

    run_replicas(body)


def test_a_body_that_is_too_large_is_refused_before_it_is_sent() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        received = Received()
        b.handle("news", received)
        with pytest.raises(Refused, match="too large"):
            await a.send(b.name, "news", bytes(MAX_BODY_BYTES + 1))
        await a.send(b.name, "news", bytes(MAX_BODY_BYTES))
        await replicas.settle()
        assert len(received.messages) == 1

    run_replicas(body)


# ---------------------------------------------------------------- requests


def test_a_request_has_the_response_of_the_handler() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()

        async def double(sender: str, body: bytes) -> bytes:
            assert sender == a.name
            return body * 2

        b.handle("double", double)
        b.handle("nothing", Received())
        assert await a.request(b.name, "double", b"ab") == b"abab"
        assert await a.request(b.name, "nothing", b"ab") == b""
        responses = await asyncio.gather(
            *(a.request(b.name, "double", b"%d" % number) for number in range(100))
        )
        assert responses == [b"%d" % number * 2 for number in range(100)]

    run_replicas(body)


def test_a_request_that_the_other_does_not_know_certainly_had_no_effect() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        with pytest.raises(ReplicaLost, match="does not know") as caught:
            await a.request(b.name, "unheard-of", b"")
        assert isinstance(caught.value, ConnectionLost)
        assert (caught.value.not_sent, caught.value.effect_unknown) == (True, False)

    run_replicas(body)


def test_a_request_whose_handler_failed_may_have_had_an_effect() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()

        async def fail(sender: str, body: bytes) -> bytes:
            raise ValueError("secret of the other")

        async def large(sender: str, body: bytes) -> bytes:
            return bytes(MAX_BODY_BYTES + 1)

        b.handle("fail", fail)
        b.handle("large", large)
        with pytest.raises(ReplicaLost, match="failed") as caught:
            await a.request(b.name, "fail", b"")
        assert (caught.value.not_sent, caught.value.effect_unknown) == (False, True)
        assert "secret" not in str(caught.value)
        with pytest.raises(ReplicaLost, match="too large"):
            await a.request(b.name, "large", b"")

    run_replicas(body)


def test_a_request_to_what_is_no_replica_fails_at_once_and_without_a_message() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a = await replicas.started()
        before = len(replicas.store.published)
        for name in (draw_replica_name(), "x" * 10_000, ""):
            with pytest.raises(ReplicaLost) as caught:
                await a.request(name, "news", b"")
            assert caught.value.not_sent
            assert len(str(caught.value)) < 200
        with pytest.raises(ReplicaLost, match="does not exist"):
            await a.send("x" * 10_000, "news", b"")
        assert len(replicas.store.published) == before

    run_replicas(body)


def test_a_request_without_a_response_ends_at_its_timeout() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()

        async def never(sender: str, body: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        b.handle("never", never)
        waiting = asyncio.ensure_future(a.request(b.name, "never", b""))
        await replicas.clock.advance(0.9)
        assert not waiting.done()
        await replicas.clock.advance(0.2)
        with pytest.raises(ReplicaLost, match="within 1 s") as caught:
            await waiting
        assert caught.value.effect_unknown

    run_replicas(body)


def test_a_request_to_a_replica_that_dies_ends_when_its_lease_lapses() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        b.handle("news", Received())
        replicas.stop(b)
        waiting = asyncio.ensure_future(a.request(b.name, "news", b"", timeout_s=600.0))
        await replicas.clock.advance(3.0)
        assert not waiting.done()
        await replicas.clock.advance(4.0)
        with pytest.raises(ReplicaLost, match="lapsed"):
            await waiting

    run_replicas(body)


def test_a_response_of_another_replica_than_the_one_that_was_asked_is_ignored() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        right = asyncio.Event()

        async def slow(sender: str, body: bytes) -> bytes:
            await right.wait()
            return b"right"

        b.handle("slow", slow)
        waiting = asyncio.ensure_future(a.request(b.name, "slow", b""))
        await replicas.settle()
        for id in range(3):
            forged = encoded(form="response", kind="slow", id=id, body=b"wrong")
            await replicas.store.publish(SERVER_PRINCIPAL, f"replica {a.name}", forged)
        await replicas.settle()
        right.set()
        assert await waiting == b"right"

    run_replicas(body)


def test_a_response_that_comes_twice_or_too_late_is_ignored() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        b.handle("news", Received(b"first"))
        assert await a.request(b.name, "news", b"") == b"first"
        [(topic, response)] = [
            message for message in replicas.store.published if message[0] == f"replica {a.name}"
        ]
        await replicas.store.publish(SERVER_PRINCIPAL, topic, response)
        await replicas.settle()
        assert await a.request(b.name, "news", b"") == b"first"

    run_replicas(body)


def test_too_many_requests_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_REQUESTS", 2)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        held = asyncio.Event()

        async def hold(sender: str, body: bytes) -> bytes:
            await held.wait()
            return body

        b.handle("hold", hold)
        waiting = [asyncio.ensure_future(a.request(b.name, "hold", b"")) for _ in range(2)]
        await replicas.settle()
        with pytest.raises(Refused, match="2 requests wait"):
            await a.request(b.name, "hold", b"")
        held.set()
        assert await asyncio.gather(*waiting) == [b"", b""]

    run_replicas(body)


def test_a_replica_with_too_many_handlers_refuses_requests_and_says_that_it_missed_messages() -> (
    None
):
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        held = asyncio.Event()
        handled: list[bytes] = []
        missed: list[bool] = []

        async def hold(sender: str, body: bytes) -> bytes:
            await held.wait()
            handled.append(body)
            return body

        b.handle("hold", hold)
        b.on_missed(lambda: missed.append(True))
        for number in range(MAX_HANDLERS):
            await a.send(b.name, "hold", b"")
            if number % 100 == 0:
                await replicas.settle()
        await replicas.settle()
        assert not missed
        with pytest.raises(ReplicaLost, match="too busy") as caught:
            await a.request(b.name, "hold", b"")
        assert caught.value.not_sent
        await a.send(b.name, "hold", b"")
        await replicas.settle()
        assert missed == [True]
        held.set()
        await replicas.settle()
        assert len(handled) == MAX_HANDLERS
        assert await a.request(b.name, "hold", b"again") == b"again"

    run_replicas(body)


# ---------------------------------------------------------------- leases


def test_a_replica_is_alive_while_it_renews_its_lease() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        assert await a.is_alive(b.name)
        assert await a.is_alive(a.name)
        await replicas.clock.advance(60.0)
        assert await a.is_alive(b.name)
        assert a.holds_lease
        await b.close()
        await replicas.clock.advance(1.0)
        assert not await a.is_alive(b.name)
        assert not b.holds_lease

    run_replicas(body)


def test_a_look_at_a_lease_is_believed_for_a_second() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        assert await a.is_alive(b.name)
        await b.close()
        await replicas.clock.advance(0.9)
        assert await a.is_alive(b.name)
        await replicas.clock.advance(0.2)
        assert not await a.is_alive(b.name)

    run_replicas(body)


def test_a_replica_that_is_back_is_found_at_once() -> None:
    """What it confirms then must not be taken over because it was dead a moment ago."""

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        replicas.stop(b)
        await replicas.clock.advance(6.0)
        assert not await a.is_alive(b.name)
        await replicas.store.put(SERVER_PRINCIPAL, f"replica {b.name}", b"lease", 5.0)
        assert await a.is_alive(b.name)
        await replicas.resume(b)

    run_replicas(body)


def test_names_that_clients_make_up_are_looked_up_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN_LEASES", 4)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        for _ in range(10):
            assert not await a.is_alive(draw_replica_name())
        assert not await a.is_alive("no name")
        assert await a.is_alive(b.name)

    run_replicas(body)


def test_a_replica_that_was_stopped_beyond_its_lease_knows_it_when_it_goes_on() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        missed: list[bool] = []
        b.on_missed(lambda: missed.append(b.holds_lease))
        replicas.stop(b)
        await replicas.clock.advance(6.0)
        assert not await a.is_alive(b.name)
        assert not b.holds_lease
        await replicas.resume(b)
        await replicas.clock.advance(2.0)
        assert missed == [True]
        assert await a.is_alive(b.name)

    run_replicas(body)


def test_a_replica_whose_lease_the_store_has_lost_knows_it_at_the_next_renewal() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        missed: list[bool] = []
        b.on_missed(lambda: missed.append(b.holds_lease))
        await replicas.clock.advance(4.0)
        assert missed == []
        await replicas.store.delete(SERVER_PRINCIPAL, f"replica {b.name}")
        await replicas.clock.advance(2.0)
        assert missed == [True]
        assert await a.is_alive(b.name)

    run_replicas(body)


def test_a_replica_is_started_once() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a = await replicas.started()
        with pytest.raises(InvalidArgument):
            await a.start()
        await a.close()
        await a.close()
        with pytest.raises(InvalidArgument):
            await a.start()

    run_replicas(body)


def test_closing_a_replica_fails_its_requests_and_cancels_its_handlers() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        cancelled: list[bool] = []

        async def hold(sender: str, body: bytes) -> bytes:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(True)
            return b""

        b.handle("hold", hold)
        waiting = asyncio.ensure_future(a.request(b.name, "hold", b"", timeout_s=60.0))
        await replicas.settle()
        await a.close()
        with pytest.raises(ReplicaLost, match="closed") as caught:
            await waiting
        assert caught.value.effect_unknown
        with pytest.raises(ReplicaLost):
            await a.request(b.name, "hold", b"")
        await b.close()
        assert cancelled == [True]

    run_replicas(body)


# ---------------------------------------------------------------- the store is away


def test_messages_that_may_have_been_missed_are_announced_when_they_are_received_again() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        received = Received()
        seen: list[int] = []

        def fail() -> None:
            raise ValueError

        b.handle("news", received)
        b.on_missed(lambda: seen.append(len(received.messages)))
        b.on_missed(fail)  # does not stop the others
        b.on_missed(lambda: seen.append(-1))
        replicas.store.cut_listeners()
        await replicas.settle()
        assert set(seen) == {0, -1}
        await a.send(b.name, "news", b"1")
        await a.broadcast("news", b"2")
        await replicas.settle()
        assert sorted(received.messages) == [(a.name, b"1"), (a.name, b"2")]

    run_replicas(body)


def test_without_the_store_nothing_crashes_and_all_goes_on_after_it() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        missed: list[bool] = []
        b.handle("news", Received(b"yes"))
        b.on_missed(lambda: missed.append(True))
        replicas.store.leave()
        await replicas.clock.advance(60.0)
        with pytest.raises(ReplicaLost, match="the store does not respond") as caught:
            await a.request(b.name, "news", b"")
        assert caught.value.not_sent
        assert not a.holds_lease
        assert not missed
        replicas.store.away = False
        await replicas.clock.advance(4.0)
        assert missed
        assert await a.request(b.name, "news", b"") == b"yes"

    run_replicas(body)


def test_a_replica_starts_without_the_store_and_joins_when_it_is_there() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        replicas.store.leave()
        a, b = await replicas.started(), await replicas.started()
        assert not a.holds_lease
        b.handle("news", Received(b"yes"))
        replicas.store.away = False
        await replicas.clock.advance(4.0)
        assert await a.request(b.name, "news", b"") == b"yes"

    run_replicas(body)


def test_a_replica_whose_store_is_closed_ends_quietly() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a = await replicas.started()
        await replicas.store.close()
        await replicas.clock.advance(10.0)
        assert not a.holds_lease
        await a.close()
        late = Replica(replicas.store, clock=replicas.clock.monotonic)
        await late.start()
        await late.close()

    run_replicas(body)


def test_errors_that_a_store_should_not_raise_do_not_end_a_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        b.handle("news", Received(b"yes"))

        async def fail(*arguments: object) -> None:
            raise OSError("disk")

        def fail_to_listen(*arguments: object) -> object:
            raise OSError("disk")

        monkeypatch.setattr(replicas.store, "put", fail)
        monkeypatch.setattr(replicas.store, "swap", fail)
        monkeypatch.setattr(replicas.store, "listen", fail_to_listen)
        replicas.store.cut_listeners()
        await replicas.clock.advance(10.0)
        assert not b.holds_lease
        monkeypatch.undo()
        await replicas.clock.advance(4.0)
        assert await a.request(b.name, "news", b"") == b"yes"

    run_replicas(body)


def test_a_store_that_refuses_to_look_at_a_lease_does_not_end_a_request_that_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(), await replicas.started()
        go_on = asyncio.Event()

        async def hold(sender: str, body: bytes) -> bytes:
            await go_on.wait()
            return b"done"

        async def refuse(*arguments: object) -> bytes:
            raise Refused("too many calls wait for the store")

        b.handle("hold", hold)
        waiting = asyncio.ensure_future(a.request(b.name, "hold", b"", timeout_s=60.0))
        await replicas.settle()
        monkeypatch.setattr(replicas.store, "get", refuse)
        await replicas.clock.advance(3.0)
        assert not waiting.done()
        with pytest.raises(ReplicaLost, match="too many calls") as caught:
            await a.request(b.name, "hold", b"")
        assert caught.value.not_sent
        go_on.set()
        assert await waiting == b"done"

    run_replicas(body)


# ---------------------------------------------------------------- keys

RING = KeyRing([bytes(range(32))], audience="gateway")


def test_replicas_with_the_same_keys_understand_each_other_and_the_store_reads_nothing() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(seal=RING), await replicas.started(seal=RING)
        received = Received(b"the answer")
        b.handle("news", received)
        assert await a.request(b.name, "news", b"the question") == b"the answer"
        await a.broadcast("news", b"to all")
        await replicas.settle()
        assert received.messages == [(a.name, b"the question"), (a.name, b"to all")]
        sent = b"".join(data for _, data in replicas.store.published)
        assert b"the question" not in sent
        assert b"the answer" not in sent
        assert b"to all" not in sent

    run_replicas(body)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(lambda data, topic: data, id="without keys"),
        pytest.param(
            lambda data, topic: KeyRing([b"o" * 32], audience="gateway").encrypt(data, topic),
            id="with other keys",
        ),
        pytest.param(
            lambda data, topic: KeyRing([bytes(range(32))], audience="other").encrypt(data, topic),
            id="of another gateway with the same keys",
        ),
        pytest.param(lambda data, topic: RING.encrypt(data, b"replica x"), id="for another inbox"),
        pytest.param(lambda data, topic: RING.encrypt(data, topic)[:-1], id="cut"),
        pytest.param(lambda data, topic: RING.encrypt(data, topic) + b"x", id="longer"),
        pytest.param(lambda data, topic: b"", id="empty"),
        pytest.param(lambda data, topic: b"\x01" * (1 << 20), id="a mebibyte of nothing"),
    ],
)
def test_what_was_not_encrypted_for_this_inbox_is_ignored_and_is_no_gap(
    forged: Callable[[bytes, bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(seal=RING), await replicas.started(seal=RING)
        received, missed = Received(), Received()
        b.handle("news", received)
        b.on_missed(lambda: missed.messages.append(("", b"")))
        topic = f"replica {b.name}"
        data = forged(encoded(sender=a.name, body=b"forged"), topic.encode())
        for _ in range(3):
            await replicas.store.publish(SERVER_PRINCIPAL, topic, data)
        await a.send(b.name, "news", b"true")
        await replicas.settle()
        assert received.messages == [(a.name, b"true")]
        assert missed.messages == []

    with caplog.at_level(logging.WARNING, "colonnade.replicas"):
        run_replicas(body)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not encrypted with its keys" in line


def test_a_broadcast_of_another_group_is_not_received(caplog: pytest.LogCaptureFixture) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await replicas.started(group="one"), await replicas.started(group="two")
        c = await replicas.started(group="one")
        inboxes = {one: Received() for one in (b, c)}
        for one, received in inboxes.items():
            one.handle("news", received)
        await a.broadcast("news", b"1")
        await replicas.settle()
        assert inboxes[b].messages == []
        assert inboxes[c].messages == [(a.name, b"1")]

    with caplog.at_level(logging.WARNING, "colonnade.replicas"):
        run_replicas(body)
    assert caplog.records == []
