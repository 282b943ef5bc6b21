"""Sizes and spans of time as people read them."""

from __future__ import annotations

import pytest

from roq.client.admin.wording import age_text, bytes_text, many


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (31_525_224, "31.5 MB"), (10**15, "1000.0 TB")],
)
def test_bytes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (119, "119 s"), (130, "2 minutes"), (200_000, "2 days")]
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_one_is_no_plural() -> None:
    assert (many(1, "queue"), many(2_000, "queue")) == ("1 queue", "2,000 queues")
