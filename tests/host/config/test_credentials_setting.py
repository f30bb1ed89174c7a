"""The setting `credentials`, in colonnade.toml and in a dict of a program."""

from pathlib import Path

import pytest

from colonnade import Host, LocalProtocolError
from colonnade.auth import UpstreamClient
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config, ServerEntry, Settings
from colonnade.host.credentials import UpstreamCredentials
from colonnade.store.memory import MemoryStore
from live import live

URL = "https://example.com/mcp"


def read(folder: Path, text: str) -> Config:
    path = folder / "colonnade.toml"
    path.write_text(text, "utf-8")
    return read_config(path, trust=True)


@pytest.mark.parametrize("mode", ["own", "login", "exchange", "id-jag"])
def test_each_mode_is_read(mode: str, tmp_path: Path) -> None:
    config = read(tmp_path, f'[servers.a]\nurl = "{URL}"\ncredentials = "{mode}"\n')
    assert not config.problems
    assert config.entries["a"].settings.credentials == mode
    assert Host({"a": {"url": URL, "credentials": mode}}).servers == ("a",)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f'url = "{URL}"\ncredentials = "mine"', 'one of "own", "login", "exchange" and "id-jag"'),
        ('command = "run"\ncredentials = "login"', "for a server with a url"),
        (f'url = "{URL}"\ncredentials = "login"\nsharing = "pooled"', 'sharing must be "caller"'),
    ],
)
def test_what_cannot_be_is_a_problem_with_its_place(lines: str, words: str, tmp_path: Path) -> None:
    (problem,) = read(tmp_path, f"[servers.a]\n{lines}\n").problems
    assert words in str(problem)
    assert "credentials" in str(problem)


def test_it_is_no_default_for_all_servers(tmp_path: Path) -> None:
    config = read(tmp_path, f'[defaults]\ncredentials = "login"\n[servers.a]\nurl = "{URL}"\n')
    assert config.entries["a"].settings.credentials == "own"
    assert config.problems or config.warnings


def test_a_dict_that_shares_sessions_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match='sharing must be "caller"'):
        Host({"a": {"url": URL, "credentials": "login", "sharing": "shared"}})


def entry(target: object) -> ServerEntry:
    async def resolve() -> object:
        return target

    settings = Settings(credentials="login")
    return ServerEntry(key="a", resolve=resolve, fingerprint="a", settings=settings)


@live
async def test_a_host_without_credentials_of_callers_says_what_to_pass() -> None:
    async with Host({"a": {"url": URL, "credentials": "login"}}) as host:
        with pytest.raises(LocalProtocolError, match=r"Host\(upstream=…\)"):
            await host.caller("ann").call_tool("a__x")
    async with Host(
        {"a": {"url": URL, "credentials": "login"}, "b": {"url": URL, "credentials": "exchange"}},
        upstream=UpstreamCredentials(),
    ) as host:
        with pytest.raises(LocalProtocolError, match="identify=…"):
            await host.caller("ann").call_tool("a__x")
        with pytest.raises(LocalProtocolError, match="presented=…"):
            await host.caller("ann").call_tool("b__x")


@pytest.mark.parametrize(
    "target", [{"url": URL, "headers": {"authorization": "Bearer x"}}, ["run"]]
)
@live
async def test_an_entry_that_turns_out_to_have_other_credentials_is_not_opened(
    target: object,
) -> None:
    async with Host({"a": entry(target)}, upstream=UpstreamCredentials()) as host:
        with pytest.raises(LocalProtocolError, match="no Authorization header"):
            await host.caller("ann").call_tool("a__x")


def test_mistakes_of_the_program_are_refused_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="encrypted"):
        UpstreamCredentials(store=MemoryStore())
    with pytest.raises(LocalProtocolError, match="belong together"):
        UpstreamCredentials("https://example.com/connect")
    with pytest.raises(LocalProtocolError, match="https"):
        UpstreamCredentials("http://example.com/connect", identify=lambda _: "ann")
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        UpstreamCredentials(store=MemoryStore(), keys=[b"short"])
    with pytest.raises(LocalProtocolError, match="issuer"):
        UpstreamCredentials(clients={"a": UpstreamClient(client_id="of which issuer?")})
