"""Whether what a file wants to start may be started: a person's word, for these bytes alone.

Whoever puts a file into a folder could have anything started by whoever opens that folder. So such
a file is shown to a person once, with every command line and address as it stands there, and again
when it, or a file that it draws in, has changed by a byte.

Rules: what was asked for is what is used: one reading, one digest. What is shown is whole, and acts
on no terminal. What is kept says nothing but a path and a digest, is written in one step, and
counts only where nobody else could have written it.
"""

import contextlib
import hashlib
import os
import re
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.config.display import words
from colonnade.host.config.entry import Draft, Said, texts
from colonnade.host.config.references import Template
from colonnade.text import clean

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


What: TypeAlias = Literal["run", "reach", "set", "send", "ask", "read", "in"]

FOLDER: Final = "trusted"
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Wish(NamedTuple):
    """One thing that a file wants: for which server, and what, made safe for a terminal; and what
    in it deserves a second look."""

    server: str
    what: What
    text: str
    dangers: tuple[str, ...] = ()


class TrustQuestion(Struct, frozen=True, kw_only=True):
    """What a person is asked: whether all that this file wants may happen."""

    file: str
    digest: str
    wishes: tuple[Wish, ...]
    # Whether another version of this file was trusted.
    changed: bool = False


# Asks a person; or it is known already; or only what is kept counts.
Trust: TypeAlias = Callable[[TrustQuestion], bool] | bool | None


def digest_of(parts: Iterable[tuple[str, str]]) -> str:
    """One digest for a file and for all that it draws in: paths, and digests of contents."""
    told = msgspec.json.encode(sorted(parts))
    return hashlib.sha256(told).hexdigest()


def is_trusted(file: str, digest: str, wanted: Sequence[Wish], trust: Trust) -> bool:
    """Whether a file may be used; a person is asked where that is possible, and remembered."""
    if trust is True:
        return True
    key = os.path.realpath(file)
    kept = recall(key)
    if kept == digest:
        return True
    if trust is None or trust is False:
        return False
    question = TrustQuestion(
        file=file, digest=digest, wishes=tuple(wanted), changed=kept is not None
    )
    if trust(question) is not True:
        return False
    remember(key, digest)
    return True


# ---------------------------------------------------------------- what is shown


def wishes(drafts: Iterable[Draft], variables: Mapping[Draft, Sequence[str]]) -> list[Wish]:
    """All that servers want, as it stands in their files, whole. Of files with variables, whose
    values may be secrets, the names: by server."""
    return [wish for draft in drafts for wish in _wishes(draft, variables.get(draft, ()))]


def _wishes(draft: Draft, names: Sequence[str]) -> Iterator[Wish]:
    key, folder = clean(draft.key), draft.origin.folder

    def wish(what: What, text: str, dangers: Iterable[str] = ()) -> Wish:
        return Wish(key, what, clean(text), tuple(map(clean, dangers)))

    url, cwd, file = draft.get("url"), draft.get("cwd"), draft.get("env_file")
    if draft.get("command") is not None:
        line = words(draft)
        yield wish("run", shlex.join(line), of_command(line, folder))
    if url is not None:
        yield wish("reach", url.value.text, of_address(url.value.text))
    if cwd is not None:
        yield wish("in", cwd.value.text)
    for name, said in draft.table("env").items():
        yield wish("set", f"{name}={_text(said)}", of_variable(name, _text(said)))
    if file is not None:
        found = [one for name in names for one in of_variable(name, "")]
        listed = f" ({', '.join(names)})" if names else ""
        yield wish("read", f"{_text(file)}{listed}", found)
    for name, said in draft.table("headers").items():
        yield wish("send", f"{name}={_text(said)}")
    helper = draft.get("headers_helper")
    if helper is not None:
        yield wish("ask", _text(helper), of_command(_text(helper).split(), folder))
    for said in draft.fields.values():
        for part in (part for one in texts(said) for part in one.references if part.words):
            yield wish("ask", shlex.join(part.words), of_command(part.words, folder))


def _text(said: Said) -> str:
    return said.value.text if isinstance(said.value, Template) else ""


# ---------------------------------------------------------------- what is kept


class _Kept(Struct):
    file: str
    digest: str


def folder() -> Path:
    """Where it is kept: beside the logins."""
    from colonnade.client.auth import storage_folder

    return storage_folder() / FOLDER


def _file(key: str) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(key)).hexdigest()}.json"


def recall(key: str) -> str | None:
    """The digest that was trusted for a path; None where there is none that counts."""
    try:
        with open(_file(key), "rb") as opened:
            seen = os.fstat(opened.fileno())
            data = opened.read()
        kept = msgspec.json.decode(data, type=_Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if sys.platform != "win32" and (seen.st_uid != os.getuid() or seen.st_mode & _OTHERS_WRITE):
        return None
    return kept.digest if kept.file == key else None


def remember(key: str, digest: str) -> None:
    """Keep that a path may be used with this content. Raises `Refused`."""
    path = _file(key)
    try:
        path.parent.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
        if sys.platform != "win32":
            path.parent.chmod(_OWN_FOLDER)
        made, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(msgspec.json.encode(_Kept(key, digest)))
            os.chmod(name, _OWN_FILE)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise Refused(f"it cannot be kept in {path.parent}: {error.strerror}") from None


def forget(key: str) -> bool:
    """Trust a path no more; whether it was trusted."""
    try:
        _file(key).unlink()
    except FileNotFoundError:
        return False
    return True
