"""Every check of a round of questions is needed: RQ-01 to RQ-11, each taken out once.

RQ-04 is among the checks of a protected server, in test_mutations.py.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

ROUNDS, BACK = "../protocol/test_input_rounds.py", "../protocol/test_request_state.py"
KINDS, ANSWERS = "../protocol/test_input_requests.py", "../protocol/test_input_responses.py"
STATES, CLIENT = "../server/test_request_state.py", "../client/test_client.py"
LONG = "../client/test_input_rounds.py"
SEAL, DEPOT, STATE = "test_seal.py", "test_seal_keys.py", "test_seal_state.py"

INTERVIEW, QUESTIONS = "protocol/input_rounds.py", "protocol/input_requests.py"
RUNNING, SEALING = "server/handlers/input_rounds.py", "auth/seal.py"

OPENED = "return cipher.decrypt(nonce, data[len(head + nonce) :], head + self._audience + place)"
# The same cipher, without the look at the tag.
UNCHECKED = """import cryptography.hazmat.primitives.ciphers as c
            key = c.algorithms.AES(self._keys[head[1:]])
            counter = c.modes.CTR(nonce + bytes(3) + bytes([2]))
            return c.Cipher(key, counter).decryptor().update(data[len(head + nonce) : -16])"""

CUTS: dict[str, Cut] = {
    "RQ-01 which requests": Cut(
        INTERVIEW, "and not self._method.may_require_input", "and False", ROUNDS, "may_ask"
    ),
    "RQ-01 something is asked": Cut(
        INTERVIEW, "if not self.pending:", "if False:", ROUNDS, "without_questions"
    ),
    "RQ-02 what was declared": Cut(
        INTERVIEW,
        "if not is_supported(",
        "if False and not is_supported(",
        ROUNDS,
        "nobody_declared",
    ),
    "RQ-02 on this request": Cut(
        INTERVIEW, "if not is_supported(", "if False and not is_supported(", BACK, "this_request"
    ),
    "RQ-02 modes": Cut(
        QUESTIONS,
        'return offered.may_open_url if mode == "url" else offered.may_show_form',
        "return True",
        KINDS,
        "a_mode_that_the_client",
    ),
    "RQ-02 tools": Cut(
        QUESTIONS,
        "and (not knows_tools or offered.tools is None):",
        "and not knows_tools:",
        KINDS,
        "tools_go_only",
    ),
    "RQ-03 every bit": Cut(SEALING, OPENED, UNCHECKED, SEAL, "every_single_bit"),
    "RQ-03 no handler runs": Cut(SEALING, OPENED, UNCHECKED, STATES, "rq_03"),
    "RQ-03 one spelling": Cut(
        SEALING, "if _encode(data) != text:", "if False:", SEAL, "every_other_spelling"
    ),
    "RQ-05 once": Cut(
        RUNNING, "            if once:\n", "            if False:\n", STATES, "rq_05"
    ),
    "RQ-05 the store decides": Cut(
        SEALING,
        'if not await self._store.add(memory.principal, key, b"", ttl_s):',
        "if await self._store.get(memory.principal, key) is not None or await self._store.put("
        'memory.principal, key, b"", ttl_s):',
        STATE,
        "hundred_replays and sqlite",
    ),
    "RQ-06 nonces": Cut(
        SEALING,
        "nonce = secrets.token_bytes(NONCE_BYTES)",
        "nonce = bytes(NONCE_BYTES)",
        SEAL,
        "never_the_same_twice",
    ),
    "RQ-06 old keys": Cut(
        SEALING, "for key in reversed(ring)}", "for key in ring[:1]}", SEAL, "an_old_key"
    ),
    "RQ-06 a key of its own": Cut(
        SEALING,
        "or [secrets.token_bytes(KEY_BYTES)]",
        'or [b"k" * KEY_BYTES]',
        SEAL,
        "makes_its_own",
    ),
    "RQ-06 a warning": Cut(SEALING, "            self._warn()\n", "", DEPOT, "is_warned_of_once"),
    "RQ-07 what is no memory": Cut(
        INTERVIEW,
        "    except Fault:\n        raise invalid_request_state() from None",
        "    except Fault:\n        raise",
        BACK,
        "opens_to_rubbish",
    ),
    "RQ-07 what is bound": Cut(
        INTERVIEW,
        "        raise invalid_request_state()\n    return opened",
        '        raise Fault(FaultKind.INVALID_PARAMS, "not for you")\n    return opened',
        STATES,
        "rq_07",
    ),
    "RQ-08 size": Cut(
        SEALING, "if len(text) > MAX_SEALED_CHARACTERS:", "if False:", SEAL, "refused_unread"
    ),
    "RQ-08 JSON": Cut(
        INTERVIEW,
        "opened = decode_as(RequestState, unseal(state))",
        'opened = __import__("pickle").loads(unseal(state))',
        STATE,
        "sealed_for_something_else",
    ),
    "RQ-09 exactly": Cut(
        QUESTIONS,
        "request_state=result.request_state)",
        "request_state=(result.request_state or '').strip() or None)",
        CLIENT,
        "exactly_as_it_was_given",
    ),
    "RQ-09 none where none was given": Cut(
        QUESTIONS,
        "request_state=result.request_state)",
        "request_state=result.request_state or params.request_state)",
        ANSWERS,
        "only_if_it_was",
    ),
    "RQ-09 a new id": Cut(
        "protocol/link/in_flight.py",
        "        self.next_id += 1\n",
        "",
        CLIENT,
        "exactly_as_it_was_given",
    ),
    "RQ-10 the schema": Cut(
        QUESTIONS,
        "        check_response(self, response)\n        return response",
        "        return response",
        BACK,
        "a_wrong_answer",
    ),
    "RQ-10 unknown keys": Cut(
        INTERVIEW, "if key in asked}", "}", BACK, "nobody_asked_for_are_ignored"
    ),
    "RQ-11 rounds": Cut(
        "client/request.py", "MAX_ROUNDS = 10", "MAX_ROUNDS = 32", LONG, "only_asks_back"
    ),
    "RQ-11 nobody is asked in vain": Cut(
        "client/request.py",
        "            if number == MAX_ROUNDS:\n                break\n",
        "",
        LONG,
        "only_asks_back",
    ),
    "RQ-11 everybody is asked": Cut(
        "client/request.py",
        "answers = await rounds.wait_for_user(responder.respond_all(requests))",
        "answers = vars(rounds).get('a') or await responder.respond_all(requests)"
        "\n            vars(rounds)['a'] = answers",
        LONG,
        "only_asks_back",
    ),
    "RQ-11 the server's time": Cut(
        "client/request.py",
        "self._server_s = max(MAX_S, timeout_s)",
        "self._server_s = 1e9",
        LONG,
        "ten_minutes",
    ),
    "RQ-11 the people's time": Cut(
        "client/request.py",
        "self._user_s = MAX_PAUSED_S",
        "self._user_s = 1e9",
        LONG,
        "people_have",
    ),
    "RQ-11 nobody hurries a person": Cut(
        "client/request.py", "self._ends_at += took_s", "pass", LONG, "people_have"
    ),
    "RQ-04 method": Cut(
        INTERVIEW,
        "bound = (opened.principal, opened.method,",
        "bound = (opened.principal, method,",
        BACK,
        "for_this_caller",
    ),
    "RQ-04 tool and arguments": Cut(
        INTERVIEW,
        "opened.method, opened.subject)",
        "opened.method, subject)",
        BACK,
        "for_this_caller",
    ),
    "RQ-04 time": Cut(
        INTERVIEW, "subject) or now >= opened.expires_at:", "subject):", BACK, "for_this_caller"
    ),
    "RQ-04 anonymous": Cut(
        INTERVIEW,
        "if bound != (principal, method, subject) or",
        "if principal and bound != (principal, method, subject) or",
        STATES,
        "rq_07",
    ),
    "RQ-04 audience": Cut(
        SEALING,
        "self._audience = audience.encode()",
        'self._audience = b""',
        SEAL,
        "their_audience",
    ),
    "RQ-06 so many seals": Cut(
        SEALING, "NONCE_BYTES = 12", "NONCE_BYTES = 8", SEAL, "hundred_million"
    ),
    "RQ-06 drawn whole": Cut(
        SEALING,
        "nonce = secrets.token_bytes(NONCE_BYTES)",
        "nonce = secrets.token_bytes(4) + bytes(NONCE_BYTES - 4)",
        SEAL,
        "hundred_million",
    ),
    "RQ-06 nothing is legible": Cut(
        SEALING,
        "return head + nonce + sealed",
        "return head + nonce + sealed + secret",
        SEAL,
        "shows_nothing",
    ),
    "RQ-07 no way is shorter": Cut(
        SEALING,
        "            return cipher.decrypt(",
        "            if data[-1] & 1 != cipher.encrypt(nonce, b'', head)[-1] & 1:\n"
        "                _refuse()\n"
        "            return cipher.decrypt(",
        SEAL,
        "takes_the_same_way",
    ),
    "RQ-09 only the retry": Cut(
        QUESTIONS,
        "    return replace(params, input_responses=raw or None,",
        "    from msgspec.structs import force_setattr\n"
        "    force_setattr(params, 'request_state', result.request_state)\n"
        "    return replace(params, input_responses=raw or None,",
        ANSWERS,
        "in_no_other_request",
    ),
}


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
