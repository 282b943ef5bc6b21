"""The bare loop writes what it is asked for and times each sync."""

from __future__ import annotations

from pathlib import Path

from roq.benchmarks.case import Case, Run
from roq.benchmarks.contenders.bare_file import BareFolder, publisher


def test_it_writes_into_its_folder_and_leaves_nothing(tmp_path: Path) -> None:
    folder = BareFolder()
    folder.start(tmp_path)
    one = publisher("bare", folder.options(Case(size=10)))
    one.publish(Run(topic="t", size=10, batch=5, count=5_000), [bytes(10)] * 5)
    one.pace(Run(topic="t", size=10, batch=1, count=3, rate=1_000))
    assert len(one.ack_us) == 3
    assert all(each > 0 for each in one.ack_us)
    assert list(tmp_path.iterdir()) == []
    assert folder.processes(Case(size=10)) == {}
