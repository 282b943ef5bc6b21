"""What a host manager keeps on disk of its children, so that its next life can find them.

Beside the spec of each child, `<child>.json`, stands `<child>.process`: which process serves it. A
process is named by its pid, the time when it was started and the start of the machine, so nobody
who has the pid later is taken for it. What stands in these files is believed only after it was
checked, and compared with the process.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from roq.errors import InvalidName, InvalidRequest
from roq.hcm.children import child_name
from roq.model import HOST_EPOCH_MAX, check_name, host_epoch
from roq.number_ranges import ChildEpoch, HostEpoch, Int32, Port, Whole
from roq.protocol.spec import ExchangeSpec, Spec, encode_spec
from roq.runtime import procfs
from roq.runtime.files import DRAFT, write_whole

RECORD_BYTES_MAX: Final = 4_096
SPEC_BYTES_MAX: Final = 1024 * 1024
PORTS_MAX: Final = 8
PIPE: Final = ".pipe"
LEADER: Final = "leader.epoch"
OWN: Final = "host.epoch"
FIRST: Final = "first.epoch"
PROCESS: Final = re.compile("monitors-[0-9]{1,6}")

log = logging.getLogger(__name__)


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which process a child is."""

    child: str
    epoch: ChildEpoch
    pid: Int32
    start: Whole
    """As in `procfs.Sample`."""
    boot: str
    """As `procfs.boot_id` was."""
    ports: list[Port] = []
    """At which it listens, as far as it has told."""
    process: str = ""
    """Of a monitor: the name of its process, which is also that of its pipe."""


@dataclass(slots=True)
class Left:
    """What an earlier life has left behind.

    Attributes:
        living: children whose processes live.
        resting: ports that others used, or that were to be avoided.
    """

    living: list[tuple[Spec, ProcessRecord]] = field(default_factory=list)
    resting: set[int] = field(default_factory=set)


class Records:
    """The specs and process records of one host manager.

    Args:
        folder: absolute; must exist, and belong to this host manager alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boot = procfs.boot_id()
        self._written: dict[str, ProcessRecord] = {}

    def write_spec(self, spec: Spec) -> Path:
        """Write down what a child is told; gives the file.

        Raises:
            OSError: as it is, with the disk full or the folder gone.
        """
        path = self._spec(spec.child)
        write_whole(path, encode_spec(spec))
        return path

    def pipe(self, process: str) -> Path:
        """Where a process of monitors is told what to serve."""
        return self._folder / f"{process}{PIPE}"

    def write_process(self, spec: Spec, pid: int, process: str = "") -> None:
        """Write down which process the child of `spec` is in.

        Args:
            process: of a monitor: the name of its process.

        Raises:
            OSError: the same.
        """
        found = procfs.sample(pid)
        if found is None:
            return  # it has ended already
        record = ProcessRecord(
            child=spec.child, epoch=spec.epoch, pid=pid, start=found.start, boot=self._boot,
            process=process,
        )  # fmt: skip
        self._write(record)

    def write_ports(self, child: str, ports: tuple[int, ...]) -> None:
        """Write down where a child listens. Without it, its ports rest less than they should."""
        record = self._written.get(child)
        if record is not None:
            try:
                self._write(msgspec.structs.replace(record, ports=list(ports)))
            except OSError as error:
                log.warning(
                    "%s: %s", self._record(child), error.strerror, extra={"event": "not_recorded"}
                )

    def write_leader(self, epoch: int) -> None:
        """Write down which leader is obeyed. Without it, a later life may hear an earlier one."""
        self._write_number(LEADER, epoch)

    def leader_epoch(self) -> int:
        """The highest epoch of a leader that was obeyed; 0: none is known."""
        return self._number(LEADER)

    def write_epoch(self, epoch: int) -> None:
        """Write down under which host epoch children count. Without it, a later life may give the
        same ones, in a registry that was restored from an older copy. The first one stays: a log
        that is older was on another disk."""
        if not (self._folder / OWN).exists():
            self._write_number(FIRST, epoch)
        self._write_number(OWN, epoch)

    def epoch(self) -> int:
        """The highest host epoch under which anything was started here; 0: none is known."""
        return self._number(OWN)

    def since(self) -> int:
        """The first host epoch under which anything was started here; 0: it is not known."""
        return self._number(FIRST)

    def _write_number(self, name: str, number: int) -> None:
        path = self._folder / name
        try:
            write_whole(path, b"%d" % number)
        except OSError as error:
            log.warning("%s: %s", path, error.strerror, extra={"event": "not_recorded"})

    def _number(self, name: str) -> int:
        path = self._folder / name
        try:
            number: int = msgspec.json.decode(_read(path, RECORD_BYTES_MAX), type=HostEpoch)
        except FileNotFoundError:
            return 0
        except (OSError, msgspec.MsgspecError, InvalidRequest) as error:
            log.warning("%s is of no use: %s", path, error, extra={"event": "record_refused"})
            return 0
        return number

    def ended(self, child: str) -> None:
        """The process of a child has ended; its spec is kept."""
        self._written.pop(child, None)
        remove(self._record(child))

    def forget(self, child: str) -> None:
        """A child is gone for good."""
        remove(self._spec(child))
        self.ended(child)

    def left(self) -> Left:
        """What an earlier life has left behind.

        The files of children that live no more are removed. Who lives and has no record is not
        known here, and is told so when it reports.
        """
        left = Left()
        for path in sorted(self._folder.glob("*.process")):
            try:
                self._take(path, left)
            except (OSError, msgspec.MsgspecError, InvalidName, InvalidRequest) as error:
                log.warning(
                    "%s is of no use: its process, if there is one, is not adopted: %s", path,
                    error, extra={"event": "record_refused"},
                )  # fmt: skip
        self._tidy(
            {record.child for _, record in left.living},
            {record.process for _, record in left.living},
        )
        return left

    def _tidy(self, living: set[str], processes: set[str]) -> None:
        for path in self._folder.glob(f"*{PIPE}"):
            if path.stem not in processes:
                remove(path)
        for path in [*self._folder.glob("*.json"), *self._folder.glob("*.process")]:
            if path.stem not in living:
                remove(path)
        for path in self._folder.glob(f"*{DRAFT}"):
            remove(path)

    def _take(self, path: Path, left: Left) -> None:
        record = self._read_record(path)
        spec = self._read_spec(record)
        left.resting.update(spec.avoid_ports)
        if self._is_alive(record):
            self._written[record.child] = record
            left.living.append((spec, record))
        else:
            left.resting.update(record.ports)

    def _write(self, record: ProcessRecord) -> None:
        write_whole(self._record(record.child), msgspec.json.encode(record))
        self._written[record.child] = record

    def _read_record(self, path: Path) -> ProcessRecord:
        record = msgspec.json.decode(_read(path, RECORD_BYTES_MAX), type=ProcessRecord)
        if record.child != path.stem:
            raise InvalidRequest(f"it names {record.child[:150]!r}")
        if not 1 < record.pid < 1 << 31:
            raise InvalidRequest(f"{record.pid} is no process of a child")
        if record.process and not PROCESS.fullmatch(record.process):
            raise InvalidRequest(f"{record.process[:150]!r} is no process of monitors")
        if len(record.ports) > PORTS_MAX or not _are_ports(record.ports):
            raise InvalidRequest("no child listens at these ports")
        return record

    def _is_alive(self, record: ProcessRecord) -> bool:
        """Whether this very process still is what it was."""
        if record.boot != self._boot:
            return False
        found = procfs.sample(record.pid)
        if found is None or found.start != record.start or found.state in procfs.ENDED:
            return False
        arguments = procfs.arguments(record.pid)
        file = self.pipe(record.process) if record.process else self._spec(record.child)
        return arguments is not None and arguments[-1:] == [str(file)]

    def _read_spec(self, record: ProcessRecord) -> Spec:
        data = _read(self._spec(record.child), SPEC_BYTES_MAX)
        spec: Spec = msgspec.json.decode(data, type=Spec)
        number = spec.number if isinstance(spec, ExchangeSpec) else 0
        check_name(spec.queue)
        if spec.child != record.child or child_name(spec.queue, number) != record.child:
            raise InvalidRequest(f"the spec is that of {spec.child[:150]!r}")
        if spec.epoch != record.epoch or not 0 < host_epoch(spec.epoch) <= HOST_EPOCH_MAX:
            raise InvalidRequest(f"the spec is of epoch {spec.epoch}, the process of another")
        if not _are_ports(spec.avoid_ports):
            raise InvalidRequest("these cannot be ports to avoid")
        return spec

    def _spec(self, child: str) -> Path:
        return self._folder / f"{child}.json"

    def _record(self, child: str) -> Path:
        return self._folder / f"{child}.process"


def _are_ports(numbers: list[int]) -> bool:
    return all(0 < number < 1 << 16 for number in numbers)


def remove(path: Path) -> None:
    """Remove a file that may be gone already; what cannot be removed is in nobody's way."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s stays: %s", path, error.strerror, extra={"event": "file_stays"})


def _read(path: Path, bytes_max: int) -> bytes:
    # Not a link to anywhere, and no pipe that never ends.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        data = file.read(bytes_max + 1) or b""
    if len(data) > bytes_max:
        raise InvalidRequest(f"{path.name} has more than {bytes_max} bytes")
    return data
