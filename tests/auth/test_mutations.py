"""Every check is needed: with any one of them taken out, a test that names its case fails.

The package is copied, one line of the copy is changed, and the tests that should notice are run on
it. A line that is no longer there fails, too: then look whether its check still is.
"""

from pathlib import Path

import pytest

from auth.cutting import Cut, check_missed

FETCH, DENIED = "test_ssrf.py", "test_ssrf_denied.py"
TOKENS, PROOFS, KEYS = "client/test_tokens.py", "server/test_dpop.py", "server/test_jwks.py"
DOOR, APART = "server/test_protection.py", "server/test_isolation.py"

CUTS: dict[str, Cut] = {
    # SF-02 to SF-07
    "SF-02 address": Cut(
        "auth/ssrf.py",
        'in network), "")\n    if address not in _GLOBAL_UNICAST',
        "in network and reason == 'x'), \"\")\n    if address not in _GLOBAL_UNICAST",
        DENIED,
        "leads_to_a_denied",
    ),
    "SF-02 IPv6": Cut(
        "auth/ssrf.py",
        "    if address not in _GLOBAL_UNICAST:",
        "    if False:",
        DENIED,
        "leads_to_a_denied",
    ),
    "SF-02 ISATAP": Cut(
        "auth/ssrf.py", 'return "ISATAP"', 'return ""', DENIED, "leads_to_a_denied"
    ),
    "SF-02 every address": Cut(
        "auth/ssrf.py",
        "for one in found:\n            if here",
        "for one in found[:1]:\n            if here",
        DENIED,
        "leads_to_a_denied",
    ),
    "SF-02 localhost elsewhere": Cut(
        "auth/ssrf.py",
        "if here and not is_loopback_address(one):",
        "if False:",
        FETCH,
        "localhost_that",
    ),
    "SF-03 credentials": Cut(
        "auth/ssrf.py", 'if "@" in parts.netloc:', "if False:", FETCH, "by_what_it_says"
    ),
    "SF-03 numbers": Cut(
        "auth/ssrf.py",
        "if address is None and not _HOST_NAME.fullmatch(host):",
        "if False:",
        FETCH,
        "by_what_it_says",
    ),
    "SF-03 scheme": Cut(
        "auth/ssrf.py",
        'if parts.scheme != "https" and not (',
        "if False and not (",
        FETCH,
        "by_what_it_says",
    ),
    "SF-04 connected address": Cut(
        "auth/ssrf.py", "body, address=address)", "body)", DENIED, "dns_that_changes"
    ),
    "SF-05 origin": Cut(
        "auth/ssrf.py", "if _origin(parts) != _origin(first):", "if False:", FETCH, "plain_http"
    ),
    "SF-05 hops": Cut(
        "auth/ssrf.py", "range(MAX_REDIRECTS + 1)", "range(9)", FETCH, "redirects_within"
    ),
    "SF-05 what is sent": Cut(
        "auth/ssrf.py",
        "if method not in _SAFE_METHODS or not redirects:",
        "if not redirects:",
        FETCH,
        "redirects_within",
    ),
    "SF-06 same words": Cut(
        "auth/ssrf.py",
        'cannot be fetched", why)',
        'cannot be fetched: {why}", why)',
        FETCH,
        "same_words",
    ),
    "SF-07 proxy": Cut(
        "transport/http_client/pool.py",
        "origin = (scheme, target.address, port)",
        "origin = (scheme, target.host, port)",
        FETCH,
        "proxy",
    ),
    "CL-11 size": Cut(
        "auth/ssrf.py",
        "answer.read_all(limit)",
        "answer.read_all(10**9)",
        FETCH,
        "beyond_its_limit",
    ),
    # RS-03, RS-05, RS-14: claims
    "RS-03 exp": Cut(
        "auth/server/verifier.py",
        "if expires_at is None or now >= expires_at + self._skew_s:",
        "if False:",
        TOKENS,
        "claims and (expired or no-end)",
    ),
    "RS-03 nbf": Cut(
        "auth/server/verifier.py",
        "if since is not None and since > now + self._skew_s:",
        "if False:",
        TOKENS,
        "claims and (yet or tomorrow)",
    ),
    "RS-03 iss": Cut(
        "auth/server/jwt.py",
        'signed is not None and same_issuer(signed.claims.get("iss"), self.issuer)',
        "signed is not None",
        TOKENS,
        "each_issuer",
    ),
    "RS-03 who signs for whom": Cut(
        "auth/server/verifier.py",
        "principal = self.issuer + _subject(claims)",
        "principal = _subject(claims)",
        TOKENS,
        "each_issuer",
    ),
    "RS-03 static tokens of one principal": Cut(
        "auth/server/verifier.py",
        "if isinstance(value, tuple | list) else ()",
        "",
        DOOR,
        "static_tokens_of_another_shape",
    ),
    "RS-03 a subject that cannot be used": Cut(
        "auth/server/verifier.py",
        '("sub", "#") if "sub" in claims else',
        '("sub", "#") if isinstance(claims.get("sub"), str) and claims["sub"] else',
        TOKENS,
        "never_becomes_its_client",
    ),
    "RS-03 a subject that is too long": Cut(
        "auth/server/verifier.py",
        "if not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS:",
        "if not subject:",
        TOKENS,
        "never_becomes_its_client",
    ),
    "RS-03 a client is no user": Cut(
        "auth/server/verifier.py",
        'else ("client_id", " client ")',
        'else ("client_id", "#")',
        TOKENS,
        "whose_subject_equals",
    ),
    "RS-05 aud": Cut(
        "auth/server/verifier.py",
        'raise InvalidToken("the token is not for this server", detail)',
        "pass",
        TOKENS,
        "claims and audience",
    ),
    "RS-05 look-alikes": Cut(
        "auth/server/verifier.py",
        "return audience == resource or",
        "return audience.startswith(resource) or",
        TOKENS,
        "claims and behind",
    ),
    "RS-14 typ": Cut(
        "auth/server/jwt.py",
        "kind.lower() not in _TYPES:",
        "False:",
        TOKENS,
        "forged and (proof or grant or logout)",
    ),
    "RS-14 kind": Cut(
        "auth/server/verifier.py",
        "        _check_token_type(claims)\n",
        "",
        TOKENS,
        "claims and (ID or refresh or logout)",
    ),
    "RS-14 binding": Cut(
        "auth/server/verifier.py",
        'raise InvalidToken("the token is bound by an unsupported confirmation method")',
        'return ""',
        TOKENS,
        "claims and bound",
    ),
    "RS-14 algorithms": Cut(
        "auth/jose.py", "if algorithm not in allowed or", "if", TOKENS, "other_algorithms"
    ),
    "RS-14 crit": Cut(
        "auth/jose.py", 'if "crit" in header:', "if False:", TOKENS, "forged and critical"
    ),
    "RS-14 key and algorithm": Cut(
        "auth/jose.py",
        "if wanted is None or (self.type, self.curve) != wanted[:2]:",
        "if wanted is None:",
        TOKENS,
        "forged and family",
    ),
    "RS-14 signature": Cut(
        "auth/jose.py",
        "        _verify_with(signed, key, algorithm)\n",
        "        pass\n",
        TOKENS,
        "forged and (stranger or altered or zeros)",
    ),
    "RS-14 one member once": Cut(
        "auth/jose.py", "if len(found) != len(pairs):", "if False:", TOKENS, "forged and twice"
    ),
    "RS-14 one spelling": Cut(
        "auth/jose.py",
        "if base64url_encode(data) != text:",
        "if False:",
        TOKENS,
        "forged and spelled",
    ),
    "RS-14 size": Cut(
        "auth/jose.py",
        "if len(text) <= MAX_TOKEN_CHARACTERS else None",
        "if True else None",
        TOKENS,
        "not_even_decoded",
    ),
    "RS-14 small keys": Cut(
        "auth/jose.py",
        "if not MIN_RSA_BITS <= n.bit_length() <= MAX_RSA_BITS or",
        "if",
        KEYS,
        "passed_over",
    ),
    "RS-14 published secrets": Cut(
        "auth/jose.py", 'if jwk.keys() & {"d", "k", "p", "q"}:', "if False:", PROOFS, "private"
    ),
    # RS-15
    "RS-15 once for all": Cut(
        "auth/server/jwt.py",
        "                    if self._is_due(key_id, now):\n",
        "                    if True:\n",
        KEYS,
        "once_for_all",
    ),
    "RS-15 so often": Cut(
        "auth/server/jwt.py",
        "and now - self._loaded_at > UNKNOWN_KEY_RETRY_S",
        "",
        KEYS,
        "only_so_often",
    ),
    "RS-15 stale": Cut(
        "auth/server/jwt.py",
        "self._loaded_at is not None and now - self._loaded_at <= STALE_S",
        "self._loaded_at is not None",
        KEYS,
        "then_no_more",
    ),
    "RS-15 taken back": Cut(
        "auth/server/jwt.py", "or now - self._loaded_at > FRESH_S", "", KEYS, "forgotten"
    ),
    "CL-05 issuer of a document": Cut(
        "auth/server/verifier.py",
        'if same_issuer(found.get("issuer"), self._issuer):',
        "if True:",
        KEYS,
        "another_issuer",
    ),
    # RS-16
    "RS-16 active": Cut(
        "auth/server/verifier.py",
        'if claims.get("active") is not True:',
        "if False:",
        TOKENS,
        "issuer_says",
    ),
    "RS-16 issuer said": Cut(
        "auth/server/verifier.py",
        'if not same_issuer(claims.get("iss", self.issuer), self.issuer):',
        "if False:",
        TOKENS,
        "issuer_says",
    ),
    "RS-16 taken back": Cut(
        "auth/server/verifier.py",
        "cache_ttl_s: float = 20.0",
        "cache_ttl_s: float = 600.0",
        TOKENS,
        "taken_back",
    ),
    "RS-16 beyond its end": Cut(
        "auth/server/protection.py",
        "until = min(until, verified.expires_at)",
        "pass",
        TOKENS,
        "beyond_its_end",
    ),
    "RS-16 by digest": Cut(
        "auth/server/protection.py",
        "digest = hashlib.sha256(token.encode()).digest()",
        "digest = token.encode()",
        TOKENS,
        "kept_or_logged",
    ),
    # RS-01 to RS-13
    "RS-01 no token": Cut(
        "transport/http_server/app.py",
        "self.is_guarded: bool = guard is not None or",
        "self.is_guarded: bool = False and guard is not None or",
        DOOR,
        "where_to_get_one",
    ),
    "RS-02 document": Cut(
        "auth/server/protection.py",
        '"resource": self.resource,',
        '"resource": self.resource + "/",',
        DOOR,
        "both_well_known",
    ),
    "RS-06 passed on": Cut(
        "transport/http_server/authentication.py",
        '_SECRET = (b"authorization", b"dpop")',
        "_SECRET = ()",
        TOKENS,
        "work_for_its_bearer",
    ),
    "RS-07 streams": Cut(
        "transport/http_server/request.py",
        "if incoming.ends_at and now >= incoming.ends_at:",
        "if False:",
        APART,
        "stream_for_news",
    ),
    "RS-09 needed for all": Cut(
        "auth/server/protection.py",
        "if not scopes.issuperset(self.scopes):",
        "if False:",
        DOOR,
        "refused_for_everything",
    ),
    "RS-09 all at once": Cut(
        "auth/server/protection.py",
        "scopes = sorted({*needed, *self.scopes})",
        "scopes = sorted(needed)[:1]",
        DOOR,
        "all_of_them",
    ),
    "RS-09 status": Cut(
        "server/auth.py", "if not wanted <= granted:", "if False:", DOOR, "all_of_them"
    ),
    "RS-10 implied": Cut(
        "auth/server/protection.py",
        "waiting += self._implies.get(scope, ())",
        "pass",
        DOOR,
        "broader",
    ),
    "RS-11 offline_access": Cut(
        "auth/server/protection.py",
        'if "offline_access" in listed:',
        "if False:",
        DOOR,
        "offline_access",
    ),
    "RS-12 no error": Cut(
        "auth/server/protection.py",
        "headers=self._challenge_headers(request)\n",
        'headers=self._challenge_headers(request, "invalid_token")\n',
        DOOR,
        "where_to_get_one",
    ),
    "RS-13 the list": Cut(
        "server/dispatch.py",
        "(granted is None or entry.scopes <= granted)",
        "True",
        DOOR,
        "lists_show",
    ),
    "RS-13 other ways": Cut(
        "server/registry.py", "        if lacking:\n", "        if False:\n", DOOR, "completion"
    ),
    "RQ-04 session": Cut(
        "transport/http_server/sessions/registry.py",
        "if session.link.principal != principal:",
        "if False:",
        APART,
        "does_not_exist",
    ),
    "RQ-04 requestState": Cut(
        "protocol/input_rounds.py",
        "bound = (opened.principal,",
        "bound = (principal,",
        APART,
        "request_state",
    ),
    # RFC 9449
    "DPoP downgrade": Cut(
        "auth/server/protection.py",
        "if scheme != DPOP:\n            raise InvalidToken",
        "if scheme != DPOP:\n            return\n            raise InvalidToken",
        PROOFS,
        "no_bearer",
    ),
    "DPoP key": Cut(
        "auth/server/protection.py",
        "if proof.thumbprint != verified.dpop_thumbprint:",
        "if False:",
        PROOFS,
        "another",
    ),
    "DPoP once": Cut(
        "auth/server/protection.py",
        "        await _mark_proof_used(proof, verified.principal, context.store, now)\n",
        "",
        PROOFS,
        "one_request",
    ),
    "DPoP once for all processes": Cut(
        "store/sqlite_schema.py",
        "            if row[0] > now:\n                return False\n            self._forget_marks(",
        "            self._forget_marks(",
        PROOFS,
        "all_processes",
    ),
    "DPoP once while it could be accepted": Cut(
        "auth/server/dpop.py",
        "ttl_s = self.at + MAX_PROOF_AGE_S - now + CLOCK_SKEW_S",
        "ttl_s = MAX_PROOF_AGE_S",
        PROOFS,
        "could_be_accepted",
    ),
    "DPoP a store that fails": Cut(
        "auth/server/protection.py",
        "        raise _unavailable() from None\n\n\ndef _challenge_header",
        "        return\n\n\ndef _challenge_header",
        PROOFS,
        "store_that_fails",
    ),
    "DPoP text that is none": Cut(
        "auth/jose.py",
        "if _SURROGATE_ESCAPE.search(text):",
        "if False:",
        PROOFS,
        "no_Unicode or Unicode",
    ),
    "DPoP nonce": Cut(
        "auth/server/protection.py",
        "DpopNonces(context.seal).check(proof.nonce, now)",
        "pass",
        PROOFS,
        "nonces",
    ),
    "DPoP nonce's purpose": Cut(
        "auth/server/dpop.py",
        "if start != _PURPOSE or len(stamp) != _TIME.size:",
        "if False:",
        PROOFS,
        "nonces",
    ),
    "DPoP required": Cut(
        "auth/server/protection.py",
        "            if self._dpop_required:\n                raise",
        "            if False:\n                raise",
        PROOFS,
        "required",
    ),
    "DPoP htm": Cut(
        "auth/server/dpop.py", 'if claims.get("htm") != method or', "if", PROOFS, "method"
    ),
    "DPoP htu": Cut(
        "auth/server/dpop.py",
        "or _normalize_url(htu) != _normalize_url(url):",
        ":",
        PROOFS,
        "place or server or port",
    ),
    "DPoP iat": Cut(
        "auth/server/dpop.py",
        "if not now - MAX_PROOF_AGE_S <= at <= now + MAX_PROOF_AGE_S:",
        "if False:",
        PROOFS,
        "yesterday or tomorrow",
    ),
    "DPoP ath": Cut(
        "auth/server/dpop.py",
        'if claims.get("ath") != base64url_encode(',
        "if False and base64url_encode(",
        PROOFS,
        "token",
    ),
    "DPoP typ": Cut(
        "auth/server/dpop.py",
        'if signed.header.get("typ") != PROOF_TYPE or key is None:',
        "if key is None:",
        PROOFS,
        "wrong_proof",
    ),
    "DPoP signature": Cut(
        "auth/server/dpop.py",
        "            verify_signature(signed, key, ALGORITHMS)\n",
        "",
        PROOFS,
        "unsigned or shows",
    ),
}


@pytest.mark.slow
@pytest.mark.battery
@pytest.mark.parametrize("name", CUTS)
def test_a_check_that_is_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    check_missed(CUTS[name], tmp_path)
