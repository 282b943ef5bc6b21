"""One process with the monitors of several queues, and a host manager that only listens."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roq.model import Limits
from roq.monitor.machine import MonitorMachine
from roq.monitor.process import MonitorProcess
from roq.protocol import documents
from roq.protocol.control import ChildAck, ChildReport
from roq.protocol.spec import (
    COMMAND_BYTES_MAX,
    Command,
    End,
    MonitorSpec,
    Serve,
    encode_command,
    encode_spec,
)
from roq.runtime import flight, sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer


class Bench:
    """A process that is run by the test, and what it has reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipe = folder / "monitors-1.pipe"
        os.mkfifo(pipe)
        self.process = MonitorProcess(pipe)
        self.pipe = os.open(pipe, os.O_WRONLY)
        self.reactor: Reactor = self.process._reactor
        self.context = sockets.new_context()
        socket = sockets.router(self.context)
        self.port = sockets.bind_port(socket, "127.0.0.1", 0)
        self.server = RpcServer(self.reactor, socket, self._request)
        self.reports: list[ChildReport] = []
        self.noted = True
        """Whether the host manager answers."""

    def write(self, queue: str, epoch: int = 1, *, name: str = "", **changes: object) -> str:
        """Write the spec of a queue's monitor; gives its name."""
        values: dict[str, object] = {
            "child": f"{queue}.monitor", "queue": queue, "queue_id": queue.encode() * 16,
            "epoch": epoch, "bind": "127.0.0.1", "advertise": "127.0.0.1", "ports": (0, 0),
            "manager": f"tcp://127.0.0.1:{self.port}", "limits": Limits(), **changes,
        }  # fmt: skip
        child = name or f"{queue}.monitor"
        (self.folder / f"{child}.json").write_bytes(encode_spec(MonitorSpec(**values)))  # type: ignore[arg-type]
        return child

    def tell(self, *commands: Command | bytes) -> None:
        for command in commands:
            os.write(self.pipe, command if isinstance(command, bytes) else encode_command(command))

    def serve(self, *queues: str) -> None:
        """Have it serve these, and wait for their first reports."""
        self.tell(*(Serve(child=self.write(queue)) for queue in queues))
        self.until(lambda: {f"{queue}.monitor" for queue in queues} <= self.said("running"))

    def said(self, state: str) -> set[str]:
        """Those that have been reported to be so."""
        return {each.child.child for each in self.reports if each.child.state == state}

    def until(self, condition: Callable[[], object]) -> None:
        reached = []

        def look() -> None:
            if condition():
                reached.append(True)
                self.reactor.stop()
            else:
                self.reactor.call_later(0.01, look)

        late = self.reactor.call_later(20, self.reactor.stop)
        look()
        self.reactor.run()
        late.cancel()
        self.reactor._stopping = False
        assert reached

    def ends_by_itself(self) -> None:
        late = self.reactor.call_later(20, lambda: pytest.fail("it goes on"))
        self.process.run()
        late.cancel()

    def close(self) -> None:
        self.server.close()
        os.close(self.pipe)
        for monitor in list(self.process._monitors.values()):
            monitor.end()
        self.process.close()
        self.context.term()

    def _request(self, peer: Peer, data: bytes) -> None:
        report = documents.decode(data, ChildReport)
        self.reports.append(report)
        if self.noted:
            stops = report.child.state in {"stopping", "ended"}
            ack = ChildAck(
                id=report.id, child=report.child.child, action="stop" if stops else "keep"
            )
            self.server.send(peer, documents.encode(ack))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.close()


def ends(bench: Bench) -> list[tuple[str, str]]:
    """Each time that an end was told: again and again, until it is noted."""
    return [(each.child.child, each.child.reason) for each in bench.reports
            if each.child.state == "ended"]  # fmt: skip


def ended(bench: Bench) -> list[tuple[str, str]]:
    """Those that have ended, each once."""
    return list(dict.fromkeys(ends(bench)))


def test_each_of_its_monitors_has_an_address_and_reports(bench: Bench) -> None:
    bench.serve("a", "b")
    addresses = {each.child.control for each in bench.reports if each.child.state == "running"}
    assert len(addresses) == 2
    before = len(bench.reports)
    bench.until(lambda: len(bench.reports) >= before + 6)
    assert {each.child.child for each in bench.reports[before:]} == {"a.monitor", "b.monitor"}


def test_what_goes_wrong_in_one_monitor_ends_that_one_alone(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(flight.FOLDER, str(tmp_path / "flights"))
    bench.serve("a", "b")
    broken = bench.process._monitors["a.monitor"]._machine
    handle = MonitorMachine.handle

    def fails(machine: MonitorMachine, event: object, now: float) -> object:
        if machine is broken:
            raise ValueError("seven")
        return handle(machine, event, now)  # type: ignore[arg-type]

    monkeypatch.setattr(MonitorMachine, "handle", fails)
    with caplog.at_level(logging.CRITICAL):
        bench.until(lambda: ended(bench))
    assert ended(bench) == [("a.monitor", "ValueError: seven")]
    assert list(bench.process._monitors) == ["b.monitor"]
    (path,) = (tmp_path / "flights").iterdir()
    ((header, _, records),) = flight.read(path)
    assert (header.name, records[-1].raised) == ("a.monitor", "ValueError: seven")
    bench.reports.clear()  # its end may come once more
    bench.until(lambda: len(bench.reports) >= 5)
    assert bench.said("running") == {"b.monitor"}


def test_it_ends_one_that_it_is_told_to_and_itself_after_the_last(bench: Bench) -> None:
    bench.serve("a", "b")
    bench.tell(End(child="a.monitor", epoch=1))
    bench.until(lambda: ended(bench))
    assert ended(bench) == [("a.monitor", "")]
    bench.tell(End(child="b.monitor", epoch=2), End(child="c.monitor", epoch=1))  # not these
    before = len(bench.reports)
    bench.until(lambda: len(bench.reports) >= before + 3)
    assert len(ended(bench)) == 1
    bench.tell(End(child="b.monitor", epoch=1))
    bench.ends_by_itself()
    assert ended(bench) == [("a.monitor", ""), ("b.monitor", "")]


def test_the_end_of_one_is_told_until_it_is_noted(bench: Bench) -> None:
    bench.serve("a", "b")
    bench.process._monitors["a.monitor"].end("for a test")
    bench.noted = False
    bench.until(lambda: len(ends(bench)) >= 3)
    bench.noted = True
    bench.until(lambda: not bench.process._untold)
    bench.reports.clear()
    bench.until(lambda: len(bench.reports) >= 3)  # and so all that was under way is here
    bench.reports.clear()
    bench.until(lambda: len(bench.reports) >= 3)
    assert ends(bench) == []


def test_one_that_comes_as_the_last_one_goes_is_served(bench: Bench) -> None:
    bench.serve("a")
    bench.tell(End(child="a.monitor", epoch=1), Serve(child=bench.write("b")))
    bench.until(lambda: "b.monitor" in bench.said("running") and ended(bench))
    before = len(bench.reports)
    bench.until(lambda: len(bench.reports) >= before + 3)


def test_a_later_epoch_of_the_same_queue_takes_the_place_of_the_earlier(bench: Bench) -> None:
    bench.serve("a")
    bench.tell(Serve(child=bench.write("a", epoch=2)))
    bench.until(lambda: any(each.child.epoch == 2 for each in bench.reports))
    assert bench.process._monitors["a.monitor"].spec.epoch == 2
    bench.tell(Serve(child=bench.write("a", epoch=1)))
    before = len(bench.reports)
    bench.until(lambda: len(bench.reports) >= before + 3)
    assert bench.process._monitors["a.monitor"].spec.epoch == 2


def test_one_that_finds_no_port_is_reported_with_the_reason(bench: Bench) -> None:
    bench.serve("a")
    taken = int(bench.process._monitors["a.monitor"].control.rpartition(":")[2])
    bench.tell(Serve(child=bench.write("b", ports=(taken, taken + 1))))
    bench.until(lambda: ended(bench))
    ((child, reason),) = ended(bench)
    assert child == "b.monitor"
    assert reason.startswith("it cannot start: ")
    assert list(bench.process._monitors) == ["a.monitor"]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"serve a\n",
        b"\xff\xfe{}\n",
        b"[" * 500 + b"\n",
        b"x" * (COMMAND_BYTES_MAX * 3) + b"\n",
        b'{"type": "serve", "child": "../a.monitor"}\n',
        b'{"type": "serve", "child": "nobody.monitor"}\n',
        b'{"type": "serve", "child": "other.monitor"}\n',
        b'{"type": "end", "child": "a.monitor", "epoch": -1}\n',
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(
    bench: Bench, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench.serve("a")
    bench.write("a", name="other.monitor")
    with caplog.at_level(logging.CRITICAL):
        bench.tell(line, Serve(child=bench.write("b")))
        bench.until(lambda: "b.monitor" in bench.said("running"))
    assert set(bench.process._monitors) == {"a.monitor", "b.monitor"}


def test_a_process_that_is_given_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roq.monitor.process.FIRST_SECONDS", 0.05)
    bench = Bench(tmp_path)
    bench.ends_by_itself()
    bench.close()
