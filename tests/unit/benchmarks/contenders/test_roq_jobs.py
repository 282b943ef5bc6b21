"""RoQ's jobs of benchmarks: instances are told where they are, and every job is submitted once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.benchmarks.contenders import roq_jobs as module
from roq.benchmarks.contenders.roq_jobs import BLOCK, LIMIT, NOTHING, TIMED, RoqJobs, program
from roq.jobs.states import JobStatus


class PaperProgram:
    made: list[PaperProgram]

    def __init__(self, argv: list[str], log: Path, *, env: dict[str, str]) -> None:
        self.argv, self.log, self.env = argv, log, env
        self.pid = len(self.made)
        self.stopped = 0
        self.made.append(self)

    def stop(self) -> None:
        self.stopped += 1


class PaperJobs:
    """The program, as its submitter has it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.cells: list[Any] = []
        self.types = {NOTHING: SimpleNamespace(submit_many=self._submit)}
        self.operate = SimpleNamespace(dispatch=self._dispatch, counts=lambda: self.cells)

    def _submit(self, numbers: range) -> None:
        self.calls.append(numbers)

    def _dispatch(self, how: str, *, who: str) -> None:
        self.calls.append((how, who))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> PaperJobs:
    jobs = PaperJobs()
    monkeypatch.setattr(PaperProgram, "made", [], raising=False)
    monkeypatch.setattr(module, "Program", PaperProgram)
    monkeypatch.setattr(module, "program", lambda *_: jobs)
    return jobs


@pytest.mark.parametrize(("cluster", "how"), [(None, "database"), ("h:1", "queue")])
def test_instances_are_told_the_database_the_cluster_and_the_queue(
    cluster: str | None, how: str, paper: PaperJobs, tmp_path: Path
) -> None:
    made = RoqJobs(lambda: "sqlite:x", None if cluster is None else lambda: str(cluster))
    made.start(tmp_path, 2, 8)
    assert paper.calls == [(how, "bench")]
    first, second = PaperProgram.made
    assert (first.env[module.URL], first.env[module.CLUSTER]) == ("sqlite:x", cluster or "")
    assert first.env[module.QUEUE].startswith("roq.jobs.")
    assert first.argv[3:] == [
        "roq", "jobs", "work", module.PROGRAM, "--threads", "8", "--type", NOTHING,
    ]  # fmt: skip
    assert first.log != second.log
    assert made.pids() == [0, 1]


def test_another_start_has_a_queue_of_its_own(paper: PaperJobs, tmp_path: Path) -> None:
    for _ in range(2):
        RoqJobs(lambda: "u", None, types=TIMED).start(tmp_path, 1, 1)
    first, second = PaperProgram.made
    assert first.env[module.QUEUE] != second.env[module.QUEUE]
    assert first.argv[-6:] == [word for name in TIMED for word in ("--type", name)]


def test_every_job_is_submitted_once_in_blocks(paper: PaperJobs, tmp_path: Path) -> None:
    made = RoqJobs(lambda: "u", None)
    made.start(tmp_path, 1, 1)
    made.submit(2 * BLOCK + 7)
    blocks = paper.calls[1:]
    assert [len(each) for each in blocks] == [BLOCK, BLOCK, 7]
    assert [number for each in blocks for number in each] == list(range(2 * BLOCK + 7))


def test_jobs_of_its_type_that_have_not_ended_are_left(paper: PaperJobs, tmp_path: Path) -> None:
    made = RoqJobs(lambda: "u", None)
    made.start(tmp_path, 1, 1)
    paper.cells = [
        SimpleNamespace(type=NOTHING, status=JobStatus.COMPLETE, number=100),
        SimpleNamespace(type=NOTHING, status=JobStatus.CREATED, number=3),
        SimpleNamespace(type=NOTHING, status=JobStatus.RUNNING, number=4),
        SimpleNamespace(type="Waits", status=JobStatus.RUNNING, number=50),
    ]
    assert made.left() == 7


def test_stopping_ends_the_instances_and_the_program_once(paper: PaperJobs, tmp_path: Path) -> None:
    made = RoqJobs(lambda: "u", None)
    made.start(tmp_path, 2, 1)
    made.stop()
    made.stop()
    assert [each.stopped for each in PaperProgram.made] == [1, 1]
    assert paper.calls[1:] == ["close"]
    assert made.pids() == []


def test_the_program_has_a_type_for_each_measurement(tmp_path: Path) -> None:
    jobs = program(f"sqlite:///{tmp_path / 'jobs.db'}", None, "roq.jobs.1")
    try:
        assert set(jobs.types) == {NOTHING, *TIMED}
        assert jobs.types["Limited"].limits.cluster_limit == LIMIT
        assert jobs.types["Waits"].restartable
    finally:
        jobs.close()
