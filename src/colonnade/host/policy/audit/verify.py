"""Reads the files of an audit log: calls for people, and whether a line was changed or is missing.

    report = verify("audit")
    for finding in report.findings:
        print(finding)

What `verify` finds: a line that was altered, removed, added or moved, in its file or to another
one; a file that was cut, renamed or removed, if its run or another one went on after it. What it
cannot find without `heads`: that the newest lines of a folder were removed, that all lines from
some point on were written anew, with digests to match, or that a whole run was forged. The lines
named in a store show all three.

Rules: nothing is written. A file of any size and content is read in bounded memory, and never
raises. A line that a killed process has not finished is no finding.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from colonnade.host.policy.audit.lines import (
    CLOSED,
    DROPPED,
    FORMAT,
    HEADS,
    MAX_LINE_BYTES,
    OUTCOMES,
    AuditLine,
    FileName,
    PreviousRun,
    StoredHead,
    decode_line,
    line_digest,
    parse_file_name,
)

# Files of one folder: years of a process that is restarted every hour.
MAX_FILES = 100_000
# Files whose last lines a new run looks at, the latest first: more than there are processes that
# write at the same time. An older run was named by one that began since.
MAX_RECENT_FILES = 128
# The end of a file that is read for its last line; lines without contents are below 2 KiB.
TAIL_BYTES = 16 * 1024
# Findings that are reported of one file; the first says where to look.
MAX_FINDINGS = 20
# Calls without an outcome that are kept while a run is read; more are shown as they are.
MAX_OPEN_CALLS = 10_000

FindingKind: TypeAlias = Literal[
    "altered", "missing", "order", "foreign", "unreadable", "cut", "name", "file", "run", "unknown"
]


class AuditFinding(NamedTuple):
    """What is wrong with a file or one of its lines; `line` is 0 for the file."""

    file: str
    line: int
    kind: FindingKind
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class VerifyReport(Struct):
    """The result of `verify`. `notes` are for people, and mean no harm by themselves."""

    files: int = 0
    runs: int = 0
    lines: int = 0
    dropped: int = 0
    findings: list[AuditFinding] = []
    notes: list[AuditFinding] = []

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class AuditPath(NamedTuple):
    """A file of an audit log, and what its name says."""

    path: str
    name: FileName

    def __str__(self) -> str:
        return str(self.name)


# ---------------------------------------------------------------- files and lines


def audit_files(folder: str) -> list[AuditPath]:
    """The files of a folder, in the order of runs and parts. Raises `OSError`."""
    found: list[AuditPath] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = parse_file_name(entry.name)
            if name is not None and entry.is_file(follow_symlinks=False):
                found.append(AuditPath(entry.path, name))
                if len(found) > MAX_FILES:
                    raise OSError(f"{folder} has more than {MAX_FILES} audit files")
    return sorted(found, key=lambda one: one.name)


class ReadLine(NamedTuple):
    """A line of a file: its number, its bytes, and whether it ends with a newline. One that is too
    long is the last one, and has no bytes."""

    number: int
    data: bytes
    is_complete: bool


def read_lines(path: str) -> Iterator[ReadLine]:
    """The lines of a file. Raises `OSError`."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if line.endswith(b"\n"):
                yield ReadLine(number, line[:-1], True)
            elif len(line) == MAX_LINE_BYTES:
                yield ReadLine(number, b"", False)
                return
            else:
                yield ReadLine(number, line, False)


def _first_line(path: str) -> AuditLine | None:
    try:
        for line in read_lines(path):
            return decode_line(line.data) if line.is_complete else None
    except OSError:
        pass
    return None


def _last_line(path: str) -> tuple[AuditLine, str] | None:
    """The last complete line of a file, and its digest."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            for length in (TAIL_BYTES, MAX_LINE_BYTES * 2):
                file.seek(max(size - length, 0))
                lines = file.read(length).split(b"\n")[:-1]
                # The first may be the end of a line only.
                whole = lines if length >= size else lines[1:]
                if whole:
                    line = decode_line(whole[-1])
                    return (line, line_digest(whole[-1])) if line is not None else None
    except OSError:
        pass
    return None


def last_lines(folder: str) -> list[PreviousRun]:
    """The last lines of the runs that no other run follows yet, the latest first. Raises
    `OSError`."""
    files = audit_files(folder)
    if len(files) > MAX_RECENT_FILES:
        files = sorted(files, key=_modified_at)[-MAX_RECENT_FILES:]
    newest: dict[str, AuditPath] = {}
    followed: set[tuple[str, str]] = set()
    for one in sorted(files, key=lambda one: one.name):
        newest[one.name.run] = one
        head = _first_line(one.path) if one.name.part == 1 else None
        if head is not None:
            followed |= {(other.run, other.digest) for other in head.previous}
    found: list[PreviousRun] = []
    for run, one in reversed(newest.items()):
        last = _last_line(one.path)
        if last is not None and last[0].run == run and (run, last[1]) not in followed:
            found.append(PreviousRun(run, one.name.began, last[0].seq, last[1]))
    return found


def _modified_at(one: AuditPath) -> int:
    try:
        return os.stat(one.path).st_mtime_ns
    except OSError:
        return 0


# ---------------------------------------------------------------- verify


class _Reference(NamedTuple):
    """A line that must be there: its digest, and what says so."""

    digest: str
    source: str
    file: str
    line: int


def verify(
    folder: str,
    heads: Iterable[StoredHead] | None = None,
    *,
    host: str = "",
    archived: bool = False,
) -> VerifyReport:
    """Read all files of a folder and compare all digests. Raises `OSError` if it cannot be listed.

    `heads` are the last lines of runs as a store has them; None without a store. For missing runs,
    only heads of processes on `host` count. With `archived`, files of the oldest runs may be
    missing.
    """
    return _Verification(folder, archived).run(None if heads is None else list(heads), host)


class _Verification:
    """One pass over a folder."""

    def __init__(self, folder: str, archived: bool) -> None:
        self._folder = os.path.abspath(folder)
        self._archived = archived
        self.report = VerifyReport(findings=[], notes=[])
        self._runs: dict[str, list[AuditPath]] = defaultdict(list)
        self._references: dict[str, dict[int, list[_Reference]]] = defaultdict(dict)
        # For each run: the earlier runs that its first line names.
        self._previous: dict[str, list[str]] = {}

    def run(self, heads: Sequence[StoredHead] | None, host: str) -> VerifyReport:
        files = audit_files(self._folder)
        for one in files:
            self._runs[one.name.run].append(one)
        oldest = files[0].name.began if files else ""
        for one in files:
            if one.name.part == 1:
                self._follow(one, oldest)
        for head in heads or ():
            self._follow_stored(head, host, oldest)
        if heads is not None:
            self._find_unknown({head.run for head in heads})
        for parts in self._runs.values():
            self._verify_run(parts)
        self.report.files, self.report.runs = len(files), len(self._runs)
        self.report.findings.sort()
        return self.report

    # ------------------------------------------------------------ what must be there

    def _follow(self, one: AuditPath, oldest: str) -> None:
        """Note the lines that the head of a run names."""
        head = _first_line(one.path)
        previous = head.previous if head is not None else ()
        self._previous[one.name.run] = [other.run for other in previous]
        for other in previous:
            reference = _Reference(other.digest, f"run {one.name.run}", str(one), 1)
            if other.run in self._runs:
                self._refer(other.run, other.seq, reference)
                continue
            message = f"the files of run {other.run}, which began at {other.began}, are missing"
            if self._archived and other.began < oldest:
                self.report.notes.append(AuditFinding(str(one), 1, "run", message))
            else:
                self.report.findings.append(AuditFinding(str(one), 1, "run", message))

    def _follow_stored(self, head: StoredHead, host: str, oldest: str) -> None:
        reference = _Reference(head.digest, "the store", "", 0)
        if head.run in self._runs:
            self._refer(head.run, head.seq, reference)
        elif head.folder == self._folder and head.host == host:
            message = f"the files of run {head.run}, which wrote until {head.time}, are missing"
            finding = AuditFinding(self._folder, 0, "run", message)
            is_old = self._archived and head.time < oldest
            (self.report.notes if is_old else self.report.findings).append(finding)

    def _find_unknown(self, known: set[str]) -> None:
        """Report runs that are unknown to the store, and may be forged.

        Runs that are older than the store are exempt: the first run in the store names them, or one
        of them names another. Being named by a later run proves nothing, since a process names
        every run that it finds in the folder when it starts, forged ones too.
        """
        first = next((run for run in self._runs if run in known), None)
        earlier = set[str]()
        waiting = [first] if first is not None else []
        while waiting:
            for run in self._previous.get(waiting.pop(), ()):
                if run not in earlier:
                    earlier.add(run)
                    waiting.append(run)
        for run, parts in self._runs.items():
            if run not in known and run not in earlier:
                message = f"the store does not know run {run}: it is forged, or its process could"
                message += " not store its last line"
                self.report.findings.append(AuditFinding(str(parts[0]), 0, "unknown", message))

    def _refer(self, run: str, seq: int, reference: _Reference) -> None:
        self._references[run].setdefault(seq, []).append(reference)

    # ------------------------------------------------------------ one run

    def _verify_run(self, parts: list[AuditPath]) -> None:
        state = _RunState(self.report, self._references.get(parts[0].name.run, {}))
        expected = 1
        for index, one in enumerate(parts):
            if one.name.part != expected:
                state.skip_parts(one, expected, archived=self._archived and index == 0)
            expected = one.name.part + 1
            state.read_file(one, is_last=index == len(parts) - 1)
        state.end(parts[-1])


class _RunState:
    """The chain of one run, as far as it is read."""

    def __init__(self, report: VerifyReport, references: dict[int, list[_Reference]]) -> None:
        self._report = report
        self._references = dict(references)
        # Of the line before; None if it is not known.
        self._seq: int | None = 0
        self._digest: str | None = ""
        self._is_closed = False
        self._file = ""
        self._found = 0

    def skip_parts(self, one: AuditPath, expected: int, *, archived: bool) -> None:
        """Some files before this one are not there."""
        missing = f"file {expected}" if one.name.part == expected + 1 else f"files from {expected}"
        message = f"{missing} of this run to {one.name.part - 1} missing; this is {one.name.part}"
        finding = AuditFinding(str(one), 0, "file", message)
        (self._report.notes if archived else self._report.findings).append(finding)
        self._seq = self._digest = None

    def read_file(self, one: AuditPath, *, is_last: bool) -> None:
        """Verify the lines of a file."""
        self._file, self._found = str(one), 0
        number = 0
        try:
            for read in read_lines(one.path):
                number = read.number
                if not read.is_complete:
                    self._incomplete(read, is_last=is_last)
                    break
                self._report.lines += 1
                self._line(read, one)
        except OSError as error:
            self._find(0, "unreadable", f"cannot be read: {error.strerror}")
        if not number:
            words = "the file is empty: its process was killed at once, or it was cut"
            self._note_or_find(0, words, is_note=is_last)

    def _incomplete(self, read: ReadLine, *, is_last: bool) -> None:
        if not read.data:
            words = f"a line of more than {MAX_LINE_BYTES} bytes, which no audit log has"
            self._find(read.number, "unreadable", words)
            return
        words = "the last line is incomplete: its process was killed while it wrote, or it was cut"
        self._note_or_find(read.number, words, is_note=is_last)

    def _note_or_find(self, number: int, message: str, *, is_note: bool) -> None:
        if is_note:
            self._report.notes.append(AuditFinding(self._file, number, "cut", message))
        else:
            self._find(number, "cut", message)

    def _line(self, read: ReadLine, one: AuditPath) -> None:
        number, digest = read.number, line_digest(read.data)
        line = decode_line(read.data)
        if line is None:
            self._find(number, "unreadable", "this is not a line of an audit log")
            if self._seq is not None:
                self._seq += 1
            self._digest = None
            return
        self._check_head(line, number, one)
        if line.run != one.name.run:
            self._find(number, "foreign", f"this line is of run {line.run}")
            return
        self._compare(line, number)
        if self._is_closed:
            self._find(number, "order", "this line comes after the end of its run")
        self._is_closed = self._is_closed or line.event == CLOSED
        if line.event == DROPPED:
            self._report.dropped += line.count
        for reference in self._references.pop(line.seq, ()):
            if reference.digest != digest:
                self._find(number, "altered", f"{reference.source} knows another line {line.seq}")
        self._seq, self._digest = line.seq, digest

    def _compare(self, line: AuditLine, number: int) -> None:
        """Compare the number and the digest that a line has with the line before it."""
        if self._seq is None:
            return
        if line.seq != self._seq + 1:
            if line.seq > self._seq + 1:
                words = f"lines {self._seq + 1} to {line.seq - 1} of the run are missing before it"
                self._find(number, "missing", words)
            else:
                self._find(number, "order", f"line {line.seq} of the run, after line {self._seq}")
        elif self._digest is not None and line.prev != self._digest:
            words = "its digest of the line before is another: that line was altered"
            self._find(number, "altered", words)

    def _check_head(self, line: AuditLine, number: int, one: AuditPath) -> None:
        is_head = line.event in HEADS
        if is_head != (number == 1):
            words = "a head inside of a file" if is_head else "the file does not begin with a head"
            self._find(number, "order", words)
        elif is_head:
            if line.format != FORMAT:
                self._find(number, "unreadable", f"format {line.format} is not known")
            if (line.run, line.part) != (one.name.run, one.name.part):
                words = f"the head is of run {line.run}, file {line.part}: the file was renamed"
                self._find(number, "name", words)
            if (line.event == HEADS[0]) != (line.seq == 1):
                self._find(number, "order", "only the first line of a run opens it")

    def end(self, last: AuditPath) -> None:
        """The run has no more lines."""
        self._file, self._found = str(last), 0
        for seq, references in sorted(self._references.items()):
            for reference in references:
                words = f"the run ends before its line {seq}, which {reference.source} knows"
                self._find(0, "cut", words)
        if not self._is_closed:
            words = "the run has no end: its process is running or was killed, or the file was cut"
            self._report.notes.append(AuditFinding(self._file, 0, "cut", words))

    def _find(self, line: int, kind: FindingKind, message: str) -> None:
        self._found += 1
        if self._found <= MAX_FINDINGS:
            self._report.findings.append(AuditFinding(self._file, line, kind, message))
        elif self._found == MAX_FINDINGS + 1:
            words = f"more than {MAX_FINDINGS} findings in this file"
            self._report.findings.append(AuditFinding(self._file, line, kind, words))


# ---------------------------------------------------------------- calls


# Who has answered, if the approver has not said it.
PERSON: Final = "a person"


class CallSummary(Struct):
    """One call, from all of its lines."""

    call: str
    time: str
    principal: str
    client: str
    server: str
    method: str
    name: str
    decision: str = ""
    rule: str = ""
    # Who has answered, if a person was asked, and why there is no answer; the one or the other.
    answered_by: str = ""
    unanswered: str = ""
    # One of `OUTCOMES`; empty if there is none.
    outcome: str = ""
    error: str = ""
    is_error: bool = False
    was_sent: bool = False

    def add(self, line: AuditLine) -> None:
        """Take over what another line says."""
        if line.event in ("decided", "answered"):
            self.decision, self.rule = line.action, line.rule or self.rule
            if line.event == "answered":
                self.answered_by = line.by or PERSON
        elif line.event == "unanswered":
            self.unanswered = line.ended
        elif line.event == "executed":
            self.was_sent = True
        elif line.event in OUTCOMES:
            self.outcome, self.error, self.is_error = line.event, line.error, line.is_error


# Whether a call is wanted, from its first line.
Wanted: TypeAlias = Callable[[AuditLine], bool]


def read_calls(folder: str, wanted: Wanted, modified_since_ns: int = 0) -> Iterator[CallSummary]:
    """The calls of a folder, in the order in which they ended; those without an end last. Raises
    `OSError`."""
    runs: dict[str, list[AuditPath]] = defaultdict(list)
    for one in audit_files(folder):
        runs[one.name.run].append(one)
    for parts in runs.values():
        if max(map(_modified_at, parts)) < modified_since_ns:
            continue
        open_calls: dict[str, CallSummary] = {}
        for one in parts:
            yield from _calls_of(one, open_calls, wanted)
        yield from open_calls.values()


def _calls_of(
    one: AuditPath, open_calls: dict[str, CallSummary], wanted: Wanted
) -> Iterator[CallSummary]:
    for line in _decoded_lines(one):
        if not line.call:
            continue
        if line.event == "proposed" and wanted(line):
            if len(open_calls) >= MAX_OPEN_CALLS:
                yield open_calls.pop(next(iter(open_calls)))
            open_calls[line.call] = CallSummary(
                line.call,
                line.time,
                line.principal,
                line.client,
                line.server,
                line.method,
                line.name,
            )
        found = open_calls.get(line.call)
        if found is not None:
            found.add(line)
            if line.event in OUTCOMES:
                yield open_calls.pop(line.call)


def _decoded_lines(one: AuditPath) -> Iterator[AuditLine]:
    try:
        for read in read_lines(one.path):
            line = decode_line(read.data) if read.is_complete else None
            if line is not None:
                yield line
    except OSError:
        return


def lines_of_call(folder: str, call: str) -> Iterator[tuple[AuditLine, bytes]]:
    """The lines of a call, decoded and as they are. Raises `OSError`."""
    run: Final = call.rpartition("-")[0]
    wanted = call.encode("utf-8", "backslashreplace")
    for one in audit_files(folder):
        if one.name.run != run:
            continue
        try:
            for read in read_lines(one.path):
                line = decode_line(read.data) if wanted in read.data else None
                if line is not None and line.call == call:
                    yield line, read.data
        except OSError:
            continue
