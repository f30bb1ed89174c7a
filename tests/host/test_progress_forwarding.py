"""Progress that a host forwards to its caller."""

import asyncio
from typing import Any, cast

from colonnade.errors import LocalProtocolError
from colonnade.host.router import _progress_forwarder
from colonnade.ports import RequestContext
from colonnade.protocol.exchange import CallerLost
from live import Records, live


class HungUp:
    """A request whose caller hangs up while a notification waits to be written."""

    def __init__(self) -> None:
        self.exchange = self
        self.waits: list[bytes] = []

    def progress(self, progress: float, *_: object) -> bytes:
        if progress < 0:
            raise LocalProtocolError("it must increase")
        return b"progress"

    def post(self, frame: bytes) -> bool:
        return False

    async def send(self, frame: bytes) -> None:
        self.waits.append(frame)
        await asyncio.sleep(0)
        raise CallerLost("the client has disconnected")


@live
async def test_progress_to_a_caller_that_has_hung_up_is_no_error() -> None:
    request: Any = HungUp()
    report = _progress_forwarder(cast("RequestContext", request), None)
    with Records("colonnade.client", "colonnade.host") as records:
        pending = report(1.0, None, None)
        assert pending is not None
        await pending
        assert report(-1.0, None, None) is None
    assert request.waits == [b"progress"]
    assert records.lines == []
