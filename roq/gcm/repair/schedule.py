"""Sees to it that queues are what their definitions say, whatever has failed: when, and how often.

Twice a second the leader looks for what is lost and for what was left half-done, by an earlier
leader or by an attempt that failed. A few queues at once are brought in order, those without a
monitor first; what cannot be done now is tried again after a while that doubles each time. Nobody
waits long for those who wait themselves: for a host that does not answer, for a request that works
on their queue, or for their next attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from roq.errors import RequestError
from roq.gcm.change.operations import Operations
from roq.gcm.change.saga_steps import Emit, NoRoom, Saga
from roq.gcm.change.sagas import Sagas
from roq.gcm.events import Effect, LogLine
from roq.gcm.provision.hosts import Provisioning
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import AWAITED, AWAY, LOST, SILENT, Hosts
from roq.gcm.state.losses import (
    FAILED,
    GONE,
    Loss,
    LossKind,
    away_text,
    loss,
    losses,
    part_name,
    parts,
    signs_of_life,
    unready,
)
from roq.gcm.state.queues import MONITOR, Queue, Queues
from roq.gcm.state.role import Role
from roq.protocol.public_answers import done
from roq.runtime.backoff import longest_wait
from roq.timing import REPAIR_CONFIRM_SECONDS

LOOK_SECONDS: Final = 0.5
QUEUES_PER_LOOK: Final = 2_000
AT_ONCE: Final = 8
"""Queues that are brought in order side by side; those that are held up do not count."""
HELD_SECONDS: Final = 2.0
"""What takes longer than this waits for another party, and leaves its place to the next one."""
RETRY_FIRST_SECONDS: Final = 1.0
RETRY_MOST_SECONDS: Final = 30.0
FAILED_SECONDS: Final = 60.0
"""What its host has given up gets one more chance after this, elsewhere if possible."""
CALM_SECONDS: Final = 600.0
"""What has run for so long since may get another one."""
MOVED_MAX: Final = 1_000


@dataclass(slots=True)
class _Trouble:
    """What is wrong with a queue, and what has become of the attempts to mend it.

    Attributes:
        since: number of a process (0: the monitor) → when it was first found lost.
        tried: those of them that were among what an attempt was to mend.
        failures: attempts in a row.
        due: when the next one is made; None: to be settled at the next look.
        reason: why the last one failed.
        avoid: hosts where one has failed.
        settled: there is no host left where none has failed, so it stays where it is.
    """

    since: dict[int, float] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    failures: int = 0
    due: float | None = 0.0
    reason: str = ""
    avoid: set[str] = field(default_factory=set)
    settled: bool = False


@dataclass(slots=True)
class _Moved:
    """A process that had failed for good and was given another chance."""

    seen: float
    """When it was last found lost."""
    ran: bool = False
    """Whether it has run since."""


_Rank: TypeAlias = tuple[bool, bool, float]
"""Tried in vain, not without a monitor, since when it waits: the lowest comes first."""


class RepairSchedule:
    """Brings the queues of this leader in order."""

    def __init__(
        self,
        role: Role,
        queues: Queues,
        hosts: Hosts,
        heartbeats: Heartbeats,
        operations: Operations,
        sagas: Sagas,
        provisioning: Provisioning,
    ) -> None:
        self._role = role
        self._queues = queues
        self._hosts = hosts
        self._heartbeats = heartbeats
        self._operations = operations
        self._sagas = sagas
        self._provisioning = provisioning
        self._names: deque[str] = deque()
        self._line: list[tuple[_Rank, str]] = []
        self._active: dict[str, float | None] = {}
        """Queue → when an attempt began to mend it; None: another operation is still at it."""
        self._troubles: dict[str, _Trouble] = {}
        self._moved: dict[tuple[bytes, int], _Moved] = {}
        self.mended = 0
        """How often a queue was brought in order, since the start of this process."""
        self.not_mended = 0
        """How often that did not work."""

    def clear(self) -> None:
        """Another leadership begins or ends."""
        self._names.clear()
        self._line.clear()
        self._active.clear()
        self._troubles.clear()
        self._moved.clear()

    def aborted(self) -> None:
        """All operations are ended, begun or not."""
        self._active.clear()

    def nudge(self) -> None:
        """There is a host more: what could not be done may work now."""
        for trouble in self._troubles.values():
            if trouble.due is not None:
                trouble.due = 0.0
            trouble.settled = False

    # --- the look ---------------------------------------------------------------------------------

    def look(self, now: float) -> list[Effect]:
        """Look how hosts and queues are, and begin to mend what can be mended."""
        effects = self._look_at_hosts(now)
        if self._role.registry_away:
            self._line.clear()
            return effects
        line = {name: rank for rank, name in self._line}
        for queue in self._next_queues():
            if queue.name in self._active:
                continue
            busy = self._operations.busy(queue.name)
            if busy and not self._losses(queue):
                continue  # what is half-done is just being done
            rank = self._look_at(queue, now)
            if rank is None:
                line.pop(queue.name, None)
            elif busy:
                effects += self._take_on(queue.name, now)
            else:
                line[queue.name] = rank
        self._line = sorted((rank, name) for name, rank in line.items())
        return effects + self.advance(now)

    def advance(self, now: float) -> list[Effect]:
        """Take on the next queues in the line, if there is room."""
        effects: list[Effect] = []
        while self._line and self._at_work(now) < AT_ONCE:
            _, name = self._line.pop(0)
            effects += self._take_on(name, now)
        return effects

    def _at_work(self, now: float) -> int:
        begun = (at for at in self._active.values() if at is not None)
        return sum(now - at < HELD_SECONDS for at in begun)

    def _take_on(self, name: str, now: float) -> list[Effect]:
        """Mend a queue, as soon as nobody else works on it."""
        queue = self._queues.get(name)
        if queue is None or name in self._active or self._role.registry_away:
            return []
        if self._remedy(queue, now) is None:
            return []
        self._active[name] = None
        accepted, effects = self._operations.submit_own(name, partial(self._attempt, name), now)
        if not accepted:
            self._active.pop(name, None)
        return effects

    def _look_at_hosts(self, now: float) -> list[Effect]:
        self._hosts.settle(now)
        signs = signs_of_life(self._queues, self._hosts, self._heartbeats)
        gone = self._hosts.unheard() or any(host.given_up for host in self._hosts)
        in_use = self._queues.hosts_in_use() if gone else frozenset()
        effects: list[Effect] = []
        for host in self._hosts.look(signs, in_use):
            text = f"host {host.name} is {host.state}: {self._hosts.reason(host)}"
            effects.append(LogLine(f"host_{host.state}", text))
            if host.state in AWAY:
                manager = "" if host.state is LOST else host.control
                effects += self._operations.gone(host.name, manager, now)
        return effects

    def _next_queues(self) -> Iterable[Queue]:
        """All queues in turn, a bounded number at a time."""
        if not self._names:
            self._names.extend(queue.name for queue in self._queues)
            self._forget(self._names)
        for _ in range(min(QUEUES_PER_LOOK, len(self._names))):
            queue = self._queues.get(self._names.popleft())
            if queue is not None:
                yield queue

    def _forget(self, names: Iterable[str]) -> None:
        for name in self._troubles.keys() - set(names):
            del self._troubles[name]
        self._heartbeats.keep(frozenset(queue.record.queue_id for queue in self._queues))
        calm = self._hosts.now - CALM_SECONDS
        for key in [key for key, moved in self._moved.items() if moved.seen < calm]:
            del self._moved[key]

    def _look_at(self, queue: Queue, now: float) -> _Rank | None:
        """Where a queue that is to be mended now stands in the line.

        None: nothing is to be done, or not yet.
        """
        lost = self._losses(queue)
        if not lost and not self._half_done(queue):
            self._troubles.pop(queue.name, None)
            return None
        trouble = self._trouble(queue.name)
        trouble.since = {each.number: trouble.since.get(each.number, now) for each in lost}
        trouble.tried &= trouble.since.keys()
        if trouble.due is None:
            delay = longest_wait(trouble.failures, RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS)
            trouble.due = now + delay
        fresh = any(
            each.number not in trouble.tried and self._is_ripe(queue, each, now) for each in lost
        )
        if (now < trouble.due and not fresh) or self._remedy(queue, now) is None:
            return None
        speechless = any(each.number == MONITOR for each in lost)
        waits_since = trouble.due or min(trouble.since.values(), default=0.0)
        return trouble.failures > 0 and not fresh, not speechless, waits_since

    def _trouble(self, name: str) -> _Trouble:
        return self._troubles.setdefault(name, _Trouble())

    # --- what is wrong ----------------------------------------------------------------------------

    def _losses(self, queue: Queue) -> list[Loss]:
        found = losses(queue, self._hosts, self._heartbeats) if queue.running else []
        numbers = {each.number for each in found}
        for (queue_id, number), moved in self._moved.items():
            if queue_id == queue.record.queue_id:
                if number in numbers:
                    moved.seen = self._hosts.now
                else:
                    moved.ran = True
        return found

    def _half_done(self, queue: Queue) -> str:
        """What was begun with a queue and neither completed nor undone; empty if nothing was."""
        if queue.running:
            return "change of its exchanges" * self._sagas.exchange.left_over(queue)
        return self._sagas.queue.left_over(queue)

    def _waits_for(self, queue: Queue) -> str:
        """The host that must have been heard of, or be lost, before anything is begun."""
        states = {name: self._hosts.get(name) for name in queue.record.hosts}
        open_states = {AWAITED, SILENT}
        return next(
            (name for name, host in states.items() if host and host.state in open_states), ""
        )

    def _is_ripe(self, queue: Queue, each: Loss, now: float) -> bool:
        """Whether a process is to be started again now."""
        trouble = self._troubles.get(queue.name)
        age = now - trouble.since.get(each.number, now) if trouble is not None else 0.0
        moved = self._moved.get((queue.record.queue_id, each.number))
        match each.kind:
            case LossKind.LOST:
                return True
            case LossKind.MISSING:
                stays = moved is not None and not moved.ran
                return not stays and (each.certain or age >= REPAIR_CONFIRM_SECONDS)
            case LossKind.FAILED:
                return moved is None and age >= FAILED_SECONDS

    # --- what is done about it --------------------------------------------------------------------

    def _remedy(self, queue: Queue, now: float) -> Callable[[], Saga] | None:
        """What is to be done with a queue now; None if nothing can be."""
        ripe = [each for each in self._losses(queue) if self._is_ripe(queue, each, now)]
        if ripe:
            return partial(self._heal, queue.name, ripe)
        if not self._half_done(queue):
            return None
        if queue.running:
            return partial(self._sagas.exchange.finish, queue.name)
        if self._waits_for(queue):
            return None
        return partial(self._sagas.queue.finish, queue.name)

    def _attempt(self, name: str) -> Saga:
        """Do what is to be done with a queue when its turn has come."""
        self._active[name] = self._hosts.now
        try:
            queue = self._queues.get(name)
            make = self._remedy(queue, self._hosts.now) if queue is not None else None
            if make is None:
                return None  # it has been done meanwhile
            answer = yield from make()
        except RequestError as error:
            self.not_mended += 1
            trouble = self._trouble(name)
            trouble.failures += 1
            trouble.due = None
            trouble.reason = str(error)
            yield Emit((LogLine("queue_not_mended", f"queue {name}: {error}"),))
            return None
        else:
            self.mended += 1
            trouble = self._trouble(name)
            trouble.failures, trouble.reason = 0, ""
            return answer
        finally:
            self._active.pop(name, None)

    def _heal(self, name: str, lost: list[Loss]) -> Saga:
        queue = self._queues.demand_running(name)
        trouble = self._trouble(name)
        trouble.tried |= {each.number for each in lost}
        for each in lost:
            if each.kind is FAILED and len(self._moved) < MOVED_MAX:
                self._moved[queue.record.queue_id, each.number] = _Moved(self._hosts.now)
        avoid = frozenset() if trouble.settled else frozenset(trouble.avoid)
        try:
            yield from self._sagas.healing.heal(queue, lost, avoid)
        except NoRoom:
            self._provisioning.want_room(name)
            raise
        except RequestError:
            trouble.avoid |= self._tried(queue)
            trouble.settled = self._hosts.fit() <= trouble.avoid
            raise
        trouble.avoid.clear()
        return done()

    def _tried(self, queue: Queue) -> set[str]:
        """The hosts on which an attempt has just failed: exchanges come after the monitor."""
        lost = self._losses(queue)
        monitor = {each.host for each in lost if each.number == MONITOR}
        return monitor or {each.host for each in lost}

    # --- what people are told ---------------------------------------------------------------------

    def degraded(self) -> dict[str, list[str]]:
        """Queue → what is wrong with it, in sentences; queues that are well are left out."""
        found = {queue.name: self.reasons(queue) for queue in self._queues}
        return {name: reasons for name, reasons in found.items() if reasons}

    def reasons(self, queue: Queue) -> list[str]:
        """What is wrong with a queue and what becomes of it, in sentences; empty if all is well."""
        told = [
            f"{part_name(number)} {reason}"
            for number in (parts(queue) if queue.running else ())
            if (reason := self.reason(queue, number))
        ]
        told += [
            f"{part_name(each.number)} {away_text(queue, each, self._hosts)}"
            for each in queue.record.exchanges
            if each.away
        ]
        doing = self._half_done(queue)
        trouble = self._troubles.get(queue.name)
        told_of = {*queue.missing.values(), *queue.not_started.values()}
        known = trouble is not None and trouble.reason in told_of
        if doing and not known and not self._operations.busy(queue.name):
            host = self._waits_for(queue)
            waits = f"waits for host {host}" if host else self._next_attempt(queue)
            told.append(f"its {doing} was left half-done; {waits}")
        return told + list(self._queues.defects.get(queue.name, ()))

    def reason(self, queue: Queue, number: int) -> str:
        """What is wrong with a process and what becomes of it, in a clause; empty if it runs."""
        each = self.loss(queue, number)
        if each is None:
            return unready(queue, number, self._hosts)
        return f"{each.why}; {self._prospect(queue, each)}"

    def loss(self, queue: Queue, number: int) -> Loss | None:
        """In which way a process of a running queue is lost; None if it is not."""
        return loss(queue, number, self._hosts, self._heartbeats) if queue.running else None

    def _prospect(self, queue: Queue, each: Loss) -> str:
        moved = self._moved.get((queue.record.queue_id, each.number))
        stays = moved is not None and (each.kind is FAILED or not moved.ran)
        if queue.name in self._active:
            return "it is being started again"
        if each.kind is not GONE and stays:
            return f"a second attempt did not help: `roq queue start {queue.name}` makes another"
        trouble = self._troubles.get(queue.name)
        if each.kind is FAILED and trouble is not None and not trouble.failures:
            since = trouble.since.get(each.number, self._hosts.now)
            left = max(0.0, since + FAILED_SECONDS - self._hosts.now)
            return f"a second attempt is made in {left:.0f} s, on another host if there is one"
        return self._next_attempt(queue)

    def _next_attempt(self, queue: Queue) -> str:
        trouble = self._troubles.get(queue.name)
        if self._role.registry_away:
            return f"{self._role.registry} is away: nothing is started until it is back"
        if trouble is None or not trouble.failures:
            return "it is started again in a moment"
        left = max(0.0, (trouble.due or self._hosts.now) - self._hosts.now)
        return f"attempt {trouble.failures} failed: {trouble.reason}; next one in {left:.0f} s"

    def check(self) -> None:
        """Assert the invariants."""
        assert self._active.keys() <= self._operations.queues  # noqa: S101 - tests and simulation
