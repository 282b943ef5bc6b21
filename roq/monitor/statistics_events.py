"""What is told at once on the statistics stream: moves, and exchanges that come and go."""

from __future__ import annotations

from typing import Protocol

from roq.model import PublisherId, exchange_name
from roq.monitor.events import Effect, Note, Publish
from roq.protocol import kpi


class Move(Protocol):
    """What is told of a publisher on its way; exchanges by (number, epoch)."""

    publisher: PublisherId
    epoch: int
    sources: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, int], ...]
    load: float


class StatisticsEvents:
    """Documents and log lines about the elasticity of one queue."""

    def __init__(self, queue: str, queue_id: bytes) -> None:
        self._queue = queue
        self._queue_id = queue_id

    def move(self, relocation: Move, state: str, reason: str, pause_us: int = 0) -> list[Effect]:
        """How a move goes; its end is worth a line in the log.

        Args:
            relocation: the move.
            state: `started`, `accepted`, `failed` or `given_up`.
            reason: a sentence for people.
            pause_us: for how long nothing was sent.
        """
        document = kpi.MoveKpi(
            queue=self._queue,
            queue_id=self._queue_id,
            publisher=relocation.publisher.hex(),
            sources=[number for number, _ in relocation.sources],
            targets=[number for number, _ in relocation.targets],
            epoch=relocation.epoch,
            state=state,
            reason=reason,
            pause_ms=pause_us / 1_000,
            bytes_per_second=relocation.load / 60,
        )
        effects: list[Effect] = [_publish(document)]
        if state != "started":
            way = f"{_names(document.sources)} to {_names(document.targets)}"
            text = f"move of publisher {document.publisher} from {way} {state}: {reason}"
            effects.append(Note(f"move_{state}", text, warning=state != "accepted"))
        return effects

    def scale(
        self,
        direction: str,
        state: str,
        reason: str,
        *,
        number: int = 0,
        host: str = "",
        seconds: float = 0.0,
    ) -> list[Effect]:
        """How the number of exchanges changes.

        Args:
            direction: `out` or `in`.
            state: `started`, `done` or `failed`.
            reason: a sentence for people.
            number: of the exchange, as soon as it is known.
            host: where it runs.
            seconds: since the decision.
        """
        document = kpi.ScaleKpi(
            queue=self._queue,
            queue_id=self._queue_id,
            direction=direction,
            state=state,
            reason=reason,
            number=number,
            host=host,
            seconds=seconds,
        )
        exchange = f" of {exchange_name(number)}" if number else ""
        text = f"scale-{direction}{exchange} {state}: {reason}"
        note = Note(f"scale_{direction}_{state}", text, warning=state == "failed")
        return [_publish(document), note]


def _publish(document: kpi.NumericDocument) -> Publish:
    return Publish(tuple(kpi.numeric_frames(document)))


def _names(numbers: list[int]) -> str:
    return "+".join(exchange_name(number) for number in numbers) or "nowhere"
