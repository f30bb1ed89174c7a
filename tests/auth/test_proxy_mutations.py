"""Every check of the authorization proxy is needed: with any of them taken out, a test fails."""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

PROXY = "auth/server/proxy"
ATTACKS = "server/proxy/test_attacks.py"
DOCUMENTS = "server/proxy/test_documents.py"
FLOW = "server/proxy/test_flow.py"

CUTS: dict[str, Cut] = {
    "consent for each client": Cut(
        f"{PROXY}/authorize.py",
        "        details.client_id,\n        details.redirect_uri,\n        *details.scopes,",
        "        *details.scopes,",
        ATTACKS,
        "only_after_the_user_approved or approval_is_remembered",
    ),
    "consent before the provider": Cut(
        f"{PROXY}/consent.py",
        'if approved_for and "consent" not in verified.prompt:',
        "if True:",
        ATTACKS,
        "only_after_the_user_approved",
    ),
    "approval of the redirect": Cut(
        f"{PROXY}/authorize.py",
        "        details.redirect_uri,\n        *details.scopes,",
        "        *details.scopes,",
        ATTACKS,
        "approval_is_remembered",
    ),
    "approval of the scopes": Cut(
        f"{PROXY}/authorize.py",
        "        details.redirect_uri,\n        *details.scopes,",
        "        details.redirect_uri,",
        ATTACKS,
        "approval_is_remembered",
    ),
    "approval of the user": Cut(
        f"{PROXY}/callback.py",
        "if login.approved_for and login.approved_for != user.subject:",
        "if False:",
        ATTACKS,
        "approval_is_remembered",
    ),
    "approval on a loopback port": Cut(
        f"{PROXY}/authorize.py",
        "return not (client.document and is_loopback_redirect(redirect_uri))",
        "return True",
        DOCUMENTS,
        "asked_for_each_time",
    ),
    "form of this browser": Cut(
        f"{PROXY}/consent.py",
        "if asked is None or not session or asked.session != digest(session):",
        "if asked is None:",
        ATTACKS,
        "decision_needs_the_form",
    ),
    "form of this origin": Cut(
        f"{PROXY}/consent.py",
        "(origin and origin != context.settings.origin) or",
        "",
        ATTACKS,
        "decision_needs_the_form",
    ),
    "form of this site": Cut(
        f"{PROXY}/consent.py",
        'or site != b"same-origin":',
        "or False:",
        ATTACKS,
        "decision_needs_the_form",
    ),
    "form once": Cut(
        f"{PROXY}/consent.py",
        'if not await context.storage.use_once("consent", asked.id, MARK_S):',
        "if False:",
        ATTACKS,
        "decision_needs_the_form",
    ),
    "form for minutes": Cut(
        f"{PROXY}/consent.py",
        "if context.now >= asked.expires_at:",
        "if False:",
        ATTACKS,
        "decision_needs_the_form",
    ),
    "framing": Cut(
        f"{PROXY}/consent.py", "frame-ancestors 'none'; ", "", ATTACKS, "cannot_be_framed"
    ),
    "names are escaped": Cut(
        f"{PROXY}/consent.py",
        'rows = [("Application", f"<bdi>{escape(name)}</bdi>")]',
        'rows = [("Application", f"<bdi>{name}</bdi>")]',
        ATTACKS,
        "never_runs_it",
    ),
    "invisible characters": Cut(
        f"{PROXY}/registration.py",
        "cut(clean(name[:MAX_NAME_CHARACTERS]), MAX_NAME_CHARACTERS)",
        "cut(name[:MAX_NAME_CHARACTERS], MAX_NAME_CHARACTERS)",
        ATTACKS,
        "never_runs_it",
    ),
    "loopback warning": Cut(
        f"{PROXY}/consent.py",
        "    if is_loopback_redirect(details.redirect_uri):",
        "    if False:",
        ATTACKS,
        "page_warns",
    ),
    "cookie prefix": Cut(
        f"{PROXY}/context.py",
        'return name if self.is_local else f"__Host-{name}"',
        "return name",
        ATTACKS,
        "guarded_cookies",
    ),
    "cookie attributes": Cut(
        f"{PROXY}/responses.py", " HttpOnly; SameSite=Lax", "", ATTACKS, "guarded_cookies"
    ),
    "registered redirect": Cut(
        f"{PROXY}/authorize.py",
        "    if uri is None:\n",
        "    uri = uri or fields.get('redirect_uri')\n    if not uri:\n",
        ATTACKS,
        "registered_one",
    ),
    "whole redirect": Cut(
        f"{PROXY}/registration.py",
        "    if registered == uri:\n",
        "    if uri.startswith(registered):\n",
        ATTACKS,
        "registered_one",
    ),
    "loopback path": Cut(
        f"{PROXY}/registration.py",
        "return (one[1], one[3]) == (other[1], other[3])",
        "return one[1] == other[1]",
        ATTACKS,
        "port_of_a_loopback",
    ),
    "redirect at registration": Cut(
        f"{PROXY}/registration.py",
        'if parts.scheme == "http" and is_loopback_host(host):',
        "if True:",
        ATTACKS,
        "neither_https",
    ),
    "PKCE required": Cut(
        f"{PROXY}/authorize.py",
        'if fields.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):',
        "if False:",
        ATTACKS,
        "verified_redirect",
    ),
    "PKCE checked": Cut(
        f"{PROXY}/grants.py",
        "        or not hmac.compare_digest(code_challenge(verifier), issued.challenge)\n",
        "",
        ATTACKS,
        "good_once_for_its_client",
    ),
    "client of a code": Cut(
        f"{PROXY}/grants.py",
        "        issued.client_id != client_id\n        or ",
        "        ",
        ATTACKS,
        "good_once_for_its_client",
    ),
    "redirect of a code": Cut(
        f"{PROXY}/grants.py",
        "        or issued.redirect_uri != redirect_uri\n",
        "",
        ATTACKS,
        "good_once_for_its_client",
    ),
    "code for a minute": Cut(
        f"{PROXY}/grants.py",
        "        or now >= issued.valid_until\n",
        "",
        ATTACKS,
        "good_once_for_its_client",
    ),
    "code once": Cut(
        f"{PROXY}/grants.py",
        "    if not first:\n",
        "    if False:\n",
        ATTACKS,
        "used_twice",
    ),
    "code replay ends the grant": Cut(
        f"{PROXY}/grants.py",
        'its grant has ended")\n        await end_grant(context, issued.grant_id)\n',
        'its grant has ended")\n',
        ATTACKS,
        "used_twice",
    ),
    "resource": Cut(
        f"{PROXY}/authorize.py",
        'if normalize_resource(resource).rstrip("/") != ours:',
        "if False:",
        ATTACKS,
        "verified_redirect or good_once_for_its_client",
    ),
    "state of this browser": Cut(
        f"{PROXY}/callback.py",
        "if not hmac.compare_digest(digest(browser), found.value.browser):",
        "if False:",
        ATTACKS,
        "in_its_own_browser",
    ),
    "state once": Cut(
        f"{PROXY}/callback.py",
        'if not await context.storage.swap("state", state, found.raw, None):',
        "if False:",
        ATTACKS,
        "in_its_own_browser",
    ),
    "state for minutes": Cut(
        f"{PROXY}/records.py",
        "found.value is None or found.value.expires_at <= self._now:",
        "found.value is None:",
        FLOW,
        "not_used_ends",
    ),
    "mix-up": Cut(
        f"{PROXY}/callback.py",
        "if named and not any(same_issuer(named, one) for one in expected):",
        "if False:",
        ATTACKS,
        "another_provider",
    ),
    "refresh reuse": Cut(
        f"{PROXY}/grants.py",
        'it was replaced; its grant has ended")\n            await end_grant(context, grant.id)\n',
        'it was replaced; its grant has ended")\n',
        ATTACKS,
        "was_replaced",
    ),
    "refresh confirmation": Cut(
        f"{PROXY}/grants.py",
        "== grant.generation - 1 and not grant.confirmed:",
        "== grant.generation - 1:",
        ATTACKS,
        "was_replaced",
    ),
    "client of a refresh token": Cut(
        f"{PROXY}/token.py",
        "    if found is None or found.value.client_id != client_id:\n        raise invalid_grant()\n    if found.value.dpop",
        "    if found is None:\n        raise invalid_grant()\n    client_id = found.value.client_id\n    if found.value.dpop",
        ATTACKS,
        "another_client",
    ),
    "client of a revoked token": Cut(
        f"{PROXY}/token.py",
        "        if found.value.client_id != client_id:\n",
        "        if False:\n",
        ATTACKS,
        "another_client",
    ),
    "scope of a refresh": Cut(
        f"{PROXY}/token.py",
        "if not set(asked) <= set(found.value.scopes):",
        "if False:",
        ATTACKS,
        "another_client",
    ),
    "key of a code": Cut(
        f"{PROXY}/grants.py",
        '        or issued.dpop_key not in ("", dpop_key)\n',
        "",
        ATTACKS,
        "bound_to_a_key",
    ),
    "key of a refresh token": Cut(
        f"{PROXY}/token.py",
        "    if found.value.dpop_key != dpop_key:",
        "    if False:",
        ATTACKS,
        "bound_to_a_key",
    ),
    "key of an access token": Cut(
        f"{PROXY}/access_tokens.py",
        "        grant.dpop_key,\n",
        "",
        ATTACKS,
        "bound_to_a_key",
    ),
    "proof once": Cut(
        f"{PROXY}/token.py",
        'if not await context.storage.use_once("dpop", name, 2 * MAX_PROOF_AGE_S):',
        "if False:",
        ATTACKS,
        "bound_to_a_key",
    ),
    "client secret": Cut(
        f"{PROXY}/registration.py",
        "if expected and not hmac.compare_digest(digest(secret), expected):",
        "if False:",
        ATTACKS,
        "proves_its_secret",
    ),
    "audience": Cut(
        f"{PROXY}/access_tokens.py",
        'if claims.get("aud") != settings.resource:',
        "if False:",
        ATTACKS,
        "token_of_another_server",
    ),
    "expiry": Cut(
        f"{PROXY}/access_tokens.py",
        'if context.now >= cast("int", claims["exp"]):',
        "if False:",
        FLOW,
        "for_minutes",
    ),
    "login at the provider": Cut(
        f"{PROXY}/access_tokens.py",
        "        await ensure_upstream(context, grant)\n",
        "        pass\n",
        FLOW,
        "provider_ends",
    ),
    "one refresh for all": Cut(
        f"{PROXY}/grants.py",
        'mine = await storage.claim("lease", grant.id, owner, LEASE_S)\n    if not mine and wait:',
        "mine = True\n    if not mine and wait:",
        FLOW,
        "two_processes",
    ),
    "sealed records": Cut(
        f"{PROXY}/records.py",
        "sealed = self._seal.encrypt(msgspec.json.encode(after), key.encode())",
        "sealed = msgspec.json.encode(after)",
        FLOW,
        "sealed_in_the_store",
    ),
    "introspection credentials": Cut(
        f"{PROXY}/token.py",
        "if not hmac.compare_digest(digest(*given), digest(*expected)):",
        "if False:",
        FLOW,
        "introspection",
    ),
    "document of this client": Cut(
        f"{PROXY}/registration.py",
        'if not problem and stated.get("client_id") != client_id:',
        "if False:",
        DOCUMENTS,
        "not_right",
    ),
    "document without redirect": Cut(
        f"{PROXY}/registration.py",
        "if fetched.status != OK or fetched.url != client_id:",
        "if fetched.status >= 300:",
        DOCUMENTS,
        "not_right",
    ),
    "document URL": Cut(
        f"{PROXY}/registration.py",
        "    check_document_url(client_id, local=context.settings.is_loopback)\n",
        "",
        DOCUMENTS,
        "private_place",
    ),
    "document cache": Cut(
        f"{PROXY}/registration.py",
        "found.value.expires_at > context.now:\n        return found.value",
        "found.value.expires_at > 0:\n        return found.value",
        DOCUMENTS,
        "cached_as",
    ),
    "registrations are bounded": Cut(
        f"{PROXY}/registration.py",
        "if count > context.settings.max_registrations_per_hour:",
        "if False:",
        ATTACKS,
        "bounded",
    ),
    "foreign host": Cut(
        "protocol/http/security.py",
        "        check_host(headers, self.policy)\n",
        "",
        ATTACKS,
        "browser_clients",
    ),
}


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
