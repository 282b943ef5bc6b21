"""What the guides show runs as it stands there, from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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
        (DOCS / "publish-and-subscribe.md", 11),
        (DOCS / "losses.md", 1),
        (DOCS / "clients.md", 1),
        (DOCS / "consumers.md", 6),
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
