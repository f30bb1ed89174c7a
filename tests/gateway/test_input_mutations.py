"""Every check of input requests is needed: with any one of them taken out, a test fails.

The package is copied, one line of the copy is changed, and the tests that should fail are run on it.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

PURE, HELD, APART = "test_input_requests.py", "test_held_calls.py", "test_input_isolation.py"
CALLERS = "../host/servers/test_callers.py"
CELLS, REPLICAS = "test_input_cells.py", "test_held_replicas.py"
STATE, CALLS = "gateway/input_requests.py", "gateway/held_calls.py"
BRIDGE, KEYS = "gateway/bridge.py", "host/servers/callers.py"
SESSION, URLS = "host/servers/session.py", "host/servers/url_elicitations.py"
FOLLOWED, POLICY = "gateway/subscriptions.py", "test_subscription_policy.py"
ROUTER, RUNTIME = "host/router.py", "host/runtime.py"
REVIEW = "host/policy/input_review.py"

CUTS: dict[str, Cut] = {
    # the state
    "principal of a state": Cut(
        STATE,
        "if (state.principal, state.method, state.subject) != (principal, method, subject):",
        "if (state.method, state.subject) != (method, subject):",
        HELD,
        "foreign_altered",
    ),
    "method of a state": Cut(
        STATE,
        "if (state.principal, state.method, state.subject) != (principal, method, subject):",
        "if (state.principal, state.subject) != (principal, subject):",
        PURE,
        "another_request",
    ),
    "arguments of a state": Cut(
        STATE,
        "if (state.principal, state.method, state.subject) != (principal, method, subject):",
        "if (state.principal, state.method) != (principal, method):",
        HELD,
        "foreign_altered",
    ),
    "expiry of a state": Cut(STATE, "if now >= state.expires_at or", "if", HELD, "foreign_altered"),
    "round of a state": Cut(
        STATE, " or not 0 < state.round <= MAX_ROUNDS:", ":", PURE, "of_no_round"
    ),
    "rounds of a relay": Cut(
        BRIDGE, "if round > MAX_ROUNDS:", "if False:", APART, "at_most_ten_times"
    ),
    "server of a state": Cut(
        BRIDGE,
        "if self.before is not None and self.before.server != server:",
        "if False:",
        HELD,
        "has_its_name_now",
    ),
    "responses without a state": Cut(
        BRIDGE, "strip=given.responses is not None", "strip=False", HELD, "never_reaches_it"
    ),
    "state of the server": Cut(
        BRIDGE,
        "sealed = await self._states.save(encode(state), state.principal, ttl_s)",
        "sealed = state.state or ''",
        HELD,
        "never_reaches_it",
    ),
    # held calls
    "principal of a held call": Cut(
        CALLS,
        "return call if call is not None and call.principal == principal else None",
        "return call",
        HELD,
        "by_their_principal_only",
    ),
    "principal of an outcome": Cut(
        CALLS, "        if owner != principal:\n", "        if owner is None:\n", HELD, "kept_here"
    ),
    "calls of a principal": Cut(
        CALLS,
        "return of_principal < self.limits.per_principal and self._held_total < self.limits.total",
        "return self._held_total < self.limits.total",
        HELD,
        "ninth_call",
    ),
    "calls of all": Cut(
        CALLS,
        "return of_principal < self.limits.per_principal and self._held_total < self.limits.total",
        "return of_principal < self.limits.per_principal + 1",
        HELD,
        "a_thousand_calls",
    ),
    "calls that begin together": Cut(
        CALLS,
        "        if not self._may_hold(call.principal):\n            return False\n",
        "",
        HELD,
        "begin_together",
    ),
    "size of input requests": Cut(
        CALLS,
        "if self._abandoned or size > self._limits.input_bytes:",
        "if self._abandoned:",
        HELD,
        "too_large_is_cancelled",
    ),
    "size of params": Cut(
        CALLS,
        "if len(self.request.exchange.request.params) > self._limits.request_bytes:",
        "if False:",
        HELD,
        "large_params",
    ),
    "size of an outcome": Cut(
        CALLS, "if len(value) > self.limits.outcome_bytes:", "if False:", HELD, "too_large_to_be"
    ),
    "rounds of a held call": Cut(
        CALLS, "if self._round >= self._limits.rounds:", "if False:", HELD, "eleventh_round"
    ),
    "responses are taken once": Cut(
        CALLS,
        "                del self._pending[key]\n        if any(",
        "        if any(",
        HELD,
        "sent_twice",
    ),
    "responses of this round": Cut(
        CALLS,
        "if key in responses:\n                pending.request.decode_response",
        "if False:\n                pending.request.decode_response",
        HELD,
        "does_not_fit",
    ),
    "abandonment": Cut(
        CALLS,
        "self._timer = loop.call_later(left_s, self.abandon)",
        "pass",
        HELD,
        "an_abandoned_call",
    ),
    "time of all rounds": Cut(
        CALLS,
        "self._parked_s += asyncio.get_running_loop().time() - self._parked_at",
        "pass",
        HELD,
        "over_all_rounds",
    ),
    "cancellation after abandonment": Cut(
        CALLS,
        "self._timer = loop.call_later(self._limits.finish_s, self.task.cancel)",
        "pass",
        HELD,
        "sent_a_cancellation",
    ),
    "cancellation with the request": Cut(
        CALLS,
        "                self.task.cancel()\n            raise",
        "                pass\n            raise",
        HELD,
        "goes_away_while_it_waits",
    ),
    "outcome before it is sent": Cut(
        CALLS,
        "            await self._calls.keep(self, outcome)\n",
        "            pass\n",
        REPLICAS,
        "read_from_the_store",
    ),
    "policy of a relayed input request": Cut(
        "host/policy/guard.py",
        "            if isinstance(result, t.InputRequiredResult):\n",
        "            if False:\n",
        "test_policy.py",
        "refused_elicitation",
    ),
    "record of a relayed input request": Cut(
        REVIEW,
        "        await done(steps.executed(None))\n        return reviewed\n",
        "        await steps.executed(None)\n        return reviewed\n",
        "test_policy.py",
        "allowed_elicitation",
    ),
    "review of a relayed input request": Cut(
        REVIEW,
        "reviewed = await self._answered(steps, decision, ask)\n",
        "reviewed, _ = shown, ask\n",
        "test_policy.py",
        "has_not_seen or a_person_denies",
    ),
    "edit of a relayed input request": Cut(
        REVIEW,
        "if reviewed is not shown:",
        "if False:",
        "test_policy.py",
        "person_edits",
    ),
    "review of a relayed response": Cut(
        ROUTER,
        "send = _forward if relay is None or not relay.under_review else _send_reviewed",
        "send = _forward",
        "test_policy.py",
        "has_not_seen or a_person_denies",
    ),
    "edit of a relayed response": Cut(
        ROUTER,
        "params = replace(params, input_responses=seen)",
        "pass",
        "test_policy.py",
        "person_edits",
    ),
    "what is reviewed in another process": Cut(
        BRIDGE,
        "            under_review=relay.reviewed_next,\n",
        "",
        "test_policy.py",
        "in_every_process",
    ),
    "type of a relayed response": Cut(
        REVIEW,
        "input_request.decode_response(response, context.exchange.peer.revision)",
        "pass",
        "test_policy.py",
        "reads_in_two_ways",
    ),
    "rules of a relayed response": Cut(
        REVIEW,
        "        with _recorded(steps):\n            decision = self._not_denied(entry, steps)\n",
        "        with _recorded(steps):\n"
        "            decision = self._decisions.decide(steps.request)\n",
        "test_policy.py",
        "deny_between_two_rounds",
    ),
    "review of an input request of a task": Cut(
        REVIEW,
        "            if input_request.kind.method in REVIEWED_METHODS:\n",
        "            if False:\n",
        "test_task_policy.py",
        "result_before_the_server",
    ),
    "consent of the round before": Cut(
        "host/policy/admission.py",
        "consent = self.rounds.take(request, decision, item.state)",
        "consent = None",
        "test_policy.py",
        "asked_about_once",
    ),
    "approval of an elicitation": Cut(
        REVIEW,
        "if is_elicitation and not in_inbox:",
        "if False:",
        "test_policy.py",
        "person_agreed",
    ),
    "policy of a held call": Cut(
        BRIDGE,
        "if call.policy_version != self._policy_version:",
        "if False:",
        HELD,
        "while_the_policy_changes",
    ),
    # callers apart
    "capabilities of a session": Cut(
        KEYS,
        "key = known.last = CallerKey(exchange.principal, place, known.declared)",
        "key = known.last = CallerKey(exchange.principal, place, self.allowed)",
        CELLS,
        "offered_what_the_client",
    ),
    "session of a caller": Cut(
        KEYS,
        "key = known.last = CallerKey(exchange.principal, place, known.declared)",
        "key = known.last = CallerKey(exchange.principal, None, known.declared)",
        APART,
        "without_authentication",
    ),
    "principal of a caller": Cut(
        KEYS,
        "key = known.last = CallerKey(exchange.principal, place, known.declared)",
        "key = known.last = CallerKey('', place, known.declared)",
        APART,
        "many_principals",
    ),
    "principal of the key before": Cut(
        KEYS,
        "            key.principal != exchange.principal\n            or key.session",
        "            key.session",
        CALLERS,
        "keys_of_their_own",
    ),
    "session of the key before": Cut(
        KEYS,
        "            or key.session != place\n",
        "",
        CALLERS,
        "keys_of_their_own",
    ),
    "capabilities of the key before": Cut(
        KEYS,
        "            or key.input is not known.declared\n",
        "",
        CELLS,
        "offered_what_the_client",
    ),
    "a session that had calls": Cut(
        KEYS,
        "if session.accepts_calls and not session.had_calls:",
        "if session.accepts_calls:",
        APART,
        "is_not_given_to_a_session",
    ),
    "capabilities of a request": Cut(
        SESSION,
        "            self.input,\n            relay is not None and",
        "            None,\n            relay is not None and",
        APART,
        "declares_less",
    ),
    "settings of elicitation": Cut(
        KEYS,
        "elicits = InputRequestKind.ELICIT in kinds and settings.elicitation",
        "elicits = InputRequestKind.ELICIT in kinds",
        CELLS,
        "settings_of_a_server",
    ),
    "settings of sampling": Cut(
        KEYS,
        "samples = InputRequestKind.SAMPLE in kinds and settings.sampling",
        "samples = InputRequestKind.SAMPLE in kinds",
        CELLS,
        "settings_of_a_server",
    ),
    "rules of the caller whose roots have changed": Cut(
        "host/servers/session_input.py",
        "self._review_roots((), request, ask, self.last_caller)",
        "self._review_roots((), request, ask, None)",
        "test_roots_changed.py",
        "of_one_caller_denies_them_after",
    ),
    "rules of the caller of configured roots": Cut(
        "host/servers/session_input.py",
        "self._review_roots(contexts, request, forward, self.last_caller)",
        "self._review_roots(contexts, request, forward, None)",
        "test_roots_changed.py",
        "denies_configured_ones",
    ),
    "settings of roots": Cut(
        KEYS,
        "roots = InputRequestKind.ROOTS in kinds and settings.roots == ROOTS_OF_CALLER",
        "roots = InputRequestKind.ROOTS in kinds",
        APART,
        "unless_the_settings_say_so",
    ),
    "rate of sampling": Cut(
        "host/servers/session_input.py",
        "self._rates.check(principal, asyncio.get_running_loop().time())",
        "pass",
        APART,
        "counted_for_each_principal",
    ),
    "rate of each principal": Cut(
        "host/servers/session_input.py",
        "self._rates.check(principal, asyncio.get_running_loop().time())",
        "self._rates.check('', asyncio.get_running_loop().time())",
        APART,
        "counted_for_each_principal",
    ),
    "client without URL mode": Cut(
        BRIDGE,
        "if urls and can_open_urls(exchange.peer):",
        "if urls:",
        APART,
        "cannot_open_urls",
    ),
    "completion for its client": Cut(
        URLS,
        "return self.asked.pop(own_id, None)",
        "return None",
        CELLS,
        "a_url_elicitation_crosses",
    ),
    # resources that are followed
    "guard of a subscription": Cut(
        ROUTER,
        "await self.guard.run(request, view, server, item, agree, unknown)",
        "pass",
        POLICY,
        "names_its_server or without_an_approver or audit_log",
    ),
    "session check of a subscription": Cut(
        ROUTER,
        "checked = before_send(call)\n",
        "checked = None\n",
        POLICY,
        "in_the_audit_log",
    ),
    "listener of a hidden resource": Cut(
        "gateway/front.py",
        "self._changes.of(principal, shows, sees)",
        "self._changes.of(principal, None, sees)",
        POLICY,
        "nothing_hidden_in_it or reload_hides",
    ),
    "session of a hidden resource": Cut(
        "gateway/gateway.py",
        "            on_change, principal, shows, partial(",
        "            on_change, principal, None, partial(",
        POLICY,
        "nothing_hidden_in_it or reload_hides",
    ),
    "changed lists of a hidden server, to a listener": Cut(
        "gateway/front.py",
        "self._changes.of(principal, shows, sees)",
        "self._changes.of(principal, shows)",
        POLICY,
        "lists_of_a_hidden_server",
    ),
    "removal of a hidden server": Cut(
        RUNTIME,
        "(server is not None and view.shows_server(server))",
        "server is None or server.key in self._removed or view.shows_server(server)",
        POLICY,
        "hidden_server_that_is_removed",
    ),
    "changed lists of a hidden server, to a session": Cut(
        "gateway/changes.py",
        "return bool(filters) and all(one.shows_servers(servers) for one in filters)",
        "return True",
        POLICY,
        "lists_of_a_hidden_server",
    ),
    "changed lists of an unknown server": Cut(
        RUNTIME,
        "return all(view.shows_server(one) for one in runtime.generation.servers.values())",
        "return True",
        POLICY,
        "another_process_noticed",
    ),
    "view of each update": Cut(
        RUNTIME,
        'and view.shows_item(hosted, "resources", uri)',
        "and True",
        POLICY,
        "nothing_hidden_in_it",
    ),
    "resource that is subscribed again": Cut(
        FOLLOWED,
        "server = await self._find_server(request, uri)  # again",
        "if uri in subscribed:\n            return t.EmptyResult()\n"
        "        server = await self._find_server(request, uri)  # again",
        POLICY,
        "subscribes_again",
    ),
    "facts of a follower": Cut(
        RUNTIME,
        "ResourceUpdates(self._followed_session, server",
        "ResourceUpdates(self.session, server",
        POLICY,
        "about_claims",
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
