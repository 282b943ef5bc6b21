"""Every example runs as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment

from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "examples"


def run(*command: str, cluster: RunningCluster | None = None) -> subprocess.CompletedProcess[str]:
    changes = {"ROQ_CLUSTER": cluster.address} if cluster is not None else {}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**changes),
        cwd=FOLDER.parent,
        check=False,
    )


def example(name: str, *arguments: str, cluster: RunningCluster) -> str:
    done = run(str(FOLDER / name), *arguments, cluster=cluster)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_what_is_published_is_subscribed_to(roq_cluster: RunningCluster) -> None:
    assert "acknowledged" in example("publish.py", cluster=roq_cluster)
    lines = example("subscribe.py", cluster=roq_cluster).splitlines()
    assert lines == [f"eu.be order {number} {number}" for number in range(10)]


def test_asyncio(roq_cluster: RunningCluster) -> None:
    lines = example("asyncio_example.py", cluster=roq_cluster).splitlines()
    assert lines == [f"tick {number}" for number in range(5)]


def test_workers_share_the_orders(roq_cluster: RunningCluster) -> None:
    first, second = example("workers.py", cluster=roq_cluster).splitlines()
    assert first == "30 orders, each done once: True"
    assert second.startswith("workers: ")


def test_a_service_answers(roq_cluster: RunningCluster) -> None:
    lines = example("services.py", cluster=roq_cluster).splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        f"Invoice(order={number}, total={121 * number})" for number in range(10)
    ]


def test_jobs() -> None:
    pytest.importorskip("sqlalchemy")
    done = run("examples/jobs.py")
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["0 1 4 9 16 100", "Square COMPLETE 6 jobs, 1 failure"]


def test_the_raw_ones_need_nothing_of_roq(roq_cluster: RunningCluster) -> None:
    created = example(
        "create_queue_bson.py", f"tcp://{roq_cluster.management}", cluster=roq_cluster
    )
    assert created.splitlines() == ["2010 0 SUCCESS", "2011 0 YES"]
    watched = example("watch_raw.py", f"tcp://{roq_cluster.broadcast}", cluster=roq_cluster)
    assert "made-by-hand" in watched
    told = example(
        "kpi_raw.py", f"tcp://{roq_cluster.address}", "made-by-hand", cluster=roq_cluster
    )
    assert "TotalThroughput" in told
    assert "XChanges" in told
    for name in ("create_queue_bson.py", "watch_raw.py", "kpi_raw.py"):
        assert "import roq" not in (FOLDER / name).read_text()


def test_the_pytest_example_passes() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "pytest_example.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_every_example() -> None:
    page = (FOLDER / "README.md").read_text()
    assert [path.name for path in FOLDER.glob("*.py") if f"`{path.name}`" not in page] == []
