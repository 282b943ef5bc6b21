"""A contender's clients take turns with the harness; what is summed up is what they have told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roq.benchmarks import contender as module
from roq.benchmarks.case import Case, Run
from roq.benchmarks.contender import Contender, ProgramServer, measured, not_installed, start
from roq.benchmarks.processes import Answer, BenchmarkError
from roq.errors import Unavailable


class PaperWorker:
    """A client process: answers what the test has laid out for its `go`."""

    made: list[PaperWorker]
    log: list[tuple[str, str]]
    fails = ""

    def __init__(self, module_: str, role: str, style: str, options: Any, folder: Path) -> None:
        self.given = (module_, style, options, folder)
        self.role, self.pid = role, len(self.made)
        self.name = f"{role[0]}{self.pid}"
        self.runs: list[Run | None] = []
        self.went = False
        self.ended = ""
        self.made.append(self)

    def ask(self, command: str, run: Run | None = None) -> None:
        self.log.append((self.name, command))
        self.went = command == "go"
        self.runs += [run] if run else []

    def answer(self, _seconds: float) -> Answer:
        self.log.append((self.name, "answer"))
        if self.fails == self.role:
            raise BenchmarkError("no answer")
        if not self.went:
            return Answer()
        if self.role == "publisher":
            return Answer(started=10.0, finished=11.0, cpu=0.5, latencies_us=[7.0])
        return Answer(finished=12.0 + self.pid, cpu=0.25, latencies_us=[float(self.pid)])

    def close(self) -> None:
        self.ended = "closed"

    def kill(self) -> None:
        self.ended = "killed"


class PaperServer:
    def __init__(self) -> None:
        self.told = {"url": "a"}
        self.calls: list[str] = []
        self.trouble: Exception | None = None

    def start(self, _directory: Path) -> None:
        self.calls.append("start")
        if self.trouble is not None:
            raise self.trouble

    def stop(self) -> None:
        self.calls.append("stop")

    def options(self, _case: Case) -> dict[str, str]:
        return dict(self.told)

    def processes(self, _case: Case) -> dict[str, int]:
        return {"exchange": 99}


@pytest.fixture
def server() -> PaperServer:
    return PaperServer()


@pytest.fixture
def contender(
    server: PaperServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Contender:  # fmt: skip
    monkeypatch.setattr(PaperWorker, "made", [], raising=False)
    monkeypatch.setattr(PaperWorker, "log", [], raising=False)
    monkeypatch.setattr(module, "Worker", PaperWorker)
    used = iter(range(100))
    monkeypatch.setattr(module, "cpu_seconds", lambda pid: float(next(used)))
    monkeypatch.setattr(module, "rss_bytes", lambda pid: 1_000 + pid)
    made = Contender("k", "title", kind="kind", module="m", style="s", server=server)
    made.start(tmp_path)
    return made


CASE = Case(size=10, batch=4, subscribers=2)


def test_subscribers_are_there_before_anything_is_sent(contender: Contender) -> None:
    contender.run(CASE, 20, 0)
    log = PaperWorker.log
    assert [each for each in log if each[1] == "open"] == [
        ("s1", "open"), ("s2", "open"), ("p0", "open"),
    ]  # fmt: skip
    assert log.index(("s2", "answer")) < log.index(("p0", "open"))
    assert [each[0] for each in log if each[1] == "go"] == ["s1", "s2", "p0"]
    assert [each[0] for each in log if each[1] == "close"] == ["s1", "s2", "p0"]


def test_a_sample_is_what_all_processes_have_told(contender: Contender) -> None:
    sample = contender.run(CASE, 20, 3)
    assert (sample.contender, sample.case, sample.round, sample.messages) == ("k", CASE, 3, 20)
    assert sample.seconds == 14.0 - 10.0, "until the last one has the last message"
    assert sample.cpu == {"publisher": 0.5, "subscriber": 0.5, "exchange": 1.0}
    assert sample.rss == {"publisher": 1_000, "subscriber": 1_002, "exchange": 1_099}
    assert (sample.latencies_us, sample.acks_us) == ([1.0, 2.0], [7.0])


def test_clients_stay_from_case_to_case_and_each_measurement_has_a_topic_of_its_own(
    contender: Contender,
) -> None:
    contender.run(CASE, 20, 0)
    contender.run(CASE, 30, 0)
    publisher, *subscribers = PaperWorker.made
    assert len(subscribers) == 2
    first, second = publisher.runs
    assert first is not None
    assert second is not None
    assert first.topic != second.topic
    assert not second.topic.startswith(first.topic)
    assert (first.size, first.batch, first.count, second.count) == (10, 4, 20, 30)
    assert publisher.given[:3] == ("m", "s", {"url": "a"})


def test_others_are_started_where_there_are_fewer_or_the_server_is_elsewhere(
    contender: Contender, server: PaperServer
) -> None:
    contender.run(CASE, 20, 0)
    contender.run(Case(size=10), 20, 0)
    server.told = {"url": "b"}
    contender.run(Case(size=10), 20, 0)
    assert [each.ended for each in PaperWorker.made] == ["closed"] * 5 + [""] * 2
    contender.stop()
    contender.stop()
    assert {each.ended for each in PaperWorker.made} == {"closed"}


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_clients_of_a_measurement_that_broke_are_killed_and_new_ones_made(
    contender: Contender, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaperWorker, "fails", role)
    with pytest.raises(BenchmarkError, match="no answer"):
        contender.run(CASE, 20, 0)
    assert {each.ended for each in PaperWorker.made} == {"killed"}
    monkeypatch.setattr(PaperWorker, "fails", "")
    contender.run(CASE, 20, 0)
    assert len(PaperWorker.made) == 6


@pytest.mark.parametrize("trouble", [BenchmarkError("no port"), Unavailable("no port")])
def test_a_server_is_started_once_and_one_that_does_not_start_is_a_reason(
    server: PaperServer, trouble: Exception, tmp_path: Path
) -> None:
    started: list[Any] = []
    server.trouble = trouble
    assert start(server, started, tmp_path) == "no port"
    assert (server.calls, started) == (["start", "stop"], [])
    server.trouble = None
    assert [start(server, started, tmp_path) for _ in range(2)] == ["", ""]
    assert (server.calls, started) == (["start", "stop", "start"], [server])


def test_one_that_needs_no_other_is_measured_by_itself(contender: Contender) -> None:
    worker: Any = PaperWorker("m", "publisher", "s", {}, Path())
    run = Run(topic="t", size=1, batch=1, count=1)
    assert measured(worker, run).latencies_us == [7.0]
    assert [each[1] for each in PaperWorker.log][::2] == ["open", "go", "close"]


def test_a_library_that_is_missing_is_named() -> None:
    assert not_installed("asyncio", "json") is None
    assert not_installed("asyncio", "nosuch") == "nosuch is not installed: pip install nosuch"


class PaperProgram:
    pid = 7
    stopped = 0

    def __init__(self, log: Path, lives: int) -> None:
        self.log, self.lives = log, lives

    def alive(self) -> bool:
        self.lives -= 1
        return self.lives >= 0

    def wait(self, _seconds: float) -> None: ...

    def stop(self) -> None:
        self.stopped += 1


class Serving(ProgramServer):
    """A server that serves when it is looked at for the third time."""

    looks = 0

    def start(self, directory: Path) -> None:
        self._run(["program"], directory / "log")
        self._await(self._serves)

    def _serves(self) -> bool:
        self.looks += 1
        return self.looks == 3


def test_a_server_that_is_a_program_is_waited_for_and_one_that_ends_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthree\nno port\n")
    programs = [PaperProgram(log, 9), PaperProgram(log, 1)]
    made: Callable[..., Any] = lambda *_: programs.pop(0)  # noqa: E731
    monkeypatch.setattr(module, "Program", made)
    first, program = Serving("a program"), programs[0]
    assert first.processes(CASE) == {}
    first.start(tmp_path)
    assert (first.looks, first.processes(CASE), first.options(CASE)) == (3, {"exchange": 7}, {})
    first.stop()
    first.stop()
    assert (program.stopped, first.processes(CASE)) == (1, {})
    with pytest.raises(BenchmarkError, match="a program does not start: two\nthree\nno port"):
        Serving("a program").start(tmp_path)


def test_a_contender_can_run_unless_it_says_why_not(contender: Contender) -> None:
    assert contender.missing() is None
