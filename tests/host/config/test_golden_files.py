"""Every dialect as its program reads it: whole folders in, and all that a host makes of them out.

    pytest tests/host/config/test_golden_files.py --rewrite-transcripts

writes the expectations anew; what was written is then read by a person before it is kept.

Rules: a case is a folder in `golden`, with a home and a folder in it, and a `case.json` that says
which files are read, with which variables, and what a person answers.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from colonnade.host.config import formats as scopes
from colonnade.host.config.lookups import Input
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config, Settings

GOLDEN = Path(__file__).with_name("golden")
CASES = sorted(case.parent.name for case in GOLDEN.glob("*/case.json"))


class GoldenCase:
    """A case in a folder of its own."""

    def __init__(self, case: str, root: Path) -> None:
        self.home, self.folder = root / "home", root / "folder"
        self.said: dict[str, Any] = json.loads((GOLDEN / case / "case.json").read_text("utf-8"))
        for name in ("home", "folder"):
            (root / name).mkdir()
            if (GOLDEN / case / name).exists():
                shutil.copytree(GOLDEN / case / name, root / name, dirs_exist_ok=True)
        for file in root.rglob("*"):
            if file.is_file():
                file.write_text(self.filled(file.read_text("utf-8")), "utf-8")
                file.chmod(0o600)

    def filled(self, text: str) -> str:
        return text.replace("{home}", str(self.home)).replace("{folder}", str(self.folder))

    def emptied(self, text: str) -> str:
        return text.replace(str(self.home), "{home}").replace(str(self.folder), "{folder}")

    def read(self) -> Config:
        answers: dict[str, str] = self.said.get("answers", {})

        def on_input(question: Input) -> str | None:
            return answers.get(question.id)

        return read_config(
            [self.filled(path) for path in self.said["read"]],
            trust=True,
            on_input=on_input,
            env=self.said["env"],
            home=str(self.home),
            folder=self.folder,
        )

    def told(self, config: Config) -> str:
        """All of a configuration, as a person reads it."""
        lines: list[str] = []
        for key, entry in config.entries.items():
            lines += [f"{key}: {entry.shown}", f"  at {entry.place}"]
            if key not in self.said.get("not_resolved", ()):
                found = asyncio.run(cast("Any", entry.resolve()))
                lines += [f"  {n} = {json.dumps(v, ensure_ascii=False)}" for n, v in found.items()]
            for name in Settings.__struct_fields__:
                value = getattr(entry.settings, name)
                if value != getattr(Settings(), name):
                    lines.append(f"  settings.{name} = {value!r}")
            if entry.login is not None:
                lines.append(f"  {entry.login}")
            lines.append("")
        lines += [f"problem: {problem}" for problem in config.problems]
        lines += [f"warning: {warning}" for warning in config.warnings]
        return self.emptied("\n".join(lines) + "\n")


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_read_as_its_program_reads_it(
    case: str, tmp_path: Path, rewrite_transcripts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden_case = GoldenCase(case, tmp_path)
    monkeypatch.setitem(
        scopes.MANAGED_FOLDERS, scopes.platform(), str(golden_case.folder / "managed")
    )
    told = golden_case.told(golden_case.read())
    expected = GOLDEN / case / "expected.txt"
    if rewrite_transcripts:
        expected.write_text(told, "utf-8")
    assert told == expected.read_text("utf-8")


def test_every_dialect_has_a_case() -> None:
    from colonnade.host.config.formats import KEYS

    assert set(KEYS) <= set(CASES)
