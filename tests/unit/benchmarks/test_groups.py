"""What the benchmark of consumer groups makes of what it has measured."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import durable, groups
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.groups import GroupResults, Reader
from roq.benchmarks.results import environment


@pytest.fixture
def results() -> GroupResults:
    return GroupResults(
        environment=environment(),
        rounds=3,
        readers=[
            Reader("roq_none_subscriber_batches", "a subscriber", "in memory", group=False),
            Reader("roq_none_group_batches", "a group", "in memory", group=True),
            Reader("roq_none_group_messages", "a group, one by one", "in memory", group=True),
            Reader("redis_always", "a peer", "on the disk", group=True),
        ],
        skipped={"gone": "it is not installed"},
        failures=["a peer: it broke"],
        rates={
            "roq_none_subscriber_batches": [2_000.0, 4_000.0, 1_000.0],
            "roq_none_group_batches": [1_000.0, 3_000.0, 900.0],
            "redis_always": [10.0, 10.0, 10.0],
        },
        confirmed_us={"roq_none_group_messages": [300.0, 500.0]},
        published_us={"roq_none_group_messages": [200.0, 410.0]},
    )


def test_a_group_is_compared_within_each_round(results: GroupResults) -> None:
    told = dict(groups.comparisons(results))
    assert told["roq_none_group_batches by roq_none_subscriber_batches"] == "0.75 (0.50 – 0.90)"
    assert told["roq_none_group_batches by redis_always"] == "100.00 (90.00 – 300.00)"
    assert told["roq_none_group_messages: ack p50 above a publish"] == "+95 µs"
    assert not any("flush" in title for title in told)


def test_everything_is_shown_also_what_is_missing(results: GroupResults) -> None:
    text = io.StringIO()
    groups.show(results, Console(file=text, width=200))
    shown = text.getvalue()
    for part in ("on the disk", "400 µs", "305 µs", "it is not installed", "it broke", "90.00"):
        assert part in shown


def test_it_is_written_as_a_document(results: GroupResults, tmp_path: Path) -> None:
    (document,) = groups.write(results, tmp_path)
    assert msgspec.json.decode(document.read_bytes(), type=GroupResults).rates == results.rates


def test_groups_and_subscribers_read_the_same_logs_which_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled = Counter[str]()

    class Client:
        """Counts what is published."""

        queue = ""

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def create_queue(self, queue: str, **_: object) -> None:
            filled[queue] = 0

        def publisher(self, queue: str) -> Client:
            self.queue = queue
            return self

        def publish_many(self, payloads: list[bytes], _: str) -> None:
            filled[self.queue] += len(payloads) * len(payloads[0])

    monkeypatch.setattr("roq.connect", lambda _: Client())
    cluster = RoqCluster()
    cluster._client = "there"
    ours = [one for one in groups._everybody(cluster) if one.reader.key.startswith("roq_")]
    servers = {id(one.contender.server): one.contender.server for one in ours}
    for server in servers.values():
        server.start(Path())
    read = {one.contender.server.options(groups._FAST)["queue"] for one in ours}
    assert len(servers) == len(read) == 2
    assert read == filled.keys()
    assert min(filled.values()) >= durable.LOG_BYTES - groups.SIZE * groups.BATCH
