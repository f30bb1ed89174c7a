"""The address of a client behind proxy servers: nobody can choose it but a proxy server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.protocol.http.client_address import MAX_PROXIES, TrustedProxies

PROXIES = TrustedProxies.of(["10.0.0.0/8", "2001:db8:1::/48"])
XFF, FORWARDED = b"x-forwarded-for", b"forwarded"


def address_of(peer: str, *headers: tuple[bytes, bytes]) -> str:
    assert PROXIES is not None
    scope = {"type": "http", "headers": list(headers), "client": (peer, 5)}
    return PROXIES.with_client(scope)["client"][0]


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"8.8.8.8", "8.8.8.8"),
        (b"1.2.3.4, 8.8.8.8", "8.8.8.8"),
        (b"1.2.3.4, 8.8.8.8, 10.9.9.9", "8.8.8.8"),
        (b"8.8.8.8,10.9.9.9 ,  10.0.0.2", "8.8.8.8"),
        (b"8.8.8.8:4711", "8.8.8.8"),
        (b"2a00::1", "2a00::1"),
        (b"[2a00::1]:4711", "2a00::1"),
        (b"[2a00::1]", "2a00::1"),
        (b"::ffff:8.8.8.8", "8.8.8.8"),
        # All of them are trusted: the first one began.
        (b"10.3.3.3, 10.2.2.2", "10.3.3.3"),
        # A proxy server that hides its client stands for it.
        (b"8.8.8.8, unknown", "10.0.0.1"),
        (b"8.8.8.8, _hidden, 10.2.2.2", "10.2.2.2"),
        (b"8.8.8.8,", "10.0.0.1"),
        (b"", "10.0.0.1"),
        (b"x" * 5000, "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(value: bytes, client: str) -> None:
    assert address_of("10.0.0.1", (XFF, value)) == client


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"for=8.8.8.8", "8.8.8.8"),
        (b"For=1.2.3.4, FOR=8.8.8.8;proto=https;by=10.0.0.1", "8.8.8.8"),
        (b'for="[2a00::1]:4711"', "2a00::1"),
        (b'host="a,b;for=1.1.1.1"; for=8.8.8.8', "8.8.8.8"),
        (b"for=8.8.8.8, for=10.2.2.2", "8.8.8.8"),
        (b"for=8.8.8.8, for=_hidden", "10.0.0.1"),
        (b"for=8.8.8.8;for=1.1.1.1", "10.0.0.1"),
        (b"for=8.8.8.8, proto=https", "10.0.0.1"),
        (b'for="8.8.8.8', "10.0.0.1"),
        (b"for=8.8.8.8; ;", "8.8.8.8"),
        # A quoted string that a client begins swallows what the proxy server adds.
        (b'for=1.1.1.1;x=", for=8.8.8.8', "10.0.0.1"),
        (b'for=1.1.1.1;x=", for="[2a00::1]:80"', "10.0.0.1"),
        (b'for=1.1.1.1;x=", for="_hidden";by="_us"', "10.0.0.1"),
        (b'for=1.1.1.1;x="\\", for=8.8.8.8', "10.0.0.1"),
    ],
)
def test_the_header_of_rfc_7239_is_read_as_well(value: bytes, client: str) -> None:
    assert address_of("10.0.0.1", (FORWARDED, value)) == client


def test_the_headers_of_a_connection_from_elsewhere_mean_nothing() -> None:
    for peer in ("8.8.4.4", "192.168.0.1", "2001:db8:2::1", "not an address"):
        assert address_of(peer, (XFF, b"1.1.1.1"), (FORWARDED, b"for=1.1.1.1")) == peer


def test_a_header_that_a_proxy_server_passes_on_unread_lets_nobody_choose_an_address() -> None:
    ours, theirs = (XFF, b"8.8.8.8"), (FORWARDED, b"for=1.1.1.1")
    assert address_of("10.0.0.1", ours, theirs) == "10.0.0.1"
    assert address_of("10.0.0.1", ours, (FORWARDED, b"for=8.8.8.8")) == "8.8.8.8"


def test_several_header_lines_are_one_list() -> None:
    assert address_of("10.0.0.1", (XFF, b"1.1.1.1"), (XFF, b"8.8.8.8")) == "8.8.8.8"


def test_a_line_that_a_client_leaves_open_does_not_swallow_the_line_of_the_proxy_server() -> None:
    theirs = (FORWARDED, b'for=1.1.1.1;x="')
    assert address_of("10.0.0.1", theirs, (FORWARDED, b"for=8.8.8.8")) == "8.8.8.8"


def test_a_proxy_server_is_known_by_its_address_of_either_family() -> None:
    for peer in ("::ffff:10.0.0.1", "2001:db8:1::7"):
        assert address_of(peer, (XFF, b"8.8.8.8")) == "8.8.8.8"


def test_only_so_many_proxy_servers_are_passed() -> None:
    hops = b", ".join([b"8.8.8.8", *[b"10.0.0.2"] * MAX_PROXIES])
    assert address_of("10.0.0.1", (XFF, hops)) == "10.0.0.2"


def test_a_request_without_an_address_or_a_header_stays_as_it_is() -> None:
    assert PROXIES is not None
    for scope in (
        {"headers": [(XFF, b"8.8.8.8")], "client": None},
        {"headers": [(XFF, b"8.8.8.8")]},
        {"headers": [], "client": ("10.0.0.1", 5)},
    ):
        assert PROXIES.with_client(scope) is scope


@given(st.lists(st.tuples(st.sampled_from([XFF, FORWARDED]), st.binary(max_size=300)), max_size=4))
def test_any_header_gives_an_address(headers: list[tuple[bytes, bytes]]) -> None:
    assert address_of("10.0.0.1", *headers)


@pytest.mark.parametrize(
    "given", [["10.0.0.1/8"], ["proxy.example"], ["0.0.0.0/0"], ["::/0"], "10.0.0.0/8"]
)
def test_networks_that_cannot_be_meant_are_refused_by_name(given: list[str]) -> None:
    with pytest.raises(
        (InvalidArgument, InvalidArgumentType), match="trusted_proxies= "
    ) as refused:
        TrustedProxies.of(given)
    assert refused.value.argument == "trusted_proxies"


def test_without_networks_no_proxy_server_is_trusted() -> None:
    assert TrustedProxies.of([]) is None
