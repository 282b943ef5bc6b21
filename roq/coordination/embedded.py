"""A ZooKeeper server as a child process, for clusters on one machine.

It is the real server, out of the jars inside the pyspark package; only those that a server without
Netty, Jetty and TLS loads are put on its class path.

The server dies with its parent, however that ends: a few lines of Python set PR_SET_PDEATHSIG,
check that the parent still is the parent, and then become the Java process. That is an exec and not
a `preexec_fn`, which may deadlock in a process with threads. The system sends the signal when the
*thread* that started the child ends, so a thread of its own starts the server and stays for as long
as it runs; it also is what notices its end.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from roq.coordination.java import find_java
from roq.errors import ConfigError, LocalProtocolError, Unavailable

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 1.0
PROBE_EVERY_SECONDS: Final = 0.02
PORT_ATTEMPTS: Final = 5
LOG_BYTES_MAX: Final = 4 * 1024 * 1024
LOG_NAME: Final = "zookeeper.log"

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS: Final = (
    "zookeeper-3",
    "zookeeper-jute-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "metrics-core-",
    "snappy-java-",
    "commons-cli-",
    "commons-io-",
)
_JVM_FLAGS: Final = (
    "-Xms16m",
    "-Xmx96m",
    "-XX:MaxMetaspaceSize=64m",
    "-XX:ReservedCodeCacheSize=32m",
    "-XX:MaxDirectMemorySize=16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # writes into /tmp, and leaves it there when killed
    "-XX:+ExitOnOutOfMemoryError",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=false",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default makes files of 64 MiB
)
_CONFIG: Final = """\
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime=1000
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_ENSEMBLE: Final = """\
initLimit=10
syncLimit=3
{servers}
"""
_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5level %c{1} %msg%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_GUARD: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Member(NamedTuple):
    """The ports of one server of an ensemble."""

    client: int
    quorum: int
    election: int


class Ensemble(NamedTuple):
    """All servers of an ensemble, and which of them is meant, from 1."""

    members: tuple[Member, ...]
    number: int
    hosts: tuple[str, ...] = ()
    """Where they are, in the same order; empty: all on one machine."""


def class_path() -> str:
    """The jars of the server, as Java wants them.

    Raises:
        Unavailable: pyspark is not installed, or does not hold them.
    """
    spec = importlib.util.find_spec("pyspark")  # found, not imported: that takes a second
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(
            "the embedded ZooKeeper comes with pyspark: `pip install 'roq-cluster[embedded]'`, "
            "or name a running ZooKeeper instead"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "jars"
    jars: list[str] = []
    for name in _JARS:
        found = sorted(folder.glob(f"{name}*.jar"))
        if not found:
            raise Unavailable(f"{folder} has no {name}*.jar: this version of pyspark is not known")
        jars.append(str(found[-1]))
    return os.pathsep.join(jars)


def prepare(
    data_dir: Path,
    host: str,
    port: int,
    environ: Mapping[str, str],
    ensemble: Ensemble | None = None,
) -> list[str]:
    """Write the files of a server into `data_dir` and give the command that runs it.

    Args:
        data_dir: of this server alone.
        host: where it listens, and where others of an ensemble do that say nothing else.
        port: for clients.
        environ: where JAVA_HOME and PATH are looked up.
        ensemble: of which it is a part; None: it serves alone.

    Raises:
        Unavailable: Java or pyspark is missing.
        ConfigError: the directory cannot be written.
    """
    command = [str(find_java(environ)), *_JVM_FLAGS]
    jars = class_path()
    config = data_dir / "zoo.cfg"
    logging = data_dir / "log4j2.properties"
    data = data_dir / "data"
    try:
        data.mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(data=data.resolve(), port=port, host=host)
        if ensemble is not None:
            text += _ENSEMBLE.format(servers=_servers(ensemble, host))
            (data / "myid").write_text(f"{ensemble.number}\n")
        config.write_text(text)
        logging.write_text(_LOGGING)
    except OSError as error:
        raise ConfigError(f"{data_dir} cannot be used for data: {error}") from None
    return [
        *command,
        f"-Dlog4j2.configurationFile={logging.resolve()}",
        "-cp",
        jars,
        _MAIN,
        str(config.resolve()),
    ]


def _servers(ensemble: Ensemble, host: str) -> str:
    hosts = ensemble.hosts or [host] * len(ensemble.members)
    return "\n".join(
        f"server.{number}={f'[{place}]' if ':' in place else place}"
        f":{member.quorum}:{member.election}"
        for number, (member, place) in enumerate(zip(ensemble.members, hosts, strict=True), 1)
    )


def serves(host: str, port: int, timeout: float = PROBE_SECONDS) -> bool:
    """Whether a ZooKeeper server takes requests there; waits at most about `timeout` seconds."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while len(answer) < 4096 and (data := connection.recv(4096)):
                answer += data
    except OSError:
        return False
    return b"Mode: " in answer


class EmbeddedZooKeeper:
    """One ZooKeeper server of one member, run by this process.

    Args:
        data_dir: where its data, configuration and log are; made if missing.
        host: address to bind to; there is no authentication, so loopback unless you know better.
        port: 0 chooses a free one at each start.
        environ: where JAVA_HOME and PATH are looked up; that of this process by default.
    """

    def __init__(
        self,
        data_dir: Path | str,
        host: str = "127.0.0.1",
        port: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = Path(data_dir)
        self._host = host
        self._wanted_port = port
        self._port = 0
        self._environ = dict(os.environ if environ is None else environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    @property
    def address(self) -> str:
        """`host:port` for clients.

        Raises:
            LocalProtocolError: not started yet.
        """
        if not self._port:
            raise LocalProtocolError("the address is known once the server has been started")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def pid(self) -> int:
        """The server process; 0 when none runs."""
        return 0 if self._process is None or self._ended.is_set() else self._process.pid

    @property
    def log_path(self) -> Path:
        """What the server and its Java say."""
        return self._data_dir / LOG_NAME

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start the server and wait until it takes requests; does nothing when it runs.

        Raises:
            Unavailable: no Java, no pyspark, or it does not come up within `timeout` seconds.
            ConfigError: the port is in use, or the data directory is (by another server).
        """
        if self.pid:
            return
        deadline = time.monotonic() + timeout
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            self._port = self._wanted_port or _free_port(self._host)
            if self._wanted_port:
                _check_port(self._host, self._wanted_port)
            written = self._launch()
            up = False
            try:
                up = self._comes_up(deadline)
            finally:
                if not up:
                    self.stop()
            if up:
                return
            words = self._last_words(written)
            if "Address already in use" not in words:
                raise Unavailable(
                    f"ZooKeeper did not come up in {timeout:.0f} s, see {self.log_path}\n{words}"
                )
            if self._wanted_port or not attempts_left:
                raise ConfigError(_port_in_use(self._host, self._port))

    def stop(self, grace: float = STOP_SECONDS) -> None:
        """Stop the server: SIGTERM, and SIGKILL after `grace` seconds. Idempotent."""
        process = self._process
        if process is None:
            return
        process.terminate()
        if not self._ended.wait(grace):
            process.kill()
            self._ended.wait()
        self._process = None

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- starting ---------------------------------------------------------------------------------

    def _launch(self) -> int:
        """Start the process; gives the size of the log before."""
        guard = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid())]
        with self._lock() as lock, self._open_log() as log:
            command = prepare(self._data_dir, self._host, self._port, self._environ)
            before = log.tell()  # the server writes through the same descriptor from now on
            self._start_keeper([*guard, *command], log, lock)
            return before

    def _open_log(self) -> IO[bytes]:
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_BYTES_MAX:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        log = self.log_path.open("ab")
        log.seek(0, os.SEEK_END)
        return log

    def _lock(self) -> IO[bytes]:
        """Lock the data directory. The server inherits the lock: it ends when the server does."""
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            lock = (self._data_dir / "lock").open("ab")
        except OSError as error:
            raise ConfigError(f"{self._data_dir} cannot be used for data: {error}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ConfigError(
                f"the data directory {self._data_dir} is in use by another ZooKeeper: "
                "stop that one or choose another directory"
            ) from None
        return lock

    def _start_keeper(self, command: Sequence[str], log: IO[bytes], lock: IO[bytes]) -> None:
        started = threading.Event()
        ended = threading.Event()
        failure: list[OSError] = []

        def keep() -> None:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock.fileno(),),
                    env=self._environ,
                    start_new_session=True,  # a Ctrl-C in the terminal is for its parent
                )
                self._process = process
            except OSError as error:
                failure.append(error)
                return
            finally:
                started.set()
            process.wait()
            ended.set()

        self._ended = ended
        threading.Thread(target=keep, name="roq-zookeeper", daemon=True).start()
        started.wait()
        if failure:
            raise Unavailable(f"{command[0]} cannot be started: {failure[0]}")

    def _comes_up(self, deadline: float) -> bool:
        while not self._ended.wait(PROBE_EVERY_SECONDS):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if serves(self._host, self._port, min(PROBE_SECONDS, left)):
                # Another process may have taken the port: ours ends at once then.
                return not self._ended.wait(PROBE_EVERY_SECONDS)
        return False

    def _last_words(self, offset: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(offset)
            lines = log.read().decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-20:])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _free_port(host: str) -> int:
    with socket.socket(_family(host)) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError(f"cannot bind to {host}: {error}") from None
        return int(probe.getsockname()[1])


def _check_port(host: str, port: int) -> None:
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"{_port_in_use(host, port)} ({error.strerror})") from None


def _port_in_use(host: str, port: int) -> str:
    return f"ZooKeeper cannot use port {port} of {host}: stop what uses it or choose another"
