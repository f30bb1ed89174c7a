"""What other servers were attacked by, where our check against it is in no list of cases.

The numbers are those of ADVISORIES.md beside this file, which names the test for each.
"""

import re
from pathlib import Path

import pytest

from auth.cutting import ROOT, Cut, check_missed

DOOR, KEPT, MACHINE = (
    "server/test_protection.py",
    "client/test_storage.py",
    "client/test_machine_grants.py",
)
APART = "server/test_isolation.py"
GATE, SCHEMA = "../protocol/http/test_security.py", "../protocol/schema/test_validate.py"
RULES = "protocol/http/security.py"

CUTS: dict[str, Cut] = {
    "58 whom it is for": Cut(
        "auth/client/tokens.py", '"aud": audience,', '"aud": "*",', MACHINE, "for_this_issuer_once"
    ),
    "58 once": Cut(
        "auth/client/tokens.py",
        '"jti": context.new_secret(),\n        "iat": now,\n        "exp": now + ASSERTION_TTL_S',
        '"jti": "1",\n        "iat": now,\n        "exp": now + ASSERTION_TTL_S',
        MACHINE,
        "for_this_issuer_once",
    ),
    "59 nothing is unpickled": Cut(
        "auth/client/storage.py",
        "import hashlib\n",
        "import hashlib\nimport pickle\n",
        KEPT,
        "unpickled",
    ),
    "62 every way in": Cut(
        "transport/http_server/app.py",
        "self.is_guarded: bool = guard is not None or",
        "self.is_guarded: bool = False and guard is not None or",
        DOOR,
        "every_request_needs",
    ),
    "62 another way in": Cut(
        "server/server.py",
        "if other._auth is not None and other._auth is not self._auth:",
        "if False:",
        DOOR,
        "what_is_mounted",
    ),
    "62 an empty list lets nobody in": Cut(
        RULES,
        "        if not hosts:\n            raise InvalidArgument(",
        "        if False:\n            raise InvalidArgument(",
        GATE,
        "a_policy_without_a_host",
    ),
    "63 a bind that others reach": Cut(
        RULES,
        "        elif not named:\n",
        "        elif False:\n",
        GATE,
        "must_be_told_its_names",
    ),
    "63 a warning": Cut(
        "transport/http_server/runner.py",
        "if not self.app.is_guarded and not is_loopback_host(self.host):",
        "if False:",
        "../transport/http_server/test_runner.py",
        "is_warned",
    ),
    "64 the path as it is spelled": Cut(
        "transport/http_server/app.py",
        "            if self.is_guarded and not gate.public:\n",
        '            if self.is_guarded and scope.get("raw_path") == b"/mcp":\n',
        DOOR,
        "no_spelling",
    ),
    "65 closed in the list alone": Cut(
        "server/auth.py", "if not wanted <= granted:", "if False:", DOOR, "lists_show"
    ),
    "69 what a token says of its key": Cut(
        "auth/server/jwt.py",
        "        wider = self._fetcher_for_issuer(fetcher)\n        keys",
        "        wider = self._fetcher_for_issuer(fetcher)\n"
        '        if "jku" in signed.header:\n'
        '            await wider.fetch("GET", str(signed.header["jku"]))\n'
        "        keys",
        APART,
        "no_header_of_a_request",
    ),
    "69 what a request says of a host": Cut(
        "server/auth.py",
        "        context = self._context()",
        "        import contextlib\n"
        '        said = headers.get(b"x-forwarded-host", b"").decode()\n'
        "        with contextlib.suppress(Exception):\n"
        '            await self._fetcher().fetch("GET", f"https://{said}/")\n'
        "        context = self._context()",
        APART,
        "no_header_of_a_request",
    ),
    "67 a host that is none": Cut(
        RULES,
        'if not parts or parts[1] == "*":',
        "if not parts:\n        return\n    if False:",
        GATE,
        "not_one_host",
    ),
    "75 a reference to elsewhere": Cut(
        "protocol/schema/bounds.py",
        "        if found is None:\n            raise UnusableSchema(\n"
        '                f"refers to {reference[:200]!r}, which is outside',
        "        if found is None:\n            return\n            raise UnusableSchema(\n"
        '                f"refers to {reference[:200]!r}, which is outside',
        SCHEMA,
        "a_reference_to_elsewhere",
    ),
}


def test_every_advisory_has_a_line_and_every_test_in_it_is_there() -> None:
    table = Path(__file__).with_name("ADVISORIES.md").read_text("utf-8")
    numbers = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(45, 76))
    sources = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}
    assert set(re.findall(r"`(test_\w+)`", table)) <= there


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
