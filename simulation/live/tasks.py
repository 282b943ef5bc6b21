"""Spark: a session, a look at its executors, and the stage in which the tasks of a run work."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import roq
from roq.errors import ConfigError, RoQError, Unavailable
from simulation.live.clocks import machine
from simulation.shipping import missing, packed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
SLOTS_SECONDS: Final = 30.0
MASTER_SECONDS: Final = 3.0
REACH_SECONDS: Final = 5.0
END_SECONDS: Final = 15.0
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?\Z")
_STANDALONE: Final = re.compile(r"spark://([^:/,]+):(\d+)\Z")
_TAIL: Final = 2_000


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one task of the probe has found.

    Attributes:
        host: its name.
        machine: see `clocks.machine`.
        trouble: why no load can come from there; empty if it can.
    """

    host: str
    machine: str
    trouble: str = ""


def master_for(master: str, slots: int) -> str:
    """The master to use: a local one without a number gets as many slots as are needed.

    Raises:
        ConfigError: a local one with too few slots.
    """
    found = _LOCAL.match(master)
    if found is None:
        return master
    given = found[1]
    if given is None or given == "*":
        return f"local[{slots}]"
    if int(given) < slots:
        raise ConfigError(
            f"master {master} has fewer slots than the {slots} that this run needs, for all its "
            f"tasks work at the same time: use local[{slots}] or local[*], or fewer --tasks"
        )
    return master


class Session:
    """A Spark session for one run. Whoever gives one keeps it; else it ends with `stop`.

    Args:
        given: a session that is there already.
    """

    def __init__(self, given: SparkSession | None = None) -> None:
        self._session = given
        self._given = given is not None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; after `start`."""
        assert self._session is not None  # noqa: S101 - see above
        return self._session

    @property
    def context(self) -> SparkContext:
        """Of the session."""
        return self.spark.sparkContext

    def start(self, master: str, log: Path, ship: Path | None) -> None:
        """Start Spark; takes some ten seconds.

        Args:
            master: of the Spark cluster.
            log: file for what Java has to say.
            ship: folder for a zip of RoQ's packages for the executors, which has to stay there;
                None: they have them.

        Raises:
            ConfigError: PySpark is missing, or there is no such master.
            Unavailable: Spark does not start; says what it has said.
        """
        if self._session is None:
            self._session = self._make(master, log)
            self.context.setLogLevel("OFF" if _LOCAL.match(master) else "ERROR")
        if ship is not None:
            self.context.addPyFile(str(packed(ship)))

    def _make(self, master: str, log: Path) -> SparkSession:
        try:
            from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - it is an extra
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
            from pyspark.sql import SparkSession  # noqa: PLC0415
        except ImportError:
            raise ConfigError("live runs need PySpark: pip install 'roq[sim]'") from None
        _check_master(master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = {
            "spark.master": master,
            "spark.app.name": "roq sim",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            # A task that is begun again would publish again.
            "spark.task.maxFailures": "1",
            "spark.stage.maxConsecutiveAttempts": "1",
            "spark.speculation": "false",
            # On a busy machine Python takes its time to be there.
            "spark.python.authenticate.socketTimeout": "60s",
        }
        if _LOCAL.match(master):
            settings["spark.executorEnv.PYTHONPATH"] = str(ROOT)
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        conf = SparkConf().setAll(list(settings.items()))
        try:
            with log.open("ab") as output:
                popen = {"stdout": output, "stderr": output, "start_new_session": True}
                gateway = launch_gateway(conf, popen)  # type: ignore[no-untyped-call]
            self._process = gateway.proc
            context = SparkContext(gateway=gateway, conf=conf)
        except Exception as error:  # noqa: BLE001 - told in words of one's own
            self._end_java()
            raise Unavailable(f"Spark does not start: {_why(error)}\n{_tail(log)}") from None
        return SparkSession(context)

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

    def stop(self) -> None:
        """End the session and its Java process, if they are of one's own; idempotent."""
        if self._given:
            return
        if self._session is not None:
            self._session.stop()
            self._session = None
        self._end_java()

    def _end_java(self) -> None:
        """Nothing of it stays, and another session may be made in this process."""
        process, self._process = self._process, None
        if process is None:
            return
        from pyspark import SparkContext  # noqa: PLC0415 - it is an extra

        gateway = SparkContext._gateway  # noqa: SLF001 - there is no other way
        if gateway is not None:
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Stage:
    """The jobs at work, in a thread.

    Attributes:
        results: tallies, when it is done.
        error: why it has failed.
    """

    def __init__(self, work: Callable[[], list[bytes]]) -> None:
        self.results: list[bytes] = []
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it is over, one way or another."""
        return not self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait for its end; gives whether it has come."""
        self._thread.join(seconds)
        return self.done

    def _run(self) -> None:
        try:
            self.results = self._work()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            self.error = error


# --- what runs in executors -----------------------------------------------------------------------


def _perform(jobs: Iterable[bytes]) -> Iterator[bytes]:
    from simulation.live.load import perform  # noqa: PLC0415 - executors only

    return map(perform, jobs)


def _look(data: bytes) -> bytes:
    from simulation.live import load  # noqa: F401, PLC0415 - whether it is there

    host, trouble = socket.gethostname(), ""
    try:
        roq.connect(msgspec.msgpack.decode(data, type=list[str]), timeout=REACH_SECONDS).close()
    except RoQError as error:
        trouble = str(error)
    return msgspec.msgpack.encode(Found(host=host, machine=machine(), trouble=trouble))


# --- errors ---------------------------------------------------------------------------------------


def _check_master(master: str) -> None:
    found = _STANDALONE.match(master)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), MASTER_SECONDS).close()
    except OSError as error:
        raise Unavailable(f"no Spark master answers at {master}: {error}") from None


def _understood(error: Exception) -> RoQError:
    """What a person wants to know of an error of Spark."""
    if (lacking := missing(error)) is not None:
        return lacking
    text = str(error)
    if "SPARK-24942" in text or "dynamic resource allocation" in text.lower():
        return ConfigError("barrier stages need a fixed number of executors: use --plain")
    return Unavailable(f"the tasks have failed: {_why(error)}")


def _why(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(?:[\w$]+\.)*\w*(?:Error|Exception)\b", line)]
    return (told[-1] if told else lines[0] if lines else repr(error))[:_TAIL]


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-_TAIL:].strip()
    except OSError:
        return ""
