"""Resources: static, templates, binary, of a directory; subscriptions and completion.

Run it with `python examples/notes.py` (stdio) or `colonnade serve examples/notes.py` (HTTP).
"""

import io
import zipfile
from pathlib import Path

from colonnade import Annotations, Server

server = Server("notes", version="1.0", instructions="Notes to read; subscribe to one for updates.")

notes = {
    "groceries": "# Groceries\n\n- oats\n- pears\n",
    "garden": "# Garden\n\nThe beans are up.\n",
    "guests": "# Guests\n\nTwo on Friday.\n",
}


@server.resource("notes://", title="All notes", mime_type="application/json")
def index() -> list[dict[str, object]]:
    """Every note with its length."""
    return [{"name": name, "characters": len(text)} for name, text in notes.items()]


@server.resource("notes://{name}", mime_type="text/markdown", annotations=Annotations(priority=0.9))
def note(name: str) -> str | None:
    """One note; None for an unknown name is 'not found'."""
    return notes.get(name)


@server.completion(note, "name")
def names(prefix: str) -> list[str]:
    return [name for name in notes if name.startswith(prefix)]


@server.resource("backup://notes.zip", title="A backup", mime_type="application/zip")
def backup() -> bytes:
    """All notes in one archive, as binary contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in notes.items():
            archive.writestr(f"{name}.md", text)
    return made.getvalue()


# Every file in this directory, by its path; path traversal is rejected.
server.files("attachments://", Path(__file__).with_name("attachments"))


@server.tool
def write(name: str, text: str) -> str:
    """Write a note; subscribers are notified.

    Args:
        name: What it is called.
        text: What it says from now on, in Markdown.
    """
    notes[name] = text
    server.updated(f"notes://{name}")
    return f"notes://{name}"


if __name__ == "__main__":
    server.run()
