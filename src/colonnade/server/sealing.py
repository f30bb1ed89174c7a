"""The keys of one server, made and loaded when something is sealed for the first time.

Rules: keys that are no keys are refused at once. Nothing is sealed here: `auth.seal` does that.
"""

from collections.abc import Sequence

from colonnade.ports import Seal


class Keys:
    """A ring of keys for an audience; without keys, one that lives as long as the process."""

    def __init__(self, keys: Sequence[bytes], audience: str) -> None:
        # Whether nobody else can open what this seals.
        self.private: bool = not keys
        self._audience = audience
        self._ring: Seal | None = None
        if keys:
            self._ring = self._made(keys)

    def _made(self, keys: Sequence[bytes]) -> Seal:
        from colonnade.auth.seal import KeyRing

        return KeyRing(keys, audience=self._audience)

    @property
    def ring(self) -> Seal:
        """The ring itself."""
        if self._ring is None:
            self._ring = self._made(())
        return self._ring

    def seal(self, secret: bytes) -> str:
        """Text that only this ring opens. Raises `Fault` for more than may travel."""
        return self.ring.seal(secret)

    def unseal(self, text: str) -> bytes:
        """What was sealed. Raises `Fault` for anything else."""
        return self.ring.unseal(text)
