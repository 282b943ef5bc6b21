"""Logs of exchanges that were removed while their hosts were away, and are to go from their disks.

A host manager that is back knows nothing of that, and what the registry does not know is no reason
to remove a log: it may have been restored from an older copy. So each removal that a host has not
confirmed is written down, and its host is told when it reports again. A host that is back without
the disk that has the log does not find it there: it is told again by its next manager, which may
have that disk, and for the last time after a day. One whose disk refuses is told each minute, for a
day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from roq.gcm.state.queues import Queues
from roq.gcm.state.records import EVERYTHING, REMOVED_MAX, RemovedLog
from roq.model import exchange_name

MISSING_SECONDS: Final = 86_400.0
"""A disk that is not there, or refuses, is waited for for so long."""
REFUSED_SECONDS: Final = 60.0
"""A host whose disk has refused is told again after so long."""


class RemovedLogs:
    """All that wait for their hosts, the oldest first.

    Args:
        queues: what a definition has (again), is not touched.

    Attributes:
        unsaved: whether some have gone since this was written down.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._records: dict[tuple[str, bytes, int], RemovedLog] = {}
        self._hosts: frozenset[str] = frozenset()
        self._missing: dict[tuple[str, bytes, int], tuple[int, float]] = {}
        """Those whose disk was not there: epoch of the manager that has said so last, and since
        when that is known."""
        self._refused: dict[tuple[str, bytes, int], tuple[str, float, float]] = {}
        """Those whose disk refuses: what their host has said, since when, and when it was told
        last."""
        self.unsaved = False

    def __iter__(self) -> Iterator[RemovedLog]:
        return iter(self._records.values())

    def add(self, records: Iterable[RemovedLog]) -> list[RemovedLog]:
        """Remember these; gives those that were forgotten for them."""
        for each in records:
            if each.number == EVERYTHING:
                self._forget(
                    [key for key in self._records if key[:2] == (each.host, each.queue_id)]
                )
            self._records[_key(each)] = each
        surplus = list(self)[: max(0, len(self._records) - REMOVED_MAX)]
        self._forget([_key(each) for each in surplus])
        return surplus

    def drop(self, record: RemovedLog) -> None:
        """Its host has removed it, or is not told any more."""
        self._forget([_key(record)])
        self.unsaved = True

    def missed(self, record: RemovedLog, epoch: int, now: float) -> bool:
        """The manager of this epoch has another disk; whether the right one is still waited for."""
        _, since = self._missing.get(_key(record), (epoch, now))
        self._missing[_key(record)] = epoch, since
        self._refused.pop(_key(record), None)
        return now - since < MISSING_SECONDS

    def refused(self, record: RemovedLog, why: str, now: float) -> bool:
        """Its host has said why its disk does not remove it; whether it is told again."""
        _, since, _ = self._refused.get(_key(record), ("", now, now))
        self._refused[_key(record)] = why, since, now
        return now - since < MISSING_SECONDS

    def trouble(self, record: RemovedLog) -> str:
        """Why its host has not removed it, though it is back; empty: it was not told yet."""
        if _key(record) in self._refused:
            return self._refused[_key(record)][0]
        return "it has another data.dir now" if _key(record) in self._missing else ""

    def give_up(self, host: str) -> list[RemovedLog]:
        """This host is gone for good; gives what it would have been told to remove."""
        given_up = [each for each in self if each.host == host]
        self._forget([_key(each) for each in given_up])
        return given_up

    def clear(self) -> None:
        """Another manager leads."""
        self._forget(list(self._records))
        self.unsaved = False

    @property
    def hosts(self) -> frozenset[str]:
        """Those that are waited for."""
        return self._hosts

    def due(self, host: str, epoch: int, now: float) -> list[RemovedLog]:
        """What a host that is back, with a manager of this epoch, is to remove."""
        if host not in self._hosts:
            return []
        return [
            each for each in self
            if each.host == host and self._is_gone(each) and self._may_be_there(each, epoch, now)
        ]  # fmt: skip

    def hosts_of(self, queue_id: bytes) -> set[str]:
        """The hosts that have logs which a queue has had."""
        return {each.host for each in self if each.queue_id == queue_id}

    def _forget(self, keys: Iterable[tuple[str, bytes, int]]) -> None:
        for key in keys:
            self._records.pop(key, None)
            self._missing.pop(key, None)
            self._refused.pop(key, None)
        self._hosts = frozenset(each.host for each in self)

    def _may_be_there(self, record: RemovedLog, epoch: int, now: float) -> bool:
        *_, told = self._refused.get(_key(record), ("", 0.0, -REFUSED_SECONDS))
        if now - told < REFUSED_SECONDS:
            return False
        asked, since = self._missing.get(_key(record), (0, now))
        return asked != epoch or now - since >= MISSING_SECONDS

    def _is_gone(self, record: RemovedLog) -> bool:
        """Whether no definition has it; it may be there again in a registry that was restored."""
        if record.queue in self._queues.unreadable:
            return False
        queue = self._queues.get(record.queue)
        if queue is None or queue.record.queue_id != record.queue_id:
            return True
        return record.number != EVERYTHING and queue.record.exchange(record.number) is None


def described(record: RemovedLog) -> str:
    """Of which exchange, or of which queue."""
    queue = f"queue {record.queue}"
    return queue if record.number == EVERYTHING else f"{exchange_name(record.number)} of {queue}"


def folder(record: RemovedLog) -> str:
    """Where it lies on its host."""
    path = f"logs/{record.queue_id.hex()}"
    return path if record.number == EVERYTHING else f"{path}/{exchange_name(record.number)}"


def _key(record: RemovedLog) -> tuple[str, bytes, int]:
    return record.host, record.queue_id, record.number
