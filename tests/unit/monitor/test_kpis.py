import bson
from monitor_driver import QUEUE_ID, Driver, published

from roq.monitor.events import Effect, Listened
from roq.protocol import kpi
from roq.protocol.control import Alive, Attach, Empty
from roq.protocol.reports import PublisherLoad
from roq.protocol.requesting import Durations


def old(effects: list[Effect]) -> list[list[dict[str, object]]]:
    """The messages that old consoles understand."""
    return [
        [bson.decode(frame) for frame in frames]
        for frames in published(effects)
        if not frames[0].startswith(kpi.NUMERIC_TOPIC)
    ]


def numeric(effects: list[Effect], kind: type) -> list:
    found = [
        kpi.decode_numeric(frames)
        for frames in published(effects)
        if frames[0].startswith(kpi.NUMERIC_TOPIC)
    ]
    return [each for each in found if isinstance(each, kind)]


def test_every_period_tells_of_each_exchange_and_of_the_queue() -> None:
    driver = Driver(kpi_seconds=2.0)
    driver.report(1, publishers=2, messages_in=10, bytes_in=1_000, memory_bytes=3 << 20)
    driver.report(2, publishers=1)
    effects = driver.advance(2.0)
    assert old(effects) == [
        [
            {"CMD": 20, "X_ID": "x1", "QName": "orders"},
            {
                "CMD": 21, "Minute": "0", "TotalProcessed": "10", "Processed": "10",
                "TotalThroughput": "1000", "Throughput": "1000", "Producers": "2",
            },
            {"CMD": 22, "CPU": "0", "MEMORY": "3"},
        ],
        [
            {"CMD": 20, "X_ID": "x2", "QName": "orders"},
            {
                "CMD": 21, "Minute": "0", "TotalProcessed": "0", "Processed": "0",
                "TotalThroughput": "0", "Throughput": "0", "Producers": "1",
            },
            {"CMD": 22, "CPU": "0", "MEMORY": "0"},
        ],
        [{"CMD": 23, "QName": "orders", "XChanges": "2", "Producers": "3", "Throughput": "1000"}],
    ]  # fmt: skip


def test_what_nobody_listens_to_is_not_published_and_not_counted_in_later_periods() -> None:
    driver = Driver()
    driver.alive("s", received=10)
    driver.handle(Listened(anybody=False))
    driver.report(1, messages_in=10, bytes_in=1_000)
    assert published(driver.advance(1.0)) == []
    driver.handle(Listened(anybody=True))
    driver.report(1, messages_in=15, bytes_in=1_600)
    driver.alive("s", received=14)
    effects = driver.advance(1.0)
    counts = old(effects)[0][1]
    assert (counts["TotalProcessed"], counts["Processed"]) == ("15", "5")
    [reader] = [each[0] for each in old(effects) if "Received" in each[0]]
    assert (reader["TotalReceived"], reader["Received"]) == ("14", "4")


def test_a_period_counts_what_was_added_since_the_last_one() -> None:
    driver = Driver()
    driver.report(1, messages_in=10, bytes_in=1_000)
    driver.advance(1.0)
    driver.report(1, messages_in=15, bytes_in=1_600)
    counts = old(driver.advance(1.0))[0][1]
    assert (counts["TotalProcessed"], counts["Processed"]) == ("15", "5")
    assert (counts["TotalThroughput"], counts["Throughput"]) == ("1600", "600")


def test_a_restarted_exchange_counts_from_zero() -> None:
    driver = Driver()
    driver.report(1, 1, messages_in=1_000)
    driver.advance(1.0)
    driver.report(1, 2, messages_in=7)
    counts = old(driver.advance(1.0))[0][1]
    assert (counts["TotalProcessed"], counts["Processed"]) == ("7", "7")


def test_publishers_are_called_as_they_call_themselves_the_last_time() -> None:
    driver = Driver()
    top = [PublisherLoad(name.encode(), 1, 1) for name in ("early", "late", "silent")]
    driver.report(1, publishers=3, top=top)
    driver.receive("early", Attach(id=1, queue_id=QUEUE_ID, publisher=b"early", name="till-1"))
    driver.alive("early", "publisher")
    late = Alive(queue_id=QUEUE_ID, client=b"late", role="publisher", name="till-2")
    driver.receive("late", late)
    driver.alive("silent", "publisher")
    [document] = numeric(driver.advance(1.0), kpi.ExchangeKpi)
    assert [rate.name for rate in document.top] == ["till-1", "till-2", ""]


def test_how_requests_stand_is_told_as_their_exchange_tells_it() -> None:
    driver = Driver()
    load = {
        "requests_otherwise": 1, "responses_fetched": 2, "responses_expired": 3,
        "requests_discarded_by": {"all busy": 4}, "requests_waiting": Durations([1, 2], 0.5),
        "requests_running": Durations([0, 1], 0.25), "responses_unfetched": Durations([3], 0.1),
    }  # fmt: skip
    driver.report(1, **load)
    [document] = numeric(driver.advance(1.0), kpi.ExchangeKpi)
    assert {name: getattr(document, name) for name in load} == load


def test_a_queue_without_exchanges_still_tells_that_it_lives() -> None:
    assert old(Driver().advance(1.0)) == [
        [{"CMD": 23, "QName": "orders", "XChanges": "0", "Producers": "0", "Throughput": "0"}]
    ]


def test_a_subscriber_is_told_of_once_per_word_it_gives() -> None:
    driver = Driver()
    driver.join("s")
    driver.alive("s", received=100, latency_ms=2, lost=3)
    [document] = old(driver.advance(1.0))[1]
    assert document == {
        "CMD": 31, "QName": "orders", "Minute": "0", "TotalReceived": "100", "Received": "100",
        "SubsriberID": b"s".hex(), "MeanLat": "2",
    }  # fmt: skip
    assert len(old(driver.advance(1.0))) == 1
    driver.alive("s", received=130)
    assert old(driver.advance(1.0))[1][0]["Received"] == "30"


def test_programs_get_numbers_with_rates_and_busy_publishers() -> None:
    driver = Driver()
    for second in range(3):
        driver.report(
            1,
            publishers=1,
            messages_in=second * 10,
            bytes_in=second * 1_000,
            top=[PublisherLoad(b"\xab", second * 10, second * 1_000)],
        )
        driver.effects.clear()
        driver.advance(1.0)
    [document] = numeric(driver.effects, kpi.ExchangeKpi)
    assert document.exchange == "x1"
    assert document.messages_in_per_second == 10.0
    assert document.bytes_in_per_second == 1_000.0
    assert document.top[0].publisher == "ab"
    assert document.top[0].bytes_per_second == 1_000.0
    [queue] = numeric(driver.effects, kpi.QueueKpi)
    assert queue.bytes_in_per_second == 1_000.0
    assert queue.limit_bytes_per_second == 50e6


def test_programs_get_what_subscribers_tell() -> None:
    driver = Driver()
    driver.join("s")
    driver.advance(1.0)
    driver.alive("s", received=100, lost=3)
    [document] = numeric(driver.advance(1.0), kpi.SubscriberKpi)
    assert (document.received, document.lost) == (100, 3)
    assert document.received_per_second == 50.0


def test_publishers_that_are_not_among_the_busiest_are_summed() -> None:
    driver = Driver()
    for second in range(2):
        driver.report(
            1, publishers=12, messages_in=second * 100, bytes_in=second * 10_000,
            top=[PublisherLoad(b"\xab", second * 10, second * 1_000)], acks_pending=3, lag_ms=4.5,
        )  # fmt: skip
        driver.effects.clear()
        driver.advance(1.0)
    [document] = numeric(driver.effects, kpi.ExchangeKpi)
    assert document.others == 11
    assert document.others_messages_per_second == 90.0
    assert document.others_bytes_per_second == 9_000.0
    assert (document.acks_pending, document.lag_ms) == (3, 4.5)


def test_an_exchange_that_is_being_emptied_is_shown_so() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2)
    driver.receive("gcm", Empty(id=4, queue_id=b"q" * 16, number=2))
    documents = numeric(driver.advance(1.0), kpi.ExchangeKpi)
    assert [each.leaving for each in documents] == [False, True]
