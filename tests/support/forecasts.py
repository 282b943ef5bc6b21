"""Cases for the model of whole clusters. No test in here."""

from __future__ import annotations

from roq.simulation.forecast.case import Case
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.scenario.rates import Rate
from roq.simulation.scenario.scenario import (
    Fault,
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
)

LIMIT = 6_000_000
"""Of one exchange, bytes per minute."""
SIZE = 1_000


def rate_of(share: float, publishers: int) -> float:
    """Messages a second of each, if all together bring so many limits."""
    return share * LIMIT / 60 / SIZE / publishers


def scenario(
    *rates: Rate,
    seconds: float = 60.0,
    publishers: int = 12,
    exchanges: int = 1,
    hosts: int = 4,
    faults: tuple[Fault, ...] = (),
    **rules: int | str,
) -> Scenario:
    """One phase for each rate."""
    phases = [
        Phase(
            name=f"phase-{number}",
            seconds=seconds,
            publishers=[PublisherGroup(count=publishers, rate=rate, size=SIZE)],
            subscribers=[SubscriberGroup(count=2)],
        )
        for number, rate in enumerate(rates)
    ]
    given = {"exchange_bytes_per_minute": LIMIT, "exchanges_max": 4, "cooldown_seconds": 2}
    return Scenario(
        name="test",
        title="a test",
        queue=QueueSettings(exchanges=exchanges, rules={**given, **rules}),
        hosts=hosts,
        phases=phases,
        faults=list(faults),
    )


def case(played: Scenario, seed: int = 1, queues: int = 1, **parameters: float) -> Case:
    """A run of it."""
    return Case(
        scenario=played,
        seed=seed,
        queues=queues,
        parameters=Parameters(**{"step_seconds": 5.0, **parameters}),  # type: ignore[arg-type]
    )
