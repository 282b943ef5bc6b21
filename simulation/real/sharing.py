"""Decides, while everything runs, whether a consumer group was given what it was promised. Pure.

Members write down by which lease they hold what, before they say anything of it. Numbers of leases
grow, so of two leases of a message the higher one is the one that counts: a message that is
confirmed by the lower one had two holders, or came again though it was done. Journals are read one
after the other, so nothing here depends on the order in which records of different members come.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from roq.simulation.real.journal import Lease
from roq.testing.positions import Positions

KEPT_SECONDS: Final = 600.0
"""What comes again comes within this time; what became of a message is known for so long."""
SHOWN_MAX: Final = 5
"""Findings that are told between two looks."""

Place = tuple[str, int, int]
"""Log, offset, index in the batch."""
Name = tuple[str, int]
"""Stream and sequence: the same message in whatever log."""

CAUSES: Final = {
    "held": "its member was silent",
    "ended": "its member has ended",
    "acked": "not confirmed",
    "back": "given back",
    "lost": "its lease was lost",
    "kept": "done before",
}
"""Why a message comes again, by what became of it before."""
ELSEWHERE: Final = "published again"
"""Likewise: it is in a second log, as its publisher has not heard of the first one."""


@dataclass(slots=True)
class Held:
    """A lease of a message: whose it is, since when, and what became of it."""

    member: str
    when: float
    state: str = "held"


@dataclass(slots=True)
class Share:
    """A message at its place.

    Attributes:
        leases: by number.
        given: of these, those by which it was handed to a member; the others are those by which one
            held on to it.
        when: the last news.
        told: that it was shared wrongly is told.
    """

    name: Name
    when: float
    leases: dict[int, Held] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    told: bool = False

    def of(self, member: str) -> Held | None:
        """The newest lease of a member."""
        mine = [lease for lease, held in self.leases.items() if held.member == member]
        return self.leases[max(mine)] if mine else None

    def causes(self) -> Iterator[str]:
        """Why it was handed out again, each time."""
        before = ""
        for lease in sorted(self.leases):
            if before and lease in self.given:
                yield CAUSES[before]
            before = self.leases[lease].state

    def wrong(self) -> str:
        """What never may be, in words; empty: it is not."""
        newest = max(self.leases, default=0)
        for lease, held in self.leases.items():
            if held.state == "kept" and lease < newest:
                other = self.leases[newest]
                if other.when > held.when:
                    return f"was given to {other.member}, and {held.member} has done it before"
                return (
                    f"was confirmed to {held.member} by lease {lease}, while {other.member} "
                    f"had {newest}"
                )
        return ""


class Sharing:
    """One group.

    Attributes:
        delivered: messages that members began with.
        gone: messages that nobody has done, and that may be gone with their log.
        findings: what never may be, in sentences; the caller may empty it.
    """

    def __init__(self) -> None:
        self.delivered = self.gone = 0
        self.findings: list[str] = []
        self._shares: OrderedDict[Place, Share] = OrderedDict()
        """The one with the latest news is the last one."""
        self._places: dict[Name, Place] = {}
        self._done: dict[str, Positions] = {}
        """By stream: what a member was confirmed, or has done and could not hear of it."""
        self._again: Counter[str] = Counter()
        """Of those that were forgotten; and those in a second log."""
        self._told = 0

    @property
    def again(self) -> Counter[str]:
        """Messages that came again, by cause."""
        now = Counter(cause for share in self._shares.values() for cause in share.causes())
        return self._again + now

    # --- taking in --------------------------------------------------------------------------------

    def take(self, member: str, record: Lease) -> None:
        """The next record of a member."""
        for at in range(record.count):
            place = (record.log, record.offset, record.first + at)
            name = (record.stream, record.sequence + at)
            share = self._shares.get(place)
            if share is None:
                share = self._shares[place] = Share(name, record.when)
                self._again[ELSEWHERE] += name in self._places
                self._places[name] = place
            share.when = record.when
            self._shares.move_to_end(place)
            self._note(member, record, share)
            if not share.told and (wrong := share.wrong()):
                share.told = True
                self._find(f"message {place[2]} at offset {place[1]} of log {place[0]} {wrong}")

    def end(self, member: str) -> None:
        """It has ended, and what it held is over; what it has acknowledged may be kept."""
        for share in self._shares.values():
            held = share.of(member)
            if held is None:
                continue
            if held.state == "acked":
                self._finish(share.name)
            elif held.state == "held" and held is share.leases[max(share.leases)]:
                held.state = "ended"

    def _note(self, member: str, record: Lease, share: Share) -> None:
        known = share.of(member)
        match record.state:
            case "held":
                self.delivered += 1
                share.leases[record.lease] = Held(member, record.when)
                share.given.add(record.lease)
            case "resumed":
                state = "held" if known is None else known.state
                share.leases[record.lease] = Held(member, record.when, state)
            case "kept":
                self._finish(share.name)
                # By an earlier connection: it is done, but it is not known by which lease.
                held = share.leases.get(record.lease)
                if held is not None:
                    held.state, held.when = "kept", record.when
            case "cut" if known is not None and known.state == "acked":
                self._finish(share.name)  # it may be kept; if not, it comes again
            case _:
                if known is not None:
                    known.state = "lost" if record.state == "cut" else record.state

    def _finish(self, name: Name) -> None:
        stream, sequence = name
        self._done.setdefault(stream, Positions()).take(sequence)

    # --- judging ----------------------------------------------------------------------------------

    def undone(self, marks: Mapping[str, int]) -> list[str]:
        """Streams of which not everything below these marks is done, in sentences."""
        found = []
        for stream, count in marks.items():
            lacking = list(self._done.get(stream, Positions()).lacking(0, count))
            if lacking:
                found.append(
                    f"the group has not done {len(lacking)} of {count} messages of {stream[:8]}, "
                    f"from {lacking[0]} on"
                )
        return found

    def give_up(self, marks: Mapping[str, int]) -> None:
        """What is not done below these marks will never be: it is asked for no more."""
        for stream, count in marks.items():
            done = self._done.setdefault(stream, Positions())
            for sequence in list(done.lacking(0, count)):
                done.take(sequence)
                self.gone += 1

    def check(self) -> None:
        """Forget what is old."""
        self._told = 0
        newest = next(reversed(self._shares.values())).when if self._shares else 0.0
        while self._shares:
            place, oldest = next(iter(self._shares.items()))
            if oldest.when >= newest - KEPT_SECONDS:
                break
            self._again.update(oldest.causes())
            del self._shares[place]
            if self._places.get(oldest.name) == place:
                del self._places[oldest.name]

    def _find(self, text: str) -> None:
        self._told += 1
        if self._told <= SHOWN_MAX:
            self.findings.append(text)
