"""The public names of Colonnade, each loaded when it is first asked for.

Rules: nothing is imported here but what Python has loaded already, so that `import colonnade` costs
nothing and a server on a pipe never pays for an HTTP stack. `__init__.pyi` beside this file says
the same to editors and type checkers; a test keeps the two equal.
"""

# As in pyproject.toml, which a test compares: the metadata of an installation is not there in a zip
# application, in a frozen program, or in a copy of this source.
__version__ = "0.1.0.dev0"

_HOMES = {
    "Annotations": "protocol.types",
    "Ask": "server.context.ask",
    "Audio": "server.handlers.content",
    "AuthError": "errors",
    "BlockingContext": "server.context.blocking",
    "Caller": "ports",
    "CannotConnect": "errors",
    "CannotFetch": "errors",
    "ChannelError": "errors",
    "Client": "client.client",
    "ClientCredentials": "auth.client.login",
    "ColonnadeError": "errors",
    "ConnectionLost": "errors",
    "Context": "server.context.context",
    "Declined": "errors",
    "Depends": "server.handlers.dependencies",
    "EnterpriseLogin": "auth.client.login",
    "File": "server.handlers.content",
    "Handler": "ports",
    "Host": "host.host",
    "HostInputRequest": "host.input_requests",
    "HostTool": "host.servers.listings",
    "HttpRequest": "transport.http_server.custom_routes",
    "HttpResponse": "transport.http_server.custom_routes",
    "Icon": "protocol.types",
    "Image": "server.handlers.content",
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
    "Protection": "auth.server.protection",
    "ProtocolError": "errors",
    "Refused": "errors",
    "RemoteError": "errors",
    "RemoteProtocolError": "errors",
    "RequestContext": "ports",
    "Root": "protocol.types",
    "Roots": "server.context.ask",
    "RunLimits": "transport.http_server.connection",
    "Sample": "server.context.ask",
    "Sampled": "server.context.ask",
    "ScopeRequired": "errors",
    "Server": "server.server",
    "StaticTokens": "auth.server.verifier",
    "TimedOut": "errors",
    "ToolError": "errors",
    "ToolReturn": "server.handlers.content",
    "WorkloadIdentity": "auth.client.login",
    "connect": "client.connect",
}

# What people import who come from FastMCP or `mcp`, and what to write here.
_ELSEWHERE = {
    "ClientSession": "write async with connect(target) as client",
    "CurrentContext": "take a parameter ctx: Context",
    "FastMCP": "write from colonnade import Server, and Server('name')",
    "MCPServer": "write from colonnade import Server, and Server('name')",
    "StdioServerParameters": "write connect(['uvx', 'mcp-server-git'])",
    "StdioTransport": "write connect(['uvx', 'mcp-server-git'])",
    "StreamableHttpTransport": "write connect('https://example.com/mcp')",
    "get_context": "take a parameter ctx: Context",
    "stdio_client": "write connect(['uvx', 'mcp-server-git'])",
    "streamablehttp_client": "write connect('https://example.com/mcp')",
}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        import sys
        from importlib import import_module

        # Behind this line is grammar that older ones cannot read; see also __main__.py.
        if sys.hexversion < 0x030B0000:
            mine = ".".join(map(str, sys.version_info[:2]))
            words = f"this is Python {mine}, and colonnade needs 3.11; start it with a newer one"
            raise ImportError(words, name="colonnade")
        value: object = getattr(import_module(f"colonnade.{_HOMES[name]}"), name)
    elif name in _ELSEWHERE:
        # An AttributeError would become an ImportError without a hint.
        raise ImportError(f"'colonnade' has no {name}: {_ELSEWHERE[name]}", name="colonnade")
    else:
        raise AttributeError(f"module 'colonnade' has no name {name!r}", name=name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":  # quoted, for Pythons that are told to be too old
    return sorted({*globals(), *_HOMES})
