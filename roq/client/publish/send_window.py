"""What is sealed for one link and not acknowledged: numbering, window, replay, voids. Pure.

    kept (acknowledged, for a while) | under way (sent on this connection) | unsent
                                     ^ low                                          ^ next

Link numbers are contiguous from `low` to `next`; the exchange acknowledges them cumulatively. What
was acknowledged goes to the link's replay buffer (`roq.client.publish.replay`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterable, Iterator
from copy import copy
from itertools import islice

from msgspec import structs

from roq.client.publish.pending_batch import PendingBatch, age
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.publish.replay import ReplayBuffer
from roq.client.publish.stats import Tally
from roq.client.publish.topics import Stream
from roq.errors import LocalProtocolError
from roq.model import PublisherId
from roq.protocol import batch as wire
from roq.protocol.channel import Run


class SendWindow:
    """The batches of one link, in order.

    Args:
        publisher: id of the publisher.
        epoch: under which this link was opened.
        window_batches, window_bytes: what may be owed at once, and be under way at once.
        tally: the publisher's counters.
        buffer: where acknowledged batches go.

    Attributes:
        low: link number of the first batch that is not acknowledged.
        sent_high: the highest link number that ever left under this epoch.
        owed_batches, owed_bytes: not acknowledged, replays of acknowledged ones excluded.
    """

    def __init__(
        self,
        publisher: PublisherId,
        epoch: int,
        window_batches: int,
        window_bytes: int,
        tally: Tally,
        buffer: ReplayBuffer,
    ) -> None:
        self.publisher = publisher
        self.epoch = epoch
        self.tally = tally
        self.buffer = buffer
        self.low = 1
        self.sent_high = 0
        self.window_batches = window_batches
        self.window_bytes = window_bytes
        self.owed_batches = 0
        self.owed_bytes = 0
        self._batches: deque[PendingBatch] = deque()
        self._sent = 0
        self._sent_bytes = 0
        self._mixed = False
        """Whether older batches may stand behind newer ones."""
        self._spares = False
        """Whether any may be spare."""
        self._scratch = bytearray(wire.HEADER_BYTES)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[PendingBatch]:
        return iter(self._batches)

    @property
    def next(self) -> int:
        """The link number of the next batch."""
        return self.low + len(self._batches)

    @property
    def under_way(self) -> int:
        """Batches sent on this connection and not acknowledged."""
        return self._sent

    @property
    def bytes_under_way(self) -> int:
        """Their size."""
        return self._sent_bytes

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        return self.owed_batches < self.window_batches and self.owed_bytes < self.window_bytes

    # --- in ---------------------------------------------------------------------------------------

    def seal(
        self,
        stream: Stream,
        payloads: list[bytes],
        receipt: Receipt,
        now: float,
        created_us: int,
        attributes: bytes | None = None,
        extensions: bytes = b"",
    ) -> PendingBatch:
        """Pack the next messages of a stream; they have their sequences from here on."""
        data = wire.pack(
            payloads,
            publisher=self.publisher,
            epoch=self.epoch,
            link_number=self.next,
            first_sequence=stream.next_sequence,
            created_us=created_us,
            extensions=extensions,
            attributes=attributes,
            scratch=self._scratch,
        )
        count = len(payloads)
        sealed = PendingBatch(
            stream,
            data,
            link_number=self.next,
            first_sequence=stream.next_sequence,
            count=count,
            receipt=receipt,
            sealed_at=now,
        )
        self._batches.append(sealed)
        stream.next_sequence += count
        self.owed_batches += 1
        self.owed_bytes += len(data)
        return sealed

    # --- out --------------------------------------------------------------------------------------

    def take_unsent(self) -> list[PendingBatch]:
        """The batches to send now, in order: never more under way than the window allows."""
        taken: list[PendingBatch] = []
        unsent = len(self._batches) - self._sent
        if unsent == 0:
            return taken
        last = self._batches[-1]
        for sealed in (last,) if unsent == 1 else islice(self._batches, self._sent, None):
            if self._sent and (
                self._sent >= self.window_batches or self._sent_bytes >= self.window_bytes
            ):
                break
            sealed.sent = True
            self._sent += 1
            self._sent_bytes += len(sealed.data)
            taken.append(sealed)
        self.sent_high = max(self.sent_high, self.low + self._sent - 1)
        return taken

    def unsend(self) -> None:
        """The connection is gone: whatever was under way has to be sent again."""
        self._sent = 0
        self._sent_bytes = 0

    def rewind(self, number: int) -> None:
        """Send again from this link number on, which is between `low` and `next`."""
        if not self.low <= number <= self.next:
            raise LocalProtocolError(f"rewind to {number} outside {self.low}..{self.next}")
        again = min(number - self.low, self._sent)
        for sealed in islice(self._batches, again, self._sent):
            self._sent_bytes -= len(sealed.data)
            self.tally.replayed_batches += 1
        self._sent = again

    @property
    def sealed_at(self) -> float:
        """When the oldest batch was sealed; infinite: there is none."""
        return self._batches[0].sealed_at if self._batches else math.inf

    @property
    def waited_for(self) -> bool:
        """Whether anything is not acknowledged that somebody waits for."""
        return self.owed_batches > 0 and any(
            sealed.owed and not sealed.receipt.one_way for sealed in self._batches
        )

    # --- acknowledged -----------------------------------------------------------------------------

    def place(self, runs: Iterable[Run], number: int, status: SendStatus) -> None:
        """Tell receipts of batches up to this link number, which are acknowledged, their offsets.

        Args:
            runs: where batches lie, as the exchange says.
            number: as `acknowledge` will be told.
            status: what was achieved for all of them.
        """
        for first, offset, count in runs:
            begin, behind = max(first, self.low), min(first + count, number + 1, self.next)
            if begin < behind:
                batches = islice(self._batches, begin - self.low, behind - self.low)
                for at, sealed in enumerate(batches, offset + begin - first):
                    if not sealed.void:
                        sealed.receipt.settle(structs.replace(status, offset=at))

    def acknowledge(self, number: int, status: SendStatus, now: float) -> None:
        """Everything up to this link number is in the log."""
        batches, buffer, tally = self._batches, self.buffer, self.tally
        while self.low <= number and batches:
            sealed = batches[0]
            if not sealed.void:  # in place of a spare one: its receipt is owed where others send it
                sealed.receipt.settle(status)
            batches.popleft()
            self.low += 1
            size = len(sealed.data)
            if self._sent:
                self._sent -= 1
                self._sent_bytes -= size
            if sealed.owed:
                sealed.owed = False
                self.owed_batches -= 1
                self.owed_bytes -= size
                if not sealed.void:
                    tally.acked_batches += 1
                    tally.acked_messages += sealed.count
            stream = sealed.stream
            stream.acked_at = now
            if stream.unacked is not None:
                stream.unacked.pop(sealed.first_sequence, None)
            sealed.acked_at, sealed.epoch = now, self.epoch
            buffer.add(sealed)
        buffer.forget(now)

    # --- between links ----------------------------------------------------------------------------

    def take_all(self) -> list[PendingBatch]:
        """Everything that is not acknowledged, in order; this send window is empty afterwards."""
        batches = list(self._batches)
        self.low = self.next
        self._batches.clear()
        self.owed_batches = self.owed_bytes = 0
        self.unsend()
        return batches

    def take_unbound(self, topics: Container[str]) -> list[PendingBatch]:
        """As `take_all`, but of these topics what has left stays here, under its number.

        If any does, a spare copy of everything else that has left stays with it: the exchange may
        have taken all of these numbers.
        """
        sent = max(0, self.sent_high + 1 - self.low)
        left = list(islice(self._batches, sent))
        unsent = list(islice(self._batches, sent, None))
        stays = [_waits(sealed, topics) for sealed in left]
        if not any(stays):
            return self.take_all()
        return self._leave_spares(left, stays) + unsent

    def take_out(self, topics: Container[str]) -> list[PendingBatch]:
        """What of these topics stays here by `take_unbound`: others send it all the same."""
        batches = list(self._batches)
        return self._leave_spares(batches, [not _waits(sealed, topics) for sealed in batches])

    def owes(self, topics: Container[str]) -> bool:
        """Whether anything of these topics is not acknowledged."""
        return any(_waits(sealed, topics) for sealed in self._batches)

    def _leave_spares(self, batches: list[PendingBatch], stays: list[bool]) -> list[PendingBatch]:
        """Keep these, and a spare one for each that does not stay; gives those that do not."""
        taken: list[PendingBatch] = []
        self._batches = deque()
        for sealed, stay in zip(batches, stays, strict=True):
            rest = sealed
            if not (stay or sealed.spare):
                taken.append(sealed)
                rest = copy(sealed)
                rest.owed, rest.spare, self._spares = False, True, True
            self._batches.append(rest)
        owed = [sealed for sealed in self._batches if sealed.owed]
        self.owed_batches, self.owed_bytes = len(owed), sum(len(each.data) for each in owed)
        return taken

    def drop_spares(self, taken: int) -> None:
        """Above this link number the exchange has nothing: what others send is not sent here."""
        if self._spares:
            kept = max(0, taken + 1 - self.low)
            stay = [each for each in islice(self._batches, kept, None) if not each.spare]
            self._batches = deque(islice(self._batches, kept))
            self._spares = any(each.spare for each in self._batches)
            self._batches += stay
            self._renumber_from(kept, self.low + kept)

    def extend(self, batches: Iterable[PendingBatch]) -> None:
        """Take over what another link had sealed, behind what is here.

        A batch of which a spare one stands here takes the place of that: else it would be in this
        log twice.
        """
        spares: dict[tuple[Stream, int], int] = {}
        if self._spares:
            for index, each in enumerate(self._batches):
                if each.spare and not each.void:
                    spares[each.stream, each.first_sequence] = index
        for sealed in batches:
            key = sealed.stream, sealed.first_sequence
            place = None if sealed.void else spares.pop(key, None)
            if place is not None:
                spare = self._batches[place]
                self._adopt(sealed)
                sealed.link_number, sealed.data = spare.link_number, spare.data
                self._batches[place] = sealed
                continue
            self._mixed |= bool(self._batches) and age(sealed) < age(self._batches[-1])
            self._adopt(sealed)
            number = sealed.link_number = self.next
            sealed.data = wire.renumber(sealed.data, epoch=self.epoch, link_number=number)
            self._batches.append(sealed)

    @property
    def untouched(self) -> bool:
        """Whether nothing has left yet."""
        return self.low == 1 and self.sent_high == 0

    def merge(self, batches: list[PendingBatch]) -> None:
        """Take over what another link had sealed, in the order of sealing; only if untouched."""
        if not self.untouched:
            raise LocalProtocolError("this link has begun to send already")
        if not batches:
            return
        for sealed in batches:
            self._adopt(sealed)
        self._batches = deque(sorted([*self._batches, *batches], key=age))
        self._renumber_from(0, 1)

    def _adopt(self, sealed: PendingBatch) -> None:
        sealed.link_number = 0
        sealed.strayed |= sealed.sent
        self.tally.replayed_batches += sealed.sent
        if sealed.owed:
            self.owed_batches += 1
            self.owed_bytes += len(sealed.data)

    def take_back(self, lost: list[PendingBatch], expected: int) -> None:
        """The exchange has lost what it had acknowledged from this link number on: send it again.

        Args:
            lost: as much of it as is still there, in order; it stays acknowledged.
            expected: the link number that the exchange wants next.
        """
        self.tally.replayed_batches += len(lost)
        self.tally.replayed_batches += sum(1 for sealed in self._batches if sealed.sent)
        for sealed in lost:
            sealed.link_number = 0  # it may be that of an earlier link
        self._batches.extendleft(reversed(lost))
        self._renumber_from(0, expected)

    def _renumber_from(self, index: int, number: int) -> None:
        """Give the batches from `index` on the link numbers from `number` on; send all again."""
        if index == 0:
            self.low = number
        self.sent_high = number - 1
        for sealed in islice(self._batches, index, None):
            if sealed.link_number != number:
                sealed.data = wire.renumber(sealed.data, epoch=self.epoch, link_number=number)
                sealed.link_number = number
            number += 1
        self.unsend()

    # --- given up ---------------------------------------------------------------------------------

    def refuse(self, number: int, status: SendStatus) -> bool:
        """The exchange does not take this batch: put a VOID in its place and send from it again.

        Returns:
            False if no such batch is under way; or a VOID is, which every exchange takes: then a
            copy of what was there before was refused once more.
        """
        index = number - self.low
        if not 0 <= index < self._sent or self._batches[index].void:
            return False
        sealed = self._batches[index]
        if sealed.strayed:
            status = SendStatus(outcome=Outcome.UNKNOWN, reason=status.reason)
        self._void(sealed, status)
        self.rewind(number)
        return True

    def expire(
        self, before: float, reason: str, accepted: int = 0, held: SendStatus | None = None
    ) -> int:
        """Give up what was sealed before this time; gives the number of messages.

        What never left has failed; what left without an answer is unknown.

        Args:
            accepted: link number up to which the exchange has said to have everything, while its
                disk does not confirm it.
            held: what is told of those batches.
        """
        given_up = 0
        for sealed in self._batches:
            if not sealed.owed or sealed.void:
                continue  # replays of what was acknowledged before are owed to the readers
            if sealed.sealed_at > before:
                if self._mixed:
                    continue
                break
            given_up += sealed.count
            if held is not None and sealed.sent and sealed.link_number <= accepted:
                self._void(sealed, held)
                continue
            outcome = Outcome.UNKNOWN if sealed.sent else Outcome.FAILED
            self._void(sealed, SendStatus(outcome=outcome, reason=reason))
        return given_up

    def abandon(self, reason: str) -> None:
        """The publisher ends: every fate that is open is decided now."""
        for sealed in self._batches:
            if sealed.owed and not sealed.void:
                outcome = Outcome.UNKNOWN if sealed.sent else Outcome.FAILED
                self._settle_failed(sealed, SendStatus(outcome=outcome, reason=reason))
        self._batches.clear()
        self.owed_batches = 0
        self.owed_bytes = 0
        self.unsend()

    def _void(self, sealed: PendingBatch, status: SendStatus) -> None:
        """Replace the messages by a VOID of the same sequences and settle the receipt."""
        before = len(sealed.data)
        sealed.data = wire.pack_empty(
            wire.Kind.VOID,
            publisher=self.publisher,
            epoch=self.epoch,
            link_number=sealed.link_number,
            first_sequence=sealed.first_sequence,
            count=sealed.count,
        )
        sealed.void = True
        less = before - len(sealed.data)
        if sealed.link_number - self.low < self._sent:
            self._sent_bytes -= less
        if sealed.owed:
            self.owed_bytes -= less
            self._settle_failed(sealed, status)

    def _settle_failed(self, sealed: PendingBatch, status: SendStatus) -> None:
        if not sealed.receipt.done():
            sealed.receipt.settle(status)
            self.tally.give_up(sealed.count, status, one_way=sealed.receipt.one_way)

    def oldest_owed(self) -> float | None:
        """When the oldest batch was sealed that may still be given up."""
        times = (sealed.sealed_at for sealed in self._batches if sealed.owed and not sealed.void)
        if not self._mixed:
            return next(times, None)
        self._mixed = bool(self._batches)
        return min(times, default=None)

    # --- what a Hello tells -----------------------------------------------------------------------

    def lower_firsts(self, firsts: dict[Stream, int]) -> None:
        """Lower each stream's sequence to the first one that is not acknowledged here."""
        for sealed in self._batches:
            stream, first = sealed.stream, sealed.first_sequence
            if first < firsts.get(stream, stream.next_sequence):
                firsts[stream] = first

    def check(self) -> None:
        """Assert the invariants."""
        owed = [s for s in self._batches if s.owed]
        assert self.owed_batches == len(owed)  # noqa: S101
        assert self.owed_bytes == sum(len(s.data) for s in owed)  # noqa: S101
        assert 0 <= self._sent <= len(self._batches)  # noqa: S101
        sent = islice(self._batches, self._sent)
        assert self._sent_bytes == sum(len(s.data) for s in sent)  # noqa: S101
        numbers = [s.link_number for s in self._batches]
        assert numbers == list(range(self.low, self.next))  # noqa: S101
        assert all(s.data[32:40] == self.epoch.to_bytes(8, "little") for s in self._batches)  # noqa: S101


def _waits(sealed: PendingBatch, topics: Container[str]) -> bool:
    return sealed.stream.topic in topics and not (sealed.spare or sealed.void)
