"""Speaks to a monitor's machine in the words of its clients; no test in here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roq.machine import Tick
from roq.model import ElasticRules, ExchangeInfo, Limits
from roq.monitor.events import (
    Ask,
    Effect,
    Event,
    LeaderAnswered,
    Publish,
    Push,
    Received,
    Send,
    StopWanted,
)
from roq.monitor.machine import MonitorMachine
from roq.monitor.scaling_rules import PolicyNamed, own_policy
from roq.protocol.control import (
    Alive,
    Answer,
    Attach,
    Control,
    Elasticity,
    ElasticityRequest,
    ExchangeReport,
    Join,
    Leave,
)
from roq.protocol.reports import ExchangeLoad, PublisherLoad

QUEUE_ID = b"q" * 16
EPOCH = 7 << 16
CONTROL = "tcp://127.0.0.1:5500"


def info(number: int, epoch: int = 1, host: str = "127.0.0.1") -> ExchangeInfo:
    return ExchangeInfo(
        number=number, epoch=epoch, generation=epoch, host=host,
        data=f"tcp://{host}:{6000 + number}", live=f"tcp://{host}:{7000 + number}",
    )  # fmt: skip


class Driver:
    """A machine at a time, and everything it wanted done since the last look."""

    def __init__(
        self,
        *,
        restarted: bool = False,
        kpi_seconds: float = 1.0,
        limits: Limits | None = None,
        policy_named: PolicyNamed | None = None,
        epoch: int = EPOCH,
    ) -> None:
        self.now = 100.0
        self.epoch = epoch
        self._limits = limits or Limits()
        self._kpi_seconds = kpi_seconds
        self._policy_named = policy_named or own_policy
        self.machine = self._new_machine(restarted=restarted)
        self.effects: list[Effect] = []

    def _new_machine(self, *, restarted: bool) -> MonitorMachine:
        return MonitorMachine(
            queue="orders", queue_id=QUEUE_ID, epoch=self.epoch, limits=self._limits,
            kpi_seconds=self._kpi_seconds, restarted=restarted, now=self.now, control=CONTROL,
            policy_named=self._policy_named,
        )  # fmt: skip

    def take_over(self) -> None:
        """The monitor has died, and another one is started in its place."""
        self.epoch += 1 << 16
        self.machine = self._new_machine(restarted=True)

    def handle(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now)
        self.machine.check()
        self.effects += effects
        return effects

    def receive(self, peer: str, message: Control) -> list[Control]:
        """Give the answers to this peer that came at once."""
        effects = self.handle(Received(peer_of(peer), message))  # type: ignore[arg-type]
        return answers(effects, peer)

    def report(
        self, number: int, epoch: int = 1, *, top: list[PublisherLoad] | None = None,
        stopping: bool = False, idle: bool = False, queue_id: bytes = QUEUE_ID, **load: Any,
    ) -> list[Control]:  # fmt: skip
        return self.receive(
            f"exchange {number}.{epoch}",
            ExchangeReport(
                id=1, queue_id=queue_id, exchange=info(number, epoch), load=ExchangeLoad(**load),
                top=top or [], stopping=stopping, idle=idle,
            ),
        )  # fmt: skip

    def attach(
        self, name: str, failed: list[tuple[int, int]] | None = None, request: int = 5
    ) -> list[Control]:
        return self.receive(
            name,
            Attach(id=request, queue_id=QUEUE_ID, publisher=name.encode(), failed=failed or []),
        )

    def join(self, name: str, request: int = 6) -> list[Control]:
        return self.receive(name, Join(id=request, queue_id=QUEUE_ID, subscriber=name.encode()))

    def alive(
        self, name: str, role: str = "subscriber", version: int = 0, **told: object
    ) -> list[Control]:
        return self.receive(
            name,
            Alive(queue_id=QUEUE_ID, client=name.encode(), role=role, version=version, **told),
        )

    def leave(self, name: str) -> list[Control]:
        return self.receive(name, Leave(queue_id=QUEUE_ID, client=name.encode()))

    def questions(self) -> list[Ask]:
        """What the leader was asked about the rules."""
        asked = [each for each in self.effects if isinstance(each, Ask)]
        return [each for each in asked if isinstance(each.message, ElasticityRequest)]

    def leader(self, answer: Answer) -> list[Effect]:
        """The leader answers the last question about the rules."""
        if not self.questions():
            self.handle(Tick())
        return self.handle(LeaderAnswered(self.questions()[-1].serial, answer))

    def leader_names(self, *numbers: int, logs: Sequence[int] = ()) -> list[Effect]:
        """The leader answers, and says which exchanges the queue has, and which logs."""
        return self.leader(
            Elasticity(
                queue_id=QUEUE_ID, rules=ElasticRules(), exchanges=list(numbers), logs=list(logs)
            )
        )

    def stop(self, reason: str = "") -> list[Effect]:
        return self.handle(StopWanted(reason))

    def advance(self, seconds: float, *reporting: tuple[int, int]) -> list[Effect]:
        """Let time pass as a shell would, with these (number, epoch) reporting all the time."""
        effects: list[Effect] = []
        until = self.now + seconds
        while True:
            deadline = self.machine.next_deadline()
            # None: finished, and a shell would have ended.
            wanted = until if deadline is None else deadline
            self.now = max(self.now, min(wanted, until, self.now + 0.5))
            for number, epoch in reporting:
                self.report(number, epoch)
            effects += self.handle(Tick())
            if self.now >= until:
                return effects


def peer_of(name: str) -> tuple[bytes, bool]:
    return (name.encode(), False)


def answers(effects: list[Effect], peer: str) -> list[Control]:
    return [
        each.message for each in effects if isinstance(each, Send) and each.peer == peer_of(peer)
    ]


def pushes(effects: list[Effect], peer: str, kind: type[Control]) -> list[Control]:
    return [
        each.message
        for each in effects
        if isinstance(each, Push) and peer_of(peer) in each.peers and isinstance(each.message, kind)
    ]


def published(effects: list[Effect]) -> list[tuple[bytes, ...]]:
    return [each.frames for each in effects if isinstance(each, Publish)]
