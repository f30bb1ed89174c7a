"""A limit on the bytes that are held, in total and for each principal."""

from colonnade.protocol.byte_budget import Budget


def test_a_budget_is_refused_beyond_its_total_and_free_again_when_given_back() -> None:
    budget = Budget(100, 100)
    assert budget.take("", 60)
    assert not budget.take("", 41)
    assert budget.used == 60
    assert budget.take("", 40)
    budget.give("", 60)
    assert budget.take("", 60)
    assert budget.used == 100


def test_one_principal_cannot_take_what_is_for_all() -> None:
    budget = Budget(100, 40)
    assert budget.take("ada", 40)
    assert not budget.take("ada", 1)
    assert budget.take("bob", 40)
    budget.give("ada", 10)
    assert budget.take("ada", 10)
    budget.give("ada", 40)
    budget.give("bob", 40)
    assert (budget.used, budget._by_principal) == (0, {})


def test_callers_without_a_name_share_the_total_alone() -> None:
    budget = Budget(100, 40)
    assert budget.take("", 100)
    budget.give("", 100)
    assert budget.used == 0
