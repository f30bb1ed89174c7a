"""A server on standard streams for tests of the probe: what it does to its first word is an
argument. Rules: nothing of Colonnade is imported, so that it starts at once."""

import json
import os
import sys

asked, REVISION = sys.argv[1], sys.argv[2]
# A slow one speaks both, and is too late for the newer until a file is there.
IS_SLOW = asked == "slow"
GREETED = sys.argv[4] if IS_SLOW else REVISION
MODE = asked if not IS_SLOW else "both" if os.path.exists(sys.argv[3]) else "silent"
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [REVISION],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}
INFO = {"name": MODE, "version": "1"}
TOOLS = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def say(message: dict[str, object]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, id: object) -> None:
    if method == "initialize" and MODE != "modern":
        opened = {"protocolVersion": GREETED, "capabilities": {"tools": {}}, "serverInfo": INFO}
        say({"id": id, "result": opened})
    elif method == "server/discover" and MODE in ("modern", "both"):
        say({"id": id, "result": DISCOVERED})
    elif method == "tools/list":
        say({"id": id, "result": TOOLS})
    elif method == "server/discover" and MODE == "silent":
        pass
    else:
        say({"id": id, "error": {"code": -32601, "message": f"no {method} here"}})


first = True
mute = False
for line in sys.stdin:
    heard = json.loads(line)
    if mute:  # as a server on Python mcp 1.0 to 1.8: it exits at the next message
        print("the receive loop has ended", file=sys.stderr)
        sys.exit(1)
    if MODE == "mute" and first and heard.get("method") != "initialize":
        mute = True
        continue
    if MODE == "dying" and first and heard.get("method") != "initialize":
        print(f"expected initialize, got {heard.get('method')}", file=sys.stderr)
        sys.exit(1)
    first = False
    if "id" in heard:
        answer(heard["method"], heard["id"])
