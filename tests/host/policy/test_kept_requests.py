"""What a host keeps between calls for a caller, and when it does not fit."""

from colonnade import Host, Policy, Rule, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.caller_view import CallerView
from colonnade.host.policy.guard import PolicyGuard
from colonnade.host.policy.items import GuardedItem
from colonnade.host.policy.request import CallerFacts
from live import live

POLICY = Policy([Rule("deny", principals="kim", tools="shop__pay")], default="allow")


def shop() -> Server:
    server = Server("shop")

    @server.tool
    def pay() -> str:
        return "paid"

    _ = pay
    return server


def view_of(host: Host, caller: str) -> CallerView:
    guard = host._runtime.guard
    assert isinstance(guard, PolicyGuard)
    return guard.view_for(CallerFacts(caller))


@live
async def test_a_tool_that_one_caller_has_called_is_not_found_for_another() -> None:
    async with Host({"shop": shop()}, policy=POLICY) as host:
        await host.list_tools()
        generation = host._runtime.generation
        for _ in range(2):
            found = generation.find_tool("shop__pay", "alex", view_of(host, "alex"))
            assert found is not None
            assert found.own == "pay"
            assert generation.find_tool("shop__pay", "kim", view_of(host, "kim")) is None


@live
async def test_a_request_for_another_server_of_the_same_key_is_made_anew() -> None:
    """A view is used until its request ends, also if a reload has replaced the server."""
    trusted = entry_of("shop", shop(), Settings(trusted=True))
    async with Host({"shop": shop()}, policy=POLICY) as host, Host({"shop": trusted}) as other:
        view, item = view_of(host, "alex"), GuardedItem("tools/call", "tool", "pay", "shop__pay")
        servers = [one._runtime.generation.servers["shop"] for one in (host, other, host)]
        assert [view.request(one, item).trusted for one in servers] == [False, True, False]
