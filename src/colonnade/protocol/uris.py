"""Which subscription to a resource covers the URI of another one."""

from collections.abc import Set

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
