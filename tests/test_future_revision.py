"""A made-up next revision: one `replace`, and the rest of the package supports it.

`tests/support/future_revision.py` defines it. Here it is negotiated, encoded and checked; at the end the
whole suite runs over it in a process of its own, where six revisions are published.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import Raw
from msgspec.structs import fields

import official
import type_strategies
from colonnade.errors import Fault, FaultKind, LocalProtocolError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.http.rules import admit
from colonnade.protocol.jsonrpc import Request, encode
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import (
    PeerDetector,
    agree,
    choose,
    negotiate,
    unsupported_version,
)
from colonnade.protocol.revision import (
    ALL,
    JULY_2026,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)
from future_revision import READ_NOTES, SIX, SIXTH, ReadNotesResult
from pairs import ADD, Pair

TESTS = Path(__file__).resolve().parent
ALONE = Revisions((SIXTH,))


def test_it_is_one_replace_of_the_newest() -> None:
    changed = {
        field.name
        for field in fields(Revision)
        if getattr(SIXTH, field.name) is not getattr(JULY_2026, field.name)
    }
    assert changed == {"date", "methods", "codes", "output_root"}
    assert SIXTH not in ALL


# ---------------------------------------------------------------- negotiation


def envelope(revision: Revision) -> bytes:
    return encode({t.PROTOCOL_VERSION_KEY: revision.date, t.CLIENT_CAPABILITIES_KEY: {}})


def test_it_is_recognised_by_its_envelope_where_it_is_accepted() -> None:
    said = Raw(envelope(SIXTH))
    for accepts in (SIX, ALONE):
        peer = PeerDetector(accepts).detect(Request(1, READ_NOTES.name), said)
        assert peer is not None
        assert peer.revision is SIXTH
    with pytest.raises(Fault) as caught:
        PeerDetector(Revisions(ALL)).detect(Request(1, "tools/list"), said)
    assert caught.value.data == {"supported": list(Revisions(ALL).dates), "requested": SIXTH.date}
    # Its own method, without an envelope, is as much of a sign as discovery is.
    with pytest.raises(Fault, match="protocolVersion"):
        PeerDetector(SIX).detect(Request(1, READ_NOTES.name), Raw(b""))


def test_it_is_chosen_and_listed_before_the_others() -> None:
    assert choose([JULY_2026.date, SIXTH.date], SIX) is SIXTH
    assert choose([JULY_2026.date], SIX) is JULY_2026
    assert unsupported_version("x", SIX).data["supported"][0] == SIXTH.date
    # It has no handshake, so no handshake ends with it.
    assert negotiate(SIXTH.date, SIX) is NOVEMBER_2025
    with pytest.raises(RemoteProtocolError, match="disconnecting"):
        agree(SIXTH.date, SIX)


def test_http_admits_it_by_the_rules_of_the_newest() -> None:
    headers = {b"mcp-protocol-version": SIXTH.date.encode(), b"mcp-method": b"notes/read"}
    body = Raw(b'{"_meta":%b}' % envelope(SIXTH))
    request = Request(1, "notes/read", body)
    admitted = admit(request, headers, PeerDetector(SIX))
    assert admitted is not None
    assert admitted.method is READ_NOTES
    for missing in headers:
        rest = {name: value for name, value in headers.items() if name != missing}
        with pytest.raises(Fault) as caught:
            admit(request, rest, PeerDetector(SIX))
        assert caught.value.kind is FaultKind.HEADER_MISMATCH


# ---------------------------------------------------------------- a conversation


class Notes(Pair):
    """A server that has the new method too."""

    def answer(self, exchange: Exchange) -> bytes | None:
        if exchange.method is READ_NOTES:
            return exchange.settle(ReadNotesResult(notes=["a", "b"], next_cursor="c"))
        return super().answer(exchange)


def test_two_who_speak_it_hold_a_whole_conversation() -> None:
    pair = Notes(SIX, SIX)
    assert pair.open() is SIXTH
    notes = pair.ask("notes/read", t.PaginatedRequestParams(cursor="x"))
    assert (notes["notes"], notes["nextCursor"], notes["resultType"]) == (
        ["a", "b"],
        "c",
        "complete",
    )
    assert pair.said(Side.CLIENT)[-1]["params"]["_meta"][t.PROTOCOL_VERSION_KEY] == SIXTH.date
    (tool,) = pair.ask("tools/list")["tools"]
    assert tool["outputSchema"]["properties"] == {"result": {"type": "integer"}}
    called = pair.ask("tools/call", t.CallToolRequestParams(name="add"), progress=True)
    assert called["structuredContent"] == {"result": 5}


@pytest.mark.parametrize(("client", "server"), [(SIX, Revisions(ALL)), (Revisions(ALL), SIX)])
def test_who_does_not_speak_it_is_spoken_to_as_before(client: Revisions, server: Revisions) -> None:
    pair = Notes(client, server)
    assert pair.open() is JULY_2026
    assert pair.ask("tools/call", t.CallToolRequestParams(name="add"))["structuredContent"] == 5
    with pytest.raises(LocalProtocolError, match="notes/read"):
        pair.ask("notes/read")


# ---------------------------------------------------------------- shape, numbers and schemas


def test_it_is_shaped_by_what_it_says_and_knows_what_the_newest_knows() -> None:
    writer, newest = Encoder(SIXTH), Encoder(JULY_2026)
    assert writer.wraps(ADD)
    assert not newest.wraps(ADD)
    asking = t.InputRequiredResult(request_state="s")
    for instance in (asking, t.ListPromptsResult(prompts=[t.Prompt(name="p", title="T")])):
        assert writer.result(instance) == newest.result(instance)
    older = t.ClientCapabilities(roots=t.RootsCapability(list_changed=True))
    assert writer.downgrade(older) == newest.downgrade(older)


def test_one_number_is_another_and_all_others_are_as_before() -> None:
    for kind in FaultKind.members():
        fault = Fault(kind, "words")
        expected = 1001 if kind is FaultKind.USER_REJECTED else error_code(fault, JULY_2026)
        assert error_code(fault, SIXTH) == expected


def test_what_it_did_not_change_fits_the_schema_of_the_newest() -> None:
    if not official.available():
        print("no official schemas beside the repository: nothing was compared with them")
        return
    said = t.Envelope(version=SIXTH.date, capabilities=t.ClientCapabilities())
    writer = Encoder(SIXTH, t.Implementation(name="us", version="1"), said)
    for name in ("tools/list", "tools/call", "prompts/get", "resources/read", "server/discover"):
        row = SIXTH.methods[name]
        assert row.result is not None
        prove(row.result.__name__, type_strategies.instances(row.result), writer.result)
        if row.params is not t.RequestParams:
            prove(row.params.__name__, type_strategies.instances(row.params), writer.params)


def prove(definition: str, drawn: Any, write: Any) -> None:
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)

    @settings(max_examples=15, derandomize=True, suppress_health_check=checks)
    @given(drawn)
    def run(instance: Any) -> None:
        assert official.problems(JULY_2026.date, definition, json.loads(write(instance))) == []

    run()


# ---------------------------------------------------------------- the suite

# A run that chose nothing would pass as well; these are fewer than there are today.
LEAST = {"protocol": 600, "support/future_revision_transcripts.py": 50}


@pytest.mark.slow
@pytest.mark.parametrize("where", LEAST)
def test_the_suite_runs_over_it(where: str) -> None:
    """Every test that takes a revision, and every conversation, in a world of six."""
    chosen = ["-k", SIXTH.date, "-m", "not slow"] if where == "protocol" else []
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "future_revision",
            *chosen,
            str(TESTS / where),
        ],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    print(done.stdout.splitlines()[-1])
    assert passed is not None
    assert int(passed[1]) >= LEAST[where]
