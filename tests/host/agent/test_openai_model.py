"""A model behind an endpoint: what is sent, what is read, and that its key is nobody's business."""

import asyncio
import logging
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from colonnade import AuthError, CannotConnect, LocalProtocolError, RemoteError, RemoteProtocolError
from colonnade.errors import ColonnadeError, TimedOut
from colonnade.host.agent.openai_model import (
    MAX_ANSWER_BYTES,
    MAX_ATTEMPTS,
    MAX_DELAY_S,
    OpenAICompatible,
    retry_delay,
    sampling_result,
)
from colonnade.protocol import types as t
from host.endpoint import Endpoint, Given, refused, said
from host.scripted_model import calls, hosted, many
from live import live
from providers.scripted import Scripted

KEY = "sk-hunter2-hunter2"
HELLO: list[Any] = [{"role": "user", "content": "Hello."}]


@live
async def test_a_host_and_an_endpoint_with_the_rules_of_the_real_ones() -> None:
    wanted = [("shop__price", {"fruit": "kiwi"}), ("shop__price", {"fruit": "plum", "count": None})]
    with Scripted([wanted, [("shop__nothing", "{")], "25 cents."]) as provider:
        model = OpenAICompatible(f"{provider.url}/v1", model="tiny", key="secret")
        async with hosted() as host:
            run = await host.run(model, "What is a plum?")
        assert provider.refused == []
    assert run.text == "25 cents."
    assert [body["model"] for body in provider.asked] == ["tiny"] * 3
    told = [m["content"] for m in provider.asked[1]["messages"] if m["role"] == "tool"]
    assert told == ["Error: No 'kiwi'; there is pear, plum.", "25"]


@live
async def test_the_search_is_a_tool_that_the_real_ones_would_take() -> None:
    with Scripted([[("find_tools", {"words": "c2", "limit": None})], "Found."]) as provider:
        model = OpenAICompatible(f"{provider.url}/v1", model="tiny", key="secret")
        async with hosted({"many": many(60)}) as host:
            await host.run(model, "Look.")
        assert provider.refused == []
    assert len(provider.asked[1]["tools"]) > 1


@live
async def test_what_is_sent_and_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with Endpoint([(200, {}, said("Hi.")), (200, {}, said("Ho."))]) as endpoint:
        model = OpenAICompatible(
            endpoint.url + "/", model="tiny", key_env="MY_KEY", options={"temperature": 0}
        )
        answer = await model(HELLO, [])
        assert answer["choices"][0]["message"]["content"] == "Hi."
        bare = OpenAICompatible(endpoint.url + "/chat/completions", model="tiny")
        await bare(HELLO, [{"type": "function"}])
    assert endpoint.paths == ["/v1/chat/completions"] * 2
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in endpoint.headers[1]
    assert endpoint.bodies[0] == {"model": "tiny", "temperature": 0, "messages": HELLO}
    assert endpoint.bodies[1]["tools"] == [{"type": "function"}]


@live
async def test_over_tls_with_somebody_who_is_trusted_and_with_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with Endpoint([(200, {}, said("Hi."))] * 3, authority.serving("127.0.0.1")) as endpoint:
        unknown = OpenAICompatible(endpoint.url, model="tiny", key=KEY)
        with pytest.raises(CannotConnect, match="is not trusted"):
            await unknown(HELLO, [])
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        model = OpenAICompatible(endpoint.url, model="tiny", key=KEY)
        for _ in range(2):
            await model(HELLO, [])
        assert len(endpoint.bodies) == 2


@live
async def test_an_endpoint_that_is_busy_is_asked_again_as_it_says() -> None:
    busy: Given = (429, {"retry-after": "0"}, refused("slow down"))
    past = formatdate(0, usegmt=True)
    with Endpoint([busy, (503, {"retry-after": past}, b""), (200, {}, said("Hi."))]) as endpoint:
        await OpenAICompatible(endpoint.url, model="tiny")(HELLO, [])
        assert len(endpoint.bodies) == 3
    with Endpoint([busy] * MAX_ATTEMPTS) as endpoint:
        with pytest.raises(RemoteError, match="slow down") as caught:
            await OpenAICompatible(endpoint.url, model="tiny")(HELLO, [])
        assert (len(endpoint.bodies), caught.value.status) == (MAX_ATTEMPTS, 429)
    late: Given = (429, {"retry-after": "3600"}, refused("tomorrow"))
    with Endpoint([late]) as endpoint, pytest.raises(RemoteError, match="tomorrow"):
        await OpenAICompatible(endpoint.url, model="tiny")(HELLO, [])


def test_pauses_are_those_that_were_asked_for_and_never_long() -> None:
    assert retry_delay(429, None, 1, 0.0) == 1.0
    assert retry_delay(503, None, 3, 0.0) == 4.0
    assert retry_delay(429, None, MAX_ATTEMPTS, 0.0) is None
    assert retry_delay(500, None, 1, 0.0) is None
    assert retry_delay(200, "5", 1, 0.0) is None
    assert retry_delay(429, "5", 1, 0.0) == 5.0
    assert retry_delay(429, f"{MAX_DELAY_S + 1:.0f}", 1, 0.0) is None
    assert retry_delay(429, "9" * 400, 1, 0.0) is None
    assert retry_delay(429, formatdate(1000.0, usegmt=True), 1, 990.0) == 10.0
    assert retry_delay(429, formatdate(1000.0, usegmt=True), 1, 2000.0) == 0.0
    for odd in ("", "-1", "soon", "²", "Thu, 99 Foo 2026 00:00:00 GMT"):
        assert retry_delay(429, odd, 2, 0.0) == 2.0


# ---------------------------------------------------------------- what goes wrong

REFUSALS: list[tuple[Given, type[ColonnadeError], str]] = [
    ((401, {}, refused(f"Incorrect API key: {KEY}")), AuthError, "rejected the API key"),
    ((403, {}, b"<html>"), AuthError, "(403)"),
    ((400, {}, refused(f"bad {KEY}")), RemoteError, "rejected the request: bad …"),
    ((404, {}, b'{"error": "no such model"}'), RemoteError, "is the URL right?: no such model"),
    ((500, {}, b"[1]"), RemoteError, "rejected the request (500)"),
    ((307, {"location": "https://evil.example/"}, b""), RemoteError, "is the URL right?"),
    ((200, {}, b"<html>"), RemoteProtocolError, "did not return a completion"),
    ((200, {}, b"[]"), RemoteProtocolError, "did not return a completion"),
    ((200, {}, b'{"error": 1}'), RemoteProtocolError, "did not return a completion"),
    (
        (200, {"content-length": str(MAX_ANSWER_BYTES + 1)}, b"{"),
        RemoteProtocolError,
        "larger than",
    ),
]


@pytest.mark.parametrize(("given", "kind", "words"), REFUSALS, ids=lambda one: str(one)[:40])
@live
async def test_a_refusal_says_what_the_endpoint_said_and_never_has_the_key(
    given: Given, kind: type[ColonnadeError], words: str
) -> None:
    with Endpoint([given]) as endpoint:
        model = OpenAICompatible(endpoint.url, model="tiny", key=KEY)
        with pytest.raises(kind) as caught:
            await model(HELLO, [])
        assert len(endpoint.bodies) == 1  # nothing is sent again, and nowhere else
    assert words in str(caught.value)
    assert KEY not in f"{caught.value!s} {caught.value!r} {caught.value.__dict__}"


@live
async def test_the_key_is_in_nothing_that_is_shown_or_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), Endpoint([(200, {}, said("Hi."))]) as endpoint:
        model = OpenAICompatible(endpoint.url, model="tiny", key=KEY)
        await model(HELLO, [])
    assert KEY not in f"{model!r} {model} {caplog.text}"
    assert repr(model) == f"OpenAICompatible({endpoint.url!r}, model='tiny')"


@live
async def test_nobody_there_and_nobody_who_answers() -> None:
    with Endpoint([]) as endpoint:
        url = endpoint.url
    with pytest.raises(CannotConnect):
        await OpenAICompatible(url, model="tiny", key=KEY)(HELLO, [])
    with Endpoint([None]) as endpoint:
        model = OpenAICompatible(endpoint.url, model="tiny", timeout_s=0.2)
        with pytest.raises(TimedOut, match=r"'tiny' at 127.0.0.1:\d+ did not respond within 0.2 s"):
            await model(HELLO, [])


@live
async def test_giving_up_lets_the_connection_go() -> None:
    with Endpoint([None]) as endpoint:
        asking = asyncio.create_task(OpenAICompatible(endpoint.url, model="tiny")(HELLO, []))
        await asyncio.to_thread(endpoint.asked.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://models.example/v1", "not https"),
        ("http://127.0.0.1.evil.example/v1", "not https"),
        ("ftp://127.0.0.1/v1", "not an https URL"),
        ("https://me:secret@models.example/v1", "user name or password"),
        ("https://models.example/v1?key=secret", "must not have a query or a fragment"),
        ("models", "not an https URL"),
    ],
)
def test_an_address_where_others_read_along_is_refused(url: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words) as caught:
        OpenAICompatible(url, model="tiny", key=KEY)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_missing_or_no_key_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://models.example/v1"
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(LocalProtocolError, match="NO_KEY is not set"):
        OpenAICompatible(url, model="tiny", key_env="NO_KEY")
    with pytest.raises(LocalProtocolError, match="not both"):
        OpenAICompatible(url, model="tiny", key_env="NO_KEY", key=KEY)
    with pytest.raises(LocalProtocolError, match="not allowed in a header") as caught:
        OpenAICompatible(url, model="tiny", key=f"{KEY}\r\nhost: evil")
    assert KEY not in str(caught.value)


# ---------------------------------------------------------------- sampling


@pytest.mark.spec("R0947")
@live
async def test_a_server_that_wants_a_model_s_words_gets_them_as_long_as_it_said() -> None:
    long = (
        b'{"model": "tiny-2", "choices": '
        b'[{"message": {"content": "It is"}, "finish_reason": "length"}]}'
    )
    picture = t.ImageContent(data="iVBORw0KGgo=", mime_type="image/png")
    asked = t.CreateMessageRequestParams(
        messages=[
            t.SamplingMessage(role="user", content=t.TextContent(text="Is it warm?")),
            t.SamplingMessage(role="assistant", content=t.TextContent(text="Where?")),
            t.SamplingMessage(role="user", content=[t.TextContent(text="Here:"), picture]),
        ],
        max_tokens=17,
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["\n"],
    )
    with Endpoint([(200, {}, long)]) as endpoint:
        said_it = await OpenAICompatible(endpoint.url, model="tiny").sample(asked)
    url = "data:image/png;base64,iVBORw0KGgo="
    assert endpoint.bodies[0] == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is it warm?"},
            {"role": "assistant", "content": "Where?"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Here:"},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            },
        ],
        "max_tokens": 17,
        "temperature": 0.5,
        "stop": ["\n"],
    }
    assert said_it == t.CreateMessageResult(
        role="assistant",
        content=t.TextContent(text="It is"),
        model="tiny-2",
        stop_reason="maxTokens",
    )


def test_a_model_that_was_offered_no_tools_calls_none() -> None:
    with pytest.raises(RemoteProtocolError, match="although there are no tools"):
        sampling_result({"choices": [{"message": calls(("x", {}))}]}, "tiny")
