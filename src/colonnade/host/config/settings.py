"""Records of a host's configuration: server entries, settings, problems, and places in files.

Entries come from configuration files or from a dict of a program; the rest of the host does not
know which.

Rules: data only. An entry never changes; it is replaced. Secrets are not in an entry: `resolve`
looks them up when the server is about to be started, and they are not kept.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.host.config.references import ValueTemplate
from colonnade.transport.process.sandbox import Sandbox

TOO_LONG = "a number has thousands of digits"


class ConfigSyntaxError(Exception):
    """A syntax error in a configuration file, with its line and column."""

    def __init__(self, text: str, at: int, why: str, key: str = "") -> None:
        self.line: int = text.count("\n", 0, at) + 1
        self.column: int = at - (text.rfind("\n", 0, at) + 1) + 1
        self.why = why
        # The key that it is in, as far as the text could be parsed.
        self.key: str = key
        super().__init__(f"line {self.line}, column {self.column}: {why}")


# Which callers use one process or session of a server that keeps state for a connection: one caller
# for as long as it lives, one at a time, or all at once, without input requests. A pooled session
# is trusted to keep nothing of a caller after it has responded.
Sharing: TypeAlias = Literal["caller", "pooled", "shared"]

# Whose credentials a server with a URL gets: those of the operator, a login of each caller, or a
# token that the token of the caller is exchanged for (RFC 8693, or an identity assertion).
CredentialsMode: TypeAlias = Literal["own", "login", "exchange", "id-jag"]

# What happens to definitions of a server that were not accepted: hidden and refused, logged, or
# nothing; and to hidden text in what it sends: made visible, marked, or nothing.
PinsSetting: TypeAlias = Literal["strict", "warn", "off"]
ContainSetting: TypeAlias = Literal["neutralise", "mark", "off"]
# The setting `roots` for the roots of the client that a call comes from.
ROOTS_OF_CALLER: Final = "caller"
# What happens to a definition that was never seen: accepted, or it waits for a person.
FirstSetting: TypeAlias = Literal["accept", "review"]

# Long enough for a package manager to install the server first.
START_S = 60.0
# For a response, or the next progress notification.
TIMEOUT_S = 60.0
# A process that is idle for this long is stopped; the next call starts it again.
IDLE_S = 600.0
# After this many crashes within this many seconds a server is not started for as long, or until it
# is restarted.
MAX_CRASHES = 5
CRASHES_S = 300.0
# Processes or sessions of one server at once.
MAX_SESSIONS = 16


class Place(NamedTuple):
    """Where a value is in a file: the line, the column, and its key."""

    file: str
    line: int
    column: int
    key: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.key}" if self.key else where


class HostProblem(NamedTuple):
    """What is wrong with a server, or with a file (then `server` is empty). Each server of a file
    that is not trusted has one with `untrusted`, with the same message."""

    server: str
    summary: str
    place: Place | None = None
    untrusted: bool = False
    # What to do about it, and whether a reference in the file cannot be resolved.
    hint: str = ""
    unresolved: bool = False

    @property
    def message(self) -> str:
        """The summary, and what to do."""
        return f"{self.summary}; {self.hint}" if self.hint else self.summary

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place is not None else self.message


class Settings(Struct, frozen=True, kw_only=True):
    """How a server is run and shown; all of it can be set in `colonnade.toml`.

    - `namespace` is the prefix of its names, instead of its key.
    - `only` and `hidden` are patterns (`read_*`) of the names that are shown, and that are not.
    - `aliases` are further names, each for an item of this server.
    - `owns` are patterns (`notes://*`) of the URIs that are its own: they are read without a list.
    - `credentials` says whose credentials it gets; with others than `own` each caller has its own
      sessions.
    - `pins` is what happens to definitions that were not accepted, and `contain` to hidden text in
      what it sends; None for what the host does.
    - `sandbox` is what its command may do on this machine: False for all that the host may, and
      None for what the gateway says, or else the same.
    - `trusted` lets rules of a policy look at the annotations of its tools.
    - `sampling` and `elicitation` allow these input requests, and `roots` are its roots: folders,
      or "caller" for those of the client that the call comes from.
    - `max_list_bytes` and `max_list_items` are the limits of one of its lists.
    """

    enabled: bool = True
    namespace: str | None = None
    only: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    owns: tuple[str, ...] = ()
    sharing: Sharing = "caller"
    credentials: CredentialsMode = "own"
    trusted: bool = False
    pins: PinsSetting | None = None
    contain: ContainSetting | None = None
    sandbox: Sandbox | Literal[False] | None = None
    elicitation: bool = True
    sampling: bool = False
    roots: tuple[str, ...] | Literal["caller"] = ()
    revision: str | None = None
    start_s: float = START_S
    timeout_s: float = TIMEOUT_S
    idle_s: float | None = IDLE_S
    max_crashes: int = MAX_CRASHES
    crashes_s: float = CRASHES_S
    max_sessions: int = MAX_SESSIONS
    max_list_bytes: int = MAX_LIST_BYTES
    max_list_items: int = MAX_LIST_ITEMS

    @property
    def is_per_caller(self) -> bool:
        """Whether each caller has credentials of its own, so that callers share nothing."""
        return self.credentials != "own"


def credentials_problem(settings: Settings, *, has_url: bool) -> str:
    """Why a server cannot have the credentials of its callers; empty if it can."""
    if settings.is_per_caller and not has_url:
        return "credentials of callers are for a server with a url"
    if settings.is_per_caller and settings.sharing != "caller":
        return 'with credentials of callers, sharing must be "caller"'
    return ""


class LoginSettings(Struct, frozen=True, kw_only=True):
    """The OAuth client that is registered for a server, and the scopes to request.

    `port` is the port of the registered redirect URI, if it has a fixed one.
    """

    client_id: str = ""
    scopes: tuple[str, ...] = ()
    port: int | None = None


# Returns what `connect` takes, with every reference resolved.
Resolve: TypeAlias = Callable[[], Awaitable[Any]]


class ServerEntry(Struct, frozen=True, kw_only=True, eq=False):
    """One server: its key, how to connect to it, and its settings.

    `fingerprint` is equal if nothing has changed; a reload then leaves the server alone. `shown` is
    the command or the URL, for people: complete, and without secrets. `dangers` is what deserves
    attention in its command, and `command_digest` tells whether that is still the same.
    `local_paths` are the absolute paths of what the words of its command name in its working
    folder: the same words are another server elsewhere.
    """

    key: str
    resolve: Resolve
    fingerprint: str
    shown: str = ""
    settings: Settings = Settings()
    place: Place | None = None
    login: LoginSettings | None = None
    dangers: tuple[str, ...] = ()
    command_digest: str = ""
    local_paths: tuple[str, ...] = ()


class AuditSettings(Struct, frozen=True, kw_only=True):
    """The table `[audit]`: the folder of the audit log and the file of its heads, both absolute and
    empty for the default, and the arguments of `AuditLog`."""

    path: str
    required: bool
    contents: str
    redact: tuple[str, ...]
    heads: str
    place: Place


class PinsTable(Struct, frozen=True, kw_only=True):
    """`[pins]` of `colonnade.toml`: what happens to definitions that were not accepted, and to
    those that were never seen."""

    mode: PinsSetting = "strict"
    first: FirstSetting = "accept"

    def combine(self, other: "PinsTable") -> "PinsTable":
        """Both together: the stricter of each."""
        rank = _STRICTNESS.index
        return PinsTable(
            mode=self.mode if rank(self.mode) <= rank(other.mode) else other.mode,
            first=self.first if rank(self.first) <= rank(other.first) else other.first,
        )


# The strictest first.
_STRICTNESS = ("strict", "warn", "off", "review", "accept")


class GatewayAuthSettings(Struct, frozen=True, kw_only=True):
    """The issuer of the tokens that clients send, and the scopes that each of them needs."""

    issuer: str
    scopes: tuple[str, ...] = ()


class GatewaySecrets(NamedTuple):
    """What the references of `[gateway]` refer to."""

    store: str | None
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"GatewaySecrets({len(self.keys)} keys)"


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of a gateway; None and empty are the defaults of `Gateway`.

    - `url` is the URL of the endpoint as clients write it; it needs one with `auth`.
    - `wait_s` is how long a list waits for a server that has not answered yet.
    - `instructions` are a text, or "gathered": those of all servers.
    - `store` is where state is kept: `memory`, `sqlite:PATH`, or the URL of a Redis server. `keys`
      are references to the keys that encrypt what clients carry, the same in all replicas.
      `resolve` looks up what both refer to; `store_place` is where the store is written.
    - `sandbox` is that of each command whose server has no setting of its own.
    - `views` are further endpoints, each with some of the servers.
    """

    name: str | None = None
    url: str | None = None
    name_limit: int | None = None
    page_size: int | None = None
    wait_s: float | None = None
    instructions: str | None = None
    store: ValueTemplate | None = None
    store_place: Place | None = None
    keys: tuple[ValueTemplate, ...] = ()
    resolve: Callable[[], Coroutine[Any, Any, GatewaySecrets]] | None = None
    sandbox: Sandbox | None = None
    auth: GatewayAuthSettings | None = None
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class Config(Struct, frozen=True, kw_only=True, eq=False):
    """The servers of a host, in the order of their files, and the problems of others.

    `warnings` are harmless: a key that is not known, for example. `policy` are the rules of
    `colonnade.toml` (a `RuleSet` of `host.policy`), None if no file has any; `audit` are the
    settings of the audit log, if there is to be one, `approvals` is the table `[approvals]`
    (`ApprovalSettings`), and `pins` is `[pins]`; `gateway` is the table of that name.
    """

    entries: Mapping[str, ServerEntry]
    problems: tuple[HostProblem, ...] = ()
    warnings: tuple[HostProblem, ...] = ()
    gateway: GatewaySettings | None = None
    policy: Any = None
    audit: AuditSettings | None = None
    approvals: Any = None
    pins: PinsTable | None = None
