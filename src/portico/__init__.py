"""The public names of Portico, each loaded when it is first asked for.

Rules: nothing is imported here but what Python has loaded already, so that `import portico` costs
nothing and a server on a pipe never pays for an HTTP stack. `__init__.pyi` beside this file says
the same to editors and type checkers; a test keeps the two equal.
"""

_HOMES = {
    "AuthError": "errors",
    "CannotConnect": "errors",
    "ChannelError": "errors",
    "ConnectionLost": "errors",
    "Declined": "errors",
    "LocalProtocolError": "errors",
    "LoginRequired": "errors",
    "PorticoError": "errors",
    "ProtocolError": "errors",
    "Refused": "errors",
    "RemoteError": "errors",
    "RemoteProtocolError": "errors",
    "ScopeRequired": "errors",
    "TimedOut": "errors",
    "ToolError": "errors",
}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("portico")
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(f"portico.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'portico' has no name {name!r}", name=name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
