"""The pages of the cluster: from what the source knows to what a template is filled with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

from roq.client.admin import rules
from roq.client.admin.board import Event, MoveEvent
from roq.client.admin.wording import settings_texts
from roq.client.consume.dead_letters import SUFFIX
from roq.client.consume.groups import GroupListing
from roq.client.operate.dead_letters import GROUP as LETTERS_GROUP
from roq.client.operate.dead_letters import Wanted
from roq.client.request.views import ServiceView
from roq.console.audit import Audit
from roq.console.dead_letters import LETTERS_SHOWN, LetterGone, Letters
from roq.console.looks import Look
from roq.console.settings import ConsoleSettings
from roq.console.source import Source
from roq.console.stalls import Stall, stalls
from roq.errors import GroupNotFound, InvalidRequest, JobNotFound, QueueNotFound, RoQError
from roq.protocol.public_answers import QueueSummary

if TYPE_CHECKING:
    from roq.console.jobs import JobDesk

EVENTS_SHOWN: Final = 50
EVENTS_OF_ALL: Final = 12
PUBLISHERS_SHOWN: Final = 100
SERVICES_SHOWN: Final = 100
REQUESTS_SHOWN: Final = 100
GROUPS_SECONDS: Final = 10.0
"""Those of all queues are asked for so often, services too; of a queue that is open more often."""
GROUPS_WAIT_SECONDS: Final = 2.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """A page, not written yet.

    Attributes:
        template: file.
        title: of the window.
        fill: what the template is filled with.
        live: fragments of it are sent as they change.
        status: of HTTP.
    """

    template: str
    title: str
    fill: Mapping[str, Any] = field(default_factory=dict)
    live: bool = True
    status: int = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What a browser asks for.

    Attributes:
        parts: of the path, by name.
        query: behind it.
        operates: whether it may change things.
        jobs: None: there are none.
    """

    source: Source
    settings: ConsoleSettings
    audit: Audit
    letters: Letters
    parts: Mapping[str, str]
    query: Mapping[str, str]
    operates: bool
    jobs: JobDesk | None = None


Page = Callable[[Asked], View]


def overview(asked: Asked) -> View:
    """How the cluster stands, what does not go on, and its queues."""
    source = asked.source
    queues, hosts, health = source.queues(), source.hosts(), source.health()
    reports = source.reports()
    rows: list[QueueSummary] = queues.value or []
    running = [row.name for row in rows if row.running]
    known = _groups(source, running, wait=0.0)
    groups = {name: look.value for name, look in known.items() if look.value is not None}
    views = [view for name in running if (view := source.view(name)) is not None]
    return View(
        "overview.html",
        "Overview",
        {
            "queues": queues,
            "hosts": hosts,
            "health": health,
            "stalls": [
                *_job_stalls(asked),
                *stalls(rows, hosts.value or [], health.value, reports, groups),
            ],
            "views": {view.queue: view for view in views},
            "histories": {name: source.history(name) for name in running},
            "groups": groups,
            "running": running,
            "totals": {
                "messages_in": sum(view.messages_in for view in views),
                "bytes_in": sum(view.bytes_in for view in views),
                "messages_out": sum(view.messages_out for view in views),
                "bytes_out": sum(view.bytes_out for view in views),
                "publishers": sum(view.publisher_count for view in views),
                "subscribers": sum(view.subscriber_count for view in views),
                "exchanges": sum(len(view.exchanges) for view in views),
            },
            "events": _newest(
                ((view.queue, event) for view in views for event in view.events), EVENTS_OF_ALL
            ),
            "hidden": source.hidden,
        },
    )


def _job_stalls(asked: Asked) -> list[Stall]:
    if asked.jobs is None:
        return []
    look = asked.jobs.look("stalls", lambda operate: operate.stalls())
    if look.error is not None:
        return [Stall("jobs", "database", "/jobs", str(look.error))]
    found = look.value or []
    return [
        Stall("jobs", each.type, f"/jobs/list?{urlencode({'type': each.type})}", each.why)
        for each in found
    ]


def queue(asked: Asked) -> View:
    """One queue: load, exchanges, publishers, moves, groups, rules."""
    name = asked.parts["queue"]
    source = asked.source
    look = source.describe(name)
    described = _present(look)
    view = source.view(name)
    return View(
        "queue.html",
        f"Queue {name}",
        {
            "name": name,
            "queue": described,
            "gone": ("away", "failed", "missing", "lost"),
            "look": look,
            "view": view,
            "report": source.reports().get(name),
            "history": source.history(name),
            "rows": {row.exchange: row for row in view.exchanges} if view else {},
            "publishers": view.publishers[:PUBLISHERS_SHOWN] if view else [],
            "subscribers": view.subscribers[:PUBLISHERS_SHOWN] if view else [],
            "events": _newest(
                ((name, event) for event in view.events) if view else (), EVENTS_SHOWN
            ),
            "groups": source.groups(name) if described.running else None,
            "rules": rules.fields_of(rules.in_force(described), rules.limit_of(described)),
            "letters": _letters_of(source, name),
            "links": asked.settings.links_of(queue=name),
            "exchange_links": {
                each.name: asked.settings.links_of(queue=name, exchange=each.name)
                for each in described.exchanges
            },
        },
    )


def hosts(asked: Asked) -> View:
    """The hosts and what runs on them."""
    look = asked.source.hosts()
    links = {row.host: asked.settings.links_of(host=row.host) for row in look.value or []}
    return View("hosts.html", "Hosts", {"hosts": look, "links": links})


def groups(asked: Asked) -> View:
    """The consumer groups of all queues."""
    queues = asked.source.queues()
    running = [row.name for row in queues.value or [] if row.running]
    known = _groups(asked.source, running, GROUPS_WAIT_SECONDS)
    return View("groups.html", "Consumer groups", {"queues": queues, "groups": known})


def group(asked: Asked) -> View:
    """One consumer group: how it stands at each exchange, and its members."""
    name, group_name = asked.parts["queue"], asked.parts["group"]
    look = asked.source.group(name, group_name)
    listing = _present(look)
    return View(
        "group.html",
        f"Group {group_name} of {name}",
        {
            "name": name,
            "group": listing[0],
            "look": look,
            "listing": listing,
            "links": asked.settings.links_of(queue=name, group=group_name),
        },
    )


def services(asked: Asked) -> View:
    """The services of all queues."""
    queues = asked.source.queues()
    running = [row.name for row in queues.value or [] if row.running]
    known = _groups(asked.source, running, GROUPS_WAIT_SECONDS)
    names = [
        (queue, each.name)
        for queue, look in known.items()
        for each in look.value or []
        if each.service
    ]
    shown = names[:SERVICES_SHOWN]
    return View(
        "services.html",
        "Services",
        {
            "queues": queues,
            "groups": known,
            "services": _services(asked.source, shown, GROUPS_WAIT_SECONDS),
            "more": len(names) - len(shown),
        },
    )


def service(asked: Asked) -> View:
    """One service: its instances, its requests, and how they have ended."""
    name, service_name = asked.parts["queue"], asked.parts["service"]
    look = asked.source.service(name, service_name)
    found = _present(look)
    return View(
        "service.html",
        f"Service {service_name} of {name}",
        {
            "name": name,
            "service": found,
            "look": look,
            "requests": found.requests[:REQUESTS_SHOWN],
            "more": found.more or len(found.requests) > REQUESTS_SHOWN,
            "settings": settings_texts(found.settings),
            "links": asked.settings.links_of(queue=name, group=service_name),
        },
    )


def dead(asked: Asked) -> View:
    """The queues of dead letters."""
    queues = asked.source.queues()
    rows = [row for row in queues.value or [] if row.name.endswith(SUFFIX)]
    known = _groups(asked.source, [row.name for row in rows if row.running], GROUPS_WAIT_SECONDS)
    return View(
        "dead.html", "Dead letters",
        {"queues": queues, "rows": rows, "groups": known, "group": LETTERS_GROUP, "suffix": SUFFIX},
    )  # fmt: skip


def letters(asked: Asked) -> View:
    """The dead letters of a queue, the oldest first."""
    name = asked.parts["queue"]
    wanted = wanted_letters(asked.query, LETTERS_SHOWN + 1)
    found = asked.letters.list(name, wanted)
    return View(
        "letters.html",
        f"Dead letters of {name}",
        {
            "name": name,
            "wanted": wanted,
            "letters": found[:LETTERS_SHOWN],
            "more": len(found) > LETTERS_SHOWN,
            "filters": {
                key: asked.query[key]
                for key in ("reason", "topic", "group")
                if asked.query.get(key)
            },
        },
        live=False,
    )


def letter(asked: Asked) -> View:
    """One dead letter with its payload."""
    name = asked.parts["queue"]
    found = asked.letters.show(name, asked.parts["letter"])
    return View("letter.html", "Dead letter", {"name": name, "letter": found}, live=False)


def health(asked: Asked) -> View:
    """Every daemon with all of its checks."""
    return View("health.html", "Health", {"health": asked.source.health()})


def audit(asked: Asked) -> View:
    """What was done by way of this console."""
    return View("audit.html", "Audit", {"deeds": asked.audit.deeds()})


PAGES: Final[dict[str, Page]] = {
    "/": overview,
    "/queues/{queue}": queue,
    "/queues/{queue}/groups/{group}": group,
    "/queues/{queue}/services/{service}": service,
    "/queues/{queue}/dead": letters,
    "/queues/{queue}/dead/{letter}": letter,
    "/hosts": hosts,
    "/groups": groups,
    "/services": services,
    "/dead": dead,
    "/health": health,
    "/audit": audit,
}
"""Path → page."""
STILL: Final = frozenset({letters, letter})
"""Pages that are made once and not as they change: to make one is to hold dead letters."""


def wanted_letters(query: Mapping[str, str], count: int) -> Wanted:
    """Which dead letters a filter means."""
    return Wanted(
        letters=None,
        reason=query.get("reason", ""),
        topic=query.get("topic", ""),
        group=query.get("group", ""),
        count=count,
        wait=Letters.WAIT_SECONDS,
    )


def failed(error: RoQError) -> View:
    """A page that cannot be shown, and why."""
    if is_missing(error):
        status, title = 404, "There is no such thing"
    elif isinstance(error, InvalidRequest):
        status, title = 400, "That cannot be"
    else:
        status, title = 503, "The cluster does not tell"
    return View(
        "failed.html", title, {"error": error, "title": title}, live=status == 503, status=status
    )


def is_missing(error: RoQError) -> bool:
    """Whether what was asked for does not exist, or not any more."""
    return isinstance(error, GroupNotFound | QueueNotFound | JobNotFound | LetterGone)


def _present(look: Look[T]) -> T:
    """What is known, unless it is known that it is gone."""
    if look.error is not None and is_missing(look.error):
        raise look.error
    value = look.get()
    if isinstance(value, GroupListing) and not value:
        raise GroupNotFound("there is no such group any more")
    return value


def _groups(source: Source, names: Iterable[str], wait: float) -> dict[str, Look[GroupListing]]:
    """The groups of these queues, asked for side by side, waited for together."""
    wanted = list(names)
    for name in wanted:
        source.groups(name, GROUPS_SECONDS, 0.0)
    deadline = time.monotonic() + wait
    return {
        name: source.groups(name, GROUPS_SECONDS, max(0.0, deadline - time.monotonic()))
        for name in wanted
    }


def _services(
    source: Source, names: list[tuple[str, str]], wait: float
) -> dict[tuple[str, str], Look[ServiceView]]:
    """These services, asked for side by side, waited for together."""
    for each in names:
        source.service(*each, GROUPS_SECONDS, 0.0)
    deadline = time.monotonic() + wait
    return {
        each: source.service(*each, GROUPS_SECONDS, max(0.0, deadline - time.monotonic()))
        for each in names
    }


def _newest(events: Iterable[tuple[str, Event]], count: int) -> list[tuple[str, Event, bool]]:
    """Queue, event, and whether it is a move; the newest first."""
    found = sorted(events, key=lambda each: -each[1].at)[:count]
    return [(name, event, isinstance(event, MoveEvent)) for name, event in found]


def _letters_of(source: Source, name: str) -> str:
    """The queue of its dead letters; empty: it has none."""
    letters = f"{name}{SUFFIX}"
    names = {row.name for row in source.queues().value or []}
    return letters if letters in names else ""
