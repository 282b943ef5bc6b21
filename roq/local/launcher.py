"""Starts the processes of a local cluster all at once, waits for all of them, stops them in order.

Nothing here waits: everything is a callback in a reactor, so ZooKeeper's Java, the configuration
manager and the host managers come up side by side and one deadline holds for all.

    start()  -> on_ready(Addresses)         every part serves
             -> on_failed(StartFailed)      one has ended or the time is up; the rest is stopped
    stop()   -> on_stopped()                nothing of the cluster runs any more
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from roq.coordination.embedded import prepare
from roq.errors import RoQError
from roq.local.folder import PROVIDED_HOSTS, Folder
from roq.local.part import Part
from roq.local.ports import OFFSETS, check_base, choose_base, choose_port
from roq.local.settings import MANAGER_HOST, Settings, gcm_configuration, hcm_configuration
from roq.runtime import exits
from roq.runtime.reactor import Reactor, Timer

STOP_SECONDS: Final = 10.0
"""Grace for each step of a stop; then the step's processes are killed."""
ZOOKEEPER: Final = "zookeeper"
GCM: Final = "gcm"


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running cluster answers; what `roq up` prints behind `ready`."""

    client: str
    management: str
    broadcast: str
    zookeeper: str
    hosts: list[str]


class StartFailed(RoQError):
    """A part of the cluster did not start.

    Attributes:
        exit_code: 69 a dependency was away, 70 it crashed, 78 a configuration is wrong.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class State(StrEnum):
    """Where a launcher is."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Launcher:
    """One local cluster, driven by the loop of its owner.

    Args:
        reactor: its loop; the thread that runs it must live as long as the cluster does.
        settings: what is wanted.
        on_ready: every part serves.
        on_failed: the start did not work; everything is stopped already.
        on_part_ended: a part has ended unasked after the start.

    Attributes:
        state: where it is.
        folder: configuration, logs and data; None before the start.
    """

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        *,
        on_ready: Callable[[Addresses], None],
        on_failed: Callable[[StartFailed], None],
        on_part_ended: Callable[[Part], None],
    ) -> None:
        self.state = State.NEW
        self.folder: Folder | None = None
        self._reactor = reactor
        self._settings = settings
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._on_part_ended = on_part_ended
        self._on_stopped: list[Callable[[], None]] = []
        self._parts: dict[str, Part] = {}
        self._steps: list[list[Part]] = []
        self._failure: StartFailed | None = None
        self._timer: Timer | None = None
        self._base = 0
        self._zookeeper = settings.zookeeper

    @property
    def parts(self) -> dict[str, Part]:
        """The processes by name (`zookeeper`, `gcm`, `host 127.0.0.1`, …)."""
        return dict(self._parts)

    def start(self) -> None:
        """Start everything.

        Raises:
            ConfigError: a port is in use, or the data directory cannot be used; nothing runs.
            Unavailable: no Java for the embedded ZooKeeper, or no free ports; nothing runs.
        """
        base = self._settings.port_base
        self._base = check_base(MANAGER_HOST, base) if base else choose_base(MANAGER_HOST)
        self.folder = Folder(self._settings.data_dir)
        self.state = State.STARTING
        try:
            self._spawn_all(self.folder)
        except OSError as error:
            self._fail(f"a process cannot be started: {error}", exits.CRASHED)
            return
        except BaseException:
            self.folder.close()
            raise
        self._timer = self._reactor.call_later(self._settings.start_seconds, self._too_late)

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop everything: hosts, then the configuration manager, then ZooKeeper.

        Host managers stop their monitors and exchanges first, and each may say goodbye to whoever
        is stopped after it.
        """
        if self.state in {State.NEW, State.STOPPED}:
            self._reactor.call_soon(on_stopped)
            return
        self._on_stopped.append(on_stopped)
        if self.state is not State.STOPPING:
            self._begin_stop()

    def kill(self) -> None:
        """End everything at once, without goodbyes and callbacks; idempotent."""
        for part in self._parts.values():
            if part.running:
                part.kill()
        if self.folder is not None:
            self.folder.close()

    # --- starting ---------------------------------------------------------------------------------

    def _spawn_all(self, folder: Folder) -> None:
        if not self._zookeeper:
            self._start_zookeeper(folder)
        manager = f"{MANAGER_HOST}:{self._base}"
        self._spawn_daemon(
            folder,
            GCM,
            "roq.gcm",
            gcm_configuration(
                self._settings, self._base, self._zookeeper, folder.path / PROVIDED_HOSTS
            ),
        )
        for host in self._settings.host_names:
            data = folder.make(f"host-{host}")
            text = hcm_configuration(self._settings, host, data, manager, self._zookeeper)
            self._spawn_daemon(folder, f"host {host}", "roq.hcm", text)

    def _start_zookeeper(self, folder: Folder) -> None:
        port = choose_port(MANAGER_HOST)
        self._zookeeper = f"{MANAGER_HOST}:{port}"
        command = prepare(folder.make("zookeeper"), MANAGER_HOST, port, os.environ)
        self._spawn(folder, ZOOKEEPER, command)
        # It says nothing; that the daemons reach it shows that it serves.
        self._parts[ZOOKEEPER].ready = {}

    def _spawn_daemon(self, folder: Folder, name: str, module: str, text: str) -> None:
        path = folder.write(f"{name.replace(' ', '-')}.toml", text)
        command = [
            sys.executable,
            "-P",
            "-m",
            module,
            "--config",
            str(path),
            "--ready-fd",
            "{ready_fd}",
        ]
        self._spawn(folder, name, command)

    def _spawn(self, folder: Folder, name: str, command: Sequence[str]) -> None:
        self._parts[name] = Part(
            self._reactor,
            name,
            command,
            log_path=folder.log(name),
            on_ready=self._part_ready,
            on_end=self._part_ended,
        )

    def _part_ready(self, _part: Part) -> None:
        if self.state is State.STARTING and all(p.ready is not None for p in self._parts.values()):
            self._cancel_timer()
            self.state = State.READY
            self._on_ready(self._addresses())

    def _addresses(self) -> Addresses:
        ports = {name: self._base + offset for name, offset in OFFSETS.items()}
        return Addresses(
            client=f"{MANAGER_HOST}:{ports['client']}",
            management=f"{MANAGER_HOST}:{ports['management']}",
            broadcast=f"{MANAGER_HOST}:{ports['broadcast']}",
            zookeeper=self._zookeeper,
            hosts=self._settings.host_names,
        )

    def _too_late(self) -> None:
        missing = [part for part in self._parts.values() if part.ready is None]
        names = ", ".join(part.name for part in missing)
        text = f"{names} did not get ready within {self._settings.start_seconds:g} s"
        self._fail("\n".join([text, *map(_words, missing)]), exits.UNAVAILABLE)

    def _fail(self, text: str, code: int) -> None:
        self._failure = StartFailed(text, code)
        self._begin_stop()

    # --- ends -------------------------------------------------------------------------------------

    def _part_ended(self, part: Part) -> None:
        match self.state:
            case State.STARTING:
                self._part_failed(part)
            case State.READY:
                self._on_part_ended(part)
            case State.STOPPING:
                self._next_step()
            case State.NEW | State.STOPPED:
                pass

    def _part_failed(self, part: Part) -> None:
        code = part.code if part.code in {exits.UNAVAILABLE, exits.CONFIG} else exits.CRASHED
        text = f"{part.name} {part.end_text()} while the cluster was starting{_words(part)}"
        self._fail(text, code)

    def _begin_stop(self) -> None:
        self.state = State.STOPPING
        if self.folder is not None:
            self.folder.stop_provided_hosts()
        hosts = [part for name, part in self._parts.items() if name not in {ZOOKEEPER, GCM}]
        last = [self._parts[name] for name in (GCM, ZOOKEEPER) if name in self._parts]
        self._steps = [hosts, *([part] for part in last)]
        # Later, so that whoever caused it (a part's end, a failed start) has finished first.
        self._reactor.call_soon(self._open_step)

    def _open_step(self) -> None:
        self._cancel_timer()
        if not self._steps:
            self._stopped()
            return
        for part in self._steps[0]:
            part.terminate()
        self._timer = self._reactor.call_later(STOP_SECONDS, self._kill_step)
        self._next_step()

    def _next_step(self) -> None:
        if self._steps and not any(part.running for part in self._steps[0]):
            del self._steps[0]
            self._open_step()

    def _kill_step(self) -> None:
        for part in self._steps[0]:
            if part.running:
                part.kill()

    def _stopped(self) -> None:
        if self.folder is not None:
            self.folder.close()
        self.state = State.STOPPED
        if self._failure is not None:
            self._on_failed(self._failure)
        callbacks, self._on_stopped = self._on_stopped, []
        for callback in callbacks:
            callback()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _words(part: Part) -> str:
    words = part.last_words()
    return f"\nthe end of its log:\n{words}" if words else ""
