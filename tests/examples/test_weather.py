"""The weather example: arguments, structured results, hints and errors."""

import pytest

from colonnade.protocol.revision import BadToolInput, OutputRoot, Revision
from examples.example_client import Rejected, visit


def test_a_forecast_is_data_with_a_copy_in_words(revision: Revision) -> None:
    with visit("weather.py", revision) as guest:
        result = guest.call("forecast", city="Oslo", days=2, unit="F")
        days = [
            {"day": "2026-01-01", "high": 39.2, "sky": "sun"},
            {"day": "2026-01-02", "high": 40.2, "sky": "cloud"},
        ]
        if revision.output_root is OutputRoot.NONE:
            assert "structuredContent" not in result
        else:
            assert result["structuredContent"] == {"city": "Oslo", "unit": "F", "days": days}
        assert '"sky":"cloud"' in result["content"][0]["text"]
        mean = guest.call("record", station="roof", celsius="4.5")
        assert mean["content"][0]["text"] == "3.0"
        wrapped = {OutputRoot.OBJECT: {"result": 3.0}, OutputRoot.ANY: 3.0}
        assert mean.get("structuredContent") == wrapped.get(revision.output_root)


def test_mistakes_are_answered_in_words_that_a_model_can_act_on(revision: Revision) -> None:
    with visit("weather.py", revision, errors="spread failed (id ") as guest:
        assert guest.failure("forecast", city="Olso") == "No city 'Olso'. Did you mean 'Oslo'?"
        if revision.bad_tool_input is BadToolInput.RESULT:
            words = guest.failure("forecast", city="Oslo", days=99)
        else:
            with pytest.raises(Rejected) as caught:
                guest.call("forecast", city="Oslo", days=99)
            words = caught.value.message
        assert words.startswith("forecast: days")
        with pytest.raises(Rejected, match="-32602"):
            guest.call("forcast", city="Oslo")
        assert guest.call("close", station="airport")["content"] == []
        assert "No station 'airport'; there are harbour." in guest.failure(
            "close", station="airport"
        )
        guest.call("close", station="harbour")
        assert guest.failure("spread").startswith("spread failed (id ")


def test_what_clients_are_told_of_a_tool(revision: Revision) -> None:
    with visit("weather.py", revision) as guest:
        tools = {tool["name"]: tool for tool in guest.ask("tools/list")["tools"]}
        assert list(tools) == ["forecast", "record", "close", "spread"]
        schema = tools["forecast"]["inputSchema"]
        assert schema["required"] == ["city"]
        assert schema["properties"]["city"]["description"] == "Name of the city, in English."
        assert schema["properties"]["unit"]["enum"] == ["C", "F"]
        if revision.knows("2025-03-26", None):
            assert tools["close"]["annotations"]["destructiveHint"] is True
        else:
            assert "annotations" not in tools["close"]
