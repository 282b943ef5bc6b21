"""Workers of peers whose jobs are in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from roq.benchmarks.contenders import postgres_server
from roq.benchmarks.contenders.postgres_server import BLOCK, PostgresJobs, blocks

stopped: list[str] = []


class Program:
    def __init__(self, argv: Sequence[str], log: Path, *, env: Mapping[str, str]) -> None:
        assert (argv, env) == (["work"], {"URL": "where"})
        self.log = log.name

    def stop(self) -> None:
        stopped.append(self.log)


class Connection:
    closed = False

    def execute(self, query: str) -> Connection:
        assert query == "SELECT 7"
        return self

    def fetchone(self) -> tuple[int]:
        return (7,)

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def test_they_are_counted_and_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(postgres_server, "Program", Program)
    jobs, connection = PostgresJobs(lambda: "where", "SELECT 7"), Connection()
    jobs._connection = connection
    jobs.work(tmp_path, 2, ["work"], {"URL": "where"})
    assert jobs.left() == 7
    stopped.clear()
    jobs.stop()
    jobs.stop()
    assert (sorted(stopped), connection.closed) == (
        ["PostgresJobs-0.log", "PostgresJobs-1.log"],
        True,
    )


@pytest.mark.parametrize("number", [1, BLOCK, 2 * BLOCK + 1])
def test_lists_have_each_job_once(number: int) -> None:
    found = blocks(number)
    assert [each for few in found for each in few] == list(range(number))
    assert max(map(len, found)) <= BLOCK


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "missing", lambda: "no PostgreSQL")
    assert "pip install nosuchlibrary" in str(postgres_server.worker_missing("nosuchlibrary"))
