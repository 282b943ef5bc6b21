"""What is seen of a run under way: the aggregation of its report, micro-batch by micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as f

from roq.demo.latency import Histogram
from roq.simulation.lab.traces.aggregate import MOVED, Rows, merged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RATES: Final = {
    "messages_in": "messages_in_per_second",
    "bytes_in": "bytes_in_per_second",
    "messages_out": "messages_out_per_second",
}


_LAST: Final = ("exchanges", "moving")
_SUMS: Final = ("messages", "failed", "late")
_TOLD: Final = ("exchange", "queue", "move")


class Seen(NamedTuple):
    """How a load stands, as far as traces are kept; rates are per second.

    Attributes:
        sent, received, failed, late: messages.
        messages_in, bytes_in, messages_out: of all exchanges, as told last.
        exchanges, moving: as the monitor told last.
        moves: accepted.
        p99: seconds, of what was received last; None if that is nothing.
    """

    sent: int = 0
    received: int = 0
    failed: int = 0
    late: int = 0
    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    exchanges: int = 0
    moves: int = 0
    moving: int = 0
    p99: float | None = None


class View:
    """Takes the rows of each micro-batch when they are kept.

    A trace that stands in the queue twice may count twice here: this is for the eye.

    Attributes:
        seen: how it stands; any thread.
    """

    def __init__(self) -> None:
        self.seen = Seen()

    def take(self, rows: DataFrame) -> None:
        """One micro-batch; in the thread of the query."""
        told = rows.filter(f.col("role").isNotNull() | f.col("kind").isin(*_TOLD))
        last = (f.max_by(name, "time_us").alias(name) for name in (*_RATES.values(), *_LAST))
        found = told.groupBy(f.coalesce("role", "kind").alias("what"), "exchange").agg(
            *(f.sum(name).alias(name) for name in _SUMS), *last,
            f.count_if(f.col("state") == MOVED).alias("moves"),
        )  # fmt: skip
        received = merged(rows.filter("role = 'subscriber'"))
        latency = Histogram({str(row["bucket"]): row["count"] for row in _rows(received)})
        self.seen = later(self.seen, _rows(found), latency)


def later(seen: Seen, told: Rows, latency: Histogram) -> Seen:
    """How it stands after a micro-batch; pure.

    Args:
        seen: before.
        told: a row for each role, each exchange, the queue and moves: `what` it is of.
        latency: of what was received.
    """
    sender, receiver, queue, moves = (
        next((row for row in told if row["what"] == what), {})
        for what in ("publisher", "subscriber", "queue", "move")
    )
    exchanges = [row for row in told if row["what"] == "exchange"]
    rates = {
        field: sum(row[name] for row in exchanges) if exchanges else getattr(seen, field)
        for field, name in _RATES.items()
    }
    return Seen(
        sent=seen.sent + sender.get("messages", 0),
        failed=seen.failed + sender.get("failed", 0),
        late=seen.late + sender.get("late", 0),
        received=seen.received + receiver.get("messages", 0),
        exchanges=queue.get("exchanges", seen.exchanges),
        moving=queue.get("moving", seen.moving),
        moves=seen.moves + moves.get("moves", 0),
        p99=latency.percentile(99) if latency else seen.p99,
        **rates,
    )


def _rows(frame: DataFrame) -> Rows:
    found: Rows = frame.toArrow().to_pylist()
    return found
