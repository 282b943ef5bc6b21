"""One Spark session and one cluster for all tests in here: a session takes ten seconds."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import roq
from roq.testing.fixtures import roq_cluster

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'roq-cluster[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'roq-cluster[spark]'")

from pyspark.sql import SparkSession

from roq.simulation.experiments.chaos_spark.folder import SHORT_LIVED
from roq.simulation.experiments.chaos_spark.standalone import home
from roq.spark import register
from roq.testing.running import RunningCluster

__all__ = ["roq_cluster"]

NewQueue = Callable[..., str]
SECONDS = 300.0
"""A busy machine takes minutes to start Java, and whoever comes first waits for that. To give up in
the middle of a word with Java would be the end of the session, and so of all tests behind."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture
def cluster(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq.connect(roq_cluster.address) as cluster:
        yield cluster


@pytest.fixture
def new_queue(cluster: roq.Cluster) -> Iterator[NewQueue]:
    """Makes queues with these limits, and gives their names; they go after the test."""
    made: list[str] = []

    def make(**limits: int) -> str:
        name = f"spark-{uuid.uuid4().hex[:8]}"
        cluster.create_queue(name, limits=limits)
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.remove_queue(name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Workers would use `python3` of the PATH, which may be another Python.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder: Path = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(home(folder))  # where workers start faster
    session = (
        SparkSession.builder.master("local[2]")
        .appName("roq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()
