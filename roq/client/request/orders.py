"""What an operator wants of a service: its instances are flagged or drained, a request runs again.

Each goes to the exchanges of the queue, and may be repeated.
"""

from __future__ import annotations

import msgspec

from roq.client.consume.groups import no_service, read
from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import ask_all, told
from roq.client.request.context import RequestId
from roq.errors import GroupNotFound, InvalidRequest, ResponseLost, Unavailable
from roq.protocol.consuming import GROUP_ORDER, GroupOrder, Ordered
from roq.protocol.public_answers import QueueDescription

_REQUEST = 1
"""Each question has a connection's tag of its own, so its number tells nothing."""


def order_instances(
    engine: Engine, queue: QueueDescription, service: str, word: str, instance: str, seconds: float
) -> list[str]:
    """Have instances of a service do something; gives the names of those that are told.

    Args:
        word: `flag`, `unflag` or `drain`.
        instance: name, or id in hexadecimal, of the one that is meant; empty: all.
        seconds: that exchanges have to answer.

    Raises:
        GroupNotFound: no exchange has the service.
        InvalidRequest: it is a group and no service, or there is no such instance.
        Unavailable: no exchange has answered that knows it.
        QueueStopped: the queue does not run.
    """
    order = GroupOrder(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=service, order=word,
        instance=instance,
    )  # fmt: skip
    found, missing = read(ask_all(engine, queue, GROUP_ORDER, order, seconds), GROUP_ORDER, Ordered)
    names = sorted({name for each in found.values() for name in each.told})
    if names:
        return names  # an instance is at all exchanges, and one of them is enough
    if missing:
        raise Unavailable(f"service {service} of queue {queue.name}: {told(missing)}. Repeat it")
    if not found:
        raise GroupNotFound(no_service(queue.name, service))
    meant = f"no instance {instance!r:.100}" if instance else "no instance"
    raise InvalidRequest(
        f"service {service} has {meant}; `roq service show {queue.name} {service}` names them"
    )


def run_again(
    engine: Engine, queue: QueueDescription, service: str, request: RequestId, seconds: float
) -> None:
    """Have a request that has ended run once more, under the same id.

    Raises:
        InvalidRequest: it has not ended so, or what was requested is not kept any more.
        ResponseLost: its exchange is gone.
        GroupNotFound: its exchange does not have the service.
        Unavailable: its exchange does not answer.
        QueueStopped: the queue does not run.
    """
    number, generation = request.log
    there = [each for each in queue.exchanges if each.number == number]
    if not there:
        raise ResponseLost(f"request {request}: its exchange is gone, with all that it knew")
    order = GroupOrder(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=service, order="retry",
        generation=generation, offset=request.position.offset, index=request.position.at,
    )  # fmt: skip
    asked = msgspec.structs.replace(queue, exchanges=there)
    found, missing = read(ask_all(engine, asked, GROUP_ORDER, order, seconds), GROUP_ORDER, Ordered)
    if missing:
        raise Unavailable(f"request {request}: {told(missing)}")
    if not found:
        raise GroupNotFound(no_service(queue.name, service))
