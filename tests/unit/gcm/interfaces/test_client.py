"""What clients and monitors ask the configuration manager, and how they are refused."""

import msgspec
import pytest
from gcm_repair import lose
from gcm_scaling import answer_of, ask, heard, less, numbers, out, rule, send
from gcm_script import CLUSTER, ME, OTHER, PaperHost, Script

from roq.gcm import events
from roq.protocol import documents
from roq.protocol.control import (
    ClusterInfo,
    ClusterInfoRequest,
    Done,
    Elasticity,
    ElasticityRequest,
    Failure,
    Health,
    HealthRequest,
    Located,
    LocateRequest,
    ScaledOut,
)


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


@pytest.fixture
def with_queue(script: Script) -> None:
    """A queue `q`, whose monitor and x1 are on h1."""
    script.ask(2003, QName="q", Host="h1")


def control(script: Script, message: object, kind: type) -> object:
    peer = script.send_raw(documents.encode(message), port=5000)
    return documents.decode(script.answers[peer][0], kind)


def test_a_running_queue_is_located(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    answer = script.ask(2000, port=5000, QName="orders")
    assert answer == {
        "Monitor_host": "tcp://h1:6001",
        "Stat_Monitor_host": "tcp://h1:7001",
        "RESULT": 0,
    }


def test_an_unknown_queue_is_not_located(script: Script) -> None:
    answer = script.ask(2000, port=5000, QName="nobody")
    assert answer["RESULT"] == 1101
    assert "nobody" in answer["COMMENT"]


def test_a_stopped_queue_is_not_located(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2002, QName="orders")
    assert script.ask(2000, port=5000, QName="orders")["CODE"] == "queue_stopped"
    failure = control(script, LocateRequest(id=5, QName="orders"), Failure)
    assert (failure.id, failure.CODE) == (5, "queue_stopped")


def test_locate_gives_the_limits_and_the_id_of_the_queue(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1", Limits={"ring_bytes": 1 << 20})
    located = control(script, LocateRequest(id=5, QName="orders"), Located)
    assert located.id == 5
    assert located.limits.ring_bytes == 1 << 20
    assert located.queue_id == script.record("orders").queue_id
    assert located.monitor == "tcp://h1:6001"


def test_everybody_tells_about_the_cluster(script: Script) -> None:
    script.feed(events.ManagersChanged((OTHER, ME)))
    info = documents.decode(script.answers[script.send(3000, port=5000, id=4)][0], ClusterInfo)
    assert (info.cluster, info.leader, info.managers) == (CLUSTER, True, [ME.client, OTHER.client])
    script.feed(events.Following(OTHER))
    info = documents.decode(script.answers[script.send(3000, port=5000, id=4)][0], ClusterInfo)
    assert (info.leader, info.managers) == (False, [OTHER.client, ME.client])


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"queue": "nobody"}, "queue_not_found"),
        ({"queue_id": b"another"}, "queue_not_found"),
        ({"transaction": ""}, "invalid_request"),
        ({"transaction": "t" * 129}, "invalid_request"),
    ],
)
@pytest.mark.usefixtures("with_queue")
def test_a_request_that_cannot_be_is_refused_under_its_id(
    script: Script, wrong: dict[str, object], code: str
) -> None:
    refused = ask(script, out(script, **wrong))
    assert isinstance(refused, Failure)
    assert (refused.id, refused.CODE) == (7, code)
    assert numbers(script) == [1]


@pytest.mark.usefixtures("with_queue")
def test_a_request_for_an_earlier_life_of_the_queue_writes_nothing_into_the_log(
    script: Script,
) -> None:
    frame = documents.encode(out(script, queue_id=b"another"))
    effects = script.machine.handle(events.ClientFrame("asker", frame), script.now)
    assert [type(effect) for effect in effects] == [events.Reply]


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.usefixtures("with_queue")
def test_losing_leadership_in_the_middle_is_answered_under_the_id_of_the_request(
    script: Script, after: int
) -> None:
    peer = send(script, out(script))
    waiting = send(script, less(script, 2))
    for _ in range(after):
        script.step()
    script.feed(events.Following(OTHER))
    for request, asked in ((7, peer), (8, waiting)):
        refused = answer_of(script, asked)
        assert isinstance(refused, Failure)
        assert (refused.id, refused.CODE, refused.ENDPOINT) == (request, "not_leader", OTHER.client)


@pytest.mark.usefixtures("with_queue")
def test_a_follower_and_a_leader_without_registry_answer_under_the_id(script: Script) -> None:
    request = out(script)
    script.feed(events.RegistryLost())
    assert (ask(script, request).id, ask(script, request).CODE) == (7, "registry_away")
    script.feed(events.Following(OTHER))
    assert (ask(script, request).id, ask(script, request).ENDPOINT) == (7, OTHER.client)


@pytest.mark.usefixtures("with_queue")
def test_a_monitor_is_told_rules_what_scaling_has_made_and_how_busy_the_hosts_are(
    script: Script,
) -> None:
    ask(script, out(script))
    script.ask(2004, QName="q", Host="h2")
    script.report(script.hosts["h1"], cpu_percent=40.0, memory_bytes=700, memory_free_bytes=9_300)
    rule(script, AUTOSCALING_ROQ_POLICY="static")
    request = ElasticityRequest(id=5, queue="q", queue_id=script.record("q").queue_id)
    told = ask(script, request)
    assert isinstance(told, Elasticity)
    assert (told.id, told.rules.policy, told.scaled) == (5, "static", [2])
    first = told.hosts[0]
    assert [host.host for host in told.hosts] == ["h1", "h2"]
    assert (first.cpu_percent, first.memory_used_bytes, first.live) == (40.0, 700, True)
    script.pass_time(4)
    assert [host.live for host in ask(script, request).hosts] == [False, False]
    refused = ask(script, msgspec.structs.replace(request, queue_id=b"another"))
    assert (refused.id, refused.CODE) == (5, "queue_not_found")


def test_a_caretaker_calls_no_queue_gone_that_a_later_leader_may_have_made(script: Script) -> None:
    missing = documents.encode(ElasticityRequest(id=4, queue="new", queue_id=b"n" * 16))
    assert answer_of(script, script.send_raw(missing, port=5000)).CODE == "queue_not_found"
    script.feed(events.RegistryLost(session_ended=True))
    assert answer_of(script, script.send_raw(missing, port=5000)).CODE == "not_leader"


@pytest.mark.usefixtures("with_queue")
def test_what_a_host_manager_can_stop_is_not_called_unwanted(script: Script) -> None:
    script.hosts["h2"].start("q", script.record("q").queue_id, 2)
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.report(script.hosts["h2"])
    script.settle()
    assert heard(script, (1, 1), (2, 1), (3, 1)).unwanted == [3]
    script.vanish("h2", with_children=False)
    script.expire_node("h2")
    for _ in range(6):
        script.report(script.hosts["h1"])
        script.prove()
        script.pass_time(1.0)
    script.settle()
    assert heard(script, (1, 1), (2, 1), (3, 1)).unwanted == [2, 3]


@pytest.mark.usefixtures("with_queue")
def test_nobody_is_called_unwanted_while_that_is_not_certain(script: Script) -> None:
    assert heard(script, (1, 1), (2, 1)).unwanted == [2]
    peer = send(script, out(script, "t2"))  # an operation is under way
    frame = documents.encode(
        ElasticityRequest(id=4, queue="q", queue_id=script.record("q").queue_id, exchanges=[(9, 1)])
    )
    asked = script.send_raw(frame, port=5000)
    assert answer_of(script, asked).unwanted == []
    script.settle()
    assert isinstance(answer_of(script, peer), ScaledOut)
    script.feed(events.RegistryLost())
    assert heard(script, (9, 1)).unwanted == []
    script.feed(events.RegistryLost(session_ended=True))
    assert heard(script, (9, 1)).unwanted == []


def test_nobody_is_sent_to_a_monitor_that_is_lost(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1")
    script.pass_time(0.6)
    answer = script.answer(script.send(3001, port=5000, id=4, QName="q"))
    assert (answer["CODE"], "h1, which is lost" in answer["COMMENT"]) == ("failed", True)
    script.settle()
    located = script.ask(3001, port=5000, id=5, QName="q")
    assert located["monitor"].startswith(f"tcp://{script.record('q').host}:")


@pytest.mark.usefixtures("with_queue")
def test_the_log_says_why_a_queue_grows_and_what_has_come_of_it(script: Script) -> None:
    script.notes.clear()
    ask(script, out(script, reason="r" * 300))
    assert script.notes == ["queue q grows: " + "r" * 200, "queue q has x2 on host h2"]
    script.notes.clear()
    assert isinstance(ask(script, less(script, 1)), Failure)
    assert script.notes[0] == "queue q shrinks: idle"
    assert script.notes[1].startswith("queue q shrinks, but cannot: ")
    script.notes.clear()
    assert isinstance(ask(script, less(script, 2)), Done)
    assert script.notes[0] == "queue q shrinks: idle"


@pytest.mark.usefixtures("with_queue")
def test_a_transaction_of_the_longest_name_is_taken(script: Script) -> None:
    assert isinstance(ask(script, out(script, transaction="t" * 128)), ScaledOut)


def test_whoever_does_not_lead_tells_of_the_cluster_and_of_itself_and_of_nothing_else() -> None:
    script = Script(leads=False)
    for message, kind in ((ClusterInfoRequest(id=1), ClusterInfo), (HealthRequest(id=1), Health)):
        assert control(script, message, kind).id == 1
    assert control(script, LocateRequest(id=1, QName="q"), Failure).CODE == "not_leader"


def test_a_report_that_makes_no_sense_is_told_in_the_log_and_one_to_a_follower_is_not(
    script: Script,
) -> None:
    script.notes.clear()
    script.report(PaperHost("h9", epoch=9), cluster="another")
    assert script.notes[0].startswith("refused the report of a host manager: ")
    script.feed(events.Following(OTHER))
    script.notes.clear()
    assert script.report(script.hosts["h1"]).CODE == "not_leader"
    assert script.notes == []


def test_what_is_away_has_a_log_and_does_not_serve() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), durability="flush")
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    assert (heard(script).exchanges, heard(script).logs) == ([1, 2], [1, 2])
    lose(script, "h2")
    script.live(3)
    told = heard(script)
    assert 2 not in told.exchanges
    assert 2 in told.logs


@pytest.mark.usefixtures("with_queue")
def test_of_a_queue_in_memory_no_log_is_told(script: Script) -> None:
    told = heard(script)
    assert (told.exchanges, told.logs, told.services) == ([1], [], {})
