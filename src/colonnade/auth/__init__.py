"""Authentication and authorization (OAuth), SSRF protection, encryption of request state.

The public names of the authorization proxy and its presets, and of the credentials of callers, each
imported on first use: `from colonnade.auth import OAuthProxy, Protection, github`.
"""

_HOMES = {
    "Jwt": "server.jwt",
    "OAuthProxy": "server.proxy.proxy",
    "PresentedTokens": "presented",
    "Protection": "server.protection",
    "Provider": "server.proxy.provider",
    "TokenExchange": "client.login",
    "UpstreamClient": "client.upstream",
    "UpstreamUser": "server.proxy.provider",
    **dict.fromkeys(
        (
            *("auth0", "cognito", "discord", "entra", "github", "google", "keycloak", "okta"),
            *("slack", "workos"),
        ),
        "server.proxy.presets",
    ),
}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'colonnade.auth' has no name {name!r}", name=name)
    from importlib import import_module

    value: object = getattr(import_module(f"colonnade.auth.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
