"""A server that is written without Colonnade, in the revision that most servers speak: one line in,
one line out. It answers what its script says, and dies or is silent where that says so. Its number
is in the file `pid`; the file `silent` says that it is.

Rules: nothing of Colonnade is imported in it, so that a command runs it as Python does.
"""

PROGRAM = r"""
import json, os, sys

SCRIPT = "scripted"
CAPABILITIES = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
with open("pid", "w") as file:
    file.write(str(os.getpid()))
print("the server is awake", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method = message["method"]
    answer = SCRIPT.get(method)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        reply["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "by hand", "version": "2", "title": "By hand"},
        }
    elif answer == "die":
        print("Traceback: no more memory", file=sys.stderr, flush=True)
        os._exit(3)
    elif answer == "rubbish":
        reply["result"] = {"nothing": "of the kind"}
    elif answer == "silence":
        open("silent", "w").close()
        continue
    elif answer is not None:
        reply["result"] = answer
    else:
        reply["error"] = {"code": -32601, "message": "no such method: " + method}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
"""


def scripted_program(**answers: object) -> str:
    """The text of such a server; `tools_list=…` is what it answers to tools/list."""
    script = {name.replace("_", "/"): answer for name, answer in answers.items()}
    return PROGRAM.replace('"scripted"', repr(script))


def tool(name: str = "look", **schema: object) -> dict[str, object]:
    """One tool in a list."""
    return {"tools": [{"name": name, "inputSchema": {"type": "object", **schema}}]}
