"""Whole conversations: links of both sides, in every phase and revision, against mutated messages.

What must hold after each message, whatever it was:

- nothing is raised, and what was refused (only `Dropped`, or only errors sent) changed nothing;
- a call of ours ends only by a message that names it, and an `Answered` says so;
- a request of theirs begins and ends only with a `Call` and a `Cancelled`, never unseen;
- what we send is one readable line, short, and under no id that is still being worked on.

Rules: the application beside the link does the same in every run; chance is in the inputs alone.
"""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import Any, cast

from msgspec.structs import replace

from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Batch, ErrorResponse, Frame, ResultResponse
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.in_flight import OutgoingRequest
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Peer
from fuzz.application import Application
from fuzz.corpus import EVERY_MESSAGE, JSON, MESSAGES, Seed, rows, seed
from fuzz.frames import NO_JSON, ids_in_text, second_opinion
from fuzz.mutate import mutate
from fuzz.scenes import SCENES, Make, Scene, build
from fuzz.target import MAX_WORDS, Case, check_answer, held

MEAN_LENGTH = 7
MAX_LENGTH = 30
# Remembered to be quicker, never to decide: the same message means the same with and without.
_CACHES = frozenset({"_peer_detector", "_encoders", "_method_rules", "identity", "accepts"})
_PACKAGE = "colonnade.protocol."


# After the end there is one answer; with much going on there are many.
_STAGE_WEIGHTS = {"new": 2, "opening": 4, "open": 4, "busy": 12, "closed": 1}
_NAMES = list(SCENES)
_WEIGHTS = [_STAGE_WEIGHTS[scene.stage] for scene in SCENES.values()]


def _fitting(scene: Scene) -> list[Seed]:
    """The messages that the other side may send, and those that only a certain phase takes."""
    other, revision = scene.side.other, scene.revision
    known = {row.name: row for row in rows(revision)}
    opening = {"initialize", "notifications/initialized"}
    found: list[Seed] = []
    for each in MESSAGES[revision.date]:
        aimed = _aimed(each)
        tree = aimed.tree
        if isinstance(tree, list):
            found += [aimed] if revision.batches else []
        elif "method" not in tree:
            opens = scene.stage == "opening" and "serverInfo" in tree.get("result", ())
            found += [aimed] * (15 if opens else 1) if scene.stage in ("opening", "busy") else []
        elif other in known[tree["method"]].senders:
            often = scene.stage in ("new", "opening") and tree["method"] in opening
            found += [aimed] * (8 if often else 1)
    return found


# Put into a message in place of an id: it becomes that of a call that is in flight when the
# message arrives, so that conversations go on for longer than their first few ids.
SENT, RUNNING = "@sent@", "@running@"


def _aimed(found: Seed) -> Seed:
    """The message with marks for ids, where it names a call."""
    tree = found.tree
    if isinstance(tree, dict):
        params = tree.get("params")
        if "method" not in tree and isinstance(tree.get("id"), int):
            return seed({**tree, "id": SENT})
        if isinstance(params, dict) and "progressToken" in params:
            return seed({**tree, "params": {**params, "progressToken": SENT}})
        if isinstance(params, dict) and isinstance(params.get("requestId"), str):
            return seed({**tree, "params": {**params, "requestId": RUNNING}})
    return found


def _resolved(data: bytes, link: DuplexLink) -> bytes:
    if b"@" not in data:
        return data
    calls, busy = link.snapshot().sent, running(link)
    sent = b"%d" % calls[len(data) % len(calls)].id if calls else b"0"
    raw_id = busy[len(data) % len(busy)].request.raw_id if busy else b"0"
    return data.replace(b'"%b"' % SENT.encode(), sent).replace(b'"%b"' % RUNNING.encode(), raw_id)


_FITTING = {name: _fitting(scene) for name, scene in SCENES.items()}


class Links:
    """`DuplexLink`, from its first message to its last, and all that an application does with it."""

    name = "links"

    def __init__(self, make: Make = DuplexLink) -> None:
        self._make = make

    def draw(self, rng: Random, most: int) -> Case:
        (where,) = rng.choices(_NAMES, _WEIGHTS)
        seeds = MESSAGES[SCENES[where].revision.date]
        fit = _FITTING[where]
        length = min(most, MAX_LENGTH, 1 + int(rng.expovariate(1 / MEAN_LENGTH)))
        parts: list[bytes] = []
        for _ in range(length):
            source = fit if rng.randrange(4) else seeds if rng.randrange(4) else EVERY_MESSAGE
            parts.append(mutate(rng, rng.choice(source), seeds, gently=True))
        return Case(where, tuple(parts))

    def check(self, case: Case) -> list[str]:
        scene = SCENES[case.where]
        link = build(scene, self._make)
        application = Application(link)
        kinds: list[str] = []
        for data in case.parts:
            application.now += 5
            kinds.append(self._receive(link, _resolved(data, link), application))
        _check_record(link, scene)
        return kinds

    def _receive(self, link: DuplexLink, data: bytes, application: Application) -> str:
        before = Before(link)
        events = link.receive(data, application.now)
        sent = [check_answer(event.data) for event in events if isinstance(event, Send)]
        for event in events:
            if isinstance(event, MessageIgnored):
                held(len(event.why) <= MAX_WORDS, f"{len(event.why)} characters for the log")
        before.check(link, data, events, sent)
        for event in events:
            application.hear(event)
        application.act()
        return _kind(events, sent)


def _kind(events: list[LinkEvent], sent: list[Frame | Batch]) -> str:
    kinds = {type(event).__name__.lower() for event in events if not isinstance(event, Send)}
    for frame in sent:
        failure = isinstance(frame, ErrorResponse)
        kinds.add(f"error {frame.code}" if failure else f"sent {type(frame).__name__.lower()}")
    return " + ".join(sorted(kinds)) or "nothing"


def _check_record(link: DuplexLink, scene: Scene) -> None:
    record = link.snapshot()
    again = DuplexLink.restore(record, link.identity, scene.accepts)
    held(again.snapshot() == record, "a link says something else of itself when restored")


# ---------------------------------------------------------------- before and after


# Which steps a message can make, and the event that tells of each.
_STEPS: dict[tuple[Side, Phase, Phase], type[LinkEvent]] = {
    (Side.SERVER, Phase.NEW, Phase.OPENING): PeerIdentified,
    (Side.SERVER, Phase.OPENING, Phase.OPEN): NotificationReceived,
    (Side.CLIENT, Phase.OPENING, Phase.OPEN): PeerIdentified,
    (Side.CLIENT, Phase.OPENING, Phase.NEW): RequestFinished,
    (Side.CLIENT, Phase.OPENING, Phase.CLOSED): RequestFinished,
}


class Before:
    """What a link was before a message, to be compared with what it is afterwards."""

    def __init__(self, link: DuplexLink) -> None:
        self.phase = link.phase
        self.peer = link.peer
        self.record = link.snapshot()
        self.sent = {call.id: call for call in self.record.sent}
        self.running = running(link)
        self.state = frozen(link)

    def check(
        self, link: DuplexLink, data: bytes, events: list[LinkEvent], sent: list[Frame | Batch]
    ) -> None:
        if all(_is_refusal(event) for event in events) and all(map(_is_error, sent)):
            held(link.phase is self.phase, "a refused message changed the phase")
            held(link.snapshot() == self.record, "a refused message changed the record")
            held(frozen(link) == self.state, "a refused message changed the state")
        if self.phase is Phase.CLOSED:
            held(all(isinstance(event, MessageIgnored) for event in events), "said after the end")
        closed = link.phase is Phase.CLOSED
        names = None if closed else Names(data)
        self._check_phase(link, events)
        self._check_flight(link, events, names)
        self._check_running(link, events, names)
        busy = {(type(one.request.id), one.request.id) for one in running(link)}
        for frame in _each(sent):
            if isinstance(frame, ResultResponse | ErrorResponse):
                held((type(frame.id), frame.id) not in busy, "an answer under a running id")

    def _check_phase(self, link: DuplexLink, events: list[LinkEvent]) -> None:
        """The phase moves along the table, and says so; who may call depends on it."""
        kinds = {type(event) for event in events}
        if link.phase is not self.phase:
            step = link.side, self.phase, link.phase
            held(_STEPS.get(step) in kinds, f"no step leads from {step[1]} to {step[2]}")
        else:
            held(PeerIdentified not in kinds, "it was opened without a step")
            peers = [link.peer and replace(link.peer, log_level=None), self.peer]
            held(peers[0] == (peers[1] and replace(peers[1], log_level=None)), "another peer")
        for event in events:
            if isinstance(event, RequestReceived):
                self._check_call(link, event.exchange)
            elif (
                isinstance(event, NotificationReceived)
                and event.method.name == "notifications/initialized"
            ):
                held(link.phase is not self.phase, "it was initialized without a step")

    def _check_call(self, link: DuplexLink, exchange: Exchange) -> None:
        peer = exchange.peer
        held(
            link.side.other in exchange.method.senders,
            f"{exchange.method.name} from the wrong side",
        )
        held(peer.revision in link.accepts, f"{peer.revision.date} is not spoken here")
        if peer.revision.handshake:
            met = link.peer is not None and link.peer.revision is peer.revision
            held(met and link.phase is not Phase.NEW, "served before the handshake")
        else:
            held(link.side is Side.SERVER, "a server without a handshake sent a request")

    def _check_flight(
        self, link: DuplexLink, events: list[LinkEvent], names: "Names | None"
    ) -> None:
        after = {call.id: call for call in link.snapshot().sent}
        answered = [event.id for event in events if isinstance(event, RequestFinished)]
        gone = [id for id in self.sent if id not in after]
        held(sorted(answered, key=str) == sorted(gone, key=str), "a call ended unseen, or twice")
        held(not after.keys() - self.sent.keys(), "a message put a call of ours in flight")
        if names is None:
            return
        for id, call in self.sent.items():
            if id in gone:
                held(names.settles(id), f"call {id} was ended by a message for another")
            elif after[id] != call:
                held(names.moves(id), f"call {id} was moved by a message for another")

    def _check_running(
        self, link: DuplexLink, events: list[LinkEvent], names: "Names | None"
    ) -> None:
        now = running(link)
        begun = [event.exchange for event in events if isinstance(event, RequestReceived)]
        ended = [event.exchange for event in events if isinstance(event, RequestCancelled)]
        new = [one for one in now if not _is_in(one, self.running)]
        old = [one for one in self.running if not _is_in(one, now)]
        for one in begun:
            held(_is_in(one, new) or _is_in(one, ended), "a call was reported that does not run")
        for one in ended:
            held(_is_in(one, old) or _is_in(one, begun), "a cancellation of what did not run")
            held(names is None or names.cancels(one.request.id), "the wrong request was cancelled")
        held(all(_is_in(one, begun) for one in new), "a request began unseen")
        held(all(_is_in(one, ended) for one in old), "a request ended unseen")
        ids = [(type(one.request.id), one.request.id) for one in now]
        held(len(set(ids)) == len(ids), "two requests run under one id")


def running(link: DuplexLink) -> list[Exchange]:
    """The requests of the peer that are being answered."""
    return list(link._incoming)


def _is_in(one: Exchange, many: list[Exchange]) -> bool:
    return any(one is other for other in many)


def _is_refusal(event: LinkEvent) -> bool:
    return isinstance(event, MessageIgnored | Send)


def _is_error(frame: Frame | Batch) -> bool:
    return all(isinstance(each, ErrorResponse) for each in _each([frame]))


def _each(frames: list[Frame | Batch]) -> Iterator[Frame]:
    for frame in frames:
        yield from cast("tuple[Frame, ...]", frame.items) if isinstance(frame, Batch) else (frame,)


def frozen(link: DuplexLink) -> object:
    """All that a link remembers and decides by, as values that compare."""
    return _members(link)


def _members(owner: object) -> object:
    members = vars(owner).items()
    return tuple((name, _frozen(value)) for name, value in members if name not in _CACHES)


def _frozen(value: Any) -> object:
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return tuple((type(key), key, _frozen(item)) for key, item in members.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in cast("list[object]", value))
    if value is None or isinstance(value, Peer | Enum | int | str | bytes):
        return value
    if isinstance(value, set):
        return frozenset(_frozen(item) for item in cast("set[object]", value))
    if isinstance(value, OutgoingRequest):
        return value.id, value.deadline, value.limit, value.last_progress, value.wants_progress
    if isinstance(value, Exchange):
        return id(value), value.settled, value.last_progress, value.peer
    if type(value).__module__.startswith(_PACKAGE) and hasattr(value, "__dict__"):
        return id(value), _members(value)
    return value


# ---------------------------------------------------------------- a second opinion


class Names:
    """The ids that a message names, as Python's own reader of JSON finds them."""

    def __init__(self, data: bytes) -> None:
        self._settled: list[JSON] = []
        self._moved: list[JSON] = []
        self._cancelled: list[JSON] = []
        found = second_opinion(data)
        if found is NO_JSON:
            self._settled += ids_in_text(data)
        for item in cast("list[JSON]", found) if isinstance(found, list) else [found]:
            if isinstance(item, dict):
                self._take(cast("dict[str, JSON]", item))

    def _take(self, members: dict[str, JSON]) -> None:
        if "method" not in members:
            self._settled.append(members.get("id"))
            return
        params = members.get("params")
        if not isinstance(params, dict):
            return
        found = cast("dict[str, JSON]", params)
        if members["method"] == "notifications/cancelled":
            self._cancelled.append(found.get("requestId"))
            self._settled.append(found.get("requestId"))
        self._moved.append(found.get("progressToken"))
        meta = found.get("_meta")
        if isinstance(meta, dict):
            self._moved.extend(cast("dict[str, JSON]", meta).values())

    def settles(self, id: int | str) -> bool:
        return _among(id, self._settled)

    def moves(self, id: int | str) -> bool:
        return _among(id, self._moved)

    def cancels(self, id: int | str) -> bool:
        return _among(id, self._cancelled)


def _among(id: int | str, found: list[JSON]) -> bool:
    """`7` is not `"7"`, nor is `true` 1; `7.0` is `7` (D31)."""
    numbers = isinstance(id, int)
    return any(
        one == id and not isinstance(one, bool) and isinstance(one, int | float) is numbers
        for one in found
    )
