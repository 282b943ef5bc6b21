"""Hosts that get nothing new, or are to hold nothing: what is wanted of them, and how they empty.

    active --cordon--> cordoned --drain--> draining --everything gone--> draining, empty
       ^------------------- uncordon -------------------'

What is wanted is written down first, so a later leader goes on. A queue leaves a host in steps, and
is whole after each: one exchange more elsewhere for each that is to go; that one emptied and
removed; the monitor last. The definitions say which step comes next, so it does not matter after
which one a leader dies.
"""

from __future__ import annotations

from typing import Final

import msgspec

from roq.errors import Busy, HostNotFound, NoCapacity, RequestError
from roq.gcm.change.exchange import ExchangeSagas
from roq.gcm.change.replacement import ReplacementSagas
from roq.gcm.change.saga_steps import Call, Calls, Emit, NoRoom, Part, Saga, Save, Steps
from roq.gcm.events import LogLine, Put
from roq.gcm.state.hosts import LOST, UNMANAGED, Hosts, Schedule
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import HOSTS, HOSTS_PATH, MARKS_MAX, ExchangeRecord, Mark, encode
from roq.model import QueueState, exchange_name
from roq.protocol.public_answers import done

DRAINING: Final = Schedule.DRAINING
READ_SECONDS: Final = 600.0
"""Subscribers have so long to read what is left in an exchange that goes with its host; what groups
have not done, what is delayed, and responses, are waited for without a bound."""
VACATE_SECONDS: Final = 3.0
"""A monitor answers at once, whether the exchange is empty or not."""
CALLED_OFF_MAX: Final = 1_000
"""Exchanges of which their monitors are told at once that they stay; the others notice it."""


class NotYet(RequestError):
    """Another party has to do something before a queue can leave a host."""


class HostSagas:
    """What is wanted of hosts, and what comes of it for the queues."""

    def __init__(self, steps: Steps, exchange: ExchangeSagas, healing: ReplacementSagas) -> None:
        self._steps = steps
        self._exchange = exchange
        self._healing = healing

    @property
    def _hosts(self) -> Hosts:
        return self._steps.hosts

    # --- what is wanted ---------------------------------------------------------------------------

    def cordon(self, host: str) -> Saga:
        """Place nothing new on a host from now on; what is there stays."""
        self._demand_known(host)
        mark = msgspec.structs.replace(self._marked(host), cordoned=True, drained=False)
        yield from self._mark_and_keep(host, mark)
        return done()

    def drain(self, host: str) -> Saga:
        """Have everything on a host go elsewhere; it is cordoned, too."""
        self._demand_known(host)
        mark = msgspec.structs.replace(self._marked(host), cordoned=True, drained=True)
        yield from self._mark(host, mark)
        return done()

    def uncordon(self, host: str) -> Saga:
        """Place on a host as on any other; what has left it does not come back."""
        self._demand_known(host)
        yield from self._mark_and_keep(host, Mark())
        return done()

    def _mark_and_keep(self, host: str, mark: Mark) -> Part[None]:
        """If a drain ends by this mark, what was being emptied takes publishers again."""
        drained = self._hosts.schedule(host) is DRAINING
        yield from self._mark(host, mark)
        # Monitors of an earlier version take it for a request to empty: only those are told that
        # were asked for that.
        if drained:
            yield from self._keep(host)

    def _keep(self, host: str) -> Part[None]:
        calls: list[Call] = []
        for queue in self._steps.queues if self._hosts.schedule(host) is not DRAINING else ():
            here = [each for each in queue.record.exchanges if each.wanted and each.host == host]
            leaving = self._leaving(queue)
            stay = [each for each in here if each not in leaving]
            calls += self._exchange.keep(queue, stay)
        yield Calls(tuple(calls[:CALLED_OFF_MAX]))

    def leave(self, host: str, epoch: int) -> Saga:
        """The manager of this epoch stops: have everything on its host go elsewhere until then."""
        yield from self._mark(host, msgspec.structs.replace(self._marked(host), leaving=epoch))
        return done()

    def arrive(self, host: str) -> Saga:
        """A later manager is there: what the one before wanted, holds no more."""
        yield from self._mark(host, msgspec.structs.replace(self._marked(host), leaving=0))
        yield from self._keep(host)
        return done()

    def remove(self, host: str, *, force: bool) -> Saga:
        """Forget a host that is gone.

        Args:
            host: its name.
            force: the operator knows that it is gone although processes on it seem to live: what
                belongs there is lost, and set up again elsewhere.

        Raises:
            HostNotFound: nothing is known of it.
            RequestError: it is not gone, or something belongs there.
        """
        self._demand_known(host)
        known = self._hosts.get(host)
        used = host in self._steps.queues.hosts_in_use()
        if known is not None and known.state not in {LOST, UNMANAGED}:
            raise RequestError(
                f"host {host} is {known.state}: it would be back with its next report. Stop its "
                "host manager first"
            )
        if known is not None and not force and (used or known.state is UNMANAGED):
            raise RequestError(
                f"host {host} is {known.state} and not forgotten, because queues still have "
                f"something there or processes on it live: `roq host drain {host}` first, or "
                "--force if that machine is gone for good"
            )
        yield from self._mark(host, Mark())
        if host in self._steps.removed.hosts:
            yield from self._steps.save_removed(self._steps.removed.give_up(host))
        if known is not None and used:
            self._hosts.give_up(known)
        else:
            self._hosts.forget(host)
        return done()

    def _demand_known(self, host: str) -> None:
        waited_for = self._hosts.marks.keys() | self._steps.removed.hosts
        if self._hosts.get(host) is None and host not in waited_for:
            raise HostNotFound(f"host {host} is not registered; `roq host list` shows the hosts")

    def _is_known(self, host: str) -> bool:
        return self._hosts.arriving or self._hosts.get(host) is not None

    def _marked(self, host: str) -> Mark:
        return self._hosts.marks.get(host, Mark())

    def _mark(self, host: str, mark: Mark) -> Part[None]:
        hosts = self._hosts
        # What a manager wanted that is not there any more says nothing: it goes with the occasion.
        kept = {
            name: each
            for name, each in hosts.marks.items()
            if each.cordoned or each.drained or (hosts.leaves(name) and self._is_known(name))
        }
        wanted = {name: each for name, each in (kept | {host: mark}).items() if each != Mark()}
        if wanted == hosts.marks:
            return
        if len(wanted) > MARKS_MAX:
            raise Busy(f"{MARKS_MAX} hosts are cordoned already: uncordon or remove some")
        before = hosts.schedule(host)
        yield Save((Put(HOSTS_PATH, encode(wanted)),))
        hosts.marks, hosts.changed = wanted, True
        self._steps.queues.defects.pop(HOSTS, None)  # what could not be read is replaced
        after = hosts.schedule(host)
        if after is not before:
            yield Emit((LogLine(f"host_{after}", f"host {host} is {after} now, it was {before}"),))

    # --- what comes of it -------------------------------------------------------------------------

    def belongings(self, queue: Queue, host: str) -> list[str]:
        """What of a queue belongs on a host, by name."""
        record = queue.record
        found = [
            f"{exchange_name(each.number)} of {queue.name}"
            for each in record.exchanges
            if each.host == host
        ]
        return found + [f"the monitor of {queue.name}"] * (record.host == host)

    def vacate(self, name: str) -> Part[None]:
        """One step of a queue off the hosts that are to hold nothing.

        Raises:
            NoRoom: there is no host for it.
            RequestError: says what it waits for.
        """
        queue = self._steps.queues.get(name)
        if queue is None or not self.goes(queue):
            return
        if queue.record.state is QueueState.STOPPED:
            yield from self._resettle(queue)
            return
        if not queue.running:
            raise NotYet(f"queue {name} is {queue.record.state}")
        leaving = self._leaving(queue)
        if not leaving:
            yield from self._move_monitor(queue)
            return
        if (yield from self._replace(queue, leaving, self._emptied(queue))):
            return
        yield from self._empty(queue, leaving)

    def goes(self, queue: Queue) -> bool:
        """Whether anything of a queue is to leave a host.

        The log of a durable one stays with a host whose manager stops: it will be back.
        """
        return bool(self._leaving(queue)) or queue.record.host in self._hosts.draining()

    def _leaving(self, queue: Queue) -> list[ExchangeRecord]:
        emptied, exchanges = self._emptied(queue), queue.record.exchanges
        # An ordered queue has one exchange, also when the drain is over before the other one went.
        ordered = queue.record.limits.ordered
        replaced = {each.replaces for each in exchanges if ordered and each.here}
        return [
            each for each in exchanges
            if (each.host in emptied or each.number in replaced) and not each.away
        ]  # fmt: skip

    def _emptied(self, queue: Queue) -> frozenset[str]:
        """The hosts that are to hold no exchange of this queue."""
        return self._hosts.drained() if queue.record.durable else self._hosts.draining()

    def _resettle(self, queue: Queue) -> Part[None]:
        """A stopped queue is to start elsewhere.

        Raises:
            NoRoom: no host has room for it.
            NotYet: what has to be read before it may go is in it.
        """
        record = queue.record
        if record.durable and self._leaving(queue):
            raise NotYet(
                f"queue {queue.name} is stopped, and what is in its logs can be read only when it "
                f"runs: `roq queue start {queue.name}`, or `roq queue remove {queue.name}`"
            )
        numbers = [each.number for each in self._leaving(queue)]
        numbers += [MONITOR] * (record.host in self._hosts.draining())
        places, problem = self._steps.place_anew(queue, numbers)
        if problem:
            raise NoRoom(problem)
        yield from self._steps.save_moved(record, places)

    def _replace(
        self, queue: Queue, leaving: list[ExchangeRecord], draining: frozenset[str]
    ) -> Part[bool]:
        """Start one exchange for one that goes, if there is one without; gives whether it did."""
        staying = [
            each for each in queue.record.exchanges if each.here and each.host not in draining
        ]
        replaced = {each.replaces for each in staying}
        if queue.record.limits.ordered:  # there is one at most, and its log is waited for
            replaced |= {each.replaces for each in queue.record.exchanges if each.away}
        missing = [each for each in leaving if each.wanted and each.number not in replaced]
        if not missing:
            return False
        if self._steps.lost(queue, MONITOR):
            raise NotYet(f"the monitor of queue {queue.name} does not run at the moment")
        try:
            number = yield from self._exchange.replace(queue, missing[0])
        except NoCapacity:
            if any(each.state == "created" for each in staying):
                return False  # the others take its publishers on
            raise
        text = (
            f"queue {queue.name} has {exchange_name(number)} for "
            f"{exchange_name(missing[0].number)}, which is to go from host {missing[0].host}"
        )
        yield Emit((LogLine("exchange_replaced", text),))
        return True

    def _empty(self, queue: Queue, leaving: list[ExchangeRecord]) -> Part[None]:
        waits: RequestError | None = None
        for exchange in leaving:
            if exchange.state != "created":
                waits = waits or NotYet(f"{exchange_name(exchange.number)} is {exchange.state}")
                continue
            try:
                yield from self._exchange.vacate(queue, exchange, READ_SECONDS, VACATE_SECONDS)
            except RequestError as error:
                waits = waits or error
                continue
            text = (
                f"queue {queue.name}: {exchange_name(exchange.number)} is gone from host "
                f"{exchange.host}"
            )
            yield Emit((LogLine("exchange_vacated", text),))
        if waits is not None:
            raise waits

    def _move_monitor(self, queue: Queue) -> Part[None]:
        host = queue.record.host
        if self._steps.lost(queue, MONITOR):
            raise NotYet("the monitor does not run at the moment")
        yield from self._healing.move_monitor(queue, host)
        text = f"queue {queue.name}: its monitor runs on host {queue.record.host}, not on {host}"
        yield Emit((LogLine("monitor_moved", text),))
