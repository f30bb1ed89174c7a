"""A small authorization server, true to the standards, in a process of its own.

    with issuing() as issuer:
        issuer.url, issuer.count("refresh_token"), issuer.tell("rotate")

OAuth 2.1 with PKCE (S256 alone), RFC 8414 metadata, RFC 7591 registration, RFC 8707 resources,
RFC 9207 `iss`, RFC 7009 revocation, RFC 7662 introspection; refresh tokens rotate, and one that is used twice ends its
family. Access tokens are JWTs (RFC 9068), their keys at a JWKS. Whoever proves a key gets tokens
that are bound to it (RFC 9449), and renews them with no other. Each user is logged in as `ann`, or
as the test says, and says yes. Token exchange (RFC 8693) and ID-JAG are granted for every JWT.

Rules: what is not exactly right is refused. What a test may know or change is below `/control`.
"""

import base64
import hashlib
import http.server
import json
import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from auth.bound_keys import BadProof, Proofs
from colonnade.auth.jose import SigningKey, generate_key

CODE_S = 60
# The longest that a test holds an answer back.
HELD_S = 30
ANY_PORT = "http://127.0.0.1/callback"


class Refused(Exception):
    """An OAuth error."""

    def __init__(self, error: str, words: str = "", status: int = 400, nonce: str = "") -> None:
        super().__init__(error)
        self.error, self.words, self.status, self.nonce = error, words, status, nonce


class IssuerState:
    """All that the issuer knows; one request at a time looks at it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        self.life_s = 3600.0
        self.subject = "ann"
        # Granted to the next users, whatever they ask for.
        self.scope: str | None = None
        # Each request: its method and path, its headers, and its body.
        self.seen: list[str] = []
        # Whether a token exchange returns the token that it got.
        self.echoes = False
        # Whether users say no; whether clients are registered no more; users whose tokens are not exchanged, and how that is said.
        self.denies = False
        self.is_closed = False
        self.broken = ""
        self.quoted = ""
        # Whether renewals are answered; whoever else would ask meanwhile does.
        self.answers = threading.Event()
        self.answers.set()
        self.clients: dict[str, dict[str, Any]] = {
            "robot": {"client_secret": "robot-secret", "redirect_uris": []},
            "shop": {"client_secret": "shop-secret", "redirect_uris": [ANY_PORT]},
            "public": {"client_secret": "", "redirect_uris": []},
        }
        self.codes: dict[str, dict[str, Any]] = {}
        self.refreshes: dict[str, dict[str, Any]] = {}
        self.revoked: set[str] = set()
        # What each access token says, and of which family it is.
        self.given: dict[str, tuple[dict[str, Any], str]] = {}
        self.counts: Counter[str] = Counter()
        self.proofs = Proofs()
        self.keys: list[SigningKey] = []
        self.rotate()

    def rotate(self) -> None:
        key = generate_key()
        key.key_id = secrets.token_hex(4)
        self.keys = [key]

    # ------------------------------------------------------------ endpoints

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "introspection_endpoint": f"{self.url}/introspect",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            "dpop_signing_alg_values_supported": ["ES256"],
            "scopes_supported": ["notes:read", "notes:write", "offline_access"],
        }

    def jwks(self) -> dict[str, Any]:
        return {
            "keys": [
                {**key.public_jwk, "kid": key.key_id, "use": "sig", "alg": "ES256"}
                for key in self.keys
            ]
        }

    def register(self, wanted: dict[str, Any]) -> dict[str, Any]:
        uris = wanted.get("redirect_uris") or []
        if not uris or wanted.get("application_type") != "native":
            raise Refused("invalid_client_metadata")
        if self.is_closed:
            raise Refused("invalid_client_metadata", "no new clients")
        if any(urlsplit(uri).hostname not in ("127.0.0.1", "localhost") for uri in uris):
            raise Refused("invalid_redirect_uri")
        id = secrets.token_urlsafe(8)
        self.clients[id] = {"redirect_uris": uris, "client_secret": ""}
        return {"client_id": id, "redirect_uris": uris, "token_endpoint_auth_method": "none"}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes next."""
        client = self.clients.get(asked.get("client_id", ""))
        uri = asked.get("redirect_uri", "")
        # RFC 8252, 7.3: on this machine any port will do.
        plain = uri.replace(f":{urlsplit(uri).port}/", "/")
        if client is None or not {uri, plain} & set(client["redirect_uris"]):
            raise Refused("invalid_request", "not a client's page")
        if asked.get("response_type") != "code" or asked.get("code_challenge_method") != "S256":
            raise Refused("invalid_request", "code and S256 alone")
        if len(asked.get("code_challenge", "")) != 43 or not asked.get("resource"):
            raise Refused("invalid_request", "a challenge and a resource are needed")
        if self.denies:
            denied = {"error": "access_denied", "state": asked.get("state", ""), "iss": self.url}
            return f"{uri}?{urlencode(denied)}"
        code = secrets.token_urlsafe(24)
        self.codes[code] = {**asked, "until": time.time() + CODE_S, "subject": self.subject}
        if self.scope is not None:
            self.codes[code]["scope"] = self.scope
        answer = {"code": code, "state": asked.get("state", ""), "iss": self.url}
        return f"{uri}?{urlencode(answer)}"

    def token(self, form: dict[str, str], authorization: str, proof: str) -> dict[str, Any]:
        client_id = self._client(form, authorization)
        key = self._key(proof)
        grant = form.get("grant_type", "")
        self.counts[grant] += 1
        if grant == "authorization_code":
            return self._code(form, client_id, key)
        if grant == "refresh_token":
            return self._refresh(form, client_id, key)
        if grant == "client_credentials" and self.clients[client_id]["client_secret"]:
            resource, scope = form.get("resource", ""), form.get("scope", "")
            return self._give(client_id, client_id, resource, scope, key=key)
        if grant.endswith(":token-exchange"):
            return self._exchange(form, client_id, key)
        if grant.endswith(":jwt-bearer"):
            who = claims_of(form["assertion"])["sub"]
            return self._give(who, client_id, form["resource"], form.get("scope", ""), key=key)
        raise Refused("unsupported_grant_type")

    def _exchange(self, form: dict[str, str], client_id: str, key: str) -> dict[str, Any]:
        subject = form["subject_token"]
        who, resource = claims_of(subject)["sub"], form["resource"]
        kind = form["requested_token_type"]
        if who == self.broken:
            raise Refused("server_error", status=500)
        if who == self.quoted:
            raise Refused("invalid_grant", f"cannot use '{subject}', that is {subject[:90]}...")
        if kind.endswith(":id-jag"):
            claims = {"iss": self.url, "sub": who, "aud": form["audience"], "resource": resource}
            grant = self.keys[0].sign({"typ": "oauth-id-jag+jwt"}, claims)
            return {"access_token": grant, "issued_token_type": kind, "token_type": "N_A"}
        given = self._give(who, client_id, resource, form.get("scope", ""), key=key)
        given |= {"access_token": subject} if self.echoes else {}
        return {**given, "issued_token_type": kind}

    def _key(self, proof: str) -> str:
        """The key that tokens are to be bound to; none where none is proven."""
        if not proof:
            return ""
        try:
            return self.proofs.check(proof, f"{self.url}/token")
        except BadProof as bad:
            if bad.nonce:
                self.counts["use_dpop_nonce"] += 1
                raise Refused("use_dpop_nonce", nonce=bad.nonce) from None
            raise Refused("invalid_dpop_proof", str(bad)) from None

    def _client(self, form: dict[str, str], authorization: str) -> str:
        id, secret = form.get("client_id", ""), ""
        if authorization.startswith("Basic "):
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            id, _, secret = (unquote_plus(part) for part in pair.partition(":"))
        client = self.clients.get(id)
        if client is None or not secrets.compare_digest(client["client_secret"], secret):
            raise Refused("invalid_client", status=401)
        return id

    def _code(self, form: dict[str, str], client_id: str, key: str) -> dict[str, Any]:
        code = self.codes.pop(form.get("code", ""), None)
        verifier = form.get("code_verifier", "")
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode()
        if (
            code is None
            or code["until"] < time.time()
            or code["client_id"] != client_id
            or code["redirect_uri"] != form.get("redirect_uri")
            or code["resource"] != form.get("resource")
            or code["code_challenge"] != challenge.rstrip("=")
            or code.get("dpop_jkt", key) != key
        ):
            raise Refused("invalid_grant")
        scope = code.get("scope", "")
        who = code["subject"]
        return self._give(who, client_id, code["resource"], scope, renewable=True, key=key)

    def _refresh(self, form: dict[str, str], client_id: str, key: str) -> dict[str, Any]:
        told = self.refreshes.get(form.get("refresh_token", ""))
        if told is None or told["client_id"] != client_id or told["family"] in self.revoked:
            raise Refused("invalid_grant")
        if told["key"] != key:  # RFC 9449, 5: a public client's is bound as its access token is
            self.counts["other key"] += 1
            raise Refused("invalid_grant", "bound to another key")
        if told["used"]:
            self.revoked.add(told["family"])
            self.counts["reused"] += 1
            raise Refused("invalid_grant", "used twice")
        if form.get("resource") != told["resource"]:
            raise Refused("invalid_target")
        told["used"] = True
        who, resource, scope = told["subject"], told["resource"], told["scope"]
        family = told["family"]
        return self._give(who, client_id, resource, scope, renewable=True, family=family, key=key)

    def _give(
        self,
        subject: str,
        client_id: str,
        resource: str,
        scope: str,
        *,
        renewable: bool = False,
        family: str = "",
        key: str = "",
    ) -> dict[str, Any]:
        now = time.time()
        claims: dict[str, Any] = {
            "iss": self.url,
            "sub": subject,
            "aud": resource,
            "client_id": client_id,
            "iat": int(now),
            "exp": int(now + self.life_s) + 1,
            "jti": secrets.token_hex(8),
            "scope": scope,
        }
        if key:
            claims["cnf"] = {"jkt": key}
        token = self.keys[0].sign({"typ": "at+jwt"}, claims)
        given = {
            "access_token": token,
            "token_type": "DPoP" if key else "Bearer",
            "expires_in": self.life_s,
            "scope": scope,
        }
        family = family or secrets.token_hex(8)
        self.given[token] = (claims, family)
        if renewable:
            refresh = secrets.token_urlsafe(24)
            self.refreshes[refresh] = {
                "client_id": client_id,
                "subject": subject,
                "resource": resource,
                "scope": scope,
                "used": False,
                "key": key,
                "family": family,
            }
            given["refresh_token"] = refresh
        return given

    def revoke(self, form: dict[str, str], authorization: str) -> None:
        self._client(form, authorization)
        self.counts["revoked"] += 1
        told = self.refreshes.get(form.get("token", ""))
        if told is not None:
            self.revoked.add(told["family"])

    def introspect(self, form: dict[str, str], authorization: str) -> dict[str, Any]:
        self._client(form, authorization)
        self.counts["introspected"] += 1
        claims, family = self.given.get(form.get("token", ""), ({}, ""))
        if not claims or family in self.revoked or claims["exp"] < time.time():
            return {"active": False}
        return {**claims, "active": True}

    def control(self, what: str, value: str) -> object:
        match what:
            case "counts":
                return {**self.counts, "keys": len(self.proofs.keys)}
            case "seen":
                return {"seen": self.seen}
            case "subject":
                self.subject = value
            case "scope":
                self.scope = value
            case "echo":
                self.echoes = True
            case "deny":
                self.denies = True
            case "closed":
                self.is_closed = True
            case "break":
                self.broken = value
            case "quote":
                self.quoted = value
            case "life":
                self.life_s = float(value)
            case "hold":
                self.answers.clear()
            case "release":
                self.answers.set()
            case "rotate":
                self.rotate()
            case "nonce":
                self.proofs.renew_nonce()
            case "revoke":
                self.revoked |= {told["family"] for told in self.refreshes.values()}
            case "forget":
                self.clients = {id: self.clients[id] for id in ("robot", "shop")}
            case _:
                raise Refused("invalid_request")
        return {}


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a JWT, without a look at its signature."""
    part = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return cast("dict[str, Any]", claims)


class IssuerHandler(http.server.BaseHTTPRequestHandler):
    """HTTP around the books."""

    protocol_version = "HTTP/1.1"
    books: IssuerState

    def do_GET(self) -> None:
        self._answered("")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self._answered(self.rfile.read(length).decode())

    def _answered(self, body: str) -> None:
        if "grant_type=refresh_token" in body:
            self.books.answers.wait(HELD_S)
        with self.books.lock:
            if "/control" not in self.path:
                self.books.seen.append(f"{self.command} {self.path}\n{self.headers}\n{body}")
            nonce = ""
            try:
                status, found, place = self._judged(body)
            except Refused as refused:
                status, place, nonce = refused.status, "", refused.nonce
                found = {"error": refused.error, "error_description": refused.words}
        data = json.dumps(found).encode() if found is not None else b""
        self.send_response(status)
        if place:
            self.send_header("location", place)
        if nonce:
            self.send_header("dpop-nonce", nonce)
        self.send_header("content-type", "application/json")
        self.send_header("cache-control", "no-store")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _judged(self, body: str) -> tuple[int, object, str]:
        books = self.books
        parts = urlsplit(self.path)
        authorization = self.headers.get("authorization", "")
        form = dict(parse_qsl(body)) if self.command == "POST" else dict(parse_qsl(parts.query))
        match self.command, parts.path:
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, books.metadata(), ""
            case "GET", "/keys":
                return 200, books.jwks(), ""
            case "GET", "/authorize":
                return 302, None, books.authorize(form)
            case "POST", "/register":
                return 201, books.register(json.loads(body)), ""
            case "POST", "/token":
                proof = self.headers.get("dpop", "")
                return 200, books.token(form, authorization, proof), ""
            case "POST", "/revoke":
                books.revoke(form, authorization)
                return 200, None, ""
            case "POST", "/introspect":
                return 200, books.introspect(form, authorization), ""
            case "POST", "/control":
                return 200, books.control(form["what"], form.get("value", "")), ""
            case _:
                return 404, None, ""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    """Serve until the other end of standard input is gone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), IssuerHandler)
    server.daemon_threads = True
    IssuerHandler.books = IssuerState(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(IssuerHandler.books.url, flush=True)
    sys.stdin.read()


# ---------------------------------------------------------------- from a test


class Issuer:
    """The issuer as a test sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def tell(self, what: str, value: object = "") -> dict[str, int]:
        form = urlencode({"what": what, "value": value}).encode()
        with urllib.request.urlopen(f"{self.url}/control", form, timeout=60) as reply:
            return cast("dict[str, int]", json.load(reply))

    def seen(self) -> list[str]:
        """Every request that it got."""
        return cast("list[str]", self.tell("seen")["seen"])

    def count(self, what: str) -> int:
        """How often something happened."""
        return self.tell("counts").get(what, 0)


@contextmanager
def issuing() -> Generator[Issuer]:
    """An issuer in a process of its own, for as long as this is entered."""
    command = [sys.executable, "-W", "error", "-m", "auth.issuer"]
    pipe, support = subprocess.PIPE, Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=support) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Issuer(process.stdout.readline().strip())
        finally:
            process.stdin.close()
            process.wait(60)


if __name__ == "__main__":
    main()
