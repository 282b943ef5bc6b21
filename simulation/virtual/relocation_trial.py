"""One trial: publishers are sent from exchange to exchange while they publish, and are counted."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from roq.simulation.virtual.dispatcher import Dispatcher
from roq.simulation.virtual.load import User
from roq.simulation.virtual.queue import VirtualQueue
from roq.simulation.virtual.queue_faults import Faults
from roq.simulation.virtual.relocation_case import CALM, Case

SETTLE_SECONDS: Final = 60.0
MINUTES_MOST: Final = 600.0
"""Virtual seconds after which a trial ends, however many relocations there were."""
WARM_UP_SECONDS: Final = 0.2
LAST_FAULTS_SECONDS: Final = 0.5
"""Things still go wrong for so long when nothing is published any more."""


class Result(msgspec.Struct, kw_only=True):
    """What came of one or more trials; messages are counted once for each subscriber."""

    trials: int = 0
    asked: int = 0
    accepted: int = 0
    striped: int = 0
    """Accepted ones with several exchanges."""
    failed: int = 0
    given_up: int = 0
    overtaken: int = 0
    sent: int = 0
    received: int = 0
    lost: int = 0
    """Not received, reported or not."""
    duplicated: int = 0
    reordered: int = 0
    foreign: int = 0
    replayed: int = 0
    """Dropped by subscribers, because they stood in two logs."""
    needless: int = 0
    """Those of them in trials in which nothing went wrong: a move that drains makes none."""
    stuck: int = 0
    """Trials in which something was still waiting a minute after the end."""
    seconds: float = 0.0
    """Virtual time."""
    faults: dict[str, int] = {}
    pauses_us: list[int] = []

    @property
    def ok(self) -> bool:
        """Nothing was lost, duplicated, out of order or sent twice for nothing; nothing hung."""
        return not (
            self.lost or self.duplicated or self.reordered or self.foreign or self.needless
            or self.stuck
        )  # fmt: skip

    def add(self, other: Result) -> None:
        """Count another one's figures in."""
        for name in self.__struct_fields__:
            mine, others = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                others = Counter(mine) + Counter(others)
                setattr(self, name, dict(others))
            else:
                setattr(self, name, mine + others)


class Trial:
    """Runs one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cluster = VirtualQueue(
            case.seed,
            case.limits,
            naive=case.naive,
            check_duplicates=case.check_duplicates,
            held_bytes_max=case.held_bytes_max,
        )

    def run(self) -> Result:
        """Run it to its end, and count."""
        case, cluster = self.case, self.cluster
        for number in range(1, case.exchanges + 1):
            cluster.add_exchange(number)
        for _ in range(case.subscribers):
            cluster.add_subscriber()
        users = [
            User(cluster.world, cluster.add_publisher(), case.profile, cluster.history)
            for _ in range(case.publishers)
        ]
        cluster.world.run(WARM_UP_SECONDS)
        faults = Faults(cluster, case.faults)
        began = cluster.world.now
        dispatcher = Dispatcher(cluster, case.moves_per_second, case.stripes)
        cluster.world.run_until(self._done, MINUTES_MOST)
        dispatcher.stop()
        for user in users:
            user.stop()
        cluster.world.run(LAST_FAULTS_SECONDS)
        faults.stop()
        settled = cluster.settle(SETTLE_SECONDS)
        return self._result(began, faults, settled=settled)

    def _done(self) -> bool:
        figures = self.cluster.monitor.figures
        return figures.accepted >= self.case.relocations

    def _result(self, began: float, faults: Faults, *, settled: bool) -> Result:
        figures, verdict = self.cluster.monitor.figures, self.cluster.verdict()
        replayed = sum(
            each.machine.resequencer.counts.duplicates for each in self.cluster.subscribers
        )
        return Result(
            trials=1,
            asked=figures.asked,
            accepted=figures.accepted,
            striped=figures.striped,
            failed=figures.failed,
            given_up=figures.given_up,
            overtaken=figures.overtaken,
            sent=verdict.sent,
            received=verdict.received,
            lost=verdict.lost + verdict.counted_lost,
            duplicated=verdict.duplicated,
            reordered=verdict.reordered,
            foreign=verdict.foreign,
            replayed=replayed,
            needless=replayed if self.case.faults == CALM else 0,
            stuck=not settled,
            seconds=self.cluster.world.now - began,
            faults=dict(faults.happened),
            pauses_us=figures.pauses_us,
        )
