"""Ports to serve on, and why there are none."""

import socket

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.runner import AddressError, bind


def test_a_free_port_is_bound_and_does_not_listen_yet() -> None:
    with bind("127.0.0.1", 0) as bound:
        address = bound.getsockname()
        assert address[1] > 0
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(address)


def test_a_port_that_is_taken_is_told_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError) as told:
            bind("127.0.0.1", port)
    assert str(told.value) == (
        f"port {port} on 127.0.0.1 is in use; choose another port, or 0 for any free one"
    )


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_told_so(port: int) -> None:
    with pytest.raises(AddressError) as told:
        bind("127.0.0.1", port)
    assert str(told.value) == f"{port} is no port; there are 1 to 65535, and 0 for any free one"


def test_an_address_of_another_machine_is_told_so() -> None:
    with pytest.raises(AddressError, match="is no address of this machine; serve one that is"):
        bind("192.0.2.1", 0)  # for documentation, and so of no machine


@pytest.mark.parametrize("host", ["", "a b", "x" * 300, "a..b"])
def test_a_host_that_is_none_is_told_so(host: str) -> None:
    with pytest.raises(AddressError, match="is no address to serve on: "):
        bind(host, 0)


def test_it_is_an_error_of_whoever_asked() -> None:
    assert issubclass(AddressError, LocalProtocolError)
