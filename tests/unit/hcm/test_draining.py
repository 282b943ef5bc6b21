"""A host manager that is to end has what runs there go elsewhere first, if that can be."""

from hcm_host import HOST_EPOCH, Host

from roq.errors import Unavailable
from roq.hcm.events import LeaderLost, Note, Terminate
from roq.timing import LEADERLESS_SECONDS

X1 = "orders.x1"
MONITOR = "orders.monitor"


def draining() -> Host:
    """A host with two children that was told to drain."""
    host = Host(drain_seconds=60.0, stop_seconds=5.0)
    host.running(MONITOR, X1)
    host.advance(2)
    host.effects.clear()
    host.stop(drain=True)
    return host


def notes(host: Host) -> str:
    return "; ".join(each.text for each in host.effects if isinstance(each, Note))


def test_the_leader_is_told_at_once_and_nothing_is_stopped() -> None:
    host = draining()
    assert host.reports[-1].report.leaving
    assert host.reports[-1].report.epoch == HOST_EPOCH
    assert host.machine.health().state == "stopping"
    host.advance(10)
    assert not host.finished
    assert not any(isinstance(each, Terminate) for each in host.effects)
    host.crash(X1)
    host.advance(3)
    assert X1 in host.processes, "what crashes meanwhile is started again"


def test_it_ends_when_nothing_is_left() -> None:
    host = draining()
    host.stop_queue(number=1, reason="removed")
    host.end_asked()
    assert not host.finished
    host.stop_queue(number=0, reason="moved")
    host.end_asked()
    assert host.finished
    assert "nothing is left" in notes(host)


def test_it_stops_what_is_left_when_its_time_is_over() -> None:
    host = draining()
    host.advance(59)
    assert not any(isinstance(each, Terminate) for each in host.effects)
    host.advance(2)
    assert Terminate(X1) in host.effects
    assert "60 s are over" in notes(host)
    host.end_asked()
    assert host.finished


def test_it_stops_at_once_if_nobody_takes_what_is_there() -> None:
    host = draining()
    host.stuck = "no other host takes anything"
    host.advance(1.1)
    assert Terminate(X1) in host.effects
    assert "no other host takes anything" in notes(host)


def test_it_stops_soon_if_nobody_leads() -> None:
    host = draining()
    host.answers_leader = False
    host.advance(1.0)
    host.leader(Unavailable("no answer"))
    host.advance(LEADERLESS_SECONDS + 1)
    assert Terminate(X1) in host.effects


def test_it_stops_soon_if_the_leader_does_not_drain() -> None:
    """One of an earlier version, or without its registry."""
    host = draining()
    host.drains = False
    host.advance(LEADERLESS_SECONDS + 2)
    assert Terminate(X1) in host.effects


def test_a_change_of_the_leader_is_waited_for() -> None:
    host = draining()
    host.handle(LeaderLost(host.reports[-1].endpoint, "gone"))
    host.advance(20)
    assert not any(isinstance(each, Terminate) for each in host.effects)
    assert host.reports[-1].report.leaving


def test_asked_twice_it_stops_at_once() -> None:
    host = draining()
    host.stop()
    assert Terminate(X1) in host.effects
    again = draining()
    again.stop(drain=True)
    assert Terminate(X1) in again.effects


def test_it_does_not_wait_for_what_cannot_be() -> None:
    """No leader was ever found, nothing runs, or it is not to drain."""
    unheard = Host(drain_seconds=60.0)
    unheard.answers_leader = False
    unheard.running(X1)
    unheard.leader(Unavailable("no answer"))
    unheard.effects.clear()
    lone = Host(drain_seconds=60.0, registered=False)
    for host in (lone, Host(drain_seconds=60.0)):
        host.stop(drain=True)
        assert host.finished
    never = Host(drain_seconds=0.0)
    never.running(X1)
    never.effects.clear()
    never.stop(drain=True)
    assert Terminate(X1) in never.effects
