"""What the traces of a run say: figures, and the series of windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.simulation.lab.archive.document import Run, Series, Window
from roq.simulation.lab.traces import events as run_events
from roq.simulation.lab.traces.aggregate import Traces
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid, grid
from roq.simulation.lab.traces.windows import MS, Latencies, Rows, silences, windows
from roq.simulation.scenario.offered import offered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST_SECONDS: Final = 5.0
LAST_SHARE: Final = 0.1
"""The end of a load, for what is said of it: so many seconds, or this share if that is more."""


def summarise(
    spark: SparkSession, folder: Path, run: Run, *, leave_out: bool = False
) -> tuple[dict[str, float], Series]:
    """The figures and the series of a live run.

    Args:
        spark: does the work.
        folder: of the run, with its traces.
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
    with Traces(spark, folder, leave_out=leave_out) as traces:
        return _summarised(traces, run, load)


def _summarised(traces: Traces, run: Run, load: Grid) -> tuple[dict[str, float], Series]:
    queue, moves, scalings = traces.queue, traces.moves, traces.scalings
    clients, latencies = traces.clients(load), traces.latencies(load)
    received = Latencies(latencies, clients, "subscriber")
    published = Latencies(latencies, clients, "publisher")
    exchanges = traces.exchange_windows(load)
    quiet = silences([row["time_us"] for row in queue], load, traces.hole_seconds)
    unusual = traces.unusual()
    over = run_events.overloads([row for row in unusual if not row["hole"]], load)
    holes = [row for row in unusual if row["hole"]]
    each_window = windows(load, run.scenario, exchanges, received, quiet, holes)
    last_us = queue[-1]["time_us"] if queue else 0
    events, left_out = run_events.in_order(
        [
            *run_events.told(traces.events, load),
            *run_events.moves(moves, load),
            *run_events.scalings(scalings, load),
            *run_events.births_and_deaths(traces.lives, load, last_us, traces.hole_seconds),
            *run_events.gaps(holes, quiet, load),
        ]
    )
    figures = {
        **_clients(clients, run),
        **_latency(received, published),
        **_exchanges(exchanges, each_window),
        **_elasticity(queue, moves, scalings, load),
        **(_overloads(over, run_events.reactions(over, moves)) if traces.limits else {}),
        **_wholeness(traces, quiet),
    }
    series = Series(
        window_seconds=load.window_us / MICROSECONDS,
        windows=each_window,
        events=events,
        events_left_out=left_out,
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
        "rows_left_out": (
            "Moves, scalings, documents of the queue, overloads and other things told one by one "
            "that were too many and left out, the last ones: {:.0f}. Figures do not know them."
        ),
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
        found["clock_error_ms"] = max(row["clock_error"] for row in rows) * MS
    return found


def _latency(received: Latencies, published: Latencies) -> dict[str, float]:
    found: dict[str, float] = {}
    whole = received.whole()
    if whole is not None:
        found |= {
            "latency_mean_ms": whole.mean,
            "latency_p50_ms": whole.p50,
            "latency_p90_ms": whole.p90,
            "latency_p99_ms": whole.p99,
            "latency_p999_ms": whole.p999,
            "latency_max_ms": whole.most,
        }
    calls = published.whole()
    if calls is not None:
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


def _elasticity(queue: Rows, moves: Rows, scalings: Rows, load: Grid) -> dict[str, float]:
    if not queue:
        return {}
    inside = [row for row in queue if load.within(row["time_us"])] or queue[-1:]
    moved = [row for row in moves if load.within(row["time_us"])]
    scaled = [row for row in scalings if load.within(row["time_us"])]
    accepted = [row for row in moved if row["state"] == run_events.MOVED]
    out = [row for row in scaled if (row["direction"], row["state"]) == ("out", "done")]
    found = {
        "exchanges_most": float(max(row["exchanges"] for row in inside)),
        "exchanges_last": float(inside[-1]["exchanges"]),
        "moves": float(len(accepted)),
        "moves_failed": float(sum(row["state"] in run_events.NOT_MOVED for row in moved)),
        "scale_outs": float(len(out)),
        "scale_ins": float(
            sum((row["direction"], row["state"]) == ("in", "done") for row in scaled)
        ),
        "scale_failed": float(sum(row["state"] == "failed" for row in scaled)),
    }
    if accepted:
        found["move_pause_mean_ms"] = sum(row["pause_ms"] for row in accepted) / len(accepted)
        found["move_pause_max_ms"] = max(row["pause_ms"] for row in accepted)
    if out:
        found["scale_out_seconds"] = sum(row["seconds"] for row in out) / len(out)
    return found


def _overloads(found: list[run_events.Overload], reactions: list[float]) -> dict[str, float]:
    total = sum(each.end_us - each.begin_us for each in found)
    figures = {"overload_minutes": total / MICROSECONDS / 60}
    if reactions:
        figures["reaction_seconds"] = sum(reactions) / len(reactions)
        figures["reaction_max_seconds"] = max(reactions)
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
        "files_left_out": float(len(traces.left_out)),
        "rows_left_out": float(sum(traces.rows_left_out.values())),
        "limits_left_out": float(traces.limits_left_out),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
