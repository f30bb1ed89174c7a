"""Names for model providers: always safe, the same tomorrow, and leading back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import LocalProtocolError
from colonnade.providers.tool_calls import is_safe, original_name, safe_name
from providers.scripted import NAME

NAMES = st.text(max_size=100) | st.from_regex(r"[a-z._/ -]{1,80}", fullmatch=True)


@given(NAMES)
def test_every_name_becomes_one_that_providers_accept(name: str) -> None:
    made = safe_name(name)
    assert NAME.fullmatch(made)
    assert is_safe(made)
    assert safe_name(made) == made


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_a_safe_name_stays_as_it_is(name: str) -> None:
    assert safe_name(name) == name


@given(st.sets(NAMES, min_size=1, max_size=20))
def test_every_name_is_led_back_to(names: set[str]) -> None:
    for name in names:
        assert original_name(safe_name(name), names) == name


def test_a_name_is_the_same_in_every_process_and_version() -> None:
    """These are in people's logs and caches: a change of them is a change of the interface."""
    assert safe_name("notes.write") == "notes_write_80c18f42e2d6"
    assert safe_name("") == "tool_e3b0c44298fc"
    assert safe_name("größe") == "gr_e_" + safe_name("größe")[-12:]
    long = safe_name("x" * 65)
    assert (len(long), long[:52]) == (64, "x" * 51 + "_")


def test_names_that_look_alike_once_made_safe_stay_different() -> None:
    alike = ["a.b", "a/b", "a b", "a_b", "a..b", "x" * 65, "x" * 66]
    assert len({safe_name(name) for name in alike}) == len(alike)


def test_what_nobody_is_called_leads_nowhere() -> None:
    assert original_name("look", ["listen"]) is None
    assert original_name("notes.write", ["notes.write"]) is None  # no model was told that


def test_a_name_that_poses_as_another_is_not_guessed_at() -> None:
    posing = ["a.b", safe_name("a.b")]
    with pytest.raises(LocalProtocolError, match=r"is the safe name of several tools: 'a\.b'"):
        original_name(posing[1], posing)
