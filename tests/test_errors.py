"""Errors: their fields are facts, and the sentence is composed of them. No loop."""

import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest

from colonnade import (
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    InvalidArgument,
    InvalidArgumentType,
    Limits,
    LocalProtocolError,
    Login,
    LoginRequired,
    RemoteError,
    RunLimits,
    Server,
    TimedOut,
    ToolError,
    connect,
)
from colonnade.errors import Fault, FaultKind, Output
from colonnade.host.config.inline import entry_of


def test_a_sentence_is_composed_of_what_happened_what_to_do_and_what_was_written() -> None:
    error = ConnectionLost("it is gone", hint="start it", output=Output(stderr=("no memory",)))
    assert (error.summary, error.sentence) == ("it is gone", "it is gone; start it")
    assert str(error) == "it is gone; start it; its last lines: no memory"
    error.effect_unknown = True
    assert str(error) == (
        "it is gone; start it; whether it had an effect is unknown; its last lines: no memory"
    )
    assert str(ColonnadeError()) == str(ToolError("")) == ""
    assert str(ToolError("no such fruit")) == "no such fruit"


def test_output_of_one_line_stays_in_the_sentence_and_more_stand_below() -> None:
    assert str(Output()) == ""
    assert not Output()
    assert str(Output(stderr=("a",))) == "; its last lines: a"
    assert str(Output(stderr=("a", "b"))) == "; its last lines:\n    a\n    b"
    assert str(Output(stdout=("a",))) == "; it printed: a"
    assert str(Output(stderr=("a",), stdout=("b",))) == "; its last lines: a"


def test_a_server_is_named_once_whatever_the_message_says() -> None:
    error = TimedOut("no answer to the server 'git'").with_server("git").with_server("git")
    assert (str(error), error.server) == ("server 'git': no answer to the server 'git'", "git")
    told = ConnectionLost("server 'git' (pid 3) exited with 1", server="git").with_server("git")
    assert str(told) == "server 'git' (pid 3) exited with 1"
    elsewhere = LoginRequired("git.example answered with 401", server="git.example").with_server(
        "git"
    )
    assert str(elsewhere) == "server 'git': git.example answered with 401"
    assert elsewhere.server == "git"


@pytest.mark.parametrize(
    "error",
    [
        CannotConnect("gone", server="git", hint="start it", output=Output(("a", "b"))),
        RemoteError(-32602, "no", {"uri": "x"}),
        Fault(FaultKind.INVALID_PARAMS, "no", {"uri": "x"}),
        ToolError("no"),
        InvalidArgument("no", argument="path", hint="begin it with /"),
    ],
)
def test_the_same_error_for_another_has_every_field_and_no_traceback(error: ColonnadeError) -> None:
    error.status = 503
    with pytest.raises(ColonnadeError) as caught:
        raise error
    same = caught.value.copy()
    assert type(same) is type(error)
    assert (str(same), same.args, vars(same)) == (str(error), error.args, vars(error))
    assert same is not error
    assert same.__traceback__ is None


def test_fields_survive_another_process() -> None:
    error = CannotConnect("gone", server="git", hint="start it", output=Output(("a",)))
    same = pickle.loads(pickle.dumps(error))
    assert (str(same), same.server, same.stderr) == (str(error), "git", ("a",))


def plain(count: int) -> int:
    return count


server = Server("things")


@pytest.mark.parametrize(
    ("wrong", "kind", "argument"),
    [
        (lambda: connect(cast("Any", 3)), TypeError, "target"),
        (lambda: connect("https://example.com/mcp", timeout_s=0), ValueError, "timeout_s"),
        (lambda: connect("https://example.com/mcp", auth=cast("Any", "me")), TypeError, "auth"),
        (lambda: connect("https://example.com/mcp", headers={"a b": "c"}), ValueError, "headers"),
        (lambda: Login(scopes=cast("Any", "files")), TypeError, "scopes"),
        (lambda: Server("a", page_size=0), ValueError, "page_size"),
        (lambda: Server("a", middleware=cast("Any", plain)), TypeError, "middleware"),
        (lambda: cast("Any", Server)("a", colour=1), TypeError, "colour"),
        (lambda: cast("Any", server.tool)(colour=1), TypeError, "colour"),
        (lambda: server.tool(timeout_s=0)(plain), ValueError, "timeout_s"),
        (lambda: server.resource("no scheme")(plain), ValueError, "uri"),
        (lambda: server.asgi(path="mcp"), ValueError, "path"),
        (lambda: server.asgi(hosts=cast("Any", "a.example")), TypeError, "hosts"),
        (lambda: server.asgi(limits=cast("Any", RunLimits())), TypeError, "limits"),
        (lambda: server.mount(cast("Any", 3)), TypeError, ""),
        (lambda: Limits(max_body_bytes=cast("Any", "4 MiB")), TypeError, "max_body_bytes"),
        (lambda: Limits(max_sessions=cast("Any", True)), TypeError, "max_sessions"),
        (lambda: Limits(drain_timeout_s=-1), ValueError, "drain_timeout_s"),
        (lambda: RunLimits(header_timeout_s=float("nan")), ValueError, "header_timeout_s"),
    ],
)
def test_a_wrong_argument_is_an_error_of_python_too_and_names_the_argument(
    wrong: Callable[[], object], kind: type[Exception], argument: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    error = caught.value
    assert isinstance(error, InvalidArgument | InvalidArgumentType)
    assert isinstance(error, LocalProtocolError)
    assert error.argument == argument


def test_a_wrong_argument_names_the_server_of_a_host_and_stays_what_it_is() -> None:
    with pytest.raises(InvalidArgumentType, match=r"^server 'a': int cannot be connected to"):
        entry_of("a", cast("Any", 3))
