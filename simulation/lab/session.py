"""A Spark session for as long as it is needed: one that is there, or one of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.errors import ConfigError, Unavailable
from roq.simulation.lab.masters import SparkWish, is_local, settings_for
from roq.simulation.lab.shipping import packed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[3]
MASTER_SECONDS: Final = 3.0
END_SECONDS: Final = 15.0
_STANDALONE: Final = re.compile(r"spark://([^:/,]+):(\d+)\Z")
_TAIL: Final = 2_000
_SETTINGS: Final = {
    "spark.app.name": "roq sim",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # On a busy machine Python takes its time to be there.
    "spark.python.authenticate.socketTimeout": "60s",
}


class Session:
    """A Spark session. One that was given stays; else it ends with `stop`.

    Args:
        given: a session that is there already.
        needed: configuration that one of its own must have; nobody may ask for something else.
    """

    def __init__(
        self, given: SparkSession | None = None, needed: Mapping[str, str] | None = None
    ) -> None:
        self._session = given
        self._given = given is not None
        self._needed = needed or {}
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

    def start(
        self, master: str, log: Path, ship: Path | None, wish: SparkWish | None = None
    ) -> None:
        """Start Spark, if no session was given; takes some ten seconds.

        Args:
            master: of the Spark cluster.
            log: file for what Java has to say.
            ship: folder for a zip of RoQ's packages for the executors, which has to stay there;
                None: they have them.
            wish: what is asked of Spark beside that.

        Raises:
            ConfigError: PySpark is missing, there is no such master, or it cannot have that.
            Unavailable: Spark does not start; says what it has said.
        """
        if self._session is None:
            self._session = self._make(master, log, wish or SparkWish())
            # What is wrong with a task is told by its exception; locally that is all there is.
            self.context.setLogLevel("OFF" if is_local(master) else "ERROR")
        if ship is not None:
            self.context.addPyFile(str(packed(ship)))

    def _make(self, master: str, log: Path, wish: SparkWish) -> SparkSession:
        asked = settings_for(master, wish, self._needed, cores=os.cpu_count() or 1)
        try:
            from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - it is an extra
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
            from pyspark.sql import SparkSession  # noqa: PLC0415
        except ImportError:
            raise ConfigError("this needs PySpark: pip install 'roq-cluster[sim]'") from None
        _check_master(master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = dict(_SETTINGS)
        if is_local(master):
            settings["spark.executorEnv.PYTHONPATH"] = str(ROOT)
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        conf = SparkConf().setAll(list((settings | asked).items()))
        try:
            with log.open("ab") as output:
                popen = {"stdout": output, "stderr": output, "start_new_session": True}
                gateway = launch_gateway(conf, popen)  # type: ignore[no-untyped-call]
            self._process = gateway.proc
            context = SparkContext(gateway=gateway, conf=conf)
        except Exception as error:  # noqa: BLE001 - told in words of one's own
            self._end_java()
            raise Unavailable(f"Spark does not start: {said(error)}\n{_tail(log)}") from None
        return SparkSession(context)

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


def connected(remote: str) -> SparkSession:
    """A session of a Spark Connect server, for queries.

    Args:
        remote: `sc://host:15002`.

    Raises:
        ConfigError: the client of Spark Connect is missing.
        Unavailable: no server answers.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - it is an extra

        session = SparkSession.builder.remote(remote).create()
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect needs its client: pip install 'pyspark[connect]' ({error})"
        ) from None
    except Exception as error:  # noqa: BLE001 - told in words of one's own
        raise Unavailable(f"no Spark Connect server answers at {remote}: {said(error)}") from None
    return session


def said(error: Exception) -> str:
    """The line of an error of Spark that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(?:[\w$]+\.)*\w*(?:Error|Exception)\b", line)]
    return (told[-1] if told else lines[0] if lines else repr(error))[:_TAIL]


def _check_master(master: str) -> None:
    found = _STANDALONE.match(master)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), MASTER_SECONDS).close()
    except OSError as error:
        raise Unavailable(f"no Spark master answers at {master}: {error}") from None


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-_TAIL:].strip()
    except OSError:
        return ""
