"""Opens a page in the browser of the person at the terminal, and knows nothing of it afterwards.

Rules: nothing is opened unless somebody has said so, which is for the caller to ask. What is shown
there, or typed, reaches neither us nor any model (R0633): the browser is a process of its own, and
no stream of it is ours. No shell reads an address.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

# What a browser shows, and no other program is started by.
PAGES = ("http", "https")
# Where a person has no screen, a browser would take over the terminal that we ask in.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def browser(environ: Mapping[str, str] | None = None) -> list[str]:
    """The command that shows a page to this person; empty where there is none."""
    environ = os.environ if environ is None else environ
    named = environ.get("BROWSER", "").partition(os.pathsep)[0]
    with contextlib.suppress(ValueError):  # quotes that do not end
        words = shlex.split(named)
        if words and shutil.which(words[0]):
            return words
    if sys.platform == "darwin":
        return ["open"]
    if sys.platform == "win32":
        return ["rundll32", "url.dll,FileProtocolHandler"]
    program = shutil.which("xdg-open")
    has_screen = any(environ.get(name) for name in SCREENS)
    return [program] if program and has_screen else []


def can_open(url: str) -> bool:
    """Whether this is a page, and there is something to show it with."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url
    return plain and scheme.lower() in PAGES and bool(browser())


def open_page(url: str) -> None:
    """Show a page for which `can_open` is true. What becomes of it is between the two of them."""
    words = browser()
    command = [word.replace("%s", url) for word in words]
    if command == words:
        command.append(url)
    # Some return at once, others when the window is closed, and nobody waits for that.
    threading.Thread(target=_run, args=(command,), daemon=True, name="colonnade-browser").start()


def _run(command: list[str]) -> None:
    with contextlib.suppress(OSError):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
