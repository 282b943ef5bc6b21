"""What a scenario says that no run can play: found when it is read, with where it stands; pure."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final, NamedTuple

from roq.client.admin.views import rules_document
from roq.errors import ConfigError, InvalidRequest
from roq.policy.catalogue import ENTRY_POINTS, POLICIES
from roq.protocol.public import limits_of
from roq.protocol.scaling_rules import PARTS, check_part
from roq.simulation.scenario.scenario import Fault, Scenario
from roq.simulation.scenario.settings import queue_limits, queue_rules

KINDS: Final = ("kill", "pause")
"""Faults that some player makes: a live run all of them, the model some."""
TARGETS: Final = ("exchange", "monitor", "host_manager", "manager", "zookeeper", "host")
SERVERS_MAX: Final = 5
"""ZooKeeper servers, and configuration managers, that a run has at most."""


class Problem(NamedTuple):
    """Something that cannot be.

    Attributes:
        key: what is named in the error, such as `faults[0].index`.
        text: what is wrong with it.
        inner: the key below `key` whose line is meant; empty: that of `key` itself.
    """

    key: str
    text: str
    inner: str = ""

    @property
    def path(self) -> str:
        """Where it stands."""
        return f"$.{self.key}{'.' * bool(self.inner)}{self.inner}"


def problems(scenario: Scenario) -> Iterator[Problem]:
    """What cannot be played of a scenario, in the order of its keys."""
    wrong = [*_limits(scenario), *_rules(scenario)]
    yield from wrong
    yield from _phases(scenario)
    if not wrong:  # else it is not known how many exchanges there may be
        yield from _faults(scenario)


def _limits(scenario: Scenario) -> Iterator[Problem]:
    given = scenario.queue.limits
    try:
        queue_limits(scenario)
    except ConfigError as error:
        yield Problem("queue.limits", _why(error), _named(given, str(error)))
        return
    try:
        limits_of(given)
    except InvalidRequest as error:
        yield Problem("queue.limits", str(error), _named(given, str(error)))


def _rules(scenario: Scenario) -> Iterator[Problem]:
    given = scenario.queue.rules
    try:
        rules = queue_rules(scenario)
    except ConfigError as error:
        yield Problem("queue.rules", _why(error), _named(given, str(error)))
        return
    if rules is None:
        return
    known = {*POLICIES, *(point.name for point in entry_points(group=ENTRY_POINTS))}
    if rules.policy not in known:
        text = f"there is no policy {rules.policy!r}; there are {', '.join(sorted(known))}"
        yield Problem("queue.rules", text, "policy")
        return
    document = rules_document(rules)
    for name, kind in PARTS.items():
        part = document[name]
        assert isinstance(part, dict)  # noqa: S101 - narrows the type
        try:
            check_part(kind(**part))
        except InvalidRequest as error:
            words, field = _as_given(str(error), part, given)
            yield Problem("queue.rules", words, field)
            return


def _as_given(
    text: str, part: dict[str, int | str], given: dict[str, int | str]
) -> tuple[str, str]:
    """A refusal in the words of the scenario, and the first rule that it names."""
    found: list[tuple[int, str]] = []
    for field, value in part.items():
        same = [name for name, told in given.items() if told == value]
        if field in text and same:
            found.append((text.index(field), same[0]))
            text = text.replace(field, same[0])
    return text, min(found)[1] if found else ""


def _phases(scenario: Scenario) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, phase in enumerate(scenario.phases):
        if phase.name in seen:
            text = f"two phases have the same name, {phase.name}"
            yield Problem(f"phases[{number}].name", text)
        seen.add(phase.name)


def _faults(scenario: Scenario) -> Iterator[Problem]:
    rules = queue_rules(scenario)
    most = rules.exchanges_max if rules is not None else queue_limits(scenario).exchanges_max
    if rules is not None and rules.policy == "static":
        most = 1
    most = max(scenario.queue.exchanges, most)
    for number, fault in enumerate(scenario.faults):
        here = f"faults[{number}]"
        if fault.at > scenario.seconds:
            text = f"a fault at {fault.at:g} s comes after the end at {scenario.seconds:g} s"
            yield Problem(f"{here}.at", text)
        if fault.kind not in KINDS:
            text = f"there is no fault {fault.kind!r}; there are {', '.join(KINDS)}"
            yield Problem(f"{here}.kind", text)
        if fault.target not in TARGETS:
            text = f"no fault harms a {fault.target}; there are {', '.join(TARGETS)}"
            yield Problem(f"{here}.target", text)
        elif (there := _there(fault, scenario, most)) <= fault.index:
            text = f"there {'is' if there == 1 else 'are'} at most {there}, counted from 0"
            yield Problem(f"{here}.index", f"of {fault.target} {fault.index}: {text}")


def _there(fault: Fault, scenario: Scenario, exchanges: int) -> int:
    """How many of its target there may be."""
    match fault.target:
        case "exchange":
            return exchanges
        case "monitor":
            return 1
        case "host" | "host_manager":
            return scenario.hosts
        case _:
            return SERVERS_MAX


def _why(error: ConfigError) -> str:
    return str(error).partition(": ")[2]


def _named(given: dict[str, int] | dict[str, int | str], text: str) -> str:
    """The first of these keys that a text names."""
    return min((name for name in given if name in text), key=text.index, default="")
