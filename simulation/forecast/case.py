"""One run: a scenario on so many hosts and queues, a seed, and what differs from the defaults."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.client.admin.views import ScalingRules
from roq.errors import ConfigError
from roq.model import ElasticRules, Limits
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.lab.archive.document import WINDOWS_MAX
from roq.simulation.scenario.scenario import Scenario

RULES: Final = {
    "policy": "policy",
    "exchange_bytes_per_minute": "exchange_bytes",
    "host_cpu_percent": "host_cpu_percent",
    "host_memory_mb": "host_memory_mb",
    "queue_bytes_per_minute_per_exchange": "queue_bytes_per_exchange",
    "queue_publishers_per_exchange": "queue_publishers_per_exchange",
    "latency_ms": "latency_ms",
    "exchanges_min": "exchanges_min",
    "exchanges_max": "exchanges_max",
    "cooldown_seconds": "cooldown_seconds",
}
"""Names in scenarios (`roq rules set`) → names in a monitor."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run; the same case always has the same outcome.

    Attributes:
        scenario: the load, which is dealt to the queues; rules and limits of each of them.
        hosts: 0: as many as the scenario says.
        queues: how many share the load.
        seed: of everything that is drawn.
        rules: in the place of the scenario's, by the same names.
        parameters: what is assumed.
        thresholds: in the place of the policies' own, by `module.NAME` in `roq.policy`.
        cells: parts of the cluster, each with its share of hosts and queues.
        eager: policies are asked in each period, whether anything has changed or not.
        windows: into so many windows the run is divided for its archive; 0: none are kept.
    """

    scenario: Scenario
    hosts: Annotated[int, Meta(ge=0, le=100_000)] = 0
    queues: Annotated[int, Meta(ge=1, le=100_000)] = 1
    seed: int = 1
    rules: dict[str, int | str] = {}
    parameters: Parameters = Parameters()
    thresholds: dict[str, float] = {}
    cells: Annotated[int, Meta(ge=1, le=100_000)] = 1
    eager: bool = False
    windows: Annotated[int, Meta(ge=0, le=WINDOWS_MAX)] = 0

    def __post_init__(self) -> None:
        if self.cells > min(self.hosts_wanted, self.queues):
            raise ValueError(
                f"{self.cells} cells are too many for {self.hosts_wanted} hosts and "
                f"{self.queues} queues: each has one of both at least"
            )
        self.elastic_rules()

    @property
    def hosts_wanted(self) -> int:
        """How many hosts there are."""
        return self.hosts or self.scenario.hosts

    @property
    def rules_given(self) -> dict[str, int | str]:
        """Rules that are not RoQ's own, by the names of scenarios."""
        return {**self.scenario.queue.rules, **self.rules}

    def as_played(self) -> Scenario:
        """The scenario with the hosts and the rules of this run, for later readers.

        Raises:
            ConfigError: no scenario can be of this size, so the run could not be read again.
        """
        queue = msgspec.structs.replace(self.scenario.queue, rules=self.rules_given)
        played = msgspec.structs.replace(self.scenario, hosts=self.hosts_wanted, queue=queue)
        try:
            return msgspec.convert(msgspec.to_builtins(played), Scenario)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"scenario {self.scenario.name} cannot be played so: {error}"
            ) from None

    @property
    def limits(self) -> Limits:
        """Of each queue."""
        try:
            return msgspec.convert(self.scenario.queue.limits, Limits)
        except msgspec.ValidationError as error:
            raise ConfigError(f"limits of scenario {self.scenario.name}: {error}") from None

    def elastic_rules(self) -> ElasticRules:
        """The rules of each queue, as its monitor has them.

        Raises:
            ConfigError: there is no such rule, or it has no such value.
        """
        given = self.rules_given
        unknown = sorted(given.keys() - RULES.keys())
        if unknown:
            names = ", ".join(RULES)
            raise ConfigError(f"there is no rule {unknown[0]!r}; there are {names}")
        try:
            msgspec.convert({"name": "model", **given}, ScalingRules)
            rules = msgspec.convert({RULES[name]: each for name, each in given.items()},
                                    ElasticRules)  # fmt: skip
        except msgspec.ValidationError as error:
            raise ConfigError(f"rules of scenario {self.scenario.name}: {error}") from None
        if "exchanges_max" in given:
            return rules
        return msgspec.structs.replace(rules, exchanges_max=self.limits.exchanges_max)

    def limit(self) -> float:
        """L, payload bytes per minute that one exchange may take."""
        return float(max(1, self.elastic_rules().exchange_bytes or self.limits.throughput_bytes))
