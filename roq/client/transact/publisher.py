"""A publisher of transactions, and one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self, cast

from roq.client.publish.batching import Payload, as_bytes
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import PENDING, SendStatus, failure
from roq.client.transact.machine import Asked
from roq.client.transact.shell import ProducerShell
from roq.errors import (
    InvalidRequest,
    RoQError,
    TransactionEnded,
    TransactionNotFound,
    Unavailable,
)
from roq.model import check_count, check_seconds, encode_topic, shown, wait_seconds
from roq.protocol.attributes import Attributes, attributes_of, pack_attributes
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed
from roq.protocol.transaction import (
    ATTEMPTS_MAX,
    CHECK_SECONDS_MAX,
    MESSAGES_MAX,
    OPEN_US,
    PATIENCE_SECONDS_MAX,
    Decision,
    Fate,
    Half,
    Policy,
    attributes_of_half,
    encode_half,
)

TOPIC: Final = DELAYED_TOPIC.decode()
CLOSE_SECONDS: Final = 5.0
_OTHERWISE: Final = ("rollback", "commit", "keep")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TransactionMessage(NamedTuple):
    """One message of a transaction, as `Publisher.publish` takes it."""

    payload: Payload
    topic: str = ""
    key: str | None = None
    tags: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    priority: int = 0


class OpenTransaction(NamedTuple):
    """A transaction of the group, of which an exchange has not heard; what a check is asked about.

    It may be of another process, or of an earlier one.
    """

    id: str
    messages: list[TransactionMessage]
    group: str
    publisher: str
    """Id of the publisher that has prepared it, hexadecimal."""
    prepared: datetime
    attempt: int
    """So often has its exchange asked; counted from 1 by each process of the exchange."""


Check = Callable[[OpenTransaction], Decision | None]
"""Says what has become of a transaction: whether the work that it belongs to was done."""


class Terms(NamedTuple):
    """What exchanges do while they hear nothing of a transaction; see
    `Cluster.transactional_publisher`."""

    check_after: float = 60.0
    attempts: int = 16
    patience: float = 7 * 86_400.0
    otherwise: str = "rollback"


class Transaction:
    """Messages that an exchange keeps and nobody sees. Thread-safe; a context manager.

    Leaving the block commits, and an exception in it rolls back. Made by
    `TransactionalPublisher.prepare`.
    """

    def __init__(
        self, shell: ProducerShell, name: bytes, status: SendStatus, timeout: float
    ) -> None:
        self._shell = shell
        self._name = name
        self._status = status
        self._timeout = timeout
        self._told: Future[Fate] | None = None
        self._decision: Decision | None = None

    @property
    def id(self) -> str:
        """By which `roq transaction` knows it, and `roq.transaction.id` of its messages tells
        it."""
        return self._name.hex()

    @property
    def exchange(self) -> str:
        """Which exchange keeps it."""
        return self._status.exchange

    @property
    def decision(self) -> Decision | None:
        """What was decided here; None: nothing yet. Whether that is kept tells `commit`."""
        return self._decision

    def commit(self, timeout: float | None = None) -> None:
        """Have its messages published; returns when that is kept as safely as any message.

        It may be repeated, and does nothing then.

        Args:
            timeout: seconds; None: as the publisher's.

        Raises:
            Unavailable: its exchange did not answer in time. It goes on being told as long as the
                publisher is open; after that the exchange asks somebody of the group.
            TransactionEnded: it was rolled back before, by a check, a policy or an operator.
            TransactionNotFound: its exchange does not know it any more, or is gone with its log.
            InvalidRequest: it was rolled back here.
        """
        self._end(Decision.COMMIT, timeout)

    def rollback(self, timeout: float | None = None) -> None:
        """Have its messages never be published; as `commit`, and raises likewise."""
        self._end(Decision.ROLLBACK, timeout)

    def leave_open(self) -> None:
        """Decide nothing: its exchange asks the check of somebody in the group.

        For who cannot tell whether its work was done, as when a database has not answered.
        """
        if self._decision is None:
            self._decision = Decision.UNKNOWN
            self._shell.leave_open(self._name)

    def __del__(self) -> None:
        if self._decision is None:  # nobody can decide it here any more
            self._shell.leave_open(self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._decision is not None:
            return
        if kind is None:
            self.commit()
            return
        # What is raised in the block goes on; the exchange is told as soon as it can be.
        with suppress(RoQError):
            self.rollback(min(self._timeout, CLOSE_SECONDS))

    def _end(self, decision: Decision, timeout: float | None) -> None:
        seconds = wait_seconds(timeout, self._timeout)
        self._shell.check_process()
        with self._shell.deciding:
            if self._told is None:
                self._decision = decision
                self._told = self._shell.decide(self._status.log, self._name, decision)
            elif self._decision is not decision:
                raise InvalidRequest(f"transaction {self.id}: {self._decision} was decided before")
        try:
            fate = self._told.result(seconds)
        except FutureTimeoutError:
            why = self._shell.trouble or "it is slow"
            raise Unavailable(
                f"transaction {self.id}: exchange {self.exchange} has not answered in {seconds:g} "
                f"s ({why}); it goes on being told, and asks if it hears nothing"
            ) from None
        if fate is (Fate.COMMITTED if decision is Decision.COMMIT else Fate.ROLLED_BACK):
            return
        if fate in {Fate.COMMITTED, Fate.ROLLED_BACK}:
            raise TransactionEnded(
                f"transaction {self.id} was {fate.replace('_', ' ')} before, by a check of its "
                "group, by its policy or by an operator"
            )
        raise TransactionNotFound(
            f"exchange {self.exchange} does not have transaction {self.id}: it has ended long ago, "
            "or was lost with its log"
        )

    def __repr__(self) -> str:
        return f"<roq.Transaction {self.id} at {self.exchange}: {self._decision or 'open'}>"


class TransactionalPublisher:
    """Publishes messages that nobody sees until the program's own work is done. Thread-safe; a
    context manager. Made by `Cluster.transactional_publisher`.

    Args:
        publisher: sends the half messages; this closes it.
        open_shell: makes what tells exchanges, and is asked by them; it is given the check.
        group: of producers: any of them may be asked about a transaction of any other.
        check: says what has become of a transaction; see `Cluster.transactional_publisher`.
        terms: what exchanges do while they hear nothing.
        timeout: seconds that preparing and ending a transaction may take.
    """

    def __init__(
        self,
        publisher: Publisher,
        open_shell: Callable[[Callable[[Asked], Decision]], ProducerShell],
        *,
        group: str,
        check: Check,
        terms: Terms,
        timeout: float,
    ) -> None:
        self.queue = publisher.queue
        self.group = group
        self.timeout = timeout
        self._publisher = publisher
        self._check = check
        self._terms = terms
        self._closed = False
        # A half message is in one log: were it in two, both might publish it.
        links = publisher._shell.machine.links  # noqa: SLF001 - made for this
        links.replay.keep_nothing()
        links.bound.topics.add(TOPIC)
        self._shell = open_shell(self._ask)
        try:
            self._shell.need_exchanges(timeout)
        except BaseException:
            self._shell.close()
            raise

    def prepare(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Transaction:
        """Have an exchange keep one message that nobody sees until it is committed.

        Args:
            payload, topic, key, tags, properties, priority: as in `Publisher.publish`.
            timeout: seconds; None: as the publisher's.

        Raises:
            DeliveryError: no exchange keeps it, or it is not known. Then it is rolled back should
                one have it: prepare it again.
            RoQError: as `Publisher.publish`.
        """
        message = TransactionMessage(payload, topic, key, tags or (), properties or {}, priority)
        return self.prepare_many([message], timeout=timeout)

    def prepare_many(
        self, messages: Sequence[TransactionMessage], *, timeout: float | None = None
    ) -> Transaction:
        """The same with several messages: all of them are published, or none.

        They go through this queue, under any topics, and together are no larger than one message
        may be.

        Args:
            messages: 1 to 100.
            timeout: seconds; None: as the publisher's.

        Raises:
            InvalidRequest: none, or too many.
            RoQError: as `prepare`.
        """
        seconds = wait_seconds(timeout, self.timeout)
        half = encode_half(self._half(messages))
        name = self._shell.begin()
        data = encode_delayed(Delayed(OPEN_US, b"", half, name))
        status = PENDING
        try:
            status = self._publisher.publish_raw(data, TOPIC).wait(seconds)
        finally:
            if not status.ok:
                self._shell.forget(name)
        if not status.ok:
            raise failure(status, 1)
        return Transaction(self._shell, name, status, self.timeout)

    def _half(self, messages: Sequence[TransactionMessage]) -> Half:
        if not 1 <= len(messages) <= MESSAGES_MAX:
            raise InvalidRequest(
                f"a transaction has 1 to {MESSAGES_MAX} messages, not {len(messages)}"
            )
        given: dict[int, Attributes] = {}
        for index, each in enumerate(messages):
            attributes = attributes_of(each.key, each.tags, each.properties, each.priority)
            if attributes is not None:
                given[index] = attributes
        terms = self._terms
        return Half(
            self.group, [(encode_topic(each.topic), as_bytes(each.payload)) for each in messages],
            pack_attributes(given) if given else b"", terms.check_after, terms.attempts,
            terms.patience, cast("Policy", terms.otherwise),
        )  # fmt: skip

    @property
    def trouble(self) -> str:
        """Why nothing goes on; empty: all is well."""
        return self._publisher.trouble or self._shell.trouble

    def close(self, timeout: float | None = None) -> None:
        """End; what is open is left to the checks of others in the group. Idempotent.

        Args:
            timeout: seconds for half messages that are on their way; None: the publisher's.
        """
        if self._closed:
            return
        wait_seconds(timeout)  # refused before anything is closed
        self._closed = True
        try:
            self._publisher.close(timeout)
        finally:
            with suppress(RoQError):
                self._shell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(None if kind is None else CLOSE_SECONDS)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<roq.TransactionalPublisher of {self.queue}, group {self.group}: {state}>"

    def _ask(self, asked: Asked) -> Decision:
        """Have the program say it; anything that is no decision is none."""
        said = self._check(opened(asked))
        return Decision.UNKNOWN if said is None else Decision(said)


def opened(asked: Asked) -> OpenTransaction:
    """A transaction as a check is asked about it."""
    head = asked.head
    return OpenTransaction(
        head.transaction.hex(), messages_of_half(asked.half), asked.half.group,
        head.publisher.hex(),
        _EPOCH + timedelta(microseconds=head.prepared_us), head.attempt,
    )  # fmt: skip


def messages_of_half(half: Half) -> list[TransactionMessage]:
    """The messages of a transaction, as they were given."""
    return [
        TransactionMessage(
            payload, topic.decode(), given.key, given.tags, given.properties, given.priority
        )
        for (topic, payload), given in zip(half.messages, attributes_of_half(half), strict=True)
    ]


def check_terms(terms: Terms) -> Terms:
    """Terms that may be.

    Raises:
        InvalidRequest: they may not.
    """
    if terms.otherwise not in _OTHERWISE:
        raise InvalidRequest(
            f"otherwise is one of {', '.join(_OTHERWISE)}, not {shown(terms.otherwise)}"
        )
    return Terms(
        check_seconds("check_after", terms.check_after, 0, CHECK_SECONDS_MAX, above=True),
        check_count("attempts", terms.attempts, 1, ATTEMPTS_MAX),
        check_seconds("patience", terms.patience, 0, PATIENCE_SECONDS_MAX, above=True),
        terms.otherwise,
    )
