from collections.abc import Iterator

import bson
import pytest
import zmq
from few_sockets import take_all

from roq.errors import (
    NotLeader,
    OtherVersion,
    QueueNotFound,
    RemoteProtocolError,
    RequestError,
    Unavailable,
)
from roq.protocol import documents
from roq.protocol.control import (
    Answer,
    ClusterInfoRequest,
    Control,
    Done,
    Failure,
    HcmRequest,
    Inventory,
    LocateRequest,
    StopQueue,
    Version,
)
from roq.protocol.public_answers import failure_of
from roq.protocol.version import FIELD, WIRE_VERSION
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Party, Peer, RpcClient, RpcServer, read_request


class Bench:
    """A server and a client in one reactor; the server answers as `answers` says."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        socket = sockets.router(self.context)
        port = sockets.bind_port(socket, "127.0.0.1", 0)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.requests: list[tuple[Peer, bytes]] = []
        self.server = RpcServer(self.reactor, socket, self.serve)
        self.pushed: list[Answer] = []
        self.client = RpcClient(self.reactor, self.context, self.endpoint, self.pushed.append)
        self.answers: list[Answer | Unavailable] = []
        self.silent = False

    def serve(self, peer: Peer, data: bytes) -> None:
        self.requests.append((peer, data))
        if self.silent:
            return
        try:
            request: Control = documents.decode(data, LocateRequest | ClusterInfoRequest)
        except RemoteProtocolError as error:
            self.server.send(
                peer, documents.encode(Failure(RESULT=1101, COMMENT=f"unreadable: {error}"))
            )
            return
        if isinstance(request, LocateRequest):
            answer: Control = Failure(
                id=request.id, RESULT=1101, COMMENT="none", CODE="queue_not_found"
            )
        else:
            answer = Done(id=request.id)
        self.server.send(peer, documents.encode(answer))

    def got(self, answer: Answer | Unavailable) -> None:
        self.answers.append(answer)

    def run_until(self, done: object) -> None:
        def look() -> None:
            if done():  # type: ignore[operator]
                self.reactor.stop()
            else:
                self.reactor.call_later(0.005, look)

        self.reactor._stopping = False
        self.reactor.call_later(20, self.reactor.stop)
        look()
        self.reactor.run()
        assert done()  # type: ignore[operator]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.client.close()
    bench.server.close()
    bench.context.term()
    bench.reactor.close()


def test_answers_find_their_requests(bench: Bench) -> None:
    bench.client.request(ClusterInfoRequest(), 5, bench.got)
    bench.client.request(LocateRequest(QName="q"), 5, bench.got)
    bench.run_until(lambda: len(bench.answers) == 2)
    assert isinstance(bench.answers[0], Done)
    assert isinstance(bench.answers[1], Failure)
    assert bench.answers[1].COMMENT == "none"
    assert bench.answers[1].CODE == QueueNotFound.code  # noqa: SIM300 - no constant


def test_silence_becomes_unavailable_at_the_deadline(bench: Bench) -> None:
    bench.silent = True
    bench.client.request(ClusterInfoRequest(), 0.05, bench.got)
    bench.run_until(lambda: bench.answers)
    assert isinstance(bench.answers[0], Unavailable)
    assert bench.endpoint in str(bench.answers[0])


@pytest.mark.parametrize("said", [{}, {FIELD: WIRE_VERSION + 1}])
def test_an_answer_in_another_version_becomes_a_refusal_that_names_both(
    bench: Bench, said: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    bench.silent = True
    bench.client.request(ClusterInfoRequest(), 20, bench.got)
    bench.run_until(lambda: bench.requests)
    peer, data = bench.requests[0]
    asked = documents.decode(data, ClusterInfoRequest).id
    for number in (0, asked):  # what is said unasked is for the log alone
        foreign = {"kind": "whatever that version says", "id": number, **said}
        bench.server.send(peer, documents.encode_raw(foreign))
    bench.run_until(lambda: bench.answers)
    (answer,) = bench.answers
    assert isinstance(answer, Failure)
    assert OtherVersion.code == answer.CODE
    for text in (answer.COMMENT, caplog.text):
        assert bench.endpoint in text
        assert f"speaks version {said.get(FIELD, 1)} " in text
        assert f"this side version {WIRE_VERSION}:" in text
    assert len(bench.requests) == 1
    assert bench.pushed == []


def test_a_late_answer_is_dropped(bench: Bench) -> None:
    bench.silent = True
    bench.client.request(ClusterInfoRequest(), 0.05, bench.got)
    bench.run_until(lambda: bench.answers and bench.requests)
    peer, data = bench.requests[0]
    number = documents.decode(data, ClusterInfoRequest).id
    bench.server.send(peer, documents.encode(Done(id=number)))
    bench.silent = False
    bench.client.request(ClusterInfoRequest(), 5, bench.got)
    bench.run_until(lambda: len(bench.answers) == 2)
    assert isinstance(bench.answers[1], Done)


def test_pushed_messages_reach_the_client(bench: Bench) -> None:
    bench.client.request(ClusterInfoRequest(), 5, bench.got)
    bench.run_until(lambda: bench.answers)
    push = Version(queue_id=b"q" * 16, epoch=1, version=4)
    bench.server.send(bench.requests[0][0], documents.encode(push))
    bench.run_until(lambda: bench.pushed)
    assert bench.pushed == [push]


def test_connections_of_one_party_are_known_as_such_and_all_others_stand_for_themselves(
    bench: Bench,
) -> None:
    party, other = Party(), Party()
    names = [party.routing_id(), party.routing_id(), other.routing_id(), b"", b""]
    for name in names:
        with bench.context.socket(zmq.DEALER) as socket:
            if name:
                socket.setsockopt(zmq.ROUTING_ID, name)
            socket.connect(bench.endpoint)
            socket.send(documents.encode(ClusterInfoRequest(id=1)))
            bench.run_until(lambda socket=socket: socket.poll(0))
    first, second, *others = [peer.party for peer, _ in bench.requests]
    assert first == second
    assert len({first, *others}) == 4


@pytest.mark.parametrize("frames", [[b""], [b"a", b"b"], [b"", b"a", b"b"], [b"garbage"]])
def test_empty_and_multi_frame_requests_are_answered(bench: Bench, frames: list[bytes]) -> None:
    socket = bench.context.socket(zmq.DEALER)
    socket.connect(bench.endpoint)
    socket.send_multipart(frames)
    bench.run_until(lambda: socket.poll(0))
    answer = documents.decode(socket.recv_multipart()[-1], Failure)
    assert "unreadable" in answer.COMMENT
    socket.close(0)


def test_a_req_socket_gets_its_delimiter_back(bench: Bench) -> None:
    socket = bench.context.socket(zmq.REQ)
    socket.connect(bench.endpoint)
    socket.send(documents.encode(ClusterInfoRequest(id=9)))
    bench.run_until(lambda: socket.poll(0))
    assert documents.decode(socket.recv(), Done).id == 9
    socket.close(0)


def test_sending_to_a_peer_that_never_was_is_false_and_harmless(bench: Bench) -> None:
    assert bench.server.send(Peer(b"nobody", False), b"x") is False


def test_every_request_error_survives_the_wire() -> None:
    for error in (QueueNotFound("a"), RequestError("b"), NotLeader("c", "tcp://d:1")):
        failure = documents.decode(documents.encode(failure_of(error, 3)), Failure)
        assert (failure.id, failure.CODE, failure.COMMENT) == (3, error.code, str(error))
        assert (failure.ENDPOINT == "tcp://d:1") is isinstance(error, NotLeader)


def test_a_client_that_gets_no_socket_says_so_and_connects_when_there_is_one(bench: Bench) -> None:
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 4)
        taken = take_all(context)
        client = RpcClient(bench.reactor, context, bench.endpoint)
        client.request(ClusterInfoRequest(), 5.0, bench.got)
        bench.run_until(lambda: bench.answers)
        assert "Too many open files" in str(bench.answers.pop())
        for socket in taken:
            socket.close(0)

        def ask() -> None:
            client.request(ClusterInfoRequest(), 5.0, bench.got)
            bench.reactor.call_later(0.1, ask)

        ask()
        bench.run_until(lambda: any(isinstance(answer, Done) for answer in bench.answers))
        client.close()


def test_a_client_that_is_told_of_its_end_is_told_that_there_is_no_socket(bench: Bench) -> None:
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 4)
        taken = take_all(context)
        taken.pop().close(0)  # enough for the connection, not for who watches it
        with pytest.raises(zmq.ZMQError, match="Too many open files"):
            RpcClient(bench.reactor, context, bench.endpoint, on_lost=lambda _: None)
        for socket in taken:
            socket.close(0)


def test_a_client_that_was_closed_tries_no_more(bench: Bench) -> None:
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 4)
        taken = take_all(context)
        client = RpcClient(bench.reactor, context, bench.endpoint)
        client.close()
        for socket in taken:
            socket.close(0)
        begin = bench.reactor.now()
        bench.run_until(lambda: bench.reactor.now() > begin + 1.5)


def test_a_request_is_read_by_its_command() -> None:
    request = StopQueue(id=7, queue="orders", leader_epoch=3)
    assert read_request(documents.encode(request), HcmRequest) == request


@pytest.mark.parametrize(
    ("data", "request_id"),
    [
        (b"", 0),
        (b"garbage", 0),
        (bson.encode({"CMD": 3102, "id": 9, "wire": WIRE_VERSION}), 9),
        (bson.encode({"CMD": 1, "id": 9.0, "wire": WIRE_VERSION}), 9),
        (bson.encode({"CMD": 3102, "id": True, "wire": WIRE_VERSION}), 0),
        (bson.encode({"CMD": 3102, "id": -4, "wire": WIRE_VERSION}), 0),
        (bson.encode({"id": "text", "wire": WIRE_VERSION}), 0),
        (documents.encode(Inventory(id=5))[:-3], 0),
    ],
)
def test_what_cannot_be_read_becomes_an_answer_with_the_id_if_there_was_one(
    data, request_id
) -> None:
    answer = read_request(data, HcmRequest)
    assert isinstance(answer, Failure)
    assert (answer.id, answer.CODE) == (request_id, "invalid_request")
    assert answer.COMMENT


@pytest.mark.parametrize("said", [{}, {"wire": 1}, {"wire": WIRE_VERSION + 1}, {"wire": "two"}])
def test_another_version_is_refused_and_both_are_named(said) -> None:
    raw = documents.decode_raw(documents.encode(Inventory(id=5)))
    del raw["wire"]
    answer = read_request(documents.encode_raw({**raw, **said}), HcmRequest)
    assert isinstance(answer, Failure)
    assert (answer.id, answer.CODE) == (5, "version")
    theirs = said.get("wire", 1)
    assert f"version {theirs!r} " in answer.COMMENT
    assert f"version {WIRE_VERSION}:" in answer.COMMENT
