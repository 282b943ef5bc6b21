"""Writes back what a registry has lost, out of the memory of the leader that wrote it before.

It writes under the leader's fence and makes documents only: what stands there already stays as it
is. The identity of the cluster comes last, so a restoration that was interrupted is not mistaken
for a registry that is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from roq.coordination.registry_contract import (
    CLUSTER,
    DATA_BYTES_MAX,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Fence,
    Reason,
    Registry,
)
from roq.gcm.state.records import readable

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024
CHUNK_DOCUMENTS: Final = 200
"""Of one transaction; ZooKeeper takes no more than 1 MiB at once."""
_QUEUE_DEPTH: Final = 2
"""Names in the path of a definition; what is deeper stands below another document."""


class Restoration:
    """One restoration; `start`, then `done` is called once.

    Args:
        registry: which came back empty.
        fence: of the leader.
        cluster: the identity that the registry had; empty if it has it still.
        documents: what stood there, by path.
        done: gets `Committed`, or why it could not be completed.
        there: what stands there all the same, by path.
    """

    def __init__(
        self,
        registry: Registry,
        fence: Fence,
        cluster: str,
        documents: Mapping[str, bytes],
        done: Callable[[CommitResult], None],
        there: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._registry = registry
        self._fence = fence
        self._cluster = cluster
        self._chunks = _chunks(documents, there)
        self._chunk: list[Create] = []
        self._done = done
        self._written = 0

    def start(self) -> None:
        """Write the first part; the others follow."""
        self._next(Committed())

    def _next(self, result: CommitResult) -> None:
        match result:
            case Committed():
                self._written += len(self._chunk)
                self._chunk = next(self._chunks, [])
            case Conflict(path=path, reason=Reason.EXISTS):
                _keep(path)
                self._chunk = [step for step in self._chunk if step.path != path]
            case _:
                self._done(result)
                return
        if self._chunk or isinstance(result, Conflict):
            self._registry.commit(self._chunk, self._fence, self._next)
        elif not self._cluster:
            self._done(Committed())
        else:
            identity = Create(CLUSTER, self._cluster.encode())
            self._registry.commit([identity], self._fence, self._named)

    def _named(self, result: CommitResult) -> None:
        if isinstance(result, Committed):
            log.error(
                "the registry had lost cluster %s: %d documents were written back from memory",
                self._cluster, self._written, extra={"event": "registry_restored"},
            )  # fmt: skip
        self._done(result)


def deleted(
    known: dict[str, bytes], there: Mapping[str, bytes], unsure: Collection[str]
) -> dict[str, bytes]:
    """What stood in the registry, was in force, can be written back, and is gone without its
    leader's doing.

    Args:
        known: what the leader has read or written, by path.
        there: what stands there now.
        unsure: what the leader has deleted, perhaps, with all that is below.
    """

    def is_unsure(path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in unsure)

    lost = {
        path: data
        for path, data in readable(known).items()
        if path not in there and not is_unsure(path)
    }
    return dict(_writable(lost, there))


def _writable(
    documents: Mapping[str, bytes], there: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    """The documents to write, parents first; not all that others had put there can be."""
    written: set[str] = set()
    for path, data in sorted(documents.items()):
        parent = path.rpartition("/")[0]
        if path in there:
            if there[path] != data:
                _keep(path)
        elif len(data) > DATA_BYTES_MAX or not (
            parent.count("/") < _QUEUE_DEPTH or parent in there or parent in written
        ):
            log.error(
                "%s is not written back: it is too large (%d bytes), or what it stood below is "
                "gone", path, len(data), extra={"event": "document_left_out"},
            )  # fmt: skip
        else:
            written.add(path)
            yield path, data


def _keep(path: str) -> None:
    log.warning(
        "%s stands in the registry already and is kept", path, extra={"event": "document_kept"}
    )


def _chunks(documents: Mapping[str, bytes], there: Mapping[str, bytes]) -> Iterator[list[Create]]:
    """The documents, parents first, in parts that fit one transaction each."""
    chunk: list[Create] = []
    size = 0
    for path, data in _writable(documents, there):
        if chunk and (size + len(data) > CHUNK_BYTES or len(chunk) >= CHUNK_DOCUMENTS):
            yield chunk
            chunk, size = [], 0
        chunk.append(Create(path, data))
        size += len(data)
    if chunk:
        yield chunk
