"""What a batch query has taken of a group is moved when it is done, and only then."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from roq.client.consume.takeover import LogPosition, read_position
from roq.errors import ConfigError
from roq.log.group_changes import GroupDelta, encode_deltas
from roq.model import LogId
from roq.protocol.consuming import GroupSettings
from roq.spark import taken_group
from roq.spark.offsets import Departed, Span
from roq.spark.taken_group import TakenGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

X1, X2 = LogId(1, 65537), LogId(2, 65538)
GIVEN = {"cluster": "a:1", "queue": "q", "group": "g"}


class Logs:
    """QueueLogs with a group in one of two logs; the other one has come a moment ago."""

    queue_id = "ab" * 16

    def __init__(self) -> None:
        self.moved: list[dict[LogId, tuple[int, int]]] = []

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None: ...

    def spans(self) -> Mapping[LogId, Span]:
        return {X1: Span(0, 9), X2: Span(0, 2)}

    def numbers(self) -> frozenset[int]:
        return frozenset({1, 2})

    def departed(self) -> Mapping[int, Departed]:
        return {}

    def take(self) -> dict[LogId, bytes]:
        return {X1: encode_deltas([GroupDelta("g", 4, settings=GroupSettings(), created_us=7)])}

    def move(self, position: Mapping[LogId, LogPosition], until: Mapping[LogId, int]) -> None:
        self.moved.append({key: (position[key].base, at) for key, at in until.items()})


class Reading:
    """Stands in for a session, and for what it reads with."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    @property
    def read(self) -> Reading:
        return self

    def format(self, name: str) -> Reading:
        assert name == "roq"
        return self

    def options(self, **given: str) -> Reading:
        self.given |= given
        return self

    def option(self, name: str, value: str) -> Reading:
        return self.options(**{name: value})

    def load(self) -> dict[str, str]:
        return self.given


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs()
    monkeypatch.setattr(taken_group, "QueueLogs", lambda _: made)
    return made


def taken(**options: str) -> TakenGroup:
    return TakenGroup(cast("SparkSession", Reading()), **{**GIVEN, **options})


def test_the_rows_are_fixed_when_the_group_is_taken(logs: Logs) -> None:
    with taken() as group:
        given = cast("dict[str, Any]", group.df)
        assert json.loads(given["endingOffsets"]) == {str(X1): 9}
        (said,) = json.loads(given["groupPosition"]).values()
        assert read_position(b64decode(said)).base == 4
        assert (given["group"], given["queue"]) == ("g", "q")
        assert logs.moved == [], "nothing is done yet"
    assert logs.moved == [{X1: (4, 9)}]


def test_what_has_failed_moves_nothing(logs: Logs) -> None:
    with pytest.raises(ZeroDivisionError), taken():
        raise ZeroDivisionError
    assert logs.moved == []
    group = taken(endingOffsets=f'{{"{X1}": 6}}')
    for _ in range(2):
        group.move()
    assert logs.moved == [{X1: (4, 6)}] * 2


def test_a_group_is_named() -> None:
    with pytest.raises(ConfigError, match='option "group" is missing'):
        taken(group="")
