"""What all parts of one live run share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roq.errors import RoQError
from roq.runtime.signals import SignalEvent
from roq.simulation.lab.live.clocks import Anchor, Clock
from roq.simulation.lab.live.plan import Plan
from roq.simulation.lab.live.request import LiveRequest
from roq.simulation.lab.live.show import Show


class LiveFailed(RoQError):
    """A run has not gone to its end; the text says why, and the folder has what there is."""


class Queues(NamedTuple):
    """Names of the queues of a run."""

    load: str
    messages: str
    """In which driver and tasks talk."""
    traces: str
    """Empty: none are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run.

    Attributes:
        request: with the scenario as it is run and the master as it is used.
        plan: who does what.
        folder: for all that is kept.
        anchor, clock: of the driver.
        window: length of windows, seconds.
        show: shows how it goes on.
        stop: it is to end.
    """

    request: LiveRequest
    plan: Plan
    folder: Path
    anchor: Anchor
    clock: Clock
    window: float
    show: Show
    stop: SignalEvent

    @property
    def run(self) -> str:
        """Its id."""
        return self.folder.name
