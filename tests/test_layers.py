"""Imports go down, cycles do not exist, the protocol touches nothing, no date is compared.

Each check is proven twice: the package passes it, and a small bad example does not.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layers import (
    LIBRARIES,
    PROTOCOL_ROWS,
    ROWS,
    Module,
    cycles,
    dates,
    given,
    impure_calls,
    private,
    read,
    third_party_imports,
    upward,
)

Check = Callable[[dict[str, Module]], Iterator[str]]

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
COLONNADE = read(ROOT / "src" / "colonnade")


@pytest.mark.parametrize(
    "check", [upward, cycles, third_party_imports, private, impure_calls, dates]
)
def test_the_package_keeps_the_rule(check: Check) -> None:
    assert list(check(COLONNADE)) == []


def test_the_package_that_is_checked_is_not_empty() -> None:
    assert {"", "errors", "protocol", "protocol.jsonrpc"} <= COLONNADE.keys()


def test_the_rows_on_the_architecture_page_are_the_rows_that_are_checked() -> None:
    tables = re.findall(r"^```\n((?:\d[\d ] .+\n)+)```$", ARCHITECTURE, re.MULTILINE)
    said = [
        tuple(frozenset(line[3:].split(" · ")) for line in reversed(table.splitlines()))
        for table in tables
    ]
    assert said == [ROWS, PROTOCOL_ROWS]


def test_the_tree_on_the_architecture_page_has_every_type_of_the_protocol() -> None:
    folder = ARCHITECTURE.partition("\n  protocol/")[2].partition("\n  signatures/")[0]
    listed = re.findall(r"^    ([a-z_]+)(?:\.py|/) ", folder, re.MULTILINE)
    assert frozenset(listed) == frozenset[str]().union(*PROTOCOL_ROWS)


def test_the_tree_on_the_architecture_page_says_what_is_here() -> None:
    for names, state in re.findall(r"^  (\w.*?)  .* (here|to come)$", ARCHITECTURE, re.MULTILINE):
        for name in names.split():
            unit = name.strip("/").removesuffix(".py")
            assert (unit in COLONNADE) == (state == "here"), unit


def test_no_unit_stands_in_two_rows() -> None:
    for rows in (ROWS, PROTOCOL_ROWS):
        assert sum(map(len, rows)) == len(frozenset[str]().union(*rows))


def red(check: Check, modules: dict[str, Module], words: str) -> None:
    """Assert that the check says exactly one sentence, with these words in it."""
    (sentence,) = check(modules)
    assert words in sentence


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("errors", "from colonnade.protocol import link", "errors imports protocol, which goes up"),
        ("errors", "import colonnade.protocol.link", "goes up"),
        ("server__app", "from colonnade.client.client import Client", "goes sideways"),
        ("server__app", "def f():\n    from colonnade.host import x", "server__app:2"),
        ("server__app", "if TYPE_CHECKING:\n    import colonnade.host", "goes up"),
        ("server__app", "from ..host import x", "server imports host"),
        ("server__app", "from colonnade import Server", "public names"),
        ("server__app", "import colonnade", "public names"),
        ("protocol__jsonrpc", "from colonnade.protocol.methods import Row", "goes sideways"),
        ("protocol__jsonrpc", "from .link import Link", "jsonrpc imports link, which goes up"),
        ("protocol__revision", "from colonnade.protocol import input_requests", "goes up"),
        ("elsewhere", "", "has no row"),
        ("protocol__helpers", "", "has no place"),
    ],
)
def test_an_import_that_does_not_go_down_is_found(name: str, source: str, words: str) -> None:
    sources = {
        "errors": "",
        "protocol": "",
        "protocol__link": "",
        "protocol__methods": "",
        "protocol__input_requests": "",
        "client__client": "",
        "host": "",
        name: source,
    }
    modules = given(**sources) | {"": Module("", "", is_folder=True)}
    red(upward, modules, words.replace("__", "."))


def test_an_import_that_goes_down_or_stays_in_its_folder_is_fine() -> None:
    modules = given(
        errors="",
        protocol__jsonrpc="from colonnade.errors import Fault",
        protocol__link="from . import jsonrpc\nfrom colonnade.protocol.jsonrpc import Request",
        ports="import colonnade.protocol.link",
        server__app="from .dispatch import go\nfrom colonnade import errors, ports",
        server__dispatch="import json",
    )
    assert list(upward(modules)) == []


def test_a_folder_resolves_its_own_dots() -> None:
    modules = given(host="", server__dispatch="")
    modules["server"] = Module("server", "from .dispatch import go\nfrom ..host import x", True)
    red(upward, modules, "server:2: server imports host")


def test_a_cycle_is_found_also_through_functions_and_folders() -> None:
    modules = given(
        server__a="from colonnade.server.b import b",
        server__b="def f():\n    from . import c",
        server__c="if TYPE_CHECKING:\n    from .a import a",
        server__d="from . import a",
    )
    red(cycles, modules, "server.a -> server.b -> server.c -> server.a")


def test_a_folder_that_imports_its_files_and_is_imported_by_them_is_a_cycle() -> None:
    modules = given(server__app="from colonnade.server import stack")
    modules["server"] = Module("server", "from colonnade.server.app import App\nstack = 1", True)
    red(cycles, modules, "a cycle: ")


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("server__app", "import requests", "no file yet"),
        ("server__app", "from redis.asyncio import Redis", "home is store.redis"),
        ("protocol__link", "def f():\n    import jsonschema_rs", "home is protocol.schema"),
        ("protocol__schema", "import jsonschema_rs", "loads jsonschema_rs at once"),
        ("protocol__types", "try:\n    import pydantic\nexcept ImportError: ...", "pydantic"),
    ],
)
def test_a_library_away_from_home_is_found(name: str, source: str, words: str) -> None:
    red(third_party_imports, given(**{name: source}), words)


def test_a_library_at_home_is_fine() -> None:
    modules = given(
        protocol__schema="import msgspec\ndef f():\n    import jsonschema_rs",
        auth__seal="from cryptography.hazmat import aead",
        store__redis="import redis",
    )
    assert list(third_party_imports(modules)) == []


def test_every_library_that_pip_installs_has_a_home() -> None:
    from importlib.metadata import requires

    named = {line.split(">")[0].replace("-", "_") for line in requires("colonnade") or []}
    assert {"msgspec", "jsonschema_rs"} <= named & LIBRARIES.keys()


HTTPTOOLS_IMPL = "uvicorn.protocols.http.httptools_impl"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("from asyncio.tasks import _enter_task", "imports asyncio.tasks._enter_task"),
        ("import asyncio\nasyncio.tasks._enter_task(1, 2)", "uses asyncio.tasks._enter_task"),
        ("import asyncio as a\nx = a._get_running_loop", "uses asyncio._get_running_loop"),
        ("from asyncio import sslproto", "imports asyncio.sslproto"),
        ("def f():\n    import asyncio.sslproto", "imports asyncio.sslproto"),
        (f"from {HTTPTOOLS_IMPL} import HttpToolsProtocol", f"imports {HTTPTOOLS_IMPL}."),
        ("import uvicorn\nx = uvicorn.config.Config", "uses uvicorn.config"),
        ("from httptools import _version", "imports httptools._version"),
        ("import asyncio\nclass A(asyncio.Queue):\n    def _put(self, x): ...", "A has _put"),
        (
            "import asyncio\nclass A(asyncio.Event):\n    def n(self): return self._value",
            "A has _value",
        ),
        (
            "from asyncio import Event as E\nclass A(E): ...\nclass B(A):\n    def _x(self): self._waiters",
            "B has _waiters",
        ),
        ("x = loop._ready  # pyright: ignore[reportPrivateUsage]", "lets a type checker"),
    ],
)
def test_a_private_name_of_a_library_is_found(source: str, words: str) -> None:
    assert words in " ".join(private(given(transport__x=source)))


def test_a_class_between_ours_and_the_librarys_hides_no_private_name() -> None:
    above = "import asyncio\nclass A(asyncio.Event): ..."
    below = "from colonnade.transport.a import A\nclass B(A):\n    def f(self): self._value = True"
    assert list(private(given(transport__a=above))) == []
    assert "B has _value" in " ".join(private(given(transport__a=above, transport__b=below)))


def test_what_a_library_documents_is_fine() -> None:
    source = """
import asyncio
import msgspec.json
from asyncio import Future
from click.core import ParameterSource
from cryptography.hazmat.primitives.asymmetric import ec
from httptools import HttpRequestParser, __version__
from msgspec.structs import replace
PIPE = asyncio.subprocess.PIPE
class A(asyncio.Protocol):
    def _own(self) -> None:
        self._more = asyncio.Event()
"""
    assert list(private(given(transport__x=source))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import time",
        "from os import environ",
        "def f():\n    import socket",
        "import urllib.request",
        "from urllib import request",
        "import random as dice",
        "import logging",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
        "import uuid\nuuid.uuid4()",
        "open('x')",
        "print(1)",
        "import sys\nsys.stderr",
        "import pathlib\npathlib.Path('x').read_text()",
        "async def f(): ...",
    ],
)
def test_a_protocol_that_touches_the_world_is_found(source: str) -> None:
    assert list(impure_calls(given(protocol__link=source)))
    assert list(impure_calls(given(transport__stdio=source))) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("server__app", "if peer.revision.date >= '2026-07-28': ..."),
        ("protocol__revision", "older = a.date < b.date"),
        ("protocol__types", "def knows(self, since): return since <= self.date"),
        ("protocol__types", "old = since <= '2025-06-18'"),
        ("protocol__revision", "peer.protocol_version > b'2025-06-18'"),
        ("server__app", "sorted(known, key=lambda r: r.date)"),
        ("protocol__revision", "max(r.date for r in ALL)"),
        ("protocol__revision", "known.sort(key=attrgetter('date'))"),
        ("server__app", "NEW = '2026-07-28'"),
        ("protocol__link", "if revision.date == '2024-11-05': ..."),
        ("protocol__link", "if revision is JULY_2026: ..."),
        ("protocol__link", "if revision in (revisions.MARCH_2025, JUNE_2025): ..."),
        ("protocol__link", "match revision:\n    case revisions.JULY_2026: ..."),
    ],
)
def test_a_revision_told_by_its_date_or_name_is_found(name: str, source: str) -> None:
    assert list(dates(given(**{name: source})))


def test_dates_are_written_where_they_belong_and_compared_for_equality_only() -> None:
    modules = given(
        protocol__revision="MARCH_2025 = replace(x, date='2025-03-26')\nr is MARCH_2025\n"
        "class Revision:\n    def knows(self, since): return since <= self.date",
        protocol__types="since('2025-06-18')",
        protocol__schema="isinstance(x, datetime.date)\nkinds = (datetime.date < y)",
        protocol__httprules="'''Since 2025-06-18 the header counts.'''\nheader == revision.date",
        server__app="default = JULY_2026",
    )
    assert list(dates(modules)) == []
