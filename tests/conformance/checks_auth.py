"""What is in each scenario of authorization: how often each check must succeed.

Rules: data only. A number is what a client does that does everything, once; more is no fault.
"""

from collections.abc import Mapping

# Of extensions, which are in no revision's list.
EXTENSIONS = (
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
)
# Of the one revision that finds its authorization server in another way.
BACK_COMPATIBLE = "2025-03-26"
OLDER = (
    f"auth/{BACK_COMPATIBLE}-oauth-metadata-backcompat",
    f"auth/{BACK_COMPATIBLE}-oauth-endpoint-fallback",
)

_FOUND = ("prm-pathbased-requested", "authorization-server-metadata")
_REGISTERED = ("client-registration",)
_SENT = ("authorization-request", "pkce-code-challenge-sent", "pkce-s256-method-used")
_GIVEN = ("token-request", "pkce-code-verifier-sent", "pkce-verifier-matches-challenge")
_RESOURCE = tuple(
    f"resource-parameter-{kind}"
    for kind in ("in-authorization", "in-token", "valid-uri", "consistency", "matches-prm")
)
_KIND = ("sep-837-application-type-present",)
_SHOWN = {"valid-bearer-token": 3}
_DOCUMENTED = (*_FOUND, *_SENT, *_GIVEN)
_WHOLE = (*_FOUND, *_REGISTERED, *_SENT, *_GIVEN)
_ANSWERED = (*_FOUND, *_REGISTERED, *_KIND, *_SENT)
_PROVEN = tuple(
    f"sep-1932-client-{kind}" for kind in ("token-request-proof", "dpop-auth-scheme", "fresh-proof")
)
_ISSUER = "sep-2468-client-"


def _once(*ids: str) -> dict[str, int]:
    return dict.fromkeys(ids, 1)


def _twice(*ids: str) -> dict[str, int]:
    return dict.fromkeys(ids, 2)


AUTH_CHECKS: Mapping[str, Mapping[str, int]] = {
    **{
        f"auth/metadata-{one}": _once(*_WHOLE, *_RESOURCE) | _SHOWN
        for one in ("default", "var1", "var2", "var3")
    },
    "auth/basic-cimd": _once(*_DOCUMENTED, "cimd-client-id-used") | _SHOWN,
    **{
        f"auth/scope-{one}": _once(*_WHOLE, f"scope-{one}") | _SHOWN
        for one in ("from-www-authenticate", "from-scopes-supported", "omitted-when-undefined")
    },
    "auth/scope-step-up": _twice(*_FOUND, *_SENT, *_GIVEN)
    | _once(*_REGISTERED, "scope-step-up-initial", "scope-step-up-escalation")
    | {"valid-bearer-token": 4},
    "auth/scope-retry-limit": _once(*_WHOLE, "scope-retry-limit"),
    **{
        f"auth/token-endpoint-auth-{one}": _once(*_WHOLE, "token-endpoint-auth-method", *_RESOURCE)
        | _SHOWN
        for one in ("basic", "post", "none")
    },
    "auth/pre-registration": _once(*_DOCUMENTED, "pre-registration-auth") | _SHOWN,
    "auth/resource-mismatch": _once("prm-pathbased-requested", "resource-mismatch-rejected"),
    "auth/offline-access-scope": _once(*_DOCUMENTED, "sep-2207-offline-access-requested") | _SHOWN,
    "auth/offline-access-not-supported": _once(
        *_WHOLE, *_KIND, "sep-2207-offline-access-not-requested"
    )
    | _SHOWN,
    "auth/authorization-server-migration": _twice(*_WHOLE, *_KIND)
    | _once(
        "sep-2352-reregister-on-as-change",
        "sep-2352-no-reuse-on-as-change",
        "sep-2352-no-cross-as-credential-reuse",
    )
    | {"valid-bearer-token": 4},
    "auth/iss-supported": _once(*_WHOLE, *_KIND, f"{_ISSUER}compare-iss-supported") | _SHOWN,
    "auth/iss-not-advertised": _once(*_WHOLE, *_KIND, f"{_ISSUER}proceed-no-iss") | _SHOWN,
    "auth/iss-supported-missing": _once(*_ANSWERED, f"{_ISSUER}reject-missing-iss"),
    "auth/iss-wrong-issuer": _once(*_ANSWERED, f"{_ISSUER}compare-iss-supported"),
    "auth/iss-unexpected": _once(*_ANSWERED, f"{_ISSUER}compare-iss-unadvertised"),
    "auth/iss-normalized": _once(*_ANSWERED, f"{_ISSUER}no-normalization"),
    "auth/metadata-issuer-mismatch": _once(*_FOUND, f"{_ISSUER}validate-metadata-issuer"),
    "auth/client-credentials-jwt": _once(
        *_FOUND, "token-request", "client-credentials-jwt-verified"
    )
    | _SHOWN,
    "auth/client-credentials-basic": _once(
        *_FOUND, "token-request", "client-credentials-basic-auth"
    )
    | _SHOWN,
    "auth/enterprise-managed-authorization": _once(
        *_FOUND, "token-request", "complete-flow-token-exchange", "complete-flow-jwt-bearer"
    )
    | _SHOWN,
    "auth/dpop": _once(*_WHOLE, *_PROVEN),
    "auth/dpop-nonce": _once(
        *_WHOLE, *_PROVEN, "sep-1932-client-as-nonce", "sep-1932-client-rs-nonce"
    ),
    "auth/wif-jwt-bearer": _once(*_FOUND, "token-request", "wif-assertion-verified") | _SHOWN,
    OLDER[0]: _once("authorization-server-metadata", *_REGISTERED, *_SENT, *_GIVEN)
    | {"valid-bearer-token": 4},
    OLDER[1]: _once(*_REGISTERED, "authorization-request", "token-request")
    | {"valid-bearer-token": 4},
}
