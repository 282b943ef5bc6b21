"""The one counter of the cluster: epochs of leaders and hosts, none of which is given twice.

It is the version of a node that is written for nothing else, plus a base. The base is 0 until a
registry has to go on where a lost one had ended: then somebody who remembers a higher number raises
it. Each draw checks, in one transaction, that the base is the one that is known here, so of two
numbers the one that was drawn later is the higher one, over all registries that the cluster has
had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from roq.coordination.port import BASE, CLUSTER, EPOCH, EPOCH_MAX, Committed, Node, Reason, Set
from roq.coordination.store import Check, MultiResult, Refused, Step, Store
from roq.errors import LocalProtocolError, RegistryAway

log = logging.getLogger(__name__)

Drawn = Callable[[int | RegistryAway], None]

_ATTEMPTS_MAX: Final = 8
"""Of one draw, while others raise the base again and again."""
_WAITING_MAX: Final = 1_000


class Counter:
    """Draws numbers for one process.

    Nobody but a leader draws before a leader has named the cluster, because until then it is open
    where the count begins: such a draw waits.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._base = 0
        self._version = 0
        self._waiting: list[tuple[int, Drawn]] = []

    def learn(self, node: Node) -> str:
        """Take in what stands at `BASE`; gives what is wrong with it, empty if nothing is."""
        text = node.data.decode("ascii", "replace") or "0"
        if not text.isdecimal() or int(text) > EPOCH_MAX:
            return f"{BASE} holds {text[:40]!r}, which is no number that epochs are counted from"
        self._base, self._version = int(text), node.version
        return ""

    @property
    def steps(self) -> tuple[Step, Step]:
        """What a transaction contains that draws a number; see `number`."""
        return Check(BASE, self._version), Set(EPOCH, b"")

    def number(self, version: int) -> int:
        """The number that a transaction has drawn, from the version that its second step gave."""
        return self._base + version

    def draw(self, above: int, done: Drawn, attempts: int = _ATTEMPTS_MAX) -> None:
        """Draw a number above this one; waits until the cluster has a name."""
        check_epoch(above)
        steps = [Check(CLUSTER), *self.steps]
        self._store.multi(steps, partial(self._drawn, above, done, attempts))

    def away(self, reason: RegistryAway) -> None:
        """The connection is gone, and with it the watch that those who wait rely upon."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(reason)

    def raise_above(
        self, above: int, drawn: int, done: Callable[[RegistryAway | None], None]
    ) -> None:
        """Let the next numbers be above this one, the present one being `drawn`; None: try now."""
        check_epoch(above)
        base = self._base + above - drawn
        log.warning(
            "epochs are counted from %d on: %d was given by an earlier registry", base, above,
            extra={"event": "epochs_raised"},
        )  # fmt: skip
        step = Set(BASE, str(base).encode(), self._version)
        self._store.multi([step], partial(self._look, done))

    def refresh(self, done: Callable[[RegistryAway | None], None]) -> None:
        """Look again what the base is."""
        self._look(done, Committed())

    # --- inside -----------------------------------------------------------------------------------

    def _drawn(self, above: int, done: Drawn, attempts: int, result: MultiResult) -> None:
        match result:
            case Committed(versions=versions):
                number = self.number(versions[2])
                if number > above:
                    done(number)
                else:
                    again = partial(self._again, above, done, attempts - 1)
                    self.raise_above(above, number, again)
            case Refused(index=0, reason=Reason.MISSING):
                self._wait(above, done)
            case Refused(index=1, reason=Reason.VERSION) if attempts > 0:
                self.refresh(partial(self._again, above, done, attempts - 1))
            case Refused(index=index, reason=reason):
                done(RegistryAway(f"{(CLUSTER, BASE, EPOCH)[index]} is {reason} in the registry"))
            case RegistryAway():
                done(result)

    def _again(self, above: int, done: Drawn, attempts: int, away: RegistryAway | None) -> None:
        if away is not None:
            done(away)
        elif attempts <= 0:
            done(RegistryAway("the counter of epochs is being changed all the time"))
        else:
            self.draw(above, done, attempts)

    def _look(self, done: Callable[[RegistryAway | None], None], result: MultiResult) -> None:
        # Whoever has raised it, or failed to: what stands there now counts.
        if isinstance(result, RegistryAway):
            done(result)
        else:
            self._store.read(BASE, None, partial(self._looked, done))

    def _looked(
        self, done: Callable[[RegistryAway | None], None], found: Node | RegistryAway | None
    ) -> None:
        if isinstance(found, RegistryAway):
            done(found)
            return
        problem = f"{BASE} is missing in the registry" if found is None else self.learn(found)
        done(RegistryAway(problem) if problem else None)

    # --- until there is a cluster -----------------------------------------------------------------

    def _wait(self, above: int, done: Drawn) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            done(RegistryAway("no configuration manager has named this cluster yet"))
            return
        self._waiting.append((above, done))
        self._store.read(CLUSTER, self._named, self._seen)

    def _seen(self, found: Node | RegistryAway | None) -> None:
        if isinstance(found, RegistryAway):
            self.away(found)
        elif found is not None:
            self._named()

    def _named(self) -> None:
        waiting, self._waiting = self._waiting, []
        for above, done in waiting:
            self.draw(above, done)


def check_epoch(epoch: int) -> int:
    """Give an epoch back that a later one can follow.

    Raises:
        LocalProtocolError: out of range; what comes from outside is checked before it gets here.
    """
    if not 0 <= epoch < EPOCH_MAX:
        raise LocalProtocolError(f"no epoch can follow {epoch}")
    return epoch
