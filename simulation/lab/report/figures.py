"""What figures of runs are called, in which unit they are, and which of two is the better one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, get_args

from roq.simulation.lab.report.wording import clean
from roq.simulation.scenario.scenario import What


class Figure(NamedTuple):
    """What is known about a figure."""

    label: str
    unit: str = ""
    """As `wording.quantity` takes it."""
    better: int = 0
    """1: more is better; -1: less is; 0: neither."""


FIGURES: Final[dict[str, Figure]] = {
    "sent": Figure("Messages sent"),
    "received": Figure("Messages received"),
    "messages_per_second": Figure("Messages per second", "/s", 1),
    "bytes_per_second": Figure("Payload per second", "B/s", 1),
    "load_reached": Figure("Share of the wanted load that was sent", "share", 1),
    "lost": Figure("Messages lost", "", -1),
    "doubled": Figure("Messages received twice", "", -1),
    "reordered": Figure("Messages out of order", "", -1),
    "failed": Figure("Messages not accepted", "", -1),
    "latency_mean_ms": Figure("Latency, mean", "ms", -1),
    "latency_p50_ms": Figure("Latency, median", "ms", -1),
    "latency_p90_ms": Figure("Latency, 90th percentile", "ms", -1),
    "latency_p99_ms": Figure("Latency, 99th percentile", "ms", -1),
    "latency_p999_ms": Figure("Latency, 99.9th percentile", "ms", -1),
    "latency_max_ms": Figure("Latency, highest", "ms", -1),
    "exchanges_most": Figure("Exchanges, most at a time"),
    "exchanges_last": Figure("Exchanges at the end"),
    "moves": Figure("Publishers moved"),
    "moves_failed": Figure("Moves that failed", "", -1),
    "scale_outs": Figure("Exchanges added"),
    "scale_ins": Figure("Exchanges taken away"),
    "imbalance_last": Figure("Imbalance at the end", "", -1),
    "overload_minutes": Figure("Overload, all exchanges", "min", -1),
    "reaction_seconds": Figure("Overload until a publisher had moved, mean", "s", -1),
    "last_phase_in_per_second": Figure("Messages in, last phase", "/s"),
    "last_phase_out_per_second": Figure("Messages out, last phase", "/s"),
    "last_phase_publishers_most": Figure("Publishers on the fullest exchange, last phase"),
    "last_phase_publishers_least": Figure("Publishers on the emptiest exchange, last phase"),
    "publishers_at_exchange_2": Figure("Publishers when the 2nd exchange came"),
    "publishers_at_exchange_3": Figure("Publishers when the 3rd exchange came"),
    "publishers_at_exchange_4": Figure("Publishers when the 4th exchange came"),
    "reaction_max_seconds": Figure("Overload until a publisher had moved, longest", "s", -1),
    "scale_out_seconds": Figure("Decision until the new exchange served, mean", "s", -1),
    "scale_failed": Figure("Scalings that failed", "", -1),
    "move_pause_mean_ms": Figure("Pause of a publisher that moved, mean", "ms", -1),
    "move_pause_max_ms": Figure("Pause of a publisher that moved, longest", "ms", -1),
    "imbalance_mean": Figure("Imbalance, mean", "", -1),
    "cpu_seconds": Figure("CPU of all exchanges", "s", -1),
    "cpu_seconds_per_million": Figure("CPU of exchanges per million messages", "s", -1),
    "exchange_hours": Figure("Exchange hours"),
    "exchange_messages_in": Figure("Messages into exchanges"),
    "exchange_messages_out": Figure("Messages out of exchanges"),
    "exchange_bytes_in": Figure("Bytes into exchanges", "B"),
    "exchange_bytes_out": Figure("Bytes out of exchanges", "B"),
    "received_messages_per_second": Figure("Messages received per second", "/s"),
    "publish_latency_mean_ms": Figure("Until publish() had returned, mean", "ms", -1),
    "publish_latency_p50_ms": Figure("Until publish() had returned, median", "ms", -1),
    "publish_latency_p90_ms": Figure("Until publish() had returned, 90th percentile", "ms", -1),
    "publish_latency_p99_ms": Figure("Until publish() had returned, 99th percentile", "ms", -1),
    "publish_latency_p999_ms": Figure("Until publish() had returned, 99.9th percentile", "ms", -1),
    "publish_latency_max_ms": Figure("Until publish() had returned, longest", "ms", -1),
    "publish_mean_ms": Figure("Until publish() had returned, mean, by the traces", "ms", -1),
    "publish_p99_ms": Figure(
        "Until publish() had returned, 99th percentile, by the traces", "ms", -1
    ),
    "generator_late_share": Figure("Messages published more than 10 ms late", "share", -1),
    "generator_late_most_ms": Figure("Latest message of the generator", "ms", -1),
    "generator_cpu_seconds": Figure("CPU of the generator", "s"),
    "unsent": Figure("Messages that were due and not sent", "", -1),
    "foreign": Figure("Messages of others received", "", -1),
    "reported_lost": Figure("Losses that subscribers reported", "", -1),
    "clock_error_ms": Figure("Largest error of clocks", "ms", -1),
    "traces": Figure("Traces kept"),
    "traces_missing": Figure("Traces missing", "", -1),
    "traces_doubled": Figure("Traces that came twice", "", -1),
    "traces_late": Figure("Traces that came late", "", -1),
    "traces_rejected": Figure("Traces rejected", "", -1),
    "documents_dropped": Figure("Documents of the statistics stream lost", "", -1),
    "took_seconds": Figure("Playing the model took", "s"),
    "model_cpu_seconds": Figure("CPU that playing the model took", "s"),
    "silent_seconds": Figure("Statistics stream silent", "s", -1),
    "files_left_out": Figure("Files of traces left out", "", -1),
    "limits_left_out": Figure("Changes of the limit left out", "", -1),
}
"""Those that are known, in the order in which they are shown."""
FIRST: Final = frozenset(get_args(What)) | {
    name for name in FIGURES if name.startswith(("last_phase", "publishers_at"))
}
"""Those that say most: what scenarios can expect, and what others publish."""
_SUFFIXES: Final = (
    ("_bytes_per_second", "B/s"), ("_per_second", "/s"), ("_seconds", "s"), ("_minutes", "min"),
    ("_ms", "ms"), ("_us", "µs"), ("_bytes", "B"), ("_percent", "%"), ("_share", "share"),
)  # fmt: skip
_LABEL_MAX: Final = 60
_ORDER: Final = {name: place for place, name in enumerate(FIGURES)}


def about(name: str) -> Figure:
    """What is known about a figure; of one that is not known, what its name says."""
    if name in FIGURES:
        return FIGURES[name]
    for suffix, unit in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return Figure(_plain(name.removesuffix(suffix)), unit)
    return Figure(_plain(name))


def ordered(names: Iterable[str]) -> list[str]:
    """Figures in the order in which they are shown: those that are known, then the others."""
    return sorted(set(names), key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def _plain(name: str) -> str:
    text = clean(name.replace("_", " ").strip() or name, _LABEL_MAX)
    return text[:1].upper() + text[1:]
