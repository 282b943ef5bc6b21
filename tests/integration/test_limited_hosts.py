"""Hosts of a real network whose links are the bottleneck."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from roq.simulation.experiments import hosts
from roq.simulation.real.display import Silent
from roq.testing.namespaces import NetworkHost, missing, network

pytestmark = [pytest.mark.integration, pytest.mark.netns, pytest.mark.long]


@pytest.fixture
def pair() -> Iterator[list[NetworkHost]]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with network(2) as made:
        yield made


def test_a_link_is_limited_in_both_directions(pair: list[NetworkHost]) -> None:
    host, other = pair
    host.limit(inward=8, outward=4)
    assert "tbf" in host.run("tc", "qdisc", "show", "dev", "eth0")
    assert "rate 4Mbit" in host.run("tc", "qdisc", "show", "dev", "eth0")
    inward = host.run("tc", "-n", host.switch, "qdisc", "show", "dev", host.port)
    assert "rate 8Mbit" in inward
    assert "tbf" not in other.run("tc", "qdisc", "show", "dev", "eth0")


def test_a_thread_can_be_on_a_host_for_a_while(pair: list[NetworkHost]) -> None:
    def here(address: str) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                return False
        return True

    one, two = pair
    with one.entered():
        assert here(one.address)
        assert not here(two.address)
        with two.entered():
            assert here(two.address)
        assert here(one.address)
    assert not here(one.address)


def test_two_hosts_carry_more_than_one_does(pair: list[NetworkHost]) -> None:
    del pair  # shows that there can be hosts; the scenario makes its own
    outcome = hosts.run(hosts.Plan(hosts=2, megabits=8.0, warm_up=1.5, seconds=3.0), Silent())
    assert [run.exchanges for run in outcome.runs] == [1, 2]
    assert all(run.counts.ok for run in outcome.runs)
    # The shaper lets short bursts pass, and some seconds are measured only; without a limit it
    # would be ten times as much.
    assert outcome.runs[0].bytes_per_second < 1.5 * outcome.plan.link_bytes
    # How much more is measured by the program itself, on a machine that is quiet.
    assert outcome.runs[1].bytes_per_second > outcome.runs[0].bytes_per_second
