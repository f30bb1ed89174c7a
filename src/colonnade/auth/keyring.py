"""The system's keyring, for whoever has installed `colonnade[keyring]`: it keeps the one key.

A configuration may refer to what else is in it (`keyring_password`), which is read and never kept.

Rules: only this file knows the library. Where there is none, or it does not work here (a server
without a desktop), that is no error: the key is then in a file.
"""

import base64
import logging
import secrets
from typing import Any, Final

from colonnade.auth.seal import KEY_BYTES
from colonnade.errors import Refused

log: logging.Logger = logging.getLogger("colonnade.auth")

SERVICE: Final = "colonnade"


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


def keyring_password(service: str, name: str) -> str:
    """What somebody has put into the keyring. Raises `Refused`, which says what to do."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        words = "the keyring of this system is not reachable from here"
        raise Refused(f"{words}; pip install keyring") from None
    ring: Any = keyring
    try:
        found = ring.get_password(service, name)
    except Exception as error:  # every backend has errors of its own
        words = f"the keyring of this system does not work here ({type(error).__name__})"
        raise Refused(f"{words}; use ${{env:NAME}} or ${{file:path}} instead") from None
    if found is None:
        words = f"the keyring has nothing for {service!r} {name!r}"
        raise Refused(f"{words}; put it there: keyring set {service} {name}")
    return str(found)
