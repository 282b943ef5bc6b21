"""Which host takes a new exchange."""

import pytest

from roq.errors import HostNotFound, NoCapacity
from roq.policy.placement import HostLoad, choose, demand


def test_the_host_with_the_fewest_processes_is_chosen() -> None:
    hosts = [
        HostLoad("a", "live", exchanges=2),
        HostLoad("b", "live", exchanges=1),
        HostLoad("c", "live", exchanges=1, monitors=1),
    ]
    assert choose(hosts) == "b"


def test_then_processor_then_memory_then_name_decide() -> None:
    assert choose([HostLoad("a", "live", cpu_percent=50), HostLoad("b", "live")]) == "b"
    near = [
        HostLoad("a", "live", cpu_percent=4),
        HostLoad("b", "live", cpu_percent=1, memory_free_bytes=5),
    ]
    assert choose(near) == "b"
    assert choose([HostLoad("b", "live"), HostLoad("a", "live")]) == "a"


def test_hosts_that_are_full_or_not_heard_of_are_passed_over() -> None:
    hosts = [
        HostLoad("a", "silent"),
        HostLoad("b", "lost"),
        HostLoad("c", "live", exchanges=3, exchange_max=3),
        HostLoad("d", "live", exchanges=9, exchange_max=10),
    ]
    assert choose(hosts) == "d"
    with pytest.raises(NoCapacity) as refused:
        choose(hosts[:3])
    text = str(refused.value)
    assert "a is silent" in text
    assert "b is lost" in text
    assert "c is full (3 of 3 exchanges)" in text


def test_a_cluster_without_hosts_says_what_to_do() -> None:
    with pytest.raises(NoCapacity, match="roq host"):
        choose([])


def test_a_long_list_of_refusals_is_cut() -> None:
    with pytest.raises(NoCapacity, match="and 90 more"):
        choose([HostLoad(f"h{n:03d}", "lost") for n in range(100)])


def test_a_named_host_is_taken_or_refused_with_the_reason() -> None:
    hosts = [
        HostLoad("a", "live"),
        HostLoad("b", "silent"),
        HostLoad("c", "live", exchanges=1, exchange_max=1),
    ]
    assert demand(hosts, "a") == "a"
    with pytest.raises(HostNotFound, match="b is silent"):
        demand(hosts, "b")
    with pytest.raises(NoCapacity, match="1 of 1"):
        demand(hosts, "c")
    with pytest.raises(HostNotFound, match="not registered"):
        demand(hosts, "d")


def test_a_host_where_an_attempt_has_failed_is_taken_only_if_there_is_no_other() -> None:
    hosts = [HostLoad("a", "live"), HostLoad("b", "live", exchanges=9)]
    assert choose(hosts, avoid={"a"}) == "b"
    assert choose(hosts, avoid={"a", "b"}) == "a"
    assert choose(hosts[:1], avoid={"a"}) == "a"


def test_a_monitor_needs_no_slot() -> None:
    full = [HostLoad("a", "live", exchanges=1, exchange_max=1)]
    assert choose(full, slot=False) == "a"
    with pytest.raises(NoCapacity, match="no host can take a monitor: a is lost"):
        choose([HostLoad("a", "lost")], slot=False)
