"""A link that is cut: no packet says so, and the system itself tries less and less often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from waiting import eventually
from watched import Scene

from roq.testing.faults import parse_endpoint
from roq.testing.namespaces import NetworkHost, missing, network

pytestmark = [pytest.mark.integration, pytest.mark.netns, pytest.mark.faults, pytest.mark.long]

NOTICED_SECONDS = 15.0
"""Without help a connection over which a question is under way stands for a quarter of an hour."""


@pytest.fixture
def host() -> Iterator[NetworkHost]:
    """One with a loopback of its own, on which this test runs."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with network(1) as (made,), made.entered():
        yield made


def test_a_subscriber_notices_the_cut_and_loses_nothing(host: NetworkHost) -> None:
    scene = Scene()
    try:
        publisher, subscriber = scene.publisher(), scene.subscriber()
        publisher.publish(b"before").wait(30)
        message = subscriber.receive(30)
        assert message is not None
        info = scene.info(1)
        ports = [parse_endpoint(address)[1] for address in (info.data, info.live)]
        with cut(host, *ports):
            eventually(
                lambda: "there is no connection" in subscriber.trouble,
                scene.told,
                seconds=NOTICED_SECONDS,
            )
            publisher.publish(b"meanwhile")
        publisher.publish(b"after").wait(30)
        got = [subscriber.receive(30) for _ in range(2)]
        assert [each and each.payload for each in got] == [b"meanwhile", b"after"]
    finally:
        scene.close()


@contextmanager
def cut(host: NetworkHost, *ports: int) -> Iterator[None]:
    """Drop everything from and to these ports of its loopback."""
    with ExitStack() as stack:
        for port in ports:
            for way in ("--sport", "--dport"):
                rule = ("INPUT", "-i", "lo", "-p", "tcp", way, str(port), "-j", "DROP")
                host.run("iptables", "-w", "5", "-I", *rule)
                stack.callback(host.run, "iptables", "-w", "5", "-D", *rule)
        yield
