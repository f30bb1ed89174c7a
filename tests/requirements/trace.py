"""Which test proves which rule: read the marks of all tests, compare them with the index, report.

Rules: standard library only; reads the tests as text and never imports them. A mark counts only
if its ids are written out, so that what this file reads is what pytest runs.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from requirements.index import (
    DATES,
    GROUPS,
    LEVELS,
    MOST_WORDS,
    OFFICIAL_DIGEST,
    REVISIONS,
    STATUSES,
    Official,
    Row,
    digest,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mark:
    """One id on one test. `dates` are the revisions that the test names in its own text, or None
    where it takes `revision` and so runs in all that it must, or names none and so has no part
    that differs."""

    id: str
    file: str
    test: str
    line: int
    dates: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{self.file}::{self.test}:{self.line}"


@dataclass(slots=True)
class Marks:
    """What reading the tests gave."""

    found: list[Mark] = field(default_factory=list[Mark])
    problems: list[str] = field(default_factory=list[str])

    def by_id(self) -> dict[str, list[Mark]]:
        named: dict[str, list[Mark]] = {}
        for mark in self.found:
            named.setdefault(mark.id, []).append(mark)
        return named


def read_marks(tests: Path) -> Marks:
    """Every `pytest.mark.spec(...)` in every test_*.py below the folder."""
    marks = Marks()
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.spec" in text:
            _Module(path.relative_to(tests.parent).as_posix(), ast.parse(text), marks).read()
    return marks


def _is_spec(node: ast.AST) -> bool:
    """`pytest.mark.spec` or `mark.spec`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "spec"):
        return False
    inner = node.value
    return (isinstance(inner, ast.Attribute) and inner.attr == "mark") or (
        isinstance(inner, ast.Name) and inner.id == "mark"
    )


def _spec_calls(node: ast.AST) -> Iterator[ast.Call]:
    return (
        inner for inner in ast.walk(node) if isinstance(inner, ast.Call) and _is_spec(inner.func)
    )


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} | {
        inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)
    }


def _assigned(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


class _Module:
    """One file: the named things that hold marks, and the tests that carry or use them."""

    def __init__(self, file: str, tree: ast.Module, marks: Marks) -> None:
        self.file = file
        self.tree = tree
        self.marks = marks
        self.named: dict[str, list[ast.stmt]] = {}
        self.used: set[ast.Call] = set()

    def read(self) -> None:
        for node in self.tree.body:
            held = _assigned(node)
            if isinstance(node, Function) and not node.name.startswith("test"):
                held = [node.name]
            for name in held:
                self.named.setdefault(name, []).append(node)
        self._scope(self.tree.body, prefix="", outer=[])
        called: set[ast.expr] = set()
        for call in _spec_calls(self.tree):
            called.add(call.func)
            if call not in self.used:
                self._complain(call, "this mark is on no test; put it on one, or take it out")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and _is_spec(node) and node not in called:
                self._complain(node, "spec is used without ids; write pytest.mark.spec('R0001')")

    def _complain(self, node: ast.expr, what: str) -> None:
        self.marks.problems.append(f"{self.file}:{node.lineno}: {what}")

    def _scope(self, body: list[ast.stmt], prefix: str, outer: list[ast.AST]) -> None:
        """A module's or a class's statements; `outer` are the marks that all tests in it have."""
        shared = [*outer, *(node for node in body if "pytestmark" in _assigned(node))]
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                self._scope(node.body, f"{prefix}{node.name}::", [*shared, *node.decorator_list])
            elif isinstance(node, Function) and node.name.startswith("test"):
                self._test(node, prefix, [*shared, *node.decorator_list])

    def _test(self, node: Function, prefix: str, carriers: list[ast.AST]) -> None:
        dates = self._dates(node)
        seen: set[str] = set()
        for call in self._calls(carriers):
            self.used.add(call)
            for id_ in self._ids(call):
                if id_ not in seen:
                    seen.add(id_)
                    self.marks.found.append(
                        Mark(id_, self.file, prefix + node.name, node.lineno, dates)
                    )

    def _calls(self, carriers: list[ast.AST]) -> Iterator[ast.Call]:
        """Marks in these expressions and in whatever of this file they mention by name."""
        followed: set[str] = set()
        waiting = list(carriers)
        while waiting:
            node = waiting.pop()
            yield from _spec_calls(node)
            for name in _names(node) & self.named.keys() - followed - {"pytestmark"}:
                followed.add(name)
                waiting.extend(self.named[name])

    def _ids(self, call: ast.Call) -> Iterator[str]:
        if not call.args or call.keywords:
            self._complain(call, "spec takes ids and nothing else: pytest.mark.spec('R0001')")
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
            else:
                self._complain(argument, "write the ids out as strings; this tool reads the text")

    def _dates(self, node: Function) -> frozenset[str] | None:
        arguments = {arg.arg for arg in (*node.args.posonlyargs, *node.args.args)}
        arguments |= {arg.arg for arg in node.args.kwonlyargs}
        mentioned = set().union(*(_names(part) for part in (*node.body, *node.decorator_list)))
        dates = frozenset(REVISIONS[name] for name in mentioned & REVISIONS.keys())
        return None if "revision" in arguments or not dates else dates


def check_rows(rows: Iterable[Row]) -> Iterator[str]:
    """What is wrong with the index alone."""
    first: dict[str, Row] = {}
    for row in rows:
        where = f"{row.file}: {row.id}"
        if row.id in first:
            yield f"{where} is also in {first[row.id].file}; keep one"
        first.setdefault(row.id, row)
        if row.level not in LEVELS:
            yield f"{where}: level {row.level!r} is none of {', '.join(LEVELS)}"
        if unknown := [group for group in row.groups if group not in (*DATES, *GROUPS)]:
            yield f"{where}: unknown revision {', '.join(unknown)}"
        if row.status not in STATUSES:
            yield f"{where}: status {row.status!r} is none of {', '.join(STATUSES)}"
        elif row.status != "tested" and not row.reason.strip():
            yield f"{where}: {row.status} needs a reason"
        if row.status == "deliberate" and not row.level.startswith("SHOULD"):
            yield f"{where}: only a SHOULD can be done otherwise on purpose, this is a {row.level}"
        if not 0 < len(row.words.split()) <= MOST_WORDS:
            yield f"{where}: 1 to {MOST_WORDS} words of our own, not {len(row.words.split())}"


def check_extensions(rows: Iterable[Row], listed: dict[str, str] | None) -> Iterator[str]:
    """Where the index and the list of the extensions differ; nothing where the list is absent."""
    if listed is None:
        return
    indexed = {row.id: row for row in rows if row.of_extension}
    for id_, level in listed.items():
        if id_ not in indexed:
            yield f"{id_} ({level}) of the extensions is missing in the index"
        elif indexed[id_].level != level:
            words = f"{id_} says {indexed[id_].level}, the list of the extensions {level}"
            yield f"{indexed[id_].file}: {words}"
    for id_ in indexed.keys() - listed.keys():
        yield f"{indexed[id_].file}: {id_} is no rule of an indexed extension; take it out"


def check_official(rows: list[Row], official: dict[str, Official] | None) -> Iterator[str]:
    """Where the index and the official list differ; by digest alone where the list is absent."""
    rows = [row for row in rows if not row.of_extension]
    if official is None:
        if digest(rows) != OFFICIAL_DIGEST:
            yield (
                f"the index ({len(rows)} rows) is not the official list that it was made from: an "
                "id is missing, or a level, revision or page was changed; the list itself is not "
                "here to say which"
            )
        return
    indexed = {row.id: row for row in rows}
    for id_, theirs in official.items():
        if theirs.level not in LEVELS:
            continue
        if id_ not in indexed:
            yield f"{id_} ({theirs.level}, {theirs.page}) is missing in the index"
        elif indexed[id_].printed != theirs.printed:
            yield (
                f"{indexed[id_].file}: {id_} says {' | '.join(indexed[id_].printed[1:])}, "
                f"the official list {' | '.join(theirs.printed[1:])}"
            )
        elif len(indexed[id_].words.split()) > 5 and indexed[id_].words in theirs.text:
            yield f"{indexed[id_].file}: {id_} repeats the sentence; say it in our own words"
    for id_, row in indexed.items():
        if id_ not in official or official[id_].level not in LEVELS:
            yield f"{row.file}: {id_} is no MUST or SHOULD of the official list; take it out"
    if digest(official.values()) != OFFICIAL_DIGEST:
        yield "the official list has changed; index the change, then set OFFICIAL_DIGEST"


def check_marks(rows: list[Row], marks: Marks, official: dict[str, Official] | None) -> list[str]:
    """Where the tests and the index differ."""
    indexed = {row.id: row for row in rows}
    problems = list(marks.problems)
    for id_, found in sorted(marks.by_id().items()):
        if id_ in indexed and indexed[id_].status == "tested":
            problems.extend(_narrow(indexed[id_], found))
            continue
        if id_ in indexed:
            why = f"{indexed[id_].status} in the index; a test proves it, so call it tested"
        elif official and id_ in official:
            why = f"a {official[id_].level}, which the index leaves out; take the mark away"
        else:
            why = "no id of the index"
        problems.extend(f"{mark}: {id_} is {why}" for mark in found)
    problems.extend(
        f"{row.file}: {row.id} is called tested and no test names it"
        for row in missing(rows, marks)
    )
    return problems


def missing(rows: Iterable[Row], marks: Marks) -> list[Row]:
    """Rows called tested that no test names."""
    named = marks.by_id()
    return [row for row in rows if row.status == "tested" and row.id not in named]


def _narrow(row: Row, found: list[Mark]) -> Iterator[str]:
    """A rule of several revisions whose tests name only some of them."""
    ran: set[str] = set()
    for mark in found:
        if mark.dates is None:
            return
        ran |= mark.dates
    if absent := [date for date in row.dates if date not in ran]:
        yield (
            f"{found[0]}: {row.id} is a rule of {', '.join(absent)} too; "
            "let the test take `revision` instead of naming one"
        )


def problems_of(
    rows: list[Row],
    marks: Marks,
    official: dict[str, Official] | None,
    extensions: dict[str, str] | None = None,
) -> list[str]:
    """Everything that makes `scripts/trace` fail."""
    return [
        *check_rows(rows),
        *check_official(rows, official),
        *check_extensions(rows, extensions),
        *check_marks(rows, marks, official),
    ]


def count(rows: Iterable[Row]) -> dict[tuple[str, str], Counter[str]]:
    """How many rows of each status there are, by (revision or group, level)."""
    counts = {(group, level): Counter[str]() for group in (*DATES, *GROUPS) for level in LEVELS}
    for row in rows:
        for group in row.groups:
            counts.setdefault((group, row.level), Counter[str]())[row.status] += 1
    return counts
