"""The tasks of a run on Spark: a look at the executors, and the stage in which they work."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

import roq
from roq.errors import ConfigError, RoQError, Unavailable
from roq.simulation.lab.live.clocks import machine
from roq.simulation.lab.session import Session, said
from roq.simulation.lab.shipping import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS_SECONDS: Final = 30.0
REACH_SECONDS: Final = 5.0
ONCE: Final = {
    # A task that is begun again would publish again.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one task of the probe has found.

    Attributes:
        host: its name.
        machine: see `clocks.machine`.
        version: of RoQ there.
        trouble: why no load can come from there; empty if it can.
    """

    host: str
    machine: str
    version: str = ""
    trouble: str = ""


class Tasks(Session):
    """The session of a run, and what its tasks do there.

    Args:
        given: a session that is there already, and stays.
    """

    def __init__(self, given: SparkSession | None = None) -> None:
        super().__init__(given, ONCE)

    def wait_for_slots(self, slots: int) -> None:
        """Until so many tasks can run at the same time, that of the traces among them.

        Raises:
            ConfigError: there are fewer.
        """
        deadline = time.monotonic() + SLOTS_SECONDS
        pause = threading.Event()
        while (there := int(self.context.defaultParallelism)) < slots:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"master {self.context.master} offers {there} slots after "
                    f"{SLOTS_SECONDS:g} s, but {slots} are needed, for all tasks of a run work at "
                    "the same time, and traces need a slot: add executors, or use fewer --tasks or "
                    "--no-traces"
                )
            pause.wait(0.5)

    def probe(self, tasks: int, addresses: list[str]) -> list[Found]:
        """Whether load can come from the executors.

        Raises:
            ConfigError: they cannot import RoQ's packages.
            Unavailable: they do not reach the cluster; says who and why.
        """
        given = msgspec.msgpack.encode(addresses)
        try:
            answers = self.context.parallelize([given] * tasks, tasks).map(_look).collect()
        except Exception as error:  # noqa: BLE001 - told in words of one's own
            raise _understood(error) from None
        found = [msgspec.msgpack.decode(each, type=Found) for each in answers]
        for each in found:
            if each.trouble:
                raise Unavailable(f"the executor on {each.host}: {each.trouble}")
        check_versions(found)
        return found

    def work(self, jobs: Sequence[bytes], *, barrier: bool) -> list[bytes]:
        """Do all jobs at the same time, each in a task; gives their tallies.

        Args:
            jobs: see `load.perform`.
            barrier: as one barrier stage: all begin together, and if one ends all do.

        Raises:
            RoQError: the stage has failed; says why.
        """
        rdd = self.context.parallelize(jobs, len(jobs))
        try:
            done = rdd.barrier().mapPartitions(_perform) if barrier else rdd.mapPartitions(_perform)
            return list(done.collect())
        except Exception as error:  # noqa: BLE001 - told in words of one's own
            raise _understood(error) from None

    def cancel(self) -> None:
        """End all jobs, whatever they do."""
        if self._session is not None:
            self.context.cancelAllJobs()


def check_versions(found: Iterable[Found]) -> None:
    """See that executors have this RoQ.

    Raises:
        ConfigError: one has another; says where, and which.
    """
    for each in found:
        if each.version != roq.__version__:
            raise ConfigError(
                f"the executor on {each.host} has RoQ {each.version or 'of an older version'}, the "
                f"driver {roq.__version__}: install the same on all of them, or use --ship"
            )


# --- what runs in executors -----------------------------------------------------------------------


def _perform(jobs: Iterable[bytes]) -> Iterator[bytes]:
    from roq.simulation.lab.live.load import perform  # noqa: PLC0415 - executors only

    return map(perform, jobs)


def _look(data: bytes) -> bytes:
    from roq.simulation.lab.live import load  # noqa: F401, PLC0415 - whether it is there

    host, trouble = socket.gethostname(), ""
    try:
        roq.connect(msgspec.msgpack.decode(data, type=list[str]), timeout=REACH_SECONDS).close()
    except RoQError as error:
        trouble = str(error)
    return msgspec.msgpack.encode(
        Found(host=host, machine=machine(), version=roq.__version__, trouble=trouble)
    )


# --- errors ---------------------------------------------------------------------------------------


def _understood(error: Exception) -> RoQError:
    """What a person wants to know of an error of Spark."""
    if (lacking := missing(error)) is not None:
        return lacking
    text = str(error)
    if "SPARK-24942" in text or "dynamic resource allocation" in text.lower():
        return ConfigError("barrier stages need a fixed number of executors: use --plain")
    return Unavailable(f"the tasks have failed: {said(error)}")
