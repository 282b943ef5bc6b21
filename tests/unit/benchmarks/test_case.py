"""How many messages travel together, and what runs beside a measurement."""

import pytest

from roq.benchmarks.case import BATCH_BYTES, Case, CaseSample, beside_text


@pytest.mark.parametrize(
    ("size", "batch", "together"),
    [(100, 500, 500), (100, 1, 1), (BATCH_BYTES // 4, 500, 4), (2 * BATCH_BYTES, 500, 1)],
)
def test_a_batch_is_limited_by_its_bytes_as_well(size: int, batch: int, together: int) -> None:
    assert Case(size, batch).per_batch == together


@pytest.mark.parametrize(
    ("busy", "idle", "text"),
    [
        (0, 0, ""),
        (1, 0, "beside 1 busy program"),
        (2, 1, "beside 2 busy programs and 1 idle server"),
        (0, 5, "beside 5 idle servers"),
    ],
)
def test_what_runs_beside_is_said_in_words(busy: int, idle: int, text: str) -> None:
    assert beside_text(Case(100, busy=busy, idle=idle)) == text


def test_rates_are_those_of_one_subscriber() -> None:
    sample = CaseSample("roq", Case(100, subscribers=3), 1, 500, 2.0, {}, {})
    assert (sample.rate, sample.bytes_rate) == (250.0, 25_000.0)
