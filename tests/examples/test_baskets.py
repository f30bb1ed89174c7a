"""The baskets example: a handle carries what a caller has from one call to the next."""

import json

from colonnade.protocol.revision import Revision
from examples.example_client import visit


def test_a_basket_is_filled_call_by_call_and_checked_out_once(revision: Revision) -> None:
    with visit("baskets.py", revision) as guest:
        basket = guest.text("open_basket")
        assert basket.startswith("basket_")
        guest.text("put", basket=basket, item="oats", count=2)
        kept = json.loads(guest.text("put", basket=basket, item="pears"))
        assert kept == {"items": {"oats": 2, "pears": 1}}
        other = guest.text("open_basket")
        assert guest.text("check_out", basket=other) == "0.00 paid"
        assert guest.text("check_out", basket=basket) == "8.00 paid"


def test_a_handle_that_names_nothing_says_what_to_do(revision: Revision) -> None:
    with visit("baskets.py", revision) as guest:
        basket = guest.text("open_basket")
        assert guest.failure("put", basket=basket, item="gold").startswith("No 'gold' here")
        guest.text("check_out", basket=basket)
        for gone in (basket, "basket_of_somebody_else"):
            words = guest.failure("check_out", basket=gone)
            assert words == f"there is no basket {gone!r}, or it has expired; create a new one"
