"""The word of a child with its host manager, over real sockets in one reactor."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import msgspec
import pytest
import zmq
from waiting import run_until

from roq.protocol import documents
from roq.protocol.control import ChildAck, ChildReport
from roq.protocol.reports import ChildInfo
from roq.protocol.version import FIELD, FIRST, WIRE_VERSION
from roq.runtime import manager, sockets
from roq.runtime.manager import ManagedChild, ManagerLink
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer
from roq.timing import CHILD_REPORT_SECONDS, IDLE_CHILD_FACTOR

CHILD = ChildInfo(
    child="q.x1", role="exchange", queue="q", queue_id=b"q" * 16, number=1, epoch=1, state="running"
)


class Bench:
    """A host manager that answers as it is told, and one child."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.port = 0
        self.server: RpcServer | None = None
        self.reports: list[ChildReport] = []
        self.ack: ChildAck | None = ChildAck(monitor="tcp://m:1")
        self.version = WIRE_VERSION
        self.late_seconds = 0.0
        self.kept: list[ChildAck] = []
        self.stopped: list[str] = []
        self.idle = False
        self.callers: set[bytes] = set()
        self.serve()
        self.link: ManagerLink | None = None
        self.child: ManagedChild

    def serve(self) -> None:
        socket = sockets.router(self.context)
        self.port = sockets.bind_port(socket, "127.0.0.1", self.port)
        self.server = RpcServer(self.reactor, socket, self._request)

    def end_server(self) -> None:
        assert self.server is not None
        self.server.close()
        self.server = None

    def begin(self, orphan_seconds: float = 60.0) -> ManagerLink:
        self.link = ManagerLink(
            self.reactor, self.context, f"tcp://127.0.0.1:{self.port}",
            orphan_seconds=orphan_seconds,
        )  # fmt: skip
        self.child = self.link.add(
            lambda: CHILD, on_keep=self.kept.append, on_stop=self.stopped.append,
            metrics=lambda: {"batches_in": 3.0}, idle=lambda: self.idle,
        )  # fmt: skip
        return self.link

    def until(self, condition: Callable[[], object]) -> None:
        run_until(self.reactor, condition)

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        if self.server is not None:
            self.server.close()
        self.context.term()
        self.reactor.close()

    def _request(self, peer: Peer, data: bytes) -> None:
        report = documents.decode(data, ChildReport)
        self.reports.append(report)
        self.callers.add(peer.routing_id)
        if self.ack is not None and self.server is not None:
            ack = msgspec.structs.replace(self.ack, id=report.id)
            self.reactor.call_later(self.late_seconds, lambda: self._send(peer, ack))

    def _send(self, peer: Peer, ack: ChildAck) -> None:
        if self.server is not None:
            said = {**documents.decode_raw(documents.encode(ack)), FIELD: self.version}
            self.server.send(peer, documents.encode_raw(said))


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.close()


def test_it_reports_again_and_again_and_every_other_one_carries_metrics(bench: Bench) -> None:
    bench.begin()
    bench.until(lambda: len(bench.reports) >= 5)
    assert [bool(each.metrics) for each in bench.reports[:5]] == [True, False, True, False, True]
    assert bench.reports[0].metrics == {"batches_in": 3.0}
    assert [bool(each.id) for each in bench.reports[:5]] == [True, False, True, False, True]
    assert bench.kept[0].monitor == "tcp://m:1"


def test_an_idle_child_reports_less_often_and_says_so_until_it_is_idle_no_more(
    bench: Bench,
) -> None:
    bench.idle = True
    link = bench.begin()
    bench.until(lambda: len(bench.reports) >= 2)
    since = bench.reactor.now()
    bench.until(lambda: len(bench.reports) >= 3)
    assert bench.reactor.now() - since > (IDLE_CHILD_FACTOR - 1) * CHILD_REPORT_SECONDS
    bench.until(lambda: len(bench.reports) >= 5)
    assert all(each.idle for each in bench.reports)
    assert all(each.id for each in bench.reports[3:])  # each one asks: what is new comes in time
    assert len(bench.callers) == 1
    bench.idle = False
    link.report_on()
    bench.until(lambda: len(bench.reports) >= 7)
    assert not any(each.idle for each in bench.reports[5:])


def test_it_stops_when_its_host_manager_says_so(bench: Bench) -> None:
    bench.ack = ChildAck(action="stop", reason="removed")
    bench.begin()
    bench.until(lambda: bench.stopped)
    assert bench.stopped[0] == "removed"
    assert bench.kept == []


def test_nobody_wants_it_when_nobody_says_so(bench: Bench) -> None:
    bench.ack = None
    link = bench.begin(orphan_seconds=0.5)
    bench.until(lambda: bench.stopped)
    assert bench.stopped == [""]
    assert link.silent_seconds >= 0.5


def test_a_host_manager_of_version_1_is_named_and_not_asked_more_often(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends once, as without a host manager: nothing is there to start it again."""
    bench.version = FIRST
    bench.begin(orphan_seconds=1.5)
    bench.until(lambda: bench.stopped)
    assert bench.stopped == [""]
    assert bench.kept == []
    assert len(bench.reports) <= 1.5 / CHILD_REPORT_SECONDS + 2
    assert f"speaks version {FIRST} " in caplog.text
    assert f"this side version {WIRE_VERSION}:" in caplog.text


def test_a_word_of_somebody_else_keeps_it_alive_without_a_host_manager(bench: Bench) -> None:
    bench.ack = None
    link = bench.begin(orphan_seconds=0.5)

    def confirm() -> None:
        bench.child.confirmed()
        bench.reactor.call_later(0.1, confirm)

    confirm()
    bench.until(lambda: link.silent_seconds > 1.2)
    assert bench.stopped == []


def test_a_host_manager_that_comes_back_is_found_and_not_flooded(bench: Bench) -> None:
    link = bench.begin()
    bench.until(lambda: bench.kept)
    bench.end_server()
    bench.until(lambda: link.silent_seconds > 3.0)
    bench.reports.clear()
    bench.serve()
    bench.until(lambda: link.silent_seconds < 0.5)
    # Most of what was to be said while nobody listened is not said any more.
    assert len(bench.reports) <= 10


def test_a_host_manager_that_answers_late_wants_its_children_nevertheless(bench: Bench) -> None:
    bench.late_seconds = 2.5
    link = bench.begin(orphan_seconds=5.5)
    bench.until(lambda: len(bench.kept) > 2 or bench.stopped)
    assert bench.stopped == []
    assert link.silent_seconds < 5.5


def test_without_descriptors_it_goes_on_trying(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = bench.begin()
    bench.until(lambda: bench.kept)
    bench.end_server()

    def refuse(*_arguments: object) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    monkeypatch.setattr(sockets, "dealer", refuse)
    bench.until(lambda: link.silent_seconds > 2.5)
    bench.serve()
    monkeypatch.undo()
    bench.until(lambda: link.silent_seconds < 0.5)
    assert bench.stopped == []


def test_it_asks_why_it_was_told_to_end(bench: Bench) -> None:
    bench.begin()
    bench.ack = ChildAck(action="stop", reason="stopped")
    reasons: list[str] = []
    bench.child.ask_reason(reasons.append)
    bench.until(lambda: reasons)
    assert reasons == ["stopped"]
    assert "stopping" in [each.child.state for each in bench.reports]
    bench.ack = None
    bench.child.ask_reason(reasons.append)
    bench.until(lambda: len(reasons) == 2)
    assert reasons == ["stopped", ""]


def test_time_in_which_this_process_did_not_run_is_no_silence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = bench.begin(orphan_seconds=4.0)
    bench.until(lambda: bench.kept)
    bench.ack = None
    now, reports = bench.reactor.now, len(bench.reports)
    monkeypatch.setattr(bench.reactor, "now", lambda: now() + 3_600.0)
    bench.until(lambda: len(bench.reports) >= reports + 3)
    assert bench.stopped == []
    assert link.silent_seconds < 4.0


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "DISOWNED_SECONDS", 0.8)
    monkeypatch.setattr(manager, "DISOWNED_HOLDS_SECONDS", 0.3)


@pytest.mark.usefixtures("brief")
def test_without_a_host_manager_a_process_of_which_the_leader_knows_nothing_ends_soon(
    bench: Bench,
) -> None:
    bench.ack = None
    bench.begin()

    def disown() -> bool:
        bench.child.disowned()
        return bool(bench.stopped)

    bench.until(disown)
    assert bench.stopped == ["removed"]


@pytest.mark.usefixtures("brief")
def test_a_host_manager_that_wants_a_process_outweighs_a_leader_that_knows_nothing(
    bench: Bench,
) -> None:
    bench.begin()

    def disown() -> bool:
        bench.child.disowned()
        return len(bench.kept) >= 3

    bench.until(disown)
    assert bench.stopped == []


@pytest.mark.usefixtures("brief")
def test_one_word_that_is_not_said_again_ends_nobody(bench: Bench) -> None:
    bench.ack = None
    link = bench.begin()
    bench.child.disowned()
    bench.until(lambda: link.silent_seconds > 1.2)
    assert bench.stopped == []
