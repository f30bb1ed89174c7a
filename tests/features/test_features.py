"""Every cell of the feature table: the observed verdict is the expected one."""

import pytest

from colonnade.protocol.revision import ALL, Revision
from features.feature import Row
from features.table import ROWS, name_of, promised
from live import live

CELLS = [pytest.param(row, revision, id=name_of(row, revision)) for row in ROWS for revision in ALL]


@pytest.mark.parametrize(("row", "revision"), CELLS)
@live
async def test_a_client_gets(row: Row, revision: Revision) -> None:
    seen = await row.look(revision)
    assert str(seen) == str(promised(row, revision))
