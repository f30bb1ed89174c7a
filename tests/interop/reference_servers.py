"""What to call the published reference servers with, and what they then say.

Rules: every tool that needs no network is called with arguments of this table, or with some made
from its schema. Only what a server says of itself is expected: words that its page promises.
"""

import contextlib
import http.server
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from interop.server_runs import (
    MODEL_SAYS,
    SECRET,
    Plan,
    Visit,
    call_all,
    complete_all,
    get_all,
    list_all,
    read_all,
)
from interop.third_party_servers import EVERYTHING, FETCH, FILESYSTEM, GIT, MEMORY, TIME, Stranger

PAGE = "A page of this machine."
TOGGLES = ("toggle-simulated-logging", "toggle-subscriber-updates")

Table = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Known:
    """What is known of a server: arguments, in the order of the calls, and words of the answers."""

    arguments: Table
    says: Mapping[str, str] = field(default_factory=dict[str, str])
    network: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])


def plan_of(stranger: Stranger) -> Plan:
    """How that server is visited."""
    return PLANS[stranger.name]


async def _walk(visit: Visit, known: Known) -> None:
    """All that there is, in any server."""
    await list_all(visit)
    await call_all(visit, known.arguments, known.says, known.network)
    await read_all(visit, known.variables)
    await get_all(visit, known.prompts)
    await complete_all(visit)
    await visit.attempt("ping", visit.client.ping())


# ---------------------------------------------------------------- everything


async def everything(visit: Visit) -> None:
    known = Known(
        arguments={
            "echo": {"message": "Grüße 🌍"},
            "get-annotated-message": {"messageType": "error", "includeImage": True},
            "get-env": {},
            "get-resource-links": {"count": 3},
            "get-resource-reference": {"resourceType": "Blob", "resourceId": 2},
            "get-structured-content": {"location": "Chicago"},
            "get-sum": {"a": 2, "b": 3.5},
            "get-tiny-image": {},
            "gzip-file-as-resource": {
                "name": "hello.gz",
                "data": "data:text/plain;base64,aGVsbG8=",
                "outputType": "resource",
            },
            "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
            "get-roots-list": {},
            "trigger-elicitation-request": {},
            "trigger-url-elicitation": {"url": "https://example.com/", "errorPath": True},
            "trigger-sampling-request": {"prompt": "Which city?", "maxTokens": 20},
        },
        says={
            "echo": "Grüße 🌍",
            "get-sum": "5.5",
            "trigger-long-running-operation": "completed",
            "get-roots-list": visit.folder.as_uri(),
            "trigger-elicitation-request": "Ada",
            "trigger-sampling-request": MODEL_SAYS,
        },
        variables={"resourceId": "1"},
        prompts={
            "city": "Turin",
            "department": "Sales",
            "name": "Eve",
            "resourceType": "Text",
            "resourceId": "1",
        },
    )
    await _walk(visit, known)
    for toggle in TOGGLES:  # on by the walk, and off
        await visit.check(f"{toggle}, again", visit.call(toggle))
    await visit.check("environment", _environment(visit))
    await visit.check("news", _subscribed(visit))
    await visit.check("values", _values(visit))


async def _environment(visit: Visit) -> None:
    """A child is told little of where we run; a server over HTTP was not started by our client."""
    said = await visit.call("get-env")
    assert "PATH" in said.text
    if visit.transport == "stdio":
        assert SECRET not in said.text


async def _subscribed(visit: Visit) -> None:
    visit.calls += 1
    uri = "demo://resource/dynamic/text/1"
    async with visit.client.listen(resources=[uri]):
        said = await visit.client.read_resource(uri)
    assert said.contents


async def _values(visit: Visit) -> None:
    data = (await visit.call("get-structured-content", {"location": "Chicago"})).data
    assert data.keys() == {"temperature", "conditions", "humidity"}
    [_, picture, _] = (await visit.call("get-tiny-image")).content
    assert picture.type == "image"
    visit.calls += 1
    context = {"department": "Sales"}
    found = await visit.client.complete("name", "", prompt="completable-prompt", context=context)
    assert list(found.values) == ["David", "Eve", "Frank"]


# ---------------------------------------------------------------- files, memory


async def filesystem(visit: Visit) -> None:
    folder = visit.folder
    notes, new = str(folder / "notes.txt"), str(folder / "new.txt")
    known = Known(
        arguments={
            "list_allowed_directories": {},
            "read_file": {"path": notes},
            "read_text_file": {"path": notes, "head": 1},
            "read_media_file": {"path": str(folder / "pixel.png")},
            "read_multiple_files": {"paths": [notes, notes]},
            "write_file": {"path": new, "content": "written"},
            "edit_file": {"path": new, "edits": [{"oldText": "written", "newText": "edited"}]},
            "create_directory": {"path": str(folder / "made")},
            "list_directory": {"path": str(folder)},
            "list_directory_with_sizes": {"path": str(folder), "sortBy": "size"},
            "directory_tree": {"path": str(folder)},
            "move_file": {"source": new, "destination": str(folder / "moved.txt")},
            "search_files": {"path": str(folder), "pattern": "*.txt"},
            "get_file_info": {"path": notes},
        },
        says={
            "list_allowed_directories": str(folder),
            "read_file": "one\ntwo",
            "read_text_file": "one",
            "list_directory": "[FILE] notes.txt",
            "search_files": "moved.txt",
            "directory_tree": "made",
        },
    )
    await _walk(visit, known)
    await visit.check("what was written", _written(visit))


async def _written(visit: Visit) -> None:
    assert (visit.folder / "moved.txt").read_text("utf-8") == "edited"
    outside = await visit.client.call_tool("read_file", {"path": "/etc/hostname"})
    visit.calls += 1
    assert outside.is_error
    assert "Access denied" in outside.text


async def memory(visit: Visit) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    knows = {"from": "Ada", "to": "Charles", "relationType": "knows"}
    charles = {"name": "Charles", "entityType": "person", "observations": []}
    known = Known(
        arguments={
            "create_entities": {"entities": [ada, charles]},
            "create_relations": {"relations": [knows]},
            "add_observations": {"observations": [{"entityName": "Ada", "contents": ["rides"]}]},
            "read_graph": {},
            "search_nodes": {"query": "programs"},
            "open_nodes": {"names": ["Ada"]},
            "delete_observations": {
                "deletions": [{"entityName": "Ada", "observations": ["rides"]}]
            },
            "delete_relations": {"relations": [knows]},
            "delete_entities": {"entityNames": ["Charles"]},
        },
        says={"read_graph": "rides", "search_nodes": "Ada", "open_nodes": "writes programs"},
    )
    await _walk(visit, known)
    await visit.check("what is kept", _kept(visit))


async def _kept(visit: Visit) -> None:
    graph = (await visit.call("read_graph")).data
    assert [one["name"] for one in graph["entities"]] == ["Ada"]
    assert graph["entities"][0]["observations"] == ["writes programs"]
    assert (visit.folder / "memory.json").exists()


# ---------------------------------------------------------------- the web, git, time


@contextlib.contextmanager
def page() -> Generator[str]:
    """The address of a page on this machine."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<html><body><p>{PAGE}</p></body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}/"
        finally:
            listener.shutdown()
            thread.join()


async def fetch(visit: Visit) -> None:
    with page() as url:
        known = Known({"fetch": {"url": url, "raw": True}}, {"fetch": PAGE}, prompts={"url": url})
        await _walk(visit, known)


async def git(visit: Visit) -> None:
    here = {"repo_path": str(visit.folder)}
    known = Known(
        arguments={
            "git_status": here,
            "git_diff_unstaged": here,
            "git_add": {**here, "files": ["notes.txt"]},
            "git_diff_staged": here,
            "git_commit": {**here, "message": "Third"},
            "git_reset": here,
            "git_diff": {**here, "target": "HEAD~1"},
            "git_log": {**here, "max_count": 1},
            "git_create_branch": {**here, "branch_name": "side"},
            "git_branch": {**here, "branch_type": "local"},
            "git_show": {**here, "revision": "HEAD"},
            "git_checkout": {**here, "branch_name": "side"},
        },
        says={
            "git_status": "notes.txt",
            "git_diff_unstaged": "+third",
            "git_diff_staged": "+third",
            "git_log": "Third",
            "git_show": "+third",
            "git_branch": "side",
        },
    )
    await _walk(visit, known)


async def time(visit: Visit) -> None:
    known = Known(
        arguments={
            "get_current_time": {"timezone": "Europe/Rome"},
            "convert_time": {
                "source_timezone": "Etc/UTC",
                "time": "12:00",
                "target_timezone": "Asia/Tokyo",
            },
        },
        says={"get_current_time": "Europe/Rome", "convert_time": "21:00"},
    )
    await _walk(visit, known)


PLANS: dict[str, Plan] = {
    EVERYTHING.name: everything,
    FILESYSTEM.name: filesystem,
    MEMORY.name: memory,
    FETCH.name: fetch,
    GIT.name: git,
    TIME.name: time,
}
