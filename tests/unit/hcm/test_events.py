"""What shell and machine say to each other is said, understood, kept and can be told again."""

from __future__ import annotations

from typing import get_args

import pytest
from hcm_host import HOST_EPOCH, QUEUE_ID, Host, peer_of
from recorded import flights_of, recorded
from vocabulary import is_kept, kinds, unsaid

from roq.cli.replay import replay
from roq.errors import Unavailable
from roq.hcm import events
from roq.hcm.cpu import CpuSample
from roq.machine import Tick
from roq.protocol.control import HealthRequest, HostReportAck
from roq.protocol.reports import Check

ASKED = (peer_of("gcm"), 4)


def every_event(host: Host) -> list[events.Event]:
    """One of each kind at least, about children that are there and such that are not."""
    host.running("orders.monitor")
    spec = host.processes.pop("orders.monitor").spec
    return [
        events.Requested(peer_of("gcm"), HealthRequest(id=1)),
        events.Probed(spec.child, spec.epoch, "R", 5),
        events.Exited(spec.child, spec.epoch, "ended by signal 9", "last words"),
        events.Spawned("nobody.x1", 3, 77),
        events.SpawnFailed("nobody.x1", 3, "no memory"),
        events.Erased(events.Erase("orders", QUEUE_ID, 1, asked=ASKED), found=True),
        events.LeaderAnswered(HostReportAck(cluster="c1")),
        events.LeaderAnswered(Unavailable("no answer")),
        events.LeaderLost("tcp://127.0.0.1:5000", "closed"),
        events.Measured((Check(name="files", ok=True),)),
        events.Pressed(CpuSample(late=0.1, waited_us=5, periods=3, throttled=1)),
        events.StopWanted(drain=True),
        Tick(),
        events.StopWanted(),
    ]


def test_every_word_is_an_event_or_an_effect() -> None:
    assert unsaid(events) == []
    first = {events.Registered, events.Rested, events.Adopted}  # of which `next_life` tells
    assert kinds(every_event(Host())) | first == set(get_args(events.Event))


def test_the_machine_takes_every_event_and_one_that_is_flown_again_takes_it_likewise() -> None:
    with recorded() as recorders:
        host = Host()
        host.running("orders.monitor")
        host.next_life()
        for event in every_event(host):
            host.handle(event)
    flights = flights_of(recorders)
    assert [replay(each) for each in flights] == [None] * 2
    taken = {record.event for _, _, records in flights for record in records}
    assert taken == {each.__name__ for each in get_args(events.Event)}


@pytest.mark.parametrize(
    ("status", "by_itself"),
    [
        ("exit code 0", True),
        ("exit code 70", True),
        ("ended by signal 11", True),  # a fault of the program
        ("ended by signal 6", True),
        ("ended by signal 7", True),
        ("ended by signal 4", True),
        ("ended by signal 8", True),
        ("ended by signal 9", False),  # somebody has sent it
        ("ended by signal 15", False),
        ("ended by signal 1", False),
    ],
)
def test_a_process_has_ended_by_itself_unless_somebody_has_sent_it_a_signal(
    status: str, *, by_itself: bool
) -> None:
    assert events.Exited("orders.x1", 1, status, "").by_itself is by_itself


def test_what_was_said_cannot_be_changed() -> None:
    host = Host()
    spec = host.start_monitor() and host.processes["orders.monitor"].spec
    effects = [
        events.Reply(peer_of("gcm"), HostReportAck(cluster="c1")), events.Spawn(spec),
        events.Remember("c", (1,)), events.RememberLeader(1), events.RememberEpoch(1),
        events.Probe("c", 1), events.Release("c"), events.Terminate("c"), events.Kill("c"),
        events.Discard("c", with_log=True), events.Forget("q"),
        events.Erase("q", QUEUE_ID, 1), events.ReportToLeader("e", host.reports[-1].report),
        events.Announce("c1"), events.Note("e", "t"), events.Finished(),
    ]  # fmt: skip
    assert kinds(effects) == set(get_args(events.Effect))
    said = [*every_event(Host()), *effects, events.Registered(HOST_EPOCH), events.Rested(())]
    said.append(events.Adopted(spec, 1))
    assert [each for each in said if not isinstance(each, Tick) and not is_kept(each)] == []


def test_what_is_not_said_is_the_harmless_one() -> None:
    host = Host()
    spec = host.start_monitor() and host.processes["orders.monitor"].spec
    assert not events.Spawn(spec).alone
    assert not events.Release("c").retire
    erase = events.Erase("q", QUEUE_ID, 1)
    assert (erase.empty, erase.asked) == (False, None)
    assert not events.StopWanted().drain
    rested = events.Rested((5,))
    assert (rested.leader_epoch, rested.epoch, rested.since) == (0, 0, 0)
    assert events.Adopted(spec, 1).ports == ()
    note = events.Note("e", "t")
    assert (note.warning, note.repeated) == (False, False)
