"""Rules are asked for, and what makes no sense changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from roq.errors import ConfigError, Unavailable
from roq.model import ElasticRules, Limits
from roq.monitor.events import Ask, Confirmed, Disowned, Effect, Note
from roq.monitor.scaling_rules import GONE, NOTED_REFUSALS, STALE, Rules, own_policy, problem_of
from roq.policy.catalogue import DEFAULT, POLICIES
from roq.policy.snapshot import Memory
from roq.protocol.control import Elasticity, ElasticityRequest, Failure, GcmRequest, HostUse
from roq.protocol.scaling_rules import HOLD_SECONDS_MAX
from roq.timing import IDLE_FACTOR, RULES_SECONDS

QUEUE = b"q" * 16


class Asking:
    """A monitor's rules, the time, and the questions that it has asked."""

    def __init__(self) -> None:
        self.idle = False
        self.asked: list[GcmRequest] = []
        self.rules = Rules(
            ElasticityRequest(queue="q", queue_id=QUEUE), Limits(throughput_bytes=1_000),
            own_policy, heard=lambda _: [(1, 7)], idle=lambda: self.idle, ask=self._ask, now=0.0,
        )  # fmt: skip

    def _ask(self, request: GcmRequest, timeout: float) -> Ask:
        self.asked.append(request)
        return Ask(len(self.asked), request, timeout)

    def answered(self, answer: Any) -> list[Effect]:
        """What comes of an answer to a question that is asked now."""
        self.rules.changed(0.0)
        self.rules.time_passed(0.0)
        return self.rules.answered(len(self.asked), answer)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def elasticity(**given: Any) -> Elasticity:
    return Elasticity(**{"queue_id": QUEUE, "rules": ElasticRules(), **given})


def test_they_are_asked_for_every_second_and_half_as_often_while_the_queue_is_idle(
    asking: Asking,
) -> None:
    rules = asking.rules
    assert len(rules.time_passed(0.0)) == 1
    assert rules.time_passed(RULES_SECONDS - 0.01) == []
    rules.answered(1, elasticity())
    asking.idle = True
    rules.time_passed(RULES_SECONDS)
    assert rules.next_deadline() == RULES_SECONDS * (1 + IDLE_FACTOR)
    request = asking.asked[-1]
    assert isinstance(request, ElasticityRequest)
    assert (request.exchanges, request.idle) == ([(1, 7)], True)


def test_a_queue_is_not_idle_as_long_as_its_rules_are_not_known(asking: Asking) -> None:
    asking.idle = True
    asking.rules.time_passed(0.0)
    assert asking.rules.next_deadline() == RULES_SECONDS


def test_what_is_told_is_in_force_with_the_policy_that_it_names(asking: Asking) -> None:
    rules = asking.rules
    assert (rules.known, rules.hold, rules.limit) == (False, None, 1_000.0)
    told = elasticity(
        rules=ElasticRules(policy="static", exchange_bytes=500), exchanges=[1, 2], scaled=[2],
        hosts=[HostUse(host="h1", live=True, cpu_percent=5.0, memory_used_bytes=7),
               HostUse(host="h2", live=False, cpu_percent=5.0, memory_used_bytes=7)],
    )  # fmt: skip
    assert asking.answered(told) == [Confirmed()]
    assert (rules.known, rules.policy, rules.limit) == (True, POLICIES["static"], 500.0)
    assert (rules.wanted, rules.scaled) == ({1, 2}, {2})
    assert [each.host for each in rules.hosts] == ["h1"]


def test_another_policy_has_nothing_to_remember_and_an_unknown_one_is_replaced(
    asking: Asking,
) -> None:
    rules = asking.rules
    asking.answered(elasticity())
    remembered = rules.memory = Memory()
    asking.answered(elasticity())
    assert rules.memory is remembered
    confirmed, note = asking.answered(elasticity(rules=ElasticRules(policy="static")))
    assert isinstance(note, Note)
    assert (confirmed, note.event) == (Confirmed(), "policy")
    assert rules.memory is not remembered
    asking.answered(elasticity(rules=ElasticRules(policy="nobody's")))
    assert rules.policy is POLICIES[DEFAULT]
    assert rules.replaced.endswith(f"policy {DEFAULT} is used")


def test_a_late_answer_and_one_of_another_queue_change_nothing(asking: Asking) -> None:
    rules = asking.rules
    rules.time_passed(0.0)
    rules.changed(0.5)
    assert rules.answered(1, elasticity()) == []
    asking.answered(elasticity(queue_id=b"other"))
    assert (rules.known, rules.trouble) == (
        False, "Elasticity is no answer to this question"
    )  # fmt: skip


def test_rules_that_make_no_sense_leave_those_that_are_in_force(asking: Asking) -> None:
    asking.answered(elasticity(rules=ElasticRules(exchange_bytes=500)))
    asking.answered(elasticity(rules=ElasticRules(exchange_bytes=-1)))
    assert asking.rules.limit == 500.0
    assert asking.rules.trouble == "exchange_bytes is -1"


def test_a_refusal_is_noted_when_it_has_come_some_times(asking: Asking) -> None:
    noted = [asking.answered(Unavailable("it is away")) for _ in range(NOTED_REFUSALS + 1)]
    assert [len(each) for each in noted] == [0] * (NOTED_REFUSALS - 1) + [1, 0]
    asking.answered(elasticity())
    assert asking.rules.trouble == ""


def test_who_is_superseded_or_disowned_is_told_so(asking: Asking) -> None:
    assert asking.answered(Failure(RESULT=1, CODE=GONE, COMMENT="no such queue")) == [Disowned()]
    assert asking.answered(Failure(RESULT=1, CODE=STALE, COMMENT="epoch 9")) == []
    assert asking.rules.superseded == "epoch 9"


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (ElasticRules(), ""),
        (ElasticRules(slow_subscriber="shout"), "a slow subscriber is to shout"),
        (ElasticRules(hold_seconds=HOLD_SECONDS_MAX + 1), "a slow subscriber is to"),
        (ElasticRules(exchange_bytes=1 << 60), "exchange_bytes is"),
    ],
)
def test_what_is_wrong_with_rules_is_named(rules: ElasticRules, problem: str) -> None:
    found = problem_of(elasticity(rules=rules))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_only_policies_that_there_are_can_be_had() -> None:
    assert own_policy("spread") is POLICIES["spread"]
    with pytest.raises(ConfigError, match=r"no policy 'x'; there are balanced, "):
        own_policy("x")
