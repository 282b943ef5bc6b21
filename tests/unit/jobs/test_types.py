"""Types of jobs: what handlers take, and what becomes of params over versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from roq.errors import ConfigError, InvalidRequest, MessageTooLarge
from roq.jobs.handle import JobHandle
from roq.jobs.limits import TypeLimits
from roq.jobs.rows import Body, NewJob
from roq.jobs.states import HIGH
from roq.jobs.types import PARAMS_BYTES_MAX, JobType, Unreadable, microseconds, priority_of


class Resize(msgspec.Struct):
    images: list[str]
    width: int = 800


class Nobody:
    """Submits nothing."""

    def submit(
        self, type_: JobType[Any], jobs: Sequence[NewJob], connection: sa.Connection | None
    ) -> list[JobHandle[Any]]:
        raise AssertionError


def resize(job: object, params: Resize) -> int:
    return len(params.images)


def made(handler: Any = resize, **given: Any) -> JobType[Any]:
    return JobType(Nobody(), handler, **{"name": "Resize", **given})


def test_params_and_results_come_back_as_they_were() -> None:
    kind = made()
    params = Resize(["a\0<script>", "b"], 10)
    assert kind.decode(kind.encode(params)) == params
    assert kind.decode_result(kind.encode_result(7)) == 7
    assert kind.decode_result(kind.encode_result(None)) is None
    assert kind(None, params) == 2


def test_old_params_are_read_by_new_code() -> None:
    old = Body("json", 1, b'{"images": ["a"]}')
    assert made(version=2).decode(old) == Resize(["a"], 800)
    renamed = made(
        version=2, upgrade=lambda _version, raw: {"images": raw["files"], "width": raw["w"]}
    )
    assert renamed.decode(Body("json", 1, b'{"files": ["a"], "w": 1}')) == Resize(["a"], 1)
    with pytest.raises(Unreadable, match="files"):
        renamed.decode(old)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (Body("json", 2, b"{}"), "start a newer one"),
        (Body("pickle", 1, b""), "'pickle'"),
        (Body("json", 1, b'{"images": 3}'), "Expected `array`"),
        (Body("json", 1, b"\xff"), "cannot be read"),
        (None, "has no params"),
    ],
)
def test_params_that_cannot_be_read_say_why(body: Body | None, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        made().decode(body)


def test_params_are_checked_when_they_are_submitted() -> None:
    kind = made(items=lambda params: len(params.images))
    job = kind.new(Resize(["a", "b"]), priority="high", tag="t", key="k")
    assert (job.items, job.priority, job.tag, job.key) == (2, HIGH, "t", "k")
    with pytest.raises(InvalidRequest, match="params of type Resize"):
        made().new({"images": 1})
    with pytest.raises(InvalidRequest, match="params of type Resize"):
        made().new(object())
    with pytest.raises(MessageTooLarge, match="store them elsewhere"):
        made().new(Resize(["x" * PARAMS_BYTES_MAX]))
    with pytest.raises(InvalidRequest, match="takes no params"):
        made(lambda job: None).new(1)
    with pytest.raises(InvalidRequest, match="items of type"):
        made(items=lambda _params: -1).new(Resize([]))


@pytest.mark.parametrize(
    "given", [{"tag": "a\nb"}, {"key": ""}, {"unique": "x" * 201}, {"tag": "\0"}, {"tag": "\x1b["}]
)
def test_texts_for_people_are_printable_and_short(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        made().new(Resize([]), **given)


def test_a_job_comes_after_jobs_alone() -> None:
    with pytest.raises(InvalidRequest, match="handles of jobs"):
        made().new(Resize([]), after=["7"])  # type: ignore[list-item]


def test_times_have_a_zone_and_may_be_before_now_or_far_away() -> None:
    assert microseconds(datetime(1960, 1, 1, tzinfo=UTC)) == 0
    assert microseconds(datetime(9999, 12, 31, tzinfo=UTC)) > 2**57
    with pytest.raises(InvalidRequest, match="time zone"):
        microseconds(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused


def test_priorities() -> None:
    assert priority_of("HIGH") == HIGH
    for wrong in (11, "highest", None):
        with pytest.raises(InvalidRequest, match="no priority"):
            priority_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"limits": TypeLimits(cluster_limit=-1)}, {"version": 0}, {"handler": lambda: None},
        {"handler": lambda a, b, c: None},
    ],
)  # fmt: skip
def test_a_type_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        made(**given)


def test_a_name_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        made(name="")
