"""On which kind of file system a folder is: one that several machines share holds no registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "9p", "virtiofs",
     "vboxsf", "vmhgfs", "prl_fs", "davfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2",
     "glusterfs", "ocfs2", "gfs2"}
)  # fmt: skip
_FUSE: Final = "fuse."
"""Of these nobody but the program behind them knows where the files are."""
_LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def shared_file_system(folder: Path, mounts: str | None = None) -> str:
    """The kind of the file system if other machines may see its files, too; empty if not.

    Args:
        folder: an absolute path without links.
        mounts: as in /proc/self/mountinfo, which is read if this is None.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:  # no /proc: nothing is known
            return ""
    kind, longest = "", -1
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        depth = len(point.parts)
        # A later line lies above an earlier one of the same place.
        if depth >= longest and (point == folder or point in folder.parents):
            kind, longest = rest.split(" ")[0], depth
    shared = kind in _SHARED or (kind.startswith(_FUSE) and kind not in _LOCAL_FUSE)
    return kind if shared else ""
