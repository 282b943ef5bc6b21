"""Who does what in a live run: a scenario as stays of clients, dealt to tasks; pure.

Publisher n of group g is the same client in all phases that have a group g with more than n, as in
forecasts; each stretch of time in which it is there without a break is a stay, with a connection
of its own. Subscribers stay until a phase names others. Times are seconds since the load began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import ceil
from typing import Final

import msgspec

from roq.errors import ConfigError
from roq.model import encode_topic
from roq.simulation.lab.live.stamp import STAMP_BYTES
from roq.simulation.scenario.draws import (
    Choice,
    LogNormal,
    Size,
    Topics,
    Uniform,
    mean_size,
)
from roq.simulation.scenario.rates import Rate, sent_by
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario, SubscriberGroup
from roq.simulation.scenario.settings import queue_limits, queue_rules

GRACE_SECONDS: Final = 3.0
"""A subscriber that joins under load is in force so much later; what it is owed ends so much before
it leaves."""
CLIENTS_MAX: Final = 400
"""Publishers and subscribers of one task: each has sockets and descriptors of its own."""
STREAMS_MAX: Final = 2_000_000
"""Streams (publisher, topic) at subscribers, over all of these: each is followed one by one."""
TASK_MESSAGES: Final = 15_000.0
"""Messages a second, sent or received, that one task is meant to do."""
TASKS_MAX: Final = 1_000
_GOLDEN: Final = 0.6180339887498949


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class Stretch(Part, frozen=True, kw_only=True):
    """What a publisher does in one phase.

    Attributes:
        begins, ends: of the stretch.
        phase_begins, phase_seconds: of the whole phase, in which the rate is described.
    """

    begins: float
    ends: float
    phase_begins: float
    phase_seconds: float
    rate: Rate
    size: Size
    topics: Topics


class PublisherStay(Part, frozen=True, kw_only=True):
    """A publisher, from when it comes until it goes.

    Attributes:
        name: of the client.
        source: number of the stay; what it publishes bears it.
        stagger: share of a message by which it is ahead of others that come at the same time.
    """

    name: str
    source: int
    stagger: float
    stretches: list[Stretch]

    @property
    def begins(self) -> float:
        """When it comes."""
        return self.stretches[0].begins

    @property
    def ends(self) -> float:
        """When it goes."""
        return self.stretches[-1].ends

    def offered(self) -> tuple[float, float]:
        """Messages and payload bytes that it is to send."""
        messages = total = 0.0
        for each in self.stretches:
            sent = sent_by(each.rate, each.ends - each.phase_begins, each.phase_seconds)
            sent -= sent_by(each.rate, each.begins - each.phase_begins, each.phase_seconds)
            messages += sent
            total += sent * mean_size(each.size)
        return messages, total


class SubscriberStay(Part, frozen=True, kw_only=True):
    """A subscriber, from when it comes until it goes.

    Attributes:
        name: of the client.
        topic: prefix of what it gets.
        begins, ends: when it comes and goes.
        due_from, due_until: it is owed what is meant to be sent in between.
        last: it stays to the end.
    """

    name: str
    topic: str
    begins: float
    ends: float
    due_from: float
    due_until: float
    last: bool


class Share(Part, frozen=True, kw_only=True):
    """What one task does."""

    publishers: list[PublisherStay] = []
    subscribers: list[SubscriberStay] = []


class Plan(Part, frozen=True, kw_only=True):
    """What all tasks do.

    Attributes:
        seconds: how long the load lasts.
        shares: one for each task.
        marks: moments at which publishers note how far they are, because what a subscriber is
            owed begins or ends there.
        prefixes: of all subscribers.
        offered: messages that are to be sent.
        remarks: what a reader of the run has to know, in sentences.
    """

    seconds: float
    shares: list[Share]
    marks: list[float]
    prefixes: list[str]
    offered: float
    remarks: list[str] = []

    @property
    def publishers(self) -> list[PublisherStay]:
        """All of them."""
        return [each for share in self.shares for each in share.publishers]

    @property
    def subscribers(self) -> list[SubscriberStay]:
        """All of them."""
        return [each for share in self.shares for each in share.subscribers]

    @property
    def senders(self) -> list[int]:
        """Tasks that have publishers."""
        return [number for number, share in enumerate(self.shares) if share.publishers]


def plan(scenario: Scenario, *, tasks: int = 0, where: str = "") -> Plan:
    """What each task does.

    Args:
        scenario: as it is to be run, scaled already.
        tasks: how many; 0: as many as the load needs.
        where: file of the scenario, for errors.

    Raises:
        ConfigError: a live run cannot do this; says where it stands and why.
    """
    if problems := list(_problems(scenario)):
        name = where or f"scenario {scenario.name}"
        raise ConfigError("\n".join(f"{name}: {each}" for each in problems))
    _check_clients(scenario, tasks or TASKS_MAX)
    publishers, subscribers = _publishers(scenario), _subscribers(scenario)
    _check_streams(publishers, subscribers)
    owed = {each.due_from for each in subscribers} | {each.due_until for each in subscribers}
    return Plan(
        seconds=scenario.seconds,
        shares=_shares(publishers, subscribers, tasks, scenario.seconds),
        marks=sorted(each for each in owed if 0 < each < scenario.seconds),
        prefixes=sorted({each.topic for each in subscribers}),
        offered=sum(each.offered()[0] for each in publishers),
        remarks=list(_remarks(scenario, subscribers)),
    )


# --- clients --------------------------------------------------------------------------------------


def _publishers(scenario: Scenario) -> list[PublisherStay]:
    found: list[PublisherStay] = []
    groups = max(len(phase.publishers) for phase in scenario.phases)
    for place in range(groups):
        for index in range(_coming(scenario, place) + 1):  # a product may be rounded
            for stretches in _stays_of_one(scenario, place, index):
                source = len(found)
                found.append(
                    PublisherStay(
                        name=f"publisher-{place}-{index}",
                        source=source,
                        stagger=source * _GOLDEN % 1.0,
                        stretches=stretches,
                    )
                )
    return found


def _stays_of_one(scenario: Scenario, place: int, index: int) -> Iterator[list[Stretch]]:
    stretches: list[Stretch] = []
    for begin, phase in scenario.timed():
        group = phase.publishers[place] if index < _count(phase, place) else None
        if group is None:
            if stretches:
                yield stretches
            stretches = []
            continue
        # Who is there already goes on; newcomers take their turn.
        first = begin if stretches else begin + group.begins(index)
        if first < begin + phase.seconds:
            stretches.append(_stretch(first, begin, phase, group))
    if stretches:
        yield stretches


def _stretch(first: float, begin: float, phase: Phase, group: PublisherGroup) -> Stretch:
    return Stretch(
        begins=first,
        ends=begin + phase.seconds,
        phase_begins=begin,
        phase_seconds=phase.seconds,
        rate=group.rate,
        size=group.size,
        topics=group.topics,
    )


def _count(phase: Phase, place: int) -> int:
    return phase.publishers[place].count if place < len(phase.publishers) else 0


def _coming(scenario: Scenario, place: int) -> int:
    """How many publishers of a group come at all; others would come after the end of each phase."""
    return max(
        min(group.count, ceil(phase.seconds * group.spawn_rate) or group.count)
        for phase in scenario.phases
        for group in phase.publishers[place : place + 1]
    )


def _subscribers(scenario: Scenario) -> list[SubscriberStay]:
    there: dict[tuple[int, int, str], float] = {}
    found: list[SubscriberStay] = []
    for begin, phase in scenario.timed():
        if not phase.subscribers:
            continue
        wanted = dict.fromkeys(_wanted(phase.subscribers), begin)
        gone = [key for key in there if key not in wanted]
        found += [_stay(key, there.pop(key), begin, scenario.seconds) for key in gone]
        there = {**wanted, **there}
    end = scenario.seconds
    found += [_stay(key, begins, end, end) for key, begins in there.items()]
    return sorted(found, key=lambda stay: (stay.begins, stay.name))


def _wanted(groups: Iterable[SubscriberGroup]) -> Iterator[tuple[int, int, str]]:
    for place, group in enumerate(groups):
        for index in range(group.count):
            yield place, index, group.topic


def _stay(key: tuple[int, int, str], begins: float, ends: float, seconds: float) -> SubscriberStay:
    place, index, topic = key
    last = ends >= seconds
    return SubscriberStay(
        name=f"subscriber-{place}-{index}",
        topic=topic,
        begins=begins,
        ends=ends,
        due_from=begins + GRACE_SECONDS if begins else 0.0,
        due_until=seconds if last else ends - GRACE_SECONDS,
        last=last,
    )


# --- tasks ----------------------------------------------------------------------------------------


def _shares(
    publishers: list[PublisherStay],
    subscribers: list[SubscriberStay],
    tasks: int,
    seconds: float,
) -> list[Share]:
    """Publishers and subscribers in tasks of their own, if there is more than one task."""
    sent = sum(each.offered()[0] for each in publishers) / seconds
    received = sent * len(subscribers)
    least_sending = _tasks_for(sent, len(publishers))
    least_receiving = _tasks_for(received, len(subscribers))
    if not tasks:
        tasks = least_sending + least_receiving
    needed = ceil((len(publishers) + len(subscribers)) / CLIENTS_MAX)
    if not needed <= tasks <= TASKS_MAX:
        raise _wrong_tasks(len(publishers), len(subscribers), tasks)
    if tasks == 1 or not publishers or not subscribers:
        return [
            Share(publishers=publishers[number::tasks], subscribers=subscribers[number::tasks])
            for number in range(tasks)
        ]
    sending = round(tasks * least_sending / (least_sending + least_receiving))
    least = ceil(len(publishers) / CLIENTS_MAX)
    most = tasks - ceil(len(subscribers) / CLIENTS_MAX)
    sending = min(max(sending, least, 1), max(most, 1))
    receiving = tasks - sending
    return [Share(publishers=publishers[number::sending]) for number in range(sending)] + [
        Share(subscribers=subscribers[number::receiving]) for number in range(receiving)
    ]


def _tasks_for(messages: float, clients: int) -> int:
    if not clients:
        return 0
    return max(1, ceil(clients / CLIENTS_MAX), min(clients, ceil(messages / TASK_MESSAGES)))


# --- what cannot be -------------------------------------------------------------------------------


def _problems(scenario: Scenario) -> Iterator[str]:
    for number, phase in enumerate(scenario.phases):
        here = f"phases[{number}]"
        if phase.consumers:
            yield (
                f"{here}.consumers: live runs have no consumers yet, for RoQ has no consumer "
                "groups; leave them out"
            )
        for place, group in enumerate(phase.publishers):
            key = f"{here}.publishers[{place}]"
            if _least(group.size) < STAMP_BYTES:
                yield (
                    f"{key}.size: a live run needs messages of at least {STAMP_BYTES} bytes, for "
                    "their time and number"
                )
            yield from _bad_topics(f"{key}.topics", group.topics)
        for place, subscribers in enumerate(phase.subscribers):
            yield from _bad_topic(f"{here}.subscribers[{place}].topic", subscribers.topic)
    if not any(phase.publishers for phase in scenario.phases):
        yield "phases: no publisher is there, so there would be no load"
    try:
        queue_limits(scenario)
    except ConfigError as error:
        yield str(error)
    try:
        queue_rules(scenario)
    except ConfigError as error:
        yield str(error)


def _least(size: Size) -> int:
    """The smallest that is drawn; what falls out of a log-normal one is sent a bit larger."""
    match size:
        case Uniform(least, _):
            return least
        case LogNormal(_, _, most):
            return most
        case Choice(values, _):
            return min(values)
        case _:
            return size


def _bad_topics(key: str, topics: Topics) -> Iterator[str]:
    names = topics.names if not topics.count else [f"{topics.prefix}{topics.count - 1}"]
    for name in names:
        yield from _bad_topic(key, name)


def _bad_topic(key: str, topic: str) -> Iterator[str]:
    try:
        encode_topic(topic)
    except Exception as error:  # noqa: BLE001 - whatever it says is said
        yield f"{key}: {error}"


def _check_clients(scenario: Scenario, tasks: int) -> None:
    """Refuse, before any of them is made, more clients than so many tasks can have."""
    groups = max(len(phase.publishers) for phase in scenario.phases)
    publishers = sum(_coming(scenario, place) for place in range(groups))
    subscribers = max(sum(each.count for each in phase.subscribers) for phase in scenario.phases)
    if publishers + subscribers > CLIENTS_MAX * tasks:
        raise _wrong_tasks(publishers, subscribers, tasks)


def _wrong_tasks(publishers: int, subscribers: int, tasks: int) -> ConfigError:
    needed = ceil((publishers + subscribers) / CLIENTS_MAX)
    so_many = f"{needed} to {TASKS_MAX}" if needed <= TASKS_MAX else f"{needed}"
    wrong = f"not {tasks}" if needed <= TASKS_MAX else f"more than the {TASKS_MAX} there can be"
    return ConfigError(
        f"{publishers} publishers and {subscribers} subscribers need {so_many} tasks "
        f"(at most {CLIENTS_MAX} clients each), {wrong}"
    )


def _check_streams(publishers: list[PublisherStay], subscribers: list[SubscriberStay]) -> None:
    topics = sum(len({topic for each in stay.stretches for topic in each.topics.all})
                 for stay in publishers)  # fmt: skip
    streams = topics * max(1, len(subscribers))
    if streams > STREAMS_MAX:
        raise ConfigError(
            f"{streams} streams (publisher, topic) at subscribers are too many to count what is "
            f"lost: at most {STREAMS_MAX}. Use fewer publishers, topics or subscribers"
        )


def _remarks(scenario: Scenario, subscribers: list[SubscriberStay]) -> Iterator[str]:
    sizes = [group.size for phase in scenario.phases for group in phase.publishers]
    if any(isinstance(size, LogNormal) for size in sizes):
        yield (
            f"Sizes that were drawn below {STAMP_BYTES} bytes were sent with {STAMP_BYTES}: "
            "every message bears its time and number."
        )
    if any(each.begins or not each.last for each in subscribers):
        yield (
            "Subscribers that come or go under load are owed what was meant to be sent from "
            f"{GRACE_SECONDS:g} s after they came until {GRACE_SECONDS:g} s before they went."
        )
    if not subscribers:
        yield "There is no subscriber, so nothing is known of latency and losses."
    gaps = [later - begin for (begin, _), (later, _) in pairwise(scenario.timed())]
    if subscribers and gaps and min(gaps) < 2 * GRACE_SECONDS and any(
        not each.last for each in subscribers
    ):  # fmt: skip
        yield "Some subscribers are there so shortly that nothing was owed to them."
