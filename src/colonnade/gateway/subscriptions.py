"""Subscriptions to resources: those of the clients of a gateway, followed at its servers.

A resource is followed upstream as long as a client follows it: a session that has subscribed to it,
or an open `subscriptions/listen`. Clients that follow the same share one subscription, unless the
server has another session for each caller.

Rules: what is followed is counted and bounded, for each principal. An update that the session of
one caller received is sent to that caller only. An update is sent to those who may see the resource
that it names when it is sent. Subscriptions upstream end with the last follower.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, FaultKind
from colonnade.gateway.changes import GatewayChanges, ShowsUri
from colonnade.host.host import Host
from colonnade.host.resource_updates import ResourceUpdates
from colonnade.host.runtime import ResourceFilter
from colonnade.host.view import HostView
from colonnade.ports import RequestContext, Session, WrappedRequest
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Request, SplitParams, encode
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.protocol.subscriptions import MAX_SUBSCRIPTIONS, MAX_URI_CHARACTERS, is_covered

log: logging.Logger = logging.getLogger("colonnade.gateway")

# Each keeps a session of a server open, or a stream to it. A client of one principal follows some
# files at a time; callers without a name are together one principal.
MAX_FOLLOWED_PER_PRINCIPAL = 256
MAX_FOLLOWED = 4096
UPDATED = "notifications/resources/updated"
SUBSCRIBE = "resources/subscribe"


class FollowedKey(NamedTuple):
    """One subscription upstream: the caller that it is for (None for all callers), the server, and
    the resources."""

    owner: str | None
    server: str
    uris: frozenset[str]


class UpstreamSubscription:
    """One subscription upstream, and who follows it: the URIs of sessions, and how many streams."""

    def __init__(self, updates: ResourceUpdates) -> None:
        self.updates = updates
        self.start: asyncio.Task[frozenset[str]] = asyncio.ensure_future(updates.start())
        # By identity: the subscribed URIs of sessions, which lose what is unsubscribed.
        self.sessions: dict[int, set[str]] = {}
        self.listeners = 0

    def is_followed(self, uris: frozenset[str]) -> bool:
        """Whether a client still follows these resources."""
        self.sessions = {
            key: subscribed for key, subscribed in self.sessions.items() if uris <= subscribed
        }
        return bool(self.sessions or self.listeners)


class ResourceFollower:
    """The resources that one client follows, with the key of the server of each, and what the
    client may see."""

    def __init__(self, may_see: ResourceFilter) -> None:
        self.may_see = may_see
        self.servers: dict[str, str] = {}

    def covers(self, uri: str) -> bool:
        """Whether it follows a resource, or one above it."""
        return is_covered(uri, self.servers.keys())

    def shows(self, uri: str) -> bool:
        """Whether an update of a resource may be sent to it."""
        server = self.servers.get(uri)
        if server is not None:
            return self.may_see(server, uri)
        above = {of for one, of in self.servers.items() if is_covered(uri, {one})}
        return any(self.may_see(server, uri) for server in above)


class SessionFollower(ResourceFollower):
    """The same of a session: `subscribed` is its own set, which loses what is unsubscribed."""

    def __init__(self, may_see: ResourceFilter, subscribed: set[str]) -> None:
        super().__init__(may_see)
        self.subscribed = subscribed

    def forget_unsubscribed(self) -> bool:
        """Forget what the session does not follow any more; whether anything is left."""
        self.servers: dict[str, str] = {
            uri: of for uri, of in self.servers.items() if uri in self.subscribed
        }
        return bool(self.servers)


class GatewaySubscriptions:
    """The subscriptions of the clients of a gateway."""

    def __init__(self, host: Host | HostView, changes: GatewayChanges) -> None:
        self._host = host
        self._changes = changes
        self._upstream: dict[FollowedKey, UpstreamSubscription] = {}
        self._closing: set[asyncio.Task[None]] = set()
        # By principal, and by the identity of the subscribed URIs of a session.
        self._followers: dict[str, dict[int, SessionFollower]] = {}

    def __len__(self) -> int:
        return len(self._upstream)

    # ------------------------------------------------------------ sessions

    async def subscribe(self, request: RequestContext) -> t.ProtocolType:
        """Subscribe the session of a request to a resource. Raises `Fault`, and what the server
        raises."""
        uri = decode_as(t.SubscribeRequestParams, request.exchange.request.params).uri
        session = _session_of(request)
        if len(uri) > MAX_URI_CHARACTERS:
            message = f"cannot subscribe to a URI of more than {MAX_URI_CHARACTERS} characters"
            raise Fault(FaultKind.INVALID_PARAMS, message)
        subscribed = session.subscriptions
        if uri not in subscribed and len(subscribed) >= MAX_SUBSCRIPTIONS:
            message = f"more than {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from some"
            raise Fault(FaultKind.INVALID_PARAMS, message)
        server = await self._find_server(request, uri)  # again, if the rules have changed
        if uri in subscribed:
            self._note_session(request, subscribed).servers[uri] = server
            return t.EmptyResult()
        upstream = await self._follow(server, frozenset([uri]), request.principal)
        try:
            self._note_session(request, subscribed).servers[uri] = server
            subscribed.add(uri)
            upstream.sessions[id(subscribed)] = subscribed
        finally:
            upstream.listeners -= 1
            self.release_unused()
        return t.EmptyResult()

    async def unsubscribe(self, request: RequestContext) -> t.ProtocolType:
        """Unsubscribe the session of a request from a resource."""
        uri = decode_as(t.UnsubscribeRequestParams, request.exchange.request.params).uri
        if request.session is not None:
            request.session.subscriptions.discard(uri)
            self.release_unused()
        return t.EmptyResult()

    def _note_session(self, request: RequestContext, subscribed: set[str]) -> SessionFollower:
        """What a session follows, with what the caller of this request may see."""
        may_see = self._host.resource_filter(request)
        followers = self._followers.setdefault(request.principal, {})
        found = followers.get(id(subscribed))
        if found is None or found.subscribed is not subscribed:
            found = followers[id(subscribed)] = SessionFollower(may_see, subscribed)
        found.may_see = may_see
        return found

    def shows(self, principal: str, uri: str) -> bool:
        """Whether the sessions of a principal may be notified of an updated resource. They are not
        told apart here: if they may see different resources, what all that follow it may see."""
        if self._host.policy is None:
            return True
        followers = self._followers.get(principal, {}).values()
        covering = [one for one in followers if one.covers(uri)]
        return bool(covering) and all(one.shows(uri) for one in covering)

    # ------------------------------------------------------------ subscriptions/listen

    async def listen(
        self, request: RequestContext, uris: Collection[str]
    ) -> tuple[list[str], ShowsUri, Callable[[], None]]:
        """Follow resources for a `subscriptions/listen`: those that their servers agreed to, of
        which resources the caller may be notified, and what ends it. Others are left out: the
        acknowledgement does not name them."""
        follower = ResourceFollower(self._host.resource_filter(request))
        by_server: dict[str, set[str]] = {}
        for uri in dict.fromkeys(uris):
            try:
                server = await self._find_server(request, uri)
            except ColonnadeError:  # unknown, or not for this caller
                continue
            by_server.setdefault(server, set()).add(uri)
        followed: list[UpstreamSubscription] = []
        agreed: set[str] = set()

        def end() -> None:
            for upstream in followed:
                upstream.listeners -= 1
            followed.clear()
            self.release_unused()

        try:
            for server, found in by_server.items():
                try:
                    upstream = await self._follow(server, frozenset(found), request.principal)
                except ColonnadeError as error:
                    log.info("server %r: resources are not followed: %s", server, error)
                    continue
                followed.append(upstream)
                agreed |= upstream.start.result()
                follower.servers.update(dict.fromkeys(found, server))
        except BaseException:
            end()
            raise
        return [uri for uri in uris if uri in agreed], follower.shows, end

    # ------------------------------------------------------------ upstream

    async def _find_server(self, request: RequestContext, uri: str) -> str:
        """The server of a resource that the caller of a request may subscribe to: a request for
        each resource, through the middleware of the host. Raises what those raise."""
        exchange = request.exchange
        asked = WrappedRequest(request)
        asked.exchange = Exchange(
            Request(0, SUBSCRIBE, Raw(encode(t.SubscribeRequestParams(uri=uri))), b"0"),
            SplitParams(exchange.params.meta, None, uri),
            NOVEMBER_2025.methods[SUBSCRIBE],
            exchange.peer,
            exchange.encoder,
            exchange.principal,
            scopes=exchange.scopes,
        )
        await self._host.handler(asked)
        origin = asked.exchange.origin
        if origin is None:  # a middleware has answered itself
            raise Fault(FaultKind.RESOURCE_MISSING, f"no server sends updates of {uri!r}")
        return origin.server

    async def _follow(
        self, server: str, uris: frozenset[str], principal: str
    ) -> UpstreamSubscription:
        """A subscription upstream, counted as one listener more. Raises `Fault` if there are too
        many, and what the server raises."""
        owner = None if self._host.is_common(server) else principal
        key = FollowedKey(owner, server, uris)
        upstream = self._upstream.get(key)
        if upstream is None:
            self._check_room(owner)
            make_updates = self._host.resource_updates

            def on_update(uri: str) -> None:
                params = t.ResourceUpdatedNotificationParams(uri=uri)
                self._changes.publish(UPDATED, params, owner)

            updates = make_updates(server, uris, principal, on_update)
            upstream = self._upstream[key] = UpstreamSubscription(updates)
        upstream.listeners += 1
        try:
            await asyncio.shield(upstream.start)
        except BaseException:
            upstream.listeners -= 1
            self.release_unused()
            raise
        return upstream

    def _check_room(self, owner: str | None) -> None:
        own = sum(key.owner == owner for key in self._upstream) if owner is not None else 0
        if len(self._upstream) >= MAX_FOLLOWED or own >= MAX_FOLLOWED_PER_PRINCIPAL:
            self.release_unused()
            message = "too many resources are followed; unsubscribe from some, or try again later"
            raise Fault(FaultKind.TOO_MANY, message)

    def release_unused(self) -> None:
        """End the subscriptions that no client follows any more."""
        for principal, followers in list(self._followers.items()):
            left = {key: one for key, one in followers.items() if one.forget_unsubscribed()}
            if left:
                self._followers[principal] = left
            else:
                del self._followers[principal]
        for key, upstream in list(self._upstream.items()):
            if upstream.start.done() and not upstream.is_followed(key.uris):
                del self._upstream[key]
                task = asyncio.ensure_future(upstream.updates.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all subscriptions."""
        upstream, self._upstream = list(self._upstream.values()), {}
        for one in upstream:
            one.start.cancel()
            await one.updates.close()
        if self._closing:
            await asyncio.wait(self._closing)


def _session_of(request: RequestContext) -> Session:
    if request.session is None:
        message = "a subscription needs a session, and this gateway is stateless; read it again"
        raise Fault(FaultKind.INVALID_REQUEST, message)
    return request.session
