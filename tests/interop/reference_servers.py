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
    ServerRun,
    call_all,
    complete_all,
    get_all,
    list_all,
    read_all,
)
from interop.third_party_servers import (
    EVERYTHING,
    FETCH,
    FILESYSTEM,
    GIT,
    MEMORY,
    TIME,
    ThirdPartyServer,
)

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


def plan_of(server: ThirdPartyServer) -> Plan:
    """How that server is visited."""
    return PLANS[server.name]


async def _walk(run: ServerRun, known: Known) -> None:
    """All that there is, in any server."""
    await list_all(run)
    await call_all(run, known.arguments, known.says, known.network)
    await read_all(run, known.variables)
    await get_all(run, known.prompts)
    await complete_all(run)
    await run.attempt("ping", run.client.ping())


# ---------------------------------------------------------------- everything


async def everything(run: ServerRun) -> None:
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
            "get-roots-list": run.folder.as_uri(),
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
    await _walk(run, known)
    for toggle in TOGGLES:  # on by the walk, and off
        await run.check(f"{toggle}, again", run.call(toggle))
    await run.check("environment", _environment(run))
    await run.check("news", _subscribed(run))
    await run.check("values", _values(run))


async def _environment(run: ServerRun) -> None:
    """A child is told little of where we run; a server over HTTP was not started by our client."""
    said = await run.call("get-env")
    assert "PATH" in said.text
    if run.transport == "stdio":
        assert SECRET not in said.text


async def _subscribed(run: ServerRun) -> None:
    run.calls += 1
    uri = "demo://resource/dynamic/text/1"
    async with run.client.listen(resources=[uri]):
        said = await run.client.read_resource(uri)
    assert said.contents


async def _values(run: ServerRun) -> None:
    data = (await run.call("get-structured-content", {"location": "Chicago"})).data
    assert data.keys() == {"temperature", "conditions", "humidity"}
    [_, picture, _] = (await run.call("get-tiny-image")).content
    assert picture.type == "image"
    run.calls += 1
    context = {"department": "Sales"}
    found = await run.client.complete("name", "", prompt="completable-prompt", context=context)
    assert list(found.values) == ["David", "Eve", "Frank"]


# ---------------------------------------------------------------- files, memory


async def filesystem(run: ServerRun) -> None:
    folder = run.folder
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
    await _walk(run, known)
    await run.check("what was written", _written(run))


async def _written(run: ServerRun) -> None:
    assert (run.folder / "moved.txt").read_text("utf-8") == "edited"
    outside = await run.client.call_tool("read_file", {"path": "/etc/hostname"})
    run.calls += 1
    assert outside.is_error
    assert "Access denied" in outside.text


async def memory(run: ServerRun) -> None:
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
    await _walk(run, known)
    await run.check("what is kept", _kept(run))


async def _kept(run: ServerRun) -> None:
    graph = (await run.call("read_graph")).data
    assert [one["name"] for one in graph["entities"]] == ["Ada"]
    assert graph["entities"][0]["observations"] == ["writes programs"]
    assert (run.folder / "memory.json").exists()


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


async def fetch(run: ServerRun) -> None:
    with page() as url:
        known = Known({"fetch": {"url": url, "raw": True}}, {"fetch": PAGE}, prompts={"url": url})
        await _walk(run, known)


async def git(run: ServerRun) -> None:
    here = {"repo_path": str(run.folder)}
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
    await _walk(run, known)


async def time(run: ServerRun) -> None:
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
    await _walk(run, known)


PLANS: dict[str, Plan] = {
    EVERYTHING.name: everything,
    FILESYSTEM.name: filesystem,
    MEMORY.name: memory,
    FETCH.name: fetch,
    GIT.name: git,
    TIME.name: time,
}
