"""The page on configuration shows what the commands on it say, with the files that are on it.

    pytest tests/cli/test_configuration_page.py --rewrite-transcripts

writes what they say below them; what was written is then read by a person.
"""

import re
import shlex
from pathlib import Path

from cli.process import command
from colonnade.host.config.formats import SETTINGS
from colonnade.host.config.settings import Settings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([^`\n]+)`:\n\n```(?:json|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_is_said(tmp_path: Path, rewrite_transcripts: bool) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    page = PAGE.read_text("utf-8")
    files = FILE.findall(page)
    assert len(files) == 3
    for name, text in files:
        (folder / name).write_text(text, "utf-8")

    def output(block: "re.Match[str]") -> str:
        typed = block[1].splitlines()[0]
        given = {"HOME": str(tmp_path), "COLONNADE_HOME": str(tmp_path / "kept"), "TOKEN": "s3cret"}
        done = command(folder, *shlex.split(typed[2:])[1:], **given)
        text = (done.stdout + done.stderr).replace(str(tmp_path), "/home/you")
        return f"```\n{typed}\n{text}```"

    new = BLOCK.sub(output, page)
    if rewrite_transcripts:
        PAGE.write_text(new, "utf-8")
    assert new == PAGE.read_text("utf-8")
    assert "s3cret" not in new


def test_every_key_of_our_file_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in SETTINGS if f"`{name}`" not in page] == []
    for name in ("start_s", "timeout_s", "idle_s", "max_crashes", "crashes_s", "max_sessions"):
        line = next(line for line in page.splitlines() if line.startswith("|") and name in line)
        assert f"{getattr(Settings(), name):g}" in line
    for name in ("max_list_bytes", "max_list_items"):
        line = next(line for line in page.splitlines() if line.startswith("|") and name in line)
        assert str(getattr(Settings(), name)) in line
