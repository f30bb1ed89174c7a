"""The box of presented tokens: in memory, one for each principal, opened by grants alone."""

import copy
import pickle

import pytest

from colonnade import Jwt, LoginRequired, Protection
from colonnade.auth import OAuthProxy, github
from colonnade.auth.presented import MAX_KEPT_S, MAX_PRINCIPALS, PresentedTokens
from colonnade.errors import InvalidArgument


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_request_of_a_principal_replaces_its_token() -> None:
    box = PresentedTokens()
    box.put("ann", "one", None)
    box.put("bob", "other", None)
    box.put("ann", "two", None)
    assert box.subject_of("ann") == "two"
    assert box.subject_of("bob") == "other"


def test_a_token_is_forgotten_when_it_expires_or_its_principal_is_silent() -> None:
    clock = Clock()
    box = PresentedTokens(clock=clock)
    box.put("ann", "one", clock.now + 10)
    box.put("bob", "two", None)
    clock.now += 10
    with pytest.raises(LoginRequired):
        box.subject_of("ann")
    assert box.subject_of("bob") == "two"
    clock.now += MAX_KEPT_S
    with pytest.raises(LoginRequired):
        box.subject_of("bob")


def test_a_bounded_number_of_tokens_is_kept() -> None:
    box = PresentedTokens()
    for number in range(MAX_PRINCIPALS + 1):
        box.put(f"user {number}", "token", None)
    with pytest.raises(LoginRequired):
        box.subject_of("user 0")
    assert box.subject_of("user 1") == "token"


def test_a_token_is_neither_shown_nor_copied() -> None:
    box = PresentedTokens()
    box.put("ann", "canary", None)
    assert "canary" not in repr(box) + str(box)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(box)
    with pytest.raises(LoginRequired) as raised:
        box.subject_of("bob")
    assert "canary" not in str(raised.value)


def test_tokens_of_an_authorization_proxy_are_not_kept_since_no_issuer_exchanges_them() -> None:
    proxy = OAuthProxy(github("id", "secret"))
    with pytest.raises(InvalidArgument, match="OAuthProxy"):
        Protection("http://127.0.0.1:8000/mcp", proxy, presented=PresentedTokens())
    Protection("http://127.0.0.1:8000/mcp", Jwt("https://i.example"), presented=PresentedTokens())
