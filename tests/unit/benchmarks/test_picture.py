"""The picture shows what was measured, and leaves out what was not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from bench_results import made

from roq.benchmarks import picture, plan
from roq.benchmarks.results import Results, Verdict

mpl = pytest.importorskip("matplotlib")

VERDICTS = [
    Verdict("so fast", 0.65, True, 0.5),
    Verdict("so dear", 2.0, False, 1.0),
    Verdict("unknown", 1.0, True, None),
]


def drawn(results: Results, folder: Path) -> str:
    """The picture as SVG, its text as text."""
    path = folder / "picture.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):
        picture.draw(results, path)
    return path.read_text()


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return texts(drawn(made(), tmp_path_factory.mktemp("picture")))


def test_who_was_measured_is_named_in_each_part_and_nobody_else(shown: list[str]) -> None:
    assert shown.count(picture.SHORT[plan.ROQ_BATCHES]) == 2, "throughput and latency"
    assert {"RoQ, lists → batches → 1", "RoQ, lists → batches → 20"} <= set(shown)
    assert "2.50M" in shown
    assert "10 µs" in shown
    assert not any("nats" in each for each in shown)


def test_below_it_stands_on_what_it_was_measured_without_what_was_not_there(
    shown: list[str],
) -> None:
    (footer,) = [each for each in shown if "medians of" in each]
    assert footer.startswith("a processor, 2 cores")
    assert "pyzmq 27, redis 5" in footer
    assert "nats-py" not in footer
    assert all(footer.split(" · ")), "no server, and no gap in its place"
    assert footer.endswith("medians of 1 rounds · 2026-01-01")


def test_a_target_stands_with_its_figure_its_goal_and_whether_it_was_reached(
    tmp_path: Path,
) -> None:
    svg = drawn(msgspec.structs.replace(made(), figures=[], verdicts=VERDICTS), tmp_path)
    told = texts(svg)
    assert "0.5 x (goal ≥ 0.65)" in told
    assert "1 x (goal ≤ 2)" in told
    assert "unknown" not in told
    assert (svg.count(picture.GOOD), svg.count(picture.BAD)) == (1, 1)
    assert svg.index(picture.GOOD) < svg.index(picture.BAD), "from below: the last one first"
    assert not set(told) & set(picture.SHORT.values()), "nobody was measured"


def test_it_is_drawn_also_if_nothing_was_measured_in_the_format_of_the_suffix(
    tmp_path: Path,
) -> None:
    path = tmp_path / "latest.png"
    picture.draw(msgspec.structs.replace(made(), figures=[], verdicts=[]), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_contender_has_a_colour_and_a_name_of_its_own() -> None:
    stages = (*plan.full().stages, *plan.full().fan_out, *plan.full().flood)
    everybody = {key for stage in stages for key in stage.contenders}
    assert everybody == set(picture.SHORT) == set(picture.COLOURS)
    assert len(set(picture.COLOURS.values())) == len(everybody)
