"""Resources: fixed, by template, binary and of a folder; followed as they change, and completed.

Run it with `python examples/notes.py` (stdio) or `colonnade serve examples/notes.py` (HTTP).
"""

import io
import zipfile
from pathlib import Path

from colonnade import Annotations, Server

server = Server("notes", version="1.0", instructions="Notes to read; follow one to hear of edits.")

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
    """One note. A name that is none is answered as each revision says 'not found'."""
    return notes.get(name)


@server.completion(note, "name")
def names(prefix: str) -> list[str]:
    return [name for name in notes if name.startswith(prefix)]


@server.resource("backup://notes.zip", title="A backup", mime_type="application/zip")
def backup() -> bytes:
    """All notes in one archive. What is bytes travels as bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in notes.items():
            archive.writestr(f"{name}.md", text)
    return made.getvalue()


# Every file below this folder, by its path; nothing leads out of it.
server.files("attachments://", Path(__file__).with_name("attachments"))


@server.tool
def write(name: str, text: str) -> str:
    """Write a note; whoever follows it, or all notes, is told.

    Args:
        name: What it is called.
        text: What it says from now on, in Markdown.
    """
    notes[name] = text
    server.updated(f"notes://{name}")
    return f"notes://{name}"


if __name__ == "__main__":
    server.run()
