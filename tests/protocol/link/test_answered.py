"""`on_answered`: what a link answers or refuses itself is reported, and nothing else is."""

import json
from typing import Any

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.exchange import NO_NETWORK, RequestFields
from colonnade.protocol.jsonrpc import Request
from colonnade.protocol.link.events import RequestReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from protocol.links import ABLE_CLIENT, ABLE_SERVER, LIBRARY, READER


def message(method: str, id: Any = 1, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(body).encode()


OPENING = message(
    "initialize",
    0,
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "reader", "version": "1"},
)


class Reports:
    """What was reported: method, revision and the kind of the fault."""

    def __init__(self) -> None:
        self.found: list[tuple[str | None, str | None, FaultKind | None]] = []

    def __call__(self, request: Request | None, peer: Peer | None, fault: Fault | None) -> None:
        self.found.append(
            (
                request.method if request is not None else None,
                peer.revision.date if peer is not None else None,
                fault.kind if fault is not None else None,
            )
        )

    def take(self) -> list[tuple[str | None, str | None, FaultKind | None]]:
        found, self.found = self.found, []
        return found


def opened() -> tuple[DuplexLink, Reports]:
    link, reports = DuplexLink(Side.SERVER, Identity(LIBRARY, ABLE_SERVER)), Reports()
    link.on_answered = reports
    link.receive(OPENING, 0.0)
    link.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 0.0)
    return link, reports


def test_what_the_protocol_answers_is_reported() -> None:
    link, reports = opened()
    link.receive(message("ping"), 0.0)
    link.receive(message("logging/setLevel", 2, level="error"), 0.0)
    date = "2025-11-25"
    assert reports.take() == [
        ("initialize", date, None),
        ("ping", date, None),
        ("logging/setLevel", date, None),
    ]


def test_what_the_protocol_refuses_is_reported_with_its_fault() -> None:
    link, reports = opened()
    reports.take()
    link.receive(message("made/up"), 0.0)
    link.receive(b"no json", 0.0)
    assert reports.take() == [
        ("made/up", "2025-11-25", FaultKind.METHOD_NOT_FOUND),
        (None, None, FaultKind.PARSE),
    ]


def test_a_request_for_a_handler_is_not_reported_but_a_second_one_with_its_id_is() -> None:
    link, reports = opened()
    reports.take()
    (event,) = link.receive(message("tools/list", 7), 0.0)
    assert isinstance(event, RequestReceived)
    assert reports.take() == []
    link.receive(message("tools/list", 7), 0.0)
    assert reports.take() == [("tools/list", "2025-11-25", FaultKind.INVALID_REQUEST)]


def test_the_next_id_is_that_of_the_next_request() -> None:
    link, _ = opened()
    before = link.next_id
    id, _ = link.request("ping", t.RequestParams(), now=0.0)
    assert (id, link.next_id) == (before, before + 1)


def test_a_request_says_nothing_of_its_connection_unless_its_transport_does() -> None:
    assert RequestFields().network is NO_NETWORK
    assert RequestFields().next_id is None


def test_the_meta_of_the_handshake_is_sent_along() -> None:
    link = DuplexLink(Side.CLIENT, Identity(READER, ABLE_CLIENT))
    link.opening_meta = {"traceparent": "00-1-2-01"}
    sent = json.loads(link.initialize(0.0).data)
    assert sent["params"]["_meta"] == {"traceparent": "00-1-2-01"}
