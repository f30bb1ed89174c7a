"""The baskets example: a handle carries what a caller has from one call to the next."""

import json

from colonnade.protocol.revision import Revision
from examples.example_client import run_example


def test_a_basket_is_filled_call_by_call_and_checked_out_once(revision: Revision) -> None:
    with run_example("baskets.py", revision) as client:
        basket = client.text("open_basket")
        assert basket.startswith("basket_")
        client.text("put", basket=basket, item="oats", count=2)
        kept = json.loads(client.text("put", basket=basket, item="pears"))
        assert kept == {"items": {"oats": 2, "pears": 1}}
        other = client.text("open_basket")
        assert client.text("check_out", basket=other) == "0.00 paid"
        assert client.text("check_out", basket=basket) == "8.00 paid"


def test_a_handle_that_names_nothing_says_what_to_do(revision: Revision) -> None:
    with run_example("baskets.py", revision) as client:
        basket = client.text("open_basket")
        assert client.failure("put", basket=basket, item="gold").startswith("No 'gold' here")
        client.text("check_out", basket=basket)
        for gone in (basket, "basket_of_somebody_else"):
            words = client.failure("check_out", basket=gone)
            assert words == f"there is no basket {gone!r}, or it has expired; create a new one"
