"""From a view to HTML: the whole page, or each of its fragments that may change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from roq.client.admin.wording import age_text, bytes_text, durations_text, ended_text, many
from roq.console.pages import Asked, View

FRAGMENT: Final = "live_"
"""Blocks of templates that may change begin so; the element around one has its name as its id."""
FULL: Final = 1.25
"""The load at which a bar is full; the limit itself is at four fifths of it."""
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
LEVELS: Final = ((0.7, "good"), (0.9, "warn"), (1.1, "hot"))
NAVIGATION: Final[tuple[tuple[str, str], ...]] = (
    ("/", "Overview"), ("/jobs", "Jobs"), ("/hosts", "Hosts"), ("/groups", "Groups"),
    ("/services", "Services"), ("/dead", "Dead letters"), ("/health", "Health"),
    ("/audit", "Audit"),
)  # fmt: skip
STATES: Final = {
    "good": {
        "running",
        "live",
        "leading",
        "following",
        "serving",
        "COMPLETE",
        "RUNNING",
        "on",
        "accepted",
        "done",
        "ready",
    },
    "bad": {
        "stalled",
        "missing",
        "failed",
        "unreadable",
        "lost",
        "unknown",
        "given_up",
        "away",
        "FAILED",
        "TIMED_OUT",
        "dead",
    },
    "idle": {"stopped", "removed", "CREATED"},
}


@cache
def _environment() -> Environment:
    """One for all consoles of the process: templates are compiled once."""
    environment = Environment(
        loader=PackageLoader("roq.console"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters.update(
        size=bytes_text, age=age_text, num=number, ms=milliseconds, utc=utc, clock=clock,
        tone=tone, level=level, part=part, spark=spark, uni=many, since=since, micro=micro,
        durations=durations_text, ended=ended_text,
    )  # fmt: skip
    # A block that is filled by itself does not see what its template has imported.
    environment.globals["parts"] = environment.get_template("parts.html").module
    return environment


class Renderer:
    """Fills templates."""

    def __init__(self) -> None:
        self._environment = _environment()

    def page(self, view: View, asked: Asked, **around: object) -> str:
        """The whole page.

        Args:
            around: what the frame of the page needs beside it.
        """
        template = self._environment.get_template(view.template)
        return template.render(self._fill(view, asked, around))

    def fragments(self, view: View, asked: Asked, **around: object) -> dict[str, str]:
        """Those of its blocks that may change, by name."""
        template = self._environment.get_template(view.template)
        frame = self._environment.get_template("base.html")
        context = template.new_context(self._fill(view, asked, around))
        blocks = {**frame.blocks, **template.blocks}
        return {
            name: "".join(block(context))
            for name, block in blocks.items()
            if name.startswith(FRAGMENT)
        }

    def _fill(self, view: View, asked: Asked, around: Mapping[str, object]) -> dict[str, Any]:
        return {
            **view.fill,
            **around,
            "title": view.title,
            "navigation": [
                each for each in NAVIGATION if asked.jobs is not None or each[0] != "/jobs"
            ],
            "live": view.live,
            "operates": asked.operates,
            "cluster": asked.source.addresses,
            "connection": asked.source.connection(),
            "guarded": asked.settings.guarded,
            "now": time.time(),
            "monotonic": time.monotonic(),
        }


def number(value: float) -> str:
    """Digits in groups, without a fraction."""
    return f"{value:,.0f}"


def milliseconds(value: float) -> str:
    """A short time, with as many digits as are known of it."""
    if not value:
        return "0 ms"
    if value < 1:
        return f"{value:.2f} ms"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def utc(moment: float | datetime) -> str:
    """A date with its time."""
    when = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S")


def micro(moment: int | None) -> str:
    """A date with its time, from µs since 1970; a dash if there is none."""
    try:
        return "–" if not moment else utc(moment // 1_000_000)
    except (OverflowError, ValueError):
        return f"{moment:,} µs"


def clock(moment: float) -> str:
    """The time of day, UTC, of a moment on the monotonic clock."""
    return datetime.fromtimestamp(moment - time.monotonic() + time.time(), UTC).strftime("%H:%M:%S")


def since(moment: float) -> str:
    """How long ago a moment of the monotonic clock is."""
    return age_text(max(0.0, time.monotonic() - moment))


def tone(state: str) -> str:
    """How a state is to be seen."""
    return next((name for name, states in STATES.items() if state in states), "warn")


def level(load: float) -> str:
    """How a load is to be seen."""
    return next((name for below, name in LEVELS if load < below), "bad")


def part(load: float) -> str:
    """A load as a part of a bar, in percent."""
    return f"{min(load / FULL, 1.0) * 100:.1f}"


def spark(values: Sequence[float]) -> str:
    """Points of a line through values, one a second, the newest at the right."""
    top = max(values, default=0.0) or 1.0
    first = SPARK_WIDTH - len(values) + 1
    return " ".join(
        f"{first + index},{SPARK_HEIGHT - 1 - value / top * (SPARK_HEIGHT - 3):.1f}"
        for index, value in enumerate(values)
    )
