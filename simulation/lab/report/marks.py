"""What happened in a run, as marks beside a chart: near ones of a kind are one mark; pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from roq.model import exchange_name
from roq.simulation.lab.archive.document import Event, EventKind
from roq.simulation.lab.report.wording import clean, count

SHARE: Final = 0.012
"""Of the time that is shown: nearer events of a kind are one mark."""
TOLD_MAX: Final = 8
"""So many events of a mark are told one by one."""
_TEXT_MAX: Final = 120


class Lane(StrEnum):
    """Where a mark stands."""

    SCALING = "scaling"
    MOVES = "moves"
    TROUBLE = "trouble"


LANES: Final = {
    EventKind.SCALE_OUT: Lane.SCALING,
    EventKind.SCALE_IN: Lane.SCALING,
    EventKind.SCALE_FAILED: Lane.SCALING,
    EventKind.SERVES: Lane.SCALING,
    EventKind.MOVE: Lane.MOVES,
    EventKind.MOVE_FAILED: Lane.MOVES,
    EventKind.FAULT: Lane.TROUBLE,
    EventKind.DEATH: Lane.TROUBLE,
    EventKind.GAP: Lane.TROUBLE,
}
"""Kinds of events by lane; phases have none: they are stretches."""
BAD: Final = frozenset({
    EventKind.SCALE_FAILED, EventKind.MOVE_FAILED, EventKind.FAULT, EventKind.DEATH, EventKind.GAP,
})  # fmt: skip
_NOUNS: Final = {
    EventKind.SCALE_OUT: ("exchange added", "exchanges added"),
    EventKind.SCALE_IN: ("exchange taken away", "exchanges taken away"),
    EventKind.SCALE_FAILED: ("scaling that failed", "scalings that failed"),
    EventKind.SERVES: ("exchange serves", "exchanges serve"),
    EventKind.MOVE: ("move", "moves"),
    EventKind.MOVE_FAILED: ("move that failed", "moves that failed"),
    EventKind.FAULT: ("fault", "faults"),
    EventKind.DEATH: ("death", "deaths"),
    EventKind.GAP: ("gap in the traces", "gaps in the traces"),
    EventKind.PHASE: ("phase", "phases"),
}


class Mark(NamedTuple):
    """One event, or several of a kind that are near each other."""

    first: float
    last: float
    kind: EventKind
    events: tuple[Event, ...]

    @property
    def middle(self) -> float:
        """Where it stands."""
        return (self.first + self.last) / 2

    @property
    def bad(self) -> bool:
        """Whether something went wrong."""
        return self.kind in BAD

    @property
    def label(self) -> str:
        """What stands beside it: the least that says what it is."""
        one = len(self.events) == 1
        number = self.events[0].exchange
        name = exchange_name(number) if number > 0 else "1"
        match self.kind:
            case EventKind.SCALE_OUT:
                return f"+{name}" if one else f"+{len(self.events)}"
            case EventKind.SCALE_IN:
                return f"−{name}" if one else f"−{len(self.events)}"
            case EventKind.MOVE:
                return "" if one else str(len(self.events))
            case EventKind.SERVES:
                return ""
            case _ if one:
                return clean(self.events[0].text or self.kind.value, 28)
            case _:
                return self.summary

    @property
    def summary(self) -> str:
        """What it is, in words: `12 moves`."""
        return count(len(self.events), *_NOUNS[self.kind])

    @property
    def told(self) -> str:
        """All of it, for a reader who asks: a line for each event."""
        lines = [said(event) for event in self.events[:TOLD_MAX]]
        more = len(self.events) - len(lines)
        return "\n".join([*lines, f"and {more:,} more"] if more else lines)


def said(event: Event) -> str:
    """An event in a clause."""
    text = clean(event.text, _TEXT_MAX)
    name = exchange_name(event.exchange) if event.exchange > 0 else ""
    if text and (not name or name in text):
        return text if event.kind.value in text else f"{event.kind.value}: {text}"
    return " ".join(filter(None, (f"{event.kind.value}", name))) + (f": {text}" if text else "")


def marks(events: Sequence[Event], span: float, share: float = SHARE) -> dict[Lane, list[Mark]]:
    """Marks by lane, in order of time.

    Args:
        events: in any order.
        span: seconds that the axis shows.
        share: of the span; no mark is wider than twice this.
    """
    found: dict[Lane, list[Mark]] = {lane: [] for lane in Lane}
    shown = _without_plain_starts(sorted(events, key=_when))
    for kind, lane in LANES.items():
        chosen = [one for one in shown if one.kind is kind]
        found[lane] += _clustered(chosen, kind, span * share)
    return {lane: sorted(row, key=lambda mark: mark.middle) for lane, row in found.items()}


def room(places: Sequence[Mark], span: float) -> list[float]:
    """The share of the axis behind each mark until the next one of its lane."""
    ends = [mark.middle for mark in places]
    gaps = [(after - before) / span for before, after in pairwise(ends)]
    return [*gaps, *(1 - end / span for end in ends[-1:])]


def _without_plain_starts(events: Sequence[Event]) -> list[Event]:
    """An exchange that was added serves soon after: that alone is no mark of its own."""
    before: dict[int, EventKind] = {}
    kept = []
    for event in events:
        if event.kind is EventKind.SERVES:
            if before.get(event.exchange) is EventKind.SCALE_OUT:
                before[event.exchange] = event.kind
                continue
        elif event.kind not in {EventKind.MOVE, EventKind.MOVE_FAILED, EventKind.PHASE}:
            before[event.exchange] = event.kind
        kept.append(event)
    return kept


def _clustered(events: Sequence[Event], kind: EventKind, width: float) -> list[Mark]:
    groups: list[list[Event]] = []
    for event in events:
        near = groups and event.at - groups[-1][-1].at < width
        if near and event.at - groups[-1][0].at < 2 * width:
            groups[-1].append(event)
        else:
            groups.append([event])
    return [Mark(group[0].at, group[-1].at, kind, tuple(group)) for group in groups]


def _when(event: Event) -> float:
    return event.at
