"""The composed example: dependencies, lifespan, layers, a mounted server, changes at run time."""

import json

from colonnade.protocol.revision import ChangeNotifications, Revision
from examples.example_client import visit

ENDS = "the library is closed\nthe rates are closed\n"


def test_dependencies_and_the_lifespan_are_there_and_are_cleaned_up(revision: Revision) -> None:
    with visit("composed.py", revision, errors=ENDS) as guest:
        assert guest.text("lend", title="Emma", reader="Ann") == "Ann has 'Emma'"
        assert guest.failure("lend", title="Emma", reader="Bob") == "'Emma' is not available."
        assert guest.text("fines_due", days=7) == "1.4"
        (seen,) = guest.ask("resources/read", {"uri": "library://requests"})["contents"]
        assert json.loads(seen["text"])["tools/call"] == 3


def test_what_is_shown_and_added_while_it_runs_is_told(revision: Revision) -> None:
    with visit("composed.py", revision, errors="the library is closed") as guest:
        assert guest.names("tools") == ["lend", "sign_in", "fines_due"]
        if revision.change_notifications is ChangeNotifications.LISTEN:
            guest.follow(toolsListChanged=True)
        assert guest.failure("sign_in", password="sesame") == "That is not the password."
        assert guest.text("sign_in", password="open sesame") == "Welcome."
        guest.await_told("notifications/tools/list_changed")
        assert guest.names("tools") == ["lend", "shelve", "sign_in", "fines_due", "inventory"]
        assert guest.text("shelve", title="Middlemarch") == "3"
        assert guest.text("inventory") == '["Emma","Middlemarch","Ulysses"]'
