"""What each revision wants of HTTP itself: statuses, headers, events and their ids.

Rules: written by hand from the transport pages of each revision; nothing here asks the code under
test. Each sentence that comes back is one breach.
"""

import json
from collections.abc import Iterator
from typing import Any

from wire.known_members import knows
from wire.transcript import Frame, HttpExchange

EVENTS = "text/event-stream"
PLAIN = "application/json"


def breaches(date: str, wire: str, exchanges: list[HttpExchange]) -> list[str]:
    """All that was done against the rules in one play."""
    found: list[str] = []
    for exchange in exchanges:
        words = _of_visit(date, wire, exchange)
        found += [f"{exchange.method} {exchange.path} -> {exchange.status}: {one}" for one in words]
    return [*found, *_of_session(exchanges)]


def _of_visit(date: str, wire: str, exchange: HttpExchange) -> Iterator[str]:
    yield from _status(date, wire, exchange)
    yield from _session_header(date, wire, exchange)
    if exchange.is_stream:
        yield from _stream_headers(exchange)
        if wire == "sse":
            yield from _first_revision(exchange)
        else:
            yield from _events(date, exchange)
            yield from _order(date, exchange)


# ---------------------------------------------------------------- heads


def _status(date: str, wire: str, exchange: HttpExchange) -> Iterator[str]:
    kind = exchange.headers.get("content-type")
    if (
        exchange.status in (200, 202)
        and exchange.method in ("POST", "DELETE")
        and not exchange.answer
    ):
        if kind not in (None, EVENTS):
            yield "a content type of nothing"
    elif not exchange.is_stream and kind != PLAIN:
        yield f"a body of {kind}"
    if exchange.status >= 400:
        error: Any = json.loads(exchange.answer)
        if any("error" not in one for one in (error if isinstance(error, list) else [error])):
            yield "a refusal without an error"
        return
    sent = exchange.sent
    if exchange.method != "POST":
        return
    if wire == "sse" or not _wants_answer(sent):
        if exchange.status != 202 or exchange.answer:
            yield "a message without an answer of its own is accepted with 202 and nothing else"
    elif exchange.status != 200:
        yield "a request is answered with 200"
    if isinstance(sent, dict) and knows(date, "2026-07-28", None) and exchange.answer:
        error = json.loads(exchange.answer).get("error", {})
        wanted = {-32601: 404, -32020: 400, -32021: 400, -32022: 400, -32700: 400, -32600: 400}
        if error and wanted.get(error["code"], exchange.status) != exchange.status:
            yield f"{error['code']} has a status of its own"


def _wants_answer(sent: Any) -> bool:
    messages: list[Any] = sent if isinstance(sent, list) else [sent]
    return any(isinstance(one, dict) and "method" in one and "id" in one for one in messages)


def _session_header(date: str, wire: str, exchange: HttpExchange) -> Iterator[str]:
    id = exchange.headers.get("mcp-session-id")
    sent = exchange.sent
    opens = isinstance(sent, dict) and sent.get("method") == "initialize" and exchange.status == 200
    if wire == "http" and opens and knows(date, None, "2025-11-25"):
        if id is None or len(id) < 16 or not all("\x21" <= sign <= "\x7e" for sign in id):
            yield f"the session {id!r} is none that nobody guesses, in visible ASCII"
    elif id is not None:
        yield "a session where none begins"


def _stream_headers(exchange: HttpExchange) -> Iterator[str]:
    if exchange.headers.get("x-accel-buffering") != "no":
        yield "a stream that proxies may hold back"
    if exchange.headers.get("cache-control") not in ("no-store", "no-cache"):
        yield "a stream that may be kept"


# ---------------------------------------------------------------- events


def _first_revision(exchange: HttpExchange) -> Iterator[str]:
    first, *rest = exchange.frames
    if first.event != "endpoint" or not (first.data or "").startswith("/"):
        yield "the first event says where to post"
    for frame in exchange.frames:
        if (frame.id, frame.retry) != (None, None):
            yield "an id or a time to come back, of which this transport knows nothing"
    for frame in rest:
        if frame.event != "message" or not frame.data:
            yield "everything else is a message"


def _events(date: str, exchange: HttpExchange) -> Iterator[str]:
    numbered = knows(date, "2025-03-26", "2025-11-25") and not _takes_events_alone(exchange)
    primed = knows(date, "2025-11-25", "2025-11-25") and numbered
    resumed = "last-event-id" in exchange.said
    for place, frame in enumerate(exchange.frames):
        is_prime = primed and place == 0 and not resumed
        # Before a connection is let go, its reader is told when to come back.
        is_parting = primed and place == len(exchange.frames) - 1 and frame.retry is not None
        if is_prime and (frame.id is None or frame.retry is None or frame.data != ""):
            yield "the first event has an id, nothing else, and says when to come back"
        if not (is_prime or is_parting):
            yield from _message_event(frame, numbered)


def _message_event(frame: Frame, numbered: bool) -> Iterator[str]:
    if frame.other:
        yield f"lines that are none of an event: {frame.other}"
    if not frame.data:
        yield "an event without a message, which a client of this revision cannot read"
    if frame.event is not None or frame.retry is not None:
        yield "a name or a time to come back, which nobody expects"
    if (frame.id is not None) is not numbered:
        yield f"the id {frame.id}"


def _takes_events_alone(exchange: HttpExchange) -> bool:
    """Such a client, which the specification does not know, gets its answer as one event."""
    return exchange.method == "POST" and exchange.said.get("accept") == EVENTS


def _order(date: str, exchange: HttpExchange) -> Iterator[str]:
    """What may come on which stream, and in which order."""
    messages: list[Any] = []
    for frame in exchange.frames:
        found: Any = json.loads(frame.data) if frame.data else []
        messages += found if isinstance(found, list) else [found]
    answers = [one for one in messages if "method" not in one]
    if exchange.method == "GET" and answers and "last-event-id" not in exchange.said:
        yield "an answer on a stream for notifications"
    if exchange.method == "POST":
        sent: Any = exchange.sent
        asked = {one["id"] for one in (sent if isinstance(sent, list) else [sent])}
        if exchange.whole and answers and messages[-len(answers) :] != answers:
            yield "something after the answer"
        if any(one["id"] not in asked for one in answers):
            yield "the answer to another request"
        listens = isinstance(sent, dict) and sent["method"] == "subscriptions/listen"
        for one in messages:
            news = str(one.get("method", "")).endswith(("list_changed", "resources/updated"))
            if news is not listens and news:
                yield f"{one['method']} on the stream of a request"
    if knows(date, "2026-07-28", None) and any("method" in one and "id" in one for one in messages):
        yield "a request, where questions go by result"


def _of_session(exchanges: list[HttpExchange]) -> Iterator[str]:
    """An event's id is its own, on all streams of a session."""
    seen: set[tuple[str | None, str]] = set()
    for exchange in exchanges:
        for frame in exchange.frames:
            if frame.id is not None:
                key = (exchange.said.get("mcp-session-id"), frame.id)
                if key in seen:
                    yield f"the event {frame.id} came twice"
                seen.add(key)
        streams = {frame.id.rpartition("-")[0] for frame in exchange.frames if frame.id is not None}
        if len(streams) > 1:
            yield f"events of {sorted(streams)} on one stream"
