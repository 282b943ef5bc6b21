"""What a daemon publishes is taken one by one, in time or not, until the stream is closed."""

from __future__ import annotations

from typing import cast

import pytest

from roq.client.admin.listener import Listener
from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import Closed

MOST = 3


class Numbers(Listener[int]):
    """Tells numbers that a test gives it, in place of a daemon."""

    def _locate(self) -> None:
        """Nothing is to be found."""

    def _received(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._add(int(frame))

    def told(self, *numbers: int) -> None:
        """The daemon publishes these."""
        frames = [b"%d" % number for number in numbers]
        self._engine.run_sync(lambda: self._received(frames))


@pytest.fixture
def numbers(engine: Engine) -> Numbers:
    return Numbers(engine, cast("Management", None), name="numbers", topic=b"", most=MOST)


def test_items_come_in_order_and_nothing_comes_when_there_is_none(numbers: Numbers) -> None:
    numbers.told(1, 2)
    assert [numbers.receive(5), numbers.receive(5), numbers.receive(0)] == [1, 2, None]


def test_of_what_is_not_taken_in_time_the_oldest_are_dropped_and_counted(numbers: Numbers) -> None:
    numbers.told(1, 2, 3, 4, 5)
    assert [numbers.receive(0) for _ in range(MOST)] == [3, 4, 5]
    assert numbers.dropped == 2


def test_an_event_loop_is_told_of_each_item_and_of_the_end(numbers: Numbers) -> None:
    rings: list[int] = []
    numbers._on_ready = lambda: rings.append(numbers._items.qsize())
    numbers.told(1, 2)
    numbers.close()
    assert rings == [1, 2, 3]


def test_what_came_before_the_end_is_taken_and_then_the_end_is_for_ever(numbers: Numbers) -> None:
    numbers.told(1, 2)
    numbers.close()
    numbers.close()
    assert list(numbers) == [1, 2]
    for _ in range(2):
        with pytest.raises(Closed, match="the numbers is closed"):
            numbers.receive(0)


def test_the_end_of_the_client_ends_it(engine: Engine, numbers: Numbers) -> None:
    engine.close()
    with pytest.raises(Closed):
        numbers.receive(5)
    numbers.close()
