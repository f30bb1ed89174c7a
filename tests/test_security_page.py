"""The page that tells operators what they are protected from says what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest

from colonnade.client import cache as list_limits
from colonnade.client import client
from colonnade.client import input_callbacks as hearing
from colonnade.client import request as asking
from colonnade.client import subscriptions as listening
from colonnade.host.agent import search
from colonnade.host.servers import resource_search as catalogue
from colonnade.protocol import input_rounds as interview
from colonnade.protocol import jsonrpc
from colonnade.protocol import subscriptions as exchange_subscription
from colonnade.protocol.http.sse import MAX_EVENT_BYTES
from colonnade.protocol.link import in_flight as incoming
from colonnade.server import dispatch
from colonnade.server.context import context as ration
from colonnade.transport.http_client import resumption as http_resuming
from colonnade.transport.http_client.conversation import MAX_BODY_BYTES
from colonnade.transport.http_server.request import DEFAULT_LIMITS as APP
from colonnade.transport.http_server.request import SMALL_BODY_BYTES
from colonnade.transport.http_server.runner import DEFAULT_LIMITS as RUN
from colonnade.transport.http_server.sessions.streams import (
    SUBSCRIBED_BYTES,
    SUBSCRIBED_BYTES_PER_PRINCIPAL,
)

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "security.md").read_text()
MIB = 1024 * 1024
# What follows from others, or is no bound on a stranger.
UNSAID = {"Limits.keep_alive_interval_s", "Limits.retry_ms"}


@pytest.mark.spec("R0110")
def test_every_limit_of_the_code_is_on_the_page_with_its_number() -> None:
    found = dict(re.findall(r"^\| `(\w+\.\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
    defaults: dict[str, Any] = {f"Limits.{n}": getattr(APP, n) for n in APP.__struct_fields__}
    defaults |= {f"RunLimits.{n}": getattr(RUN, n) for n in RUN.__struct_fields__}
    assert {name: float(value) for name, value in found.items()} == {
        name: float(value) for name, value in defaults.items() if name not in UNSAID
    }


@pytest.mark.spec("R0110")
def test_the_limits_of_every_transport_are_named_too() -> None:
    flat = " ".join(PAGE.split())
    for words in (
        f"JSON at most {jsonrpc.MAX_DEPTH} deep",
        f"a batch of at most {jsonrpc.MAX_BATCH}",
        f"a request id of at most {jsonrpc.MAX_ID_BYTES} bytes",
        f"{incoming.MAX_RUNNING} requests of one client at once",
        f"{exchange_subscription.MAX_SUBSCRIPTIONS} subscriptions of one session",
        f"whose params have at most {exchange_subscription.MAX_LISTEN_BYTES} bytes",
        f"at most {dispatch.LISTEN_BYTES // MIB} MiB for all `subscriptions/listen` together",
        f"and {dispatch.LISTEN_BYTES_PER_PRINCIPAL // MIB} MiB for those of one principal",
        f"bodies up to {SMALL_BODY_BYTES} bytes do not",
        f"beyond {ration.BURST} at once and {ration.MESSAGES_PER_S:g} a second",
    ):
        assert words in flat
    assert interview.MAX_ROUNDS == 10
    assert SUBSCRIBED_BYTES == dispatch.LISTEN_BYTES
    assert SUBSCRIBED_BYTES_PER_PRINCIPAL == dispatch.LISTEN_BYTES_PER_PRINCIPAL
    assert "ten rounds of input requests" in flat


def test_the_limits_of_a_client_and_a_host_are_named_with_their_numbers() -> None:
    rows = [
        line
        for line in PAGE.partition("## Limits of clients and hosts")[2].splitlines()
        if "|" in line
    ]
    for name, number in (
        ("one message", MAX_BODY_BYTES),
        ("`connect(max_list_bytes=…)`", list_limits.MAX_LIST_BYTES),
        ("`connect(max_list_items=…)`", list_limits.MAX_LIST_ITEMS),
        ("pages of one list", list_limits.MAX_PAGES),
        ("templates matched", catalogue.MAX_TRIED),
        ("text that `host.search` indexes", search.MAX_TEXT),
        ("text that `host.search` indexes", search.MAX_TOTAL),
        ("log messages and progress", hearing.MAX_WAITING_BYTES),
        ("wait for `async` callbacks", f"{hearing.CATCH_UP_S:g} s"),
        ("wait for the logging level", f"{asking.RESTORE_S:g} s"),
        ("wait for the list of tools", f"{client.SCHEMAS_S:g} s"),
        ("queued change notifications", listening.MAX_PENDING_CHARS),
        ("pending input requests", asking.MAX_INPUT_REQUEST_BYTES),
        ("minimum `retry`", f"{http_resuming.MIN_RETRY_S * 1000:g} ms"),
        ("maximum `retry`", f"{http_resuming.LONGEST_S:g} s"),
    ):
        assert any(f" {number} " in row for row in rows if row.startswith(f"| {name}")), name
    assert MAX_BODY_BYTES == MAX_EVENT_BYTES
