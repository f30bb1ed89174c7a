"""Runs OAuth flows against responses, records and a user that are plain data: no loop, no socket.

    network = FakeNetwork()
    tokens = network.run(discover(SERVER, NONE))
    network.requests   # every request, in order

Rules: what a flow asks for that is not there is 404. Every step is kept, so that a test can say
what was sent to whom, and above all what was not.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from colonnade.auth.client.steps import (
    DeleteRecord,
    Flow,
    FlowContext,
    FlowResponse,
    GetAssertion,
    LoadRecord,
    OpenAuthorizationPage,
    OpenRedirectListener,
    SaveRecord,
    SendRequest,
)
from colonnade.errors import ColonnadeError
from colonnade.protocol.http.challenges import Challenges, read_challenges

T = TypeVar("T")

SERVER = "https://mcp.example/mcp"
ISSUER = "https://as.example"
REDIRECT_URI = "http://127.0.0.1:7777/callback"
NONE = Challenges()

Answering = Callable[[SendRequest], FlowResponse]


def json(value: object, status: int = 200, **headers: str) -> FlowResponse:
    return FlowResponse(status, tuple(headers.items()), msgspec.json.encode(value))


def asks(*lines: str) -> Challenges:
    return read_challenges(lines)


def issuer_metadata(issuer: str = ISSUER, **more: Any) -> dict[str, Any]:
    found = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "revocation_endpoint": f"{issuer}/revoke",
        "code_challenge_methods_supported": ["S256"],
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


class FakeNetwork:
    """Everything that a flow talks to."""

    def __init__(self, **metadata: Any) -> None:
        self.requests: list[SendRequest] = []
        self.pages: list[dict[str, str]] = []
        self.records: dict[str, bytes] = {}
        self.listened: list[str] = []
        self.now = 1_000_000.0
        self.count = 0
        self.context = FlowContext(lambda: self.now, self.secret)
        self.responses: dict[str, FlowResponse | Answering | ColonnadeError] = {}
        self.answer: Callable[[dict[str, str]], dict[str, str]] = self.approve
        self.redirect_uri = REDIRECT_URI
        self.says_iss: str | None = None
        self.grants: list[dict[str, Any]] = []
        self.serve(**metadata)

    def serve(self, server: str = SERVER, issuer: str = ISSUER, **metadata: Any) -> None:
        """A server with its document, and one issuer with its own."""
        parts = urlsplit(server)
        known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
        self.responses[known] = json({"resource": server, "authorization_servers": [issuer]})
        self.issue(issuer, **metadata)

    def issue(self, issuer: str = ISSUER, **metadata: Any) -> None:
        parts = urlsplit(issuer)
        base = f"{parts.scheme}://{parts.netloc}"
        place = f"{base}/.well-known/oauth-authorization-server{parts.path}"
        self.responses[place] = json(issuer_metadata(issuer, **metadata))
        self.responses[f"{issuer}/register"] = lambda asked: json(
            {"client_id": f"of {issuer}"}, 201
        )
        self.responses[f"{issuer}/token"] = self.grant

    def grant(self, asked: SendRequest) -> FlowResponse:
        more = self.grants.pop(0) if self.grants else {}
        if "error" in more:
            return json(more, 400)
        self.count += 1
        bound = any(name == "dpop" for name, _ in asked.headers)
        kind = "DPoP" if bound else "Bearer"
        return json({"access_token": f"token-{self.count}", "token_type": kind, **more})

    def secret(self) -> str:
        self.count += 1
        return f"secret-{self.count:04}".ljust(64, "x")

    def approve(self, page: dict[str, str]) -> dict[str, str]:
        """A user who approves."""
        said = {"code": "the-code", "state": page["state"]}
        return said if self.says_iss is None else {**said, "iss": self.says_iss}

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        try:
            step = next(flow)
            while True:
                try:
                    outcome = self.do(step)
                except ColonnadeError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as ended:
            return ended.value

    def do(self, step: object) -> object:
        match step:
            case SendRequest():
                return self.fetch(step)
            case LoadRecord():
                return self.records.get(step.name)
            case SaveRecord():
                self.records[step.name] = step.value
            case DeleteRecord():
                self.records.pop(step.name, None)
            case OpenRedirectListener():
                self.listened.append(step.previous)
                return step.previous or self.redirect_uri
            case OpenAuthorizationPage():
                page = dict(parse_qsl(urlsplit(step.url).query, keep_blank_values=True))
                self.pages.append(page)
                return urlencode(self.answer(page))
            case GetAssertion():
                return step.function()
            case _:
                raise AssertionError(step)
        return None

    def fetch(self, step: SendRequest) -> FlowResponse:
        self.requests.append(step)
        found = self.responses.get(step.url, FlowResponse(404))
        if isinstance(found, ColonnadeError):
            raise found
        return found if isinstance(found, FlowResponse) else found(step)

    # ------------------------------------------------------------ what was seen

    @property
    def urls(self) -> list[str]:
        return [step.url for step in self.requests]

    def posted(self, url: str) -> list[dict[str, str]]:
        """The forms that were sent to a URL."""
        found = [step for step in self.requests if step.url == url and step.method == "POST"]
        return [dict(parse_qsl(step.body.decode(), keep_blank_values=True)) for step in found]

    def sent_to(self, origin: str) -> bytes:
        """Every byte that went to an origin: URLs, headers, bodies."""
        steps = [step for step in self.requests if step.url.startswith(origin)]
        return b"".join(f"{s.url}{s.headers}".encode() + s.body for s in steps)
