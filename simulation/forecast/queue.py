"""One queue: a round of decisions per KPI period, and what becomes of them.

What is done with a policy in a round is `roq.policy.round`, as in a monitor; what is asked of the
configuration manager, and when that is tried again, is `roq.monitor.scaling` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from random import Random
from typing import Final

from roq.model import ElasticRules
from roq.policy.emptying import emptying
from roq.policy.round import decide, perform
from roq.policy.snapshot import Decision, Memory, Policy, QueueView
from roq.simulation.forecast.account import Account
from roq.simulation.forecast.exchange import Exchange, Place, Publishers, number_of
from roq.simulation.forecast.flights import Flight, Flights
from roq.simulation.forecast.host import Hosts
from roq.simulation.forecast.load import Coming, Load
from roq.simulation.forecast.losses import Losses
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.population import Population
from roq.simulation.forecast.reports import Reports, late_most
from roq.simulation.forecast.requests import Requests
from roq.simulation.forecast.tally import Clock, Tally
from roq.simulation.forecast.views import Viewer
from roq.simulation.forecast.waiting import Waiting
from roq.simulation.forecast.windows import Recorder, Window
from roq.timing import PUBLISHERS_RETURN_SECONDS

ROUNDING: Final = 1e-6
LANDING_SECONDS: Final = 0.05
"""Moves end at multiples of this after they were decided, so that many end together."""


class Queue:
    """A queue.

    Args:
        name: of the queue.
        load: what is played.
        comings: when its publishers come and go.
        rules: of the queue.
        limit: of one exchange.
        policy: decides.
        hosts: where processes go.
        parameters: what is assumed.
        clock: calls it.
        random: of this queue.
        eager: ask the policy in each period.
        recorder: writes windows down, if they are wanted.
    """

    def __init__(
        self,
        name: str,
        *,
        load: Load,
        comings: Sequence[Coming],
        rules: ElasticRules,
        limit: float,
        policy: Policy,
        hosts: Hosts,
        parameters: Parameters,
        clock: Clock,
        random: Random,
        eager: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self.name = name
        self._recorder = recorder
        self.tally = Tally()
        self._load, self._rules, self._limit = load, rules, limit
        self._policy, self._hosts, self._parameters = policy, hosts, parameters
        self._clock, self._random, self._eager = clock, random, eager
        groups: list[int] = []
        people: dict[tuple[int, int], int] = {}
        for coming in comings:
            if (coming.group, coming.number) not in people:
                people[coming.group, coming.number] = len(groups)
                groups.append(coming.group)
        publishers = Publishers(groups, parameters.spread, random)
        self.population = Population(
            publishers, len(load.groups), lambda: Reports(parameters, random)
        )
        self._people = people
        self._comings = comings
        self.viewer = Viewer(load.groups, publishers, self._moment)
        self.flights = Flights()
        self._landing: dict[float, list[Flight]] = {}
        self.account = Account(load.groups, hosts, limit, parameters, recorder)
        self.losses = Losses(self, hosts, parameters, clock)
        self._waiting = Waiting(policy, parameters.kpi_seconds, late_most(parameters), self.tally)
        self._memory = Memory()
        self.requests = Requests(self, hosts, rules.exchanges_max, parameters, clock, random)
        self._phase = random.random() * parameters.kpi_seconds
        self._offset = random.random() * parameters.stagger_seconds
        self._round_at: float | None = None
        self._last_to_report = 0
        """Number of the exchange for which a round waits; 0: whichever it is."""
        self._decides_from = 0.0
        self._changed_at = 0.0
        self._monitor = ""
        self._watches_hosts = bool(
            rules.host_cpu_percent or rules.host_memory_mb or rules.latency_ms
        )
        self._means: tuple[int, dict[int, float]] = (-1, {})

    # --- the beginning ----------------------------------------------------------------------------

    def begin(self, exchanges: int) -> None:
        """Make the monitor and the first exchanges, and note when publishers come.

        Raises:
            NoCapacity: there is no room for the exchanges.
        """
        self._monitor = self._hosts.place_monitor()
        for _ in range(exchanges):
            host = self._hosts.place_exchange(self.beside(), (), 0.0)
            self.population.add(host, 0.0, scaled=False).open = True
        if self._comings:
            self._clock.call(self._comings[0].when, lambda now: self._come(0, now))
        for change in self._changes():
            self._clock.call(change, self._load_changed)
        self._renew(0.0)
        self.wake(0.0)

    def _changes(self) -> list[float]:
        """When rates change for this queue."""
        seconds = self._load.seconds
        if not self._offset:
            return [each for each in self._load.changes if 0 < each < seconds]
        return sorted((each - self._offset) % seconds for each in self._load.changes)

    def _moment(self, now: float) -> float:
        """The moment of the load that is played."""
        return (now + self._offset) % self._load.seconds if self._offset else now

    # --- load -------------------------------------------------------------------------------------

    def _load_changed(self, now: float) -> None:
        self.pass_until(now)
        self.changed(now)

    def _come(self, first: int, now: float) -> None:
        """Publishers come and go; then wait for the next ones."""
        self.pass_until(now)
        index = first
        publishers = self.population.publishers
        while index < len(self._comings) and self._comings[index].when <= now:
            coming = self._comings[index]
            publisher = self._people[coming.group, coming.number]
            if coming.comes and not publishers.there[publisher]:
                publishers.there[publisher] = 1
                self._attach(publisher, now)
            elif not coming.comes and publishers.there[publisher]:
                publishers.there[publisher] = 0
                self._detach(publisher)
            index += 1
        if index < len(self._comings):
            self._clock.call(self._comings[index].when, lambda then: self._come(index, then))
        self.changed(now)

    def _attach(self, publisher: int, now: float) -> None:
        tick = self._tick(now)
        if not self.population.assign(publisher, self._reported(tick, now), self._limit, tick):
            self.account.unserved += 1
            return
        if now > 0:  # what is there in the beginning has been there
            self.viewer.young[publisher] = now

    def _detach(self, publisher: int) -> None:
        flight = self.flights.find(publisher)
        if not self.population.publishers.place[publisher]:
            self.account.unserved -= 1
        else:
            self.population.leave(publisher, flight)
        if flight is not None:
            self.flights.end(flight)
        self.viewer.young.pop(publisher, None)

    def _reported(self, tick: int, now: float) -> dict[int, float]:
        """What exchanges carried by their last reports; worked out once in each period."""
        if self._means[0] != tick and len(self.population.exchanges) > 1:
            loads = self.viewer.loads(self.population.exchanges, now)
            self._means = (tick, {number: load[1] for number, load in loads.items()})
        return self._means[1]

    # --- rounds -----------------------------------------------------------------------------------

    def _tick(self, now: float) -> int:
        return floor((now - self._phase) / self._parameters.kpi_seconds + ROUNDING)

    def _after(self, now: float) -> float:
        """When the exchange reports next that is the last to do so in each period."""
        exchanges = self.population.exchanges
        if not exchanges:
            return now + self._parameters.kpi_seconds
        if self._last_to_report not in exchanges:
            self._last_to_report = max(
                exchanges, key=lambda number: (exchanges[number].reports.after(now), number)
            )
        return exchanges[self._last_to_report].reports.after(now)

    def wake(self, now: float) -> None:
        """Something has changed: there is a round at the end of this period."""
        self._changed_at = now
        soon = self._after(now)
        if self._round_at is None or soon < self._round_at:
            self._next_round(soon)

    def _next_round(self, when: float) -> None:
        self._round_at = when
        self._clock.call(when, self._round)

    def _round(self, now: float) -> None:
        if self._round_at != now:
            return  # another one was due earlier
        self.tally.rounds += 1
        self._round_at = None
        quiet = self._decide(now)
        settled = self._changed_at <= self.viewer.oldest(self.population.exchanges, now)
        if not quiet or not settled or self._eager or self._parameters.noise:
            self._next_round(self._after(now))
        elif self._waiting.until < float("inf"):
            self._next_round(self._after(self._waiting.until))

    def _decide(self, now: float) -> bool:
        """Show the queue to the policy and do what it decides; whether it needs no asking soon."""
        if now < self._decides_from:
            return False
        self.viewer.grow_up(self.viewer.oldest(self.population.exchanges, now))
        self._empty_on(now)
        seen = None if self._sees_more() else self._seen(now)
        if seen is not None and not self._eager and self._waiting.needless(seen, now):
            return True
        view = self._view(now, scaling=self._changing())
        decided = decide(self._policy, view, self._memory)
        self.tally.asked += 1
        if decided.problem:
            self.tally.policy_errors += 1
            return False
        before, self._memory = self._memory, decided.memory
        if decided.decisions:
            self._waiting.disturbed()
            self.pass_until(now)
            self._perform(decided.decisions, now)
            self._renew(now)
            self.wake(now)
            return False
        if seen is None or self._eager:
            return False
        self._waiting.quiet(seen, view, before, decided.memory)
        return self._waiting.needless(seen, now)

    def _sees_more(self) -> bool:
        """Whether it is shown what changes without any change here."""
        return bool(self._watches_hosts or self._parameters.noise or self.viewer.young)

    def _seen(self, now: float) -> object:
        """All that the policy is shown but the time."""
        busy = self.flights.busy(now)
        exchanges = []
        for each in self.population.exchanges.values():
            told = self.viewer.told(each, now)
            state = (each.number, each.version, each.accepting, each.died, len(each.newcomers))
            exchanges.append((state, told.last, told.mean))
        return (exchanges, frozenset(busy), self._changing())

    def _view(self, now: float, *, scaling: bool) -> QueueView:
        exchanges = self.population.exchanges
        loads = self.viewer.loads(exchanges, now)
        if self._parameters.noise:
            for load in loads.values():
                load[0] *= max(0.0, self._random.gauss(1.0, self._parameters.noise))
        busy = self.flights.busy(now)
        hosts = dict.fromkeys(each.host for each in self.population.living())
        return QueueView(
            now=now,
            limit=self._limit,
            rules=self._rules,
            exchanges=tuple(
                self.viewer.exchange(each, loads[each.number], now, busy)
                for each in exchanges.values()
            ),
            hosts=tuple(self._hosts.view(name) for name in hosts),
            latency_ms=self.account.latency_ms(exchanges) if self._rules.latency_ms else 0.0,
            scaling=scaling,
        )

    def _changing(self) -> bool:
        return self.requests.scaling.under_way or any(
            each.leaving for each in self.population.exchanges.values()
        )

    # --- decisions --------------------------------------------------------------------------------

    def _perform(self, decisions: Sequence[Decision], now: float) -> None:
        def move(publisher: bytes, targets: Place, _: str) -> None:
            self._move(number_of(publisher), targets, now)

        def grow(count: int, reason: str) -> None:
            self._grow(count, reason, now)

        def shrink(number: int, reason: str) -> None:
            self._shrink(number, reason, now)

        for decision in decisions:
            perform(decision, move=move, grow=grow, shrink=shrink)

    def _grow(self, count: int, reason: str, now: float) -> None:
        if not self.requests.scaling.rests(now):
            self.requests.ask(self.requests.scaling.grow(count, reason, now), now)

    def _shrink(self, number: int, reason: str, now: float) -> None:
        others = [each for each in self.population.living() if not each.leaving]
        if not self.requests.scaling.rests(now) and len(others) > 1:
            self.population.exchanges[number].leaving = True
            self.requests.scaling.shrink(number, reason, now)
            self._empty_on(now)

    def _move(self, publisher: int, targets: Place, now: float) -> None:
        place = self.population.publishers.place[publisher]
        if not place:
            return
        flight = self.flights.begin(publisher, place, targets, now)
        if flight is None:
            return
        self.population.set_off(flight)
        parameters = self._parameters
        takes = self._random.uniform(parameters.move_least, parameters.move_most)
        when = now + max(1, round(takes / LANDING_SECONDS)) * LANDING_SECONDS
        landing = self._landing.setdefault(when, [])
        landing.append(flight)
        if len(landing) == 1:
            self._clock.call(when, self._landed)

    def _landed(self, now: float) -> None:
        """Publishers come to the end of their moves."""
        self.pass_until(now)
        for flight in self._landing.pop(now):
            if self.flights.end(flight):
                self._land(flight, now)
        self._renew(now)
        if not len(self.flights):
            self._empty_on(now)
        self.wake(now)

    def _land(self, flight: Flight, now: float) -> None:
        # Striped publishers do without an exchange that has died; here the whole move fails.
        lost = bool(self._parameters.move_failures) and (
            self._random.random() < self._parameters.move_failures
        )
        if lost or not self.population.alive(flight.targets):
            self.tally.moves_failed += 1
            self.tally.note(now, "move failed", flight.targets[0])
            self._waiting.disturbed()
            self.population.turn_back(flight)
            for number in flight.targets:
                target = self.population.exchanges.get(number)
                if target is not None and target.died is not None:
                    target.doubted = True
            until = self.flights.failed(flight.publisher, now)
            self._clock.call(until, self.wake)
        else:
            self.tally.moves += 1
            self.tally.note(now, "move", flight.targets[0])
            self.flights.arrived(flight.publisher)
            self.population.land(flight, now)
            for number in flight.sources:
                self.account.left(number, now)

    # --- more exchanges, and fewer ----------------------------------------------------------------

    def add_exchange(self, now: float) -> None:
        """An operator adds an exchange by hand.

        Raises:
            NoCapacity: there is no room for it.
        """
        host = self._hosts.place_exchange(self.beside(), (), now)
        self.pass_until(now)
        self.serve(self.population.add(host, now, scaled=False), now)

    def serve(self, exchange: Exchange, now: float) -> None:
        """A new exchange has reported for the first time."""
        for publisher in self._unserved():
            self.account.unserved -= 1
            self._attach(publisher, now)
        self._clock.call(
            now + self._parameters.opening_seconds, lambda then: self._open(exchange, then)
        )
        self.changed(now)

    def _open(self, exchange: Exchange, now: float) -> None:
        """Subscribers have found it: a round at once."""
        exchange.open = True
        self._last_to_report = 0
        self._changed_at = now
        self._round_at = now
        self._round(now)

    def _empty_on(self, now: float) -> None:
        """Go on with an exchange that is to go."""
        leaving = [each for each in self.population.living() if each.leaving]
        for exchange in leaving:
            if self.requests.scaling.stopping(exchange.number):
                continue
            if not any(not each.leaving for each in self.population.living()):
                exchange.leaving = False
                self.requests.scaling.called_off(exchange.number, "no other takes publishers", now)
            elif exchange.members:
                self._move_all(exchange, now)
            else:
                self._clock.call(
                    now + self._parameters.reading_seconds,
                    lambda then, exchange=exchange: self._read(exchange, then),  # type: ignore[misc]
                )

    def _move_all(self, exchange: Exchange, now: float) -> None:
        busy = self.flights.busy(now)
        everybody = self.viewer.everybody(exchange, now, busy)
        can_go = [each for each in everybody if not each.moving][: self.flights.room]
        if can_go:
            view = self._view(now, scaling=True)
            self._perform(emptying(view, exchange.number, can_go), now)

    def _read(self, exchange: Exchange, now: float) -> None:
        """Everything in it has been read: have it stopped."""
        if exchange.members or not exchange.leaving or exchange.died is not None:
            return
        self.requests.ask(self.requests.scaling.emptied(exchange.number, 0, -1), now)

    # --- loss -------------------------------------------------------------------------------------

    def host_died(self, name: str, now: float) -> None:
        """All that ran there is gone."""
        if self._monitor == name:
            self.lose_monitor(now)
        for exchange in self.population.living():
            if exchange.host == name:
                self.losses.lose(exchange, now)

    def lose_monitor(self, now: float) -> None:
        """Another one takes over, knows nothing, and waits before it moves a publisher."""
        self._hosts.free_monitor(self._monitor)
        self._monitor = self._hosts.place_monitor()
        self._decides_from = now + self._parameters.heal_seconds + PUBLISHERS_RETURN_SECONDS
        self._memory = Memory()
        self.requests.forget()
        self._waiting.disturbed()
        for exchange in self.population.exchanges.values():
            exchange.leaving = False
        self.wake(now)

    def _unserved(self) -> list[int]:
        publishers = self.population.publishers
        return [
            each
            for each in range(len(publishers))
            if publishers.there[each] and not publishers.place[each]
        ]

    def reconnect(self, now: float) -> None:
        """Publishers that have lost their exchange ask for another one."""
        self.pass_until(now)
        for publisher in self._unserved():
            self.account.unserved -= 1
            self._attach(publisher, now)
        self.changed(now)

    # --- small things -----------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """How many exchanges the configuration manager's record of it has."""
        serving = {each.number for each in self.population.living()}
        return len(serving | self.losses.healing) + self.requests.begun

    def beside(self) -> list[str]:
        """The hosts of its exchanges."""
        return [each.host for each in self.population.living()]

    def pass_until(self, now: float) -> None:
        """Count what was until now, before something changes."""
        self.account.pass_until(now, self.population.exchanges)

    def close_window(self, now: float) -> Window | None:
        """What was since the last time, if windows are wanted."""
        self.pass_until(now)
        if self._recorder is None:
            return None
        living = self.population.living()
        return self._recorder.close(now, {each.number: len(each.members) for each in living})

    def changed(self, now: float) -> None:
        """Something has changed: count on, and look at it at the end of the period."""
        self._renew(now)
        self.wake(now)

    def _renew(self, now: float) -> None:
        self.account.renew(now, self._moment(now), self.population.exchanges)
