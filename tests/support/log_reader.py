"""What stands in the log of an exchange that runs in a thread of the test."""

from __future__ import annotations

from collections.abc import Iterable

import zmq
from fake_control import ThreadExchange

from roq.protocol import batch as wire

Place = tuple[str, int]
"""Topic and sequence."""


def messages(exchanges: Iterable[ThreadExchange]) -> dict[Place, bytes | None]:
    """Every message that any of the logs holds; None for one that was given up.

    Fails when two different messages stand under one sequence.
    """
    found: dict[Place, bytes | None] = {}
    for exchange in exchanges:
        ring = exchange.server.core.log
        for offset in range(ring.floor, ring.end):
            topic, _, batch, _ = ring.record(offset)
            data = batch.bytes if isinstance(batch, zmq.Frame) else batch
            _add(found, topic.name.decode(), data)
    return found


def _add(found: dict[Place, bytes | None], topic: str, data: bytes) -> None:
    header = wire.read_header(data)
    if header.kind == wire.Kind.DATA:
        payloads: list[bytes | None] = list(wire.read_payloads(data, header))
    elif header.kind == wire.Kind.VOID:
        payloads = [None] * header.count
    else:
        return
    for index, payload in enumerate(payloads):
        place = (topic, header.first_sequence + index)
        known = found.setdefault(place, payload)
        assert known == payload, f"two messages under {place}"
