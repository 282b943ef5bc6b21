"""The configuration manager over real sockets, with hosts of paper and a registry in memory."""

import os
import threading
from collections.abc import Iterator

import bson
import pytest
import zmq
from gcm_process import Console, PaperHostManager, RunningGcm
from gcm_script import PaperHost
from waiting import eventually

from roq.coordination.memory import MemoryEnsemble
from roq.protocol import broadcast

pytestmark = pytest.mark.integration


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def gcm(ensemble: MemoryEnsemble) -> Iterator[RunningGcm]:
    with RunningGcm(ensemble) as running:
        yield running
    assert running.code == 0


@pytest.fixture(scope="module")
def unspoilt() -> Iterator[RunningGcm]:
    """One for all that is sent to it: nothing of that may change it."""
    with RunningGcm(MemoryEnsemble()) as running:
        yield running
    assert running.code == 0


@pytest.fixture
def host(gcm: RunningGcm) -> Iterator[PaperHost]:
    with PaperHostManager(PaperHost("127.0.0.1"), gcm.manager.client) as manager:
        yield manager.host


@pytest.mark.parametrize(
    ("kind", "delimiter"), [(zmq.REQ, False), (zmq.DEALER, False), (zmq.DEALER, True)]
)
def test_a_queue_lives_and_goes(
    gcm: RunningGcm, host: PaperHost, kind: int, *, delimiter: bool
) -> None:
    with (
        Console(gcm.manager.management, kind=kind, delimiter=delimiter) as console,
        Console(gcm.manager.client, kind=kind, delimiter=delimiter) as client,
    ):
        assert console.ask(2003, QName="orders", Host="127.0.0.1")["COMMENT"] == "SUCCESS"
        assert client.ask(2000, QName="orders")["Monitor_host"] == "tcp://127.0.0.1:6001"
        assert console.ask(2004, QName="orders", Host="127.0.0.1", TransactionID="t")["Number"] == 2
        assert len(console.ask(2103, QName="orders")["Exchanges"]) == 2
        assert console.ask(2002, QName="orders")["RESULT"] == 0
        assert host.children == {}
        assert client.ask(2000, QName="orders")["RESULT"] == 1101
        assert console.ask(2005, QName="orders")["RESULT"] == 0
        assert len(host.children) == 3
        assert console.ask(2001, QName="orders")["RESULT"] == 0
        assert console.ask(2011, QName="orders")["COMMENT"] == "NO"
    assert host.children == {}


@pytest.mark.parametrize("interface", ["client", "management"])
@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"garbage"],
        [bson.encode({"CMD": 2011, "QName": "a"})] * 2,
        [b"a", b"b", b"c"],
        [bson.encode({"CMD": 2011, "QName": "a"})[:-4]],
        [os.urandom(100_000)],
        [bson.encode({"CMD": 9})],
    ],
)
@pytest.mark.parametrize(
    ("kind", "delimiter"), [(zmq.REQ, False), (zmq.DEALER, False), (zmq.DEALER, True)]
)
def test_whatever_comes_is_answered(
    unspoilt: RunningGcm, interface: str, frames: list[bytes], kind: int, *, delimiter: bool
) -> None:
    address = getattr(unspoilt.manager, interface)
    with Console(address, kind=kind, delimiter=delimiter) as console:
        answer = console.ask_raw(frames)
        assert answer["RESULT"] == 1101
        assert answer["COMMENT"]
        assert console.ask(2000, QName="none")["RESULT"] == 1101


def test_clients_at_once_get_their_own_answers(gcm: RunningGcm, host: PaperHost) -> None:
    results: dict[str, list[object]] = {}

    def work(number: int) -> None:
        name = f"q{number}"
        with Console(gcm.manager.management) as console:
            results[name] = [
                console.ask(2010, QName=name)["RESULT"],
                console.ask(2010, QName=name)["COMMENT"],
                console.ask(2010, QName="shared")["RESULT"],
                console.ask(2104, QName=name)["Name"],
                console.ask(2001, QName=name)["RESULT"],
            ]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    created = [told.pop(2) for told in results.values()]
    assert sorted(created, key=str) == [0] + [1101] * 7
    assert results == {f"q{n}": [0, "The queue already exists", f"q{n}", 0] for n in range(8)}


def test_the_broadcast_reaches_a_newcomer_at_once_and_tells_changes(
    gcm: RunningGcm, host: PaperHost
) -> None:
    with Console(gcm.manager.broadcast, kind=zmq.SUB) as reader:
        reader.socket.setsockopt(zmq.SUBSCRIBE, b"")
        first = broadcast.decode(reader.socket.recv_multipart())
        assert (first.queues, first.hosts) == ((), ("127.0.0.1",))
        with Console(gcm.manager.management) as console:
            console.ask(2010, QName="orders")

        def told() -> bool:
            now = broadcast.decode(reader.socket.recv_multipart())
            return now.version > first.version and any(queue.State for queue in now.queues)

        eventually(told, "the new queue in the broadcast")


def test_rules_are_pushed_to_every_listener(gcm: RunningGcm, host: PaperHost) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pulls = [context.socket(zmq.PULL) for _ in range(2)]
    try:
        with Console(gcm.manager.management) as console:
            console.ask(2010, QName="orders")
            for pull in pulls:
                pull.setsockopt(zmq.LINGER, 0)
                pull.setsockopt(zmq.RCVTIMEO, 30_000)
                port = pull.bind_to_random_port("tcp://127.0.0.1")
                address = f"tcp://127.0.0.1:{port}"
                assert console.ask(2008, QName="orders", Address=address)["RESULT"] == 0
            # While it runs its monitor would be told of the rules, and that is of paper.
            assert console.ask(2002, QName="orders")["RESULT"] == 0
            # A listener that is not there holds nobody up, and is forgotten in the end.
            console.ask(2008, QName="orders", Address="tcp://127.0.0.1:1")
            for number in range(40):
                rules = {"AUTOSCALING_XCHANGE_THR": number}
                told = console.ask(
                    2006, QName="orders", AUTOSCALING_NAME="mine", AUTOSCALING_XCHANGE=rules
                )
                assert told["RESULT"] == 0
                for pull in pulls:
                    assert bson.decode(pull.recv())["AUTOSCALING_XCHANGE"] == rules
            assert bson.decode(bson.encode(console.ask(2007, QName="orders")))["RESULT"] == 0
    finally:
        for pull in pulls:
            pull.close(0)
        context.term()


def test_a_follower_names_the_leader_and_takes_over(
    ensemble: MemoryEnsemble,
) -> None:
    with (
        RunningGcm(ensemble) as first,
        RunningGcm(ensemble) as second,
        PaperHostManager(PaperHost("127.0.0.1"), first.manager.client),
        Console(first.manager.management) as console,
        Console(second.manager.management) as other,
        Console(second.manager.client) as client,
    ):
        assert console.ask(2010, QName="orders")["RESULT"] == 0
        answer = other.ask(2101)
        assert (answer["RESULT"], answer["COMMENT"]) == (8, first.manager.management)
        assert client.ask(2000, QName="orders")["COMMENT"] == first.manager.client
        first.stop()
        eventually(lambda: other.ask(2101)["RESULT"] == 0, "a new leader")
        assert [queue["Name"] for queue in other.ask(2101)["Queues"]] == ["orders"]
        assert client.ask(2000, QName="orders")["RESULT"] == 0


def test_reads_go_on_while_the_registry_is_away(
    ensemble: MemoryEnsemble, gcm: RunningGcm, host: PaperHost
) -> None:
    with Console(gcm.manager.management) as console, Console(gcm.manager.client) as client:
        assert console.ask(2010, QName="orders")["RESULT"] == 0
        ensemble.suspend()
        eventually(
            lambda: console.ask(2010, QName="more").get("CODE") == "registry_away",
            "changes are refused",
        )
        assert client.ask(2000, QName="orders")["RESULT"] == 0
        assert console.ask(2011, QName="orders")["COMMENT"] == "YES"
        ensemble.resume()
        eventually(lambda: console.ask(2010, QName="more")["RESULT"] == 0, "changes again")
