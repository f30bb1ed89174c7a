"""The system's keyring, where there is one: the key is made once, and no trouble of it is ours."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from colonnade.auth.client.storage import keyring_key
from colonnade.client.auth import machine_key


class Ring(ModuleType):
    """What the library `keyring` offers, as far as it is used; there is no desktop here."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = broken

    def get_password(self, service: str, account: str) -> str | None:
        if self.broken:
            raise RuntimeError("no desktop")
        return self.kept.get((service, account))

    def set_password(self, service: str, account: str, password: str) -> None:
        self.kept[service, account] = password


def installed(monkeypatch: pytest.MonkeyPatch, ring: Any) -> None:
    monkeypatch.setitem(sys.modules, "keyring", ring)


def test_a_key_is_made_once_for_each_account(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Ring())
    first = keyring_key("a")
    assert first is not None
    assert len(first) == 32
    assert (keyring_key("a"), keyring_key("b") == first) == (first, False)


def test_with_a_keyring_there_is_no_key_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, Ring())
    assert machine_key(tmp_path) == machine_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ring", [None, Ring(broken=True)], ids=["none", "broken"])
def test_without_one_that_works_the_key_is_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ring: Any
) -> None:
    installed(monkeypatch, ring)
    assert keyring_key("a") is None
    assert machine_key(tmp_path) == machine_key(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["credentials.key"]


def test_what_is_no_key_in_a_keyring_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    ring.set_password("colonnade", "a", "c2hvcnQ=")
    installed(monkeypatch, ring)
    assert keyring_key("a") is None
