"""Every check that separates the callers of a gateway, or keeps what was inspected, is needed: with
any one of them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_fits, check_missed

LISTS, RESULTS, FOLLOWED = "test_lists.py", "test_results.py", "test_subscriptions.py"
KEPT, DOOR = "test_manifests.py", "test_front_door.py"

CUTS: dict[str, Cut] = {
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
        "and not (is_inspected and has_duplicate_members(origin.raw))",
        "",
        RESULTS,
        "has_seen_is_what",
    ),
    "a result that was replaced": Cut(
        "protocol/forwarded.py",
        "and origin.outcome is result\n",
        "",
        RESULTS,
        "changes_is_what_the_client",
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
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        check_fits(name, cut, "tests/gateway")


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_of_a_gateway_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path, "tests/gateway")
