"""The progress example: what is heard on the way, and how a call ends early."""

from typing import Any

from colonnade.protocol.revision import Revision
from examples.example_client import Guest, visit


def call_with_progress(guest: Guest, tool: str, **arguments: Any) -> list[float]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}}
    assert not guest.ask("tools/call", params).get("isError")
    told = guest.told("notifications/progress")
    return [one["progress"] for one in told if one["progressToken"] == tool]


def test_progress_goes_to_who_asked_for_it(revision: Revision) -> None:
    with visit("progress.py", revision) as guest:
        assert guest.text("cook", dish="rice") == "rice is served"
        assert guest.told("notifications/progress") == []
        assert call_with_progress(guest, "cook", dish="rice") == [1, 2, 3, 4]
        if revision.knows("2025-03-26", None):
            assert guest.told("notifications/progress")[0]["message"] == "wash rice"
        assert call_with_progress(guest, "weigh", grams=[100, 250]) == [1, 2]


def test_logs_go_to_who_wants_their_level(revision: Revision) -> None:
    with visit("progress.py", revision) as guest:
        guest.want_logs("warning")
        guest.text("cook", dish="rice")
        assert guest.text("weigh", grams=[6000]) == "6000"
        assert guest.text("weigh", grams=[1]) == "1"
        (warning,) = guest.told("notifications/message")
        assert (warning["level"], warning["data"]) == (
            "warning",
            "6000 g is more than the pan holds",
        )
        guest.want_logs("debug")
        guest.text("cook", dish="rice")
        *_, last = guest.told("notifications/message")
        assert (last["logger"], last["data"]["dish"]) == ("stove", "rice")


def test_a_call_that_is_cancelled_cleans_up_and_is_not_answered(revision: Revision) -> None:
    with visit("progress.py", revision) as guest:
        guest.want_logs("info")
        id = guest.send("tools/call", {"name": "simmer", "arguments": {"dish": "stew"}})
        guest.await_told("notifications/message")
        params = {"requestId": id, "reason": "dinner is elsewhere"}
        guest.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert guest.text("leftovers") == '["stew"]'
        assert not [one for one in guest.heard if one.get("id") == id]


def test_a_tool_that_takes_too_long_says_so(revision: Revision) -> None:
    with visit("progress.py", revision) as guest:
        assert guest.text("bake", minutes=0) == "golden"
        assert guest.failure("bake", minutes=60) == "bake did not finish within 0.2 s; try less"
