"""Whether the update of a resource is news of another one."""

from collections.abc import Iterator, Set
from typing import Any

import pytest

from colonnade.protocol.subscriptions import is_covered


class Counted(Set[str]):
    """A set that counts how often something is looked up in it."""

    def __init__(self, *members: str) -> None:
        self._members = frozenset(members)
        self.looks = 0

    def __contains__(self, one: Any) -> bool:
        self.looks += 1
        return one in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@pytest.mark.parametrize("deeper", ["", "/x" * 500], ids=["a short address", "a deep one"])
def test_what_is_below_a_resource_is_a_change_of_it(deeper: str) -> None:
    own = {"a://b", "a://folder/"}
    for uri in ("a://b/c", "a://b/", "a://folder/c", "a://folder/c/d"):
        assert is_covered(uri + deeper, own), uri
    for uri in ("a://bc", "a://folders", "a:/b", "b://b"):
        assert not is_covered(uri + deeper, own), uri
    assert is_covered("a://b", own)
    assert is_covered("a://folder/", own)
    assert not is_covered("a://folder", own)
    assert not is_covered(deeper, set())


def test_an_address_of_a_million_slashes_is_not_cut_at_each_of_them() -> None:
    own = Counted("a://b", "a://c")
    assert not is_covered("a://" + "/" * 20_000, own)
    assert own.looks < 200
    assert is_covered("a://b" + "/" * 1_000_000, own)
