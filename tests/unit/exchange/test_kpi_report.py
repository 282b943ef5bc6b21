"""What an exchange reports of itself."""

from exchange_driver import Publisher, exchange
from exchange_members import Consumer, filled

from roq.exchange.kpi_report import CpuMeter, busiest_publishers, load_of, memory_bytes


def test_the_load_has_the_counters_and_the_present_state() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send(count=3)
    load = load_of(publisher.exchange.core, 12.5, memory=7_000_000)
    assert (load.messages_in, load.batches_in, load.publishers) == (3, 1, 1)
    assert (load.end_offset, load.floor_offset, load.cpu_percent) == (1, 0, 12.5)
    assert load.ring_bytes > 0
    assert load.memory_bytes == 7_000_000


def test_the_load_tells_the_longest_turn_and_who_waits_for_an_acknowledgement() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    core = publisher.exchange.core
    assert load_of(core, 0.0).acks_pending == 0
    link = next(iter(core.links))
    link.owes_ack = True
    load = load_of(core, 0.0, 0.0125)
    assert (load.acks_pending, load.lag_ms) == (1, 12.5)


def test_the_busiest_are_those_who_sent_most_since_the_last_report() -> None:
    early = Publisher(exchange(), name="early")
    late = Publisher(early.exchange, name="late")
    early.hello()
    late.hello()
    early.send(count=50)
    late.send(count=2)
    assert busiest_publishers(early.exchange.core)[0].publisher == early.id
    late.send(count=10)
    top = busiest_publishers(early.exchange.core)
    assert [load.publisher for load in top] == [late.id, early.id]
    assert [load.messages for load in top] == [12, 50]


def test_the_processor_meter_reads_zero_when_no_time_has_passed() -> None:
    meter = CpuMeter(1.0)
    assert meter.read(1.0) == 0.0
    assert meter.read(1_000_001.0) < 1.0
    assert memory_bytes() > 1_000_000


def test_the_load_tells_how_old_the_oldest_is_that_a_group_has_not_done() -> None:
    there = filled(1, 1)
    assert load_of(there.core, 0.0).groups_oldest_seconds == 0.0
    member = Consumer(there)
    member.enter()
    there.core.begin(5.0, 5_001_000)
    assert load_of(there.core, 0.0).groups_oldest_seconds == 5.0, "nobody was handed anything"
    member.credit()
    assert load_of(there.core, 0.0).groups_oldest_seconds == 5.0
    member.done(1, 2)
    assert load_of(there.core, 0.0).groups_oldest_seconds == 0.0
