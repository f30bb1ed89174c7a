"""Every check of the audit log is needed: with any one of them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

LOG, VERIFY = "audit/test_log.py", "audit/test_verify.py"
SECRETS, HOST, CONFIG = "audit/test_secrets.py", "audit/test_audit_host.py", "audit/test_config.py"
LINES = "host/policy/audit/lines.py"
WRITER = "host/policy/audit/log.py"
FILE = "host/policy/audit/file.py"
READER = "host/policy/audit/verify.py"

STEPS = "host/policy/steps.py"
NO_ANSWER = "no_person_has_answered_is_not"

CUTS: dict[str, Cut] = {
    # ------------------------------------------------------------ answers
    "no answer": Cut(
        STEPS,
        "self.unanswered(refused.ended, str(refused))",
        "self.answered(Denial(str(refused)))",
        HOST,
        NO_ANSWER,
    ),
    "no way to ask": Cut(
        STEPS, '    steps.unanswered("no_approver", str(refused))\n', "", HOST, NO_ANSWER
    ),
    "no room to ask": Cut(
        STEPS,
        'self.unanswered("failed", str(refused))',
        "self.answered(Denial(str(refused)))",
        HOST,
        "cannot_take",
    ),
    "cancelled question": Cut(
        STEPS,
        'self.unanswered("cancelled", "the call was cancelled")',
        "pass",
        HOST,
        "cancelled_before_its_answer",
    ),
    "who has denied it": Cut(
        STEPS,
        "self.answered(replace(denied.denial, reason=str(denied)))",
        "self.answered(Denial(str(denied)))",
        HOST,
        "the_one_who_denied_it",
    ),
    # ------------------------------------------------------------ verify
    "altered line": Cut(
        READER,
        "elif self._digest is not None and line.prev != self._digest:",
        "elif False:",
        VERIFY,
        "altered",
    ),
    "forged run": Cut(
        READER,
        "if run not in known and run not in earlier:",
        "if False:",
        VERIFY,
        "forged_run",
    ),
    "forged run that is named": Cut(
        READER,
        "waiting = [first] if first is not None else []",
        "waiting = [run for run in self._runs if run in known]",
        VERIFY,
        "forged_run",
    ),
    "missing line": Cut(
        READER, "        if line.seq != self._seq + 1:\n", "        if False:\n", VERIFY, "swapped"
    ),
    "line of another run": Cut(
        READER, "if line.run != one.name.run:", "if False:", VERIFY, "between_two_files"
    ),
    "line after the end": Cut(READER, "if self._is_closed:", "if False:", VERIFY, "after_the_end"),
    "not a line": Cut(
        READER,
        '            self._find(number, "unreadable", "this is not a line of an audit log")\n',
        "",
        VERIFY,
        "line_that_is_added",
    ),
    "head": Cut(READER, "if is_head != (number == 1):", "if False:", VERIFY, "head_inside"),
    "format": Cut(READER, "if line.format != FORMAT:", "if False:", VERIFY, "another_format"),
    "renamed file": Cut(
        READER,
        "if (line.run, line.part) != (one.name.run, one.name.part):",
        "if False:",
        VERIFY,
        "renamed",
    ),
    "missing part": Cut(
        READER, "if one.name.part != expected:", "if False:", VERIFY, "oldest_files_of_a_run"
    ),
    "missing run": Cut(
        READER,
        '                self.report.findings.append(AuditFinding(str(one), 1, "run", message))\n',
        "                pass\n",
        VERIFY,
        "run_that_is_missing",
    ),
    "archived run that is not the oldest": Cut(
        READER,
        "if self._archived and other.began < oldest:",
        "if self._archived:",
        VERIFY,
        "run_that_is_missing",
    ),
    "line that another run knows": Cut(
        READER, "if reference.digest != digest:", "if False:", VERIFY, "written_anew"
    ),
    "end that another run knows": Cut(
        READER,
        "for seq, references in sorted(self._references.items()):",
        "for seq, references in list[tuple[int, list[_Reference]]]():",
        VERIFY,
        "cut",
    ),
    "cut in the middle of a run": Cut(
        READER,
        "self._incomplete(read, is_last=is_last)",
        "self._incomplete(read, is_last=True)",
        VERIFY,
        "cut_in_the_middle",
    ),
    "run that only the store knows": Cut(
        READER,
        "elif head.folder == self._folder and head.host == host:",
        "elif False:",
        VERIFY,
        "removed_newest",
    ),
    "size of a line": Cut(
        READER,
        "file.readline(MAX_LINE_BYTES)",
        "file.readline()",
        VERIFY,
        "any_file and zeros",
    ),
    "findings of one file": Cut(
        READER, "if self._found <= MAX_FINDINGS:", "if True:", VERIFY, "any_file and newlines"
    ),
    "links": Cut(READER, "follow_symlinks=False", "follow_symlinks=True", VERIFY, "links"),
    "files of a folder": Cut(
        READER, "if len(found) > MAX_FILES:", "if False:", VERIFY, "too_many_files"
    ),
    # ------------------------------------------------------------ what is written
    "chain of lines": Cut(
        LINES, "self.digest = sha256(line).hexdigest()", "pass", VERIFY, "every_byte"
    ),
    "runs before": Cut(
        FILE, 'head["previous"] = self._previous', 'head["previous"] = []', VERIFY, "missing"
    ),
    "runs beside": Cut(
        READER,
        "    for run, one in reversed(newest.items()):\n",
        "    for run, one in list(reversed(newest.items()))[:1]:\n",
        VERIFY,
        "beside_another",
    ),
    "required: written": Cut(
        WRITER, "failure = self.flush()", "failure = None", LOG, "before_it_is_sent"
    ),
    "required: an event that was lost": Cut(
        WRITER,
        " or (kept is not None and kept.lost != self._file.lost):",
        ":",
        LOG,
        "lost_an_event",
    ),
    "what is proposed": Cut(
        WRITER,
        "        if not self._is_soon:\n            self._flush_soon()\n        return call",
        "        return call",
        LOG,
        "without_an_event_loop",
    ),
    "result as it came": Cut(
        WRITER,
        'self._append(b"returned", call, request, self._returned, (raw, is_error))',
        'self._append(b"returned", call, request, lambda _: self._returned('
        "(encode(result), is_error)), None)",
        LOG,
        "as_it_was",
    ),
    "required: refused": Cut(
        WRITER,
        "            raise _not_recorded(failure)\n        return",
        "            pass\n        return",
        LOG,
        "refuses_the_call",
    ),
    "required: on the disk": Cut(
        WRITER, "        return self._on_disk()", "        return None", LOG, "on_the_disk"
    ),
    "required: the guard waits": Cut(
        "host/policy/admission.py",
        "        return steps.executed(call)  # as nearly always: nothing can have changed",
        "        steps.executed(call)\n        return None",
        HOST,
        "disk",
    ),
    "half of a line": Cut(
        FILE,
        "os.ftruncate(self._descriptor, self._size)",
        "pass",
        LOG,
        "half_of_a_line",
    ),
    "events that are lost": Cut(
        FILE, "self.count_lost(len(self._waiting) - self._notes)", "pass", LOG, "full_disk"
    ),
    "lost events are said": Cut(
        FILE,
        '            self._add_note(members({"event": DROPPED, "count": count}), time_ns)\n',
        "",
        LOG,
        "full_disk",
    ),
    "chain after an error": Cut(
        FILE,
        "        self.chain.seq, self.chain.digest = self._written\n",
        "",
        LOG,
        "full_disk",
    ),
    "forked process": Cut(
        FILE,
        "if self._process == os.getpid():\n            return False",
        "if True:\n            return False",
        LOG,
        "forked",
    ),
    "removed file": Cut(
        FILE, "if os.fstat(descriptor).st_nlink == 0:", "if False:", LOG, "file_that_is_removed"
    ),
    "mode of files": Cut(
        FILE,
        "FOLDER_MODE, FILE_MODE = 0o700, 0o600",
        "FOLDER_MODE, FILE_MODE = 0o700, 0o644",
        LOG,
        "only_the_owner",
    ),
    "mode of the folder": Cut(
        FILE,
        "FOLDER_MODE, FILE_MODE = 0o700, 0o600",
        "FOLDER_MODE, FILE_MODE = 0o755, 0o600",
        LOG,
        "only_the_owner",
    ),
    "owner of the folder": Cut(
        "host/policy/audit/file.py",
        "seen.st_uid not in (0, os.getuid()) or bool(seen.st_mode & OTHERS_WRITE)",
        "bool(seen.st_mode & OTHERS_WRITE)",
        LOG,
        "of_another_user_is_open",
    ),
    "end of a run": Cut(
        "host/policy/parts.py",
        "            await self._audit.close()\n",
        "            pass\n",
        HOST,
        "prompts_resources",
    ),
    "length of a name": Cut(
        LINES,
        "return truncate(self.text(text), MAX_NAME, len(text))",
        "return encodable(text)",
        LOG,
        "bounded",
    ),
    "size of contents": Cut(LINES, "if len(raw) > MAX_CONTENT_BYTES:", "if False:", LOG, "bounded"),
    "calls that never end": Cut(
        WRITER, "if len(self._open_calls) >= MAX_OPEN_CALLS:", "if False:", LOG, "never_end"
    ),
    # ------------------------------------------------------------ secrets
    "key of digests": Cut(
        LINES,
        "self._keyed = blake2b(digest_size=32, key=derived)",
        "self._keyed = blake2b(digest_size=32)",
        LOG,
        "need_the_key",
    ),
    "contents": Cut(
        WRITER,
        "if records not in self._recorded:",
        "if False:",
        SECRETS,
        "only_as_far",
    ),
    "what servers ask": Cut(
        WRITER,
        'records = "all" if request.method in INPUT_METHODS else "arguments"',
        'records = "arguments"',
        SECRETS,
        "only_as_far",
    ),
    "error messages": Cut(
        WRITER,
        'self._described(encode(encodable(message)), "all")',
        'self._described(encode(encodable(message)), "none")',
        SECRETS,
        "only_as_far",
    ),
    "form of a secret": Cut(
        LINES, "        text = redact(text)\n", "", SECRETS, "ten_thousand and none"
    ),
    "name of a secret": Cut(
        LINES,
        "            if self._is_secret(key)\n",
        "            if False\n",
        SECRETS,
        "ten_thousand",
    ),
    "configured name": Cut(
        LINES,
        "            self._names is not None and self._names.search(name) is not None\n",
        "            False\n",
        SECRETS,
        "ten_thousand",
    ),
    "configured name in text": Cut(
        LINES,
        "        if self._named is not None:\n",
        "        if False:\n",
        SECRETS,
        "ten_thousand",
    ),
    "environment": Cut(
        LINES,
        "        if self._values is not None:\n",
        "        if False:\n",
        SECRETS,
        "ten_thousand",
    ),
    "secret in a key": Cut(
        LINES,
        "encodable(self.text(key)): REDACTED",
        "encodable(key): REDACTED",
        SECRETS,
        "ten_thousand",
    ),
    "handle of a task": Cut(
        WRITER,
        "self._key.digest(handle.encode())",
        "handle.encode()",
        HOST,
        "becomes_a_task",
    ),
    # ------------------------------------------------------------ what servers ask
    "several calls": Cut(
        "host/policy/decisions.py",
        "return max(reversed(requests), key=lambda one: _STRICTNESS[self.decide(one).action])",
        "return requests[-1]",
        "test_input_owners.py",
        "two_calls",
    ),
    "tool of a task": Cut(
        "host/policy/records.py",
        "        self._steps[context.exchange] = steps\n        try:",
        "        try:",
        "test_input_owners.py",
        "task_asks",
    ),
    # ------------------------------------------------------------ configuration
    "file that is not trusted": Cut(
        "host/config/reader.py",
        "            if source not in self.used:\n",
        "            if False:\n",
        CONFIG,
        "influence",
    ),
    "file without servers": Cut(
        "host/config/reader.py",
        "        if not wanted:\n            return True\n",
        "        if not drafts:\n            return True\n",
        CONFIG,
        "without_servers",
    ),
    "file that needs no trust first": Cut(
        "host/config/reader.py",
        "for source in sorted(sources, key=lambda one: one.needs_trust):",
        "for source in sources:",
        CONFIG,
        "comes_before",
    ),
    "invalid required": Cut(
        "host/policy/audit/config.py",
        '        wrong(node, "expected true or false; taken as true")\n        return True\n',
        '        wrong(node, "expected true or false; taken as true")\n        return False\n',
        CONFIG,
        "taken_as_true",
    ),
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests/host/policy")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path, "tests/host/policy")
