"""By which rules a queue grows, shrinks and moves its publishers: asked for, and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from roq.errors import ConfigError, InvalidRequest, QueueNotFound, RoQError, StaleEpoch, Unavailable
from roq.model import ElasticRules, Limits
from roq.monitor.events import Ask, Confirmed, Disowned, Effect, Note
from roq.policy.catalogue import DEFAULT, POLICIES
from roq.policy.snapshot import HostView, Memory, Policy
from roq.protocol.control import Answer, Elasticity, ElasticityRequest, Failure, GcmRequest
from roq.protocol.defined_services import DefinedServices, checked_services
from roq.protocol.scaling_rules import HOLD_SECONDS_MAX, SLOW
from roq.timing import IDLE_FACTOR, RULES_SECONDS

STALE: Final = StaleEpoch.code
GONE: Final = QueueNotFound.code
NOTED_REFUSALS: Final = 5
"""So many in a row are worth a line: a queue that is just being created is refused at first."""
NUMBER_MAX: Final = 1 << 53
HOSTS_MAX: Final = 1_024
SCALED_MAX: Final = 4_096
NAME_MAX: Final = 128
REASON_MAX: Final = 300

PolicyNamed = Callable[[str], Policy]
"""Gives the policy of a name; raises a RoQError if there is none that can be used."""


class Rules:
    """The rules in force, and the policy that they name.

    Args:
        request: the question, without the exchanges.
        limits: of the queue.
        policy_named: finds policies.
        heard: gives (number, epoch) of the exchanges that were heard of lately.
        idle: says whether the queue serves nobody.
        ask: makes questions.
        now: the present time.

    Attributes:
        known: the configuration manager has told them; before, nothing may be decided by them.
        policy: None if there is none to be had.
        memory: what the policy wanted to remember.
        scaled: numbers of the exchanges that scaling has made.
        wanted: numbers of the exchanges that the queue has, serving at the moment or not.
        logs: the same if the queue is durable, and those whose hosts are lost with their logs.
        services: what the definition of the queue says of its services; None: not known yet.
        unwanted: numbers of exchanges that report here, and that the queue does not have.
        hosts: where the queue has exchanges, and how busy these are.
        superseded: why the configuration manager wants this monitor no more; empty if it does.
        trouble: why it does not tell the rules; empty if it does.
        replaced: why RoQ's own policy decides in the place of the one that is wanted; empty if it
            does not.
    """

    def __init__(
        self,
        request: ElasticityRequest,
        limits: Limits,
        policy_named: PolicyNamed,
        heard: Callable[[float], list[tuple[int, int]]],
        idle: Callable[[], bool],
        ask: Callable[[GcmRequest, float], Ask],
        now: float,
    ) -> None:
        self.known = False
        self.superseded = ""
        self.policy: Policy | None = None
        self.memory = Memory()
        self.scaled: frozenset[int] = frozenset()
        self.wanted: frozenset[int] = frozenset()
        self.logs: frozenset[int] = frozenset()
        self.services: DefinedServices | None = None
        self.unwanted: frozenset[int] = frozenset()
        self.hosts: tuple[HostView, ...] = ()
        self.in_force = ElasticRules()
        self._request = request
        self._limits = limits
        self._policy_named = policy_named
        self._heard = heard
        self._idle = idle
        self._ask = ask
        self._named: str | None = None
        self._serial = 0
        self._refusals = 0
        self.trouble = ""
        self.replaced = ""
        self._ask_at = now

    @property
    def limit(self) -> float:
        """L, payload bytes per minute that one exchange may take."""
        return float(max(1, self.in_force.exchange_bytes or self._limits.throughput_bytes))

    @property
    def hold(self) -> int | None:
        """For how many seconds publishers wait for a slow subscriber; None: not known yet."""
        return self.in_force.hold if self.known else None

    def changed(self, now: float) -> None:
        """The leader says that they have changed: ask now."""
        self._ask_at = now
        self._serial = 0

    def answered(self, serial: int, answer: Answer | Unavailable) -> list[Effect]:
        """Take in what the configuration manager says; what it gets wrong changes nothing."""
        if not serial or serial != self._serial:
            return []
        self._serial = 0
        match answer:
            case Elasticity() if answer.queue_id == self._request.queue_id:
                problem = problem_of(answer)
                taken = self._refused(problem) if problem else self._take(answer)
                return [Confirmed(), *taken]
            case Failure(CODE=code) if code == STALE:
                self.superseded = answer.COMMENT[:REASON_MAX] or "there is a newer one"
                return []
            case Failure():
                gone: list[Effect] = [Disowned()] if answer.CODE == GONE else []
                return gone + self._refused(answer.COMMENT)
            case Unavailable():
                return self._refused(str(answer))
            case _:
                return self._refused(f"{type(answer).__name__} is no answer to this question")

    def time_passed(self, now: float) -> list[Effect]:
        """Ask when it is time."""
        if now < self._ask_at:
            return []
        idle = self.known and not self.trouble and self._idle()
        pause = RULES_SECONDS * (IDLE_FACTOR if idle else 1)
        self._ask_at = max(self._ask_at + pause, now + pause / 2)
        request = msgspec.structs.replace(self._request, exchanges=self._heard(now), idle=idle)
        ask = self._ask(request, RULES_SECONDS)
        self._serial = ask.serial
        return [ask]

    def next_deadline(self) -> float:
        """When it is time to ask."""
        return self._ask_at

    def _refused(self, reason: str) -> list[Effect]:
        """Nothing changes."""
        self._refusals += 1
        self.trouble = reason[:REASON_MAX] or "it does not say why"
        text = f"no rules from the configuration manager: {self.trouble}"
        return [Note("no_rules", text, warning=True)] if self._refusals == NOTED_REFUSALS else []

    def _take(self, answer: Elasticity) -> list[Effect]:
        self.known = True
        self.trouble = ""
        self._refusals = 0
        self.in_force = answer.rules
        self.services = answer.services
        self.scaled = frozenset(answer.scaled[:SCALED_MAX])
        self.wanted = frozenset(answer.exchanges[:SCALED_MAX])
        self.logs = frozenset(answer.logs[:SCALED_MAX])
        self.unwanted = frozenset(answer.unwanted[:SCALED_MAX])
        self.hosts = tuple(
            HostView(each.host, max(0.0, each.cpu_percent), max(0, each.memory_used_bytes))
            for each in answer.hosts[:HOSTS_MAX]
            if each.live
        )
        name = answer.rules.policy
        return [] if name == self._named else self._choose(name)

    def _choose(self, name: str) -> list[Effect]:
        """Another policy, with nothing to remember; RoQ's own if that one is not to be had."""
        before, self._named = self._named, name
        self.memory = Memory()
        self.replaced = ""
        try:
            self.policy = self._policy_named(name[:NAME_MAX])
        except RoQError as error:
            self.replaced = f"{error}; policy {DEFAULT} is used"
            return [*self._fall_back(), Note("unknown_policy", self.replaced, warning=True)]
        return [] if before is None else [Note("policy", f"decides by policy {name} now")]

    def _fall_back(self) -> list[Effect]:
        try:
            self.policy = self._policy_named(DEFAULT)
        except RoQError as error:
            self.policy = None
            return [Note("no_policy", str(error), warning=True)]
        return []


def own_policy(name: str) -> Policy:
    """One of RoQ's own policies.

    Raises:
        ConfigError: it has none of this name.
    """
    policy = POLICIES.get(name)
    if policy is None:
        raise ConfigError(f"there is no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    return policy


def problem_of(answer: Elasticity) -> str:
    """What is wrong with rules that came over a wire; empty if nothing is."""
    rules = answer.rules
    for name, value in msgspec.structs.asdict(rules).items():
        if isinstance(value, int) and not 0 <= value <= NUMBER_MAX:
            return f"{name} is {value}"
    if rules.slow_subscriber not in SLOW or rules.hold_seconds > HOLD_SECONDS_MAX:
        return f"a slow subscriber is to {rules.slow_subscriber} for {rules.hold_seconds} s"
    try:
        checked_services(answer.services)
    except InvalidRequest as error:
        return str(error)
    return ""
