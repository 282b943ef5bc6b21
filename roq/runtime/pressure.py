"""What the kernel tells of waiting for a processor. Where it does not, there is None."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")
DEPTH_MAX: Final = 16
"""Groups within groups whose quota is looked at."""


def waited_us(proc: Path = _PROC) -> int | None:
    """How long something on this machine has waited for a processor so far."""
    try:
        first = (proc / "pressure/cpu").read_text("ascii").splitlines()[0]
        name, _, total = first.rpartition("total=")
        return int(total) if name.startswith("some") else None
    except (OSError, ValueError, IndexError):
        return None


class Quota:
    """The quotas of processor time of this process: of its control group and those around it.

    The groups are looked up with each look, because a process may be put into another one.
    """

    def __init__(self, proc: Path = _PROC, cgroup: Path = _CGROUP) -> None:
        self._proc = proc
        self._cgroup = cgroup

    def periods(self) -> tuple[int, int] | None:
        """Periods with work so far, and those that ended before it was done.

        Of several groups those of the one that was held back most often.
        """
        found = [each for each in map(_counted, self._files()) if each is not None]
        return max(found, key=lambda each: each[1], default=None)

    def _files(self) -> list[Path]:
        try:
            lines = (self._proc / "self/cgroup").read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        files = []
        for line in lines:
            _, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if controllers and "cpu" not in controllers.split(","):
                continue
            mounts = [controllers, "cpu,cpuacct", "cpu"] if controllers else [""]
            root = next((self._cgroup / m for m in mounts if (self._cgroup / m).is_dir()), None)
            if root is None:
                continue
            own = PurePosixPath(group.lstrip("/"))
            around = [own, *own.parents][:DEPTH_MAX]
            files += [root / each / "cpu.stat" for each in around]
        return files


def _counted(file: Path) -> tuple[int, int] | None:
    try:
        fields = dict(line.split()[:2] for line in file.read_text("ascii").splitlines())
        periods, throttled = int(fields["nr_periods"]), int(fields["nr_throttled"])
    except (OSError, ValueError, KeyError):
        return None
    return (periods, throttled) if periods else None
