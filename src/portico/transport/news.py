"""News for a client that is told without asking: whether it is wanted, and as which bytes.

Rules: no I/O. What the client's revision does not have, or did not ask for, is no news.
"""

from collections.abc import Set

from portico.errors import LocalProtocolError
from portico.protocol.link import Link
from portico.protocol.types import NotificationParams

# An address is cut at each slash to find what it is below; one that has more is compared with all
# that is followed, so that the work grows with its length and not with the square of that.
MAX_CUTS = 64


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


def within(uri: str, own: Set[str]) -> bool:
    """A resource, or one below it: updates of parts are news of the whole."""
    if uri in own:
        return True
    if uri.count("/") > MAX_CUTS:
        return any(_is_below(uri, one) for one in own)
    ends = (at for at, sign in enumerate(uri) if sign == "/")
    return any(uri[:at] in own or uri[: at + 1] in own for at in ends)


def _is_below(uri: str, one: str) -> bool:
    return uri.startswith(one) and (one.endswith("/") or uri.startswith("/", len(one)))
