"""One of several processes that share a login and call at the moment when its token ends.

    python tests/support/auth/login_process.py URL HOME CALLS

Says `ready` once it is connected. At a line on standard input its token is over and all calls go at
once: the test has told the same to the file, so that no clock decides. Then it prints how many
calls were answered rightly.
"""

import asyncio
import os
import sys
import time
from typing import Any

from msgspec.structs import replace

from colonnade import Login, connect
from colonnade.auth.client.credentials import ServerCredentials
from colonnade.auth.client.storage import StoredLogin


def ended(held: StoredLogin) -> StoredLogin:
    """The same login with a token that is over."""
    return replace(held, tokens=replace(held.tokens, expires_at=time.time() - 1))


async def main(url: str, calls: int) -> None:
    def nobody(page: str) -> None:
        raise RuntimeError("somebody was asked to log in")

    async with connect(url, auth=Login(keep=True, browser=False, on_show=nobody)) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        way: Any = client._connection.transport
        credentials: ServerCredentials = way._credentials
        assert credentials._login is not None
        credentials._set_login(ended(credentials._login))
        begun = [asyncio.ensure_future(client.call_tool("whoami", {})) for _ in range(calls)]
        while credentials._work is None and not any(one.done() for one in begun):
            await asyncio.sleep(0)
        # Nobody has an answer before the issuer gives one, so that all of them are under way.
        print("waiting", sum(not one.done() for one in begun), flush=True)
        found = await asyncio.gather(*begun, return_exceptions=True)
        good = [one for one in found if not isinstance(one, BaseException) and "ann" in one.text]
        bad = {repr(one) for one in found if isinstance(one, BaseException)}
        print(len(good), *sorted(bad)[:3], flush=True)


if __name__ == "__main__":
    os.environ["COLONNADE_HOME"] = sys.argv[2]
    asyncio.run(main(sys.argv[1], int(sys.argv[3])))
