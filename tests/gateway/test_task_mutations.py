"""Every check of tasks that cross a gateway is needed: with any one of them taken out, a test fails.

The package is copied, one line of the copy is changed, and the tests that should fail are run on it.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

TASKS, FOLLOWERS = "gateway/tasks.py", "gateway/task_followers.py"
RELAY, ROUTER = "host/task_relay.py", "host/router.py"
SESSION, IDENTITY, GUARD = "host/servers/session.py", "gateway/identity.py", "host/policy/guard.py"
BRIDGE, FRONT = "gateway/bridge.py", "gateway/front.py"
CONTAINMENT = "host/policy/containment.py"
TESTS, GUARDED = "test_tasks.py", "test_task_policy.py"

CUTS: dict[str, Cut] = {
    "tasks of a pool": Cut(
        RELAY,
        'return None if server.entry.settings.sharing == "pooled" else "optional"',
        'return "optional"',
        TESTS,
        "process_of_a_pool",
    ),
    # ids
    "principal of an id": Cut(
        TASKS,
        "if address.tag != _TAG or address.principal != _digest(principal):",
        "if address.tag != _TAG:",
        TESTS,
        "everyone_but_its_principal or others_out",
    ),
    "generation of an id": Cut(
        TASKS,
        "if _GENERATIONS.get(address.generation) is not generation:",
        "if False:",
        TESTS,
        "of_one_generation",
    ),
    "length of an id": Cut(
        TASKS,
        "if len(id) > MAX_TASK_ID_CHARACTERS:",
        "if len(id) > MAX_TASK_ID_CHARACTERS * 9:",
        TESTS,
        "too_long",
    ),
    "seal of an id": Cut(
        TASKS,
        "            raise unknown_task() from None\n        if address.tag",
        "            raise\n        if address.tag",
        TESTS,
        "everyone_but_its_principal",
    ),
    "id of the server in a result": Cut(
        RELAY,
        "            return replace(result, task_id=self._id)\n",
        "            return result\n",
        TESTS,
        "id_of_the_gateway",
    ),
    "id of the server in a state": Cut(
        RELAY,
        "return replace(result, task_id=self._id, result=_without_hop(result.result))",
        "return replace(result, result=_without_hop(result.result))",
        TESTS,
        "id_of_the_gateway",
    ),
    "hop of a result in a state": Cut(
        RELAY, "result=_without_hop(result.result))", "result=result.result)", TESTS, "of_the_hop"
    ),
    "related task of a result": Cut(
        RELAY, "return related(result, self._id)", "return result", TESTS, "names_the_task"
    ),
    "length of the id of a server": Cut(
        RELAY, "if len(state.task_id) > MAX_ID_CHARACTERS:", "if False:", TESTS, "too_long"
    ),
    "task that its server does not know": Cut(
        RELAY,
        "if self._is_invalid(error) and not await self._is_known(before_send):",
        "if False:",
        TESTS,
        "in_the_same_words",
    ),
    "task of a server that is gone": Cut(
        ROUTER,
        "            raise unknown_task() from None\n        forward",
        "            raise\n        forward",
        TESTS,
        "everyone_but_its_principal",
    ),
    "request about a task that no gateway has opened": Cut(
        ROUTER,
        "if target is None or relay is None or relay.tasks is None:",
        "if False:",
        TESTS,
        "around_the_gateway",
    ),
    "responses to what was not asked": Cut(
        TASKS,
        "if exchange.method.name == UPDATE:",
        "if False:",
        GUARDED,
        "sent_no_response",
    ),
    "keys of responses": Cut(
        TASKS, "if key in (shown or {})}", "}", GUARDED, "client_was_not_asked"
    ),
    "members of a vendor in the result of a state": Cut(
        CONTAINMENT, " and not hides_text(raw):", ":", GUARDED, "what_no_type_has"
    ),
    "members twice in the result of a state": Cut(
        CONTAINMENT, " and not has_duplicate_members(raw)", "", GUARDED, "what_no_type_has"
    ),
    "what is no result in a state": Cut(
        RELAY, "if result.result and not contained.result:", "if False:", GUARDED, "no_result"
    ),
    # what is declared and asked for
    "tool that does not run as a task": Cut(
        RELAY,
        "check_task_support(exchange, task_support(tool, server))",
        "pass",
        TESTS,
        "refuses_to_be_a_task",
    ),
    "support of a task": Cut(
        RELAY, " or server.tasks is not Tasks.CORE:", ":", TESTS, "without_the_capability"
    ),
    "extension of a call": Cut(
        TASKS,
        "            if t.TASKS_EXTENSION_ID not in exchange.peer.extensions:  # R1151\n"
        "                return None\n",
        "            pass\n",
        TESTS,
        "without_tasks_gets_the_result",
    ),
    "generation of a task": Cut(
        RELAY,
        "if state is None or state.generation is not self._tasks.generation:",
        "if state is None:",
        TESTS,
        "another_generation_is_awaited",
    ),
    "list that is declared": Cut(
        IDENTITY,
        "if capabilities.tasks is None or callers is not Callers.ANONYMOUS:",
        "if True:",
        TESTS,
        "not_known_get_no_list",
    ),
    # input requests
    "related task of an input request": Cut(
        "host/servers/session_input.py",
        "return await self.for_calls(_with_task(request, known), calls)",
        "return await self.for_calls(request, calls)",
        TESTS,
        "input_requests_of_a_task_cross",
    ),
    "input request of another task": Cut(
        "host/servers/session_input.py",
        "own = tuple(call for call in asked if task_of(call.context) == task)",
        "own = tuple(asked)",
        TESTS,
        "waits_for_a_request_about_it",
    ),
    "input that the caller did not declare": Cut(
        SESSION,
        "            checked_input_requests(required, declared, client.peer.revision)\n",
        "            pass\n",
        TESTS,
        "did_not_declare",
    ),
    "call that waits for a task": Cut(
        BRIDGE,
        "if tasks is not Tasks.NONE and relay.tasks is None:",
        "if False:",
        TESTS,
        "without_tasks_gets_the_result",
    ),
    # notifications and limits
    "tasks of a principal in sessions": Cut(
        FOLLOWERS,
        "            self.forget(*oldest)\n",
        "            break\n",
        TESTS,
        "are_bounded",
    ),
    "tasks of a principal": Cut(
        FOLLOWERS,
        "found = max(min(count, MAX_TASKS_PER_PRINCIPAL - own, MAX_TASKS - self._total), 0)",
        "found = max(min(count, MAX_TASKS - self._total), 0)",
        TESTS,
        "as_there_is_room_for",
    ),
    "tasks of all principals": Cut(
        FOLLOWERS,
        "found = max(min(count, MAX_TASKS_PER_PRINCIPAL - own, MAX_TASKS - self._total), 0)",
        "found = max(min(count, MAX_TASKS_PER_PRINCIPAL - own), 0)",
        TESTS,
        "all_principals_are_bounded",
    ),
    "end of a feed": Cut(
        FRONT,
        "            if feed is not None:\n                feed.close()\n",
        "",
        TESTS,
        "has_the_states",
    ),
    "acknowledged tasks": Cut(
        FRONT,
        "subscription.keep_tasks([id for id in task_ids if id in feed.tasks])",
        "pass",
        TESTS,
        "has_the_states or others_out",
    ),
    # policy
    "guard of a request about a task": Cut(
        ROUTER,
        "            if self.guard is None:\n                return HostResult(task.with_id(await",
        "            if True:\n                return HostResult(task.with_id(await",
        TESTS,
        "tool_that_is_hidden",
    ),
    "every request about a task": Cut(
        "host/policy/decisions.py",
        'if request.method.startswith("tasks/"):',
        'if request.method == "tasks/get":',
        GUARDED,
        "asked_about_its_call_once",
    ),
    "input requests of a task": Cut(
        GUARD,
        "                result = await self._input.review_task(server.entry, context, result)\n",
        "                pass\n",
        GUARDED,
        "denied_input",
    ),
    "input request of a task that was admitted": Cut(
        "host/policy/input_review.py",
        "if digest not in self._reviewed_tasks:",
        "if True:",
        GUARDED,
        "asked_about_once",
    ),
    "hidden text in the state of a task": Cut(
        RELAY,
        "            result = await _contained_state(result, contain)\n",
        "            pass\n",
        GUARDED,
        "hidden_text",
    ),
    "hidden text in a new task": Cut(
        "host/policy/members.py",
        't.CreateTaskResult: {"task": PARTS,',
        't.CreateTaskResult: {"task": UNUSED,',
        GUARDED,
        "hidden_text",
    ),
    "progress of a tool that rules have hidden": Cut(
        "gateway/gateway.py",
        "            self._tasks.followers.rules_changed()\n",
        "            pass\n",
        TESTS,
        "ends_when_rules_hide",
    ),
    "audit of a task of a hidden server": Cut(
        "host/policy/records.py",
        "if tasks is not None and tasks.target is not None:",
        "if False and tasks is not None and tasks.target is not None:",
        GUARDED,
        "in_the_audit_log",
    ),
    "task of an input request at a home": Cut(
        "gateway/homes.py",
        "self._input = CarriedInput(task)",
        "self._input = CarriedInput(None)",
        TESTS,
        "names_the_task_at_another_replica",
    ),
    "hidden text in progress": Cut(
        FOLLOWERS,
        "if message is not None and contain is not None:",
        "if False and contain is not None and message is not None:",
        GUARDED,
        "hidden_text",
    ),
    "review of responses": Cut(
        "host/router.py",
        "            if method == UPDATE_TASK:\n",
        "            if False:\n",
        GUARDED,
        "result_before_the_server",
    ),
    "what a person has edited of a request": Cut(
        "host/policy/input_review.py",
        "return None if reviewed is shown else _written(reviewed)",
        "return None",
        GUARDED,
        "what_a_person_edits_of_a_task",
    ),
    "a denial of a request": Cut(
        "host/policy/input_review.py",
        "        except DeniedByPerson as denied:\n            return denied\n",
        "        except DeniedByPerson:\n            raise\n",
        GUARDED,
        "asked_about_once_and_not_shown",
    ),
    "a denial of a request that was forgotten": Cut(
        "host/policy/input_review.py",
        "        except DenialRemembered:\n            raise\n",
        "",
        GUARDED,
        "until_it_is_forgotten",
    ),
    "reads at once": Cut(
        "host/policy/input_review.py",
        "            async with lock:",
        "            if lock:",
        GUARDED,
        "at_once_ask_once",
    ),
    "a response to what is asked now": Cut(
        "host/policy/input_review.py",
        "            input_request.decode_response(responses[key], context.exchange.peer.revision)\n",
        "",
        GUARDED,
        "asks_something_else",
    ),
    "a response whose request was shown": Cut(
        "host/policy/input_review.py",
        "responses[key], always=always\n",
        "responses[key]\n",
        GUARDED,
        "is_shown_if_its_request_was",
    ),
    "the request before its response": Cut(
        "host/policy/input_review.py",
        "        await self.review_task(entry, context, replace(state, input_requests=asked))\n",
        "",
        GUARDED,
        "not_shown_before_its_response",
    ),
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests/gateway")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path, "tests/gateway")
