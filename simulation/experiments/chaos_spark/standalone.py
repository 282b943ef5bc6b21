"""A standalone Spark cluster of local processes, from the jars of the pyspark package.

Its executors are processes of their own below the worker's, so they can be killed one by one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from roq.coordination.embedded import find_java
from roq.local.part import guarded
from roq.runtime.process import Child, spawn
from roq.simulation.real.waiting import until
from roq.simulation.real.workers import ScenarioError

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 5.0
HOST: Final = "127.0.0.1"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_UNSHARE: Final = (
    "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"',
)  # fmt: skip
_TRY_SECONDS: Final = 10.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master (\S+)")


def can_hide() -> bool:
    """Whether we may hide a folder from a process. Root may; in most containers it may not."""
    program = shutil.which("unshare")
    if os.geteuid() != 0 or program is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            [program, *_UNSHARE, folder, "true"],
            check=False, capture_output=True, timeout=_TRY_SECONDS,
        )  # fmt: skip
    return tried.returncode == 0


class Standalone:
    """Master and workers; a context manager.

    Args:
        folder: for logs and whatever Spark writes; must exist.
        cores: of each worker.
        memory: of each worker, as Spark writes it.
        hidden: a folder that workers find empty, as those on other machines would; needs root.
        workers: how many. Each has a loopback address of its own, so Spark takes them for hosts: a
            speculative copy of a task never runs on the host of the first one.

    Attributes:
        master: its address, `spark://…`; empty before the start.
        home: for `SPARK_HOME` of its users.

    Raises:
        ScenarioError: pyspark is not installed.
    """

    def __init__(
        self, folder: Path, *, cores: int = 2, memory: str = "2g", workers: int = 1,
        hidden: Path | None = None,
    ) -> None:  # fmt: skip
        self.master = ""
        self._folder = folder
        self._cores = cores
        self._memory = memory
        self.home = home(folder)
        self._stack = ExitStack()
        self._count = workers
        self._hidden = hidden
        self._workers: list[Child] = []

    def __enter__(self) -> Self:
        try:
            _, found = self._start("master.Master", HOST, "--webui-port", "0", says=_MASTER)
            self.master = found
            size = ("--cores", str(self._cores), "--memory", self._memory)
            work = ("--work-dir", str(self._folder / "work"), "--webui-port", "0")
            for number in range(1, self._count + 1):
                worker, _ = self._start(
                    "worker.Worker", f"127.0.0.{number}", *size, *work, found, says=_REGISTERED
                )
                self._workers.append(worker)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def executors(self) -> list[psutil.Process]:
        """Those that run now, the oldest first."""
        return sorted(
            (
                each
                for worker in self._workers
                for each in _below(worker)
                if EXECUTOR in _command(each)
            ),
            key=lambda process: process.pid,
        )

    def workers(self) -> list[psutil.Process]:
        """The Python processes in which tasks run."""
        return [
            worker
            for executor in self.executors()
            for daemon in _children(executor)
            if "pyspark.daemon" in _command(daemon)
            for worker in _children(daemon)
        ]

    def _start(
        self, name: str, host: str, *arguments: str, says: re.Pattern[str]
    ) -> tuple[Child, str]:
        """Start a daemon and wait until it has said that it is ready; gives what it said."""
        log = self._folder / f"{name.partition('.')[0]}-{host}.log"
        argv = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        # A killed executor is no reason to give a query up, however often that happens.
        options = "-Dspark.deploy.maxExecutorRetries=-1 -Dspark.master.rest.enabled=false"
        env = {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java(os.environ).resolve().parents[1]),
        }
        argv += ["--host", host, "--port", "0", *arguments]
        if self._hidden is not None and name.startswith("worker"):
            argv = [shutil.which("unshare") or "unshare", *_UNSHARE, str(self._hidden), *argv]
        child = spawn(guarded(argv), log_path=log, env=env)
        self._stack.callback(child.close)
        self._stack.callback(child.stop, STOP_SECONDS)
        said: list[str] = []

        def ready() -> bool:
            found = says.search(log.read_text(errors="replace"))
            if found:
                said.append(found[1])
            return bool(found) or child.poll() is not None

        if not until(ready, START_SECONDS, step=0.1) or not said:
            words = log.read_text(errors="replace")[-2_000:]
            raise ScenarioError(f"Spark's {name} does not start:\n{words}")
        return child, said[0]


def home(folder: Path) -> Path:
    """Where Spark is: the jars and programs of the pyspark package.

    Without its archive of Python code: workers then import the installed package, which is compiled
    already, and start three times as fast.

    Args:
        folder: gets the home; a second call finds it.

    Raises:
        ScenarioError: pyspark is not installed.
    """
    try:
        import pyspark  # noqa: PLC0415 - an extra
    except ImportError:
        raise ScenarioError("this needs PySpark: pip install 'roq-cluster[spark]'") from None
    made = folder / "spark"
    made.mkdir(exist_ok=True)
    for name in ("jars", "bin"):
        if not (made / name).exists():
            (made / name).symlink_to(Path(pyspark.__file__).parent / name)
    return made


def _below(child: Child) -> list[psutil.Process]:
    if child.poll() is not None:
        return []
    return _children(psutil.Process(child.pid))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
