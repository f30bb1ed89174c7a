"""The composed example: dependencies, lifespan, layers, a mounted server, changes at run time."""

import json

from colonnade.protocol.revision import ChangeNotifications, Revision
from examples.example_client import run_example

ENDS = "the library is closed\nthe rates are closed\n"


def test_dependencies_and_the_lifespan_are_there_and_are_cleaned_up(revision: Revision) -> None:
    with run_example("composed.py", revision, errors=ENDS) as client:
        assert client.text("lend", title="Emma", reader="Ann") == "Ann has 'Emma'"
        assert client.failure("lend", title="Emma", reader="Bob") == "'Emma' is not available."
        assert client.text("fines_due", days=7) == "1.4"
        (seen,) = client.ask("resources/read", {"uri": "library://requests"})["contents"]
        assert json.loads(seen["text"])["tools/call"] == 3


def test_what_is_shown_and_added_while_it_runs_is_told(revision: Revision) -> None:
    with run_example("composed.py", revision, errors="the library is closed") as client:
        assert client.names("tools") == ["lend", "sign_in", "fines_due"]
        if revision.change_notifications is ChangeNotifications.LISTEN:
            client.subscribe(toolsListChanged=True)
        assert client.failure("sign_in", password="sesame") == "That is not the password."
        assert client.text("sign_in", password="open sesame") == "Welcome."
        client.wait_for_notification("notifications/tools/list_changed")
        assert client.names("tools") == ["lend", "shelve", "sign_in", "fines_due", "inventory"]
        assert client.text("shelve", title="Middlemarch") == "3"
        assert client.text("inventory") == '["Emma","Middlemarch","Ulysses"]'
