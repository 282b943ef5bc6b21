"""What the changes of a commit mean for the nodes that stand in the registry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from roq.coordination.contract import Create, Delete, Operation, Set
from roq.gcm.events import Change, Drop, Put

DROPPED_AT_ONCE: Final = 500
"""Nodes that are deleted in one transaction: ZooKeeper takes no more than 1 MiB of paths."""


def operations(changes: Sequence[Change], known: Collection[str]) -> list[Operation]:
    """What is to be done in one transaction.

    Args:
        changes: what shall stand in the registry, and what shall not.
        known: the paths that do.
    """
    found: list[Operation] = []
    for change in changes:
        match change:
            case Put(path=path, data=data):
                found.append((Set if path in known else Create)(path, data))
            case Drop(path=path):
                # From the leaves up, with what a later version may have put there.
                found += [Delete(each) for each in below(known, path)]
    return found


def apply(changes: Sequence[Change], documents: dict[str, bytes]) -> None:
    """Change the documents, by path, as the nodes were changed."""
    for change in changes:
        if isinstance(change, Put):
            documents[change.path] = change.data
            continue
        for path in below(documents, change.path):
            del documents[path]


def surplus(changes: Sequence[Change], known: Collection[str]) -> list[str]:
    """What to delete before, because there is too much of it for one transaction."""
    dropped = [change.path for change in changes if isinstance(change, Drop)]
    paths = [path for root in dropped for path in below(known, root) if path != root]
    return paths[:DROPPED_AT_ONCE] if len(paths) > DROPPED_AT_ONCE else []


def below(known: Collection[str], root: str) -> list[str]:
    """The paths that are or stand below this one, from the leaves up."""
    return sorted((each for each in known if f"{each}/".startswith(f"{root}/")), reverse=True)
