"""Runs the sagas: one at a time per queue, each step with a deadline, each request with an answer.

Further requests for the same queue wait in a short line. A saga has finitely many steps, and a
place in the line has a deadline, so each client is answered within a bound. A party that asks for
much at once leaves room for others, and waits longest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Final, TypeAlias

from roq.errors import Busy, HostNotFound, Interrupted, RegistryAway, RequestError
from roq.gcm.change import admission
from roq.gcm.change.fairness import FairLine, has_share
from roq.gcm.change.saga_steps import (
    Admit,
    Call,
    Calls,
    Draw,
    Emit,
    Outcome,
    Result,
    Saga,
    Save,
    Step,
)
from roq.gcm.events import AskHost, Commit, DrawEpoch, Effect, HangUp, Reply
from roq.protocol import documents
from roq.protocol.control import Control, StartExchange, StartMonitor
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import failed
from roq.timing import ADMISSION_SECONDS, OPERATION_COMMIT_SECONDS, OPERATION_WAIT_SECONDS

WAITING_MAX: Final = 32
"""Requests that may wait for their turn at one queue; of one party at most as many as are left."""
OPERATIONS_MAX: Final = 2_000
"""Operations of all queues, running and waiting; of one party at most as many as are left."""
OWN_MAX: Final = 1_000
"""More of them, for what nobody has asked for."""
AGAIN_SECONDS: Final = 3.0
"""A connection whose other end has died without a word is noticed a little earlier, and renewed."""
_ALLOWANCE_SECONDS: Final = 1.0
"""The shell times a call out first; this is for a shell that does not."""


Refuse: TypeAlias = Callable[[RequestError], bytes]
"""Makes the frame that tells the client why nothing came of its request."""


@dataclass(slots=True, eq=False)
class _Operation:
    queue: str
    peer: Hashable
    party: Hashable
    make: Callable[[], Saga]
    refuse: Refuse
    deadline: float
    """While it waits: when it is refused."""
    saga: Saga | None = None
    outcomes: dict[int, Result | None] = field(default_factory=dict)
    """Token → what came back, in the order of the calls."""
    host: str = ""
    """Where it starts something."""
    begun: bool = False
    """Whether anything of it may have been done: the registry or a host was asked to."""

    def refusal(self, error: RequestError) -> bytes:
        """What the client is told; that the registry is away means that nothing was begun."""
        if self.begun and type(error) is RegistryAway:
            error = Interrupted(f"{error}; it was begun: look what is done before repeating it")
        return self.refuse(error)


@dataclass(frozen=True, slots=True)
class _Pending:
    """What has no outcome yet; `call` is None for the registry."""

    operation: _Operation
    deadline: float
    call: Call | None = None
    again: float = inf
    """When it is asked again."""


@dataclass(slots=True)
class _Lane:
    running: _Operation
    ahead: deque[_Operation] = field(default_factory=deque)
    """What the leader itself has to do, and what has let that pass."""
    line: FairLine[_Operation] = field(default_factory=lambda: FairLine(WAITING_MAX))

    @property
    def waiting(self) -> list[_Operation]:
        """All that wait."""
        return [*self.ahead, *self.line]

    def next(self) -> _Operation | None:
        """Whose turn it is."""
        if self.ahead:
            return self.ahead.popleft()
        return self.line.take() if self.line else None

    def remove(self, operation: _Operation) -> None:
        """It does not wait any longer."""
        if not self.line.remove(operation.party, operation):
            self.ahead.remove(operation)


class Operations:
    """All operations under way."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._pending: dict[int, _Pending] = {}
        self._tokens = count(1)
        self._size = 0
        self._held: Counter[Hashable] = Counter()
        """By whom it was asked → operations under way."""
        self._admission = admission.Admission()
        self._admitted: deque[int] = deque()
        """Whose turn has just come."""

    def busy(self, queue: str) -> bool:
        """Whether an operation works on this queue."""
        return queue in self._lanes

    @property
    def queues(self) -> frozenset[str]:
        """The queues that an operation works on."""
        return frozenset(self._lanes)

    def submit(
        self,
        queue: str,
        peer: Hashable,
        make: Callable[[], Saga],
        now: float,
        refuse: Refuse | None = None,
        party: Hashable = None,
    ) -> list[Effect]:
        """Run a saga as soon as it is its turn.

        Args:
            queue: the name that it works on.
            peer: who gets the answer.
            make: makes the generator when its turn has come, so that it sees the state of then.
            now: the time.
            refuse: the frame for an error; None: as the management port says it.
            party: on whose behalf, if one has several connections; None: the peer's own.
        """
        refuse = refuse or _refused
        party = peer if party is None else party
        lane = self._lanes.get(queue)
        operation = _Operation(queue, peer, party, make, refuse, now + OPERATION_WAIT_SECONDS)
        if not self._has_room(party):
            return _answer(peer, refuse(Busy(
                f"{self._size} operations are under way, {self._held[party]} of them yours; "
                "try again later"
            )))  # fmt: skip
        if lane is not None and not lane.line.put(party, operation):
            return _answer(peer, refuse(Busy(
                f"too many requests for queue {queue!r} are waiting; try again later"
            )))  # fmt: skip
        self._count(operation)
        if lane is not None:
            return []
        self._lanes[queue] = _Lane(operation)
        return self._all(self._run(operation, now), now)

    def submit_own(
        self, queue: str, make: Callable[[], Saga], now: float
    ) -> tuple[bool, list[Effect]]:
        """Run what the leader itself has to do with a queue, before all requests that wait for it.

        Returns:
            Whether there was room for it, and the effects.
        """
        if not self._has_room(None):
            return False, []
        operation = _Operation(queue, None, None, make, _refused, inf)
        self._count(operation)
        lane = self._lanes.get(queue)
        if lane is not None:
            lane.ahead.appendleft(operation)
            return True, self._let_pass(lane, now)
        self._lanes[queue] = _Lane(operation)
        return True, self._all(self._run(operation, now), now)

    def awaits(self, token: int) -> bool:
        """Whether an operation waits for the outcome of this."""
        return token in self._pending

    def completed(self, token: int, outcome: Result | None, now: float) -> list[Effect]:
        """A commit (None), a drawn number, or the outcome of a call came back."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return []  # too late: its deadline has passed
        operation = pending.operation
        operation.outcomes[token] = outcome
        if any(waiting in self._pending for waiting in operation.outcomes):
            return []
        outcomes = [value for value in operation.outcomes.values() if value is not None]
        return self._all(self._advance(operation, outcomes, None, now), now)

    def commit_failed(self, token: int, error: RequestError, now: float) -> list[Effect]:
        """A commit was refused, or its outcome is not known."""
        pending = self._pending.pop(token, None)
        if pending is None:
            return []
        return self._all(self._advance(pending.operation, [], error, now), now)

    def gone(self, host: str, manager: str, now: float) -> list[Effect]:
        """Nobody waits any longer for answers from this host.

        Args:
            host: its name.
            manager: address of its manager, if that alone is gone; empty: everything is.
        """
        gone = f"the manager of host {host} is gone" if manager else f"host {host} is lost"
        given_up = {
            token: each.call
            for token, each in self._pending.items()
            if each.call is not None
            and each.call.host == host
            and manager in {"", each.call.endpoint}
        }
        # First: what is asked instead may go to the same address.
        effects: list[Effect] = [HangUp(endpoint) for endpoint in _starts_at(given_up.values())]
        for token in given_up:
            effects += self.completed(token, gone, now)
        for token in self._admission.waiting(host):
            effects += self._turn_away(token, HostNotFound(gone), now)
        return effects

    def expire(self, now: float) -> list[Effect]:
        """Give up what has waited too long, and ask again what may have been lost on its way."""
        effects = self._ask_again(now)
        for lane in list(self._lanes.values()):
            for late in [each for each in lane.waiting if each.deadline <= now]:
                lane.remove(late)
                self._discount(late)
                effects += _answer(late.peer, late.refuse(Busy(
                    f"other operations on queue {late.queue!r} took longer than "
                    f"{OPERATION_WAIT_SECONDS:g} s; try again"
                )))  # fmt: skip
        for token in [token for token, each in self._pending.items() if each.deadline <= now]:
            if token not in self._pending:
                continue
            operation = self._pending[token].operation
            if len(operation.outcomes) == 1 and operation.outcomes[token] is _REGISTRY:
                error = RegistryAway("the registry did not answer in time")
                effects += self.commit_failed(token, error, now)
            elif operation.outcomes[token] is _ADMISSION:
                effects += self._turn_away(token, _busy(operation.host), now)
            else:
                effects += self.completed(token, "no answer in time", now)
        return effects

    def _ask_again(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for token, each in self._pending.items():
            if each.call is not None and each.again <= now < each.deadline:
                left = each.deadline - _ALLOWANCE_SECONDS - now
                effects.append(AskHost(token, each.call.endpoint, each.call.message, left))
                self._pending[token] = replace(each, again=_again(each.call, now, each.deadline))
        return effects

    def abort(self, error: RequestError) -> list[Effect]:
        """End everything at once with this answer."""
        effects: list[Effect] = []
        for lane in self._lanes.values():
            for operation in (lane.running, *lane.waiting):
                if operation.saga is not None:
                    operation.saga.close()
                effects += _answer(operation.peer, operation.refusal(error))
        self._lanes.clear()
        self._pending.clear()
        self._admission.clear()
        self._admitted.clear()
        self._held.clear()
        self._size = 0
        return effects

    def next_deadline(self) -> float | None:
        """When `expire` has something to do."""
        deadlines = [min(each.deadline, each.again) for each in self._pending.values()]
        deadlines += [each.deadline for lane in self._lanes.values() for each in lane.waiting]
        return min(deadlines, default=None)

    def check(self) -> None:
        """Assert that no operation is stuck."""
        held = {id(pending.operation) for pending in self._pending.values()}
        running = {id(lane.running) for lane in self._lanes.values()}
        assert held == running  # noqa: S101 - check() is for tests and simulation
        total = sum(1 + len(lane.waiting) for lane in self._lanes.values())
        assert total == self._size <= OPERATIONS_MAX + OWN_MAX  # noqa: S101
        assert total == self._held.total()  # noqa: S101
        assert all(held > 0 for held in self._held.values())  # noqa: S101
        assert not self._admitted  # noqa: S101
        self._admission.check()

    def _run(self, operation: _Operation, now: float) -> Iterator[Effect]:
        operation.saga = operation.make()
        yield from self._advance(operation, None, None, now)

    def _advance(
        self,
        operation: _Operation,
        outcome: Outcome | None,
        error: RequestError | None,
        now: float,
    ) -> Iterator[Effect]:
        """Let the saga go on until it waits for something again, or ends."""
        saga = operation.saga
        assert saga is not None  # noqa: S101 - narrows the type; set by _run
        while True:
            try:
                step = _resumed(saga, outcome, error)
            except StopIteration as end:
                frame = None if end.value is None else _encoded(end.value)
                yield from self._finished(operation, frame, now)
                return
            except RequestError as refused:
                yield from self._finished(operation, operation.refusal(refused), now)
                return
            outcome, error = [], None
            match step:
                case Emit():
                    yield from step.effects
                case Save():
                    operation.begun = True
                    yield Commit(self._ask_registry(operation, now), step.changes)
                    return
                case Draw():
                    yield DrawEpoch(self._ask_registry(operation, now))
                    return
                case Calls() if step.calls:
                    operation.begun = True
                    yield from self._call(operation, step, now)
                    return
                case Calls():
                    continue
                case Admit():
                    if self._enter(operation, step.host, now):
                        return
                    if not operation.host:
                        error = _busy(step.host)

    def _enter(self, operation: _Operation, host: str, now: float) -> bool:
        """Whether it has to wait for its turn; if it does not and has no host, it is refused."""
        if operation.host or self._admission.enter(host):
            operation.host = operation.host or host
            return False
        token = next(self._tokens)
        if not self._admission.wait(host, operation.party, token):
            return False
        operation.host = host
        operation.outcomes = {token: _ADMISSION}
        deadline = min(now + ADMISSION_SECONDS, operation.deadline)
        self._pending[token] = _Pending(operation, deadline)
        return True

    def _let_pass(self, lane: _Lane, now: float) -> list[Effect]:
        """Who waits for its turn on a host, and has begun nothing, lets the next one go first."""
        running = lane.running
        token = next(iter(running.outcomes), 0)
        if token not in self._pending or running.outcomes[token] is not _ADMISSION:
            return []
        del self._pending[token]
        self._admission.give_up(running.host, running.party, token)
        assert running.saga is not None  # noqa: S101 - narrows the type; set by _run
        running.saga.close()
        running.saga, running.outcomes, running.host = None, {}, ""
        lane.running = lane.ahead.popleft()
        lane.ahead.appendleft(running)
        return self._all(self._run(lane.running, now), now)

    def _turn_away(self, token: int, error: RequestError, now: float) -> list[Effect]:
        """Its turn has not come."""
        operation = self._pending[token].operation
        self._admission.give_up(operation.host, operation.party, token)
        operation.host = ""
        return self.commit_failed(token, error, now)

    def _all(self, effects: Iterator[Effect], now: float) -> list[Effect]:
        """What is to be done, also by those whose turn comes with it."""
        done = list(effects)
        while self._admitted:
            operation = self._pending.pop(self._admitted.popleft()).operation
            done += self._advance(operation, [], None, now)
        return done

    def _ask_registry(self, operation: _Operation, now: float) -> int:
        token = next(self._tokens)
        operation.outcomes = {token: _REGISTRY}
        deadline = now + OPERATION_COMMIT_SECONDS + _ALLOWANCE_SECONDS
        self._pending[token] = _Pending(operation, deadline)
        return token

    def _call(self, operation: _Operation, step: Calls, now: float) -> list[Effect]:
        operation.outcomes = {}
        effects: list[Effect] = []
        for call in step.calls:
            token = next(self._tokens)
            operation.outcomes[token] = None
            deadline = now + call.timeout + _ALLOWANCE_SECONDS
            self._pending[token] = _Pending(operation, deadline, call, _again(call, now, deadline))
            effects.append(AskHost(token, call.endpoint, call.message, call.timeout))
        return effects

    def _finished(
        self, operation: _Operation, answer: bytes | None, now: float
    ) -> Iterator[Effect]:
        self._discount(operation)
        yield from _answer(operation.peer, answer)
        if operation.host:
            token = self._admission.leave(operation.host)
            if token is not None:
                self._admitted.append(token)
        lane = self._lanes[operation.queue]
        following = lane.next()
        if following is not None:
            lane.running = following
            yield from self._run(following, now)
        else:
            del self._lanes[operation.queue]

    def _has_room(self, party: Hashable) -> bool:
        # However many ask, what the leader itself has to do is done.
        if party is None:
            return self._size < OPERATIONS_MAX + OWN_MAX
        return has_share(self._held[party], self._size, OPERATIONS_MAX)

    def _count(self, operation: _Operation) -> None:
        self._size += 1
        self._held[operation.party] += 1

    def _discount(self, operation: _Operation) -> None:
        self._size -= 1
        self._held[operation.party] -= 1
        if not self._held[operation.party]:
            del self._held[operation.party]


def _starts_at(calls: Iterable[Call]) -> list[str]:
    """Addresses at which nothing but starts was asked: a stop that comes late is wanted still."""
    starts: dict[str, bool] = {}
    for call in calls:
        start = isinstance(call.message, StartMonitor | StartExchange)
        starts[call.endpoint] = start and starts.get(call.endpoint, True)
    return sorted(endpoint for endpoint, only in starts.items() if only)


def _again(call: Call, now: float, deadline: float) -> float:
    then = now + AGAIN_SECONDS
    return then if call.again and then < deadline - _ALLOWANCE_SECONDS else inf


_REGISTRY: Final = "registry"
"""Stands for what the registry says while it is under way."""
_ADMISSION: Final = "admission"
"""Stands for the turn that has not come yet."""


def _resumed(saga: Saga, outcome: Outcome | None, error: RequestError | None) -> Step:
    """What a saga wants next; no outcome: it begins."""
    if error is not None:
        return saga.throw(error)
    return next(saga) if outcome is None else saga.send(outcome)


def _busy(host: str) -> Busy:
    return Busy(
        f"host {host} is busy: {admission.AT_ONCE} other starts are under way there, and more wait "
        "for their turn; nothing was begun, try again later"
    )


def _answer(peer: Hashable, frame: bytes | None) -> list[Effect]:
    return [] if peer is None or frame is None else [Reply(peer, frame)]


def _encoded(answer: RawDocument | Control) -> bytes:
    return documents.encode(answer) if isinstance(answer, Control) else documents.encode_raw(answer)


def _refused(error: RequestError) -> bytes:
    return documents.encode_raw(failed(error))
