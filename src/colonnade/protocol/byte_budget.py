"""A limit on bytes held in memory, for all peers together and for each principal.

Rules: no I/O. Only counts: the caller reserves what it holds, refuses what does not fit with its
own error, and releases exactly what it reserved.
"""


class ByteBudget:
    """Bytes that are held at the moment, in total and by principal.

    Anonymous callers are the principal "", for which only the total applies: they are many.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self.total = total
        self.per_principal = per_principal
        self.used: int = 0
        self._by_principal: dict[str, int] = {}

    def reserve(self, principal: str, size: int) -> bool:
        """Count these bytes as held; False, and nothing is counted, if they do not fit."""
        used = self.used + size
        if used > self.total:
            return False
        if principal:
            own = self._by_principal.get(principal, 0) + size
            if own > self.per_principal:
                return False
            self._by_principal[principal] = own
        self.used = used
        return True

    def release(self, principal: str, size: int) -> None:
        """Stop counting these bytes, which were reserved."""
        self.used -= size
        if principal:
            own = self._by_principal[principal] - size
            if own:
                self._by_principal[principal] = own
            else:
                del self._by_principal[principal]
