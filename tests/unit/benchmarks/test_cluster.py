"""Which queue a case is measured with."""

from __future__ import annotations

import pytest

import roq
from roq.benchmarks import plan
from roq.benchmarks.cluster import RoqCluster


class PaperCluster:
    """Notes the queues that are made."""

    def __init__(self) -> None:
        self.made: dict[str, object] = {}

    def connect(self, _address: str) -> PaperCluster:
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_queue(self, name: str, *, durability: str, limits: object) -> None:
        assert durability == "none", "what peers in memory are compared with"
        self.made[name] = limits


def test_a_flood_meets_a_queue_with_default_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, cluster = PaperCluster(), RoqCluster()
    monkeypatch.setattr(roq, "connect", paper.connect)
    cluster.make_flood_queue()
    name = cluster.options(plan.flood_case())["queue"]
    assert paper.made == {name: {"exchanges_max": 1}}
    assert name != cluster.options(plan.main_case())["queue"]
