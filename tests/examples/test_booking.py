"""The booking example: the same questions, asked in each revision's own way."""

from typing import Any

from colonnade.protocol.revision import Revision
from examples.example_client import ExampleClient, run_example

JSON = dict[str, Any]


def passenger(method: str, params: JSON) -> JSON:
    """Somebody who answers everything."""
    if method == "sampling/createMessage":
        words = {"type": "text", "text": " Off we go! "}
        return {"role": "assistant", "content": words, "model": "m", "stopReason": "endTurn"}
    fields = params["requestedSchema"]["properties"]
    known: JSON = {"row": 12, "place": "window", "value": True}
    if "meal" in params["message"]:
        known["value"] = "curry"
    elif "Why" in params["message"]:
        known["value"] = "rain"
    return {"action": "accept", "content": {name: known[name] for name in fields}}


def can_be_asked(client: ExampleClient) -> bool:
    return bool(client.revision.elicitation.modes)


def test_a_flight_is_booked_with_what_the_user_says(revision: Revision) -> None:
    with run_example("booking.py", revision) as client:
        client.answer = passenger
        if not can_be_asked(client):  # and says so, in words
            assert "needs elicitation" in client.failure("book", flight="LH1")
            assert client.questions == []
            return
        ticket = client.text("book", flight="SK1")
        assert ticket == (
            '{"flight":"SK1","seat":{"row":12,"place":"window"},"meal":"none","number":1}'
        )
        assert [params["message"] for _, params in client.questions] == ["Which seat on SK1?"]
        assert '"meal":"curry"' in client.text("book", flight="LH1")


def test_an_effect_before_a_question_happens_once(revision: Revision) -> None:
    with run_example("booking.py", revision) as client:
        client.answer = passenger
        if not can_be_asked(client):
            client.failure("book", flight="LH7")
            return
        assert '"number":1' in client.text("book", flight="LH7")
        assert [params["message"] for _, params in client.questions][-1] == (
            "LH7 is full. Join the queue?"
        )
        assert client.text("charges") == '["LH7"]'


def test_who_declines_is_not_booked(revision: Revision) -> None:
    with run_example("booking.py", revision) as client:
        client.answer = lambda method, params: {"action": "decline"}
        assert client.failure("book", flight="SK1")
        assert client.text("charges") == "[]"


def test_a_function_that_is_not_async_asks_as_well(revision: Revision) -> None:
    with run_example("booking.py", revision) as client:
        client.answer = passenger
        if can_be_asked(client):
            assert client.text("cancel", number=3) == "Ticket 3 is cancelled: rain"
        else:
            assert client.failure("cancel", number=3)


def test_a_model_writes_a_line(revision: Revision) -> None:
    with run_example("booking.py", revision) as client:
        client.answer = passenger
        assert client.text("describe", flight="SK1") == "Off we go!"
        assert [method for method, _ in client.questions] == ["sampling/createMessage"]
