"""The word that a child keeps with its host manager; its work waits for neither of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import zmq

from roq.clock import ObservedClock
from roq.errors import Unavailable
from roq.protocol.control import Answer, ChildAck, ChildReport
from roq.protocol.facts import ChildInfo
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REPORT_SECONDS: Final = 0.25
QUESTION_EVERY: Final = 4
"""Reports of which one carries metrics and wants an answer; the others just say: still here."""
RECONNECT_SECONDS: Final = 2.0
"""A host manager that is silent for so long is called anew, and so again and again: reports do not
pile up on the way to one that is away, and one that comes back is found within a second."""
RECONNECT_MOST_SECONDS: Final = 8.0
"""The pause doubles up to this: an answer that is late, because there is little processor, would be
thrown away with its connection."""
ANSWER_SECONDS: Final = 10.0
"""An answer that is late is one nevertheless."""
DISOWNED_SECONDS: Final = 10.0
"""Without a word from its host manager for so long a process ends that is said to be unknown."""
DISOWNED_HOLDS_SECONDS: Final = 8.0
"""How long such a word holds; it is asked for again and again."""
ASK_SECONDS: Final = 0.5
LINGER_MS: Final = 100

log = logging.getLogger(__name__)


def _no_metrics() -> Mapping[str, float]:
    return {}


class ManagerLink:
    """Reports four times a second, and notices when nobody wants this process (any more).

    Args:
        endpoint: control address of the host manager.
        orphan_seconds: without a word from it for so long nobody wants this process, unless others
            say that they do: see `confirmed`. Time during which this process did not run does not
            count.
        child: gives the present state of this process.
        on_keep: called with each answer that says to go on.
        on_stop: called with the reason when this process is to end; empty if it is an orphan.
        metrics: gives counters and gauges of this process, by name; asked once a second.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        *,
        orphan_seconds: float,
        child: Callable[[], ChildInfo],
        on_keep: Callable[[ChildAck], None],
        on_stop: Callable[[str], None],
        metrics: Callable[[], Mapping[str, float]] = _no_metrics,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._endpoint = endpoint
        self._orphan_seconds = orphan_seconds
        self._child = child
        self._on_keep = on_keep
        self._on_stop = on_stop
        self._metrics = metrics
        self._clock = ObservedClock(reactor.now())
        self._heard = self._wanted = self._called = self._clock.read(reactor.now())
        self._disowned: float | None = None
        self._pause = RECONNECT_SECONDS
        self._reports = 0
        self._client = self._connect()
        self._timer = reactor.call_later(0, self._report)

    @property
    def silent_seconds(self) -> float:
        """For how long the host manager has said nothing."""
        return self._clock.read(self._reactor.now()) - self._heard

    def confirmed(self) -> None:
        """Somebody else wants this process: it is no orphan, though nobody manages it."""
        self._wanted = self._clock.read(self._reactor.now())
        self._disowned = None

    def disowned(self) -> None:
        """The leading configuration manager knows no queue for this process.

        As long as there is a host manager, that one decides.
        """
        self._disowned = self._clock.read(self._reactor.now())

    def report_now(self) -> None:
        """Tell of a change of state at once; the answer is not waited for."""
        self._client.send(ChildReport(child=self._child()))

    def superseded(self) -> None:
        """A newer process has the place of this one: it ends, and must not be started again."""
        self._client.send(ChildReport(child=self._child_that_is("superseded")))

    def ask_reason(self, done: Callable[[str], None]) -> None:
        """Ask why this process was told to stop; `done` gets an empty text if nobody says."""

        def answered(answer: Answer | Unavailable) -> None:
            wanted = isinstance(answer, ChildAck) and answer.action == "stop"
            done(answer.reason if isinstance(answer, ChildAck) and wanted else "")

        report = ChildReport(child=self._child_that_is("stopping"))
        self._client.request(report, ASK_SECONDS, answered)

    def close(self) -> None:
        """Report no more; what was said last has a moment to leave."""
        self._timer.cancel()
        self._client.close(linger_ms=LINGER_MS)

    def _child_that_is(self, state: str) -> ChildInfo:
        return msgspec.structs.replace(self._child(), state=state)

    def _report(self) -> None:
        now = self._clock.read(self._reactor.now())
        unheard = now - max(self._heard, self._wanted)
        if self._disowned is not None and now - self._disowned > DISOWNED_HOLDS_SECONDS:
            self._disowned = None
        if unheard > self._orphan_seconds:
            self._orphaned()
            return
        if self._disowned is not None and unheard > DISOWNED_SECONDS:
            log.warning("the queue of this process was removed: ending", extra={"event": "removed"})
            self._on_stop("removed")
            return
        self._timer = self._reactor.call_later(REPORT_SECONDS, self._report)
        if now - max(self._heard, self._called) > self._pause:
            self._called = now
            self._pause = min(2 * self._pause, RECONNECT_MOST_SECONDS)
            self._call_anew()
        if self._reports % QUESTION_EVERY:
            self._client.send(ChildReport(child=self._child()))
        else:
            report = ChildReport(child=self._child(), metrics=dict(self._metrics()))
            self._client.request(report, ANSWER_SECONDS, self._answered)
        self._reports += 1

    def _call_anew(self) -> None:
        self._client.close()  # first: what it gives back may be all that is left
        self._client = self._connect()

    def _orphaned(self) -> None:
        log.warning(
            "no word from the host manager at %s for %g s, and nothing else wants this process: "
            "ending", self._endpoint, self._orphan_seconds, extra={"event": "orphaned"},
        )  # fmt: skip
        self._on_stop("")

    def _connect(self) -> RpcClient:
        return RpcClient(self._reactor, self._context, self._endpoint, self._answered)

    def _answered(self, answer: Answer | Unavailable) -> None:
        if not isinstance(answer, ChildAck):
            return  # silence is counted by the clock
        self._heard = self._clock.read(self._reactor.now())
        self._pause = RECONNECT_SECONDS
        if answer.action == "stop":
            self._on_stop(answer.reason)
        else:
            self._on_keep(answer)
