"""News for a client that is told without asking: whether it is wanted, and as which bytes.

Rules: no I/O. What the client's revision does not have, or did not ask for, is no news.
"""

from collections.abc import Set

from portico.errors import LocalProtocolError
from portico.protocol.link import Link
from portico.protocol.types import NotificationParams
from portico.protocol.uris import within


def news_for(
    link: Link, subscriptions: Set[str], method: str, params: NotificationParams
) -> bytes | None:
    """A change as a frame for this link; None where it is not for it."""
    uri: str | None = getattr(params, "uri", None)
    if uri is not None and not within(uri, subscriptions):
        return None
    try:
        return link.notify(method, params)
    except LocalProtocolError:  # not in this revision, not offered, or not yet
        return None
