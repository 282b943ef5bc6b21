"""Every error that RoQ raises, in one tree; and what any error of a program says.

    RoQError
    ├── ConfigError               a configuration file or variable is wrong (names file and key)
    ├── InvalidName               a queue, host or topic name that RoQ does not accept
    ├── ProtocolError
    │   ├── LocalProtocolError    our own bug: let it crash
    │   └── RemoteProtocolError   the peer's: counted, logged at a bounded rate, dropped
    ├── RequestError              the cluster refused a request (has a code and a sentence)
    │   ├── QueueNotFound  QueueExists  QueueStopped  HostNotFound  ExchangeNotFound  NotEmpty
    │   ├── GroupNotFound  NoCapacity  StaleEpoch  NotLeader  InvalidRequest  OtherVersion  Busy
    │   ├── LogMissing            a log is not on its host, so its exchange is not started
    │   └── RegistryAway          the registry is away, so a change is refused: nothing was begun
    │       └── Interrupted       … or it went away while the change was being made
    ├── ProviderFailed            a host could not be made, listed or removed
    │   └── NoMoreHosts           the provider has given all the hosts it may
    ├── Unavailable               no answer in time; trying again may help
    ├── TransactionNotFound       no exchange has the transaction (any more)
    ├── TransactionEnded          a transaction has ended before, and otherwise
    ├── LeaseLost                 a message is not its consumer's any more
    ├── NoResponse                a request has no response, and will have none; `state` says why
    │   ├── RequestFailed  RequestDiscarded  RequestCancelled  RequestLate  RequestUnknown
    │   └── ResponseExpired  ResponseRetrieved  ResponseLost  ResponseForgotten  NeverRequested
    ├── NotKept                   what a reader was to begin with is kept no more
    ├── Closed                    the object was closed by its owner
    ├── Fenced                    a later publisher of the same name has taken this one's place
    ├── Reentered                 called by a signal handler in the middle of another call
    ├── WouldBlock                the publisher's window is full and waiting was not wanted
    ├── MessageTooLarge           above the queue's limit; nothing was sent
    ├── JobNotFound               there is no such job (any more)
    ├── JobExists                 a job with the same `unique` waits or runs
    ├── JobFailed                 a job has ended, and not well: it has no result
    ├── JobOutdated               a run of a job is not the valid one any more: drop what it did
    ├── JobInterrupted            a job is to stop: raised in it, for its handler to pass on
    └── DeliveryError             messages that were accepted but could not be delivered

`code` is for programs and stable across versions; the text is for people and says what to do.
"""

from __future__ import annotations

import traceback
from typing import ClassVar


class RoQError(Exception):
    """Base of every error that RoQ raises on purpose."""


class ConfigError(RoQError):
    """A configuration is wrong; the text lists every problem with its file and key."""


class InvalidName(RoQError):
    """A name has characters or a length that RoQ does not accept."""


class ProtocolError(RoQError):
    """Bytes or an order of messages that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """This process broke the protocol: a bug in RoQ."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow."""


class RequestError(RoQError):
    """The cluster refused a request.

    Attributes:
        code: a word for programs, the same on the wire.
    """

    code: ClassVar[str] = "failed"


class InvalidRequest(RequestError):
    """The request has a missing field, a wrong type or a value out of range."""

    code = "invalid_request"


class OtherVersion(RequestError):
    """The other side speaks another version of RoQ's wire protocol; the text names both."""

    code = "version"


class QueueNotFound(RequestError):
    """No queue of this name exists."""

    code = "queue_not_found"


class QueueExists(RequestError):
    """A queue of this name exists already."""

    code = "queue_exists"


class QueueStopped(RequestError):
    """The queue exists but is stopped; start it first."""

    code = "queue_stopped"


class HostNotFound(RequestError):
    """The named host is not registered, or its host manager is away."""

    code = "host_not_found"


class ExchangeNotFound(RequestError):
    """The queue has no exchange of this name."""

    code = "exchange_not_found"


class GroupNotFound(RequestError):
    """The queue has no consumer group of this name."""

    code = "no_group"


class NotEmpty(RequestError):
    """The exchange is being emptied and not empty yet; the same request again goes on waiting."""

    code = "not_empty"


class NoCapacity(RequestError):
    """No host can take another exchange or monitor."""

    code = "no_capacity"


class Busy(RequestError):
    """Too much is under way; nothing was begun, and the same request may be repeated later."""

    code = "busy"


class LogMissing(RequestError):
    """The log of an exchange is not on its host at the moment; it is not started without it."""

    code = "log_missing"


class StaleEpoch(RequestError):
    """The sender acts on an ownership that has passed to another."""

    code = "stale_epoch"


class RegistryAway(RequestError):
    """The registry cannot be reached, so changes are refused; data keeps flowing.

    Nothing was begun, unless it is an `Interrupted`.
    """

    code = "registry_away"


class Interrupted(RegistryAway):
    """The registry went away during a change: it may be done, or be completed later."""

    code = "interrupted"


class NotLeader(RequestError):
    """This configuration manager does not lead.

    Attributes:
        endpoint: where the leader answers the same request, empty when unknown.
    """

    code = "not_leader"

    def __init__(self, text: str, endpoint: str = "") -> None:
        super().__init__(text)
        self.endpoint = endpoint


class ProviderFailed(RoQError):
    """A provider could not make, list or remove a host; trying again may help."""


class NoMoreHosts(ProviderFailed):
    """The provider has given all the hosts it may; another one needs one of them removed."""


class NoResponse(RoQError):
    """A request has ended without a response, or its response is not there.

    Attributes:
        state: a word for programs, the state of the request.
    """

    state: ClassVar[str] = ""


class RequestFailed(NoResponse):
    """The handler has raised, for the last time; the text is what it has raised."""

    state = "failed"


class RequestDiscarded(NoResponse):
    """No instance of the service has taken the request; the text names the reason."""

    state = "discarded"


class RequestCancelled(NoResponse):
    """The request was cancelled before it had ended."""

    state = "cancelled"


class RequestLate(NoResponse):
    """The request had no result within its time."""

    state = "late"


class RequestUnknown(NoResponse):
    """The request was begun and its instance or exchange was lost: it may have run, or not."""

    state = "unknown"


class ResponseExpired(NoResponse):
    """There was a response, and nobody has fetched it in time."""

    state = "expired"


class ResponseRetrieved(NoResponse):
    """There was a response, and it was fetched already."""

    state = "retrieved"


class ResponseLost(NoResponse):
    """The exchange that had the request is gone, with all that it knew."""

    state = "lost"


class ResponseForgotten(NoResponse):
    """The request has ended, and how is not remembered any more."""

    state = "forgotten"


class NeverRequested(NoResponse):
    """There was no request of this id."""

    state = "never"


class NotKept(RoQError):
    """What a reader was to begin with is not kept any more."""


class Unavailable(RoQError):
    """No answer came in time; trying again may help."""


class TransactionNotFound(RoQError):
    """No exchange has this transaction: it has ended long ago, or was lost with its log."""


class TransactionEnded(RoQError):
    """This transaction has ended before, and not as was wanted."""


class LeaseLost(RoQError):
    """A message is not its consumer's any more: it will be, or was, tried by another one."""


class Closed(RoQError):
    """The publisher, subscriber or cluster was closed."""


class Fenced(RoQError):
    """Another publisher of the same name was opened later; this one publishes nothing any more."""


class Reentered(RoQError):
    """The client was called in the middle of its own work, in the same thread; nothing was done.

    By a signal handler, a `__del__` method or a logging handler.
    """


class WouldBlock(RoQError):
    """The window of unacknowledged batches is full and the caller did not want to wait."""


class MessageTooLarge(RoQError):
    """A payload is above the limit of the queue; it was not sent and used no sequence.

    Attributes:
        limit: so many bytes it may have, attributes included; 0: that is not known.
    """

    limit: int = 0


class JobNotFound(RoQError):
    """No job has this id; jobs that are COMPLETE are deleted after a day."""


class JobExists(RoQError):
    """A job of the type with the same `unique` waits or runs already; nothing was submitted.

    Attributes:
        id: of that job.
    """

    def __init__(self, text: str, id: int = 0) -> None:  # noqa: A002 - as everywhere for jobs
        super().__init__(text)
        self.id = id


class JobFailed(RoQError):
    """A job has ended as FAILED, INTERRUPTED or TIMED_OUT, so it has no result.

    Attributes:
        status: how it has ended.
    """

    def __init__(self, text: str, status: str = "") -> None:
        super().__init__(text)
        self.status = status


class JobOutdated(RoQError):
    """This run of a job is not the valid one any more: its owner was taken for dead, or it is done.

    Roll back what was to be committed with it.
    """


class JobInterrupted(RoQError):
    """The job is to stop: it was interrupted, is over its time, or its instance ends.

    Raised in the handler by `Job.check` and `Job.each`. Let it pass.
    """


class DeliveryError(RoQError):
    """Messages that the publisher accepted could not be delivered.

    Attributes:
        messages: how many.
        outcome: what became of them, as `Outcome` names it; empty: they had different fates.
    """

    def __init__(self, text: str, messages: int, outcome: str = "") -> None:
        super().__init__(text)
        self.messages = messages
        self.outcome = outcome


_REQUEST_ERRORS: list[type[RequestError]] = [
    RequestError,
    *RequestError.__subclasses__(),
    Interrupted,
]
REQUEST_ERRORS = {error.code: error for error in _REQUEST_ERRORS}
"""From the code on the wire to the exception that a client raises."""

NO_RESPONSES = {error.state: error for error in NoResponse.__subclasses__()}
"""From the state of a request to the exception that tells of it."""


def brief(error: BaseException) -> str:
    """The class and text of an error of a user's program, whatever it does when it is asked."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - the program's own
        return f"{type(error).__name__}, which cannot be printed"


def whole(error: BaseException) -> str:
    """The same with its traceback, for which a SyntaxError, say, is asked as well."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as second:  # noqa: BLE001 - the program's own
        return f"{brief(error)} (its trace cannot be made: {type(second).__name__})"
