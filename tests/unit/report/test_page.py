"""A page tells a run to somebody who was not there, whatever the run is like."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from html_pages import named, read
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.archive.document import (
    Event,
    EventKind,
    ExchangeWindow,
    Run,
    RunKind,
    RunState,
    Series,
    Verdict,
    Window,
)
from roq.simulation.lab.archive.folder import RunError, write_run, write_series
from roq.simulation.lab.report.page import page, written

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e'


def test_a_page_tells_what_was_asked_what_happened_and_what_came_out() -> None:
    found = read(written(run_of("a-run"), series_of(20)))
    for text in (
        "A test <with> signs & more", "Live run of the scenario", "✗ 1 of 3 expectations not met",
        "at most 10 ms", "12.5 ms", "not judged", "this run has no such figure",
        "4 × 100/s, 100 B each", "2 to everything", "one clock", "a processor, 2 cores",
        "Throughput", "Latency", "Imbalance", "CPU of each exchange", "kill exchange 0",
    ):  # fmt: skip
        assert text in found.text


def test_charts_can_be_read_by_those_who_do_not_see_them() -> None:
    found = read(written(run_of("a-run"), series_of(20)))
    pictures = named(found, "svg")
    names = {attributes.get("id") for _, attributes in found.seen}
    assert len(pictures) == 7
    for each in pictures:
        assert each["role"] == "img"
        assert {each["aria-labelledby"], each["aria-describedby"]} <= names
    assert "The charts as a table" in found.text
    assert all(each["tabindex"] == "0" for each in named(found, "figure"))


def test_hostile_texts_stay_texts() -> None:
    run = run_of("hostile", **{HOSTILE: 1.0})
    run = msgspec.structs.replace(
        run,
        error=HOSTILE,
        clock=HOSTILE,
        remarks=[HOSTILE * 100],
        settings={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        scenario=msgspec.structs.replace(run.scenario, title=HOSTILE, about=HOSTILE),
        verdicts=[Verdict(expected=run.verdicts[0].expected, found=None, holds=None, why=HOSTILE)],
    )
    events = [Event(at=float(at), kind=kind, text=HOSTILE) for at, kind in enumerate(EventKind)]
    series = msgspec.structs.replace(series_of(20), events=events)
    text = written(run, series)
    read(text)
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("state", "headline"),
    [
        (RunState.INTERRUPTED, "Interrupted"),
        (RunState.FAILED, "The run failed"),
        (RunState.RUNNING, "Not finished"),
        (RunState.ABANDONED, "Abandoned"),
    ],
)
def test_a_run_that_did_not_end_says_so_and_shows_what_there_is(
    state: RunState, headline: str
) -> None:
    run = msgspec.structs.replace(
        run_of("a"), state=state, figures={}, verdicts=[], phases=[], seconds=0.0
    )
    found = read(written(run, series_of(5)))
    assert headline in found.text
    assert len(named(found, "svg")) == 7


def test_without_a_series_there_are_no_charts_and_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path, run_of("a"))
    found = read(page(tmp_path))
    assert "There are no charts: series.json: cannot be read" in found.text
    (tmp_path / "series.json").write_text('{"windows": 3}')
    assert "series.json: is damaged" in read(page(tmp_path)).text


def test_without_a_run_there_is_no_page(tmp_path: Path) -> None:
    write_series(tmp_path, series_of(3))
    with pytest.raises(RunError, match=r"run\.json"):
        page(tmp_path)


@pytest.mark.parametrize("windows", [0, 1, 2, 600, 5_000])
def test_any_number_of_windows_fits(windows: int) -> None:
    text = written(run_of("a"), series_of(windows))
    read(text)
    assert len(text) < 600_000


def test_a_model_of_many_exchanges_and_moves_fits() -> None:
    rows = [
        ExchangeWindow(exchange=number, messages_in=10.0 + number, bytes_in=1e5, publishers=2,
                       cpu_percent=3.0)
        for number in range(1, 51)
    ]  # fmt: skip
    series = Series(
        window_seconds=1.0,
        windows=[Window(at=at + 1.0, exchanges=rows, serving=50) for at in range(600)],
        events=[
            Event(at=at * 0.6, kind=EventKind.MOVE, exchange=at % 50 + 1) for at in range(1_000)
        ],
        events_left_out=7,
    )
    text = written(run_of("a", RunKind.MODEL), series)
    found = read(text)
    assert len(text) < 1_500_000
    assert text.count('class="mark ') < 100
    assert "7 events more happened" in found.text


def test_the_script_finds_a_value_for_each_window_and_line() -> None:
    text = written(run_of("a"), series_of(20))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert data is not None
    told = msgspec.json.decode(data[1])
    assert len(told["ends"]) == len(told["begins"]) == 20
    assert {chart["id"] for chart in told["charts"]} >= {"throughput", "latency"}
    assert all(len(row["v"]) == 20 for chart in told["charts"] for row in chart["rows"])
    assert all(f'id="{chart["id"]}"' in text for chart in told["charts"])


def test_published_figures_are_a_column_of_their_own() -> None:
    run = run_of("a")
    scenario = msgspec.structs.replace(run.scenario, name="eqs-2011")
    found = read(written(msgspec.structs.replace(run, scenario=scenario), series_of(20)))
    assert "published 2011" in found.text
    assert "18,133/s" in found.text


def test_the_same_run_gives_the_same_page() -> None:
    run: Run = run_of("a")
    assert written(run, series_of(20)) == written(run, series_of(20))


def test_what_nobody_heard_is_hatched_in_all_charts_but_latency_and_said_below() -> None:
    text = written(run_of("a"), partly_heard(series_of(20), 5, 6))
    found = read(text)
    assert text.count('class="quiet"') == 6
    assert found.text.count("not heard") == 1
    assert "silent for 2 s of 20 s (5 s to 7 s)" in found.text
    assert "silent" not in read(written(run_of("a"), series_of(20))).text


def test_a_run_of_which_nobody_heard_anything_has_a_page() -> None:
    text = written(run_of("a"), partly_heard(series_of(20), *range(20)))
    found = read(text)
    assert "silent all along" in found.text
    assert [each["id"] for each in named(found, "figure")] == ["throughput", "latency"]
