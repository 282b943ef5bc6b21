"""Hosts that a provider makes when no other has room, and gives back when nothing is on them.

    CREATING --made--> STARTED --registered--> LIVE --empty for a while--> REMOVING --gone-->
     |    |  ^            | never registers                                   ^
     |    |  |            +---------------------------------------------------+
     |    | no answer in time: OPEN until the provider has told, later, whether it is there
     +--failed-->

What hosts there are, the provider knows: it is asked at the beginning of a leadership and every
while after it, so a later leader finds what an earlier one has made, and nothing has to be written
down. Requests to grow that find no host with room wait here until there is one, or until it is
clear that there will be none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from math import inf
from typing import Final, TypeAlias

from roq.errors import NoCapacity
from roq.gcm.events import (
    CallProvider,
    CreateHost,
    Effect,
    GivenUp,
    ListHosts,
    LogLine,
    ProviderAction,
    ProviderAnswer,
    RemoveHost,
    Reply,
)
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import Queues
from roq.machine import Transitions
from roq.protocol.control import ScaleOut
from roq.protocol.public_answers import refusal
from roq.provider.port import HostState as ProviderState
from roq.provider.port import ProvidedHost
from roq.runtime.backoff import longest_wait
from roq.timing import PROVISION_ANSWER_SECONDS

DEMANDS_MAX: Final = 1_000
OPEN_SECONDS: Final = 60.0
"""A host whose creation was given up may still appear within this."""
ENDED_SECONDS: Final = 90.0
"""What an ended host manager has left behind ends by itself within this."""
LOOK_SECONDS: Final = 0.5
"""How often is looked which hosts are in use."""
LIST_SECONDS: Final = 30.0
RETRY_FIRST_SECONDS: Final = 2.0
RETRY_MOST_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class ProvisionSettings:
    """What `[provider]` of `gcm.toml` says.

    Attributes:
        hosts_max: so many provided hosts at once.
        register_seconds: a new host must report within this, or it is removed again.
        release_seconds: a host on which nothing runs for so long is given back.
    """

    hosts_max: int = 4
    register_seconds: float = 30.0
    release_seconds: float = 60.0


class Stage(StrEnum):
    """Where a provided host stands."""

    CREATING = "creating"
    OPEN = "open"
    """It may be there or not: the provider was too slow to say."""
    STARTED = "started"
    LIVE = "live"
    REMOVING = "removing"


STAGES: Final = Transitions(
    begin={
        Stage.CREATING: "a queue waits for a host with room",
        Stage.STARTED: "found at the provider",
    },
    follow={
        Stage.CREATING: {
            Stage.STARTED: "the provider has made it",
            Stage.OPEN: "the provider was too slow to say",
        },
        Stage.OPEN: {Stage.STARTED: "found at the provider"},
        Stage.STARTED: {
            Stage.LIVE: "it has registered, or is used",
            Stage.REMOVING: "it has ended, or did not register in time",
        },
        Stage.LIVE: {Stage.REMOVING: "it has ended, or nothing has used it for a while"},
    },
    end={
        Stage.CREATING: "the provider could not make it",
        Stage.OPEN: "not at the provider",
        Stage.STARTED: "not at the provider any more",
        Stage.LIVE: "not at the provider any more",
        Stage.REMOVING: "the provider has removed it",
    },
)


@dataclass(slots=True)
class _Provided:
    """One host of the provider."""

    name: str
    stage: Stage
    since: float
    host: str = ""
    handle: str = ""
    empty_since: float | None = None
    called: bool = False
    """The provider is at work on it."""
    retry_at: float = 0.0
    failures: int = 0

    def go(self, stage: Stage, now: float) -> None:
        """It stands there from now on."""
        self.stage, self.since = STAGES.step(self.stage, stage), now


@dataclass(slots=True)
class Demand:
    """A queue that waits for a host with room.

    Attributes:
        queue: its name.
        peer, request: who asks for it to grow; None: it has lost something that finds no room.
        until: the request is refused then; set as soon as it is looked at.
    """

    queue: str
    peer: Hashable = None
    request: ScaleOut | None = None
    until: float = inf


@dataclass(slots=True)
class Step:
    """What is to be done now.

    Attributes:
        effects: to perform.
        ready: requests for which there may be room now.
    """

    effects: list[Effect] = field(default_factory=list)
    ready: list[Demand] = field(default_factory=list)


Calls: TypeAlias = dict[int, tuple[ProviderAction, float]]


class Provisioning:
    """The provided hosts of a cluster, as its leader knows them.

    Args:
        settings: None: there is no provider.
    """

    def __init__(self, settings: ProvisionSettings | None, queues: Queues, hosts: Hosts) -> None:
        self._settings = settings
        self._queues = queues
        self._hosts = hosts
        self._provided: dict[str, _Provided] = {}
        self._demands: list[Demand] = []
        self._calls: Calls = {}
        self._tokens = count(1)
        self._names = count(1)
        self._epoch = 0
        self._leads = False
        self._listed = False
        self._list_at = 0.0
        self._list_failures = 0
        self._used: frozenset[str] = frozenset()
        self._used_at = -inf
        self._told: list[Effect] = []

    def lead(self, epoch: int, now: float) -> None:
        """This manager leads from now on; names of new hosts carry the epoch."""
        self.resign()
        self._epoch = epoch
        self._leads = self._settings is not None
        self._list_at = now
        self._list_failures = 0
        self._used_at = -inf

    def resign(self) -> list[Demand]:
        """This manager does not lead any more; gives the requests that still wait."""
        waiting, self._demands = self._demands, []
        self._leads = self._listed = False
        self._provided.clear()
        self._calls.clear()
        self._hosts.closed.clear()
        self._told.clear()
        return waiting

    def names(self) -> frozenset[str]:
        """The hosts that were provided, by their address."""
        return frozenset(each.host for each in self._provided.values() if each.host)

    def want(self, peer: Hashable, request: ScaleOut, error: NoCapacity) -> None:
        """Let a request wait for a host with room.

        Args:
            peer: who asks.
            request: what is asked.
            error: why no host has room.

        Raises:
            NoCapacity: there will be none; says why.
        """
        if self._settings is None:
            raise NoCapacity(f"{error}; no provider is configured that could make another host")
        if not self._leads or len(self._demands) >= DEMANDS_MAX:
            raise error
        repeated = [each for each in self._demands if _is_same(each.request, request)]
        for each in repeated:
            self._demands.remove(each)
            self._told += _refusal(each, "the same was asked again")
        self._demands.append(Demand(request.queue, peer, request))

    def want_room(self, queue: str) -> None:
        """Something that a queue has lost finds no host with room; nobody waits for an answer."""
        known = any(each.queue == queue and each.request is None for each in self._demands)
        if self._leads and not known and len(self._demands) < DEMANDS_MAX:
            self._demands.append(Demand(queue))

    def room_for_next_attempt(self, queue: str, error: NoCapacity) -> NoCapacity:
        """How to refuse what a client may ask again: there may be a host for it by then.

        Args:
            queue: what a host is made for.
            error: why no host has room.
        """
        settings = self._settings
        if settings is None or not self._leads:
            return error
        coming = any(each.stage in _COMING for each in self._provided.values())
        if not coming and len(self._provided) >= settings.hosts_max:
            return NoCapacity(f"{error}; {_all_made(settings)}")
        self.want_room(queue)
        return NoCapacity(f"{error}; the provider is making a host, try again in some seconds")

    def advance(self, now: float) -> Step:
        """Go on as far as it goes now."""
        step = Step(self._told)
        self._told = []
        if not self._leads or self._settings is None:
            return step
        if now >= self._list_at and not self._calling(ListHosts):
            self._list_at = now + LIST_SECONDS
            self._call(ListHosts(), now, step)
        for each in list(self._provided.values()):
            self._look_after(each, self._settings, now, step)
        self._give_up_waiting(now, step)
        if self._demands and self._listed:
            self._meet(self._settings, now, step)
        return step

    def answered(self, token: int, answer: ProviderAnswer, now: float) -> None:
        """The provider has answered, or has not in time; `advance` is to be called then."""
        action, asked = self._calls.pop(token, (None, 0.0))
        match action:
            case CreateHost(name):
                self._created(name, answer, now)
            case RemoveHost():
                self._removed(action, answer, now)
            case ListHosts():
                self._learn(answer, asked, now)
            case None:
                return  # of an earlier leadership

    def next_deadline(self) -> float | None:
        """When `advance` has something to do."""
        settings = self._settings
        if not self._leads or settings is None:
            return None
        times = [] if self._calling(ListHosts) else [self._list_at]
        times += [each.until for each in self._demands if each.until < inf]
        for each in self._provided.values():
            if each.stage is Stage.STARTED:
                times.append(each.since + settings.register_seconds)
            elif each.stage is Stage.REMOVING and not each.called:
                times.append(each.retry_at)
            elif each.stage is Stage.LIVE and each.empty_since is not None:
                times.append(each.empty_since + settings.release_seconds)
        return min(times, default=None)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._demands) <= DEMANDS_MAX  # noqa: S101 - for tests and simulation
        assert not self._demands or self._leads  # noqa: S101
        for name, each in self._provided.items():
            assert name == each.name  # noqa: S101
            assert each.stage is not Stage.CREATING or each.called  # noqa: S101

    # --- one host ---------------------------------------------------------------------------------

    def _look_after(
        self, each: _Provided, settings: ProvisionSettings, now: float, step: Step
    ) -> None:
        match each.stage:
            case Stage.CREATING | Stage.OPEN:
                return
            case Stage.STARTED:
                if self._hosts.live(each.host) is not None:
                    each.go(Stage.LIVE, now)
                    step.ready += self._demands
                    self._demands = []
                elif now >= each.since + settings.register_seconds and self._is_used(each, now):
                    # One that an earlier leader has used: silent, as any host may be for a while.
                    each.go(Stage.LIVE, now)
                elif now >= each.since + settings.register_seconds:
                    text = (
                        f"host {each.name} did not register within {settings.register_seconds:g} s"
                    )
                    self._remove(each, text, now, step)
                    self._refuse(text, step)
            case Stage.LIVE:
                self._release(each, settings, now, step)
            case Stage.REMOVING:
                if not each.called and now >= each.retry_at:
                    each.called = True
                    self._call(RemoveHost(each.name, each.handle), now, step)

    def _release(
        self, each: _Provided, settings: ProvisionSettings, now: float, step: Step
    ) -> None:
        if self._demands or self._is_used(each, now, LOOK_SECONDS):
            each.empty_since = None
            return
        if each.empty_since is None:
            each.empty_since = now
        if now >= each.empty_since + settings.release_seconds and not self._is_used(each, now):
            text = f"host {each.name} has been empty for {settings.release_seconds:g} s"
            self._remove(each, text, now, step)

    def _is_used(self, each: _Provided, now: float, age: float = 0.0) -> bool:
        """Whether anything runs on a host or belongs there; what is known may be so old."""
        if now - self._used_at >= age:
            self._used, self._used_at = self._queues.hosts_in_use(), now
        host = self._hosts.live(each.host)
        return each.host in self._used or (host is not None and any(host.children))

    def _remove(self, each: _Provided, reason: str, now: float, step: Step) -> None:
        each.go(Stage.REMOVING, now)
        each.retry_at = now
        if each.host:
            self._hosts.closed.add(each.host)
        step.effects.append(LogLine("host_released", f"{reason}: it is given back"))
        each.called = True
        self._call(RemoveHost(each.name, each.handle), now, step)

    # --- demands ----------------------------------------------------------------------------------

    def _give_up_waiting(self, now: float, step: Step) -> None:
        coming = [each for each in self._provided.values() if each.stage in _COMING]
        for each in list(self._demands):
            if each.until == inf:
                each.until = now + PROVISION_ANSWER_SECONDS
            if now >= each.until:
                names = ", ".join(host.name for host in coming)
                why = f"host {names} is on its way" if names else "the provider has not answered"
                step.effects += _refusal(each, f"{why}; ask again")
                self._demands.remove(each)

    def _meet(self, settings: ProvisionSettings, now: float, step: Step) -> None:
        """Make a host for those who wait, one at a time."""
        stages = [each.stage for each in self._provided.values()]
        if any(stage in _COMING for stage in stages):
            return
        if len(stages) >= settings.hosts_max:
            self._refuse(_all_made(settings), step)
            return
        name = f"e{self._epoch}-{next(self._names)}"
        self._provided[name] = _Provided(name, Stage.CREATING, now, called=True)
        queues = sorted({each.queue for each in self._demands})
        text = f"host {name} is made for queue {', '.join(queues):.200}"
        step.effects.append(LogLine("host_wanted", text))
        self._call(CreateHost(name, queues[0]), now, step)

    def _refuse(self, why: str, step: Step) -> None:
        """There will be no host for those who wait."""
        step.effects += [effect for each in self._demands for effect in _refusal(each, why)]
        self._demands = []

    # --- the provider -----------------------------------------------------------------------------

    def _calling(self, kind: type) -> bool:
        return any(isinstance(action, kind) for action, _ in self._calls.values())

    def _call(self, action: ProviderAction, now: float, step: Step) -> None:
        token = next(self._tokens)
        self._calls[token] = (action, now)
        step.effects.append(CallProvider(token, action))

    def _created(self, name: str, answer: ProviderAnswer, now: float) -> None:
        each = self._provided.get(name)
        if each is None:
            return
        each.called = False
        if isinstance(answer, ProvidedHost):
            each.go(Stage.STARTED, now)
            each.host, each.handle = answer.host, answer.handle
            text = f"host {name} is started at {answer.host}"
            self._told.append(LogLine("host_made", text))
            return
        if isinstance(answer, GivenUp):
            each.go(Stage.OPEN, now)
        else:
            STAGES.leave(each.stage)
            del self._provided[name]
        self._list_at = min(self._list_at, now + RETRY_FIRST_SECONDS)
        step = Step(self._told)
        text = f"the provider could not make host {name}: {_text(answer)}"
        step.effects.append(LogLine("host_not_made", text))
        self._refuse(text, step)

    def _removed(self, action: RemoveHost, answer: ProviderAnswer, now: float) -> None:
        each = self._provided.get(action.name)
        if each is None:
            return
        each.called = False
        if answer is None:
            self._forget(each)
            return
        each.failures += 1
        delay = longest_wait(each.failures, RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS)
        each.retry_at = now + delay
        text = f"host {each.name} could not be removed, next attempt in {delay:g} s: "
        self._told.append(LogLine("host_not_removed", text + _text(answer)))

    def _learn(self, answer: ProviderAnswer, asked: float, now: float) -> None:
        if not isinstance(answer, tuple):
            self._list_failures += 1
            delay = longest_wait(self._list_failures, RETRY_FIRST_SECONDS, LIST_SECONDS)
            self._list_at = min(self._list_at, now + delay)
            text = f"the provider does not tell which hosts there are: {_text(answer)}"
            self._told.append(LogLine("hosts_not_listed", text))
            if not self._listed:
                self._refuse(text, Step(self._told))
            return
        self._listed = True
        self._list_failures = 0
        self._adopt(answer, now)
        found = {each.name for each in answer}
        for each in list(self._provided.values()):
            known = each.since + OPEN_SECONDS * (each.stage is Stage.OPEN)
            if each.name not in found and not each.called and known < asked:
                self._forget(each)

    def _forget(self, each: _Provided) -> None:
        STAGES.leave(each.stage)
        del self._provided[each.name]
        self._hosts.forget(each.host)

    def _adopt(self, found: Iterable[ProvidedHost], now: float) -> None:
        for told in found:
            each = self._provided.get(told.name)
            if each is None:
                each = _Provided(told.name, Stage.STARTED, now, told.host, told.handle)
                self._provided[told.name] = each
                self._told.append(LogLine("host_found", f"host {told.name} was made before"))
            if each.stage is Stage.OPEN:
                each.go(Stage.STARTED, now)
                each.host, each.handle = told.host, told.handle
            ended = told.state is ProviderState.ENDED and not each.called
            if ended and each.stage is not Stage.REMOVING:
                # What it has started may still be used; it stops in order when nobody adopts it.
                grace = ENDED_SECONDS if self._is_used(each, now) else 0.0
                each.go(Stage.REMOVING, now)
                each.retry_at = now + grace
                self._hosts.closed.add(each.host)
                text = f"host {told.name} has ended {told.note:.500}".rstrip()
                self._told.append(LogLine("host_ended", text))


_COMING: Final = frozenset({Stage.CREATING, Stage.STARTED})
"""Stages of hosts for which it is worth waiting."""


def _is_same(one: ScaleOut | None, other: ScaleOut) -> bool:
    asked = (other.queue_id, other.transaction)
    return one is not None and (one.queue_id, one.transaction) == asked


def _refusal(demand: Demand, why: str) -> list[Effect]:
    if demand.request is None:
        return []
    error = NoCapacity(f"no host has room for another exchange: {why}")
    return [Reply(demand.peer, refusal(error, demand.request.id))]


def _all_made(settings: ProvisionSettings) -> str:
    return f"the provider has made all hosts that it may: {settings.hosts_max}"


def _text(answer: ProviderAnswer) -> str:
    if isinstance(answer, GivenUp):
        return f"no answer within {answer.seconds:g} s"
    return answer if isinstance(answer, str) else f"an answer that makes no sense: {answer!r:.100}"
