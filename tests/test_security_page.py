"""The page that tells operators what they are protected from says what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest

from portico.protocol import exchange_subscription, incoming, interview, jsonrpc
from portico.server import dispatch, ration
from portico.transport.http_run import DEFAULT_LIMITS as RUN
from portico.transport.http_subscriptions import (
    SUBSCRIBED_BYTES,
    SUBSCRIBED_BYTES_PER_PRINCIPAL,
)
from portico.transport.http_visit import DEFAULT_LIMITS as APP
from portico.transport.http_visit import SMALL_BODY_BYTES

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "security.md").read_text()
MIB = 1024 * 1024
# What follows from others, or is no bound on a stranger.
UNSAID = {"Limits.keep_alive_s", "Limits.retry_ms"}


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
        f"beyond {ration.BURST} at once and {ration.PER_S:g} a second",
    ):
        assert words in flat
    assert interview.MAX_ROUNDS == 10
    assert SUBSCRIBED_BYTES == dispatch.LISTEN_BYTES
    assert SUBSCRIBED_BYTES_PER_PRINCIPAL == dispatch.LISTEN_BYTES_PER_PRINCIPAL
    assert "ten rounds of questions" in flat
