"""What shell and machine say to each other is said, understood, kept and can be told again."""

from __future__ import annotations

from typing import get_args

import pytest
from gcm_script import CLUSTER, ME, OTHER, PaperHost, Script
from recorded import flights_of, recorded
from vocabulary import is_kept, kinds, unsaid

from roq.cli.replay import replay
from roq.errors import Interrupted, NotLeader, RegistryAway, RequestError
from roq.gcm import events
from roq.gcm.state.records import Snapshot, decode_snapshot
from roq.machine import Tick
from roq.protocol import documents
from roq.protocol.control import Done, HealthRequest
from roq.protocol.reports import Check
from roq.provider.port import ProvidedHost

NOTHING: Snapshot = decode_snapshot({})
HOST = ProvidedHost(name="n9", host="h9", handle="handle")
FRAME = documents.encode(HealthRequest(id=7))
EVENTS: list[events.Event] = [
    events.ClusterNamed(CLUSTER),
    events.ManagersChanged((ME, OTHER)),
    events.HostsPresent(frozenset({"h1"})),
    events.Elected(1, NOTHING),
    events.ClientFrame(("peer", 1), FRAME),
    events.ManagementFrame(b"peer", b"no document", b"u" * 16, 1e9, party="console"),
    events.Committed(99),
    events.CommitFailed(99, RegistryAway("away")),
    events.EpochDrawn(99, 5),
    events.Answered(99, Done(id=1)),
    events.Unanswered(99, "no answer"),
    events.Subscribed(),
    events.ListenerGone("tcp://127.0.0.1:9"),
    events.ProviderAnswered(99, HOST),
    events.ProviderAnswered(99, (HOST,)),
    events.ProviderAnswered(99, events.GivenUp(5.0)),
    events.ProviderAnswered(99, "no quota"),
    events.ProviderAnswered(99, None),
    events.Measured((Check(name="files", ok=True),)),
    events.EpochsDamaged("set it to 0"),
    events.RegistryLost(session_ended=True, problem="spoilt"),
    events.RegistryBack(NOTHING),
    events.Doubted(),
    events.Following(OTHER),
    events.Following(None),
    Tick(),
]


def test_every_word_is_an_event_or_an_effect() -> None:
    actions = get_args(events.ProviderAction)
    assert unsaid(events, events.Put, events.Drop, events.GivenUp, *actions) == []
    assert kinds(EVENTS) == set(get_args(events.Event))


def test_the_machine_takes_every_event_and_one_that_is_flown_again_takes_it_likewise() -> None:
    with recorded() as recorders:
        script = Script(PaperHost("h1"))
        for event in EVENTS:
            script.feed(event)
    (flight,) = flights_of(recorders)
    assert replay(flight) is None
    assert {each.event for each in flight[2]} == {each.__name__ for each in kinds(EVENTS)}


@pytest.mark.parametrize("kind", [RegistryAway, NotLeader, Interrupted, RequestError])
def test_why_a_change_does_not_stand_can_be_told_again(kind: type[RequestError]) -> None:
    with recorded() as recorders:
        script = Script(PaperHost("h1"))
        peer = script.send(2003, QName="orders", Host="h1")
        token = script.pending.popleft().token
        script.feed(events.CommitFailed(token, kind("for this reason")))
    assert "for this reason" in script.answer(peer)["COMMENT"]
    assert replay(flights_of(recorders)[0]) is None


def test_what_was_said_cannot_be_changed() -> None:
    effects = [
        events.Reply(1, b""), events.Commit(1, (events.Put("/p", b""), events.Drop("/p"))),
        events.Put("/p", b""), events.Drop("/p"), events.ReadAgain(), events.LeadAnew(1),
        events.DrawEpoch(1), events.AskHost(1, "e", Done(id=1), 1.0), events.HangUp("e"),
        events.Broadcast(()), events.PushRules("a", b""), events.ForgetListener("a"),
        events.CallProvider(1, events.ListHosts()), events.LogLine("e", "t"), events.ListHosts(),
        events.CreateHost("n", "q"), events.RemoveHost("n", "h"), events.GivenUp(1.0),
    ]  # fmt: skip
    assert kinds(effects) >= set(get_args(events.Effect))
    said = [each for each in (*EVENTS, *effects) if not isinstance(each, Tick)]
    assert [each for each in said if not is_kept(each)] == []


def test_a_registry_that_is_lost_may_be_back_in_time_and_a_line_is_nobodys_fault() -> None:
    lost = events.RegistryLost()
    assert (lost.session_ended, lost.problem) == (False, "")
    assert not events.LogLine("queue_changed", "queue orders created").provoked
    assert events.ManagementFrame(1, b"", b"", 0.0).party is None
