"""The results as one picture: throughput, ratios against their targets, latency, CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks import plan
from roq.benchmarks.case import Case
from roq.benchmarks.report import rate_text, size_text
from roq.benchmarks.results import Results, Verdict
from roq.benchmarks.statistics import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#1b2a41"
FAINT: Final = "#8d99ae"
GOOD: Final = "#2a9d8f"
BAD: Final = "#e63946"
COLOURS: Final = {
    plan.ROQ_BATCHES: "#e76f51",
    plan.ROQ_MESSAGES: "#f4a261",
    plan.ROQ_AIO_BATCHES: "#b5533c",
    plan.ROQ_AIO_MESSAGES: "#d9a679",
    plan.ZMQ_PROXY: "#264653",
    plan.RAW_HOP: "#5c7c8a",
    plan.NATS: "#2a9d8f",
    plan.REDIS: "#8ab17d",
}
SHORT: Final = {
    plan.ROQ_BATCHES: "RoQ, lists → batches",
    plan.ROQ_MESSAGES: "RoQ, message by message",
    plan.ROQ_AIO_BATCHES: "RoQ asyncio, batches",
    plan.ROQ_AIO_MESSAGES: "RoQ asyncio, messages",
    plan.ZMQ_PROXY: "zmq.proxy (unchecked)",
    plan.RAW_HOP: "raw ROUTER→XPUB hop",
    plan.NATS: "nats-py",
    plan.REDIS: "redis-py streams",
}
_MICROSECONDS: Final = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_ROLES: Final = {
    "publisher": ("publisher", "#f4a261", "o"),
    "exchange": ("exchange or server", "#e63946", "D"),
    "subscriber": ("each subscriber", "#264653", "s"),
}


def draw(results: Results, path: Path) -> None:
    """Write the picture; the format follows from the suffix (.png, .svg)."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only this needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with mpl.rc_context(
        {
            "font.size": 9.5,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": INK,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "svg.hashsalt": "roq",
        }
    ):
        figure, axes = plt.subplots(2, 2, figsize=(13.5, 9), height_ratios=(1.05, 1))
        _throughput(axes[0][0], results)
        _targets(axes[0][1], results)
        _latency(axes[1][0], results)
        _cpu(axes[1][1], results)
        figure.suptitle(
            "RoQ beside its peers: one publisher, one hop, fan-out",
            x=0.012,
            ha="left",
            fontsize=15,
            fontweight="bold",
        )
        figure.text(0.012, 0.012, _footer(results), fontsize=8, color=FAINT)
        figure.align_xlabels()
        figure.tight_layout(rect=(0, 0.035, 1, 0.97), h_pad=2.5, w_pad=2.5)
        figure.savefig(path, dpi=130, facecolor="white")
        plt.close(figure)


def _throughput(axes: Axes, results: Results) -> None:
    cases = [Case(size=size, batch=plan.FULL_BATCH) for size in plan.SIZES]
    keys = [plan.ZMQ_PROXY, plan.ROQ_BATCHES, plan.ROQ_MESSAGES, plan.NATS, plan.REDIS]
    keys = [key for key in keys if any(_find(results, key, case) for case in cases)]
    width = 0.82 / max(len(keys), 1)
    for index, key in enumerate(keys):
        label: str | None = SHORT[key]
        for group, case in enumerate(cases):
            figure = _find(results, key, case)
            if figure is None:
                continue
            x = group + (index - (len(keys) - 1) / 2) * width
            axes.bar(
                x,
                figure.rate,
                width * 0.92,
                color=COLOURS[key],
                yerr=[[figure.rate - figure.rate_low], [figure.rate_high - figure.rate]],
                error_kw={"ecolor": FAINT, "elinewidth": 1},
                label=label,
            )
            label = None
            axes.text(
                x,
                figure.rate_high * 1.12,
                rate_text(figure.rate).replace(" ", ""),
                ha="center",
                va="bottom",
                fontsize=6.8,
                rotation=90,
            )
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 6)
    axes.set_xticks(range(len(cases)), [size_text(case.size) for case in cases])
    axes.set_ylabel("messages per second")
    axes.set_title("Throughput by message size, 1 subscriber")
    axes.grid(axis="y", color="#e9ecef", zorder=0)
    axes.set_axisbelow(True)
    if keys:
        axes.legend(frameon=False, fontsize=8, loc="upper right")


def _targets(axes: Axes, results: Results) -> None:
    """Each target as a bar on a scale where 1 is the goal and right of it is better."""
    shown = [verdict for verdict in results.verdicts if verdict.measured]
    for row, verdict in enumerate(reversed(shown)):
        score = _score(verdict)
        axes.barh(row, score, 0.62, color=GOOD if verdict.reached else BAD)
        sign = "≥" if verdict.at_least else "≤"
        axes.text(
            score * 1.04,
            row,
            f"{verdict.measured:.3g}{verdict.unit} (goal {sign} {verdict.goal:.3g})",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    axes.axvline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=0)
    axes.set_xscale("log")
    scores = [_score(verdict) for verdict in shown] or [1.0]
    axes.set_xlim(min(0.3, min(scores) * 0.8), max(scores) * 8)
    axes.set_yticks(range(len(shown)), [verdict.text for verdict in reversed(shown)], fontsize=8)
    axes.set_xticks([0.5, 1, 2, 4], ["0.5 x", "goal", "2 x", "4 x"])
    axes.minorticks_off()
    axes.set_title("Targets: right of the line is reached")


def _score(verdict: Verdict) -> float:
    measured = verdict.measured or 0.0
    return measured / verdict.goal if verdict.at_least else verdict.goal / max(measured, 1e-9)


def _latency(axes: Axes, results: Results) -> None:
    keys = [key for key in SHORT if _find(results, key, plan.latency_case())]
    ends: list[float] = []
    marks = {"p50": "o", "p99": "D", "p99.9": "X"}
    for row, key in enumerate(reversed(keys)):
        figure = _find(results, key, plan.latency_case())
        if figure is None:
            continue
        values = [figure.latency_us[name] for name in marks]
        ends += (values[0], values[-1])
        axes.plot([values[0], values[-1]], [row, row], color=COLOURS[key], linewidth=2, alpha=0.5)
        for (name, mark), value in zip(marks.items(), values, strict=True):
            axes.plot(
                value,
                row,
                mark,
                color=COLOURS[key],
                markersize=8,
                label=name if row == 0 else None,
            )
        axes.text(values[0], row + 0.22, f"{values[0]:,.0f} µs", ha="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xticks(_MICROSECONDS, [f"{value:,}" for value in _MICROSECONDS], fontsize=8)
    axes.minorticks_off()
    if ends:
        axes.set_xlim(min(ends) * 0.8, max(ends) * 1.25)
    axes.set_ylim(-0.6, max(len(keys) + 0.1, 1))
    axes.set_yticks(range(len(keys)), [SHORT[key] for key in reversed(keys)])
    axes.set_xlabel("µs from publish to the subscriber's hands (100 B, 200 messages/s)")
    axes.set_title("Latency at light load")
    axes.grid(axis="x", color="#e9ecef")
    axes.set_axisbelow(True)
    if keys:
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right", borderpad=0)


def _cpu(axes: Axes, results: Results) -> None:
    rows = [
        (figure, label)
        for case, label in ((plan.main_case(), "1"), (plan.fan_out_case(), str(plan.FAN_OUT)))
        for key in (plan.ZMQ_PROXY, plan.ROQ_BATCHES, plan.ROQ_MESSAGES, plan.NATS, plan.REDIS)
        if (figure := _find(results, key, case)) is not None
    ]
    labels = [f"{SHORT[figure.contender]} → {label}" for figure, label in rows]
    for row, (figure, _) in enumerate(reversed(rows)):
        values = {role: figure.cpu_us.get(role, 0.0) for role in _ROLES}
        values["subscriber"] /= figure.case.subscribers
        axes.plot(
            [min(values.values()), max(values.values())], [row, row], color="#dee2e6", linewidth=5
        )
        for role, (name, colour, mark) in _ROLES.items():
            axes.plot(
                values[role],
                row,
                mark,
                color=colour,
                markersize=8,
                linestyle="",
                label=name if row == 0 else None,
            )
    axes.set_ylim(-0.6, max(len(rows) + 0.3, 1))
    axes.set_yticks(range(len(rows)), labels[::-1], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("CPU seconds per million messages of 100 B, each process")
    axes.set_title("CPU per message, 1 and 20 subscribers")
    axes.grid(axis="x", color="#e9ecef")
    axes.set_axisbelow(True)
    if rows:
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right", borderpad=0)


def _footer(results: Results) -> str:
    found = results.environment
    names = ("pyzmq", "nats-py", "redis")
    libraries = [f"{name} {found.libraries[name]}" for name in names if found.libraries[name]]
    servers = [text.split(" sha=")[0] for text in found.servers.values() if text]
    parts = (
        f"{found.cpu}, {found.cores} cores",
        ", ".join((found.python, f"libzmq {found.libzmq}", *libraries)),
        ", ".join(servers),
        f"medians of {results.rounds} rounds",
        found.when[:10],
    )
    return " · ".join(part for part in parts if part)


def _find(results: Results, key: str, case: Case) -> Figure | None:
    return next((f for f in results.figures if (f.contender, f.case) == (key, case)), None)
