"""A folder in memory: simple, and always in order."""

from __future__ import annotations

from collections.abc import Sequence


class MemoryFiles:
    """`roq.log.files.Files` without a disk."""

    def __init__(self) -> None:
        self.contents: dict[str, bytearray] = {}
        self.writes = 0

    def names(self) -> list[str]:
        return list(self.contents)

    def size(self, name: str) -> int:
        return len(self._of(name))

    def read(self, name: str, at: int, size: int) -> bytes:
        return bytes(self._of(name)[at : at + size])

    def create(self, name: str) -> None:
        self.contents[name] = bytearray()

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(map(bytes, buffers))
        contents = self._of(name)
        contents.extend(bytes(max(0, at - len(contents))))
        contents[at : at + len(data)] = data
        self.writes += 1

    def sync(self, name: str) -> None:
        self._of(name)

    def sync_beside(self, name: str) -> None:
        """As `Files.sync_beside`."""
        self.sync(name)

    def rename(self, old: str, new: str) -> None:
        self.contents[new] = self._of(old)
        del self.contents[old]

    def remove(self, name: str) -> None:
        self.contents.pop(name, None)

    def sync_folder(self) -> None:
        return

    def _of(self, name: str) -> bytearray:
        if name not in self.contents:
            raise FileNotFoundError(2, "no such file", name)
        return self.contents[name]
