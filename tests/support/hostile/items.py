"""What is thrown: values, bodies and messages, each with the answer that it must get.

Rules: an item is made for an era when it is thrown; it says what is right, not what we happen to do.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from http_client import META

# An answer's status is that of HTTP; its code that of JSON-RPC, None where it is no error, and
# ERROR where it is a tool's result that says so.
ERROR = 1
PARSE, REQUEST, METHOD, PARAMS, MISMATCH = -32700, -32600, -32601, -32602, -32020
MAX_BODY_BYTES = 4 * 1024 * 1024


class Era(NamedTuple):
    """How a client speaks: in a session, or with everything in each request."""

    date: str
    meta: bytes

    @property
    def modern(self) -> bool:
        return bool(self.meta)

    def frame(self, value: bytes = b"1", *, tool: bytes = b"echo", meta: bytes = b"") -> bytes:
        """A call of `echo` with this value; `meta` are more members of `_meta`."""
        members = b",".join(part for part in (self.meta, meta) if part)
        return (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%b","arguments":'
            b'{"value":%b},"_meta":{%b}}}' % (tool, value, members)
        )


SESSION = Era("2025-11-25", b"")
BATCHING = Era("2025-03-26", b"")
MODERN = Era("2026-07-28", json.dumps(META).encode()[1:-1])
ERAS = (SESSION, MODERN)


class Want(NamedTuple):
    """The answer that is right: its status, its code, its text where it is served.

    On a pipe there is no status; `silent` says that there is no answer at all there.
    """

    status: int
    code: int | None
    text: str | None = None
    silent: bool = False


class Item(NamedTuple):
    """One thing to throw."""

    name: str
    body: Callable[[Era], bytes]
    want: Callable[[Era], Want]

    def __str__(self) -> str:
        return self.name


def always(want: Want) -> Callable[[Era], Want]:
    return lambda era: want


def served(text: str) -> Callable[[Era], Want]:
    return always(Want(200, None, text))


UNREADABLE = always(Want(400, PARSE))
REFUSED = always(Want(400, REQUEST))
TOO_LARGE = always(Want(413, REQUEST))
OUT_OF_RANGE = always(Want(200, PARAMS))
TAKEN = always(Want(202, None, silent=True))


# ---------------------------------------------------------------- JSON: values


def value(name: str, data: bytes, want: Callable[[Era], Want]) -> Item:
    """A value as an argument of a tool that takes anything."""
    return Item(name, lambda era: era.frame(data), want)


def nested(depth: int) -> bytes:
    """As deep as this in a frame, which is three deep itself."""
    return b"[" * (depth - 3) + b"]" * (depth - 3)


NUMBERS = [
    *(value(word, word.encode(), UNREADABLE) for word in ("NaN", "Infinity", "-Infinity", "nan")),
    *(value(word, word.encode(), UNREADABLE) for word in ("01", "+1", ".5", "5.", "1e", "0x1")),
    *(value(word, word.encode(), UNREADABLE) for word in ("-", "--1", "1_000", "１", "1,5", "∞")),
    value("minus zero", b"-0", served("0")),
    value("1e400", b"1e400", OUT_OF_RANGE),
    value("-1e400", b"-1e400", OUT_OF_RANGE),
    value("1E-400", b"1E-400", served("0.0")),
    *(value(f"{n}", b"%d" % n, served(str(n))) for n in (2**53 - 1, 2**53 + 1, 2**63, 2**64)),
    value("10^4300", b"1" + b"0" * 4300, OUT_OF_RANGE),
    value("5,000 digits", b"7" * 5000, OUT_OF_RANGE),
    value("1,000,000 digits", b"7" * 1_000_000, OUT_OF_RANGE),
    value("5,000 decimals", b"0." + b"3" * 5000, served(str(float("0." + "3" * 50)))),
    value("an exponent of 5,000 digits", b"1e" + b"9" * 5000, OUT_OF_RANGE),
]
NESTING = [
    value("64 deep", nested(64), served("[" * 61 + "]" * 61)),
    value("65 deep", nested(65), REFUSED),
    value("1,000 deep", nested(1000), REFUSED),
    value("100,000 deep", nested(100_000), REFUSED),
    value("1,000 objects deep", b'{"a":' * 1000 + b"1" + b"}" * 1000, REFUSED),
    value("mixed and 100,000 deep", b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000, REFUSED),
    Item("100,000 open brackets", lambda era: b"[" * 100_000, REFUSED),
    Item("100,000 open objects", lambda era: b'{"a":' * 100_000, REFUSED),
    Item("closed and never opened", lambda era: b"]" * 1000, UNREADABLE),
]
MEMBERS = [
    value("a member twice", b'{"a":1,"a":2}', OUT_OF_RANGE),
    value("a member twice, once escaped", b'{"a":1,"\\u0061":2}', OUT_OF_RANGE),
    value("__proto__", b'{"__proto__":1}', served('{"__proto__": 1}')),
    value("__class__", b'{"__class__":{"__init__":1}}', served('{"__class__": {"__init__": 1}}')),
    value("an empty name", b'{"":1}', served('{"": 1}')),
    value("a name with a NUL", b'{"a\\u0000":1}', served('{"a\\u0000": 1}')),
    value("a name that is no text", b"{1:2}", UNREADABLE),
    value("a trailing comma", b"[1,]", UNREADABLE),
    value("a trailing comma in an object", b'{"a":1,}', UNREADABLE),
    value("a comment", b"1/*x*/", UNREADABLE),
    value("single quotes", b"'a'", UNREADABLE),
    value("no quotes", b"{a:1}", UNREADABLE),
    value("a name without a value", b'{"a"}', UNREADABLE),
    value("two colons", b'{"a"::1}', UNREADABLE),
    value("True", b"True", UNREADABLE),
    value("undefined", b"undefined", UNREADABLE),
]
TEXT = [
    value("half a character", b'"\\ud800"', UNREADABLE),
    value("the other half", b'"\\udc00"', UNREADABLE),
    value("two halves in the wrong order", b'"\\udc00\\ud800"', UNREADABLE),
    value("half a character in a name", b'{"\\ud800":1}', UNREADABLE),
    value("both halves", b'"\\ud83d\\ude00"', served('"\\ud83d\\ude00"')),
    value("overlong UTF-8", b'"\xc0\xaf"', UNREADABLE),
    value("overlong NUL", b'"\xc0\x80"', UNREADABLE),
    value("a surrogate in UTF-8", b'"\xed\xa0\x80"', UNREADABLE),
    value("beyond the last character", b'"\xf4\x90\x80\x80"', UNREADABLE),
    value("a lone continuation", b'"\x80"', UNREADABLE),
    value("a cut character", b'"\xe2\x82"', UNREADABLE),
    value("0xFF", b'"\xff"', UNREADABLE),
    value("Latin-1", '"ä"'.encode("latin-1"), UNREADABLE),
    value("a NUL", b'"\x00"', UNREADABLE),
    value("an escaped NUL", b'"\\u0000"', served('"\\u0000"')),
    value("a raw tab", b'"\t"', UNREADABLE),
    value("a raw carriage return", b'"\r"', UNREADABLE),
    value("a bad escape", b'"\\x41"', UNREADABLE),
    value("half an escape", b'"\\u00"', UNREADABLE),
    value("U+2028 and U+2029", '"\u2028\u2029"'.encode(), served('"\\u2028\\u2029"')),
    value("U+FFFE and U+FFFF", '"\ufffe\uffff"'.encode(), served('"\\ufffe\\uffff"')),
    value("bidi", '"\u202e\u2066"'.encode(), served('"\\u202e\\u2066"')),
    value("a BOM inside", '"\ufeff"'.encode(), served('"\\ufeff"')),
    value("delete", b'"\x7f"', served('"\\u007f"')),
]


# ---------------------------------------------------------------- JSON: bodies


def body(name: str, data: bytes, want: Callable[[Era], Want] = UNREADABLE) -> Item:
    return Item(name, lambda era: data, want)


def around(name: str, change: Callable[[bytes], bytes]) -> Item:
    """A good message, changed into something that cannot be read."""
    return Item(name, lambda era: change(era.frame()), UNREADABLE)


def _empty(name: str, data: bytes) -> Item:
    """Nothing at all; on a pipe, empty lines are nothing to be answered."""
    return body(name, data, always(Want(400, PARSE, silent=True)))


BODIES = [
    _empty("nothing", b""),
    _empty("spaces", b" \t \r"),
    _empty("4 MiB of spaces", b" " * MAX_BODY_BYTES),
    *(body(f"only {text}", text.encode(), REFUSED) for text in ("5", '"x"', "null", "true")),
    *(body(f"only {text}", text.encode()) for text in ("{", '{"', "[", '"', "-", "tru", "}", ":")),
    body("an empty object", b"{}", REFUSED),
    body("an empty batch", b"[]", REFUSED),
    body("a NUL", b"\x00"),
    around("a BOM", lambda frame: b"\xef\xbb\xbf" + frame),
    around("UTF-16", lambda frame: frame.decode().encode("utf-16").replace(b"\n", b" ")),
    around("UTF-16 without a BOM", lambda frame: frame.decode().encode("utf-16-le")),
    around("UTF-32", lambda frame: frame.decode().encode("utf-32")),
    around("a NUL at the end", lambda frame: frame + b"\x00"),
    around("garbage at the end", lambda frame: frame + b"garbage"),
    around("two messages", lambda frame: frame + frame),
    around("two messages and a space", lambda frame: frame + b" " + frame),
    around("a comment before", lambda frame: b"/* x */" + frame),
    around("a comment after", lambda frame: frame + b"// x"),
    around("a trailing comma", lambda frame: frame[:-1] + b",}"),
    around("cut in the middle", lambda frame: frame[: len(frame) // 2]),
    around("cut at the end", lambda frame: frame[:-1]),
    around("one bracket too many", lambda frame: frame + b"}"),
    around("semicolons", lambda frame: frame.replace(b",", b";")),
    around("an HTML page", lambda frame: b"<html><body>" + frame),
    around("a form", lambda frame: b"json=" + frame),
]
# Sizes that must be read to be refused: they take a while, and memory that must come back.
LARGE = [
    value("10 MB of a number", b"7" * 10_000_000, TOO_LARGE),
    value("a million names", b"{%b}" % b",".join(b'"k%d":1' % n for n in range(10**6)), TOO_LARGE),
    value("a list of a million", b"[%b1]" % (b"1," * 10**6), always(Want(200, None))),
    value("a name of 4 MB", b'{"%b":1}' % (b"k" * 4_000_000), always(Want(200, None))),
    value("a hundred thousand names", b"{%b}" % b",".join(b'"k%d":1' % n for n in range(10**5)),
          always(Want(200, None))),
    body("one byte too many", b" " * (MAX_BODY_BYTES + 1), TOO_LARGE),
]  # fmt: skip
JSON_ITEMS = [*NUMBERS, *NESTING, *MEMBERS, *TEXT, *BODIES]


# ---------------------------------------------------------------- JSON-RPC


def change(name: str, old: bytes, new: bytes, want: Callable[[Era], Want]) -> Item:
    """A good message in which one thing is another."""

    def made(era: Era) -> bytes:
        frame = era.frame()
        assert frame.count(old) == 1, name
        return frame.replace(old, new)

    return Item(name, made, want)


def an_id(name: str, text: bytes, want: Callable[[Era], Want] = REFUSED) -> Item:
    return change(f"id {name}", b'"id":1', b'"id":%b' % text, want)


def a_method(name: str, text: bytes) -> Item:
    """A method that there is not. Over HTTP a modern one is compared with its header first."""

    def want(era: Era) -> Want:
        return Want(400, MISMATCH) if era.modern else Want(200, METHOD)

    return change(f"method {name}", b'"tools/call"', text, want)


def params(name: str, text: bytes) -> Item:
    made = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % text
    return body(f"params {name}", made, REFUSED)


def token(name: str, text: bytes) -> Item:
    """A progress token; a modern one is part of what is read before anything else."""
    return Item(
        f"progress token {name}",
        lambda era: era.frame(meta=b'"progressToken":' + text),
        lambda era: Want(400 if era.modern else 200, PARAMS),
    )


def reply(name: str, members: bytes) -> Item:
    """A reply that is none. On a pipe nobody waits for a word about it."""
    return body(
        name, b'{"jsonrpc":"2.0","id":7,%b}' % members, always(Want(400, REQUEST, silent=True))
    )


def stray(name: str, members: bytes) -> Item:
    """A good reply to nothing: ignored where replies are posted, refused where they never are."""
    data = b'{"jsonrpc":"2.0","id":7,%b}' % members
    return Item(
        name,
        lambda era: data,
        lambda era: Want(400 if era.modern else 202, REQUEST if era.modern else None, silent=True),
    )


def notice(name: str, method: bytes, members: bytes = b"") -> Item:
    """A notification, which is taken whatever it says."""
    data = b'{"jsonrpc":"2.0","method":"%b"%b}' % (method, members)
    return body(name, data, TAKEN)


def cancel(name: str, id: bytes) -> Item:
    return notice(f"cancel {name}", b"notifications/cancelled", b',"params":{"requestId":%b}' % id)


IDS = [
    an_id("null", b"null"),
    an_id("true", b"true"),
    an_id("1.5", b"1.5"),
    an_id("a list", b"[]"),
    an_id("an object", b"{}"),
    an_id("of 64 KiB", b'"%b"' % (b"i" * 65536)),
    an_id("of 5,000 digits", b"7" * 5000),
    an_id("half a character", b'"\\ud800"', UNREADABLE),
    *(an_id(text, text.encode(), served("1")) for text in ("1e0", "1.0", "-1", '""', '"1"')),
    an_id("2^63", b"9223372036854775808", served("1")),
    an_id("2^200", b"%d" % 2**200, served("1")),
]
ENVELOPES = [
    *(change(f"jsonrpc {text}", b'"jsonrpc":"2.0"', b'"jsonrpc":' + text.encode(), REFUSED)
      for text in ('"1.0"', "2", "2.0", "null", '"2.0 "', "[]")),
    change("no jsonrpc", b'"jsonrpc":"2.0",', b"", REFUSED),
    change("Method", b'"method"', b'"Method"', REFUSED),
    change("method and a NUL", b'"method"', b'"method\\u0000"', REFUSED),
    change("paramſ", b'"params"', '"paramſ"'.encode(),
           lambda era: Want(400 if era.modern else 200, PARAMS)),
    change("the id twice", b'"id":1', b'"id":1,"id":2', REFUSED),
    change("the method twice", b'"id":1', b'"id":1,"method":"ping"', REFUSED),
    change("the params twice", b'"id":1', b'"id":1,"params":{}', REFUSED),
    change("a name twice", b'"name":"echo"', b'"name":"ping","name":"echo"', always(Want(400, PARAMS))),
    change("a stranger's members", b'"id":1', b'"id":1,"__proto__":{},"x":[1]', served("1")),
    change("a method and a result", b'"id":1', b'"id":1,"result":{}', REFUSED),
    change("an unknown tool", b'"echo"', b'"nope"',
           lambda era: Want(400, MISMATCH) if era.modern else Want(200, PARAMS)),
    change("arguments that are a list", b'{"value":1}', b"[1]", always(Want(200, PARAMS))),
    change("arguments that are a number", b'{"value":1}', b"1e400", always(Want(200, PARAMS))),
]  # fmt: skip
METHODS = [
    a_method("empty", b'""'),
    a_method("of 64 KiB", b'"%b"' % (b"m" * 65536)),
    a_method("rpc.", b'"rpc.discover"'),
    a_method("in capitals", b'"TOOLS/CALL"'),
    a_method("with a NUL", b'"tools/call\\u0000"'),
    a_method("__init__", b'"__init__"'),
    a_method("that is a notification", b'"notifications/initialized"'),
    change("method 5", b'"tools/call"', b"5", REFUSED),
    change("method null", b'"tools/call"', b"null", REFUSED),
]
PARAMETERS = [
    *(params(name, text) for name, text in
      (("a list", b"[]"), ("null", b"null"), ("text", b'"x"'), ("5", b"5"), ("by position", b'["echo"]'))),
    *(Item(f"_meta {text}", lambda era, text=text: b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
           b'"params":{"name":"echo","_meta":%b}}' % text.encode(), always(Want(400, PARAMS)))
      for text in ("[]", '"x"', "5", "true")),
    token("1.5", b"1.5"),
    token("true", b"true"),
    token("a list", b"[]"),
    token("of 64 KiB", b'"%b"' % (b"t" * 65536)),
]  # fmt: skip
REPLIES = [
    stray("a reply that nobody asked for", b'"result":{}'),
    stray("an error that nobody asked for", b'"error":{"code":1,"message":"x"}'),
    reply("a result and an error", b'"result":{},"error":{"code":1,"message":"x"}'),
    reply("an error whose code is text", b'"error":{"code":"x","message":"x"}'),
    reply("an error without words", b'"error":{"code":1}'),
    reply("an error that is null", b'"error":null'),
    body("neither a result nor an error", b'{"jsonrpc":"2.0","id":7}', REFUSED),
]
NOTICES = [
    cancel("an unknown request", b"99"),
    cancel("a finished request", b"1"),
    cancel("null", b"null"),
    cancel("a list", b"[]"),
    cancel("1.5", b"1.5"),
    cancel("text", b'"1"'),
    notice("cancel nothing", b"notifications/cancelled"),
    notice("an unknown notification", b"notifications/nothing"),
    notice("progress of nothing", b"notifications/progress",
           b',"params":{"progressToken":1,"progress":1}'),
    body("a notification with a list", b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}',
         always(Want(400, REQUEST, silent=True))),
]  # fmt: skip
MANY = b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 100_000)
BATCHES = [
    body("a batch of batches", b"[[]]", REFUSED),
    body("a batch of nothing", b"[1]", REFUSED),
    body("a batch of 100,000", b"[%b]" % MANY, REFUSED),
    Item("a batch of one", lambda era: b"[%b]" % era.frame(), REFUSED),
]
RPC_ITEMS = [*IDS, *ENVELOPES, *METHODS, *PARAMETERS, *REPLIES, *NOTICES, *BATCHES]
EVERYTHING = [*JSON_ITEMS, *RPC_ITEMS]
