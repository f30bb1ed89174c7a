"""Web pages of an authorization server: for the proxy, and for the issuer for development.

Rules: a page runs no script, loads nothing, and cannot be framed. What is passed as HTML was
escaped by the caller; a title is escaped here.
"""

import base64
import hashlib
import re
from html import escape
from typing import Final
from urllib.parse import urlsplit

from colonnade.auth.server.oauth_forms import Pairs

NO_STORE: Final[Pairs] = (("cache-control", "no-store"), ("pragma", "no-cache"))

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#f4f5f7;color:#16181d}"
    "main{max-width:34rem;margin:8vh auto;padding:2rem;background:#fff;border-radius:12px;"
    "box-shadow:0 1px 4px #0002}h1{font-size:1.35rem;margin:0 0 1rem}dt{color:#5b6270;"
    "font-size:.85rem;margin-top:.9rem}dd{margin:0;overflow-wrap:anywhere}code{font-size:.9rem}"
    ".warning{background:#fff4d6;border-left:4px solid #d99a00;padding:.6rem .9rem;margin:1rem 0}"
    ".buttons{display:flex;flex-wrap:wrap;gap:.75rem;margin-top:1.6rem}"
    "button{font:inherit;padding:.55rem 1.3rem;"
    "border-radius:8px;border:1px solid #c3c8d2;background:#fff;cursor:pointer}"
    "button.approve{background:#1f5fd0;border-color:#1f5fd0;color:#fff}"
    "bdi{unicode-bidi:isolate}"
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def page(title: str, content: str, *, head: str = "") -> bytes:
    """A whole page; `content` and `head` are HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title>{head}<style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    ).encode()


def page_headers(redirect: str = "") -> Pairs:
    """The headers of a page. `redirect` is a verified URI that its form leads to in the end:
    browsers apply `form-action` to redirects, too."""
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; "
        f"base-uri 'none'; form-action 'self'{_source(redirect)}"
    )
    return (
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", policy),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        # Not no-referrer: with that a browser sends `Origin: null` with the form.
        ("referrer-policy", "same-origin"),
        *NO_STORE,
    )


def _source(uri: str) -> str:
    """A URI as a source of a policy: its origin, or its scheme if its host could end the policy."""
    parts = urlsplit(uri)
    if not parts.scheme:
        return ""
    return f" {parts.scheme}:" + (f"//{parts.netloc}" if _HOST.fullmatch(parts.netloc) else "")


PAGE_HEADERS: Final = page_headers()
