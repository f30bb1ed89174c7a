"""How often a search over a thousand tools finds the one that was meant: bounds that are kept.

Rules: the figures are those of `scripts/bench search`; the bounds are a little below them, so that
a change of the ranking that makes it worse is seen.
"""

from benchmarks.search import LIMIT, recall, search
from benchmarks.search_queries import queries
from benchmarks.search_tools import REFERENCE, corpus

AT_ONE = 0.75
AT_FIVE = 0.90


def test_what_people_mean_is_among_the_first_five_of_a_thousand() -> None:
    found = search(corpus())
    at_one, at_five = recall(found, 1), recall(found, LIMIT)
    print(f"recall at 1: {at_one:.3f}, at {LIMIT}: {at_five:.3f} of {len(found)} queries")
    assert at_five >= AT_FIVE
    assert at_one >= AT_ONE


def test_the_corpus_is_what_it_says() -> None:
    tools = corpus()
    assert tools == corpus()
    assert len(tools) == len({(one.server, one.tool.name) for one in tools}) == 1_000
    asked = queries()
    assert len(asked) == len({words for words, _, _ in asked}) >= 200
    known = {(one.server, one.plain) for one in tools}
    assert {(server, tool) for _, server, tool in asked} <= known
    assert {server for _, server, _ in asked} >= REFERENCE.keys()
