"""One client of a gateway crashes the server whenever it can: the calls of all others succeed, also
of those that are anonymous as it is."""

import asyncio

import pytest

from colonnade.host.config.settings import MAX_CRASHES
from gateway.crashing import ANONYMOUS, CASES, PRINCIPALS, Figures, crashing


def check(figures: Figures, calls: int, case: str) -> None:
    assert figures.refused == 0, figures.texts
    assert figures.succeeded + figures.lost == calls
    if "for all" not in case:
        assert figures.lost == 0, figures.texts  # nobody else was in the process
    assert figures.crashes > 1
    if case in (PRINCIPALS, ANONYMOUS):
        assert figures.crashes <= MAX_CRASHES


@pytest.mark.parametrize("case", CASES)
def test_a_client_that_crashes_a_server_is_refused_alone(case: str) -> None:
    check(asyncio.run(crashing(principals=12, calls=5, **CASES[case])), 11 * 5, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_one_of_two_hundred_clients_that_crashes_a_server_is_refused_alone(case: str) -> None:
    figures = asyncio.run(crashing(principals=200, calls=30, **CASES[case]))
    check(figures, 199 * 30, case)
    print(f"{case}: {figures}")
