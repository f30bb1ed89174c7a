"""Which commands are usual for a server: a known interpreter with a file or a module, a known
runner with a package, an image of a container, or a program of the project.

    uvx mcp-server-git          python -m server        docker run -i --rm image

Rules: what is allowed is listed, and everything else deserves a question. An option that is not
known is not usual either, since it may have code as its value (`node --import data:…`). Pure: no
file is looked at.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

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
# Programs that run code, commands or any file, and are not servers. A path or a runner in front of
# one makes no difference: `uv run awk …`.
TOOLS: Final = frozenset(
    [
        *(*PRIVILEGED, *SHELLS, *NETWORK, *DELETING),
        *("csh", "tcsh", "ash", "mksh", "elvish", "nu", "xonsh", "rc", "es", "yash", "rbash"),
        *("awk", "gawk", "mawk", "nawk", "sed", "ed", "ex", "vi", "vim", "nvim", "emacs", "nano"),
        *("less", "more", "man", "git", "hg", "svn", "make", "gmake", "cmake", "ninja", "just"),
        *(
            "tar",
            "zip",
            "unzip",
            "cpio",
            "find",
            "fd",
            "xargs",
            "parallel",
            "tee",
            "mv",
            "cp",
            "ln",
        ),
        *("install", "chmod", "chown", "truncate", "crontab", "at", "batch", "systemctl", "watch"),
        *("launchctl", "service", "tmux", "screen", "expect", "gdb", "lldb", "strace", "ltrace"),
        *("perf", "script", "openssl", "gpg", "sqlite3", "psql", "mysql", "mongosh", "redis-cli"),
        *("m4", "bc", "dc", "tclsh", "wish", "guile", "racket", "sbcl", "ghci", "runghc", "erl"),
        *(
            "elixir",
            "iex",
            "octave",
            "r",
            "julia",
            "gnuplot",
            "jshell",
            "groovy",
            "kotlin",
            "scala",
        ),
        *("apt", "apt-get", "yum", "dnf", "brew", "pacman", "snap", "pip", "pip3", "gem", "chroot"),
        *("unshare", "nsenter", "flock", "busybox", "toybox", "start", "systemd-run", "mount"),
        *("kill", "pkill", "killall", "shutdown", "reboot", "aria2c", "lftp", "rclone", "aws"),
        *("gcloud", "az", "kubectl", "helm", "terraform", "ansible", "vagrant", "nix", "nix-shell"),
        *("ipython", "ptpython", "bpython", "invoke", "fabric", "fab", "nox", "tox", "pytest"),
        *("mshta", "wscript", "cscript", "rundll32", "regsvr32", "certutil", "schtasks", "wmic"),
        *("forfiles", "tsc", "eslint", "cross-env", "concurrently", "nodemon", "http-server"),
        *("capsh", "runuser", "setpriv", "sg", "newgrp", "exec", "command", "eval", "source"),
    ]
)
# Python modules outside the standard library that are not servers.
MODULES: Final = frozenset(
    {*("pip", "ipython", "ptpython", "pytest", "nox", "tox", "invoke", "fabric", "coverage")}
)
_SYSTEM_FOLDERS: Final = re.compile(
    r"(?:/usr(?:/local)?|/opt/homebrew|/opt/local|/snap)?/s?bin/|(?i:[a-z]:[\\/]windows[\\/])"
)
# `pkg`, `@scope/pkg@1.2`, `git+https://…`, `./folder`; no option.
_PACKAGE: Final = re.compile(r"[@.~\w][^\s;|&<>$`\"']*")
_VARIABLE: Final = re.compile(r"\w+=.*", re.DOTALL)
# Folders that no container of a server needs: the whole disk, system folders, or Docker's socket.
_HOST: Final = re.compile(
    r"docker\.sock|(?:^|src=|source=|volume=)/(?:(?:etc|root|proc|sys|dev|boot)(?:/[^:,]*)?)?[:,]"
)
# Environment variables that make programs load code.
LOADING: Final = re.compile(
    r"LD_\w+|DYLD_\w+|PATH|PYTHON(?:PATH|STARTUP|HOME|INSPECT|BREAKPOINT)|NODE_OPTIONS|NODE_PATH"
    r"|BASH_ENV|ENV|PERL5OPT|PERL5LIB|RUBYOPT|RUBYLIB|\w*JAVA\w*_OPTIONS|CLASSPATH"
    r"|GIT_(?:\w*(?:SSH|COMMAND|DIFF|EDITOR|PAGER|ASKPASS|EXEC_PATH)|CONFIG\w*)"
    r"|(?i:npm_config_(?:script_shell|node_options|registry|userconfig))"
    r"|EDITOR|PAGER|BROWSER|PROMPT_COMMAND|IFS"
)
# A URL in place of a file, which may be the code itself (`data:`). A drive of Windows is none.
_URL: Final = re.compile(r"(?i)[a-z][a-z\d+.-]+:")
# Spaces and controls, which URLs ignore.
_IGNORED: Final = re.compile(r"[\x00-\x20]+")
# Options whose value is a file with code.
_CODE_FILES: Final = frozenset(
    {"-r", "--require", "--import", "--loader", "--experimental-loader", "--import-map"}
)


class Grammar(NamedTuple):
    """The usual options of a program: flags, and options with a value (the next word, or after
    `=`). If there are `subcommands`, the first word must be one of these."""

    alone: str = r"(?!)"
    valued: str = r"(?!)"
    subcommands: tuple[tuple[str, ...], ...] = ()


# Programs that start the command which follows their options: `timeout 60 python server.py`.
WRAPPERS: Final = {
    "env": Grammar(r"-i|--ignore-environment|-", r"-u|--unset|-C|--chdir"),
    "nohup": Grammar(),
    "setsid": Grammar(r"-[cfw]+|--wait"),
    "time": Grammar(r"-p"),
    "nice": Grammar(r"-\d+", r"-n|--adjustment"),
    "ionice": Grammar(r"-[cn]\d|-t", r"-[cn]"),
    "stdbuf": Grammar(r"-[ioe][0L]"),
    "timeout": Grammar(r"--foreground|--preserve-status", r"-[ks]|--kill-after|--signal"),
    "wsl": Grammar(r"-e|--exec", r"-d|--distribution|-u|--user|--cd"),
    "poetry": Grammar(r"-q|--quiet", r"-C|--directory|-P|--project", (("run",),)),
    "pdm": Grammar(r"-q|--quiet", r"-p|--project", (("run",),)),
    "hatch": Grammar(r"-q", r"-e|--env", (("run",),)),
    "rye": Grammar("", "", (("run",),)),
    "pixi": Grammar("", r"--manifest-path|-e|--environment", (("run",),)),
    "pipenv": Grammar("", "", (("run",),)),
    "conda": Grammar(r"--no-capture-output|--live-stream", r"-n|--name|-p|--prefix", (("run",),)),
}

_UV_ALONE = (
    r"-q|--quiet|-v|--verbose|-n|--no-cache|--isolated|--refresh|--frozen|--locked|--no-sync|--offline"
    r"|--no-dev|--no-progress|--no-config|--all-extras|--native-tls|--active|--exact|--no-project"
)
_UV_VALUED = (
    r"--from|--with|--with-editable|--with-requirements|-p|--python|--directory|--project|--extra"
    r"|--group|--env-file|--package|--refresh-package|--prerelease|--link-mode|--index-strategy"
    r"|--exclude-newer|--cache-dir"
)
_NPX_ALONE = r"-y|--yes|-q|--quiet|--silent|--prefer-online|--prefer-offline|--offline"
# Programs that run a package, and programs that run a script of the project.
RUNNERS: Final = {
    "uvx": Grammar(_UV_ALONE, _UV_VALUED),
    "uv": Grammar(
        rf"{_UV_ALONE}|-s|--script|-m|--module", _UV_VALUED, (("run",), ("tool", "run"), ("x",))
    ),
    "npx": Grammar(_NPX_ALONE, r"-p|--package|--prefix|-w|--workspace"),
    "bunx": Grammar(r"-y|--bun|--silent", r"-p|--package"),
    "pnpx": Grammar(_NPX_ALONE, r"--package"),
    "pnpm": Grammar(
        r"-s|--silent", r"--package|-C|--dir|--prefix", (("dlx",), ("run",), ("start",))
    ),
    "yarn": Grammar(
        r"-q|--quiet|-s|--silent", r"-p|--package|--cwd", (("dlx",), ("run",), ("start",))
    ),
    "npm": Grammar(
        r"-s|--silent|-q|--quiet", r"--prefix|-w|--workspace|-C", (("run",), ("start",))
    ),
    "pipx": Grammar(r"-q|--quiet|--no-cache", r"--spec|--python|--index-url", (("run",),)),
    "go": Grammar(r"-race|-v", r"-C|-mod|-tags", (("run",),)),
    "cargo": Grammar(
        r"-q|--quiet|-r|--release|--locked|--offline|--frozen",
        r"--manifest-path|--bin|-p|--package|--features|--profile|--example",
        (("run",),),
    ),
    "dotnet": Grammar(
        r"--no-build|--no-restore",
        r"--project|-c|--configuration|-f|--framework|-v|--verbosity|--launch-profile",
        (("run",), ("tool", "run"), ("exec",), ()),
    ),
    "dnx": Grammar(r"-y|--yes|--prerelease", r"--version"),
    "jbang": Grammar(r"--quiet|--fresh", r"--java|--main|-m"),
}
_CONTAINER_VALUED = (
    r"-e|--env|--env-file|-v|--volume|--mount|--name|--network|--net|--platform|--pull|-u|--user|-w"
    r"|--workdir|-m|--memory|--cpus|--label|-l|--add-host|-p|--publish|--cap-drop|--tmpfs|-h"
    r"|--hostname|--log-driver|--memory-swap|--pids-limit|--stop-timeout|--shm-size"
)
_CONTAINER = Grammar(
    r"-[itd]+|--rm|--init|--interactive|--tty|--read-only|--sig-proxy",
    _CONTAINER_VALUED,
    (("run",), ("exec",), ("container", "run")),
)
CONTAINERS: Final = {"docker": _CONTAINER, "podman": _CONTAINER, "nerdctl": _CONTAINER}

_PYTHON = Grammar(r"-[BbdEIOPqRsSuvx]+|-\d(?:\.\d+)?(?:-\d+)?", r"-[WX]|--check-hash-based-pycs")
_NODE = Grammar(
    r"--no-warnings(?:=\w+)?|--enable-source-maps|--max-old-space-size=\d+|--trace-warnings"
    r"|--experimental-[\w-]+|--no-deprecation|--preserve-symlinks|--use-system-ca"
    r"|--unhandled-rejections=\w+|--dns-result-order=\w+|--stack-size=\d+|--expose-gc",
    r"-r|--require|--import|--loader|--experimental-loader|--env-file|--env-file-if-exists|--tsconfig",
)
# Programs that run the file which follows their options.
INTERPRETERS: Final = {
    **dict.fromkeys(("python", "pythonw", "pypy", "py"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "tsx", "ts-node"), _NODE),
    "bun": Grammar(
        r"--silent|--watch|--hot|--smol|--bun", r"--cwd|--env-file", (("run",), ("x",), ())
    ),
    "deno": Grammar(
        r"-[A-Z]|-q|--quiet|--allow-[\w-]+(?:=.*)?|--deny-[\w-]+(?:=.*)?|--no-check|--no-prompt"
        r"|--unstable[\w-]*|--node-modules-dir(?:=\w+)?|--no-lock|--cached-only",
        r"-c|--config|--import-map|--env-file",
        (("run",),),
    ),
    "ruby": Grammar(r"-w|-W\d?|--yjit|--enable=\w+", r"-I"),
    "perl": Grammar(r"-w|-T", r"-I"),
    "php": Grammar(r"-q|-n", ""),
    "lua": Grammar(),
    "luajit": Grammar(),
    "rscript": Grammar(r"--vanilla|--no-save", ""),
    "java": Grammar(
        r"-Xm[sx]\w+|-Xss\w+|-D[\w.]+=.*|-XX:[+-]\w+|-XX:Max\w+=\S+|--enable-preview|-server|-jar"
        r"|--enable-native-access=\w+",
        r"-cp|-classpath|--class-path|-p|--module-path|-m|--module|--add-opens|--add-modules",
    ),
}


def _is_url(word: str) -> bool:
    return _URL.match(_IGNORED.sub("", word)) is not None


def is_usual(argv: Sequence[str]) -> bool:
    """Whether a command line is usual for a server."""
    return not argv or _is_usual(list(argv), is_installed=False)


def program_name(word: str) -> str:
    """The name of a program, without its folder, its suffix on Windows and its version."""
    stem = re.split(r"[\\/]", word.strip("\"'"))[-1].lower()
    return os.path.splitext(stem)[0] if stem.endswith((".exe", ".cmd", ".bat")) else stem


def _is_usual(argv: list[str], *, is_installed: bool) -> bool:
    """Whether this command line is usual. With `is_installed`, a runner (`uv run`) takes the
    program from the environment of the project."""
    if not argv:
        return False
    full = program_name(argv[0])
    name = full if full in _KINDS else re.sub(r"-?[\d.]+$", "", full)
    check = _KINDS.get(name)
    if check is not None:
        return check(name, argv[1:])
    if {full, name} & TOOLS or _starts_a_tool(argv[1:]):
        return False
    return _is_server(argv[0], full, is_installed=is_installed)


def _starts_a_tool(words: Sequence[str]) -> bool:
    """Whether the arguments contain a shell, or an interpreter with code: the program may start
    another program."""
    for at, word in enumerate(words):
        name = program_name(word)
        after = words[at + 1] if len(words) > at + 1 else ""
        is_code = re.match(r"--eval|--print|-\w*[cepr]", after) is not None
        if name in SHELLS or (re.sub(r"[\d.]+$", "", name) in INTERPRETERS and is_code):
            return True
    return False


def _is_server(word: str, name: str, *, is_installed: bool) -> bool:
    """Whether an unknown program may be a server: a program of the project, one given by its path,
    or one with `mcp` in its name."""
    if name == "colonnade" or "mcp" in name or is_installed:
        return _PACKAGE.fullmatch(word) is not None or os.path.isabs(word)
    has_folder = os.path.basename(word) != word or "\\" in word
    return has_folder and "${" not in word and not _SYSTEM_FOLDERS.match(word)


def _after_options(
    grammar: Grammar, words: Sequence[str]
) -> tuple[tuple[str, ...], list[str]] | None:
    """The subcommand, and the words after all options. None if an option or the subcommand is
    unknown."""
    left, found = list(words), list[str]()
    wanted = grammar.subcommands
    while left:
        word = left[0]
        if word == "--":
            left = left[1:]
            break
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            if re.fullmatch(grammar.alone, word):
                left = left[1:]
            elif re.fullmatch(grammar.valued, name):
                value = value if equals else (left[1] if len(left) > 1 else "")
                if name in _CODE_FILES and _is_url(value):
                    return None
                left = left[1:] if equals else left[2:]
            else:
                return None
            continue
        step = (*found, word)
        if any(one[: len(step)] == step for one in wanted):
            found.append(word)
            left = left[1:]
            continue
        break
    return (tuple(found), left) if not wanted or tuple(found) in wanted else None


def _wrapper(name: str, words: list[str]) -> bool:
    found = _after_options(WRAPPERS[name], words)
    if found is None:
        return False
    left = found[1][1:] if name == "timeout" else found[1]  # the first word is its duration
    while left and name == "env" and _VARIABLE.fullmatch(left[0]):
        if LOADING.fullmatch(left[0].partition("=")[0]):
            return False
        left = left[1:]
    return _is_usual(left, is_installed=bool(WRAPPERS[name].subcommands))


def _runner(name: str, words: list[str]) -> bool:
    found = _after_options(RUNNERS[name], words)
    if found is None:
        return False
    subcommand, left = found
    if subcommand == ("start",) or (subcommand == ("run",) and name in ("cargo", "dotnet")):
        return True  # the project says what is run
    if not left or left[0] == "-":
        return False
    if name == "uv" and any(one in ("-m", "--module") for one in words[: -len(left)]):
        return _is_module(["-m", *left])
    if name == "dotnet" and subcommand != ("tool", "run"):
        return left[0].lower().endswith((".dll", ".exe"))
    if subcommand == ("run",) and name in ("npm", "pnpm", "yarn"):
        return program_name(left[0]) not in {*_KINDS, *SHELLS} or _is_usual(left, is_installed=True)
    return _is_usual(left, is_installed=True)


def _container(name: str, words: list[str]) -> bool:
    if words[:3] == ["mcp", "gateway", "run"]:
        return True
    found = _after_options(CONTAINERS[name], words)
    if found is None:
        return False
    subcommand, left = found
    if not left or not _PACKAGE.fullmatch(left[0]) or any(map(_HOST.search, words)):
        return False
    # The words after an image are mostly arguments for its own program.
    program = program_name(left[1]) if left[1:] else ""
    if program in _KINDS or program in TOOLS or subcommand == ("exec",):
        return _is_usual(left[1:], is_installed=True)
    return True


def _interpreter(name: str, words: list[str]) -> bool:
    grammar = INTERPRETERS[name]
    if grammar is _PYTHON and "-m" in words and _is_module(words):
        return True
    if name == "java" and any(word in ("-m", "--module") for word in words):
        return _after_options(grammar, words) is not None
    found = _after_options(grammar, words)
    if found is None or not found[1]:
        return False
    subcommand, left = found
    if subcommand == ("x",):
        return _is_usual(left, is_installed=True)
    if name == "bun":
        is_file = ("." in left[0] or "/" in left[0]) and not _is_url(left[0])
        is_name = re.fullmatch(r"[\w:@-]+", left[0]) is not None
        is_known = program_name(left[0]) in {*_KINDS, *SHELLS}
        is_script = subcommand == ("run",) and is_name and not is_known
        return is_file or is_script
    # A URL is a package for deno alone; standard input is the client's.
    is_package = name == "deno" and left[0].startswith(("jsr:", "npm:", "https://"))
    return is_package or (
        left[0] not in ("-", "eval", "inspect", "/dev/stdin") and not _is_url(left[0])
    )


def _is_module(words: list[str]) -> bool:
    """Whether these arguments of Python name a module that may be a server. Modules of the standard
    library are tools, not servers."""
    at = words.index("-m")
    before = _after_options(_PYTHON, words[:at])
    if before is None or before[1] or len(words) == at + 1:
        return False
    module = words[at + 1]
    first = module.partition(".")[0].lower()
    if first in ("uv", "pipx", "poetry"):
        return _is_usual(words[at + 1 :], is_installed=True)
    known = sys.stdlib_module_names | MODULES | TOOLS
    return first not in known and re.fullmatch(r"[\w.]+", module) is not None


_KINDS: Final[dict[str, Callable[[str, list[str]], bool]]] = {
    **dict.fromkeys(WRAPPERS, _wrapper),
    **dict.fromkeys(RUNNERS, _runner),
    **dict.fromkeys(CONTAINERS, _container),
    **dict.fromkeys(INTERPRETERS, _interpreter),
}
