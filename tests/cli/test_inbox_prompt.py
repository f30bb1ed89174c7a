"""Items in the terminal: shown exactly, asked about, edited; and no is the default."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.cli.inbox_prompt import (
    FieldEditor,
    ItemPrompt,
    ShownRules,
    TerminalApprovals,
    argument_lines,
    edit_text,
    title_of,
)
from colonnade.cli.terminal import Terminal
from colonnade.errors import Declined, Refused
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem, InboxKind
from colonnade.host.policy.approvals.remembered import RememberedRules
from colonnade.host.policy.request import Decision, PolicyRequest
from colonnade.host.policy.rules.rules import Policy
from colonnade.protocol import types as t
from live import live

ASK = Decision("ask", "the default", False, "v1", "")
CALL = PolicyRequest(
    principal="",
    claims={},
    client="",
    revision="2025-11-25",
    server="shop",
    identity="1234",
    trusted=False,
    method="tools/call",
    kind="tool",
    name="price",
    qualified="shop__price",
    arguments=Raw(b'{"fruit": "plum"}'),
    definition_digest="abcd",
)
ITEM = InboxItem(
    id="7F2A91C0",
    key="k",
    serial="s",
    kind="approval",
    server="shop",
    created_at=0,
    deadline=1,
    content='{"fruit": "plum"}',
    name="shop__price",
    method="tools/call",
    rule="colonnade.toml:12",
    client="an agent",
    principal="ada",
    changes=('fruit: "pear" -> "plum"',),
    definition='{"name":"price","annotations":{"readOnlyHint":true}}',
)
SAMPLING = (
    '{"messages":[{"role":"user","content":{"type":"text","text":"Rhyme on plum."}}],"maxTokens":9}'
)
SAMPLED = '{"role":"assistant","content":{"type":"text","text":"Gum."},"model":"tiny"}'
ROOTS = '{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}'


class Person(Terminal):
    """A screen with a person in front of it who types these lines, one after another."""

    def __init__(self, *lines: str | None) -> None:
        super().__init__()
        self.can_ask = True
        self.prompts: list[str] = []
        self.shown = ""
        self._lines = list(lines)

    def note(self, text: str) -> None:
        self.shown += text

    async def ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self._lines.pop(0)


def item(kind: InboxKind, content: str) -> InboxItem:
    return replace(ITEM, kind=kind, content=content, changes=(), definition="")


def approvals(tmp_path: Path, person: Terminal, **more: Any) -> TerminalApprovals:
    rules = RememberedRules(project="/", folder=tmp_path / "remembered")
    return TerminalApprovals(person, remembered=rules, **more)


# ---------------------------------------------------------------- approvals


@pytest.mark.spec("R0146")
@live
async def test_a_call_is_shown_with_everything_that_a_person_needs_to_decide() -> None:
    person = Person("yes")
    assert await ItemPrompt(person).ask(ITEM) == InboxAnswer(action="accept")
    assert person.shown == (
        "-> shop__price (server shop)\n"
        '  | fruit = "plum"\n'
        "  for caller ada, client an agent\n"
        "  asked by colonnade.toml:12\n"
        "  changed since the last approval:\n"
        '  | fruit: "pear" -> "plum"\n'
        "  (the tool declares itself read-only)\n"
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", InboxAnswer(action="accept")),
        ("session", InboxAnswer(action="accept", remember="session")),
        ("project", InboxAnswer(action="accept", remember="project")),
        ("ALWAYS", InboxAnswer(action="accept", remember="always")),
        ("never", InboxAnswer(action="decline", remember="always")),
        ("", InboxAnswer(action="decline")),
        ("no", InboxAnswer(action="decline")),
        (None, None),
    ],
)
@live
async def test_what_is_typed_is_the_answer(typed: str | None, answer: InboxAnswer | None) -> None:
    assert await ItemPrompt(Person(typed)).ask(ITEM) == answer


@live
async def test_what_is_not_understood_is_no_approval() -> None:
    person = Person("?", *["perhaps"] * 9)
    assert await ItemPrompt(person).ask(ITEM) == InboxAnswer(action="decline")
    assert "session  call it, and do not ask again" in person.shown


@live
async def test_show_prints_all_of_the_arguments_and_the_definition() -> None:
    long = replace(ITEM, content='{"text": "' + "x" * 5000 + 'end"}')
    person = Person("show", "no")
    await ItemPrompt(person).ask(long)
    before, _, after = person.shown.partition("more characters; type show to see them)")
    assert "xend" not in before
    assert "xend" in after
    assert "  | annotations = " in after


def test_arguments_are_shown_as_they_are_sent_and_nothing_is_hidden() -> None:
    content = '{"a": "x\u202e\u200b", "b" : 1.50, "c": "\\u0041", "d\u2066": {"e":[1 , 2]}}'
    assert argument_lines(content) == [
        'a = "x\\u202e\\u200b"',
        "b = 1.50",
        'c = "\\u0041"',
        'd\\u2066 = {"e":[1 , 2]}',
    ]
    assert argument_lines("") == []
    assert argument_lines("[1]\x1b[2J") == ["[1]\\x1b[2J"]


def test_a_title_says_what_an_item_is_about_in_one_line() -> None:
    assert title_of(ITEM) == 'shop__price  fruit = "plum"'
    form = item("form", '{"message":"Which\\nseat?"}')
    assert title_of(form) == "form for shop (for shop__price): Which seat?"


@pytest.mark.parametrize(
    ("method", "title", "sentence"),
    [
        (
            "elicitation/create",
            "elicitation/create of server shop (for shop__price)",
            "  (the server asks for input; the answer is sent to server shop)\n",
        ),
        (
            "sampling/createMessage",
            "sampling/createMessage of server shop (for shop__price)",
            "  (the server asks your model; what it writes is sent to server shop)\n",
        ),
        (
            "roots/list",
            "roots/list of server shop (for shop__price)",
            "  (the server asks for your roots; they are sent to server shop)\n",
        ),
    ],
)
@live
async def test_an_approval_of_what_a_server_asks_does_not_look_like_that_of_a_call(
    method: str, title: str, sentence: str
) -> None:
    person, asked = Person("?", "yes"), replace(ITEM, method=method)
    assert await ItemPrompt(person).ask(asked) == InboxAnswer(action="accept")
    assert person.shown.startswith(f'{title}\n  | fruit = "plum"\n{sentence}')
    assert person.prompts[0].startswith("  let it be answered? yes, no")
    assert "call it" not in person.shown
    assert title_of(asked) == f'{title}  fruit = "plum"'
    outside = replace(asked, name="")
    assert title_of(outside).startswith(f"{method} of server shop (outside of calls)")


@live
async def test_a_request_of_a_caller_that_is_no_call_is_shown_with_its_method() -> None:
    person, asked = Person("yes"), replace(ITEM, method="prompts/get", name="shop__hello")
    await ItemPrompt(person).ask(asked)
    assert person.shown.startswith("-> prompts/get shop__hello (server shop)\n")


@live
async def test_a_sampling_result_says_that_it_is_sent_to_the_server() -> None:
    person = Person("no")
    await ItemPrompt(person).ask(item("sampling_result", SAMPLED))
    heading = "what the model wrote, which is sent to shop (for shop__price):\n"
    assert person.shown.startswith(f"{heading}  assistant:\n")


@live
async def test_what_was_typed_before_an_item_was_shown_is_no_answer() -> None:
    class Hasty(Person):
        def drop_typed(self) -> None:
            assert self.shown == ""
            self._lines.remove("yes")

    assert await ItemPrompt(Hasty("yes", "no")).ask(ITEM) == InboxAnswer(action="decline")


# ---------------------------------------------------------------- what servers ask


@pytest.mark.spec("R0098")
@live
async def test_a_sampling_request_is_edited_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    person = Person("edit", "1", "Be brief.", "2", "Rhyme on pear.", "3", "x", "3", "5", "", "yes")
    answer = await ItemPrompt(person).ask(item("sampling", SAMPLING))
    assert answer is not None
    edited = SAMPLING.replace("plum", "pear").replace("9}", '5,"systemPrompt":"Be brief."}')
    assert answer == InboxAnswer(action="accept", content=edited)
    assert "  1  system prompt: (none)\n  2  user: Rhyme on plum.\n" in person.shown
    assert "  user:\n  | Rhyme on pear.\n  (at most 5 tokens)\n" in person.shown
    assert "a number is required" in person.shown


@live
async def test_a_sampling_result_is_edited_and_one_that_is_not_changed_goes_as_it_is() -> None:
    person = Person("e", "1", "Bear.", "", "yes")
    answer = await ItemPrompt(person).ask(item("sampling_result", SAMPLED))
    assert answer == InboxAnswer(action="accept", content=SAMPLED.replace("Gum", "Bear"))
    assert person.prompts[-1] == "  send this to shop (for shop__price)? yes, no or edit [no] "
    unchanged = await ItemPrompt(Person("yes")).ask(item("sampling_result", SAMPLED))
    assert unchanged == InboxAnswer(action="accept")
    declined = await ItemPrompt(Person("")).ask(item("sampling_result", SAMPLED))
    assert declined == InboxAnswer(action="decline")


@live
async def test_an_editor_of_the_user_edits_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text().replace('plum', 'pear') + '\\n')\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    edited = await FieldEditor(Person("2", ""), SAMPLING).edit()
    assert "Rhyme on pear." in edited
    assert await edit_text(["/no/such/editor"], "text") is None
    assert await edit_text([sys.executable, "-c", "raise SystemExit(1)"], "text") is None


@pytest.mark.spec("R0094")
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("yes", InboxAnswer(action="accept")),
        ("session", InboxAnswer(action="accept", remember="session")),
        ("", InboxAnswer(action="decline")),
        ("2", InboxAnswer(action="accept", content='{"roots":[{"uri":"file:///b"}]}')),
    ],
)
@live
async def test_roots_are_listed_and_some_can_be_chosen(typed: str, answer: InboxAnswer) -> None:
    person = Person(typed)
    assert await ItemPrompt(person).ask(item("roots", ROOTS)) == answer
    assert "shop (for shop__price) asks for your roots:\n  1  file:///a\n" in person.shown


@pytest.mark.spec("R0368")
@live
async def test_forms_and_urls_are_filled_in_declined_and_cancelled() -> None:
    schema = '{"type":"object","properties":{"seat":{"type":"string"}}}'
    form = item("form", f'{{"message":"Which seat?","requestedSchema":{schema}}}')
    accepted = InboxAnswer(action="accept", content='{"seat":"12A"}')
    assert await ItemPrompt(Person("12A", "send")).ask(form) == accepted
    declined = await ItemPrompt(Person("12A", "decline")).ask(form)
    assert declined == InboxAnswer(action="decline")
    assert await ItemPrompt(Person(None)).ask(form) == InboxAnswer(action="cancel")
    url = item("url", '{"mode":"url","message":"Pay.","url":"https://xn--80ak6aa92e.com/"}')
    person = Person("agree")
    assert await ItemPrompt(person).ask(url) == InboxAnswer(action="accept")
    assert "https://xn--80ak6aa92e.com/" in person.shown
    assert "may look like others (Punycode)" in person.shown


# ---------------------------------------------------------------- the host of this program


@pytest.mark.spec("R0141")
@live
async def test_another_definition_of_a_remembered_tool_is_asked_about_anew(tmp_path: Path) -> None:
    person = Person("always", "no")
    made = approvals(tmp_path, person)
    await made.approve(CALL, ASK)
    await made.approve(replace(CALL, arguments=Raw(b"{}")), ASK)
    assert len(person.prompts) == 1
    assert "(allow shop__price (remembered: always))" in person.shown
    (rule,) = made.remembered.list()
    assert f"  rule {rule.id}: allow shop__price (remembered: always)\n" in person.shown
    assert f"`colonnade policy forget {rule.id}` removes it\n" in person.shown
    with pytest.raises(Refused):
        await made.approve(replace(CALL, definition_digest="ef01"), ASK)


@live
async def test_two_calls_are_asked_about_one_after_the_other(tmp_path: Path) -> None:
    made = approvals(tmp_path, Person("yes", "no"))
    other = replace(CALL, arguments=Raw(b"{}"))
    first, second = await asyncio.gather(
        made.approve(CALL, ASK), made.approve(other, ASK), return_exceptions=True
    )
    assert not isinstance(first, BaseException)
    assert isinstance(second, Refused)


@live
async def test_the_end_of_the_input_is_no_approval(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the user denied it"):
        await approvals(tmp_path, Person(None)).approve(CALL, ASK)


@live
async def test_the_time_to_decide_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("colonnade.cli.inbox_prompt.monotonic", lambda: now[0])

    class Slow(Person):
        async def ask(self, prompt: str) -> str | None:
            now[0] += 30
            return await super().ask(prompt)

    made = approvals(tmp_path, Slow("yes"))
    await made.approve(replace(CALL, arguments=Raw(b'{"fruit":"plum"}')), ASK)
    assert made.decision_s("shop__price", {"fruit": "plum"}) == 30
    assert made.decision_s("shop__price", {"fruit": "plum"}) == 0


@live
async def test_without_a_terminal_a_call_is_refused_and_with_yes_it_is_made(tmp_path: Path) -> None:
    person = Person()
    person.can_ask = False
    with pytest.raises(Refused) as refused:
        await approvals(tmp_path, person).approve(CALL, ASK)
    assert refused.value.reason == "no_approver"
    assert "there is no terminal to ask in" in person.shown
    consent = await approvals(tmp_path, person, yes=True).approve(CALL, ASK)
    assert consent.by == "--yes"


@live
async def test_without_a_terminal_an_elicitation_is_declined(tmp_path: Path) -> None:
    person = Person()
    person.can_ask = False
    params = t.ElicitRequestParams(
        message="Which seat?", requested_schema=t.ElicitSchema(properties={})
    )
    with pytest.raises(Declined):
        await approvals(tmp_path, person).answer_input(HostInputRequest("shop", "elicit", params))
    assert "shop asks 'Which seat?'; declined" in person.shown


@live
async def test_an_item_that_is_answered_elsewhere_is_asked_about_no_longer(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Waiting(Person):
        async def ask(self, prompt: str) -> str | None:
            asked.set()
            await asyncio.Event().wait()
            return None

    inbox = Inbox()
    made = approvals(tmp_path, Waiting(), inbox=inbox)
    call = asyncio.ensure_future(made.approve(CALL, ASK))
    await asked.wait()
    (waiting,) = await inbox.items()
    await inbox.answer(waiting.id, InboxAnswer(action="accept"), by="elsewhere")
    assert (await call).by == "elsewhere"


def test_a_call_that_a_rule_allows_is_shown() -> None:
    person = Person()
    rules = ShownRules(Policy(default="allow"), person)
    assert rules.decide(CALL).action == "allow"
    assert "-> shop__price (server shop)" in person.shown
    assert "(allowed by the default)" in person.shown
    assert not rules.hides(CALL)
    assert not rules.hides_server(CALL)
    assert rules.version == Policy(default="allow").version
