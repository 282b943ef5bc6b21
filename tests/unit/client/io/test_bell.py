"""A coroutine that another thread wakes."""

from __future__ import annotations

import asyncio
import math
import threading
from time import monotonic

from roq.client.io.bell import Bell, deadline_in


def test_a_ring_from_another_thread_ends_the_wait() -> None:
    async def main() -> None:
        bell = Bell()
        armed = bell.arm()
        thread = threading.Thread(target=bell.ring)
        thread.start()
        await bell.wait(armed)
        thread.join()

    asyncio.run(main())


def test_a_ring_between_arming_and_waiting_is_not_missed() -> None:
    async def main() -> None:
        bell = Bell()
        armed = bell.arm()
        bell.ring()
        bell.ring()
        await bell.wait(armed)

    asyncio.run(main())


def test_a_ring_wakes_all_that_wait_and_nobody_waits_for_another_one() -> None:
    async def main() -> None:
        bell = Bell()
        first, second = bell.arm(), bell.arm()
        bell.disarm(bell.arm())
        async with asyncio.TaskGroup() as group:
            group.create_task(bell.wait(first))
            group.create_task(bell.wait(second))
            await asyncio.sleep(0)
            bell.ring()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_deadline_ends_the_wait() -> None:
    async def main() -> None:
        bell = Bell()
        await bell.wait(bell.arm(), monotonic())

    asyncio.run(main())


def test_a_ring_after_the_loop_has_ended_is_harmless() -> None:
    async def main() -> Bell:
        bell = Bell()
        bell.arm()
        return bell

    asyncio.run(main()).ring()


def test_no_timeout_is_no_deadline() -> None:
    assert deadline_in(None) == math.inf
    assert deadline_in(1000.0) > monotonic()
