"""How much is installed with Colonnade: a bound that no new requirement crosses unseen.

Rules: read from the metadata of what is installed here, without a network; `scripts/bench size`
shows the same of a fresh environment.
"""

from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.size import MOST_DISTRIBUTIONS

PLATFORMS = {
    "here": {},
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "win32": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


def closure(name: str, extras: frozenset[str], platform: dict[str, str]) -> set[str]:
    """Every distribution that one needs, itself included."""
    environment: dict[str, Any] = {**default_environment(), **platform}
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(name, extras)]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        name, extras = one
        found.add(name)
        for line in needs(name):
            wanted = Requirement(line)
            marker = wanted.marker
            if marker is None or any(
                marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)
            ):
                todo.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return found


def needs(name: str) -> list[str]:
    """The requirements of a distribution; of one for another platform, none are known."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_colonnade_brings_no_more_distributions_than_it_promises(platform: dict[str, str]) -> None:
    found = closure("colonnade", frozenset(), platform)
    assert {"colonnade", "msgspec"} <= found
    assert len(found) <= MOST_DISTRIBUTIONS == 17, sorted(found)


def test_a_closure_follows_extras_and_what_those_need() -> None:
    assert "pydantic" not in closure("colonnade", frozenset(), {})
    with_extra = closure("colonnade", frozenset({"pydantic"}), {})
    assert {"pydantic", "pydantic-core"} <= with_extra
