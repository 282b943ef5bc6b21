"""A consumer group with its log, in memory or on a disk, and a clock."""

from __future__ import annotations

from memory_files import MemoryFiles

from roq.log.disk_groups import perform
from roq.log.groups import ConsumerGroup
from roq.log.leases import Lease, Member, NumberedLeases
from roq.log.log import NotAtHand
from roq.log.recovery import LogSettings, open_log
from roq.log.ring import Ring
from roq.log.segments import SegmentLog
from roq.model import PublisherId
from roq.protocol.batch import pack
from roq.protocol.consuming import GroupSettings


class Group:
    """A group, its log, and a clock."""

    def __init__(self, capacity: int = 1 << 20, **settings: object) -> None:
        self.log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=capacity, topics_max=8)
        self.numbers = NumberedLeases()
        self.now = 0.0
        self.group: ConsumerGroup[bytes] = ConsumerGroup(
            "g",
            self.log,
            GroupSettings(**settings),  # type: ignore[arg-type]
            1,
            0,
            0.0,
        )

    def append(self, count: int = 1, size: int = 1, area: bytes = b"") -> None:
        data = pack(
            [b"x" * size] * count, publisher=PublisherId(b"p" * 16), epoch=0, link_number=1,
            first_sequence=0, created_us=0, extensions=area,
        )  # fmt: skip
        assert self.log.append(b"t", data, len(data)) is not None

    def join(self, name: str = "m", credit: int = 100, window: int = 100) -> Member:
        member = self.group.join(name.encode().ljust(16, b"."), name)
        assert member is not None
        member.granted, member.granted_bytes, member.window = credit, 1 << 20, window
        return member

    def leases(self) -> list[Lease]:
        found = []
        while (given := self.group.next_lease(self.numbers)) is not None:
            found.append(given[0])
        self.group.check()
        return found

    def pass_time(self, seconds: float) -> list[Member]:
        silent, end = list[Member](), self.now + seconds
        while self.now < end:
            self.now += 0.5
            silent += self.group.tick(self.now)
        return silent


class OnDisk(Group):
    """A group at a log of which nothing is in memory; what is not at hand is read for it."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.files = MemoryFiles()
        self.disk: SegmentLog[bytes] = open_log(
            self.files,
            LogSettings(
                queue=b"q" * 16, exchange=1, epoch=1, cluster="c", host="h", ring_bytes=1,
                topics_max=8, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1,
                segment_bytes=1 << 20, segment_entries=5,
            ),
        )  # fmt: skip
        self.log = self.disk  # type: ignore[assignment]
        self.group = ConsumerGroup("g", self.disk, self.group.settings, 1, 0, 0.0)

    def append(self, count: int = 1, size: int = 1, area: bytes = b"") -> None:
        super().append(count, size, area)
        written = self.disk.gather(lambda: b"")
        assert written is not None
        perform(self.files, written)
        self.disk.commit(written.end)

    def leases(self) -> list[Lease]:
        found: list[Lease] = []
        self.disk.patient = False
        for _ in range(100):
            try:
                given = self.group.next_lease(self.numbers)
            except NotAtHand as miss:
                miss.keep(miss.load())
                continue
            if given is None:
                self.disk.patient = True
                self.group.check()
                return found
            found.append(given[0])
        raise AssertionError("it asks for the same for ever")


def refuse(*_: object) -> bytes:
    raise OSError(24, "Too many open files")
