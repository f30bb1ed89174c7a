"""200,000 mutated inputs through frames, links, streams, HTTP rules and the readers of text.

The seed is fixed, so that a run says the same everywhere; `COLONNADE_FUZZ_SEED=7` tries another one.
What a run finds is printed small enough to be kept in `fuzz/regressions/`, which is tried here too.
"""

import json
import os
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from colonnade.errors import Fault
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http.security import AcceptedTypes, EndpointChecks, Headers
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.protocol.http.sse import ServerSentEvent as StreamEvent
from colonnade.protocol.jsonrpc import Batch, Frame, Request, RequestId, decode
from colonnade.protocol.link.events import LinkEvent, MessageIgnored, Send
from colonnade.protocol.link.handshake import Handshake, Phase
from colonnade.protocol.link.in_flight import IncomingRequests
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer, negotiate
from colonnade.protocol.revision import ALL, EVERY, Revision, Revisions
from fuzz import run as fuzzing
from fuzz.corpus import EVERY_MESSAGE, JSON, MESSAGES, params_of, results_of, rows
from fuzz.corpus_wire import POSTS, STREAMS
from fuzz.frames import Decode, Frames
from fuzz.links import Links
from fuzz.mutate import MAX_INPUT_BYTES
from fuzz.posts import Posts
from fuzz.scenes import SCENES, build
from fuzz.streams import Streams
from fuzz.target import Case, Finding, Target, attempt, kept_cases
from fuzz.texts import Nouns

TOTAL = 200_000
SEED = int(os.environ.get("COLONNADE_FUZZ_SEED", fuzzing.DEFAULT_SEED))
# A defect that takes more inputs than this would hide from a run over one target's share.
SOON = 5_000

TARGETS = {target.name: (target, count) for target, count in fuzzing.counts(TOTAL)}
KEPT = kept_cases()
by_target = pytest.mark.parametrize("name", TARGETS)
by_revision = pytest.mark.parametrize("spoken", ALL, ids=[revision.date for revision in ALL])


@pytest.mark.slow
@by_target
def test_mutated_inputs_meet_nothing_but_our_own_answers(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target, count = TARGETS[name]
    try:
        ran = fuzzing.run(target, count, SEED)
    except Finding as finding:
        pytest.fail(f"seed {SEED}: {fuzzing.shrink(target, finding)}")
    with capsys.disabled():
        print(f"\n{ran}")
    assert ran.inputs == ran.answers.total() == count


def test_the_targets_share_exactly_two_hundred_thousand_inputs() -> None:
    assert sum(count for _, count in TARGETS.values()) == TOTAL
    assert all(count > 0 for _, count in TARGETS.values())


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for _, name, case in KEPT], ids=[words for words, _, _ in KEPT]
)
def test_what_was_found_once_stays_fixed(name: str, case: Case) -> None:
    target, _ = TARGETS[name]
    attempt(target, case)


# ---------------------------------------------------------------- the inputs


@by_revision
def test_every_method_of_every_revision_has_seeds_that_are_valid(spoken: Revision) -> None:
    said = {
        seed.tree.get("method") for seed in MESSAGES[spoken.date] if isinstance(seed.tree, dict)
    }
    for row in rows(spoken):
        assert row.name in said
        for params in params_of(row, spoken):
            decode_as(row.params, _written(params))
        for result in results_of(row, spoken) if row.result else ():
            asks = result.get("resultType") == "input_required"
            decode_as(
                t.InputRequiredResult if asks else row.result or t.EmptyResult, _written(result)
            )
    for seed in MESSAGES[spoken.date]:
        frame = decode(seed.body)
        assert isinstance(frame, Batch) is isinstance(seed.tree, list)


def _written(tree: JSON) -> bytes:
    return b"{}" if tree is None else json.dumps(tree).encode()


def test_every_seed_passes_every_check_as_it_is() -> None:
    cases: list[tuple[Target, Case]] = []
    cases += [(Frames(), Case("1", (seed.body,))) for seed in EVERY_MESSAGE]
    cases += [(Streams(), Case("1", (stream,))) for stream in STREAMS]
    for post in POSTS:
        parts = [part for pair in post.headers for part in pair]
        cases.append((Posts(), Case(post.known or "-", (post.method, post.body.body, *parts))))
    for where, scene in SCENES.items():
        bodies = tuple(seed.body for seed in MESSAGES[scene.revision.date])
        cases.append((Links(), Case(where, bodies)))
    for target, case in cases:
        attempt(target, case)


def test_a_modern_seed_is_let_in_over_http() -> None:
    answers = Counter(
        kind
        for post in POSTS
        for kind in Posts().check(
            Case(
                post.known or "-",
                (post.method, post.body.body, *(part for pair in post.headers for part in pair)),
            )
        )
    )
    assert answers["200 modern request"] > 15
    assert answers["200 session request"] > 15


def test_the_scenes_are_what_they_are_called() -> None:
    stages = {"new": Phase.NEW, "opening": Phase.OPENING, "closed": Phase.CLOSED}
    for scene in SCENES.values():
        link = build(scene)
        enveloped_server = scene.side is Side.SERVER and not scene.revision.handshake
        idle = Phase.NEW if enveloped_server else Phase.OPEN
        assert link.phase is stages.get(scene.stage, idle), scene
        if scene.stage == "busy":
            assert len(link.snapshot().sent) + len(list(link._incoming)) > 3, scene
        if scene.stage in ("open", "busy") and not enveloped_server:
            assert link.peer is not None
            assert link.peer.revision is scene.revision


@by_target
def test_inputs_are_mutated_bounded_and_the_same_for_the_same_seed(name: str) -> None:
    target, _ = TARGETS[name]
    whole = {seed.body for seed in EVERY_MESSAGE} | set(STREAMS)
    cases = _drawn(target, 400, SEED)
    parts = [part for case in cases for part in case.parts]
    assert max(map(len, parts)) <= MAX_INPUT_BYTES
    assert cases == _drawn(target, 400, SEED)
    assert cases != _drawn(target, 400, SEED + 1)
    if name in ("frames", "links", "streams"):
        # Now and then what chance makes of one seed is another one.
        assert sum(part in whole for part in parts) < len(parts) / 50


def _drawn(target: Target, count: int, seed: int) -> list[Case]:
    rng = Random(seed)
    return [target.draw(rng, 9) for _ in range(count)]


# ---------------------------------------------------------------- does it find anything?


def _finds(target: Target, words: str) -> None:
    with pytest.raises(Finding, match=words):
        fuzzing.run(target, SOON, fuzzing.DEFAULT_SEED)


def _trusts_utf8(body: bytes) -> Frame | Batch:
    body.decode()
    return decode(body)


def _trusts_the_stack(body: bytes) -> Frame | Batch:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        _depth(msgspec.json.decode(body))
    return decode(body)


def _depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inside), default=0)


def _takes_texts_for_numbers(body: bytes) -> Frame | Batch:
    return decode(body.replace(b'"id":"1"', b'"id":1'))


def _forgets_the_first_of_two(body: bytes) -> Frame | Batch:
    try:
        tree = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return decode(body)
    return decode(msgspec.json.encode(tree))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (_trusts_utf8, "UnicodeDecodeError was let out"),
        (_trusts_the_stack, "RecursionError was let out"),
        (_takes_texts_for_numbers, "the id was read as another one"),
        (_forgets_the_first_of_two, "two members of one name"),
    ],
)
def test_a_broken_reader_of_frames_is_found(broken: Decode, words: str) -> None:
    _finds(Frames(broken), words)


class CarelessHandshake(Handshake):
    """Knows of no phases."""

    def advance(self, step: str) -> bool:
        self.phase = Phase.OPEN
        return True

    def answer(self, params: t.InitializeRequestParams) -> Revision:
        return negotiate(params.protocol_version, self.accepts)

    def opened(self, params: t.InitializeRequestParams, revision: Revision) -> Peer:
        self.phase, self.peer = Phase.OPENING, Peer(revision, params.capabilities)
        return self.peer


class ForgetsThePhase(DuplexLink):
    def __init__(self, side: Side, identity: Identity, accepts: Revisions = EVERY) -> None:
        super().__init__(side, identity, accepts)
        self._handshake = CarelessHandshake(side, accepts)


class ServesBeforeTheHandshake(DuplexLink):
    def _detect_peer(self, request: Request, meta: msgspec.Raw) -> Peer | None:
        try:
            return super()._detect_peer(request, meta)
        except Fault:
            return Peer(self.accepts[0], t.ClientCapabilities())


class SettlesByText(DuplexLink):
    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        return super().receive(data.replace(b'"id":"1"', b'"id":1'), now)


class SettlesTheOldest(DuplexLink):
    """Takes every error for the answer to whatever waits longest."""

    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        waiting = self.snapshot().sent
        if b'"error"' in data and waiting and self.phase is Phase.OPEN:
            data = b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":""}}' % waiting[0].id
        return super().receive(data, now)


class CarelessIncoming(IncomingRequests):
    """Takes every id for a new one."""

    def uses(self, id: RequestId) -> bool:
        return False


class ForgetsWhatRuns(DuplexLink):
    def __init__(self, side: Side, identity: Identity, accepts: Revisions = EVERY) -> None:
        super().__init__(side, identity, accepts)
        self._incoming = CarelessIncoming()


class AnswersAtLength(DuplexLink):
    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        events = super().receive(data, now)
        said = msgspec.json.encode(
            {"jsonrpc": "2.0", "method": "x", "params": {"echo": data.hex()}}
        )
        return [Send(said) if isinstance(event, MessageIgnored) else event for event in events]


class LetsSomethingOut(DuplexLink):
    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        frame = json.loads(data) if data.startswith(b"{") and data.endswith(b"}") else None
        return super().receive(data, now) if frame is not None else []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (ForgetsThePhase, "no step leads|without a step"),
        (ServesBeforeTheHandshake, "served before the handshake|sent a request"),
        (SettlesByText, "by a message for another"),
        (SettlesTheOldest, "by a message for another"),
        (ForgetsWhatRuns, "ended unseen|an answer under a running id"),
        (AnswersAtLength, "an answer of|said after the end"),
        (LetsSomethingOut, "was let out"),
    ],
)
def test_a_broken_link_is_found(broken: type[DuplexLink], words: str) -> None:
    _finds(Links(broken), words)


class BreaksAtForeignLines(EventStreamParser):
    def feed(self, chunk: bytes) -> list[StreamEvent]:
        return super().feed(chunk.replace("\u2028".encode(), b"\n"))


class ForgetsTheReturn(EventStreamParser):
    def feed(self, chunk: bytes) -> list[StreamEvent]:
        self._after_cr = False
        return super().feed(chunk)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (BreaksAtForeignLines, "not those of the standard|another chunking|when sent on"),
        (ForgetsTheReturn, "another chunking"),
    ],
)
def test_a_broken_reader_of_streams_is_found(broken: type[EventStreamParser], words: str) -> None:
    _finds(Streams(broken), words)


class AsksNobody(EndpointChecks):
    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        return super().check(method, {**headers, b"host": b"localhost:8080"})


class ReadsTheHostFromTheLeft(EndpointChecks):
    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        return super().check(method, {**headers, b"host": headers.get(b"host", b"")[:14]})


class TrustsHeaders(EndpointChecks):
    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        headers.get(b"accept", b"").decode()
        return super().check(method, headers)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (AsksNobody, "let in for"),
        (ReadsTheHostFromTheLeft, "let in for"),
        (TrustsHeaders, "UnicodeDecodeError was let out"),
    ],
)
def test_a_broken_check_of_origins_is_found(broken: type[EndpointChecks], words: str) -> None:
    _finds(Posts(broken), words)


def test_a_broken_decoder_of_types_is_found() -> None:
    def trusts_types(kind: type[t.ProtocolType], body: bytes) -> t.ProtocolType:
        return msgspec.json.decode(body, type=kind)

    _finds(Nouns(trusts_types), "was let out")


def test_a_finding_is_shrunk_to_what_shows_it() -> None:
    target = Links(LetsSomethingOut)
    case = Case("server new 2025-06-18 every", (b"[1]", b'{"id":1,"a":x}', b"{}"))
    with pytest.raises(Finding) as caught:
        attempt(target, case)
    small = fuzzing.shrink(target, caught.value)
    assert [len(part) < 6 for part in small.case.parts] == [True]
    assert "links server new 2025-06-18 every" in str(small)
