"""A ZooKeeper server for clusters on one machine: its files, its command, and whether it serves.

It is the real server, out of the jars inside the pyspark package; only those that a server without
Netty, Jetty and TLS loads are put on its class path. It runs on the Java that this machine has.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from roq.errors import ConfigError, Unavailable

INSTALL = (
    "install one (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`; others: any Java 11 "
    "or newer), or set JAVA_HOME, or name a running ZooKeeper instead"
)
_USUAL_PLACES = (Path("/usr/lib/jvm"), Path("/opt/java"))


def find_java(environ: Mapping[str, str], usual_places: tuple[Path, ...] = _USUAL_PLACES) -> Path:
    """Give the `java` of JAVA_HOME, else of the PATH, else of where systems install it.

    Raises:
        Unavailable: there is none, or JAVA_HOME points to none; the text says what to install.
    """
    home = environ.get("JAVA_HOME", "").strip()
    if home:
        java = Path(home) / "bin" / "java"
        if not _runs(java):
            raise Unavailable(f"JAVA_HOME is {home}, but {java} is no program: correct or unset it")
        return java
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    for place in usual_places:
        for java in sorted(place.glob("*/bin/java"), reverse=True):
            if _runs(java):
                return java
    raise Unavailable(f"the embedded ZooKeeper needs a Java runtime: {INSTALL}")


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)


PROBE_SECONDS: Final = 1.0

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
