"""Asks the daemons of a cluster how they are: all of them side by side, each within a bound.

Configuration managers name each other, the leading one names the host managers and the monitors.
Who does not answer in time has a row as well: that is what a survey is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import zmq

from roq.client.cluster import connect
from roq.errors import RoQError, Unavailable
from roq.protocol.control import (
    Answer,
    ClusterInfo,
    ClusterInfoRequest,
    Control,
    Failure,
    Health,
    HealthRequest,
    Located,
    LocateRequest,
)
from roq.protocol.public_answers import HostSummary
from roq.protocol.reports import Check
from roq.runtime.addresses import parse_addresses
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient
from roq.runtime.sockets import new_context

SIDE_BY_SIDE_MAX: Final = 64
"""Questions under way at once."""
MANAGER_ROUNDS_MAX: Final = 3
"""Managers that are named by managers that are named by managers are enough."""
MANAGERS_MAX: Final = 100
_CARETAKER: Final = "caretaker"
_LOST: Final = "lost"

Question = tuple[str, Control]
"""Endpoint and what it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is known of one daemon."""

    role: str
    name: str
    address: str
    state: str
    ready: bool
    checks: tuple[Check, ...] = ()
    """Empty if it does not answer."""
    trouble: str = ""
    """Why nothing more is known of it."""

    @property
    def wrong(self) -> list[str]:
        """What a person should look at; empty if all is well."""
        failing = [f"{each.name}: {each.detail}" for each in self.checks if not each.ok]
        return [self.trouble, *failing] if self.trouble else failing


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster at one moment.

    Attributes:
        findings: configuration managers, host managers, monitors.
        troubles: why others may be missing among them.
    """

    findings: tuple[Finding, ...]
    troubles: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether everybody answers and does all of its work."""
        return not self.troubles and all(each.ready for each in self.findings)

    def ready_hosts(self) -> int:
        """How many host managers are ready."""
        return sum(each.ready for each in self.findings if each.role == "host")


def one(address: str, seconds: float) -> Survey:
    """Ask the one daemon that answers there, of whatever kind."""
    (answer,) = ask_all([(address, HealthRequest())], seconds)
    return Survey((_finding("?", "", address, answer),))


def everybody(addresses: str, seconds: float) -> Survey:
    """Ask all daemons of the cluster.

    Args:
        addresses: client addresses of configuration managers.
        seconds: for each answer.
    """
    managers, leader = _managers(parse_addresses(addresses), seconds)
    if not leader:
        heard = any(not each.trouble for each in managers)
        lacking = "leads" if heard else "answers"
        text = f"no configuration manager {lacking}, so hosts and queues cannot be listed"
        return Survey(tuple(managers), (text,))
    try:
        with connect(leader, timeout=seconds) as cluster:
            hosts = [host for host in cluster.hosts() if not _forgotten(host)]
            queues = [queue.name for queue in cluster.queues() if queue.running]
    except RoQError as error:
        return Survey(tuple(managers), (f"hosts and queues cannot be listed: {error}",))
    monitors, missing = _monitors(leader, queues, seconds)
    missing = [*(_unheard(host) for host in hosts if not host.control), *missing]
    questions = [(host.control, host.host) for host in hosts if host.control]
    asked = [(endpoint, HealthRequest()) for endpoint, _ in [*questions, *monitors]]
    answers = ask_all(asked, seconds)
    roles = ["host"] * len(questions) + ["monitor"] * len(monitors)
    found = [
        _finding(role, name, endpoint, answer)
        for role, (endpoint, name), answer in zip(
            roles, [*questions, *monitors], answers, strict=True
        )
    ]
    return Survey((*managers, *found, *missing))


def ask_all(questions: Sequence[Question], seconds: float) -> list[Answer | Unavailable]:
    """The answers, in the order of the questions; side by side.

    Args:
        questions: whom, and what.
        seconds: for each answer.
    """
    return _Round(questions, seconds).run() if questions else []


class _Round:
    """Questions that are asked side by side, in a loop of their own."""

    def __init__(self, questions: Sequence[Question], seconds: float) -> None:
        self._questions = questions
        self._seconds = seconds
        self._answers: dict[int, Answer | Unavailable] = {}
        self._next = 0
        self._reactor = Reactor()
        self._context = new_context()

    def run(self) -> list[Answer | Unavailable]:
        """Ask, wait for all, and give the answers in order."""
        try:
            for _ in range(min(SIDE_BY_SIDE_MAX, len(self._questions))):
                self._ask_next()
            self._reactor.run()
        finally:
            self._context.destroy(0)
            self._reactor.close()
        return [self._answers[index] for index in range(len(self._questions))]

    def _ask_next(self) -> None:
        index, self._next = self._next, self._next + 1
        endpoint, message = self._questions[index]
        try:
            client = RpcClient(self._reactor, self._context, endpoint)
        except zmq.ZMQError as error:
            failure = Unavailable(f"cannot connect to {endpoint}: {error}")
            self._reactor.call_soon(partial(self._answered, index, None, failure))
            return
        client.request(message, self._seconds, partial(self._answered, index, client))

    def _answered(self, index: int, client: RpcClient | None, answer: Answer | Unavailable) -> None:
        if client is not None:
            client.close()
        self._answers[index] = answer
        if self._next < len(self._questions):
            self._ask_next()
        elif len(self._answers) == len(self._questions):
            self._reactor.stop()


def _managers(given: Sequence[str], seconds: float) -> tuple[list[Finding], str]:
    """All configuration managers, and the client address of the one that tells of the cluster:
    it leads, or led until the registry was away."""
    found: dict[str, Finding] = {}
    leader = caretaker = ""
    asked, seen = list(given), set(given)
    for _ in range(MANAGER_ROUNDS_MAX):
        questions: list[Question] = [(endpoint, ClusterInfoRequest()) for endpoint in asked]
        questions += [(endpoint, HealthRequest()) for endpoint in asked]
        answers = ask_all(questions, seconds)
        learned: list[str] = []
        for endpoint, info, told in zip(asked, answers, answers[len(asked) :], strict=False):
            finding = _finding("gcm", endpoint, endpoint, told)
            found[finding.name] = finding
            if isinstance(info, ClusterInfo):
                seen.add(info.client)  # it may have been asked under another name
                learned += info.managers
                leader = endpoint if info.leader else leader
                caretaker = endpoint if finding.state == _CARETAKER else caretaker
        asked = [each for each in dict.fromkeys(learned) if each not in seen][:MANAGERS_MAX]
        seen.update(asked)
        if not asked:
            break
    return [found[name] for name in sorted(found)], leader or caretaker


def _monitors(
    leader: str, queues: Iterable[str], seconds: float
) -> tuple[list[tuple[str, str]], list[Finding]]:
    """Where the monitors of these queues answer, and those that nobody knows."""
    known: list[tuple[str, str]] = []
    missing: list[Finding] = []
    names = list(queues)
    answers = ask_all([(leader, LocateRequest(QName=name)) for name in names], seconds)
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Located):
            known.append((answer.monitor, name))
        else:
            missing.append(_finding("monitor", name, "", answer))
    return known, missing


def _forgotten(host: HostSummary) -> bool:
    """Whether a host has gone and nobody misses anything of it."""
    return host.state == _LOST and not host.exchanges and not host.monitors


def _unheard(host: HostSummary) -> Finding:
    """A host that is known by the registry or by what belongs there, and by nothing else."""
    return Finding(
        role="host",
        name=host.host,
        address="",
        state=host.state,
        ready=False,
        trouble=host.reason or "it has never reported to the leading configuration manager",
    )


def _finding(role: str, name: str, address: str, answer: Answer | Unavailable) -> Finding:
    shown = address.removeprefix("tcp://")
    if isinstance(answer, Health):
        return Finding(
            role=answer.role,
            name=answer.name.removeprefix("tcp://"),
            address=shown,
            state=answer.state,
            ready=answer.ready,
            checks=tuple(answer.checks),
        )
    match answer:
        case Unavailable():
            state, trouble = "silent", str(answer)
        case Failure():
            state, trouble = "unknown", answer.COMMENT
        case _:
            state, trouble = "unknown", f"{type(answer).__name__} is no answer to the question"
    return Finding(
        role=role,
        name=name.removeprefix("tcp://"),
        address=shown,
        state=state,
        ready=False,
        trouble=trouble,
    )


Ask = Callable[[], Survey]
"""Makes one survey."""
