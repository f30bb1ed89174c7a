"""Every check of pins and of containment is needed: with any one of them taken out, a test fails.

As `tests/auth/test_mutations.py`; `scripts/mutate policy` runs these and those of rules, approvals
and audit.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

DEFINITIONS, RECORDS, PINS = "pins/test_definitions.py", "pins/test_records.py", "pins/test_pins.py"
CONFIG, CONTAIN = "pins/test_pin_config.py", "test_containment.py"
TASKS, HELD = "test_guarded_tasks.py", "pins/test_held_definitions.py"

_DEFINITIONS = "host/policy/pins/definitions.py"
_RECORDS = "host/policy/pins/records.py"
_PINS = "host/policy/pins/pins.py"
_GUARD = "host/policy/pins/pin_guard.py"
_CONTAIN = "host/policy/containment.py"
_PASS = "host/policy/containment_pass.py"
_HIDDEN = "host/policy/hidden_text.py"

CUTS: dict[str, Cut] = {
    "files are in no refusal": Cut(
        _GUARD,
        "    hint = refusal_hint(server.key)\n",
        "    hint = refusal_hint(server.key, server.file)\n",
        CONFIG,
        "command_that_is_logged",
    ),
    # ------------------------------------------------------------ definitions
    "all items of one name": Cut(
        _DEFINITIONS,
        "canonical(members[0] if len(members) == 1 else members)",
        "canonical(members[0])",
        DEFINITIONS,
        "one_name_are_one",
    ),
    "the kind in the digest": Cut(
        _DEFINITIONS,
        'b"%s\\n%s" % (kind.encode(), text)',
        "text",
        DEFINITIONS,
        "tool_and_a_prompt",
    ),
    "sorted keys": Cut(
        _DEFINITIONS,
        'msgspec.json.Encoder(order="sorted")',
        "msgspec.json.Encoder()",
        DEFINITIONS,
        "order_whitespace",
    ),
    "numbers by value": Cut(
        _DEFINITIONS,
        "return int(value) if value.is_integer()",
        "return int(value) if False",
        DEFINITIONS,
        "order_whitespace",
    ),
    "numbers beyond a float": Cut(
        _DEFINITIONS,
        "    if not isfinite(value):\n        return Raw(literal.encode())",
        "    if not isfinite(value):\n        return None",
        DEFINITIONS,
        "no_float_has",
    ),
    "meta that is no hop's": Cut(
        _DEFINITIONS,
        'return {**rest, "_meta": kept} if kept else rest',
        "return rest",
        DEFINITIONS,
        "meta_of_the_hop",
    ),
    "a text as the time of a change": Cut(
        _DEFINITIONS,
        "if isinstance(when, str) and _TIME.fullmatch(when):",
        "if when is not None:",
        DEFINITIONS,
        "but_a_text_there_is",
    ),
    "a text as a size": Cut(
        _DEFINITIONS,
        "if type(size) is int and size >= 0:",
        "if size is not None:",
        DEFINITIONS,
        "but_a_text_there_is",
    ),
    "hidden characters in a diff": Cut(
        _DEFINITIONS,
        "return cut(clean(line), MAX_DIFF_COLUMNS)",
        "return cut(line, MAX_DIFF_COLUMNS)",
        DEFINITIONS,
        "hidden_characters_visible",
    ),
    # ------------------------------------------------------------ records
    "the digest": Cut(
        _RECORDS,
        "return item is not None and any(one.digest == digest for one in item.accepted)",
        "return item is not None and bool(item.accepted)",
        RECORDS,
        "names_what_changed",
    ),
    "review at first sight": Cut(
        _RECORDS,
        'return held if self._first == "review" or item.pending else None',
        "return None",
        RECORDS,
        "with_review",
    ),
    "what has waited goes on waiting": Cut(
        _RECORDS,
        'if self._first == "review" or item.pending else None',
        'if self._first == "review" else None',
        RECORDS,
        "with_review",
    ),
    "renamed": Cut(
        _RECORDS,
        'gone = next((name for name in bodies if name not in self._definitions), "")',
        'gone = ""',
        RECORDS,
        "renamed_tool",
    ),
    "swapped": Cut(
        _RECORDS,
        "if now_there is not None and now_there.body in own:",
        "if False:",
        RECORDS,
        "swapped_tools",
    ),
    "lookalikes": Cut(
        _RECORDS,
        "                if one.name not in names:",
        "                if False:",
        RECORDS,
        "looks_like",
    ),
    "lookalikes of other servers": Cut(
        _RECORDS,
        ", self._others.get(shape, {})):",
        ",):",
        PINS,
        "lookalike_of_a_tool",
    ),
    "what a person has seen": Cut(
        _RECORDS,
        "found = [one for one in item.pending if one.digest == digest] if",
        "found = list(item.pending) if",
        RECORDS,
        "a_person_has_seen",
    ),
    "accepted variants": Cut(
        _RECORDS,
        "(*kept, variant)[-MAX_VARIANTS:], pending)",
        "(*kept, variant), pending)",
        RECORDS,
        "each_caller",
    ),
    "pending variants": Cut(
        _RECORDS,
        "pending=(*item.pending, variant)[-MAX_VARIANTS:])",
        "pending=(*item.pending, variant))",
        RECORDS,
        "is_bounded",
    ),
    "items of a record": Cut(
        _RECORDS,
        "if name not in changed and len(changed) >= MAX_ITEMS:",
        "if False:",
        RECORDS,
        "than_can_be_kept",
    ),
    "size of a record": Cut(
        _RECORDS,
        "if decompressor.unconsumed_tail or not decompressor.eof:",
        "if not text:",
        RECORDS,
        "damaged or too_large",
    ),
    # ------------------------------------------------------------ the store
    "a damaged record": Cut(
        _PINS,
        "            return decode_record(data)\n        except ValueError as error:\n",
        "            return decode_record(data)\n        except ValueError as error:\n"
        "            return EMPTY\n",
        PINS,
        "record_that_cannot_be_read",
    ),
    "compare and swap": Cut(
        _PINS,
        "if after is before or await store.swap(SERVER_PRINCIPAL, key, before, after, None):\n"
        "                self._remember_names",
        "if after is before or not await store.put(SERVER_PRINCIPAL, key, after or b'', None):\n"
        "                self._remember_names",
        PINS,
        "lose_nothing",
    ),
    "the mode": Cut(
        _PINS,
        'held = found.held if server.mode == "strict" else {}',
        "held = found.held",
        PINS,
        "warn_logs",
    ),
    "another command is another server": Cut(
        _GUARD,
        '{entry.key}\\n{server_identity(entry)}"',
        '{entry.key}"',
        PINS,
        "another_command",
    ),
    # ------------------------------------------------------------ lists and requests
    "lists": Cut(
        _GUARD,
        "return not isinstance(review, ListReview) or review.allows(own)",
        "return True",
        PINS,
        "nothing_is_used",
    ),
    "the last list": Cut(
        "host/policy/admission.py",
        "            await pins.check(server, item.kind, item.name, caller)\n",
        "            pass\n",
        PINS,
        "before_a_person_is_asked",
    ),
    "the session": Cut(
        "host/policy/admission.py",
        "            await self.pins.check_session(call, server, item.kind, item.name, caller)\n",
        "            pass\n",
        PINS,
        "mid_session or new_process",
    ),
    "the session of a request that is sent at once": Cut(
        "host/policy/admission.py",
        "is_accepted = pins is None or pins.accepts(call, server, item.kind, item.name)",
        "is_accepted = True",
        PINS,
        "mid_session or new_process",
    ),
    "a list of the session that may have changed": Cut(
        _GUARD,
        'if kind != "tool" or server.needs_read(call.session, "tools"):',
        'if kind != "tool":',
        PINS,
        "mid_session or new_process",
    ),
    "the list of each session": Cut(
        "host/servers/generation.py",
        "        if found is None:\n            return True\n        if kind in self._notified:",
        "        if found is None:\n            return False\n        if kind in self._notified:",
        PINS,
        "first_definitions_are_accepted or new_process",
    ),
    "a server that announces nothing": Cut(
        "host/servers/generation.py",
        "return asyncio.get_running_loop().time() >= found[1] + UNNOTIFIED_S",
        "return False",
        PINS,
        "announces_nothing",
    ),
    "list_changed": Cut(
        "host/servers/session.py",
        "        if notification.method.name in LISTS:\n            self._session.forget_reviews()\n"
        "        elif",
        "        if",
        PINS,
        "at_the_very_next_call",
    ),
    "a list that changes while it is read": Cut(
        "host/servers/listings.py",
        "session.list_changes == self._changes and review is not None",
        "review is not None",
        PINS,
        "while_it_was_read",
    ),
    "the end of a subscription": Cut(
        "host/servers/generation.py",
        "        self._forget_reviews(client)\n        if any(",
        "        if any(",
        PINS,
        "at_a_url",
    ),
    "no session opened again below a call": Cut(
        "host/policy/guard.py",
        'return self.pins is None or (entry.settings.pins or self.pins.pins.mode) != "strict"',
        "return True",
        PINS,
        "at_a_url",
    ),
    "another session for a lost one": Cut(
        "host/servers/supervisor.py",
        "if isinstance(error, ConnectionLost) and session.is_pinned:",
        "if False:",
        PINS,
        "at_a_url",
    ),
    "what the session does not list": Cut(
        _GUARD,
        "        if isinstance(review, ListReview) and name in review.digests:\n"
        '            return ""\n        return f"',
        '        return "" and f"',
        PINS,
        "does_not_list",
    ),
    "a resource that is held": Cut(
        _GUARD,
        "if name in review.digests or not rest:",
        "if not rest:",
        PINS,
        "through_a_template",
    ),
    "templates that are held": Cut(
        _GUARD,
        "if not held_ones or len(held_ones) < len(matching):",
        "if True:",
        PINS,
        "nothing_is_used",
    ),
    "instructions": Cut(
        _GUARD,
        'return pinned.mode == "off" or self.pins.accepts_instructions(pinned, text)',
        "return True",
        PINS,
        "changed_instructions",
    ),
    "accepted meanwhile, in lists": Cut(
        _GUARD,
        "            if await self._is_outdated(pinned, kind, review):\n",
        "            if False:\n",
        PINS,
        "nothing_is_used or in_another_process",
    ),
    "watch tells of what is accepted": Cut(
        "host/servers/listings.py",
        "return self.items == other.items and self._held == other._held",
        "return self.items == other.items",
        PINS,
        "in_another_process",
    ),
    "titles that look alike": Cut(
        _GUARD, "            if other != name:", "            if False:", PINS, "calls_itself"
    ),
    # ------------------------------------------------------------ configuration
    "the strictest file": Cut(
        "host/config/settings.py",
        "mode=self.mode if rank(self.mode) <= rank(other.mode) else other.mode",
        "mode=self.mode",
        CONFIG,
        "the_strictest_counts",
    ),
    "a wrong value is strict": Cut(
        "host/config/files.py",
        'found[name] = "strict" if name == "mode" else "review"',
        'found[name] = "off" if name == "mode" else "accept"',
        CONFIG,
        "counts_as_the_strictest",
    ),
    # ------------------------------------------------------------ containment
    "controls": Cut(
        "text.py",
        "for one in (*range(32), 127) if",
        "for one in (127,) if",
        CONTAIN,
        "hidden_character",
    ),
    "invisible characters": Cut(
        "text.py",
        "    return any(pattern.search(text, at, at + SLICE) for at in range(0, end, SLICE))",
        "    return False",
        CONTAIN,
        "hidden_character",
    ),
    "a carriage return alone": Cut(
        _HIDDEN, '"\\r(?!\\n)"', '"\\r(?!\\n)(?!.)"', CONTAIN, "hidden_character"
    ),
    "a form with hidden choices": Cut(
        _CONTAIN,
        'raise Refused(message, reason="hidden_text") from None',
        "return request",
        CONTAIN,
        "nobody_sees_it",
    ),
    "what is sent back": Cut(
        _PASS, "                raise HiddenExact\n", "                pass\n", CONTAIN, "left_out"
    ),
    "names in a schema": Cut(
        _PASS, "                    self.exact(key)\n", "", CONTAIN, "left_out"
    ),
    "values in a schema": Cut(
        _PASS,
        "inner = is_value or key in _VALUES",
        "inner = is_value",
        CONTAIN,
        "left_out",
    ),
    "suggestions": Cut(
        _PASS,
        "        return kept if self._neutralises else values",
        "        return values",
        CONTAIN,
        "suggestions",
    ),
    "the problem of an item that is left out": Cut(
        "host/policy/guard.py",
        "                server.warn(problem)\n",
        "                pass\n",
        CONTAIN,
        "problems",
    ),
    "structured content that does not fit": Cut(
        _PASS,
        "and not _fits(tool, shown)",
        "and False",
        CONTAIN,
        "must_be_exact",
    ),
    "structured content that is too large": Cut(
        _PASS, "        if size > self._most:\n", "        if False:\n", CONTAIN, "must_be_exact"
    ),
    "names of members that become one": Cut(
        _PASS,
        "        if len(shown) < len(members):\n",
        "        if False:\n",
        CONTAIN,
        "must_be_exact",
    ),
    "a thread for what is large": Cut(
        _PASS, "        if self._room < 0:\n", "        if False:\n", CONTAIN, "in_a_thread"
    ),
    "a row of the table": Cut(
        "host/policy/members.py",
        't.Icon: {"src": URI, "mime_type": TEXT,',
        't.Icon: {"src": URI, "mime_type": CLOSED,',
        "test_members.py",
        "closed_one",
    ),
    "length": Cut(
        _PASS,
        "kept = text[: max(self._left, 0)] if len(text) > self._left else text",
        "kept = text",
        CONTAIN,
        "too_long",
    ),
    "structured content is contained": Cut(
        _CONTAIN,
        "            contained = _with_data(one, contained, tool if isinstance(tool, t.Tool) else None)",
        "            pass",
        CONTAIN,
        "structured_content_is_contained",
    ),
    "results that are passed on": Cut(
        "host/policy/members.py",
        "(MEMBERS[base] for base in kind.__mro__ if base in MEMBERS)",
        "(MEMBERS[base] for base in (kind,) if base in MEMBERS)",
        CONTAIN,
        "passed_on",
    ),
    "input requests in a result": Cut(
        _CONTAIN,
        "            return self._input_required(result, in_loop)\n",
        "            return result\n",
        CONTAIN,
        "input_requests_in_a_result",
    ),
    "the data of an error": Cut(
        _CONTAIN,
        "one.text(error.message), self._message_value(one, error.data)",
        "one.text(error.message), error.data",
        CONTAIN,
        "data_of_an_error",
    ),
    # ------------------------------------------------------------ tasks
    "states of tasks": Cut(
        "host/requests.py",
        "return await aside(contain.task_state, state)",
        "return state",
        TASKS,
        "says_about_a_task",
    ),
    "progress of tasks": Cut(
        "host/requests.py",
        "on_progress = contained_progress(on_progress, contain.text)",
        "pass",
        TASKS,
        "says_about_a_task",
    ),
    "the first words about a task": Cut(
        "host/requests.py",
        "immediate = None if immediate is None else contain.text(immediate)",
        "pass",
        TASKS,
        "says_about_a_task",
    ),
    "errors about tasks": Cut(
        "host/requests.py",
        "contained = error if contain is None else contain.failure(error)",
        "contained = error",
        TASKS,
        "that_is_lost",
    ),
    "the error in a state": Cut(
        _CONTAIN,
        "if (error := self.error(sent)) is not sent:",
        "if (error := sent) is not sent:",
        TASKS,
        "every_part_of_a_state",
    ),
    "the input requests in a state": Cut(
        _CONTAIN,
        "if (contained := self._input_required(required, in_loop)) is not required:",
        "if (contained := required) is not required:",
        TASKS,
        "every_part_of_a_state",
    ),
    "the result in a state": Cut(
        _CONTAIN,
        "        return Raw(encode(contained))",
        "        return raw",
        TASKS,
        "every_part_of_a_state",
    ),
    "the tool in the record of a task": Cut(
        "host/tasks.py",
        "        found = await self._records.find(self.server, self.handle)\n",
        "        found: HostTaskRecord | None = None\n",
        TASKS,
        "another_tool",
    ),
    "a handle of a task without a record": Cut(
        "host/requests.py",
        "if not task.is_confirmed and await self._runtime.hides_tools(task.server, context):",
        "if False:",
        TASKS,
        "not_in_the_store",
    ),
    # ------------------------------------------------------------ containment in a host
    "results": Cut(
        "host/policy/guard.py",
        "GuardedResult(await aside(contain.contain, result, definition, raw), result)",
        "GuardedResult(result, result)",
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "definitions": Cut(
        "host/policy/guard.py",
        "listed, problems = await aside(contain.definitions, listed)",
        "problems = []",
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "the instructions of a server": Cut(
        "host/policy/guard.py",
        "return text if contain is None else contain.text(text)",
        "return text",
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "errors": Cut(
        "host/policy/guard.py",
        "contained = contain.failure(error)",
        "contained = error",
        CONTAIN,
        "error_of_a_server",
    ),
    "input requests": Cut(
        "host/policy/input_review.py",
        "return await aside(self._containment.of(entry.key).input_request, input_request)",
        "return input_request",
        CONTAIN,
        "what_a_server_asks",
    ),
    "log messages": Cut(
        "host/servers/session.py",
        "data, logger = self._contain(data), self._contain(logger)",
        "pass",
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "progress": Cut(
        "host/router.py",
        "            message = contain(message)\n",
        "            pass\n",
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "containment beside a policy": Cut(
        "host/policy/parts.py",
        'containment or Containment("off" if is_bare else "neutralise")',
        'containment or Containment("off")',
        CONTAIN,
        "any_part_of_a_policy",
    ),
    "keys that look alike": Cut(
        "host/policy/lookalikes.py",
        "        if other != name:\n",
        "        if False:\n",
        CONTAIN,
        "look_alike",
    ),
    # ------------------------------------------------------------ held definitions in the inbox
    "held: all or nothing": Cut(
        "host/policy/pins/pins.py",
        "if all_or_none and len(found) < len(pairs):",
        "if False:",
        HELD,
        "nothing_beside_it",
    ),
    "held: what has changed again": Cut(
        "host/policy/approvals/inbox.py",
        "                and there.content == item.content\n",
        "",
        HELD,
        "has_changed_again",
    ),
    "held: acceptance": Cut(
        "host/policy/approvals/inbox.py",
        'await acceptor.accept(after) if acceptor is not None else ""',
        '""',
        HELD,
        "says_what_changed",
    ),
    "held: pins of another host": Cut(
        "host/policy/approvals/inbox.py",
        "            if one.has(item):\n",
        "            if True:\n",
        HELD,
        "only_where_the_pins",
    ),
    "held: identity of the server": Cut(
        "host/host.py",
        "server is not None and pins.server(server).identity == identity",
        "server is not None",
        HELD,
        "another_command",
    ),
    "held: room of calls": Cut(
        "host/policy/approvals/inbox.py",
        'if (one.kind == "definitions") is is_posted]',
        "if True]",
        HELD,
        "take_no_room",
    ),
    "held: definitions in one item": Cut(
        "host/policy/pins/held_definitions.py",
        " or len(found) == MAX_DEFINITIONS:",
        ":",
        HELD,
        "thousands_of",
    ),
    "held: bytes of one item": Cut(
        "host/policy/pins/held_definitions.py",
        "if size > left or",
        "if",
        HELD,
        "of_any_size",
    ),
    "held: definitions without room": Cut(
        "host/policy/pins/held_definitions.py",
        "        if size > MAX_BYTES:",
        "        if False:",
        HELD,
        "of_any_size",
    ),
    "held: shown once": Cut(
        "host/policy/approvals/inbox.py",
        'there.state == "open" and there.serial not in self._shown',
        'there.state == "open"',
        HELD,
        "sees_it_once",
    ),
    "held: declined": Cut(
        "host/policy/approvals/inbox.py",
        'there.state in ("open", "declined")',
        'there.state in ("open",)',
        HELD,
        "not_asked_about_again",
    ),
    "held: strict pins": Cut(
        "host/policy/pins/held_definitions.py",
        'if server.mode != "strict":',
        "if False:",
        HELD,
        "without_strict_pins",
    ),
    "held: shown again": Cut(
        "host/policy/pins/held_definitions.py",
        "if seen == review.seen and self._inbox.clock() < until:",
        "if seen == review.seen and until:",
        HELD,
        "again_after_them",
    ),
    "held: of no process": Cut(
        "host/policy/approvals/inbox.py",
        'self.kind not in ("approval", "definitions")',
        'self.kind != "approval"',
        HELD,
        "survives_a_restart",
    ),
    "held: a store that is away": Cut(
        "host/policy/pins/held_definitions.py",
        '        except ColonnadeError as error:\n            log.warning("held',
        '        except ZeroDivisionError as error:\n            log.warning("held',
        HELD,
        "because_the_inbox_does",
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
