"""Management commands find their way to the leader, or say why not."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest
import zmq

import roq
from roq.client.admin.management import ADDRESSES_MAX, Management
from roq.client.io.engine import Engine, wait_result
from roq.errors import (
    ExchangeNotFound,
    NotEmpty,
    NotLeader,
    QueueNotFound,
    RegistryAway,
    RemoteProtocolError,
    RequestError,
    Unavailable,
)
from roq.model import endpoint_of
from roq.protocol import documents
from roq.protocol.control import ClusterInfo, ClusterInfoRequest, Control
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import done, failed, from_memory
from roq.runtime import sockets
from roq.runtime.rpc import Peer, RpcServer

pytestmark = pytest.mark.integration

Answer = Callable[[RawDocument], bytes | None]


class Manager:
    """A configuration manager that answers what the test says."""

    def __init__(self, engine: Engine) -> None:
        self.asked: list[RawDocument] = []
        self.answer: Answer = lambda _: documents.encode_raw(done())
        self.others: list[str] = []
        self._engine = engine
        self._servers: list[RpcServer] = []
        self.client = engine.run_sync(lambda: self._serve(self._client_asked))
        self.management = engine.run_sync(lambda: self._serve(self._management_asked))

    def _serve(self, handle: Callable[[RpcServer, Peer, bytes], None]) -> str:
        socket = sockets.router(self._engine.context)
        port = sockets.bind_port(socket, "127.0.0.1", 0)
        server = RpcServer(
            self._engine.reactor, socket, lambda peer, data: handle(server, peer, data)
        )
        self._servers.append(server)
        return endpoint_of("127.0.0.1", port)

    def _client_asked(self, server: RpcServer, peer: Peer, data: bytes) -> None:
        request: Control = documents.decode(data, ClusterInfoRequest)
        answer = ClusterInfo(
            id=request.id, cluster="c", leader=True, client=self.client,
            management=self.management, broadcast="", managers=[self.client, *self.others],
        )  # fmt: skip
        server.send(peer, documents.encode(answer))

    def _management_asked(self, server: RpcServer, peer: Peer, data: bytes) -> None:
        request = documents.decode_raw(data)
        self.asked.append(request)
        answer = self.answer(request)
        if answer is not None:
            server.send(peer, answer)


def refuse(error: RequestError) -> Answer:
    return lambda _: documents.encode_raw(failed(error))


def ask(engine: Engine, manager: Manager, seconds: float = 30.0) -> RawDocument:
    management = Management(engine, [manager.client])
    return wait_result(management.ask({"CMD": 2101}, seconds), seconds)


def test_a_command_is_answered(engine: Engine) -> None:
    manager = Manager(engine)
    assert ask(engine, manager)["COMMENT"] == "SUCCESS"
    assert manager.asked == [{"CMD": 2101}]


@pytest.mark.parametrize("missing", ["Management.socket", "Lifeline"])
def test_a_command_for_which_there_is_no_socket_is_refused_and_the_next_one_goes_through(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    manager = Manager(engine)
    management = Management(engine, [manager.client])

    def none_left(*_: object) -> object:
        raise zmq.ZMQError(errno.EMFILE)

    with monkeypatch.context() as patched:
        patched.setattr(f"roq.client.admin.management.{missing}", none_left)
        with pytest.raises(Unavailable, match="Too many open files"):
            wait_result(management.ask({"CMD": 2101}, 30.0), 30.0)
    assert wait_result(management.ask({"CMD": 2101}, 30.0), 30.0)["RESULT"] == 0


def test_a_follower_names_the_leader_and_the_leader_is_asked(engine: Engine) -> None:
    follower, leader = Manager(engine), Manager(engine)
    follower.answer = refuse(NotLeader("no", leader.management))
    assert ask(engine, follower)["RESULT"] == 0
    assert len(follower.asked) == len(leader.asked) == 1


def test_whoever_leads_gets_what_a_manager_without_registry_has_refused(engine: Engine) -> None:
    cut_off, follower, leader = Manager(engine), Manager(engine), Manager(engine)
    cut_off.answer = refuse(RegistryAway("registry away"))
    follower.answer = refuse(NotLeader("ask it", cut_off.management))
    cut_off.others = ["tcp://127.0.0.1:1", follower.client, leader.client]
    management = Management(engine, [cut_off.client])
    assert wait_result(management.ask({"CMD": 2003}, 30.0), 30.0)["RESULT"] == 0
    assert [len(each.asked) for each in (cut_off, follower, leader)] == [1, 1, 1]
    assert wait_result(management.ask({"CMD": 2003}, 30.0), 30.0)["RESULT"] == 0
    assert len(cut_off.asked) == 1, "the one that leads is asked first from now on"


def test_what_a_manager_without_registry_remembers_is_told_if_nobody_knows_better(
    engine: Engine,
) -> None:
    first, second = Manager(engine), Manager(engine)
    memory = from_memory(3.0, "ZooKeeper cannot be reached")
    first.answer = lambda _: documents.encode_raw({**done(), **memory, "Queues": ["old"]})
    management = Management(engine, [first.client, second.client, "tcp://127.0.0.1:1"])
    second.answer = lambda _: documents.encode_raw(done(Queues=["new"]))
    assert wait_result(management.ask({"CMD": 2101}, 30.0), 30.0)["Queues"] == ["new"]
    for error in (RegistryAway("registry away"), NotLeader("no", first.management)):
        management.prefer(first.client)
        second.answer = refuse(error)
        assert wait_result(management.ask({"CMD": 2101}, 30.0), 30.0)["Queues"] == ["old"]
    management.prefer(first.client)
    second.answer = refuse(QueueNotFound("it was removed"))
    with pytest.raises(QueueNotFound):
        wait_result(management.ask({"CMD": 2104}, 30.0), 30.0)


def test_commands_that_find_nobody_who_leads_at_the_same_time_do_not_lead_each_other_back(
    engine: Engine,
) -> None:
    lonely, leader = Manager(engine), Manager(engine)
    lonely.answer = refuse(NotLeader("no configuration manager leads at the moment"))
    management = Management(engine, [lonely.client, leader.client])
    for answer in [management.ask({"CMD": 2101}, 30.0) for _ in range(4)]:
        assert wait_result(answer, 30.0)["RESULT"] == 0
    assert (len(lonely.asked), len(leader.asked)) == (4, 4)


def test_a_leader_that_is_named_and_gone_does_not_take_all_of_the_time(engine: Engine) -> None:
    manager = Manager(engine)
    gone = failed(NotLeader("no", "tcp://127.0.0.1:1"))
    answers = iter([gone, gone, gone, done()])
    manager.answer = lambda _: documents.encode_raw(next(answers))
    assert ask(engine, manager)["RESULT"] == 0
    assert len(manager.asked) == 4


def test_a_refusal_is_raised_as_its_own_error(engine: Engine) -> None:
    manager = Manager(engine)
    manager.answer = refuse(QueueNotFound("queue a does not exist"))
    with pytest.raises(QueueNotFound, match="queue a does not exist"):
        ask(engine, manager)


def test_silence_and_garbage_are_told_apart(engine: Engine) -> None:
    manager = Manager(engine)
    manager.answer = lambda _: None
    with pytest.raises(Unavailable, match="may still be carried out"):
        ask(engine, manager, 2.0)
    manager.answer = lambda _: b"\x00garbage"
    with pytest.raises(RemoteProtocolError):
        ask(engine, manager)


def test_other_managers_are_learnt_and_dead_ones_passed_over(engine: Engine) -> None:
    manager = Manager(engine)
    manager.others = ["tcp://127.0.0.1:2"]
    management = Management(engine, ["tcp://127.0.0.1:1", manager.client])
    info = wait_result(management.info(30.0), 30.0)
    assert info.management == manager.management
    assert management.addresses == [manager.client, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]
    assert wait_result(management.ask({"CMD": 2101}, 30.0), 30.0)["RESULT"] == 0


def test_what_is_no_address_or_too_much_is_not_learnt(engine: Engine) -> None:
    manager = Manager(engine)
    manager.others = ["", "nonsense", "tcp://\n", *(f"tcp://10.0.0.1:{n}" for n in range(1, 2_000))]
    management = Management(engine, [manager.client])
    wait_result(management.info(30.0), 30.0)
    assert management.addresses[:2] == [manager.client, "tcp://10.0.0.1:1"]
    assert len(management.addresses) == ADDRESSES_MAX


def test_that_nobody_answers_is_said_once(engine: Engine) -> None:
    with pytest.raises(Unavailable) as raised:
        wait_result(Management(engine, ["tcp://127.0.0.1:1"]).info(0.3), 0.3)
    expected = "no configuration manager answers at tcp://127.0.0.1:1. Is the cluster up?"
    assert str(raised.value) == expected


# --- removing an exchange -------------------------------------------------------------------------


@pytest.fixture
def manager(engine: Engine) -> Manager:
    return Manager(engine)


@pytest.fixture
def cluster(manager: Manager) -> Iterator[roq.Cluster]:
    with roq.connect(manager.client.removeprefix("tcp://")) as cluster:
        yield cluster


def test_a_removal_is_asked_again_until_the_exchange_is_empty(
    manager: Manager, cluster: roq.Cluster
) -> None:
    answers = iter([failed(NotEmpty("x2 is not empty: 1 publisher still there")), done()])
    manager.answer = lambda _: documents.encode_raw(next(answers))
    waits: list[str] = []
    cluster.remove_exchange("orders", "x2", on_wait=waits.append)
    assert manager.asked == [{"CMD": 2100, "QName": "orders", "Exchange": "x2"}] * 2
    assert waits == ["x2 is not empty: 1 publisher still there"]


def test_a_removal_that_takes_too_long_says_what_it_waits_for(
    manager: Manager, cluster: roq.Cluster
) -> None:
    manager.answer = refuse(NotEmpty("x2 is not empty: 1 publisher still there"))
    with pytest.raises(NotEmpty, match=r"1 publisher still there.*may be repeated"):
        cluster.remove_exchange("orders", "x2", timeout=2.0)
    answers = iter([documents.encode_raw(failed(NotEmpty("x2 is not empty: 2 publishers")))])
    manager.answer = lambda _: next(answers, None)
    with pytest.raises(NotEmpty, match="2 publishers"):
        cluster.remove_exchange("orders", "x2", timeout=2.5)


def test_a_removal_that_cannot_be_is_not_repeated(manager: Manager, cluster: roq.Cluster) -> None:
    manager.answer = refuse(ExchangeNotFound("queue 'orders' has no exchange 'x9'"))
    with pytest.raises(ExchangeNotFound, match="no exchange 'x9'"):
        cluster.remove_exchange("orders", "x9")
    assert len(manager.asked) == 1
