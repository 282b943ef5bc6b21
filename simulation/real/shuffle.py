"""A policy that moves a publisher all the time, for nothing: it makes relocations happen.

It is offered to a cluster as any policy of another package would be: by an entry point of a
package. `offered` writes such a package, of two small files, and lets the daemons find it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import roq
from roq.policy.snapshot import Decision, Memory, Move, PublisherView, QueueView

NAME: Final = "shuffle"
_METADATA: Final = "Metadata-Version: 2.1\nName: roq-shuffle\nVersion: 1.0\n"
_ENTRY_POINTS: Final = f"[roq.policies]\n{NAME} = {__name__}:Shuffle\n"


class Shuffle:
    """Moves one publisher in each round, the one that has stayed longest, to the exchange with the
    next number."""

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """One round."""
        accepting = sorted(each.number for each in view.exchanges if each.accepting)
        found = {
            publisher.id.hex(): (publisher, exchange.number)
            for exchange in view.exchanges
            for publisher in exchange.top
        }
        marks = {name: memory.marks.get(name, 0.0) for name in found}
        if len(accepting) < 2 or not found:
            return [], Memory(marks)
        idle = [name for name, (publisher, _) in found.items() if _stays(publisher)]
        if not idle:
            return [], Memory(marks)
        name = min(idle, key=lambda name: (marks[name], name))
        publisher, source = found[name]
        target = next((number for number in accepting if number > source), accepting[0])
        marks[name] = view.now
        return [Move(publisher.id, source, target, "shuffling")], Memory(marks)


def _stays(publisher: PublisherView) -> bool:
    return not publisher.moving and len(publisher.exchanges) == 1


@contextmanager
def offered(folder: Path) -> Iterator[None]:
    """Let processes that are started inside the block find the policy under its name."""
    package = folder / "roq_shuffle-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(_METADATA)
    (package / "entry_points.txt").write_text(_ENTRY_POINTS)
    before = os.environ.get("PYTHONPATH")
    root = Path(roq.__file__).resolve().parents[1]
    paths = [str(folder), str(root), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
