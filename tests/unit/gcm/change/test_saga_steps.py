"""The steps that changes are made of, and what may come back from each."""

import msgspec
import pytest
from gcm_script import CLUSTER, PaperHost, Script

from roq.errors import Busy, RegistryAway, RequestError
from roq.gcm import events
from roq.gcm.change.saga_steps import (
    Result,
    Steps,
    exchange_hosts,
    has_erased,
    moved_to,
    not_told,
    with_problem,
    without_exchange,
)
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.queues import Queues
from roq.gcm.state.records import ExchangeRecord, QueueRecord, RemovedLog
from roq.gcm.state.removed_logs import RemovedLogs
from roq.model import Limits, QueueState, child_epoch
from roq.protocol.control import (
    Control,
    Done,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
    failure,
)
from roq.timing import START_ASKS_SECONDS, START_STARVED_ASKS_SECONDS


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def test_an_unexpected_answer_of_a_host_fails_the_request(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    script.step()
    ask = script.pending.popleft()
    script.feed(events.Answered(ask.token, script.hosts["h1"].report()))
    script.settle()
    assert "unexpected" in script.answer(peer)["COMMENT"]


def test_whatever_a_host_is_told_names_the_cluster(script: Script) -> None:
    script.ask(2003, QName="a", Host="h1")
    script.ask(2004, QName="a", Host="h2", TransactionID="t")
    script.ask(2100, QName="a", Exchange="x2")
    script.ask(2001, QName="a")
    script.hosts["h1"].start("nobody", b"n" * 16, 0)  # a stray
    script.report(script.hosts["h1"])
    script.settle()
    told = [message for host in script.hosts.values() for message in host.asked]
    assert {type(message) for message in told} == {StartMonitor, StartExchange, StopQueue}
    assert {message.cluster for message in told} == {CLUSTER}


def test_a_host_that_does_not_confirm_a_stop_is_named_and_the_stop_repeatable(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.hosts["h1"].mute.add(StopQueue)
    answer = script.ask(2002, QName="orders")
    assert (answer["RESULT"], "h1 did not confirm" in answer["COMMENT"]) == (1101, True)
    assert script.ask(2000, port=5000, QName="orders")["CODE"] == "queue_stopped"
    script.hosts["h1"].mute.clear()
    assert script.ask(2002, QName="orders")["RESULT"] == 0
    assert script.hosts["h1"].children == {}


def test_host_managers_are_told_limits_and_epoch_of_the_leader(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1", Limits={"topics": 5})
    start = script.hosts["h1"].asked[0]
    assert isinstance(start, StartMonitor)
    assert (start.leader_epoch, start.limits.topics) == (1, 5)


EXCHANGES = (
    ExchangeRecord(number=1, host="h1", state="created", epoch=5),
    ExchangeRecord(number=2, host="h2", state="created", epoch=5),
)
RECORD = QueueRecord(
    name="q", queue_id=b"q" * 16, host="h1", state=QueueState.RUNNING, created=0.0,
    limits=Limits(), exchanges=EXCHANGES, epoch=5,
)  # fmt: skip


def test_what_is_moved_counts_from_its_new_number_and_the_rest_stays() -> None:
    moved = moved_to(RECORD, {0: "h3", 2: "h4"}, 9)
    assert (moved.host, moved.epoch) == ("h3", child_epoch(9, 0))
    assert moved.exchanges[0] == EXCHANGES[0]
    assert (moved.exchanges[1].host, moved.exchanges[1].epoch) == ("h4", child_epoch(9, 0))
    assert moved_to(RECORD, {2: "h4"}, 9).host == "h1"


def test_a_number_that_no_epoch_begins_with_is_a_failure_of_the_registry() -> None:
    with pytest.raises(RequestError, match="counter of epochs in the registry is unusable"):
        moved_to(RECORD, {0: "h3"}, 1 << 30)


def test_an_exchange_with_a_log_is_not_moved() -> None:
    durable = msgspec.structs.replace(RECORD, durability="flush")
    with pytest.raises(AssertionError):
        moved_to(durable, {1: "h3"}, 9)
    assert moved_to(durable, {0: "h3"}, 9).host == "h3"


def test_a_record_without_an_exchange_has_the_others() -> None:
    assert without_exchange(RECORD, 1).exchanges == EXCHANGES[1:]
    assert without_exchange(RECORD, 7) == RECORD


def test_where_the_exchanges_of_a_queue_are_those_that_are_away_do_not_count() -> None:
    away = msgspec.structs.replace(EXCHANGES[0], state="away")
    queue = Queues().put(msgspec.structs.replace(RECORD, exchanges=(away, EXCHANGES[1])))
    assert exchange_hosts(queue) == ["h2"]


@pytest.mark.parametrize(
    ("answer", "epoch", "erased"),
    [
        (Done(), 0, True),
        (Done(), 5, True),
        (Done(no_log_since=3), 5, True),  # that disk was there when the log was made
        (Done(no_log_since=5), 5, True),
        (Done(no_log_since=6), 5, False),  # another one, so it has proved nothing
        (Done(no_log_since=6), 0, True),  # nobody is known to have had one
        (failure(1, "no"), 5, False),
        ("no answer", 5, False),
        (None, 5, False),
    ],
)
def test_a_log_is_gone_if_the_disk_that_may_have_it_says_so(
    answer: Result | None, epoch: int, *, erased: bool
) -> None:
    assert has_erased(answer, epoch) is erased


def test_what_could_not_be_undone_is_told_with_the_error_of_the_same_kind() -> None:
    error = Busy("the line is full")
    assert with_problem(error, "") is error
    told = with_problem(error, "x2 is left behind on h2")
    assert type(told) is Busy
    assert str(told) == "the line is full (x2 is left behind on h2)"


def test_a_log_that_its_operator_has_to_remove_is_named() -> None:
    line = not_told(RemovedLog(queue="q", queue_id=b"q" * 16, host="h1", number=2))
    assert line.event == "log_forgotten"
    assert "host h1" in line.text
    assert "data.dir" in line.text


def test_what_a_host_refuses_is_told_with_its_name_and_its_reason(script: Script) -> None:
    script.hosts["h2"].refuse.add(StartExchange)
    script.ask(2003, QName="a", Host="h1")
    answer = script.ask(2004, QName="a", Host="h2")
    assert answer["CODE"] == "no_capacity"
    assert "host h2 refused: no room" in answer["COMMENT"]


def test_the_registry_of_a_host_that_is_away_is_not_that_of_the_cluster(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    script.step()
    asked = script.pending.popleft()
    refused = failure(asked.message.id, "not registered", RegistryAway.code)
    script.feed(events.Answered(asked.token, refused))
    script.settle()
    answer = script.answer(peer)
    assert answer["CODE"] == RequestError.code, "else it would be open what was done"
    assert "host h1 refused: not registered" in answer["COMMENT"]


def test_a_host_that_is_short_of_processor_has_more_time_to_start(script: Script) -> None:
    for starved, seconds in ((False, START_ASKS_SECONDS), (True, START_STARVED_ASKS_SECONDS)):
        script.report(script.hosts["h1"], starved=starved)
        script.send(2003, QName=f"q{starved}".lower(), Host="h1")
        while not isinstance(script.pending[0], events.AskHost):
            script.step()
        assert script.pending[0].timeout == seconds
        script.settle()


def test_a_leader_that_is_new_does_not_call_the_cluster_full() -> None:
    script = Script(leads=False)
    script.feed(events.HostsPresent(frozenset({"h1"})))
    script.elect()
    assert script.ask(2010, QName="q")["CODE"] == "not_leader"
    full = Script(PaperHost("h1", exchange_max=1))
    full.ask(2003, QName="q", Host="h1")
    full.live(30)
    assert full.ask(2010, QName="r")["CODE"] == "no_capacity"


def steps_of(script: Script) -> Steps:
    queues, hosts = script.machine.queues, script.machine.hosts
    return Steps(queues, RemovedLogs(queues), hosts, Heartbeats(hosts))


def test_a_process_that_its_host_still_tells_of_is_not_lost_and_one_that_it_does_not_is(
    script: Script,
) -> None:
    script.ask(2003, QName="a", Host="h1")
    script.report(script.hosts["h1"])
    steps, queue = steps_of(script), script.machine.queues.demand("a")
    assert [steps.lost(queue, number) for number in (0, 1)] == [False, False]
    assert [steps.runs(queue, number) for number in (0, 1)] == [True, True]
    script.hosts["h1"].fail("a", 1, "exit code 70")
    script.report(script.hosts["h1"])
    assert [steps.lost(queue, number) for number in (0, 1)] == [False, True]
    assert [steps.runs(queue, number) for number in (0, 1)] == [True, False]


def test_what_is_placed_anew_shares_the_hosts_that_there_are() -> None:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))
    script.ask(2003, QName="a", Host="h1")
    for host in ("h2", "h3"):
        script.ask(2004, QName="a", Host=host)
    steps, queue = steps_of(script), script.machine.queues.demand("a")
    places, problem = steps.place_anew(queue, (1, 2, 3))
    assert (sorted(places.values()), problem) == (["h1", "h2", "h3"], "")
    places, _ = steps.place_anew(queue, (1,), avoid=frozenset({"h1"}))
    assert places[1] in {"h2", "h3"}


def test_an_exchange_that_keeps_no_log_does_not_serve_a_durable_queue() -> None:
    script = Script(PaperHost("h1"), durability="flush")
    host = script.hosts["h1"]
    answer = host.answer

    def forgets(message: Control) -> Control | None:
        told = answer(message)
        if isinstance(message, StartExchange) and isinstance(told, Started):
            child = msgspec.structs.replace(told.child, durability="none")
            return msgspec.structs.replace(told, child=child)
        return told

    host.answer = forgets  # type: ignore[method-assign]
    refused = script.ask(2003, QName="a", Host="h1")
    assert "host h1 runs an earlier RoQ, which keeps no log on its disk" in refused["COMMENT"]


def test_a_process_of_before_is_not_taken_for_the_one_that_was_asked_for(script: Script) -> None:
    script.ask(2003, QName="a", Host="h1")
    queue_id = script.record("a").queue_id
    script.vanish("h1")
    script.live(4)
    script.expire_node("h1")
    host = script.hosts["h2"]
    child = host.start("a", queue_id, 0)
    old = msgspec.structs.replace(child, epoch=1)
    host.answer = lambda message: Started(id=message.id, child=old)  # type: ignore[method-assign]
    script.live(3)
    reasons = " ".join(script.ask(2104, QName="a")["Reasons"])
    assert "host h2 still runs an earlier a.monitor" in reasons


def test_what_waits_for_a_host_that_is_away_is_told_with_what_becomes_of_it() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), durability="flush")
    script.ask(2003, QName="a", Host="h1")
    script.ask(2004, QName="a", Host="h2")
    script.vanish("h2")
    script.expire_node("h2")
    script.live(6)
    warning = script.ask(2001, QName="a")["WARNING"]
    assert "host h2 removes its logs of queue a when it is back" in warning
    assert "h1" not in warning


def test_of_a_host_without_a_manager_nothing_is_confirmed(script: Script) -> None:
    script.ask(2003, QName="a", Host="h1")
    script.vanish("h1", with_children=False)
    script.expire_node("h1")
    script.live(8)
    answer = script.ask(2002, QName="a")
    assert "host h1 has no manager that could stop them" in answer["COMMENT"]
