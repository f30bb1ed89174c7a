"""Another release beside this one, as a folder with its `src`: an earlier commit, or the
next release, which adds members to all that processes send to each other or store."""

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "colonnade"
TRANSPORT = "transport/http_server"

# In each of these modules, the member after which another one is added.
NEW_MEMBERS: dict[str, tuple[str, ...]] = {
    f"{TRANSPORT}/sessions/record.py": (
        "    renewed_at: float = 0.0\n",
        "    version: int = EVENTS_VERSION\n",
    ),
    f"{TRANSPORT}/sessions/shared_session.py": ("    number: int = 0\n\n",),
    f"{TRANSPORT}/legacy_sse.py": ("    scopes: frozenset[str] | None\n    body: bytes\n",),
    "protocol/link/events.py": ("    sent: tuple[OutgoingRequest, ...]\n",),
    "replicas/replica.py": ("    body_version: int = 1\n", "    started_at: float\n"),
    "replicas/changes.py": (
        "    subjects: Annotated[list[ChangeSubject], Meta(max_length=MAX_MESSAGE_SUBJECTS)]\n",
    ),
}


def next_release(folder: Path) -> Path:
    """A copy of this package in which every record and message has one more member."""
    copy = folder / "src" / "colonnade"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, members in NEW_MEMBERS.items():
        text = (copy / name).read_text()
        for member in members:
            if text.count(member) != 1:
                raise ValueError(f"{name} has {member!r} {text.count(member)} times")
            lines = member.rstrip("\n")
            new = member.replace(lines, f'{lines}\n    of_next_release: str = "new"')
            text = text.replace(member, new)
        (copy / name).write_text(text)
    return folder


def earlier_release(commit: str, folder: Path) -> Path:
    """The package of a commit."""
    command = ["git", "archive", commit, "src"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder
