"""The drawings of a call in ARCHITECTURE.md are what a trace of one shows, and they stay short."""

import call_path
from call_path import Step
from live import live

MAX_HTTP_MODULES = 18
MAX_HOST_MODULES = 25


@live
async def test_the_page_draws_the_modules_that_a_call_enters() -> None:
    # To draw them again: python tests/support/call_path.py --write
    assert call_path.drawn() == await call_path.drawings()


@live
async def test_a_call_enters_few_modules() -> None:
    assert len(await call_path.over_http()) <= MAX_HTTP_MODULES
    assert len(await call_path.through_a_host()) <= MAX_HOST_MODULES


def test_a_drawing_has_a_row_for_each_module() -> None:
    steps = [Step("server/dispatch.py", "Dispatch.respond"), Step("ports.py", "stack")]
    assert call_path.drawing("a call", steps).splitlines() == [
        "a call: 2 modules",
        "",
        " 1  server/dispatch.py  Dispatch.respond",
        " 2  ports.py            stack",
    ]
