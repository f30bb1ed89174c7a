"""Patterns of rules: what a glob matches, how long that takes, and the readings of a value."""

import random
from itertools import product

import pytest

from colonnade.errors import InvalidArgument
from colonnade.host.policy.rules.patterns import (
    EVERY_READING,
    FOLDED,
    MAX_COMPARED_CHARACTERS,
    MAX_PATTERN_CHARACTERS,
    NORMAL,
    PLAIN,
    WRITTEN,
    Glob,
    TextPattern,
    normalized,
    normalized_pattern,
)
from colonnade.text import has_hidden

# ---------------------------------------------------------------- globs


@pytest.mark.parametrize(
    ("pattern", "text", "crossing", "within"),
    [
        ("", "", True, True),
        ("", "a", False, False),
        ("*", "", True, True),
        ("*", "a/b", True, False),
        ("**", "a/b", True, True),
        ("a*c", "abbbc", True, True),
        ("a*c", "ab/bc", True, False),
        ("a*c", "ab", False, False),
        ("a?c", "abc", True, True),
        ("a?c", "a/c", True, False),
        ("a?c", "ac", False, False),
        ("/srv/**", "/srv/a/b", True, True),
        ("/srv/**", "/srv", True, False),
        ("/srv/**", "/srvx", False, False),
        ("/srv/*", "/srv/a", True, True),
        ("/srv/*", "/srv/a/b", True, False),
        ("/srv/*", "/srv/a\\b", True, False),
        ("/a/**/b", "/a/b", True, True),
        ("/a/**/b", "/a/x/y/b", True, True),
        ("/a/**/b", "/ab", False, False),
        ("**/x", "/x", True, True),
        ("[a-c]x", "bx", True, True),
        ("[!a-c]x", "bx", False, False),
        ("[!a-c]x", "dx", True, True),
        ("[]]", "]", True, True),
        ("[a-]", "-", True, True),
        ("[*]", "*", True, True),
        ("[*]", "x", False, False),
        ("a.b", "axb", False, False),
        ("ä*", "äx", True, True),
    ],
)
def test_a_glob_matches_the_whole_text(
    pattern: str, text: str, crossing: bool, within: bool
) -> None:
    assert Glob(pattern).matches(text) is crossing
    assert Glob(pattern, crosses=False).matches(text) is within


def slow_match(pattern: str, text: str, crosses: bool, *, or_folder: bool = True) -> bool:
    """The same by the definition, for short texts: it tries everything."""

    def rest(at: int, position: int) -> bool:
        if at == len(pattern):
            return position == len(text)
        if pattern[at] == "*":
            end = at
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            free = crosses or end - at > 1
            folders = end - at > 1 and pattern[:at].endswith("/") and pattern[end:][:1] == "/"
            if folders and rest(end + 1, position):
                return True
            stop = position
            while stop < len(text) and (free or text[stop] != "/"):
                stop += 1
            return any(rest(end, one) for one in range(position, stop + 1))
        if position == len(text):
            return False
        if pattern[at] == "?":
            return (crosses or text[position] != "/") and rest(at + 1, position + 1)
        return pattern[at] == text[position] and rest(at + 1, position + 1)

    if rest(0, 0):
        return True
    folder = pattern.rstrip("*")
    is_folder = or_folder and crosses and pattern.endswith("**") and folder != "/"
    is_folder = is_folder and folder.endswith("/")
    return is_folder and slow_match(folder[:-1], text, crosses, or_folder=False)


def test_a_glob_agrees_with_a_matcher_that_tries_everything() -> None:
    numbers = random.Random(21)
    for _ in range(20_000):
        pattern = "".join(numbers.choice(["a", "b", "/", "*", "?", "**"]) for _ in range(5))
        text = "".join(numbers.choice("ab/") for _ in range(numbers.randrange(8)))
        crosses = numbers.random() < 0.5
        expected = slow_match(pattern, text, crosses)
        assert Glob(pattern, crosses=crosses).matches(text) is expected, (pattern, text, crosses)


def test_a_pattern_of_many_stars_takes_time_in_proportion_to_the_text() -> None:
    """With backtracking this would take longer than the universe exists."""
    glob = Glob("*a" * 200 + "b", crosses=False)
    assert not glob.matches("a" * 20_000)


@pytest.mark.parametrize(
    ("pattern", "prefix", "expected"),
    [
        ("files__*", "files__", True),
        ("files__*", "git__", False),
        ("*__delete", "git__", True),
        ("f*", "files__", True),
        ("files__read", "files__", True),
        ("files", "files__", False),
    ],
)
def test_a_glob_knows_whether_it_can_match_a_prefix(
    pattern: str, prefix: str, expected: bool
) -> None:
    assert Glob(pattern).may_begin_with(prefix) is expected


@pytest.mark.parametrize("pattern", ["a" * (MAX_PATTERN_CHARACTERS + 1), "[abc", "[", "[]"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        Glob(pattern)


# ---------------------------------------------------------------- readings


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("/srv/../etc/passwd", "/etc/passwd"),
        ("/srv/./a//b/", "/srv/a/b"),
        ("/../../etc", "/etc"),
        ("a/../../b", "../b"),
        ("..", ".."),
        ("/", "/"),
        ("/srv/%2e%2e/etc", "/etc"),
        ("/srv/%252e%252e%252fetc", "/etc"),
        ("/srv/..%5cetc", "/etc"),
        ("\\srv\\..\\etc", "/etc"),
        ("C:\\srv\\..\\etc", "C:/etc"),
        ("/etc/pass\u200bwd", "/etc/passwd"),
        ("/etc/passwd\0.txt", "/etc/passwd"),
        ("/etc/passwd ", "/etc/passwd"),
        ("/\uff45tc/passwd", "/etc/passwd"),
        ("file:///srv/../etc", "file:///etc"),
        ("FILE:///srv/%2e%2e/etc", "file:///etc"),
        ("HTTPS://Example.COM//a/../b", "https://example.com/b"),
        ("https://example.com", "https://example.com"),
    ],
)
def test_a_path_is_read_as_a_program_may_read_it(text: str, read: str) -> None:
    assert normalized(text) == read


def invisible_characters() -> list[str]:
    """Every one of the first plane, of the tags and of the marks of `normalized_pattern`, and some
    of the others."""
    codes = [*range(0x10000), *range(0x10000, 0x110000, 97), *range(0xE0000, 0xE1000)]
    codes += range(0xF0000, 0xF0200)
    return [one for one in map(chr, codes) if has_hidden(one) or one in "\t\n\r"]


def test_no_invisible_character_hides_a_word_from_a_pattern() -> None:
    pattern = TextPattern("*rm -rf*", crosses=True)
    hiding = [
        hex(ord(one))
        for one in invisible_characters()
        # A program reads no further than a NUL, which is judged by another test.
        if one != "\0" and pattern.readings(f"sudo r{one}m -rf /") == 0
    ]
    assert hiding == []


def test_an_accent_behind_an_invisible_character_belongs_to_its_letter() -> None:
    assert normalized("/caf\u0065\u034f\u0301") == "/café"


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("/srv/**", "/srv/**"),
        ("notes://my%20secret/**", "notes://my secret/**"),
        ("/srv/%252e/%61?[a-z]", "/srv/a?[a-z]"),
        ("C:\\Windows\\**", "C:/Windows/**"),
        ("C:[\\]Windows", "C:[/\\]Windows"),
        ("/etc/./x//y/", "/etc/x/y"),
        ("/srv/../etc/*", "/etc/*"),
        ("/100%25/%2a%3F%5b", "/100%/[*][?][[]"),
        ("/srv/\uff0a", "/srv/[*]"),
        ("HTTP*://Example.com//a/*", "http*://example.com/a/*"),
        ("*://example.com/a//*", "*://example.com/a/*"),
        ("file:///**", "file:///**"),
        ("file://**", "file://**"),
        ("**/.ssh/", "**/.ssh"),
        ("~//.ssh/**", "~/.ssh/**"),
        ("./**/x", "./**/x"),
        (".//*", "./*"),
        ("a/../*", "./*"),
        ("./a/*", "a/*"),
        ("../*", "../*"),
        ("", ""),
        (".", ""),
        ("\U000f0000*", "\U000f0000*"),
        # about the way to write a path
        ("*\\*", "*\\*"),
        ("**//**", "**//**"),
        ("**/../**", "**/../**"),
        ("/srv/*/../x", "/srv/*/../x"),
        ("*%00*", "*%00*"),
        ("*%2f*", "*%2f*"),
    ],
)
def test_a_pattern_is_read_as_the_texts_are(pattern: str, read: str) -> None:
    assert normalized_pattern(pattern) == read


@pytest.mark.parametrize("crosses", [True, False])
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("/etc/", ("/etc", "/etc/", "/etc//", "/./etc")),
        ("/etc/./x", ("/etc/x", "/etc//x")),
        ("/etc//x", ("/etc/x", "/etc/./x")),
        ("//host/share/**", ("//host/share/x", "\\\\host\\share\\x")),
        ("C:\\Windows\\**", ("C:\\Windows\\x", "C:/Windows/x", "C:\\a\\..\\Windows\\x")),
        ("C:\\*\\*", ("C:/a/b", "c:\\a\\b")),
        ("C:[\\]x", ("C:/x", "C:\\x")),
        (
            "notes://my%20secret/**",
            ("notes://my%20secre%74/a", "notes://my secret/a", "notes://M%79%20secret/a"),
        ),
        ("./secret/*", ("secret/a", "./secret/a", ".//secret/a", "x/../secret/a")),
        ("./**", ("a", "./a", ".//a", "a/b")),
    ],
)
def test_no_other_spelling_gets_around_a_pattern_however_that_is_written(
    pattern: str, texts: tuple[str, ...], crosses: bool
) -> None:
    for text in texts:
        assert TextPattern(pattern, crosses=crosses).readings(text) & FOLDED, text


def test_a_pattern_of_relative_paths_is_not_for_absolute_ones() -> None:
    for pattern in ("./**", ".//*", "a/../**"):
        assert TextPattern(pattern, crosses=True).readings("/etc/x") == 0


def test_a_pattern_with_an_escape_is_met_in_every_reading_by_the_same_text() -> None:
    """So that `allow` can have one."""
    pattern = TextPattern("/srv/a%20b/**", crosses=False)
    assert pattern.readings("/srv/a%20b/x") == EVERY_READING
    assert pattern.readings("/srv/a b/x") == NORMAL | FOLDED


def test_a_plain_value_has_one_reading() -> None:
    assert TextPattern("/srv/**", crosses=False).readings("/srv/a.txt") == EVERY_READING
    assert TextPattern("/srv/**", crosses=False).readings("/etc/a.txt") == 0


def test_a_text_that_is_compared_once_is_the_same_in_every_reading() -> None:
    texts = ["".join(one) for size in range(6) for one in product("/.a%A\\ é", repeat=size)]
    plain = [one for one in texts if PLAIN.fullmatch(one)]
    assert plain == [one for one in plain if normalized(one) == one == one.casefold()]
    assert {"", "/", "a", "/a/a", "a.a/a", "/.a", "..a", "..."} <= set(plain)


def test_a_path_that_climbs_out_matches_only_as_it_is_written() -> None:
    assert TextPattern("/srv/**", crosses=False).readings("/srv/../etc") == WRITTEN
    assert TextPattern("/etc/**", crosses=True).readings("/srv/../etc/x") == NORMAL | FOLDED


def test_another_case_matches_in_one_reading() -> None:
    assert TextPattern("/etc/**", crosses=True).readings("/ETC/x") == FOLDED
    assert TextPattern("PROD", crosses=True).readings("prod") == FOLDED


def test_a_text_that_is_too_long_is_not_compared_and_the_strict_answer_counts() -> None:
    long = "a" * (MAX_COMPARED_CHARACTERS + 1)
    assert TextPattern("a*", crosses=False).readings(long) == 0
    assert TextPattern("b*", crosses=True).readings(long) == EVERY_READING
