"""procrastinate's part: its tables are made once, its workers told, and every job is submitted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.benchmarks.contenders import procrastinate_jobs as module
from roq.benchmarks.contenders.postgres_server import BLOCK
from roq.benchmarks.contenders.procrastinate_jobs import URL, ProcrastinateJobs


class PaperDatabase:
    """Its connection, the application and its task in one."""

    def __init__(self, *, has_tables: bool) -> None:
        self.has_tables = has_tables
        self.calls: list[Any] = []
        self.schema_manager = self

    def execute(self, _statement: str) -> Any:
        return SimpleNamespace(
            fetchone=lambda: ("procrastinate_jobs" if self.has_tables else None,)
        )

    def open(self) -> None:
        self.calls.append("open")

    def apply_schema(self) -> None:
        self.calls.append("tables")

    def batch_defer(self, *jobs: dict[str, int]) -> None:
        self.calls.append([each["number"] for each in jobs])

    def close(self) -> None:
        self.calls.append("close")


class Jobs(ProcrastinateJobs):
    """With a database of paper, and workers that are only told."""

    def __init__(self, database: PaperDatabase) -> None:
        super().__init__(lambda: "postgresql://a")
        self.database = database
        self.workers: list[Any] = []

    def open(self) -> str:
        self._connection = self.database
        return self._url()

    def work(self, directory: Path, processes: int, command: Any, env: Any) -> None:
        self.workers.append((directory, processes, [*command], env))


def started(monkeypatch: pytest.MonkeyPatch, *, has_tables: bool = True) -> Jobs:
    database = PaperDatabase(has_tables=has_tables)

    def program(url: str, *, sync: bool) -> tuple[Any, Any]:
        assert (url, sync) == ("postgresql://a", True)
        return database, database

    monkeypatch.setattr(module, "program", program)
    made = Jobs(database)
    made.start(Path("/there"), 2, 8)
    return made


@pytest.mark.parametrize(("has_tables", "calls"), [(True, ["open"]), (False, ["open", "tables"])])
def test_tables_are_made_where_there_are_none(
    has_tables: bool, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started(monkeypatch, has_tables=has_tables).database.calls == calls


def test_its_own_worker_runs_so_many_jobs_at_once_in_so_many_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((folder, processes, command, env),) = started(monkeypatch).workers
    assert (folder, processes, env) == (Path("/there"), 2, {URL: "postgresql://a"})
    assert command[-6:] == [
        "procrastinate", "--app", f"{module.__name__}.app", "worker", "--concurrency", "8",
    ]  # fmt: skip


def test_every_job_is_submitted_once_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = started(monkeypatch)
    made.submit(BLOCK + 3)
    first, second = made.database.calls[1:]
    assert [*first, *second] == list(range(BLOCK + 3))
    assert len(second) == 3


def test_stopping_closes_the_application_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = started(monkeypatch)
    made.stop()
    made.stop()
    assert made.database.calls[1:] == ["close", "close"], "the connection, and the application"


def test_it_is_left_out_with_the_reason_that_its_library_or_server_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "worker_missing", lambda name: f"no {name}")
    assert module.missing() == "no procrastinate"
