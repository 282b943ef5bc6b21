"""The shell of one queue's monitor: what its sockets say, and how it ends beside others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import zmq
from monitor_bench import Bench, ended

from roq.errors import ConfigError, Unavailable
from roq.model import Limits
from roq.monitor.daemon import KIND, Birth, Monitor, child_info
from roq.monitor.events import Listened
from roq.monitor.machine import MonitorMachine
from roq.protocol.control import (
    Answer,
    Control,
    Failure,
    Health,
    HealthRequest,
    Join,
    LocateRequest,
    Topology,
)
from roq.runtime import flight
from roq.runtime.rpc import RpcClient


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("roq.monitor.process.structured_logs.configure", lambda *_, **__: None)
    found = Bench(tmp_path)
    yield found
    found.close()


def monitor(bench: Bench, queue: str = "a") -> Monitor:
    return bench.process._monitors[f"{queue}.monitor"]


def ask(bench: Bench, message: Control) -> Answer | Unavailable:
    client = RpcClient(bench.reactor, bench.context, monitor(bench).control)
    answers: list[Answer | Unavailable] = []
    client.request(message, 20.0, answers.append)
    bench.until(lambda: answers)
    client.close()
    return answers[0]


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


def test_whoever_asks_is_answered_at_the_address_that_it_reports(bench: Bench) -> None:
    bench.serve("a")
    assert bench.reports[0].child.control == monitor(bench).control
    health = ask(bench, HealthRequest(id=7))
    assert isinstance(health, Health)
    assert (health.role, health.name) == ("monitor", "a")


def test_what_it_cannot_read_is_refused_and_the_log_says_so_at_a_bounded_rate(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.serve("a")
    for _ in range(5):
        assert isinstance(ask(bench, LocateRequest(id=8, QName="a")), Failure)
    assert caplog.text.count("refused a request") == 1


def test_statistics_are_made_while_somebody_listens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    handle = MonitorMachine.handle

    def noted(machine: MonitorMachine, event: object, now: float) -> object:
        if isinstance(event, Listened):
            told.append(event.anybody)
        return handle(machine, event, now)  # type: ignore[arg-type]

    bench.serve("a")
    monkeypatch.setattr(monitor(bench).recorder, "handle", partial(noted, monitor(bench)._machine))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    readers = [context.socket(zmq.SUB) for _ in range(2)]
    for each in readers:
        each.connect(monitor(bench).statistics)
        each.setsockopt(zmq.SUBSCRIBE, b"")
    bench.until(lambda: monitor(bench)._tick() or told)
    assert told == [True]
    context.destroy(linger=0)
    bench.until(lambda: monitor(bench)._tick() or told == [True, False])


def test_clients_are_told_when_the_queue_is_stopped_and_its_process_hears_that_it_has_ended(
    bench: Bench,
) -> None:
    bench.serve("a", "b")
    pushed = list[Answer]()
    client = RpcClient(bench.reactor, bench.context, monitor(bench).control, pushed.append)
    join = Join(queue_id=monitor(bench).spec.queue_id, subscriber=b"s" * 16)
    joined = list[Answer | Unavailable]()
    client.request(join, 20.0, joined.append)
    bench.until(lambda: joined)
    monitor(bench).stop("removed")
    bench.until(lambda: ended(bench) and pushed)
    client.close()
    assert ended(bench) == [("a.monitor", "")]
    assert [each.state for each in pushed if isinstance(each, Topology)] == ["removed"]


def test_an_end_is_told_once_whatever_comes_afterwards(bench: Bench) -> None:
    bench.serve("a", "b")
    one, ends = monitor(bench), list[str]()
    one._on_end = lambda _monitor, reason: ends.append(reason)
    one.end("for a test")
    one.end("again")
    one.stop("removed")
    one._handle(Listened(anybody=True))
    assert ends == ["for a test"]


def test_a_place_that_it_cannot_have_is_refused_and_nothing_stays_open(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.serve("a")
    one = monitor(bench)
    port = int(one.control.rpartition(":")[2])
    made = {
        "reactor": bench.reactor, "context": bench.context, "link": one._link,
        "leader": one._leader, "policy_named": bench.process._policies.policy_named,
        "on_end": lambda *_: None,
    }  # fmt: skip
    for spec, error in (
        (msgspec.structs.replace(one.spec, child="b.monitor", ports=(port, port + 1)), Unavailable),
        (msgspec.structs.replace(one.spec, child="b.monitor", bind="192.0.2.1"), ConfigError),
        (
            msgspec.structs.replace(one.spec, child="b.monitor", statistics_ports=(port, port + 1)),
            Unavailable,
        ),
    ):
        with caplog.at_level(logging.CRITICAL), pytest.raises(error):
            Monitor(spec, **made)


def test_before_it_runs_it_presents_itself_as_starting(bench: Bench) -> None:
    bench.serve("a")
    info = child_info(monitor(bench).spec)
    assert (info.child, info.role, info.state, info.control) == (
        "a.monitor", "monitor", "starting", "",
    )  # fmt: skip
    assert monitor(bench).child().state == "running"


def test_a_machine_is_born_again_as_it_was() -> None:
    given = Birth(
        queue="q", queue_id=b"q" * 16, epoch=7, limits=Limits(), kpi_seconds=1.0, restarted=True,
        now=5.0, control="tcp://127.0.0.1:1",
    )  # fmt: skip
    read = msgspec.msgpack.decode(flight.encode(given), type=KIND.birth)
    assert read == given
    machine = KIND.make(read)
    assert machine.next_deadline() is not None
    assert machine.next_deadline() >= 5.0
