"""Enables assertion rewriting of pytest in the modules with the rows."""

from pathlib import Path

import pytest

ROWS = [path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "command"]

pytest.register_assert_rewrite(*(f"features.{name}" for name in ROWS))
