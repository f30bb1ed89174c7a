"""Every check of an identity provider, and of the issuer for development, is needed: without any
one, its test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

ROOT = Path(__file__).resolve().parents[2]
PROVIDER, PRESETS = "auth/server/proxy/provider.py", "auth/server/proxy/presets.py"
ISSUER, LOGIN = "auth/server/issuer.py", "server/test_issuer.py"
WRONG, EACH = "server/proxy/test_provider.py", "server/proxy/test_presets.py"

CUTS: dict[str, Cut] = {
    "the nonce of an ID token": Cut(
        PROVIDER, "            if nonce is not None:\n", "            if False:\n", WRONG, "nonce"
    ),
    "the issuer of an ID token": Cut(
        PROVIDER,
        "            self._check_issuer(signed.claims)\n",
        "",
        WRONG,
        "wrong_claim and issuer",
    ),
    "the tenant of an issuer": Cut(
        PROVIDER,
        "if not isinstance(tenant, str) or not _TENANT_ID.fullmatch(tenant):",
        "if not isinstance(tenant, str):",
        EACH,
        "many_tenants",
    ),
    "the tenant of a key": Cut(
        PROVIDER,
        "usable = [key for key in keys if not key.issuer or _names(key.issuer, signed.claims)]",
        "usable = keys",
        WRONG,
        "key_of_one_tenant",
    ),
    "the issuer of a response": Cut(
        PROVIDER,
        "if issuer and not any(same_issuer(issuer, one) for one in expected):",
        "if False:",
        WRONG,
        "names_its_issuer",
    ),
    "a response without an issuer": Cut(
        PROVIDER,
        'if document.get("authorization_response_iss_parameter_supported") is True:',
        "if False:",
        WRONG,
        "names_its_issuer",
    ),
    "issuer: the redirect of a document": Cut(
        ISSUER,
        "max_bytes=MAX_DOCUMENT_BYTES, redirects=False",
        "max_bytes=MAX_DOCUMENT_BYTES",
        LOGIN,
        "document_about_it",
    ),
    "the audience of an ID token": Cut(
        PROVIDER,
        "if self.client_id not in named or party != self.client_id:",
        "if False:",
        WRONG,
        "wrong_claim and client",
    ),
    "the authorized party of an ID token": Cut(
        PROVIDER, "or party != self.client_id:", ":", WRONG, "wrong_claim and client"
    ),
    "the end of an ID token": Cut(
        PROVIDER,
        "if expires_at is None or now >= expires_at + SKEW_S:",
        "if False:",
        WRONG,
        "wrong_claim and (expired or end)",
    ),
    "the beginning of an ID token": Cut(
        PROVIDER,
        "if since is not None and since > now + SKEW_S:",
        "if False:",
        WRONG,
        "wrong_claim and tomorrow",
    ),
    "the signature of an ID token": Cut(
        PROVIDER,
        "            verify_with_any(signed, usable, self.algorithms, self.issuer)\n",
        "",
        WRONG,
        "signed or signature",
    ),
    "the kind of a JWT": Cut(
        PROVIDER,
        'if not isinstance(kind, str) or kind.lower() not in ("jwt", "application/jwt"):',
        "if False:",
        WRONG,
        "not_taken_for_an_id_token",
    ),
    "the user of a refreshed login": Cut(
        PROVIDER,
        'raise self._refused(OTHER_USER, "it refreshed the login of one user with another\'s")',
        "pass",
        WRONG,
        "same_user",
    ),
    "claims that are required": Cut(
        PROVIDER, "        self._check_required(claims)\n", "", EACH, "hosted_domain or cognito"
    ),
    "a subject that can be used": Cut(
        PROVIDER,
        "if not isinstance(value, str) or not value or not value.isprintable():",
        "if False:",
        WRONG,
        "usable_subject",
    ),
    "parts of a subject": Cut(
        PROVIDER, 'any("/" in one for one in parts[:-1])', "False", WRONG, "parts_of_a_subject"
    ),
    "secrets in an error": Cut(
        PROVIDER,
        "return printable_text(error, secrets), printable_text(description, secrets)",
        "return printable_text(error), printable_text(description)",
        WRONG,
        "quotes",
    ),
    "a client that is refused": Cut(
        PROVIDER,
        "if error in _CONFIGURATION_ERRORS or (status == 401 and not error):",
        "if False:",
        EACH,
        "wrong_client_secret",
    ),
    "a provider that is down": Cut(
        PROVIDER,
        "if status >= 500 or status in _TEMPORARY_STATUSES or error in _TEMPORARY_ERRORS:",
        "if False:",
        WRONG,
        "down_or_busy or passes",
    ),
    "where a browser is sent": Cut(
        PROVIDER,
        'require_https(endpoint, f"the authorization_endpoint of {self.name}")',
        "pass",
        WRONG,
        "https_only",
    ),
    "a size": Cut(PROVIDER, "max_bytes=MAX_RESPONSE_BYTES", "max_bytes=10**9", WRONG, "too_large"),
    "the bot of Slack": Cut(
        PROVIDER,
        "            found = response.get(self.token_member)\n",
        "            found = response\n",
        EACH,
        "bot_token",
    ),
    "one revocation for all": Cut(
        PROVIDER,
        "        if self.revokes_every_login:\n",
        "        if False:\n",
        EACH,
        "every_login",
    ),
    "the inside": Cut(
        PROVIDER,
        'here = is_loopback_host(urlsplit(self.issuer).hostname or "")',
        "here = True",
        WRONG,
        "to_the_inside",
    ),
    "a consent for a refresh token": Cut(
        PRESETS, '            "prompt": "consent",\n', "", EACH, "google_issues"
    ),
    "issuer: PKCE": Cut(
        ISSUER,
        'if not fits_challenge(form.get("code_verifier"), issued.challenge):',
        "if False:",
        LOGIN,
        "bound_to_its_login",
    ),
    "issuer: a code is used once": Cut(
        ISSUER,
        'self._codes.pop(form.get("code"), None)',
        'self._codes.get(form.get("code"))',
        LOGIN,
        "used_once_soon",
    ),
    "issuer: a redirect URI": Cut(
        ISSUER,
        "if not any(same_redirect(one, redirect) for one in client.redirect_uris):",
        "if False:",
        LOGIN,
        "not_registered",
    ),
    "issuer: a refresh token is used once": Cut(
        ISSUER, "        known.used = True\n", "", LOGIN, "twice_ends"
    ),
    "issuer: the document of a client": Cut(
        "auth/server/client_metadata.py",
        'if stated.get("client_id") != client_id:',
        "if False:",
        LOGIN,
        "not_about_this_client",
    ),
    "issuer: this machine only": Cut(
        ISSUER,
        'not is_loopback_host(parts.hostname or "") or parts.path:',
        "parts.path:",
        LOGIN,
        "another_host",
    ),
    "issuer: the users": Cut(ISSUER, "if user not in self.users:", "if False:", LOGIN, "button"),
}


def test_each_cut_is_one_place_of_the_source_and_leaves_python() -> None:
    for name, cut in CUTS.items():
        source = (ROOT / "src/colonnade" / cut.file).read_text("utf-8")
        assert source.count(cut.old) == 1, f"{name}: {cut.file} has not one of {cut.old!r}"
        compile(source.replace(cut.old, cut.new), cut.file, "exec")
        assert (ROOT / "tests/auth" / cut.tests).is_file(), f"{name}: no {cut.tests}"


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
