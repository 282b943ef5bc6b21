"""Remembers what a client is told about how it stands; no test in here."""

from __future__ import annotations

import re

from waiting import eventually

from roq.client.session.events import Cause, ClientState, StateChange


class Standings:
    """Give it as `on_state`."""

    def __init__(self) -> None:
        self.told: list[StateChange] = []

    def __call__(self, change: StateChange) -> None:
        self.told.append(change)

    @property
    def states(self) -> list[tuple[ClientState, Cause]]:
        return [(each.state, each.cause) for each in self.told]

    def wait(self, state: ClientState, cause: Cause = Cause.NONE, seconds: float = 30) -> str:
        """Until this is told once more; the reason. What was told before is forgotten."""
        eventually(lambda: (state, cause) in self.states, self, seconds=seconds)
        found = self.states.index((state, cause))
        reason = self.told[found].reason
        del self.told[: found + 1]
        return reason

    def __repr__(self) -> str:
        return "; ".join(f"{each.state} {each.cause}: {each.reason}" for each in self.told)


def seconds(text: str, before: str) -> float:
    """The number of seconds that a text names after these words."""
    found = re.search(rf"{re.escape(before)} (\d+\.\d) s", text)
    assert found is not None, text
    return float(found[1])
