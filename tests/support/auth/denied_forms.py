"""Ways to write a place that no stranger may send us to: thousands, made from a few addresses."""

import ipaddress
from collections.abc import Iterator

# Each range at its edges and inside.
V4 = [
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "10.0.0.0",
    "10.0.0.1",
    "10.20.30.40",
    "10.255.255.255",
    "100.64.0.0",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.0",
    "127.0.0.1",
    "127.0.1.1",
    "127.1.2.3",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.255.255",
    "172.16.0.0",
    "172.16.0.1",
    "172.20.10.1",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.0",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.0.1",
    "192.168.1.254",
    "192.168.255.255",
    "198.18.0.0",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "224.0.0.251",
    "239.255.255.250",
    "239.255.255.255",
    "240.0.0.0",
    "240.0.0.1",
    "250.1.2.3",
    "255.255.255.254",
    "255.255.255.255",
]
V6 = [
    "::",
    "::1",
    "::2",
    "::ffff:0:0",
    "64:ff9b::1",
    "64:ff9b:1::1",
    "100::1",
    "100:0:0:1::1",
    "200::1",
    "2001::1",
    "2001:0:1::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1ff::1",
    "2001:db8::1",
    "2001:db8:ffff::1",
    "2002::1",
    "2002:7f00:1::1",
    "3fff::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "c000::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",
    "fdff:ffff::1",
    "fe00::1",
    "fe80::1",
    "fe80::a00:1",
    "febf::1",
    "fec0::1",
    "fe9f::1",
    "ff00::1",
    "ff02::1",
    "ff05::2",
    "ffff::1",
    "2600:1f00::5efe:a00:1",
    "2600:1f00::200:5efe:7f00:1",
]
# Look-alikes of the digits and the dot that some programs fold into them.
WIDE = str.maketrans("0123456789.", "０１２３４５６７８９。")
ROUND = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")


def numbers(text: str) -> Iterator[str]:
    """One IPv4 address, as C libraries, browsers and people write it."""
    value = int(ipaddress.IPv4Address(text))
    a, b, c, d = value.to_bytes(4, "big")
    yield from (text, f"{text}.", f"{text}..", f"{value}", f"{value:#x}", f"0{value:o}")
    yield from (f"{value + 2**32}", f"{value:#X}", f"0x00{value:08x}")
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"{a:#x}.{b:#x}.{c:#x}.{d:#x}"
    yield f"{a:03d}.{b:03d}.{c:03d}.{d:03d}"
    yield f"{a:#x}.{b}.0{c:o}.{d}"
    yield f"{a}.{b}.{value & 0xFFFF}"
    yield f"{a}.{value & 0xFFFFFF}"
    yield f"{a + 256}.{b}.{c}.{d}"
    yield f"{a:#x}.{value & 0xFFFFFF:#x}"
    yield text.replace(".", "%2e")
    yield "".join(f"%{ord(letter):02x}" for letter in text)
    yield text.translate(WIDE)
    yield text.translate(ROUND)


def inside(text: str) -> Iterator[str]:
    """One IPv4 address inside of IPv6 addresses."""
    value = int(ipaddress.IPv4Address(text))
    high, low = value >> 16, value & 0xFFFF
    yield from (f"[::ffff:{text}]", f"[::ffff:{high:x}:{low:x}]", f"[0:0:0:0:0:ffff:{text}]")
    yield from (f"[::{text}]", f"[::{high:x}:{low:x}]", f"[::ffff:0:{text}]")
    yield from (f"[64:ff9b::{text}]", f"[64:ff9b:1::{text}]", f"[64:ff9b::{high:x}:{low:x}]")
    yield f"[2002:{high:x}:{low:x}::1]"
    yield f"[2001:0:{high:x}:{low:x}::1]"
    yield f"[2001:0:1:1:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}]"
    yield f"[2600:1f00::5efe:{high:x}:{low:x}]"
    yield f"[2600:1f00::200:5efe:{high:x}:{low:x}]"
    yield f"[fe80::5efe:{text}]"
    yield f"[{text}]"


def sixes(text: str) -> Iterator[str]:
    """One IPv6 address, as it may be written."""
    address = ipaddress.IPv6Address(text)
    yield from (f"[{text}]", f"[{address.exploded}]", f"[{text.upper()}]", text)
    yield from (f"[{text}%25eth0]", f"[{text}%lo]", f"[{text}%251]", f"[{text}].", f"[[{text}]]")


def hosts() -> Iterator[str]:
    """Every host that is denied as it stands."""
    for text in V4:
        yield from numbers(text)
        yield from inside(text)
    for text in V6:
        yield from sixes(text)
    yield from ["localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost"]
    yield from (
        "",
        ".",
        "-",
        "a..b",
        "a b",
        "a%00b",
        "loc\u0430lhost",
        "xn--",
        "[",
        "]",
        "[]",
        "[::1",
    )


def addresses() -> Iterator[str]:
    """Every denied address in the spelling of DNS."""
    yield from V4
    yield from V6
    for text in V4:
        for form in inside(text):
            try:
                yield str(ipaddress.IPv6Address(form.strip("[]")))
            except ValueError:
                continue


def urls(port: int) -> Iterator[str]:
    """Every URL that is denied whatever DNS says: hosts with a scheme, a port, and oddities."""
    for host in hosts():
        yield f"https://{host}:{port}/"
        yield f"http://{host}:{port}/"
    for text in ("127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254"):
        yield from odd(text, port)
    for scheme in [
        "file",
        "ftp",
        "gopher",
        "dict",
        "ldap",
        "tftp",
        "data",
        "javascript",
        "ws",
        "wss",
        "unix",
        "jar",
        "netdoc",
    ]:
        yield from (f"{scheme}://127.0.0.1:{port}/", f"{scheme}:///etc/passwd", f"{scheme}:x")


def odd(host: str, port: int) -> Iterator[str]:
    """What parsers disagree on."""
    place = f"{host}:{port}"
    yield from (f"https://public.example@{place}/", f"https://a:b@{place}/", f"https://@{place}/")
    yield from (f"https://{place}@public.example/", f"https://public.example:443@{place}/")
    yield from (f"https://public.example\\@{place}/", f"https://{place}\\@public.example/")
    yield from (f"https://{place}#@public.example/", f"https://{place}?@public.example/")
    yield from (f"https:{place}/", f"https:/{place}/", f"https:///{place}/", f"//{place}/", place)
    yield from (f" https://{place}/", f"https://{place}/\r\nx: y", f"ht\ntps://{place}/")
    yield from (
        f"https://\t{place}/",
        f"https://{place}\x00.public.example/",
        f"\x01https://{place}/",
    )
    yield from (f"https://public.example%00@{place}/", f"https://public.example%23@{place}/")
    yield from (f"https://public.example;@{place}/", f"https://{host}:0/", f"https://{host}:/")
    yield from (f"https://{host}:65536/", f"https://{host}:-1/", f"https://{host}:x/")
    yield from (f"HTTPS://{place}/", f"https://{place}/" + "a" * 3000, f"\ufeffhttps://{place}/")
    yield from (f"https://{host}:{port}:{port}/", f"https://{{{host}}}/", f"https://<{host}>/")
