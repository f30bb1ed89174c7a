"""The weather example: arguments, structured results, hints and errors."""

import pytest

from colonnade.protocol.revision import BadToolInput, OutputRoot, Revision
from examples.example_client import Rejected, run_example


def test_a_forecast_is_data_with_a_copy_in_words(revision: Revision) -> None:
    with run_example("weather.py", revision) as client:
        result = client.call("forecast", city="Oslo", days=2, unit="F")
        days = [
            {"day": "2026-01-01", "high": 39.2, "sky": "sun"},
            {"day": "2026-01-02", "high": 40.2, "sky": "cloud"},
        ]
        if revision.output_root is OutputRoot.NONE:
            assert "structuredContent" not in result
        else:
            assert result["structuredContent"] == {"city": "Oslo", "unit": "F", "days": days}
        assert '"sky":"cloud"' in result["content"][0]["text"]
        mean = client.call("record", station="roof", celsius="4.5")
        assert mean["content"][0]["text"] == "3.0"
        wrapped = {OutputRoot.OBJECT: {"result": 3.0}, OutputRoot.ANY: 3.0}
        assert mean.get("structuredContent") == wrapped.get(revision.output_root)


def test_mistakes_are_answered_in_words_that_a_model_can_act_on(revision: Revision) -> None:
    with run_example("weather.py", revision, errors="spread failed (id ") as client:
        assert client.failure("forecast", city="Olso") == "No city 'Olso'. Did you mean 'Oslo'?"
        if revision.bad_tool_input is BadToolInput.RESULT:
            words = client.failure("forecast", city="Oslo", days=99)
        else:
            with pytest.raises(Rejected) as caught:
                client.call("forecast", city="Oslo", days=99)
            words = caught.value.message
        assert words.startswith("forecast: days")
        with pytest.raises(Rejected, match="-32602"):
            client.call("forcast", city="Oslo")
        assert client.call("close", station="airport")["content"] == []
        assert "No station 'airport'; there are harbour." in client.failure(
            "close", station="airport"
        )
        client.call("close", station="harbour")
        assert client.failure("spread").startswith("spread failed (id ")


def test_what_clients_are_told_of_a_tool(revision: Revision) -> None:
    with run_example("weather.py", revision) as client:
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["tools"]}
        assert list(tools) == ["forecast", "record", "close", "spread"]
        schema = tools["forecast"]["inputSchema"]
        assert schema["required"] == ["city"]
        assert schema["properties"]["city"]["description"] == "Name of the city, in English."
        assert schema["properties"]["unit"]["enum"] == ["C", "F"]
        if revision.knows("2025-03-26", None):
            assert tools["close"]["annotations"]["destructiveHint"] is True
        else:
            assert "annotations" not in tools["close"]
