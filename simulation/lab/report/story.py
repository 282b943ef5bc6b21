"""What was asked, in words: load, queue and faults of a scenario; pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from roq.simulation.lab.report.wording import clean, count, duration, listed, number, quantity
from roq.simulation.scenario.draws import Choice, LogNormal, Size, Topics, Uniform
from roq.simulation.scenario.offered import Offered, offered_by_phase
from roq.simulation.scenario.rates import Burst, Diurnal, Ramp, Rate, Step, Trace, highest
from roq.simulation.scenario.scenario import (
    Fault,
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
)

_LISTED_MAX: Final = 6


class PhaseStory(NamedTuple):
    """A phase, as a table shows it."""

    name: str
    lasts: str
    publishers: str
    subscribers: str
    messages: str
    peak: str


def phases(scenario: Scenario) -> list[PhaseStory]:
    """All phases; subscribers of the phase before stay where nothing is said."""
    rows = []
    subscribers = "none"
    for phase, wanted in zip(scenario.phases, offered_by_phase(scenario), strict=True):
        subscribers = _subscribers(phase.subscribers) if phase.subscribers else subscribers
        rows.append(_phase(phase, wanted, subscribers))
    return rows


def _phase(phase: Phase, wanted: Offered, subscribers: str) -> PhaseStory:
    consumers = [f"{each.count:,} in group {each.group}" for each in phase.consumers]
    return PhaseStory(
        name=phase.name,
        lasts=duration(phase.seconds),
        publishers="; ".join(_short([publishers(each) for each in phase.publishers])) or "none",
        subscribers="; ".join([subscribers, *_short(consumers)]),
        messages=f"{number(wanted.messages)} ({quantity(wanted.bytes, 'B')})"
        if wanted.messages
        else "none",
        peak=quantity(phase.peak(), "/s"),
    )


def publishers(group: PublisherGroup) -> str:
    """A group of publishers: `16 × 56.7/s, 5 kB each, one more every 60 s`."""
    parts = [f"{group.count:,} × {rate(group.rate)}", f"{size(group.size)} each"]
    if group.spawn_rate >= 1:
        parts.append(f"{number(group.spawn_rate)} more every second")
    elif group.spawn_rate:
        parts.append(f"one more every {duration(1 / group.spawn_rate)}")
    if group.topics != Topics():
        parts.append(topics(group.topics))
    return ", ".join(parts)


def rate(found: Rate) -> str:
    """A rate of one publisher."""
    match found:
        case Ramp(start, end):
            return f"from {number(start)} to {number(end)}/s"
        case Step(rates):
            return f"{listed(_short([number(each) for each in rates]))}/s in turn"
        case Burst(base, peak, every, width):
            bursts = f"{number(peak)}/s for {duration(width)} every {duration(every)}"
            return f"{number(base)}/s, bursts of {bursts}"
        case Diurnal(low, high, period):
            return f"a wave of {number(low)} to {number(high)}/s, a period of {duration(period)}"
        case Trace():
            return f"as recorded, up to {number(highest(found))}/s"
        case _:
            return f"{number(found)}/s"


def size(found: Size) -> str:
    """Sizes of payloads."""
    match found:
        case Uniform(least, most):
            return f"{quantity(least, 'B')} to {quantity(most, 'B')}"
        case LogNormal(median, sigma):
            return f"log-normal around {quantity(median, 'B')} (σ {number(sigma)})"
        case Choice(values):
            return " or ".join(_short([quantity(each, "B") for each in values]))
        case _:
            return quantity(found, "B")


def topics(found: Topics) -> str:
    """What they publish under."""
    if found.count:
        skew = f", Zipf {number(found.zipf)}" if found.zipf else ""
        return f"{count(found.count, 'topic')} {clean(found.prefix, 40)}…{skew}"
    shown = listed(_short([clean(each, 40) for each in found.names]))
    return f"{'topic' if len(found.names) == 1 else 'topics'} {shown}"


def queue(settings: QueueSettings) -> list[tuple[str, str]]:
    """The queue: what it begins with, its limits and its rules, by their names."""
    pairs = [("exchanges at first", f"{settings.exchanges:,}")]
    for name, value in [*settings.limits.items(), *settings.rules.items()]:
        shown = clean(value, 80) if isinstance(value, str) else f"{value:,}"
        pairs.append((clean(name, 80).replace("_", " "), shown))
    return pairs


def fault(found: Fault) -> str:
    """A fault: `kill exchange 0`, `pause monitor 0 for 5 s`."""
    text = f"{found.kind} {found.target.replace('_', ' ')} {found.index}"
    if found.kind != "kill":
        text += f" for {duration(found.seconds)}"
    if found.kind == "loss":
        text += f", {quantity(found.amount, 'share')} of all packets"
    elif found.kind == "delay":
        text += f", by {duration(found.amount)}"
    return text


def _subscribers(groups: list[SubscriberGroup]) -> str:
    def one(group: SubscriberGroup) -> str:
        under = f" to {clean(group.topic, 40)}…" if group.topic else " to everything"
        return f"{group.count:,}{under}"

    return "; ".join(_short([one(group) for group in groups]))


def _short(parts: list[str]) -> list[str]:
    """The first of many, and how many more there are."""
    if len(parts) <= _LISTED_MAX:
        return parts
    return [*parts[: _LISTED_MAX - 1], f"{len(parts) - _LISTED_MAX + 1:,} more"]
