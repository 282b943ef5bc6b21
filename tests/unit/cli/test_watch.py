"""`roq watch` tells each change in a line, against a cluster of paper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import roq
from roq.cli.watch import watch
from roq.client.admin.broadcast import ClusterState, QueueStatus

STATES = [
    ClusterState(version=1, queues=(), hosts=()),
    ClusterState(
        version=2, hosts=("h1", "h2"),
        queues=(QueueStatus(name="a", host="h1", running=True),
                QueueStatus(name="b", host="h1", running=False)),
    ),
]  # fmt: skip


class PaperCluster:
    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def watch(self) -> Iterator[ClusterState]:
        return iter(STATES)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(roq, "connect", lambda *_, **__: PaperCluster())

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(watch, arguments)
        assert result.exit_code == 0
        return result

    return invoke


def test_each_change_is_a_line(run) -> None:
    first, second = run().stdout.splitlines()
    assert first.endswith(" version 1: queues none; hosts none")
    assert second.endswith(" version 2: queues a; stopped b; hosts h1, h2")


def test_programs_get_documents(run) -> None:
    found = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert [each["version"] for each in found] == [1, 2]
    assert found[1]["queues"][1] == {"name": "b", "host": "h1", "running": False}


def test_it_ends_after_so_many(run) -> None:
    assert len(run("--count", "1").stdout.splitlines()) == 1
