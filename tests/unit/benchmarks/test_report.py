import io
from pathlib import Path

import msgspec
import pytest
from bench_results import made
from rich.console import Console

from roq.benchmarks import plan, report
from roq.benchmarks.case import Case, CaseFailure
from roq.benchmarks.contenders import redis_streams
from roq.benchmarks.results import Results, Verdict, write_json
from roq.benchmarks.targets import verdicts


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
