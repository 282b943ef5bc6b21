"""What a trial is to be like: sizes, rates, numbers, faults; drawn by chance from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Self

from roq.model import Limits
from roq.simulation.virtual.load import Profile
from roq.simulation.virtual.queue_faults import FaultRates

CALM: Final = FaultRates()
ROUGH: Final = FaultRates(
    cuts=1.0, stalls=1.0, deaf=0.3, drops=0.5, lags=0.3, pauses=0.3, kills=0.15
)


RATE_BYTES: Final = 2_000_000
"""Per second and publisher, at most."""


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
        naive, check_duplicates, held_bytes_max: see `Cluster`.
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
    held_bytes_max: int | None = None

    @property
    def kind(self) -> str:
        """Of which kind it is, for tables."""
        moves = "moves" if self.stripes == 0.0 else "moves and stripes"
        return moves if self.faults == CALM else f"{moves}, with faults"

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
        messages = random.choice([(1, 1), (1, 5), (20, 50)])
        size = random.choice([(0, 20), (50, 200), (10, 5_000)])
        largest = messages[1] * size[1]
        # What publishers keep for replays has a bound in bytes: it must last for some seconds.
        rate = min(random.choice([20.0, 100.0, 400.0]) / publishers, RATE_BYTES / (largest + 1))
        return cls(
            seed=seed,
            relocations=relocations,
            exchanges=random.randint(2, 5),
            publishers=publishers,
            subscribers=random.randint(1, 3),
            profile=Profile(
                rate=rate,
                messages=messages,
                size=size,
                topics=random.choice([("a",), ("a", "b"), ("a", "b.1", "b.2", "c")]),
            ),
            limits=Limits(
                window_batches=random.choice([2, 8, 64]),
                window_bytes=random.choice([20_000, 1_000_000]),
            ),
            moves_per_second=random.choice([2.0, 8.0, 20.0]),
            stripes=0.0 if naive else random.choice([0.0, 0.3, 1.0]),
            faults=ROUGH if rough else CALM,
            held_bytes_max=random.choice([None, 200 * (largest + 300) if rough else 20_000]),
            naive=naive,
            check_duplicates=check_duplicates,
        )
