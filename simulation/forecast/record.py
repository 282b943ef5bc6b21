"""A run of the model as the documents of a run: what was asked, what came out, how it went."""

from __future__ import annotations

import platform
from math import ceil, isfinite
from typing import Final

import msgspec

import roq
from roq.demo.latency import Histogram
from roq.model import exchange_name
from roq.simulation.forecast.calibration import STATED
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.cell import MODELLED
from roq.simulation.forecast.order import RunOrder
from roq.simulation.forecast.outcome import Outcome
from roq.simulation.forecast.windows import PARTS, Window, Work
from roq.simulation.lab.archive import document as archive
from roq.simulation.lab.archive.document import EventKind, Run, RunKind, RunState
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.real.results import Machine
from roq.simulation.scenario.offered import offered
from roq.simulation.scenario.scenario import Scenario

WINDOWS: Final = 600
"""Of one queue; the windows of short runs are of a second."""
WINDOWS_OF_MANY: Final = 120
"""Of a cluster with several queues."""
CLOCK: Final = "one virtual clock"
NOTHING_SENT: Final = (
    "A model: the policies are RoQ's own, loads and delays are computed. No message was sent, so "
    "nothing is said about what was lost, doubled or out of order."
)
LATENCY: Final = (
    "Latency is that of a formula for the waits in an exchange and for a core of its host; what "
    "moves and faults cost is not in it, so its rare values are not judged."
)
ERROR: Final = (
    "In live runs that it had not seen the model was off by up to {hours:.0%} in exchange-hours, "
    "{moves:.0%} in moves, {cpu:.0%} in the processor time of exchanges and, where the machine was "
    "not full, {latency:.0%} in the median and the 99th percentile of latency. On a machine that "
    "is full of other programs exchanges come and go by chance: two more runs had 5 and 12 moves, "
    "and three exchanges, where the model has 3 and two."
)
KINDS: Final = {
    "move": EventKind.MOVE,
    "move failed": EventKind.MOVE_FAILED,
    "out": EventKind.SCALE_OUT,
    "out failed": EventKind.SCALE_FAILED,
    "in": EventKind.SCALE_IN,
    "death": EventKind.DEATH,
    "serves": EventKind.SERVES,
}
TEXTS: Final = {
    "move": "a publisher moves to {}",
    "move failed": "a publisher does not get to {}",
    "out": "{} is new",
    "out failed": "one exchange more is refused",
    "in": "{} goes",
    "death": "{} dies",
    "serves": "{} serves again",
}
JUDGED: Final = {"p50": 50.0, "p90": 90.0}
LIKE_OUTCOME: Final = (
    "exchanges_most", "exchanges_last", "moves", "moves_failed", "scale_outs", "scale_ins",
    "scale_failed", "deaths", "imbalance_mean", "imbalance_last", "overload_minutes",
    "saturated_minutes", "unserved_minutes", "latency_mean_ms", "exchange_hours", "host_hours",
    "used_host_hours", "host_hours_per_million", "policy_errors", "rounds", "asked", "asked_ahead",
)  # fmt: skip
MAYBE: Final = ("reaction_seconds", "reaction_max_seconds", "relief_seconds", "scale_out_seconds")
"""Of what need not have happened."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and what it took.

    Attributes:
        order: by the user.
        case: as it was played.
        began: seconds since 1970.
        took: seconds.
    """

    order: RunOrder
    case: Case
    began: float
    took: float


def detailed(case: Case, seed: int) -> Case:
    """The case with this seed, and with as many windows as are kept of it.

    What changes all the time changes with each window at least, unless there are many queues.
    """
    seconds = case.scenario.seconds
    if case.queues > 1:
        return msgspec.structs.replace(case, seed=seed, windows=min(ceil(seconds), WINDOWS_OF_MANY))
    windows = min(ceil(seconds), WINDOWS)
    step = min(case.parameters.step_seconds, seconds / windows)
    parameters = msgspec.structs.replace(case.parameters, step_seconds=step)
    return msgspec.structs.replace(case, seed=seed, windows=windows, parameters=parameters)


def run_of(run_id: str, asked: Asked, machine: Machine, found: Outcome | None) -> Run:
    """The run.

    Args:
        run_id: of its folder.
        asked: what was asked for.
        machine: that has played it.
        found: what came out; None: it was interrupted.
    """
    case, order = asked.case, asked.order
    figures: dict[str, float] = {}
    if found is not None:
        figures = figures_of(case, found) | {"took_seconds": round(asked.took, 3)}
    return Run(
        id=run_id,
        kind=RunKind.MODEL,
        state=RunState.COMPLETE if found is not None else RunState.INTERRUPTED,
        error="" if found is not None else "it was interrupted, and parts say nothing of the whole",
        scenario=case.as_played(),
        time_scale=order.scale,
        seed=case.seed,
        began_us=int(asked.began * 1e6),
        seconds=case.scenario.seconds,
        settings={
            "hosts": case.hosts_wanted,
            "queues": case.queues,
            "publishers": _most_publishers(case.scenario),
            "cells": case.cells,
            "spread": case.parameters.spread,
            "workers": order.workers,
            **order.settings,
        },
        versions={
            "roq": roq.__version__,
            "python": platform.python_version(),
            "msgspec": msgspec.__version__,
        },
        machine=machine,
        clock=CLOCK,
        figures=figures,
        verdicts=judge(case.scenario.expect, figures),
        phases=[
            archive.PhaseTime(name=phase.name, begins=begin, ends=begin + phase.seconds)
            for begin, phase in case.scenario.timed()
        ],
        remarks=remarks_of(case, found),
    )


def figures_of(case: Case, found: Outcome) -> dict[str, float]:
    """By the names that expectations use, and more; what a model cannot say is not there."""
    every = found.figures
    messages, seconds = every["messages"], every["seconds"]
    figures = {name: every[name] for name in LIKE_OUTCOME}
    received = sum(work.messages_out for window in found.windows for work in window.work.values())
    wanted = offered(case.scenario, 0.0, seconds).messages
    figures |= {
        "sent": messages,
        "received": received,
        "load_reached": messages / wanted if wanted else 1.0,
        "messages_per_second": messages / seconds,
        "bytes_per_second": every["bytes"] / seconds,
        "model_cpu_seconds": every["cpu_seconds"],
    }
    if messages:
        figures["cpu_seconds_per_million"] = every["busy_seconds"] / messages * 1e6
    for name in MAYBE:
        if isfinite(every[name]):
            figures[name] = every[name]
    whole = Histogram()
    for window in found.windows:
        whole.merge(Histogram(window.latency))
    if whole.counts():
        for name, percent in JUDGED.items():
            figures[f"latency_{name}_ms"] = 1_000 * whole.percentile(percent)
    return figures


def series_of(case: Case, found: Outcome) -> archive.Series:
    """How the run went."""
    seconds = found.figures["seconds"] / max(1, len(found.windows))
    return archive.Series(
        window_seconds=seconds,
        windows=[_window(case, each, seconds) for each in found.windows],
        events=_events(case, found),
        events_left_out=found.events_left_out,
    )


def remarks_of(case: Case, found: Outcome | None) -> list[str]:
    """What a reader has to know."""
    scenario = case.scenario
    remarks = [NOTHING_SENT, LATENCY, ERROR.format(**msgspec.structs.asdict(STATED))]
    left_out = sorted({
        f"{each.kind} {each.target}"
        for each in scenario.faults
        if (each.kind, each.target) not in MODELLED
    })  # fmt: skip
    if left_out:
        remarks.append(f"Faults that mean nothing to the model were left out: {_and(left_out)}.")
    if found is not None and found.figures["unserved_minutes"]:
        remarks.append(
            "What publishers hold back while they have no exchange is not counted as sent."
        )
    if any(phase.consumers for phase in scenario.phases):
        remarks.append("Consumers are not modelled.")
    if any(each.topic for phase in scenario.phases for each in phase.subscribers):
        remarks.append("Subscribers of a part of all topics are not modelled.")
    if case.cells > 1:
        remarks.append(
            f"The cluster is played in {case.cells} cells that know nothing of each other; a fault "
            "happens in each."
        )
    return remarks


def _window(case: Case, window: Window, seconds: float) -> archive.Window:
    latency = None
    messages = sum(work.messages for work in window.work.values())
    if messages and window.latency:
        mean = window.latency_messages / messages / 1_000
        latency = archive.LatencyWindow.of(Histogram(window.latency), mean, PARTS)
    even = window.imbalance_seconds / window.balanced_over if window.balanced_over else None
    if case.parameters.stagger_seconds:
        wanted = messages / seconds  # each queue is at another moment of the load
    else:
        wanted = offered(case.scenario, window.at - seconds, window.at).messages / seconds
    return archive.Window(
        at=window.at,
        exchanges=[
            _exchange(number, work, seconds) for number, work in sorted(window.work.items())
        ],
        serving=window.serving,
        latency=latency,
        imbalance=even,
        offered=wanted,
    )


def _exchange(number: int, work: Work, seconds: float) -> archive.ExchangeWindow:
    return archive.ExchangeWindow(
        exchange=number,
        messages_in=work.messages / seconds,
        bytes_in=work.bytes / seconds,
        messages_out=work.messages_out / seconds,
        bytes_out=work.bytes_out / seconds,
        publishers=work.publishers,
        cpu_percent=100 * work.busy_seconds / seconds,
    )


def _events(case: Case, found: Outcome) -> list[archive.Event]:
    apart = case.queues == 1
    events = [
        archive.Event(at=begin, kind=EventKind.PHASE, text=phase.name)
        for begin, phase in case.scenario.timed()
    ]
    events += [
        archive.Event(at=each.at, kind=EventKind.FAULT, text=f"{each.kind} {each.target}")
        for each in case.scenario.faults
        if (each.kind, each.target) in MODELLED
    ]
    events += [
        archive.Event(
            at=when,
            kind=KINDS[what],
            exchange=number if apart else 0,
            text=TEXTS[what].format(exchange_name(number) if apart else "an exchange"),
        )
        for when, what, number in found.events
    ]
    return sorted(events, key=lambda each: each.at)


def _most_publishers(scenario: Scenario) -> int:
    return max(sum(group.count for group in phase.publishers) for phase in scenario.phases)


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
