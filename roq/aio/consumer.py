"""The asyncio consumer."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Final

from roq.aio.twin import Leaving, Told, awaited
from roq.client.consume import consumer as sync_consumer
from roq.client.consume.consumer import CLOSE_SECONDS
from roq.client.consume.holding import Holding
from roq.client.consume.message import ConsumedBatch, ConsumedMessage, Settlement, message_at
from roq.client.io.bell import Bell, deadline_in
from roq.errors import Closed, LeaseLost, RoQError, Unavailable
from roq.model import check_count, wait_seconds

TAKE_HOLDINGS: Final = 64
"""So many are taken before others have their turn in the event loop."""


class Consumer(Leaving[sync_consumer.Consumer]):
    """Takes messages of a group, in one event loop. Made by `Cluster.consumer`.

    As `roq.Consumer`: a message of `async for` is acknowledged when the body has ended, and given
    back if that raises. `ack` and `nack` are plain calls, `flush` waits for them. So is `reject`: a
    thread writes the dead letter meanwhile, and if it cannot the message is tried again.
    """

    def __init__(self, consumer: sync_consumer.Consumer) -> None:
        super().__init__(consumer)
        self._bell = Bell()
        self._readings: deque[Holding] = deque()
        """What is being read: more than one where several tasks have waited."""
        self._taken = 0
        self._handled: dict[int, ConsumedMessage] = {}
        """What the bodies of loops are at, by `id`."""
        self._burials: set[asyncio.Task[None]] = set()
        self._buried_at: set[tuple[int, int]] = set()
        """(`id` of a holding, index) of what becomes a dead letter: whatever else is said of it."""
        consumer._on_ready(self._bell.ring)  # noqa: SLF001 - the hand-off is made for this

    id = Told[bytes]("16 bytes, random.")
    queue = Told[str]("Name of the queue.")
    group = Told[str]("Name of the group.")
    trouble = Told[str](sync_consumer.Consumer.trouble)

    async def receive(self, timeout: float | None = None) -> ConsumedMessage | None:
        """The next message; None if none has come within `timeout` seconds.

        Raises:
            Closed: this consumer is closed.
            QueueNotFound, GroupNotFound: the queue was removed, or the group deleted.
        """
        deadline = deadline_in(timeout)
        while True:
            reading = await self._fill(deadline)
            if reading is None:
                return None
            index, reading.begun = reading.begun, reading.begun + 1
            if reading.is_open(index):
                return message_at(reading, index, self._settle)

    async def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        """All messages from now on, each acknowledged when the loop comes back for the next one.

        Ends when the consumer is closed.
        """
        while True:
            try:
                message = await self.receive()
            except Closed:
                return
            if message is None:
                continue
            self._handled[id(message)] = message
            try:
                yield message
            except BaseException:  # also later: a loop that was left is ended by the event loop
                self._give_back(message)
                raise
            self._handled.pop(id(message), None)
            with suppress(LeaseLost):  # counted; see `flush`
                message.ack()

    async def batches(
        self, most: int = 500, wait: float | None = None
    ) -> AsyncIterator[ConsumedBatch]:
        """All messages from now on, by batches as they were published, to be acknowledged whole.

        Args:
            most: messages in one batch, at most.
            wait: seconds without a message after which the iteration ends; None: it goes on until
                the consumer is closed.
        """
        most = check_count("most", most, 1)
        if wait is not None:
            wait = wait_seconds(wait, what="wait")
        while True:
            try:
                reading = await self._fill(deadline_in(wait))
            except Closed:
                return
            if reading is None:
                return
            index, count = reading.next_run(most)
            if count:
                yield ConsumedBatch(reading, index, count, self._settle)

    async def extend(
        self, message: ConsumedMessage | ConsumedBatch, seconds: float, timeout: float = 10.0
    ) -> datetime:
        """Hold a message or a batch for so long at least, also if nothing is heard of this process.

        Args:
            seconds: from now on, up to a day. Less than it has already changes nothing.
            timeout: seconds for its exchange to answer.

        Returns:
            Until when it is held, in UTC by this machine's clock.

        Raises:
            InvalidRequest, LeaseLost, Unavailable, Closed: as `roq.Consumer.extend`.
        """
        sync, timeout = self._sync, wait_seconds(timeout)
        future = sync._extend(message, seconds)  # noqa: SLF001 - made for this
        try:
            until = await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except TimeoutError:
            raise sync._not_extended(timeout) from None  # noqa: SLF001
        return sync._until(until)  # noqa: SLF001

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until every acknowledgement and dead letter so far is kept; as `roq.Consumer.flush`.

        Raises:
            LeaseLost: messages were lost to other members since the last call; how many.
            Unavailable: not in time.
            Closed: this consumer is closed.
        """
        timeout = wait_seconds(timeout)
        deadline = deadline_in(timeout)
        late = await self._buried(timeout)
        if late:
            raise Unavailable(
                f"{late} dead letters, or batches of them, were not kept after {timeout:g} s: "
                f"their messages of {self.queue} stay with this consumer until they are"
            )
        await asyncio.to_thread(self._sync.flush, max(0.0, deadline - monotonic()))

    stats = awaited(sync_consumer.Consumer.stats)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Give back what is not acknowledged, and leave the group; idempotent.

        Args:
            timeout: seconds for acknowledgements to be confirmed.
        """
        timeout = wait_seconds(timeout)
        for message in list(self._handled.values()):
            self._give_back(message)
        await self._buried(timeout)
        await asyncio.to_thread(self._sync.close, timeout)

    # --- inside -----------------------------------------------------------------------------------

    async def _fill(self, deadline: float) -> Holding | None:
        """What is being read, with something left of it; None when the deadline has passed."""
        readings, shell = self._readings, self._sync._shell  # noqa: SLF001
        over = False
        while True:
            while readings:
                reading = readings[0]
                if reading.begun < len(reading.batch) and not shell.put_aside(reading):
                    return reading
                readings.popleft()
            if over:
                return None
            taken = await self._next(deadline)  # another task may have got something meanwhile
            over = taken is None
            if taken is not None:
                readings.append(taken)

    async def _next(self, deadline: float = math.inf) -> Holding | None:
        """The next holding that is the user's; None when the deadline has passed."""
        bell, sync = self._bell, self._sync
        self._taken += 1
        if self._taken % TAKE_HOLDINGS == 0:
            await asyncio.sleep(0)  # others want to run, however much arrives
        while True:
            armed = bell.arm()
            try:
                holding = sync._take()  # noqa: SLF001 - made for this
                if holding is None:
                    if monotonic() >= deadline:
                        return None
                    await bell.wait(armed, deadline)
                    continue
            finally:
                bell.disarm(armed)
            why = sync._dead(holding)  # noqa: SLF001
            if not why:
                return holding
            while (run := holding.next_run(len(holding.batch)))[1]:
                self._reject(holding, *run, why)

    def _settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """What the user says of messages; never waits. Of what becomes a dead letter nothing else
        counts: it is acknowledged when that is kept."""
        shell = self._sync._shell  # noqa: SLF001
        for first, length in self._unburied(holding, index, count):
            if verdict.dead and not holding.is_lost(first, length) and shell.error is None:
                self._reject(holding, first, length, verdict.reason)
            else:
                shell.settle(holding, first, length, verdict)

    def _unburied(self, holding: Holding, index: int, count: int) -> list[tuple[int, int]]:
        """The runs, as (index, count), of which nothing becomes a dead letter just now."""
        if not self._buried_at:
            return [(index, count)]
        runs: list[tuple[int, int]] = []
        for at in range(index, index + count):
            if (id(holding), at) in self._buried_at:
                continue
            if runs and sum(runs[-1]) == at:
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((at, 1))
        return runs

    def _reject(self, holding: Holding, index: int, count: int, reason: str) -> None:
        batch = ConsumedBatch(holding, index, count, self._sync._shell.settle)  # noqa: SLF001
        places = {(id(holding), at) for at in range(index, index + count)}
        self._buried_at |= places
        task = asyncio.get_running_loop().create_task(self._bury(batch, reason, places))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    async def _bury(self, batch: ConsumedBatch, reason: str, places: set[tuple[int, int]]) -> None:
        """Write dead letters in a thread; what becomes of the messages is said in the loop."""
        with suppress(LeaseLost, Closed):
            try:
                await asyncio.to_thread(self._sync._bury, batch, reason)  # noqa: SLF001
            except RoQError as error:
                batch.nack(reason=f"no dead letter could be written: {error}"[:200])
            else:
                batch.ack()
            finally:
                self._buried_at -= places

    async def _buried(self, timeout: float) -> int:
        """Wait for dead letters; how many times some were not kept in time."""
        if not self._burials:
            return 0
        _, late = await asyncio.wait(self._burials, timeout=timeout)
        return len(late)

    def _give_back(self, message: ConsumedMessage) -> None:
        """What a loop has left in the middle of its body is to be tried again."""
        self._handled.pop(id(message), None)
        with suppress(RoQError):  # lost, or closed: then it goes to another one anyway
            message.nack(reason="its handler did not end")

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
