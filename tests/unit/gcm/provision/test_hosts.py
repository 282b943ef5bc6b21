"""Hosts that a provider makes: made when somebody waits, given back when nothing is on them."""

from __future__ import annotations

import pytest

from roq.errors import NoCapacity
from roq.gcm.events import (
    CallProvider,
    CreateHost,
    Effect,
    GivenUp,
    ListHosts,
    ProviderAction,
    ProviderAnswer,
    RemoveHost,
    Reply,
)
from roq.gcm.provision.hosts import (
    DEMANDS_MAX,
    ENDED_SECONDS,
    OPEN_SECONDS,
    Demand,
    Provisioning,
    ProvisionSettings,
    Step,
)
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import Queues
from roq.gcm.state.records import ExchangeRecord, QueueRecord
from roq.model import QueueState
from roq.protocol import documents
from roq.protocol.control import Failure, HostReport, ScaleOut
from roq.provider.port import HostState, ProvidedHost
from roq.timing import PROVISION_ANSWER_SECONDS

FULL = NoCapacity("no host can take another exchange: h1 is full")


def wish(number: int = 1) -> ScaleOut:
    return ScaleOut(id=number, queue="q", queue_id=b"q" * 16, transaction=str(number), reason="-")


def made(name: str, host: str = "10.0.0.9", state: HostState = HostState.RUNNING) -> ProvidedHost:
    return ProvidedHost(name=name, host=host, handle=f"handle-{name}", state=state)


class Yard:
    """A provider of paper beside the machine's part, and a clock."""

    def __init__(self, **settings: float) -> None:
        self.now = 0.0
        self.hosts = Hosts()
        self.queues = Queues()
        self.part = Provisioning(
            ProvisionSettings(**settings),  # type: ignore[arg-type]
            self.queues,
            self.hosts,
        )
        self.calls: list[CallProvider] = []
        self.ready: list[Demand] = []
        self.refused: list[str] = []
        self.part.lead(3, self.now)

    def look(self, seconds: float = 0.0) -> Step:
        self.now += seconds
        step = self.part.advance(self.now)
        self.part.check()
        self.ready += step.ready
        self._perform(step.effects)
        return step

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case CallProvider():
                    self.calls.append(effect)
                case Reply(_, data):
                    self.refused.append(documents.decode(data, Failure).COMMENT)

    def call(self, kind: type) -> CallProvider:
        """The call of this kind that is under way."""
        found = next(each for each in self.calls if isinstance(each.action, kind))
        self.calls.remove(found)
        return found

    def answer(self, kind: type, answer: ProviderAnswer) -> ProviderAction:
        call = self.call(kind)
        self.part.answered(call.token, answer, self.now)
        self.look()
        return call.action

    def report(self, host: str) -> None:
        self.hosts.report(HostReport(host=host, epoch=1, control="tcp://h:1"), self.now)
        self.look()


@pytest.fixture
def yard() -> Yard:
    yard = Yard(hosts_max=2, register_seconds=30, release_seconds=60)
    yard.look()
    yard.answer(ListHosts, ())
    return yard


def grown(yard: Yard, host: str = "10.0.0.9") -> str:
    """A host that was made because somebody waited; its name."""
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    call = yard.call(CreateHost)
    assert isinstance(call.action, CreateHost)
    yard.part.answered(call.token, made(call.action.name, host), yard.now)
    yard.look()
    yard.report(host)
    return call.action.name


def test_without_a_provider_nobody_waits() -> None:
    part = Provisioning(None, Queues(), Hosts())
    part.lead(1, 0.0)
    with pytest.raises(NoCapacity, match="no provider is configured"):
        part.want("monitor", wish(), FULL)
    assert part.next_deadline() is None


def test_who_waits_goes_on_when_the_new_host_has_reported(yard: Yard) -> None:
    grown(yard)
    assert [each.request.transaction for each in yard.ready] == ["1"]
    assert yard.refused == []


def test_nothing_is_made_before_it_is_known_what_there_is() -> None:
    yard = Yard()
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    assert [type(each.action) for each in yard.calls] == [ListHosts]


def test_two_who_wait_share_one_new_host(yard: Yard) -> None:
    yard.part.want("a", wish(1), FULL)
    yard.part.want("b", wish(2), FULL)
    yard.look()
    yard.look(1.0)
    assert [type(each.action) for each in yard.calls] == [CreateHost]


def test_a_request_that_is_repeated_waits_once(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.part.want("monitor again", wish(), FULL)
    assert [each.peer for each in yard.part.resign()] == ["monitor again"]


def test_a_provider_that_fails_is_named_in_the_refusal(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    yard.answer(CreateHost, "the cloud is out of machines")
    assert "the cloud is out of machines" in yard.refused[0]
    assert yard.part.resign() == []


def test_a_host_that_was_made_too_slowly_is_found_and_used_or_given_back(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    action = yard.answer(CreateHost, "no answer within 60 s")
    yard.look(2.5)  # it is looked for soon
    yard.answer(ListHosts, (made(action.name),))
    yard.look(30.0)
    removal = yard.call(RemoveHost).action
    assert isinstance(removal, RemoveHost)
    assert removal.handle == f"handle-{action.name}"


def test_a_host_that_never_registers_is_removed_and_the_waiting_are_told(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    yard.answer(CreateHost, made("e3-1"))
    yard.look(29.0)
    assert not yard.refused
    yard.look(1.5)
    assert "did not register" in yard.refused[0]
    yard.answer(RemoveHost, None)
    assert yard.part.names() == frozenset()


def test_there_are_never_more_hosts_than_allowed(yard: Yard) -> None:
    grown(yard, "10.0.0.1")
    grown(yard, "10.0.0.2")
    yard.part.want("monitor", wish(3), FULL)
    yard.look()
    assert "all hosts that it may: 2" in yard.refused[0]


def test_a_host_is_given_back_when_it_was_empty_for_long_enough(yard: Yard) -> None:
    name = grown(yard)
    yard.look(0.1)
    yard.report("10.0.0.9")
    yard.look(59.0)
    assert not any(isinstance(each.action, RemoveHost) for each in yard.calls)
    yard.report("10.0.0.9")
    yard.look(1.5)
    assert "10.0.0.9" in yard.hosts.closed, "nothing is placed there any more"
    assert yard.answer(RemoveHost, None).name == name
    assert yard.hosts.get("10.0.0.9") is None
    assert yard.hosts.closed == set()


def test_a_removal_that_fails_is_repeated_with_growing_pauses(yard: Yard) -> None:
    grown(yard)
    yard.look(0.1)
    yard.look(61.0)
    pauses = []
    for _ in range(3):
        yard.answer(RemoveHost, "it does not end")
        deadline = yard.part.next_deadline()
        while not any(isinstance(each.action, RemoveHost) for each in yard.calls):
            if any(isinstance(each.action, ListHosts) for each in yard.calls):
                yard.answer(ListHosts, (made("e3-1"),))
            deadline = yard.part.next_deadline()
            assert deadline is not None
            before = yard.now
            yard.look(max(0.0, deadline - yard.now))
            pauses.append(yard.now - before)
    assert sum(pauses) == pytest.approx(2 + 4 + 8)


def test_a_later_leader_finds_the_hosts_of_the_one_before() -> None:
    yard = Yard(release_seconds=60)
    yard.look()
    yard.answer(ListHosts, (made("e2-7", "10.0.0.7"),))
    assert yard.part.names() == {"10.0.0.7"}
    yard.report("10.0.0.7")
    yard.look(0.1)
    yard.look(61.0)
    assert yard.call(RemoveHost).action == RemoveHost("e2-7", "handle-e2-7")


def test_a_host_that_has_ended_is_cleared_away(yard: Yard) -> None:
    yard.look(31.0)
    yard.answer(ListHosts, (made("e2-7", state=HostState.ENDED),))
    assert yard.call(RemoveHost).action == RemoveHost("e2-7", "handle-e2-7")


def test_a_host_that_the_provider_does_not_know_any_more_is_forgotten(yard: Yard) -> None:
    grown(yard)
    yard.look(31.0)
    yard.answer(ListHosts, ())
    assert yard.part.names() == frozenset()


def test_a_provider_that_cannot_tell_is_asked_again_soon() -> None:
    yard = Yard()
    yard.look()
    yard.answer(ListHosts, "it hangs")
    yard.look(2.5)
    assert isinstance(yard.calls[0].action, ListHosts)


def test_answers_of_an_earlier_leadership_mean_nothing(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    call = yard.call(CreateHost)
    yard.part.lead(4, yard.now)
    yard.part.answered(call.token, made("e3-1"), yard.now)
    assert yard.part.names() == frozenset()


def test_who_waits_is_handed_back_when_leadership_ends(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    assert [each.peer for each in yard.part.resign()] == ["monitor"]
    assert yard.part.next_deadline() is None
    with pytest.raises(NoCapacity):
        yard.part.want("monitor", wish(), FULL)


def test_the_line_of_those_who_wait_is_bounded(yard: Yard) -> None:
    for number in range(DEMANDS_MAX):
        yard.part.want("monitor", wish(number), FULL)
    with pytest.raises(NoCapacity):
        yard.part.want("monitor", wish(DEMANDS_MAX), FULL)


def test_who_asks_again_is_heard_and_the_earlier_request_is_answered(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.part.want("monitor again", wish(), FULL)
    yard.look()
    assert ["asked again" in text for text in yard.refused] == [True]


def test_who_waits_while_the_provider_cannot_tell_is_told_so() -> None:
    yard = Yard()
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    yard.answer(ListHosts, "the cloud is away")
    assert "the cloud is away" in yard.refused[0]
    assert yard.part.resign() == []


def test_a_provider_that_cannot_tell_is_asked_less_and_less_often() -> None:
    yard = Yard()
    pauses = []
    for _ in range(6):
        yard.look()
        yard.answer(ListHosts, "it hangs")
        deadline = yard.part.next_deadline()
        assert deadline is not None
        pauses.append(deadline - yard.now)
        yard.now = deadline
    assert pauses == [2, 4, 8, 16, 30, 30]


def test_nobody_waits_longer_than_a_monitor_does(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    assert yard.part.next_deadline() == min(30.0, PROVISION_ANSWER_SECONDS)
    yard.look(PROVISION_ANSWER_SECONDS - 1)
    assert yard.refused == []
    yard.look(1)
    assert "host e3-1 is on its way; ask again" in yard.refused[0]


def test_hosts_that_may_still_appear_count(yard: Yard) -> None:
    for number in range(2):
        yard.part.want("monitor", wish(number), FULL)
        yard.look()
        yard.answer(CreateHost, GivenUp(60.0))
    yard.part.want("monitor", wish(3), FULL)
    yard.look()
    assert "all hosts that it may: 2" in yard.refused[-1]
    yard.look(2.5)
    yard.answer(ListHosts, ())
    assert not any(isinstance(each.action, CreateHost) for each in yard.calls)
    yard.look(OPEN_SECONDS)
    yard.answer(ListHosts, ())
    yard.part.want("monitor", wish(4), FULL)
    yard.look()
    assert yard.call(CreateHost)


def test_a_host_that_appears_late_is_used(yard: Yard) -> None:
    yard.part.want("monitor", wish(), FULL)
    yard.look()
    action = yard.answer(CreateHost, GivenUp(60.0))
    yard.look(2.5)
    yard.answer(ListHosts, (made(action.name),))
    yard.report("10.0.0.9")
    yard.part.want("monitor", wish(2), FULL)
    assert yard.part.names() == {"10.0.0.9"}


@pytest.mark.parametrize("state", [QueueState.RUNNING, QueueState.STOPPED])
def test_a_host_is_in_use_as_long_as_something_of_a_queue_belongs_there(
    yard: Yard, state: QueueState
) -> None:
    grown(yard)
    exchange = ExchangeRecord(number=1, host="10.0.0.9")
    yard.queues.put(
        QueueRecord(
            name="q", queue_id=b"q" * 16, state=state, host="h1", created=0.0,
            next_number=2, exchanges=(exchange,),
        )
    )  # fmt: skip
    for _ in range(3):
        yard.look(61.0)
    assert not any(isinstance(each.action, RemoveHost) for each in yard.calls)
    yard.queues.drop("q")
    yard.look(1.0)
    yard.look(61.0)
    assert yard.call(RemoveHost)


def test_a_host_in_use_that_is_silent_to_a_later_leader_stays(yard: Yard) -> None:
    grown(yard)
    yard.queues.put(
        QueueRecord(
            name="q", queue_id=b"q" * 16, state=QueueState.RUNNING, host="10.0.0.9", created=0.0
        )
    )
    yard.calls.clear()
    yard.part.lead(4, yard.now)
    yard.look()
    yard.answer(ListHosts, (made("e3-1"),))
    yard.look(31.0)
    assert not any(isinstance(each.action, RemoveHost) for each in yard.calls)


def test_what_an_ended_host_manager_has_left_behind_may_stop_in_order(yard: Yard) -> None:
    grown(yard)
    yard.queues.put(
        QueueRecord(
            name="q", queue_id=b"q" * 16, state=QueueState.RUNNING, host="10.0.0.9", created=0.0
        )
    )
    yard.look(31.0)
    yard.answer(ListHosts, (made("e3-1", state=HostState.ENDED),))
    yard.look(ENDED_SECONDS - 1)
    assert not any(isinstance(each.action, RemoveHost) for each in yard.calls)
    yard.look(1.0)
    assert yard.call(RemoveHost)
