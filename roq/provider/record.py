"""What stands on disk about a host that runs as a process of this machine.

<data_dir>/lock                      held while hosts are made or erased
<data_dir>/<cluster>/<name>/         one host, called `<cluster>/<name>`
    host.json                        which process it is (this module)
    hcm.toml host.log                its configuration and its log
    data/                            what belongs to the host manager: specs and logs of children
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from roq.errors import InvalidName
from roq.model import check_name
from roq.number_ranges import UNREADABLE, Amount
from roq.provider.process import Identity
from roq.runtime.files import write_whole

RECORD_BYTES_MAX: Final = 65_536
_RECORD: Final = "host.json"
_TAIL_BYTES: Final = 2_048
_TAIL_LINES: Final = 8


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One host, as it was written down when it was made."""

    address: str
    created: Amount
    """Seconds since 1970."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    process: Identity | None = None
    """Its host manager; None if the manager that made it was interrupted."""


class HostFolder:
    """Everything that belongs to one host."""

    def __init__(self, data_dir: Path, cluster: str, name: str) -> None:
        self.path = data_dir / cluster / name
        self.name = name
        self.handle = f"{cluster}/{name}"

    @property
    def configuration(self) -> Path:
        """The settings of its host manager."""
        return self.path / "hcm.toml"

    @property
    def data(self) -> Path:
        """The folder of its host manager."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """What its host manager says."""
        return self.path / "host.log"

    def write(self, record: HostRecord) -> None:
        """Write the record down, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / _RECORD, msgspec.json.encode(record))

    def read(self) -> HostRecord | None:
        """The record; None if there is none that makes sense."""
        try:
            with (self.path / _RECORD).open("rb") as file:
                return msgspec.json.decode(file.read(RECORD_BYTES_MAX), type=HostRecord)
        except (OSError, *UNREADABLE):
            return None

    def last_words(self) -> str:
        """The end of the log of its host manager."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])

    def erase(self) -> None:
        """Remove all of it, and the folder of the cluster with its last host.

        Raises:
            OSError: something is left.
        """
        shutil.rmtree(self.path)
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def folder_of(data_dir: Path, handle: str) -> HostFolder | None:
    """The folder of the host with this handle; None if no host of ours can have it."""
    cluster, _, name = handle.partition("/")
    try:
        return HostFolder(data_dir, check_name(cluster, "cluster"), check_name(name, "host"))
    except InvalidName:
        return None


def all_hosts(data_dir: Path, cluster: str = "*") -> Iterator[HostFolder]:
    """The hosts of a cluster, or of all, by name."""
    for path in sorted(data_dir.glob(f"{cluster}/*")):
        folder = folder_of(data_dir, f"{path.parent.name}/{path.name}")
        if folder is not None and path.is_dir():
            yield folder
