"""Every check of the credentials of callers is needed: with one taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

LOGIN, EXCHANGE = "../host/test_upstream_login.py", "../host/test_upstream_exchange.py"
BOX = "server/test_presented.py"
PAGES, GRANTS = "host/credentials.py", "auth/client/machine_grants.py"
SUPERVISOR = "host/servers/supervisor.py"

CUTS: dict[str, Cut] = {
    "a page without a session": Cut(
        PAGES,
        'if not isinstance(identity, str) or identity in ("", SERVER_PRINCIPAL):',
        "identity = identity or 'ann'\n        if False:",
        LOGIN,
        "without_a_session",
    ),
    "a link of another principal": Cut(
        PAGES,
        "data = await self._records(opened.principal).load(link_record(link_id))\n        link = "
        "self._checked(decode_record(ConnectLink, data), opened)\n        rows",
        "data = await self._records('ann').load(link_record(link_id))\n        link = "
        "decode_record(ConnectLink, data)\n        assert link is not None\n        rows",
        LOGIN,
        "opens_nothing",
    ),
    "a response of another principal": Cut(
        PAGES,
        "        pending = decode_record(PendingLogin, await records.take(response_record(state)))\n"
        "        link = self._checked(pending.link if pending is not None else None, opened)\n"
        "        assert pending is not None\n",
        "        taken = await self._records('ann').take(response_record(state))\n"
        "        pending = decode_record(PendingLogin, taken)\n"
        "        assert pending is not None\n"
        "        link = pending.link\n",
        LOGIN,
        "who_began",
    ),
    "a response twice": Cut(
        PAGES,
        "await records.take(response_record(state))",
        "await records.load(response_record(state))",
        LOGIN,
        "who_began",
    ),
    "a link twice": Cut(
        PAGES,
        "data = await records.take(link_record(link_id))",
        "data = await records.load(link_record(link_id))",
        LOGIN,
        "used_once",
    ),
    "a form of another page": Cut(
        PAGES, "check_form_origin(opened.request, origin(self._url))", "pass", LOGIN, "used_once"
    ),
    "a form that was made up": Cut(
        PAGES,
        "self._form_ring(opened.principal, link_id).unseal(sealed)",
        "pass",
        LOGIN,
        "used_once",
    ),
    "a form of another link": Cut(
        PAGES,
        r'audience=f"connect form\0{principal}\0{link_id}"',
        'audience="connect form"',
        LOGIN,
        "used_once",
    ),
    "a session of another caller": Cut(
        SUPERVISOR,
        "elif not revision.handshake and not self._settings.is_per_caller:",
        "elif not revision.handshake:",
        LOGIN,
        "share_no_connection",
    ),
    "a start of another caller": Cut(
        SUPERVISOR,
        "return self._session_key(caller) if needs_own or self._settings.is_per_caller else None",
        "return self._session_key(caller) if needs_own else None",
        EXCHANGE,
        "at_the_same_time",
    ),
    "the lists of another caller": Cut(
        "host/servers/generation.py",
        "common = common and not self.settings.is_per_caller",
        "common = True",
        LOGIN,
        "share_no_connection",
    ),
    "a caller without a name": Cut(
        PAGES,
        "if not principal or principal == SERVER_PRINCIPAL:",
        "if False:",
        LOGIN,
        "without_a_name",
    ),
    "the token of the caller": Cut(
        GRANTS, "if tokens.access_token == subject:", "if False:", EXCHANGE, "same_token"
    ),
    "links without end": Cut(
        PAGES, "1, LINK_S) > MAX_LINKS:", "1, LINK_S) < 0:", LOGIN, "fill_the"
    ),
    "a call that was accepted": Cut(
        "host/router.py", " and not required.accepted", "", LOGIN, "become_a_task"
    ),
    "a lease that has expired": Cut(
        "auth/client/storage.py",
        "if await self._store.swap_all((held, Swap(principal, name, before, after, None))):",
        "if await self._store.swap_all((Swap(principal, name, before, after, None),)):",
        LOGIN,
        "outlives_its_lease",
    ),
    "a token that the issuer quotes": Cut(
        "auth/client/steps.py",
        "return _SECRET_WORDS.sub(shown, text) if long else text",
        "return text",
        EXCHANGE,
        "quotes",
    ),
    "a failure of another caller": Cut(
        "host/servers/restarts.py",
        "policy = self.by_caller.get(caller)",
        "policy = next(iter(self.by_caller.values()), None)",
        EXCHANGE,
        "fails_for_one",
    ),
    "the instructions of another caller": Cut(
        "host/servers/generation.py",
        "if not self.settings.is_per_caller:  # those",
        "if True:  # those",
        LOGIN,
        "instructions",
    ),
    "a token that has expired": Cut(
        "auth/presented.py",
        "if not token or self._clock() >= until:",
        "if not token:",
        BOX,
        "forgotten",
    ),
}


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
