"""Charts show what there is, and holes where there is nothing."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from roq.simulation.lab.report.plot import Plot, spread, time_label
from roq.simulation.lab.report.svg import figure, paths
from roq.simulation.lab.report.ticks import linear


def plot() -> Plot:
    begins, ends = [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]
    return Plot(name="p", title="T", note="n", span=4.0, scale=linear(10), begins=begins, ends=ends)


def test_a_line_is_open_where_nothing_was_measured_and_ends_with_its_windows() -> None:
    made = plot()
    made.line([0.0, 10.0, None, 5.0], "s")
    assert list(paths(made)) == [
        ("M0,1000L250,1000L750,0L1000,0M1500,500L1750,500L2000,500", "line s")
    ]


def test_what_nobody_heard_is_hatched_and_named_once() -> None:
    made = plot()
    made.hole([(0.0, 1.0), (2.0, 4.0)], "not heard")
    text = figure(made)
    assert re.findall(r'class="quiet" style="([^"]*)"', text) == [
        "left:0.00%;width:25.00%", "left:50.00%;width:50.00%"
    ]  # fmt: skip
    assert text.count("not heard") == 1
    assert 'class="quiet-name" style="left:50.00%;width:50.00%"' in text
    assert made.told()["quiet"] == [(0.0, 1.0), (2.0, 4.0)]


def test_steps_go_from_window_to_window_and_equal_ones_are_one() -> None:
    made = plot()
    made.area([5.0, 5.0, None, 10.0], "s")
    found = [path for path, _ in paths(made)]
    assert found == ["M0,1000V500H1000V1000Z", "M1500,1000V0H2000V1000Z"]


def test_nothing_to_draw_is_no_path() -> None:
    made = plot()
    made.line([], "s")
    made.hole([], "not heard")
    made.steps([None], "s")
    made.band([None], [None], "s")
    made.upright([], "s")
    assert made.layers == []
    assert "<svg" in figure(made)


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(1, 20))
def test_labels_stay_inside_apart_and_in_their_order(wanted: list[float], least: float) -> None:
    found = spread(wanted, 100, least)
    room = min(least, 100 / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    placed = [found[at] for at in order]
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in placed)
    assert all(b - a >= room - 1e-6 for a, b in pairwise(placed))


def test_labels_that_have_room_stand_where_they_belong() -> None:
    assert spread([10, 90, 50], 100, 14) == [10, 90, 50]


def test_labels_that_push_each_other_stand_around_what_they_want() -> None:
    assert spread([50, 50, 50], 100, 10) == [40, 50, 60]
    assert spread([50, 52, 90], 100, 10) == [46, 56, 90]
    assert spread([99, 99], 100, 10) == [90, 100]


def test_times_say_their_unit_once() -> None:
    assert [time_label(at, 100) for at in (0, 15)] == ["0 s", "15"]
    assert [time_label(at, 600) for at in (0, 90)] == ["0 min", "1:30"]
    assert [time_label(at, 86_400) for at in (0, 10_800)] == ["0 h", "3:00"]
    assert [time_label(at, 864_000) for at in (0, 86_400)] == ["0 d", "1"]
