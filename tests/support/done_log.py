"""An exchange whose log on disk lets go what its groups have done, through many lives; no test in
here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exchange_driver import NUMBER, QUEUE, Exchange, Publisher
from exchange_members import Consumer
from memory_files import MemoryFiles

from roq.exchange.events import Received
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import perform, perform_sync
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.consuming import GROUP_ORDER, GroupOrder
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed
from roq.simulation.virtual.lossy_files import LossyFiles

SEGMENT_ENTRIES = 10


@dataclass
class DoneLog:
    """See the module.

    Args:
        files: of the log.
        ahead: it commits before it is synced.
        limits: further ones of the queue.
    """

    files: MemoryFiles | LossyFiles = field(default_factory=MemoryFiles)
    ahead: bool = False
    limits: dict[str, int] = field(default_factory=dict)
    epoch: int = 4
    now: float = 100.0
    jumped_us: int = 0
    """How far the wall clock has jumped."""
    same: bool = True
    """What the monitor says of the groups of all exchanges."""
    attempts: int = 0
    held: dict[bytes, list[int]] = field(default_factory=dict)
    """What members were given and have not done, by route."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A process begins, behind the one before."""
        self.epoch += 1
        allowed = Limits(log_until_done=1, **self.limits)
        self.log: SegmentLog[bytes] = open_log(
            self.files,
            LogSettings(
                queue=QUEUE, exchange=NUMBER, epoch=self.epoch, cluster="c", host="h",
                ring_bytes=1_000, topics_max=100, topics_spare=0, capacity_bytes=1 << 40,
                keep_us=1 << 50, now_us=self.time_us, segment_bytes=1 << 20,
                segment_entries=SEGMENT_ENTRIES, ahead=self.ahead,
            ),
        )  # fmt: skip
        core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, self.epoch, allowed, late=self.log, ahead=self.ahead
        )
        core.begin(self.now, self.time_us)
        recovered = self.log.recovered
        core.recover(self.now, recovered.snapshot, recovered.since, recovered.changes)
        self.there = Exchange(core, allowed, self.now)
        self.publisher = Publisher(self.there, f"p{self.epoch}")
        self.publisher.hello()

    @property
    def time_us(self) -> int:
        return int(self.now * 1_000_000) + self.jumped_us

    def send(self, batches: int) -> None:
        """Each in a group of its own."""
        for _ in range(batches):
            self.append()
            self.write()

    def append(self) -> None:
        self.there.core.begin(self.now, self.time_us)
        data = self.publisher.batch(b"t", 1)
        self.there.append(self.publisher.route, b"t", data)

    def delay(self, number: int, seconds: float) -> None:
        """A message that is due after so long is appended, and written together with what comes."""
        due_us = self.time_us + int(seconds * 1_000_000)
        payload = encode_delayed(Delayed(due_us, b"t", b"x", number.to_bytes(8, "big")))
        self.there.core.begin(self.now, self.time_us)
        data = self.publisher.batch(DELAYED_TOPIC, payloads=[payload])
        self.there.append(self.publisher.route, DELAYED_TOPIC, data)

    def write(self) -> None:
        """The disk takes what there is."""
        group = self.log.gather(self.there.core.snapshot, self.there.core.consumers.take_changes)
        if group is None:
            return
        perform(self.files, group)
        self.log.commit(group.end)
        if group.changes is not None or group.anew:
            self.there.core.consumers.kept()
        self.there.publish()
        self.there.core.check()

    def sync(self) -> None:
        """What is ahead of the disk is synced."""
        sync = self.log.gather_sync()
        if sync is not None:
            perform_sync(self.files, sync)
            self.log.commit_sync(sync.end)

    def enter(self, name: str, **given: object) -> Consumer:
        """A member of the group of this name comes."""
        member = Consumer(self.there, name=name, group=name, tag=name.encode().ljust(4, b"."))
        self.attempts += 1
        member.attempt = self.attempts
        member.join(**given)
        self.write()
        member.look()
        member.other = []
        return member

    def order(self, word: str, **given: Any) -> None:
        """An operator wants something of group `g`."""
        order = GroupOrder(id=4, queue=QUEUE, group="g", order=word, **given)
        self.there.tell(Received(b"reader", (GROUP_ORDER, documents.encode(order))))
        self.there.serve()
        self.write()
        (told,) = self.there.answers(b"reader")
        assert told[0] == GROUP_ORDER

    def do(self, member: Consumer, most: int = 1 << 62) -> None:
        """Have so many batches done that this one is given; and written, perhaps."""
        held = self.held.setdefault(member.route, [])
        held += [number for number, *_ in member.credit(100_000)]
        done, held[:] = held[:most], held[most:]
        for number in done:
            member.done(number)

    def do_all(self, member: Consumer) -> None:
        self.do(member)
        self.write()

    def tick(self) -> None:
        """Half a second passes, and the monitor says what it says."""
        self.now += 0.5
        self.there.now = self.now
        self.there.core.begin(self.now, self.time_us)
        self.there.core.same_groups(self.now, same=self.same)
        self.there.tell(Tick())

    def wait(self, seconds: float) -> None:
        """Time passes, and all that there is is written."""
        end = self.now + seconds
        while self.now < end:
            self.tick()
            self.write()
