"""A record as one picture: throughput per exchange over time, moves and scale operations marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from roq.model import exchange_name
from roq.simulation.scenario.measures import Period, Series, periods, publishers
from roq.simulation.scenario.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#1b2a41"
FAINT: Final = "#8d99ae"
GRID: Final = "#e9ecef"
COLOURS: Final = (
    "#264653", "#2a9d8f", "#8ab17d", "#e9c46a", "#f4a261", "#e76f51", "#b5533c", "#5c7c8a",
)  # fmt: skip
_MEGA: Final = 1e6
_GRID_SECONDS: Final = 0.5
_BUNCH_SECONDS: Final = 1.0


class Caption(NamedTuple):
    """What stands around the picture."""

    title: str
    """What was done."""
    subtitle: str
    """What came out of it."""
    footer: str
    """On what."""


def draw(
    record: Record,
    path: Path,
    caption: Caption,
    *,
    limit: float = 0.0,
    latency: Series | None = None,
    figure: str = "bytes_in",
) -> None:
    """Write the picture; the format follows from the suffix (.png, .svg).

    Args:
        record: what was seen.
        path: where to.
        caption: what stands around it.
        limit: of one exchange, bytes per second; drawn for all that serve together.
        latency: milliseconds over time, drawn below.
        figure: the total whose growth is shown.
    """
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only this needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    rows = 4 if latency else 3
    heights = (5.0, 1.1, 1.4, 1.4)[:rows]
    with mpl.rc_context(
        {
            "font.size": 9.5,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": INK,
            "text.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": INK,
            "ytick.color": INK,
            "svg.hashsalt": "roq",
        }
    ):
        figure_, axes = plt.subplots(
            rows, 1, figsize=(11, 6.4 + 1.4 * bool(latency)), sharex=True, height_ratios=heights
        )
        _throughput(axes[0], record, limit, figure)
        _events(axes[1], record)
        _publishers(axes[2], record)
        if latency:
            _latency(axes[3], record, latency)
        axes[-1].set_xlabel("seconds")
        figure_.suptitle(caption.title, x=0.012, ha="left", fontsize=14, fontweight="bold")
        figure_.text(0.012, 0.93, caption.subtitle, fontsize=10, va="top")
        figure_.text(0.012, 0.012, caption.footer, fontsize=8, color=FAINT)
        figure_.align_ylabels()
        figure_.tight_layout(rect=(0, 0.03, 1, 0.92), h_pad=0.6)
        figure_.savefig(path, dpi=110, facecolor="white")
        plt.close(figure_)


def stacked(
    found: dict[int, list[Period]], began: float, ended: float
) -> tuple[list[float], dict[int, list[float]]]:
    """All exchanges at the same moments, so that they can be stacked: seconds since `began`, and
    the rate of each at these; 0 where it does not serve."""
    count = int((ended - began) / _GRID_SECONDS) + 1
    moments = [number * _GRID_SECONDS for number in range(count)]
    return moments, {
        number: [_at(values, began + moment) for moment in moments]
        for number, values in sorted(found.items())
    }


def serving(found: dict[int, list[Period]], began: float, moments: Sequence[float]) -> list[int]:
    """How many exchanges were there at these moments (seconds since `began`)."""
    spans = [(values[0].begin, values[-1].end) for values in found.values() if values]
    return [sum(first < began + moment <= last for first, last in spans) for moment in moments]


def _at(found: Sequence[Period], when: float) -> float:
    """The rate of the period in which a moment lies; 0 if it lies in none."""
    return next((each.per_second for each in found if each.begin < when <= each.end), 0.0)


def _throughput(axes: Axes, record: Record, limit: float, figure: str) -> None:
    found = periods(record.samples, figure)
    ended = max((values[-1].end for values in found.values() if values), default=record.began)
    moments, rows = stacked(found, record.began, ended)
    axes.stackplot(
        moments,
        [[value / _MEGA for value in row] for row in rows.values()],
        labels=[exchange_name(number) for number in rows],
        colors=[_colour(number) for number in rows],
        alpha=0.9,
        linewidth=0,
    )
    if limit:
        axes.step(
            moments,
            [limit * count / _MEGA for count in serving(found, record.began, moments)],
            where="mid",
            color=INK,
            linewidth=1.1,
            linestyle=(0, (4, 2)),
            label="limit of all that serve",
        )
    axes.set_ylabel("MB/s in, stacked")
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])  # room for the legend
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=min(6, len(rows) + 1))


def _events(axes: Axes, record: Record) -> None:
    """Scale operations as spans in two rows, moves as ticks in a third."""
    lanes = {"moves": 0, "in": 1, "out": 2}
    for when, target, count in _bunches(record):
        axes.plot(
            when, lanes["moves"], "|", color=_colour(target), markersize=11, markeredgewidth=1.6
        )
        if count > 1:
            axes.text(when + 0.3, lanes["moves"], str(count), va="center", fontsize=8)
    for when, move in [*record.moves("failed"), *record.moves("given_up")]:
        del move
        axes.plot(when - record.began, lanes["moves"], "x", color="#e63946", markersize=6)
    for direction in ("out", "in"):
        for when, scaling in record.scalings(direction):
            end = when - record.began
            axes.plot(
                [end - scaling.seconds, end],
                [lanes[direction]] * 2,
                color=_colour(scaling.number),
                linewidth=4,
                solid_capstyle="butt",
            )
            sign = "+" if direction == "out" else "-"
            axes.text(
                end + 0.4,
                lanes[direction],
                f"{sign}{exchange_name(scaling.number)}",
                va="center",
                fontsize=8,
            )
    axes.set_yticks(list(lanes.values()), ["moves", "scale-in", "scale-out"], fontsize=8)
    axes.set_ylim(-0.7, 2.7)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)


def _bunches(record: Record) -> list[tuple[float, int, int]]:
    """Moves to the same exchange at nearly the same time: when, where to, how many."""
    bunches: list[tuple[float, int, int]] = []
    for when, move in record.moves():
        moment, target = when - record.began, move.targets[0] if move.targets else 0
        same = bunches and bunches[-1][1] == target and moment - bunches[-1][0] < _BUNCH_SECONDS
        if same:
            first, _, count = bunches[-1]
            bunches[-1] = (first, target, count + 1)
        else:
            bunches.append((moment, target, 1))
    return bunches


def _publishers(axes: Axes, record: Record) -> None:
    counts = publishers(record)
    for number, (moments, values) in counts.items():
        axes.step(
            [moment - record.began for moment in moments],
            values,
            where="post",
            color=_colour(number),
            linewidth=1.6,
        )
    axes.set_ylabel("publishers")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _latency(axes: Axes, record: Record, latency: Series) -> None:
    axes.plot(
        [when - record.began for when, _ in latency],
        [value for _, value in latency],
        color="#6d597a",
        linewidth=1.4,
    )
    axes.set_ylabel("latency, ms")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _colour(number: int) -> str:
    return COLOURS[(number - 1) % len(COLOURS)]
