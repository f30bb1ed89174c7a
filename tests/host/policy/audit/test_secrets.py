"""No secret is in an audit log, whatever is configured: canaries in every place that is recorded."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RemoteError
from colonnade.host.policy.audit.lines import Redactor
from colonnade.host.policy.audit.verify import verify
from colonnade.host.policy.request import Consent, Decision, Denial, PolicyRequest
from colonnade.protocol import types as t
from host.audited import files, opened, request, result
from live import live

CANARY = "CANARY"
LINES = 10_000


def word(chance: random.Random) -> str:
    """Letters and digits with a canary in them, which no pattern of secrets knows."""
    letters = "abcdefghijkmnpqrstuvwxyz23456789"
    return CANARY + "".join(chance.choice(letters) for _ in range(24))


def token(chance: random.Random) -> str:
    """A secret that is known by its form."""
    secret = word(chance)
    return chance.choice(
        [
            f"Bearer {secret}",
            f"DPoP {secret}",
            f"sk-proj-{secret}",
            f"ghp_{secret}",
            f"glpat-{secret}",
            f"xoxb-{secret}",
            f"eyJ{secret}.{secret}.{secret}",
            f"https://user:{secret}@example.com/x",
            f"https://example.com/?access_token={secret}",
            f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----",
            f'{{"password": "{secret}"}}',
        ]
    )


def named(chance: random.Random) -> dict[str, Any]:
    """A secret that is known by its name."""
    names = ["password", "apiKey", "client_secret", "Authorization", "X-Api-Key", "session_token"]
    names += ["iban", "customerIban"]  # configured
    secret: Any = chance.choice([word(chance), [word(chance)], {"value": word(chance)}])
    nested: dict[str, Any] = {chance.choice(names): secret, "plain": "visible"}
    for _ in range(chance.randrange(12)):
        nested = {"inner": [nested]} if chance.random() < 0.5 else {"inner": nested}
    return nested


def secretive(chance: random.Random, environment: str) -> PolicyRequest:
    arguments = {**named(chance), "text": token(chance), "echo": environment, token(chance): 1}
    return request(
        arguments,
        server=chance.choice(["files", token(chance)]),
        name=chance.choice(["read", token(chance)]),
        principal=chance.choice(["alex", token(chance)]),
        client=chance.choice(["chat", environment]),
        method=chance.choice(["tools/call", "elicitation/create", "sampling/createMessage"]),
    )


@live
@pytest.mark.slow
@pytest.mark.parametrize("contents", ["none", "arguments", "all"])
async def test_no_secret_is_in_ten_thousand_lines_of_canaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: Any
) -> None:
    chance = random.Random(21)
    environment = word(chance)
    monkeypatch.setenv("GITHUB_TOKEN", environment)
    log = opened(tmp_path, contents=contents, redact=["iban"])
    count = 0
    while count < LINES:
        asked = secretive(chance, environment)
        rule = Decision("ask", token(chance), True, "7f2a", token(chance))
        id = log.proposed(asked)
        log.decided(id, asked, rule)
        log.asked(id, asked, rule)
        if chance.random() < 0.5:
            log.answered(id, asked, Consent("7F2A", token(chance), ""))
        else:
            log.answered(id, asked, Denial(f"declined: {token(chance)} {environment}"))
        log.executed(id, asked, "2025-06-18")
        ending = chance.randrange(3)
        if ending == 0:
            log.returned(id, asked, result(f"{token(chance)} iban: {word(chance)} {environment}"))
        elif ending == 1:
            structured = t.CallToolResult(content=[], structured_content=named(chance))
            log.returned(id, asked, structured)
        else:
            log.abandoned(id, asked, RemoteError(-32603, f"{token(chance)} at {environment}"))
        count += 6
    await log.close()
    text = b"".join(one.read_bytes() for one in files(tmp_path))
    assert text.count(b"\n") >= LINES
    at = text.find(CANARY.encode())
    assert at < 0, text[max(at - 200, 0) : at + 100]
    assert (b"visible" in text) == (contents != "none")
    assert verify(str(tmp_path)).is_valid


@live
async def test_contents_are_recorded_only_as_far_as_configured(tmp_path: Path) -> None:
    found: dict[str, str] = {}
    for contents in ("none", "arguments", "all"):
        log = opened(tmp_path / contents, contents=contents)
        asked = request({"path": "the argument"})
        log.returned(log.proposed(asked), asked, result("the result"))
        form = request({"message": "the form"}, method="elicitation/create")
        log.returned(log.proposed(form), form, result("the answer"))
        log.abandoned(log.proposed(asked), asked, RemoteError(1, "the error"))
        await log.close()
        found[contents] = "".join(one.read_text() for one in files(tmp_path / contents))
    recorded = {
        contents: [
            words
            for words in ("argument", "result", "form", "answer", "error")
            if f"the {words}" in text
        ]
        for contents, text in found.items()
    }
    assert recorded == {
        "none": [],
        "arguments": ["argument"],
        "all": ["argument", "result", "form", "answer", "error"],
    }


@live
async def test_contents_without_secrets_are_recorded_as_they_are(tmp_path: Path) -> None:
    log = opened(tmp_path, contents="all")
    arguments = {"path": "a.txt", "deep": [{"ä": [1, 2.5, True, None, "日本"]}], "tokens": 512}
    asked = request(arguments)
    log.proposed(asked)
    await log.close()
    line = json.loads(files(tmp_path)[0].read_bytes().splitlines()[1])
    assert line["arguments"]["content"] == arguments


def test_a_configured_name_is_redacted_in_text_as_well() -> None:
    redactor = Redactor(["iban"])
    assert redactor.text('{"IBAN": "DE89 3704"}') == '{"IBAN": [redacted]}'
    assert redactor.text("iban=DE89&x=1") == "iban=[redacted]&x=1"
    assert redactor.content(b'{"myIban":{"a":1}}') == {"myIban": "[redacted]"}
    assert Redactor().content(b'{"myIban":{"a":1}}') == {"myIban": {"a": 1}}


def test_values_of_secret_variables_are_redacted_and_short_ones_are_not() -> None:
    redactor = Redactor(
        (), {"API_KEY": "hunter2hunter2", "DB_PASSWORD": "short", "HOME": "/home/a"}
    )
    assert redactor.text("x hunter2hunter2 short /home/a") == "x [redacted] short /home/a"


def test_a_lone_surrogate_and_controls_do_not_break_a_line() -> None:
    redactor = Redactor()
    assert redactor.name("a\ud800b") == "a\\ud800b"
    assert redactor.name("a\x1b[31mb\n") == "a\x1b[31mb\n"  # JSON escapes it


def test_values_that_are_nested_too_deeply_are_left_out() -> None:
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    assert "nested too deeply" in json.dumps(Redactor().content(deep))
    assert Redactor().content(b"[" * 20_000 + b"1" + b"]" * 20_000) == {
        "omitted": "more than 32768 bytes"
    }
    assert Redactor().content(b"[" * 5000 + b"]" * 5000) == {"omitted": "not JSON"}
    assert Redactor().content(b"\xff") == {"omitted": "not JSON"}
