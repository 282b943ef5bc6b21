"""RoQ: an elastic queue cluster.

    import roq

    with roq.connect("127.0.0.1:5000") as cluster:
        cluster.create_queue("orders", exists_ok=True)
        with cluster.subscriber("orders", topic="eu.") as sub, cluster.publisher("orders") as pub:
            pub.publish(b"hello", topic="eu.be")
            print(sub.receive(timeout=5).payload)

`roq.aio` has the same for asyncio. Names are loaded when they are used first, so that the cluster's
own processes do not load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from roq.errors import (
    Busy,
    Closed,
    ConfigError,
    DeliveryError,
    Fenced,
    GroupNotFound,
    HostNotFound,
    Interrupted,
    InvalidName,
    InvalidRequest,
    JobExists,
    JobFailed,
    JobInterrupted,
    JobNotFound,
    JobOutdated,
    LeaseLost,
    LogMissing,
    MessageTooLarge,
    NeverRequested,
    NoCapacity,
    NoResponse,
    NotKept,
    NotLeader,
    OtherVersion,
    ProtocolError,
    QueueExists,
    QueueNotFound,
    QueueStopped,
    Reentered,
    RegistryAway,
    RequestCancelled,
    RequestDiscarded,
    RequestError,
    RequestFailed,
    RequestLate,
    RequestUnknown,
    ResponseExpired,
    ResponseForgotten,
    ResponseLost,
    ResponseRetrieved,
    RoQError,
    StaleEpoch,
    TransactionEnded,
    TransactionNotFound,
    Unavailable,
    WouldBlock,
)

if TYPE_CHECKING:
    from roq.client.admin.broadcast import ClusterState, QueueStatus, Watch
    from roq.client.admin.views import ScalingRules
    from roq.client.cluster import Cluster, connect
    from roq.client.consume.consumer import Consumer
    from roq.client.consume.groups import GroupMember, GroupPart, GroupSummary, OldestMessage
    from roq.client.consume.holding import ConsumerStats
    from roq.client.consume.message import ConsumedBatch, ConsumedMessage
    from roq.client.publish.publisher import Publisher
    from roq.client.publish.receipt import Outcome, Receipt, SendStatus
    from roq.client.publish.stats import PublisherStats
    from roq.client.request.context import RequestContext
    from roq.client.request.endpoint import Endpoint, endpoint
    from roq.client.request.handling import ServiceStats
    from roq.client.request.many import PendingMany
    from roq.client.request.pending import Pending
    from roq.client.request.requester import Requester, RequesterStats
    from roq.client.request.service import InstanceState, Service
    from roq.client.request.views import RequestDescription
    from roq.client.session.events import Cause, ClientState, StateChange
    from roq.client.subscribe.subscriber import Subscriber
    from roq.client.transact.commands import TransactionListing, TransactionSummary
    from roq.client.transact.publisher import (
        OpenTransaction,
        Transaction,
        TransactionalPublisher,
        TransactionMessage,
    )
    from roq.jobs.batches import JobBatch
    from roq.jobs.handle import JobHandle
    from roq.jobs.jobs import Jobs
    from roq.jobs.run import Job
    from roq.jobs.states import DEFAULT, HIGH, LOW, JobStatus
    from roq.jobs.types import JobType
    from roq.model import Limits
    from roq.protocol.public_answers import (
        ExchangeSummary,
        HostSummary,
        QueueDescription,
        QueueSummary,
    )
    from roq.protocol.requesting import RequestState, ServiceSettings
    from roq.protocol.transaction import Decision
    from roq.read.message import Batch, Gap, Message

__version__ = "0.1.0"

_HOMES: Final = {
    "roq.client.cluster": ("Cluster", "connect"),
    "roq.client.consume.consumer": ("Consumer",),
    "roq.client.consume.groups": ("GroupMember", "GroupPart", "GroupSummary", "OldestMessage"),
    "roq.client.consume.holding": ("ConsumerStats",),
    "roq.client.consume.message": ("ConsumedBatch", "ConsumedMessage"),
    "roq.client.publish.publisher": ("Publisher",),
    "roq.client.publish.stats": ("PublisherStats",),
    "roq.client.subscribe.subscriber": ("Subscriber",),
    "roq.read.message": ("Batch", "Gap", "Message"),
    "roq.client.publish.receipt": ("Outcome", "Receipt", "SendStatus"),
    "roq.client.request.context": ("RequestContext",),
    "roq.client.request.endpoint": ("Endpoint", "endpoint"),
    "roq.client.request.handling": ("ServiceStats",),
    "roq.client.request.many": ("PendingMany",),
    "roq.client.request.pending": ("Pending",),
    "roq.client.request.requester": ("Requester", "RequesterStats"),
    "roq.client.request.service": ("InstanceState", "Service"),
    "roq.client.request.views": ("RequestDescription",),
    "roq.client.transact.commands": ("TransactionListing", "TransactionSummary"),
    "roq.client.transact.publisher": (
        "OpenTransaction",
        "Transaction",
        "TransactionalPublisher",
        "TransactionMessage",
    ),
    "roq.client.session.events": ("Cause", "ClientState", "StateChange"),
    "roq.client.admin.views": ("ScalingRules",),
    "roq.protocol.public_answers": (
        "ExchangeSummary",
        "HostSummary",
        "QueueDescription",
        "QueueSummary",
    ),
    "roq.client.admin.broadcast": ("ClusterState", "QueueStatus", "Watch"),
    "roq.jobs.batches": ("JobBatch",),
    "roq.jobs.handle": ("JobHandle",),
    "roq.jobs.jobs": ("Jobs",),
    "roq.jobs.run": ("Job",),
    "roq.jobs.states": ("DEFAULT", "HIGH", "LOW", "JobStatus"),
    "roq.jobs.types": ("JobType",),
    "roq.model": ("Limits",),
    "roq.protocol.requesting": ("RequestState", "ServiceSettings"),
    "roq.protocol.transaction": ("Decision",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}
_MODULES: Final = frozenset({"aio", "errors", "model", "testing"})

__all__ = [
    "Batch",
    "Busy",
    "Cause",
    "ClientState",
    "Closed",
    "Cluster",
    "ClusterState",
    "ConfigError",
    "ConsumedBatch",
    "ConsumedMessage",
    "Consumer",
    "ConsumerStats",
    "DEFAULT",
    "Decision",
    "DeliveryError",
    "Endpoint",
    "ExchangeSummary",
    "Fenced",
    "Gap",
    "GroupMember",
    "GroupNotFound",
    "GroupPart",
    "GroupSummary",
    "HIGH",
    "HostNotFound",
    "HostSummary",
    "InstanceState",
    "Interrupted",
    "InvalidName",
    "InvalidRequest",
    "Job",
    "JobBatch",
    "JobExists",
    "JobFailed",
    "JobHandle",
    "JobInterrupted",
    "JobNotFound",
    "JobOutdated",
    "Jobs",
    "JobStatus",
    "JobType",
    "LeaseLost",
    "Limits",
    "LogMissing",
    "LOW",
    "Message",
    "MessageTooLarge",
    "NeverRequested",
    "NoCapacity",
    "NoResponse",
    "NotKept",
    "NotLeader",
    "OldestMessage",
    "OtherVersion",
    "OpenTransaction",
    "Outcome",
    "Pending",
    "PendingMany",
    "ProtocolError",
    "Publisher",
    "PublisherStats",
    "QueueDescription",
    "QueueExists",
    "QueueNotFound",
    "QueueStatus",
    "QueueStopped",
    "QueueSummary",
    "Receipt",
    "Reentered",
    "RegistryAway",
    "RequestCancelled",
    "RequestContext",
    "RequestDescription",
    "RequestDiscarded",
    "RequestError",
    "RequestFailed",
    "RequestLate",
    "RequestState",
    "RequestUnknown",
    "Requester",
    "RequesterStats",
    "ResponseExpired",
    "ResponseForgotten",
    "ResponseLost",
    "ResponseRetrieved",
    "RoQError",
    "ScalingRules",
    "SendStatus",
    "Service",
    "ServiceSettings",
    "ServiceStats",
    "StaleEpoch",
    "StateChange",
    "Subscriber",
    "Transaction",
    "TransactionEnded",
    "TransactionListing",
    "TransactionMessage",
    "TransactionNotFound",
    "TransactionSummary",
    "TransactionalPublisher",
    "Unavailable",
    "Watch",
    "WouldBlock",
    "__version__",
    "connect",
    "endpoint",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"roq.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'roq' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
