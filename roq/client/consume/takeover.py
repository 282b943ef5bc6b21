"""A batch job does the work of a consumer group: how far the group is, and to move it on.

The group stands still meanwhile, as it has no members. What the job has moved is handed out to no
member that comes later; what it has not moved is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from roq.client.consume.groups import not_found, read
from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import ask_all, told
from roq.errors import GroupNotFound, InvalidRequest, RemoteProtocolError, Unavailable
from roq.log.group_changes import GroupDelta, decode_deltas
from roq.model import LogId
from roq.protocol.consuming import GROUP_ORDER, MOVES_MAX, GroupOrder, GroupSettings, Moved, Ordered
from roq.protocol.public_answers import QueueDescription

_REQUEST: Final = 1


class LogPosition:
    """How far a group is in one log.

    Args:
        settings: of the group.
        delta: what is done, as the exchange has said it; `created_us` 0: the group is not there.

    Attributes:
        settings: likewise.
        created_us: when it was made.
        sought_us: when an operator has moved it last; 0: never.
        base: everything below is done.
    """

    def __init__(self, settings: GroupSettings, delta: GroupDelta) -> None:
        self.settings, self.base = settings, delta.base
        self.created_us, self.sought_us = delta.created_us, delta.sought_us
        self._whole = sorted(delta.whole)
        self._firsts = [first for first, _ in self._whole]
        self._parts = {offset: int.from_bytes(done, "little") for offset, done in delta.parts}

    def done(self, offset: int) -> int:
        """Which messages of a batch are done, as bits, the lowest first; -1: all of them."""
        at = bisect_right(self._firsts, offset) - 1
        if offset < self.base or (at >= 0 and offset < sum(self._whole[at])):
            return -1
        return self._parts.get(offset, 0)


def read_position(delta: bytes) -> LogPosition:
    """What an exchange has said of a group.

    Raises:
        RemoteProtocolError: it is something else.
    """
    for each in decode_deltas(delta):
        if each.settings is not None:
            return LogPosition(each.settings, each)
    raise RemoteProtocolError("that is not how far a consumer group is")


def take(engine: Engine, queue: QueueDescription, group: str, seconds: float) -> dict[LogId, bytes]:
    """How far a group is that has no members, by log, for `read_position`.

    Raises:
        GroupNotFound: no exchange has it.
        InvalidRequest: it has members, or no batch job can do its work.
        Unavailable: not all exchanges have answered.
        QueueStopped: the queue does not run.
    """
    order = GroupOrder(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=group, order="take"
    )  # fmt: skip
    answers = _order(engine, queue, order, seconds, "nothing is read")
    numbers = {each.name: each.number for each in queue.exchanges}
    return {
        LogId(numbers[name], answer.generation): answer.position for name, answer in answers.items()
    }


def move(
    engine: Engine,
    queue: QueueDescription,
    group: str,
    settings: GroupSettings,
    moves: Iterable[Moved],
    seconds: float,
) -> None:
    """A batch job has done parts of logs: they are handed out to no member any more.

    To repeat it does no harm.

    Args:
        settings: of the group, for exchanges that did not have it yet.

    Raises:
        As `take`; and InvalidRequest: the group was made anew or sought meanwhile.
    """
    order = GroupOrder(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=group, order="move",
        moves=list(moves)[:MOVES_MAX], settings=settings,
    )  # fmt: skip
    _order(engine, queue, order, seconds, "repeat it")


def _order(
    engine: Engine, queue: QueueDescription, order: GroupOrder, seconds: float, advice: str
) -> dict[str, Ordered]:
    try:
        answers = ask_all(engine, queue, GROUP_ORDER, order, seconds)
        found, missing = read(answers, GROUP_ORDER, Ordered)
    except InvalidRequest as error:
        raise InvalidRequest(f"queue {queue.name}: {error}") from None
    if missing:
        raise Unavailable(
            f"group {order.group} of queue {queue.name}: {told(missing)}. Not all exchanges have "
            f"answered: {advice}"
        )
    if not found:
        raise GroupNotFound(not_found(queue.name, order.group))
    return found
