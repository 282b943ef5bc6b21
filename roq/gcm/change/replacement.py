"""What a running queue has lost runs again: on its host if that is live, else on another one.

An exchange of a durable queue runs where its log is and nowhere else: if its host is lost, or does
not have its log, another exchange stands in for it until that is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from roq.errors import LogMissing, RequestError
from roq.gcm.change.exchange import ExchangeSagas
from roq.gcm.change.saga_steps import OPEN_ERRORS, Emit, NoRoom, Part, Steps
from roq.gcm.events import LogLine
from roq.gcm.state.losses import FAILED, MISSING, Loss, part_name
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import ExchangeRecord


class ReplacementSagas:
    """Monitors and exchanges that take the place of lost ones."""

    def __init__(self, steps: Steps, exchanges: ExchangeSagas) -> None:
        self._steps = steps
        self._exchanges = exchanges

    def heal(
        self,
        queue: Queue,
        lost: Iterable[Loss],
        avoid: frozenset[str] = frozenset(),
        *,
        again: bool = False,
    ) -> Part[None]:
        """Start again what was lost; the monitor first, for exchanges are told where it is.

        The definition says where a process shall run before it is started there, so a later leader
        goes on from wherever this one was stopped.

        Args:
            queue: a running queue.
            lost: of its processes.
            avoid: hosts that are taken only if there is no other: an attempt has failed there.
            again: what has failed may be tried once more on its own host.

        Raises:
            NoRoom: not for all of them is there a host; the others run.
            RequestError: a host has not started one.
        """
        failed: RequestError | None = None
        lost = list(lost)
        away = self._away(queue, lost)
        if away:
            gone = {each.number for each in away}
            lost = [each for each in lost if each.number not in gone]
        targets, problem = self._targets(queue, lost, avoid, again=again)
        moved = {number: host for number, host in targets.items() if host != queue.place(number)}
        if targets:
            told = "; ".join(each.text for each in lost)
            deed = ", ".join(f"{part_name(number)} on {host}" for number, host in targets.items())
            text = f"queue {queue.name}: {told}; to be started: {deed}"
            yield Emit((LogLine("queue_healing", text),))
            if moved:
                yield from self._steps.save_moved(queue.record, moved)
            try:
                yield from self._start(queue, targets)
                yield Emit((LogLine("queue_healed", f"queue {queue.name}: started: {deed}"),))
            except OPEN_ERRORS:
                raise
            except RequestError as error:
                missing = [each for each in queue.record.exchanges if each.number in targets]
                missing = [each for each in missing if each.number in queue.missing]
                if not missing:
                    raise
                away += missing
                failed = None if isinstance(error, LogMissing) else error
        if away:  # by now its monitor runs, which tells publishers where to go
            yield from self._exchanges.stand_in(queue, away)
        if failed is not None:
            raise failed
        if problem:
            raise NoRoom(problem)

    def _away(self, queue: Queue, lost: Iterable[Loss]) -> list[ExchangeRecord]:
        """Those that are gone with their logs, because their hosts are."""
        if not queue.record.durable:
            return []
        numbers = [each.number for each in lost if self._steps.hosts.live(each.host) is None]
        found = map(queue.record.exchange, numbers)
        return [each for each in found if each is not None]

    def move_monitor(self, queue: Queue, host: str) -> Part[None]:
        """Start the monitor of a running queue elsewhere, then stop the one that runs.

        The one that runs serves until the other one does.

        Raises:
            NoRoom: no host can take it.
            RequestError: it was not started; what is lost by that is healed.
        """
        places, problem = self._steps.place_anew(queue, (MONITOR,))
        if problem:
            raise NoRoom(problem)
        yield from self._steps.save_moved(queue.record, places)
        yield from self._start(queue, places)
        yield from self._steps.stop_children(queue, "moved", MONITOR, (host,))

    def _targets(
        self, queue: Queue, lost: list[Loss], avoid: frozenset[str], *, again: bool
    ) -> tuple[dict[int, str], str]:
        hosts = self._steps.hosts
        draining = hosts.draining()
        kinds = {MISSING, FAILED} if again else {MISSING}
        targets = {
            each.number: each.host
            for each in lost
            if each.kind in kinds
            and each.host not in avoid
            and each.host not in hosts.closed
            and hosts.live(each.host) is not None
            and not (each.host in draining and hosts.refuge(each.host))
        }
        if queue.record.durable:
            # Where its log is, however often that has failed.
            targets |= {each.number: each.host for each in lost if each.number != MONITOR}
        others = {each.number: each for each in lost if each.number not in targets}
        failed = {each.host for each in others.values() if each.kind is FAILED}
        places, problem = self._steps.place_anew(queue, others, avoid | failed)
        # Without another host it is tried once more where it is.
        return dict(sorted((targets | places).items())), problem

    def _start(self, queue: Queue, targets: Mapping[int, str]) -> Part[None]:
        steps = self._steps
        for number, host in targets.items():
            yield from self._clear(queue, number, host)
        if MONITOR in targets:
            yield from steps.start_monitor(queue, restarted=True)
        exchanges = (each for each in queue.record.exchanges if each.number in targets)
        yield from steps.start_exchanges(queue, tuple(exchanges))
        told = queue.with_addresses()
        if told != queue.record:
            yield from steps.save(told)

    def _clear(self, queue: Queue, number: int, host: str) -> Part[None]:
        """Nothing superseded is left on the host where it is to be started."""
        known = self._steps.hosts.get(host)
        child = known.child(queue.record.queue_id, number) if known is not None else None
        if child is None or child.epoch >= queue.floor(number):
            return
        problems = yield from self._steps.stop_children(queue, "moved", number, (host,))
        if problems:
            raise RequestError(f"{part_name(number)} is not replaced: {'; '.join(problems)}")
