"""Filters become SQL in which every value is a parameter; bodies are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_lab import Lab

from roq.errors import InvalidRequest, JobNotFound
from roq.jobs.rows import Body
from roq.jobs.states import JobStatus
from roq.jobs.views import BODY_BYTES, NAMES_MAX, JobFilter, conditions


def test_an_empty_filter_means_all() -> None:
    assert conditions(JobFilter()) == []


def test_each_field_is_a_condition_without_its_value() -> None:
    wanted = JobFilter(
        ids=(1,), types=("x'",), statuses=(JobStatus.FAILED,), priority=10, tag="x'", key="x'",
        fingerprint="x'", instance=1, created_after=1, created_before=2,
    )  # fmt: skip
    found = conditions(wanted)
    assert len(found) == 10
    assert not any("x'" in str(each) for each in found)


def test_a_filter_has_an_end() -> None:
    with pytest.raises(InvalidRequest, match="1,000"):
        conditions(JobFilter(ids=tuple(range(NAMES_MAX + 1))))


def test_params_are_shown_in_part(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "jobs.db"))
    large = lab.submit(params=Body("json", 3, b"x" * 10_000 + b"\xff"))
    small = lab.submit(params=Body("json", 1, b'"<script>"'))
    shown = lab.jobs.operate.job(large).params
    assert shown is not None
    assert (len(shown.text), shown.bytes, shown.cut, shown.version) == (BODY_BYTES, 10_001, True, 3)
    assert lab.jobs.operate.job(small).params.text == '"<script>"'  # type: ignore[union-attr]
    with pytest.raises(JobNotFound):
        lab.jobs.operate.job(99)
    lab.close()
