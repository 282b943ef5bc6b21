"""The processes of the cluster: those that this program starts, and those that they start."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from roq.coordination.embedded import Ensemble, Member, prepare, serves
from roq.hcm.records import ProcessRecord
from roq.local.part import guarded
from roq.runtime.exits import UNAVAILABLE
from roq.runtime.process import Child, spawn
from roq.simulation.real.machines import Machines, Node, note_clock
from roq.simulation.real.waiting import until
from roq.simulation.real.workers import ScenarioError

ZOOKEEPER_PORT: Final = 2181
QUORUM_PORT: Final = 2888
ELECTION_PORT: Final = 3888
CLIENT_PORT: Final = 5000
MODULES: Final = {"roq.monitor": "monitor", "roq.exchange": "exchange"}
_CLOCK: Final = {
    "FAKETIME_CACHE_DURATION": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
}
"""A clock that is set is that of CLOCK_REALTIME, within a second; the monotonic one goes on."""
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 8.0
AGAIN_SECONDS: Final = 0.5
"""A daemon that has ended is started again after so long, as systemd would."""


class Daemon:
    """A process that ought to run: ZooKeeper, GCM or HCM on one node.

    Attributes:
        kind: `zookeeper`, `gcm` or `hcm`.
        node: where.
        wanted: whether it is to run; if it ends nevertheless it is started again.
        ended: exit codes of those that were not killed, in words.
        crashes: those of them that RoQ must answer for; the caller may empty it.
    """

    def __init__(self, kind: str, node: Node, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.kind = kind
        self.node = node
        self.wanted = False
        self.ended: list[str] = []
        self.crashes: list[str] = []
        self.log = node.folder.parent / f"{kind}-{node.address}.log"
        self._argv = list(argv)
        self._env = {**os.environ, **env}
        self._child: Child | None = None
        self._ready_pipe = -1
        self._ready = False
        self._not_before = 0.0

    def __str__(self) -> str:
        return f"{self.kind} at {self.node.address}"

    @property
    def pid(self) -> int:
        """The process; 0: none runs."""
        return 0 if self._child is None else self._child.pid

    def tend(self) -> None:
        """Start it if it is wanted and does not run, and notice that it has ended.

        By one thread only, which has to live as long as the process shall.
        """
        child = self._child
        if child is not None and (code := child.poll()) is not None:
            self._gone()
            text = f"{self} has ended by itself, exit code {code}"
            self.ended.append(text)
            if self.kind != "zookeeper" and code != UNAVAILABLE:
                self.crashes.append(text)
            self._not_before = time.monotonic() + AGAIN_SECONDS
        if self._child is None and self.wanted and time.monotonic() >= self._not_before:
            self._start()

    def serves(self) -> bool:
        """Whether it runs and has said that it is ready."""
        if self._child is None:
            return False
        if self.kind == "zookeeper":
            return serves(self.node.address, ZOOKEEPER_PORT, 0.5)
        if not self._ready and self._ready_pipe >= 0:
            try:
                self._ready = bool(os.read(self._ready_pipe, 65_536))
            except BlockingIOError:
                return False
        return self._ready

    def kill(self) -> None:
        """SIGKILL, and no other one until it is wanted again."""
        self.wanted = False
        if self._child is not None:
            self._child.kill()
            self._child.wait(5.0)
            self._gone()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, if it runs."""
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, number)

    def ask_to_stop(self) -> None:
        """Have it end in order."""
        self.wanted = False
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Wait until it has ended; kill it when that takes too long."""
        self.wanted = False
        if self._child is not None:
            self._child.stop(STOP_SECONDS)
            self._gone()

    def words(self) -> str:
        """What it has said last."""
        return self.log.read_text(errors="replace")[-2_000:]

    def _start(self) -> None:
        self._ready = False
        self._ready_pipe, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, True)
        argv = [word.replace("{ready_fd}", str(write)) for word in self._argv]
        try:
            self._child = spawn(
                guarded([*self.node.prefix, *argv]),
                log_path=self.log,
                env=self._env,
                pass_fds=[write],
            )
        finally:
            os.close(write)
        if "LD_PRELOAD" in self._env:
            note_clock(self.node.folder.parent, self._child.pid)

    def _gone(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._ready_pipe >= 0:
            os.close(self._ready_pipe)
            self._ready_pipe = -1


@dataclass(frozen=True, slots=True)
class Offspring:
    """A monitor or exchange process, as the system shows it.

    Attributes:
        child: its name in the cluster.
        role: `monitor` or `exchange`.
    """

    node: Node
    child: str
    role: str
    pid: int

    def __str__(self) -> str:
        return f"{self.child} at {self.node.address}"


class Parts:
    """All of them.

    Args:
        managers: configuration managers, on the first nodes.
        zookeepers: servers of the registry, on the first nodes; 0: it is a file.
        apart: so many of the first nodes have no host manager.
        kpi_ms: milliseconds between two reports of an exchange.
        clocks_jump: clocks of RoQ's daemons can be set; ZooKeeper's cannot.
        hcm: further settings of host managers, as in their environment.

    Attributes:
        registry: the file; None: it is in ZooKeeper.
        zookeepers, gcms, hcms: the daemons.
        addresses: client addresses of the configuration managers.
    """

    def __init__(
        self,
        on: Machines,
        *,
        managers: int = 2,
        zookeepers: int = 1,
        apart: int = 0,
        kpi_ms: int = 1_000,
        clocks_jump: bool = False,
        hcm: Mapping[str, str] | None = None,
    ) -> None:
        keepers = on.nodes[:zookeepers]
        servers = ",".join(f"{node.address}:{ZOOKEEPER_PORT}" for node in keepers)
        self._machines = on
        self.zookeepers = _zookeepers(keepers)
        self.addresses = [f"{node.address}:{CLIENT_PORT}" for node in on.nodes[:managers]]
        self.registry = None if keepers else on.folder / "cluster.db"
        common = {"REGISTRY_ADDRESS": servers if self.registry is None else f"file:{self.registry}"}
        clocks = on.clocks if clocks_jump else ""
        self.gcms = [_daemon("gcm", node, common, clocks) for node in on.nodes[:managers]]
        own = {
            **common,
            "GCM_ADDRESS": ",".join(self.addresses),
            "MONITOR_STAT_PERIOD": str(kpi_ms),
            # No other program kills the same child so often that it is better left alone.
            "CHILDREN_CRASHES_MOST": "1000",
            **(hcm or {}),
        }
        self.hcms = [_daemon("hcm", node, own, clocks) for node in on.nodes[apart:]]

    @property
    def daemons(self) -> list[Daemon]:
        """All of them, in the order in which they are started."""
        return [*self.zookeepers, *self.gcms, *self.hcms]

    def take_crashes(self) -> list[str]:
        """Daemons of RoQ that have ended by themselves since the last such question."""
        found: list[str] = []
        for daemon in self.daemons:
            found += daemon.crashes
            daemon.crashes.clear()
        return found

    def on(self, node: Node) -> list[Daemon]:
        """Those of one node."""
        return [daemon for daemon in self.daemons if daemon.node is node]

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of them, until the block ends.

        Raises:
            ScenarioError: some do not serve in time; says what they have said.
        """
        try:
            for daemon in self.daemons:
                daemon.wanted = True
            until(self._serve, START_SECONDS, step=0.05)
            missing = [daemon for daemon in self.daemons if not daemon.serves()]
            if missing:
                texts = (f"{each} does not serve:\n{each.words()}" for each in missing)
                raise ScenarioError("\n".join(texts))
            yield
        finally:
            self.stop()

    def _serve(self) -> bool:
        self.tend()
        return all(daemon.serves() for daemon in self.daemons)

    def tend(self) -> None:
        """Start again what has ended and is wanted."""
        for daemon in self.daemons:
            daemon.tend()

    def offspring(self) -> list[Offspring]:
        """Monitors and exchanges that run, stopped or not, known to a manager or not."""
        return list(_offspring(self._machines.nodes))

    def stop(self) -> None:
        """End everything, children first by those that have started them."""
        for each in self.offspring():
            send(each.pid, signal.SIGCONT)
        for kind in (self.hcms, self.gcms, self.zookeepers):
            for daemon in kind:
                daemon.ask_to_stop()
            for daemon in kind:
                daemon.stop()
        for left in self.offspring():
            send(left.pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _daemon(kind: str, node: Node, settings: Mapping[str, str], clocks: str) -> Daemon:
    config = node.folder.parent / f"{kind}-{node.address}.toml"
    config.touch()  # else one would be looked for where the user happens to be
    own = {"NETWORK_BIND": node.bind, "NETWORK_ADVERTISE": node.address, **settings}
    if kind == "hcm":
        own["DATA_DIR"] = str(node.folder / "hcm")
    argv = [
        *(sys.executable, "-P", "-m", f"roq.{kind}"),
        *("--config", str(config), "--ready-fd", "{ready_fd}"),
    ]
    env = {f"ROQ_{kind.upper()}_{key}": value for key, value in own.items()}
    if clocks:
        node.clock.write_text("+0\n")
        env |= {"LD_PRELOAD": clocks, "FAKETIME_TIMESTAMP_FILE": str(node.clock), **_CLOCK}
    return Daemon(kind, node, argv, env)


def _zookeepers(nodes: Sequence[Node]) -> list[Daemon]:
    """Servers of the registry; several are an ensemble."""
    members = (Member(ZOOKEEPER_PORT, QUORUM_PORT, ELECTION_PORT),) * len(nodes)
    hosts = tuple(node.address for node in nodes)
    made = []
    for number, node in enumerate(nodes, 1):
        command = prepare(
            node.folder / "zookeeper",
            node.address,
            ZOOKEEPER_PORT,
            os.environ,
            Ensemble(members, number, hosts) if len(nodes) > 1 else None,
        )
        made.append(Daemon("zookeeper", node, command, {}))
    return made


def _offspring(nodes: Iterable[Node]) -> Iterable[Offspring]:
    folders = {str(node.folder): node for node in nodes}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:  # it has ended
            continue
        if len(words) < 5 or words[-2] not in MODULES:
            continue
        file = Path(words[-1])
        node = folders.get(str(file.parent.parent))
        if node is not None:
            role, pid = MODULES[words[-2]], int(entry.name)
            served = list(_served(file.parent, pid)) if role == "monitor" else []
            for child in served or [file.stem]:
                yield Offspring(node, child, role, pid)


def _served(folder: Path, pid: int) -> Iterable[str]:
    """The monitors in a process, as its host manager has written down."""
    for path in folder.glob("*.process"):
        with suppress(OSError, msgspec.DecodeError):  # it is being removed
            record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
            if record.pid == pid:
                yield record.child
