"""What a notebook shows of a result or a tool: words, pictures, sounds, tables; as HTML.

Rules: everything that a server sent is escaped, in one function. A picture or a sound is a `data:`
address made of base64 and of nothing else, in an element that runs no script; nothing is fetched.
What is shown is bounded.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from colonnade.client.text import clean, cut
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.content import is_base64, size

# Of one block, in characters: a notebook keeps what it shows.
MAX_TEXT: Final = 20_000
MAX_DATA: Final = 16 * 1024 * 1024
# Of a table; more is for programs.
MAX_ROWS: Final = 100
MAX_COLUMNS: Final = 20
MAX_CELL: Final = 200

_MEDIA = re.compile(r"(?:image|audio)/[A-Za-z0-9.+-]{1,100}")
_FRAME = "<div style='border-left: 3px solid {}; padding-left: 8px'>{}</div>"
_CALM, _ALARMED = "#2f6f4f", "#b3362c"


def shown(text: str, most: int = MAX_TEXT) -> str:
    """Words of a server in a page: what would act there, or hide there, is seen instead."""
    return escape(cut(clean(text, lines=True), most))


def tool_html(signature: str, description: str | None) -> str:
    """A tool: how it is called, and what it says of itself."""
    about = f"<div style='white-space: pre-wrap'>{shown(description)}</div>" if description else ""
    return _FRAME.format(_CALM, f"<code>{shown(signature)}</code>{about}")


def result_html(
    tool: str, content: Sequence[t.ContentBlock], structured: Any, value: Any, is_error: bool
) -> str:
    """A result: its data as a table if that is what it is, then what else is in it."""
    blocks: list[str] = []
    said = _as_table(value) if structured is not UNSET and not is_error else ""
    if said:
        blocks.append(said)
        # The same data stands in the words as well, for older clients.
        same = {encode(one).decode() for one in (structured, value)}
        content = [one for one in content if not (_is_text(one) and _squeezed(one) in same)]
    blocks += [_block(one) for one in content]
    head = f"<b>{shown(tool)} failed</b>" if is_error else ""
    inner = head + "".join(blocks) or "<i>nothing</i>"
    return _FRAME.format(_ALARMED if is_error else _CALM, inner)


def _is_text(block: t.ContentBlock) -> bool:
    return isinstance(block, t.TextContent)


def _squeezed(block: t.ContentBlock) -> str:
    """The words of a block that are JSON, as we would write them."""
    text = cast("t.TextContent", block).text
    try:
        return encode(msgspec.json.decode(text)).decode()
    except (msgspec.MsgspecError, RecursionError):
        return text


def _block(block: t.ContentBlock) -> str:
    match block:
        case t.TextContent():
            return f"<pre style='white-space: pre-wrap'>{shown(block.text)}</pre>"
        case t.ImageContent():
            return _media("image", block.mime_type, block.data)
        case t.AudioContent():
            return _media("audio", block.mime_type, block.data)
        case t.EmbeddedResource():
            found = block.resource
            head = f"<div><code>{shown(found.uri)}</code></div>"
            if found.text is not None:
                return f"{head}<pre style='white-space: pre-wrap'>{shown(found.text)}</pre>"
            return head + _media("file", found.mime_type, found.blob or "")
        case t.ResourceLink():
            # No link that could be clicked: where it leads is the server's word.
            return f"<div>{shown(t.display_name(block))}: <code>{shown(block.uri)}</code></div>"
        case _:
            return f"<div>[{shown(block.type)}]</div>"


def _media(what: str, mime_type: str | None, data: str) -> str:
    """A picture or a sound; a name for what is neither, or no base64."""
    kind = (mime_type or "").lower()
    fits = _MEDIA.fullmatch(kind) and len(data) <= MAX_DATA and is_base64(data)
    if not fits:
        return f"<div>[{what} {shown(mime_type or '')}, {size(data)} bytes]</div>"
    source = f"data:{kind};base64,{data}"
    if kind.startswith("image/"):
        return f"<div><img style='max-width: 100%' src='{source}'></div>"
    return f"<div><audio controls src='{source}'></audio></div>"


# ---------------------------------------------------------------- tables


def _as_table(value: Any) -> str:
    """Objects in a list, a row each; one object, a member a row; nothing for anything else."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(members) == 1:
            inner = _as_table(next(iter(members.values())))
            if inner and isinstance(next(iter(members.values())), list):
                return f"<div>{shown(next(iter(members)))}</div>{inner}"
        return _table([], [(key, one) for key, one in members.items()])
    if not isinstance(value, list):
        return ""
    found = cast("list[Any]", value)
    if not found or not all(isinstance(one, dict) for one in found):
        return ""
    rows = cast("list[dict[str, Any]]", found)
    names = list(dict.fromkeys(name for row in rows[:MAX_ROWS] for name in row))[:MAX_COLUMNS]
    return _table(names, [[row.get(name, "") for name in names] for row in rows])


def _table(names: Sequence[str], rows: Sequence[Iterable[Any]]) -> str:
    head = "".join(f"<th>{shown(name, MAX_CELL)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    more = f"<div>and {len(rows) - MAX_ROWS} more</div>" if len(rows) > MAX_ROWS else ""
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}{body}</table>{more}"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return shown(text, MAX_CELL)
