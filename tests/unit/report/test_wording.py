"""Numbers and times as people read them."""

from __future__ import annotations

from math import inf, nan

import pytest

from roq.simulation.lab.report.wording import (
    clean,
    count,
    duration,
    listed,
    moment,
    number,
    quantity,
    tick_labels,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1"), (-2.5, "−2.5".replace("−", "-")), (12.345, "12.3"), (99.96, "100"),
        (123.4, "123"), (1_234_567.8, "1,234,568"), (0.00123456, "0.00123"), (0.1, "0.1"),
        (1e-9, "1.00e-09"), (1e20, "1.00e+20"), (nan, "–"), (inf, "–"), (None, "–"),
    ],
)  # fmt: skip
def test_numbers_have_the_digits_that_say_something(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.34, "ms", "12.3 ms"), (4_533_333.0, "B/s", "4.53 MB/s"), (999.9, "B", "1 kB"),
        (0.9987, "share", "99.9 %"), (906.67, "/s", "907/s"), (90.0, "s", "1 min 30 s"),
        (0.35, "min", "21 s"), (1.164, "", "1.164"), (None, "ms", "–"),
    ],
)  # fmt: skip
def test_quantities_have_a_unit_in_which_they_are_short(
    value: float | None, unit: str, text: str
) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"), (45, "45 s"), (60, "1 min"), (150, "2 min 30 s"), (3_600, "1 h"),
        (11_100, "3 h 5 min"), (2 * 86_400, "2 d"), (3_599.9, "1 h"), (-5, "−5 s"), (nan, "–"),
    ],
)  # fmt: skip
def test_durations_have_at_most_two_parts(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (12.5, "12.5 s"), (125, "2:05"), (3_725, "1:02:05")]
)
def test_moments_are_told_as_clocks_do(seconds: float, text: str) -> None:
    assert moment(seconds) == text


def test_long_texts_are_cut() -> None:
    assert clean("a" * 100, 10) == "aaaaaaaaa…"


def test_letters_of_all_languages_stay() -> None:
    assert clean("Größe 測試 👩\u200d🔬\n") == "Größe 測試 👩\u200d🔬\n"


def test_ticks_are_written_in_the_same_multiple() -> None:
    assert tick_labels([0.0, 500.0, 1_000.0]) == ["0", "500", "1,000"]
    assert tick_labels([0.0, 20_000.0, 40_000.0]) == ["0", "20k", "40k"]
    assert tick_labels([0.1, 1.0, 10.0], log=True) == ["0.1", "1", "10"]


def test_things_are_counted_and_listed() -> None:
    assert [count(1, "move"), count(1_200, "move"), count(2, "d", "dice")] == [
        "1 move",
        "1,200 moves",
        "2 dice",
    ]
    assert [listed([]), listed(["a"]), listed(["a", "b", "c"])] == ["", "a", "a, b and c"]
