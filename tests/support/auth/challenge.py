"""A challenge as a client reads it: the scheme, and its parameters."""

import re

from http_client import Response

_LINE = re.compile(r'(\w+)((?: \w+="[^"]*",?)*)')
_PAIR = re.compile(r'(\w+)="([^"]*)"')


def challenge(answer: Response) -> tuple[str, dict[str, str]]:
    """The one challenge of an answer; the whole line must have its form."""
    found = _LINE.fullmatch(answer.headers["www-authenticate"])
    assert found is not None, answer.headers["www-authenticate"]
    pairs = _PAIR.findall(found[2])
    assert len(dict(pairs)) == len(pairs)
    return found[1], dict(pairs)
