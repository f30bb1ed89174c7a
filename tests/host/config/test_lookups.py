"""References lead to values when a server is about to be reached, and to nobody else."""

import asyncio
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from colonnade.errors import ColonnadeError, Refused
from colonnade.host.config.explain import explain, render
from colonnade.host.config.lookups import Input, Inputs, run_helper, shell_words
from colonnade.host.config.references import InvalidEnvLine, parse_env_file
from host.configured import Place, resolved

CANARY = "canary-value-of-a-secret"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_number_among_variables_keeps_its_digits(place: Place) -> None:
    env = {"ID": 100000000000000001, "RATIO": 1.5, "WHOLE": 2.0, "NEGATIVE": -7}
    place.write(".vscode/mcp.json", {"servers": {"a": {"command": "run", "env": env}}})
    (entry,) = place.read(".vscode/mcp.json", trust=True).entries.values()
    wanted = {"ID": "100000000000000001", "RATIO": "1.5", "WHOLE": "2", "NEGATIVE": "-7"}
    assert resolved(entry)["env"] == wanted


# ---------------------------------------------------------------- variables


def test_a_variable_is_read_when_the_server_is_reached_and_not_before(place: Place) -> None:
    place.write("mcp.json", {"mcpServers": {"a": {"command": "run", "args": ["${A}"]}}})
    env = {"A": "before"}
    entry = place.read("mcp.json", env=env).entries["a"]
    env["A"] = "after"
    assert resolved(entry)["args"] == ["after"]
    del env["A"]
    with pytest.raises(Refused, match=r"server 'a' .* variable A is not set .*mcp\.json:1"):
        resolved(entry)


def test_a_default_is_for_a_variable_that_is_not_set_and_not_for_an_empty_one(
    place: Place,
) -> None:
    place.write(
        "mcp.json", {"mcpServers": {"a": {"command": "run", "args": ["${A:-x}", "${B:-}"]}}}
    )
    assert resolved(place.read("mcp.json").entries["a"])["args"] == ["x", ""]
    full = place.read("mcp.json", env={"A": "", "B": "b"}).entries["a"]
    assert resolved(full)["args"] == ["", "b"]


def test_what_a_variable_holds_is_not_looked_through_again(place: Place) -> None:
    place.write("mcp.json", {"mcpServers": {"a": {"command": "run", "args": ["${A}"]}}})
    entry = place.read("mcp.json", env={"A": "${B}", "B": CANARY}).entries["a"]
    assert resolved(entry)["args"] == ["${B}"]


def test_nothing_is_looked_up_in_other_keys_of_claude_code(place: Place) -> None:
    server = {"type": "http", "url": "https://example.com", "oauth": {"clientId": "${A}"}}
    place.write(".mcp.json", {"mcpServers": {"a": server}})
    entry = place.read(".mcp.json", env={"A": CANARY}, trust=True).entries["a"]
    assert entry.login is not None
    assert entry.login.client_id == "${A}"


# ---------------------------------------------------------------- files, keyrings, programs


def test_a_file_gives_its_first_line(place: Place) -> None:
    place.write("token", f"{CANARY}\r\nmore\n")
    place.write(
        "colonnade.toml", '[servers.a]\nurl = "https://x.example"\nheaders.T = "${file:token}"'
    )
    config = place.read("colonnade.toml")
    assert resolved(config.entries["a"])["headers"] == {"T": CANARY}
    assert not config.warnings


def test_a_file_that_others_may_read_is_used_with_a_warning(place: Place) -> None:
    place.write("token", CANARY).chmod(0o644)
    place.write(
        "colonnade.toml", '[servers.a]\nurl = "https://x.example"\nheaders.T = "${file:token}"'
    )
    (warning,) = place.read("colonnade.toml").warnings
    assert "other users can read" in warning.message
    assert "chmod 600" in warning.message


class Ring(ModuleType):
    """What the library `keyring` offers, as far as it is used; there is no desktop here."""

    def get_password(self, service: str, name: str) -> str | None:
        if service == "broken":
            raise RuntimeError(CANARY)
        return CANARY if (service, name) == ("my/app", "token") else None


def test_a_keyring_gives_what_somebody_put_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[servers.{0}]\nurl = "https://x.example"\nheaders.T = "Bearer ${{keyring:{1}}}"\n'
    names = {"a": "my/app/token", "b": "my/app/other", "c": "broken/x"}
    place.write("colonnade.toml", "".join(text.format(*pair) for pair in names.items()))
    entries = place.read("colonnade.toml").entries
    monkeypatch.setitem(sys.modules, "keyring", None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="pip install keyring"):
        resolved(entries["a"])
    monkeypatch.setitem(sys.modules, "keyring", Ring("keyring"))
    assert resolved(entries["a"])["headers"] == {"T": f"Bearer {CANARY}"}
    with pytest.raises(Refused, match="keyring set my/app other"):
        resolved(entries["b"])
    with pytest.raises(Refused, match="is not available") as caught:
        resolved(entries["c"])
    assert CANARY not in str(caught.value)


def test_a_program_gives_what_it_prints_without_a_shell(place: Place) -> None:
    code = "import sys; print(sys.argv[1], end='\\n\\n')"
    words = json.dumps([sys.executable, "-c", code, "$HOME; `x` && y"])
    text = f'[servers.a]\nurl = "https://x.example"\nheaders.T = {{ command = {words} }}\n'
    place.write("colonnade.toml", text)
    entry = place.read("colonnade.toml", env=dict(os.environ)).entries["a"]
    assert resolved(entry)["headers"] == {"T": "$HOME; `x` && y"}


PROGRAMS = {
    "fails": (f"import sys; print('{CANARY}'); sys.exit('{CANARY}')", "exited with 1"),
    "hangs": ("import time; print(1, flush=True); time.sleep(600)", "did not finish within"),
    "floods": ("while True: print('x' * 9999)", "more than 64 KiB"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_gives_no_value_is_ended_and_says_nothing(name: str) -> None:
    code, words = PROGRAMS[name]
    limit_s = 1.0 if name == "hangs" else 30.0
    with pytest.raises(Refused, match=words) as caught:
        asyncio.run(
            run_helper([sys.executable, "-c", code], cwd=None, env=os.environ, limit_s=limit_s)
        )
    assert CANARY not in str(caught.value)


def test_a_program_that_is_ended_takes_its_own_with_it(tmp_path: Path) -> None:
    """The child of a helper holds a pipe; when both are gone, the pipe ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = f"exec 3>{pipe}; sleep 600 & sleep 600"
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Refused, match="did not finish within"):
        asyncio.run(run_helper(shell_words(line), cwd=None, env=os.environ, limit_s=1.0))
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(Refused, match="'no-such-program' cannot be started"):
        asyncio.run(run_helper(["/x/no-such-program", CANARY], cwd=None, env={}))


def test_a_line_for_a_shell_is_given_to_one_only_where_it_needs_one() -> None:
    assert shell_words("./get-headers --json", "linux") == ["./get-headers", "--json"]
    assert shell_words("a | b", "linux") == ["/bin/sh", "-c", "a | b"]
    assert shell_words("$HOME/x", "darwin") == ["/bin/sh", "-c", "$HOME/x"]
    assert shell_words("a b", "win32") == ["cmd", "/d", "/s", "/c", "a b"]


@pytest.mark.parametrize("output", ["nothing", "[]", '{"A": 1}', '"x"'])
def test_a_helper_for_headers_prints_an_object_of_texts(place: Place, output: str) -> None:
    server = {"url": "https://x.example", "headersHelper": f"printf '%s' '{output}'"}
    place.write("mcp.json", {"mcpServers": {"a": server}})
    with pytest.raises(Refused, match="not print a JSON object"):
        resolved(place.read("mcp.json", env=dict(os.environ)).entries["a"])


# ---------------------------------------------------------------- inputs

ASKING = {
    "inputs": [{"id": "key", "type": "promptString", "description": "A key", "password": True}],
    "servers": {
        "a": {"command": "run", "env": {"KEY": "${input:key}"}},
        "b": {"command": "run", "args": ["${input:key}"]},
    },
}


def test_many_servers_ask_one_person_once(place: Place) -> None:
    place.write("mcp.json", ASKING)
    asked: list[Input] = []

    async def on_input(question: Input) -> str:
        asked.append(question)
        await asyncio.sleep(0)
        return CANARY

    inputs = Inputs(on_input)

    async def both() -> list[Any]:
        config = place.read("mcp.json", on_input=inputs)
        return await asyncio.gather(*(entry.resolve() for entry in config.entries.values()))

    found = asyncio.run(both())
    assert [one.get("env") or one["args"] for one in found] == [{"KEY": CANARY}, [CANARY]]
    again = place.read("mcp.json", on_input=inputs)
    resolved(again.entries["a"])
    assert [(one.id, one.description, one.password) for one in asked] == [("key", "A key", True)]
    assert CANARY not in repr(inputs)


def test_with_nobody_to_ask_a_server_with_an_input_is_a_problem(place: Place) -> None:
    place.write("mcp.json", ASKING)
    config = place.read("mcp.json")
    assert not config.entries
    assert {problem.server for problem in config.problems} == {"a", "b"}


def test_an_answer_that_is_none_reaches_nothing(place: Place) -> None:
    place.write("mcp.json", ASKING)
    entry = place.read("mcp.json", on_input=lambda _: None).entries["a"]
    with pytest.raises(Refused, match="'key' was given no value"):
        resolved(entry)


# ---------------------------------------------------------------- files of variables


def test_a_file_of_variables_is_read_as_people_write_them() -> None:
    text = '\ufeffA=1\r\n  export B = two words  \n#C=3\n\nD="a\\nb # c" # d\nE=\'$A\'\nF=\nG="x\ny"\nA=2'
    assert parse_env_file(text) == {
        "A": "2", "B": "two words", "D": "a\nb # c", "E": "$A", "F": "", "G": "x\ny",
    }  # fmt: skip
    with pytest.raises(InvalidEnvLine, match="line 2"):
        parse_env_file(f"A=1\n{CANARY}\n")


# ---------------------------------------------------------------- no secret anywhere

EVERYWHERE: dict[str, Any] = {
    "a": {
        "command": "run",
        "args": ["--token", CANARY, f"--api-key={CANARY}", "${SECRET}", "${GONE:-x}"],
        "env": {"API_KEY": CANARY, "TOKEN": "${SECRET}", "PLAIN_PASSWORD": CANARY},
    },
    "b": {
        "type": "http",
        "url": f"https://user:{CANARY}@example.com/mcp?key={CANARY}",
        "headers": {"Authorization": f"Bearer {CANARY}", "X-Api-Key": CANARY},
    },
    "c": {
        "type": "http",
        "url": "https://example.com",
        "headers": {"X": "${SECRET}", "Y": "${NO}"},
    },
    "d": {"command": "run", "args": CANARY, "env": {"A": [CANARY]}},
    "e": {
        "command": "run",
        "args": [f"https://example.com/?k={CANARY}", "--token", f"${{GONE:-{CANARY}}}"],
        "env": {"GH_PAT": CANARY, "A_TOKEN": f"${{GONE:-{CANARY}}}"},
    },
    "f": {"type": "http", "url": "https://example.com", "headers": {"X-Auth": CANARY}},
}


def test_no_secret_is_in_what_is_shown_kept_or_complained_about(place: Place) -> None:
    place.write("mcp.json", {"mcpServers": EVERYWHERE})
    reader = place.reader(env={"SECRET": CANARY})
    config = reader.read(place.folder / "mcp.json")
    servers = explain(reader, everything=True)
    text = render(servers, home=str(place.home), folder=str(place.folder))
    everything = f"{config!r} {config.problems!r} {config.warnings!r} {servers!r} {text}"
    assert "${SECRET}: set" in text
    assert "Authorization" in text
    assert CANARY not in everything


def test_what_cannot_be_reached_says_no_secret(place: Place) -> None:
    text = (
        '[servers.a]\nurl = "https://x.example"\nheaders = { A = "${env:S}", B = "${file:gone}" }'
    )
    place.write("gone", "x")
    place.write("colonnade.toml", text)
    entry = place.read("colonnade.toml", env={"S": CANARY}).entries["a"]
    (place.folder / "gone").unlink()
    with pytest.raises(ColonnadeError) as caught:
        resolved(entry)
    assert CANARY not in str(caught.value)


# ---------------------------------------------------------------- what changed


def test_a_fingerprint_changes_with_what_it_is_of_and_with_nothing_else(place: Place) -> None:
    servers: Any = {"a": {"command": "run", "args": ["${A}"]}, "b": {"command": "run"}}
    place.write("mcp.json", {"mcpServers": servers})

    def prints(**env: str) -> list[str]:
        config = place.read("mcp.json", env={"A": "1", **env})
        return [entry.fingerprint for entry in config.entries.values()]

    before = prints()
    assert prints(B="2") == before
    assert prints(A="2")[0] != before[0]
    assert prints(A="2")[1] == before[1]
    servers["b"]["args"] = ["x"]
    place.write("mcp.json", {"mcpServers": servers})
    assert prints()[0] == before[0]
    assert prints()[1] != before[1]
