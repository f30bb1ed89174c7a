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
from wire.conversations import FOLDER, PLAYS, Play, Stand, standing
from wire.http_rules import breaches
from wire.known_members import TABLE, Reader, knows
from wire.script import listen

by_play = pytest.mark.parametrize("play", PLAYS, ids=[play.name for play in PLAYS])
by_revision = pytest.mark.parametrize("played_in", ALL, ids=[revision.date for revision in ALL])
over_http = pytest.mark.parametrize(
    "play",
    [play for play in PLAYS if play.wire != "stdio"],
    ids=[play.name for play in PLAYS if play.wire != "stdio"],
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
def stand(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stand]:
    with standing(tmp_path_factory.mktemp("wire")) as stand:
        yield stand


@by_play
def test_a_conversation_is_what_it_was_when_it_was_read(
    stand: Stand, play: Play, rewrite_transcripts: bool
) -> None:
    text = stand.played(play).transcript.text
    if rewrite_transcripts:
        play.golden.parent.mkdir(exist_ok=True)
        play.golden.write_text(text, "utf-8")
    assert text == play.golden.read_text("utf-8")


def test_there_is_a_golden_file_for_every_play_and_no_other() -> None:
    assert set(FOLDER.glob("*")) == {play.golden for play in PLAYS}


# ---------------------------------------------------------------- what a client can know


@by_play
def test_every_message_is_one_that_the_closed_official_schema_allows(
    stand: Stand, play: Play
) -> None:
    if not official.available():
        print(f"no official schemas at {official.ROOT}: the table by hand is compared")
        return
    for message in stand.played(play).transcript.messages:
        assert complaints(message) == [], message.members


@by_play
def test_a_client_meets_nothing_that_its_revision_cannot_know(stand: Stand, play: Play) -> None:
    reader = Reader(play.revision.date)
    for message in stand.played(play).transcript.messages:
        assert reader.read(message.members, message.answers) == [], message.members


@by_revision
def test_what_a_revision_knows_is_said_to_its_clients(stand: Stand, played_in: Revision) -> None:
    reader = Reader(played_in.date)
    for play in PLAYS:
        if play.revision is played_in:
            for message in stand.played(play).transcript.messages:
                reader.read(message.members, message.answers)
    known = {
        (line.name, member.name)
        for line in TABLE.values()
        for member in line.members.values()
        if knows(played_in.date, line.since, line.until)
        and knows(played_in.date, member.since, member.until)
    }
    assert known - reader.seen - NEVER_SAID == set()


@by_revision
def test_every_method_of_a_revision_is_used(stand: Stand, played_in: Revision) -> None:
    said = "".join(
        stand.played(play).transcript.text for play in PLAYS if play.revision is played_in
    )
    found = set(re.findall(r'"method":"([^"]+)"', said))
    wanted = {
        name for name in played_in.methods if not name.startswith(("tasks/", "notifications/tasks"))
    }
    assert wanted - found == set()


# ---------------------------------------------------------------- HTTP, logs, and all at once


@over_http
def test_http_is_used_as_the_revision_says(stand: Stand, play: Play) -> None:
    visits = stand.played(play).transcript.visits
    assert breaches(play.revision.date, play.wire, visits) == []


@by_play
def test_a_crash_is_in_the_log_under_its_id_and_nowhere_else(stand: Stand, play: Play) -> None:
    played = stand.played(play)
    assert len(played.transcript.crashes) >= 4
    for id in played.transcript.crashes:
        assert f"(id {id})" in played.log
    assert "swordfish" in played.log
    assert not any("swordfish" in json.dumps(one.members) for one in played.transcript.messages)


@live
async def test_one_process_serves_every_revision_at_once_and_tells_each_of_a_change_in_its_way(
    stand: Stand,
) -> None:
    async with AsyncExitStack() as exits:
        talks = [await stand.come(play, exits) for play in PLAYS if play.wire != "stdio"]
        for talk in talks:
            await talk.open()
            if talk.revision.change_notifications is ChangeNotifications.LISTEN:
                await listen(talk, [])
        for _ in ("added", "removed"):
            await talks[0].call("change", {"what": "tools"})
            for talk in talks:
                (told,) = await talk.news(1)
                assert told["method"] == "notifications/tools/list_changed"
        for talk in talks:
            who = (await talk.call("who"))["result"]["content"][0]["text"]
            assert who == f"client speaks {talk.revision.date}"
