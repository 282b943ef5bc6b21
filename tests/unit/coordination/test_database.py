"""Where a registry must not lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.coordination.database import shared_file_system

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:1 - nfs4 files:/home rw
31 30 0:41 / /home/me/local rw - ext4 /dev/vdb rw
32 22 0:42 / /mnt/two\\040words rw - cifs //files/two rw
33 22 0:43 / /ssh rw - fuse.sshfs me@far: rw
34 22 0:44 / /box rw - fuse.fuse-overlayfs overlay rw
35 22 0:45 / /disk rw - fuseblk /dev/sdb1 rw
36 22 0:46 / /above rw - nfs files:/a rw
37 22 0:47 / /above rw - tmpfs tmpfs rw
nonsense
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/roq", ""),
        ("/home/me", "nfs4"),
        ("/home", "nfs4"),
        ("/homes", ""),
        ("/home/me/local/x", ""),
        ("/mnt/two words/x", "cifs"),
        ("/ssh/x", "fuse.sshfs"),
        ("/box/x", ""),
        ("/disk/x", ""),
        ("/above/x", ""),
    ],
)
def test_a_file_system_of_several_machines_is_told_from_others(folder: str, kind: str) -> None:
    assert shared_file_system(Path(folder), MOUNTS) == kind


def test_the_folder_of_this_test_is_on_a_disk_of_this_machine(tmp_path: Path) -> None:
    assert shared_file_system(tmp_path.resolve()) == ""
