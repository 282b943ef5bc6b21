"""Hosts that are to hold nothing: which queue takes its next step off them, and how far they are.

Twice a second the leader looks for queues with something on such a host, and has a few at once take
a step. Which steps there are, `roq.gcm.change.host` says. Nothing is remembered but when a queue is
due again and what it waits for, so a later leader goes on where this one was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from roq.errors import RegistryAway, RequestError
from roq.gcm.change.operations import Operations
from roq.gcm.change.saga_steps import Emit, NoRoom, Saga
from roq.gcm.change.sagas import Sagas
from roq.gcm.events import Effect, LogLine
from roq.gcm.provision.hosts import Provisioning
from roq.gcm.state.hosts import Hosts, Schedule
from roq.gcm.state.queues import Queue, Queues
from roq.gcm.state.records import HOSTS
from roq.gcm.state.role import Role
from roq.protocol.control import HostReport

AT_ONCE: Final = 8
"""Queues that take a step side by side."""
AGAIN_SECONDS: Final = 1.0
"""What waits for publishers and subscribers is asked again so soon."""
NO_ROOM_SECONDS: Final = 2.0
LEFT_MAX: Final = 100
"""Processes that are named one by one."""


@dataclass(slots=True)
class _Waits:
    """What a queue waits for.

    Attributes:
        due: when it takes the next step.
        reason: why it could not take the last one, in a clause; empty if it could.
        stuck: nothing will change by itself: no host has room.
    """

    due: float
    reason: str = ""
    stuck: bool = False


class Draining:
    """Empties the hosts of this leader that are to hold nothing."""

    def __init__(
        self,
        role: Role,
        queues: Queues,
        hosts: Hosts,
        operations: Operations,
        sagas: Sagas,
        provisioning: Provisioning,
    ) -> None:
        self._role = role
        self._queues = queues
        self._hosts = hosts
        self._operations = operations
        self._sagas = sagas
        self._provisioning = provisioning
        self._active: set[str] = set()
        self._waits: dict[str, _Waits] = {}

    def clear(self) -> None:
        """Another leadership begins or ends."""
        self.aborted()
        self._waits.clear()

    def aborted(self) -> None:
        """All operations are ended, begun or not."""
        self._active.clear()

    def check(self) -> None:
        """Assert the invariants."""
        assert self._active <= self._operations.queues  # noqa: S101 - tests and simulation

    # --- what managers want -----------------------------------------------------------------------

    def reported(self, report: HostReport, now: float) -> list[Effect]:
        """A host manager has said whether it stops."""
        mark = self._hosts.marks.get(report.host)
        leaving = mark.leaving if mark is not None else 0
        if self._role.registry_away or self._operations.busy(HOSTS):
            return []
        host, saga = report.host, self._sagas.host
        refuge = self._hosts.refuge(host) or self._hosts.arriving
        if report.leaving and leaving != report.epoch and refuge:
            return self._own(HOSTS, partial(saga.leave, host, report.epoch), now)
        if leaving and not report.leaving and report.epoch > leaving:
            return self._own(HOSTS, partial(saga.arrive, host), now)
        return []

    def stuck(self, host: str, *, leaving: bool = False) -> str:
        """Why what is on a host that drains cannot go elsewhere; empty as long as it may.

        Args:
            host: its name.
            leaving: its manager has just said that it stops.
        """
        if not leaving and self._hosts.schedule(host) is not Schedule.DRAINING:
            return ""
        here = [queue for queue in self._queues if _is_on(queue, host)]
        if leaving and here and all(_stays(queue, host) for queue in here):
            return "what is left there are logs, which stay"
        here = [queue for queue in here if not (leaving and _stays(queue, host))]
        reasons = [
            f"queue {queue.name}: {waits.reason}"
            for queue in here
            if (waits := self._waits.get(queue.name)) and waits.stuck
        ]
        if self._hosts.arriving:
            return ""  # the others may report in a moment
        refuge = self._hosts.refuge(host)
        if not reasons and not refuge and here:
            return "no other host takes anything: all are away, cordoned or draining"
        if leaving and refuge and len(reasons) < len(here):
            return ""  # its manager would stop those that can go, too
        return "; ".join(reasons[:3])

    def left(self, host: str) -> list[str]:
        """What belongs on a host, by name, with what it waits for if that drains."""
        drains = self._hosts.schedule(host) is Schedule.DRAINING
        found: list[str] = []
        for queue in self._queues:
            waits = self._waits.get(queue.name) if drains else None
            reason = f" ({waits.reason})" if waits is not None and waits.reason else ""
            found += [each + reason for each in self._sagas.host.belongings(queue, host)]
        live = self._hosts.live(host)
        if live is not None and not found:
            found = [f"{child.child} is {child.state}" for child in live.children]
        return found[:LEFT_MAX]

    # --- steps ------------------------------------------------------------------------------------

    def look(self, now: float) -> list[Effect]:
        """Have the next queues take a step."""
        queues = list(self._queues)
        if not self._hosts.draining():
            queues = [each for each in queues if each.record.limits.ordered]
        if not queues:
            self._waits.clear()
            return []
        if self._role.registry_away or self._role.caretaker or self._hosts.arriving:
            return []
        concerned = [each for each in queues if self._sagas.host.goes(each)]
        names = {each.name for each in concerned}
        self._waits = {name: each for name, each in self._waits.items() if name in names}
        effects: list[Effect] = []
        concerned.sort(key=lambda each: self._due(each.name))
        for queue in concerned:
            if len(self._active) >= AT_ONCE or self._due(queue.name) > now:
                break
            if queue.name in self._active or self._operations.busy(queue.name):
                continue
            self._active.add(queue.name)
            effects += self._own(queue.name, partial(self._step, queue.name), now)
        return effects

    def _due(self, name: str) -> float:
        waits = self._waits.get(name)
        return waits.due if waits is not None else 0.0

    def _own(self, lane: str, make: partial[Saga], now: float) -> list[Effect]:
        accepted, effects = self._operations.submit_own(lane, make, now)
        if not accepted:
            self._active.discard(lane)
        return effects

    def _step(self, name: str) -> Saga:
        now = self._hosts.now
        before = self._waits.get(name)
        try:
            yield from self._sagas.host.vacate(name)
        except NoRoom as error:
            self._waits[name] = _Waits(now + NO_ROOM_SECONDS, str(error), stuck=True)
            self._provisioning.want_room(name)
        except RegistryAway:
            raise
        except RequestError as error:
            self._waits[name] = _Waits(self._hosts.now + AGAIN_SECONDS, str(error))
        else:
            self._waits[name] = _Waits(self._hosts.now)
        finally:
            self._active.discard(name)
        waits = self._waits[name]
        if waits.reason and (before is None or before.stuck != waits.stuck or not before.reason):
            text = f"queue {name} has not left the hosts that drain yet: {waits.reason}"
            yield Emit((LogLine("drain_waits", text),))
        return None


def _is_on(queue: Queue, host: str) -> bool:
    return host in queue.record.hosts


def _stays(queue: Queue, host: str) -> bool:
    """Whether all that a queue has on a host whose manager stops are logs."""
    return queue.record.durable and queue.record.host != host
