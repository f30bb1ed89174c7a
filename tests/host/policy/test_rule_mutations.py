"""Every check of rules and of the guard is needed: with any one of them taken out, a test fails.

As `tests/auth/test_mutations.py`; `scripts/mutate policy` runs these and those of pins, approvals
and audit.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

PATTERNS, RULES, GUARD = "rules/test_patterns.py", "rules/test_rules.py", "test_guard.py"
ADMISSION = "test_admission.py"
HIDDEN, CONFIG = "test_hidden.py", "rules/test_config.py"
KEPT = "test_kept_requests.py"
PARTS = "test_parts.py"
IDENTITY = "test_server_identity.py"
UNKNOWN = "answered_as_what_does_not_exist"

CUTS: dict[str, Cut] = {
    # ------------------------------------------------------------ readings of a value
    "percent-decoding": Cut(
        "host/policy/rules/patterns.py",
        'decoded = unquote(text, errors="replace")',
        "decoded = text",
        PATTERNS,
        "may_read_it",
    ),
    "normalized patterns": Cut(
        "host/policy/rules/patterns.py",
        "composed = normalized_pattern(pattern)",
        "composed = pattern",
        RULES,
        "lets_another_spelling",
    ),
    "separators in classes": Cut(
        "host/policy/rules/patterns.py",
        'return f"[/{text[1:]}" if is_separator else text',
        "return text",
        PATTERNS,
        "other_spelling",
    ),
    "characters that are no wildcards": Cut(
        "host/policy/rules/patterns.py",
        'return f"[{character}]" if character in "*?[" else character',
        "return character",
        PATTERNS,
        "read_as_the_texts_are",
    ),
    "relative patterns": Cut(
        "host/policy/rules/patterns.py",
        'return f"./{found}" if is_relative else found',
        "return found",
        PATTERNS,
        "not_for_absolute",
    ),
    "relative texts": Cut(
        "host/policy/rules/patterns.py",
        'if self._is_relative and not normal.startswith("/"):',
        "if False:",
        PATTERNS,
        "other_spelling",
    ),
    "folders of plain texts": Cut(
        "host/policy/rules/patterns.py",
        r'_FOLDER = r"(?!\.\.?(?:/|\Z))',
        '_FOLDER = r"',
        PATTERNS,
        "compared_once",
    ),
    "characters of plain texts": Cut(
        "host/policy/rules/patterns.py",
        r"[!-$&-.0-@\[\]^-~]+",
        r"[!-.0-~]+",
        PATTERNS,
        "compared_once",
    ),
    "several rounds of it": Cut(
        "host/policy/rules/patterns.py",
        "MAX_DECODED = 3",
        "MAX_DECODED = 1",
        PATTERNS,
        "may_read_it",
    ),
    "NUL": Cut(
        "host/policy/rules/patterns.py",
        'invisible.sub("", text.partition("\\0")[0])',
        'invisible.sub("", text)',
        PATTERNS,
        "may_read_it",
    ),
    "compatibility characters": Cut(
        "host/policy/rules/patterns.py",
        'text = unicodedata.normalize("NFKC", text)',
        "pass",
        PATTERNS,
        "may_read_it",
    ),
    "invisible characters": Cut(
        "host/policy/rules/patterns.py",
        'invisible.sub("", text.partition("\\0")[0])',
        'text.partition("\\0")[0]',
        PATTERNS,
        "hides_a_word",
    ),
    "backslashes": Cut(
        "host/policy/rules/patterns.py",
        'text = text.replace("\\\\", "/").strip()',
        "text = text.strip()",
        PATTERNS,
        "may_read_it",
    ),
    "dot segments": Cut(
        "host/policy/rules/patterns.py",
        "return head + _without_dots(text)",
        "return head + text",
        RULES,
        "gets_around",
    ),
    "case": Cut(
        "host/policy/rules/patterns.py",
        "self._folded.matches(normal.casefold())",
        "self._folded.matches(normal)",
        RULES,
        "gets_around",
    ),
    "long values": Cut(
        "host/policy/rules/patterns.py",
        "return EVERY_READING if self._crosses else 0",
        "return 0",
        PATTERNS,
        "too_long",
    ),
    "stars within a folder": Cut(
        "host/policy/rules/patterns.py",
        "loops = self._loops if character in _SEPARATORS else",
        "loops = self._loops | self._name_loops if character in _SEPARATORS else",
        PATTERNS,
        "whole_text",
    ),
    "length of a pattern": Cut(
        "host/policy/rules/patterns.py",
        "if len(pattern) > MAX_PATTERN_CHARACTERS:",
        "if False:",
        PATTERNS,
        "cannot_be_used",
    ),
    # ------------------------------------------------------------ conditions
    "trusted servers alone": Cut(
        "host/policy/rules/conditions.py",
        "if not request.trusted:",
        "if False:",
        RULES,
        "not_trusted",
    ),
    "default hints": Cut(
        "host/policy/rules/conditions.py",
        "else HINTS[hint]",
        "else False",
        RULES,
        "default_of_the_spec",
    ),
    "qualified names": Cut(
        "host/policy/rules/conditions.py",
        "name = request.name if self.is_own else request.qualified\n        found",
        "name = request.name\n        found",
        RULES,
        "cannot_name_its_tool",
    ),
    "full names for deny": Cut(
        "host/policy/rules/conditions.py",
        "        if self.strict:\n            return any(one.matches(full)",
        "        if self.strict:\n            return any(False",
        RULES,
        "shortened",
    ),
    "full names for allow": Cut(
        "host/policy/rules/conditions.py",
        "return is_written_out or any(one.matches(full)",
        "return is_written_out or any(True",
        RULES,
        "shortened",
    ),
    "full names of requests": Cut(
        "host/policy/caller_view.py",
        "            namespace=server.claim.namespace,\n",
        "",
        HIDDEN,
        "shortened",
    ),
    "every value for allow": Cut(
        "host/policy/rules/conditions.py",
        "            found &= self.comparison.readings(value, strict=False)",
        "            found |= self.comparison.readings(value, strict=False)",
        RULES,
        "every_value_matches",
    ),
    "a value for allow": Cut(
        "host/policy/rules/conditions.py",
        "if not values or len(values) > MAX_VALUES:",
        "if len(values) > MAX_VALUES:",
        RULES,
        "every_value_matches",
    ),
    "values inside of others": Cut(
        "host/policy/rules/conditions.py",
        "in enumerate(_leaves(values)):",
        "in enumerate(values):",
        RULES,
        "one_value_matches",
    ),
    "many values": Cut(
        "host/policy/rules/conditions.py",
        "                if number >= MAX_VALUES:\n                    return EVERY_READING\n",
        "                if number >= MAX_VALUES:\n                    return found\n",
        RULES,
        "too_many_others",
    ),
    "numbers in strings": Cut(
        "host/policy/rules/conditions.py",
        "if not strict or not isinstance(value, str)",
        "if True or not isinstance(value, str)",
        RULES,
        "one_value_matches",
    ),
    "booleans are no numbers": Cut(
        "host/policy/rules/conditions.py",
        "if isinstance(value, _NUMBERS) and not isinstance(value, bool):\n        return value",
        "if isinstance(value, _NUMBERS):\n        return value",
        RULES,
        "every_value_matches",
    ),
    "claims are not numbers": Cut(
        "host/policy/rules/conditions.py",
        "return isinstance(value, bool) is isinstance(expected, bool) and value == expected",
        "return value == expected",
        RULES,
        "about_a_claim",
    ),
    # ------------------------------------------------------------ decisions
    "the strictest reading": Cut(
        "host/policy/rules/rules.py",
        "            action, label = max(found, key=lambda one: _STRICTNESS[one[0]])",
        "            pass",
        RULES,
        "strictest_of_the_readings",
    ),
    "the first rule": Cut(
        "host/policy/rules/rules.py",
        "            open_readings &= ~readings\n",
        "",
        RULES,
        "first_rule_that_matches",
    ),
    "duplicate members": Cut(
        "host/policy/request.py",
        "= decode_unique(self.arguments) if",
        "= msgspec.json.decode(self.arguments) if",
        RULES,
        "cannot_be_read",
    ),
    "unreadable arguments": Cut(
        "host/policy/rules/rules.py",
        'return 0 if self.on_arguments and self.action == "allow" else readings',
        "return 0",
        RULES,
        "cannot_be_read",
    ),
    "functions that fail": Cut(
        "host/policy/rules/rules.py",
        'so it denies", self.name, exc_info=error)\n            return "deny"',
        'so it denies", self.name, exc_info=error)\n            return None',
        RULES,
        "that_fails_denies",
    ),
    "functions that return nonsense": Cut(
        "host/policy/rules/rules.py",
        'returned %r, so it denies", self.name, said)\n        return "deny"',
        'returned %r, so it denies", self.name, said)\n        return None',
        RULES,
        "nonsense",
    ),
    "facts of the caller": Cut(
        "host/policy/rules/rules.py",
        "            request.principal,\n",
        "",
        RULES,
        "across_callers",
    ),
    "claims of the caller": Cut(
        "host/policy/rules/rules.py",
        'msgspec.json.encode(request.claims) if self._uses_claims and request.claims else b"",',
        'b"",',
        RULES,
        "across_callers",
    ),
    "the strictest policy": Cut(
        "host/policy/rules/rules.py",
        "decision = max(decisions, key=lambda one: _STRICTNESS[one.action])",
        "decision = decisions[0]",
        RULES,
        "several_policies",
    ),
    "rules about input requests": Cut(
        "host/policy/rules/rules.py",
        "        if self.is_about_inputs is not (request.method in _INPUTS):\n            return 0\n",
        "",
        RULES,
        "input_requests_are_matched",
    ),
    "functions about servers": Cut(
        "host/policy/rules/rules.py",
        'said = "allow" if rule.on_servers is False else rule.call(request)',
        'said = "allow"',
        HIDDEN,
        "that_a_function_denies",
    ),
    "hidden items without an audit log": Cut(
        "host/router.py",
        "guard.record_failed(request",
        "guard.record_hidden(request",
        HIDDEN,
        "full_audit_log",
    ),
    # ------------------------------------------------------------ files
    "errors deny": Cut(
        "host/policy/rules/config.py",
        'return "deny" if self.problems else "ask"',
        'return "allow"',
        CONFIG,
        "with_an_error_denies",
    ),
    "errors leave no rule": Cut(
        "host/policy/rules/config.py",
        "Policy(() if self.problems else rules, default=self._default)",
        "Policy(rules, default=self._default)",
        CONFIG,
        "with_an_error_denies",
    ),
    "syntax errors deny": Cut(
        "host/config/files.py",
        'source.has_broken_policy = file.lower().endswith(".toml") and POLICY_HEADER in data',
        "pass",
        CONFIG,
        "syntax_error",
    ),
    "files that are not trusted": Cut(
        "host/config/reader.py",
        "for one in self.used if one.policy is not None",
        "for one in self.sources if one.policy is not None",
        CONFIG,
        "not_trusted",
    ),
    "a log of a reload": Cut(
        "host/policy/parts.py",
        "        self._audit = opened\n",
        "",
        PARTS,
        "new_is_written_after_a_reload",
    ),
    "the end of a log before a reload": Cut(
        "host/policy/parts.py",
        "            replaced.push_async_callback(self._audit.close)\n",
        "            pass\n",
        PARTS,
        "ends_the_one_before",
    ),
    "a log of a reload that cannot be written": Cut(
        "host/policy/parts.py",
        "if problems and self._audit is not None:",
        "if False:",
        PARTS,
        "and_the_one_before_stays",
    ),
    "a required log at the start": Cut(
        "host/policy/parts.py",
        "            if settings.required:\n",
        "            if False:\n",
        PARTS,
        "does_not_start",
    ),
    "a log that the program has given": Cut(
        "host/policy/parts.py",
        "        if self._given.audit is not None:\n            return ()\n",
        "",
        PARTS,
        "not_replaced_by_a_table",
    ),
    "an inbox that the program has given": Cut(
        "host/policy/parts.py",
        "self._given.inbox is not None or before == after",
        "before == after",
        PARTS,
        "not_replaced_by_a_table",
    ),
    "pins that the program has given": Cut(
        "host/policy/parts.py",
        "        if self._given.pins is None:\n            table = table or",
        "        if True:\n            table = table or",
        PARTS,
        "not_replaced_by_a_table",
    ),
    "an inbox of a reload": Cut(
        "host/policy/guard.py",
        "        self._admission.approver = approver\n",
        "",
        PARTS,
        "new_is_asked_after_a_reload",
    ),
    "pins of a reload": Cut(
        "host/policy/guard.py",
        "            self._views.pins = self._admission.pins = self.pins\n",
        "",
        PARTS,
        "new_hold_after_a_reload",
    ),
    "sessions before pins": Cut(
        "host/runtime.py",
        "if old is not None and not renews and _is_same(old, entry, claim):",
        "if old is not None and _is_same(old, entry, claim):",
        PARTS,
        "opened_without_pins",
    ),
    "stricter pins": Cut(
        "host/policy/parts.py",
        'return self._pins.mode == "strict" and not was_strict',
        "return False",
        PARTS,
        "opened_without_pins",
    ),
    "calls that wait in an inbox that is replaced": Cut(
        "host/policy/parts.py",
        "            replaced.push_async_callback(approvals.inbox.withdraw_all)\n",
        "            pass\n",
        PARTS,
        "replaced_is_told",
    ),
    "an inbox that cannot be opened": Cut(
        "host/policy/parts.py",
        "            self._inbox_stack, self.approver = stack, approver\n",
        "            pass\n",
        PARTS,
        "the_one_before_stays",
    ),
    "the log of a call in flight": Cut(
        "host/policy/records.py",
        "if steps is not None and steps.is_recorded:",
        "if steps is not None and self.audit is not None:",
        PARTS,
        "leaves_nothing_behind",
    ),
    "reloads at once": Cut(
        "host/host.py",
        "        async with self._reloading:\n            await self._use(config)\n",
        "        await self._use(config)\n",
        PARTS,
        "reloads_at_once",
    ),
    "containment after a reload": Cut(
        "host/runtime.py",
        "            guard.add_server(one.entry)\n            one.forget_lists()",
        "            one.forget_lists()",
        PARTS,
        "left_alone_after_a_reload",
    ),
    # ------------------------------------------------------------ the guard
    "denied calls": Cut(
        "host/policy/admission.py",
        "            raise denied(request, decision)\n        pins",
        "            pass\n        pins",
        GUARD,
        "denied_by_its_arguments",
    ),
    "asking": Cut(
        "host/policy/admission.py",
        "consent = await self.ask(steps, decision)",
        "consent = None",
        GUARD,
        "was_declined",
    ),
    "a way to ask": Cut(
        "host/policy/admission.py",
        "        if self.approver is None:\n            raise no_approver(steps, decision)\n        with",
        "        if self.approver is None:\n            return Consent()\n        with",
        GUARD,
        "without_a_way_to_ask",
    ),
    "definitions again": Cut(
        "host/policy/admission.py",
        "        if consent is not None and not is_same:",
        "        if False:",
        GUARD,
        "definition_that_changed",
    ),
    "lists again": Cut(
        "host/policy/admission.py",
        "            if not listing.is_fresh:\n                await listing.fetch(caller)\n",
        "",
        GUARD,
        "definition_that_changed",
    ),
    "policies again": Cut(
        "host/policy/admission.py",
        "        if not is_same or self._decisions.version != decision.policy_version:",
        "        if not is_same:",
        GUARD,
        "policy_that_changed",
    ),
    # ------------------------------------------------------------ the identity of a server
    "identity: files of the working folder": Cut(
        "host/policy/request.py",
        "    if entry.local_paths:",
        "    if False:",
        IDENTITY,
        "two_folders",
    ),
    "identity: modules": Cut(
        "host/config/local_paths.py",
        'elif before == "-m":',
        "elif False:",
        IDENTITY,
        "two_folders",
    ),
    "identity: programs on PATH": Cut(
        "host/config/local_paths.py",
        "name = word if os.path.dirname(word) else None",
        "name = word",
        IDENTITY,
        "one_server_everywhere",
    ),
    "identity: how a word looks": Cut(
        "host/config/local_paths.py",
        "for one in _names(word) if _is_program(one)",
        "for one in _names(word) if os.path.exists(os.path.join(folder, one))",
        IDENTITY,
        "that_a_server_makes",
    ),
    "identity: references": Cut(
        "host/config/resolve.py",
        "if one.references and os.path.isabs(text) and os.path.exists(text)",
        "if False",
        IDENTITY,
        "reference_to_the_folder",
    ),
    "rounds: principal": Cut(
        "host/policy/admission.py", "        request.principal,\n", "", ADMISSION, "same_state"
    ),
    "rounds: server": Cut(
        "host/policy/admission.py", "        request.server,\n", "", ADMISSION, "same_state"
    ),
    "rounds: identity": Cut(
        "host/policy/admission.py", "        request.identity,\n", "", ADMISSION, "same_state"
    ),
    "rounds: method": Cut(
        "host/policy/admission.py", "        request.method,\n", "", ADMISSION, "same_state"
    ),
    "rounds: item": Cut(
        "host/policy/admission.py", "        request.name,\n", "", ADMISSION, "same_state"
    ),
    "rounds: arguments": Cut(
        "host/policy/admission.py",
        "        request.arguments_digest,\n",
        "",
        ADMISSION,
        "same_state",
    ),
    "rounds: metadata": Cut(
        "host/policy/admission.py", "        request.meta_digest,\n", "", ADMISSION, "same_state"
    ),
    "rounds: definition": Cut(
        "host/policy/admission.py",
        "        request.definition_digest,\n",
        "",
        ADMISSION,
        "same_state",
    ),
    "rounds: version of the policy": Cut(
        "host/policy/admission.py",
        "        decision.policy_version,\n",
        "",
        ADMISSION,
        "another_policy",
    ),
    "rounds: state": Cut(
        "host/policy/admission.py", "        state,\n", "", ADMISSION, "another_state"
    ),
    "rounds: single use": Cut(
        "host/policy/admission.py",
        "self._kept.pop(_round(",
        "self._kept.get(_round(",
        ADMISSION,
        "once",
    ),
    "rounds: end": Cut(
        "host/policy/admission.py",
        "return consent if ends_at > self._clock() else None",
        "return consent",
        ADMISSION,
        "ends",
    ),
    "another policy needs another approval": Cut(
        "host/policy/admission.py",
        'if after.action == "ask" and (consent is None or approved_before):',
        'if after.action == "ask" and consent is None:',
        GUARD,
        "policy_that_changed",
    ),
    "input requests that are denied": Cut(
        "host/policy/input_review.py",
        '            if decision.action == "deny":\n                raise Refused(decision.reason',
        "            if False:\n                raise Refused(decision.reason",
        GUARD,
        "is_denied_is_not_asked",
    ),
    "input requests without a way to ask": Cut(
        "host/policy/input_review.py",
        '            if decision.action == "allow":',
        '            if decision.action == "allow" or self._admission.approver is None:',
        GUARD,
        "rules_decide_on_what_servers_ask",
    ),
    "roots": Cut(
        "host/servers/session_input.py",
        "        if self._review_roots is None:\n            return await super()",
        "        if True:\n            return await super()",
        GUARD,
        "rules_decide_on_what_servers_ask",
    ),
    "input requests of sessions": Cut(
        "host/runtime.py",
        "            send_input_request=guarded,",
        "            send_input_request=send,",
        GUARD,
        "rules_decide_on_what_servers_ask",
    ),
    "tools": Cut(
        "host/router.py",
        "view = None if self.guard is None else self.guard.view(context)\n        found",
        "view = None\n        found",
        HIDDEN,
        UNKNOWN,
    ),
    "calls": Cut(
        "host/router.py",
        "            if self.guard is None:\n                check = self._check_unguarded\n"
        "                result",
        "            if True:\n                check = None\n                result",
        GUARD,
        "was_declined",
    ),
    "calls that wait while a guard comes": Cut(
        "host/router.py",
        '        if self.guard is not None:\n            message = "a policy was set',
        '        if False:\n            message = "a policy was set',
        PARTS,
        "past_rules_that_are_new",
    ),
    "lists": Cut(
        "host/router.py",
        "        view = self._view(request)\n        with _hold_all",
        "        view = None\n        with _hold_all",
        HIDDEN,
        UNKNOWN,
    ),
    "prompts": Cut(
        "host/router.py",
        "            if self.guard is None:\n"
        "                check = self._check_unguarded\n                return HostResult(\n"
        "                    await _forward(request, options, server, GET_PROMPT",
        "            if True:\n"
        "                check = None\n                return HostResult(\n"
        "                    await _forward(request, options, server, GET_PROMPT",
        GUARD,
        "prompts_and_resources_are_asked",
    ),
    "completions": Cut(
        "host/router.py",
        "            if self.guard is None:\n"
        "                check = self._check_unguarded\n                return HostResult(\n"
        "                    await _forward(request, options, server, COMPLETE",
        "            if True:\n"
        "                check = None\n                return HostResult(\n"
        "                    await _forward(request, options, server, COMPLETE",
        GUARD,
        "completions_pass",
    ),
    "resources": Cut(
        "host/router.py",
        "            if self.guard is None:\n"
        "                check = self._check_unguarded\n"
        "                return HostResult(await _forward(request, options, server, method",
        "            if True:\n"
        "                check = None\n"
        "                return HostResult(await _forward(request, options, server, method",
        GUARD,
        "server_that_is_named",
    ),
    "results of tasks": Cut(
        "host/router.py",
        "        if self.guard is not None:\n            return await self._guarded_outcome(request, task, self.guard)\n",
        "",
        GUARD,
        "result_of_a_task",
    ),
    "tasks": Cut(
        "host/runtime.py",
        "                _, own = await self._router.task_item(context, server, tool)\n",
        '                own = tool.partition("__")[2]\n',
        HIDDEN,
        "task_of_a_hidden_tool",
    ),
    "servers of logins": Cut(
        "host/runtime.py",
        "self.current().server(server, self.view(context))\n            if tool",
        "self.current().server(server)\n            if tool",
        HIDDEN,
        UNKNOWN,
    ),
    "lists of tasks": Cut(
        "host/runtime.py",
        '        return view.shows_server(server) and view.shows_item(server, "tools", own)',
        "        return True",
        HIDDEN,
        "not_listed",
    ),
    "host.tool": Cut(
        "host/host.py",
        "        view = self._runtime.view_of(caller)\n        return self._runtime.generation.tool",
        "        view = None\n        return self._runtime.generation.tool",
        HIDDEN,
        "known_to_the_host_object",
    ),
    "lists of a middleware": Cut(
        "host/requests.py",
        "            view = self._runtime.view(request)\n            lists",
        "            view = None\n            lists",
        HIDDEN,
        "middleware_cannot",
    ),
    "servers in errors": Cut(
        "host/servers/generation.py",
        "for key, one in self._by_prefix.items() if one in shown]",
        "for key, one in self._by_prefix.items()]",
        HIDDEN,
        UNKNOWN,
    ),
    "suggestions": Cut(
        "host/servers/generation.py",
        "[*self._known(kind, caller, view), *aliases]",
        "[*self._known(kind, caller, None), *aliases]",
        HIDDEN,
        UNKNOWN,
    ),
    "suggested aliases": Cut(
        "host/servers/generation.py",
        "        aliases = self._known_aliases(kind, caller, view)\n",
        "        aliases = list(self._aliases)\n",
        HIDDEN,
        UNKNOWN,
    ),
    "aliases": Cut(
        "host/servers/generation.py",
        "hides_alias = alias is not None and not view.shows_item(server, kind, alias[1])",
        "hides_alias = False",
        HIDDEN,
        "never_listed_alias",
    ),
    "hidden servers": Cut(
        "host/servers/generation.py",
        "is_hidden = hides_alias or not view.shows_server(server)",
        "is_hidden = hides_alias",
        HIDDEN,
        UNKNOWN,
    ),
    "servers that are named": Cut(
        "host/servers/generation.py",
        "if found is None or not (view is None or view.shows_server(found)):",
        "if found is None:",
        HIDDEN,
        UNKNOWN,
    ),
    "names in a list": Cut(
        "host/servers/listings.py",
        "found if found is not None and found.name in self._named else None",
        "found",
        HIDDEN,
        UNKNOWN,
    ),
    "names that are not listed": Cut(
        "host/servers/generation.py",
        "if own is None or view is not None:",
        "if own is None:",
        HIDDEN,
        "list_is_invalid",
    ),
    "rules of a reload": Cut(
        "host/runtime.py",
        "has_other_rules = self._set_rules(rules)",
        "has_other_rules = False",
        HIDDEN,
        "reload",
    ),
    "views after a reload": Cut(
        "host/policy/guard.py",
        "        self._decisions.rules = rules\n        self.forget_views()\n",
        "        self._decisions.rules = rules\n",
        GUARD,
        "other_rules_hide_at_once",
    ),
    "tools that were found for another caller": Cut(
        "host/servers/generation.py",
        "        if view is None:\n            return self._found\n",
        "        if True:\n            return self._found\n",
        KEPT,
        "not_found_for_another",
    ),
    "servers of known requests": Cut(
        "host/policy/caller_view.py",
        "if known is None or of is not server or known",
        "if known is None or known",
        KEPT,
        "same_key",
    ),
    "definitions of known requests": Cut(
        "host/policy/caller_view.py",
        "if known is None or of is not server or known.definition is not definition:",
        "if known is None or of is not server:",
        GUARD,
        "definition_that_changed",
    ),
    "views of callers": Cut(
        "host/policy/caller_view.py",
        "            found = self._views[facts] = CallerView(self._decisions, self.pins, facts)",
        "            found = self._views[facts] = CallerView(self._decisions, self.pins, CallerFacts())",
        HIDDEN,
        "one_caller_may_not_see",
    ),
    "hidden calls are recorded": Cut(
        "host/router.py",
        "            guard.record_failed(request, self._current())\n",
        "",
        GUARD,
        "call_of_a_hidden_tool_is_recorded",
    ),
    "steps that must be recorded": Cut(
        "host/policy/steps.py",
        "        return self._audit.executed(self.id, self.request, revision)",
        "        return None",
        GUARD,
        "stops_the_call",
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
