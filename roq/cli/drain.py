"""Waits until a host holds nothing, and says meanwhile what is left."""

from __future__ import annotations

from threading import Event
from time import monotonic
from typing import Final

import roq
from roq.cli.failures import Failed
from roq.cli.output import note
from roq.errors import RegistryAway, Unavailable
from roq.protocol.public_answers import HostSummary

DRAIN_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.5
STUCK_SECONDS: Final = 10.0
"""So long there may be no room: a host may just be starting again."""
SHOWN_MAX: Final = 5


class Drain:
    """One host that is being drained.

    Args:
        cluster: where it is.
        host: its name.
        quiet: say nothing until it is done.
    """

    def __init__(self, cluster: roq.Cluster, host: str, *, quiet: bool) -> None:
        self._cluster = cluster
        self._host = host
        self._quiet = quiet
        self._said = ""

    def wait(self, seconds: float) -> None:
        """Return when nothing is left.

        Raises:
            Failed: nowhere is room for what is left, the drain was taken back, or it takes longer.
        """
        pause = Event()
        deadline = monotonic() + seconds
        free_at = monotonic()
        why = "it is not known what is left"
        while True:
            row = self._look()
            now = monotonic()
            if row is not None:
                if row.schedule != "draining":
                    raise Failed(f"host {self._host} is not being drained any more: "
                                 f"it is {row.schedule}")  # fmt: skip
                if not row.left:
                    return
                why = self._say(row)
                free_at = free_at if row.stuck else now
                if now - free_at >= STUCK_SECONDS:
                    raise Failed(
                        f"host {self._host} cannot be drained: {row.stuck}", hint=self._hint
                    )
            if now >= deadline:
                raise Failed(
                    f"host {self._host} is not empty after {seconds:g} s: {why}", hint=self._hint
                )
            pause.wait(LOOK_SECONDS)

    @property
    def _hint(self) -> str:
        return f"It goes on being drained; `roq host uncordon {self._host}` takes it back."

    def _look(self) -> HostSummary | None:
        try:
            rows = self._cluster.hosts()
        except (Unavailable, RegistryAway):
            return None  # another manager begins to lead, and goes on with it
        if rows.from_memory is not None:
            return None
        found = next((row for row in rows if row.host == self._host), None)
        if found is None:
            raise Failed(f"host {self._host} is gone from the cluster")
        return found if found.state != "awaited" else None

    def _say(self, row: HostSummary) -> str:
        more = len(row.left) - SHOWN_MAX
        text = ", ".join(row.left[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        if not self._quiet and text != self._said:
            self._said = text
            note(f"left on {self._host}: {text}")
        return f"left are {text}"
