"""The system's keyring, for whoever has installed `portico[keyring]`: it keeps the one key.

Rules: only this file knows the library. Where there is none, or it does not work here (a server
without a desktop), that is no error: the key is then in a file.
"""

import base64
import logging
import secrets
from typing import Any, Final

from portico.auth.seal import KEY_BYTES

log: logging.Logger = logging.getLogger("portico.auth")

SERVICE: Final = "portico"


def keyring_key(account: str) -> bytes | None:
    """The key that the keyring has for this account, made where it has none; None without one."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        return None
    ring: Any = keyring
    try:
        text = ring.get_password(SERVICE, account)
        if text is None:
            text = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            ring.set_password(SERVICE, account, text)
            text = ring.get_password(SERVICE, account)
        key = base64.b64decode(text or "", validate=True)
    except Exception as error:  # every backend has errors of its own
        log.debug("the keyring of this system does not work here: %s", type(error).__name__)
        return None
    return key if len(key) == KEY_BYTES else None
