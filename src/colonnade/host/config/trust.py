"""Trust on first use of configuration files: whether a file may start servers, for its exact bytes.

A file in a project folder could start anything for the user that opens that folder. So such a file
is shown to the user once, with every command line and URL as it is written, and again when it, or a
file that it includes, has changed by a byte.

Rules: what was shown is what is used: one read, one digest. The text shown is complete, and cannot
control a terminal. A record has only a path and a digest, is written atomically, and counts only if
no other user could have written it.
"""

import hashlib
import itertools
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.config.display import words
from colonnade.host.config.entry import EntryDraft, EntryField, templates_of
from colonnade.host.config.references import ValueTemplate
from colonnade.text import clean
from colonnade.transport.process.sandbox import Sandbox

# Names of programs, without folder and suffix.
PRIVILEGED: Final = frozenset({"sudo", "doas", "su", "pkexec", "runas", "gsudo"})
SHELLS: Final = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh", "osascript"}
)
NETWORK: Final = frozenset(
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
# Programs that start the one that their arguments name.
STARTING: Final = frozenset(
    {
        *PRIVILEGED,
        *("env", "nohup", "timeout", "xargs", "nice", "ionice", "setsid", "stdbuf", "time"),
        *("command", "exec", "chroot", "unshare", "nsenter", "taskset", "flock", "watch", "strace"),
        *(
            "script",
            "busybox",
            "toybox",
            "start",
            "find",
            "parallel",
            "chrt",
            "numactl",
            "systemd-run",
        ),
        *("uv", "uvx", "npx", "bunx", "pipx", "poetry", "docker", "podman", "wsl"),
    }
)
# Their options whose value is a whole command line: `env -S "sh -c …"`.
LINE_OPTIONS: Final = frozenset({"-s", "--split-string", "-c", "--command", "--call"})
# Options that are followed by code.
CODE: Final = frozenset(
    {"-c", "-e", "--eval", "--print", "-enc", "-encodedcommand", "-command", "/c"}
)
# Interpreters, and the letters of their options that are followed by code: also `-Ic`, `-cCODE`.
CODE_LETTERS: Final = {
    **dict.fromkeys(("python", "pythonw", "pypy"), "c"),
    **dict.fromkeys(("node", "nodejs", "bun", "lua"), "ep"),
    "deno": "",
    "ruby": "e",
    "perl": "eE",
    "php": "rBRE",
}
# Options of interpreters whose value is the next word.
VALUE_OPTIONS: Final = frozenset({"-W", "-X", "-r", "--require", "--import", "--loader", "-I"})
# Environment variables that make programs load code.
LOADING: Final = re.compile(
    r"LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT|DYLD_\w+|PATH|PYTHONPATH|PYTHONSTARTUP|PYTHONHOME"
    r"|NODE_OPTIONS|NODE_PATH|BASH_ENV|ENV|PERL5OPT|PERL5LIB|RUBYOPT|RUBYLIB|JAVA_TOOL_OPTIONS"
    r"|GIT_SSH_COMMAND|GIT_SSH|GIT_EXTERNAL_DIFF|EDITOR|PAGER|BROWSER|PROMPT_COMMAND|IFS"
)
# Where secrets and system files are; the first match is named.
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


def command_dangers(argv: Sequence[str], folder: str) -> list[str]:
    """What deserves attention in a command line that is started in a folder."""
    return list(dict.fromkeys(_command_dangers(argv, folder)))


def _command_dangers(argv: Sequence[str], folder: str) -> Iterator[str]:
    yield from program_dangers(argv)
    for word in argv[1:]:
        yield from _place_dangers(word)
        path = word.rpartition("=")[2]
        if _is_outside(path, folder):
            yield f"uses a path outside of {folder}"


def program_dangers(argv: Sequence[str]) -> Iterator[str]:
    """What deserves attention in a command line wherever it is started: what it runs."""
    line = " ".join(argv)
    names = [_name(word) for word in re.split(r"[\s;|&()`]+", line) if word]
    for name in names:
        if name in PRIVILEGED:
            yield f"raises privileges ({name})"
        if name in DELETING:
            yield f"may delete files ({name})"
        if name in NETWORK:
            yield f"uses the network ({name})"
    for program in _programs(argv):
        first = _name(program[0])
        if first in SHELLS:
            yield f"runs a shell ({first})"
        elif _has_code(program):
            yield "runs inline code"
    if re.search(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|\beval\b|base64\s+(?:-d|--decode)", line):
        yield "runs the output of another program"


def _programs(argv: Sequence[str]) -> Iterator[Sequence[str]]:
    """The command line, and those that it starts: `env A=1 nohup sh -c …` has three. After a
    program that starts others each word may be one, since the options before it may have values:
    too many are looked at rather than too few."""
    if not argv:
        return
    yield argv
    if _name(argv[0]) not in STARTING:
        return
    for at in range(1, len(argv)):
        is_line = " " in argv[at] and argv[at - 1].lower() in LINE_OPTIONS
        inner = _split_line(argv[at]) if is_line else argv[at:]
        name = _name(inner[0]) if inner else ""
        if name in STARTING:
            yield from _programs(inner)
            return
        if name in SHELLS or _interpreter(name) in CODE_LETTERS:
            yield inner


def _split_line(text: str) -> list[str]:
    """The words of a command line; those between spaces, if its quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _interpreter(name: str) -> str:
    return re.sub(r"[\d.]+$", "", name)


def _has_code(program: Sequence[str]) -> bool:
    """Whether an interpreter is given code: `-c CODE`, and also `-cCODE`, `-Ic CODE`, `eval CODE`,
    `--eval=CODE`."""
    letters = CODE_LETTERS.get(_interpreter(_name(program[0])))
    if letters is None:
        return False
    if any(word.lower().partition("=")[0] in CODE for word in program[1:]):
        return True
    for before, word in itertools.pairwise(program):
        if letters and re.match(f"-[A-Za-z]*[{letters}]", word):
            return True
        if not word.startswith("-") and before not in VALUE_OPTIONS:
            return word == "eval"  # else the program, and what follows is for it
    return False


def _name(word: str) -> str:
    stem = re.split(r"[\\/]", word.strip("\"'"))[-1].lower()
    return os.path.splitext(stem)[0] if stem.endswith((".exe", ".cmd", ".bat")) else stem


def _place_dangers(word: str) -> Iterator[str]:
    for pattern, what in PLACES:
        if pattern.search(word):
            yield f"uses {what}"
            return


def _is_outside(path: str, folder: str) -> bool:
    if "://" in path or not (os.path.isabs(path) or path.startswith("..")):
        return False
    whole = os.path.normpath(os.path.join(folder, path))
    return whole != folder and not whole.startswith(os.path.join(folder, ""))


def variable_dangers(name: str, value: str) -> list[str]:
    """What deserves attention in an environment variable."""
    found = ["makes programs load code"] if LOADING.fullmatch(name) else []
    return found + list(_place_dangers(value))


def url_dangers(url: str) -> list[str]:
    """What deserves attention in a URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ["is not a valid URL"]
    if parts.scheme == "http" and not host.startswith(_LOOPBACK):
        return ["is not encrypted"]
    return []


ActionKind: TypeAlias = Literal["run", "reach", "set", "send", "ask", "read", "in", "sandbox"]

FOLDER: Final = "trusted"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class RequestedAction(NamedTuple):
    """One action that a file requests: for which server, which kind, and its text, safe for a
    terminal; and what deserves attention in it."""

    server: str
    what: ActionKind
    text: str
    dangers: tuple[str, ...] = ()


class TrustRequest(Struct, frozen=True, kw_only=True):
    """What a user is asked to trust: all actions that a file requests."""

    file: str
    digest: str
    actions: tuple[RequestedAction, ...]
    # Whether another version of this file was trusted.
    changed: bool = False


# A callback that asks the user; True to trust everything; None to use only what was trusted before.
Trust: TypeAlias = Callable[[TrustRequest], bool] | bool | None


def digest_of(parts: Iterable[tuple[str, str]]) -> str:
    """One digest of a file and the files that it includes: their paths and the digests of their
    content."""
    encoded = msgspec.json.encode(sorted(parts))
    return hashlib.sha256(encoded).hexdigest()


def is_trusted(file: str, digest: str, wanted: Sequence[RequestedAction], trust: Trust) -> bool:
    """Whether a file may be used; the user is asked if that is possible, and the answer is
    trusted."""
    if trust is True:
        return True
    key = os.path.realpath(file)
    trusted = recall(key)
    if trusted == digest:
        return True
    if trust is None or trust is False:
        return False
    question = TrustRequest(
        file=file, digest=digest, actions=tuple(wanted), changed=trusted is not None
    )
    if trust(question) is not True:
        return False
    remember(key, digest)
    return True


# ---------------------------------------------------------------- requested actions


def requested_actions(
    drafts: Iterable[EntryDraft],
    variables: Mapping[EntryDraft, Sequence[str]],
    defaults: EntryDraft | None = None,
) -> list[RequestedAction]:
    """All actions that entries request, complete, as they are written, and their sandbox, which may
    be that of the defaults. Of `.env` files, whose values may be secrets, only the names of
    variables, by entry."""
    usual = defaults.get("sandbox") if defaults is not None else None
    return [
        action
        for draft in drafts
        for action in _entry_actions(draft, variables.get(draft, ()), usual)
    ]


def _entry_actions(
    draft: EntryDraft, names: Sequence[str], sandbox: EntryField | None
) -> Iterator[RequestedAction]:
    key, folder = clean(draft.key), draft.origin.folder

    def action(what: ActionKind, text: str, dangers: Iterable[str] = ()) -> RequestedAction:
        return RequestedAction(key, what, clean(text), tuple(map(clean, dangers)))

    url, cwd, file = draft.get("url"), draft.get("cwd"), draft.get("env_file")
    if draft.get("command") is not None:
        line = words(draft)
        yield action("run", shlex.join(line), command_dangers(line, folder))
        sandbox = draft.get("sandbox") or sandbox
        if sandbox is not None:
            yield action("sandbox", *_granted(sandbox.value))
    if url is not None:
        yield action("reach", url.value.text, url_dangers(url.value.text))
    if cwd is not None:
        yield action("in", cwd.value.text)
    for name, entry_field in draft.table("env").items():
        yield action(
            "set", f"{name}={_text(entry_field)}", variable_dangers(name, _text(entry_field))
        )
    if file is not None:
        found = [one for name in names for one in variable_dangers(name, "")]
        listed = f" ({', '.join(names)})" if names else ""
        yield action("read", f"{_text(file)}{listed}", found)
    for name, entry_field in draft.table("headers").items():
        yield action("send", f"{name}={_text(entry_field)}")
    helper = draft.get("headers_helper")
    if helper is not None:
        yield action("ask", _text(helper), command_dangers(_text(helper).split(), folder))
    for entry_field in draft.fields.values():
        for part in (
            part for one in templates_of(entry_field) for part in one.references if part.words
        ):
            yield action("ask", shlex.join(part.words), command_dangers(part.words, folder))


def _granted(sandbox: Sandbox | Literal[False]) -> tuple[str, list[str]]:
    """R1314: what a sandbox grants, and what deserves attention in it."""
    if sandbox is False:
        return "none", []
    paths = [*sandbox.read, *sandbox.write]
    return sandbox.describe(), [one for path in paths for one in _place_dangers(path)]


def _text(entry_field: EntryField) -> str:
    return entry_field.value.text if isinstance(entry_field.value, ValueTemplate) else ""


# ---------------------------------------------------------------- records


class _TrustRecord(Struct):
    file: str
    digest: str


def folder() -> Path:
    """The folder of the records."""
    from colonnade.client.auth import storage_folder

    return storage_folder() / FOLDER


def _file(key: str) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(key)).hexdigest()}.json"


def recall(key: str) -> str | None:
    """The digest that was trusted for a path; None if there is no valid record."""
    try:
        with open(_file(key), "rb") as opened:
            seen = os.fstat(opened.fileno())
            data = opened.read()
        trusted = msgspec.json.decode(data, type=_TrustRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if sys.platform != "win32" and (seen.st_uid != os.getuid() or seen.st_mode & _OTHERS_WRITE):
        return None
    return trusted.digest if trusted.file == key else None


def remember(key: str, digest: str) -> None:
    """Record that a path is trusted with this digest. Raises `Refused`."""
    from colonnade.client.auth import write_private  # on use

    path = _file(key)
    try:
        write_private(path, msgspec.json.encode(_TrustRecord(key, digest)))
    except OSError as error:
        raise Refused(f"it cannot be stored in {path.parent}: {error.strerror}") from None


def forget(key: str) -> bool:
    """Remove the record of a path; whether there was one."""
    try:
        _file(key).unlink()
    except FileNotFoundError:
        return False
    return True
