"""A client: what a program asks of one server, in whichever revision the two speak.

It has a channel and runs a link over it; what the channel is made of it does not know. Opening is
a handshake or not, questions come by request or by result, and news comes in the session or on
subscriptions, as the revision says; a program sees no difference.

Rules: every wait ends. Giving up a call tells the server so. A call that the server's capabilities
do not allow is refused before it is sent. What may have had an effect is never sent again, but for
a round of questions, which is how the protocol goes on.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast, overload

from msgspec import Raw
from msgspec.structs import replace

from portico.client.answers import Answers
from portico.client.hearing import Hearing
from portico.client.listening import Listening, Listenings
from portico.client.results import ToolResult
from portico.errors import (
    ChannelError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
)
from portico.ports import Carry, Conversation, Progressing, Turn
from portico.protocol import types as t
from portico.protocol.events import Told
from portico.protocol.exchange import LISTEN, read_result
from portico.protocol.handshake import Phase
from portico.protocol.identity import Identity
from portico.protocol.jsonrpc import encode
from portico.protocol.link import DISCOVER, PING, SET_LEVEL, TIMEOUT_S, Link
from portico.protocol.methods import Side
from portico.protocol.negotiation import Peer, choose
from portico.protocol.questions import questions_of, retry
from portico.protocol.reading import read, reread
from portico.protocol.revision import EVERY, LogControl, Pushing, Revision, Revisions

log: logging.Logger = logging.getLogger("portico.client")

# A server that asks again and again never answers; ours stop at ten themselves.
MAX_ROUNDS = 32
# A list that has more pages than this has no end.
MAX_PAGES = 1000
# What is logged is wanted, where a handler was given; more or less is for `set_log_level`.
LOG_LEVEL: t.LoggingLevel = "info"
LOG_MESSAGE = "notifications/message"

T = TypeVar("T")
R = TypeVar("R", bound=t.Noun)

OnLog: TypeAlias = Callable[[t.LoggingMessageNotificationParams], Any]
# How far it is, of how much, and in words.
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]


class Client:
    """One server, as a program sees it. Whoever makes it says what carries the conversation,
    calls `open`, and calls `gone` when that has ended."""

    def __init__(
        self,
        carry: Carry,
        answers: Answers | None = None,
        *,
        info: t.Implementation,
        accepts: Revisions = EVERY,
        timeout_s: float = TIMEOUT_S,
        on_log: OnLog | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.timeout_s: float = timeout_s
        self.instructions: str | None = None
        self._answers = answers or Answers()
        self._on_log = on_log
        self._on_progress = on_progress
        self._level: t.LoggingLevel | None = LOG_LEVEL if on_log is not None else None
        self._hearing = Hearing()
        self._listenings = Listenings()
        self._found: Peer | None = None
        link = Link(Side.CLIENT, Identity(info, self._answers.capabilities), accepts)
        self.conversation: Conversation = carry(link, self)

    # ------------------------------------------------------------ opening and closing

    async def open(self, revision: Revision) -> None:
        """Begin to speak in this revision. Raises where the server does not."""
        if revision.handshake:
            raw = await self.conversation.initialize(revision, self.timeout_s)
            self.instructions = read(t.InitializeResult, raw).instructions
            return
        # The revision alone: what such a server offers may change with every request, so that
        # nothing is refused for what it offered once.
        self.conversation.link.adopt(revision)
        found = await self._discover()
        choose(found.supported_versions, Revisions([revision]))  # raises where it does not

    async def _discover(self) -> t.DiscoverResult:
        found = await self._ask(DISCOVER, t.RequestParams(), t.DiscoverResult)
        info = reread(t.ResultMeta, found.meta or {}).server_info
        self._found = Peer(self.peer.revision, found.capabilities, info)
        self.instructions = found.instructions
        return found

    async def close(self) -> None:
        """End the conversation: what waits for an answer learns so. At any time, and twice."""
        await self.conversation.leave("the client was closed")
        await self._hearing.close()

    def gone(self) -> None:
        """The channel has ended."""
        self._listenings.end(ConnectionLost("the connection ended"))

    @property
    def peer(self) -> Peer:
        """Who is on the other side, and in which revision. Raises before it is known."""
        peer = self._found or self.conversation.link.peer
        if peer is None:
            raise LocalProtocolError("this client is not open yet")
        return peer

    @property
    def revision(self) -> str:
        """The revision that the two speak."""
        return self.peer.revision.date

    @property
    def server(self) -> t.Implementation | None:
        """What the server says it is: for people and logs, never for decisions."""
        return self.peer.info

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """What the server offered when it was last asked."""
        return cast("t.ServerCapabilities", self.peer.capabilities)

    # ------------------------------------------------------------ tools

    async def list_tools(self) -> list[t.Tool]:
        """Every tool, from all pages."""
        pages = [one.tools async for one in self._pages("tools/list", t.ListToolsResult)]
        return [tool for page in pages for tool in page]

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[T]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Call a tool. An error of the tool is a result; one of the protocol is raised.

        `returns` is the type of `result.data`. The time-out begins anew with every progress that
        the tool reports.
        """
        params = t.CallToolRequestParams(name=name, arguments=Raw(encode(dict(arguments or {}))))
        result = await self._ask(
            "tools/call",
            params,
            t.CallToolResult,
            timeout_s,
            on_progress or self._on_progress or _ignored,
        )
        return ToolResult(name, result, returns)

    # ------------------------------------------------------------ resources

    async def list_resources(self) -> list[t.Resource]:
        """Every resource that has an address of its own, from all pages."""
        pages = [page async for page in self._pages("resources/list", t.ListResourcesResult)]
        return [resource for page in pages for resource in page.resources]

    async def list_resource_templates(self) -> list[t.ResourceTemplate]:
        """Every template of addresses, from all pages."""
        kind = t.ListResourceTemplatesResult
        pages = [page async for page in self._pages("resources/templates/list", kind)]
        return [template for page in pages for template in page.resource_templates]

    async def read_resource(
        self, uri: str, *, timeout_s: float | None = None
    ) -> t.ReadResourceResult:
        """The contents of a resource."""
        params = t.ReadResourceRequestParams(uri=uri)
        return await self._ask("resources/read", params, t.ReadResourceResult, timeout_s)

    async def subscribe(self, uri: str) -> None:
        """Ask for news of a resource, where the revision has sessions; `listen` works in all."""
        params = t.SubscribeRequestParams(uri=uri)
        await self._ask("resources/subscribe", params, t.EmptyResult)

    async def unsubscribe(self, uri: str) -> None:
        """Ask for no more news of a resource."""
        params = t.UnsubscribeRequestParams(uri=uri)
        await self._ask("resources/unsubscribe", params, t.EmptyResult)

    # ------------------------------------------------------------ prompts and completions

    async def list_prompts(self) -> list[t.Prompt]:
        """Every prompt, from all pages."""
        pages = [page async for page in self._pages("prompts/list", t.ListPromptsResult)]
        return [prompt for page in pages for prompt in page.prompts]

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """The messages of a prompt."""
        given = dict(arguments) if arguments is not None else None
        params = t.GetPromptRequestParams(name=name, arguments=given)
        return await self._ask("prompts/get", params, t.GetPromptResult, timeout_s)

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """What an argument of a prompt, or a variable of a template, may become.

        `context` has the other arguments, as far as they are known.
        """
        if (prompt is None) is (template is None):
            raise LocalProtocolError("complete takes either prompt='name' or template='uri'")
        ref: t.PromptReference | t.ResourceTemplateReference
        ref = (
            t.PromptReference(name=prompt)
            if prompt is not None
            else t.ResourceTemplateReference(uri=template or "")
        )
        params = t.CompleteRequestParams(
            ref=ref,
            argument=t.CompletionArgument(name=argument, value=value),
            context=t.CompletionContext(arguments=dict(context)) if context else None,
        )
        return (await self._ask("completion/complete", params, t.CompleteResult)).completion

    # ------------------------------------------------------------ the conversation itself

    async def ping(self) -> None:
        """See whether the server is there; where there is no ping, discovery tells (D23)."""
        if PING in self.peer.revision.methods:
            await self._ask(PING, t.RequestParams(), t.EmptyResult)
        else:
            await self._discover()

    async def set_log_level(self, level: t.LoggingLevel) -> None:
        """How much is to be logged from now on."""
        if self.peer.revision.log_control is LogControl.BY_METHOD:
            await self._ask(SET_LEVEL, t.SetLevelRequestParams(level=level), t.EmptyResult)
        self._level = level

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: Iterable[str] = (),
    ) -> AsyncGenerator[Listening]:
        """Changes of lists and of these resources, from the moment this is entered.

        >>> async with client.listen(tools=True, resources=["notes://a"]) as changes:
        ...     async for change in changes: ...
        """
        wanted = t.SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resource_list or None,
            resource_subscriptions=list(resources) or None,
        )
        listening = Listening(wanted)
        opened = self._subscribed if self._pushes_on_subscriptions else self._in_session
        async with opened(listening):
            yield listening

    @property
    def _pushes_on_subscriptions(self) -> bool:
        return self.peer.revision.pushing is Pushing.LISTEN

    @asynccontextmanager
    async def _subscribed(self, listening: Listening) -> AsyncGenerator[None]:
        params = t.SubscriptionsListenRequestParams(notifications=listening.wanted)
        id, answer = self.conversation.begin(LISTEN, params, self.timeout_s)
        self._listenings.add(listening, id)
        answer.add_done_callback(
            lambda answer: listening.end(None if answer.cancelled() else answer.exception())
        )
        try:
            await listening.begun()
            yield
        finally:
            self._listenings.discard(listening, id)
            self.conversation.give_up(id)
            answer.cancel()

    @asynccontextmanager
    async def _in_session(self, listening: Listening) -> AsyncGenerator[None]:
        self._listenings.add(listening)
        followed: list[str] = []
        try:
            for uri in listening.wanted.resource_subscriptions or ():
                await self.subscribe(uri)
                followed.append(uri)
            yield
        finally:
            self._listenings.discard(listening)
            with suppress(ChannelError, RemoteError):  # then it is over by itself
                for uri in followed:
                    if not self._listenings.follows(uri):
                        await self.unsubscribe(uri)

    # ------------------------------------------------------------ requests

    async def _pages(self, method: str, kind: type[R]) -> AsyncGenerator[R]:
        """Every page of a list; only a missing cursor is the end, an empty one is not."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._ask(method, t.PaginatedRequestParams(cursor=cursor), kind)
            yield page
            cursor = cast("t.ListResult", page).next_cursor
            if cursor is None:
                return
        raise RemoteProtocolError(f"{method} has more than {MAX_PAGES} pages; no list ends so late")

    async def _ask(
        self,
        method: str,
        params: t.RequestParams,
        kind: type[R],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> R:
        """The result of a request, after as many rounds of questions as it takes."""
        peer = self.peer
        shaper = self.conversation.link.shaper(peer.revision)
        for _ in range(MAX_ROUNDS):
            raw = await self._send(method, params, timeout_s, on_progress)
            result = read_result(peer.revision.methods[method], raw, peer)
            if not isinstance(result, t.InputRequiredResult):
                return cast("R", result)
            questions = questions_of(result, self._answers.capabilities, peer.revision)
            answers = await self._answers.to_all(questions)
            params = retry(cast("t.InputResponseRequestParams", params), result, answers, shaper)
        raise RemoteProtocolError(f"{method} was asked {MAX_ROUNDS} times, and only asks back")

    async def _send(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float | None,
        on_progress: OnProgress | None,
    ) -> Raw:
        if self._level is not None and self.peer.revision.log_control is LogControl.PER_REQUEST:
            meta: dict[str, Any] = params.meta or {}
            params = replace(params, meta=meta | {t.LOG_LEVEL_KEY: self._level})
        if self.conversation.link.phase is Phase.CLOSED:
            raise ConnectionLost(f"the connection ended before {method}")
        seconds = self.timeout_s if timeout_s is None else timeout_s
        progressed = None if on_progress is None else self._reporting(on_progress)
        return await self.conversation.request(method, params, seconds, progressed=progressed)

    def _reporting(self, handler: OnProgress) -> Progressing:
        def progressed(params: t.ProgressNotificationParams) -> None:
            self._hearing.tell(handler, params.progress, params.total, params.message)

        return progressed

    # ------------------------------------------------------------ news

    def answer(self, turn: Turn) -> Awaitable[bytes | None]:
        """The answer to a question that the server sent by request."""
        return self._answers.answer(turn)

    def told(self, told: Told) -> None:
        """What the server tells beside its answers."""
        try:
            if told.row.name != LOG_MESSAGE:
                self._listenings.hear(told)
            elif self._on_log is not None:
                said = read(t.LoggingMessageNotificationParams, told.params)
                self._hearing.tell(self._on_log, said)
        except Fault as fault:  # R0233: never answered
            log.debug("ignored %s: %s", told.row.name, fault.message)


def _ignored(progress: float, total: float | None, message: str | None) -> None:
    """Progress that nobody looks at still begins the time-out anew."""
