"""What the benchmarks say of their samples: statistics, ratios, bars, tables, comparing.

Rules: nothing is measured here, and nothing depends on a time.
"""

import json
from typing import Any

import pytest

from benchmarks import chart, report
from benchmarks.bars import BARS, Bar, judge, verdict
from benchmarks.figures import Figure, quarter, shown
from benchmarks.wire import Wrong, body, call, read_answer, verify


def rates(**samples: list[float]) -> Figure:
    return Figure("http-async", "HTTP", "calls/s", "more", samples)


def times(**samples: list[float]) -> Figure:
    return Figure("start", "start", "ms", "less", samples)


def test_the_better_quarter_is_high_for_rates_and_low_for_times() -> None:
    assert quarter([1, 2, 3, 4, 5], "more") == 4
    assert quarter([1, 2, 3, 4, 5], "less") == 2
    assert quarter([7], "more") == 7


def test_a_ratio_has_the_spread_of_its_rounds() -> None:
    ratio = rates(colonnade=[10, 20, 30], mcp=[5, 4, 3]).ratio("mcp")
    assert ratio is not None
    assert (ratio.best, ratio.least, ratio.most) == (6, 2, 10)
    assert rates(colonnade=[10]).ratio("mcp") is None


@pytest.mark.parametrize(
    ("number", "cut", "above"),
    [
        (6.999, "6.99", "7.00"),
        (0.6999, "0.699", "0.700"),
        (99.99, "99.9", "100.0"),
        (7, "7.00", "7.00"),
    ],
)
def test_a_number_is_cut_off_and_never_rounded_in_our_favour(
    number: float, cut: str, above: str
) -> None:
    assert shown(number) == cut
    assert shown(number, up=True) == above


def test_a_bar_is_reached_by_the_worse_of_best_and_quarter() -> None:
    uneven = rates(colonnade=[70, 10, 10, 10], mcp=[10, 10, 10, 10])
    assert not verdict(Bar("http-async", 7, "mcp"), uneven).passes
    even = rates(colonnade=[70, 70, 70, 70], mcp=[10, 10, 10, 10])
    assert verdict(Bar("http-async", 7, "mcp"), even).passes


def test_less_is_better_for_times() -> None:
    figure = times(colonnade=[15, 16], mcp=[100, 100])
    assert not verdict(Bar("start", 0.15, "mcp"), figure).passes
    assert verdict(Bar("start", 0.16, "mcp"), figure).passes
    assert verdict(Bar("start", 20), figure).passes


def test_what_was_not_measured_is_a_miss_and_what_was_not_wanted_is_no_bar() -> None:
    found = judge({"http-async": rates(colonnade=[10])})
    assert {one.bar.figure for one in found} == {"http-async"}
    assert not any(one.passes for one in found)
    assert "not measured" in report.verdicts(found)
    assert "MISS" in str(found[0])


def test_the_bars_are_of_figures_that_exist() -> None:
    from benchmarks.rows import HTTP, STDIO
    from benchmarks.rows_gateway import GATEWAY

    others = {"memory", "client-1", "client-16", "start", "resident", "listen-memory"}
    assert {bar.figure for bar in BARS} <= {
        *HTTP,
        *STDIO,
        *GATEWAY,
        *others,
        "listen-fan-out",
        "task-create",
        "task-create-direct",
        "task-poll",
        "replicas-session",
        "replicas-session-cpu",
        "replicas-operations",
        "replicas-throughput-cpu",
    }


def test_a_table_names_everybody_and_why_somebody_is_missing() -> None:
    figure = rates(limit=[100.0], colonnade=[70.0])
    figure.missing["Rust"] = "there is no cargo on this machine"
    table = report.table(figure)
    assert "best 0.700" in table
    assert "Rust" in table
    assert "there is no cargo on this machine" in table


def test_a_table_for_a_page_has_a_dash_for_what_was_not_measured() -> None:
    figures = [rates(colonnade=[70.0, 71.6], mcp=[10.0]), times(colonnade=[5.5])]
    assert report.markdown(figures).splitlines() == [
        "| | colonnade | mcp |",
        "|---|---|---|",
        "| HTTP, calls/s | 71.6 | 10.0 |",
        "| start, ms | 5.50 | – |",
    ]


def test_rows_are_chosen_by_their_name_or_by_what_it_begins_with() -> None:
    from benchmarks.rows_gateway import GATEWAY
    from benchmarks.suite import options

    assert set(options(["--only", "gateway"]).only) == set(GATEWAY)
    assert options(["--only", "gateway-1m"]).only == [
        "gateway-1m",
        "gateway-1m-old",
        "gateway-1m-latency",
    ]
    with pytest.raises(SystemExit):
        options(["--only", "gate"])


def test_each_cell_of_a_gateway_has_a_bar_against_direct_and_both_proxies() -> None:
    from benchmarks.rows_gateway import DEFAULT, DIRECT, GATEWAY, SHARED

    for name, passage in GATEWAY.items():
        whom = {bar.against: bar.bar for bar in BARS if bar.figure == name}
        if not passage.timed:
            assert whom == {DIRECT: 0.4, SHARED: 10, DEFAULT: 60}
        elif passage.connections > 1:
            assert whom == {DIRECT: 1.3}


def test_a_loss_beside_the_recorded_ratio_is_marked() -> None:
    recorded = json.loads(json.dumps({"http-async": rates(colonnade=[80], mcp=[10]).to_json()}))
    assert "LOST" in report.compared({"http-async": rates(colonnade=[60], mcp=[10])}, recorded)
    kept = report.compared({"http-async": rates(colonnade=[78], mcp=[10])}, recorded)
    assert "8.00" in kept
    assert "7.80" in kept
    assert "LOST" not in kept
    assert "–" in report.compared({"http-async": rates(colonnade=[78], Go=[10])}, recorded)


def test_a_chart_shows_ours_and_the_others() -> None:
    drawn = chart.benchmark({"http-async": rates(colonnade=[70], mcp=[10])}, ["one run"])
    assert drawn.startswith("<svg")
    assert drawn.count("<rect") == 3
    assert chart.OURS in drawn
    assert "7.00×" in drawn


def test_an_answer_that_is_not_the_one_is_wrong() -> None:
    ask = call("add", "7", a=3, b=4)
    right: dict[str, Any] = {
        "id": 10_000_000,
        "result": {"content": [{"type": "text", "text": "7"}]},
    }
    verify(ask, 10_000_000, [right])
    for id, frames in [
        (10_000_001, [right]),
        (10_000_000, []),
        (10_000_000, [{**right, "result": {"content": [{"type": "text", "text": "8"}]}}]),
        (10_000_000, [{**right, "result": {**right["result"], "isError": True}}]),
        (10_000_000, [{"method": "notifications/progress"}, right]),
    ]:
        with pytest.raises(Wrong):
            verify(ask, id, frames)


def test_requests_of_all_ids_are_of_one_length_and_differ_in_the_id_alone() -> None:
    before, after = body(call("add", "7", a=3, b=4), "2026-07-28")
    request = json.loads(before + b"10000001" + after)
    assert request["id"] == 10_000_001
    assert request["params"]["arguments"] == {"a": 3, "b": 4}


def test_an_answer_is_read_when_it_is_whole() -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
        b'b\r\ndata: {"a":\r\n6\r\n 1}\n\n\n\r\n0\r\n\r\n'
    )
    for whole in (plain, chunked):
        assert all(read_answer(whole[:cut]) is None for cut in range(len(whole)))
        answer = read_answer(whole)
        assert answer is not None
        assert answer.size == len(whole)
    assert read_answer(chunked).frames == [{"a": 1}]  # type: ignore[union-attr]
