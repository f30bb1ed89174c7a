"""Subscriptions: one `subscriptions/listen` request, on the side of the server.

Rules: as in `exchange`.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Request, RequestId, SplitParams, encode_notification
from colonnade.protocol.negotiation import require_extension

# A URI is cut at each slash to find its parents; one with more is compared with all subscribed URIs
# instead.
MAX_CUTS = 64


def is_covered(uri: str, own: Set[str]) -> bool:
    """Whether a URI or a parent of it is subscribed: the update of a part is an update of the
    whole."""
    if uri in own:
        return True
    if uri.count("/") > MAX_CUTS:
        return any(_is_below(uri, one) for one in own)
    ends = (at for at, sign in enumerate(uri) if sign == "/")
    return any(uri[:at] in own or uri[: at + 1] in own for at in ends)


def _is_below(uri: str, one: str) -> bool:
    return uri.startswith(one) and (one.endswith("/") or uri.startswith("/", len(one)))


# ---------------------------------------------------------------- subscriptions


# Resources that one subscription, or one session, subscribes to; and tasks. All are kept while it
# lasts.
MAX_SUBSCRIPTIONS = 1000
# URIs in use are shorter.
MAX_URI_CHARACTERS = 8192
# All params of one listen, before they are decoded: a thousand URIs of 250 bytes.
MAX_LISTEN_BYTES = 256 * 1024
# The overhead of a string in a set, in Python.
STRING_BYTES = 100


class Subscription:
    """One `subscriptions/listen`: acknowledged first, then the notifications of its filter, then
    its end.

    `offered` is what the server can send at all, `allowed` whether this caller may be notified of a
    resource; the rest is left out of the acknowledgement. Raises `Fault` for a filter that is
    invalid, too large, or not allowed for its sender.

    The params of the exchange are dropped: they are not held while the subscription lasts.
    `held_bytes` is what is held.
    """

    def __init__(
        self,
        exchange: Exchange,
        offered: t.SubscriptionFilter,
        allowed: Callable[[str], bool] | None = None,
    ) -> None:
        params = exchange.request.params
        if len(params) > MAX_LISTEN_BYTES:
            words = f"params of more than {MAX_LISTEN_BYTES} bytes; listen to fewer resources"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        requested = decode_as(t.SubscriptionsListenRequestParams, params).notifications
        count = _check_strings(requested.resource_subscriptions, "resourceSubscriptions")
        count += _check_strings(requested.task_ids, "taskIds")
        if requested.task_ids is not None:
            require_extension(t.TASKS_EXTENSION_ID, exchange.peer)
        agreed = _subset(requested, offered)
        if allowed is not None and agreed.resource_subscriptions is not None:
            uris = [uri for uri in agreed.resource_subscriptions if allowed(uri)]
            agreed = replace(agreed, resource_subscriptions=uris)
        self.agreed: t.SubscriptionFilter = agreed
        self._allowed = allowed
        self._exchange = exchange
        self._acknowledged = False
        self._uris = frozenset(self.agreed.resource_subscriptions or ())
        self._tasks = frozenset(self.agreed.task_ids or ())
        self.held_bytes: int = len(params) + STRING_BYTES * count
        _drop_params(exchange)

    def keep_resources(self, uris: Sequence[str]) -> None:
        """Leave other resources out of the acknowledgement."""
        self.agreed = replace(self.agreed, resource_subscriptions=list(uris))
        self._uris = frozenset(uris)

    def keep_tasks(self, task_ids: Sequence[str]) -> None:
        """Leave other tasks out of the acknowledgement: unknown ones, and those of other callers,
        without a word (R1216)."""
        self.agreed = replace(self.agreed, task_ids=list(task_ids))
        self._tasks = frozenset(task_ids)

    @property
    def id(self) -> RequestId:
        """The id of the request that opened it."""
        return self._exchange.request.id

    def acknowledge(self) -> bytes | None:
        """The first notification: the accepted filter, which may be empty (D22)."""
        if self._acknowledged or self._exchange.settled:
            return None
        self._acknowledged = True
        params = t.SubscriptionsAcknowledgedNotificationParams(notifications=self.agreed)
        return self._tagged("notifications/subscriptions/acknowledged", params)

    def wants(self, method: str, subject: str | None = None) -> bool:
        """Whether the filter includes this notification; `subject` is a URI or a task id."""
        if not self._acknowledged or self._exchange.settled:
            return False
        if method == "notifications/resources/updated":
            if subject is None or not is_covered(subject, self._uris):
                return False
            return self._allowed is None or self._allowed(subject)
        if method == "notifications/tasks":
            return subject in self._tasks
        flag = _FLAGS.get(method)
        return flag is not None and getattr(self.agreed, flag) is True

    def notification(self, method: str, params: t.ProtocolType) -> bytes | None:
        """A notification with the subscription id; None if the filter does not include it."""
        subject: str | None = getattr(params, "uri", None) or getattr(params, "task_id", None)
        return self._tagged(method, params) if self.wants(method, subject) else None

    def end(self, reason: str | None = None) -> list[bytes]:
        """End it from this side: cancelled, then the result, both with the subscription id (D1)."""
        if self._exchange.settled:
            return []
        # R0818: nothing carries the id before the acknowledgement, not even the end.
        first = self.acknowledge()
        params = t.CancelledNotificationParams(request_id=self.id, reason=reason)
        cancelled = self._tagged("notifications/cancelled", params)
        meta = {t.SUBSCRIPTION_ID_KEY: self._tag}
        last = self._exchange.settle(t.SubscriptionsListenResult(meta=meta))
        return [data for data in (first, cancelled, last) if data is not None]

    @property
    def _tag(self) -> Raw:
        return Raw(self._exchange.request.raw_id)

    def _tagged(self, method: str, params: t.ProtocolType) -> bytes:
        meta: dict[str, Any] = getattr(params, "meta", None) or {}
        tagged = replace(params, meta=meta | {t.SUBSCRIPTION_ID_KEY: self._tag})
        return encode_notification(method, self._exchange.encoder.params(tagged))


_FLAGS = {
    "notifications/tools/list_changed": "tools_list_changed",
    "notifications/prompts/list_changed": "prompts_list_changed",
    "notifications/resources/list_changed": "resources_list_changed",
}


def _check_strings(strings: Sequence[str] | None, name: str) -> int:
    """Return how many there are. Raises `Fault` for too many, or one that is too long."""
    if strings is None:
        return 0
    if len(strings) > MAX_SUBSCRIPTIONS:
        words = f"{name} has more than {MAX_SUBSCRIPTIONS} entries; listen to fewer"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    if any(len(string) > MAX_URI_CHARACTERS for string in strings):
        words = f"{name} has an entry of more than {MAX_URI_CHARACTERS} characters"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    return len(strings)


def _drop_params(exchange: Exchange) -> None:
    """Keep the id of the request and its `_meta` only; both were views of the whole body."""
    request = exchange.request
    exchange.request = Request(request.id, request.method, raw_id=request.raw_id)
    exchange.params = SplitParams(meta=Raw(bytes(exchange.params.meta)))


def _subset(requested: t.SubscriptionFilter, offered: t.SubscriptionFilter) -> t.SubscriptionFilter:
    return t.SubscriptionFilter(
        tools_list_changed=(requested.tools_list_changed and offered.tools_list_changed) or None,
        prompts_list_changed=(requested.prompts_list_changed and offered.prompts_list_changed)
        or None,
        resources_list_changed=(requested.resources_list_changed and offered.resources_list_changed)
        or None,
        resource_subscriptions=(
            requested.resource_subscriptions if offered.resource_subscriptions is not None else None
        ),
        task_ids=requested.task_ids if offered.task_ids is not None else None,
    )
