"""`local`: a host is another host manager process on this machine, on its own loopback address.

For trying elasticity out, for tests, and for one big machine whose hosts are to be separate
processes. The processes outlive the configuration manager; a later one finds them again by what
stands in `data_dir`, see `roq.provider.record`.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from roq.errors import ConfigError, ProviderFailed
from roq.model import check_name
from roq.provider.configuration import host_configuration
from roq.provider.loopback import Addresses, listening
from roq.provider.port import HostRequest, HostState, ProvidedHost
from roq.provider.process import Identity, identify, working_in
from roq.provider.record import HostFolder, HostRecord, all_hosts, folder_of
from roq.runtime.config import Section
from roq.runtime.process import detach

LOCK_SECONDS: Final = 10.0
"""Hosts are made and erased within this; then the process that holds the lock is stuck."""
KILL_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.02
_OWN_VARIABLES: Final = "ROQ_HCM_"
Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=600)]


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[provider.local]` of `gcm.toml`."""

    data_dir: Annotated[str, msgspec.Meta(min_length=1)] = "roq-hosts"
    """Where the hosts keep their configuration, logs and data; the same for all managers of this
    machine, also after a restart."""
    first_address: str = "127.0.0.2"
    last_address: str = "127.0.0.250"
    """Hosts get the addresses from the first to the last, unless a process listens there."""
    start_seconds: Seconds = 10.0
    """A host manager that does not listen within this is given up."""
    stop_seconds: Seconds = 10.0
    """Between asking a host manager to stop and killing it."""
    hcm: dict[str, Section] = msgspec.field(default_factory=dict)
    """Sections of `hcm.toml` for all hosts, such as `[provider.local.hcm.exchange]`."""

    def __post_init__(self) -> None:
        Addresses(self.first_address, self.last_address)


class LocalProvider:
    """Starts and stops host managers on this machine; any number of objects may share a folder.

    Raises:
        ConfigError: `data_dir` cannot be used.
    """

    Options = LocalOptions

    def __init__(self, options: LocalOptions) -> None:
        self._options = options
        self._addresses = Addresses(options.first_address, options.last_address)
        self._folder = Path(options.data_dir).resolve()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "lock").touch()
        except OSError as error:
            raise ConfigError(
                f"data_dir: {self._folder} cannot be used: {error.strerror}"
            ) from None

    def create(self, request: HostRequest) -> ProvidedHost:
        """Start a host manager; gives it back when it listens.

        Raises:
            ProviderFailed: it does not start; the text has the end of its log.
            NoMoreHosts: there is no free address.
        """
        folder = HostFolder(self._folder, request.cluster, request.name)
        with self._lock():
            record = folder.read()
            if record is not None and _manager(folder, record) is not None:
                return _describe(folder)
            self._erase(folder)
            try:
                record = self._start(folder, request)
            except OSError as error:
                self._erase(folder)
                raise ProviderFailed(f"host {request.name} cannot be started: {error}") from error
            except BaseException:
                self._erase(folder)
                raise
        try:
            self._await_start(folder, record)
        except BaseException:
            self._stop(folder, grace=0.0)
            raise
        return _describe(folder)

    def list(self, cluster: str) -> list[ProvidedHost]:
        """All hosts of a cluster that have been made in `data_dir`."""
        check_name(cluster, "cluster")
        return [_describe(folder) for folder in all_hosts(self._folder, cluster)]

    def remove(self, handle: str) -> None:
        """Stop a host manager with its monitors and exchanges, and remove its folder.

        Raises:
            ProviderFailed: a process or a file of it is left.
        """
        folder = folder_of(self._folder, handle)
        if folder is not None and folder.path.exists():
            self._stop(folder, grace=self._options.stop_seconds)

    def close(self) -> None:
        """Nothing is held."""

    # --- a host begins ----------------------------------------------------------------------------

    def _start(self, folder: HostFolder, request: HostRequest) -> HostRecord:
        taken = [each.address for each in map(HostFolder.read, all_hosts(self._folder)) if each]
        address = self._addresses.choose({*taken, *request.taken})
        record = HostRecord(address=address, created=time.time(), labels=request.labels)
        folder.write(record)
        folder.configuration.write_text(self._configuration(request, folder, address))
        pid = detach(
            [sys.executable, "-P", "-m", "roq.hcm", "--config", str(folder.configuration)],
            log_path=folder.log,
            # What stands in the file is what counts.
            env={k: v for k, v in os.environ.items() if not k.startswith(_OWN_VARIABLES)},
        )
        record = msgspec.structs.replace(record, process=identify(pid))
        folder.write(record)
        return record

    def _configuration(self, request: HostRequest, folder: HostFolder, address: str) -> str:
        return host_configuration(
            request,
            # Any free ports: other clusters may use the same loopback addresses.
            usual={
                "network": {"port": 0},
                "monitor": {"base_port": 0},
                "statmonitor": {"base_port": 0},
                "exchange": {"base_port": 0},
            },
            wanted=self._options.hcm,
            place={
                "network": {"interface": "", "bind": address, "advertise": address},
                "data": {"dir": str(folder.data)},
            },
        )

    def _await_start(self, folder: HostFolder, record: HostRecord) -> None:
        """Wait until the host manager listens: its settings were right, its place is its own."""
        deadline = time.monotonic() + self._options.start_seconds
        while record.address not in listening():
            if record.process is None or record.process.wait(POLL_SECONDS):
                raise ProviderFailed(f"host {folder.name} has ended at once{_words(folder)}")
            if time.monotonic() > deadline:
                raise ProviderFailed(
                    f"host {folder.name} does not listen at {record.address} within "
                    f"{self._options.start_seconds:g} s{_words(folder)}"
                )

    # --- and ends ---------------------------------------------------------------------------------

    def _stop(self, folder: HostFolder, *, grace: float) -> None:
        record = folder.read()
        manager = None if record is None else _manager(folder, record)
        if manager is not None and grace > 0:
            manager.send(signal.SIGTERM)
            manager.wait(grace)
        with self._lock():
            self._erase(folder)

    def _erase(self, folder: HostFolder) -> None:
        """Kill whatever still works in the folder, and remove it."""
        if not folder.path.exists():
            return
        left = [each for each in _kill_all(folder.path) if not each.wait(KILL_SECONDS)]
        if left:
            pids = ", ".join(str(each.pid) for each in left)
            raise ProviderFailed(
                f"host {folder.name}: SIGKILL does not end process {pids}; end it, then try again"
            )
        try:
            folder.erase()
        except OSError as error:
            raise ProviderFailed(f"host {folder.name}: files are left: {error}") from error

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One at a time makes or erases hosts here, also among processes.

        Raises:
            ProviderFailed: another process that holds the lock does not finish.
        """
        deadline = time.monotonic() + LOCK_SECONDS
        with (self._folder / "lock").open("ab") as file:
            while not _locked(file.fileno()):
                if time.monotonic() > deadline:
                    raise ProviderFailed(
                        f"{file.name} has been locked for {LOCK_SECONDS:g} s by another process "
                        f"(`fuser {file.name}` names it): end it if it is stuck"
                    )
                threading.Event().wait(POLL_SECONDS)
            yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _manager(folder: HostFolder, record: HostRecord) -> Identity | None:
    """The host manager of this folder, if it runs."""
    if record.process is not None:
        return record.process if record.process.alive else None
    # The manager that started it was interrupted before the process could be written down.
    found = working_in(folder.path)
    return found[0] if found else None


def _kill_all(path: Path) -> list[Identity]:
    """Kill everything that works in this folder; the host manager first, it restarts the others."""
    killed: list[Identity] = []
    while working := [each for each in working_in(path) if each not in killed]:
        for each in sorted(working, key=lambda each: each.start):
            each.send(signal.SIGKILL)
        killed += working
    return killed


def _describe(folder: HostFolder) -> ProvidedHost:
    record = folder.read()
    if record is None:
        return ProvidedHost(
            name=folder.name, host="", handle=folder.handle, state=HostState.ENDED,
            note=f"its record in {folder.path} cannot be read",
        )  # fmt: skip
    running = _manager(folder, record) is not None
    return ProvidedHost(
        name=folder.name,
        host=record.address,
        handle=folder.handle,
        state=HostState.RUNNING if running else HostState.ENDED,
        created=record.created,
        note="" if running else f"its host manager has ended{_words(folder)}",
    )


def _words(folder: HostFolder) -> str:
    words = folder.last_words()
    return f"; the end of its log:\n{words}" if words else ""
