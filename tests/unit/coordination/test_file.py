"""The registry in a file keeps the contract, and bears what can happen to a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from posting import Loop
from registry_contract import RegistryContract

from roq.coordination.database import Database
from roq.coordination.file import FileRegistry
from roq.coordination.port import Registry

SESSION_SECONDS = 10.0
"""A machine that does other work must not end it."""


class InFile:
    """Registries of one cluster, each with a way of its own to the file."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.folder = folder
        self.path = folder / "real" / "cluster.db"
        self.path.parent.mkdir()
        self.session_seconds = SESSION_SECONDS
        self._ways: dict[Registry, Path] = {}

    def registry(self) -> FileRegistry:
        way = self.folder / f"way-{len(self._ways)}"
        way.symlink_to(self.path.parent)
        made = FileRegistry(
            way / self.path.name, self.loop.post, session_seconds=self.session_seconds
        )
        self._ways[made] = way
        return made

    def cut(self, registry: Registry) -> None:
        way = self._ways[registry]
        way.unlink()
        way.symlink_to(self.folder / "nowhere")

    def mend(self, registry: Registry) -> None:
        way = self._ways[registry]
        way.unlink()
        way.symlink_to(self.path.parent)

    def expire(self, registry: Registry) -> None:
        assert isinstance(registry, FileRegistry)
        self.cut(registry)
        database = Database(self.path)
        database.end([registry._store.session])
        database.close()

    def close(self) -> None:
        for registry in self._ways:
            registry.close()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[InFile]:
    made = InFile(tmp_path)
    yield made
    made.close()


class TestFileRegistry(RegistryContract):
    pass
