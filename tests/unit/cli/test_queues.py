"""What `roq queue` makes of its arguments."""

from __future__ import annotations

import click
import pytest

from roq.cli.queues import age_text, parse_limits


def test_limits_are_names_and_numbers() -> None:
    assert parse_limits(("ring_bytes=1000000", "topics=5", "exchanges_max=1")) == {
        "ring_bytes": 1_000_000,
        "topics": 5,
        "exchanges_max": 1,
    }


def test_an_unknown_limit_names_the_known_ones() -> None:
    with pytest.raises(click.BadParameter, match="ring_bytes"):
        parse_limits(("ring=1",))


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (119, "119 s"), (130, "2 minutes"), (200_000, "2 days")]
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
