"""An endpoint of a model for tests: real HTTP on loopback, with answers as they are given.

    with Endpoint([(429, {"retry-after": "0"}, b""), (200, {}, said("Hi."))]) as endpoint:
        endpoint.url, endpoint.headers, endpoint.bodies

Rules: it answers once for each answer that it was given, and refuses more with 418.
"""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Given = tuple[int, dict[str, str], bytes]


def said(words: str) -> bytes:
    """A completion that says this."""
    message = {"role": "assistant", "content": words}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


def refused(words: str) -> bytes:
    return json.dumps({"error": {"message": words, "type": "invalid_request_error"}}).encode()


class Endpoint:
    """An endpoint that gives these answers in their order; one without bytes waits until its end."""

    def __init__(self, answers: list[Given | None], tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        self.asked = threading.Event()
        self.ended = threading.Event()
        left = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.paths.append(self.path)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                length = int(self.headers["content-length"])
                outer.bodies.append(json.loads(self.rfile.read(length)))
                outer.asked.set()
                given = left.pop(0) if left else (418, {}, refused("nothing was expected"))
                if given is None:
                    outer.ended.wait(30)
                    return
                status, headers, data = given
                self.send_response(status)
                for name, value in ({"content-length": str(len(data))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()
