"""One trial: publishers are sent from exchange to exchange while they publish, and are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final, Self

from roq.model import Limits
from simulation.cluster import Cluster
from simulation.faults import FaultRates, Faults
from simulation.load import Profile, User

SETTLE_SECONDS: Final = 60.0
MINUTES_MOST: Final = 600.0
"""Virtual seconds after which a trial ends, however many relocations there were."""
WARM_UP_SECONDS: Final = 0.2

CALM: Final = FaultRates()
ROUGH: Final = FaultRates(
    publisher_cuts=0.5, subscriber_cuts=0.5, drops=0.3, lags=0.3, pauses=0.3, kills=0.1
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried.

    Attributes:
        seed: of all chance.
        relocations: ask for so many.
        exchanges, publishers, subscribers: how many there are.
        profile: what each publisher sends.
        limits: of the queue.
        moves_per_second: of all publishers together.
        stripes: the part of relocations that go to several exchanges.
        faults: what goes wrong meanwhile.
        naive, check_duplicates: see `Cluster`.
    """

    seed: int
    relocations: int
    exchanges: int
    publishers: int
    subscribers: int
    profile: Profile
    limits: Limits
    moves_per_second: float
    stripes: float = 0.0
    faults: FaultRates = CALM
    naive: bool = False
    check_duplicates: bool = True

    @classmethod
    def draw(
        cls,
        seed: int,
        relocations: int,
        *,
        faults: bool | None = None,
        naive: bool = False,
        check_duplicates: bool = True,
    ) -> Self:
        """A case by chance: sizes, rates and numbers all over the range.

        Args:
            faults: None: in every second case.
        """
        random = Random(seed)
        publishers = random.randint(1, 5)
        rough = bool(seed % 2) if faults is None else faults
        return cls(
            seed=seed,
            relocations=relocations,
            exchanges=random.randint(2, 5),
            publishers=publishers,
            subscribers=random.randint(1, 3),
            profile=Profile(
                rate=random.choice([20.0, 100.0, 400.0]) / publishers,
                messages=random.choice([(1, 1), (1, 5), (20, 50)]),
                size=random.choice([(0, 20), (50, 200), (10, 5_000)]),
                topics=random.choice([("a",), ("a", "b"), ("a", "b.1", "b.2", "c")]),
            ),
            limits=Limits(
                window_batches=random.choice([2, 8, 64]),
                window_bytes=random.choice([20_000, 1_000_000]),
            ),
            moves_per_second=random.choice([2.0, 8.0, 20.0]),
            stripes=0.0 if naive else random.choice([0.0, 0.3, 1.0]),
            faults=ROUGH if rough else CALM,
            naive=naive,
            check_duplicates=check_duplicates,
        )


@dataclass(slots=True)
class Result:
    """What came of one or more trials; messages are counted once for each subscriber."""

    trials: int = 0
    asked: int = 0
    accepted: int = 0
    striped: int = 0
    failed: int = 0
    given_up: int = 0
    overtaken: int = 0
    sent: int = 0
    received: int = 0
    lost: int = 0
    """Missing; `reported` are those of them that the subscriber has told of."""
    reported: int = 0
    duplicated: int = 0
    reordered: int = 0
    foreign: int = 0
    stuck: int = 0
    """Trials in which something was still waiting a minute after the end."""
    seconds: float = 0.0
    """Virtual time."""
    faults: Counter[str] = field(default_factory=Counter)
    pauses_us: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing was lost, duplicated or out of order, and nothing hung."""
        return not (self.lost or self.duplicated or self.reordered or self.foreign or self.stuck)

    def add(self, other: Result) -> None:
        """Count another one's figures in."""
        for name in (
            "trials", "asked", "accepted", "striped", "failed", "given_up", "overtaken", "sent",
            "received", "lost", "reported", "duplicated", "reordered", "foreign", "stuck",
            "seconds",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.pauses_us += other.pauses_us


class Trial:
    """Runs one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cluster = Cluster(
            case.seed, case.limits, naive=case.naive, check_duplicates=case.check_duplicates
        )
        self._moving = True

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
        self._plan()
        cluster.world.run_until(self._done, MINUTES_MOST)
        self._moving = False
        faults.stop()
        for user in users:
            user.stop()
        settled = cluster.settle(SETTLE_SECONDS)
        return self._result(began, faults, settled=settled)

    # --- relocations ------------------------------------------------------------------------------

    def _plan(self) -> None:
        wait = self.cluster.world.random.expovariate(self.case.moves_per_second)
        self.cluster.world.call_later(wait, self._relocate)

    def _relocate(self) -> None:
        if not self._moving:
            return
        cluster, random = self.cluster, self.cluster.world.random
        publisher = random.choice(cluster.publishers)
        serving = list(cluster.monitor.serving.values())
        here = cluster.monitor.where(publisher.id)
        if serving and not cluster.monitor.is_moving(publisher.id):
            wanted = random.randint(2, 4) if random.random() < self.case.stripes else 1
            targets = random.sample(serving, min(wanted, len(serving)))
            if tuple(target.key for target in targets) != here:
                cluster.monitor.relocate(publisher.id, targets)
        self._plan()

    def _done(self) -> bool:
        figures = self.cluster.monitor.figures
        return figures.accepted >= self.case.relocations

    def _result(self, began: float, faults: Faults, *, settled: bool) -> Result:
        figures, verdict = self.cluster.monitor.figures, self.cluster.verdict()
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
            reported=verdict.counted_lost,
            duplicated=verdict.duplicated,
            reordered=verdict.reordered,
            foreign=verdict.foreign,
            stuck=not settled,
            seconds=self.cluster.world.now - began,
            faults=faults.happened,
            pauses_us=figures.pauses_us,
        )
