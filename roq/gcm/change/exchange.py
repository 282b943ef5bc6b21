"""The exchanges of a running queue: one more, one less, by hand or because the load wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from roq.errors import (
    REQUEST_ERRORS,
    ExchangeNotFound,
    InvalidRequest,
    NoCapacity,
    NotEmpty,
    RequestError,
)
from roq.gcm.change.saga_steps import (
    OPEN_ERRORS,
    Admit,
    Call,
    Calls,
    Emit,
    NotInTime,
    Part,
    Result,
    Saga,
    Steps,
    Unanswered,
    exchange_hosts,
    with_problem,
    without_exchange,
)
from roq.gcm.change.scaling_rules import check_shrinking, one_exchange
from roq.gcm.events import Change, LogLine, Put
from roq.gcm.state.queues import MONITOR, Queue, transactions_of
from roq.gcm.state.records import (
    AWAY,
    CREATION,
    EXCHANGES_MAX,
    MANUAL,
    SCALING,
    TRANSACTIONS_MAX,
    DepartedRecord,
    ExchangeRecord,
    encode,
    transactions_path,
)
from roq.model import ElasticRules, QueueState, exchange_name
from roq.protocol.control import Done, Emptied, Empty, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.protocol.public import CreateExchange, RemoveExchange
from roq.protocol.public_answers import done
from roq.timing import EMPTYING_ASKS_SECONDS

KEEP_SECONDS: Final = 2.0
"""It matters little whether a monitor hears it: nobody asks it again for what was called off."""


class ExchangeSagas:
    """Changes of single exchanges."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    # --- one more ---------------------------------------------------------------------------------

    def create(self, request: CreateExchange) -> Saga:
        """Start one more exchange of a running queue on the named host (2004)."""
        queue = self._steps.queues.demand_running(request.QName)
        transaction = str(request.TransactionID)
        if transaction and transaction in queue.transactions:
            return _exchange_done(queue.transactions[transaction])
        if queue.record.limits.ordered:
            raise InvalidRequest(
                f"{one_exchange(queue.name)}: its messages have one order. What may have the order "
                "of each publisher goes into another queue, without the limit `ordered`"
            )
        place = partial(self._place, queue, request.Host)
        number = yield from self._add(queue, transaction, place, MANUAL)
        return _exchange_done(number)

    def _place(self, queue: Queue, host: str) -> str:
        """The host for one more exchange that is asked for by hand.

        Raises:
            RequestError: an earlier one was begun there, and nobody knows whether it runs. Without
                this each repeated request would leave one more.
        """
        begun = {
            each.host: exchange_name(each.number)
            for each in (queue.record.exchanges if queue.record.durable else ())
            if each.here and not queue.epoch(each.number)
        }
        durable = queue.record.durable
        avoid = {*begun, *queue.refusing}
        host = self._steps.place(host, exchange_hosts(queue), avoid=avoid, durable=durable)
        if host in begun:
            raise RequestError(
                f"{begun[host]} of queue {queue.name!r} was begun on host {host} before, and does "
                f"not run yet: {_is_begun(queue, begun[host])}"
            )
        return host

    def scale_out(self, request: ScaleOut, rules: ElasticRules) -> Part[ScaledOut]:
        """Start one more exchange where there is room.

        Raises:
            NoCapacity: no host has room, or the queue has as many exchanges as it may have.
        """
        queue = self._steps.queues.demand_same(request.queue, request.queue_id)
        number = queue.transactions.get(request.transaction)
        if number is None:
            yield from self._finish_attempts(queue, request.transaction)
            _check_growth(queue, request, rules)
            number = yield from self._add(
                queue, request.transaction, lambda: self._steps.place_beside(queue), SCALING
            )
        exchange = queue.record.exchange(number)
        if exchange is None:
            raise ExchangeNotFound(
                f"{exchange_name(number)}, which this request has made, was removed since"
            )
        return ScaledOut(id=request.id, number=number, host=exchange.host)

    def replace(self, queue: Queue, exchange: ExchangeRecord) -> Part[int]:
        """Start one more exchange elsewhere, because this one is to go from its host."""
        return (
            yield from self._add(
                queue,
                "",
                lambda: self._steps.place_beside(queue),
                exchange.origin,
                exchange.number,
            )
        )

    def _add(
        self,
        queue: Queue,
        transaction: str,
        place: Callable[[], str],
        origin: str,
        replaces: int = 0,
    ) -> Part[int]:
        begun = _begun(queue, transaction)
        if begun is not None:
            self._steps.hosts.demand(begun.host)
            yield Admit(begun.host)
            queue.refused.discard(begun.number)
            exchange = begun
        else:
            exchange = yield from self._define(queue, transaction, place, origin, replaces)
        try:
            yield from self._start(queue, exchange)
            queue.refusing.discard(exchange.host)
            yield from self._save_created(queue, exchange.number, transaction)
        except OPEN_ERRORS:
            raise  # the next leader completes it
        except RequestError as error:
            queue.refusing.add(exchange.host)
            # What a host refuses now may have run since the first time that it was asked for.
            if queue.record.durable and (begun is not None or isinstance(error, Unanswered)):
                name = exchange_name(exchange.number)
                text = f"{name} is begun, and may run: {_is_begun(queue, name)}"
                raise with_problem(error, text) from None
            ran = begun is not None or isinstance(error, Unanswered | NotInTime)
            problem = yield from self._undo_add(queue, exchange, ran=ran)
            raise with_problem(error, problem) from None
        return exchange.number

    def _start(self, queue: Queue, exchange: ExchangeRecord) -> Part[None]:
        try:
            yield from self._steps.start_exchanges(queue, (exchange,))
        except OPEN_ERRORS:
            raise
        except RequestError:
            # Its host manager may have died before it could say so: its monitor knows.
            if not self._steps.runs(queue, exchange.number):
                raise

    def _define(
        self,
        queue: Queue,
        transaction: str,
        place: Callable[[], str],
        origin: str,
        replaces: int,
    ) -> Part[ExchangeRecord]:
        """A new exchange, written down."""
        record = queue.record
        if len(record.exchanges) >= EXCHANGES_MAX:
            raise NoCapacity(f"queue {queue.name!r} has {EXCHANGES_MAX} exchanges already")
        host = place()
        exchange = ExchangeRecord(
            number=record.next_number,
            host=host,
            transaction=transaction,
            origin=origin,
            replaces=replaces,
        )
        key = (queue.name, exchange.number)
        self._steps.queues.reserved[key] = host
        try:
            yield Admit(host)
            yield from self._steps.save(
                msgspec.structs.replace(
                    record,
                    next_number=exchange.number + 1,
                    exchanges=(*record.exchanges, exchange),
                )
            )
        finally:
            del self._steps.queues.reserved[key]
        return exchange

    def _save_created(self, queue: Queue, number: int, transaction: str) -> Part[None]:
        record = queue.with_addresses()
        exchange = record.exchange(number)
        assert exchange is not None  # noqa: S101 - nobody else works on this queue meanwhile
        record = record.replacing(
            msgspec.structs.replace(exchange, state="created", transaction="")
        )
        more: tuple[Change, ...] = ()
        kept = transactions_of(queue)
        if transaction:
            kept = (*kept, (transaction, number))[-TRANSACTIONS_MAX:]
            more = (Put(transactions_path(queue.name), encode(kept)),)
        yield from self._steps.save(record, *more)
        queue.transactions = dict(kept)

    def _undo_add(self, queue: Queue, exchange: ExchangeRecord, *, ran: bool = True) -> Part[str]:
        """Take back what was begun; `ran`: it may have run, so readers hear where it ends."""
        number = exchange.number
        queue.refused.add(number)
        try:
            # That nobody has heard of it does not prove that it took nothing.
            yield from self._steps.stop_children(
                queue, "removed", number, (exchange.host,), erase=True, empty=True
            )
            gone = self._departed(queue, exchange, end=0)
            queue.children.pop(number, None)
            record = queue.record.departing(gone) if ran or gone.epoch else queue.record
            yield from self._steps.save(without_exchange(record, number))
        except RequestError as error:
            return f"the definition of {exchange_name(number)} is left behind: {error}"
        return ""

    def _finish_attempts(self, queue: Queue, transaction: str) -> Part[None]:
        """Complete what earlier attempts to scale have left behind, or undo it.

        No other operation works on this queue, so nothing of it is under way.
        """
        for exchange in queue.record.exchanges:
            begun = exchange.origin == SCALING and exchange.state == "creating"
            if not begun or exchange.transaction == transaction:
                continue
            if self._is_kept(queue, exchange):
                yield from self._save_created(queue, exchange.number, exchange.transaction)
            else:
                yield from self._undo_add(queue, exchange)

    def _is_kept(self, queue: Queue, exchange: ExchangeRecord) -> bool:
        """Whether an exchange that was begun stays, though nobody has said that it runs: in its log
        may be what was acknowledged before its host was lost."""
        may_have_run = queue.record.durable and exchange.number not in queue.refused
        return may_have_run or self._steps.runs(queue, exchange.number)

    # --- one less ---------------------------------------------------------------------------------

    def scale_in(self, request: ScaleIn, rules: ElasticRules) -> Part[Done]:
        """Stop an exchange that scaling has made and its monitor has emptied."""
        queue = self._steps.queues.demand_same(request.queue, request.queue_id)
        exchange = queue.record.exchange(request.number)
        if exchange is not None:
            check_shrinking(queue, exchange, rules, holds_nothing=request.holds_nothing)
            yield from self._remove(queue, exchange, request.epoch, request.end)
        return Done(id=request.id)

    def remove(self, request: RemoveExchange) -> Saga:
        """Have an exchange emptied by the queue's monitor, then stop it (2100)."""
        queue = self._steps.queues.demand(request.QName)
        exchange = _named(queue, str(request.Exchange))
        lost = self._lost_with_log(queue, exchange)
        _check_forgetting(queue, exchange, lost, forget=request.Forget)
        if len(queue.record.here) <= 1 and exchange.here:
            raise RequestError(
                f"{exchange_name(exchange.number)} is the last exchange of queue {queue.name!r}: "
                "a queue keeps one; remove or stop the queue instead"
            )
        if queue.record.state is QueueState.STOPPED:
            _check_stopped(queue, exchange, forget=request.Forget)
            if len(queue.record.exchanges) == 1:  # of an ordered queue, and away
                raise RequestError(
                    f"queue {queue.name!r} has no other exchange: `roq queue start {queue.name}` "
                    "first, then give this one up"
                )
            record = queue.record.departing(self._departed(queue, exchange))
            yield from self._steps.note_removed(queue, exchange.number)
            yield from self._steps.save(without_exchange(record, exchange.number))
            return _exchange_done(exchange.number)
        self._steps.queues.demand_running(queue.name)
        epoch, end = 0, -1
        if exchange.here and not self._lost(queue, exchange):
            epoch, end = yield from self._empty(queue, exchange)
        problems = yield from self._remove(queue, exchange, epoch, end)
        if not queue.record.exchanges:  # its only one was given up
            try:
                yield from self._add(queue, "", lambda: self._steps.place_beside(queue), CREATION)
            except OPEN_ERRORS:
                raise
            except RequestError as error:
                when = "there is room" if isinstance(error, NoCapacity) else "a host can"
                problems.append(f"another exchange begins as soon as {when}: {error}")
        more = {"WARNING": "; ".join(problems)} if problems else {}
        return {**_exchange_done(exchange.number), **more}

    def _empty(
        self,
        queue: Queue,
        exchange: ExchangeRecord,
        seconds: float = EMPTYING_ASKS_SECONDS,
        *,
        at_once: bool = False,
        within: float = 0.0,
    ) -> Part[tuple[int, int]]:
        """Have it emptied; gives its epoch, and where its log ends (-1: nobody knows)."""
        number = exchange.number
        if not queue.monitor or self._steps.lost(queue, MONITOR):
            raise _not_empty(queue, exchange, "it does not run at the moment")
        message = Empty(
            queue_id=queue.record.queue_id, number=number, at_once=at_once, read_seconds=within
        )
        answers = yield Calls((Call(queue.record.host, queue.monitor, message, seconds),))
        match answers[0]:
            case Emptied() as emptied:
                return emptied.epoch, emptied.end
            case Done():  # a monitor of an earlier version
                return 0, -1
            case answer:
                raise _not_empty(queue, exchange, answer)

    def vacate(
        self, queue: Queue, exchange: ExchangeRecord, read_seconds: float, seconds: float
    ) -> Part[None]:
        """Remove an exchange if it is empty by now; if not, its monitor goes on emptying it.

        Args:
            queue: a running queue.
            exchange: one that is wanted.
            read_seconds: subscribers have so long to read what is left, once it has no publishers;
                nothing else is waited for within a bound.
            seconds: its monitor must answer within this.

        Raises:
            RequestError: says what it waits for.
        """
        _check_forgetting(queue, exchange, self._lost_with_log(queue, exchange), forget=False)
        epoch, end = 0, -1
        if not self._lost(queue, exchange):
            epoch, end = yield from self._empty(
                queue, exchange, seconds, at_once=True, within=read_seconds
            )
        yield from self._remove(queue, exchange, epoch, end)

    def keep(self, queue: Queue, exchanges: Iterable[ExchangeRecord]) -> list[Call]:
        """The calls that have exchanges take publishers again which were being emptied."""
        return [
            Call(
                queue.record.host,
                queue.monitor,
                Empty(queue_id=queue.record.queue_id, number=exchange.number, wanted=False),
                KEEP_SECONDS,
            )
            for exchange in exchanges
            if queue.running and queue.monitor
        ]

    def _remove(
        self, queue: Queue, exchange: ExchangeRecord, epoch: int, end: int
    ) -> Part[list[str]]:
        number = exchange.number
        record = queue.record.replacing(msgspec.structs.replace(exchange, state="removing"))
        if exchange.wanted:  # else an earlier attempt has written down how it ended
            record = record.departing(self._departed(queue, exchange, epoch, end))
        # Written down before it stops, so that a reader that misses its log finds where it ended.
        yield from self._steps.save(record)
        # A host that does not answer holds nothing up: it is told when it reports again.
        problems = yield from self._steps.stop_children(
            queue, "removed", number, (exchange.host,), erase=True, empty=exchange.away
        )  # what was given up while it was away stays on its disk, as where its host is lost
        yield from self._steps.save(without_exchange(queue.record, number))
        queue.children.pop(number, None)
        return problems

    # --- what was left half-done ------------------------------------------------------------------

    def left_over(self, queue: Queue) -> bool:
        """Whether an exchange of a running queue was left half-made or half-removed, but can be
        finished.

        That is so where the registry or a host failed in the middle, or the leader.
        """
        exchanges = queue.record.exchanges
        return _lacking(queue) > 0 or any(self._can_finish(queue, each) for each in exchanges)

    def finish(self, name: str) -> Saga:
        """Complete what was left half-done of this queue, or undo it."""
        queue = self._steps.queues.get(name)
        if queue is not None and queue.running:
            failed: RequestError | None = None
            for exchange in queue.record.exchanges:
                try:
                    if self._can_finish(queue, exchange):
                        yield from self._finish(queue, exchange)
                except OPEN_ERRORS:
                    raise
                except RequestError as error:  # the others are not kept by it
                    failed = failed or error
            yield from self._stand_in(queue)
            if failed is not None:
                raise failed
        return done()

    def stand_in(self, queue: Queue, lost: Iterable[ExchangeRecord]) -> Part[None]:
        """Go on without exchanges that are gone with their logs, and with as many as the queue was
        given. More, that scaling had made, the load asks for.

        Raises:
            NoCapacity: not for all of them is there a host.
        """
        gone = list(lost)
        record = queue.record
        for exchange in gone:
            record = record.replacing(msgspec.structs.replace(exchange, state=AWAY))
            queue.children.pop(exchange.number, None)
        yield from self._steps.save(record)
        for exchange in gone:
            name = exchange_name(exchange.number)
            why = queue.missing.get(exchange.number) or (
                f"with its log on host {exchange.host}; it is back when that host is"
            )
            text = f"queue {queue.name}: {name} is away: {why}"
            yield Emit((LogLine("exchange_away", text),))
        yield from self._stand_in(queue)

    def _stand_in(self, queue: Queue) -> Part[None]:
        for _ in range(_lacking(queue)):
            place = partial(self._steps.place_beside, queue)
            number = exchange_name((yield from self._add(queue, "", place, SCALING)))
            text = f"queue {queue.name}: {number} stands in for an exchange that is away"
            yield Emit((LogLine("exchange_stands_in", text),))

    def _can_finish(self, queue: Queue, exchange: ExchangeRecord) -> bool:
        if not exchange.wanted:
            return True
        half_made = exchange.state == "creating"
        runs = self._steps.runs(queue, exchange.number)
        if exchange.away:
            return self._steps.hosts.live(exchange.host) is not None
        return half_made and (runs or self._lost(queue, exchange))

    def _finish(self, queue: Queue, exchange: ExchangeRecord) -> Part[None]:
        name = exchange_name(exchange.number)
        if not exchange.wanted:
            # What still runs of it is stopped when its host reports it, and its log goes.
            yield from self._steps.note_removed(queue, exchange.number)
            yield from self._steps.save(without_exchange(queue.record, exchange.number))
            queue.children.pop(exchange.number, None)
            deed = f"{name} is removed, as was begun before"
        elif exchange.away:
            yield from self._steps.start_exchanges(queue, (exchange,))
            yield from self._save_created(queue, exchange.number, "")
            deed = f"{name} is back, with its log on host {exchange.host}"
        elif self._is_kept(queue, exchange):
            serves = self._steps.runs(queue, exchange.number)
            yield from self._save_created(queue, exchange.number, exchange.transaction)
            deed = f"{name} {'serves' if serves else 'is to serve'}, as was begun before"
        else:
            deed = f"{name} is given up, which was begun before and does not run"
            problem = yield from self._undo_add(queue, exchange)
            deed += f" ({problem})" * bool(problem)
        yield Emit((LogLine("queue_finished", f"queue {queue.name}: {deed}"),))

    def _departed(
        self, queue: Queue, exchange: ExchangeRecord, epoch: int = 0, end: int = -1
    ) -> DepartedRecord:
        latest = queue.epoch(exchange.number)
        if latest and (epoch != latest or end < 0):
            epoch, end = latest, -1  # another process than the one that was emptied
        elif not latest and not epoch and not queue.record.durable:
            end = 0  # it never ran, so nothing was lost with it; one with a log may have
        generation = queue.generation(exchange)
        return DepartedRecord(number=exchange.number, epoch=epoch, generation=generation, end=end)

    def _lost(self, queue: Queue, exchange: ExchangeRecord) -> bool:
        return self._steps.lost(queue, exchange.number)

    def _lost_with_log(self, queue: Queue, exchange: ExchangeRecord) -> str:
        """In which way an exchange of a running queue does not run that has a log, in a clause that
        follows its name; empty: it may be emptied, or has none."""
        if not (queue.record.durable and queue.running and exchange.here):
            return ""
        found = self._steps.loss(queue, exchange.number)
        return found.why if found is not None else ""


def _is_begun(queue: Queue, name: str) -> str:
    """What becomes of an exchange that its host has not said to run."""
    forget = f"`roq exchange forget {queue.name} {name}` gives it up"
    return f"it is started as soon as its host can; {forget}"


def _begun(queue: Queue, transaction: str) -> ExchangeRecord | None:
    """The exchange that this request has begun to make before."""
    return next(
        (
            each
            for each in queue.record.exchanges
            if transaction and each.transaction == transaction and each.wanted
        ),
        None,
    )


def _check_forgetting(queue: Queue, exchange: ExchangeRecord, lost: str, *, forget: bool) -> None:
    """What cannot be read, and may be in a log, is given up by who says so, and nothing else is.

    Args:
        lost: in which way an exchange does not run that has a log; empty: it does.
    """
    name = exchange_name(exchange.number)
    up = f"or give it up, and what it holds: roq exchange forget {queue.name} {name}"
    if exchange.away and not forget:
        where = f"its log is on host {exchange.host}: wait for that, {up}"
        why = queue.missing.get(exchange.number, where)
        raise RequestError(f"{name} of queue {queue.name!r} is away: {why}")
    if lost and not forget:
        raise RequestError(
            f"{name} of queue {queue.name!r} {lost}. Its log may hold what nobody has read: see "
            f"that it runs again, {up}"
        )
    stopped = queue.record.state is QueueState.STOPPED and queue.record.durable
    if forget and not (exchange.away or lost or stopped):
        raise RequestError(
            f"{name} of queue {queue.name!r} is not away, and runs: there is nothing to give up. "
            f"`roq exchange remove {queue.name} {name}` empties it and stops it"
        )


def _check_stopped(queue: Queue, exchange: ExchangeRecord, *, forget: bool) -> None:
    """What is in the log of a stopped queue can be read only when that runs."""
    if queue.record.durable and not (exchange.away or forget):
        raise RequestError(
            f"queue {queue.name!r} is stopped, and what is in the log of "
            f"{exchange_name(exchange.number)} can be read only when it runs: `roq queue start "
            f"{queue.name}` first"
        )


def _lacking(queue: Queue) -> int:
    """How many exchanges are to stand in for those that are away, as long as what stood in before
    is not enough. An ordered queue waits for its log, unless that was given up."""
    record = queue.record
    if record.limits.ordered:
        return int(not record.exchanges)
    return max(int(not queue.record.here), -record.surplus)


def _check_growth(queue: Queue, request: ScaleOut, rules: ElasticRules) -> None:
    begun = _begun(queue, request.transaction)
    if begun is None and len(queue.record.here) >= rules.exchanges_max:
        raise NoCapacity(
            f"queue {queue.name!r} has {len(queue.record.here)} exchanges and grows to at most "
            f"{rules.exchanges_max} by itself"
        )


def _named(queue: Queue, given: str) -> ExchangeRecord:
    """The exchange of a request that says `x2` or `2`."""
    digits = given.removeprefix("x")
    # More digits than a number ever has would be costly to read.
    fits = digits.isascii() and digits.isdigit() and len(digits) <= 9
    exchange = queue.record.exchange(int(digits)) if fits else None
    if exchange is None:
        names = ", ".join(exchange_name(each.number) for each in queue.record.exchanges)
        raise ExchangeNotFound(
            f"queue {queue.name!r} has no exchange {given[:40]!r}; there are {names}"
        )
    return exchange


def _not_empty(queue: Queue, exchange: ExchangeRecord, answer: Result) -> RequestError:
    name = exchange_name(exchange.number)
    match answer:
        case Failure():
            kind = REQUEST_ERRORS.get(answer.CODE, NotEmpty)
            return kind(f"{name} is not removed: {answer.COMMENT}")
        case str():
            return NotEmpty(
                f"{name} is not removed: the monitor of queue {queue.name!r} did not say that it "
                f"is empty ({answer})"
            )
        case _:
            return RequestError(f"the monitor of queue {queue.name!r} gave an unexpected answer")


def _exchange_done(number: int) -> dict[str, object]:
    return done(Exchange=exchange_name(number), Number=number)
