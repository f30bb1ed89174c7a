"""A limit on the bytes that are held, in total and for each principal."""

from colonnade.protocol.link.in_flight import ByteBudget


def test_a_budget_is_refused_beyond_its_total_and_free_again_when_given_back() -> None:
    budget = ByteBudget(100, 100)
    assert budget.reserve("", 60)
    assert not budget.reserve("", 41)
    assert budget.used == 60
    assert budget.reserve("", 40)
    budget.release("", 60)
    assert budget.reserve("", 60)
    assert budget.used == 100


def test_one_principal_cannot_take_what_is_for_all() -> None:
    budget = ByteBudget(100, 40)
    assert budget.reserve("ada", 40)
    assert not budget.reserve("ada", 1)
    assert budget.reserve("bob", 40)
    budget.release("ada", 10)
    assert budget.reserve("ada", 10)
    budget.release("ada", 40)
    budget.release("bob", 40)
    assert (budget.used, budget._by_principal) == (0, {})


def test_callers_without_a_name_share_the_total_alone() -> None:
    budget = ByteBudget(100, 40)
    assert budget.reserve("", 100)
    budget.release("", 100)
    assert budget.used == 0
