"""What the cases of authorization want beside their first check: each clause taken out once.

CASES.md beside this file has the whole list of cases, with the tests and the cuts of each.
"""

import re
from pathlib import Path

import pytest

from auth import (
    test_advisory_mutations,
    test_client_mutations,
    test_elicitation_mutations,
    test_mutations,
    test_proxy_mutations,
)
from auth.cutting import ROOT, Cut, check_missed

DOOR, TOKENS, FETCH = "server/test_protection.py", "client/test_tokens.py", "test_ssrf.py"
FOUND, KNOWN, CODE = (
    "client/test_discovery.py",
    "client/test_registration.py",
    "client/test_authorization_code.py",
)
BACK, KEPT, LOGIN = "client/test_loopback.py", "client/test_storage.py", "client/test_login.py"
ALONE = "../test_fetching_alone.py"
BOUND, CHILDREN = "client/test_dpop_login.py", "client/test_token_sharing.py"

ENTRANCE, PROTECTION, DECIDING = (
    "transport/http_server/app.py",
    "auth/server/protection.py",
    "            if self.is_guarded and not gate.public:\n",
)
FINDING_KEYS = "keys = await self._keys.matching(signed.key_id, signed.algorithm, now, wider)"
CLIENTS, CODES, TOKEN = (
    "auth/client/registration.py",
    "auth/client/authorization_code.py",
    "auth/client/tokens.py",
)

CUTS: dict[str, Cut] = {
    # The resource server
    "RS-01 by the header": Cut(
        PROTECTION,
        '"resource_metadata": metadata,',
        '"resource_metadata": "",',
        DOOR,
        "where_to_get_one",
    ),
    "RS-02 both places": Cut(
        "server/auth.py", "if path in known:", "if path == WELL_KNOWN:", DOOR, "both_well_known"
    ),
    "RS-04 a token in the query": Cut(
        ENTRANCE,
        '                request.root = scope.get("root_path", "")\n                place',
        '                request.root = scope.get("root_path", "")\n'
        '                query = scope["query_string"]\n'
        '                if query.startswith(b"access_token="):\n'
        '                    given = b"Bearer " + query[len(b"access_token=") :]\n'
        '                    request.headers = {**request.headers, b"authorization": given}\n'
        "                place",
        DOOR,
        "query_or_the_body",
    ),
    "RS-07 in a session, too": Cut(
        ENTRANCE,
        DECIDING,
        '            if self.is_guarded and b"mcp-session-id" not in headers:\n',
        DOOR,
        "every_request_needs",
    ),
    "RS-07 every method": Cut(
        ENTRANCE,
        DECIDING,
        '            if self.is_guarded and scope["method"] == "POST":\n',
        DOOR,
        "every_request_needs",
    ),
    "RS-08 a malformed header": Cut(
        PROTECTION,
        "raise HttpError(BAD_REQUEST, message, headers=headers)",
        "raise HttpError(UNAUTHORIZED, message, headers=headers)",
        DOOR,
        "malformed_header",
    ),
    "RS-08 two tokens": Cut(
        PROTECTION,
        'not in (*_SCHEMES, b"\\x00"):',
        "not in _SCHEMES:",
        DOOR,
        "two_tokens",
    ),
    "RS-08 a bad token": Cut(
        PROTECTION,
        "raise HttpError(UNAUTHORIZED, message, headers=tuple(headers), detail=detail) from None",
        "raise HttpError(FORBIDDEN, message, headers=tuple(headers), detail=detail) from None",
        DOOR,
        "bad_token",
    ),
    "RS-08 too little": Cut(
        PROTECTION,
        "return HttpError(FORBIDDEN, message, headers=",
        "return HttpError(UNAUTHORIZED, message, headers=",
        DOOR,
        "all_of_them",
    ),
    "RS-14 a key that a token shows": Cut(
        "auth/server/jwt.py",
        FINDING_KEYS,
        "import colonnade.auth.jose as j\n"
        '        own = j.parse_jwk(signed.header.get("jwk"))\n'
        f"        {FINDING_KEYS}\n"
        "        keys = [own] if own is not None else keys",
        TOKENS,
        "forged and shows",
    ),
    "RS-16 refused once for all": Cut(
        PROTECTION, "if pending.error is not None:", "if False:", TOKENS, "hears_once"
    ),
    # Discovery
    "CL-11 time": Cut(
        "auth/ssrf.py",
        "async with asyncio.timeout(self._total_s):",
        "async with asyncio.timeout(None):",
        FETCH,
        "silent_server",
    ),
    "CL-11 JSON": Cut(
        "auth/client/steps.py",
        'return cast("dict[str, Any]", found) if isinstance(found, dict) else None',
        'return cast("dict[str, Any]", found)',
        KNOWN,
        "without_a_client",
    ),
    # Registration and what is kept
    "CL-12 a path": Cut(CLIENTS, 'or path in ("", "/") or dots:', "or dots:", KNOWN, "cl_12"),
    "CL-13 a document before registration": Cut(
        CLIENTS,
        "if settings.metadata_url and issuer.supports_metadata_documents:",
        "if False:",
        KNOWN,
        "cl_13",
    ),
    "CL-13 a document where it is taken": Cut(
        CLIENTS,
        "if settings.metadata_url and issuer.supports_metadata_documents:",
        "if settings.metadata_url:",
        KNOWN,
        "cl_13",
    ),
    "CL-13 else a person is asked": Cut(
        CLIENTS, "if not issuer.registration_endpoint:", "if False:", KNOWN, "cl_13"
    ),
    "CL-14 a rejection": Cut(
        CLIENTS, "if response.status not in CREATED:", "if False:", KNOWN, "cl_14_a_rejection"
    ),
    "CL-16 for programs": Cut(
        "auth/client/login.py",
        "    if not issuer:\n",
        "    if not issuer:\n        return issuer\n    if False:\n",
        KNOWN,
        "cl_16_credentials",
    ),
    "CL-16 what is nobody's": Cut(
        "auth/client/storage.py",
        "return bool(issuer) and issuer ==",
        "return issuer ==",
        KNOWN,
        "is_dead",
    ),
    "CL-17 modes": Cut(
        "client/auth.py",
        "_FOLDER_MODE, _FILE_MODE = 0o700, 0o600",
        "_FOLDER_MODE, _FILE_MODE = 0o755, 0o644",
        KEPT,
        "ours_alone",
    ),
    "CL-17 a key that others read": Cut(
        "client/auth.py",
        'if sys.platform != "win32" and path.stat().st_mode & _OTHERS:',
        "if False:",
        KEPT,
        "others_can_read",
    ),
    "CL-17 repr": Cut(
        TOKEN,
        'return f"Tokens({kind} from {display_url(self.issuer)} for {display_url(self.resource)})"',
        'return f"Tokens({kind} {self.access_token})"',
        CODE,
        "in_a_repr",
    ),
    # The flow
    "CL-18 length": Cut(
        "auth/client/credentials.py",
        "SECRET_BYTES: Final = 48",
        "SECRET_BYTES: Final = 8",
        LOGIN,
        "known",
    ),
    "CL-20 a state of its own": Cut(
        CODES, "state = context.new_secret()", 'state = "s" * 43', CODE, "cl_18"
    ),
    "CL-22 the resource at the page": Cut(
        CODES,
        '        ("resource", discovery.resource),\n    ]\n    if scopes:',
        "    ]\n    if scopes:",
        CODE,
        "cl_22",
    ),
    "CL-22 the resource with the code": Cut(
        CODES,
        '        ("resource", discovery.resource),\n    ]\n    answer',
        "    ]\n    answer",
        CODE,
        "cl_22",
    ),
    "CL-26 where a browser comes back to": Cut(
        "auth/client/login.py",
        "    if not anywhere and (",
        "    if False and (",
        KNOWN,
        "cannot_be_right",
    ),
    "CL-26 https elsewhere": Cut(
        "auth/client/login.py",
        '    _check_https(uri, "redirect_uri=")\n',
        "",
        KNOWN,
        "cannot_be_right",
    ),
    "CL-26 a time": Cut(
        "auth/client/loopback.py",
        "async with asyncio.timeout(timeout_s):",
        "async with asyncio.timeout(timeout_s + 3600):",
        BACK,
        "a_wait_ends",
    ),
    "CL-29 no refresh token": Cut(
        "auth/client/credentials.py",
        "if not login.tokens.refresh_token or not login.client.is_valid(",
        "if not login.client.is_valid(",
        CODE,
        "cl_29_no_refresh",
    ),
    "CL-31 an error that passes": Cut(
        TOKEN,
        "if response.status >= 500 or response.status in (408, 425, 429):",
        "if False:",
        CODE,
        "cl_31_what_only_passes",
    ),
    # Tokens that are bound to a key, live
    "bound: the nonce of an issuer": Cut(
        TOKEN, "if nonce and identity.dpop_key is not None and", "if False and", BOUND, "both_sides"
    ),
    "bound: the nonce of a server": Cut(
        "auth/client/credentials.py",
        'if status == 401 and bound is not None and bound.error == "use_dpop_nonce"',
        'if False and bound is not None and bound.error == "use_dpop_nonce"',
        BOUND,
        "both_sides",
    ),
    "bound: the code": Cut(
        CODES,
        'pairs.append(("dpop_jkt", identity.dpop_key.thumbprint))',
        "pass",
        BOUND,
        "both_sides",
    ),
    "bound: renewed with the same key": Cut(
        "auth/client/credentials.py",
        "        return None\n    bound = read_private_key(login.tokens.key) if login.tokens.key else None\n",
        "        return None\n    bound = generate_key() if login.tokens.key else None\n",
        BOUND,
        "same_key",
    ),
    # What others on this machine can read
    "a child's environment": Cut(
        "transport/process/command.py",
        "return {**minimal_environment(ours), **self.given,",
        "return {**ours, **self.given,",
        CHILDREN,
        "arguments_of_a_process",
    ),
    "a browser's environment": Cut(
        "cli/commands/login.py",
        "os.environ.pop(given.secret_env)",
        "os.environ[given.secret_env]",
        CHILDREN,
        "browser_learns",
    ),
    # SSRF
    "SF-01 another way out": Cut(
        "auth/client/steps.py",
        "import msgspec\nfrom msgspec",
        "import urllib.request\n\nimport msgspec\nfrom msgspec",
        ALONE,
        "sf_01",
    ),
    "SF-01 a login": Cut(
        "auth/client/credentials.py",
        "loopback=here, networks=auth.networks)",
        'loopback=here, networks=["0.0.0.0/0", "::/0"])',
        "client/test_login_refusals.py",
        "token_endpoint",
    ),
    "SF-01 around the fetcher": Cut(
        "auth/server/verifier.py",
        "from colonnade.errors",
        "from colonnade.ports import HttpSend\nfrom colonnade.errors",
        ALONE,
        "sf_01",
    ),
}

ALL_CUTS = (
    test_mutations.CUTS,
    test_client_mutations.CUTS,
    test_elicitation_mutations.CUTS,
    test_advisory_mutations.CUTS,
    test_proxy_mutations.CUTS,
    CUTS,
)


def cases() -> dict[str, list[str]]:
    """The rows of CASES.md: to each id its tests and its cuts."""
    table = Path(__file__).with_name("CASES.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:RS|CL|SF|RQ)-\d\d) \| .* \| (.*) \| (.*) \|$", table, re.MULTILINE)
    return {id: [tests, cuts] for id, tests, cuts in rows}


def test_every_case_has_a_line_with_tests_that_name_it_and_cuts_that_are_made() -> None:
    counts = {"RS": 16, "CL": 31, "SF": 7, "RQ": 11}
    ids = [f"{kind}-{n:02}" for kind, count in counts.items() for n in range(1, count + 1)]
    found = cases()
    assert list(found) == ids
    made = {name for cuts in ALL_CUTS for name in cuts}
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}
    for id, (tests, cuts) in found.items():
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, id
        assert set(names) <= there, id
        listed = re.findall(r"`([^`]+)`", cuts)
        assert listed, id
        assert set(listed) <= made, (id, set(listed) - made)
        # A cut that has the name of a case is in its line.
        assert {name for name in made if name.startswith(f"{id} ")} <= set(listed), id


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in ((name, cut) for cuts in ALL_CUTS for name, cut in cuts.items()):
        source = (ROOT / "src/colonnade" / cut.file).read_text("utf-8")
        assert source.count(cut.old) == 1, f"{name}: {cut.file} has not one of {cut.old!r}"
        compile(source.replace(cut.old, cut.new), cut.file, "exec")
        assert (ROOT / "tests/auth" / cut.tests).is_file(), f"{name}: no {cut.tests}"


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
