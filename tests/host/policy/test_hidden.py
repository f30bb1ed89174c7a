"""What is denied is unknown: a host with a tool that is hidden, and one whose server does not have
it, respond with the same bytes.

Each way to a tool, a prompt or a resource is tried on both hosts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colonnade import Host, Server
from colonnade.errors import ColonnadeError, Refused
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, Settings
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.request import Action, PolicyRequest
from colonnade.host.policy.rules.rules import FunctionRule, Policy, Rule
from colonnade.host.runtime import ListChanges
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle
from host.audited import KEY
from host.policies import asked, files
from live import live

ALIASES = {"wipe": "secret_wipe", "plan": "secret_plan"}
POLICY = Policy(
    [
        Rule("deny", servers="files", tools="secret_*", prompts="secret_*"),
        Rule("deny", resources=["notes://secret", "notes://private/**"]),
        Rule("deny", servers="vault"),
        Rule("allow"),
    ]
)


def one_tool(name: str) -> Server:
    server = Server(name)

    @server.tool
    def look() -> str:
        return "look"

    @server.resource(f"{name}://x")
    def thing() -> str:
        return "thing"

    _ = look, thing
    return server


def with_secrets() -> Host:
    """A host that has everything, and hides some of it."""
    entry = entry_of("files", files(), Settings(aliases=ALIASES))
    servers: dict[str, Any] = {"files": entry, "git": one_tool("git"), "vault": one_tool("vault")}
    return Host(servers, policy=POLICY)


def without_secrets() -> Host:
    """A host that has nothing to hide, with the same policy."""
    servers: dict[str, Any] = {"files": files(extra=False), "git": one_tool("git")}
    return Host(servers, policy=POLICY)


async def outcome(request: Awaitable[Any]) -> str:
    """The whole result or error, as text."""
    try:
        return repr(await request)
    except ColonnadeError as error:
        facts = {name: getattr(error, name, None) for name in ("code", "data", "hint", "server")}
        return f"{type(error).__name__}: {error} {facts}"


Way = Callable[[Host], Awaitable[Any]]
HANDLE = TaskHandle("files", "t", "secret_wipe", Tasks.EXTENSION).encode()

WAYS: dict[str, Way] = {
    "call": lambda host: host.call_tool("files__secret_wipe", {"path": "a"}),
    "call by alias": lambda host: host.call_tool("wipe", {"path": "a"}),
    "call of a near name": lambda host: host.call_tool("files__secret_wip"),
    "call of a near name of a near server": lambda host: host.call_tool("file__secret_wipe"),
    "login": lambda host: host.connect_url("vault", caller="ann"),
    "call of a near alias": lambda host: host.call_tool("wip"),
    "call of a hidden server": lambda host: host.call_tool("vault__look"),
    "call of a near server": lambda host: host.call_tool("vaul__look"),
    "call for OpenAI": lambda host: host.call_openai(
        {"id": "1", "function": {"name": "files__secret_wipe", "arguments": "{}"}}
    ),
    "call for Anthropic": lambda host: host.call_anthropic(
        {"type": "tool_use", "id": "1", "name": "wipe", "input": {}}
    ),
    "task": lambda host: host.start_task("files__secret_wipe", {"path": "a"}),
    "call of a caller": lambda host: host.caller("ann").call_tool("files__secret_wipe"),
    "prompt": lambda host: host.get_prompt("files__secret_plan", {"topic": "a"}),
    "prompt by alias": lambda host: host.get_prompt("plan", {"topic": "a"}),
    "resource": lambda host: host.read_resource("notes://secret"),
    "resource in another case": lambda host: host.read_resource("NOTES://secret"),
    "resource of a template": lambda host: host.read_resource("notes://private/x"),
    "resource of a hidden server": lambda host: host.read_resource("vault://x"),
    "resource of a named hidden server": lambda host: host.read_resource("vault://x", "vault"),
    "completion of a prompt": lambda host: host.complete("topic", "a", prompt="files__secret_plan"),
    "completion by alias": lambda host: host.complete("topic", "a", prompt="plan"),
    "completion of a template": lambda host: host.complete(
        "name", "a", template="notes://private/{name}"
    ),
    "tools": lambda host: host.list_tools(),
    "fresh tools": lambda host: host.list_tools(fresh=True),
    "prompts": lambda host: host.list_prompts(),
    "resources": lambda host: host.list_resources(),
    "templates": lambda host: host.list_resource_templates(),
    "search": lambda host: host.search("secret wipe vault look"),
    "OpenAI": lambda host: host.to_openai(),
    "Anthropic": lambda host: host.to_anthropic(),
}


@pytest.mark.parametrize("name", WAYS)
@live
async def test_what_is_hidden_is_answered_as_what_does_not_exist(name: str) -> None:
    way = WAYS[name]
    async with with_secrets() as hiding, without_secrets() as plain:
        for _ in range(2):  # before anything is listed, and afterwards
            assert await outcome(way(hiding)) == await outcome(way(plain))
            await hiding.list_tools()
            await hiding.list_prompts()
            await plain.list_tools()
            await plain.list_prompts()


# The others are names that exist in neither host, or are about the servers in errors.
NEAR = ("near", "named", "another case", "vault", "login")
EXISTING = [name for name in WAYS if not any(word in name for word in NEAR)]


@pytest.mark.parametrize("name", EXISTING)
@live
async def test_without_the_policy_the_answers_differ(name: str) -> None:
    """So the comparison above compares something."""
    entry = entry_of("files", files(), Settings(aliases=ALIASES))
    servers: dict[str, Any] = {"files": entry, "git": one_tool("git"), "vault": one_tool("vault")}
    async with Host(servers) as open_host, without_secrets() as plain:
        assert await outcome(WAYS[name](open_host)) != await outcome(WAYS[name](plain))


@live
async def test_a_tool_with_a_shortened_name_is_hidden_by_a_pattern_of_its_full_name() -> None:
    """As the shorter names of a gateway are, and those that providers of models would reject."""
    server = Server("files")
    own = "everything_in_the_whole_workspace_folder_delete"

    @server.tool(name=own)
    def delete() -> str:
        return "deleted"

    _ = delete
    namespace = "the_archive_of_the_accounts"
    rules = (Rule("deny", tools="*_delete"), Rule("deny", tools=f"{namespace}__*"))
    for rule in rules:
        for limit in (40, 64):
            host = Host({namespace: server}, policy=Policy([rule, Rule("allow")]))
            host.limit_names(limit)
            async with Host({namespace: server}) as open_host, host:
                open_host.limit_names(limit)
                (name,) = [one.name for one in await open_host.list_tools()]
                assert not name.endswith("_delete")
                assert await host.list_tools() == []
                assert "has no tool" in await outcome(host.call_tool(name))


@live
async def test_a_hidden_tool_is_not_known_to_the_host_object() -> None:
    async with with_secrets() as host:
        await host.list_tools()
        assert host.tool("files__read") is not None
        assert host.tool("files__secret_wipe") is None
        assert host.tool("wipe") is None
        assert host.tool("vault__look") is None
        assert host.server_of("vault__look") is None
        assert host.server_of("files__anything") == "files"


@live
async def test_a_task_of_a_hidden_tool_is_answered_as_one_of_a_tool_that_does_not_exist() -> None:
    async with with_secrets() as hiding, without_secrets() as plain:
        for use in ("refresh", "cancel", "result", "respond"):
            found = [
                await outcome(getattr(host.resume_task(HANDLE, "files"), use)())
                for host in (hiding, plain)
            ]
            assert found[0] == found[1]
        assert "has no tool" in found[0]
        found = [
            await outcome(host.resume_task(HANDLE, "vault").refresh()) for host in (hiding, plain)
        ]
        assert found[0] == found[1]


@live
async def test_tasks_of_tools_that_are_hidden_since_are_not_listed() -> None:
    server = Server("slow")
    gate = asyncio.Event()

    @server.tool(task=True)
    async def work() -> str:
        await gate.wait()
        return "done"

    _ = work
    entries = {"slow": entry_of("slow", server)}
    async with Host(Config(entries=entries, policy=Policy(default="allow"))) as host:
        task = await host.start_task("slow__work")
        assert [one.tool for one in await host.tasks(refresh=False)] == ["slow__work"]
        hiding = Policy([Rule("deny", tools="slow__*")], default="allow")
        await host.reload(Config(entries=entries, policy=hiding))
        assert await host.tasks(refresh=False) == []
        with pytest.raises(ColonnadeError, match="no tool"):
            await task.result()
        gate.set()


@live
async def test_a_hidden_server_is_not_started_for_a_list() -> None:
    started: list[str] = []
    async with Host(
        {"vault": one_tool("vault"), "git": one_tool("git")},
        policy=POLICY,
        on_event=lambda status: started.append(status.key),
    ) as host:
        assert [tool.name for tool in await host.list_tools()] == ["git__look"]
        assert {one.key: one.state for one in host.status()}["vault"] == "idle"


@live
async def test_what_one_caller_may_not_see_another_may() -> None:
    policy = Policy([Rule("deny", principals="bob", tools="files__write")], default="allow")
    async with Host({"files": files()}, policy=policy) as host:
        assert "files__write" in [one.name for one in await host.caller("ann").list_tools()]
        assert "files__write" not in [one.name for one in await host.caller("bob").list_tools()]
        assert host.tool("files__write", "ann") is not None
        assert host.tool("files__write", "bob") is None
        assert "wrote" in (await host.caller("ann").call_tool("files__write", {"path": "a"})).text
        with pytest.raises(ColonnadeError, match="no tool"):
            await host.caller("bob").call_tool("files__write", {"path": "a"})


@live
async def test_a_middleware_cannot_bring_back_what_is_hidden() -> None:
    """It returns a list that was read without the policy."""
    kept: list[Any] = []
    server = files()

    async def keep(request: Any, call_next: Any) -> Any:
        kept.append(await call_next(request))
        return kept[-1]

    async def replay(request: Any, call_next: Any) -> Any:
        return kept[0] if request.method == "tools/list" else await call_next(request)

    async with Host({"files": server}, middleware=[keep]) as open_host:
        assert "files__secret_wipe" in [one.name for one in await open_host.list_tools()]
    async with Host({"files": server}, policy=POLICY, middleware=[replay]) as host:
        with pytest.raises(ColonnadeError):
            await host.call_tool("files__secret_wipe")  # so that the list has been read
        assert [one.name for one in await host.list_tools()] == ["files__read", "files__write"]


@live
async def test_a_reload_with_other_rules_tells_those_who_watch_once() -> None:
    changes: list[ListChanges] = []
    entries = {"files": entry_of("files", files()), "git": entry_of("git", one_tool("git"))}
    async with Host(Config(entries=entries, policy=Policy(default="allow"))) as host:
        host.watch(changes.append)
        assert "git__look" in [one.name for one in await host.list_tools()]
        await host.reload(Config(entries=entries, policy=Policy(default="allow")))
        assert changes == []
        await host.reload(Config(entries=entries, policy=Policy([Rule("deny", servers="git")])))
        assert "git__look" not in [one.name for one in await host.list_tools()]
        assert [change.servers for change in changes] == [("files", "git")]
        await host.reload(Config(entries=entries))
        assert host.policy is None
        assert "git__look" in [one.name for one in await host.list_tools()]


@live
async def test_a_host_without_a_policy_can_get_one_by_a_reload() -> None:
    entries = {"files": entry_of("files", files())}
    async with Host(Config(entries=entries)) as host:
        assert "files__secret_wipe" in [one.name for one in await host.list_tools()]
        await host.reload(Config(entries=entries, policy=POLICY))
        assert "files__secret_wipe" not in [one.name for one in await host.list_tools()]
        with pytest.raises(ColonnadeError, match="no tool"):
            await host.call_tool("files__secret_wipe", {"path": "a"})


class Unlistable(Server):
    """A server whose list of tools cannot be decoded."""

    async def respond(self, request: Any) -> bytes | None:
        response = await super().respond(request)
        if request.exchange.method.name == "tools/list" and response is not None:
            return response.replace(b'"tools":[', b'"tools":5,"x":[')
        return response


def unlistable() -> Server:
    server = Unlistable("odd")

    @server.tool
    def secret() -> str:
        return "secret"

    @server.tool
    def plain() -> str:
        return "plain"

    _ = secret, plain
    return server


@live
async def test_if_a_list_is_invalid_a_hidden_tool_is_answered_as_any_other() -> None:
    policy = Policy([Rule("deny", tools="*__secret"), Rule("allow")])
    async with Host({"odd": unlistable()}, policy=policy) as host:
        said = [await outcome(host.call_tool(f"odd__{name}")) for name in ("secret", "plain")]
        assert said[0] == said[1]
        assert "cannot be" in said[0]
    async with Host({"odd": unlistable()}) as host:
        assert (await host.call_tool("odd__plain")).text == "plain"


@live
async def test_a_never_listed_alias_of_a_hidden_tool_starts_no_server() -> None:
    entry = entry_of("files", files(), Settings(aliases=ALIASES))
    async with Host({"files": entry}, policy=POLICY) as host:
        assert "there is no tool 'wipe'" in await outcome(host.call_tool("wipe"))
        assert host.status()[0].state == "idle"


# ---------------------------------------------------------------- functions and the audit log


@pytest.mark.parametrize("name", WAYS)
@live
async def test_a_server_that_a_function_denies_is_answered_as_one_that_does_not_exist(
    name: str,
) -> None:
    policy = Policy([lambda one: "deny" if one.server == "vault" else None, Rule("allow")])
    with_vault: dict[str, Any] = {"git": one_tool("git"), "vault": one_tool("vault")}
    async with (
        Host(with_vault, policy=policy) as hiding,
        Host({"git": one_tool("git")}, policy=policy) as plain,
    ):
        assert await outcome(WAYS[name](hiding)) == await outcome(WAYS[name](plain))


def test_a_function_is_asked_about_servers_unless_it_says_no() -> None:
    server = asked("vault__x")
    server = replace(server, method="", name="", qualified="vault__")
    seen: list[str] = []

    def function(request: PolicyRequest) -> Action | None:
        seen.append(request.method)
        return "deny"

    assert not Policy([FunctionRule(function, servers=False)]).hides_server(server)
    assert not Policy([FunctionRule(function, arguments=True)]).hides_server(server)
    assert seen == []
    assert Policy([function]).hides_server(server)
    assert not Policy([lambda _: None], "deny").hides_server(server)
    undecided = FunctionRule(lambda _: None, servers=True)
    assert Policy([undecided, Rule("deny", servers="vault")]).hides_server(server)
    assert not Policy([undecided, Rule("allow")]).hides_server(server)
    assert not Policy([FunctionRule(lambda _: "ask")], "deny").hides_server(server)


class FullAuditLog(AuditLog):
    """One that can record nothing."""

    def proposed(self, request: PolicyRequest) -> str:
        raise Refused("the audit log is full")


@live
async def test_with_a_full_audit_log_a_hidden_tool_is_answered_as_what_does_not_exist(
    tmp_path: Path,
) -> None:
    one, other = (FullAuditLog(tmp_path / name, key=KEY) for name in "ab")
    async with (
        Host({"files": files()}, policy=POLICY, audit=one) as hiding,
        Host({"files": files(extra=False)}, policy=POLICY, audit=other) as plain,
    ):
        for name in ("files__secret_wipe", "files__unknown"):
            said = [await outcome(host.call_tool(name)) for host in (hiding, plain)]
            assert said[0] == said[1]
            assert "has no tool" in said[0]
        with pytest.raises(Refused, match="full"):
            await hiding.call_tool("files__read", {"path": "a"})
