"""The audit of the marks: what obeys a rule is changed in a copy, and a test that names it must fail.

`mutations/*.toml` holds the changes, `mutations/drawn*.txt` the rows that were drawn for the audit.
Rules: standard library only; changes copies of the package, never the package.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from requirements.index import FOLDER, ROOT, Row, read_index
from requirements.trace import read_marks

MUTATIONS = FOLDER / "mutations"
# Each draw leaves out the rows that had changes before it.
DRAWS = (MUTATIONS / "drawn.txt", MUTATIONS / "drawn-2.txt")
PACKAGE = ROOT / "src" / "colonnade"

# The commit whose tested rules were drawn from at first, and how many are drawn at a time.
SEED = "b48548d71917bd3f5d625edd7db8f57e40dc5379"
COUNT = 100

# The tests of one rule take seconds. A change may leave a test to wait for its own time-out.
WAIT_S = 300.0
# Many machines that run this have two cores, and some tests start processes of their own.
AT_ONCE = 2

PYTEST = ("-m", "pytest", "-qx", "-m", "not battery", "--no-header", "--tb=line", "-rfE")

RED, GREEN, ERROR = "red", "green", "error"


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of one file of the package, and the text that replaces it."""

    file: str
    old: str
    new: str

    def problem(self, package: Path) -> str:
        """Why it cannot be made; empty when it can."""
        path = package / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        found = path.read_text("utf-8").count(self.old)
        return "" if found == 1 else f"{self.file} has {found} times, not once: {self.old!r}"

    def make(self, package: Path) -> None:
        path = package / self.file
        path.write_text(path.read_text("utf-8").replace(self.old, self.new), "utf-8")
        compile(path.read_text("utf-8"), str(path), "exec")


@dataclass(frozen=True, slots=True)
class Mutation:
    """Edits that together break one rule, and what its tests did when they were first tried."""

    id: str
    edits: tuple[Edit, ...]
    note: str
    first: str
    mended: str
    source: str


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests of one rule did with one mutation."""

    mutation: Mutation
    verdict: str
    words: str


class BadMutation(ValueError):
    """A table of mutations/*.toml that cannot be read."""


def read_mutations(folder: Path = MUTATIONS) -> list[Mutation]:
    """Every mutation of every *.toml in the folder, in the order of their ids."""
    read = [
        _mutation(table, f"{path.name}: mutation {number}")
        for path in sorted(folder.glob("*.toml"))
        for number, table in enumerate(
            tomllib.loads(path.read_text("utf-8")).get("mutation", ()), start=1
        )
    ]
    return sorted(read, key=lambda mutation: mutation.id)


def _mutation(table: dict[str, object], where: str) -> Mutation:
    text = {
        name: value
        for name, value in table.items()
        if name in ("id", "file", "old", "new", "note", "first", "mended")
        and isinstance(value, str)
    }
    if unknown := sorted(table.keys() - text.keys() - {"also"}):
        raise BadMutation(f"{where}: unknown field or not a string: {', '.join(unknown)}")
    if absent := [name for name in ("id", "file", "old", "new", "first") if name not in text]:
        raise BadMutation(f"{where}: needs {', '.join(absent)}")
    first, mended = text["first"], text.get("mended", "")
    if first not in (RED, GREEN) or (first == GREEN) != bool(mended):
        raise BadMutation(f'{where}: first is "red", or "green" with `mended` saying what was done')
    also = table.get("also", [])
    try:
        more = [Edit(**edit) for edit in cast("list[dict[str, str]]", also)]
    except TypeError:
        raise BadMutation(f"{where}: also is a list of {{file, old, new}}") from None
    edits = (Edit(text["file"], text["old"], text["new"]), *more)
    return Mutation(text["id"], edits, text.get("note", ""), first, mended, where)


def draw(rows: Iterable[Row], seed: str = SEED, count: int = COUNT) -> list[str]:
    """The ids of `count` tested MUST and MUST NOT rows, the same for the same rows and seed."""
    ids = sorted(
        row.id for row in rows if row.status == "tested" and row.level in ("MUST", "MUST NOT")
    )
    return sorted(random.Random(seed).sample(ids, count))


def read_drawn(path: Path) -> list[str]:
    """A recorded draw: the index changes, and what was drawn must not."""
    lines = path.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def make_environment(folder: Path) -> Path:
    """A Python that imports the copy of the package in `folder`, and all else as this one does.

    Not by PYTHONPATH: tests start commands whose environment they choose themselves.
    """
    home = folder / "environment"
    venv.create(home, symlinks=True)
    programs = "Scripts" if os.name == "nt" else "bin"
    own, made = (
        Path(sysconfig.get_path("purelib", "venv", {"base": str(base), "platbase": str(base)}))
        for base in (sys.prefix, home)
    )
    made.joinpath("mutation.pth").write_text(f"{folder}\n{own}\n", "utf-8")
    command = Path(sys.prefix, programs, "colonnade")
    if command.exists():
        shutil.copy(command, home / programs)
    return home / programs / Path(sys.executable).name


def run(mutation: Mutation, files: Sequence[str]) -> Result:
    """Run the tests that name the rule on a changed copy of the package."""
    result = partial(Result, mutation)
    if problems := [words for edit in mutation.edits if (words := edit.problem(PACKAGE))]:
        return result(ERROR, "; ".join(problems))
    if not files:
        return result(ERROR, "no test names this rule")
    with tempfile.TemporaryDirectory(prefix="colonnade-mutation-") as name:
        folder = Path(name)
        copy = folder / "colonnade"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            for edit in mutation.edits:
                edit.make(copy)
        except SyntaxError as error:
            return result(ERROR, f"the changed file is not Python: {error}")
        try:
            ran = subprocess.run(
                [str(make_environment(folder)), *PYTEST, "--spec", mutation.id, *files],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=WAIT_S,
            )
        except subprocess.TimeoutExpired:
            return result(ERROR, f"the tests took longer than {WAIT_S:g} seconds")
    return result(*verdict_of(ran.returncode, ran.stdout, ran.stderr))


def verdict_of(code: int, stdout: str, stderr: str) -> tuple[str, str]:
    """What pytest's exit code means, and the line of its output that says most."""
    lines = stdout.strip().splitlines() or stderr.strip().splitlines() or ["no output"]
    if "ERROR collecting" in stdout or "errors during collection" in stdout:
        return ERROR, "a test file could not be imported: " + lines[-1]
    if code == 0:
        return GREEN, "no test that names the rule fails: " + lines[-1]
    if code == 1:
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return RED, (failed or lines)[-1]
    return ERROR, f"pytest ended with {code}: {lines[-1]}"


def table_of(
    mutations: Sequence[Mutation], draws: Sequence[Sequence[str]], rows: dict[str, Row]
) -> str:
    """The audit as a table in Markdown: every drawn row, then the rows named beside the draws."""
    drawn = [id_ for one in draws for id_ in one]
    lines = ["| row | rule | change | first | mended |", "|---|---|---|---|---|"]
    named = {mutation.id for mutation in mutations}
    for id_ in [*drawn, *sorted(named - set(drawn))]:
        words = rows[id_].words
        found = [mutation for mutation in mutations if mutation.id == id_]
        lines += [f"| {id_} | {words} | {one.note} | {one.first} | {one.mended} |" for one in found]
        if not found:
            lines.append(f"| {id_} | {words} | {_without(rows[id_])} | | |")
    lines.append("")
    not_red = {mutation.id for mutation in mutations if mutation.first != RED}
    for number, one in enumerate(draws, start=1):
        here = named & set(one)
        share = f"{len(here - not_red)} of {len(here)} drawn rows"
        lines.append(f"Draw {number}: at first {share} were red for each of their changes.")
    return "\n".join(lines)


def _without(row: Row) -> str:
    if row.status != "tested":
        return f"now {row.status}: {row.reason}"
    return "no mutation yet"


def share_of(results: Sequence[Result]) -> str:
    """`97 of 100 red`: a rule counts when each of its mutations is red."""
    ids = {result.mutation.id for result in results}
    not_red = {result.mutation.id for result in results if result.verdict != RED}
    return f"{len(ids - not_red)} of {len(ids)} red"


def main(arguments: list[str]) -> int:
    """0 when every mutation that ran is red, 1 otherwise, 2 for arguments that cannot be read."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutate requirements",
        description="Break one rule of the specification at a time in a copy of the package; a "
        "test that names the rule must fail. Writes nothing.",
    )
    parser.add_argument("ids", nargs="*", metavar="R0234", help="these rules only")
    parser.add_argument("--table", action="store_true", help="print what was found; run nothing")
    options = parser.parse_args(arguments)
    rows = {row.id: row for row in read_index()}
    mutations, draws = read_mutations(), [read_drawn(path) for path in DRAWS]
    drawn = [id_ for one in draws for id_ in one]
    if options.table:
        print(table_of(mutations, draws, rows))
        return 0
    wanted = set(options.ids)
    if unknown := sorted(wanted - {mutation.id for mutation in mutations}):
        print("no mutation for " + ", ".join(unknown))
        return 2
    chosen = [mutation for mutation in mutations if not wanted or mutation.id in wanted]
    marks = read_marks(ROOT / "tests").by_id()
    files = {id_: sorted({mark.file for mark in found}) for id_, found in marks.items()}
    results: list[Result] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(lambda one: run(one, files.get(one.id, ())), chosen):
            results.append(result)
            print(f"{result.mutation.id} {result.verdict:5} {result.words}", flush=True)
    if not wanted:
        named = {mutation.id for mutation in mutations}
        for id_ in drawn:
            if id_ not in named:
                print(f"{id_} none  {_without(rows[id_])}")
    for number, one in enumerate(draws, start=1):
        of_draw = [result for result in results if result.mutation.id in one]
        print(f"draw {number}: {share_of(of_draw)}")
    beside = [result for result in results if result.mutation.id not in drawn]
    if beside:
        print(f"other rows: {share_of(beside)}")
    return 0 if all(result.verdict == RED for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
