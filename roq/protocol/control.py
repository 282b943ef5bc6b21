"""The messages between RoQ's own processes and clients: BSON documents with a `CMD`.

One document is one frame; requests go from a DEALER to a ROUTER. A request carries an `id` that the
answer repeats, so requests may overlap and a late answer is recognised. An answer has `RESULT` (0
OK, 1101 failed, 8 not the leader); a failed one is a `Failure`.

    asks            whom                        what
    client          GCM, client port            2000 (public), 3000 ClusterInfo, 3001 Locate
    anybody         GCM, host manager, monitor  3004 HealthRequest
    host manager    GCM, client port            3010 HostReport, every second and at each change
    GCM             host manager                3100 StartMonitor, 3101 StartExchange, …
    child process   its host manager            3110 ChildReport, several times a second
    exchange        monitor                     3200 ExchangeReport, every KPI period
    publisher       monitor                     3210 Attach
    subscriber      monitor                     3212 Join
    any client      monitor                     3214 Alive, every two seconds; 3216 Leave
    monitor         its clients (pushed)        3213 Topology, 3215 Version every second
    monitor         a publisher (pushed)        3217 Relocate, until it says 3218 Relocated
    monitor         an exchange (pushed)        3219 Passed: a publisher has gone elsewhere; 3700
                                                unasked, when what it says of services has changed
    exchange        monitor, which passes on    3222 OrderAsk, 3223 OrderTold (pushed on)
    monitor         GCM, client port            3020 ScaleOut, 3021 ScaleIn, 3022 Elasticity
    GCM             monitor                     3220 Empty; 3221 Configure, when rules change

Everything pushed has a version; who sees a jump asks again with `Join` or `Attach`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from roq.model import VOLATILE, ElasticRules, ExchangeInfo, Limits, LogId
from roq.number_ranges import (
    Amount,
    ChildEpoch,
    ExchangeNumber,
    ExchangeOrAll,
    HostEpoch,
    Int32,
    Real,
    Whole,
    WholeOrUnknown,
)
from roq.protocol.consuming import OrderAnswers, OrderQuestions
from roq.protocol.defined_services import DefinedServices
from roq.protocol.reports import Check, ChildInfo, ClientName, ExchangeLoad, HostUse, PublisherLoad
from roq.protocol.scaling_rules import HoldSeconds
from roq.protocol.version import WIRE_VERSION

OK: Final = 0
NOT_LEADER: Final = 8
FAILED: Final = 1101
UNAVAILABLE: Final = "unavailable"
"""Code of a refusal of what may come true when it is asked again."""
GROUPS_DIGEST_BYTES: Final = 8
"""Of the digest by which exchanges tell whether they have the same consumer groups."""
OTHER_GROUPS: Final = "not all exchanges have the same consumer groups"
"""What an exchange says if that holds its log; its monitor knows more."""


class Control(msgspec.Struct, frozen=True, kw_only=True, tag_field="CMD"):
    """Base of every control message."""

    id: Whole = 0
    """Repeated in the answer; 0 for pushed messages."""
    wire: Whole = WIRE_VERSION
    """Version of the wire protocol that the sender speaks; where it is missing, 1."""


class Failure(Control, frozen=True, kw_only=True, tag=3999):
    """A request was refused."""

    RESULT: Int32
    COMMENT: str
    """A sentence for people."""
    CODE: str = "failed"
    """The word for programs: `RequestError.code`."""
    ENDPOINT: str = ""
    """Where the leader answers, when RESULT is 8."""


def failure(request_id: int, text: str, code: str = UNAVAILABLE) -> Failure:
    """The refusal of a request, with a sentence for people and a word for programs."""
    return Failure(id=request_id, RESULT=FAILED, COMMENT=text, CODE=code)


class Done(Control, frozen=True, kw_only=True, tag=3998):
    """A request that has nothing to tell but that it worked."""

    RESULT: Int32 = OK
    no_log_since: HostEpoch = 0
    """Of a StopQueue with `erase`: there was no such log, and the host's data.dir is in use since
    this host epoch, so it is not the one that held a log before; 0: there was one, or the host does
    not know since when."""


# --- GCM, client port -----------------------------------------------------------------------------


class ClusterInfoRequest(Control, frozen=True, kw_only=True, tag=3000):
    """Where are the other interfaces of this cluster?"""


class ClusterInfo(Control, frozen=True, kw_only=True, tag=3500):
    """Addresses as seen by this configuration manager."""

    RESULT: Int32 = OK
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

    RESULT: Int32 = OK
    QName: str
    queue_id: Annotated[bytes, msgspec.Meta(min_length=1)]
    monitor: str
    statistics: str
    limits: Limits


class HealthRequest(Control, frozen=True, kw_only=True, tag=3004):
    """Are you well? Every daemon with a control address answers (Health)."""


class Health(Control, frozen=True, kw_only=True, tag=3504):
    """How a daemon is."""

    RESULT: Int32 = OK
    role: str
    """`gcm`, `host` or `monitor`."""
    name: str
    """Which one: an address, or the name of a queue."""
    ready: bool
    """Whether it does all of its work; alive it is, for it answers."""
    state: str
    """`leading`, `following`, `serving`, `settling`, `stopping`, …"""
    checks: list[Check] = []


class HostReport(Control, frozen=True, kw_only=True, tag=3010):
    """A host manager tells how it is; the first one registers it."""

    cluster: str = ""
    """Empty until the first answer has named it."""
    host: str
    """Host id: the advertised address."""
    epoch: HostEpoch
    control: str
    """Address where the host manager takes commands."""
    leader_epoch: HostEpoch = 0
    """Of the latest leader that it has obeyed: it obeys no lower one."""
    exchange_max: Whole = 0
    """Exchanges that may run here; 0: no limit."""
    cpu_percent: Amount = 0.0
    memory_bytes: Whole = 0
    """In use."""
    memory_free_bytes: Whole = 0
    """What else could be used."""
    starved: bool = False
    """It gets too little processor: whatever is asked of it takes longer, and so do its reports."""
    children: list[ChildInfo] = []
    leaving: bool = False
    """It was told to stop, and goes on until nothing is left there, or its time is over."""


class HostReportAck(Control, frozen=True, kw_only=True, tag=3510):
    """The answer of the leading configuration manager."""

    RESULT: Int32 = OK
    cluster: str
    monitors: dict[str, str] = {}
    """Queue → control address of its monitor, for the queues that have an exchange on this host."""
    leader_epoch: HostEpoch = 0
    """Of the leader that answers: the host manager obeys no lower one from now on."""
    drains: bool = False
    """Whether what runs on this host is on its way elsewhere."""
    stuck: str = ""
    """Why what runs on a host that is leaving cannot go elsewhere; empty as long as it may."""


class ScaleOut(Control, frozen=True, kw_only=True, tag=3020):
    """A monitor wants one more exchange; answered (ScaledOut) once it runs.

    Idempotent by `transaction`. A Failure says why there is none; the monitor may ask again.
    """

    queue: str
    queue_id: bytes
    transaction: str
    reason: str
    """A sentence for people: which rule was broken by what."""


class ScaledOut(Control, frozen=True, kw_only=True, tag=3520):
    """The new exchange."""

    RESULT: Int32 = OK
    number: ExchangeNumber
    host: str


class ScaleIn(Control, frozen=True, kw_only=True, tag=3021):
    """A monitor has emptied this exchange and wants it stopped for good; answered (Done) then."""

    queue: str
    queue_id: bytes
    number: ExchangeNumber
    reason: str
    epoch: ChildEpoch = 0
    """Of the process that was emptied; 0: not known."""
    end: WholeOrUnknown = -1
    """Where its log ends for good; -1: not known."""
    holds_nothing: bool = False
    """Its log on the disk holds nothing any more; an exchange of a durable queue stays else."""


class ElasticityRequest(Control, frozen=True, kw_only=True, tag=3022):
    """A monitor asks by which rules its queue is to grow, shrink and move; every second, or every
    two while the queue is idle.

    It is also the word by which the manager knows what lives where no host manager reports.
    """

    queue: str
    queue_id: bytes
    epoch: ChildEpoch = 0
    """Of the monitor; 0: not told."""
    control: str = ""
    """Where the monitor answers."""
    exchanges: list[tuple[ExchangeNumber, ChildEpoch]] = []
    """(number, epoch) of the exchanges that have reported to it within the last two seconds."""
    idle: bool = False
    """The queue serves nobody, and its monitor asks half as often."""


class Elasticity(Control, frozen=True, kw_only=True, tag=3522):
    """The rules in force, and what else decisions need."""

    RESULT: Int32 = OK
    queue_id: bytes
    rules: ElasticRules
    exchanges: list[ExchangeNumber] = []
    """Numbers of all exchanges that the queue has, whether they serve at the moment or not."""
    logs: list[ExchangeNumber] = []
    """The same of a durable queue, and those that are away with their logs."""
    unwanted: list[ExchangeNumber] = []
    """Numbers of exchanges that the request has named and that the queue does not have, where no
    host manager can stop them."""
    scaled: list[ExchangeNumber] = []
    """Numbers of the exchanges that scaling may remove: it has made them, and they stand in for
    none that is away."""
    hosts: list[HostUse] = []
    """The hosts on which this queue has an exchange."""
    services: DefinedServices = {}
    """What the definition of the queue says of its services."""


# --- host manager ---------------------------------------------------------------------------------


class StartMonitor(Control, frozen=True, kw_only=True, tag=3100):
    """Start the monitor of a queue; answered (Started) once it runs. Idempotent by queue id."""

    queue: str
    queue_id: bytes
    leader_epoch: HostEpoch
    limits: Limits
    restarted: bool = False
    """Exchanges of the queue may run already, and must not be taken for gone."""
    base: HostEpoch = 0
    """A number drawn from the counter of host epochs, under which this child counts from now on
    if it is higher than the host's own: so a child that takes the place of one on a lost host has
    the higher epoch. 0: the host's own epoch is enough."""
    cluster: str = ""
    """Identity of the cluster; a host of another one refuses. Empty: not told."""


class StartExchange(Control, frozen=True, kw_only=True, tag=3101):
    """Start an exchange; answered (Started) once it runs. Idempotent by queue id and number."""

    queue: str
    queue_id: bytes
    number: ExchangeNumber
    leader_epoch: HostEpoch
    monitor: str
    limits: Limits
    base: HostEpoch = 0
    """As in `StartMonitor`."""
    cluster: str = ""
    """As in `StartMonitor`."""
    durability: str = VOLATILE
    """Other than `none`: its log is on the disk of this host, and goes on where it ended."""
    has_log: bool = False
    """It has had a log there: it is not started where there is none (`log_missing`)."""


class Started(Control, frozen=True, kw_only=True, tag=3600):
    """The child runs; its addresses stand in `child`."""

    RESULT: Int32 = OK
    child: ChildInfo


class StopQueue(Control, frozen=True, kw_only=True, tag=3102):
    """Stop the children of a queue on this host; answered (Done) once all are gone.

    `queue_id` empty: whatever id. `number`: that exchange alone; -1: monitor and all exchanges.
    """

    queue: str
    queue_id: bytes = b""
    number: ExchangeOrAll = -1
    leader_epoch: HostEpoch
    reason: str = "stopped"
    """`stopped` or `removed`; monitors pass it on to their clients."""
    cluster: str = ""
    """As in `StartMonitor`."""
    erase: bool = False
    """Remove their logs from the disk, too, also of those that do not run here."""
    empty: bool = False
    """But not what has ever held an entry: nobody knows whether they have run."""


class Inventory(Control, frozen=True, kw_only=True, tag=3103):
    """Which children run here? Answered by a HostReport."""


class ChildReport(Control, frozen=True, kw_only=True, tag=3110):
    """A child tells that it runs (the first one: that it is ready) and where."""

    child: ChildInfo
    metrics: dict[str, Real] = {}
    """Counters and gauges of this process for its host manager's metrics, by name."""
    idle: bool = False
    """It serves nobody, and reports half as often."""


class ChildAck(Control, frozen=True, kw_only=True, tag=3610):
    """The host manager's answer to a child.

    `action`: `keep`, or `stop` when the host manager does not want this child (any more).
    """

    RESULT: Int32 = OK
    action: str = "keep"
    monitor: str = ""
    """For an exchange: where its monitor is now; empty: unchanged."""
    leader: str = ""
    """Client address of the leading configuration manager, as far as it is known."""
    reason: str = ""
    child: str = ""
    """Which child of the process is meant; empty: the only one."""


# --- monitor --------------------------------------------------------------------------------------


class ExchangeReport(Control, frozen=True, kw_only=True, tag=3200):
    """An exchange tells its monitor where and how it is; the first one makes it known."""

    queue_id: bytes
    exchange: ExchangeInfo
    load: ExchangeLoad
    top: list[PublisherLoad] = []
    """The busiest publishers, exactly; the others add up to the difference to `load`."""
    stopping: bool = False
    monitor: ChildEpoch = 0
    """Epoch of the monitor that it reports to from now on, told once to the one that it leaves."""
    idle: bool = False
    """It serves nobody, and reports half as often."""
    disk_full: str = ""
    """Why it accepts nothing for want of room on its disk; empty: it does."""
    unread: str = ""
    """What readers and groups do not get of its log, as its disk does not give it; empty: nothing.
    What counts as lost, or is damaged, is told until the process ends."""
    retired: bool = False
    """It accepts nothing, as its monitor wants; what `load` says of its log is final."""
    groups: Annotated[bytes, msgspec.Meta(max_length=GROUPS_DIGEST_BYTES)] = b""
    """Which consumer groups it has, as a digest of their names, if the queue has the limit
    `log_until_done`; empty: not told."""
    group_names: list[str] | None = None
    """Their names, while the monitor does not say that all exchanges have the same; None: not told,
    or too many."""
    held: str = ""
    """What lets nothing go of its log that groups have done, if that lasts; empty: nothing."""


class ExchangeAck(Control, frozen=True, kw_only=True, tag=3700):
    """The monitor knows; `code` is `stale_epoch` if a newer process has taken this exchange
    over, `removed` if the queue does not have it any more."""

    RESULT: Int32 = OK
    code: str = ""
    epoch: ChildEpoch = 0
    """Of the monitor; 0: not told."""
    hold_seconds: HoldSeconds | None = None
    """For how long publishers wait for a subscriber that does not read on; 0: not at all."""
    retire: bool = False
    """Accept nothing more until this is taken back: the exchange is to go, with what it holds."""
    services: DefinedServices | None = None
    """What the definition of the queue says of its services; None: not known yet."""
    same_groups: bool = False
    """All exchanges of the queue have the same consumer groups, so what those of this one have done
    nobody waits for."""


class Attach(Control, frozen=True, kw_only=True, tag=3210):
    """A publisher asks where to publish. Answered (Assigned) as soon as an exchange serves."""

    queue_id: bytes
    publisher: bytes
    failed: list[tuple[ExchangeNumber, ChildEpoch]] = []
    """(number, epoch) of exchanges that the publisher could not reach or has lost."""
    name: ClientName = ""
    """By which people find the program; empty: not told."""


class Assigned(Control, frozen=True, kw_only=True, tag=3710):
    """Publish at this exchange, under this epoch."""

    RESULT: Int32 = OK
    exchange: ExchangeInfo
    epoch: Whole
    limits: Limits


class Join(Control, frozen=True, kw_only=True, tag=3212):
    """A subscriber asks for all exchanges and wants to be told of changes."""

    queue_id: bytes
    subscriber: bytes


class Topology(Control, frozen=True, kw_only=True, tag=3213):
    """All exchanges of the queue that serve; one that `logs` lacks, too, is gone for good."""

    RESULT: Int32 = OK
    queue_id: bytes
    epoch: ChildEpoch
    """The monitor's own epoch; versions count within it."""
    version: Whole
    exchanges: list[ExchangeInfo]
    state: str = "running"
    """`running`, or why the queue goes away: `stopped`, `removed`."""
    emptied: list[LogId] = []
    """The logs that went lately after everything in them had been read."""
    logs: list[ExchangeNumber] = []
    """Numbers of all exchanges that a durable queue has: one that does not serve comes back with
    its log. Empty: the queue is volatile, or its monitor has not been told yet."""


class Alive(Control, frozen=True, kw_only=True, tag=3214):
    """A client is still there. Answered by Topology only if `version` is not the present one."""

    queue_id: bytes
    client: bytes
    role: str
    """`publisher`, `subscriber` or `consumer`."""
    version: Whole = 0
    at: list[tuple[ExchangeNumber, ChildEpoch]] = []
    """(number, epoch) of the exchanges that it publishes at (publishers)."""
    epoch: Whole = 0
    """Under which epoch it publishes (publishers); a new monitor learns by both who is where."""
    read: list[tuple[ExchangeNumber, ChildEpoch, Whole]] = []
    """(number, generation of its log, offset): everything below is received or known to be gone
    (subscribers)."""
    received: Whole = 0
    """Messages since the start (subscribers)."""
    latency_ms: Real = 0.0
    """Mean from creation to receipt since the last one (subscribers)."""
    lost: Whole = 0
    """Messages that were counted as lost since the start (subscribers)."""
    name: ClientName = ""
    """By which people find the program (publishers); empty: not told."""


class Version(Control, frozen=True, kw_only=True, tag=3215):
    """Pushed to every client each second, once over each connection."""

    queue_id: bytes
    epoch: ChildEpoch
    version: Whole


class Leave(Control, frozen=True, kw_only=True, tag=3216):
    """A client goes; not answered."""

    queue_id: bytes
    client: bytes


class Relocate(Control, frozen=True, kw_only=True, tag=3217):
    """Pushed to a publisher each KPI period until it says Relocated: go and publish there.

    One exchange is a move. Several are a stripe: batches are dealt to all of them in turn.
    """

    queue_id: bytes
    publisher: bytes
    epoch: Whole
    """Higher than any that the publisher was given; a lower one is not obeyed."""
    exchanges: list[ExchangeInfo]


class Relocated(Control, frozen=True, kw_only=True, tag=3218):
    """What became of a Relocate; not answered, but said again each time it is repeated."""

    queue_id: bytes
    publisher: bytes
    epoch: Whole
    """Of the Relocate."""
    outcome: str
    """`accepted`: it publishes there from now on, and nothing is on its way to exchanges that it
    has left. `failed`: it stays where it is."""
    failed: list[tuple[ExchangeNumber, ChildEpoch]] = []
    """(number, epoch) of the targets that could not be used."""
    reason: str = ""
    pause_us: Whole = 0
    """How long nothing was sent while the old exchange had still to acknowledge."""


class Passed(Control, frozen=True, kw_only=True, tag=3219):
    """Pushed to an exchange: this publisher publishes elsewhere under this epoch.

    Lower epochs of it are refused from now on, with the new addresses.
    """

    queue_id: bytes
    publisher: bytes
    epoch: Whole
    addresses: list[str] = []
    """Data addresses of where it publishes now."""


class Empty(Control, frozen=True, kw_only=True, tag=3220):
    """Have all publishers of this exchange go elsewhere; answered once it is empty and read.

    The answer is Emptied, or a Failure that says what it still waits for; the exchange goes on
    being emptied then, and the request may be repeated.
    """

    queue_id: bytes
    number: ExchangeNumber
    wanted: bool = True
    """False: it is to take publishers again; answered (Done) at once."""
    at_once: bool = False
    """Whether a Failure comes at once if it is not empty yet."""
    read_seconds: Amount = 0.0
    """Subscribers are not waited for if it has had no publishers for so long; 0: they are."""


class Emptied(Control, frozen=True, kw_only=True, tag=3720):
    """This exchange accepts nothing more, and nothing in it is waited for."""

    RESULT: Int32 = OK
    number: ExchangeNumber
    epoch: ChildEpoch = 0
    """Of its process; 0: not known."""
    end: WholeOrUnknown = -1
    """Where its log ends for good; -1: not known."""


class Configure(Control, frozen=True, kw_only=True, tag=3221):
    """The rules, or what is said of services, have changed: ask now. Answered (Done)."""

    queue_id: bytes


class OrderAsk(Control, frozen=True, kw_only=True, tag=3222):
    """An exchange asks others how far groups that keep order are there; asked again without end."""

    queue_id: bytes
    asker: tuple[ExchangeNumber, ChildEpoch]
    questions: OrderQuestions


class OrderTold(Control, frozen=True, kw_only=True, tag=3223):
    """The answer: of the exchange that was asked, or of the monitor if that does not serve."""

    queue_id: bytes
    asker: tuple[ExchangeNumber, ChildEpoch]
    answers: OrderAnswers


GcmRequest = (
    ClusterInfoRequest | LocateRequest | HostReport | ScaleOut | ScaleIn | ElasticityRequest
    | HealthRequest
)  # fmt: skip
HcmRequest = (
    StartMonitor | StartExchange | StopQueue | Inventory | ChildReport | HealthRequest
)  # fmt: skip
MonitorRequest = (
    ExchangeReport | Attach | Join | Alive | Leave | Relocated | Empty | Configure | HealthRequest
    | OrderAsk | OrderTold
)  # fmt: skip
Answer = (
    Failure | Done | ClusterInfo | Located | HostReportAck | Started | HostReport | ChildAck
    | ExchangeAck | Assigned | Topology | Version | ScaledOut | Elasticity | Relocate | Passed
    | Emptied | Health | OrderAsk | OrderTold
)  # fmt: skip
"""Everything that a client of any of these servers may get."""
