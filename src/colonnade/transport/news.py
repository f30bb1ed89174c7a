"""News for a client that is told without asking: whether it is wanted, and as which bytes.

Rules: no I/O. What the client's revision does not have, or did not ask for, is no news. Only two
things are told to every session that may hear them: that a list changed, which every client sees,
and that a resource changed, to those who subscribed to it. Anything else is about one caller's own
doings (the status of a task, the end of an elicitation) and is sent on that caller's own stream by
whoever knows it; a notification that comes here without being one of the two reaches no session.
"""

import logging
from collections.abc import Set
from typing import Final

from colonnade.errors import LocalProtocolError
from colonnade.protocol.link import Link
from colonnade.protocol.types import NotificationParams
from colonnade.protocol.uris import within

# What is the same for every client, and has nothing of one caller in it.
BROADCASTS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    }
)
# What goes to those who subscribed to its `uri`.
BY_SUBSCRIPTION: Final = "notifications/resources/updated"

log: logging.Logger = logging.getLogger("colonnade.transport")


def news_for(
    link: Link, subscriptions: Set[str], method: str, params: NotificationParams
) -> bytes | None:
    """A change as a frame for this link; None where it is not for it."""
    if method == BY_SUBSCRIPTION:
        uri: str | None = getattr(params, "uri", None)
        if uri is None or not within(uri, subscriptions):
            return None
    elif method not in BROADCASTS:
        log.error("%s was announced to every session, and has one recipient; not sent", method)
        return None
    try:
        return link.notify(method, params)
    except LocalProtocolError:  # not in this revision, not offered, or not yet
        return None
