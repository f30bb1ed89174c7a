"""What the audit log itself adds between events is not counted among lost events."""

import errno
import os
from pathlib import Path

import pytest

from colonnade.host.policy.audit import file as audit_file
from colonnade.host.policy.audit.file import AuditFile


def full_disk(descriptor: int, data: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_last_line_that_cannot_be_written_is_no_lost_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next run would say that an event is missing, and there was none."""
    file = AuditFile(str(tmp_path), 10_000, lambda: 1, dict, is_durable=False)
    assert file.write([(1, b'"event":"proposed"')]) is None
    with monkeypatch.context() as full:
        full.setattr(audit_file, "_write", full_disk)
        file.close()
    assert (file.dropped, file.lost) == (0, 0)
    assert file.write([(2, b'"event":"proposed"')]) is None
    file.close()
    assert not any(b'"dropped"' in one.read_bytes() for one in tmp_path.iterdir())
