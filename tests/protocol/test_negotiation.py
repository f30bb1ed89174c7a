"""Who is on the other side, and which revision is spoken: every outcome, in the order of the checks."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from colonnade.errors import Fault
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import Request, encode
from colonnade.protocol.negotiation import (
    MAX_QUOTED,
    UNVERSIONED,
    Peer,
    PeerDetector,
    VersionHeaders,
    name_and_version,
)
from colonnade.protocol.negotiation_cache import MAX_REMEMBERED, MAX_REMEMBERED_BYTES
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)

LEGACY_ONLY = Revisions(ALL[:-1])
MODERN_ONLY = Revisions(ALL[-1:])
MODERN = JULY_2026.date
UNKNOWN = "2031-01-01"

VERSION = t.PROTOCOL_VERSION_KEY
CAPABILITIES = t.CLIENT_CAPABILITIES_KEY


def meta(version: Any = MODERN, capabilities: Any = None, **more: Any) -> Raw:
    members: dict[str, Any] = {VERSION: version, CAPABILITIES: capabilities or {}}
    return Raw(encode(members | {name.replace("__", "/"): value for name, value in more.items()}))


def request(method: str = "tools/list") -> Request:
    return Request(1, method, raw_id=b"1")


def seen(
    meta: Raw | bytes = b"",
    method: str = "tools/list",
    accepts: Revisions = EVERY,
    signs: VersionHeaders | None = None,
    known: Peer | None = None,
) -> Peer | None:
    return PeerDetector(accepts).detect(request(method), Raw(bytes(meta)), signs, known)


def peer_of(revision: Revision) -> Peer:
    return Peer(revision, t.ClientCapabilities())


def refused(code: int, *args: Any, **kwargs: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        seen(*args, **kwargs)
    assert error_code(caught.value, None) == code
    return caught.value


# ---------------------------------------------------------------- 1. by its envelope


def test_a_request_is_known_by_what_it_says_of_its_sender() -> None:
    info = {"name": "reader", "version": "1"}
    said = meta(
        capabilities={"sampling": {}, "extensions": {"com.example/x": {}}},
        **{t.CLIENT_INFO_KEY: info, t.LOG_LEVEL_KEY: "warning"},
    )
    peer = seen(said)
    assert peer is not None
    assert peer.revision is JULY_2026
    assert peer.info == t.Implementation(name="reader", version="1")
    assert peer.log_level == "warning"
    assert peer.offers("sampling")
    assert not peer.offers("roots")
    assert peer.extensions == {"com.example/x"}


def test_an_envelope_counts_on_a_pipe_whose_session_is_older(revision: Revision) -> None:
    if revision.handshake:
        found = seen(meta(), known=peer_of(revision))
        assert found is not None
        assert found.revision is JULY_2026


@pytest.mark.spec("R0751", "R1129")
def test_each_request_is_judged_by_itself_alone(revision: Revision) -> None:
    recogniser = PeerDetector()

    def of(capabilities: dict[str, Any], **more: Any) -> Peer:
        found = recogniser.detect(request(), meta(revision.date, capabilities, **more))
        assert found is not None
        return found

    rich = of({"sampling": {}, "roots": {}}, **{t.LOG_LEVEL_KEY: "debug"})
    assert (rich.offers("sampling"), rich.log_level) == (True, "debug")
    poor = of({})
    assert (poor.offers("sampling"), poor.offers("roots"), poor.log_level) == (False, False, None)
    assert poor.info is None
    assert of({"roots": {}}).offers("sampling") is False


@pytest.mark.spec("R0761")
@pytest.mark.parametrize("accepts", [EVERY, MODERN_ONLY, LEGACY_ONLY])
def test_an_envelope_without_what_it_must_have_is_malformed(accepts: Revisions) -> None:
    only_version, only_capabilities = encode({VERSION: MODERN}), encode({CAPABILITIES: {}})
    fault = refused(-32602, only_version, accepts=accepts)
    assert CAPABILITIES in fault.message
    assert fault.data == {"supported": accepts.dates}
    fault = refused(-32602, only_capabilities, accepts=accepts)
    assert VERSION in fault.message


@pytest.mark.parametrize(
    "said",
    [
        b"[]",
        b'"text"',
        b"null",
        b'{"a":',
        b"\xff",
        b"[" * 3000,
        encode({VERSION: 20260728, CAPABILITIES: {}}),
        encode({VERSION: None, CAPABILITIES: {}}),
        encode({VERSION: MODERN, CAPABILITIES: []}),
        encode({VERSION: MODERN, CAPABILITIES: None}),
        encode({VERSION: MODERN, CAPABILITIES: {"sampling": 1}}),
        encode({VERSION: MODERN, CAPABILITIES: {}, t.CLIENT_INFO_KEY: {"name": "x"}}),
        encode({VERSION: MODERN, CAPABILITIES: {}, t.PROGRESS_TOKEN_KEY: 1.5}),
    ],
)
def test_an_envelope_that_cannot_be_read_is_malformed(said: bytes) -> None:
    refused(-32602, said)


@pytest.mark.spec("R1036")
@pytest.mark.parametrize("level", ["verbose", "", "INFO", 7, None, {"a": 1}])
def test_a_log_level_that_is_none_is_refused(revision: Revision, level: Any) -> None:
    said = meta(revision.date, **{t.LOG_LEVEL_KEY: level})
    if level is None:  # as good as absent
        found = seen(said)
        assert found is not None
        assert found.log_level is None
        return
    with pytest.raises(Fault) as caught:
        seen(said)
    assert error_code(caught.value, revision) == -32602


@pytest.mark.parametrize("level", t.LOGGING_LEVELS)
def test_each_log_level_is_heard(level: t.LoggingLevel) -> None:
    peer = seen(meta(**{t.LOG_LEVEL_KEY: level}))
    assert peer is not None
    assert peer.log_level == level


@pytest.mark.spec("R0922", "R1134")
@pytest.mark.parametrize("accepts", [EVERY, MODERN_ONLY])
def test_a_version_that_is_not_spoken_is_refused_with_those_that_are(
    revision: Revision, accepts: Revisions
) -> None:
    for version in (UNKNOWN, "", "1900-01-01"):
        with pytest.raises(Fault) as caught:
            seen(meta(version), accepts=accepts)
        assert error_code(caught.value, revision) == -32022
        assert caught.value.data == {"supported": accepts.dates, "requested": version}


@pytest.mark.spec("R0922")
def test_a_version_that_is_known_and_not_accepted_is_refused_too(revision: Revision) -> None:
    fault = refused(-32022, meta(revision.date), accepts=LEGACY_ONLY)
    assert fault.data == {"supported": LEGACY_ONLY.dates, "requested": revision.date}


@pytest.mark.parametrize("older", ALL[:-1], ids=lambda revision: revision.date)
def test_an_envelope_cannot_name_a_revision_with_a_handshake(older: Revision) -> None:  # D11
    fault = refused(-32022, meta(older.date))
    assert fault.data["supported"] == EVERY.dates


def test_what_an_unknown_version_has_in_its_envelope_is_not_judged() -> None:
    strange = {t.LOG_LEVEL_KEY: {"above": 3}, t.CLIENT_INFO_KEY: "me"}
    refused(-32022, encode({VERSION: UNKNOWN, CAPABILITIES: ["sampling"]} | strange))


def test_a_version_without_end_is_not_repeated_in_full() -> None:
    fault = refused(-32022, meta("9" * 100_000))
    assert fault.data["requested"] == "9" * MAX_QUOTED
    assert len(fault.message) < 300


# ---------------------------------------------------------------- headers beside it


def test_the_version_header_must_say_what_the_envelope_says() -> None:
    assert seen(meta(), signs=VersionHeaders(MODERN)) is not None
    fault = refused(-32020, meta(), signs=VersionHeaders(None))
    assert "MCP-Protocol-Version is missing" in fault.message
    for other in ("2025-11-25", UNKNOWN, "x" * 5000):
        fault = refused(-32020, meta(), signs=VersionHeaders(other, routed=True))
        assert other[:MAX_QUOTED] in fault.message
        assert len(fault.message) < 300


def test_faults_come_in_the_order_of_the_checks() -> None:  # D4
    everything_wrong = VersionHeaders("2025-11-25", routed=True)
    # What must be in the envelope, before the header is compared with it,
    refused(-32602, encode({VERSION: UNKNOWN}), signs=everything_wrong)
    # the header, before the version is looked up,
    refused(-32020, meta(UNKNOWN), signs=everything_wrong)
    # and the version, before the method is.
    refused(-32022, meta(UNKNOWN), method="no/such", signs=VersionHeaders(UNKNOWN))
    assert seen(meta(), method="no/such", signs=VersionHeaders(MODERN)) is not None


# ---------------------------------------------------------------- 2. by a sign of the modern era


@pytest.mark.parametrize(
    ("method", "signs"),
    [
        ("tools/list", VersionHeaders(MODERN)),
        ("tools/list", VersionHeaders(UNKNOWN, routed=True)),
        ("tools/list", VersionHeaders(None, routed=True)),
        ("tools/list", VersionHeaders("2025-11-25", routed=True)),
        ("server/discover", None),
        ("server/discover", VersionHeaders("2025-11-25")),
        ("subscriptions/listen", None),
        ("notifications/subscriptions/acknowledged", None),
    ],
)
@pytest.mark.parametrize("accepts", [EVERY, MODERN_ONLY])
@pytest.mark.parametrize("known", [None, peer_of(NOVEMBER_2025)])
def test_a_modern_sign_without_an_envelope_is_malformed(
    method: str, signs: VersionHeaders | None, accepts: Revisions, known: Peer | None
) -> None:
    fault = refused(-32602, b"", method, accepts, signs, known)
    assert VERSION in fault.message
    assert fault.data == {"supported": accepts.dates}


@pytest.mark.spec("R0359")
@pytest.mark.parametrize("accepts", [EVERY, MODERN_ONLY])
@pytest.mark.parametrize("known", [None, peer_of(NOVEMBER_2025)])
def test_a_version_that_only_the_header_names_is_refused_by_its_name(
    accepts: Revisions, known: Peer | None
) -> None:
    for version in (UNKNOWN, "", "1900-01-01", "x" * 5000):
        code = -32022 if known is None else -32602  # which every revision knows
        fault = refused(code, b"", "tools/list", accepts, VersionHeaders(version), known)
        assert VERSION not in fault.message
        assert ("MCP-Protocol-Version" in fault.message) is (known is not None)
        assert fault.data == {"supported": accepts.dates, "requested": version[:80]}
    assert seen(b"", "initialize", accepts, VersionHeaders(UNKNOWN), known) is None


def test_where_no_modern_revision_is_spoken_its_signs_mean_nothing() -> None:
    known = peer_of(NOVEMBER_2025)
    for signs in (VersionHeaders(MODERN), VersionHeaders(None, routed=True), None):
        assert seen(b"", "server/discover", LEGACY_ONLY, signs, known) is known


@pytest.mark.parametrize("older", ALL[:-1], ids=lambda revision: revision.date)
def test_a_header_with_an_older_version_is_no_modern_sign(older: Revision) -> None:
    known = peer_of(older)
    assert seen(signs=VersionHeaders(older.date), known=known) is known


# ---------------------------------------------------------------- the trap of the prefix


def test_the_prefix_of_a_related_task_proves_nothing() -> None:
    legacy = Raw(encode({t.RELATED_TASK_KEY: {"taskId": "t"}, t.PROGRESS_TOKEN_KEY: 7}))
    known = peer_of(NOVEMBER_2025)
    assert seen(legacy, known=known) is known
    assert seen(legacy, "initialize") is None
    assert "before initialize" in refused(-32602, legacy).message


@pytest.mark.parametrize(
    "key", [t.CLIENT_INFO_KEY, t.LOG_LEVEL_KEY, "io.modelcontextprotocol/anything", "traceparent"]
)
def test_no_other_name_in_the_envelope_proves_anything(key: str) -> None:
    known = peer_of(NOVEMBER_2025)
    assert seen(encode({key: "x"}), known=known) is known


# ---------------------------------------------------------------- 3. by a handshake


@pytest.mark.parametrize("accepts", [EVERY, LEGACY_ONLY, MODERN_ONLY])
@pytest.mark.parametrize(
    "signs", [None, VersionHeaders(None), VersionHeaders("2025-11-25"), VersionHeaders(MODERN)]
)
def test_initialize_without_an_envelope_is_a_handshake(
    accepts: Revisions, signs: VersionHeaders | None
) -> None:  # D7 for the header, D9 for the server without handshakes
    assert seen(b"", "initialize", accepts, signs) is None
    assert seen(encode({"com.example/x": 1}), "initialize", accepts, signs) is None


def test_initialize_with_an_envelope_is_a_method_that_does_not_exist() -> None:
    peer = seen(meta(), "initialize")
    assert peer is not None
    assert peer.revision.method("initialize") is None


# ---------------------------------------------------------------- 5. by what is known already


def test_anything_else_is_from_the_peer_of_the_session(revision: Revision) -> None:
    known = peer_of(revision)
    for method in ("tools/list", "tools/call", "ping", "no/such"):
        assert seen(b"", method, known=known) is known
        assert seen(encode({t.PROGRESS_TOKEN_KEY: "a"}), method, known=known) is known


def test_before_anything_is_known_the_answer_names_the_ways_in() -> None:  # D27
    both = refused(-32602).message
    assert "initialize" in both
    assert VERSION in both
    handshake = refused(-32602, accepts=LEGACY_ONLY).message
    assert "initialize" in handshake
    assert VERSION not in handshake
    envelope = refused(-32602, accepts=MODERN_ONLY).message
    assert VERSION in envelope
    assert "initialize" not in envelope


# ---------------------------------------------------------------- what is remembered


def test_the_same_bytes_are_the_same_peer_and_other_bytes_never_are() -> None:
    recogniser = PeerDetector()
    one = recogniser.detect(request(), meta(capabilities={"roots": {}}))
    again = recogniser.detect(request("tools/call"), meta(capabilities={"roots": {}}))
    other = recogniser.detect(request(), meta(capabilities={"roots": {}, "sampling": {}}))
    spaced = Raw(bytes(meta(capabilities={"roots": {}})).replace(b":", b": "))
    respelled = recogniser.detect(request(), spaced)
    assert one is again
    assert other is not one
    assert respelled is not one
    assert respelled == one


def test_peers_of_many_envelopes_are_not_mixed_up() -> None:
    recogniser = PeerDetector()
    said = [
        meta(capabilities={"experimental": {f"x{n}": {}}}, **{t.CLIENT_INFO_KEY: info(n)})
        for n in range(3 * MAX_REMEMBERED)
    ]
    for _ in range(2):
        for n, one in enumerate(said):
            peer = recogniser.detect(request(), one)
            assert peer is not None
            assert peer.capabilities.experimental == {f"x{n}": {}}
            assert peer.info == t.Implementation(name=f"n{n}", version="1")
    assert len(recogniser._cache) <= MAX_REMEMBERED


def info(n: int) -> dict[str, str]:
    return {"name": f"n{n}", "version": "1"}


def test_a_large_envelope_is_read_and_not_kept() -> None:
    recogniser = PeerDetector()
    large = meta(**{"com.example__x": "y" * MAX_REMEMBERED_BYTES})
    assert recogniser.detect(request(), large) is not None
    assert len(recogniser._cache) == 0
    assert recogniser.detect(request(), meta()) is not None
    assert len(recogniser._cache) == 1


def test_a_progress_token_makes_no_other_peer() -> None:
    recogniser = PeerDetector()
    plain = meta()
    first = recogniser.detect(request(), plain)
    for token in ("0", "7", "100000000000000", '"a"', '""', '"%s"' % ("a" * 126)):
        counted = Raw(bytes(plain)[:-1] + f',"progressToken":{token}}}'.encode())
        assert recogniser.detect(request(), counted) is first
    assert len(recogniser._cache) == 1
    other = PeerDetector()
    counted = Raw(bytes(plain)[:-1] + b',"progressToken":1}')
    found = other.detect(request(), counted)
    assert found == first
    assert other.detect(request(), plain) is found


@pytest.mark.parametrize(
    "token",
    [
        "1.5",
        "9" * 16,
        "null",
        '1,"a":{"progressToken":2}',
        '{"progressToken":1}',
        '"%s"' % ("a" * 127),
        '"é"',
        '"\\n"',
        '"\x7f"',
        '"a","b":"c"',
    ],
)
def test_no_other_token_is_taken_off(token: str) -> None:
    recogniser = PeerDetector()
    said = Raw(bytes(meta())[:-1] + f',"progressToken":{token}}}'.encode())
    with contextlib.suppress(Fault):
        recogniser.detect(request(), said)
    assert len(recogniser._cache) == 0


@pytest.mark.parametrize("before", ['"progressToken":1', '"progress\\u0054oken":1'])
def test_a_token_that_is_there_twice_is_refused_whatever_was_seen_before(before: str) -> None:
    recogniser = PeerDetector()
    once = bytes(meta())[:-1] + f",{before}}}".encode()
    recogniser.detect(request(), Raw(once))
    for _ in range(2):
        with pytest.raises(Fault, match="duplicate"):
            recogniser.detect(request(), Raw(once[:-1] + b',"progressToken":2}'))


PAIRS = [
    f'"{VERSION}":"{MODERN}"',
    f'"{CAPABILITIES}":{{}}',
    f'"{CAPABILITIES}":{{"roots":{{}}}}',
    f'"{t.CLIENT_INFO_KEY}":{{"name":"a","version":"1"}}',
    f'"{t.CLIENT_INFO_KEY}":{{"name":"b","version":"1"}}',
    f'"{t.LOG_LEVEL_KEY}":"debug"',
    '"progressToken":1',
    '"progressToken":22',
    '"progressToken":"a"',
    '"progress\\u0054oken":3',
    '"com.example/a":{"progressToken":1}',
]


@settings(max_examples=300, derandomize=True)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(PAIRS), max_size=6), st.sampled_from([",", " , "])),
        min_size=2,
        max_size=8,
    )
)
def test_what_was_seen_before_never_changes_who_is_recognised(
    several: list[tuple[list[str], str]],
) -> None:
    recogniser = PeerDetector()
    base = PAIRS[:2]
    for pairs, comma in several:
        for members in (pairs, base + pairs):
            said = Raw(f"{{{comma.join(members)}}}".encode())
            assert outcome(recogniser, said) == outcome(PeerDetector(), said)


def outcome(recogniser: PeerDetector, said: Raw) -> Any:
    try:
        return recogniser.detect(request(), said, None, peer_of(NOVEMBER_2025))
    except Fault as fault:
        return fault.kind, fault.message


@pytest.mark.parametrize(
    "said",
    [
        f'{{"{VERSION}":"{MODERN}","{VERSION}":"{MODERN}","{CAPABILITIES}":{{}}}}',
        f'{{"{VERSION}":"{MODERN}","{CAPABILITIES}":{{}},"{CAPABILITIES}":{{"roots":{{}}}}}}',
        f'{{"{VERSION}":"{MODERN}","{CAPABILITIES}":{{"roots":{{}},"roots":{{}}}}}}',
        f'{{"{VERSION}":"{MODERN}","{CAPABILITIES}":{{}},"a":1,"\\u0061":2}}',
        f'{{"{VERSION}":"{UNKNOWN}","{CAPABILITIES}":{{}},"a":1,"a":2}}',
        '{"a":1,"a":2}',
        '{"progressToken":"a","progressToken":"b"}',
    ],
)
def test_a_member_that_is_there_twice_is_refused_in_any_envelope(said: str) -> None:
    recogniser = PeerDetector()
    with pytest.raises(Fault, match="duplicate"):
        recogniser.detect(request(), Raw(said.encode()), None, peer_of(NOVEMBER_2025))
    assert len(recogniser._cache) == 0


def test_what_was_refused_is_refused_again_and_leaves_nothing_behind() -> None:
    recogniser = PeerDetector()
    for _ in range(2):
        for bad in (meta(UNKNOWN), Raw(encode({VERSION: MODERN})), Raw(b"[]")):
            with pytest.raises(Fault):
                recogniser.detect(request(), bad)
    assert len(recogniser._cache) == 0


KEYS = st.text(max_size=3) | st.sampled_from(
    [VERSION, CAPABILITIES, t.CLIENT_INFO_KEY, t.LOG_LEVEL_KEY, t.PROGRESS_TOKEN_KEY]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
METHODS = st.sampled_from(["initialize", "tools/call", "server/discover", "ping", ""])
VERSIONS = st.none() | st.sampled_from([MODERN, "2025-11-25", UNKNOWN]) | st.text(max_size=9)


@settings(max_examples=300, derandomize=True)
@given(
    said=st.dictionaries(KEYS, JSON | st.just(MODERN), max_size=5).map(
        lambda value: json.dumps(value).encode()
    )
    | st.binary(max_size=30),
    method=METHODS,
    version=VERSIONS,
    routed=st.booleans(),
)
def test_whatever_a_stranger_says_is_a_peer_a_handshake_or_a_fault(
    said: bytes, method: str, version: str | None, routed: bool
) -> None:
    for accepts in (EVERY, LEGACY_ONLY, MODERN_ONLY):
        recogniser = PeerDetector(accepts)
        try:
            peer = recogniser.detect(request(method), Raw(said), VersionHeaders(version, routed))
        except Fault:  # the same again: what was refused taught it nothing
            with pytest.raises(Fault):
                recogniser.detect(request(method), Raw(said), VersionHeaders(version, routed))
        else:
            assert peer is None or peer.revision in accepts


def test_an_implementation_is_shown_with_its_version_where_it_has_one() -> None:
    assert name_and_version(t.Implementation(name="notes", version="1.2")) == "notes 1.2"
    assert name_and_version(t.Implementation(name="notes", version=UNVERSIONED)) == "notes"
