"""What an operator can change: each action with the words that say what it will do, and its form.

The same commands as on the command line. A form is made for what its page has shown: if that has
changed meanwhile, the action is not done, and the page is shown anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from roq.client.admin import rules
from roq.client.admin.wording import many, place_of
from roq.client.operate.dead_letters import Wanted
from roq.console.dead_letters import Letters, agreed
from roq.console.guard import whole
from roq.console.pages import wanted_letters
from roq.console.source import Source
from roq.errors import InvalidRequest
from roq.model import VOLATILE
from roq.policy.catalogue import POLICIES
from roq.protocol.public import DURABILITIES, LIMIT_RANGES
from roq.protocol.scaling_rules import SLOW

if TYPE_CHECKING:
    from roq.console.jobs import JobDesk

COUNT_MAX: Final = 100_000
TEXT_MAX: Final = 256
DEFAULT: Final = "default"


class Stale(InvalidRequest):
    """What the form was made for has changed since its page was opened."""


class Unconfirmed(InvalidRequest):
    """What is lost for good wants its name to be typed."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        kind: `text`, `number`, `select` or `check`.
        value: what it holds first.
        choices: of a `select`.
        help: below it.
    """

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action and what it is about.

    Attributes:
        given: places and fields by name, from the address or the form.
        jobs: None: there are none.
        who: wants it.
        kept: what was found out about it already.
    """

    source: Source
    letters: Letters
    given: Mapping[str, str]
    jobs: JobDesk | None = None
    who: str = ""
    kept: dict[str, object] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.given.get(name, "").strip()[:TEXT_MAX]

    def number(self, name: str) -> int:
        """A field that is a whole number.

        Raises:
            InvalidRequest: it is none.
        """
        return whole({name: self[name]}, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that an operator can do.

    Attributes:
        title: with places in braces.
        verb: on the button.
        back: path of the page that shows what has become of it.
        places: what must be named, such as `queue`.
        effect: what it will do, in sentences.
        run: does it; gives what was done, in a sentence.
        fields: of its form.
        typed: the place whose name must be typed, because something is lost; empty: none.
        loses: whether something is, of those where that depends.
    """

    title: str
    verb: str
    back: str
    places: tuple[str, ...]
    effect: Callable[[Intent], list[str]]
    run: Callable[[Intent], str]
    fields: Callable[[Intent], list[Field]] = field(default=lambda _: [])
    typed: str = ""
    loses: Callable[[Intent], bool] = field(default=lambda _: True)

    def to_type(self, intent: Intent) -> str:
        """The name that must be typed; empty: none."""
        return intent[self.typed] if self.typed and self.loses(intent) else ""

    def named(self, text: str, intent: Intent) -> str:
        """A text with its places filled in."""
        return text.format(**{place: intent[place] for place in self.places})

    def check(self, intent: Intent, stamp: str) -> None:
        """Whether the form is filled in, and still about what its page has shown.

        Raises:
            Stale: it is not.
            Unconfirmed: the name was not typed.
        """
        if stamp != stamp_of(intent):
            raise Stale("it has changed since this page was opened: read again what will be done")
        name = self.to_type(intent)
        if intent["typed"] != name and name:
            raise Unconfirmed(f"type {name} to confirm what cannot be taken back")


def stamp_of(intent: Intent) -> str:
    """By which a form knows what it was made for: the queue with its rules, if it names one."""
    if not intent["queue"]:
        return ""
    described = intent.source.cluster().describe(intent["queue"])
    state = (described.queue_id, described.running, sorted(described.rules.items(), key=str))
    return sha256(msgspec.json.encode(state, enc_hook=str)).hexdigest()[:16]


# --- queues ---------------------------------------------------------------------------------------


def _create_fields(_: Intent) -> list[Field]:
    return [
        Field("name", "Name", help="Letters, digits, . _ and -, 128 at most."),
        Field(
            "durability", "Durability", "select", DEFAULT, (DEFAULT, *DURABILITIES),
            "default: as the cluster is set. flush: messages are on a disk when they are "
            "acknowledged. async: they are written then, and synced within 100 ms. none: they "
            "live in memory. It stays so for ever.",
        ),
        Field("host", "Host", help="Where it starts; empty: the cluster chooses."),
        Field("throughput_bytes", "Limit of one exchange", help="Bytes a minute; empty: 3 GB."),
        Field("ring_bytes", "Memory of one exchange", help="Bytes of its ring; empty: 128 MiB."),
        Field("exchanges_max", "Exchanges at most", help="Empty: 4."),
    ]  # fmt: skip


def _create(intent: Intent) -> str:
    limits = {
        name: intent.number(name)
        for name in sorted(LIMIT_RANGES)
        if name in intent.given and intent[name]
    }
    intent.source.cluster().create_queue(
        intent["name"],
        host=intent["host"] or None,
        durability=None if intent["durability"] in {"", DEFAULT} else intent["durability"],
        limits=limits,
    )
    return f"queue {intent['name']} is running"


def _remove_effect(intent: Intent) -> list[str]:
    described = intent.source.cluster().describe(intent["queue"])
    there = len(described.exchanges)
    disk = "" if described.durability == VOLATILE else ", also what is on disks"
    return [
        f"The queue goes with its {many(there, 'exchange')} and every message in it{disk}.",
        *_users(intent),
        "Its consumer groups, and how far they are, are forgotten.",
        "This cannot be taken back.",
    ]


def _stop_effect(intent: Intent) -> list[str]:
    described = intent.source.cluster().describe(intent["queue"])
    kept = (
        "What its exchanges hold in memory is lost; its definition stays."
        if described.durability == VOLATILE
        else "Its definition and its logs on disk stay."
    )
    return [
        "Its monitor and exchanges stop. Publishers wait until it is started again.",
        *_users(intent),
        kept,
    ]


def _users(intent: Intent) -> list[str]:
    view = intent.source.view(intent["queue"])
    if view is None:
        return []
    publishers = many(view.publisher_count, "publisher")
    return [f"It has {publishers} and {many(view.subscriber_count, 'subscriber')} at the moment."]


def _remove_queue(intent: Intent) -> str:
    warning = intent.source.cluster().remove_queue(intent["queue"])
    return _with(f"queue {intent['queue']} is removed", warning)


def _stop_queue(intent: Intent) -> str:
    intent.source.cluster().stop_queue(intent["queue"])
    return f"queue {intent['queue']} is stopped"


def _start_queue(intent: Intent) -> str:
    warning = intent.source.cluster().start_queue(intent["queue"])
    return _with(f"queue {intent['queue']} is running", warning)


# --- exchanges ------------------------------------------------------------------------------------


def _add_exchange(intent: Intent) -> str:
    name = intent.source.cluster().add_exchange(intent["queue"], intent["host"] or None)
    return f"exchange {name} of queue {intent['queue']} is running"


def _is_durable(intent: Intent) -> bool:
    return intent.source.cluster().describe(intent["queue"]).durability != VOLATILE


def _remove_exchange_effect(intent: Intent) -> list[str]:
    sentences = [
        (
            "Its publishers move to the other exchanges, subscribers read it to its end, then it "
            "stops."
        ),
        "If it is not empty within a minute it stays, and what it waits for is told here.",
    ]
    if not _is_durable(intent):
        return [*sentences, "No message is lost."]
    return [
        *sentences,
        (
            "No message is lost that somebody who is there has not read. The queue is durable, so "
            "its log goes: what it holds is lost for those who come later."
        ),
        (
            "With it goes what it alone knows of named publishers: one that is not open now may "
            "begin with lower sequences when it comes back, and sends some messages again."
        ),
    ]


def _forget_exchange_effect(intent: Intent) -> list[str]:
    described = intent.source.cluster().describe(intent["queue"])
    rows = [each for each in described.exchanges if each.name == intent["exchange"]]
    now = [f"Now it is {each.state}, on host {each.host}." for each in rows]
    return [
        (
            "For an exchange whose host or disk is gone for good with its log, or that cannot read "
            "it; one that runs is refused."
        ),
        *now,
        (
            "These are lost: all messages that it has acknowledged and that a subscriber or a "
            "group has not read yet, delayed ones that wait, and for those to come what is older."
        ),
        (
            "What it alone knew of named publishers is lost as well: one that is not open now may "
            "begin with lower sequences when it comes back, and sends some messages again."
        ),
        (
            "If its host is away, the log stays there when the host comes back, no exchange uses "
            "it, and the host's health names its folder."
        ),
    ]


def _remove_exchange(intent: Intent) -> str:
    warning = intent.source.cluster().remove_exchange(intent["queue"], intent["exchange"])
    return _with(f"exchange {intent['exchange']} of queue {intent['queue']} is removed", warning)


def _with(text: str, warning: str) -> str:
    """What was done, and what is left to be done."""
    return f"{text}; {warning}" if warning else text


def _forget_exchange(intent: Intent) -> str:
    warning = intent.source.cluster().forget_exchange(intent["queue"], intent["exchange"])
    return _with(f"exchange {intent['exchange']} of queue {intent['queue']} is given up", warning)


# --- rules ----------------------------------------------------------------------------------------

_RULES: Final = (
    ("policy", "Policy", "Who decides: static does nothing by itself."),
    ("exchanges_min", "Exchanges at least", ""),
    ("exchanges_max", "Exchanges at most", "1: it never grows."),
    (
        "cooldown_seconds",
        "Cool-down, seconds",
        "After a change: nothing so long.",
    ),
    (
        "slow_subscriber",
        "Slow subscriber",
        "hold publishers back, or drop what it misses.",
    ),
    ("hold_seconds", "Hold, seconds", "For one that does not read on."),
    ("exchange_bytes_per_minute", "Limit of an exchange, bytes a minute", "0: that of the queue."),
    (
        "queue_bytes_per_minute_per_exchange",
        "Grow above, bytes a minute, exchange",
        "0: not looked at.",
    ),
    ("queue_publishers_per_exchange", "Grow above, publishers per exchange", "0: not looked at."),
    ("latency_ms", "Grow above a mean latency, ms", "0: not looked at."),
    ("host_cpu_percent", "Grow above CPU of a host, %", "0: not looked at."),
    ("host_memory_mb", "Grow above memory of a host, MB", "0: not looked at."),
)
_CHOICES: Final = {"policy": tuple(POLICIES), "slow_subscriber": SLOW}


def _rules_fields(intent: Intent) -> list[Field]:
    described = intent.source.cluster().describe(intent["queue"])
    now = msgspec.structs.asdict(rules.in_force(described))
    return [
        Field(
            name, label, "select" if name in _CHOICES else "number", str(now[name]),
            tuple(dict.fromkeys((*_CHOICES.get(name, ()), str(now[name])))), text,
        )
        for name, label, text in _RULES
    ]  # fmt: skip


def _set_rules(intent: Intent) -> str:
    cluster, queue = intent.source.cluster(), intent["queue"]
    wanted: dict[str, int | str] = {
        name: intent[name] if name in _CHOICES else intent.number(name)
        for name, _, _ in _RULES
        if name in intent.given
    }
    result = rules.changed(cluster.describe(queue), wanted, replace=False)
    cluster.set_rules(queue, result)
    return f"queue {queue} has new scaling rules, named {result.name}"


# --- hosts ----------------------------------------------------------------------------------------


def _drain_effect(intent: Intent) -> list[str]:
    rows = [row for row in intent.source.hosts().value or [] if row.host == intent["host"]]
    there = [
        f"{many(row.exchanges, 'exchange')} and {many(row.monitors, 'monitor')} are there."
        for row in rows
    ]
    durable = {
        row.name
        for row in intent.source.queues().value or []
        if row.durability not in {VOLATILE, ""}
    }
    here = {child.queue for row in rows for child in row.children if child.role == "exchange"}
    gone = (
        f"These queues have logs there, which are removed, with what is kept in them for those to "
        f"come: {', '.join(sorted(durable & here))}. To keep them stop its manager by SIGTERM "
        "instead, and start it again."
    )
    goes = "Nothing new is placed there, and everything on it goes elsewhere"
    return [
        f"{goes}; who reads by then loses no message.",
        *[gone] * bool(durable & here),
        "The cluster goes on with it by itself; uncordon takes it back.",
        *there,
    ]


def _cordon(intent: Intent) -> str:
    intent.source.cluster().cordon_host(intent["host"])
    return f"host {intent['host']} is cordoned"


def _uncordon(intent: Intent) -> str:
    intent.source.cluster().uncordon_host(intent["host"])
    return f"host {intent['host']} takes what is placed"


def _drain(intent: Intent) -> str:
    intent.source.cluster().drain_host(intent["host"])
    return f"host {intent['host']} is being drained"


def _remove_host(intent: Intent) -> str:
    intent.source.cluster().remove_host(intent["host"], force=intent["force"] == "yes")
    return f"host {intent['host']} is forgotten"


# --- groups ---------------------------------------------------------------------------------------


def _group_effect(*sentences: str) -> Callable[[Intent], list[str]]:
    def effect(intent: Intent) -> list[str]:
        known = intent.source.group(intent["queue"], intent["group"]).value
        now = [
            f"Now: {many(row.members, 'member')}, {many(row.out, 'message')} out, "
            f"{row.behind:,} batches behind."
            for row in known or ()
        ]
        return [*sentences, *now]

    return effect


def _seek(intent: Intent) -> str:
    place = intent["time"] if intent["to"] == "time" else intent["to"]
    to = place_of(place)
    exchanges = intent.source.cluster().seek_group(intent["queue"], intent["group"], to)
    return f"group {intent['group']} goes on from {place} at {', '.join(exchanges)}"


def _order(word: str, told: str) -> Callable[[Intent], str]:
    def run(intent: Intent) -> str:
        cluster = intent.source.cluster()
        orders = {
            "pause": cluster.pause_group,
            "resume": cluster.resume_group,
            "delete": cluster.delete_group,
        }
        exchanges = orders[word](intent["queue"], intent["group"])
        return f"group {intent['group']} of queue {intent['queue']} {told} ({', '.join(exchanges)})"

    return run


# --- dead letters ---------------------------------------------------------------------------------


def _letter_fields(intent: Intent) -> list[Field]:
    wanted = wanted_letters(_filters(intent), COUNT_MAX)
    count, newest = intent.letters.count(intent["queue"], wanted)
    filters = [Field(name, name, "hidden", text) for name, text in _filters(intent).items()]
    return [
        *filters,
        Field("until", "until", "hidden", newest.isoformat() if newest is not None else ""),
        Field("count", "So many at most, the oldest first", "number", str(count),
              help=f"{count:,} match now; more that come meanwhile are left alone."),
    ]  # fmt: skip


def _filters(intent: Intent) -> dict[str, str]:
    return {name: intent[name] for name in ("reason", "topic", "group") if intent[name]}


def _letter_effect(what: str) -> Callable[[Intent], list[str]]:
    def effect(intent: Intent) -> list[str]:
        words = [f"{name} {text!r}" for name, text in _filters(intent).items()]
        return [what, f"Only those with {', '.join(words)}." if words else "All of them."]

    return effect


def _requeue(intent: Intent) -> str:
    return intent.letters.requeue(intent["queue"], _agreed(intent))


def _purge(intent: Intent) -> str:
    return intent.letters.purge(intent["queue"], _agreed(intent))


def _agreed(intent: Intent) -> Wanted:
    wanted = wanted_letters(_filters(intent), COUNT_MAX)
    return agreed(wanted, intent.number("count"), intent["until"])


def _says(*sentences: str) -> Callable[[Intent], list[str]]:
    return lambda _: list(sentences)


_HOST: Final = Field("host", "Host", help="Where it runs; empty: the cluster chooses.")

ACTIONS: Final[dict[str, Action]] = {
    "create-queue": Action(
        title="Create a queue", verb="Create", back="/", places=(),
        effect=_says("A monitor and one exchange start; publishers may come at once."),
        run=_create, fields=_create_fields,
    ),
    "start-queue": Action(
        title="Start queue {queue}", verb="Start", back="/queues/{queue}", places=("queue",),
        effect=_says("Its monitor and exchanges start. Publishers that wait go on."),
        run=_start_queue,
    ),
    "stop-queue": Action(
        title="Stop queue {queue}", verb="Stop", back="/queues/{queue}", places=("queue",),
        effect=_stop_effect, run=_stop_queue,
    ),
    "remove-queue": Action(
        title="Remove queue {queue}", verb="Remove for good", back="/", places=("queue",),
        effect=_remove_effect, run=_remove_queue, typed="queue",
    ),
    "add-exchange": Action(
        title="Add an exchange to queue {queue}", verb="Add", back="/queues/{queue}",
        places=("queue",), run=_add_exchange, fields=lambda _: [_HOST],
        effect=_says("One more exchange starts; publishers move there as the load wants it."),
    ),
    "remove-exchange": Action(
        title="Remove exchange {exchange} of queue {queue}", verb="Remove", back="/queues/{queue}",
        places=("queue", "exchange"), run=_remove_exchange, effect=_remove_exchange_effect,
        typed="exchange", loses=_is_durable,
    ),
    "forget-exchange": Action(
        title="Give up exchange {exchange} of queue {queue}", verb="Give up for good",
        back="/queues/{queue}", places=("queue", "exchange"), run=_forget_exchange,
        typed="exchange", effect=_forget_exchange_effect,
    ),
    "set-rules": Action(
        title="Change the scaling rules of queue {queue}", verb="Change", back="/queues/{queue}",
        places=("queue",), run=_set_rules, fields=_rules_fields,
        effect=_says("They are in force from the next second on."),
    ),
    "cordon-host": Action(
        title="Cordon host {host}", verb="Cordon", back="/hosts", places=("host",), run=_cordon,
        effect=_says("Nothing new is placed there; what is there stays and works on."),
    ),
    "uncordon-host": Action(
        title="Uncordon host {host}", verb="Uncordon", back="/hosts", places=("host",),
        run=_uncordon,
        effect=_says("It takes what is placed again. What has left it comes not back by itself."),
    ),
    "drain-host": Action(
        title="Drain host {host}", verb="Drain", back="/hosts", places=("host",),
        effect=_drain_effect, run=_drain,
    ),
    "remove-host": Action(
        title="Forget host {host}", verb="Forget", back="/hosts", places=("host",),
        run=_remove_host, typed="host",
        fields=lambda _: [
            Field("force", "Its machine is gone for good, whatever seems to live", "check", "yes")
        ],
        effect=_says(
            "Refused while its manager reports, or while something belongs there.",
            "With force, what belongs there is lost, and set up again on other hosts.",
        ),
    ),
    "pause-group": Action(
        title="Pause group {group} of queue {queue}", verb="Pause",
        back="/queues/{queue}/groups/{group}", places=("queue", "group"),
        run=_order("pause", "is paused"),
        effect=_group_effect("It hands out nothing more; what members hold they may still do."),
    ),
    "resume-group": Action(
        title="Resume group {group} of queue {queue}", verb="Resume",
        back="/queues/{queue}/groups/{group}", places=("queue", "group"),
        run=_order("resume", "goes on"), effect=_group_effect("It goes on where it was."),
    ),
    "seek-group": Action(
        title="Have group {group} of queue {queue} go on from elsewhere", verb="Seek",
        back="/queues/{queue}/groups/{group}", places=("queue", "group"), run=_seek,
        fields=lambda _: [
            Field("to", "Go on from", "select", "latest", ("latest", "earliest", "time"),
                  "latest: only what comes now. earliest: all that is still there."),
            Field("time", "Time", help="With its zone, such as 2026-11-25T08:00:00Z."),
        ],
        effect=_group_effect(
            "What members hold is theirs no longer, so they may do it twice.",
            "Forward: what is passed over is not done by this group. Back: it is done again.",
        ),
    ),
    "delete-group": Action(
        title="Delete group {group} of queue {queue}", verb="Delete for good",
        back="/queues/{queue}", places=("queue", "group"), typed="group",
        run=_order("delete", "is deleted"),
        effect=_group_effect(
            "It is forgotten with all that it has done; its members are told, and end.",
            "The messages stay. A consumer that comes later makes it anew.",
        ),
    ),
    "requeue-letters": Action(
        title="Requeue dead letters of queue {queue}", verb="Requeue", back="/queues/{queue}/dead",
        places=("queue",), run=_requeue, fields=_letter_fields,
        effect=_letter_effect(
            "They are published anew where they come from, behind what is there, and begin with "
            "their first attempt."
        ),
    ),
    "purge-letters": Action(
        title="Purge dead letters of queue {queue}", verb="Drop for good",
        back="/queues/{queue}/dead", places=("queue",), run=_purge, fields=_letter_fields,
        typed="queue", effect=_letter_effect("They are dropped: nothing shows them again."),
    ),
}  # fmt: skip
"""Name → action."""
