"""The progress example: what is heard on the way, and how a call ends early."""

from typing import Any

from colonnade.protocol.revision import Revision
from examples.example_client import ExampleClient, run_example


def call_with_progress(client: ExampleClient, tool: str, **arguments: Any) -> list[float]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}}
    assert not client.ask("tools/call", params).get("isError")
    told = client.notifications("notifications/progress")
    return [one["progress"] for one in told if one["progressToken"] == tool]


def test_progress_goes_to_who_asked_for_it(revision: Revision) -> None:
    with run_example("progress.py", revision) as client:
        assert client.text("cook", dish="rice") == "rice is served"
        assert client.notifications("notifications/progress") == []
        assert call_with_progress(client, "cook", dish="rice") == [1, 2, 3, 4]
        if revision.knows("2025-03-26", None):
            assert client.notifications("notifications/progress")[0]["message"] == "wash rice"
        assert call_with_progress(client, "weigh", grams=[100, 250]) == [1, 2]


def test_logs_go_to_who_wants_their_level(revision: Revision) -> None:
    with run_example("progress.py", revision) as client:
        client.want_logs("warning")
        client.text("cook", dish="rice")
        assert client.text("weigh", grams=[6000]) == "6000"
        assert client.text("weigh", grams=[1]) == "1"
        (warning,) = client.notifications("notifications/message")
        assert (warning["level"], warning["data"]) == (
            "warning",
            "6000 g is more than the pan holds",
        )
        client.want_logs("debug")
        client.text("cook", dish="rice")
        *_, last = client.notifications("notifications/message")
        assert (last["logger"], last["data"]["dish"]) == ("stove", "rice")


def test_a_call_that_is_cancelled_cleans_up_and_is_not_answered(revision: Revision) -> None:
    with run_example("progress.py", revision) as client:
        client.want_logs("info")
        id = client.send("tools/call", {"name": "simmer", "arguments": {"dish": "stew"}})
        client.wait_for_notification("notifications/message")
        params = {"requestId": id, "reason": "dinner is elsewhere"}
        client.send_raw({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert client.text("leftovers") == '["stew"]'
        assert not [one for one in client.received if one.get("id") == id]


def test_a_tool_that_takes_too_long_says_so(revision: Revision) -> None:
    with run_example("progress.py", revision) as client:
        assert client.text("bake", minutes=0) == "golden"
        assert client.failure("bake", minutes=60) == "bake did not finish within 0.2 s; try less"
