"""Every check that separates the callers of a gateway, or keeps what was inspected, is needed: with
any one of them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

LISTS, RESULTS, FOLLOWED = "test_lists.py", "test_results.py", "test_subscriptions.py"
KEPT, DOOR = "test_manifests.py", "test_front_door.py"
SESSIONS = "../host/servers/test_sessions.py"
PARITY, OWNED, ROOTS = "test_parity.py", "test_attribution.py", "test_roots_changed.py"
SESSION, LISTINGS = "host/servers/session.py", "host/servers/listings.py"
ATTACKS = "test_attacks.py"

SUPERVISOR = "host/servers/supervisor.py"
CRASHING = "../host/servers/test_crashing_callers.py"

CUTS: dict[str, Cut] = {
    "crashes of another session of a principal": Cut(
        SESSION,
        "return CallerKey(self._first_caller, self._first_session)",
        "return CallerKey(self._first_caller)",
        "test_crashing_callers.py",
        "anonymous",
    ),
    "stderr for one caller in a list for all": Cut(
        SUPERVISOR,
        "return (counted if is_own else LISTS), None",
        "return (counted if is_own else LISTS), counted",
        SESSIONS,
        "in_no_error_of_another",
    ),
    "a caller that crashes what others use": Cut(
        SUPERVISOR,
        'if self._crashes.by_caller and (common or self._settings.sharing == "pooled"):',
        "if False:",
        CRASHING,
        "refused_and_no_other",
    ),
    "bytes of the items of another caller": Cut(
        LISTINGS,
        "written = [raw.revision.date, raw.raw] if raw is not None else None",
        "written = raw and None",
        "../host/servers/test_shared_lists.py",
        "differ_in_anything",
    ),
    "hidden tools of another caller": Cut(
        LISTINGS,
        "found.update(encode(one) + ",
        "found.update(",
        "../host/servers/test_shared_lists.py",
        "differ_in_anything",
    ),
    "suspects of two crashes": Cut(
        "host/servers/restarts.py",
        "self._suspects = (is_recent and self._suspects & suspects) or suspects",
        "self._suspects = frozenset([sorted(suspects)[0]])",
        CRASHING,
        "in_flight_once",
    ),
    "principal of a cursor": Cut(
        "gateway/pages.py",
        "position[:2] != (exchange.method.name, exchange.principal)",
        "position[0] != exchange.method.name",
        LISTS,
        "cursor_of_one_principal",
    ),
    "list of a cursor": Cut(
        "gateway/pages.py",
        "position[:2] != (exchange.method.name, exchange.principal)",
        "position[1] != exchange.principal",
        LISTS,
        "read_by_every_replica",
    ),
    "duplicate members of an inspected result": Cut(
        "protocol/forwarded.py",
        "and not (is_inspected and has_duplicate_members(self.raw))",
        "",
        RESULTS,
        "has_seen_is_what",
    ),
    "a result that was replaced": Cut(
        "protocol/forwarded.py",
        "and self.outcome is result\n",
        "",
        RESULTS,
        "changes_is_what_the_client",
    ),
    "content that a middleware reads": Cut(
        "host/router.py",
        "is_read = self.guard is not None or self._has_middleware()",
        "is_read = False",
        RESULTS,
        "something_beside_the_client",
    ),
    "content for another revision": Cut(
        "protocol/forwarded.py",
        " or self.reader is not revision",
        "",
        "../protocol/test_exchange.py",
        "made_of_its_members",
    ),
    "members of another response": Cut(
        "protocol/forwarded.py",
        "if self.split is not None and self.split[0] is raw else None",
        "if self.split is not None else None",
        "../protocol/test_forwarded.py",
        "passed_on_by_its_members",
    ),
    "duplicate members of an inspected item": Cut(
        "protocol/forwarded.py",
        "        and not (is_inspected and has_duplicate_members(one.raw))\n",
        "",
        PARITY,
        "changes_is_encoded",
    ),
    "items of one name": Cut(
        "protocol/forwarded.py",
        "found[name] = None if name in found else Raw(bytes(raw))",
        "found[name] = Raw(bytes(raw))",
        PARITY,
        "changes_is_encoded",
    ),
    "revision of an item": Cut(
        "protocol/forwarded.py",
        "        and one.revision is encoder.revision\n",
        "",
        PARITY,
        "between_other_revisions",
    ),
    "an item that is contained": Cut(
        LISTINGS,
        "            if id(one) not in unchanged:\n",
        "            if False:\n",
        PARITY,
        "text_is_contained",
    ),
    "hidden text in members of items": Cut(
        LISTINGS,
        "if raw is not None and (may_pass is None or may_pass(raw)):",
        "if raw is not None:",
        PARITY,
        "around_containment",
    ),
    "hidden text in members of results": Cut(
        "gateway/front.py",
        "if is_inspected and origin.raw and await self._host.hides_text(origin.server, origin.raw):",
        "if False:",
        PARITY,
        "around_containment",
    ),
    "hidden text as escapes": Cut(
        "host/policy/hidden_text.py",
        "return any(_escape_hides(text, found) for found in _ESCAPED.finditer(text))",
        "return False",
        PARITY,
        "around_containment",
    ),
    "lists that were read without rules": Cut(
        "host/runtime.py",
        "            one.forget_lists()  # they were not reviewed\n",
        "",
        PARITY,
        "before_there_were_rules",
    ),
    "call of a log message": Cut(
        SESSION,
        "call = owner if isinstance(owner, SessionCall) else self._only_call()",
        "call = next(reversed(self.calls))",
        OWNED,
        "log_messages_of_a_shared",
    ),
    "call of an input request": Cut(
        "client/input_callbacks.py",
        "responder: InputResponder = exchange.owner or self",
        "responder: InputResponder = self",
        OWNED,
        "put_on_the_call",
    ),
    "session of changed roots": Cut(
        SUPERVISOR,
        "if one.key is not None and one.key.session == session and one.roots_changed():",
        "if one.roots_changed():",
        ROOTS,
        "only_the_sessions",
    ),
    "servers that may know changed roots": Cut(
        SESSION,
        "if self.key is None or not self.key.input.roots_changed or not has_notification:",
        "if not has_notification:",
        ROOTS,
        "may_not_know_the_roots",
    ),
    "policy of changed roots": Cut(
        "host/servers/session_input.py",
        "raw = await self._review_roots((), request, ask, self.last_caller)",
        "raw = await ask(request)",
        ROOTS,
        "policy_that_denies",
    ),
    "scope of a filtered list": Cut(
        "gateway/front.py",
        "if self._host.inspects_results and isinstance(result, t.ListResult):",
        "if False:",
        LISTS,
        "may_filter_is_private",
    ),
    "changes of one caller": Cut(
        "gateway/gateway.py",
        "self.changes.publish(method, ServerLists(servers=servers), changes.caller)",
        "self.changes.publish(method, ServerLists(servers=servers), None)",
        LISTS,
        "one_caller_sees",
    ),
    "mirrored headers": Cut(
        "gateway/front.py",
        "            if mirrored:\n",
        "            if False:\n",
        LISTS,
        "mirrored_headers",
    ),
    "middleware of a subscription": Cut(
        "gateway/subscriptions.py",
        "            except ColonnadeError:  # unknown, or not for this caller\n                continue\n",
        "            except ColonnadeError:\n                server = 'n'\n",
        FOLLOWED,
        "middleware_hides",
    ),
    "number of followed resources": Cut(
        "gateway/subscriptions.py",
        "if len(self._upstream) >= MAX_FOLLOWED or",
        "if",
        FOLLOWED,
        "too_many_followed",
    ),
    "owner of a subscription": Cut(
        "gateway/subscriptions.py",
        "owner = None if self._host.is_common(server) else principal",
        "owner = None",
        FOLLOWED,
        "own_session_of_an_older",
    ),
    "owner of a manifest": Cut(
        "gateway/manifests.py",
        "owner = SERVER_PRINCIPAL if manifest.is_common else principal",
        "owner = SERVER_PRINCIPAL",
        KEPT,
        "not_kept_for_another",
    ),
    "manifest of a server with credentials of callers": Cut(
        "host/servers/generation.py",
        "if self.settings.is_per_caller and manifest.is_common:",
        "if False:",
        KEPT,
        "with_their_credentials",
    ),
    "log messages of another principal": Cut(
        "host/servers/session.py",
        "            and not self._several_principals\n",
        "",
        SESSIONS,
        "only_caller_or_for_nobody",
    ),
    "log messages of another client": Cut(
        "host/servers/session.py",
        "            and len({call.client_session for call in calls}) == 1\n",
        "",
        FOLLOWED,
        "two_clients_gets",
    ),
    "log messages of a cancelled call": Cut(
        "host/servers/session.py",
        "            and not self.is_unsettled\n            and len(",
        "            and len(",
        FOLLOWED,
        "cancelled_call_of_another",
    ),
    "log messages outside of requests": Cut(
        "host/servers/session.py",
        "            self.client.peer.revision.log_control is LogControl.PER_REQUEST\n            and not self._several",
        "            not self._several",
        FOLLOWED,
        "with_a_handshake",
    ),
    "progress token of another hop": Cut(
        "host/servers/session_input.py",
        "passed = forwardable_meta(meta)",
        "passed = dict(meta)",
        "test_input_meta.py",
        "progress_token",
    ),
    "servers of a view": Cut(
        "host/servers/generation.py",
        "{key: one for key, one in self.servers.items() if key in keys}",
        "dict(self.servers)",
        DOOR,
        "view_is_protected",
    ),
    "guard of a view": Cut(
        "gateway/gateway.py",
        "            auth=self._auth,\n            store=self._store,\n",
        "            store=self._store,\n",
        DOOR,
        "view_is_protected",
    ),
    # attacks
    "keys of one hop": Cut(
        "protocol/forwarded.py",
        "not (t.reserved_meta_key(key) or key.startswith(HOP_PREFIX))",
        "not t.reserved_meta_key(key)",
        ATTACKS,
        "are_of_one_hop",
    ),
    "responses to what was asked": Cut(
        "gateway/bridge.py",
        "for key, response in responses.items() if key in state.asked}",
        "for key, response in responses.items()}",
        ATTACKS,
        "what_was_not_asked",
    ),
    "input requests that were declared": Cut(
        "client/request.py",
        "            requests = self._input_requests(method, result, input)\n            if relay:\n",
        "            if relay:\n                return cast('R', result)\n"
        "            requests = self._input_requests(method, result, input)\n            if relay:\n",
        ATTACKS,
        "did_not_declare",
    ),
    "audience of a view": Cut(
        "gateway/gateway.py",
        'name=f"{self.info.name}-{view}",',
        "name=self.info.name,",
        ATTACKS,
        "of_one_view",
    ),
    "servers of a view for held calls": Cut(
        "host/view.py",
        "return self._runtime.input_target(request, self._generation())",
        "return self._runtime.input_target(request)",
        ATTACKS,
        "told_from_none",
    ),
    "rules for held calls": Cut(
        "host/runtime.py",
        "server = generation.server_for(kind, name, caller, self.view(request))",
        "server = generation.server_for(kind, name, caller)",
        ATTACKS,
        "told_from_none",
    ),
    "requests that do not wait any more": Cut(
        "gateway/held_calls.py",
        "                    self._changes.pop(change, None)\n",
        "                    pass\n",
        ATTACKS,
        "leave_nothing_behind",
    ),
    "interval of changes": Cut(
        "gateway/changes.py",
        "        if recent is not None:\n",
        "        if recent is not None and False:\n",
        ATTACKS,
        "storm_of_changes",
    ),
    "number of recent changes": Cut(
        "gateway/changes.py",
        "if len(self._recent) < MAX_RECENT:",
        "if True:",
        ATTACKS,
        "remembered_are_limited",
    ),
    "roots of another caller": Cut(
        "host/servers/session_input.py",
        "return self._last_roots if principals <= {self._last_principal} else []",
        "return self._last_roots",
        ATTACKS,
        "roots_of_one_principal",
    ),
    "principal of a session": Cut(
        "transport/http_server/sessions/registry.py",
        "        if session.link.principal != principal:\n",
        "        if False:\n",
        ATTACKS,
        "session_of_another_principal",
    ),
    "where a rule is written": Cut(
        "gateway/front.py",
        "str(error) if is_operator else error.public or _without_output(error)",
        "str(error) if is_operator else _without_output(error)",
        "test_policy.py",
        "not_where_it_is_written",
    ),
    "where the rule of a denial is written": Cut(
        "host/policy/steps.py",
        'public=f"{what} {decision.public_rule}"',
        'public=f"{what} {decision.rule}"',
        "test_policy.py",
        "not_where_it_is_written",
    ),
    "where the rule of an approval is written": Cut(
        "host/policy/steps.py",
        "needs an approval ({decision.public_rule})",
        "needs an approval ({decision.rule})",
        "test_policy.py",
        "not_where_it_is_written",
    ),
    "where the rule of an outcome that is kept is written": Cut(
        "gateway/held_calls.py",
        "message=outcome.sentence, public=outcome.public",
        "message=outcome.sentence",
        "test_held_calls.py",
        "words_for_the_operator",
    ),
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests/gateway")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_of_a_gateway_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path, "tests/gateway")
