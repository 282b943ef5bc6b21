"""An instance of a service in a process of its own, until SIGTERM.

    python tests/support/serving.py [--asyncio] ADDRESS QUEUE FILE [SECONDS_PER_REQUEST [PREFETCH]]

It has four threads; of the requests for which it has none it holds as many as by default, unless
that is given.

Each request is a line of FILE when its handler begins, and another one when it ends.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import TextIO

import roq
import roq.aio

AGAIN = roq.endpoint("test.again", request=int, response=int, idempotent=True)
ONCE = roq.endpoint("test.once", request=int, response=int)


async def serve_in_a_loop(address: str, queue: str, file: TextIO, seconds: float) -> None:
    """The same in an event loop, of requests that may not be begun again."""
    async with roq.aio.connect(address) as cluster:
        service = cluster.service("test", queue, threads=4, lease=3.0)

        @service.handler(ONCE)
        async def handle(number: int, context: roq.RequestContext) -> int:
            file.write(f"begin {number} {context.attempt}\n")
            await asyncio.sleep(seconds)  # the handler's work
            file.write(f"end {number}\n")
            return 2 * number

        await service.start()
        file.write("ready\n")
        await service.run()


def main() -> None:
    """Serve until SIGTERM."""
    if sys.argv[1] == "--asyncio":
        address, queue, path, told = sys.argv[2:]
        with Path(path).open("a", buffering=1) as file:
            asyncio.run(serve_in_a_loop(address, queue, file, float(told)))
        return
    address, queue, path, *rest = sys.argv[1:]
    seconds = float(rest[0]) if rest else 0.0
    with Path(path).open("a", buffering=1) as file, roq.connect(address) as cluster:
        prefetch = int(rest[1]) if len(rest) > 1 else None
        service = cluster.service("test", queue, threads=4, prefetch=prefetch, lease=3.0)

        def handle(number: int, context: roq.RequestContext) -> int:
            file.write(f"begin {number} {context.attempt}\n")
            if seconds:
                threading.Event().wait(seconds)  # the handler's work
            file.write(f"end {number}\n")
            return 2 * number

        service.handler(AGAIN)(handle)
        service.handler(ONCE)(handle)
        service.start()
        file.write("ready\n")
        service.run()


if __name__ == "__main__":
    main()
