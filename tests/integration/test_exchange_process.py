"""A real exchange process among good, bad and slow peers."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from exchange_process import EPOCH, QUEUE, Peers, Process, running, spec
from waiting import eventually
from zmtp_bench import Raw, arrived

from roq.model import Limits, PublisherId
from roq.protocol import batch, channel, consuming, control, documents
from roq.protocol.channel import FetchRequest, Hello, Refused, Reset
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    GROUPS,
    JOIN,
    LEASED,
    Credit,
    Done,
    Groups,
    GroupSettings,
    GroupsRequest,
    GroupState,
    Join,
    read_lease,
)
from roq.protocol.control import ChildAck, ChildReport, ExchangeAck, ExchangeReport
from roq.protocol.entry import EntryKind
from roq.protocol.framing import split_answer
from roq.protocol.version import WIRE_VERSION
from roq.runtime import sockets

pytestmark = pytest.mark.integration
MEMBERS = 30
TAG = b"tag1"
SMALL = Limits(message_bytes=1024 * 1024, ring_bytes=8 * 1024 * 1024)


@pytest.fixture
def exchange(tmp_path: Path) -> Iterator[Process]:
    with running(tmp_path, limits=SMALL) as process:
        yield process


def noise(rng: random.Random) -> list[bytes]:
    """A message that resembles a real one more or less."""
    first = rng.choice(
        [b"t", b"", b"\xff", channel.HELLO, channel.FETCH, channel.HEADS, channel.BYE, b"\xffQ",
         rng.randbytes(rng.randrange(300))]
    )  # fmt: skip
    good = batch.pack(
        [b"x"], publisher=PublisherId(b"e" * 16), epoch=1, link_number=1, first_sequence=0,
        created_us=0,
    )  # fmt: skip
    hello = documents.encode(
        Hello(version=rng.choice([0, 1, 3]), queue=QUEUE, publisher=b"e" * 16, epoch=1, attempt=1)
    )
    bodies = [good, good[: rng.randrange(80)], hello, hello[:-3], b"", rng.randbytes(100)]
    return [first, *(rng.choice(bodies) for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 9])))]


def test_noise_on_both_sockets_disturbs_neither_publisher_nor_reader(
    exchange: Process, peers: Peers
) -> None:
    rng = random.Random(7)
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    evil = peers.dealer(exchange.data)
    listener = peers.socket(zmq.XSUB)
    listener.connect(exchange.live)
    for number in range(600):
        evil.send_multipart(noise(rng))
        listener.send_multipart([rng.randbytes(rng.randrange(400)) for _ in range(1 + number % 3)])
        if number % 10 == 0:
            publisher.send(b"%d" % number)
    publisher.settle()
    assert [reader.payload() for _ in range(60)] == [b"%d" % n for n in range(0, 600, 10)]
    answers = [split_answer(evil.recv()) for _ in range(100)]
    assert {frames[0] for frames in answers} >= {channel.REFUSED, channel.RESET}
    assert exchange.stop() == 0
    assert "peers misbehave" in exchange.log


def test_bytes_that_are_not_zeromq_and_frames_too_large_end_their_connection_only(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    for endpoint in (exchange.data, exchange.live):
        host, port = endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    huge = peers.dealer(exchange.data)
    huge.send_multipart([b"t", b"x" * (4 * 1024 * 1024)], zmq.NOBLOCK)
    publisher.send(b"still here")
    publisher.settle()
    assert reader.payload() == b"still here"


def test_other_versions_queues_and_strangers_are_told_why(exchange: Process, peers: Peers) -> None:
    dealer = peers.dealer(exchange.data)
    for fields, code in (({"version": 1}, "version"), ({"queue": b"z" * 16}, "foreign_queue")):
        hello = {
            "version": WIRE_VERSION,
            "queue": QUEUE,
            "publisher": b"p" * 16,
            "epoch": 1,
            "attempt": 1,
        }
        dealer.send_multipart([channel.HELLO, documents.encode_raw({**hello, **fields})])
        letter, document = split_answer(dealer.recv())
        assert letter == channel.REFUSED
        refused = documents.decode(document, Refused)
        assert refused.code == code
        if code == "version":
            assert "speaks version 1 " in refused.text
            assert f"version {WIRE_VERSION}:" in refused.text
    data = batch.pack(
        [b"x"], publisher=PublisherId(b"p" * 16), epoch=1, link_number=1, first_sequence=0,
        created_us=0,
    )  # fmt: skip
    dealer.send_multipart([b"t", data])
    letter, document = split_answer(dealer.recv())
    assert (letter, documents.decode(document, Reset).expected) == (channel.RESET, 0)


def test_each_batch_is_logged_once_and_in_order_of_its_number(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    publisher.send(b"one")
    assert publisher.ack() == 1
    publisher.number = 0
    publisher.send(b"one")
    assert publisher.ack() == 1
    publisher.number = 2
    publisher.send(b"three")
    letter, document = split_answer(publisher.socket.recv())
    assert (letter, documents.decode(document, Reset).expected) == (channel.RESET, 2)
    publisher.number = 1
    publisher.send(b"two")
    publisher.send(b"three")
    publisher.settle()
    assert [reader.payload() for _ in range(3)] == [b"one", b"two", b"three"]
    assert reader.fetch((b"t", 0, 100)) == [b"one", b"two", b"three"]


def test_batches_of_all_sizes_arrive_live_or_announced_and_can_be_fetched(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    payloads = [bytes([n]) * size for n, size in enumerate((0, 100, 8_100, 20_000, 600_000, 10))]
    for payload in payloads:
        publisher.send(payload)
    publisher.settle()
    entries = [reader.entry() for _ in payloads]
    kinds = [entry.kind for _, entry, _ in entries]
    assert kinds == [EntryKind.ANNOUNCE if len(p) > 500_000 else EntryKind.ENTRY for p in payloads]
    assert [entry.previous for _, entry, _ in entries][1:] == [0, 1, 2, 3, 4]
    assert reader.fetch((b"t", 0, 100)) == payloads


def test_a_reader_that_never_reads_its_fetches_blocks_nobody(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    for number in range(1_500):
        publisher.send(b"%d" % number)
    publisher.settle()
    dead = peers.dealer(exchange.data)
    request = FetchRequest(
        id=1, queue=QUEUE, generation=EPOCH, wants=[(b"t", 0, 1_500)], max_bytes=4 * 1024 * 1024
    )
    for _ in range(20):
        dead.send_multipart([channel.FETCH, documents.encode(request)])
    for round_ in range(3):
        publisher.send(b"more")
        publisher.settle()
        assert len(reader.fetch((b"t", 0, 1_500))) == 1_500, round_


def test_a_publisher_that_never_reads_its_acks_blocks_nobody(
    exchange: Process, peers: Peers
) -> None:
    deaf = peers.publisher(exchange, "deaf", waiting_most=1)
    publisher, reader = peers.publisher(exchange), peers.reader(exchange, b"t")
    for number in range(3_000):
        deaf.send(b"x", b"deaf")
        if number % 100 == 0:
            publisher.send(b"%d" % number)
            publisher.settle()
    assert [reader.payload() for _ in range(30)] == [b"%d" % n for n in range(0, 3_000, 100)]
    deaf.settle()


def test_a_stop_by_signal_is_clean_and_ends_with_0(exchange: Process, peers: Peers) -> None:
    publisher = peers.publisher(exchange)
    publisher.send(b"last")
    publisher.settle()
    assert exchange.stop() == 0
    assert "stopped" in exchange.log


def test_a_range_without_a_free_port_ends_with_69(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        described = spec(ports=(port, port + 1), manager="tcp://127.0.0.1:1")
        process = Process(tmp_path, described)
        try:
            assert process.wait() == 69
            assert f"no free port on 127.0.0.1 from {port}" in process.log
        finally:
            process.close()


class Parents:
    """A host manager and a monitor, as an exchange sees them."""

    def __init__(self, peers: Peers) -> None:
        self.manager = peers.socket(zmq.ROUTER)
        self.monitor = peers.socket(zmq.ROUTER)
        self.action = "keep"
        self.code = ""
        self.named_monitor = ""
        self.children: list[ChildReport] = []
        self.reports: list[ExchangeReport] = []
        self.manager_at = self._bind(self.manager)
        self.monitor_at = self._bind(self.monitor)

    def serve(self) -> bool:
        """Answer whatever has come. Never true, so that a condition can begin with it."""
        for sock in (self.manager, self.monitor):
            while sock.poll(10):
                self._answer(sock)
        return False

    def _answer(self, sock: zmq.Socket[bytes]) -> None:
        peer, data = sock.recv_multipart()
        request: ChildReport | ExchangeReport = documents.decode(
            data,
            ChildReport | ExchangeReport,  # type: ignore[arg-type]
        )
        answer: control.Control
        if isinstance(request, ChildReport):
            self.children.append(request)
            answer = ChildAck(id=request.id, action=self.action, monitor=self.named_monitor)
        else:
            self.reports.append(request)
            answer = ExchangeAck(id=request.id, code=self.code)
        sock.send_multipart([peer, documents.encode(answer)])

    def serves_until(self, process: Process, what: str) -> None:
        """Answer until the process has ended."""

        def ended() -> bool:
            self.serve()
            return process.process.poll() is not None

        eventually(ended, what)

    def _bind(self, sock: zmq.Socket[bytes]) -> str:
        return f"tcp://127.0.0.1:{sockets.bind(sock, '127.0.0.1')}"


def test_an_exchange_reports_to_its_host_manager_and_to_the_monitor_that_this_one_names(
    tmp_path: Path, peers: Peers
) -> None:
    parents = Parents(peers)
    with running(tmp_path, manager=parents.manager_at, kpi_seconds=0.1) as process:

        def reported() -> bool:
            parents.serve()
            return len(parents.reports) > 2

        parents.named_monitor = parents.monitor_at
        eventually(reported, "three reports to the monitor")
        child, report = parents.children[0].child, parents.reports[-1]
        assert (child.role, child.state, child.number) == ("exchange", "running", 1)
        assert (report.exchange.data, report.exchange.live) == (child.data, child.live)
        process.data, process.live = child.data, child.live
        publisher = peers.publisher(process)
        publisher.send(b"x" * 100)
        publisher.settle()
        eventually(
            lambda: parents.serve() or parents.reports[-1].load.messages_in > 0,
            "a report after a batch",
        )
        load, top = parents.reports[-1].load, parents.reports[-1].top
        assert (load.messages_in, load.publishers, load.end_offset) == (1, 1, 1)
        assert 0 < load.memory_bytes < 100_000_000
        assert [of.publisher for of in top] == [publisher.id]
        parents.action = "stop"
        parents.serves_until(process, "the end that was asked for")
        assert process.wait() == 0
        eventually(lambda: parents.serve() or parents.reports[-1].stopping, "its last word")


def test_a_publisher_wakes_an_idle_exchange_and_its_parents_hear_of_it_at_once(
    tmp_path: Path, peers: Peers
) -> None:
    parents = Parents(peers)
    with running(tmp_path, manager=parents.manager_at, monitor=parents.monitor_at) as process:

        def both_say(idle: bool) -> bool:
            parents.serve()
            said = (parents.reports[-1:], parents.children[-1:])
            return all(each and each[0].idle is idle for each in said)

        eventually(lambda: both_say(True), "an idle exchange")
        child = parents.children[-1].child
        process.data, process.live = child.data, child.live
        heard = (len(parents.reports), len(parents.children))
        publisher = peers.publisher(process)
        eventually(lambda: both_say(False), "its waking up")
        # One more that it had just sent, perhaps: it did not wait for the next turn of both.
        assert len(parents.reports) - heard[0] <= 2
        assert len(parents.children) - heard[1] <= 2
        publisher.send(b"x")
        publisher.settle()


def test_an_exchange_that_was_taken_over_ends(tmp_path: Path, peers: Peers) -> None:
    parents = Parents(peers)
    parents.code = "stale_epoch"
    with running(
        tmp_path, manager=parents.manager_at, monitor=parents.monitor_at, kpi_seconds=0.1
    ) as process:
        parents.serves_until(process, "the end of an exchange that was taken over")
        assert process.wait() == 0
        # Its host manager hears why, and does not start it again.
        eventually(
            lambda: parents.serve() or parents.children[-1].child.state == "superseded", "the word"
        )


def test_an_orphan_ends(tmp_path: Path) -> None:
    with running(tmp_path, manager="tcp://127.0.0.1:1", orphan_seconds=0.5) as process:
        assert process.wait() == 0
        assert "no word from the host manager" in process.log


def test_a_publisher_that_is_gone_is_noticed(tmp_path: Path, peers: Peers) -> None:
    parents = Parents(peers)
    with running(
        tmp_path, manager=parents.manager_at, monitor=parents.monitor_at, kpi_seconds=0.1
    ) as process:
        eventually(lambda: parents.serve() or bool(parents.children), "the first report")
        process.data = parents.children[0].child.data
        publisher = peers.publisher(process)

        def publishers(count: int) -> bool:
            parents.serve()
            return bool(parents.reports) and parents.reports[-1].load.publishers == count

        eventually(lambda: publishers(1), "one publisher")
        publisher.socket.close(0)
        eventually(lambda: publishers(0), "no publisher")


def test_what_members_had_done_right_before_they_died_is_done(
    exchange: Process, peers: Peers
) -> None:
    """The exchange is handing out to each when it dies."""
    publisher = peers.publisher(exchange)
    for _ in range(500):
        publisher.send(b"x" * 4_000)
    publisher.settle()
    for number in range(MEMBERS):
        raw = Raw(int(exchange.data.rpartition(":")[2]), b"DEALER")
        asked = Join(
            id=1, queue=QUEUE, group="g", member=b"%016d" % number, name="m", attempt=1,
            settings=GroupSettings(),
        )  # fmt: skip
        raw.say(JOIN + TAG, documents.encode(asked))
        raw_answers(raw, JOIN)
        raw.say(CREDIT + TAG, consuming.encode(Credit(1_000, 1 << 30, 1_000)))
        lease, *_ = read_lease(raw_answers(raw, LEASED)[0][1])
        raw.say(DONE + TAG, consuming.encode(Done(1, whole=[lease])))
        raw.reset()
    asker = peers.dealer(exchange.data)

    def group() -> GroupState:
        asker.send_multipart([GROUPS, documents.encode(GroupsRequest(id=2, queue=QUEUE))])
        (found,) = documents.decode(split_answer(asker.recv())[1], Groups).groups
        return found

    eventually(lambda: not group().members)
    assert group().acknowledged == MEMBERS


def raw_answers(raw: Raw, letter: bytes) -> list[list[bytes]]:
    """What it is sent of this kind, as soon as there is some."""
    found = list[list[bytes]]()
    while not found:
        arrived(raw.socket)
        parts = [split_answer(frame, len(TAG)) for (frame,) in raw.heard()]
        found = [each for each in parts if each[0][:2] == letter]
    return found


def test_readers_that_fetch_a_large_batch_and_do_not_read_share_it(
    exchange: Process, peers: Peers
) -> None:
    publisher = peers.publisher(exchange)
    publisher.send(b"x" * 900_000)
    publisher.settle()
    readers = [peers.dealer(exchange.data, 1) for _ in range(10)]
    witness = peers.reader(exchange, b"t")
    assert len(witness.fetch((b"t", 0, 10))) == 1
    before = psutil.Process(exchange.process.pid).memory_info().rss
    for number in range(20):
        fetch = FetchRequest(id=number, queue=QUEUE, generation=EPOCH, wants=[(b"t", 0, 10)])
        for reader in readers:
            reader.send_multipart([channel.FETCH, documents.encode(fetch)])
        # Readers are served in turn: when this one has got all, the others have.
        assert len(witness.fetch((b"t", 0, 10))) == 1
    grown = psutil.Process(exchange.process.pid).memory_info().rss - before
    assert grown < 20_000_000, f"200 answers of 0.9 MB took {grown / 1e6:.0f} MB more"
