"""Every check of approvals, the inbox, remembered decisions and the control socket is needed: with
any one of them taken out, a test fails.

As `tests/auth/test_mutations.py`; `scripts/mutate policy` runs these.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

APPROVALS, INBOX, REMEMBERED = (
    "approvals/test_approvals.py",
    "approvals/test_inbox.py",
    "approvals/test_remembered.py",
)
STORES = "approvals/test_stores.py"
CONTROL, HOST = "approvals/test_control.py", "approvals/test_host_inbox.py"
ANOTHER = "does_not_fit_another_request"


def bound(member: str) -> Cut:
    """An approval that is not bound to a member of its request."""
    return Cut(
        "host/policy/approvals/approvals.py", f"            {member},\n", "", APPROVALS, ANOTHER
    )


def matched(line: str) -> Cut:
    """A remembered decision that is not compared with a member of a request."""
    return Cut(
        "host/policy/approvals/remembered.py", line, "", REMEMBERED, "does_not_fit_another_tool"
    )


CUTS: dict[str, Cut] = {
    # ------------------------------------------------------------ what an approval is for
    "approval: server": Cut(
        "host/policy/approvals/approvals.py",
        "            request.server,\n            request.identity,\n",
        "            request.identity,\n",
        APPROVALS,
        ANOTHER,
    ),
    "approval: identity of the server": bound("request.identity"),
    "approval: method": bound("request.method"),
    "approval: name": bound("request.name"),
    "approval: arguments": bound("request.arguments_digest"),
    "approval: _meta": bound("request.meta_digest"),
    "approval: _meta that is sent": Cut(
        "host/router.py",
        "item = replace(item, meta=Raw(encode(sent)))",
        "pass",
        HOST,
        "does_not_fit_other_meta",
    ),
    "remembered: _meta": Cut(
        "host/policy/approvals/remembered.py",
        "exactly = request.arguments_digest + request.meta_digest if",
        "exactly = request.arguments_digest if",
        HOST,
        "remembered_for_exact_arguments",
    ),
    "hidden URIs in the audit log": Cut(
        "host/policy/records.py",
        "for one in likely or servers]",
        "for one in []]",
        "test_guard.py",
        "hidden_uri_and",
    ),
    "hidden completions in the audit log": Cut(
        "host/policy/records.py",
        'if method == "completion/complete":',
        "if False:",
        "test_guard.py",
        "hidden_uri_and",
    ),
    "approval: definition": bound("request.definition_digest"),
    "approval: version of the policy": bound("decision.policy_version"),
    "approval: principal": Cut(
        "host/policy/approvals/inbox.py",
        'queue = hashlib.sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()',
        "queue = hashlib.sha256(b'').hexdigest()",
        APPROVALS,
        ANOTHER,
    ),
    "approval: expiry": Cut(
        "host/policy/approvals/approvals.py",
        'if item.state != "accepted" or item.usable_until <= self.inbox.clock():',
        'if item.state != "accepted":',
        APPROVALS,
        "an_approval_expires",
    ),
    "approval: single use": Cut(
        "host/policy/approvals/inbox.py",
        'used = replace(current, state="used")',
        "used = current",
        APPROVALS,
        "identical_call_and_once",
    ),
    "approval: two processes": Cut(
        "host/policy/approvals/inbox.py",
        "        if not await self._put(used, before):\n            return False\n",
        "        await self._put(used, before)\n",
        INBOX,
        "process_that_was_later_does_not_use_it",
    ),
    "approval: no way to ask": Cut(
        "host/policy/approvals/approvals.py",
        "        if not self.inbox.has_approver:\n            raise Refused(NO_APPROVER",
        "        if False:\n            raise Refused(NO_APPROVER",
        APPROVALS,
        "no_way_to_ask",
    ),
    "approval: a form that is forwarded": Cut(
        "host/policy/approvals/approvals.py",
        "            await self.approve(request, decision)\n            return await forward",
        "            return await forward",
        APPROVALS,
        "form_is_forwarded_after",
    ),
    "approval: a form that the inbox answers": Cut(
        "host/policy/input_review.py",
        'Consent() if accepted else Denial("it was declined")',
        "Consent()",
        HOST,
        "shown_once_if_the_inbox",
    ),
    "approval: an edited answer is not remembered": Cut(
        "host/policy/approvals/approvals.py",
        'if scope and item.state == "accepted" and item.answer.content:',
        "if False:",
        APPROVALS,
        "leaves_roots_out",
    ),
    "approval: a denial": Cut(
        "host/policy/approvals/inbox.py",
        '    "decline": "declined",',
        '    "decline": "accepted",',
        APPROVALS,
        "denied_is_refused",
    ),
    "approval: cancelled calls": Cut(
        "host/policy/approvals/approvals.py",
        "await asyncio.shield(self.inbox.withdraw(item))",
        "pass",
        APPROVALS,
        "cancelled_asks_no_longer",
    ),
    # ------------------------------------------------------------ the inbox
    "inbox: the first answer": Cut(
        "host/policy/approvals/inbox.py",
        "        if not await self._put(after, before):\n            return AnswerOutcome(False",
        "        if await self._put(after, before) is None:\n            return AnswerOutcome(False",
        INBOX,
        "two_processes_that_answer",
    ),
    "inbox: the serial number": Cut(
        "host/policy/approvals/inbox.py",
        'if item is None or serial not in ("", item.serial):',
        "if item is None:",
        INBOX,
        "item_that_was_shown",
    ),
    "inbox: the deadline of an answer": Cut(
        "host/policy/approvals/inbox.py",
        'if item.state != "open" or item.deadline <= self.clock():',
        'if item.state != "open":',
        INBOX,
        "has_a_deadline",
    ),
    "inbox: the deadline of a wait": Cut(
        "host/policy/approvals/inbox.py",
        'if item is not None and item.state == "open" and item.deadline <= self.clock():',
        "if False:",
        INBOX,
        "has_a_deadline",
    ),
    "inbox: items": Cut(
        "host/policy/approvals/inbox.py",
        "if len(waiting) >= MAX_ITEMS or len(records) >= MAX_RECORDS:",
        "if False:",
        INBOX,
        "too_many_items",
    ),
    "inbox: bytes": Cut(
        "host/policy/approvals/inbox.py",
        "if size + sum(len(one.content) + len(one.definition) for one in waiting) > MAX_BYTES:",
        "if False:",
        INBOX,
        "bytes_of_a_principal",
    ),
    "inbox: bytes of an item": Cut(
        "host/policy/approvals/inbox.py",
        "if size > MAX_ITEM_BYTES:",
        "if False:",
        INBOX,
        "too_large_is_refused",
    ),
    "inbox: bytes of an answer": Cut(
        "host/policy/approvals/inbox.py",
        "if len(encode(after)) > 2 * MAX_ITEM_BYTES:",
        "if False:",
        INBOX,
        "too_large_is_refused",
    ),
    "inbox: answers that fit": Cut(
        "host/policy/approvals/inbox.py",
        "        check_answer(item, answer)\n",
        "",
        INBOX,
        "does_not_fit_changes",
    ),
    "inbox: roots that were not asked about": Cut(
        "host/policy/approvals/inbox.py",
        "if not {one.uri for one in chosen} <= {one.uri for one in all_roots}:",
        "if False:",
        INBOX,
        "does_not_fit_changes",
    ),
    "inbox: queues": Cut(
        "host/policy/approvals/inbox.py",
        "await self._answer(await self.find(id, principal), answer",
        "await self._answer(await self.find(id), answer",
        INBOX,
        "queue_of_its_own",
    ),
    # ------------------------------------------------------------ remembered decisions
    "remembered: principal": matched("self.principal == request.principal\n            and "),
    "remembered: identity": matched("            and self.identity == request.identity\n"),
    "remembered: server": matched("            and self.server == request.server\n"),
    "remembered: method": matched("            and self.method == request.method\n"),
    "remembered: name": matched("            and self.name == request.name\n"),
    "remembered: definition": matched(
        "            and self.definition_digest == request.definition_digest\n"
    ),
    "remembered: arguments": Cut(
        "host/policy/approvals/remembered.py",
        "            and self.arguments_digest == exactly\n",
        "",
        REMEMBERED,
        "made_the_policy_ask",
    ),
    "remembered: project": Cut(
        "host/policy/approvals/remembered.py",
        '            and (self.scope != "project" or self.project == project)\n',
        "",
        REMEMBERED,
        "for_that_folder",
    ),
    "remembered: files of others": Cut(
        "host/policy/approvals/remembered.py",
        "    if not is_own(seen):",
        "    if False:",
        REMEMBERED,
        "another_user_could",
    ),
    "remembered: owner": Cut(
        "host/policy/approvals/remembered.py",
        "seen.st_uid == os.getuid() and ",
        "",
        REMEMBERED,
        "another_user_could",
    ),
    "remembered: mode": Cut(
        "host/policy/approvals/remembered.py",
        " and not seen.st_mode & _OTHERS_WRITE",
        "",
        REMEMBERED,
        "another_user_could",
    ),
    "inbox: lease of an item": Cut(
        "host/policy/approvals/inbox.py",
        "            kept_s = LEASE_S\n",
        "            pass\n",
        STORES,
        "was_killed",
    ),
    "inbox: renewed lease": Cut(
        "host/policy/approvals/inbox.py",
        "                    await self._renew(item)\n",
        "                    pass\n",
        STORES,
        "stays_for_as_long",
    ),
    "remembered: mode of what is written": Cut(
        "client/auth.py",
        "os.chmod(name, _FILE_MODE)",
        "os.chmod(name, 0o644)",
        REMEMBERED,
        "of_the_user_alone",
    ),
    "remembered: names of files": Cut(
        "host/policy/approvals/remembered.py",
        "    if not (id.isascii() and id.isalnum()):\n        return False\n",
        "",
        REMEMBERED,
        "no_rule_is_skipped",
    ),
    "remembered: denials": Cut(
        "host/policy/approvals/approvals.py",
        'if rule.action == "deny":',
        "if False:",
        REMEMBERED,
        "denial_can_be",
    ),
    # ------------------------------------------------------------ the control socket
    "control: the user of a connection": Cut(
        "host/policy/approvals/control.py",
        "if not is_own_user(peer_uid(connection)) or len",
        "if len",
        CONTROL,
        "connection_of_another_user",
    ),
    "control: another user": Cut(
        "host/policy/approvals/control.py",
        "return uid is None or uid == _own_uid()",
        "return True",
        CONTROL,
        "known_and_compared",
    ),
    "control: connections": Cut(
        "host/policy/approvals/control.py",
        " or len(self._connections) >= MAX_CONNECTIONS:",
        ":",
        CONTROL,
        "have_limits",
    ),
    "control: mode of the folder": Cut(
        "host/policy/approvals/control.py",
        " or seen.st_mode & _OTHERS:",
        ":",
        CONTROL,
        "open_to_others",
    ),
    "control: owner of the folder": Cut(
        "host/policy/approvals/control.py",
        " or seen.st_uid != _own_uid() or",
        " or",
        CONTROL,
        "folder_of_another_user",
    ),
    "control: a link": Cut(
        "host/policy/approvals/control.py",
        "seen = folder.lstat()",
        "seen = folder.stat()",
        CONTROL,
        "a_link",
    ),
    "control: the client looks too": Cut(
        "host/policy/approvals/control.py",
        "        check_folder(self.path.parent)\n",
        "",
        CONTROL,
        "open_to_others",
    ),
    "control: mode of the socket": Cut(
        "host/policy/approvals/control.py",
        "        path.chmod(_OWN_SOCKET)\n",
        "        path.chmod(0o666)\n",
        CONTROL,
        "closed_to_others",
    ),
    "control: processes that run": Cut(
        "host/policy/approvals/control.py",
        "if not _runs(path):",
        "if True:",
        CONTROL,
        "that_is_gone",
    ),
    "control: user of the socket": Cut(
        "host/policy/approvals/control.py",
        'if not is_own_user(peer_uid(self._writer.get_extra_info("socket"))):',
        "if False:",
        CONTROL,
        "asked_nothing",
    ),
    "control: time for a request": Cut(
        "host/policy/approvals/control.py",
        "    async with asyncio.timeout(REQUEST_S):\n",
        "    async with asyncio.timeout(None):\n",
        CONTROL,
        "keep_others_out",
    ),
    "control: deep messages": Cut(
        "host/policy/approvals/control.py",
        "UnicodeDecodeError, RecursionError):",
        "UnicodeDecodeError):",
        CONTROL,
        "harms_no_other",
    ),
    "control: who answers": Cut(
        "host/policy/approvals/control.py",
        "by=request.by[:MAX_NAME]",
        "by=request.by",
        CONTROL,
        "is_short",
    ),
    "control: a relative runtime folder": Cut(
        "host/policy/approvals/control.py",
        "    if not os.path.isabs(folder):\n",
        "    if not folder:\n",
        CONTROL,
        "relative_or_of_another",
    ),
    "control: a runtime folder of another user": Cut(
        "host/policy/approvals/control.py",
        "return os.stat(folder).st_uid == _own_uid()",
        "return True",
        CONTROL,
        "relative_or_of_another",
    ),
    "folders above a private one": Cut(
        "client/auth.py",
        "one.mkdir(mode=_FOLDER_MODE, exist_ok=True)",
        "one.mkdir(exist_ok=True)",
        REMEMBERED,
        "no_umask",
    ),
    "remembered: a folder that is open to others": Cut(
        "host/policy/approvals/remembered.py",
        "        if not is_own(folder.stat()):\n",
        "        if False:\n",
        REMEMBERED,
        "write_to_is_not_used",
    ),
    "remembered: a change in the same moment": Cut(
        "host/policy/approvals/remembered.py",
        "changed_at if time.time_ns() - changed_at > SETTLED_NS else -1",
        "changed_at",
        REMEMBERED,
        "in_the_same_moment",
    ),
    "remembered: a rule that cannot be removed": Cut(
        "host/policy/approvals/remembered.py",
        '    except OSError as error:\n        raise Refused(f"it cannot be forgotten',
        '    except ZeroDivisionError as error:\n        raise Refused(f"it cannot be forgotten',
        REMEMBERED,
        "removed_is_said",
    ),
    # ------------------------------------------------------------ hosts
    "host: sampling": Cut(
        "host/policy/decisions.py",
        'REVIEWED_METHODS = frozenset({"sampling/createMessage", "roots/list"})',
        'REVIEWED_METHODS = frozenset({"roots/list"})',
        HOST,
        "sampling",
    ),
    "host: roots": Cut(
        "host/policy/decisions.py",
        'REVIEWED_METHODS = frozenset({"sampling/createMessage", "roots/list"})',
        'REVIEWED_METHODS = frozenset({"sampling/createMessage"})',
        HOST,
        "sees_roots",
    ),
    "host: roots that were left out": Cut(
        "host/policy/approvals/approvals.py",
        "answer = await self._review(kind, bytes(response).decode(), request, decision)\n"
        "        return Raw(answer.content.encode()) if answer.content else response",
        "await self._review(kind, bytes(response).decode(), request, decision)\n"
        "        return response",
        HOST,
        "sees_roots",
    ),
    "host: the edited sampling request": Cut(
        "host/policy/approvals/approvals.py",
        "return replace(input_request, params=params)",
        "return input_request",
        HOST,
        "seen_and_edited",
    ),
    "host: files that are not trusted": Cut(
        "host/config/reader.py",
        "files = [one for one in self.used if one.approvals is not None]",
        "files = [one for one in self.sources if one.approvals is not None]",
        HOST,
        "not_trusted",
    ),
    "rules: the arguments of a rule that asks": Cut(
        "host/policy/rules/rules.py",
        '        elif action == "ask":\n            by_arguments = not self._is_fixed\n',
        "",
        HOST,
        "asks_because_of_arguments",
    ),
    "rules: of one of several policies": Cut(
        "host/policy/rules/rules.py",
        'by_arguments = any(one.by_arguments for one in decisions if one.action == "ask")',
        "pass",
        HOST,
        "asks_because_of_arguments",
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
