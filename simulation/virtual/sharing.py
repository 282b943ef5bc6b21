"""What is noticed of a consumer group: who was given what by which lease, and what is confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from roq.client.consume.holding import ACKED, KEPT, TOLD, Holding
from roq.model import LogId

SHOWN_MAX: Final = 5
"""Broken promises of one kind that are told."""


class Place(NamedTuple):
    """Where a message is: the same log gives it a second time under the same place alone."""

    log: LogId
    offset: int
    message: int


Name = tuple[bytes, str, int]
"""Publisher, topic, sequence: by which a message is known wherever it is."""


class Sharing:
    """Watches over one group at all exchanges.

    Args:
        found: told of broken promises.
        checked: counts how often each one was looked at.

    Attributes:
        done: messages that a member has acknowledged, whatever has become of that.
        delivered, again: leases of messages; those that were not the first of their message.
    """

    def __init__(self, found: Callable[[str], None], checked: Counter[str]) -> None:
        self.done: set[Name] = set()
        self.delivered = self.again = 0
        self._found = found
        self._checked = checked
        self._confirmed: dict[Place, str] = {}
        self._leases: dict[Place, tuple[int, str]] = {}
        """The newest lease of each message, and who has it."""
        self._told: Counter[str] = Counter()

    def leased(self, member: str, log: LogId, offset: int, run: range, lease: int) -> None:
        """An exchange sends these messages of a batch to a member, or gives them back to it."""
        for index in run:
            place = Place(log, offset, index)
            self._checked["what is confirmed does not come again"] += 1
            self.delivered += 1
            if place in self._confirmed:
                self._tell(
                    "again",
                    f"{member} is given {place} again, which {self._confirmed[place]} has done",
                )
            self.again += self._held(place, member, lease)

    def _held(self, place: Place, member: str, lease: int) -> bool:
        before = self._leases.get(place)
        if before is None or before[0] < lease:
            self._leases[place] = lease, member
        return before is not None

    def resumed(self, member: str, holding: Holding) -> None:
        """A member holds on to what it had, by these leases."""
        for number, first, length in holding.segments:
            for index in range(first, first + length):
                self._held(Place(holding.log, holding.offset, index), member, number)

    def acknowledged(self, holding: Holding) -> None:
        """A member has acknowledged what it was given, or some of it."""
        batch = holding.batch
        for at, state in enumerate(holding.states):
            if state in {ACKED, TOLD, KEPT}:
                self.done.add((bytes(batch.publisher), batch.topic, batch.sequence + at))

    def look_at(self, member: str, holding: Holding) -> bool:
        """Note what of this is confirmed; whether more may come of it."""
        states = holding.states
        if KEPT in states:
            self._confirm(member, holding)
        return ACKED in states or TOLD in states

    def _confirm(self, member: str, holding: Holding) -> None:
        by_lease = {
            index: number
            for number, start, length in holding.segments
            for index in range(start, start + length)
        }
        for at, state in enumerate(holding.states, start=holding.first):
            place = Place(holding.log, holding.offset, at)
            if state != KEPT or place in self._confirmed:
                continue
            self._confirmed[place] = member
            self._checked["only the newest lease of a message counts"] += 1
            mine, (newest, holder) = by_lease.get(at), self._leases.get(place, (0, ""))
            if mine is not None and mine < newest:
                self._tell(
                    "holders",
                    f"{member} was confirmed {place} by lease {mine}, while {holder} has {newest}",
                )

    def _tell(self, kind: str, text: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= SHOWN_MAX:
            self._found(text)
