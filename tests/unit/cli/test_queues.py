"""What `roq queue` makes of its arguments."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

import roq
from roq.cli.client import ANSWER_SECONDS, CHANGE_SECONDS
from roq.cli.queues import age_text, parse_limits, queue
from roq.client.cluster import COMMAND_SECONDS


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


class PaperCluster:
    """Notes how long it is given."""

    def __init__(self) -> None:
        self.given: list[float] = []

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        self.given.append(timeout)
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_queue(self, _name: str, *, timeout: float, **_: object) -> None:
        self.given.append(timeout)

    def start_queue(self, _name: str, *, timeout: float) -> None:
        self.given.append(timeout)

    remove_queue = stop_queue = start_queue


@pytest.mark.parametrize("command", ["create", "remove", "start", "stop"])
def test_a_change_gets_the_time_that_is_given(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    cluster = PaperCluster()
    monkeypatch.setattr(roq, "connect", cluster.connect)
    assert CliRunner().invoke(queue, [command, "orders", "--timeout", "3"]).exit_code == 0
    assert cluster.given == [3.0, 3.0]
    assert CliRunner().invoke(queue, [command, "orders"]).exit_code == 0
    assert cluster.given[2:] == [ANSWER_SECONDS, CHANGE_SECONDS]
    assert CHANGE_SECONDS == COMMAND_SECONDS
