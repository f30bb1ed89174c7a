"""The terms that people search for are in the headings, the glossary or the index of the docs."""

import re
from pathlib import Path

import pytest

from docs.snippets import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

TERMS = (
    *("access log", "access token", "agent loop", "Anthropic", "authorization server metadata"),
    *("benchmark", "cancellation", "capability", "client credentials"),
    *("client ID metadata document", "completion", "conformance", "CORS", "dependency injection"),
    *("DPoP", "dynamic client registration", "elicitation", "environment variables", "error codes"),
    *("graceful shutdown", "health check", "HTTP+SSE", "icons", "in-memory transport"),
    *("input_required", "JSON Schema", "JSON-RPC", "JSON-RPC batch", "JWT", "Last-Event-ID"),
    *("lifespan", "list_changed", "logging", "logging level", "mcp.json", "_meta", "middleware"),
    *("migration", "mount", "OAuth", "OpenAI", "pagination", "PKCE", "progress", "prompts"),
    *(
        "protected resource metadata",
        "rate limit",
        "readiness",
        "Redis",
        "replicas",
        "requestState",
    ),
    *("resource templates", "resumption", "reverse proxy", "roots", "sampling", "scopes"),
    *("session", "shell completion", "stdio", "step-up", "Streamable HTTP", "structured output"),
    *("subscription", "testing", "timeout", "TLS", "token introspection", "token storage"),
    *("tool annotations", "tool search", "troubleshooting", "trust", "version negotiation"),
    *("workers", "quickstart", "performance", "configuration files"),
)


def plain(text: str) -> str:
    """Text without Markdown, in lower case; underscores that are part of a term stay."""
    return re.sub(r"[`*]|\]\([^)]*\)|\[", "", text).lower()


def headings(page: Path) -> list[str]:
    """The headings of a page, without comments in its code."""
    prose = FENCE.sub("", page.read_text("utf-8"))
    return [plain(line) for line in prose.splitlines() if line.startswith("#")]


def glossary() -> list[str]:
    """The terms that the glossary explains, without their explanations."""
    rows = re.findall(r"^\| (\*\*.*?) \|", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    return [plain(row) for row in rows]


def index() -> list[str]:
    """The lines of the index that lead to a page."""
    lines = (DOCS / "README.md").read_text("utf-8").splitlines()
    return [plain(line) for line in lines if line.startswith("- ")]


FOUND = [*(line for page in PAGES for line in headings(page)), *glossary(), *index()]


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_in_a_heading_the_glossary_or_the_index(term: str) -> None:
    word = re.compile(rf"(?<!\w){re.escape(term.lower())}(?:s|es)?(?!\w)")
    assert any(word.search(line) for line in FOUND), f"add a heading or a glossary entry: {term}"


def test_there_are_enough_terms_and_places() -> None:
    assert len(set(TERMS)) == len(TERMS) >= 60
    assert all((glossary(), index(), *map(headings, PAGES)))


def test_the_glossary_is_sorted_and_has_each_term_once() -> None:
    terms = [re.sub(r"[^a-z0-9 ]", "", row.replace("_", " ")).strip() for row in glossary()]
    assert terms == sorted(set(terms))
