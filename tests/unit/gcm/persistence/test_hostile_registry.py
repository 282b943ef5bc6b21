"""Documents that nobody can read: one queue suffers, and nothing else. And what others write."""

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from gcm_script import ME, OTHER, PaperHost, Script
from registry_shell import MADE, PATH, RECORD, RULES, Shell, identity

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import (
    CommitResult,
    Conflict,
    Create,
    Delete,
    Fence,
    Operation,
    Reason,
    Set,
)
from roq.gcm import events
from roq.gcm.events import Drop, Put
from roq.gcm.persistence.definitions import DROPPED_AT_ONCE
from roq.gcm.state import records
from roq.model import QueueState
from roq.protocol.control import StopQueue

GOOD = records.QueueRecord(
    name="q",
    queue_id=bytes(16),
    state=records.QueueState.RUNNING,
    host="h1",
    created=1.0,
    next_number=2,
    exchanges=(records.ExchangeRecord(number=1, host="h1", state="created"),),
)


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(records.encode(GOOD)), **fields}).encode()


def exchange(**fields: object) -> bytes:
    document = json.loads(records.encode(GOOD))
    return changed(exchanges=[{**document["exchanges"][0], **fields}])


UNREADABLE = {
    "nothing": b"",
    "no JSON": b"not json",
    "no text": b"\xff\xfe",
    "another kind": b"[]",
    "a number": b"7",
    "endless": b"[" * 50_000,
    "endless in a field": changed(more=0).replace(b'"more": 0', b'"more": ' + b"[" * 50_000),
    "another name": changed(name="r"),
    "an impossible name": changed(name="../x"),
    "an unknown state": changed(state="dancing"),
    "no id": changed(queue_id=""),
    "a long id": changed(queue_id="A" * 400),
    "an impossible host": changed(host="h 1"),
    "an impossible address": changed(monitor="ipc:///etc/passwd"),
    "an unknown durability": changed(durability="for ever"),
    "an impossible limit": changed(limits={"ring_bytes": -1}),
    "a huge number": changed(epoch=1 << 70),
    "a negative epoch": changed(epoch=-1),
    "no creation time": changed(created=None),
    "an exchange beyond the count": exchange(number=2),
    "an exchange of number 0": exchange(number=0),
    "an exchange in no state": exchange(state="?"),
    "an exchange nowhere": exchange(host=""),
    "an exchange at no address": exchange(data="tcp://h:99999"),
    "an exchange twice": changed(
        exchanges=json.loads(records.encode(GOOD))["exchanges"] * 2, next_number=9
    ),
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_makes_no_sense_is_unreadable_and_says_why(data: bytes) -> None:
    documents = {"/queues/q": data, "/queues/good": changed(name="good")}
    snapshot = records.decode_snapshot(documents)
    assert [record.name for record in snapshot.queues] == ["good"]
    assert list(snapshot.unreadable) == ["q"]
    assert 0 < len(snapshot.unreadable["q"]) <= records.WORDS_MAX


def test_what_makes_sense_is_read_as_it_was_written() -> None:
    assert records.decode_snapshot({"/queues/q": records.encode(GOOD)}).queues == (GOOD,)
    later = changed(more={"from": "a later version"})
    assert records.decode_snapshot({"/queues/q": later}).queues == (GOOD,)


def test_a_queue_that_an_earlier_version_let_have_more_topics_is_read_with_as_many_as_now() -> None:
    earlier = changed(limits={"topics": 10_000_000})
    snapshot = records.decode_snapshot({"/queues/q": earlier})
    assert [each.limits.topics for each in snapshot.queues] == [1_000_000]
    assert snapshot.unreadable == {}
    beyond = changed(limits={"topics": 10_000_001})
    assert list(records.decode_snapshot({"/queues/q": beyond}).unreadable) == ["q"]


def test_nodes_that_are_not_ours_are_ignored() -> None:
    documents = {
        "/queues/q": records.encode(GOOD),
        "/queues/q/notes": b"?",
        "/queues/q/notes/deeper": b"?",
        "/queues/not a name": b"?",
        "/queues/..": b"?",
    }
    assert records.decode_snapshot(documents) == records.Snapshot((GOOD,))


@pytest.mark.parametrize("part", ["rules", "transactions", "listeners"])
@pytest.mark.parametrize("data", [b"?", b"[[]]", b'["ipc:///x"]', b'{"QName": 1}'])
def test_a_queue_whose_rules_cannot_be_read_runs_without_them(part: str, data: bytes) -> None:
    snapshot = records.decode_snapshot(
        {"/queues/q": records.encode(GOOD), f"/queues/q/{part}": data}
    )
    assert snapshot.queues == (GOOD,)
    assert [part in text for text in snapshot.defects["q"]] == [True]


@pytest.fixture
def script() -> Script:
    """Two queues, of which a later leader can read only one."""
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    for name in ("bad", "good"):
        script.ask(2003, QName=name, Host="h1")
    script.registry["/queues/bad"] = b"{}"
    script.elect()
    script.live(2)
    return script


def test_an_unreadable_queue_is_listed_with_the_reason(script: Script) -> None:
    rows = {row["Name"]: row for row in script.ask(2101)["Queues"]}
    assert (rows["bad"]["State"], rows["bad"]["Running"]) == ("unreadable", False)
    assert "missing required field" in rows["bad"]["Reasons"][0]
    assert "roq queue remove bad" in rows["bad"]["Reasons"][0]
    assert rows["good"]["State"] == "running"
    told = {status.Name: status.State for status in script.broadcasts[-1].queues}
    assert told == {"bad": False, "good": True}
    assert any("queue bad is unreadable" in note for note in script.notes)


def test_its_name_is_taken_and_its_processes_are_left_alone(script: Script) -> None:
    script.live(30)
    assert {("bad", 0), ("bad", 1)} <= script.hosts["h1"].children.keys()
    answer = script.ask(2003, QName="bad", Host="h2")
    assert (answer["RESULT"], "unreadable" in answer["COMMENT"]) == (1101, True)
    assert script.ask(2011, QName="bad")["COMMENT"] == "YES"
    for command, more in (
        (2002, {}), (2005, {}), (2104, {}), (2103, {}), (2007, {}),
        (2100, {"Exchange": "x1"}), (2004, {"Host": "h1"}),
    ):  # fmt: skip
        answer = script.ask(command, QName="bad", **more)
        assert (answer["RESULT"], "unreadable" in answer["COMMENT"]) == (1101, True), command
    assert "unreadable" in script.ask(2000, port=5000, QName="bad")["COMMENT"]


def test_everything_else_goes_on(script: Script) -> None:
    assert script.ask(2003, QName="new", Host="h2")["RESULT"] == 0
    assert script.ask(2004, QName="good", Host="h2")["RESULT"] == 0
    assert script.ask(2001, QName="good")["RESULT"] == 0


def test_removing_it_stops_its_processes_and_frees_the_name(script: Script) -> None:
    script.registry["/queues/bad/rules"] = b"?"
    script.registry["/queues/bad/from/a/later/version"] = b"?"
    assert script.ask(2001, QName="bad")["RESULT"] == 0
    assert not any(path.startswith("/queues/bad") for path in script.registry)
    assert {key for key in script.hosts["h1"].children if key[0] == "bad"} == set()
    stop = next(each for each in script.hosts["h1"].asked if isinstance(each, StopQueue))
    assert (stop.queue, stop.queue_id, stop.reason) == ("bad", b"", "removed")
    assert script.ask(2003, QName="bad", Host="h2")["RESULT"] == 0


def test_what_is_repaired_is_read_by_the_next_leader(script: Script) -> None:
    good = json.loads(script.registry["/queues/good"])
    child = script.hosts["h1"].children["bad", 0]
    good.update(name="bad", queue_id=child.queue_id, exchanges=[], monitor="", statistics="")
    good["queue_id"] = json.loads(records.encode(GOOD))["queue_id"]
    script.registry["/queues/bad"] = json.dumps({**good, "state": "stopped"}).encode()
    script.elect()
    assert script.ask(2104, QName="bad")["State"] == "stopped"


def test_rules_that_cannot_be_read_are_named_until_they_are_set_again(script: Script) -> None:
    script.registry["/queues/good/rules"] = b"?"
    script.elect()
    (reason,) = script.ask(2104, QName="good")["Reasons"]
    assert "its rules in the registry are unreadable" in reason
    assert script.ask(2006, QName="good", AUTOSCALING_NAME="a")["RESULT"] == 0
    assert script.ask(2104, QName="good")["Reasons"] == []


@pytest.mark.parametrize(
    "data",
    [b"", b"?", b"[" * 50_000, b'{"id": "x", "client": "a", "management": "b", "broadcast": "c"}'],
)
def test_a_manager_that_cannot_be_read_is_nobody(data: bytes) -> None:
    assert records.decode_manager(data) is None


# --- what others write ----------------------------------------------------------------------------


def by_hand(ensemble: MemoryEnsemble, shell: Shell, *operations: Operation) -> None:
    """Somebody changes the registry beside the leader."""
    other = MemoryRegistry(ensemble, shell.calls.append)
    other.start(lambda _: None)
    shell.run()
    other.commit(operations, None, lambda _: None)
    shell.run()
    other.close()


@pytest.mark.parametrize("gone", [(MADE, PATH), (MADE,), (MADE, PATH, "/queues")])
def test_what_somebody_deletes_under_the_leader_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture, gone: tuple[str, ...]
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(MADE, b"[]"))
    before = shell.tree()
    by_hand(ensemble, shell, *map(Delete, gone))
    shell.commit(2, Put(MADE, b"[]"))
    assert shell.tree() == before
    assert "what stood of a in the registry was deleted" in caplog.text
    assert all(
        event.snapshot is None or event.snapshot.queues == (RECORD,)
        for event in shell.take(events.RegistryBack)
        if isinstance(event, events.RegistryBack)
    )
    assert shell.commit(3, Drop(PATH)) == events.Committed(3)
    assert shell.tree() == {}


def test_what_is_deleted_together_with_the_leaders_node_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    shell.take(events.Elected)
    by_hand(ensemble, shell, Delete("/leader"), Delete(PATH))
    assert shell.tree() == before
    (elected,) = shell.take(events.Elected)
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == (RECORD,)


def test_what_is_deleted_while_nobody_leads_is_written_back_by_the_leader_of_before(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    shell.registry.expire(reconnect=False)
    by_hand(ensemble, shell, Delete(PATH))
    shell.registry.resume()
    shell.run()
    assert shell.tree() == before


def test_what_another_leader_has_removed_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    second = Shell(ensemble, OTHER)
    shell.registry.expire(reconnect=False)
    second.run()
    assert second.commit(1, Drop(PATH)) == events.Committed(1)
    second.definitions.close()
    shell.registry.resume()
    shell.run()
    assert shell.tree() == {}
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == ()


def test_what_was_removed_by_one_who_led_for_a_moment_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    second = Shell(ensemble, OTHER)
    shell.take(events.Following)
    nodes = [ensemble.node(f"/candidates/{name}") for name in ensemble.names("/candidates") or ()]
    (mine,) = [node.path for node in nodes if node and node.data == records.encode(ME)]
    by_hand(ensemble, second, Delete(mine))
    while events.Following(None) not in shell.told:
        shell.calls.popleft()()  # it stands again, and hears nothing for a while
    assert second.take(events.Elected)
    assert second.commit(1, Drop(PATH)) == events.Committed(1)
    second.definitions.close()
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == ()
    assert shell.tree() == {}


def test_what_is_removed_while_all_is_read_is_gone(shell: Shell) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.definitions.read_again()
    shell.calls.popleft()()  # the definition was read, and what is below it was not
    assert shell.commit(2, Drop(PATH)) == events.Committed(2)
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot())
    shell.definitions.read_again()
    assert shell.take(events.RegistryBack)[-1] == back
    assert shell.tree() == {}


def test_what_is_changed_while_all_is_read_is_as_it_is_now(shell: Shell) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.definitions.read_again()
    shell.calls.popleft()()
    stopped = msgspec.structs.replace(RECORD, state=QueueState.STOPPED)
    shell.commit(2, Put(PATH, records.encode(stopped)))
    back = shell.take(events.RegistryBack)[-1]
    assert isinstance(back, events.RegistryBack)
    assert back.snapshot is not None
    assert back.snapshot.queues == (stopped,)


def test_a_deleted_queue_is_noticed_without_any_change(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    by_hand(ensemble, shell, Delete(PATH))
    assert shell.tree() == before


def test_what_may_have_been_removed_by_the_leader_itself_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.registry.suspend()
    failed = shell.commit(2, Drop(PATH))
    assert isinstance(failed, events.CommitFailed)
    by_hand(ensemble, shell, Delete(RULES), Delete(PATH))  # as if it had been done all the same
    shell.registry.resume()
    shell.run()
    assert shell.tree() == {}


def test_what_cannot_be_written_back_holds_up_nothing_else(
    ensemble: MemoryEnsemble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(MADE, b"[]"))
    shell.take(events.RegistryBack)
    commit = shell.registry.commit

    def obstructed(
        operations: Sequence[Operation], fence: Fence | None, done: Callable[[CommitResult], None]
    ) -> None:
        if any(isinstance(each, Create) and each.path == MADE for each in operations):
            done(Conflict(MADE, Reason.MISSING))  # as below a node that is ephemeral
        else:
            commit(operations, fence, done)

    by_hand(ensemble, shell, Delete(MADE))
    monkeypatch.setattr(shell.registry, "commit", obstructed)
    assert isinstance(shell.commit(2, Put(MADE, b"[]")), events.CommitFailed)
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot((RECORD,)))


def test_garbage_that_is_removed_by_hand_is_gone(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put(PATH, b"garbage"), Put(f"{PATH}/foreign", b"x"))
    first.definitions.close()
    shell = Shell(ensemble, OTHER)
    by_hand(ensemble, shell, Delete(f"{PATH}/foreign"), Delete(PATH))
    assert shell.tree() == {}
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.unreadable.keys() == {"a"}
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot())


def test_an_identity_that_somebody_deletes_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    follower = Shell(ensemble, OTHER)
    cluster = identity(shell)
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    by_hand(ensemble, shell, Delete("/cluster"))
    assert identity(shell) == cluster
    assert shell.tree() == before
    follower.run()
    (*_, told) = follower.take(events.Following)
    assert told == events.Following(ME)


SPOILT = [b"", b"\xff\xfe", b"two words", b"x" * 900_000]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_identity_that_somebody_spoils_is_set_right(
    ensemble: MemoryEnsemble, shell: Shell, spoilt: bytes
) -> None:
    cluster = identity(shell)
    by_hand(ensemble, shell, Set("/cluster", spoilt))
    assert identity(shell) == cluster
    assert shell.take(events.RegistryLost) == []
    assert shell.commit(1, Put(PATH, records.encode(RECORD))) == events.Committed(1)


@pytest.mark.parametrize("spoilt", SPOILT)
def test_nobody_begins_to_lead_under_a_spoilt_identity_and_all_goes_on_once_it_is_set_right(
    ensemble: MemoryEnsemble, spoilt: bytes
) -> None:
    first = Shell(ensemble)
    cluster = identity(first)
    assert cluster is not None
    first.definitions.close()
    by_hand(ensemble, first, Set("/cluster", spoilt))
    second = Shell(ensemble, OTHER)
    assert second.take(events.Elected) == []
    (told,) = second.take(events.RegistryLost)
    assert isinstance(told, events.RegistryLost)
    assert "holds no identity" in told.problem
    assert len(told.problem) < 300
    by_hand(ensemble, second, Set("/cluster", cluster.encode()))
    assert second.take(events.ClusterNamed) == [events.ClusterNamed(cluster)]
    assert len(second.take(events.Elected)) == 1


def test_a_queue_goes_with_all_that_others_have_put_below_it(
    ensemble: MemoryEnsemble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    foreign = [f"{PATH}/a\u00a0{number}" for number in range(2 * DROPPED_AT_ONCE)]
    by_hand(ensemble, shell, *map(Create, foreign))
    assert isinstance(shell.commit(2, Drop(PATH)), events.CommitFailed)
    sizes: list[int] = []
    commit = shell.registry.commit

    def counted(
        operations: Sequence[Operation], fence: Fence | None, done: Callable[[CommitResult], None]
    ) -> None:
        sizes.append(len(operations))
        commit(operations, fence, done)

    monkeypatch.setattr(shell.registry, "commit", counted)
    assert shell.commit(3, Drop(PATH)) == events.Committed(3)
    assert shell.tree() == {}
    assert max(sizes) <= DROPPED_AT_ONCE + 1


def test_definitions_without_data_are_unreadable(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put(PATH, b""))
    first.definitions.close()
    (elected,) = Shell(ensemble, OTHER).take(events.Elected)
    assert isinstance(elected, events.Elected)
    assert "empty" in elected.snapshot.unreadable["a"]


def test_hosts_and_managers_are_those_whose_nodes_end_with_a_session(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    host = MemoryRegistry(ensemble, shell.calls.append)
    host.start(lambda _: None)
    host.register_host("h1", b"{}", lambda _: None)
    shell.run()
    by_hand(
        ensemble,
        shell,
        Create("/hosts/h2", b"{}"),
        Create("/hosts/no host", b"{}"),
        Create("/candidates/copied", records.encode(ME)),
    )
    assert shell.take(events.HostsPresent)[-1] == events.HostsPresent(frozenset({"h1"}))
    managers = shell.take(events.ManagersChanged)[-1]
    assert isinstance(managers, events.ManagersChanged)
    assert sorted(managers.managers, key=lambda each: each.id) == sorted(
        (ME, OTHER), key=lambda each: each.id
    )
    second.definitions.close()
