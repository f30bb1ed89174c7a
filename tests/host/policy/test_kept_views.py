"""Views of callers are kept by the guard alone, which bounds their number."""

import gc
from weakref import ref

from colonnade import Host, Policy, Server
from colonnade.host.policy.guard import PolicyGuard
from colonnade.host.policy.request import CallerFacts
from live import live


@live
async def test_a_view_in_which_a_tool_was_found_is_not_kept_by_it() -> None:
    """A view has the lists of its caller, and there is one for each name that a client gives
    itself."""
    server = Server("shop")

    @server.tool
    def pay() -> str:
        return "paid"

    _ = pay
    async with Host({"shop": server}, policy=Policy(default="allow")) as host:
        await host.list_tools()
        guard, generation = host._runtime.guard, host._runtime.generation
        assert isinstance(guard, PolicyGuard)
        view = guard.view_for(CallerFacts("alex", client="one name"))
        found = generation.find_tool("shop__pay", "alex", view)
        assert found is not None
        assert generation.find_tool("shop__pay", "alex", view) is found
        living = ref(view)
        del view, found
        guard.forget_views()
        gc.collect()
        assert living() is None
