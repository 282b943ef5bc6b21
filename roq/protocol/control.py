"""The messages between RoQ's own processes and clients: BSON documents with a `CMD`.

One document is one frame; requests go from a DEALER to a ROUTER. A request carries an `id` that the
answer repeats, so requests may overlap and a late answer is recognised. An answer has `RESULT` (0
OK, 1101 failed, 8 not the leader); a failed one is a `Failure`.

    asks            whom                        what
    client          GCM, client port            2000 (public), 3000 ClusterInfo, 3001 Locate
    host manager    GCM, client port            3010 HostReport, every second and at each change
    GCM             host manager                3100 StartMonitor, 3101 StartExchange, …
    child process   its host manager            3110 ChildReport, every second
    exchange        monitor                     3200 ExchangeReport, every KPI period
    publisher       monitor                     3210 Attach
    subscriber      monitor                     3212 Join
    any client      monitor                     3214 Alive, every two seconds; 3216 Leave
    monitor         its clients (pushed)        3213 Topology, 3215 Version every second

Everything pushed has a version; who sees a jump asks again with `Join` or `Attach`.
"""

from __future__ import annotations

import builtins
from typing import Final

import msgspec

from roq.model import ExchangeInfo, Limits

OK: Final = 0
NOT_LEADER: Final = 8
FAILED: Final = 1101


class Control(msgspec.Struct, frozen=True, kw_only=True, tag_field="CMD"):
    """Base of every control message."""

    id: int = 0
    """Repeated in the answer; 0 for pushed messages."""


class Failure(Control, frozen=True, kw_only=True, tag=3999):
    """A request was refused."""

    RESULT: int
    COMMENT: str
    """A sentence for people."""
    CODE: str = "failed"
    """The word for programs: `RequestError.code`."""
    ENDPOINT: str = ""
    """Where the leader answers, when RESULT is 8."""


class Done(Control, frozen=True, kw_only=True, tag=3998):
    """A request that has nothing to tell but that it worked."""

    RESULT: int = OK


# --- GCM, client port -----------------------------------------------------------------------------


class ClusterInfoRequest(Control, frozen=True, kw_only=True, tag=3000):
    """Where are the other interfaces of this cluster?"""


class ClusterInfo(Control, frozen=True, kw_only=True, tag=3500):
    """Addresses as seen by this configuration manager."""

    RESULT: int = OK
    cluster: str
    leader: bool
    client: str
    management: str
    broadcast: str
    managers: list[str] = []
    """Client addresses of all configuration managers, the leader first."""


class LocateRequest(Control, frozen=True, kw_only=True, tag=3001):
    """Where is the monitor of this queue?"""

    QName: str


class Located(Control, frozen=True, kw_only=True, tag=3501):
    """A queue that runs. A stopped one is a Failure with code `queue_stopped`."""

    RESULT: int = OK
    QName: str
    queue_id: bytes
    monitor: str
    statistics: str
    limits: Limits


class ChildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A child process as its host manager sees it."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    """`monitor` or `exchange`."""
    queue: str
    queue_id: bytes
    number: int = 0
    """The exchange's number; 0 for a monitor."""
    epoch: int
    state: str
    """`starting`, `running`, `restarting`, `failed`, `stopping`."""
    pid: int = 0
    control: str = ""
    """A monitor's address for clients and exchanges; empty until it runs."""
    statistics: str = ""
    data: str = ""
    live: str = ""
    restarts: int = 0
    reason: str = ""
    """Why it is not running, in a sentence."""


class HostReport(Control, frozen=True, kw_only=True, tag=3010):
    """A host manager tells how it is; the first one registers it."""

    cluster: str = ""
    """Empty until the first answer has named it."""
    host: str
    """Host id: the advertised address."""
    epoch: int
    control: str
    """Address where the host manager takes commands."""
    exchange_max: int = 0
    """Exchanges that may run here; 0: no limit."""
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    children: list[ChildInfo] = []


class HostReportAck(Control, frozen=True, kw_only=True, tag=3510):
    """The answer of the leading configuration manager."""

    RESULT: int = OK
    cluster: str
    monitors: dict[str, str] = {}
    """Queue → control address of its monitor, for the queues that have an exchange on this host."""


# --- host manager ---------------------------------------------------------------------------------


class StartMonitor(Control, frozen=True, kw_only=True, tag=3100):
    """Start the monitor of a queue; answered (Started) once it runs. Idempotent by queue id."""

    queue: str
    queue_id: bytes
    leader_epoch: int
    limits: Limits
    restarted: bool = False
    """Exchanges of the queue may run already, and must not be taken for gone."""


class StartExchange(Control, frozen=True, kw_only=True, tag=3101):
    """Start an exchange; answered (Started) once it runs. Idempotent by queue id and number."""

    queue: str
    queue_id: bytes
    number: int
    leader_epoch: int
    monitor: str
    limits: Limits


class Started(Control, frozen=True, kw_only=True, tag=3600):
    """The child runs; its addresses stand in `child`."""

    RESULT: int = OK
    child: ChildInfo


class StopQueue(Control, frozen=True, kw_only=True, tag=3102):
    """Stop the children of a queue on this host; answered (Done) once all are gone.

    `queue_id` empty: whatever id. `number`: that exchange alone; -1: monitor and all exchanges.
    """

    queue: str
    queue_id: bytes = b""
    number: int = -1
    leader_epoch: int
    reason: str = "stopped"
    """`stopped` or `removed`; monitors pass it on to their clients."""


class Inventory(Control, frozen=True, kw_only=True, tag=3103):
    """Which children run here? Answered by a HostReport."""


class ChildReport(Control, frozen=True, kw_only=True, tag=3110):
    """A child tells that it runs (the first one: that it is ready) and where."""

    child: ChildInfo


class ChildAck(Control, frozen=True, kw_only=True, tag=3610):
    """The host manager's answer to a child.

    `action`: `keep`, or `stop` when the host manager does not want this child (any more).
    """

    RESULT: int = OK
    action: str = "keep"
    monitor: str = ""
    """For an exchange: where its monitor is now; empty: unchanged."""
    reason: str = ""


# --- monitor --------------------------------------------------------------------------------------


class PublisherLoad(msgspec.Struct, frozen=True, array_like=True):
    """What one publisher brought to an exchange since it joined."""

    publisher: builtins.bytes  # the plain name means the field below
    messages: int
    bytes: int
    """Payload bytes, headers included in `batch_bytes` only."""


class ExchangeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one exchange since its start, and its present state."""

    messages_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    publishers: int = 0
    subscribers: int = 0
    ring_bytes: int = 0
    end_offset: int = 0
    floor_offset: int = 0
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    malformed: int = 0
    """Messages that were refused because they could not be read."""
    duplicates: int = 0
    resets: int = 0
    fetches: int = 0


class ExchangeReport(Control, frozen=True, kw_only=True, tag=3200):
    """An exchange tells its monitor where and how it is; the first one makes it known."""

    queue_id: bytes
    exchange: ExchangeInfo
    load: ExchangeLoad
    top: list[PublisherLoad] = []
    """The busiest publishers."""
    stopping: bool = False


class ExchangeAck(Control, frozen=True, kw_only=True, tag=3700):
    """The monitor knows; `code` is `stale_epoch` if a newer process has taken this exchange
    over."""

    RESULT: int = OK
    code: str = ""


class Attach(Control, frozen=True, kw_only=True, tag=3210):
    """A publisher asks where to publish. Answered (Assigned) as soon as an exchange serves."""

    queue_id: bytes
    publisher: bytes
    failed: list[tuple[int, int]] = []
    """(number, epoch) of exchanges that the publisher could not reach or has lost."""


class Assigned(Control, frozen=True, kw_only=True, tag=3710):
    """Publish at this exchange, under this epoch."""

    RESULT: int = OK
    exchange: ExchangeInfo
    epoch: int
    limits: Limits


class Join(Control, frozen=True, kw_only=True, tag=3212):
    """A subscriber asks for all exchanges and wants to be told of changes."""

    queue_id: bytes
    subscriber: bytes


class Topology(Control, frozen=True, kw_only=True, tag=3213):
    """All exchanges of the queue; one that is missing is gone for good."""

    RESULT: int = OK
    queue_id: bytes
    epoch: int
    """The monitor's own epoch; versions count within it."""
    version: int
    exchanges: list[ExchangeInfo]
    state: str = "running"
    """`running`, or why the queue goes away: `stopped`, `removed`."""


class Alive(Control, frozen=True, kw_only=True, tag=3214):
    """A client is still there. Answered by Topology only if `version` is not the present one."""

    queue_id: bytes
    client: bytes
    role: str
    """`publisher` or `subscriber`."""
    version: int = 0
    received: int = 0
    """Messages since the start (subscribers)."""
    latency_ms: float = 0.0
    """Mean from creation to receipt since the last one (subscribers)."""
    lost: int = 0
    """Messages that were counted as lost since the start (subscribers)."""


class Version(Control, frozen=True, kw_only=True, tag=3215):
    """Pushed to every client each second."""

    queue_id: bytes
    epoch: int
    version: int


class Leave(Control, frozen=True, kw_only=True, tag=3216):
    """A client goes; not answered."""

    queue_id: bytes
    client: bytes


GcmRequest = ClusterInfoRequest | LocateRequest | HostReport
HcmRequest = StartMonitor | StartExchange | StopQueue | Inventory | ChildReport
MonitorRequest = ExchangeReport | Attach | Join | Alive | Leave
Answer = (
    Failure | Done | ClusterInfo | Located | HostReportAck | Started | HostReport | ChildAck
    | ExchangeAck | Assigned | Topology | Version
)  # fmt: skip
"""Everything that a client of any of these servers may get."""
