"""The public names of Colonnade, each imported on first use.

Rules: nothing is imported here that Python has not loaded already, so that `import colonnade` is
cheap and a stdio server does not import the HTTP stack. `__init__.pyi` declares the same names for
editors and type checkers; a test compares the two.
"""

# As in pyproject.toml, which a test compares: the metadata of an installation is missing in a zip
# application, in a frozen program, and in a copy of the source.
__version__ = "0.1.0.dev0"

_HOMES = {
    "Annotations": "protocol.types",
    "Ask": "server.context.ask",
    "Audio": "server.handlers.content",
    "AuditLog": "host.policy.audit.log",
    "AuthError": "errors",
    "BlockingContext": "server.context.blocking",
    "Caller": "ports",
    "CannotConnect": "errors",
    "CannotFetch": "errors",
    "ChannelError": "errors",
    "Client": "client.client",
    "ClientCredentials": "auth.client.login",
    "ClientTask": "client.tasks.task",
    "ColonnadeError": "errors",
    "ConnectionLost": "errors",
    "Containment": "host.policy.containment",
    "Context": "server.context.context",
    "Declined": "errors",
    "Depends": "server.handlers.dependencies",
    "EnterpriseLogin": "auth.client.login",
    "Extension": "server.extensions",
    "Fault": "errors",
    "FaultKind": "errors",
    "File": "server.handlers.content",
    "FunctionRule": "host.policy.rules.rules",
    "Gateway": "gateway.gateway",
    "Handler": "ports",
    "Host": "host.host",
    "HostInputRequest": "host.input_requests",
    "HostTask": "host.tasks",
    "HostTool": "host.servers.listings",
    "HttpRequest": "transport.http_server.custom_routes",
    "HttpResponse": "transport.http_server.custom_routes",
    "Icon": "protocol.types",
    "Image": "server.handlers.content",
    "Inbox": "host.policy.approvals.inbox",
    "InboxAnswer": "host.policy.approvals.inbox",
    "InboxItem": "host.policy.approvals.inbox",
    "Introspection": "auth.server.verifier",
    "InvalidArgument": "errors",
    "InvalidArgumentType": "errors",
    "Jwt": "auth.server.jwt",
    "Limits": "transport.http_server.request",
    "Link": "server.handlers.content",
    "LocalProtocolError": "errors",
    "Login": "auth.client.login",
    "LoginRequired": "errors",
    "Message": "server.handlers.content",
    "Middleware": "ports",
    "OpenAICompatible": "host.agent.openai_model",
    "Pins": "host.policy.pins.pins",
    "Policy": "host.policy.rules.rules",
    "PolicyRequest": "host.policy.request",
    "Protection": "auth.server.protection",
    "ProtocolError": "errors",
    "Refused": "errors",
    "RemoteError": "errors",
    "RemoteProtocolError": "errors",
    "RequestContext": "ports",
    "Root": "protocol.types",
    "Roots": "server.context.ask",
    "Rule": "host.policy.rules.rules",
    "RunLimits": "transport.http_server.connection",
    "Sample": "server.context.ask",
    "Sampled": "server.context.ask",
    "Sandbox": "transport.process.sandbox",
    "ScopeRequired": "errors",
    "Server": "server.server",
    "StaticTokens": "auth.server.verifier",
    "TaskEnded": "errors",
    "TaskOptions": "server.tasks.options",
    "Telemetry": "telemetry.telemetry",
    "TimedOut": "errors",
    "ToolError": "errors",
    "ToolReturn": "server.handlers.content",
    "UpstreamCredentials": "host.credentials",
    "WorkloadIdentity": "auth.client.login",
    "connect": "client.connect",
}

# Names of FastMCP and `mcp`, and what to write instead.
_ELSEWHERE = {
    "ClientSession": "write async with connect(target) as client",
    "CurrentContext": "take a parameter ctx: Context",
    "FastMCP": "write from colonnade import Server, and Server('name')",
    "GitHubProvider": "write auth=Protection(URL, OAuthProxy(github(client_id, client_secret)))",
    "JWTVerifier": "write auth=Protection(URL, Jwt('https://login.example.com'))",
    "MCPServer": "write from colonnade import Server, and Server('name')",
    "MiddlewareContext": "write async def timing(request: RequestContext, call_next: Handler)",
    "OAuthProxy": "write from colonnade.auth import OAuthProxy, github",
    "StaticTokenVerifier": "write auth=Protection(URL, StaticTokens({'a-word': 'ann'}))",
    "StdioServerParameters": "write connect(['uvx', 'mcp-server-git'])",
    "StdioTransport": "write connect(['uvx', 'mcp-server-git'])",
    "StreamableHttpTransport": "write connect('https://example.com/mcp')",
    "ToolResult": "write from colonnade import ToolReturn, and ToolReturn(content, data=...)",
    "create_proxy": "write Gateway(Host({'weather': 'https://example.com/mcp'}))",
    "get_access_token": "take a parameter ctx: Context, and use ctx.principal and ctx.claims",
    "get_context": "take a parameter ctx: Context",
    "get_http_headers": "take a parameter ctx: Context, and use ctx.headers",
    "get_http_request": "take a parameter ctx: Context, and use ctx.headers",
    "prompt": "write server = Server('name'), and @server.prompt above a function",
    "resource": "write server = Server('name'), and @server.resource('notes://today')",
    "stdio_client": "write connect(['uvx', 'mcp-server-git'])",
    "streamablehttp_client": "write connect('https://example.com/mcp')",
    "tool": "write server = Server('name'), and @server.tool above a function",
}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        import sys
        from importlib import import_module

        # The modules have syntax that older versions cannot parse; see also __main__.py.
        if sys.hexversion < 0x030B0000:
            mine = ".".join(map(str, sys.version_info[:2]))
            words = f"colonnade needs Python 3.11 or newer, and this is Python {mine}"
            raise ImportError(words, name="colonnade")
        value: object = getattr(import_module(f"colonnade.{_HOMES[name]}"), name)
    elif name in _ELSEWHERE:
        # An AttributeError would become an ImportError without the hint.
        raise ImportError(f"'colonnade' has no {name}: {_ELSEWHERE[name]}", name="colonnade")
    else:
        raise AttributeError(f"module 'colonnade' has no name {name!r}", name=name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":  # quoted: must parse in old versions of Python
    return sorted({*globals(), *_HOMES})
