"""What was seen of a queue: documents of its statistics stream, and the scenario's own marks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from roq.client.admin.statistics import Sample
from roq.protocol.kpi import MoveKpi, ScaleKpi


class Mark(NamedTuple):
    """Something that the scenario did."""

    when: float
    """Seconds on the monotonic clock."""
    text: str


@dataclass(slots=True)
class Record:
    """Everything in order of time.

    Attributes:
        began: when the recording was started; seconds on the monotonic clock.
        samples: documents as they came.
        marks: what the scenario did.
    """

    began: float
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the beginning until the last document."""
        return max((when for when, _ in self.samples), default=self.began) - self.began

    def take(self, samples: list[Sample]) -> None:
        """Add what has come."""
        self.samples += samples

    def mark(self, when: float, text: str) -> None:
        """Note what the scenario does now."""
        self.marks.append(Mark(when, text))

    def moves(self, state: str = "accepted") -> list[tuple[float, MoveKpi]]:
        """Moves that came to this state, and when that was told."""
        return [
            (when, document)
            for when, document in self.samples
            if isinstance(document, MoveKpi) and document.state == state
        ]

    def scalings(self, direction: str, state: str = "done") -> list[tuple[float, ScaleKpi]]:
        """Exchanges added (`out`) or removed (`in`), and when that was told."""
        return [
            (when, document)
            for when, document in self.samples
            if isinstance(document, ScaleKpi)
            and (document.direction, document.state) == (direction, state)
        ]
