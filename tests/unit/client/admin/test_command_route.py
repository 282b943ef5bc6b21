"""Which manager a command goes to next, above all if the first one has lost ZooKeeper."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.client.admin.command_route import CommandRoute, GiveUp, SendCommand, Step, Visit
from roq.errors import (
    Interrupted,
    NotLeader,
    QueueExists,
    RegistryAway,
    RequestError,
    RoQError,
    Unavailable,
)
from roq.protocol.control import ClusterInfo
from roq.runtime.backoff import Backoff
from roq.runtime.leader_finder import HOPS_MAX

AWAY = RegistryAway("registry away")
SILENCE = Unavailable("no answer")


def client(name: str) -> str:
    return f"tcp://{name}:5000"


def managed(name: str) -> str:
    return f"tcp://{name}:5003"


def info(name: str) -> ClusterInfo:
    return ClusterInfo(
        cluster="c", leader=False, client=client(name), management=managed(name),
        broadcast=f"tcp://{name}:5005", managers=[],
    )  # fmt: skip


class Route:
    """A command's way through a time that stands still."""

    def __init__(self, *names: str) -> None:
        self.route = CommandRoute([client(name) for name in names], Backoff(lambda: 0.5))
        self.first = self.route.begin(0.0)

    def found(self, name: str) -> Step:
        """The manager that was visited says who it is."""
        return self.route.found(info(name), 0.0)

    def refused(self, error: RequestError) -> Step:
        return self.route.refused(error, 0.0)

    def silent(self) -> Step:
        return self.route.silent(SILENCE, 0.0)

    def from_memory(self) -> Step:
        return self.route.from_memory(0.0)


def begun(*names: str) -> Route:
    """The first of these has got the command."""
    made = Route(*names)
    assert made.first == client(names[0])
    assert made.found(names[0]) == SendCommand(managed(names[0]))
    return made


def visit(name: str, why: RoQError = AWAY) -> Visit:
    return Visit(client(name), why)


def test_a_follower_leads_to_the_leader_that_it_names() -> None:
    one = begun("a", "b")
    assert one.refused(NotLeader("no", managed("b"))) == SendCommand(managed("b"))


def test_followers_that_name_each_other_are_left_after_a_few_hops() -> None:
    one = begun("a", "b")
    names = "ba" * HOPS_MAX
    steps = [one.refused(NotLeader("no", managed(name))) for name in names]
    assert steps[:HOPS_MAX] == [SendCommand(managed(name)) for name in names[:HOPS_MAX]]
    assert isinstance(steps[HOPS_MAX], Visit)


def test_while_none_leads_all_are_asked_again_later_and_later() -> None:
    one = begun("a", "b")
    nobody = NotLeader("none leads")
    waits = []
    for _ in range(4):
        assert one.refused(nobody) == visit("b", nobody)
        one.found("b")
        step = one.refused(nobody)
        assert isinstance(step, Visit)
        assert (step.address, step.why) == (client("a"), nobody)
        waits.append(step.after)
        one.found("a")
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]
    assert one.silent() == visit("b", SILENCE), "gone before it got the command"


def test_a_refusal_of_another_kind_is_the_answer() -> None:
    exists = QueueExists("there is one")
    assert begun("a", "b").refused(exists) == GiveUp(exists)


def test_what_may_have_been_begun_is_asked_of_nobody_else() -> None:
    interrupted = Interrupted("it was begun")
    assert begun("a", "b").refused(interrupted) == GiveUp(interrupted)


def test_who_is_refused_for_want_of_zookeeper_asks_the_others_once_each() -> None:
    one = begun("a", "b", "c")
    assert one.refused(AWAY) == visit("b")
    assert one.found("b") == SendCommand(managed("b"))
    assert one.refused(RegistryAway("away here, too")) == visit("c")
    assert one.silent() == GiveUp(AWAY)


def test_what_is_told_from_memory_others_may_know_better() -> None:
    one = begun("a", "b")
    step = one.from_memory()
    assert isinstance(step, Visit)
    assert step.address == client("b")
    one.found("b")
    step = one.from_memory()
    assert isinstance(step, GiveUp)
    assert isinstance(step.error, RegistryAway), "nobody is asked twice"


def test_a_lone_manager_s_refusal_is_the_answer_at_once() -> None:
    assert begun("a").refused(AWAY) == GiveUp(AWAY)


def test_others_that_follow_the_one_that_refused_are_no_help() -> None:
    one = begun("a", "b", "c")
    one.refused(AWAY)
    one.found("b")
    assert one.refused(NotLeader("a leads", managed("a"))) == visit("c")
    one.found("c")
    assert one.refused(NotLeader("nobody leads")) == GiveUp(AWAY)


def test_another_one_may_name_a_leader_that_nobody_knew() -> None:
    one = begun("a", "b")
    one.refused(AWAY)
    one.found("b")
    assert one.refused(NotLeader("d leads", managed("d"))) == SendCommand(managed("d"))
    assert one.refused(AWAY) == GiveUp(AWAY)


def test_whoever_was_asked_under_another_name_is_not_asked_again() -> None:
    one = Route("localhost", "a", "b")
    one.found("a")
    assert one.refused(AWAY) == visit("b")
    assert one.found("a") == GiveUp(AWAY), "it is the same one"


def test_a_follower_that_has_sent_it_to_the_caretaker_is_not_asked_again() -> None:
    one = begun("a", "b", "c")
    one.refused(NotLeader("no", managed("b")))
    assert one.refused(AWAY) == visit("b"), "only its other address is known"
    assert one.found("b") == visit("c")


def test_managers_that_are_learnt_on_the_way_are_asked_too() -> None:
    one = Route("a")
    one.route.found(msgspec.structs.replace(info("a"), managers=[client("a"), client("b")]), 0.0)
    assert one.refused(AWAY) == visit("b")


def test_who_was_silent_before_the_first_refusal_may_lead_by_now() -> None:
    one = Route("a", "b", "c")
    assert one.silent() == visit("b", SILENCE)
    one.found("b")
    assert one.refused(AWAY) == visit("a")
    assert one.silent() == visit("c")
    assert one.silent() == GiveUp(AWAY)


@pytest.mark.parametrize("leader", range(4))
def test_the_one_that_leads_gets_it_whoever_it_is(leader: int) -> None:
    names = ["a", "b", "c", "d"]
    one = begun(*names)
    step: Step = SendCommand(managed("a"))
    for _ in range(20):
        match step:
            case SendCommand(endpoint) if endpoint == managed(names[leader]):
                return
            case SendCommand():
                step = one.refused(AWAY)
            case Visit(address):
                name = address.removeprefix("tcp://")[0]
                step = one.found(name)
            case _:
                break
    raise AssertionError(f"{names[leader]} was not asked")


ANSWERS = st.one_of(
    st.just(AWAY),
    st.just(SILENCE),
    st.builds(NotLeader, st.just("no"), st.sampled_from(["", *map(managed, "abcdxyz")])),
)


@given(st.lists(ANSWERS, min_size=60, max_size=60))
def test_after_the_first_refusal_everybody_gets_it_once_at_most(
    answers: list[RequestError | Unavailable],
) -> None:
    one = begun(*"abcd")
    step = one.refused(AWAY)
    sent = [managed("a")]
    visited = []
    for answer in answers:
        if isinstance(step, GiveUp):
            break
            assert isinstance(step, SendCommand) or not step.after, (
                "it is never waited for anything"
            )
        if isinstance(step, Visit):
            visited.append(step.address)
            name = step.address.removeprefix("tcp://")[0]
            silent = answer is SILENCE
            step = one.silent() if silent else one.found(name)
        else:
            sent.append(step.endpoint)
            step = one.refused(AWAY if isinstance(answer, Unavailable) else answer)
    assert step == GiveUp(AWAY)
    assert len(set(sent)) == len(sent)
    assert len(set(visited)) == len(visited)
