"""What a caller who sends on and on leaves, and when it is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from roq.client.io.engine import Engine
from roq.client.publish.connection import Connection
from roq.client.publish.connections import (
    ATTENDED_SECONDS,
    HERE_SECONDS,
    HOLD_BYTES,
    HOLD_SECONDS,
    Connections,
)
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Receipt
from roq.client.publish.topics import Stream

LINK = 1
SMALL = b"x" * (HOLD_BYTES // 4)
STREAM = Stream("topic", b"topic")
SOON = HOLD_SECONDS / 2


class Sink:
    """A connection that keeps what it is given."""

    def __init__(self) -> None:
        self.link = LINK
        self.put: list[bytes] = []
        self.sent: list[bytes] = []

    def put_batch(self, topic: bytes, batch: bytes) -> None:
        assert topic == STREAM.data
        self.put.append(batch)

    @property
    def unsent(self) -> int:
        return sum(map(len, self.put))

    def flush(self) -> bool:
        self.sent += self.put
        self.put.clear()
        return True


def batch(data: bytes = SMALL) -> PendingBatch:
    return PendingBatch(
        STREAM, data, link_number=1, first_sequence=0, count=1,
        receipt=cast("Receipt", None), sealed_at=0.0,
    )  # fmt: skip


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def connections(sink: Sink) -> Iterator[Connections]:
    engine = Engine()
    engine.start()
    made = Connections(engine)
    made.add(cast("Connection", sink))
    yield made
    engine.close()


def test_small_batches_of_a_busy_caller_leave_together(
    connections: Connections, sink: Sink
) -> None:
    left = []
    for number in range(9):
        assert connections.transmit(LINK, [batch()], 10.0 + number * SOON, HOLD_BYTES)
        left.append(len(sink.sent))
    # The first finds nobody who was here; then four of them make one piece.
    assert left == [1, 1, 1, 1, 5, 5, 5, 5, 9]


@pytest.mark.parametrize(
    ("later", "under_way"), [(2 * HOLD_SECONDS, HOLD_BYTES), (SOON, HOLD_BYTES - 1), (SOON, 0)]
)
def test_nothing_is_held_of_who_comes_seldom_or_has_little_under_way(
    connections: Connections, sink: Sink, later: float, under_way: int
) -> None:
    connections.transmit(LINK, [batch()], 10.0, under_way)
    connections.transmit(LINK, [batch()], 10.0 + later, under_way)
    assert len(sink.sent) == 2
    assert not connections.holding


def test_nothing_is_held_where_more_than_an_acknowledgement_is_waited_for(
    connections: Connections, sink: Sink
) -> None:
    connections.holds = False
    for number in range(3):
        connections.transmit(LINK, [batch()], 10.0 + number * SOON, HOLD_BYTES)
    assert len(sink.sent) == 3


def test_what_is_held_is_sent_by_who_looks_in(connections: Connections, sink: Sink) -> None:
    connections.transmit(LINK, [batch()], 10.0, HOLD_BYTES)
    connections.transmit(LINK, [batch()], 10.0 + SOON, HOLD_BYTES)
    assert len(sink.put) == 1
    assert not connections.attended(10.0)  # the first look is a whole one
    assert connections.attended(10.0 + SOON)
    assert not sink.put
    assert not connections.holding


def test_what_is_held_is_not_forgotten_if_a_signal_handler_ends_the_sending(
    connections: Connections, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections.transmit(LINK, [batch()], 10.0, HOLD_BYTES)
    connections.transmit(LINK, [batch()], 10.0 + SOON, HOLD_BYTES)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sink, "flush", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connections.flush()
    connections.flush()
    assert not sink.put


def test_who_has_gone_is_not_there(connections: Connections) -> None:
    connections.transmit(LINK, [batch()], 10.0)
    assert not connections.attended(10.0)
    assert connections.attended(10.0 + HERE_SECONDS)
    assert not connections.attended(10.0 + 2 * HERE_SECONDS)


def test_now_and_then_somebody_else_looks_all_the_same(connections: Connections) -> None:
    connections.transmit(LINK, [batch()], 10.0)
    assert not connections.attended(10.0)
    connections.transmit(LINK, [batch()], 10.0 + 2 * ATTENDED_SECONDS)
    assert not connections.attended(10.0 + 2 * ATTENDED_SECONDS)


def test_who_judges_exchanges_by_how_soon_they_answer_is_held_up_by_nothing(
    connections: Connections, sink: Sink
) -> None:
    prompt = Connections(connections._engine, prompt=True)
    prompt.add(cast("Connection", sink))
    for now in (10.0, 10.0 + SOON):
        assert prompt.transmit(LINK, [batch()], now, HOLD_BYTES)
        assert not prompt.attended(now)
    assert len(sink.sent) == 2


def test_without_a_connection_nothing_is_taken(connections: Connections) -> None:
    assert not connections.transmit(LINK + 1, [batch()], 10.0)
