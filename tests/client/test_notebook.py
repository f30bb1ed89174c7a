"""What a notebook shows of results and tools; and that nothing in it is the server's own HTML."""

import base64
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.client.results import ToolResult
from colonnade.client.tools import ListedTool
from colonnade.protocol import types as t

DATA = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
# Each would do something where it is not escaped, in an element, an attribute or an address.
ATTACKS = (
    "<script>alert(1)</script>",
    "'><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></code></td></table></div><iframe src='//x'>",
    "image/png' onerror='alert(1)",
    "image/png;base64,AAAA' onload='alert(1)",
    "javascript:alert(1)",
    "&lt;script&gt;<b>",
)
ELEMENTS = {"div", "code", "pre", "b", "i", "img", "audio"} | {
    "table",
    "thead",
    "tr",
    "th",
    "td",
}
ATTRIBUTES = {"style", "src", "controls"}


class Page(HTMLParser):
    """What a browser makes of it: elements, their attributes, and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    def harmless(self) -> bool:
        """Only what we write ourselves, and no address but of base64."""
        for tag, attributes in self.elements:
            assert tag in ELEMENTS, tag
            assert attributes.keys() <= ATTRIBUTES, attributes
            source = attributes.get("src")
            if source is not None:
                kind, _, data = source.partition(";base64,")
                assert kind.startswith(("data:image/", "data:audio/"))
                base64.b64decode(data, validate=True)
        return True


def page(*content: Any, structured: Any = None, is_error: bool = False, tool: str = "look") -> Page:
    extra: dict[str, Any] = {} if structured is None else {"structured_content": structured}
    result = t.CallToolResult(content=list(content), is_error=is_error, **extra)
    shown: Any = ToolResult[Any](tool, result)
    return Page(shown._repr_html_())


def everywhere(bad: str) -> list[Page]:
    """A text of a server in every place where one may be."""
    found = t.ResourceContents(uri=bad, text=bad, mime_type=bad)
    blob = t.ResourceContents(uri=bad, blob=bad, mime_type=bad)
    tool: Any = ListedTool(
        name=bad,
        title=bad,
        description=bad,
        input_schema={"type": "object", "properties": {bad: {"type": bad, "default": bad}}},
        output_schema={"enum": [bad]},
    )
    return [
        page(t.TextContent(text=bad)),
        page(t.TextContent(text=bad), is_error=True, tool=bad),
        page(t.ImageContent(data=bad, mime_type="image/png")),
        page(t.ImageContent(data=DATA, mime_type=bad)),
        page(t.AudioContent(data=bad, mime_type=bad)),
        page(t.EmbeddedResource(resource=found), t.EmbeddedResource(resource=blob)),
        page(t.ResourceLink(uri=bad, name=bad, title=bad, description=bad)),
        page(t.UnknownContent(whole=t.UnknownMembers({"type": bad}))),
        page(structured={bad: bad, "b": [bad]}),
        page(structured={bad: [{bad: bad}]}),
        page(structured={"result": [{bad: bad, "b": {bad: bad}}]}),
        Page(tool._repr_html_()),
    ]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_a_server_wrote_is_html(attack: str) -> None:
    shown = everywhere(attack)
    assert all(one.harmless() for one in shown)
    assert attack in shown[0].words


@given(st.text(st.sampled_from("<>'\"&;=/ abimgsrc:,+\n\\"), max_size=40) | st.text(max_size=40))
def test_no_text_whatever_becomes_html(text: str) -> None:
    assert all(one.harmless() for one in everywhere(text))


def test_what_hides_or_turns_text_is_seen() -> None:
    shown = page(t.TextContent(text="safe\u202egpj.exe\x1b[2J\u200b"))
    assert "safe\\u202egpj.exe\\x1b[2J\\u200b" in shown.words


def test_pictures_are_seen_and_sounds_are_heard() -> None:
    shown = page(
        t.TextContent(text="Here."),
        t.ImageContent(data=DATA, mime_type="image/png"),
        t.AudioContent(data=DATA, mime_type="audio/wav"),
        t.EmbeddedResource(
            resource=t.ResourceContents(uri="a://b", blob=DATA, mime_type="image/webp")
        ),
    )
    assert "Here." in shown.words
    sources = [attributes["src"] for tag, attributes in shown.elements if tag in ("img", "audio")]
    assert sources == [
        f"data:image/png;base64,{DATA}",
        f"data:audio/wav;base64,{DATA}",
        f"data:image/webp;base64,{DATA}",
    ]
    assert shown.harmless()


def test_what_is_no_picture_is_named() -> None:
    shown = page(
        t.ImageContent(data=DATA, mime_type="text/html"),
        t.ImageContent(data="no base64!", mime_type="image/png"),
    )
    assert "img" not in shown.tags
    assert "[image text/html, 8 bytes]" in shown.words


def test_objects_in_a_list_are_a_table_and_one_object_is_one_too() -> None:
    rows = [{"city": "Oslo", "high": 4}, {"city": "Lisbon", "sun": True}]
    text = t.TextContent(text='[{"city": "Oslo", "high": 4}, {"city": "Lisbon", "sun": true}]')
    shown = page(text, structured={"result": rows})
    assert shown.tags.count("tr") == 3
    assert shown.tags.count("th") == 3
    assert shown.words == "cityhighsunOslo4Lisbontrue"  # and the same text not once more
    shown = page(t.TextContent(text="in words"), structured={"city": "Oslo", "high": 4})
    assert shown.words == "cityOslohigh4in words"
    assert page(structured={"days": rows}).words.startswith("days")


def test_what_is_no_table_is_words() -> None:
    assert page(t.TextContent(text="5"), structured={"result": 5}).words == "5"
    assert page().words == "nothing"


def test_a_table_has_an_end() -> None:
    shown = page(structured={"result": [{"n": n} for n in range(1000)]})
    assert shown.tags.count("tr") == 101
    assert "and 900 more" in shown.words


def test_an_error_is_seen_as_one() -> None:
    shown = page(t.TextContent(text="No city."), structured={"a": 1}, is_error=True)
    assert shown.words == "look failedNo city."


class Printer:
    """What IPython hands to whoever prints itself."""

    def __init__(self) -> None:
        self.printed = ""

    def text(self, text: str) -> None:
        self.printed += text


def test_a_tool_shows_its_signature() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool: Any = ListedTool(name="forecast", description="Forecast.\x1b[2J", input_schema=schema)
    assert tool.signature == "forecast(city: string)"
    assert Page(tool._repr_html_()).words == "forecast(city: string)Forecast.\\x1b[2J"
    printer = Printer()
    tool._repr_pretty_(printer, False)
    assert printer.printed == "forecast(city: string)"
