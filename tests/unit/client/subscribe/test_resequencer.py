import pytest
import xxhash

from roq.client.subscribe.recalls import WISHES_MAX, Recall
from roq.client.subscribe.resequencer import Resequencer
from roq.model import LogId, PublisherId
from roq.protocol.batch import HEADER_BYTES, Kind, pack, pack_empty, pack_floor
from roq.read.message import Batch
from roq.timing import REPLAY_SECONDS, STRIPED_LOSS_SECONDS

A, B = (1, 7), (2, 7)
P = PublisherId(b"p" * 16)


def data(first: int, count: int = 1, publisher: PublisherId = P, floor: int | None = None) -> bytes:
    payloads = [str(sequence).encode() for sequence in range(first, first + count)]
    return pack(
        payloads, publisher=publisher, epoch=1, link_number=1, first_sequence=first, created_us=5,
        extensions=b"" if floor is None else pack_floor(floor),
    )  # fmt: skip


def marker(first: int, age_us: int = 0) -> bytes:
    return pack_empty(
        Kind.MARKER, publisher=P, epoch=1, link_number=1, first_sequence=first, created_us=age_us
    )


class Driver:
    def __init__(self, **options: int) -> None:
        self.resequencer = Resequencer(0.0, **options)  # type: ignore[arg-type]
        self.resequencer.tables_complete(0.0)
        self.offset = 0

    def settle(self, now: float, as_of: float) -> float | None:
        """Both exchanges were verified as of this time."""
        return self.resequencer.settle(now, {A: as_of, B: as_of})

    def add(self, batch: bytes, source: LogId = A, now: float = 1.0) -> None:
        self.resequencer.add(source, b"t", self.offset, batch, now)
        self.offset += 1
        self.resequencer.check()

    def got(self) -> list[int]:
        found = [
            batch.sequence + index
            for batch in self.resequencer.out
            for index, payload in enumerate(batch.payloads)
            if payload == str(batch.sequence + index).encode()
        ]
        self.resequencer.out.clear()
        return found


def test_consecutive_batches_of_a_new_stream_are_delivered_from_zero() -> None:
    driver = Driver()
    driver.add(data(0, 3))
    driver.add(data(3))
    assert driver.got() == [0, 1, 2, 3]
    assert driver.resequencer.counts.delivered == 4


def test_a_replay_is_dropped_and_counted() -> None:
    driver = Driver()
    driver.add(data(0, 3))
    driver.add(data(0, 3), B)
    assert driver.got() == [0, 1, 2]
    assert driver.resequencer.counts.duplicates == 3


def test_a_replay_is_delivered_twice_without_the_duplicate_check() -> None:
    driver = Driver(check_duplicates=False)
    driver.add(data(0))
    driver.add(data(0), B)
    assert driver.got() == [0, 0]


def test_what_overlaps_is_trimmed() -> None:
    driver = Driver()
    driver.add(data(0, 3))
    driver.add(data(1, 4), B)
    assert driver.got() == [0, 1, 2, 3, 4]


def test_a_batch_above_its_turn_waits_for_the_other_exchange() -> None:
    driver = Driver()
    driver.add(data(2))
    driver.add(data(1))
    assert driver.got() == []
    assert driver.resequencer.waiting
    driver.add(data(0), B)
    assert driver.got() == [0, 1, 2]
    assert not driver.resequencer.waiting


def test_nothing_is_lost_before_every_exchange_was_verified_after_the_arrival() -> None:
    driver = Driver()
    driver.add(data(2), now=4.0)
    assert driver.settle(4.5, 3.9) == 4.0
    assert driver.resequencer.counts.lost == 0
    assert driver.settle(4.6, 4.0) is None
    assert driver.got() == [2]
    assert driver.resequencer.counts.lost == 2
    assert [(gap.sequence, gap.messages) for gap in driver.resequencer.gaps] == [(0, 2)]


def test_the_exchange_that_brought_the_batch_above_need_not_be_asked() -> None:
    driver = Driver()
    driver.add(data(2), A, now=4.0)
    assert driver.resequencer.settle(4.1, {A: 0.0}) is None
    assert driver.got() == [2]
    assert driver.resequencer.counts.lost == 2


def test_waiting_ends_after_five_seconds() -> None:
    driver = Driver()
    driver.add(data(1), now=4.0)
    driver.settle(8.9, float("-inf"))
    assert driver.got() == []
    driver.settle(9.0, float("-inf"))
    assert driver.got() == [1]


def test_void_batches_fill_their_place() -> None:
    driver = Driver()
    driver.add(data(0))
    driver.add(
        pack_empty(Kind.VOID, publisher=P, epoch=1, link_number=2, first_sequence=1, count=4)
    )
    driver.add(data(5))
    assert driver.got() == [0, 5]
    assert (driver.resequencer.counts.void, driver.resequencer.counts.lost) == (4, 0)


def test_a_marker_shows_that_the_tail_is_missing() -> None:
    driver = Driver()
    driver.add(data(0))
    driver.add(marker(3), now=2.0)
    assert driver.settle(2.0, 1.0) == 2.0
    driver.settle(2.1, 2.0)
    assert driver.resequencer.counts.lost == 2
    driver.add(data(3))
    assert driver.got() == [0, 3]


def test_a_stream_that_rested_since_before_the_start_begins_at_its_marker() -> None:
    driver = Driver()
    driver.add(marker(100, age_us=5_000_000), now=1.0)
    driver.add(data(100))
    assert driver.got() == [100]
    assert driver.resequencer.counts.lost == 0


def test_a_reader_from_an_earlier_point_looks_for_what_is_below_a_marker_elsewhere() -> None:
    driver = Driver(early=True)
    driver.add(marker(2, age_us=60_000_000), now=1.0)
    driver.add(data(2), now=1.0)
    driver.add(data(0, 2), B, now=1.1)
    assert driver.got() == [0, 1, 2]
    driver = Driver(early=True)
    driver.add(marker(2, age_us=60_000_000), now=1.0)
    driver.settle(1.1, 1.1)
    assert (driver.resequencer.counts.before_start, driver.resequencer.counts.lost) == (2, 0)


def test_a_marker_of_a_stream_that_was_alive_after_the_start_is_waited_for() -> None:
    driver = Driver()
    driver.add(marker(100, age_us=500_000), now=1.0)
    driver.add(data(100))
    assert driver.got() == []


def test_a_latest_start_begins_at_the_maximum_over_the_exchanges() -> None:
    driver = Driver()
    driver.resequencer.start(A, [(P, b"t", 5)], latest=True)
    driver.resequencer.start(B, [(P, b"t", 3)], latest=True)
    driver.resequencer.tables_complete(1.0)
    driver.add(data(3, 2))
    driver.add(data(5), B)
    assert driver.got() == [5]
    assert (driver.resequencer.counts.before_start, driver.resequencer.counts.duplicates) == (2, 0)


def test_a_start_table_does_not_tear_a_hole_into_what_is_delivered() -> None:
    driver = Driver()
    driver.add(data(0, 2))
    driver.resequencer.start(A, [(P, b"t", 5)], latest=True)
    driver.add(data(2, 3))
    assert driver.got() == [0, 1, 2, 3, 4]


def test_an_early_start_begins_with_the_oldest_batch_of_the_only_log_that_has_the_stream() -> None:
    driver = Driver()
    driver.resequencer = Resequencer(0.0)
    driver.resequencer.start(A, [(P, b"t", 50)], latest=False)
    driver.add(data(30))
    assert driver.settle(9.0, 9.0) is None
    assert driver.got() == []
    driver.resequencer.tables_complete(1.0)
    driver.add(data(31))
    assert driver.got() == [30, 31]
    assert driver.resequencer.counts.lost == 0


@pytest.mark.parametrize("told", [0.5, 1.5])
def test_what_is_older_than_an_early_start_waits_for_no_monitor(told: float) -> None:
    """The beginnings of a striped stream have left the logs, and the monitor is silent."""
    driver = Driver(early=True, away_seconds=300)
    driver.resequencer.topology_known(0.5, durable=True)
    driver.resequencer.start(A, [(P, b"t", 50)], latest=False)
    driver.resequencer.start(B, [(P, b"t", 60)], latest=False)
    driver.resequencer.tables_complete(1.0)
    driver.add(data(40, floor=30), now=1.0)
    driver.resequencer.topology_known(told, durable=True)
    driver.settle(1.6, 100.0)
    driver.settle(1.1 + STRIPED_LOSS_SECONDS, 100.0)
    assert driver.got() == [40]
    assert (driver.resequencer.counts.lost, driver.resequencer.counts.before_start) == (0, 40)
    driver.add(data(42, floor=41), now=20.0)
    driver.settle(21.0 + STRIPED_LOSS_SECONDS, 100.0)
    assert driver.got() == [], "this stream has begun: what is missing may be anywhere"
    driver.settle(321.0, 400.0)
    assert driver.got() == [42]
    assert driver.resequencer.counts.lost == 1


@pytest.mark.parametrize(("publishers", "lost"), [(3, 0), (20, 40)])
def test_while_no_more_may_wait_nothing_waits_for_a_silent_monitor(
    publishers: int, lost: int
) -> None:
    driver = Driver(held_bytes_max=2_000)
    driver.resequencer.topology_known(0.5, durable=True)
    for number in range(publishers):
        batch = pack(
            [b"x" * 500], publisher=PublisherId(bytes([number]) * 16), epoch=1, link_number=1,
            first_sequence=2, created_us=5, extensions=pack_floor(2),
        )  # fmt: skip
        driver.add(batch, now=1.0)
    driver.settle(1.1 + STRIPED_LOSS_SECONDS, 100.0)
    assert driver.resequencer.counts.lost == lost


def test_an_early_start_waits_for_the_other_log_that_has_the_stream() -> None:
    driver = Driver()
    driver.resequencer.start(A, [(P, b"t", 50)], latest=False)
    driver.resequencer.start(B, [(P, b"t", 30)], latest=False)
    driver.resequencer.tables_complete(1.0)
    driver.add(data(30), now=1.0)
    driver.add(data(29), B, now=1.1)
    assert driver.got() == []
    driver.settle(1.2, 1.1)
    assert driver.got() == [29, 30]
    assert (driver.resequencer.counts.lost, driver.resequencer.counts.before_start) == (0, 29)


def test_a_corrupt_batch_counts_as_lost_and_is_reported() -> None:
    driver = Driver()
    broken = bytearray(data(0, 2))
    broken[HEADER_BYTES + 3] ^= 1
    driver.add(bytes(broken))
    driver.add(data(2))
    assert driver.got() == [2]
    counts = driver.resequencer.counts
    assert (counts.corrupt, counts.lost) == (1, 2)
    assert driver.resequencer.gaps[0].messages == 2


def test_garbage_is_counted_and_reported() -> None:
    driver = Driver()
    driver.add(b"")
    driver.add(b"x" * 80)
    assert driver.resequencer.counts.corrupt == 2
    assert len(driver.resequencer.gaps) == 2


def test_batches_far_from_their_turn_are_put_aside_and_recalled() -> None:
    driver = Driver(held_bytes_max=1_200)
    batches = [data(sequence) for sequence in range(1, 6)]
    for batch in batches:
        driver.add(batch)
    assert driver.resequencer.counts.stubbed
    driver.add(data(0), B)
    recalls = list(driver.resequencer.recalls)
    assert recalls
    for recall in recalls:
        driver.resequencer.add(
            recall.source, recall.topic, recall.offset, batches[recall.offset], 1.0
        )
    assert driver.got() == [0, 1, 2, 3, 4, 5]
    assert (driver.resequencer.counts.duplicates, driver.resequencer.held_bytes) == (0, 0)


def test_what_was_put_aside_and_has_left_the_log_is_lost() -> None:
    driver = Driver(held_bytes_max=250)
    driver.add(data(1))
    driver.add(data(0), B)
    (recall,) = driver.resequencer.recalls
    driver.resequencer.gone(recall.source, recall.topic, recall.offset)
    assert driver.resequencer.counts.lost == 1
    driver.add(data(2))
    assert driver.got() == [0, 2]


def test_what_was_put_aside_is_lost_with_its_exchange_unless_it_is_replayed_in_time() -> None:
    for replay in (False, True):
        driver = Driver(held_bytes_max=250)
        driver.add(data(1))
        driver.resequencer.source_gone(A, 1.0)
        driver.add(data(0), B)
        if replay:
            driver.add(data(1), B, now=1.5)
        end = 1.0 + REPLAY_SECONDS
        assert driver.settle(end, end - 0.1) == (None if replay else end)
        assert driver.resequencer.counts.lost == 0
        driver.settle(end, end)
        assert driver.got() == ([0, 1] if replay else [0])
        assert driver.resequencer.counts.lost == (not replay)
        assert not driver.resequencer.waiting


def test_what_was_put_aside_is_recalled_when_its_exchange_comes_back() -> None:
    driver = Driver(held_bytes_max=250)
    driver.add(data(1))
    driver.add(data(0), B)
    driver.resequencer.recalls.clear()
    driver.resequencer.source_gone(A, 1.0)
    driver.resequencer.source_came(A, 1.2, alone=False)
    assert [recall.source for recall in driver.resequencer.recalls] == [A]
    driver.settle(1.0 + REPLAY_SECONDS, 0.0)
    assert driver.resequencer.counts.lost == 0


def test_what_was_put_aside_is_fetched_from_where_it_was_replayed_if_its_exchange_is_gone() -> None:
    driver = Driver(held_bytes_max=400)
    driver.add(data(1))
    driver.add(data(1), B)
    driver.add(data(2))
    driver.add(data(0), B)
    driver.resequencer.recalls.clear()
    driver.resequencer.source_gone(A, 1.0)
    driver.settle(1.0 + REPLAY_SECONDS, 1.0 + REPLAY_SECONDS)
    assert driver.resequencer.recalls == [Recall(B, b"t", 1)]
    driver.resequencer.gone(B, b"t", 1)
    assert driver.resequencer.counts.lost == 2


def test_what_is_put_aside_later_than_its_exchange_went_is_lost_at_once() -> None:
    driver = Driver(held_bytes_max=250)
    driver.add(data(1))
    driver.add(data(0), B)
    driver.resequencer.source_missing(A, 50.0)
    driver.settle(50.0, 50.0)
    assert driver.resequencer.counts.lost == 1


def test_the_lowest_offset_that_is_put_aside_is_known_by_exchange() -> None:
    driver = Driver(held_bytes_max=1_200)
    assert driver.resequencer.put_aside() == {}
    driver.add(data(9), B)
    for sequence in range(1, 6):
        driver.add(data(sequence))
    assert driver.resequencer.put_aside() == {A: 1, B: 0}
    driver.add(data(0), B)
    for sequence in range(1, 6):
        driver.add(data(sequence))
    assert driver.resequencer.put_aside() == {B: 0}


def test_of_a_striped_stream_only_what_is_below_a_floor_is_lost() -> None:
    driver = Driver()
    driver.add(data(0))
    driver.add(data(6, floor=4), B, now=2.0)
    driver.settle(2.1, 2.1)
    assert driver.resequencer.counts.lost == 3
    driver.add(data(4), now=2.2)
    driver.add(data(5), now=2.2)
    assert driver.got() == [0, 4, 5, 6]


def test_the_age_of_a_marker_counts_with_the_time_in_which_the_subscriber_was_stopped() -> None:
    driver = Driver()
    driver.resequencer = Resequencer(0.0, elapsed=lambda: 60.0)
    driver.resequencer.tables_complete(0.0)
    driver.add(marker(2, age_us=25_000_000), B, now=1.3)
    driver.add(data(2), B, now=1.3)
    driver.add(data(0, 2), now=1.3)
    assert driver.got() == [0, 1, 2]
    assert driver.resequencer.counts.before_start == 0


def other(number: int) -> PublisherId:
    return PublisherId(number.to_bytes(16))


def test_streams_are_capped_and_a_forgotten_one_goes_on_where_it_was() -> None:
    driver = Driver(streams_max=2)
    driver.add(data(0))
    for number in (1, 2):
        driver.add(data(0, publisher=other(number)))
    driver.add(data(0), B, now=2.0)
    assert driver.resequencer.counts.duplicates == 1
    driver.add(data(1), now=2.0)
    driver.add(data(3), now=2.0)
    driver.settle(3.0, 2.0)
    assert driver.got() == [0, 0, 0, 1, 3]
    counts = driver.resequencer.counts
    assert (counts.lost, counts.streams_forgotten) == (1, 2)


def test_the_stream_that_was_used_last_is_not_the_one_to_be_forgotten() -> None:
    driver = Driver(streams_max=10)
    for number in range(1, 100):
        driver.add(data(number - 1))
        driver.add(data(0, publisher=other(number)))
        assert P + b"t" in driver.resequencer._streams
    assert len(driver.resequencer._streams) == 10


def test_a_new_stream_is_told_of_its_losses_though_others_were_forgotten() -> None:
    driver = Driver(streams_max=2)
    for number in range(1, 10):
        driver.add(data(0, publisher=other(number)))
    driver.add(data(50), now=3.0)
    driver.settle(4.0, 4.0)
    assert (driver.resequencer.counts.lost, driver.resequencer.counts.before_start) == (50, 0)
    assert [gap.messages for gap in driver.resequencer.gaps] == [50]


def test_streams_of_the_start_that_are_too_many_keep_their_place() -> None:
    driver = Driver(streams_max=3)
    rows = [(other(number), b"t", 7) for number in range(1, 11)]
    driver.resequencer.start(A, rows, latest=True)
    for number in range(1, 11):
        driver.add(data(5, 2, publisher=other(number)))
        driver.add(data(7, publisher=other(number)))
    assert driver.got() == [7] * 10
    assert driver.resequencer.counts.lost == 0


def test_what_waits_does_not_count_as_read() -> None:
    driver = Driver()
    driver.add(data(0))
    driver.add(marker(2), B)
    assert driver.resequencer.put_aside() == {}
    driver.add(data(2), B)
    driver.add(data(3), B)
    assert driver.resequencer.put_aside() == {B: 2}
    driver.add(data(1))
    assert driver.resequencer.put_aside() == {}


def test_what_cannot_be_fetched_again_is_not_put_aside() -> None:
    driver = Driver(held_bytes_max=1_200)
    driver.resequencer.source_came(A, 0.0, alone=False)
    for sequence in (5, 6):
        driver.add(data(sequence))
    driver.resequencer.source_gone(A, 1.0)
    kept = {sequence: data(sequence) for sequence in range(1, 5)}
    at = driver.offset
    for batch in kept.values():
        driver.add(batch, B)
    assert driver.resequencer.counts.stubbed
    driver.add(data(0), B)
    while driver.resequencer.recalls:
        recall = driver.resequencer.recalls.pop(0)
        assert recall.source == B
        driver.resequencer.add(B, b"t", recall.offset, kept[recall.offset - at + 1], 1.0)
    assert driver.got() == [0, 1, 2, 3, 4, 5, 6]
    assert driver.resequencer.counts.lost == 0


def test_wishes_that_are_too_many_wait_and_are_not_taken_for_lost() -> None:
    driver = Driver(held_bytes_max=1)
    publishers = [other(number) for number in range(1, WISHES_MAX + 200)]
    waiting: dict[int, bytes] = {}
    for publisher in publishers:
        waiting[driver.offset] = data(1, publisher=publisher)
        driver.add(waiting[driver.offset])
    for publisher in publishers:
        driver.add(data(0, publisher=publisher), B)
    assert len(driver.resequencer.recalls) == WISHES_MAX
    while driver.resequencer.recalls:
        recall = driver.resequencer.recalls.pop(0)
        driver.resequencer.add(A, b"t", recall.offset, waiting.pop(recall.offset), 2.0)
    assert not waiting
    assert driver.resequencer.counts.delivered == 2 * len(publishers)
    assert driver.resequencer.counts.lost == 0


def test_a_batch_that_was_delivered_before_an_interruption_is_not_delivered_again() -> None:
    driver = Driver()
    driver.add(data(0))
    driver.add(data(2))
    delivered = Batch([b"1"], "t", P, 1, 5, 100)
    driver.resequencer.out.append(delivered)  # and here a signal handler has raised
    driver.resequencer.held_bytes += 1
    driver.resequencer.recount()
    driver.resequencer.check()
    driver.add(data(1))
    assert driver.got() == [0, 1, 2]


def test_what_is_lost_in_far_jumps_is_counted_up_to_the_largest_number() -> None:
    driver = Driver()
    for publisher in (b"a", b"b"):
        driver.add(data((1 << 63) - 3, publisher=PublisherId(publisher * 16)))
    driver.settle(1_000.0, 999.0)
    assert driver.resequencer.counts.lost == (1 << 63) - 1
    assert len(driver.resequencer.gaps) == 2


def test_a_body_that_cannot_be_read_is_told_as_lost_and_the_next_is_delivered() -> None:
    driver = Driver()
    good = data(0)
    body = b"\x92\x91\xc4\x01x" + b"\x91" * 100_000 + b"\xc0"
    checksum = xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF
    driver.add(good[:12] + checksum.to_bytes(4, "little") + good[16:HEADER_BYTES] + body)
    driver.add(data(1))
    assert driver.got() == [1]
    assert (driver.resequencer.counts.lost, driver.resequencer.counts.corrupt) == (1, 1)
    (gap,) = driver.resequencer.gaps
    assert "body of a batch" in gap.text
