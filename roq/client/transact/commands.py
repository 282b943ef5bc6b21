"""Transactions, as methods of `roq.Cluster`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, TypeVar

import msgspec

from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import Answers, ask_all, told
from roq.client.publish.publisher import Publisher
from roq.client.transact.publisher import (
    Check,
    Terms,
    TransactionalPublisher,
    TransactionMessage,
    check_terms,
    messages_of_half,
)
from roq.client.transact.shell import ProducerShell
from roq.errors import (
    InvalidName,
    InvalidRequest,
    RemoteProtocolError,
    TransactionEnded,
    TransactionNotFound,
    Unavailable,
)
from roq.model import check_count, check_name
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.delayed import MESSAGE_ID_BYTES
from roq.protocol.public_answers import QueueDescription
from roq.protocol.transaction import (
    LISTED_MAX,
    SETTLE,
    TRANSACTIONS,
    Decision,
    Fate,
    Settle,
    Settled,
    Transactions,
    TransactionsQuery,
    TransactionState,
    decode_half,
    split_document,
)

_REQUEST: Final = 1
T = TypeVar("T")
S = TypeVar("S", Transactions, Settled)


class TransactionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction, as its exchange has it."""

    id: str
    exchange: str
    state: str
    """`open`; `kept`: open, and left to a person; `committed`; `rolled_back`."""
    group: str = ""
    """Of its producers; empty: it has ended, or its exchange has started just now."""
    seconds: float = 0.0
    """For so long it is open, as far as this process of its exchange has seen it."""
    attempts: int = 0
    """So often has a producer been asked by this process, and has not known it."""
    next_seconds: float = 0.0
    """Until somebody is asked again."""
    size: int = 0
    """Bytes."""
    messages: list[TransactionMessage] = []
    """Of one that is open and was asked for by its id."""


class TransactionListing(msgspec.Struct, frozen=True, kw_only=True):
    """The open transactions of a queue; counts are of all exchanges that have answered."""

    transactions: list[TransactionSummary]
    """Those that are open for longest, in order."""
    open: int
    kept: int
    """Of those that are open: left to a person."""
    producers: int
    """That may be asked; one counts at each exchange."""
    prepared: int
    """Since the processes of the exchanges have started, as the following."""
    committed: int
    rolled_back: int
    checked: int
    """Producers that were asked."""
    by_policy: int
    """Transactions that have ended by what is done when nobody knows."""
    missing: dict[str, str]
    """Exchanges that have not answered, and why; empty: the answer is complete."""


class TransactionCommands(ABC):
    """What a client does with transactions."""

    _engine: Engine
    _timeout: float

    @property
    @abstractmethod
    def addresses(self) -> list[str]:
        """Client endpoints of the configuration managers that are known by now."""

    @abstractmethod
    def publisher(self, queue: str, *, timeout: float = ..., linger: float = ...) -> Publisher:
        """A publisher to a queue."""

    @abstractmethod
    def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""

    @abstractmethod
    def _seconds(self, timeout: float | None) -> float:
        """A time limit, or that of the connection."""

    @abstractmethod
    def _adopt(self, child: T) -> T:
        """Close this in the end."""

    def transactional_publisher(
        self,
        queue: str,
        group: str,
        check: Check,
        *,
        check_after: float = 60.0,
        attempts: int = 16,
        patience: float = 7 * 86_400.0,
        otherwise: str = "rollback",
        timeout: float = 30.0,
    ) -> TransactionalPublisher:
        """Publishes messages that nobody sees until the program's own work is done.

            with cluster.transactional_publisher("orders", "checkout", was_paid) as publisher:
                with publisher.prepare(b"paid", topic="eu.be", key="4711"):
                    ...  # the work itself; an exception rolls back

        Args:
            queue: name of the queue.
            group: of producers, a name as that of a queue; any of them is asked about what any
                other has prepared.
            check: told an `OpenTransaction`, says whether the work that it belongs to was done:
                `Decision.COMMIT`, `ROLLBACK`, or `UNKNOWN` (also None), and then it is asked again.
                It is called in a thread of its own, one call at a time, about transactions that
                this process does not know: of others, or of earlier processes. What it raises is
                logged and counts as unknown.
            check_after: seconds in which nothing was heard of a transaction, after which somebody
                is asked. Then twice as many pass, and so on up to ten minutes.
            attempts: so often are producers asked that do not know, or do not answer.
            patience: for so many seconds nobody of the group is there at all.
            otherwise: what is done after that: `rollback`, `commit`, or `keep` it for a person.
            timeout: seconds that preparing and ending a transaction may take.

        Raises:
            InvalidName, InvalidRequest: that cannot be.
            Unavailable: the exchanges of the queue are not known in time.
            RoQError: as `publisher`.
        """
        check_name(group, "group of producers")
        terms = check_terms(Terms(check_after, attempts, patience, otherwise))
        # A batch of half messages waits for no others: who prepares one waits for it.
        publisher = self.publisher(queue, timeout=timeout, linger=0.0)
        try:
            made = TransactionalPublisher(
                publisher,
                lambda ask: ProducerShell(
                    self._engine, self.addresses, queue, group, publisher.id, ask
                ),
                group=group, check=check, terms=terms, timeout=timeout,
            )  # fmt: skip
        except BaseException:
            publisher.abort()
            raise
        return self._adopt(made)

    def transactions(
        self, queue: str, group: str = "", *, most: int = 100, timeout: float | None = None
    ) -> TransactionListing:
        """The open transactions of a queue, and what has become of others.

        Args:
            group: only of these producers are listed; empty: of all.
            most: so many are listed, at most 1,000.
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Raises:
            Unavailable: nobody has answered.
            QueueStopped: the queue does not run.
        """
        most = min(check_count("most", most, 0), LISTED_MAX)
        described = self.describe(queue)
        query = TransactionsQuery(
            id=_REQUEST, queue=bytes.fromhex(described.queue_id), group=group, most=most
        )
        answers = ask_all(self._engine, described, TRANSACTIONS, query, self._seconds(timeout))
        found, missing = _read(answers, TRANSACTIONS, Transactions)
        if missing and not found:
            raise Unavailable(f"transactions of queue {queue} are not known: {told(missing)}")
        rows = [
            _summary(name, state) for name, each in found.items() for state in each.transactions
        ]
        rows.sort(key=lambda row: -row.seconds)
        figures = [each.figures for each in found.values()]
        return TransactionListing(
            transactions=rows[:most], missing=missing,
            open=sum(each.open for each in figures), kept=sum(each.kept for each in figures),
            producers=sum(each.producers for each in figures),
            prepared=sum(each.prepared for each in figures),
            committed=sum(each.committed for each in figures),
            rolled_back=sum(each.rolled_back for each in figures),
            checked=sum(each.checked for each in figures),
            by_policy=sum(each.by_policy for each in figures),
        )  # fmt: skip

    def transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> TransactionSummary:
        """One transaction: with its messages if it is open, else how it has ended.

        Raises:
            InvalidName: that cannot be an id.
            TransactionNotFound: no exchange knows it.
            Unavailable: it was not found, and not every exchange has answered.
            QueueStopped: the queue does not run.
        """
        name = _id(transaction)
        described = self.describe(queue)
        query = TransactionsQuery(
            id=_REQUEST, queue=bytes.fromhex(described.queue_id), transaction=name
        )
        answers = ask_all(self._engine, described, TRANSACTIONS, query, self._seconds(timeout))
        found, missing = _read(answers, TRANSACTIONS, Transactions)
        for exchange, each in found.items():
            for state in each.transactions:
                if state.fate is not Fate.NOT_HERE:
                    return _summary(
                        exchange, state, split_document(answers.letters[exchange][1])[1]
                    )
        if missing:
            raise Unavailable(
                f"transaction {transaction} of queue {queue} was not found, but {told(missing)}. "
                "Repeat it"
            )
        raise TransactionNotFound(
            f"no exchange of queue {queue} knows transaction {transaction}: it has ended long ago, "
            "or there never was one"
        )

    def commit_transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> None:
        """Have an open transaction be committed, whatever its producers say.

        Raises:
            TransactionEnded: it was rolled back before.
            RoQError: as `transaction`.
        """
        self._settle(queue, transaction, Decision.COMMIT, self._seconds(timeout))

    def rollback_transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> None:
        """Have an open transaction be rolled back; as `commit_transaction`, and raises likewise."""
        self._settle(queue, transaction, Decision.ROLLBACK, self._seconds(timeout))

    def _settle(self, queue: str, transaction: str, decision: Decision, seconds: float) -> None:
        wanted = Fate.COMMITTED if decision is Decision.COMMIT else Fate.ROLLED_BACK
        there = self.transaction(queue, transaction, timeout=seconds)
        fate = there.state
        if fate in {"open", "kept"}:
            if not there.group:
                raise Unavailable(f"exchange {there.exchange} does not give it now: repeat it")
            described = self.describe(queue)
            settle = Settle(
                id=_REQUEST, queue=bytes.fromhex(described.queue_id), group=there.group,
                ends=[(bytes.fromhex(transaction), decision)],
            )  # fmt: skip
            answers = ask_all(self._engine, described, SETTLE, settle, seconds)
            found, missing = _read(answers, SETTLE, Settled)
            fates = found[there.exchange].fates if there.exchange in found else []
            if len(fates) != 1 or fates[0] not in {Fate.COMMITTED, Fate.ROLLED_BACK}:
                why = told(missing) or (f"it says {fates[0]}" if fates else "it says nothing")
                raise Unavailable(
                    f"{decision} of transaction {transaction} of queue {queue}: exchange "
                    f"{there.exchange} has not done it: {why}. Repeat it"
                )
            fate = fates[0]
        if fate != wanted:
            raise TransactionEnded(
                f"transaction {transaction} of queue {queue} was {fate.replace('_', ' ')} before"
            )


def _id(transaction: str) -> bytes:
    try:
        name = bytes.fromhex(transaction)
    except (TypeError, ValueError):
        name = b""
    if len(name) != MESSAGE_ID_BYTES:
        raise InvalidName(
            f"{transaction!r:.80} is no id of a transaction: that has {2 * MESSAGE_ID_BYTES} "
            "hexadecimal digits"
        )
    return name


def _summary(exchange: str, state: TransactionState, half: bytes = b"") -> TransactionSummary:
    word = "kept" if state.kept else str(state.fate)
    messages: list[TransactionMessage] = []
    group = state.group
    if half:
        decoded = decode_half(half)
        messages, group = messages_of_half(decoded), decoded.group
    return TransactionSummary(
        id=state.transaction.hex(), exchange=exchange, state=word, group=group,
        seconds=state.seconds, attempts=state.attempts, next_seconds=state.next_seconds,
        size=state.size, messages=messages,
    )  # fmt: skip


def _read(answers: Answers, letter: bytes, kind: type[S]) -> tuple[dict[str, S], dict[str, str]]:
    """What exchanges say, and why others say nothing."""
    found: dict[str, S] = {}
    missing = dict(answers.missing)
    for name, parts in answers.letters.items():
        try:
            if parts[0] == letter and len(parts) == 2:
                found[name] = documents.decode(split_document(parts[1])[0], kind)
            elif parts[0] == REFUSED:
                refused = documents.decode(parts[-1], Refused)
                if refused.code == InvalidRequest.code:
                    raise InvalidRequest(refused.text)
                missing[name] = f"{refused.text} ({refused.code})"
            else:
                missing[name] = "its answer is none"
        except RemoteProtocolError as error:
            missing[name] = f"its answer cannot be read: {error}"
    return found, missing
