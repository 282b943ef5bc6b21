"""One side of `roq.benchmarks.request_limits` in a process of its own:
`python -m roq.benchmarks.request_party ROLE CLUSTER QUEUE …`, until the end of its input.

answer             an instance that answers at once, many together
crowd COUNT        so many instances that have nothing to do, each a client of its own
work FILE SECONDS  an instance that takes so long for each request, and writes down when it begins
                   and ends; behind a relay, which `cut` and `silence` on its input break: that is
                   written down, too
open COUNT         a requester with so many open requests; tells what each takes of its memory
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import roq
from roq.benchmarks.contender import OPEN_SECONDS
from roq.benchmarks.processes import rss_bytes
from roq.testing.faults import Relay

SERVICE: Final = "limits"
ECHO: Final = roq.endpoint(f"{SERVICE}.echo", request=bytes, response=bytes, idempotent=True)
WORK: Final = roq.endpoint(f"{SERVICE}.work", request=int, response=int, idempotent=True)
BATCH: Final = 1_000
PAYLOAD: Final = bytes(100)
BEGIN: Final = "begin"
END: Final = "end"
LOST: Final = "lost"


def answer(stack: ExitStack, address: str, queue: str) -> None:
    """An instance that answers at once."""
    cluster = stack.enter_context(roq.connect(address, timeout=OPEN_SECONDS))
    service = cluster.service(SERVICE, queue)

    @service.handler(ECHO, batch=BATCH)
    def echo(values: list[bytes], _: list[roq.RequestContext]) -> list[bytes | BaseException]:
        return list(values)

    stack.enter_context(service)


def crowd(stack: ExitStack, address: str, queue: str, count: str) -> None:
    """Instances that have nothing to do."""
    for _ in range(int(count)):
        answer(stack, address, queue)


def work(stack: ExitStack, address: str, queue: str, path: str, seconds: str) -> None:
    """An instance that takes its time."""
    relays: dict[str, Relay] = {}

    def translate(wanted: str) -> str:
        relay = relays.get(wanted)
        if relay is None:
            relay = relays[wanted] = stack.enter_context(Relay(wanted))
        return relay.address

    file = Path(path).open("a", buffering=1)  # noqa: SIM115 - closed with the rest
    stack.enter_context(file)
    cluster = stack.enter_context(roq.connect(address, timeout=OPEN_SECONDS, translate=translate))
    service = cluster.service(SERVICE, queue)

    @service.handler(WORK)
    def take_time(number: int, _: roq.RequestContext) -> int:
        file.write(f"{BEGIN} {number} {time.monotonic()}\n")
        threading.Event().wait(float(seconds))  # the handler's work
        file.write(f"{END} {number} {time.monotonic()}\n")
        return number

    stack.enter_context(service)

    def listen() -> None:
        for line in sys.stdin:
            for relay in list(relays.values()):
                relay.close() if line.startswith("cut") else relay.pause()
            file.write(f"{LOST} 0 {time.monotonic()}\n")
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()


def bytes_of_each(address: str, queue: str, count: int) -> float:
    """What one of so many open requests takes at its requester, with its payload."""
    # Nobody answers, and nobody is looked for, as long as this lasts.
    patient = {"send_attempts": 100, "send_wait": 60.0}
    with (
        roq.connect(address, timeout=OPEN_SECONDS) as cluster,
        cluster.requester(queue, settings=patient) as requester,
    ):
        first = [requester.request(ECHO, PAYLOAD) for _ in range(count // 10)]
        _accepted(first)
        gc.collect()
        before = rss_bytes(os.getpid())
        made = [requester.request(ECHO, PAYLOAD) for _ in range(count)]
        _accepted(made)
        gc.collect()
        taken = rss_bytes(os.getpid()) - before
        assert not any(each.done() for each in made)  # noqa: S101 - they are open
        for each in (*first, *made):
            each.cancel()
    return taken / count


def _accepted(made: list[roq.Pending[bytes]]) -> None:
    for each in made:
        assert each.accepted is not None  # noqa: S101 - it was made here
        each.accepted.wait(OPEN_SECONDS)


def main(arguments: list[str]) -> None:
    """Be that until the input ends."""
    role, address, queue, *rest = arguments
    if role == "open":
        print(bytes_of_each(address, queue, int(rest[0])), flush=True)
        return
    with ExitStack() as stack:
        {"answer": answer, "crowd": crowd, "work": work}[role](stack, address, queue, *rest)  # type: ignore[operator]
        print("ready", flush=True)
        if role == "work":
            threading.Event().wait()  # its thread ends it
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main(sys.argv[1:])
