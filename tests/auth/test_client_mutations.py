"""Every check of a client that logs in is needed: with any one taken out, a test of its case fails.

The package is copied, one line of the copy is changed, and the tests that should notice are run on
it. A line that is no longer there fails, too: then look whether its check still is.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

FOUND, KNOWN, CODE = (
    "client/test_discovery.py",
    "client/test_registration.py",
    "client/test_authorization_code.py",
)
BACK, KEPT, MACHINE = (
    "client/test_loopback.py",
    "client/test_storage.py",
    "client/test_machine_grants.py",
)
READ, LOGIN, CROWD = (
    "../protocol/http/test_challenges.py",
    "client/test_login.py",
    "client/test_concurrent_refresh.py",
)


CUTS: dict[str, Cut] = {
    "CL-01 whose parameter": Cut(
        "protocol/http/challenges.py", "for one in self.token_challenges if name in", "for one in self.all if name in",
        READ, "cl_01_a_parameter_of_another",
    ),
    "CL-01 the place that is named": Cut(
        "auth/client/discovery.py", "if named is not None:", "if False:", FOUND, "cl_01"
    ),
    "a client that a refresh shows to be forgotten": Cut(
        "auth/client/credentials.py",
        "if refused.error in FORGOTTEN_CLIENT_ERRORS and login.client.dynamic:", "if False:",
        KNOWN, "shows_to_be_forgotten",
    ),
    "a client that the authorization endpoint refuses": Cut(
        "auth/client/login.py",
        "except (GrantRefused, AuthorizationRefused) as refused:", "except GrantRefused as refused:",
        KNOWN, "authorization_endpoint_refuses",
    ),
    "a client whose login did not come back": Cut(
        "auth/client/login.py", "                if not fresh:\n", "                if False:\n",
        KNOWN, "did_not_come_back",
    ),
    "a client that is logged out": Cut(
        "auth/client/credentials.py",
        "registered = await self._drive(delete_clients(self._server))", "registered = False",
        LOGIN, "given_back",
    ),
    "CL-02 the order": Cut(
        "auth/urls.py", "return [root + path, root] if path", "return [root, root + path] if path",
        FOUND, "cl_02",
    ),
    "CL-03 whose document": Cut(
        "auth/client/discovery.py", "if not covers(resource, server):", "if False:", FOUND, "cl_03"
    ),
    "CL-03 the origin": Cut(
        "auth/urls.py", "or origin(resource) != origin(server):", "or False:", FOUND, "cl_03"
    ),
    "CL-03 a whole segment": Cut(
        "auth/urls.py", 'startswith(above + "/")', "startswith(above)", FOUND, "cl_03"
    ),
    "CL-04 the order": Cut(
        "auth/urls.py", "[known + ISSUER_DOCUMENT, known + OPENID_DOCUMENT]",
        "[known + OPENID_DOCUMENT, known + ISSUER_DOCUMENT]", FOUND, "cl_04",
    ),
    "CL-05 whose issuer": Cut(
        "auth/client/discovery.py", 'if not same_issuer(found.get("issuer"), issuer):', "if False:",
        FOUND, "cl_05",
    ),
    "CL-05 as it is written": Cut(
        "auth/client/discovery.py", 'if not same_issuer(found.get("issuer"), issuer):',
        'if str(found.get("issuer")).rstrip("/").lower() != issuer:', FOUND, "cl_05",
    ),
    "CL-05 one slash": Cut(
        "auth/urls.py", 'one == other or one + "/" == other or one == other + "/"',
        'one.rstrip("/") == other.rstrip("/")', FOUND, "cl_05",
    ),
    "CL-05 it calls itself": Cut(
        "auth/client/discovery.py", 'return parse_issuer_metadata(found, str(found["issuer"]))',
        "return parse_issuer_metadata(found, issuer)", FOUND, "cl_05",
    ),
    "CL-06 the same origin": Cut(
        "auth/client/discovery.py", "if legacy and origin(url) != origin(issuer):", "if False:",
        FOUND, "cl_06",
    ),
    "CL-06 its own document": Cut(
        "auth/client/discovery.py", 'if named not in (base, base + "/"):', "if not named:", FOUND, "cl_06"
    ),
    "D20 what is late is not absent": Cut(
        "auth/client/discovery.py", "if response.status >= 500 or", "if False and", FOUND, "does_not_answer"
    ),
    "CL-07 a client for each": Cut(
        "auth/client/storage.py", 'return _key("client", server, issuer)', 'return _key("client", server)',
        KNOWN, "cl_07",
    ),
    "CL-07 tokens for each": Cut(
        "auth/client/credentials.py", "login.discovery.issuer.issuer != discovery.issuer.issuer:", "False:",
        KNOWN, "cl_07",
    ),
    "CL-08 https": Cut(
        "auth/urls.py", 'if parts.scheme != "https" and not is_loopback_host', "if False and is_loopback_host",
        FOUND, "cl_08",
    ),
    "CL-08 the endpoints": Cut(
        "auth/client/discovery.py", "        require_https(url, what)\n", "", FOUND, "cl_08"
    ),
    "CL-09 before anybody is sent": Cut(
        "auth/client/credentials.py", "require_page(url)", "pass",
        BACK, "cl_09_a_person",
    ),
    "CL-09 characters of a shell": Cut(
        "auth/urls.py", "if not _PAGE_CHARACTERS.fullmatch(url):", "if False:",
        BACK, "cl_09_characters",
    ),
    "CL-09 logged": Cut(
        "auth/client/credentials.py", 'log.warning("rejected the authorization page', 'log.debug("',
        BACK, "cl_09_characters",
    ),
    "CL-09 before it is opened": Cut(
        "auth/client/loopback.py", 'if not url.startswith(("https://", "http://")):', "if False:",
        BACK, "cl_09_a_browser",
    ),
    "CL-09 no shell": Cut(
        "auth/client/loopback.py", "return await asyncio.to_thread(webbrowser.open, url)",
        "return __import__('os').system(f'true {url}') == 0", BACK, "cl_09_no_shell",
    ),
    "CL-10 the scopes of the refusal": Cut(
        "auth/client/authorization_code.py", "asked: Iterable[str] | None = challenges.scopes",
        "asked: Iterable[str] | None = discovery.scopes or challenges.scopes", CODE, "cl_10",
    ),
    "CL-12 a document's URL": Cut(
        "auth/client/registration.py", 'if parts.scheme != "https" or not parts.hostname', "if False",
        KNOWN, "cl_12",
    ),
    "CL-13 the order": Cut(
        "auth/client/registration.py", "    if settings.client_id:\n        secret", "    if False:\n        secret",
        KNOWN, "cl_13",
    ),
    "CL-14 the kind of program": Cut(
        "auth/client/registration.py", '"application_type": "native" if local else "web",', "", KNOWN, "cl_14"
    ),
    "CL-15 whose client": Cut(
        "auth/client/registration.py", "if settings.issuer and not same_issuer(settings.issuer, issuer.issuer):", "if False:",
        KNOWN, "cl_15",
    ),
    "CL-15 another issuer": Cut(
        "auth/client/credentials.py", "login.discovery.issuer.issuer != discovery.issuer.issuer:", "False:",
        KNOWN, "cl_15",
    ),
    "CL-15 all of one issuer": Cut(
        "auth/client/storage.py", "if login is None or not login.is_consistent or", "if login is None or", KNOWN,
        "cl_15",
    ),
    "CL-16 an issuer is named": Cut(
        "auth/client/registration.py", "or (self.client_id and not self.issuer):", "or False:", KNOWN, "cl_16"
    ),
    "CL-17 sealed": Cut(
        "auth/client/storage.py", "self._ring(name).seal(value).encode() if self._keys else value", "value",
        KEPT, "cl_17",
    ),
    "CL-17 for its name": Cut(
        "auth/client/storage.py", 'audience=f"{self._principal}\\0{name}"', 'audience=""', KEPT, "cl_17"
    ),
    "CL-18 a verifier of its own": Cut(
        "auth/client/authorization_code.py", "verifier = context.new_secret()", 'verifier = "x" * 64', CODE, "cl_18"
    ),
    "CL-19 S256": Cut(
        "auth/client/authorization_code.py", "base64url_encode(hashlib.sha256(verifier.encode()).digest())", "verifier",
        CODE, "cl_19",
    ),
    "CL-20 state": Cut(
        "auth/client/authorization_code.py", "if not hmac.compare_digest(state.encode(), request.state.encode()):",
        "if False:", CODE, "cl_20",
    ),
    "CL-21 PKCE is known": Cut(
        "auth/client/authorization_code.py", "    check_pkce(issuer)\n    page", "    page", CODE, "cl_21"
    ),
    "CL-22 the resource in renewals": Cut(
        "auth/client/tokens.py", '        ("resource", old.resource),\n', "", CODE, "cl_22"
    ),
    "CL-22 byte for byte": Cut(
        "auth/client/discovery.py", "return DiscoveryResult(server, described.resource,",
        "return DiscoveryResult(server, canonical_resource(server),", CODE, "cl_22",
    ),
    "CL-23 iss is missing": Cut(
        "auth/client/authorization_code.py", "        if request.iss_in_response:", "        if False:", CODE, "cl_23"
    ),
    "CL-24 iss is another": Cut("auth/client/authorization_code.py", "if named not in same:", "if False:", CODE, "cl_24"),
    "CL-24 nothing is made equal": Cut(
        "auth/client/authorization_code.py", "if named not in same:",
        'if named.rstrip("/").lower() not in same:', CODE, "cl_24",
    ),
    "CL-25 before the error": Cut(
        "auth/client/authorization_code.py",
        '    _check_issuer(parts, request)\n    error = printable_text(parts.get("error"))\n    if error:',
        '    error = printable_text(parts.get("error"))\n    if error:', CODE, "cl_25",
    ),
    "CL-26 its own state": Cut(
        "auth/client/loopback.py", "or answer.done() or not self._is_ours(query)", "or answer.done()",
        BACK, "cl_26",
    ),
    "CL-26 once": Cut(
        "auth/client/loopback.py", "answer is None or answer.done() or", "answer is None or", BACK, "once"
    ),
    "CL-26 its own name": Cut(
        "auth/client/loopback.py", "len(names) != 1 or names[0].lower() not in self._hosts or", "",
        BACK, "cl_26",
    ),
    "CL-26 its own path": Cut(
        "auth/client/loopback.py", "not in self._hosts or path != self._path:", "not in self._hosts:",
        BACK, "cl_26",
    ),
    "CL-26 on loopback": Cut(
        "auth/client/loopback.py", 'address = "::1" if host == "::1" else HOST', 'address = "0.0.0.0"',
        BACK, "cl_26",
    ),
    "CL-27 its own origin": Cut(
        "auth/client/credentials.py", "if login is None or origin(url) != self._origin:", "if login is None:",
        LOGIN, "nowhere_else",
    ),
    "CL-27 no redirect": Cut(
        "transport/http_client/endpoint.py", "if target.origin != self._origin:", "if False:",
        LOGIN, "cl_27_no_redirect",
    ),
    "CL-27 every request": Cut(
        "transport/http_client/endpoint.py",
        "return self._send_authorized(self._credentials, method, headers, data, url)",
        "return self._send_once(method, headers, data, url)", LOGIN, "in_every_request",
    ),
    "CL-28 whose login": Cut(
        "auth/client/storage.py", "return login if login.discovery.server == server else None", "return login",
        KNOWN, "cl_28",
    ),
    "CL-29 offline access": Cut(
        "auth/client/authorization_code.py", "    wanted.pop(OFFLINE_ACCESS, None)\n", "", CODE, "cl_29"
    ),
    "CL-30 the union": Cut(
        "auth/client/authorization_code.py", "[*given, *before, *(asked or ())]", "[*given, *(asked or ())]",
        CODE, "cl_30",
    ),
    "CL-30 an end": Cut(
        "auth/client/credentials.py", "if not set(needed) - set(asked):", "if False:", CODE, "cl_30"
    ),
    "CL-31 what passes": Cut(
        "auth/client/credentials.py", "        if refused.error not in ENDED_GRANT_ERRORS:\n            raise\n", "",
        CODE, "is_told_and_kept",
    ),
    "CL-31 the generation": Cut(
        "auth/client/storage.py", "kept.tokens.generation == login.tokens.generation:", "True:", CODE, "cl_31"
    ),
    "CL-31 one process": Cut(
        "auth/client/storage.py", "return await self._store.add(self._principal, name, owner, LEASE_S)",
        "return True", CROWD, "cl_31",
    ),
    "a header that would be two": Cut(
        "auth/client/tokens.py", "if token is None or not fits_header(token):", "if token is None:",
        CODE, "could_be_shown",
    ),
    "a token that is bound": Cut(
        "auth/client/tokens.py", "if (kind == DPOP) != (identity.dpop_key is not None):", "if False:",
        MACHINE, "not_bound",
    ),
    "pages that repeat nothing": Cut(
        "auth/client/loopback.py", 'return "400 Bad Request", _NOT_FOUND',
        'return "400 Bad Request", __import__("urllib.parse").parse.unquote(query)',
        BACK, "pages_hold_nothing",
    ),
    "one login for all": Cut(
        "auth/client/credentials.py", "                self._check_failed(rejected)\n", "", LOGIN, "asked_for_once"
    ),
    "no loop of logins": Cut(
        "auth/client/credentials.py", "if len(generations) > MAX_LOGINS:", "if False:", LOGIN, "not_a_loop"
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_without_the_check_its_case_fails(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
