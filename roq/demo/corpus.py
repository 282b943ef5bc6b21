"""The input: every line of every `.py` file of the Python standard library that runs this."""

from __future__ import annotations

import io
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

TOPICS: Final = ("python.module", "python.package")
"""A file directly in the library's folder; a file inside a package."""
_FOREIGN: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})


class Source(msgspec.Struct, frozen=True):
    """One file to publish."""

    path: str
    topic: str
    lines: int
    bytes: int


class Share(msgspec.Struct, frozen=True):
    """What one publisher sends, in this order."""

    sources: list[Source]

    @property
    def lines(self) -> int:
        """Messages."""
        return sum(source.lines for source in self.sources)

    @property
    def bytes(self) -> int:
        """Payload bytes."""
        return sum(source.bytes for source in self.sources)


def library() -> Path:
    """Where the standard library is."""
    return Path(sysconfig.get_path("stdlib"))


def find(root: Path) -> list[Path]:
    """All `.py` files of the library below `root`, sorted, without installed packages."""
    return sorted(
        path
        for path in root.rglob("*.py")
        if path.is_file() and not _FOREIGN.intersection(path.relative_to(root).parts)
    )


def shares(root: Path, publishers: int, lines_max: int | None = None) -> list[Share]:
    """Deal the files out to so many publishers; stop dealing after `lines_max` lines."""
    dealt: list[list[Source]] = [[] for _ in range(publishers)]
    total = 0
    for number, path in enumerate(find(root)):
        if lines_max is not None and total >= lines_max:
            break
        data = path.read_bytes()
        lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        topic = TOPICS[0] if path.parent == root else TOPICS[1]
        dealt[number % publishers].append(Source(str(path), topic, lines, len(data)))
        total += lines
    return [Share(sources) for sources in dealt]


def lines_of(data: bytes) -> list[bytes]:
    """The lines with their ends, so that joined they are `data` again."""
    return io.BytesIO(data).readlines()


def read(share: Share) -> Iterator[tuple[str, bytes]]:
    """Topic and content of each file."""
    for source in share.sources:
        yield source.topic, Path(source.path).read_bytes()
