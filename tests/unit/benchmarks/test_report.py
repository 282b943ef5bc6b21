import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import picture, plan, report
from roq.benchmarks.benchmark import nothing_measured
from roq.benchmarks.case import Case, CaseFailure, CaseSample
from roq.benchmarks.contenders import redis_streams
from roq.benchmarks.results import Environment, Idle, ProcessCost, Results, Verdict, write_json
from roq.benchmarks.statistics import figures
from roq.benchmarks.targets import verdicts


def made() -> Results:
    cpu = {"publisher": 0.1, "exchange": 0.2, "subscriber": 0.3}
    rss = {"publisher": 10_000_000, "exchange": 20_000_000, "subscriber": 30_000_000}
    samples = [
        CaseSample(contender, case, 0, messages, 1.0, cpu, rss, [10.0, 20.0] if case.rate else [])
        for contender, messages in ((plan.ROQ_BATCHES, 2_500_000), (plan.ZMQ_PROXY, 5_000_000))
        for case in (plan.main_case(), plan.fan_out_case(), plan.latency_case())
    ]
    idle = Idle(4.0, 3.0, {"exchange": ProcessCost(0.1, 30_000_000)})
    return Results(
        environment=Environment(
            "2026-01-01T00:00:00Z",
            "a processor",
            2,
            1 << 34,
            "Linux",
            "CPython 3.11",
            "4.3.5",
            {"pyzmq": "27", "nats-py": "", "redis": "5"},
            {"nats-server": ""},
            7.5,
        ),
        rounds=1,
        fan_out_rounds=1,
        seconds_per_run=1.0,
        titles={plan.ROQ_BATCHES: "RoQ", plan.ZMQ_PROXY: "zmq.proxy", plan.NATS: "NATS"},
        skipped={plan.NATS: "nats-server is not installed"},
        figures=figures(samples),
        failures=[CaseFailure(plan.ROQ_BATCHES, plan.main_case(), 0, "no answer within 60 s")],
        idle=idle,
        verdicts=verdicts(samples, idle),
    )


def shown(results: Results) -> str:
    out = io.StringIO()
    report.show(results, Console(file=out, width=200))
    return out.getvalue()


def test_the_tables_show_figures_ratios_and_verdicts() -> None:
    text = shown(made())
    assert "2.50 M  250 MB/s" in text
    assert "≥ 0.65 x" in text
    assert "0.5 x" in text
    assert "missed" in text
    assert "reached" in text


def test_what_was_skipped_or_failed_stands_there_with_its_reason() -> None:
    text = shown(made())
    assert "skipped: NATS: nats-server is not installed" in text
    assert "no answer within 60 s" in text


def test_a_busy_machine_is_mentioned() -> None:
    assert "Other work ran on this machine" in shown(made())


def test_results_without_a_single_figure_can_be_shown() -> None:
    nothing = msgspec.structs.replace(made(), figures=[], idle=None, verdicts=verdicts([], None))
    assert "not measured" in shown(nothing)


def test_json_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    results = made()
    write_json(results, path)
    assert msgspec.json.decode(path.read_bytes(), type=Results) == results


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_picture_is_drawn_from_whatever_was_measured(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"latest{suffix}"
    picture.draw(made(), path)
    assert path.stat().st_size > 1_000


@pytest.mark.parametrize(
    ("rate", "text"),
    [(2_345_678, "2.35 M"), (999_600, "1.00 M"), (123_456, "123 k"), (950, "0.9 k")],
)
def test_rates_are_short(rate: float, text: str) -> None:
    assert report.rate_text(rate) == text


def test_cases_are_named_by_what_distinguishes_them() -> None:
    assert report.case_text(Case(size=1024, batch=500)) == "1 KiB, 64 per batch"
    assert report.case_text(plan.latency_case()) == "100 B, latency at 200/s"
    assert report.case_text(plan.latency_case(1)).endswith(", beside 1 busy program")
    assert report.case_text(plan.latency_case(idle=5)).endswith(", beside 5 idle servers")
    both = report.case_text(plan.latency_case(2, 1))
    assert both.endswith(", beside 2 busy programs and 1 idle server")
    assert report.case_text(plan.fan_out_case()) == "100 B, 500 per batch, 20 subscribers"


def test_a_target_that_was_not_measured_is_not_called_missed() -> None:
    assert report.verdict_text(Verdict("x", 1.0, True, None)).plain == "not measured"


def test_what_measured_nothing_says_why() -> None:
    results = made()
    assert nothing_measured(results) == ""
    peers = [one for one in results.figures if one.contender == plan.ZMQ_PROXY]
    failed = msgspec.structs.replace(results, figures=peers)
    assert nothing_measured(failed) == "no answer within 60 s"
    skipped = {plan.ROQ_BATCHES: "no Java runtime"}
    left_out = msgspec.structs.replace(results, figures=[], failures=[], skipped=skipped)
    assert nothing_measured(left_out) == "no Java runtime"
    assert nothing_measured(msgspec.structs.replace(left_out, skipped={})) == "nothing was tried"


@pytest.mark.parametrize("kind", [report.Bars, report.Lines])
def test_how_to_install_a_peer_is_told_with_its_brackets(
    kind: type[report.Bars | report.Lines],
) -> None:
    out = io.StringIO()
    reason = "redis-py is not installed (pip install 'roq-cluster[bench]')"
    with kind(Console(file=out, width=200), 1) as shown_meanwhile:
        shown_meanwhile.skipped(redis_streams.contenders()[0], reason)
        shown_meanwhile.failed(CaseFailure(plan.ROQ_BATCHES, plan.main_case(), 0, reason))
        shown_meanwhile.says(reason)
    assert out.getvalue().count(reason) >= 2
