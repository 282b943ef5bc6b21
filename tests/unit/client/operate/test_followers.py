"""Which queues are followed, and what is told of them."""

from __future__ import annotations

from typing import Any, Self

import kpi_samples

from roq.client.admin.broadcast import ClusterState, QueueStatus
from roq.client.admin.statistics import Sample, StreamState
from roq.client.operate import followers as module
from roq.client.operate.followers import Followers


class PaperStream:
    """What has come of a stream, and whether it is closed."""

    def __init__(self, queue: str) -> None:
        self.queue, self.state, self.reason = queue, StreamState.LIVE, ""
        self.limits = None
        self.come: list[Sample] = []
        self.closed = False

    def waiting(self) -> list[Sample]:
        come, self.come = self.come, []
        return come

    def close(self) -> None:
        self.closed = True


class PaperCluster:
    """A cluster whose broadcast says what a test wants."""

    def __init__(self) -> None:
        self.streams: dict[str, PaperStream] = {}
        self.told: list[ClusterState] = []
        self.closed = False

    def watch(self) -> Self:
        return self

    def receive(self, _timeout: float) -> ClusterState | None:
        return self.told.pop(0) if self.told else None

    def close(self) -> None:
        self.closed = True

    def statistics(self, queue: str) -> PaperStream:
        self.streams[queue] = PaperStream(queue)
        return self.streams[queue]

    def tell(self, *names: str) -> None:
        queues = tuple(QueueStatus(name=name, host="h", running=True) for name in names)
        self.told.append(ClusterState(version=1, queues=queues, hosts=("h",)))


def followers(cluster: Any, queue: str | None = None) -> Followers:
    return Followers(cluster, queue)


def test_queues_are_followed_as_they_come_and_go(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "QUEUES_MAX", 2)
    cluster = PaperCluster()
    with followers(cluster) as following:
        assert not following.settled(), "nobody has said yet which queues there are"
        cluster.tell("c", "a", "b")
        following.update()
        assert [each.view.queue for each in following.reports()] == ["a", "b"]
        assert following.hidden == 1
        cluster.tell("c")
        following.update()
        assert cluster.streams["a"].closed
        assert [each.view.queue for each in following.reports()] == ["c"]
    assert cluster.streams["c"].closed
    assert cluster.closed


def test_what_a_stream_brings_is_in_its_report() -> None:
    cluster = PaperCluster()
    with followers(cluster, "load") as following:
        cluster.streams["load"].come.append(kpi_samples.exchange(module.time.monotonic(), 1))
        following.update()
        (report,) = following.reports()
        assert (report.state, report.view.exchanges[0].exchange) == ("running", "x1")
        assert following.ring_limit("load") == 0
        cluster.streams["load"].state = StreamState.STOPPED
        assert following.settled(), "a stopped queue has nothing more to show"
