"""Feeds the codec of ZMTP with commands and frames of all sizes, cut anywhere."""

from __future__ import annotations

from fuzz_documents import STEPS, U64, Maker

from roq.protocol import zmtp


def fuzz_wire(maker: Maker) -> None:
    """What comes from whoever connects to an exchange."""
    pick = maker.random.choice
    largest = pick([300, 1 << 18, 1 << 62])
    inbound = zmtp.Inbound(frozenset({b"SUB"}), largest)
    told = pick([zmtp.GREETING + zmtp.ready(b"SUB"), zmtp.GREETING, b""])
    for _ in range(STEPS):
        body = maker.random.randbytes(pick([0, 1, 5, 300]))
        size = pick([len(body), *U64]).to_bytes(9, "big")[-8:]
        names = [b"PING", b"READY", b"SUBSCRIBE", b"CANCEL"]
        told += pick([
            zmtp.head(len(body), maker.random.randrange(5)) + body, zmtp.command(pick(names), body),
            bytes((maker.random.randrange(8),)) + size + body, body,
            zmtp.ready(b"SUB")[: len(body)],
        ])  # fmt: skip
        cut = maker.random.randrange(len(told) + 1)
        if inbound.large is None:
            inbound.take(memoryview(inbound.rest + told[:cut]), pick([1, 50]))
        else:
            cut = min(cut, len(inbound.large) - inbound.filled)
            inbound.large[inbound.filled : inbound.filled + cut] = told[:cut]
            inbound.grew(cut)
        told = told[cut:]
        assert inbound.large is None or len(inbound.large) <= zmtp.LARGE_AT_ONCE
        assert inbound.more or len(inbound.rest) <= zmtp.REST_BYTES_MAX
