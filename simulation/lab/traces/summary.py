"""What the traces of a run say: figures, and the series of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roq.simulation.lab.archive.document import LATENCIES, Run, Series, Window
from roq.simulation.lab.traces import events as run_events
from roq.simulation.lab.traces.aggregate import WHOLE, Latencies, Row, Rows, Traces
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid, grid
from roq.simulation.lab.traces.place import Damaged, Place
from roq.simulation.lab.traces.windows import silences, windows
from roq.simulation.scenario.offered import offered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_OUT_MAX: Final = 100
"""Damaged files that are left out, at most: each of them costs another attempt."""
LAST_SECONDS: Final = 5.0
LAST_SHARE: Final = 0.1
"""The end of a load, for what is said of it: so many seconds, or this share if that is more."""


def summarise(
    spark: SparkSession, place: Place, run: Run, *, leave_out: bool = False
) -> tuple[dict[str, float], Series]:
    """The figures and the series of a live run.

    Args:
        spark: does the work.
        place: of its traces.
        run: what was asked, when the load began (`began_us`) and how long it took (`seconds`).
        leave_out: go on without files that are damaged.

    Returns:
        Figures by name (docs/simulation.md says what each means; those that the traces do not tell
        are missing), and what happened window by window.

    Raises:
        TracesError: a file is damaged; names it.
    """
    load = grid(run.began_us, run.seconds)
    if not run.began_us or not load.count:
        return {}, Series(window_seconds=1.0, windows=[])
    without: set[str] = set()
    while True:
        # What makes the figures finds what is damaged: nothing is read twice to look for it.
        try:
            with Traces(spark, place, without=without) as traces:
                figures, series = _summarised(traces, run, load)
        except Damaged as error:
            if not leave_out or error.file in without or len(without) >= LEFT_OUT_MAX:
                raise
            without.add(error.file)
        else:
            return {**figures, "files_left_out": float(len(without))}, series


def _summarised(traces: Traces, run: Run, load: Grid) -> tuple[dict[str, float], Series]:
    heard, most = traces.heard, traces.hole_seconds
    clients = traces.clients(load)
    latencies = traces.latencies(load, clients)
    exchanges, holes = traces.exchange_windows(load), traces.holes()
    quiet = silences(traces.silences(), heard["first_us"], heard["last_us"], load, most)
    received = {window: each for (role, window), each in latencies.items() if role == "subscriber"}
    each_window = windows(load, run.scenario, exchanges, received, quiet, holes)
    lives = traces.lives()
    events, left_out = run_events.in_order(
        [
            *run_events.told(traces.told(), load),
            *run_events.births_and_deaths(lives, load, heard["last_us"] or 0, most),
            *run_events.gaps(holes, quiet, load),
        ]
    )
    figures = {
        **_clients(clients, run),
        **_latency(latencies),
        **_exchanges(exchanges, each_window),
        **(_elasticity(traces, load) if heard["last_us"] else {}),
        **(_overloads(traces.overloads(load)) if traces.limits else {}),
        **_wholeness(traces, quiet),
    }
    series = Series(
        window_seconds=load.window_us / MICROSECONDS,
        windows=each_window,
        events=events,
        events_left_out=left_out + sum(traces.left_out.values()) - traces.left_out.get("limits", 0),
    )
    return figures, series


def remarks(figures: dict[str, float]) -> list[str]:
    """What a reader has to know of the traces that these figures come from, in sentences."""
    texts = {
        "traces_missing": "Traces that were published and never collected: {:.0f}.",
        "traces_doubled": "Traces that stood in the queue twice: {:.0f}; each was counted once.",
        "traces_rejected": "Messages that were no traces of this run: {:.0f}.",
        "traces_late": "Traces that came late: {:.0f}; they were counted where they belong.",
        "silent_seconds": "For {:.1f} s nothing is known of the exchanges.",
        "documents_dropped": "Documents of the statistics stream that the tap has lost: {:.0f}.",
        "limits_left_out": (
            "Changes of the limit that were too many and left out, the last ones: {:.0f}. "
            "Overloads after them are not exact."
        ),
        "files_left_out": "Damaged files of traces that were left out: {:.0f}.",
    }
    return [text.format(figures[name]) for name, text in texts.items() if figures.get(name)]


def _clients(rows: Rows, run: Run) -> dict[str, float]:
    publishers = [row for row in rows if row["role"] == "publisher"]
    subscribers = [row for row in rows if row["role"] == "subscriber"]

    def summed(of: Rows, name: str) -> float:
        return float(sum(row[name] for row in of))

    found: dict[str, float] = {}
    if publishers:
        sent = summed(publishers, "messages")
        wanted = offered(run.scenario, 0.0, run.seconds).messages
        found |= {
            "sent": sent,
            "failed": summed(publishers, "failed"),
            "messages_per_second": sent / run.seconds,
            "bytes_per_second": summed(publishers, "bytes") / run.seconds,
            "generator_late_share": _ratio(summed(publishers, "late"), sent),
        }
        if wanted > 0:
            found["load_reached"] = sent / wanted
    if subscribers:
        found |= {
            "received": summed(subscribers, "messages"),
            "lost": summed(subscribers, "failed"),
            "doubled": summed(subscribers, "doubled"),
            "reordered": summed(subscribers, "reordered"),
        }
    if rows:
        found["clock_error_ms"] = max(row["clock_error"] for row in rows) * 1_000
    return found


def _latency(latencies: Latencies) -> dict[str, float]:
    found: dict[str, float] = {}
    if (whole := latencies.get(("subscriber", WHOLE))) is not None:
        told = {"max" if name == "most" else name: getattr(whole, name) for name in LATENCIES}
        found |= {f"latency_{name}_ms": each for name, each in told.items()}
    if (calls := latencies.get(("publisher", WHOLE))) is not None:
        found |= {"publish_mean_ms": calls.mean, "publish_p99_ms": calls.p99}
    return found


def _exchanges(rows: Rows, each_window: list[Window]) -> dict[str, float]:
    if not rows:
        return {}
    messages = sum(row["messages_in"] for row in rows)
    cpu = sum(row["cpu_seconds"] for row in rows)
    found = {
        "exchange_messages_in": messages,
        "exchange_messages_out": sum(row["messages_out"] for row in rows),
        "exchange_bytes_in": sum(row["bytes_in"] for row in rows),
        "exchange_bytes_out": sum(row["bytes_out"] for row in rows),
        "exchange_hours": sum(row["seconds"] for row in rows) / 3_600,
        "cpu_seconds": cpu,
    }
    if messages:
        found["cpu_seconds_per_million"] = cpu / messages * 1e6
    uneven = [each.imbalance for each in each_window if each.imbalance is not None]
    found["imbalance_mean"] = sum(uneven) / len(uneven) if uneven else 1.0
    found["imbalance_last"] = _last_imbalance(each_window)
    return found


def _last_imbalance(each_window: list[Window]) -> float:
    """The busiest exchange over the mean at the end, over all bytes of some seconds."""
    heard = [each for each in each_window if len(each.exchanges) == each.serving]
    loaded = [each for each in heard if sum(one.bytes_in for one in each.exchanges) > 0]
    if not loaded:
        return 1.0
    end = loaded[-1].at
    since = end - max(LAST_SECONDS, LAST_SHARE * each_window[-1].at)
    there = {one.exchange for one in loaded[-1].exchanges}
    sums = dict.fromkeys(there, 0.0)
    for each in loaded:
        if each.at > since and {one.exchange for one in each.exchanges} == there:
            for one in each.exchanges:
                sums[one.exchange] += one.bytes_in
    return max(sums.values()) * len(sums) / sum(sums.values())


def _elasticity(traces: Traces, load: Grid) -> dict[str, float]:
    many = traces.exchanges(load)
    found = {"exchanges_most": many["most"], "exchanges_last": many["last"]}
    counted = found | traces.elasticity(load)
    return {name: float(value) for name, value in counted.items() if value is not None}


def _overloads(found: Row) -> dict[str, float]:
    figures = {"overload_minutes": (found["seconds"] or 0.0) / 60}
    if found["mean"] is not None:
        figures |= {"reaction_seconds": found["mean"], "reaction_max_seconds": found["most"]}
    return figures


def _wholeness(traces: Traces, quiet: list[tuple[int, int]]) -> dict[str, float]:
    whole = traces.wholeness()
    return {
        "traces": float(whole.traces),
        "traces_missing": float(whole.missing),
        "traces_doubled": float(whole.doubled),
        "traces_late": float(whole.late),
        "traces_rejected": float(whole.rejected),
        "documents_dropped": float(whole.dropped),
        "silent_seconds": sum(end - begin for begin, end in quiet) / MICROSECONDS,
        "limits_left_out": float(traces.left_out.get("limits", 0)),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
