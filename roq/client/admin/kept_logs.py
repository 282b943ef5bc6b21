"""The logs of durable queues on one host: what goes with them if the host is drained."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from roq.client.admin.views import Listing
from roq.errors import RoQError
from roq.model import VOLATILE
from roq.protocol.public_answers import QueueDescription, QueueSummary
from roq.read.log_reader import LogReader

ASK_SECONDS: Final = 2.0
"""An exchange that does not say within this what its log holds is not waited for."""


class KeptLog(NamedTuple):
    """The log of one exchange."""

    queue: str
    exchange: str
    batches: int | None
    """So many are kept there at most; None: its exchange does not say."""

    def __str__(self) -> str:
        what = "it is not known what"
        if self.batches is not None:
            batches = "batch" if self.batches == 1 else "batches"
            what = f"up to {self.batches:,} {batches} of messages"
        return f"queue {self.queue}, log of {self.exchange}: {what}"


class QueueSource(Protocol):
    """Whoever knows the queues, as `Cluster` does."""

    def queues(self) -> Listing[QueueSummary]:
        """All of them."""
        ...

    def describe(self, queue: str) -> QueueDescription:
        """Everything about one."""
        ...


def logs_on(cluster: QueueSource, host: str) -> list[KeptLog]:
    """The logs on a host that hold something, or may.

    Args:
        cluster: where it is.
        host: its name.

    Raises:
        RoQError: nobody tells which queues there are.
    """
    found = []
    for queue in cluster.queues():
        if queue.durability in {VOLATILE, ""}:
            continue
        described = cluster.describe(queue.name)
        queue_id = bytes.fromhex(described.queue_id)
        for row in described.exchanges:
            if row.host != host:
                continue
            batches = _batches(row.data, queue_id, row.number)
            if batches != 0:
                found.append(KeptLog(queue.name, row.name, batches))
    return found


def _batches(address: str, queue_id: bytes, number: int) -> int | None:
    if not address:  # it does not run yet, or was never heard
        return None
    with (
        suppress(RoQError),
        LogReader(address, queue_id, number=number, timeout=ASK_SECONDS) as log,
    ):
        ends = log.ends()
        return ends.end - ends.floor
    return None
