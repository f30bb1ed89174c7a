"""The gateway example: two servers of different revisions, as one."""

from colonnade.protocol.revision import Revision
from examples.example_client import run_example


def test_both_servers_are_called_by_a_client_of_any_revision(revision: Revision) -> None:
    with run_example("gateway.py", revision) as client:
        listed = client.ask("tools/list")["tools"]
        assert [tool["name"] for tool in listed] == ["weather__forecast", "notes__write"]
        called = client.ask(
            "tools/call", {"name": "weather__forecast", "arguments": {"city": "Oslo"}}
        )
        assert called["content"][0]["text"] == "sun in Oslo"
        called = client.ask("tools/call", {"name": "notes__write", "arguments": {"text": "four"}})
        assert called["content"][0]["text"] == "4"
