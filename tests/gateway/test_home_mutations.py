"""Every check that keeps a session at one replica, and that of one caller, is needed: with any one of
them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

HOMES, HELD = "test_homes.py", "test_held_replicas.py"
ATTACKS, MANIFESTS = "test_home_attacks.py", "test_manifests.py"

CUTS: dict[str, Cut] = {
    "principal of a home": Cut(
        "gateway/homes.py",
        "[scope, server, caller.principal, caller.session, list(caller.input)]",
        "[scope, server, caller.session, list(caller.input)]",
        HOMES,
        "two_callers_have_two_sessions",
    ),
    "session of a home": Cut(
        "gateway/homes.py",
        "[scope, server, caller.principal, caller.session, list(caller.input)]",
        "[scope, server, caller.principal, list(caller.input)]",
        HOMES,
        "another_session_another",
    ),
    "lease of the home of another replica": Cut(
        "gateway/homes.py",
        "if record is not None and is_other and await self.replica.is_alive(record.replica):",
        "if record is not None and is_other and False:",
        HOMES,
        "reach_one_session",
    ),
    "compare and swap of an entry": Cut(
        "gateway/homes.py",
        "            if not taken:\n                self._forget(home)\n        return home if taken else None\n",
        "            pass\n        return home\n",
        HOMES,
        "begin_at_three_replicas_at_once",
    ),
    "doubt of a home that had no lease": Cut(
        "gateway/homes.py",
        "while self.doubts > self._settled_doubts or not self._homes.replica.holds_lease:",
        "while False:",
        HOMES,
        "that_was_stopped_ends_its_session",
    ),
    "end of a session that is elsewhere": Cut(
        "host/servers/supervisor.py",
        "        if session is not None and session in self._sessions:\n"
        '            self._close_session(session, "another replica has taken it over")\n',
        "",
        HOMES,
        "that_was_stopped_ends_its_session",
    ),
    "new value of a confirmed home": Cut(
        "gateway/homes.py",
        "            after = self.new_value()\n",
        "            after = self.value\n",
        HOMES,
        "cannot_be_replaced_by_one",
    ),
    "telling that the state is gone": Cut(
        "gateway/homes.py",
        "if self.state_lost and not lists:",
        "if False:",
        HOMES,
        "told_once",
    ),
    "telling it once": Cut(
        "gateway/homes.py",
        "            self.state_lost = False\n            raise StateLost(STATE_GONE)\n",
        "            raise StateLost(STATE_GONE)\n",
        HOMES,
        "told_once",
    ),
    "telling it with the call that was lost": Cut(
        "gateway/homes.py",
        "await store.swap(SERVER_PRINCIPAL, key, before, None, None)",
        "pass",
        HOMES,
        "whose_home_ends",
    ),
    "telling it after a stop": Cut(
        "gateway/homes.py",
        "ends_here = self._closing and home.open is not None and home.open.session.had_calls",
        "ends_here = False",
        HOMES,
        "lets_the_next_call_say",
    ),
    "number of the session of a home": Cut(
        "gateway/homes.py",
        "if home is None or str(home.number) != number or self._closing:",
        "if home is None or self._closing:",
        HOMES,
        "earlier_session",
    ),
    "errors of a server": Cut(
        "gateway/home_connection.py",
        "if fault is None or response is None:",
        "fault = fault or Fault(FaultKind.INTERNAL, '')\n        if response is None:",
        HOMES,
        "never_taken_for_one_of_the_home",
    ),
    "sender of a change": Cut(
        "gateway/homes.py",
        "if connection.replica == sender and connection.id == change.id:",
        "if connection.id == change.id:",
        HOMES,
        "another_replica_than_the_home",
    ),
    "input requests of a request that has ended": Cut(
        "replicas/remote_run.py",
        "                future.set_exception(CallerLost(",
        "                (CallerLost(",
        HOMES,
        "moves_to_the_call",
    ),
    "principal of a carried request": Cut(
        "gateway/homes.py",
        "if request.exchange.principal != home.principal:",
        "if False:",
        ATTACKS,
        "another_principal_is_not_run",
    ),
    "keys of messages between replicas": Cut(
        "gateway/gateway.py",
        "        replica = Replica(store, seal=self.keys, group=self.info.name)\n        if not",
        "        replica = Replica(store, group=self.info.name)\n        if not",
        ATTACKS,
        "a_gateway_is_one_replica",
    ),
    "keys of messages of a gateway without sessions": Cut(
        "gateway/gateway.py",
        "            self._replica = Replica(store, seal=self.keys, group=self.info.name)\n",
        "            self._replica = Replica(store, group=self.info.name)\n",
        ATTACKS,
        "written_into_the_store_is_not_run",
    ),
    "decryption of messages": Cut(
        "replicas/replica.py",
        "                # Nothing was missed: it is of another service, or forged, or was sent elsewhere.\n"
        '                self._log_once("messages that were not encrypted with its keys are ignored")\n'
        "                return\n",
        "                pass\n",
        ATTACKS,
        "written_into_the_store_is_not_run",
    ),
    "topic of an encrypted message": Cut(
        "replicas/replica.py",
        "data = self.seal.decrypt(data, topic.encode())",
        "data = self.seal.decrypt(data, b'replicas gateway')",
        ATTACKS,
        "written_into_the_store_is_not_run",
    ),
    "a request that was begun before": Cut(
        "replicas/remote_request.py",
        "if begin.id in self._runs or begin.id in self._begun:",
        "if begin.id in self._runs:",
        ATTACKS,
        "sent_again",
    ),
    "an entry that cannot be read": Cut(
        "gateway/homes.py",
        "if before is not None and record is None:",
        "if False:",
        ATTACKS,
        "not_taken_over",
    ),
    "keys of an entry": Cut(
        "gateway/homes.py",
        "        except Fault:\n            return None\n\n    # ---",
        "        except Fault:\n            return decode_remote(HomeRecord, value)\n\n    # ---",
        ATTACKS,
        "not_taken_over",
    ),
    "replicas by their keys": Cut(
        "gateway/gateway.py",
        "if store is None or self.keys.private:",
        "if store is None:",
        ATTACKS,
        "without_keys_has_its_own",
    ),
    "renewal after a release": Cut(
        "gateway/homes.py",
        "        self.is_lost = True  # no later renewal makes it again\n",
        "",
        ATTACKS,
        "renewed_while_it_is_released",
    ),
    "release after a renewal without a response": Cut(
        "gateway/homes.py",
        "for before in (self.value, *self._tried):",
        "for before in (self.value,):",
        ATTACKS,
        "renewal_was_cut_off",
    ),
    "a lease that the store has lost": Cut(
        "replicas/replica.py",
        "                        lapsed = had_lease\n",
        "",
        ATTACKS,
        "no_two_homes_live",
    ),
    "changes that wait": Cut(
        "gateway/homes.py",
        "if len(home.changes) >= MAX_CHANGES:",
        "if False:",
        ATTACKS,
        "bounded_memory",
    ),
    "keys of a manifest": Cut(
        "gateway/manifests.py",
        "return seal.decrypt(value, _place(principal, key))",
        "return value",
        MANIFESTS,
        "written_without_the_keys",
    ),
    "place of a manifest": Cut(
        "gateway/manifests.py",
        'return f"{key} {principal}".encode()',
        'return b""',
        MANIFESTS,
        "written_without_the_keys",
    ),
    "encryption of a manifest": Cut(
        "gateway/manifests.py",
        "value = raw if seal is None else seal.encrypt(raw, _place(owner, key))",
        "value = raw",
        ATTACKS,
        "readable_in_the_store",
    ),
    "effect of a round whose replica is gone": Cut(
        "gateway/bridge.py",
        "if fault is not None and fault.data is not None:",
        "if False:",
        HELD,
        "does_not_respond_says",
    ),
}

KEY_CUTS: dict[str, Cut] = {
    "keys of a shared store": Cut(
        "cli/commands/gateway.py",
        "if store is None or not store.is_shared or keys:",
        "if True:",
        "test_gateway.py",
        "what_a_key_must_be",
    ),
    "length of a key": Cut(
        "cli/commands/gateway.py",
        "        if len(key) == KEY_BYTES:\n            return key\n",
        "        return (key * KEY_BYTES)[:KEY_BYTES]\n",
        "test_gateway.py",
        "what_a_key_must_be",
    ),
    "keys by reference": Cut(
        "host/config/gateway_table.py",
        "if len(one.parts) != 1 or len(one.references) != 1:",
        "if False:",
        "test_gateway.py",
        "in_the_file_itself",
    ),
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests/gateway")
    for name, cut in KEY_CUTS.items():
        check_fits(name, cut, "tests/cli/commands")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_of_a_home_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path, "tests/gateway")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", KEY_CUTS)
def test_a_check_of_keys_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(KEY_CUTS[name], tmp_path, "tests/cli/commands")
