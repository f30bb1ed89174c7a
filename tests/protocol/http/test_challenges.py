"""What is read from `WWW-Authenticate`, whatever a server writes there (CL-01)."""

import pytest

from colonnade.protocol.http.challenges import MAX_CHALLENGES, MAX_REASON, read_challenges


@pytest.mark.spec("R0309")
@pytest.mark.parametrize(
    "line",
    [
        'Bearer resource_metadata="https://a/x", scope="a b"',
        'bearer RESOURCE_METADATA="https://a/x",Scope="a b"',
        'Basic realm="x, y", Bearer resource_metadata="https://a/x", scope="a b"',
        'Negotiate, Bearer resource_metadata="https://a/x" , scope="a b"',
        'Negotiate TlRMTVNTUAAB==, Bearer unknown=1, resource_metadata="https://a/x", scope="a b"',
        'Bearer realm="say \\"hi\\", ok", resource_metadata="https://a/x", scope="a b", Digest q="x"',
        'Bearer resource_metadata = "https://a/x" ,\tscope="a b"',
        ', ,Bearer resource_metadata="https://a/x",, scope="a b"',
    ],
)
def test_cl_01_a_challenge_is_found_however_it_is_written(line: str) -> None:
    found = read_challenges([line])
    assert found.parameter("resource_metadata") == "https://a/x"
    assert found.scopes == ("a", "b")


def test_cl_01_several_lines_are_one_list() -> None:
    found = read_challenges(['Basic realm="x"', 'DPoP algs="ES256"', 'Bearer scope="a"'])
    assert [one.scheme for one in found.all] == ["basic", "dpop", "bearer"]
    assert [one.scheme for one in found.token_challenges] == ["dpop", "bearer"]
    assert found.wants_dpop
    assert found.scopes == ("a",)


@pytest.mark.parametrize(
    "line",
    ["", ",,,", '"', "Bearer", "Bearer =", 'Bearer scope="open', "Bearer \x00", "é ü", "=", "a=b"],
)
def test_cl_01_what_is_no_challenge_says_nothing(line: str) -> None:
    found = read_challenges([line])
    assert found.parameter("resource_metadata") is None
    assert found.scopes is None


def test_cl_01_a_parameter_of_another_scheme_is_not_ours() -> None:
    found = read_challenges(['Basic resource_metadata="https://evil/x", scope="z", Bearer'])
    assert found.parameter("resource_metadata") is None
    assert found.scopes is None


def test_cl_01_the_first_of_two_with_one_name_counts() -> None:
    assert read_challenges(['Bearer scope="a", scope="b"']).scopes == ("a",)


def test_cl_01_nobody_makes_us_read_for_ever() -> None:
    assert len(read_challenges(["Bearer, " * 100_000]).all) == MAX_CHALLENGES
    assert len(read_challenges([",".join(f"a{n}=b" for n in range(10_000))]).all) <= MAX_CHALLENGES
    many = read_challenges(["Bearer " + ",".join(f"a{n}=b" for n in range(500))])
    assert len(many.all[0].parameters) <= 32


def test_an_empty_scope_is_one_that_was_said() -> None:
    assert read_challenges(['Bearer scope=""']).scopes == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Bearer", ""),
        ('Bearer scope="a"', ""),
        ('Bearer error="invalid_token"', "invalid_token"),
        ('Basic error="x", Bearer realm="y"', ""),
        (
            'Bearer error="invalid_token", error_description="the token has expired"',
            "invalid_token: the token has expired",
        ),
        (
            'Bearer error="insufficient_scope", error_description="no", scope="a b"',
            "insufficient_scope: it needs the scope a b",
        ),
        ('Bearer error="insufficient_scope", error_description="no"', "insufficient_scope: no"),
        ('DPoP algs="ES256", Bearer error="invalid_token"', "invalid_token"),
        ('Bearer error="a", error_description="b\t \u202e c"', "a: b \\u202e c"),
        ("Bearer /abc", ""),
    ],
)
def test_the_reason_of_a_refusal_is_one_line_for_people(line: str, reason: str) -> None:
    assert read_challenges([line]).reason == reason


def test_the_reason_of_a_refusal_is_cut_where_it_is_long() -> None:
    found = read_challenges([f'Bearer error="a", error_description="{"b" * 5000}"']).reason
    assert len(found) == MAX_REASON + 1
    assert found.endswith("b…")
