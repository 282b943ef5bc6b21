"""What the guides show runs as it stands there, from top to bottom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

DOCS = Path(__file__).resolve().parents[2] / "docs"
README = DOCS.parent / "README.md"


@pytest.fixture
def address(roq_cluster: RunningCluster) -> Iterator[str]:
    yield roq_cluster.address
    with roq_cluster.connect() as cluster:
        for queue in cluster.queues():
            if queue.name in {"orders", "orders.dead", "payments", "bills", "work"}:
                cluster.remove_queue(queue.name)


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        (README, 1),
        (DOCS / "start.md", 2),
        (DOCS / "publish-and-subscribe.md", 13),
        (DOCS / "losses.md", 1),
        (DOCS / "clients.md", 1),
        (DOCS / "consumers.md", 7),
        (DOCS / "requests.md", 4),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_the_code_of_a_guide_runs(page: Path, blocks: int, address: str) -> None:
    found = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[:blocks]
    assert len(found) == blocks
    names: dict[str, object] = {"__name__": page.stem}
    for code in found:
        assert '"127.0.0.1:5000"' in code or "roq.connect" not in code
        exec(code.replace("127.0.0.1:5000", address), names)  # noqa: S102 - our own documents


def test_the_code_of_the_guide_to_jobs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", (DOCS / "jobs.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(found[0], names)  # noqa: S102 - our own document, here and below
    assert capsys.readouterr().out == "a.png\nb.png\n2\n"
    for code in found[1:]:
        # The schedule of ten seconds has 8,640 jobs in a day.
        exec(code.replace("86_400", "30"), names)  # noqa: S102
    names["test_the_night"]()
    jobs = names["jobs"]
    with jobs.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (n INTEGER)")
    names["order"](7)
    assert [row.number for row in jobs.operate.counts()] == [1, 1]
    jobs.start(threads=1)
    names["nightly"](["a.png"])
    assert capsys.readouterr().out.endswith("\n0\n"), "what the last job has returned"
    jobs.stop()
    asyncio.run(names["main"]())
    assert capsys.readouterr().out.endswith("[1, 2]\n")
    jobs.close()
