"""The logs of a queue as they are now: which there are, and what each of them holds.

Messages that are lost to a query are an error, unless the loss is accepted. A loss that is accepted
by the name of its log stays accepted when the query starts again; so the option may stay, and still
no loss of another log is passed over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Final, Self

from roq.client.cluster import Cluster
from roq.client.consume import takeover
from roq.client.consume.takeover import LogPosition, read_position
from roq.client.io.engine import Engine
from roq.errors import RoQError, StaleEpoch, Unavailable
from roq.log.group_changes import GroupDelta, encode_deltas
from roq.model import LogId
from roq.protocol.consuming import Moved
from roq.protocol.public_answers import ExchangeSummary, QueueDescription
from roq.read.events import BelowFloor
from roq.read.log_reader import LogReader
from roq.runtime import sockets
from roq.spark.offsets import Departed, Offsets, Span, check_ends, settled
from roq.spark.options import ALL, EARLIEST, LATEST, Options, Place

log = logging.getLogger(__name__)


class DataLoss(RoQError):
    """Messages have left a log before this query has read them."""


def lose(options: Options, key: LogId, text: str, *, below: int | None = None) -> None:
    """Messages of a log are lost to this query.

    Args:
        key: the log; generation 0: nothing is known of it but the number of its exchange.
        text: what is lost.
        below: it stood below this offset; None: the log is gone.

    Raises:
        DataLoss: that is not accepted. Says how it is.
    """
    if options.fail_on_data_loss and not _accepts(options, key, below):
        raise DataLoss(
            f"{text}. To go on without them, set option acceptedLoss to "
            f"'{_accepting(options, key, below)}': it may stay, as it accepts nothing of others. "
            'Option failOnDataLoss "false" accepts whatever is lost'
        )
    log.warning("%s", text, extra={"event": "data_loss"})


def _accepts(options: Options, key: LogId, below: int | None) -> bool:
    if key not in options.accepted:
        return False
    most = options.accepted[key]
    return most is None or (below is not None and below <= most)


def _accepting(options: Options, key: LogId, below: int | None) -> str:
    """The option with which this is accepted, together with what it accepts already."""
    accepted = {**options.accepted, key: below}
    return json.dumps({str(each): ALL if most is None else most for each, most in accepted.items()})


CACHE_SECONDS: Final = 0.1
"""Spark asks dozens of times a second how far there is something to read."""
TOPOLOGY_SECONDS: Final = 1.0
"""Exchanges come and go more slowly."""


class QueueLogs:
    """The logs of one queue; for the process that plans a query.

    Args:
        options: which cluster and queue, and how patient to be.

    Raises:
        Unavailable: the cluster does not answer.
        QueueNotFound, QueueStopped: it has no such queue, or that does not run.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster = Cluster(list(options.cluster), timeout=options.timeout)
        self._context = sockets.new_context()
        self._readers: dict[LogId, LogReader] = {}
        self._spans: dict[LogId, Span] = {}
        self._spans_at = self._topology_at = float("-inf")
        try:
            self._queue = self._describe()
        except RoQError:
            self.close()
            raise

    @property
    def queue_id(self) -> str:
        """Hexadecimal; another life of a queue has another one."""
        return self._queue.queue_id

    def spans(self) -> Mapping[LogId, Span]:
        """What can be read of each log; at most a fraction of a second old.

        Raises:
            Unavailable: an exchange that the cluster counts as running does not answer.
        """
        now = time.monotonic()
        if now - self._spans_at > CACHE_SECONDS:
            if now - self._topology_at > TOPOLOGY_SECONDS:
                self._queue = self._describe()
                self._topology_at = now
            self._spans = self._ask_all()
            self._spans_at = now
        return self._spans

    def seek(self, time_us: int) -> dict[LogId, int]:
        """The offset of the first batch appended at or after a time, for each log."""
        return {key: self._readers[key].seek(time_us) for key in self.spans()}

    def waiting(
        self, spans: Mapping[LogId, Span], read: Mapping[LogId, int], most: int
    ) -> dict[LogId, Span]:
        """What can be read, without offsets that belong to no batch and come next.

        A log on a disk leaves out a million of them where its process began anew: a query with a
        limit would read nothing for hundreds of micro-batches. So nobody is asked where one
        micro-batch reads all.

        Args:
            spans: what can be read.
            read: up to which offset each log is read.
            most: offsets that a micro-batch reads at most; 0: no limit.
        """
        found = dict(spans)
        for key, span in spans.items():
            first = max(read.get(key, 0), span.floor)
            if most and span.end - first > most:
                with contextlib.suppress(StaleEpoch):  # the next look at the logs tells that
                    found[key] = Span(self._readers[key].following(first, span.end), span.end)
        return found

    def take(self) -> dict[LogId, bytes]:
        """How far the group is in each log, for `takeover.read_position`; where it is not yet, at
        the beginning.

        Raises:
            InvalidRequest: it has members, or its messages are in no order that a query knows.
            GroupNotFound: there is none of this name.
            Unavailable: not all exchanges have answered.
        """
        spans, name = self.spans(), self._options.group
        said = takeover.take(self._engine, self._queue, name, self._options.timeout)
        settings = next(read_position(each).settings for each in said.values())
        return {
            key: encode_deltas([GroupDelta(name, span.floor, settings=settings)])
            for key, span in spans.items()
        } | said

    def move(self, position: Mapping[LogId, LogPosition], until: Mapping[LogId, int]) -> None:
        """The work of the group is done up to these offsets.

        Args:
            position: how far the group was.

        Raises:
            InvalidRequest: it has members, or was sought or made anew meanwhile.
            GroupNotFound, Unavailable: as `take`.
        """
        self._queue = self._describe()
        takeover.move(
            self._engine, self._queue, self._options.group, next(iter(position.values())).settings,
            [
                Moved(key.generation, each.base, until[key], each.created_us, each.sought_us)
                for key, each in position.items()
                if until.get(key, 0) > each.base
            ],
            self._options.timeout,
        )  # fmt: skip

    @property
    def _engine(self) -> Engine:
        return self._cluster._engine  # noqa: SLF001 - as a part of the client does

    def address(self, log: LogId) -> str:
        """Data address of the exchange that has this log; empty if none has it any more."""
        exchange = self._present().get(log)
        return exchange.data if exchange is not None else ""

    def listed(self) -> frozenset[LogId]:
        """The logs that the cluster has not given up, whether they can be read now or not."""
        return frozenset(self._present())

    def numbers(self) -> frozenset[int]:
        """Of all exchanges that the queue has, also of those that do not serve (yet)."""
        return frozenset(each.number for each in self._queue.exchanges)

    def departed(self) -> Mapping[int, Departed]:
        """By number, the exchanges that went last, and where their logs ended."""
        return {each.number: Departed(each.generation, each.end) for each in self._queue.departed}

    def look_again(self) -> None:
        """Forget what is remembered, so that the next question is asked for real."""
        self._spans_at = self._topology_at = float("-inf")

    def close(self) -> None:
        """Give the connections back; idempotent."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._context.term()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self) -> QueueDescription:
        return self._cluster.describe(self._options.queue)

    def _present(self) -> dict[LogId, ExchangeSummary]:
        return {
            exchange.log: exchange
            for exchange in self._queue.exchanges
            if exchange.data and exchange.generation
        }

    def _ask_all(self) -> dict[LogId, Span]:
        present = self._present()
        for key in [key for key in self._readers if key not in present]:
            self._readers.pop(key).close()
        spans: dict[LogId, Span] = {}
        for key, exchange in present.items():
            try:
                ends = self._reader(key, exchange).ends()
            except StaleEpoch:
                self._topology_at = float("-inf")  # the cluster has not noticed yet
            except Unavailable:
                if exchange.state == "running" and self._still_there(key):
                    raise
            else:
                spans[key] = Span(ends.floor, ends.end)
        return spans

    def _still_there(self, key: LogId) -> bool:
        self._queue = self._describe()
        exchange = self._present().get(key)
        return exchange is not None and exchange.state == "running"

    def _reader(self, key: LogId, exchange: ExchangeSummary) -> LogReader:
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = LogReader(
                exchange.data, bytes.fromhex(self.queue_id), number=key.number,
                generation=key.generation, timeout=self._options.timeout, context=self._context,
            )  # fmt: skip
        return reader


def positions(said: Mapping[LogId, bytes]) -> dict[LogId, LogPosition]:
    """How far a group is in each log, as its exchanges have said.

    Raises:
        RemoteProtocolError: that is something else.
    """
    return {key: read_position(each) for key, each in said.items()}


def offsets_at(
    place: Place, name: str, logs: QueueLogs, spans: Mapping[LogId, Span], options: Options
) -> Offsets:
    """The offsets that the place in this option means, in the logs that there are."""
    highest = settled(Offsets(logs.queue_id), spans, logs.numbers(), logs.departed())
    found = _next_at(place, name, logs, spans, options)
    return Offsets(logs.queue_id, found, highest=highest)


def raised(
    given: Mapping[LogId, int], spans: Mapping[LogId, Span], policy: BelowFloor
) -> dict[LogId, int]:
    """The offsets to begin at, with those that are kept no more as the policy wants them."""
    if policy is BelowFloor.ERROR:
        return dict(given)  # it counts as a loss, and is told as one
    latest = policy is BelowFloor.LATEST
    return {
        key: (spans[key].end if latest else spans[key].floor)
        if key in spans and offset < spans[key].floor
        else offset
        for key, offset in given.items()
    }


def _next_at(
    place: Place, name: str, logs: QueueLogs, spans: Mapping[LogId, Span], options: Options
) -> dict[LogId, int]:
    if place.time_us is not None:
        return logs.seek(place.time_us)
    if place.word == EARLIEST:
        return {key: span.floor for key, span in spans.items()}
    if place.word == LATEST:
        return {key: span.end for key, span in spans.items()}
    given = dict(place.offsets or {})
    for key in given:
        if key not in spans:
            lose(options, key, f"{name} names a log that is gone: {key}")
    check_ends(given, spans, name)
    if name == "startingOffsets":
        given = raised(given, spans, options.below_floor)
    return {key: given.get(key, span.floor) for key, span in spans.items()}
