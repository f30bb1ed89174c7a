"""A remembered decision is a rule: of the user alone, for one tool as it was seen, removable."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Refused
from colonnade.host.policy.approvals import remembered as module
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.approvals.remembered import KeptScope, RememberedRules, is_own
from colonnade.host.policy.request import Decision, PolicyRequest
from host.policy.approvals.test_approvals import ASK, CALL
from live import live

BY_ARGUMENTS = Decision("ask", "a rule", True, "v1", "")


class Asked:
    """Approvals whose person gives one answer, and the items that were asked about."""

    def __init__(self, home: Path, answer: InboxAnswer, project: str = "/project") -> None:
        self.items: list[InboxItem] = []
        self.answer = answer
        rules = RememberedRules(project=project, folder=home / "remembered")
        self.approvals = Approvals(Inbox(on_item=self._ask), rules)

    def _ask(self, item: InboxItem) -> InboxAnswer:
        self.items.append(item)
        return self.answer

    async def calls(self, *calls: PolicyRequest, decision: Decision = ASK) -> int:
        """Make calls; how many items were asked about so far."""
        for call in calls:
            await self.approvals.approve(call, decision)
        return len(self.items)


def accept(scope: KeptScope) -> InboxAnswer:
    return InboxAnswer(action="accept", remember=scope)


OTHER_ARGUMENTS = replace(CALL, arguments=Raw(b"{}"))


@pytest.mark.parametrize("scope", ["session", "project", "always"])
@live
async def test_a_remembered_decision_is_not_asked_about_again(
    tmp_path: Path, scope: KeptScope
) -> None:
    asked = Asked(tmp_path, accept(scope))
    assert await asked.calls(CALL, CALL, OTHER_ARGUMENTS) == 1
    (rule,) = asked.approvals.remembered.list()
    assert rule.sentence.startswith("allow files__write for ada (remembered: ")
    consent = await asked.approvals.approve(CALL, ASK)
    assert consent.rule == rule.sentence


@pytest.mark.parametrize("scope", ["session", "project", "always"])
@live
async def test_a_removed_decision_is_asked_about_again(tmp_path: Path, scope: KeptScope) -> None:
    asked = Asked(tmp_path, accept(scope))
    await asked.calls(CALL)
    (rule,) = asked.approvals.remembered.list()
    assert asked.approvals.remembered.remove(rule.id)
    assert not asked.approvals.remembered.remove(rule.id)
    assert asked.approvals.remembered.list() == []
    assert await asked.calls(CALL) == 2


@live
async def test_a_rule_that_another_process_removes_ends_at_once(tmp_path: Path) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    (rule,) = asked.approvals.remembered.list()
    folder = tmp_path / "remembered"
    before = folder.stat().st_mtime_ns
    assert module.remove_rule(folder, rule.id)
    os.utime(folder, ns=(before + 1, before + 1))  # clocks of file systems are coarse
    assert await asked.calls(CALL) == 2


CHANGED: dict[str, Callable[[], PolicyRequest]] = {
    "definition": lambda: replace(CALL, definition_digest="ef01"),
    "principal": lambda: replace(CALL, principal="eve"),
    "server": lambda: replace(CALL, server="other"),
    "identity": lambda: replace(CALL, identity="1235"),
    "name": lambda: replace(CALL, name="write2"),
    "method": lambda: replace(CALL, method="prompts/get"),
}


@pytest.mark.parametrize("what", CHANGED)
@live
async def test_a_remembered_decision_does_not_fit_another_tool(tmp_path: Path, what: str) -> None:
    asked = Asked(tmp_path, accept("always"))
    assert await asked.calls(CALL, CHANGED[what]()) == 2


@live
async def test_where_arguments_made_the_policy_ask_the_rule_is_for_these_arguments(
    tmp_path: Path,
) -> None:
    asked = Asked(tmp_path, accept("always"))
    assert await asked.calls(CALL, CALL, decision=BY_ARGUMENTS) == 1
    assert await asked.calls(OTHER_ARGUMENTS, decision=BY_ARGUMENTS) == 2
    assert 'with {"path": "/a"}' in asked.approvals.remembered.list()[0].sentence


@live
async def test_a_rule_for_all_arguments_does_not_answer_where_arguments_made_the_policy_ask(
    tmp_path: Path,
) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    assert await asked.calls(CALL, decision=BY_ARGUMENTS) == 2


@live
async def test_a_denial_can_be_remembered(tmp_path: Path) -> None:
    asked = Asked(tmp_path, InboxAnswer(action="decline", remember="always"))
    with pytest.raises(Refused, match="the user denied it"):
        await asked.approvals.approve(CALL, ASK)
    with pytest.raises(Refused, match="this is remembered") as refused:
        await asked.approvals.approve(CALL, ASK)
    assert "colonnade policy forget" in refused.value.hint
    assert len(asked.items) == 1


@live
async def test_a_project_s_decision_is_for_that_folder_and_a_session_s_for_that_process(
    tmp_path: Path,
) -> None:
    scopes: dict[KeptScope, int] = {"project": 1, "session": 1, "always": 0}
    for scope, asks in scopes.items():
        home = tmp_path / scope
        await Asked(home, accept(scope)).calls(CALL)
        elsewhere = Asked(home, accept(scope), project="/another")
        assert await elsewhere.calls(CALL) == asks


@live
async def test_a_new_answer_replaces_the_rule(tmp_path: Path) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    await asked.calls(replace(CALL, definition_digest="ef01"))
    (rule,) = asked.approvals.remembered.list()
    assert rule.definition_digest == "ef01"


@live
async def test_the_files_are_of_the_user_alone(tmp_path: Path) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    folder = tmp_path / "remembered"
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


@live
async def test_a_rule_that_another_user_could_have_written_is_not_used(tmp_path: Path) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    (path,) = (tmp_path / "remembered").iterdir()
    path.chmod(0o622)
    asked.approvals.remembered._read_at = -1
    assert asked.approvals.remembered.list() == []
    seen = path.stat()
    assert not is_own(seen)
    path.chmod(0o600)
    own = list(path.stat())
    assert is_own(os.stat_result(own))
    own[4] = os.getuid() + 1
    assert not is_own(os.stat_result(own))


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@live
async def test_a_folder_that_another_user_can_write_to_is_not_used(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another user could bring a rule back that was forgotten: its file is still of this user."""
    asked = Asked(tmp_path, accept("always"))
    assert await asked.calls(CALL) == 1
    folder = tmp_path / "remembered"
    folder.chmod(mode)
    asked.approvals.remembered._read_at = -1
    assert asked.approvals.remembered.list() == []
    assert "another user can write to it" in caplog.text


@live
async def test_a_rule_that_another_process_forgets_in_the_same_moment_is_not_used(
    tmp_path: Path,
) -> None:
    """File systems keep times in steps: the folder has the same time before and after."""
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    rules, folder = asked.approvals.remembered, tmp_path / "remembered"
    (rule,) = rules.list()
    before = folder.stat()
    (folder / f"{rule.id}.json").unlink()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rules.list() == []


def test_rules_that_have_not_changed_for_a_while_are_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "remembered"
    folder.mkdir(mode=0o700)
    os.utime(folder, (1_000_000, 1_000_000))
    rules = RememberedRules(folder=folder)
    assert rules.list() == []
    assert rules._read_at == folder.stat().st_mtime_ns


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
@live
async def test_no_umask_lets_others_into_the_folders_of_the_user(
    tmp_path: Path, umask: int
) -> None:
    home = tmp_path / "state" / "colonnade"
    before = os.umask(umask)
    try:
        asked = Asked(home, accept("always"))
        await asked.calls(CALL)
    finally:
        os.umask(before)
    for folder in (tmp_path / "state", home, home / "remembered"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_rule_that_cannot_be_removed_is_said(tmp_path: Path) -> None:
    rules = RememberedRules(folder=tmp_path)
    with pytest.raises(Refused, match="cannot be forgotten"):
        rules.remove("a" * 5000)
    assert not rules.remove("abc")


@live
async def test_what_is_no_rule_is_skipped(tmp_path: Path) -> None:
    asked = Asked(tmp_path, accept("always"))
    await asked.calls(CALL)
    folder = tmp_path / "remembered"
    (path,) = folder.iterdir()
    (folder / "other.json").write_bytes(path.read_bytes())  # its name is not its id
    (folder / "broken.json").write_text("{")
    asked.approvals.remembered._read_at = -1
    assert len(asked.approvals.remembered.list()) == 1
    assert not module.remove_rule(folder, "../remembered/other")


@live
async def test_what_cannot_be_stored_holds_for_the_call_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "remembered").write_text("a file")
    asked = Asked(tmp_path, accept("always"))
    assert await asked.calls(CALL, CALL) == 2
    assert "holds for this call only" in caplog.text


@live
async def test_the_number_of_rules_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_RULES", 1)
    scopes: tuple[KeptScope, ...] = ("session", "always")
    for scope in scopes:
        asked = Asked(tmp_path, accept(scope))
        await asked.calls(CALL, replace(CALL, name="other"))
        assert len(asked.approvals.remembered.list()) == 1
    assert caplog.text.count("holds for this call only") == 2
