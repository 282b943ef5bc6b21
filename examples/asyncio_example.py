"""The same with asyncio: one task publishes, another one receives.

roq up                        # in another terminal
python examples/asyncio_example.py
"""

import asyncio
import os

import roq.aio


async def main() -> None:
    address = os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")
    async with roq.aio.connect(address) as cluster:
        await cluster.create_queue("ticks", exists_ok=True)
        subscriber = await cluster.subscriber("ticks")
        publisher = await cluster.publisher("ticks")
        async with subscriber, publisher:
            receipts = [publisher.publish(b"tick %d" % number) for number in range(5)]
            for receipt in receipts:
                await receipt
            for _ in receipts:
                message = await subscriber.receive(timeout=10)
                print(message and message.payload.decode())


asyncio.run(main())
