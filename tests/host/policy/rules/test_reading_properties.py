"""What a server reads as a denied value is denied, however it was sent; for servers of our own, for
pydantic lax and strict, for msgspec, and for servers that decode JSON in strings before that."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from colonnade.host.policy.request import PolicyRequest
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol import types as t
from colonnade.signatures.signature import Signature
from host.policies import asked

MANY = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@dataclass
class User:
    name: str
    age: int = 40
    admin: bool = False


class Model(pydantic.BaseModel):
    name: str
    limit: float = 1.5
    tags: list[int] = []


class Options(TypedDict, total=False):
    force: bool
    counts: list[int]


KINDS: list[Any] = [
    *(int, float, bool, str, Decimal, Fraction, UUID, date, IPv4Address, IPv6Address),
    *(int | None, list[int], list[bool], dict[str, int], dict[int, str], list[dict[str, bool]]),
    *(User, Model, Options, Literal["a", 1, True], list[User]),
]

Reader = Callable[[Any, bytes], Any]


@cache
def signature_of(kind: Any) -> Signature:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = kind
    return Signature(tool)


@cache
def adapter_of(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def by_our_server(kind: Any, raw: bytes) -> Any:
    return signature_of(kind).decode(b'{"value":' + raw + b"}")["value"]


def by_pydantic(kind: Any, raw: bytes) -> Any:
    return adapter_of(kind).validate_json(raw)


def by_strict_pydantic(kind: Any, raw: bytes) -> Any:
    return adapter_of(kind).validate_json(raw, strict=True)


def by_lax_msgspec(kind: Any, raw: bytes) -> Any:
    return msgspec.json.decode(raw, type=kind, strict=False)


def by_decoding_strings(kind: Any, raw: bytes) -> Any:
    """As servers of FastMCP and the official SDK do it: strings are decoded as JSON before."""
    value = json.loads(raw)
    return adapter_of(kind).validate_python(json.loads(value) if isinstance(value, str) else value)


READERS: list[Reader] = [
    by_our_server,
    by_pydantic,
    by_strict_pydantic,
    by_lax_msgspec,
    by_decoding_strings,
]


# ---------------------------------------------------------------- what is sent

INTEGERS = st.integers(-3, 3) | st.sampled_from([10, 2**53 + 1, 1798070400, 2130706433])
NUMBERS = INTEGERS | st.sampled_from([0.5, 1.0, 1.5, 1e3, -0.0])


def spelled(number: float) -> st.SearchStrategy[str]:
    plain = f"{number}"
    forms = [plain, f" {plain}\n", f"+{plain}", f"\u2003{plain}", f"{plain}.0", f"{plain}e0"]
    forms += [f"00{plain}", f"0_{plain}", "0" * 450 + plain, f"{plain}." + "0" * 450, f"{plain}/1"]
    return st.sampled_from(forms)


WORDS = [*("true", "TRUE", "yes", "Yes", "on", "y", "t", "1"), *("false", "no", "off", "n", "f")]
ID = "8d8ac610-566d-4ef0-9c22-186b2a5ed793"
TEXTS = [
    *(*WORDS, "a", "admin", "Infinity", "", "x y", '"admin"', " true ", "null"),
    *(ID, ID.upper(), ID.replace("-", ""), f"urn:uuid:{ID}", f"{{{ID}}}"),
    *("2026-12-24", "2026-12-24T00:00:00Z", "2026-12-24 00:00", "2026-12-24T00:00:00"),
    *("127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "FE80::1"),
]
STRINGS = st.sampled_from(TEXTS) | NUMBERS.flatmap(spelled)
SCALARS = NUMBERS | st.booleans() | STRINGS | st.none()
NAMES = ["name", "age", "admin", "limit", "tags", "force", "counts", "1", "01", " 1 "]


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.lists(inner, max_size=3) | objects | (st.lists(inner) | objects).map(json.dumps)


VALUES = st.recursive(SCALARS, containers, max_leaves=6)
FITTING = (
    st.fixed_dictionaries(
        {"name": st.sampled_from(["ann", "admin"])},
        optional={"age": SCALARS, "admin": SCALARS, "limit": SCALARS, "tags": VALUES},
    )
    | st.fixed_dictionaries({}, optional={"force": SCALARS, "counts": VALUES})
    | st.dictionaries(st.sampled_from(["1", "01", "name"]), SCALARS)
    | st.lists(SCALARS, max_size=3)
)
SENT = VALUES | FITTING | FITTING.map(json.dumps) | FITTING.map(json.dumps).map(json.dumps)


# ---------------------------------------------------------------- what is read


def read_by(reader: Reader, kind: Any, sent: Any) -> Any:
    """What a server reads, as JSON; UNSET if it refuses the value."""
    try:
        value = reader(kind, json.dumps(sent).encode())
    except Exception:
        return msgspec.UNSET
    if isinstance(value, Fraction):  # which pydantic dumps as text
        return value
    return adapter_of(Any).dump_python(value)


def leaves(value: Any, path: str = "/value") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, f"{path}/{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from leaves(one, f"{path}/{index}")
    elif value is not None:
        yield path, value


def literal(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)


def conditions(value: Any) -> Iterator[Any]:
    """Conditions that this value meets."""
    if isinstance(value, bool):
        yield value
    elif isinstance(value, int | float):
        if value == value:
            yield from (value, {"min": value, "max": value})
    elif isinstance(value, Decimal | Fraction):
        whole = int(value) if value == int(value) else float(value)
        if whole == value:
            yield from (whole, {"min": whole, "max": whole})
        else:
            yield {"above": float(value) - 1e-9, "below": float(value) + 1e-9}
    elif len(str(value)) < 400:
        yield literal(str(value))


def sent_to(kind: Any, sent: Any) -> PolicyRequest:
    """A call with this value for a parameter of this type."""
    definition = t.Tool(name="read", input_schema=signature_of(kind).schema)
    request = asked(arguments=json.dumps({"value": sent}).encode())
    return replace(request, definition=definition, definition_digest=repr(kind))


@MANY
@given(st.sampled_from(KINDS), SENT)
@example(User, '{"name": "admin"}')
@example(dict[int, str], {"01": "x"})
@example(float, "1e3")
def test_what_a_server_reads_as_a_denied_value_is_denied(kind: Any, sent: Any) -> None:
    found = [
        read for reader in READERS if (read := read_by(reader, kind, sent)) is not msgspec.UNSET
    ]
    request = sent_to(kind, sent)
    for path, value in [leaf for read in found for leaf in leaves(read)]:
        for condition in conditions(value):
            for place in (path, "/value"):
                policy = Policy([Rule("deny", arguments={place: condition})], default="allow")
                assert policy.decide(request).action == "deny", (place, condition)


@dataclass
class Check:
    """A condition, and whether a value that a server reads meets it."""

    condition: Any
    holds: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Whether it is one; a server that reads 1 as true has read what was allowed."""
    return isinstance(value, int | float | Decimal | Fraction)


CHECKS = [
    Check({"max": 2}, lambda value: is_number(value) and value <= 2),
    Check({"above": 0, "not": 1}, lambda value: is_number(value) and value > 0 and value != 1),
    Check({"not": 1}, lambda value: value != 1),
    Check({"not": [True, False]}, lambda value: not isinstance(value, bool)),
    Check({"not": True}, lambda value: value is not True),
    Check(False, lambda value: value is False),
    Check({"not": "admin"}, lambda value: value != "admin"),
    Check("a*", lambda value: isinstance(value, str) and value.startswith("a")),
]


# A number that is read as a date or an address is the number that was allowed.
COMPARED = [one for one in KINDS if one not in (date, IPv4Address, IPv6Address)]


@MANY
@given(st.sampled_from(COMPARED), SENT, st.sampled_from(CHECKS))
def test_what_a_rule_allows_meets_its_condition_as_every_server_reads_it(
    kind: Any, sent: Any, check: Check
) -> None:
    request = sent_to(kind, sent)
    policy = Policy([Rule("allow", arguments={"value": check.condition})], default="deny")
    is_allowed = policy.decide(request).action == "allow"
    for reader in READERS if is_allowed else ():
        read = read_by(reader, kind, sent)
        if read is not msgspec.UNSET:
            for _, value in leaves(read):
                assert check.holds(value), (reader, value)
