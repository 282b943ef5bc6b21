"""A cluster of one host on paper, and the verbs of `roq host` tried on it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import roq
from roq.cli.hosts import host
from roq.client.admin.views import Listing
from roq.errors import HostNotFound
from roq.protocol.public_answers import HostSummary, QueueSummary


def summary(schedule: str = "draining", *left: str, **more: object) -> HostSummary:
    values: dict[str, object] = {
        "host": "h1", "control": "tcp://h1:5100", "exchanges": len(left), "monitors": 0,
        "exchange_max": 0, "cpu": 0.0, "memory_bytes": 0, "state": "live", "children": [],
        "schedule": schedule, "left": list(left), **more,
    }  # fmt: skip
    return HostSummary(**values)  # type: ignore[arg-type]


class PaperCluster:
    """Answers `hosts()` with one row after the other, the last one for ever."""

    def __init__(self, *rows: HostSummary | BaseException | None) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[str, str]] = []

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        assert timeout > 0
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def queues(self) -> Listing[QueueSummary]:
        return Listing([], None)

    def hosts(self) -> Listing[HostSummary]:
        row = self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]
        if isinstance(row, BaseException):
            raise row
        return Listing([row] if row is not None else [], None)

    def _tell(self, command: str, name: str) -> None:
        if name == "h9":
            raise HostNotFound("host h9 is not registered")
        self.asked.append((command, name))

    def drain_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("drain", name)

    def cordon_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("cordon", name)

    def uncordon_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("uncordon", name)

    def remove_host(self, name: str, *, force: bool, timeout: float) -> None:
        assert timeout > 0
        self._tell("remove" + " by force" * force, name)


def run(
    monkeypatch: pytest.MonkeyPatch, cluster: PaperCluster, *words: str, said: str | None = None
) -> tuple[int, str]:
    monkeypatch.setattr(roq, "connect", cluster.connect)
    result = CliRunner().invoke(host, [*words], input=said)
    return result.exit_code, result.output
