"""The names of OpenTelemetry's semantic conventions for MCP: attributes, metrics, buckets.

From the repository open-telemetry/semantic-conventions-genai (status: development), whose model
files are, each at the last commit that changed it:

    model/mcp/common.yaml    0e5e6a8d59d38c9c19556a5164a83cc11a7d53ff
    model/mcp/metrics.yaml   14567fad6858f82588325657c4bb262fafc885bd
    model/mcp/registry.yaml  4172e394d28f2d26ec4a4514a45f153580c68670
    model/mcp/spans.yaml     5c50d346f1c9e8f745889f7777a412991564b334

Rules: names only, and no library. A test compares them with an extract of the model files.
"""

from typing import Final

from msgspec import Struct

# ---------------------------------------------------------------- attributes

METHOD: Final = "mcp.method.name"
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
URI: Final = "mcp.resource.uri"
REQUEST_ID: Final = "jsonrpc.request.id"
REVISION: Final = "mcp.protocol.version"
SESSION: Final = "mcp.session.id"
ERROR: Final = "error.type"
STATUS_CODE: Final = "rpc.response.status_code"
TRANSPORT: Final = "network.transport"
PROTOCOL: Final = "network.protocol.name"
PROTOCOL_VERSION: Final = "network.protocol.version"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CLIENT_ADDRESS: Final = "client.address"
CLIENT_PORT: Final = "client.port"
# Only if they are asked for: they may be secret.
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
PROMPT_VARIABLE: Final = "gen_ai.prompt.variable"

# Our own. The id is that of the exception in the log.
ERROR_ID: Final = "colonnade.error.id"
KIND: Final = "kind"
OUTCOME: Final = "outcome"
ROLE: Final = "role"
REASON: Final = "reason"
SERVER: Final = "server"
STATE: Final = "state"

TOOL_ERROR: Final = "tool_error"
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
# In place of a name that the server does not have, and of a method that does not exist.
OTHER: Final = "_OTHER"

# The response says that the caller sent what the server cannot serve; for the server that is no
# error, for the client every code is one.
CALLER_MISTAKES: Final = frozenset({-32700, -32600, -32601, -32602, -32002})

# Requests with a URI in their params.
URI_METHODS: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})


# ---------------------------------------------------------------- metrics


class Metric(Struct, frozen=True):
    """A metric: its name, what it counts in, what it says, and the attributes that it may have."""

    name: str
    unit: str
    description: str
    attributes: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name that OpenTelemetry's exporter for Prometheus gives it, without its suffix."""
        name = self.name.replace(".", "_")
        return f"{name}_seconds" if self.unit == "s" else name


def label(attribute: str) -> str:
    """The name of an attribute in Prometheus."""
    return attribute.replace(".", "_")


BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

_OPERATION_ATTRIBUTES: Final = (
    METHOD,
    TOOL,
    OPERATION,
    PROMPT,
    ERROR,
    STATUS_CODE,
    REVISION,
    TRANSPORT,
    PROTOCOL,
    PROTOCOL_VERSION,
)
_SESSION_ATTRIBUTES: Final = (REVISION, PROTOCOL, ERROR)
_SERVER_ADDRESS: Final = (SERVER_ADDRESS, SERVER_PORT)

SERVER_OPERATION: Final = Metric(
    "mcp.server.operation.duration",
    "s",
    "Duration of requests, as the receiver sees them.",
    _OPERATION_ATTRIBUTES,
)
CLIENT_OPERATION: Final = Metric(
    "mcp.client.operation.duration",
    "s",
    "Duration of requests, as the sender sees them.",
    (*_OPERATION_ATTRIBUTES, *_SERVER_ADDRESS),
)
SERVER_SESSION: Final = Metric(
    "mcp.server.session.duration",
    "s",
    "Duration of sessions, as the server sees them.",
    _SESSION_ATTRIBUTES,
)
CLIENT_SESSION: Final = Metric(
    "mcp.client.session.duration",
    "s",
    "Duration of sessions, as the client sees them.",
    (*_SESSION_ATTRIBUTES, *_SERVER_ADDRESS),
)
HISTOGRAMS: Final = (SERVER_OPERATION, CLIENT_OPERATION, SERVER_SESSION, CLIENT_SESSION)

REFUSED: Final = Metric(
    "colonnade.refused", "{request}", "Requests refused before a handler got them.", (REASON,)
)
INPUT_REQUESTS: Final = Metric(
    "colonnade.input_requests",
    "{request}",
    "Elicitation, sampling and roots requests, by what became of them.",
    (ROLE, KIND, OUTCOME),
)
COUNTERS: Final = (REFUSED, INPUT_REQUESTS)

IN_FLIGHT: Final = Metric("colonnade.requests_in_flight", "{request}", "Requests in handlers now.")
SESSIONS: Final = Metric("colonnade.sessions", "{session}", "Open sessions of clients.")
STREAMS: Final = Metric("colonnade.streams", "{stream}", "Open event streams of HTTP.")
HOST_STATE: Final = Metric(
    "colonnade.host_server_state",
    "{server}",
    "1 for the state that a server of a host is in.",
    (SERVER, STATE),
)
HOST_CRASHES: Final = Metric(
    "colonnade.host_server_crashes",
    "{crash}",
    "Unexpected ends of a server of a host; it is started again when it is needed.",
    (SERVER,),
)
GAUGES: Final = (IN_FLIGHT, SESSIONS, STREAMS, HOST_STATE)
# Counters that are read rather than counted here.
OBSERVED_COUNTERS: Final = (HOST_CRASHES,)
