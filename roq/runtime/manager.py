"""The word that children keep with their host manager; their work waits for neither of them.

One process has one link. An exchange is the only child of its process; monitors share one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from roq.errors import Unavailable
from roq.machine import STALL_SECONDS, ObservedClock
from roq.protocol.control import Answer, ChildAck, ChildReport
from roq.protocol.reports import ChildInfo
from roq.runtime.backoff import longest_wait
from roq.runtime.interfaces import Dialer, Loop, Socket
from roq.runtime.rpc import RpcClient
from roq.timing import CHILD_REPORT_SECONDS, IDLE_CHILD_FACTOR

QUESTION_EVERY: Final = 2
"""Turns in which each child asks once, and tells its metrics. If no child asks in a turn, one of
them just says: still here."""
RECONNECT_QUESTIONS: Final = 2
"""A host manager that has not answered so many is called anew, and so again and again: reports do
not pile up on the way to one that is away, and one that comes back is found soon."""
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
TELL_SECONDS: Final = 5.0
"""The end of a child is told again and again for so long, until the host manager has noted it."""
LINGER_MS: Final = 100

log = logging.getLogger(__name__)


def _no_metrics() -> Mapping[str, float]:
    return {}


def _never() -> bool:
    return False


class ManagedChild:
    """One child of this process, as its host manager knows it. Made by `ManagerLink.add`."""

    def __init__(
        self,
        link: ManagerLink,
        child: Callable[[], ChildInfo],
        on_keep: Callable[[ChildAck], None],
        on_stop: Callable[[str], None],
        metrics: Callable[[], Mapping[str, float]],
        idle: Callable[[], bool],
    ) -> None:
        self.info = child
        self.idle = idle
        self._link = link
        self._on_keep = on_keep
        self._on_stop = on_stop
        self._metrics = metrics
        self._wanted = link.observed()
        self._disowned: float | None = None

    def confirmed(self) -> None:
        """Its monitor or the leader wants this child: it is no orphan, even without a manager."""
        self._wanted = self._link.observed()
        self._disowned = None

    def disowned(self) -> None:
        """The leading configuration manager knows no queue for this child.

        As long as there is a host manager, that one decides.
        """
        self._disowned = self._link.observed()

    def report_now(self) -> None:
        """Tell of a change of state at once; the answer is not waited for."""
        self._link.send(ChildReport(child=self.info(), idle=self.idle()))

    def superseded(self) -> None:
        """A newer process has the place of this child: it ends, and must not be started again."""
        self._link.send(ChildReport(child=self._that_is("superseded")))

    def ask_reason(self, done: Callable[[str], None]) -> None:
        """Ask why this child was told to stop; `done` gets an empty text if nobody says."""

        def answered(answer: Answer | Unavailable) -> None:
            wanted = isinstance(answer, ChildAck) and answer.action == "stop"
            done(answer.reason if isinstance(answer, ChildAck) and wanted else "")

        self._link.request(ChildReport(child=self._that_is("stopping")), ASK_SECONDS, answered)

    def ask(self) -> None:
        """Report, and be told whether to go on."""
        report = ChildReport(child=self.info(), metrics=dict(self._metrics()), idle=self.idle())
        self._link.request(report, ANSWER_SECONDS, self.answered)

    def answered(self, answer: Answer | Unavailable) -> None:
        """The host manager says what becomes of this child; silence is counted by the clock."""
        if not isinstance(answer, ChildAck):
            return
        if answer.action == "stop":
            self._on_stop(answer.reason)
        else:
            self._on_keep(answer)

    def look(self, now: float, heard: float, orphan_seconds: float) -> bool:
        """Whether this child goes on: its monitor or the leader wants it, or may still say so.

        Args:
            now: observed time.
            heard: when the host manager has said something.
            orphan_seconds: without a word for so long nobody wants this child.
        """
        unheard = now - max(heard, self._wanted)
        if self._disowned is not None and now - self._disowned > DISOWNED_HOLDS_SECONDS:
            self._disowned = None
        if unheard > orphan_seconds:
            log.warning(
                "no word from the host manager for %g s, and nothing else wants %s: ending",
                orphan_seconds, self.info().child, extra={"event": "orphaned"},
            )  # fmt: skip
            self._on_stop("")
            return False
        if self._disowned is not None and unheard > DISOWNED_SECONDS:
            log.warning(
                "the queue of %s was removed: ending", self.info().child, extra={"event": "removed"}
            )
            self._on_stop("removed")
            return False
        return True

    def _that_is(self, state: str) -> ChildInfo:
        return msgspec.structs.replace(self.info(), state=state)


@dataclass(frozen=True, slots=True, eq=False)
class _LastWord:
    report: ChildReport
    done: Callable[[], None]
    until: float


class ManagerLink:
    """Reports twice a second, and notices when nobody wants a child (any more).

    While all children are idle it reports less often, and asks each time.

    Args:
        endpoint: control address of the host manager.
        orphan_seconds: without a word from it for so long nobody wants a child, unless others
            say that they do: see `ManagedChild.confirmed`. Time during which this process did not
            run does not count.
    """

    def __init__(
        self,
        reactor: Loop,
        context: Dialer[Socket],
        endpoint: str,
        *,
        orphan_seconds: float,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._endpoint = endpoint
        self._orphan_seconds = orphan_seconds
        self._clock = ObservedClock(reactor.now())
        self._heard = self._called = self.observed()
        self._calls = 1
        """Since it has said something, with the first one."""
        self._turn = 0
        self._idle = False
        """Whether all children were when they reported last."""
        self._children: list[ManagedChild] = []
        self._last_words: list[_LastWord] = []
        """What has not been noted yet, of children that are no more."""
        self._client = self._connect()
        self._timer = reactor.call_about(CHILD_REPORT_SECONDS, self._report)

    def add(
        self,
        child: Callable[[], ChildInfo],
        *,
        on_keep: Callable[[ChildAck], None],
        on_stop: Callable[[str], None],
        metrics: Callable[[], Mapping[str, float]] = _no_metrics,
        idle: Callable[[], bool] = _never,
    ) -> ManagedChild:
        """Report for one more child.

        Args:
            child: gives its present state.
            on_keep: called with each answer that says to go on.
            on_stop: called with the reason when it is to end; empty if it is an orphan.
            metrics: gives its counters and gauges, by name; asked once a second.
            idle: says whether it serves nobody; see `report_on`.
        """
        managed = ManagedChild(self, child, on_keep, on_stop, metrics, idle)
        self._children.append(managed)
        # It asks as soon as it can: the manager that has it started waits for its first report.
        self._reactor.call_soon(lambda: self._ask_first(managed))
        return managed

    def remove(self, managed: ManagedChild) -> None:
        """Report for this one no more."""
        if managed in self._children:
            self._children.remove(managed)

    def report_on(self) -> None:
        """A child is idle no more: report now, and as usual from now on."""
        self._timer.cancel()
        self._report()

    @property
    def silent_seconds(self) -> float:
        """For how long the host manager has said nothing."""
        return self.observed() - self._heard

    def observed(self) -> float:
        """The time during which this process ran, in seconds."""
        return self._clock.read(self._reactor.now())

    def send(self, report: ChildReport) -> None:
        """Say something that no answer is expected to."""
        self._client.send(report)

    def request(
        self,
        report: ChildReport,
        seconds: float,
        on_answer: Callable[[Answer | Unavailable], None],
    ) -> None:
        """Say something; `on_answer` is called once."""

        def answered(answer: Answer | Unavailable) -> None:
            self._take(answer)
            on_answer(answer)

        self._client.request(report, seconds, answered)

    def tell(self, report: ChildReport, done: Callable[[], None]) -> None:
        """Say something at each turn until it is noted, or `TELL_SECONDS` are over; call `done`."""
        last = _LastWord(report, done, self._reactor.now() + TELL_SECONDS)
        self._last_words.append(last)
        self._say(last)

    def close(self) -> None:
        """Report no more; what was said last has a moment to leave."""
        self._timer.cancel()
        self._client.close(linger_ms=LINGER_MS)

    def _ask_first(self, managed: ManagedChild) -> None:
        if managed in self._children:
            managed.ask()

    def _report(self) -> None:
        now = self.observed()
        every = 1 if self._idle else QUESTION_EVERY
        first = RECONNECT_QUESTIONS * every * self._period
        if now - max(self._heard, self._called) > longest_wait(
            self._calls, first, RECONNECT_MOST_SECONDS
        ):
            self._called = now
            self._calls += 1
            self._call_anew()
        children = list(self._children)
        wanted = [each for each in children if each.look(now, self._heard, self._orphan_seconds)]
        self._children = wanted + [each for each in self._children if each not in children]
        self._turn = (self._turn + 1) % every
        asking = [
            each
            for number, each in enumerate(children)
            if number % every == self._turn and each in wanted
        ]
        for managed in asking:
            managed.ask()
        for last in list(self._last_words):
            self._say(last)
        if wanted and not asking:
            wanted[0].report_now()
        self._idle = bool(wanted) and all(each.idle() for each in wanted)
        self._clock.stall_seconds = max(STALL_SECONDS, 1.5 * self._period)
        self._timer = self._reactor.call_about(self._period, self._report)

    @property
    def _period(self) -> float:
        return CHILD_REPORT_SECONDS * (IDLE_CHILD_FACTOR if self._idle else 1)

    def _say(self, last: _LastWord) -> None:
        def answered(answer: Answer | Unavailable) -> None:
            if isinstance(answer, ChildAck):
                self._said(last)

        if self._reactor.now() >= last.until:
            self._said(last)
        else:
            self.request(last.report, CHILD_REPORT_SECONDS, answered)

    def _said(self, last: _LastWord) -> None:
        if last in self._last_words:
            self._last_words.remove(last)
            last.done()

    def _call_anew(self) -> None:
        self._client.close()  # first: what it gives back may be all that is left
        self._client = self._connect()

    def _connect(self) -> RpcClient:
        return RpcClient(self._reactor, self._context, self._endpoint, self._pushed, local=True)

    def _pushed(self, answer: Answer) -> None:
        self._take(answer)
        if not isinstance(answer, ChildAck):
            return
        meant = [each for each in self._children if answer.child in {"", each.info().child}]
        if len(meant) == 1:
            meant[0].answered(answer)

    def _take(self, answer: Answer | Unavailable) -> None:
        if isinstance(answer, ChildAck):
            self._heard = self.observed()
            self._calls = 1
