"""What a host knows of a server before it is started: what reaches it, and how it is to be kept.

Whoever reads a configuration makes entries, and so does a program that has no file; the rest of the
host knows nothing else of where a server came from.

Rules: data only. An entry never changes; another one takes its place. What is secret is not in an
entry but looked up by `resolve`, when the server is about to be reached, and kept by nobody.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS

TOO_LONG = "there is a number with thousands of digits"


class Broken(Exception):
    """The text breaks the rules of its language, at a place that a person can go to."""

    def __init__(self, text: str, at: int, why: str, key: str = "") -> None:
        self.line: int = text.count("\n", 0, at) + 1
        self.column: int = at - (text.rfind("\n", 0, at) + 1) + 1
        self.why = why
        # What it is about, as far as the text was understood.
        self.key: str = key
        super().__init__(f"line {self.line}, column {self.column}: {why}")


# Who speaks to one process or session of a server that keeps state for whoever opened it:
# one caller for as long as it lives, one at a time, or all at once, who are then asked nothing.
# One that is handed on is trusted to be done with a caller when it has answered.
Sharing: TypeAlias = Literal["caller", "pooled", "shared"]

# For a server that a package manager has to fetch first.
START_S = 60.0
# For an answer, or the next sign of progress.
TIMEOUT_S = 60.0
# A process that nobody has used for so long is stopped; the next call starts it again.
IDLE_S = 600.0
# So many ends in so many seconds, and a server is left alone for as long, or until it is restarted.
MAX_CRASHES = 5
CRASHES_S = 300.0
# Processes or sessions of one server at once.
MAX_SEATS = 16


class Place(NamedTuple):
    """Where a value stands in a file: the line and column that a person goes to, and its key."""

    file: str
    line: int
    column: int
    key: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.key}" if self.key else where


class Problem(NamedTuple):
    """What is wrong with one server, or with a file (then `server` is empty). `untrusted` is said
    of each server of a file that nobody trusts, in the same words."""

    server: str
    summary: str
    place: Place | None = None
    untrusted: bool = False
    # What to do about it, and whether a value that the file refers to is missing.
    hint: str = ""
    unresolved: bool = False

    @property
    def words(self) -> str:
        """The summary, and what to do."""
        return f"{self.summary}; {self.hint}" if self.hint else self.summary

    def __str__(self) -> str:
        return f"{self.place}: {self.words}" if self.place is not None else self.words


class Settings(Struct, frozen=True, kw_only=True):
    """How a server is kept and shown; all of it can be said in `colonnade.toml`.

    - `namespace` stands before the names of its tools, instead of its key.
    - `only` and `hidden` are patterns (`read_*`) of the names that are shown, and that are not.
    - `aliases` are further names in the catalogue, each for a name of this server.
    - `sampling` lets it ask for a model's words, `elicitation` for a person's, and `roots` are
      the folders that it is told of.
    - `max_list_bytes` and `max_list_items` are the most that one list of it may have.
    """

    enabled: bool = True
    namespace: str | None = None
    only: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    sharing: Sharing = "caller"
    elicitation: bool = True
    sampling: bool = False
    roots: tuple[str, ...] = ()
    revision: str | None = None
    start_s: float = START_S
    timeout_s: float = TIMEOUT_S
    idle_s: float | None = IDLE_S
    max_crashes: int = MAX_CRASHES
    crashes_s: float = CRASHES_S
    max_seats: int = MAX_SEATS
    max_list_bytes: int = MAX_LIST_BYTES
    max_list_items: int = MAX_LIST_ITEMS


class LoginTerms(Struct, frozen=True, kw_only=True):
    """As whom a person logs in to a server: a client that was registered, and for what.

    `port` is where the browser comes back to, where that was registered, too.
    """

    client_id: str = ""
    scopes: tuple[str, ...] = ()
    port: int | None = None


# What `connect` takes, with every reference looked up.
Resolve: TypeAlias = Callable[[], Awaitable[Any]]


class Entry(Struct, frozen=True, kw_only=True, eq=False):
    """One server: its key, what reaches it, how it is kept.

    `fingerprint` is equal where nothing has changed, and then a reload leaves the server alone.
    `shown` is what is to be started or reached, for people: whole, and with no secret in it.
    """

    key: str
    resolve: Resolve
    fingerprint: str
    shown: str = ""
    settings: Settings = Settings()
    place: Place | None = None
    login: LoginTerms | None = None


class Config(Struct, frozen=True, kw_only=True, eq=False):
    """The servers of a host, in the order of their files, and what was wrong with others.

    `warnings` are what is odd in a file and does no harm: a key that means nothing, say.
    """

    entries: Mapping[str, Entry]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
