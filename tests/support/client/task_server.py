"""A server that plays the wire of tasks, in either generation, as a test says.

    server = TaskServer(JULY_2026, poll_ms=1000)
    async with server.client(clock) as client: ...
    server.end({"content": []})

Rules: it keeps no time. What a task does is the test's business: `say`, `ask`, `end`, `fail`,
`forget`. `heard` has all that the client sent, with the time of the loop.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import CannotConnect
from colonnade.ports import ConnectionEvents, Conversation, OpenConversation
from colonnade.protocol import types as t
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.revision import Revision, Revisions, Tasks
from colonnade.transport.memory import End, connected_pair

JSON = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
INFO = {"name": "press", "version": "1"}
DONE: JSON = {"content": [{"type": "text", "text": "a book"}]}
FORM: JSON = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "How many pages?",
        "requestedSchema": {
            "type": "object",
            "properties": {"pages": {"type": "integer"}},
            "required": ["pages"],
        },
    },
}


class _Reader:
    """The server's end of one connection."""

    def __init__(self, server: "TaskServer", end: End) -> None:
        self.server = server
        self.end = end

    def receive(self, frame: bytes) -> None:
        message: JSON = json.loads(frame)
        now = asyncio.get_running_loop().time()
        self.server.heard.append((now, message))
        if "method" in message and "id" in message:
            self.server.answer(self, message)
        elif "id" in message:
            self.server.answered(message)

    def say(self, message: JSON) -> None:
        self.end.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


class TaskServer:
    """One server, one tool, one task at a time; also the transport to it."""

    key: Any = "https://press.example/mcp"
    can_reconnect = True
    restarts = False
    mirrors = False
    always_handshakes = False
    legacy_sse = None

    def __init__(
        self,
        revision: Revision,
        *,
        poll_ms: int | None = 1000,
        ttl_ms: int | None = None,
        support: str | None = "required",
        listens: bool = False,
        as_task: bool = True,
        immediate: str | None = None,
    ) -> None:
        self.name = "press"
        self.revision = revision
        self.core = revision.tasks is Tasks.CORE
        self.poll_ms, self.ttl_ms = poll_ms, ttl_ms
        self.support = support
        self.listens = listens
        self.as_task = as_task
        self.immediate = immediate
        self.tasks: JSON | None = {
            "list": {},
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        self.heard: list[tuple[float, JSON]] = []
        self.away = False
        # Requests of this method get no response.
        self.deaf_to: set[str] = set()
        self.task_id = "t-1"
        self.status = "working"
        self.message: str | None = None
        self.updates = 0
        self.questions: JSON = {}
        self.responses: JSON = {}
        self.result: JSON | None = None
        self.error: JSON | None = None
        self.known = True
        self._readers: list[_Reader] = []
        self._held: list[tuple[_Reader, Any]] = []
        self._listeners: list[tuple[_Reader, Any]] = []
        self._asked: dict[str, str] = {}

    # ------------------------------------------------------------ the transport

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        if self.away:
            raise CannotConnect("the server is away")
        return self.carry

    def carry(self, link: DuplexLink, events: ConnectionEvents) -> Conversation:
        """Open a conversation with it."""
        near, far = connected_pair()
        reader = _Reader(self, far)
        self._readers.append(reader)
        far.join(reader)
        return near.open_conversation(link, events)

    async def close(self) -> None: ...

    async def leave(self) -> None:
        """Go away: connections end, and no other can be opened."""
        self.away = True
        readers, self._readers, self._held, self._listeners = self._readers, [], [], []
        for reader in readers:
            await reader.end.close("the server went away")

    @asynccontextmanager
    async def client(
        self, answers: InputCallbacks | None = None, **options: Any
    ) -> AsyncGenerator[Client]:
        client = Client(
            self,
            answers,
            info=t.Implementation(name="c", version="1"),
            accepts=Revisions([self.revision]),
            ping_s=None,
            **options,
        )
        try:
            await client.open()
            yield client
        finally:
            await client.close()

    # ------------------------------------------------------------ what the task does

    def say(self, message: str) -> None:
        self.message = message
        self._changed()

    def ask(self, **questions: JSON) -> None:
        self.status = "input_required"
        self.questions |= questions
        self._changed()
        if self.core:
            for reader, _ in self._held:
                self._ask_on(reader)

    def work(self) -> None:
        self.status, self.questions = "working", {}
        self._changed()

    def end(self, result: JSON | None = None) -> None:
        self.result = DONE if result is None else result
        failed = self.core and self.result.get("isError")
        self.status = "failed" if failed else "completed"
        self._ended()

    def fail(self, code: int, message: str) -> None:
        self.error = {"code": code, "message": message}
        self.status = "failed"
        self._ended()

    def cancel(self) -> None:
        self.status = "cancelled"
        self._ended()

    def forget(self) -> None:
        self.known = False

    def _ended(self) -> None:
        self.questions = {}
        self._changed()
        held, self._held = self._held, []
        for reader, id in held:
            self._result(reader, id)

    def _changed(self) -> None:
        self.updates += 1
        for reader, id in self._listeners:
            meta = {"io.modelcontextprotocol/subscriptionId": id}
            params = self.task() | self._details() | {"_meta": meta}
            reader.say({"method": "notifications/tasks", "params": params})

    # ------------------------------------------------------------ the wire

    def task(self) -> JSON:
        task: JSON = {
            "taskId": self.task_id,
            "status": self.status,
            "createdAt": "2026-11-16T10:00:00Z",
            "lastUpdatedAt": f"2026-11-16T10:00:{self.updates:02}Z",
            "ttl" if self.core else "ttlMs": self.ttl_ms,
        }
        if self.poll_ms is not None:
            task["pollInterval" if self.core else "pollIntervalMs"] = self.poll_ms
        if self.message is not None:
            task["statusMessage"] = self.message
        return task

    def _details(self) -> JSON:
        if self.status == "input_required":
            return {"inputRequests": self.questions}
        if self.error is not None:
            return {"error": self.error}
        return {"result": self.result} if self.result is not None else {}

    def answer(self, reader: _Reader, message: JSON) -> None:
        method, params, id = message["method"], message.get("params") or {}, message["id"]
        if method in self.deaf_to:
            return
        play = getattr(self, "_on_" + method.replace("/", "_"))
        found = play(reader, id, params)
        if found is None:
            return
        if "code" in found:
            reader.say({"id": id, "error": found})
            return
        if not self.revision.handshake:
            found = {"resultType": "complete"} | found
        reader.say({"id": id, "result": found})

    def _capabilities(self) -> JSON:
        own = {"tasks": self.tasks} if self.core else {"extensions": {EXTENSION: {}}}
        return {"tools": {}} | own

    def _on_initialize(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        date = self.revision.date
        return {
            "protocolVersion": date,
            "serverInfo": INFO,
            "capabilities": self._capabilities(),
        }

    def _on_server_discover(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        return {
            "ttlMs": 0,
            "cacheScope": "private",
            "supportedVersions": [self.revision.date],
            "capabilities": self._capabilities(),
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
        }

    def _on_tools_list(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        tool: JSON = {"name": "book", "inputSchema": {"type": "object"}}
        if self.core and self.support is not None:
            tool["execution"] = {"taskSupport": self.support}
        kept = {} if self.core else {"ttlMs": 0, "cacheScope": "private"}
        return {"tools": [tool]} | kept

    def _on_tools_call(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        if not self.as_task:
            return DONE
        if not self.core:
            return {"resultType": "task"} | self.task()
        if "task" not in params:
            if self.support == "required":
                return {"code": -32601, "message": "book runs as a task only"}
            return DONE
        meta = {"io.modelcontextprotocol/model-immediate-response": self.immediate}
        return {"task": self.task()} | ({"_meta": meta} if self.immediate else {})

    def _on_tasks_get(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        if not self.known or params["taskId"] != self.task_id:
            return {"code": -32602, "message": "there is no such task"}
        return self.task() | ({} if self.core else self._details())

    def _on_tasks_update(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        self.responses |= params["inputResponses"]
        return {}

    def _on_tasks_cancel(self, reader: _Reader, id: Any, params: JSON) -> JSON:
        if not self.known or params["taskId"] != self.task_id:
            return {"code": -32602, "message": "there is no such task"}
        self.cancel()
        return self.task() if self.core else {}

    def _on_tasks_result(self, reader: _Reader, id: Any, params: JSON) -> JSON | None:
        if self.status in ("completed", "failed", "cancelled"):
            self._result(reader, id)
            return None
        self._held.append((reader, id))
        if self.status == "input_required":
            self._ask_on(reader)
        return None

    def _result(self, reader: _Reader, id: Any) -> None:
        if self.status == "cancelled":
            error = {"code": -32603, "message": "cancelled", "data": {"status": "cancelled"}}
            reader.say({"id": id, "error": error})
        elif self.error is not None:
            reader.say({"id": id, "error": self.error})
        else:
            meta = {"io.modelcontextprotocol/related-task": {"taskId": self.task_id}}
            reader.say({"id": id, "result": (self.result or {}) | {"_meta": meta}})

    def _ask_on(self, reader: _Reader) -> None:
        for key, question in self.questions.items():
            if key not in self._asked.values():
                id = f"q-{key}"
                self._asked[id] = key
                meta = {"io.modelcontextprotocol/related-task": {"taskId": self.task_id}}
                reader.say({"id": id, **question, "params": question["params"] | {"_meta": meta}})

    def answered(self, message: JSON) -> None:
        """A response of the client to a question of core."""
        key = self._asked.get(message["id"])
        if key is not None:
            self.responses[key] = message.get("result") or message["error"]

    def _on_subscriptions_listen(self, reader: _Reader, id: Any, params: JSON) -> JSON | None:
        wanted = params["notifications"].get("taskIds") or []
        agreed = {"taskIds": wanted} if self.listens else {}
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        said = {"notifications": agreed, "_meta": meta}
        reader.say({"method": "notifications/subscriptions/acknowledged", "params": said})
        if self.listens:
            self._listeners.append((reader, id))
        return None

    # ------------------------------------------------------------ what the client did

    def sent(self, method: str) -> list[JSON]:
        return [message for _, message in self.heard if message.get("method") == method]

    def times(self, method: str) -> list[float]:
        """When requests of a method arrived, each a difference to the first message."""
        began = self.heard[0][0]
        return [round(at - began, 3) for at, one in self.heard if one.get("method") == method]
