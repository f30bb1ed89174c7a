"""The table of names is what the model files of OpenTelemetry say, and states their commits."""

import gc
import re
from weakref import ref

from colonnade import Server, Telemetry
from colonnade.telemetry import conventions
from telemetry_spans import CONVENTIONS, Recording


def test_the_metrics_are_those_of_the_conventions() -> None:
    metrics = {one.name: one for one in conventions.HISTOGRAMS}
    wanted: dict[str, list[str]] = CONVENTIONS["metrics"]["attributes"]
    assert metrics.keys() == wanted.keys()
    for name, attributes in wanted.items():
        assert set(metrics[name].attributes) == set(attributes), name
        assert metrics[name].unit == CONVENTIONS["metrics"]["unit"]
    assert list(conventions.BUCKETS) == CONVENTIONS["metrics"]["buckets"]


def test_the_attributes_of_spans_are_those_of_the_conventions() -> None:
    used = {
        value
        for value in vars(conventions).values()
        if isinstance(value, str) and re.fullmatch(r"(?:\w+\.)+\w+", value) and value[0] != "_"
    }
    own = {one for one in used if one.startswith("colonnade.")}
    spans = CONVENTIONS["spans"]
    assert used - own <= spans["server"].keys() | spans["client"].keys() | {__name__}
    assert (spans["server"].keys() | spans["client"].keys()) <= used


def test_the_mistakes_of_callers_are_those_of_the_conventions() -> None:
    assert frozenset(CONVENTIONS["codes"]["callers_mistakes"]) == conventions.CALLER_MISTAKES


def test_the_table_states_the_commit_of_each_model_file() -> None:
    assert conventions.__doc__ is not None
    stated = re.findall(r"model/mcp/(\w+)\.yaml +[0-9a-f]{40}$", conventions.__doc__, re.MULTILINE)
    assert stated == ["common", "metrics", "registry", "spans"]


def test_telemetry_does_not_keep_a_server_alive() -> None:
    for telemetry in (Telemetry(), Recording().telemetry):
        server = Server("short-lived", telemetry=telemetry)
        weak = ref(server)
        del server
        gc.collect()
        assert weak() is None
