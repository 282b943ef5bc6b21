"""From documents of the statistics stream to the rows of `roq top`."""

from __future__ import annotations

import msgspec
import pytest

from roq.client.admin.board import EVENTS_MAX, STALE_SECONDS, Board, MoveEvent, ScaleEvent
from roq.protocol.kpi import (
    ExchangeKpi,
    MoveKpi,
    PublisherRate,
    QueueKpi,
    ScaleKpi,
    SubscriberKpi,
)

QUEUE_ID = b"q" * 16
LIMIT = 1_000.0


def exchange(number: int, size: float, *top: PublisherRate, queue_id: bytes = QUEUE_ID, **fields):  # type: ignore[no-untyped-def]
    zeros = {
        field.name: 0
        for field in msgspec.structs.fields(ExchangeKpi)
        if getattr(field.type, "__origin__", field.type) in {int, float} and field.required
    }
    given = {
        "queue": "orders",
        "queue_id": queue_id,
        "exchange": f"x{number}",
        "number": number,
        "host": "127.0.0.1",
        "bytes_in_per_second": size,
        "top": list(top),
    }
    return ExchangeKpi(**{**zeros, **given, **fields})


def total(exchanges: int = 1, **fields: object) -> QueueKpi:
    given = {
        "queue": "orders", "queue_id": QUEUE_ID, "monitor_epoch": 1, "version": 1,
        "exchanges": exchanges, "publishers": 0, "subscribers": 0, "waiting": 0,
        "limit_bytes_per_second": LIMIT, "messages_in_per_second": 0.0, "bytes_in_per_second": 0.0,
        "messages_out_per_second": 0.0, "bytes_out_per_second": 0.0,
    }  # fmt: skip
    return QueueKpi(**{**given, **fields})  # type: ignore[arg-type]


def rate(publisher: str, size: float) -> PublisherRate:
    return PublisherRate(
        publisher=publisher,
        messages=1,
        bytes=1,
        messages_per_second=size / 10,
        bytes_per_second=size,
    )


def subscriber(name: str, received: float, latency: float, lost: int = 0) -> SubscriberKpi:
    return SubscriberKpi(
        queue="orders",
        queue_id=QUEUE_ID,
        subscriber=name,
        received=1,
        received_per_second=received,
        latency_ms=latency,
        lost=lost,
    )


def move(publisher: str, state: str, epoch: int = 1, **fields: object) -> MoveKpi:
    given: dict[str, object] = {"sources": [1], "targets": [2], "reason": "x1 is full"}
    return MoveKpi(
        queue="orders", queue_id=QUEUE_ID, publisher=publisher, state=state, epoch=epoch,
        **{**given, **fields},
    )  # type: ignore[arg-type] # fmt: skip


def scale(direction: str, state: str, number: int = 0, **fields: object) -> ScaleKpi:
    return ScaleKpi(
        queue="orders", queue_id=QUEUE_ID, direction=direction, state=state, number=number,
        **{"reason": "no room", **fields},
    )  # type: ignore[arg-type] # fmt: skip


@pytest.fixture
def board() -> Board:
    return Board("orders")


def test_the_load_of_an_exchange_is_its_share_of_the_limit(board: Board) -> None:
    board.take(exchange(2, 250.0), 0.0)
    board.take(exchange(1, 1_100.0), 0.0)
    board.take(total(2), 0.0)
    view = board.view(1.0)
    assert [(row.exchange, row.load) for row in view.exchanges] == [("x1", 1.1), ("x2", 0.25)]
    assert view.load == 1.1
    assert view.bytes_in == 1_350.0


def test_without_a_limit_there_is_no_load(board: Board) -> None:
    board.take(exchange(1, 1_100.0), 0.0)
    assert board.view(0.0).load == 0.0


def test_an_exchange_that_is_not_heard_of_any_more_is_left_out(board: Board) -> None:
    board.take(exchange(1, 1.0), 0.0)
    board.take(exchange(2, 1.0), 0.0)
    board.take(exchange(2, 1.0), STALE_SECONDS)
    assert [row.number for row in board.view(STALE_SECONDS + 0.1).exchanges] == [2]


def test_counts_of_a_queue_that_is_silent_are_not_shown_for_ever(board: Board) -> None:
    board.take(total(1, subscribers=3, waiting=2), 0.0)
    assert board.view(1.0).subscriber_count == 3
    assert board.view(STALE_SECONDS + 1.0).subscriber_count == 0


def test_it_is_complete_when_all_exchanges_have_been_heard_of(board: Board) -> None:
    assert not board.complete()
    board.take(total(2), 0.0)
    board.take(exchange(1, 1.0), 0.0)
    assert not board.complete()
    board.take(exchange(2, 1.0), 0.0)
    assert board.complete()


def test_publishers_are_summed_over_their_exchanges_the_busiest_first(board: Board) -> None:
    board.take(exchange(1, 0.0, rate("aa", 100.0), rate("bb", 150.0)), 0.0)
    board.take(exchange(2, 0.0, rate("aa", 100.0)), 0.0)
    rows = board.view(0.0).publishers
    assert [(row.publisher, row.exchanges, row.bytes) for row in rows] == [
        ("aa", ["x1", "x2"], 200.0),
        ("bb", ["x1"], 150.0),
    ]


def test_a_publisher_is_not_shown_at_the_exchange_that_it_has_left(board: Board) -> None:
    board.take(exchange(1, 0.0, rate("aa", 0.0), rate("silent", 0.0)), 0.0)
    board.take(exchange(2, 0.0, rate("aa", 100.0)), 0.0)
    places = {row.publisher: row.exchanges for row in board.view(0.0).publishers}
    assert places == {"aa": ["x2"], "silent": ["x1"]}


def test_latency_is_the_mean_over_messages(board: Board) -> None:
    board.take(subscriber("one", 300.0, 2.0), 0.0)
    board.take(subscriber("two", 100.0, 10.0, lost=5), 0.0)
    view = board.view(0.0)
    assert view.latency_ms == 4.0
    assert view.lost == 5
    assert [row.subscriber for row in view.subscribers] == ["one", "two"]


def test_a_move_is_one_event_from_its_beginning_to_its_end(board: Board) -> None:
    board.take(exchange(1, 0.0, rate("aa", 100.0)), 0.0)
    board.take(move("aa", "started"), 1.0)
    assert board.view(1.0).publishers[0].moving
    board.take(move("aa", "accepted", pause_ms=3.5), 1.5)
    view = board.view(2.0)
    assert not view.publishers[0].moving
    assert view.moves == 1
    [event] = view.events
    assert isinstance(event, MoveEvent)
    assert (event.at, event.state, event.pause_ms) == (1.0, "accepted", 3.5)
    assert (event.sources, event.targets) == (["x1"], ["x2"])


def test_moves_of_different_publishers_and_later_ones_of_the_same_are_events_of_their_own(
    board: Board,
) -> None:
    for publisher, state in (
        ("aa", "started"), ("bb", "started"), ("aa", "failed"), ("aa", "started"),
    ):  # fmt: skip
        board.take(move(publisher, state), 0.0)
    shown = [(event.publisher, event.state) for event in board.view(0.0).events]  # type: ignore[union-attr]
    assert sorted(shown) == [("aa", "failed"), ("aa", "started"), ("bb", "started")]


def test_a_striped_publisher_is_one_publisher(board: Board) -> None:
    board.take(exchange(1, 300.0, rate("big", 200.0), rate("aa", 100.0), publishers=3), 0.0)
    board.take(exchange(2, 200.0, rate("big", 200.0), publishers=1), 0.0)
    assert board.view(0.0).publisher_count == 3


def test_a_move_whose_end_nobody_tells_does_not_last_for_ever(board: Board) -> None:
    board.take(move("aa", "started"), 0.0)
    board.take(exchange(1, 0.0, rate("aa", 100.0)), 20.0)
    assert not board.view(20.0).publishers[0].moving


def test_a_scale_operation_is_one_event_with_the_exchange_as_soon_as_it_is_known(
    board: Board,
) -> None:
    board.take(scale("out", "started"), 1.0)
    board.take(scale("out", "done", 3, host="127.0.0.3", seconds=0.6), 2.0)
    board.take(scale("in", "started", 3), 3.0)
    first, second = board.view(4.0).events
    assert isinstance(first, ScaleEvent)
    assert (first.at, first.exchange, first.host, first.state) == (1.0, "x3", "127.0.0.3", "done")
    assert isinstance(second, ScaleEvent)
    assert (second.direction, second.state) == ("in", "started")


def test_exchanges_that_are_added_at_once_are_one_event_each(board: Board) -> None:
    for _ in range(3):
        board.take(scale("out", "started"), 1.0)
    board.take(scale("out", "done", 2), 2.0)
    assert [event.state for event in board.view(2.0).events] == ["started", "started", "done"]
    for number in (3, 4):
        board.take(scale("out", "done", number), 3.0)
    events = board.view(3.0).events
    assert [(event.at, event.state) for event in events] == [(1.0, "done")] * 3


def test_events_are_in_the_order_in_which_they_began(board: Board) -> None:
    board.take(scale("out", "started"), 1.0)
    board.take(move("aa", "started"), 2.0)
    board.take(scale("out", "done", 2), 3.0)
    assert [event.at for event in board.view(3.0).events] == [1.0, 2.0]


def test_only_the_last_events_are_kept(board: Board) -> None:
    for number in range(EVENTS_MAX + 10):
        board.take(move(f"{number:02x}", "accepted"), float(number))
    view = board.view(1_000.0)
    assert len(view.events) == EVENTS_MAX
    assert view.moves == EVENTS_MAX + 10
    assert view.events[0].at == 10.0


def test_a_queue_that_is_made_anew_begins_with_an_empty_board(board: Board) -> None:
    board.take(exchange(1, 1.0), 0.0)
    board.take(exchange(7, 1.0), 0.0)
    board.take(exchange(1, 2.0, queue_id=b"r" * 16), 1.0)
    assert [(row.number, row.bytes_in) for row in board.view(1.0).exchanges] == [(1, 2.0)]


def test_a_view_is_plain_json(board: Board) -> None:
    board.take(exchange(1, 1.0, rate("aa", 1.0)), 0.0)
    board.take(move("aa", "started"), 0.0)
    plain = msgspec.json.decode(msgspec.json.encode(board.view(0.0)))
    assert plain["exchanges"][0]["exchange"] == "x1"
    assert plain["events"][0]["type"] == "move"
