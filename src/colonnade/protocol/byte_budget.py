"""A limit on the bytes that are held for all peers together, and for one principal.

Rules: no I/O. Only counts: the caller says what it holds, refuses what does not fit in its own
words, and gives back exactly what it took.
"""


class ByteBudget:
    """Bytes that are held at the moment, in total and by principal.

    Callers without a name are the principal "", for whom only the total holds: they are many.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self.total = total
        self.per_principal = per_principal
        self.used: int = 0
        self._by_principal: dict[str, int] = {}

    def reserve(self, principal: str, size: int) -> bool:
        """Count these bytes as held; False, and nothing is counted, where they do not fit."""
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
        """These bytes, which were taken, are held no more."""
        self.used -= size
        if principal:
            own = self._by_principal[principal] - size
            if own:
                self._by_principal[principal] = own
            else:
                del self._by_principal[principal]
