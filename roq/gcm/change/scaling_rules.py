"""The scaling rules of each queue, and who wants to be told when they change.

Rules are stored, told and pushed; they replace each other as a whole. Monitors ask for them as
`ElasticRules`, in which RoQ's defaults stand for what nobody has set. Listeners stand beside the
rules, so a later leader tells them as well, and live as long as they read: one whose bounded queue
of updates is full is forgotten.
"""

from __future__ import annotations

from typing import Final

import msgspec

from roq.errors import InvalidRequest, RequestError
from roq.gcm.change.saga_steps import Emit, Saga, Save
from roq.gcm.events import Effect, ForgetListener, PushRules, Put
from roq.gcm.state.queues import Queue, Queues
from roq.gcm.state.records import (
    SCALING,
    ExchangeRecord,
    Snapshot,
    encode,
    listeners_path,
    rules_path,
)
from roq.model import ElasticRules, Limits, exchange_name
from roq.protocol import documents
from roq.protocol.documents import RawDocument
from roq.protocol.public import SetRules
from roq.protocol.public_answers import done
from roq.protocol.scaling_rules import PARTS

LISTENERS_PER_QUEUE_MAX: Final = 16
LISTENERS_MAX: Final = 256


class Rules:
    """The rules of all queues."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._rules: dict[str, SetRules] = {}
        self._listeners: dict[str, list[str]] = {}

    def set(self, request: SetRules) -> Saga:
        """Store the rules of a queue and push them to its listeners."""
        queue = self._queues.demand(request.QName)
        name, ours = queue.name, request.AUTOSCALING_ROQ
        if queue.record.limits.ordered and ours is not None:
            wanted = max(ours.AUTOSCALING_ROQ_XCHANGE_MIN, ours.AUTOSCALING_ROQ_XCHANGE_MAX)
            if wanted > 1:
                raise InvalidRequest(f"{one_exchange(name)}, and its rules ask for {wanted}")
        yield Save((Put(rules_path(name), encode(request)),))
        self._rules[name] = request
        self._queues.defects.pop(name, None)
        data = documents.encode_raw(self.answer(name))
        yield Emit(tuple(PushRules(address, data) for address in self._listeners.get(name, ())))
        return done()

    def fields(self, name: str) -> RawDocument:
        """AUTOSCALING_NAME and the sub-documents that are set; empty if there are no rules."""
        rules = self._rules.get(name)
        if rules is None:
            return {}
        given: RawDocument = msgspec.to_builtins(rules)
        return {key: value for key, value in given.items() if key.startswith("AUTOSCALING")}

    def elastic(self, name: str) -> ElasticRules:
        """By which rules this queue moves publishers, grows and shrinks.

        What is not set has its default, so a queue without rules is elastic, too.
        """
        queue = self._queues.get(name)
        limits = queue.record.limits if queue is not None else Limits()
        return elastic_of(self._rules.get(name), limits)

    def answer(self, name: str) -> RawDocument:
        """The answer to 2007, which is also what listeners get.

        Raises:
            QueueNotFound: no such queue.
            RequestError: it has no rules.
        """
        self._queues.demand(name)
        fields = self.fields(name)
        if not fields:
            raise RequestError(f"queue {name!r} has no scaling rules; set them with 2006")
        return {**done(), **fields}

    def listen(self, name: str, address: str) -> Saga:
        """Tell this address whenever the rules of the queue are set.

        The oldest listener of the queue makes room when there are too many.

        Raises:
            QueueNotFound: no such queue.
            RequestError: too many listeners altogether.
        """
        self._queues.demand(name)
        listeners = self._listeners.get(name, [])
        if address in listeners:
            return done()
        room = LISTENERS_PER_QUEUE_MAX - 1
        full = sum(map(len, self._listeners.values())) >= LISTENERS_MAX
        if full and len(listeners) <= room:
            raise RequestError(f"{LISTENERS_MAX} listeners for rules are registered already")
        dropped, kept = listeners[:-room], [*listeners[-room:], address]
        yield Save((Put(listeners_path(name), encode(tuple(kept))),))
        self._listeners[name] = kept
        yield Emit(tuple(effect for each in dropped for effect in self._unless_used(each)))
        return done()

    def listener_gone(self, address: str) -> None:
        """This address does not read any more.

        It is written down with the next change of the listeners; until then a later leader finds
        out once more.
        """
        for listeners in self._listeners.values():
            if address in listeners:
                listeners.remove(address)

    def forget(self, name: str) -> list[Effect]:
        """The queue was removed."""
        self._rules.pop(name, None)
        effects: list[Effect] = []
        for address in self._listeners.pop(name, []):
            effects += self._unless_used(address)
        return effects

    def load(self, snapshot: Snapshot) -> None:
        """Take over what the registry says."""
        self._rules = dict(snapshot.rules)
        self._listeners = {}
        room = LISTENERS_MAX
        for name, addresses in snapshot.listeners.items():
            kept = list(dict.fromkeys(addresses))[-LISTENERS_PER_QUEUE_MAX:][:room]
            self._listeners[name] = kept
            room -= len(kept)

    def clear(self) -> list[Effect]:
        """This manager does not lead any more."""
        self._rules.clear()
        effects: list[Effect] = []
        for name in list(self._listeners):
            effects += self.forget(name)
        return effects

    def _unless_used(self, address: str) -> list[Effect]:
        if any(address in listeners for listeners in self._listeners.values()):
            return []
        return [ForgetListener(address)]


def one_exchange(queue: str) -> str:
    """Why there is no other exchange beside that of an ordered queue, without a full stop."""
    return f"queue {queue!r} is ordered, so it has one exchange for as long as it lives"


def elastic_of(rules: SetRules | None, limits: Limits) -> ElasticRules:
    """What the fields of command 2006 mean for a monitor; a limit of 0 is not looked at."""
    meant: dict[str, object] = {"exchanges_max": limits.exchanges_max}
    for name in PARTS:
        part = getattr(rules, name, None)
        if part is not None:
            fields = msgspec.structs.asdict(part)
            meant |= {_MEANING[field]: value for field, value in fields.items()}
    if limits.ordered:
        meant |= {"exchanges_min": 1, "exchanges_max": 1}
    return msgspec.convert(meant, ElasticRules)


_MEANING: Final = {
    "AUTOSCALING_HOST_CPU": "host_cpu_percent",
    "AUTOSCALING_HOST_RAM": "host_memory_mb",
    "AUTOSCALING_XCHANGE_THR": "exchange_bytes",
    "AUTOSCALING_THR_PROD_EXCH": "queue_bytes_per_exchange",
    "AUTOSCALING_Q_PROD_EXCH": "queue_publishers_per_exchange",
    "AUTOSCALING_ROQ_POLICY": "policy",
    "AUTOSCALING_ROQ_LATENCY": "latency_ms",
    "AUTOSCALING_ROQ_XCHANGE_MIN": "exchanges_min",
    "AUTOSCALING_ROQ_XCHANGE_MAX": "exchanges_max",
    "AUTOSCALING_ROQ_COOLDOWN": "cooldown_seconds",
    "AUTOSCALING_ROQ_SLOW": "slow_subscriber",
    "AUTOSCALING_ROQ_HOLD": "hold_seconds",
}
"""Field on the wire → field of `ElasticRules`."""


def check_shrinking(
    queue: Queue, exchange: ExchangeRecord, rules: ElasticRules, *, holds_nothing: bool
) -> None:
    """Refuse to take an exchange away that is not to go by itself.

    Args:
        holds_nothing: its log has nothing that may still be read.

    Raises:
        RequestError: says why it stays.
    """
    name = exchange_name(exchange.number)
    if queue.record.durable and not holds_nothing:
        raise RequestError(f"{name} keeps a log: `roq exchange remove` removes it with that")
    if exchange.origin != SCALING:
        raise RequestError(f"{name} was not made by scaling: `roq exchange remove` removes it")
    if exchange.here and exchange.number not in queue.record.removable:
        raise RequestError(f"{name} stands in for an exchange that is away")
    least = max(1, rules.exchanges_min)
    if exchange.wanted and len(queue.record.here) <= least:
        raise RequestError(
            f"queue {queue.name!r} keeps {least} exchange{'s' * (least > 1)}; {name} stays"
        )
