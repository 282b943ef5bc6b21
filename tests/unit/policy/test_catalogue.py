import pytest
from queue_views import at, queue

from roq.errors import ConfigError
from roq.model import ElasticRules
from roq.policy.catalogue import DEFAULT, POLICIES, Static, as_policy
from roq.policy.snapshot import Memory

VIEW = queue(at(1, (1, 2.0), (2, 2.0)), at(2), rules=ElasticRules(host_cpu_percent=1))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_decides(name: str) -> None:
    decisions, memory = POLICIES[name].decide(VIEW, Memory())
    assert isinstance(decisions, list)
    assert isinstance(memory, Memory)


def test_the_default_is_the_one_of_the_rules() -> None:
    assert ElasticRules().policy == DEFAULT
    assert DEFAULT in POLICIES


def test_static_decides_nothing_whatever_happens() -> None:
    memory = Memory({"kept": 1.0})
    assert Static().decide(VIEW, memory) == ([], memory)


def test_an_entry_point_is_a_policy_or_a_class_of_policies() -> None:
    policy = Static()
    assert as_policy(policy, "mine") is policy
    assert isinstance(as_policy(Static, "mine"), Static)


def test_anything_else_is_refused_with_a_reason() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

    with pytest.raises(ConfigError, match="decide"):
        as_policy(42, "mine")
    with pytest.raises(ConfigError, match="no disk"):
        as_policy(Broken, "mine")
