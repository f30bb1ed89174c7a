"""Links as a message may find them: each side, in each phase and revision, idle and busy.

Rules: built with the public functions and the corpus alone; the same scene is the same link.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import INITIALIZE, Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import ALL, EVERY, Revision, Revisions
from fuzz.corpus import (
    CLIENT_CAN,
    CLIENT_INFO,
    JSON,
    PARAMS,
    SERVER_CAN,
    SERVER_INFO,
    params_of,
    results_of,
)

Make = Callable[[Side, Identity, Revisions], DuplexLink]


def _encoded(tree: JSON) -> bytes:
    return json.dumps(tree, ensure_ascii=False).encode()


CLIENT: Final = Identity(
    decode_as(t.Implementation, _encoded(CLIENT_INFO)),
    decode_as(t.ClientCapabilities, _encoded(CLIENT_CAN)),
)
SERVER: Final = Identity(
    decode_as(t.Implementation, _encoded(SERVER_INFO)),
    decode_as(t.ServerCapabilities, _encoded(SERVER_CAN)),
    "Ask before you book.",
)
STAGES: Final = ("new", "opening", "open", "busy", "closed")


class Scene(NamedTuple):
    """Which side is ours, how far it has come, with whom, and what else it would accept."""

    side: Side
    stage: str
    revision: Revision
    accepts: Revisions


def _scenes() -> dict[str, Scene]:
    found: dict[str, Scene] = {}
    for side in Side:
        for stage in STAGES:
            for revision in ALL:
                for words, accepts in (("every", EVERY), ("only", Revisions.of(revision.date))):
                    if revision.handshake or stage != "opening":
                        name = f"{side.value} {stage} {revision.date} {words}"
                        found[name] = Scene(side, stage, revision, accepts)
    return found


SCENES: Final = _scenes()


def build(scene: Scene, make: Make = DuplexLink) -> DuplexLink:
    """The link of a scene, before the first mutated message."""
    if scene.side is Side.SERVER:
        link = make(Side.SERVER, SERVER, scene.accepts)
        _open_server(link, scene)
    else:
        link = make(Side.CLIENT, CLIENT, scene.accepts)
        _open_client(link, scene)
    if scene.stage == "closed":
        link.close()
    return link


# ---------------------------------------------------------------- a server


def _open_server(link: DuplexLink, scene: Scene) -> None:
    revision, stage = scene.revision, scene.stage
    if revision.handshake and stage != "new":
        link.receive(_message("initialize", _opening(revision), 0), 0)
        if stage != "opening":
            link.receive(_message("notifications/initialized"), 0)
    if stage != "busy":
        return
    for id, method in ((7, "tools/call"), ("a-7", "resources/read"), (1, "prompts/get")):
        link.receive(_request(method, id, revision), 0)
    if revision.handshake:
        link.ping(0)
        link.request("roots/list", now=0, progress=True)
        link.request("sampling/createMessage", _sampling(), now=0, timeout_s=20)
    else:
        link.receive(_request("subscriptions/listen", "1", revision), 0)
    if revision.batches:
        asked = [_tree("tools/list", n, revision) for n in (2, "☃")]
        link.receive(_encoded([*asked, _tree("ping", 3, revision)]), 0)


def _sampling() -> t.CreateMessageRequestParams:
    return decode_as(t.CreateMessageRequestParams, _encoded(PARAMS["sampling/createMessage"][0]))


# ---------------------------------------------------------------- a client


def _open_client(link: DuplexLink, scene: Scene) -> None:
    revision, stage = scene.revision, scene.stage
    if not revision.handshake:
        if stage == "new":
            link.request("server/discover", now=0, revision=revision)
            return
        link.adopt(
            Peer(revision, decode_as(t.ServerCapabilities, _encoded(SERVER_CAN)), SERVER.info)
        )
    elif stage != "new":
        link.initialize(0)
        if stage != "opening":
            (result,) = results_of(INITIALIZE, revision)
            link.receive(_encoded({"jsonrpc": "2.0", "id": 1, "result": result}), 0)
    if stage != "busy":
        return
    call = decode_as(t.CallToolRequestParams, _encoded(PARAMS["tools/call"][0]))
    link.request("tools/call", call, now=0, progress=True)
    link.request("tools/list", now=0)
    link.request("tools/call", call, now=0, timeout_s=20)
    if revision.handshake:
        link.ping(0)
        for id, method in ((7, "roots/list"), (1, "sampling/createMessage")):
            link.receive(_request(method, id, revision), 0)
    else:
        link.request("resources/list", now=0)
        heard = decode_as(
            t.SubscriptionsListenRequestParams, _encoded(PARAMS["subscriptions/listen"][0])
        )
        link.request("subscriptions/listen", heard, now=0)


# ---------------------------------------------------------------- what the other side says


def _opening(revision: Revision) -> JSON:
    return params_of(INITIALIZE, revision)[0]


def _tree(method: str, id: JSON, revision: Revision) -> JSON:
    params = params_of(revision.methods[method], revision)[0]
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def _request(method: str, id: JSON, revision: Revision) -> bytes:
    return _encoded(_tree(method, id, revision))


def _message(method: str, params: JSON = None, id: JSON = None) -> bytes:
    tree: JSON = {"jsonrpc": "2.0", "method": method}
    tree |= {} if id is None else {"id": id}
    return _encoded(tree | ({} if params is None else {"params": params}))
