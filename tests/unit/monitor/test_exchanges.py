"""The exchanges of a queue as their monitor knows them, by what they report."""

from __future__ import annotations

import pytest

from roq.errors import InvalidRequest
from roq.model import ExchangeInfo
from roq.monitor.exchanges import Exchanges, ReportOutcome
from roq.protocol.control import ExchangeReport
from roq.protocol.reports import ExchangeLoad
from roq.timing import EXCHANGE_HEARD_SECONDS, EXCHANGE_LOST_SECONDS, IDLE_FACTOR

PEER = (b"peer", False)


def report(
    number: int = 1, epoch: int = 7, load: ExchangeLoad | None = None, **fields: object
) -> ExchangeReport:
    address = fields.pop("data", f"tcp://10.0.0.{number}:7000")
    info = ExchangeInfo(
        number=number, epoch=epoch, generation=epoch, host="h1",
        data=str(address), live=f"tcp://10.0.0.{number}:7001",
    )  # fmt: skip
    return ExchangeReport(
        queue_id=b"id",
        exchange=info,
        load=load or ExchangeLoad(),
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture
def exchanges() -> Exchanges:
    found = Exchanges()
    assert found.report(report(), PEER, 0.0) is ReportOutcome.CHANGED
    return found


def test_the_same_again_is_nothing_that_clients_must_be_told(exchanges: Exchanges) -> None:
    assert exchanges.report(report(), PEER, 1.0) is ReportOutcome.SAME
    exchanges.check()


def test_another_address_or_another_process_is(exchanges: Exchanges) -> None:
    moved = report(data="tcp://10.0.0.9:7000")
    assert exchanges.report(moved, PEER, 1.0) is ReportOutcome.CHANGED
    assert exchanges.report(report(epoch=8), PEER, 2.0) is ReportOutcome.CHANGED
    assert exchanges.find((1, 7)) is None
    assert exchanges.find((1, 8)) is exchanges.numbered(1)
    exchanges.check()


def test_an_earlier_process_of_a_number_is_stale_even_when_the_later_one_is_gone(
    exchanges: Exchanges,
) -> None:
    exchanges.report(report(epoch=8), PEER, 1.0)
    assert exchanges.report(report(epoch=7), PEER, 2.0) is ReportOutcome.STALE
    exchanges.expire(1_000.0)
    assert len(exchanges) == 0
    assert exchanges.report(report(epoch=7), PEER, 1_001.0) is ReportOutcome.STALE


def test_one_that_is_silent_is_lost_and_one_that_idles_has_more_time(exchanges: Exchanges) -> None:
    exchanges.report(report(number=2, idle=True), PEER, 0.0)
    assert exchanges.heard(EXCHANGE_HEARD_SECONDS) == [(2, 7)]
    assert exchanges.next_deadline() == EXCHANGE_LOST_SECONDS
    assert [each.number for each in exchanges.expire(EXCHANGE_LOST_SECONDS)] == [1]
    assert exchanges.next_deadline() == EXCHANGE_LOST_SECONDS * IDLE_FACTOR
    assert exchanges.numbers() == {2}


def test_one_that_was_dismissed_is_told_so_and_its_successor_is_not(exchanges: Exchanges) -> None:
    exchanges.dismiss(1)
    assert [each.number for each in exchanges.expire(0.0)] == [1]
    assert exchanges.report(report(), PEER, 1.0) is ReportOutcome.DISMISSED
    assert exchanges.report(report(epoch=8), PEER, 1.0) is ReportOutcome.CHANGED


def test_publishers_go_where_neither_stops_nor_is_emptied(exchanges: Exchanges) -> None:
    exchanges.report(report(number=2, stopping=True), PEER, 0.0)
    exchanges.report(report(number=3), PEER, 0.0)
    exchanges.leaving.add(3)
    assert [each.number for each in exchanges.accepting()] == [1]


def test_newcomers_count_until_the_exchange_has_reported_them(exchanges: Exchanges) -> None:
    exchange = exchanges.numbered(1)
    assert exchange is not None
    exchange.count(600.0)
    assert exchange.publishers(placed=0) == 1
    assert exchange.candidate(placed=0, shift=-100.0).throughput == 500.0
    exchanges.report(report(load=ExchangeLoad(publishers=1)), PEER, 1.0)
    assert (exchange.publishers(placed=0), exchange.expected) == (1, 0.0)
    assert exchange.publishers(placed=4) == 4


@pytest.mark.parametrize(
    "bad",
    [
        report(number=0),
        report(epoch=0),
        report(data="10.0.0.1:7000"),
        report(load=ExchangeLoad(bytes_in=1 << 53)),
        report(load=ExchangeLoad(lag_ms=float("nan"))),
        report(load=ExchangeLoad(cpu_percent=-1.0)),
    ],
    ids=["number", "epoch", "address", "counter", "nan", "negative"],
)
def test_what_no_exchange_can_say_is_refused_and_changes_nothing(bad: ExchangeReport) -> None:
    exchanges = Exchanges()
    with pytest.raises(InvalidRequest):
        exchanges.report(bad, PEER, 0.0)
    assert len(exchanges) == 0


def told(exchanges: Exchanges, number: int, groups: bytes, now: float) -> None:
    exchanges.report(report(number, groups=groups), PEER, now)


def test_groups_are_the_same_only_if_every_exchange_has_said_so_a_moment_ago() -> None:
    exchanges = Exchanges()
    told(exchanges, 1, b"g", 0.0)
    assert exchanges.compare_groups(1, [1], 0.0)
    told(exchanges, 2, b"h", 0.5)
    assert not exchanges.compare_groups(2, [1, 2], 0.5)
    told(exchanges, 2, b"g", 1.0)
    assert exchanges.compare_groups(2, [1, 2], 1.0)
    late = EXCHANGE_HEARD_SECONDS + 0.1
    told(exchanges, 2, b"g", late)
    assert not exchanges.compare_groups(2, [1, 2], late), "the other one may have a new one by now"
    assert not exchanges.compare_groups(9, [], late), "which is not there"


def test_an_exchange_of_an_earlier_version_says_nothing_of_its_groups() -> None:
    exchanges = Exchanges()
    told(exchanges, 1, b"", 0.0)
    assert not exchanges.compare_groups(1, [1], 0.0)
    told(exchanges, 2, b"g", 0.0)
    assert not exchanges.compare_groups(2, [1, 2], 0.0)


def test_the_groups_of_one_that_is_away_are_those_that_it_had() -> None:
    exchanges = Exchanges()
    told(exchanges, 1, b"g", 0.0)
    told(exchanges, 2, b"g", 0.0)
    assert not exchanges.compare_groups(1, [1, 2, 3], 0.0), "nothing is known of the third one"
    now = EXCHANGE_LOST_SECONDS + 1.0
    told(exchanges, 1, b"g", now)
    exchanges.expire(now)
    assert exchanges.compare_groups(1, [1, 2], now)
    told(exchanges, 1, b"h", now)
    assert not exchanges.compare_groups(1, [1, 2], now)
    assert exchanges.compare_groups(1, [1], now), "it was given up"


def test_what_makes_groups_differ_is_found_out() -> None:
    exchanges = Exchanges()
    exchanges.report(report(1, groups=b"ab", group_names=["a", "b"]), PEER, 0.0)
    exchanges.report(report(2, groups=b"b", group_names=["b"]), PEER, 0.0)
    exchanges.report(report(3, groups=b"", group_names=None), PEER, 0.0)
    assert exchanges.groups_apart([1, 2, 3, 4]) == ({"a": [2]}, [3, 4])
    exchanges.report(report(3, groups=b"51", group_names=None), PEER, 0.0)
    assert exchanges.groups_apart([1, 2, 3]) == ({"a": [2]}, [3]), "too many to be named"
    exchanges.report(report(2, groups=b"ab", group_names=None), PEER, 0.0)
    exchanges.report(report(3, groups=b"ab", group_names=None), PEER, 0.0)
    assert exchanges.groups_apart([1, 2, 3]) == ({}, []), "they are the same by now"
    exchanges.report(report(2, groups=b"b", group_names=["b"]), PEER, 0.0)
    now = EXCHANGE_LOST_SECONDS + 1.0
    exchanges.report(report(1, groups=b"ab", group_names=["a", "b"]), PEER, now)
    exchanges.expire(now)
    assert exchanges.groups_apart([1, 3]) == ({}, []), "it is away, and has the same"
    assert exchanges.groups_apart([1, 2]) == ({}, [2]), "it had others"
    exchanges.report(report(2, groups=b"ab", group_names=["a", "b"]), PEER, now)
    assert exchanges.groups_apart([1, 2]) == ({}, [])
