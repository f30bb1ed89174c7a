"""The booking example: the same questions, asked in each revision's own way."""

from typing import Any

from colonnade.protocol.revision import Revision
from examples.example_client import Guest, visit

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


def can_be_asked(guest: Guest) -> bool:
    return bool(guest.revision.elicitation.modes)


def test_a_flight_is_booked_with_what_the_user_says(revision: Revision) -> None:
    with visit("booking.py", revision) as guest:
        guest.answer = passenger
        if not can_be_asked(guest):  # and says so, in words
            assert "needs elicitation" in guest.failure("book", flight="LH1")
            assert guest.questions == []
            return
        ticket = guest.text("book", flight="SK1")
        assert ticket == (
            '{"flight":"SK1","seat":{"row":12,"place":"window"},"meal":"none","number":1}'
        )
        assert [params["message"] for _, params in guest.questions] == ["Which seat on SK1?"]
        assert '"meal":"curry"' in guest.text("book", flight="LH1")


def test_an_effect_before_a_question_happens_once(revision: Revision) -> None:
    with visit("booking.py", revision) as guest:
        guest.answer = passenger
        if not can_be_asked(guest):
            guest.failure("book", flight="LH7")
            return
        assert '"number":1' in guest.text("book", flight="LH7")
        assert [params["message"] for _, params in guest.questions][-1] == (
            "LH7 is full. Join the queue?"
        )
        assert guest.text("charges") == '["LH7"]'


def test_who_declines_is_not_booked(revision: Revision) -> None:
    with visit("booking.py", revision) as guest:
        guest.answer = lambda method, params: {"action": "decline"}
        assert guest.failure("book", flight="SK1")
        assert guest.text("charges") == "[]"


def test_a_function_that_is_not_async_asks_as_well(revision: Revision) -> None:
    with visit("booking.py", revision) as guest:
        guest.answer = passenger
        if can_be_asked(guest):
            assert guest.text("cancel", number=3) == "Ticket 3 is cancelled: rain"
        else:
            assert guest.failure("cancel", number=3)


def test_a_model_writes_a_line(revision: Revision) -> None:
    with visit("booking.py", revision) as guest:
        guest.answer = passenger
        assert guest.text("describe", flight="SK1") == "Off we go!"
        assert [method for method, _ in guest.questions] == ["sampling/createMessage"]
