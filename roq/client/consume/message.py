"""What a consumer gets: messages and batches that are to be acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roq.client.consume.holding import Holding
from roq.model import check_seconds
from roq.protocol.consuming import DELAY_SECONDS_MAX, REASON_MAX, clean
from roq.read.message import Batch, Message


class Settlement:
    """What becomes of messages.

    Attributes:
        acked: they are done.
        dead: they go to the dead letters.
        counted: trying them was an attempt.
        delay: seconds until they are tried again; 0: as the group says.
        reason: why.
    """

    __slots__ = ("acked", "counted", "dead", "delay", "reason")

    def __init__(
        self,
        *,
        acked: bool = False,
        dead: bool = False,
        counted: bool = True,
        delay: float = 0.0,
        reason: str = "",
    ) -> None:
        self.acked = acked
        self.dead = dead
        self.counted = counted
        self.delay = check_seconds("delay", delay, 0, DELAY_SECONDS_MAX)
        self.reason = clean(str(reason), REASON_MAX)


DONE = Settlement(acked=True)
NOT_TRIED = Settlement(counted=False)

Settle = Callable[[Holding, int, int, Settlement], None]
"""Tells of messages of a holding: from which one on, how many, and what becomes of them."""


class ConsumedMessage(Message, frozen=True, gc=False, eq=False):
    """A message that its consumer holds until it is acknowledged or given back.

    Attributes:
        payload, batch, sequence: as of any `Message`.
    """

    _holding: Holding
    _index: int
    _settle: Settle

    @property
    def attempt(self) -> int:
        """The how manieth attempt this is, from 1."""
        return self._holding.attempt

    @property
    def open(self) -> bool:
        """Whether it is neither acknowledged nor given back."""
        return self._holding.is_open(self._index)

    @property
    def id(self) -> str:
        """Names the message in its queue: exchange, generation of its log, offset, index."""
        holding = self._holding
        log = holding.log
        return f"x{log.number}-{log.generation}-{holding.offset}-{holding.first + self._index}"

    def _place(self) -> tuple[Holding, int, int]:
        """Where it is, for its consumer: the holding, its index there, and how many."""
        return self._holding, self._index, 1

    def ack(self) -> None:
        """The message is done. Told to the exchange within milliseconds; see `Consumer.flush`.

        Raises:
            LeaseLost: the message is not this consumer's any more: another one has got it.
            Closed: the consumer is closed.
        """
        self._settle(self._holding, self._index, 1, DONE)

    def nack(self, delay: float = 0.0, reason: str = "") -> None:
        """The message is to be tried again, by any member.

        Args:
            delay: after so many seconds; 0: as the group's settings say, longer each time.
            reason: for people, at most 200 characters.

        Raises:
            LeaseLost, Closed: as `ack`.
        """
        self._settle(self._holding, self._index, 1, Settlement(delay=delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """The message cannot be done, however often it is tried: it goes to the dead letters.

        Raises:
            LeaseLost, Closed: as `ack`.
        """
        self._settle(self._holding, self._index, 1, Settlement(dead=True, reason=reason))


class ConsumedBatch:
    """Consecutive messages that their consumer holds.

    Attributes:
        batch: the messages.
    """

    __slots__ = ("_holding", "_index", "_settle", "batch")

    def __init__(self, holding: Holding, index: int, count: int, settle: Settle) -> None:
        self.batch = part_of(holding.batch, index, count)
        self._holding = holding
        self._index = index
        self._settle = settle

    @property
    def payloads(self) -> list[bytes]:
        """The messages, in order."""
        return self.batch.payloads

    @property
    def topic(self) -> str:
        """Their topic."""
        return self.batch.topic

    @property
    def attempt(self) -> int:
        """The how manieth attempt this is, from 1."""
        return self._holding.attempt

    def __len__(self) -> int:
        return len(self.batch)

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """The messages one by one; each may be acknowledged by itself."""
        return messages_of(self._holding, self._index, len(self), self._settle)

    def _place(self) -> tuple[Holding, int, int]:
        """Where they are, for their consumer."""
        return self._holding, self._index, len(self)

    def ack(self) -> None:
        """All of them are done; raises as `ConsumedMessage.ack`, when those are told that are not
        lost."""
        self._settle(self._holding, self._index, len(self), DONE)

    def nack(self, delay: float = 0.0, reason: str = "") -> None:
        """All that are not settled are to be tried again; as `ConsumedMessage.nack`."""
        self._settle(self._holding, self._index, len(self), Settlement(delay=delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """All that are not settled go to the dead letters; as `ConsumedMessage.reject`."""
        self._settle(self._holding, self._index, len(self), Settlement(dead=True, reason=reason))

    def __repr__(self) -> str:
        return f"<ConsumedBatch of {len(self)} messages, topic {self.topic!r}>"


def messages_of(
    holding: Holding, index: int, count: int, settle: Settle
) -> Iterator[ConsumedMessage]:
    """The messages of a holding from this one on."""
    for at in range(index, index + count):
        yield message_at(holding, at, settle)


def message_at(holding: Holding, index: int, settle: Settle) -> ConsumedMessage:
    """One message of a holding."""
    batch = holding.batch
    return ConsumedMessage(
        batch.payloads[index], batch, batch.sequence + index, holding, index, settle
    )


def part_of(batch: Batch, index: int, count: int) -> Batch:
    """Some of the messages of a batch."""
    if not index and count == len(batch):
        return batch
    return Batch(
        batch.payloads[index : index + count], batch.topic, batch.publisher,
        batch.sequence + index, batch.created_us, batch.size, batch.attributes,
    )  # fmt: skip
