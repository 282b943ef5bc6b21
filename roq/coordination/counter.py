"""The one counter of the cluster: epochs of leaders and hosts, none of which is given twice.

It is the version of a node that is written for nothing else, plus a base. The base is 0 until a
registry has to go on where a lost one had ended: then a manager that remembers a higher number
raises it. Each draw checks, in one transaction, that the base is the one that is known here, so of
two numbers the one that was drawn later is the higher one, over all registries that the cluster has
had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from roq.coordination.registry_contract import (
    BASE,
    CLUSTER,
    EPOCH,
    EPOCH_MAX,
    Committed,
    Node,
    Reason,
    Set,
    ignored,
)
from roq.coordination.store_contract import Check, MultiResult, Refused, Step, Store
from roq.errors import LocalProtocolError, RegistryAway

log = logging.getLogger(__name__)

Drawn = Callable[[int | RegistryAway], None]

_BASE_DIGITS_MAX: Final = len(str(EPOCH_MAX))
_SHOWN_CHARACTERS: Final = 40
_ATTEMPTS_MAX: Final = 8
"""Of one draw, while others raise the base again and again."""
_WAITING_MAX: Final = 1_000
_REMEDY: Final = (
    "no manager can begin to lead, and nothing that was lost is set up elsewhere; set it to 0 "
    "(in ZooKeeper below zk.root), and the manager that leads raises it above all epochs in use"
)


class Counter:
    """Draws numbers for one process.

    Nobody but a leader draws before a leader has named the cluster, because until then it is open
    where the count begins: such a draw waits.

    Args:
        store: where the count is kept.
        on_problem: called with the text of `problem` whenever it has changed.

    Attributes:
        problem: why no number can be drawn and what to do, in a sentence; empty if one can.
        damaged: something stands at `BASE`, and is the problem.
    """

    def __init__(self, store: Store, on_problem: Callable[[str], None] = ignored) -> None:
        self.problem = ""
        self.damaged = False
        self._store = store
        self._on_problem = on_problem
        self._base = 0
        self._version = 0
        self._spent: tuple[int, int] | None = None
        """A base above which all numbers were given, and its version."""
        self._waiting: list[tuple[int, Drawn]] = []

    def follow(self, done: Callable[[RegistryAway | None], None]) -> None:
        """Learn what stands at `BASE`, and each change of it until the connection breaks.

        Args:
            done: called once, with why nothing stands there or can be read; None: it is known, be
                it of any use or not.
        """
        self._store.read(BASE, self._changed, partial(self._found, done))

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
        if self.problem:
            # The base that was known before may be one that was counted from long ago.
            self.refresh(lambda away: self._again(above, done, attempts - 1, away))
            return
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

    def used_up(self, number: int) -> bool:
        """Whether this number, which was drawn, is higher than an epoch can be: a problem."""
        if number > EPOCH_MAX:
            self._spent = (self._base, self._version)
            self._judge()
        return number > EPOCH_MAX

    # --- what stands at the base ------------------------------------------------------------------

    def _changed(self) -> None:
        self.follow(lambda _: None)

    def _found(
        self, done: Callable[[RegistryAway | None], None], found: Node | RegistryAway | None
    ) -> None:
        if isinstance(found, RegistryAway):
            done(found)
            return
        self._learn(found)
        done(RegistryAway(self.problem) if found is None else None)

    def _learn(self, node: Node | None) -> None:
        text = "" if node is None else node.data.decode("ascii", "replace").strip() or "0"
        number = int(text) if text.isdecimal() and len(text) <= _BASE_DIGITS_MAX else EPOCH_MAX + 1
        self.damaged = node is not None and number > EPOCH_MAX
        if node is None:
            self._tell(f"{BASE} is missing in the registry")
        elif number > EPOCH_MAX:
            shown = repr(text[:_SHOWN_CHARACTERS])
            self._tell(
                f"{BASE} in the registry holds {shown}, which is no number that epochs are "
                "counted from"
            )
        else:
            self._base, self._version = number, node.version
            self._judge()

    def _judge(self) -> None:
        self.damaged = (self._base, self._version) == self._spent
        text = f"{BASE} in the registry holds {self._base}, above which no epoch is left"
        self._tell(text if self.damaged else "")

    def _tell(self, problem: str) -> None:
        text = f"{problem}: {_REMEDY}" if problem else ""
        if text == self.problem:
            return
        self.problem = text
        if text:
            log.error("%s", text, extra={"event": "epochs_damaged"})
        else:
            log.info("epochs are counted from %d", self._base, extra={"event": "epochs_mended"})
        self._on_problem(text)

    # --- inside -----------------------------------------------------------------------------------

    def _drawn(self, above: int, done: Drawn, attempts: int, result: MultiResult) -> None:
        match result:
            case Committed(versions=versions):
                number = self.number(versions[2])
                if self.used_up(number):
                    done(RegistryAway(self.problem))
                elif number > above:
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
        # Raised by another one, or not at all: what stands there now counts.
        if isinstance(result, RegistryAway):
            done(result)
        else:
            self._store.read(BASE, None, partial(self._found, partial(self._looked, done)))

    def _looked(
        self, done: Callable[[RegistryAway | None], None], away: RegistryAway | None
    ) -> None:
        done(RegistryAway(self.problem) if away is None and self.problem else away)

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
