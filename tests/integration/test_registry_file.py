"""The registry in a file on a disk of its own: full, and only to be read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from posting import Loop

from roq.coordination.file import FileRegistry
from roq.coordination.registry_contract import CommitResult, Committed, Create, Node, SessionState
from roq.errors import ConfigError, RegistryAway

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_refuses_changes_until_there_is_room(disk: Path) -> None:
    loop = Loop()
    registry = FileRegistry(disk / "cluster.db", loop.post)
    states: list[SessionState] = []
    registry.start(states.append)
    loop.until(lambda: states == [SessionState.CONNECTED], "a connection")

    def make(path: str) -> CommitResult:
        return loop.ask(partial(registry.commit, [Create(path, bytes(100_000))], None))

    made = []
    with (disk / "ballast").open("wb") as ballast:
        ballast.write(bytes(300_000))
    refused: CommitResult = Committed()
    while isinstance(refused, Committed):
        made.append(f"/queues/q{len(made)}")
        refused = make(made[-1])
    assert isinstance(refused, RegistryAway)
    assert "full" in str(refused)
    assert SessionState.LOST not in states
    (disk / "ballast").unlink()
    loop.until(lambda: registry.state is SessionState.CONNECTED, "that it is back")
    assert isinstance(make(made[-1]), Committed)
    for path in made:
        assert isinstance(loop.ask(partial(registry.read, path)), Node)
    registry.close()


def test_a_disk_that_can_only_be_read_is_refused(disk: Path) -> None:
    FileRegistry(disk / "cluster.db", lambda _: None).close()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(ConfigError, match="cannot be written beside it"):
        FileRegistry(disk / "cluster.db", lambda _: None)
