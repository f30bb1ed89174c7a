"""One catalogue of many servers: every name is safe, leads back, and stays where it is."""

import random
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.host.config.settings import HostProblem, Settings
from colonnade.host.servers.naming import (
    MAX_NAMESPACE,
    ListedNames,
    NameClaims,
    NameIndex,
    QualifiedName,
    alias_problem,
    namespace_problem,
    qualified_name,
)

SAFE = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
PLAIN = Settings()

# What makes names long, foreign, alike once made safe, or alike once put together.
PIECES = (
    *("a", "b", "c", "_", "__", ".", " ", "-", "/", "é", "読む", "🗂", "x" * 40, "read", "READ"),
    *("_80c18f42e2d6", "80c18f42e2d6", "_0123456789ab", "\n", "\0", "\ud800", "%", "tool_"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=100)


def listings(servers: Iterable[tuple[str, Iterable[str]]]) -> list[ListedNames]:
    return [(key, PLAIN, names) for key, names in servers]


@given(TEXTS, TEXTS)
def test_every_name_is_safe_and_has_both_parts(namespace: str, name: str) -> None:
    qualified = qualified_name(namespace, name)
    assert SAFE.match(qualified), qualified
    first, _, second = qualified.partition("__")
    assert 0 < len(first) <= MAX_NAMESPACE
    assert second


@given(TEXTS, TEXTS, TEXTS)
def test_the_first_part_is_of_the_server_alone(namespace: str, one: str, other: str) -> None:
    firsts = {qualified_name(namespace, name).partition("__")[0] for name in (one, other)}
    assert len(firsts) == 1


@given(st.sets(TEXTS, min_size=2, max_size=8))
def test_no_two_servers_have_the_same_first_part(namespaces: set[str]) -> None:
    """What a policy says of `files__*` is said of one server."""
    firsts = {qualified_name(namespace, "read").partition("__")[0] for namespace in namespaces}
    assert len(firsts) == len(namespaces)


@given(st.dictionaries(TEXTS, st.lists(TEXTS, unique=True, max_size=8), max_size=6))
def test_all_names_are_distinct_and_lead_back(servers: dict[str, list[str]]) -> None:
    names = NameIndex(listings(servers.items()))
    assert names.problems == ()
    assert [(one.server, one.own) for one in names] == [
        (key, own) for key, owns in servers.items() for own in owns
    ]
    for one in names:
        assert names.find(one.name) == names.of(one.server, one.own) == one
    assert len({one.name for one in names}) == len(names)


@given(
    st.dictionaries(TEXTS, st.lists(TEXTS, unique=True, max_size=4), min_size=1, max_size=6),
    st.data(),
)
def test_no_name_moves_when_another_server_goes(
    servers: dict[str, list[str]], data: st.DataObject
) -> None:
    before = NameIndex(listings(servers.items()))
    gone = data.draw(st.sampled_from(sorted(servers)))
    left = data.draw(st.permutations([item for item in servers.items() if item[0] != gone]))
    after = NameIndex(listings(left))
    assert {one for one in before if one.server != gone} == set(after)


def test_ten_thousand_random_names_fit_differ_lead_back_and_stay() -> None:
    servers = random_servers(random.Random(20260728))
    assert sum(map(len, servers.values())) == 10_000
    names = NameIndex(listings(servers.items()))
    assert names.problems == ()
    qualified = {one.name for one in names}
    assert len(qualified) == 10_000
    assert all(map(SAFE.match, qualified))
    assert len({name.partition("__")[0] for name in qualified}) == sum(map(bool, servers.values()))
    assert all(
        names.find(qualified_name(key, own)) == QualifiedName(qualified_name(key, own), key, own)
        for key, owns in servers.items()
        for own in owns
    )
    for gone in list(servers)[::40]:
        left = NameIndex(listings(item for item in servers.items() if item[0] != gone))
        assert set(left) == {one for one in names if one.server != gone}


def random_servers(dice: random.Random) -> dict[str, list[str]]:
    """10,000 tools of some 200 servers, with all the tricks that we know."""
    servers: dict[str, dict[str, None]] = {
        "a": dict.fromkeys(["b__c", "_b__c", "b", "b_", "__", ""]),
        "a__b": dict.fromkeys(["c", "_c", "", "b"]),
        "a_": dict.fromkeys(["b__c", "_b__c", "b"]),
        "a___b": dict.fromkeys(["c", "b"]),
        "_a": dict.fromkeys(["b", "_b"]),
        "": dict.fromkeys(["", "a", "a__b"]),
        "a.b": dict.fromkeys(["c", "c.d", "c d", "c/d", "c_d"]),
        "a b": dict.fromkeys(["c", "c.d"]),
    }
    for key, owns in list(servers.items()):
        # Whoever knows how we name things may name things so.
        for own in list(owns):
            posing = qualified_name(key, own)
            first, _, second = posing.partition("__")
            servers.setdefault(first, {})[second] = None
            servers.setdefault(key, {})[second] = None
            servers.setdefault("a", {})[posing] = None
            servers.setdefault(posing, {})[own] = None
    while len(servers) < 200:
        servers.setdefault(random_text(dice), {})
    keys = list(servers)
    left = 10_000 - sum(map(len, servers.values()))
    while left:
        owns = servers[dice.choice(keys)]
        before = len(owns)
        owns[random_text(dice)] = None
        left -= len(owns) - before
    return {key: list(owns) for key, owns in servers.items()}


def random_text(dice: random.Random) -> str:
    text = "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 6)))
    return text if dice.random() < 0.8 else (text * 100)[:100]


def test_a_name_is_the_same_in_every_process_and_version() -> None:
    """These are in people's policies and logs: a change of them is a change of the interface."""
    assert qualified_name("files", "read") == "files__read"
    assert qualified_name("files", "read__all_") == "files__read__all_"
    assert qualified_name("git-hub_2", "80c18f42e2d6") == "git-hub_2__80c18f42e2d6"
    assert qualified_name("files", "notes.write") == "files__notes_write_80c18f42e2d6"
    assert qualified_name("notes.write", "read") == "notes_write_80c18f42e2d6__read"
    assert qualified_name("", "") == "server_e3b0c44298fc__item_e3b0c44298fc"
    assert qualified_name("a__b", "c") == "a_b_" + qualified_name("a__b", "c")[4:16] + "__c"
    assert len(qualified_name("s" * 32, "t" * 30)) == 64
    assert qualified_name("s" * 32, "t" * 31)[:52] == "s" * 32 + "__" + "t" * 17 + "_"


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        ("", "not be empty"),
        ("a.b", "letters a-z"),
        ("größe", "letters a-z"),
        ("a" * 33, "longer than 32"),
        ("a" * 100, "longer than 32"),
        ("a__b", "nor contain"),
        ("_a", "begin"),
        ("a_", "end"),
        ("a_0123456789ab", "digest"),
    ],
)
def test_a_namespace_that_cannot_stand_in_names_is_told_why(namespace: str, words: str) -> None:
    assert words in (namespace_problem(namespace) or "")
    claims = NameClaims([("s", Settings(namespace=namespace))])
    (problem,) = claims.problems
    assert problem.server == "s"
    first = qualified_name(namespace, "x").partition("__")[0]
    assert problem.message.endswith(f"for now names of server 's' begin with '{first}__'")
    assert claims.namespaces == {"s": namespace}


@pytest.mark.parametrize("namespace", ["a", "a_b", "A-1", "-", "0123456789ab", "a" * 32])
def test_a_plain_namespace_is_fine(namespace: str) -> None:
    assert namespace_problem(namespace) is None
    assert qualified_name(namespace, "x") == f"{namespace}__x"


def test_an_alias_is_a_safe_name_that_no_made_name_can_be() -> None:
    assert alias_problem("read") is None
    assert alias_problem("_read_") is None
    for wrong in ("", "a b", "a.b", "x" * 65, "読む"):
        assert "1 to 64 letters" in (alias_problem(wrong) or "")
    assert "contains '__'" in (alias_problem("files__read") or "")


def test_an_alias_leads_to_the_same_as_the_name() -> None:
    settings = Settings(namespace="fs", aliases={"look": "read.file", "see": "read.file"})
    names = NameIndex([("files", settings, ["read.file", "write"])])
    named = names.of("files", "read.file")
    assert named is not None
    assert named.name.startswith("fs__read_file_")
    assert named.aliases == ("look", "see")
    assert names.find("look") is names.find("see") is names.find(named.name) is named
    assert names.find("read.file") is None
    assert names.problems == ()


def test_of_two_equal_aliases_the_first_counts_and_the_other_is_a_problem() -> None:
    one, two = Settings(aliases={"look": "read"}), Settings(aliases={"look": "see", "a__b": "see"})
    names = NameIndex([("one", one, ["read"]), ("two", two, ["see"])])
    assert names.find("look") == ("one__read", "one", "read", ("look",))
    assert names.of("two", "see") == ("two__see", "two", "see", ())
    first, second = names.problems
    assert first == HostProblem(
        "two",
        "the alias 'look' stands for 'read' of server 'one' already; choose another one for 'see' of "
        "server 'two'",
    )
    assert "'a__b' contains '__'" in second.message
    assert "for 'see' of server 'two'" in second.message


def test_nobody_takes_the_namespace_of_another() -> None:
    """Else what somebody allowed of `files__*` would be allowed of a server that came later."""
    thief = Settings(namespace="files")
    names = NameIndex([("thief", thief, ["read", "steal"]), ("files", PLAIN, ["read"])])
    assert [one.name for one in names] == ["files__read"]
    assert names.find("files__read") == ("files__read", "files", "read", ())
    (problem,) = names.problems
    assert problem.server == "thief"
    assert "wants the namespace 'files', which belongs to server 'files'" in problem.message


def test_of_two_that_ask_for_one_namespace_the_first_has_it() -> None:
    asking = Settings(namespace="fs")
    names = NameIndex([("one", asking, ["x"]), ("two", asking, ["y"])])
    assert [one.name for one in names] == ["fs__x"]
    assert [problem.server for problem in names.problems] == ["two"]


def test_a_key_whose_server_goes_by_another_namespace_is_free() -> None:
    servers = [("one", Settings(namespace="fs")), ("two", Settings(namespace="one"))]
    claims = NameClaims(servers)
    assert claims.namespaces == {"one": "fs", "two": "one"}
    assert claims.problems == ()


def test_what_is_hidden_has_no_name_and_is_not_led_to() -> None:
    settings = Settings(only=("read_*", "look"), hidden=("*_secret",), aliases={"s": "read_secret"})
    names = NameIndex([("files", settings, ["read_text", "read_secret", "look", "write"])])
    assert [one.own for one in names] == ["read_text", "look"]
    assert names.find("files__write") is names.find("s") is None
    assert names.of("files", "read_secret") is None
    assert names.problems == ()


def test_what_a_server_lists_twice_is_there_once_and_reported() -> None:
    repeated = ["a", "b", "a", "a", *"cdefgh", *"cdefgh"]
    names = NameIndex(listings([("one", repeated), ("two", ["a"])]))
    assert [one.name for one in names] == [*(f"one__{own}" for own in "abcdefgh"), "two__a"]
    (problem,) = names.problems
    assert problem == HostProblem(
        "one",
        "server 'one' lists 'a', 'c', 'd', 'e', 'f' and 2 others more than once; the first of each "
        "is used",
    )


def test_of_two_with_one_digest_the_first_is_shown_and_the_other_reported() -> None:
    """Nobody meets this by chance; these two were searched for."""
    names = NameIndex(listings([("s", ["仱二乐乖丰什", "为么丣么仫仠", "read"])]))
    assert [one.name for one in names] == ["s__item_fa50f8625641", "s__read"]
    assert names.find("s__item_fa50f8625641") == names.of("s", "仱二乐乖丰什")
    assert names.of("s", "为么丣么仫仠") is None
    (problem,) = names.problems
    assert (
        "'为么丣么仫仠' of server 's' has the same qualified name 's__item_fa50f8625641'"
        in problem.message
    )
