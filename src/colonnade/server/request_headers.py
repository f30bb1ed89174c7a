"""The headers of an HTTP request as a handler sees them.

Rules: credentials are not among them. What a handler does not have, it can neither log, return nor
pass on to another server, which the specification forbids.
"""

from collections.abc import Iterator, Mapping

# Tokens, proofs and passwords; and the id of a session, which is as good as one.
SECRET = frozenset(
    {
        "authorization",
        "cookie",
        "dpop",
        "mcp-session-id",
        "proxy-authorization",
        "x-api-key",
    }
)


class RequestHeaders(Mapping[str, str]):
    """Headers by name, in whichever case it is written."""

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._values = {
            name: value.decode("latin-1")
            for name, value in ((key.decode("latin-1").lower(), raw[key]) for key in raw)
            if name not in SECRET
        }

    def __getitem__(self, name: str) -> str:
        key = name.lower()
        if key in SECRET:
            words = f"{name} is withheld from handlers, as all credentials are; "
            raise KeyError(words + "ctx.principal and ctx.claims say who the caller is")
        return self._values[key]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"RequestHeaders({', '.join(self._values)})"
