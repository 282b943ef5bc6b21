"""One process with the monitors of several queues, and a host manager that only listens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from monitor_bench import Bench, ended, ends

from roq.protocol.spec import (
    COMMAND_BYTES_MAX,
    End,
    Serve,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.close()


def test_each_of_its_monitors_has_an_address_and_reports(bench: Bench) -> None:
    bench.serve("a", "b")
    addresses = {each.child.control for each in bench.reports if each.child.state == "running"}
    assert len(addresses) == 2
    before = len(bench.reports)
    bench.until(lambda: len(bench.reports) >= before + 6)
    assert {each.child.child for each in bench.reports[before:]} == {"a.monitor", "b.monitor"}


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
