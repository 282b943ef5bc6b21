"""Hundreds of requests at once: few things are started at the same time, the others wait."""

import bson
import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.change import operations
from roq.gcm.change.admission import AT_ONCE, WAITING_MAX
from roq.protocol.control import StartExchange, StartMonitor
from roq.timing import ADMISSION_SECONDS, COMMAND_SECONDS, OPERATION_WAIT_SECONDS


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def begun(script: Script, host: str = "h1") -> int:
    """How many things are being written down or started there at the moment."""
    return len([
        each
        for each in script.pending
        if isinstance(each, events.Commit)
        or (isinstance(each.message, StartMonitor | StartExchange) and host in each.endpoint)
    ])  # fmt: skip


def create(script: Script, count: int, host: str = "h1") -> list[int]:
    return [script.send(2003, QName=f"{host}-{n}", Host=host) for n in range(count)]


def flood(script: Script, party: str, count: int, host: str = "h1") -> list[int]:
    """One who asks for so much at once, over as many connections."""
    return [
        script.send_raw(
            bson.encode({"CMD": 2003, "QName": f"{party}-{number}", "Host": host}), party=party
        )
        for number in range(count)
    ]


def codes(script: Script, peers: list[int]) -> list[str]:
    return [str(script.answer(peer).get("CODE", "")) for peer in peers if script.answers[peer]]


def test_of_hundreds_of_creations_a_few_are_under_way_and_all_succeed_in_their_order(
    script: Script,
) -> None:
    peers = create(script, AT_ONCE + WAITING_MAX)
    most = 0
    while script.pending:
        most = max(most, begun(script))
        script.step()
    assert most == AT_ONCE
    assert codes(script, peers) == [""] * len(peers)
    made = [name for name, _ in script.hosts["h1"].children]
    assert list(dict.fromkeys(made)) == [f"h1-{n}" for n in range(len(peers))]
    script.machine.check()


def test_what_does_not_fit_the_line_is_refused_at_once_and_nothing_of_it_is_begun(
    script: Script,
) -> None:
    peers = create(script, AT_ONCE + WAITING_MAX + 3)
    assert codes(script, peers) == ["busy"] * 3
    assert "h1 is busy" in script.answer(peers[-1])["COMMENT"]
    script.settle()
    assert codes(script, peers).count("busy") == 3
    assert f"/queues/h1-{AT_ONCE + WAITING_MAX}" not in script.registry
    assert script.machine.queues.reserved == {}
    assert script.ask(2003, QName="again", Host="h1")["RESULT"] == 0


def test_one_who_floods_a_host_leaves_room_for_others_and_does_not_delay_them(
    script: Script,
) -> None:
    flooding = flood(script, "a", AT_ONCE + 3 * WAITING_MAX)
    assert codes(script, flooding).count("busy") == 3 * WAITING_MAX - WAITING_MAX // 2
    script.answers.clear()
    other = script.send(2003, QName="other", Host="h1")
    while not script.answers[other]:
        script.step()
    assert script.answer(other)["RESULT"] == 0
    assert len(script.answers) - 1 <= 2 * AT_ONCE, "those that were inside, and one in its turn"
    script.settle()
    assert script.machine.operations.queues == frozenset()


def test_one_who_floods_a_queue_leaves_room_for_others(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    one = [
        script.send_raw(bson.encode({"CMD": 2002, "QName": "q"}), party="a")
        for _ in range(3 * operations.WAITING_MAX)
    ]
    other = script.send(2005, QName="q")
    assert codes(script, one).count("busy") == len(one) - 1 - operations.WAITING_MAX // 2
    assert script.answers[other] == []
    script.settle()
    assert script.answer(other)["RESULT"] == 0


def test_one_who_floods_all_queues_leaves_room_for_others(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "OPERATIONS_MAX", 20)
    flooding = flood(script, "a", 30)
    assert codes(script, flooding).count("busy") == 20
    assert "10 of them yours" in script.answer(flooding[-1])["COMMENT"]
    assert script.ask(2003, QName="other", Host="h2")["RESULT"] == 0


def test_who_waits_for_too_long_is_refused_and_those_inside_go_on(script: Script) -> None:
    peers = create(script, AT_ONCE + 2)
    for _ in range(AT_ONCE):
        script.step()  # written down; their monitors do not start yet
    script.pass_time(ADMISSION_SECONDS - 10)
    assert codes(script, peers) == []
    for _ in range(8):
        script.report(script.hosts["h1"])
        script.pass_time(1.0)
    script.pass_time(2.5)
    assert [script.answer(peer)["CODE"] for peer in peers[AT_ONCE:]] == ["busy"] * 2
    assert script.machine.queues.get(f"h1-{AT_ONCE}") is None


def test_another_host_is_not_waited_for(script: Script) -> None:
    create(script, AT_ONCE + 5)
    script.pending.clear()
    assert script.ask(2003, QName="elsewhere", Host="h2")["RESULT"] == 0


def test_a_place_is_free_again_whatever_becomes_of_those_who_had_it(script: Script) -> None:
    host = script.hosts["h1"]
    host.refuse.add(StartMonitor)
    assert set(codes(script, _settled(script, AT_ONCE + 3))) == {"no_capacity"}
    host.refuse.clear()
    host.mute.add(StartExchange)
    assert set(codes(script, _settled(script, AT_ONCE + 3))) == {"failed"}
    host.mute.clear()
    assert set(codes(script, _settled(script, AT_ONCE + 3))) == {""}


def _settled(script: Script, count: int) -> list[int]:
    peers = create(script, count)
    script.settle()
    return peers


def test_a_leader_that_resigns_answers_those_who_wait_and_the_next_one_begins_anew(
    script: Script,
) -> None:
    peers = create(script, AT_ONCE + 5)
    script.feed(events.Following(OTHER))
    assert codes(script, peers) == ["not_leader"] * len(peers)
    script.pending.clear()
    script.elect()
    for host in script.hosts.values():
        script.report(host)
    assert set(codes(script, _settled(script, AT_ONCE + 5))) == {""}


def test_who_waits_for_a_host_that_is_lost_is_told_so(script: Script) -> None:
    peers = create(script, AT_ONCE + 2)
    script.vanish("h1")
    script.expire_node("h1")
    for _ in range(10):
        script.report(script.hosts["h2"])
        script.pass_time(1.0)
    assert [script.answer(peer)["CODE"] for peer in peers[AT_ONCE:]] == ["host_not_found"] * 2


def test_exchanges_that_are_added_wait_as_well(script: Script) -> None:
    script.ask(2003, QName="q", Host="h2")
    create(script, AT_ONCE)
    peer = script.send(2004, QName="q", Host="h1", TransactionID="t")
    assert script.answers[peer] == []
    assert begun(script) == AT_ONCE
    script.settle()
    assert script.answer(peer)["Number"] == 2


def test_what_is_healed_does_not_wait_behind_creations(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.hosts["h1"].children.clear()
    create(script, AT_ONCE + 5)
    script.pending.clear()
    for _ in range(6):
        for host in script.hosts.values():
            script.report(host)
        script.pass_time(0.5)
    asked = [each.message for each in script.pending if isinstance(each, events.AskHost)]
    assert [each.queue for each in asked if isinstance(each, StartMonitor)] == ["q"]


def test_what_is_healed_does_not_wait_behind_a_request_for_the_same_queue_that_waits_for_a_host(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    create(script, WAITING_MAX, "h2")
    peer = script.send(2004, QName="q", Host="h2", TransactionID="t")
    script.hosts["h1"].children.clear()
    for _ in range(6):
        for host in script.hosts.values():
            script.report(host)
        script.pass_time(0.5)
    while (started := _started(script, "q")) is None:
        script.step()
    assert started.restarted
    assert script.answers[peer] == []
    script.settle()
    assert set(script.hosts["h1"].children) == {("q", 0), ("q", 1)}
    assert script.answer(peer)["Number"] == 2
    assert script.machine.queues.reserved == {}


def _started(script: Script, queue: str) -> StartMonitor | None:
    """The order to start the monitor of this queue, if it is under way."""
    asked = [each.message for each in script.pending if isinstance(each, events.AskHost)]
    return next(
        (each for each in asked if isinstance(each, StartMonitor) and each.queue == queue), None
    )


def test_who_has_waited_for_its_queue_waits_for_its_host_no_longer_than_clients_do(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h1", TransactionID="a")
    slow = script.send(2100, QName="q", Exchange="x2")  # its monitor says nothing for 16 s
    script.pending.clear()
    began = script.now
    late = script.send(2004, QName="q", Host="h2", TransactionID="b")
    while not script.answers[late] and script.now < began + 60.0:
        for host in script.hosts.values():
            script.report(host)
        script.pass_time(0.5)
        if script.now == began + 10.0:
            create(script, WAITING_MAX, "h2")
    assert script.answers[slow]
    assert script.answer(late)["CODE"] == "busy"
    assert script.now - began <= OPERATION_WAIT_SECONDS + 0.5 < COMMAND_SECONDS
