"""The data directory of a local cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from roq.errors import ConfigError
from roq.local.folder import Folder, sweep


def test_a_temporary_folder_is_removed_at_the_end() -> None:
    folder = Folder(None)
    folder.write("a.toml", "x")
    assert folder.path.is_dir()
    folder.close()
    folder.close()
    assert not folder.path.exists()


def test_a_temporary_folder_that_somebody_will_read_is_kept(tmp_path: Path) -> None:
    folder = Folder(None)
    folder.keep()
    folder.close()
    os.utime(folder.path, (0, 0))
    sweep(folder.path.parent)
    assert folder.path.is_dir()
    folder.path.joinpath("log").rmdir()
    folder.path.rmdir()


def test_a_named_folder_is_made_and_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    folder.write("a.toml", "x")
    folder.close()
    assert (tmp_path / "a" / "b" / "a.toml").read_text() == "x"


def test_two_clusters_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    with pytest.raises(ConfigError, match="another cluster"):
        Folder(tmp_path)
    first.close()
    Folder(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can be written to"):
        Folder(tmp_path / "file")


def test_folders_of_clusters_that_were_killed_are_swept(tmp_path: Path) -> None:
    stale, used, young = (tmp_path / f"roq-cluster-{name}" for name in ("stale", "used", "young"))
    Folder(stale).close()
    Folder(young).close()
    live = Folder(used)
    for old in (stale, used):
        os.utime(old, (0, 0))
    sweep(tmp_path)
    live.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [used.name, young.name]


def test_what_still_works_in_the_folder_is_ended(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    spec = folder.write("spec.json", "{}")
    (tmp_path / "orphan.py").write_text("import signal, sys; print(flush=True); signal.pause()")
    with subprocess.Popen(
        [sys.executable, "-m", "orphan", str(spec)], cwd=tmp_path, stdout=subprocess.PIPE
    ) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        folder.close()
        # Reaped by the folder already: the exit code is gone, and so is the process.
        assert not psutil.pid_exists(orphan.pid)
