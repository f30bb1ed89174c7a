"""One request's life: opened, perhaps noisy for a while, settled exactly once.

An exchange belongs to whoever answers. It writes the frames that belong to its request, fit for
the caller's revision, and none after it is settled: what a handler does then is dropped.

Rules: no I/O, no clock, no tasks. Methods return the bytes to send, or None for silence.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.errors import Fault, FaultKind, LocalProtocolError
from portico.protocol import types as t
from portico.protocol.jsonrpc import (
    Head,
    Request,
    RequestId,
    encode_failure,
    encode_notification,
    encode_reply,
)
from portico.protocol.methods import Method
from portico.protocol.negotiation import Peer
from portico.protocol.reading import read
from portico.protocol.revision import Asking, BadToolInput, LogControl, number
from portico.protocol.shape import Shaper

# What a session hears of the log before it says what it wants.
DEFAULT_LOG_LEVEL: t.LoggingLevel = "info"

LISTEN = "subscriptions/listen"


class Exchange:
    """One request that is being answered."""

    __slots__ = (
        "batch",
        "head",
        "last_progress",
        "peer",
        "principal",
        "request",
        "row",
        "settled",
        "shaper",
    )

    def __init__(
        self,
        request: Request,
        head: Head,
        row: Method,
        peer: Peer,
        shaper: Shaper,
        principal: str = "",
    ) -> None:
        self.request = request
        self.head = head
        self.row = row
        self.peer = peer
        self.shaper = shaper
        self.principal = principal
        self.batch: int | None = None
        self.last_progress: float | None = None
        self.settled = False

    @property
    def progress_token(self) -> t.ProgressToken | None:
        """What the caller wants progress reported under, if it does."""
        return read(t.RequestMeta, self.head.meta).progress_token if self.head.meta else None

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> bytes | None:
        """A progress notice. It must go up; raises `LocalProtocolError` where it does not."""
        if self.settled or self.row.name == LISTEN:
            return None
        token = self.progress_token
        if token is None:
            return None
        if self.last_progress is not None and progress <= self.last_progress:
            raise LocalProtocolError(
                f"progress went from {self.last_progress} to {progress}; it must increase"
            )
        self.last_progress = progress
        params = t.ProgressNotificationParams(
            progress_token=token, progress=progress, total=total, message=message
        )
        return self._notify("notifications/progress", params)

    def wants(self, level: t.LoggingLevel) -> bool:
        """Whether a log message of this level is wanted by this caller."""
        if self.settled or self.row.name == LISTEN:
            return False
        wanted = self.peer.log_level
        if wanted is None and self.peer.revision.log_control is LogControl.BY_METHOD:
            wanted = DEFAULT_LOG_LEVEL
        return wanted is not None and t.severe_enough(level, wanted)

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bytes | None:
        """A log message for the caller, where it wants this level."""
        if not self.wants(level):
            return None
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        return self._notify("notifications/message", params)

    def _notify(self, method: str, params: t.Noun) -> bytes:
        return encode_notification(method, self.shaper.params(params))

    def settle(self, result: t.Noun, wrap: bool | None = None) -> bytes | None:
        """The answer; None where there was one already. `wrap` as in `Shaper.result`."""
        if self.settled:
            return None
        if isinstance(result, t.InputRequiredResult):
            self._check_demand(result)
        body = self.shaper.result(result, None, wrap)
        self.settled = True
        return encode_reply(self.request.raw_id, body)

    def _check_demand(self, result: t.InputRequiredResult) -> None:
        """R0801 and its like: only where it is allowed, never empty, only what was declared."""
        if self.peer.revision.asking is not Asking.BY_RESULT or not self.row.may_ask:
            raise LocalProtocolError(f"{self.row.name} may not be answered with input_required")
        if result.input_requests is None and result.request_state is None:
            raise LocalProtocolError("input_required needs inputRequests or requestState")

    def fail(self, fault: Fault) -> bytes | None:
        """An error for an answer; None where there was an answer already."""
        if self.settled:
            return None
        self.settled = True
        code = number(fault, self.peer.revision)
        return encode_failure(self.request.raw_id, code, fault.message, self._data(fault.data))

    def _data(self, data: Any) -> Any:
        return self.shaper.shape(data) if isinstance(data, t.Noun) else data

    def refuse_arguments(self, fault: Fault) -> bytes | None:
        """Arguments that do not fit a tool's schema, told as the revision wants it (D16)."""
        if self.peer.revision.bad_tool_input is BadToolInput.ERROR:
            return self.fail(fault)
        return self.settle(
            t.CallToolResult(content=[t.TextContent(text=fault.message)], is_error=True)
        )

    def abandon(self) -> None:
        """The caller has gone or given up: nothing more is said."""
        self.settled = True


# ---------------------------------------------------------------- subscriptions


class Subscription:
    """One `subscriptions/listen`: acknowledged first, then only what was asked for, then its end.

    `offered` is what the server can push at all; the rest is left out of the acknowledgement.
    """

    def __init__(self, exchange: Exchange, offered: t.SubscriptionFilter) -> None:
        asked = read(t.SubscriptionsListenRequestParams, exchange.request.params).notifications
        self.agreed = _subset(asked, offered)
        self._exchange = exchange
        self._acknowledged = False
        self._uris = tuple(self.agreed.resource_subscriptions or ())

    @property
    def id(self) -> RequestId:
        """The id of the request that opened it."""
        return self._exchange.request.id

    def acknowledge(self) -> bytes | None:
        """The first message: what was agreed to, which may be nothing at all (D22)."""
        if self._acknowledged or self._exchange.settled:
            return None
        self._acknowledged = True
        params = t.SubscriptionsAcknowledgedNotificationParams(notifications=self.agreed)
        return self._tagged("notifications/subscriptions/acknowledged", params)

    def wants(self, method: str, uri: str | None = None) -> bool:
        """Whether this news was asked for and agreed to."""
        if not self._acknowledged or self._exchange.settled:
            return False
        if method == "notifications/resources/updated":
            return uri is not None and any(_within(uri, own) for own in self._uris)
        flag = _FLAGS.get(method)
        return flag is not None and getattr(self.agreed, flag) is True

    def news(self, method: str, params: t.NotificationParams) -> bytes | None:
        """A notification, tagged; None where it was not asked for."""
        uri = getattr(params, "uri", None)
        return self._tagged(method, params) if self.wants(method, uri) else None

    def end(self, reason: str | None = None) -> list[bytes]:
        """End it from this side: cancelled, then the result, both tagged (D1)."""
        if self._exchange.settled:
            return []
        params = t.CancelledNotificationParams(request_id=self.id, reason=reason)
        frames = [self._tagged("notifications/cancelled", params)]
        meta = {t.SUBSCRIPTION_ID_KEY: self._tag}
        last = self._exchange.settle(t.SubscriptionsListenResult(meta=meta))
        return [*frames, last] if last is not None else frames

    @property
    def _tag(self) -> Raw:
        return Raw(self._exchange.request.raw_id)

    def _tagged(self, method: str, params: t.NotificationParams) -> bytes:
        meta = (params.meta or {}) | {t.SUBSCRIPTION_ID_KEY: self._tag}
        body = self._exchange.shaper.params(replace(params, meta=meta))
        return encode_notification(method, body)


_FLAGS = {
    "notifications/tools/list_changed": "tools_list_changed",
    "notifications/prompts/list_changed": "prompts_list_changed",
    "notifications/resources/list_changed": "resources_list_changed",
}


def _within(uri: str, own: str) -> bool:
    """A resource, or one below it: updates of parts are news of the whole."""
    return uri == own or uri.startswith(own if own.endswith("/") else own + "/")


def _subset(asked: t.SubscriptionFilter, offered: t.SubscriptionFilter) -> t.SubscriptionFilter:
    uris = asked.resource_subscriptions if offered.resource_subscriptions is not None else None
    return t.SubscriptionFilter(
        tools_list_changed=(asked.tools_list_changed and offered.tools_list_changed) or None,
        prompts_list_changed=(asked.prompts_list_changed and offered.prompts_list_changed) or None,
        resources_list_changed=(asked.resources_list_changed and offered.resources_list_changed)
        or None,
        resource_subscriptions=uris,
    )


# ---------------------------------------------------------------- the caller's side


class _Kind(Struct):
    result_type: Any = msgspec.field(name="resultType", default=None)


_kind = msgspec.json.Decoder(_Kind)


def read_result(row: Method, raw: Raw, peer: Peer, also: frozenset[str] = frozenset()) -> t.Noun:
    """What a request came to. `also` are result types of extensions that were declared.

    An absent `resultType` is `complete`; one that is not recognised is invalid. Raises `Fault`.
    """
    try:
        kind: Any = _kind.decode(raw).result_type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault(FaultKind.INVALID_PARAMS, f"a result that cannot be read: {error}") from None
    result = row.result
    if result is None:
        raise LocalProtocolError(f"{row.name} has no result")
    if kind in (None, "complete") or (isinstance(kind, str) and kind in also):
        return read(result, raw)
    if kind == "input_required" and row.may_ask and peer.revision.asking is Asking.BY_RESULT:
        return read(t.InputRequiredResult, raw)
    words = f"{row.name} was answered with a resultType that is not recognised"
    raise Fault(FaultKind.INVALID_PARAMS, words)
