"""Runs a script of HTTP requests against a small server that applies the rules, and writes its transcript.

    --> POST /mcp                 a request: its headers, a blank line, its body
    <-- 200 application/json      its answer in the same way; events stand one below the other
    !                             what the log would say, or what a client makes of an answer

In a script a request has the usual headers; `- Accept` leaves one out, `Accept: x` says another
one, and `+ client` adds those that our own client sends with this body.

Rules: no sockets, no clock. The rules decide; the server here only calls them in their order.
"""

import json
from contextlib import suppress
from typing import Any, NamedTuple

from colonnade.client.probe import judge
from colonnade.errors import AuthError, Fault, FaultKind, LoginRequired, ScopeRequired, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.http import rules
from colonnade.protocol.http.param_headers import check_params, headers_for_call, param_headers
from colonnade.protocol.http.security import (
    AcceptedTypes,
    EndpointChecks,
    Headers,
    HostPolicy,
    HttpError,
    check_size,
    declared_size,
    endpoint_methods,
    lowercase_headers,
    require_events,
)
from colonnade.protocol.http.sse import EventStreamParser, encode_event, priming_event
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.input_rounds import InputRounds
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Request,
    ResultResponse,
    decode,
    encode_error,
    split_params,
)
from colonnade.protocol.link.events import LinkEvent, MessageIgnored, RequestReceived, Send
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Identity, Peer, PeerDetector, negotiate
from colonnade.protocol.revision import EVERY, Revision, Revisions, error_code
from colonnade.protocol.subscriptions import Subscription
from script import Script, holds, shown, spelled
from script_runner import Message, ScriptRunner

USUAL = {
    "Host": "127.0.0.1:8000",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
# Written out: the names that Python knows change from version to version.
PHRASES = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    413: "Content Too Large",
    415: "Unsupported Media Type",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City"},
        "days": {"type": ["integer", "null"], "x-mcp-header": "Days"},
    },
}
PARAMS = param_headers(SCHEMA)
MAX_BODY_BYTES = 2_000


class Answer(NamedTuple):
    """What goes back: events where there is a list of them, else one body or none."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    events: tuple[bytes, ...] = ()


class Session(NamedTuple):
    link: DuplexLink
    owner: str
    kept: dict[str, bytes]


class HttpScriptRunner:
    """One script in one revision, against a server of its own."""

    def __init__(self, script: Script, revision: Revision, values: dict[str, Any]) -> None:
        self.script = script
        self.revision = revision
        self.base = ScriptRunner(
            script, revision, values
        )  # for `$meta`, `$date` and the schema check
        self.text = self.base.text
        self.accepts = EVERY
        self.policy = HostPolicy.for_bind("127.0.0.1", 8000, origins=["https://app.example"])
        self.can = t.ServerCapabilities(
            tools=t.ToolsCapability(), resources=t.ResourcesCapability(), logging={}
        )
        self.identity = Identity(self.base.info[Side.SERVER], self.can)
        self.sessions: dict[str, Session] = {}
        self.emitted: list[Message] = []

    # ------------------------------------------------------------ the script

    def run(self) -> str:
        steps = list(self.script.steps)
        while steps:
            step = steps.pop(0)
            block = []
            while steps and steps[0].startswith("    "):
                block.append(steps.pop(0).strip())
            if step.startswith("["):
                facts, _, step = step[1:].partition("] ")
                if not holds(tuple(facts.split()), self.revision):
                    continue
            self._step(self.base.filled(step), [self.base.filled(line) for line in block])
        heads = [f"# {words}" for words in self.script.words]
        heads.append(f"# {self.revision.date}. Ours: an HTTP server.")
        return "\n".join([*heads, *self.text]).replace("\n\n\n", "\n\n") + "\n"

    def _step(self, step: str, block: list[str]) -> None:
        if not step or step.startswith("#"):
            self.text.append(step)
        elif step.startswith("--> "):
            self._request(step[4:].partition(" ")[0], block)
        elif step.startswith("<-- "):
            self._verdict(step[4:], "".join(block))
        elif step.startswith("server accepts "):
            self.base.note(".", step)
            dates = step.split()[2:]
            self.accepts = EVERY if dates == ["all"] else Revisions.of(*dates)
        else:
            raise ValueError(f"{self.script.name}: {step}")

    def _verdict(self, status: str, body: str) -> None:
        """What a client that asked server/discover makes of this answer."""
        self.base.note("<--", status + (f"\n    {body}" if body else ""))
        frame = decode(body.encode()) if body else None
        assert frame is None or isinstance(frame, ResultResponse | ErrorResponse)
        verdict = judge(frame, int(status))
        self.base.note("!", f"client: {verdict.era.name}, {verdict.era.value}")

    def _request(self, method: str, block: list[str]) -> None:
        fields = list((USUAL if method == "POST" else {"Host": USUAL["Host"]}).items())
        usual = {name for name, _ in fields}
        body = next((line for line in block if line[0] in "{[b"), "")
        for line in block:
            name, _, value = line.removeprefix("- ").partition(": ")
            if line == "+ client":
                given = self._of_client(spelled(body))
                fields = [pair for pair in fields if pair[0] not in dict(given)] + given
                usual |= set(dict(given))
            elif line != body:
                # The first of a name stands in for the usual one; a second one is one too many.
                fields = [pair for pair in fields if pair[0] not in usual & {name}]
                usual -= {name}
                fields += [] if line.startswith("- ") else [(name, value)]
        lines = [f"{name}: {value}" for name, value in fields]
        self.text.append(f"--> {method} /mcp")
        self.text += [f"    {line}" for line in lines] + (["", f"    {body}"] if body else [])
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in fields]
        with suppress(ValueError, RecursionError):
            list(self.base.messages(Side.CLIENT, json.loads(spelled(body) or b"{}")))
        self._show(self.respond(method, lowercase_headers(pairs), spelled(body)))

    def _of_client(self, body: bytes) -> list[tuple[str, str]]:
        frame = decode(body)
        assert isinstance(frame, Request)
        row = self.revision.method(frame.method)
        assert row is not None
        parts = split_params(frame.params)
        agreed = None if frame.method == HANDSHAKE_METHOD else self.revision
        name = rules.name_of(row, parts, frame.params)
        headers = rules.headers_for_request(row, agreed, name)
        if parts.name == "forecast" and self.revision.http.routing_headers and parts.arguments:
            headers += headers_for_call(PARAMS, json.loads(bytes(parts.arguments)))
        return headers

    def _show(self, answer: Answer) -> None:
        kind = "text/event-stream" if answer.events else "application/json" if answer.body else ""
        self.text.append(f"<-- {answer.status} {PHRASES[answer.status]}")
        fields = [("Content-Type", kind)] if kind else []
        self.text += [f"    {name}: {value}" for name, value in [*fields, *answer.headers]]
        if answer.body:
            self.text += ["", f"    {shown(answer.body)}"]
        for event in answer.events:
            lines = event.decode().rstrip("\n").split("\n")
            self.text += ["", *(f"    {line}" for line in lines)]
        said = [
            event.data for event in EventStreamParser().feed(b"".join(answer.events)) if event.data
        ]
        for data in [*said, answer.body] if answer.body else said:
            self.emitted.extend(self.base.messages(Side.SERVER, json.loads(data)))

    # ------------------------------------------------------------ the order of the rules

    def respond(self, method: str, headers: Headers, body: bytes) -> Answer:
        try:
            answers = EndpointChecks(self.policy, endpoint_methods(self.accepts)).check(
                method, headers
            )
            principal = self._verify(headers)
            if method != "POST":
                return self._without_body(method, headers, principal)
            check_size(declared_size(headers), MAX_BODY_BYTES)
            check_size(len(body), MAX_BODY_BYTES)
            frame = decode(body)
        except (Fault, AuthError) as refused:
            return self._refused(refused, None, getattr(refused, "raw_id", b""))
        return self._post(frame, body, headers, answers, principal)

    def _verify(self, headers: Headers) -> str:
        token = headers.get(b"authorization", b"Bearer ada").partition(b" ")[2].decode()
        if token == "expired":
            raise LoginRequired("log in again")
        if token == "narrow":
            raise ScopeRequired("ask for more")
        return token

    def _refused(
        self,
        refused: Fault | AuthError,
        revision: Revision | None,
        raw_id: bytes,
        admitted: bool = False,
    ) -> Answer:
        status = rules.status_of(refused, revision, admitted=admitted)
        if isinstance(refused, AuthError):
            return Answer(status)
        null_id = revision is not None and revision.error_id_required  # D2
        code = error_code(refused, revision)
        body = encode_error(raw_id, code, refused.message, refused.data, null_id=null_id)
        return Answer(status, body, refused.headers if isinstance(refused, HttpError) else ())

    def _session(self, headers: Headers, principal: str) -> tuple[Session | None, Peer | None]:
        named = rules.session_id(headers)
        if named is None:
            return None, None
        session = self.sessions.get(named)
        if session is None or session.owner != principal:
            return None, rules.ENDED
        return session, session.link.peer

    def _post(
        self,
        frame: Frame | Batch,
        body: bytes,
        headers: Headers,
        answers: AcceptedTypes,
        principal: str,
    ) -> Answer:
        raw_id = frame.raw_id if isinstance(frame, Request) else b""
        revision = None
        try:
            session, known = self._session(headers, principal)
            revision = known.revision if session and known else None
            if isinstance(frame, Batch):
                rules.admit_batch(frame, revision)
                assert session is not None
                return self._in_session(session, body, rules.status_of_batch(frame), answers)
            if not isinstance(frame, Request):
                if known is rules.ENDED:
                    raise rules.unknown_session()
                ruling = rules.session_revision(headers, self.accepts, revision)
                status = rules.accept_post(frame, ruling.revision)
                return (
                    self._in_session(session, body, status, answers) if session else Answer(status)
                )
            recogniser = PeerDetector(self.accepts)
            admission = rules.admit(frame, headers, recogniser, known)
            if admission is None:
                return self._handshake(frame, body, principal)
            if admission.warning:
                self.base.note("!", f"server: warns, {admission.warning}")
            revision = admission.peer.revision
            if session is not None and admission.peer is known:
                return self._in_session(session, body, 200, answers)
            link = DuplexLink(Side.SERVER, self.identity, self.accepts)
            shaper = link.encoder(revision)
            exchange = Exchange(frame, admission.params, admission.method, admission.peer, shaper)
            check_params(
                PARAMS if admission.params.name == "forecast" else (),
                headers,
                admission.params.arguments,
            )
        except Fault as fault:
            return self._refused(fault, revision, raw_id)
        return self._answer(exchange, answers, None)

    def _handshake(self, request: Request, body: bytes, principal: str) -> Answer:
        params = decode_as(t.InitializeRequestParams, request.params)
        negotiate(params.protocol_version, self.accepts)
        link = DuplexLink(Side.SERVER, self.identity, self.accepts)
        sent = [event.data for event in link.receive(body, 0.0) if isinstance(event, Send)]
        name = f"session-{len(self.sessions) + 1}"
        self.sessions[name] = Session(link, principal, {})
        return Answer(200, sent[0], ((rules.SESSION_HEADER, name),))

    # ------------------------------------------------------------ in a session

    def _in_session(
        self, session: Session, body: bytes, status: int, answers: AcceptedTypes
    ) -> Answer:
        events: list[LinkEvent] = session.link.receive(body, 0.0)
        bodies: list[bytes] = []
        answer: Answer | None = None
        for event in events:
            if isinstance(event, Send):
                bodies.append(event.data)
            elif isinstance(event, MessageIgnored):
                self.base.note("!", f"server: dropped, {event.why}")
            elif isinstance(event, RequestReceived):
                answer = self._answer(event.exchange, answers, session)
                bodies += [answer.body] if answer.body else []
        if answer is not None and answer.events:
            return answer
        return Answer(status, bodies[0] if bodies else b"")

    def _without_body(self, method: str, headers: Headers, principal: str) -> Answer:
        named = rules.require_session(headers)
        session = self.sessions.get(named)
        rules.check_owner(session.owner if session else None, principal)
        assert session is not None
        assert session.link.peer is not None
        revision = session.link.peer.revision
        rules.session_revision(headers, self.accepts, revision)
        if method == "DELETE":
            del self.sessions[named]
            return Answer(200)
        after = rules.last_event_id(headers, revision)
        if after is None:
            return Answer(200, events=(b": open\n\n",))
        if after not in session.kept:
            raise rules.unknown_event()
        names = list(session.kept)
        later = names[names.index(after) + 1 :]
        return Answer(200, events=tuple(session.kept[name] for name in later))

    # ------------------------------------------------------------ the application

    def _answer(
        self,
        exchange: Exchange,
        answers: AcceptedTypes,
        session: Session | None,
    ) -> Answer:
        """Run the tool; JSON where it said nothing on the way, else a stream with its end."""
        said: list[bytes] = []
        fault = None
        try:
            result = self._tool(exchange, said)
            last = exchange.settle(result) if result is not None else None
        except ToolError as error:
            text = t.TextContent(text=str(error))
            last = exchange.settle(t.CallToolResult(content=[text], is_error=True))
        except Fault as refused:
            fault = refused
            last = exchange.fail(fault)
        status = rules.status_of(fault, exchange.peer.revision, streaming=bool(said))
        if not said and answers.json:
            return Answer(status, last or b"")
        require_events(answers)
        lines = [*said, *([last] if last is not None else [])]
        return Answer(status, events=self._stream(exchange, lines, session))

    def _stream(
        self, exchange: Exchange, lines: list[bytes], session: Session | None
    ) -> tuple[bytes, ...]:
        http = exchange.peer.revision.http
        if session is None or not http.resumable:
            return tuple(encode_event(line) for line in lines)
        stream = exchange.request.raw_id.decode()
        events = {f"{stream}-{n}": line for n, line in enumerate(lines, 1)}
        named = {id: encode_event(line, id=id) for id, line in events.items()}
        if http.prime_and_poll:
            named = {f"{stream}-0": priming_event(f"{stream}-0", 1000)} | named
        session.kept.update(named)
        return tuple(named.values())

    def _tool(self, exchange: Exchange, said: list[bytes]) -> t.ProtocolType | None:
        name = exchange.params.name
        if exchange.method.name == "tools/list":
            return t.ListToolsResult(tools=[t.Tool(name="forecast", input_schema=SCHEMA)])
        if exchange.method.name == "resources/read":
            raise Fault(FaultKind.RESOURCE_MISSING, "there is no such resource")
        if exchange.method.name == "subscriptions/listen":
            said += filter(None, [Subscription(exchange, t.SubscriptionFilter()).acknowledge()])
            return None
        decode_as(exchange.method.params, exchange.request.params)
        if name in ("slow", "slow-and-broken"):
            said += filter(None, [exchange.progress(1, 2)])
        if name in ("broken", "slow-and-broken"):
            raise Fault(FaultKind.INTERNAL, f"{name} failed (id 4f2a91)")
        if name == "asks":
            asked = t.CreateMessageRequestParams(messages=[], max_tokens=1)
            InputRounds(exchange.peer, exchange.method).ask(InputRequest(asked))
        if name not in ("forecast", "slow"):
            raise Fault(FaultKind.INVALID_PARAMS, "there is no such tool")
        return t.CallToolResult(content=[t.TextContent(text="done")])
