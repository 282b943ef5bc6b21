"""How the program of River is built and asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roq.benchmarks.contenders import river_jobs
from roq.benchmarks.contenders.river_jobs import RiverJobs
from roq.benchmarks.processes import BenchmarkError


def test_why_it_cannot_be_built_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "go", stderr="go.mod requires go >= 1.26.0\n")

    monkeypatch.setattr(river_jobs.subprocess, "run", refuse)
    with pytest.raises(BenchmarkError, match="requires go"):
        river_jobs._built(tmp_path / "river")
    (tmp_path / "river").touch()
    assert river_jobs._built(tmp_path / "river") == tmp_path / "river", "built once"


def test_without_go_it_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(river_jobs.shutil, "which", lambda _: None)
    assert "Go is not installed" in str(river_jobs.missing())


def test_the_source_of_its_program_is_here() -> None:
    assert {"go.mod", "go.sum", "main.go"} <= {each.name for each in river_jobs.SOURCE.iterdir()}


def test_a_submission_is_over_when_it_is_answered() -> None:
    class Submitter:
        def __init__(self) -> None:
            self.lines: list[bytes] = []

        def write_line(self, line: bytes) -> None:
            self.lines.append(line)

        def read_line(self, timeout: float) -> bytes:
            assert timeout > 1
            return self.lines.pop()

    jobs, submitter = RiverJobs(lambda: ""), Submitter()
    jobs._submitter = submitter  # type: ignore[assignment]
    jobs.submit(700)
    assert submitter.lines == []
