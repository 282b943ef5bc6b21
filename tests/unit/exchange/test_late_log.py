"""An exchange whose log commits later than it accepts: nobody sees what may be taken back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange, publisher_id
from memory_files import MemoryFiles
from segmented_log import SegmentedLog

from roq.errors import RemoteProtocolError
from roq.exchange import commit
from roq.exchange.disk_room import Room
from roq.exchange.events import Received
from roq.exchange.machine import ExchangeCore
from roq.exchange.snapshot import FORMAT, decode_snapshot, encode_snapshot
from roq.log.disk_groups import perform
from roq.log.patient_reads import APART_SECONDS
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import Limits
from roq.protocol import channel, documents
from roq.protocol.channel import Bye, Held, Ready, StreamState
from roq.protocol.entry import read_entry

BATCH = 40_000
RING = 1 << 20


@dataclass
class Durable:
    """An exchange, its log, and one publisher."""

    log: SegmentedLog[bytes] = field(
        default_factory=lambda: SegmentedLog(
            QUEUE, NUMBER, 3, capacity_bytes=RING, topics_max=10, commits=False
        )
    )

    def __post_init__(self) -> None:
        self.there = exchange(late=self.log)
        self.one = Publisher(self.there, name="one")
        assert isinstance(self.one.hello(), Ready)

    def send(self, count: int = 1) -> int:
        """Send large batches until one is not taken; gives how many were."""
        for taken in range(count):
            before = self.log.end
            self.there.core.begin(self.there.now, 1_000)
            data = self.one.batch(b"t").ljust(BATCH, b"x")
            self.there.append(self.one.route, b"t", data)
            if self.log.end == before:
                self.one.number -= 1
                self.one.sequences[b"t"] -= 1
                return taken
        return count

    def commit(self, end: int | None = None) -> None:
        self.log.commit(end)
        self.there.core.begin(self.there.now, 1_000)
        self.there.publish()

    def told(self) -> list[tuple[bytes, ...]]:
        return self.there.answers(self.one.route)

    def tick(self) -> None:
        self.there.now += 1.0
        self.there.core.begin(self.there.now, 1_000)
        self.there.tell(Tick())


def on_disk(keep_us: int = 1 << 50) -> LogSettings:
    """A log with small segments."""
    return LogSettings(
        queue=QUEUE, exchange=NUMBER, epoch=3, cluster="c", host="h", ring_bytes=1, topics_max=10,
        topics_spare=0, capacity_bytes=1 << 40, keep_us=keep_us, now_us=1_000, segment_entries=10,
    )  # fmt: skip


def write(files: MemoryFiles, log: SegmentLog[bytes]) -> None:
    """All that is not written, in one group."""
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    log.commit(group.end)


def shown(there: Exchange) -> list[int]:
    """Offsets that subscribers have seen."""
    return [read_entry(frames[1]).offset for frames in there.live if len(frames) == 3]


def test_what_is_committed_is_passed_over_for_nobody_and_no_more_than_that() -> None:
    made = Durable()
    made.send(3)
    made.log.commit(2)
    made.there.core.pass_committed()
    assert made.there.core.all_shown
    made.commit()
    assert shown(made.there) == [2]


def test_a_batch_is_published_and_acknowledged_when_it_is_committed() -> None:
    made = Durable()
    made.send(3)
    assert (shown(made.there), made.told()) == ([], [])
    made.commit(2)
    assert shown(made.there) == [0, 1]
    assert [channel.read_number(body) for _, body in made.told()] == []  # they came in one turn
    made.commit()
    assert shown(made.there) == [0, 1, 2]
    assert [channel.read_number(body) for _, body in made.told()] == [3]


def room(free: int, *, files: int = 1_000_000) -> Room:
    """Of a disk of 100 GB."""
    return Room(free, 100_000_000_000, files, 1_000_000)


def test_a_disk_that_is_nearly_full_holds_publishers_and_says_where_until_it_has_room() -> None:
    made = Durable()
    disk = made.there.core.disk
    assert made.send(2) == 2
    disk.measured(room(1_000_000))
    assert made.send(2) == 0
    made.tick()
    (held,) = [documents.decode(body, Held) for letter, body in made.told()
               if letter == channel.HELD]  # fmt: skip
    assert held.disk
    assert held.full.startswith("disk_full: 1.0 MB are free in /logs of host h")
    assert made.there.core.disk_full == held.full
    made.commit()  # what was accepted is written, shown and acknowledged
    assert shown(made.there) == [0, 1]
    assert channel.ACK in {letter for letter, _ in made.told()}

    disk.measured(room(300 * 1024 * 1024))
    made.tick()
    assert channel.RESET not in {letter for letter, _ in made.told()}, "not a quarter more is free"
    disk.measured(room(400 * 1024 * 1024))
    made.tick()
    assert channel.RESET in {letter for letter, _ in made.told()}
    assert made.there.core.disk_full == ""
    assert made.send(2) == 2


def test_a_disk_that_takes_no_more_files_is_full() -> None:
    made = Durable()
    made.there.core.disk.measured(room(50_000_000_000, files=999))
    assert made.send() == 0
    assert "999 files can be made" in made.there.core.disk_full


def test_what_the_disk_does_not_give_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Durable()
    made.send(2)
    made.commit()
    core = made.there.core
    request = channel.FetchRequest(
        id=1, queue=QUEUE, generation=3, prefixes=[b""], first=0, until=2
    )
    core.fetches.start(b"r", request)
    assert core.unread == ""
    monkeypatch.setattr(made.log, "record", lambda _: None)
    monkeypatch.setattr(made.log, "is_lost", lambda _: False)
    assert core.fetches.runnable(made.there.now)
    assert core.fetches.next_piece() is None
    assert core.unread.startswith("its disk does not give what is asked for")
    core.fetches.reads.lost, made.log.unreadable = 2, 3
    made.there.now += 2 * APART_SECONDS
    core.begin(made.there.now, 1_000)
    assert core.unread == (
        "2 times it has given nothing for long, and that counts as lost; 3 entries are damaged or "
        "not there (`roq log verify`)"
    )


def test_what_a_start_finds_missing_is_told_before_anybody_wants_it() -> None:
    files = MemoryFiles()
    log = open_log(files, on_disk())
    for _ in range(35):
        log.append(b"t", b"batch", 5)
        write(files, log)
    files.remove(sorted(name for name in files.names() if name.endswith(".seg"))[1])
    for epoch in (4, 5):
        log = open_log(files, replace(on_disk(), epoch=epoch))
        core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, epoch, Limits(), late=log)
        told = "10 entries are damaged or not there (`roq log verify`)"
        assert core.unread == told
        assert [offset for offset in range(35) if log.record(offset) is None] == [*range(10, 20)]
        assert core.unread == told, "counted once"


def test_a_log_is_told_the_time_and_a_wall_clock_that_jumps_takes_nothing() -> None:
    files = MemoryFiles()
    log = open_log(files, on_disk(keep_us=60_000_000))
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, 3, Limits(), late=log)
    floors = []
    for now, wall in ((0, 0), (10, 10), (20, 1 << 30), (55, 1 << 30), (80, 1 << 30)):
        core.begin(float(now), (1_000 + wall) * 1_000_000)
        for _ in range(12):
            log.append(b"t", b"batch", 5)
            write(files, log)
        floors.append(log.floor)
    assert floors == [0, 0, 0, 0, 20]


def test_what_is_accepted_has_room_on_the_disk_by_then() -> None:
    made = Durable()
    made.there.core.disk.measured(Room(5 * BATCH, 40 * BATCH, 0, 0))
    assert made.send(100) == 3  # five fit, two batches are half of what is to stay free
    made.tick()
    assert made.there.core.disk_full == ""
    made.commit()
    made.there.core.disk.measured(Room(2 * BATCH, 40 * BATCH, 0, 0))
    made.tick()
    assert "disk_full" in made.there.core.disk_full


def test_markers_are_published_in_their_turn() -> None:
    made = Durable()
    made.send()
    two = Publisher(made.there, name="two")
    two.hello([StreamState(b"t", 5, 1)])
    assert shown(made.there) == []
    made.commit()
    assert shown(made.there) == [0, 1]


def test_the_told_end_is_that_of_what_is_committed() -> None:
    made = Durable()
    made.send()
    made.tick()
    ends = [read_entry(frames[1]).offset for frames in made.there.live]
    made.commit()
    made.tick()
    ends += [read_entry(frames[1]).offset for frames in made.there.live[len(ends) + 1 :]]
    assert (ends[0], ends[-1]) == (0, 1)


def test_only_so_many_batches_are_accepted_and_not_committed_however_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit, "UNCOMMITTED_ENTRIES_MAX", 8)
    monkeypatch.setattr(commit, "TURN_BATCHES", 2)
    made = Durable()
    assert made.send(20) == 8
    made.tick()
    assert channel.HELD in {letter for letter, _ in made.told()}
    made.commit(3)
    assert channel.RESET not in {letter for letter, _ in made.told()}, "half of it is to be free"
    made.commit(4)
    assert channel.RESET in {letter for letter, _ in made.told()}
    assert made.send(20) == 4


def test_publishers_are_held_while_the_disk_does_not_follow_and_told_why() -> None:
    made = Durable()
    taken = made.send(100)
    assert 0 < taken * BATCH <= RING // 2 < (taken + 1) * BATCH
    made.tick()
    made.tick()
    helds = [documents.decode(body, Held) for letter, body in made.told()
             if letter == channel.HELD]  # fmt: skip
    assert [held.disk for held in helds] == [True, True]
    assert helds[-1].seconds > helds[0].seconds

    made.commit()
    resets = [body for letter, body in made.told() if letter == channel.RESET]
    assert [documents.decode(body, channel.Reset).expected for body in resets] == [taken + 1]
    assert made.send(2) == 2
    made.tick()
    assert channel.HELD not in {letter for letter, _ in made.told()}


def test_acknowledgements_go_on_while_there_is_no_room() -> None:
    made = Durable()
    made.send(1)
    made.told()
    made.send(100)
    made.commit(1)
    assert (channel.ACK, channel.NUMBER.pack(1)) in made.told()


def test_a_batch_larger_than_the_bound_is_taken_alone() -> None:
    made = Durable()
    huge = made.one.batch(b"t").ljust(RING, b"x")
    made.there.append(made.one.route, b"t", huge)
    assert made.log.end == 1
    assert made.send(1) == 0
    made.commit()
    assert made.send(1) == 1


# --- what another process goes on with ------------------------------------------------------------


def gone_on(made: Durable, since: int, snapshot: bytes | None) -> Exchange:
    made.log.crash()
    core: ExchangeCore[bytes] = ExchangeCore(
        QUEUE, NUMBER, EPOCH + 1, made.there.limits, late=made.log
    )
    core.begin(0.0, 1_000)
    core.recover(0.0, snapshot, since)
    core.check()
    return Exchange(core, made.there.limits)


def test_links_and_streams_stand_in_the_snapshot_also_when_the_log_does_not_show_them() -> None:
    made = Durable()
    made.send(2)
    made.commit()
    there = gone_on(made, 2, made.there.core.snapshot())
    link = there.core.links.get(publisher_id("one"))
    assert link is not None
    assert (link.epoch, link.expected, link.committed, link.left) == (1, 3, 2, False)
    assert there.core.streams.page((b"",), 0, 9)[0] == [(publisher_id("one"), b"t", 2)]
    assert there.core.totals()[2] == 0


def test_where_batches_lie_is_known_also_to_the_process_after_the_next_one() -> None:
    made = Durable()
    made.one.places = 1
    made.one.hello()
    snapshot = made.there.core.snapshot()
    made.send(2)
    made.commit()
    there = gone_on(made, 0, snapshot)
    there = gone_on(made, 2, there.core.snapshot())
    again = Publisher(there, name="one", attempt=9)
    again.places = 2
    ready = again.hello()
    assert isinstance(ready, Ready)
    assert ready.places == [(2, 1, 1)]


def test_records_behind_the_snapshot_count_on_top_of_it() -> None:
    made = Durable()
    made.send(1)
    snapshot = made.there.core.snapshot()
    made.send(2)
    made.commit()
    there = gone_on(made, 1, snapshot)
    again = Publisher(there, name="one", attempt=9)
    ready = again.hello()
    assert isinstance(ready, Ready)
    assert ready.expected == 4


def test_who_has_left_is_known_to_have_left() -> None:
    made = Durable()
    made.send(1)
    made.commit()
    bye = documents.encode(Bye(publisher=made.one.id, epoch=4))
    made.there.tell(Received(made.one.route, (channel.BYE, bye)))
    there = gone_on(made, 1, made.there.core.snapshot())
    link = there.core.links.get(publisher_id("one"))
    assert link is not None
    assert (link.epoch, link.left) == (4, True)
    refused = Publisher(there, name="one", attempt=9, epoch=3).hello()
    assert isinstance(refused, channel.Refused)
    assert refused.code == "moved"


def test_who_left_and_came_back_behind_the_snapshot_goes_on_with_new_numbers() -> None:
    made = Durable()
    made.send(1)
    bye = documents.encode(Bye(publisher=made.one.id, epoch=2))
    made.there.tell(Received(made.one.route, (channel.BYE, bye)))
    snapshot, since = made.there.core.snapshot(), made.log.end
    made.one.epoch, made.one.number = 2, 0
    made.one.hello()
    made.send(1)
    made.commit()
    link = gone_on(made, since, snapshot).core.links.get(publisher_id("one"))
    assert link is not None
    assert (link.epoch, link.expected, link.left) == (2, 2, False)


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", encode_snapshot([])[:-1],
     encode_snapshot([]).replace(b"\xa6format\x01", b"\xa6format\x02")],
)  # fmt: skip
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    assert FORMAT == 1
    with pytest.raises(RemoteProtocolError):
        decode_snapshot(data)
