"""The agents of the examples, agent_openai and agent_anthropic, as processes: with a server of
ours as a child, and a scripted provider over HTTP."""

import os
import subprocess
import sys
from typing import Any

import pytest

from examples.example_client import EXAMPLES
from providers.scripted import RequestContext, Scripted

WAIT_S = 60.0
AGENTS = ("agent_openai", "agent_anthropic")
ANSWER = "It is 4 degrees in Oslo."


def run(agent: str, provider: Scripted, server: str = "weather.py") -> str:
    base = {
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "ANTHROPIC_BASE_URL": provider.url,
        "OPENAI_API_KEY": "secret",
        "ANTHROPIC_API_KEY": "secret",
        "no_proxy": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{agent}.py"), server, "Is it warm?"],
        cwd=EXAMPLES,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
        env={**os.environ, **base},
    )
    assert provider.refused == []
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(provider: Scripted) -> list[Any]:
    """What the last request told of the calls before it."""
    last: list[Any] = provider.asked[-1]["messages"]
    if any(message["role"] == "tool" for message in last):
        return [message["content"] for message in last if message["role"] == "tool"]
    blocks = [block for message in last[1:] for block in message["content"]]
    return [block for block in blocks if block["type"] == "tool_result"]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_calls_what_its_model_wants_and_says_what_that_says(agent: str) -> None:
    both = [("forecast", {"city": "Oslo", "days": 1}), ("spread", {})]
    with Scripted([both, ANSWER]) as provider:
        assert run(agent, provider) == ANSWER + "\n"
    assert len(provider.asked) == 2
    first, second = map(str, results(provider))
    assert "Oslo" in first
    assert "result" in second or "{" in second


@pytest.mark.parametrize("agent", AGENTS)
def test_what_a_model_does_wrong_is_told_to_it_and_the_conversation_goes_on(agent: str) -> None:
    script: list[RequestContext] = [
        [("forcast", {"city": "Oslo"}), ("forecast", {"city": "Olso"}), ("forecast", {"days": 99})],
        ANSWER,
    ]
    if agent == "agent_openai":
        script.insert(1, [("forecast", '{"city": ')])
    with Scripted(script) as provider:
        assert run(agent, provider) == ANSWER + "\n"
    told = [str(one) for one in results(provider)]
    assert "there is no tool 'forcast'; there is forecast" in told[0]
    assert "Did you mean 'Oslo'?" in told[1]
    assert "city" in told[2]
    if agent == "agent_openai":
        assert "the arguments are not valid JSON" in told[3]
        assert all(one.startswith("Error: ") for one in told)
    else:
        assert all("'is_error': True" in one for one in told)


def test_pictures_reach_the_model_that_can_see_them() -> None:
    with Scripted([[("swatch", {"grey": 3}), ("tone", {})], ANSWER]) as provider:
        run("agent_anthropic", provider, "media.py")
    picture, sound = results(provider)
    assert picture["content"][0]["source"]["media_type"] == "image/png"
    assert sound["content"][0]["text"].startswith("[audio audio/wav, ")
    with Scripted([[("swatch", {"grey": None})], ANSWER]) as provider:
        run("agent_openai", provider, "media.py")
    assert results(provider)[0].startswith("[image image/png, ")


@pytest.mark.parametrize("agent", AGENTS)
def test_whoever_types_too_little_is_told_what_to_type(agent: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{agent}.py")], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 1
    assert f"python examples/{agent}.py" in done.stderr
