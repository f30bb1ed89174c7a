"""Every revision on every wire: what a server says to a client of it, over real pipes and sockets.

    pytest tests/wire --rewrite-transcripts

writes the goldens anew; what was written is then read by a person before it is kept.
"""

import json
import re
from collections.abc import Generator
from contextlib import AsyncExitStack

import pytest

import official
from colonnade.protocol.revision import ALL, ChangeNotifications, Revision
from live import live
from official_lines import complaints
from wire.conversations import CONVERSATIONS, FOLDER, Conversation, WireServer, serving
from wire.http_rules import breaches
from wire.known_members import TABLE, Reader, knows
from wire.script import listen

by_conversation = pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=[conversation.name for conversation in CONVERSATIONS]
)
by_revision = pytest.mark.parametrize(
    "tested_revision", ALL, ids=[revision.date for revision in ALL]
)
over_http = pytest.mark.parametrize(
    "conversation",
    [conversation for conversation in CONVERSATIONS if conversation.wire != "stdio"],
    ids=[conversation.name for conversation in CONVERSATIONS if conversation.wire != "stdio"],
)

# What a server may say and this one never does, each group with its reason.
NEVER_SAID = {
    # An author has no way to add to these.
    *(("initialize", "_meta"), ("roots/list", "_meta"), ("question.roots/list", "params")),
    *(("elicitation/create", "_meta"), ("sampling/createMessage", "_meta")),
    *(("sampling/createMessage", "includeContext"), ("sampling/createMessage", "metadata")),
    *((name, "_meta") for name in TABLE if name.startswith("notifications/")),
    # Experiments and extensions are not offered.
    *(("server-can", "experimental"), ("server-can", "extensions")),
    # These lists fit on one page.
    *(("prompts/list", "nextCursor"), ("resources/list", "nextCursor")),
    ("resources/templates/list", "nextCursor"),
    # A tool has a title of its own by then.
    ("hints", "title"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[WireServer]:
    with serving(tmp_path_factory.mktemp("wire")) as server:
        yield server


@by_conversation
def test_a_conversation_is_what_it_was_when_it_was_read(
    server: WireServer, conversation: Conversation, rewrite_transcripts: bool
) -> None:
    text = server.recording(conversation).transcript.text
    if rewrite_transcripts:
        conversation.golden.parent.mkdir(exist_ok=True)
        conversation.golden.write_text(text, "utf-8")
    assert text == conversation.golden.read_text("utf-8")


def test_there_is_a_golden_file_for_every_script_and_no_other() -> None:
    assert set(FOLDER.glob("*")) == {conversation.golden for conversation in CONVERSATIONS}


# ---------------------------------------------------------------- what a client can know


@by_conversation
def test_every_message_is_one_that_the_closed_official_schema_allows(
    server: WireServer, conversation: Conversation
) -> None:
    if not official.available():
        print(f"no official schemas at {official.ROOT}: the table by hand is compared")
        return
    for message in server.recording(conversation).transcript.messages:
        assert complaints(message) == [], message.members


@by_conversation
def test_a_client_meets_nothing_that_its_revision_cannot_know(
    server: WireServer, conversation: Conversation
) -> None:
    reader = Reader(conversation.revision.date)
    for message in server.recording(conversation).transcript.messages:
        assert reader.read(message.members, message.answers) == [], message.members


@by_revision
def test_what_a_revision_knows_is_said_to_its_clients(
    server: WireServer, tested_revision: Revision
) -> None:
    reader = Reader(tested_revision.date)
    for conversation in CONVERSATIONS:
        if conversation.revision is tested_revision:
            for message in server.recording(conversation).transcript.messages:
                reader.read(message.members, message.answers)
    known = {
        (line.name, member.name)
        for line in TABLE.values()
        for member in line.members.values()
        if knows(tested_revision.date, line.since, line.until)
        and knows(tested_revision.date, member.since, member.until)
    }
    assert known - reader.seen - NEVER_SAID == set()


@by_revision
def test_every_method_of_a_revision_is_used(server: WireServer, tested_revision: Revision) -> None:
    said = "".join(
        server.recording(conversation).transcript.text
        for conversation in CONVERSATIONS
        if conversation.revision is tested_revision
    )
    found = set(re.findall(r'"method":"([^"]+)"', said))
    wanted = {
        name
        for name in tested_revision.methods
        if not name.startswith(("tasks/", "notifications/tasks"))
    }
    assert wanted - found == set()


# ---------------------------------------------------------------- HTTP, logs, and all at once


@over_http
def test_http_is_used_as_the_revision_says(server: WireServer, conversation: Conversation) -> None:
    exchanges = server.recording(conversation).transcript.http_exchanges
    assert breaches(conversation.revision.date, conversation.wire, exchanges) == []


@by_conversation
def test_a_crash_is_in_the_log_under_its_id_and_nowhere_else(
    server: WireServer, conversation: Conversation
) -> None:
    recording = server.recording(conversation)
    assert len(recording.transcript.crashes) >= 4
    for id in recording.transcript.crashes:
        assert f"(id {id})" in recording.log
    assert "swordfish" in recording.log
    assert not any("swordfish" in json.dumps(one.members) for one in recording.transcript.messages)


@live
async def test_one_process_serves_every_revision_at_once_and_tells_each_of_a_change_in_its_way(
    server: WireServer,
) -> None:
    async with AsyncExitStack() as exits:
        clients = [
            await server.connect(conversation, exits)
            for conversation in CONVERSATIONS
            if conversation.wire != "stdio"
        ]
        for client in clients:
            await client.open()
            if client.revision.change_notifications is ChangeNotifications.LISTEN:
                await listen(client, [])
        for _ in ("added", "removed"):
            await clients[0].call("change", {"what": "tools"})
            for client in clients:
                (told,) = await client.notifications(1)
                assert told["method"] == "notifications/tools/list_changed"
        for client in clients:
            who = (await client.call("who"))["result"]["content"][0]["text"]
            assert who == f"client speaks {client.revision.date}"
