"""What stands around messages when all is well: event streams, HTTP requests, templates, schemas.

Rules: as in `fuzz.corpus`.
"""

from typing import NamedTuple

from colonnade.protocol.http import sse
from colonnade.protocol.revision import ALL, NEWEST
from fuzz.corpus import EVERY_MESSAGE, MESSAGES, TOOL_SCHEMA, Seed, seed

# ---------------------------------------------------------------- event streams

REPLY, NEWS = EVERY_MESSAGE[40].body, EVERY_MESSAGE[3].body

STREAMS: tuple[bytes, ...] = (
    sse.priming_event("s1-0", 3000)
    + sse.encode_event(NEWS, id="s1-1")
    + sse.encode_event(REPLY, id="s1-2"),
    sse.comment("hello") + sse.encode_event(REPLY) + sse.comment(),
    sse.encode_event(b"/messages?session=1", event="endpoint")
    + sse.encode_event(REPLY, event="message"),
    b"\xef\xbb\xbfdata: after a byte order mark\n\ndata\n\ndata:\n\n",
    b"data: one\rdata: two\r\rid: 7\revent: x\rdata: three\r\r",
    b"data: one\r\ndata: two\r\n\r\nid: 7\r\nretry: 10\r\ndata: three\r\n\r\n",
    b": comment\nid: 1\n\nid\n\nretry: 5x\nretry:007\ndata:  two spaces\n\n",
    b'event: a\nevent: b\ndata: {\ndata:  "id":1\ndata: }\nunknown: x\nDATA: y\n\ndata: cut',
    "data: line\u2028separator\u0085next\x0bvertical\x0cform\n\nid: \u00e4\ndata: \u2603\n\n".encode(),
    b"id: a\0b\ndata: x\n\nid: " + b"7" * 1020 + b"\ndata: y\n\n\n\n\n",
)

STREAM_TOKENS: tuple[bytes, ...] = (
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\n\r",
    b"data",
    b"data: ",
    b"data:",
    b"id: ",
    b"id",
    b"event: ",
    b"retry: ",
    b"retry: 99999999999999999999",
    b":",
    b" ",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xef\xbb",
    b"\xff",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\x0b",
    b"\x1c",
    b"data: " + b"x" * 300 + b"\n",
)

# ---------------------------------------------------------------- HTTP requests


class Post(NamedTuple):
    """A request as a server gets it; `known` is the session that it names, by its revision."""

    method: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: Seed
    known: str = ""


COMMON = (
    (b"Host", b"localhost:8080"),
    (b"Accept", b"application/json, text/event-stream;q=0.5"),
    (b"Content-Type", b"application/json; charset=utf-8"),
)
BROWSER = ((b"Origin", b"http://localhost:8080"), (b"User-Agent", b"Mozilla/5.0"))
PARAM_HEADERS = (
    (b"Mcp-Param-City", b"Oslo"),
    (b"Mcp-Param-Days", b"3"),
    (b"Mcp-Param-In-Doors", b"true"),
)
ENCODED_CITY = (b"Mcp-Param-City", b"=?base64?T3Nsbw==?=")


def _modern(found: Seed) -> Post:
    """A request of the newest revision with the headers that mirror it."""
    params = found.tree.get("params") or {}
    headers = [
        *COMMON,
        (b"MCP-Protocol-Version", NEWEST.date.encode()),
        (b"Mcp-Method", found.tree["method"].encode()),
    ]
    named = [params[member] for member in ("name", "uri", "taskId") if member in params]
    headers += [(b"Mcp-Name", name.encode()) for name in named]
    if "arguments" in params and params.get("name") == "forecast":
        headers += PARAM_HEADERS
    return Post(b"POST", tuple(headers), found)


def _posts() -> tuple[Post, ...]:
    posts: list[Post] = []
    for revision in ALL:
        for n, found in enumerate(MESSAGES[revision.date]):
            is_message = isinstance(found.tree, dict)
            if is_message and "method" in found.tree and not revision.handshake:
                posts.append(_modern(found))
                continue
            if n % 3:
                continue
            version = ((b"MCP-Protocol-Version", revision.date.encode()),)
            session = ((b"Mcp-Session-Id", b"3f2504e0-4f89-11d3-9a0c-0305e82c3301"),)
            headers = (*COMMON, *BROWSER, *(version if revision.http.version_header else ()))
            known = revision.date if revision.handshake else ""
            posts.append(Post(b"POST", (*headers, *session), found, known))
            if n % 2:
                posts.append(Post(b"POST", headers, found))
    call = next(post for post in posts if post.headers[-1] == PARAM_HEADERS[-1])
    posts.append(call._replace(headers=(*call.headers[:-3], ENCODED_CITY, *PARAM_HEADERS[1:])))
    resume = (*COMMON[:2], session_header(), (b"Last-Event-ID", b"s1-1"))
    posts.append(Post(b"GET", resume, seed({}), "2025-11-25"))
    posts.append(Post(b"DELETE", (COMMON[0], session_header()), seed({}), "2025-06-18"))
    posts.append(Post(b"POST", (*COMMON, (b"Content-Length", b"512")), posts[0].body))
    return tuple(posts)


def session_header() -> tuple[bytes, bytes]:
    return b"Mcp-Session-Id", b"3f2504e0-4f89-11d3-9a0c-0305e82c3301"


POSTS = _posts()

HEADER_NAMES: tuple[bytes, ...] = (
    *(name for name, _ in (*COMMON, *BROWSER, *PARAM_HEADERS, session_header())),
    b"MCP-Protocol-Version",
    b"Mcp-Method",
    b"Mcp-Name",
    b"Last-Event-ID",
    b"Content-Length",
    b"X-Forwarded-Host",
    b"",
)
HEADER_VALUES: tuple[bytes, ...] = (
    *(value for post in POSTS for _, value in post.headers[:6]),
    b"",
    b" ",
    b"\t",
    b"\0",
    b"\r\nX-Evil: 1",
    b"\xff\xfe",
    "Ö".encode(),
    b"null",
    b"*",
    b"*/*",
    b"*/*;q=0",
    b"a" * 9000,
    b"=?base64?",
    b"?=",
    b"=?base64??=",
    b"=?base64?/w==?=",
    b"=?base64?T3Nsbx==?=",
    b"42.0",
    b"007",
    b"9007199254740993",
    b"[::1]:8080",
    b"[::1",
    b"127.0.0.1:8080",
    b"localhost",
    b"localhost:99999",
    b"evil.example",
    b"localhost:8080.evil.example",
    b"http://evil.example",
    b"http://[::1]:8080",
    b"text/plain",
    b'application/json; charset="utf-8"',
    b"application/json;charset=utf-16",
    b'application/json; charset="',
    b"2026-07-28, 2026-07-28",
    b"1" * 30,
    b"-1",
    "١".encode(),
)

# ---------------------------------------------------------------- templates and schemas

TEMPLATES: tuple[str, ...] = (
    "repo://{owner}/{+path}{?ref}",
    "file:///{name}.txt",
    "x://{a}-{b}/{c*}",
    "{/list*}{?q,page*}{&more}",
    "{scheme}://host{/a,b}{.ext}{#frag}",
    "{;x,y,empty}{?a,b}",
    "literal%20only",
    "a{x:3}b",
    "http://ä/{%C3%A4}",
)
URIS: tuple[str, ...] = (
    "repo://ann/src/a%20b.py?ref=main",
    "file:///b.txt",
    "x://1-2-3/a,b,c",
    "/a/b/c?q=1&page=2&page=3&more=x",
    "s://host/1/2.tar.gz#part",
    ";x=1;y;empty?a=%2F&b=ä",
    "file:///..%2Fetc%2Fpasswd.txt",
    "http://%C3%A4/%00",
)
TEMPLATE_TOKENS: tuple[str, ...] = (
    *"{}+#./;?&,*:%=-~ä☃\0\ud800\n| ",
    "{x}",
    "{+x}",
    "{/x*}",
    "{?x,y}",
    "{x:9999}",
    "{x:10000}",
    "%2F",
    "%FF",
    "%",
    "a" * 400,
    "{x}" * 40,
)

DEEP_SCHEMA = {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}}
SCHEMAS: tuple[Seed, ...] = (
    seed(TOOL_SCHEMA),
    seed(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/n"}
        | DEEP_SCHEMA
    ),
    seed(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [{"const": 1}, {"pattern": "^a+$", "format": "email"}],
            "additionalItems": False,
            "definitions": {"a/b~c": True},
        }
    ),
    seed(
        {
            "anyOf": [{"type": "string", "maxLength": 3}, {"not": {"type": "number"}}],
            "if": {"minProperties": 1},
            "then": {"required": ["city"]},
            "patternProperties": {"^x-(?=y)": {"enum": [1, None, "a"]}},
            "dependentRequired": {"a": ["b"]},
            "unevaluatedProperties": False,
        }
    ),
    seed(
        {
            "type": ["array", "string", "object"],
            "properties": {"city": {"$ref": "#/items/anyOf/1"}, "n": {"$ref": "#"}},
            "items": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "string"}, {"$ref": "#w"}]},
            "$defs": {"b": {"not": False, "$anchor": "w"}, "c": {"$ref": "#/$defs/b"}},
            "allOf": [{"$ref": "#/$defs/c"}, True],
        }
    ),
    seed(
        {
            "$id": "https://library.example/n",
            "anyOf": [{"$ref": "#/$defs/n"}, {"$id": "inner", "items": {"$ref": "#"}}],
        }
        | DEEP_SCHEMA
    ),
)
VALUES: tuple[Seed, ...] = (
    seed({"city": "Oslo", "days": 3, "where": {"indoors": True}}),
    seed({"n": {"n": {"n": {}}}}),
    seed([1, "aaa", None, 2.5]),
    seed("words"),
)
