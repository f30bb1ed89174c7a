"""A refresh token that is used while its minute lasts is not replaced, and counts as used."""

import pytest

from auth.proxied import proxied
from colonnade.auth.server.proxy.grants import REUSE_S
from live import live


@pytest.mark.spec("R0331")
@live
async def test_a_refresh_token_ends_the_one_before_by_its_use_though_it_is_not_replaced() -> None:
    """A client that has used the newer one has received it: the older one is used by another."""
    async with proxied() as setup:
        client = await setup.register()
        first = await setup.log_in(client, setup.browser())
        second = (await setup.refresh(client, first["refresh_token"])).json
        third = (await setup.refresh(client, second["refresh_token"])).json
        setup.clock.forward(REUSE_S)
        stolen = await setup.refresh(client, first["refresh_token"])
        assert stolen.json.get("error") == "invalid_grant"
        assert (await setup.refresh(client, third["refresh_token"])).status == 400
