"""What in a command line, a variable or an address deserves a second look, in words.

Rules: pure. A remark is no verdict: what has none may be dangerous all the same, and nobody is told
otherwise. Each names what it saw, and nothing is hidden because it is common.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

# Programs by their names, without folder and ending.
RAISING: Final = frozenset({"sudo", "doas", "su", "pkexec", "runas", "gsudo"})
SHELLS: Final = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh", "osascript"}
)
REACHING: Final = frozenset(
    {
        "curl",
        "wget",
        "nc",
        "ncat",
        "netcat",
        "socat",
        "ssh",
        "scp",
        "sftp",
        "rsync",
        "ftp",
        "telnet",
    }
)
DELETING: Final = frozenset({"rm", "del", "rmdir", "shred", "dd", "mkfs", "format"})
# Options after which code stands, and not a name of any.
CODE: Final = frozenset({"-c", "-e", "--eval", "-enc", "-encodedcommand", "-command", "/c"})
INTERPRETERS: Final = frozenset({"python", "node", "deno", "bun", "ruby", "perl", "php"})
# Variables that make other programs load code.
LOADING: Final = re.compile(
    r"LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT|DYLD_\w+|PATH|PYTHONPATH|PYTHONSTARTUP|PYTHONHOME"
    r"|NODE_OPTIONS|NODE_PATH|BASH_ENV|ENV|PERL5OPT|PERL5LIB|RUBYOPT|RUBYLIB|JAVA_TOOL_OPTIONS"
    r"|GIT_SSH_COMMAND|GIT_SSH|GIT_EXTERNAL_DIFF|EDITOR|PAGER|BROWSER|PROMPT_COMMAND|IFS"
)
# Where secrets and the system live; the first that fits is named.
PLACES: Final = (
    (re.compile(r"\.ssh\b"), "SSH keys"),
    (re.compile(r"\.(?:aws|azure|kube|gnupg|netrc|docker|npmrc|pypirc|git-credentials)\b"), "keys"),
    (re.compile(r"docker\.sock|--privileged"), "the whole machine, by Docker"),
    (re.compile(r"[Kk]eychains?\b|\bkeyrings?\b|/etc/(?:passwd|shadow|sudoers)"), "passwords"),
    (
        re.compile(r"(?:^|[\s=:\"'])/(?:etc|root|boot|proc|sys|dev|var|usr|bin|sbin|lib|System)\b"),
        "folders of the system",
    ),
    (re.compile(r"(?i)[a-z]:\\(?:windows|program files|programdata)"), "folders of the system"),
    (
        re.compile(
            r"(?:^|[\s=:\"'])(?:~|\$HOME|\$\{(?:env:)?HOME\}|\$\{userHome\}|%USERPROFILE%)"
            r"|(?:^|[\s=:\"'])/(?:home|Users)/[^/\s]+/?(?:$|[\s:\"'])"
        ),
        "your home folder",
    ),
    (re.compile(r"(?:^|[\s=:\"'])/(?:$|[\s:\"'])"), "the whole disk"),
)
_LOOPBACK: Final = ("127.", "localhost", "::1")


def of_command(words: Sequence[str], folder: str) -> list[str]:
    """What deserves a second look in a command line that is started in a folder."""
    return list(dict.fromkeys(_of_command(words, folder)))


def _of_command(words: Sequence[str], folder: str) -> Iterator[str]:
    line = " ".join(words)
    names = [_name(word) for word in re.split(r"[\s;|&()`]+", line) if word]
    first = _name(words[0]) if words else ""
    for name in names:
        if name in RAISING:
            yield f"takes more rights than yours ({name})"
        if name in DELETING:
            yield f"may delete what is there ({name})"
        if name in REACHING:
            yield f"uses the network ({name})"
    if first in SHELLS:
        yield f"gives its words to a shell ({first})"
    elif re.sub(r"[\d.]+$", "", first) in INTERPRETERS and CODE & {w.lower() for w in words[1:]}:
        yield "runs code that stands in the line itself"
    if re.search(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|\beval\b|base64\s+(?:-d|--decode)", line):
        yield "runs what another program gives it"
    for word in words[1:]:
        yield from _of_place(word)
        path = word.rpartition("=")[2]
        if _is_outside(path, folder):
            yield f"names a path outside of {folder}"


def _name(word: str) -> str:
    stem = re.split(r"[\\/]", word.strip("\"'"))[-1].lower()
    return os.path.splitext(stem)[0] if stem.endswith((".exe", ".cmd", ".bat")) else stem


def _of_place(word: str) -> Iterator[str]:
    for pattern, what in PLACES:
        if pattern.search(word):
            yield f"names {what}"
            return


def _is_outside(path: str, folder: str) -> bool:
    if "://" in path or not (os.path.isabs(path) or path.startswith("..")):
        return False
    whole = os.path.normpath(os.path.join(folder, path))
    return whole != folder and not whole.startswith(os.path.join(folder, ""))


def of_variable(name: str, value: str) -> list[str]:
    """What deserves a second look in a variable."""
    found = ["makes programs load other code"] if LOADING.fullmatch(name) else []
    return found + list(_of_place(value))


def of_address(url: str) -> list[str]:
    """What deserves a second look in an address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ["is no address that can be read"]
    if parts.scheme == "http" and not host.startswith(_LOOPBACK):
        return ["sends everything unencrypted"]
    return []
