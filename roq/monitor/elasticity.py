"""A queue that grows, shrinks and moves its publishers: one round of decisions per KPI period.

A round is due as soon as every exchange has reported since the one before, in the handler of the
last report, or when that takes too long. It looks after exchanges that are being emptied, shows the
queue to its policy, checks what this decides, and has it done.

A policy may be a user's. One that raises or decides the impossible is counted and logged, and
nothing is done in that round. Before the configuration manager has told the rules, and while
another monitor seems to be the newer one, nothing is decided but what publishers ask for.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from roq.errors import RequestError, Unavailable
from roq.model import Limits, exchange_name
from roq.monitor.emptying import EMPTY_SECONDS, Emptying, Leaving, Orphans
from roq.monitor.events import Ask, Effect, Note, Peer, Send
from roq.monitor.exchanges import Exchange, Exchanges
from roq.monitor.moves import Moves
from roq.monitor.publishers import PublisherEpochs
from roq.monitor.scaling import Scaling
from roq.monitor.scaling_rules import PolicyNamed, Rules
from roq.monitor.sessions import PUBLISHER, Session, Sessions
from roq.monitor.statistics_events import StatisticsEvents
from roq.monitor.view import Viewer
from roq.policy.emptying import emptying
from roq.policy.round import decide, perform
from roq.policy.snapshot import Decision, QueueView
from roq.protocol.control import (
    Alive,
    Answer,
    Done,
    ElasticityRequest,
    Empty,
    GcmRequest,
    Relocated,
)
from roq.protocol.control import Elasticity as LeaderElasticity
from roq.timing import EXCHANGE_OPENING_SECONDS, IDLE_FACTOR, PUBLISHERS_RETURN_SECONDS

ROUND_PERIODS: Final = 1.25
"""KPI periods after which a round does not wait for missing reports any longer."""
ERROR_MAX: Final = 300


class Elasticity:
    """Rounds of decisions about one queue, and what becomes of them.

    Args:
        queue: name of the queue.
        queue_id: of this life of it.
        epoch: of this monitor.
        control: where it answers.
        limits: of the queue.
        kpi_seconds: how often exchanges report.
        restarted: another monitor was there before.
        exchanges, sessions, epochs: of the queue.
        policy_named: finds policies by name.
        now: the present time.

    Attributes:
        policy_errors: rounds in which the policy has raised or decided the impossible.
    """

    def __init__(
        self,
        *,
        queue: str,
        queue_id: bytes,
        epoch: int,
        control: str,
        limits: Limits,
        kpi_seconds: float,
        restarted: bool,
        exchanges: Exchanges,
        sessions: Sessions,
        epochs: PublisherEpochs,
        policy_named: PolicyNamed,
        now: float,
    ) -> None:
        news = StatisticsEvents(queue, queue_id)
        self.policy_errors = 0
        self._policy_problem = ""
        request = ElasticityRequest(queue=queue, queue_id=queue_id, epoch=epoch, control=control)
        self.rules = Rules(
            request, limits, policy_named, exchanges.heard, lambda: self._idle, self._question, now
        )
        self.moves = Moves(queue_id, exchanges, sessions, epochs, news, kpi_seconds)
        self.scaling = Scaling(queue, queue_id, epoch, self._question, news)
        self.emptying = Emptying(queue, exchanges, sessions, self._has_log)
        self._orphans = Orphans()
        self._exchanges = exchanges
        self._sessions = sessions
        self._epochs = epochs
        self._viewer = Viewer(exchanges, sessions, self.moves)
        self._round_seconds = ROUND_PERIODS * kpi_seconds
        self._serials = count(1)
        self._begins_at = now + PUBLISHERS_RETURN_SECONDS if restarted else now
        self._round_at = self._begins_at + self._round_seconds
        self._reported: set[int] = set()

    # --- what happens -----------------------------------------------------------------------------

    def reported(self, exchange: Exchange, now: float) -> list[Effect]:
        """An exchange has reported; a round may be due."""
        effects = self.scaling.arrived(exchange.number, now)
        leaving = self.emptying.find(exchange.number)
        if leaving is not None:
            effects += self._look(leaving, now)
            if exchange.stopping and leaving.ready:
                # It ends, and nothing is lost with it: clients need not find out by its silence.
                self._exchanges.dismiss(exchange.number)
        self._reported.add(exchange.number)
        busy = [each for each in self._exchanges if not each.idle]
        if all(each.number in self._reported for each in busy or self._exchanges):
            effects += self._round(now)
        return effects

    def alive(self, session: Session, message: Alive, now: float) -> list[Effect]:
        """A publisher tells where it is; what a subscriber has read counts with the next report."""
        epoch = message.epoch
        if (
            session.role != PUBLISHER
            or not self._epochs.plausible(epoch)
            or not self._serve(message)
        ):
            return []
        effects = self.moves.seen(session, epoch, now)
        if self._epochs.told(epoch, now):
            effects += self._stand_down(epoch, now)
        self._sessions.learn(session, message)
        return effects

    def relocated(self, message: Relocated, now: float) -> list[Effect]:
        """A publisher tells what has become of its move."""
        effects = self.moves.answered(message, now)
        if effects and not len(self.moves) and len(self.emptying):
            effects += self._empty_on(now)  # the next lot
        return effects

    def assigned(self, publisher: bytes) -> list[Effect]:
        """A publisher has asked for an exchange and was given one under a higher epoch."""
        return self.moves.forget(publisher, "the publisher has asked for an exchange itself")

    def gone(self, client: bytes) -> list[Effect]:
        """A client is not in touch any more."""
        return self.moves.forget(client, "the publisher has left")

    def empty(self, peer: Peer, message: Empty, now: float) -> list[Effect]:
        """A manager wants an exchange to be emptied; see `Emptying`.

        Raises:
            RequestError: it cannot be emptied.
        """
        if not message.wanted:
            leaving = self.emptying.find(message.number)
            done: list[Effect] = [Send(peer, Done(id=message.id))]
            if leaving is None or leaving.scaling:
                return done
            return [*self._call_off(message.number, "its host keeps it", now), *done]
        effects = self.emptying.asked(peer, message, now)
        effects += self.scaling.removed_by_others(message.number, now)
        return effects + self._empty_on(now)

    @property
    def _idle(self) -> bool:
        return self._exchanges.idle and not len(self._sessions)

    @property
    def policy_trouble(self) -> str:
        """Why the policy that is wanted does not decide, or did not in the last round; or empty."""
        text = self.rules.replaced or self._policy_problem
        # Partly a policy's own words: of any length, and perhaps not to be encoded.
        return text[:ERROR_MAX].encode(errors="replace").decode()

    def lost(self, exchange: Exchange, now: float) -> None:
        """An exchange serves no more."""
        self.emptying.lost(exchange, now)

    def compare_groups(self, number: int, now: float) -> bool:
        """Whether all exchanges have the consumer groups of this one, which has just reported; not
        as long as nobody has told which exchanges there are."""
        rules = self.rules
        return rules.known and self._exchanges.compare_groups(number, rules.logs, now)

    def retires(self, number: int) -> bool:
        """Whether this exchange is to accept nothing more, as it goes with what it holds."""
        if self.emptying.find(number) is None:
            return False
        return self.scaling.going(number) or self.emptying.retires(number)

    def configured(self, now: float) -> list[Effect]:
        """The rules have changed."""
        self.rules.changed(now)
        return self.rules.time_passed(now)

    def answered(self, serial: int, answer: Answer | Unavailable, now: float) -> list[Effect]:
        """The configuration manager has answered a question."""
        effects = self.rules.answered(serial, answer)
        if isinstance(answer, LeaderElasticity):
            effects += self._forget_gone(now)
            effects += self._let_go(now)
        going = self.scaling.shrinking()
        effects += self.scaling.answered(serial, answer, self._serves, now)
        if not going or self.scaling.shrinking():
            return effects
        if not isinstance(answer, Done):
            return effects + self.emptying.call_off(going, "it could not be stopped")
        self.emptying.stopped(going, now)
        self._exchanges.retire(going)
        return effects

    def time_passed(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects = self.rules.time_passed(now)
        effects += self.moves.time_passed(now)
        effects += self.scaling.time_passed(now)
        effects += self.emptying.time_passed(now)
        if self._open_those_found(now) or now >= self._round_at:
            effects += self._round(now)
        return effects

    def next_deadline(self) -> float:
        """When something is due."""
        deadlines = [
            self._round_at,
            self.rules.next_deadline(),
            self.moves.next_deadline(),
            self.scaling.next_deadline(),
            self.emptying.next_deadline(),
            *(each.since + EXCHANGE_OPENING_SECONDS for each in self._exchanges if not each.open),
        ]
        return min(each for each in deadlines if each is not None)

    def end(self, text: str, code: str) -> list[Effect]:
        """The monitor stops: answer all who wait."""
        return self.emptying.end(text, code)

    def check(self) -> None:
        """Assert the invariants."""
        self.moves.check()
        self.scaling.check()
        self.emptying.check()

    # --- a round ----------------------------------------------------------------------------------

    def _round(self, now: float) -> list[Effect]:
        self._reported.clear()
        self._round_at = now + self._round_seconds * (IDLE_FACTOR if self._exchanges.idle else 1)
        if now < self._begins_at:
            return []
        self.moves.tidy(now)
        effects = self._empty_on(now)
        if not self._epochs.superseded(now):
            effects += self._leave_full_disks(now)
            if self.rules.known:
                effects += self._decide(now)
        return effects

    def _leave_full_disks(self, now: float) -> list[Effect]:
        """Have publishers go from exchanges whose disks take nothing to those whose disks do."""
        effects: list[Effect] = []
        full = [
            each
            for each in self._exchanges
            if each.disk_full and not each.stopping and each.number not in self._exchanges.leaving
        ]
        if full and self._exchanges.accepting() and self.moves.room():
            view = self._viewer.queue(self.rules, scaling=True, now=now)
            for exchange in full:
                reason = f"the disk of {exchange_name(exchange.number)} takes nothing"
                effects += self._move_all(exchange, view, now, reason)
        return effects

    def _decide(self, now: float) -> list[Effect]:
        """Show the queue to the policy, and do what it decides."""
        policy = self.rules.policy
        if policy is None:
            return []
        scaling = self.scaling.under_way or self.emptying.under_way()
        resting = self.emptying.resting()
        view = self._viewer.queue(self.rules, scaling=scaling, now=now, without=resting)
        self._policy_problem = ""
        decided = decide(policy, view, self.rules.memory)
        if decided.problem:
            return self._nonsense(decided.problem[:ERROR_MAX])
        self.rules.memory = decided.memory
        return [effect for each in decided.decisions for effect in self._perform(each, view, now)]

    def _nonsense(self, problem: str) -> list[Effect]:
        self.policy_errors += 1
        text = f"policy {self.rules.in_force.policy}: {problem}; nothing is done"
        self._policy_problem = text
        return [Note("policy_failed", text, warning=True)]

    def _perform(self, decision: Decision, view: QueueView, now: float) -> list[Effect]:
        return perform(
            decision,
            move=lambda publisher, targets, reason: self._move(
                publisher, targets, reason, view, now
            ),
            grow=lambda count, reason: self._grow(count, reason, now),
            shrink=lambda number, reason: self._shrink(number, reason, now),
        )

    def _grow(self, count: int, reason: str, now: float) -> list[Effect]:
        if self.scaling.rests(now):
            return []
        effects: list[Effect] = []
        # Of those that rest only one that serves and has room takes a part of the load.
        able = [each for each in self.emptying.resting() if self._exchanges.takes(each)]
        for number in able[:count]:
            effects += self.emptying.call_off(number, "the load rises")
            effects += self.scaling.taken_back(number, reason)
            count -= 1
        count = min(count, self._room())
        return effects + self.scaling.grow(count, reason, now) if count > 0 else effects

    def _move(
        self, publisher: bytes, targets: tuple[int, ...], reason: str, view: QueueView, now: float
    ) -> list[Effect]:
        session = self._sessions.find(publisher)
        found = [self._exchanges.numbered(number) for number in targets]
        there = [each for each in found if each is not None]
        if session is None or len(there) < len(targets):
            return []
        load = sum(
            each.throughput
            for exchange in view.exchanges
            for each in exchange.top
            if each.id == publisher
        )
        return self.moves.begin(session, there, load, reason, now)

    def _room(self) -> int:
        """How many exchanges the queue may grow by; one that is missing is being healed."""
        has = self._exchanges.numbers() | self.rules.wanted
        return self.rules.in_force.exchanges_max - len(has)

    def _shrink(self, number: int, reason: str, now: float) -> list[Effect]:
        if self.scaling.rests(now):
            return []
        try:
            self.emptying.begin(number, now, scaling=True, keeps=bool(self.rules.logs))
        except RequestError as error:
            return self._nonsense(str(error))
        return [*self.scaling.shrink(number, reason, now), *self._empty_on(now)]

    # --- exchanges that come ----------------------------------------------------------------------

    def _open_those_found(self, now: float) -> bool:
        """Let publishers be moved to exchanges that subscribers have found; whether there are any.

        Nothing depends on it, for an exchange that is found late is read from its first batch on.
        """
        opened = False
        for exchange in self._exchanges:
            if exchange.open:
                continue
            late = now >= exchange.since + EXCHANGE_OPENING_SECONDS
            if late or not self._sessions.unaware(exchange.info.log):
                exchange.open = opened = True
        return opened

    # --- exchanges that go ------------------------------------------------------------------------

    def _empty_on(self, now: float) -> list[Effect]:
        """Go on with all exchanges that are being emptied."""
        effects: list[Effect] = []
        for leaving in self.emptying:
            effects += self._look(leaving, now)
        if not len(self.emptying) or self._epochs.superseded(now) or not self.moves.room():
            return effects
        view = self._viewer.queue(self.rules, scaling=True, now=now)
        for leaving in self.emptying:
            exchange = self._exchanges.numbered(leaving.number)
            if exchange is not None and leaving.empty_since is None:
                effects += self._move_all(exchange, view, now)
        return effects

    def _move_all(
        self, exchange: Exchange, view: QueueView, now: float, reason: str = ""
    ) -> list[Effect]:
        publishers = self._viewer.publishers_at(exchange, now)
        can_go = [each for each in publishers if not each.moving][: self.moves.room()]
        effects: list[Effect] = []
        for decision in emptying(view, exchange.number, can_go, reason):
            effects += self._perform(decision, view, now)
        return effects

    def _look(self, leaving: Leaving, now: float) -> list[Effect]:
        effects = self.emptying.look(leaving, now)
        if self.scaling.stopping(leaving.number):
            return effects
        why = self.emptying.overdue(leaving, now)
        if not why and leaving.scaling and leaving.stopped_at is None:
            effects += self._rest(leaving, now)
        if not why and leaving.scaling and leaving.ready and not self._epochs.superseded(now):
            return effects + self.scaling.emptied(
                leaving.number, *self.emptying.final_end(leaving.number),
                holds_nothing=leaving.keeps,
            )  # fmt: skip
        return effects + self._call_off(leaving.number, why, now) if why else effects

    def _rest(self, leaving: Leaving, now: float) -> list[Effect]:
        """An exchange stays until nothing holds it any more; the others carry the load now."""
        if leaving.resting:
            return self.scaling.removed_by_others(leaving.number, now)
        if leaving.ready and self.scaling.shrinking() != leaving.number:
            return self.scaling.shrink(leaving.number, "nothing holds it any more", now)
        return []

    def _forget_gone(self, now: float) -> list[Effect]:
        """Wait no more for exchanges that were given up, with their logs if they had any."""
        effects: list[Effect] = []
        for leaving in self.emptying:
            known = self.rules.known and not self.scaling.stopping(leaving.number)
            if known and self.emptying.forget_gone(leaving, self.rules.logs, self.rules.wanted):
                effects += self.scaling.removed_by_others(leaving.number, now)
        return effects

    def _let_go(self, now: float) -> list[Effect]:
        """Have exchanges go that the queue does not have, as the configuration manager says."""
        effects: list[Effect] = []
        for number in self._orphans.told(self.rules.unwanted, now):
            exchange = self._exchanges.numbered(number)
            if exchange is None:
                continue
            try:
                leaving = self.emptying.begin(number, now, scaling=False)
            except RequestError:
                continue  # it serves until there is another one
            if not self._exchanges.accepting():
                continue  # the other one has gone since
            effects += self.emptying.look(leaving, now)
            if leaving.ready or now - leaving.since >= EMPTY_SECONDS:
                text = f"{exchange_name(number)} is dismissed: the queue does not have it any more"
                effects.append(Note("exchange_dismissed", text, warning=True))
                effects += self.scaling.removed_by_others(number, now)
                self.emptying.stopped(number, now)
                self._exchanges.dismiss(number)
        return effects + self._empty_on(now) if effects or self.rules.unwanted else []

    def _stand_down(self, epoch: int, now: float) -> list[Effect]:
        """There is a newer monitor: leave what was begun to it."""
        text = (
            "two monitors believe that they are active: a publisher has an epoch of the newer one, "
            f"{epoch}; this one moves and scales nothing any more"
        )
        effects: list[Effect] = [Note("superseded", text, warning=True)]
        effects += self.moves.forget_all("another monitor has taken over")
        for leaving in self.emptying:
            if leaving.scaling and not self.scaling.stopping(leaving.number):
                effects += self._call_off(leaving.number, "another monitor has taken over", now)
        return effects

    def _call_off(self, number: int, reason: str, now: float) -> list[Effect]:
        effects = self.emptying.call_off(number, reason)
        return effects + self.scaling.called_off(number, reason, now)

    # --- small things -----------------------------------------------------------------------------

    def _question(self, message: GcmRequest, seconds: float) -> Ask:
        return Ask(next(self._serials), message, seconds)

    def _has_log(self, number: int) -> bool:
        """Whether this exchange has a log on a disk, or nobody has told yet."""
        return not self.rules.known or number in self.rules.logs

    def _serves(self, number: int) -> bool:
        return self._exchanges.numbered(number) is not None

    def _serve(self, message: Alive) -> bool:
        """Whether a publisher is at some exchange that serves."""
        return any(self._exchanges.find(key) is not None for key in message.at)
