"""The control socket: of one user alone, with limits, for several hosts at once."""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from colonnade.errors import ConnectionLost, Refused
from colonnade.host.policy.approvals import control as module
from colonnade.host.policy.approvals.control import (
    ControlClient,
    ControlRequest,
    ControlServer,
    check_folder,
    control_folder,
    find_sockets,
    is_own_user,
    make_folder,
    peer_uid,
)
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer
from colonnade.host.policy.approvals.remembered import RememberedRules
from colonnade.protocol.jsonrpc import encode
from host.policy.approvals.test_inbox import item_of
from live import live, until

YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder with a short path, as sockets need."""
    made = tempfile.mkdtemp(prefix="cn-")
    yield Path(made) / "run"
    shutil.rmtree(made)


@live
async def test_items_are_listed_shown_and_answered_over_the_socket(folder: Path) -> None:
    inbox = Inbox()
    async with ControlServer(inbox, name="a host", folder=folder) as server:
        assert server.path is not None
        assert inbox.has_approver
        item = await inbox.open(item_of(inbox, '{"a": "' + "x" * 5000 + '"}'))
        async with ControlClient(server.path) as client:
            listed = await client.request(ControlRequest(do="list"))
            assert (listed.name, listed.pid) == ("a host", os.getpid())
            assert [one.id for one in listed.items] == [item.id]
            assert len(listed.items[0].content) == module.MAX_LISTED_CHARACTERS
            shown = await client.request(ControlRequest(do="show", id=item.id))
            assert shown.items == (item,)
            request = ControlRequest(
                do="answer", id=item.id, serial=item.serial, answer=YES, by="a test"
            )
            assert (await client.request(request)).won
            again = await client.request(request)
            assert not again.won
            assert again.sentence == f"{item.id}: already accepted by a test"
    assert not inbox.has_approver


@live
async def test_an_answer_that_does_not_fit_is_an_error_and_the_connection_goes_on(
    folder: Path,
) -> None:
    inbox = Inbox()
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        item = await inbox.open(item_of(inbox))
        wrong = InboxAnswer(action="accept", content="{}")
        async with ControlClient(server.path) as client:
            with pytest.raises(Refused, match="without content"):
                await client.request(ControlRequest(do="answer", id=item.id, answer=wrong))
            with pytest.raises(Refused, match="there is no item"):
                await client.request(ControlRequest(do="show", id="nothing"))
            assert (await client.request(ControlRequest(do="list"))).items


@live
async def test_a_watcher_hears_of_each_change(folder: Path) -> None:
    inbox = Inbox()
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        async with ControlClient(server.path) as client:
            changes = client.changes()
            await anext(changes)
            item = await inbox.open(item_of(inbox))
            await anext(changes)
            await inbox.answer(item.id, NO)
            await anext(changes)
            await changes.aclose()


@live
async def test_several_hosts_have_a_socket_each_and_all_are_found(folder: Path) -> None:
    async with (
        ControlServer(Inbox(), folder=folder) as one,
        ControlServer(Inbox(), folder=folder) as two,
    ):
        assert one.path is not None
        assert two.path is not None
        assert await find_sockets(folder) == sorted([one.path, two.path])
    assert await find_sockets(folder) == []
    assert list(folder.iterdir()) == []


@live
async def test_the_socket_of_a_process_that_is_gone_is_removed_and_no_other(folder: Path) -> None:
    make_folder(folder)
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    paths = [folder / f"{gone.pid}-ab12.sock", folder / f"{os.getpid()}-ab12.sock"]
    for path in paths:  # as a process leaves it that was killed, or has not listened yet
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    (folder / "other.sock").touch()
    assert await find_sockets(folder) == []
    assert [path.exists() for path in paths] == [False, True]
    assert (folder / "other.sock").exists()


@live
async def test_the_folder_and_the_socket_are_closed_to_others(folder: Path) -> None:
    async with ControlServer(Inbox(), folder=folder) as server:
        assert server.path is not None
        assert folder.stat().st_mode & 0o777 == 0o700
        assert server.path.stat().st_mode & 0o777 == 0o600


@live
async def test_a_folder_that_is_open_to_others_is_refused_by_both_ends(folder: Path) -> None:
    async with ControlServer(Inbox(), folder=folder) as server:
        assert server.path is not None
        folder.chmod(0o755)
        with pytest.raises(Refused, match="closed to others"):
            await find_sockets(folder)
        with pytest.raises(Refused, match="closed to others"):
            async with ControlClient(server.path):
                pass
        with pytest.raises(Refused, match="closed to others"):
            async with ControlServer(Inbox(), folder=folder):
                pass
        folder.chmod(0o700)


def test_a_link_or_the_folder_of_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(folder)
    check_folder(folder)
    link = folder.parent / "link"
    link.symlink_to(folder)
    with pytest.raises(Refused):
        check_folder(link)
    monkeypatch.setattr(module, "_own_uid", lambda: os.getuid() + 1)
    with pytest.raises(Refused):
        check_folder(folder)


def test_the_user_of_a_connection_is_known_and_compared() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()
    assert is_own_user(os.getuid())
    assert not is_own_user(os.getuid() + 1)


@live
async def test_the_connection_of_another_user_gets_no_response(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox()
    monkeypatch.setattr(module, "peer_uid", lambda _: os.getuid() + 1)
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        item = await inbox.open(item_of(inbox))
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(encode(ControlRequest(do="answer", id=item.id, answer=YES)) + b"\n")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert await inbox.items() == [item]


@live
async def test_a_socket_of_another_user_is_asked_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder above may be replaced between the look at it and the connection."""
    said: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read())
        writer.close()

    make_folder(folder)
    path = folder / "4194304-ab12.sock"
    other = await asyncio.start_unix_server(serve, str(path))
    monkeypatch.setattr(module, "peer_uid", lambda _: os.getuid() + 1)
    with pytest.raises(Refused, match="the socket of another user"):
        async with ControlClient(path) as client:
            await client.request(ControlRequest(do="list"))
    await until(lambda: bool(said))
    assert said == [b""]
    other.close()


@live
async def test_a_connection_without_a_request_does_not_keep_others_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(module, "REQUEST_S", 0.01)
    async with ControlServer(Inbox(), folder=folder) as server:
        idle = [await asyncio.open_unix_connection(str(server.path)) for _ in range(2)]
        idle[1][1].write(b'{"do":"li')  # and never the rest
        async with asyncio.timeout(30):
            for reader, writer in idle:
                assert await reader.read() == b""
                writer.close()
        assert server.path is not None
        monkeypatch.setattr(module, "REQUEST_S", 60.0)
        await until(lambda: not server._connections)
        async with ControlClient(server.path) as client:
            assert (await client.request(ControlRequest(do="list"))).items == ()


DEEP = b'{"do":"list","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ODD = [
    b"",
    b"\0",
    b"null",
    b"[]",
    b'{"do":"stop"}',
    b'{"do":"list"',
    b'{"do":"show","id":5}',
    b'{"do":"answer","id":"","answer":{"action":"maybe"}}',
    b'{"do":"show","id":"\xff\xfe"}',
    b'{"do":"show","id":"\\ud800"}',
    b'{"do":"answer","id":"AB","answer":{"action":"accept","content":"\\ud800"}}',
    b'{"do":"forget","id":"' + b"a" * 5000 + b'"}',
    b'{"do":"forget","id":"../../x"}',
    b'{"do":"answer","id":"' + b"9" * 100_000 + b'","answer":{"action":"accept"}}',
    DEEP,
]


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
@live
async def test_a_message_of_any_kind_harms_no_other_connection(folder: Path, line: bytes) -> None:
    inbox, failed = Inbox(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    rules = RememberedRules(folder=folder / "remembered")
    async with ControlServer(inbox, rules, folder=folder) as server:
        item = await inbox.open(item_of(inbox))
        reader, writer = await asyncio.open_unix_connection(str(server.path), limit=1 << 24)
        writer.write(line + b"\n")
        assert b'"won":true' not in await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert server.path is not None
        async with ControlClient(server.path) as client:
            (listed,) = (await client.request(ControlRequest(do="list"))).items
        assert listed.id == item.id
    assert failed == []


@live
async def test_the_name_of_who_answers_is_short(folder: Path) -> None:
    inbox = Inbox()
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        item = await inbox.open(item_of(inbox))
        async with ControlClient(server.path) as client:
            answer = ControlRequest(do="answer", id=item.id, answer=YES, by="x" * 100_000)
            assert (await client.request(answer)).items[0].answered_by == "x" * module.MAX_NAME


@live
async def test_of_many_answers_at_once_over_many_connections_one_wins(folder: Path) -> None:
    inbox = Inbox()
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        item = await inbox.open(item_of(inbox))

        async def answer(by: str) -> bool:
            assert server.path is not None
            async with ControlClient(server.path) as client:
                given = YES if int(by) % 2 else NO
                request = ControlRequest(
                    do="answer", id=item.id, serial=item.serial, answer=given, by=by
                )
                return (await client.request(request)).won

        won = await asyncio.gather(*(answer(str(number)) for number in range(12)))
        assert sum(won) == 1
        found = await inbox.read(item.key)
        assert found is not None
        assert found.answered_by == str(won.index(True))


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_no_umask_lets_others_into_the_folders_of_a_socket(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_folder(folder / "state" / "run")
    finally:
        os.umask(before)
    for one in (folder, folder / "state", folder / "state" / "run"):
        assert one.stat().st_mode & 0o777 == 0o700


def test_what_is_there_instead_of_the_folder_is_refused(folder: Path) -> None:
    folder.parent.joinpath("file").touch()
    with pytest.raises(Refused, match="cannot create"):
        make_folder(folder.parent / "file" / "run")
    with pytest.raises(Refused, match="must be a folder"):
        make_folder(folder.parent / "file")
    dangling = folder.parent / "dangling"
    dangling.symlink_to(folder.parent / "nothing")
    with pytest.raises(Refused):
        make_folder(dangling)
    assert not (folder.parent / "nothing").exists()


@live
async def test_a_path_that_is_too_long_is_said(folder: Path) -> None:
    long = folder / ("x" * 120)
    with pytest.raises(Refused, match=r"cannot open the socket .* too long"):
        async with ControlServer(Inbox(), folder=long):
            pass
    assert list(long.iterdir()) == []


def test_a_runtime_folder_that_is_relative_or_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLONNADE_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    assert control_folder() == Path("/home/ada/state/colonnade/run")
    make_folder(folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert control_folder() == folder / "colonnade"
    own = os.getuid()
    monkeypatch.setattr(module, "_own_uid", lambda: own + 1)
    assert control_folder() == Path("/home/ada/state/colonnade/run")


@live
async def test_connections_and_messages_have_limits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    async with ControlServer(Inbox(), folder=folder) as server:
        assert server.path is not None
        async with ControlClient(server.path) as first:
            await first.request(ControlRequest(do="list"))
            async with ControlClient(server.path) as second:
                with pytest.raises(ConnectionLost):
                    await second.request(ControlRequest(do="list"))
            with pytest.raises(ConnectionLost):
                await first.request(ControlRequest(do="show", id="x" * 3000))


@live
async def test_what_is_no_request_ends_the_connection(folder: Path) -> None:
    async with ControlServer(Inbox(), folder=folder) as server:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"this is not a request" in await reader.read()
        writer.close()
        await writer.wait_closed()


@live
async def test_a_list_leaves_off_what_is_too_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LISTED", 1)
    inbox = Inbox()
    for _ in range(3):
        await inbox.open(item_of(inbox))
    async with ControlServer(inbox, folder=folder) as server:
        assert server.path is not None
        async with ControlClient(server.path) as client:
            listed = await client.request(ControlRequest(do="list"))
    assert (len(listed.items), listed.left_off) == (1, 2)


@live
async def test_rules_of_the_session_are_listed_and_removed(folder: Path) -> None:
    inbox, rules = Inbox(), RememberedRules(folder=folder / "remembered")
    item = (await inbox.answer((await inbox.open(item_of(inbox))).id, YES)).item
    rule = rules.add(item, "session")
    async with ControlServer(inbox, rules, folder=folder) as server:
        assert server.path is not None
        async with ControlClient(server.path) as client:
            assert (await client.request(ControlRequest(do="rules"))).rules == (rule,)
            assert (await client.request(ControlRequest(do="forget", id=rule.id))).won
            assert (await client.request(ControlRequest(do="rules"))).rules == ()
            assert not (await client.request(ControlRequest(do="forget", id=rule.id))).won


def test_the_folder_is_in_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLONNADE_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert control_folder() == Path("/run/user/7/colonnade")
    monkeypatch.setenv("COLONNADE_HOME", "/home/ada/state")
    assert control_folder() == Path("/home/ada/state/run")
    monkeypatch.setenv("COLONNADE_HOME", "/home/ada/" + "deep/" * 30)
    short = control_folder()
    assert len(str(short)) < 60
    assert f"colonnade-{os.getuid()}-" in short.name
