"""A consumer group that keeps the order of each publisher's messages, also when it is moved. Pure.

A publisher that comes from another exchange may have left messages there that come before those
here. Its batches are held back, and nothing else is, until this group has done those at each of the
logs that the publisher has named (`roq.log.moved_publishers`):

    looked at --nothing lies elsewhere, or all of that is done--> free (`roq.log.groups`)
        \\--else--> held back, and asked for: done, or gone for good --^

Whom to ask, and what the answers are, is the exchange's business (`roq.exchange.order_questions`).
What waits for what follows the epochs of publishers and the order of logs, so nothing waits in a
circle.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple, TypeVar, cast

import msgspec

from roq.log.groups import ConsumerGroup
from roq.log.leases import Lease, Member, NumberedLeases, Piece
from roq.log.log import Log
from roq.log.moved_publishers import MovedPublishers
from roq.model import LogId, PublisherId, exchange_name
from roq.protocol.consuming import (
    AWAY,
    GONE,
    NO_GROUP,
    SETTLED,
    WAITS,
    GroupSettings,
    GroupState,
    Run,
)

B = TypeVar("B")

ASK_SECONDS: Final = 0.02
"""Before the same is asked for the second time; twice as long after each further one."""
ASK_SECONDS_MAX: Final = 1.0
TOGETHER_SECONDS: Final = 0.01
"""What is to be asked within this time is asked at once."""
PASSED_MAX: Final = 10_000
"""Stays of which is remembered that nothing comes before them; of others it is asked again."""
NAMED_MAX: Final = 8
"""Exchanges that are waited for and named."""
ORDERED_MODES: Final = frozenset({"exclusive", "keyed"})

_WHY: Final = {
    "": "there was no answer yet",
    WAITS: "they are not done there yet",
    AWAY: "it is away, and comes back with its log",
    NO_GROUP: "the group is not there yet",
}
_STAY: Final = Struct("<16x16sQ")
"""Publisher and epoch, of the header of a batch (`roq.protocol.batch`)."""


class Question(NamedTuple):
    """Has this group done all that the publisher has sent there under lower epochs?"""

    publisher: PublisherId
    epoch: int
    log: LogId


class _Wait:
    """What is held back of one stay of a publisher."""

    __slots__ = ("ask_at", "logs", "pause", "pieces")

    def __init__(self, logs: tuple[LogId, ...]) -> None:
        self.pieces: list[Piece] = []
        self.logs = dict.fromkeys(logs, "")
        """For which it waits, and what was said last."""
        self.ask_at = 0.0
        self.pause = ASK_SECONDS


class OrderedGroup(ConsumerGroup[B]):
    """An exclusive group, or one that is ordered by key.

    Args: as of `ConsumerGroup`, and
        stays: where publishers were before they came to this log.

    Attributes:
        ask_at: when something may be to be asked; None: nothing is held back.
    """

    def __init__(
        self, name: str, log: Log[B], settings: GroupSettings, created_us: int, start: int,
        now: float, stays: MovedPublishers,
    ) -> None:  # fmt: skip
        super().__init__(name, log, settings, created_us, start, now)
        self._stays = stays
        self._from: dict[int, PublisherId] = {}
        """Of each batch that is open: whose it is."""
        self._epochs: dict[PublisherId, dict[int, int]] = {}
        """Of each publisher: the epochs of its open batches, by offset and in order."""
        self._seen: tuple[PublisherId, int] | None = None
        """Publisher and epoch of the batch that was looked at last."""
        self._waits: dict[tuple[PublisherId, int], _Wait] = {}
        self.ask_at: float | None = None
        self._passed: OrderedDict[tuple[PublisherId, int], None] = OrderedDict()
        """Stays before which nothing is left elsewhere."""

    # --- what is asked ----------------------------------------------------------------------------

    def questions(self, now: float, most: int) -> list[Question]:
        """What is to be asked now, so many at once at most; the rest at the next call."""
        asked: list[Question] = []
        if self.ask_at is None or self.ask_at > now:
            return asked
        for (publisher, epoch), wait in self._waits.items():
            if wait.ask_at > now + TOGETHER_SECONDS or len(asked) >= most:
                continue
            asked += [Question(publisher, epoch, log) for log in wait.logs]
            wait.ask_at = now + wait.pause
            wait.pause = min(2 * wait.pause, ASK_SECONDS_MAX)
        self.ask_at = min((wait.ask_at for wait in self._waits.values()), default=None)
        return asked

    def told(self, question: Question, outcome: str) -> bool:
        """What was answered; whether something is free by that."""
        key = question.publisher, question.epoch
        wait = self._waits.get(key)
        if wait is None or question.log not in wait.logs:
            return False
        if outcome not in {SETTLED, GONE}:
            wait.logs[question.log] = outcome
            return False
        del wait.logs[question.log]
        if not wait.logs:
            self._release(key)
        return not wait.logs

    def is_done(self, publisher: PublisherId, epoch: int, end: int) -> bool:
        """Whether nothing below an offset is left of what came under lower epochs.

        Of who may still be here, the offset is later than what was sent before. While all that is
        open is held back, and there is no room to look further, it would be waited for in a circle.
        """
        stuck = self._is_full and not self.out and not self._free
        if self.next < end and not (stuck and self._stays.may_stay(publisher, epoch)):
            return False
        open_ = self._epochs.get(publisher, {})
        return all(stay >= epoch or offset >= end for offset, stay in open_.items())

    # --- the group --------------------------------------------------------------------------------

    def resume(
        self, member: Member, held: list[Run], numbers: NumberedLeases
    ) -> tuple[list[Lease], list[Run]]:
        """As `ConsumerGroup.resume`: what a member had got is not held back from it."""
        for run in held:
            while self.next <= run.offset and self._may_open():
                self._open_next()
            key = self._key_of(run.offset)
            if key in self._waits:
                self._release(key)
        return super().resume(member, held, numbers)

    def seek(self, offset: int) -> list[Member]:
        """As `ConsumerGroup.seek`."""
        for kept in (self._from, self._epochs, self._waits, self._passed):
            kept.clear()
        self.ask_at = None
        return super().seek(offset)

    def state(self, *, who: bool, most: int) -> GroupState:
        """As `ConsumerGroup.state`."""
        state = super().state(who=who, most=most)
        held = sum(piece.amount for wait in self._waits.values() for piece in wait.pieces)
        return msgspec.structs.replace(state, waiting=state.waiting + held)

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        super().check()
        assert self._from.keys() == self._open.bits.keys()  # noqa: S101
        assert self._from == {  # noqa: S101
            offset: publisher for publisher, held in self._epochs.items() for offset in held
        }
        assert (self.ask_at is None) is not bool(self._waits)  # noqa: S101
        for key, wait in self._waits.items():
            assert key not in self._passed  # noqa: S101
            assert wait.pieces  # noqa: S101
            assert wait.logs  # noqa: S101
            assert {self._key_of(piece.offset) for piece in wait.pieces} == {key}  # noqa: S101
        assert len(self._passed) <= PASSED_MAX  # noqa: S101

    # --- inside -----------------------------------------------------------------------------------

    def _look_at(self, offset: int) -> tuple[int, bytes]:
        found = super()._look_at(offset)
        record = self.reads.last if found[0] else None
        if record is not None:
            publisher, epoch = _STAY.unpack_from(cast("bytes", record[2]))
            self._seen = PublisherId(publisher), epoch
        return found

    def _opened(self, pieces: list[Piece]) -> None:
        if not pieces or self._seen is None:
            return
        publisher, epoch = key = self._seen
        offset = pieces[0].offset
        self._from[offset] = publisher
        self._epochs.setdefault(publisher, {})[offset] = epoch
        wait = self._waits.get(key)
        if wait is None and key not in self._passed:
            logs = self._stays.before(publisher, epoch)
            if logs:
                wait = self._waits[key] = _Wait(logs)
                self.ask_at = 0.0
        if wait is None:
            super()._opened(pieces)
        else:
            wait.pieces += pieces

    def _unheld(self) -> list[Piece]:
        held_back = [piece for wait in self._waits.values() for piece in wait.pieces]
        return [*super()._unheld(), *held_back]

    def _finish(self, offset: int, bits: int) -> None:
        super()._finish(offset, bits)
        if not self._open.size(offset):
            self._forget(offset)

    def _leave_behind(self, offset: int) -> int:
        for key, wait in list(self._waits.items()):
            wait.pieces = [piece for piece in wait.pieces if piece.offset >= offset]
            if not wait.pieces:
                del self._waits[key]
        self.ask_at = self.ask_at if self._waits else None
        left = super()._leave_behind(offset)
        for each in [each for each in self._from if each < offset]:
            self._forget(each)
        return left

    @property
    def stalled(self) -> str:
        """As of any group; or which other logs it waits for."""
        late = {key: wait for key, wait in self._waits.items() if wait.pause >= ASK_SECONDS_MAX}
        if not late or self.paused or not len(self):
            return super().stalled
        logs = {log: said for wait in late.values() for log, said in wait.logs.items()}
        where = "; ".join(
            f"{exchange_name(log.number)}: {_WHY.get(said, said)}"
            for log, said in sorted(logs.items())[:NAMED_MAX]
        )
        held = sum(piece.amount for wait in late.values() for piece in wait.pieces)
        return (
            f"{held} messages of {len({publisher for publisher, _ in late})} publishers wait until "
            f"what these have published elsewhere before is done ({where})"
        )

    def _key_of(self, offset: int) -> tuple[PublisherId, int]:
        publisher = self._from.get(offset, PublisherId(b""))
        return publisher, self._epochs.get(publisher, {}).get(offset, 0)

    def _release(self, key: tuple[PublisherId, int]) -> None:
        """Nothing is left elsewhere that comes before what this publisher has sent in this stay."""
        self._passed[key] = None
        if len(self._passed) > PASSED_MAX:
            self._passed.popitem(last=False)
        for piece in self._waits.pop(key).pieces:
            self._free.add(piece)
        self.ask_at = self.ask_at if self._waits else None

    def _forget(self, offset: int) -> None:
        """Nothing of this batch is open any more."""
        publisher = self._from.pop(offset, None)
        if publisher is not None:
            held = self._epochs[publisher]
            del held[offset]
            if not held:
                del self._epochs[publisher]
