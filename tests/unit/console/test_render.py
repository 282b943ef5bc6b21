"""Numbers, times and bars as pages show them."""

from __future__ import annotations

import pytest

from roq.console.render import level, micro, milliseconds, part, spark, tone, utc


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.284, "0.28 ms"), (12.5, "12.5 ms"), (1234.5, "1,234 ms")],
)
def test_short_times_have_the_digits_that_are_known(value: float, text: str) -> None:
    assert milliseconds(value) == text


def test_loads_are_parts_of_a_bar_that_has_room_above_the_limit() -> None:
    assert [part(load) for load in (0.0, 1.0, 9.0)] == ["0.0", "80.0", "100.0"]
    assert [level(load) for load in (0.1, 0.8, 1.0, 1.2)] == ["good", "warn", "hot", "bad"]


def test_states_have_a_tone() -> None:
    found = [tone(each) for each in ("running", "stalled", "stopped", "draining")]
    assert found == ["good", "bad", "idle", "warn"]


def test_a_line_ends_at_the_right() -> None:
    assert spark([0.0, 10.0]) == "119,23.0 120,2.0"
    assert spark([0.0]) == "120,23.0"
    assert spark([]) == ""


def test_a_date_has_its_time() -> None:
    assert utc(0.0) == "1970-01-01 00:00:00"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "–"),
        (1_000_000, "1970-01-01 00:00:01"),
        (253_402_300_799_999_999, "9999-12-31 23:59:59"),
        (2**60, "1,152,921,504,606,846,976 µs"),
    ],
)
def test_times_of_any_year_are_shown(moment: int | None, text: str) -> None:
    assert micro(moment) == text
