"""Documents in the registry that nobody can read: one queue suffers, and nothing else."""

import json

import pytest
from gcm_script import PaperHost, Script

from roq.gcm.state import records
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
