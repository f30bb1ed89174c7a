"""The keyring of the operating system (macOS Keychain, Secret Service, Windows Credential Manager),
through the optional library `keyring`.
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
    """The encryption key of an account, created on first use; None without a keyring."""
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
        log.debug("the system keyring is not available: %s", type(error).__name__)
        return None
    return key if len(key) == KEY_BYTES else None


def keyring_password(service: str, name: str) -> str:
    """A password that the user stored in the keyring. Raises `Refused` with what to do."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        words = "the library for the system keyring is not installed"
        raise Refused(f"{words}; pip install keyring") from None
    ring: Any = keyring
    try:
        found = ring.get_password(service, name)
    except Exception as error:  # every backend has errors of its own
        words = f"the system keyring is not available ({type(error).__name__})"
        raise Refused(f"{words}; use ${{env:NAME}} or ${{file:path}} instead") from None
    if found is None:
        words = f"the system keyring has no entry {service!r} {name!r}"
        raise Refused(f"{words}; add it: keyring set {service} {name}")
    return str(found)
