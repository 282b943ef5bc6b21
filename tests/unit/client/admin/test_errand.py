"""Which manager a command goes to next, above all if the first one has lost ZooKeeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.client.admin.errand import HOPS_MAX, Errand, GiveUp, Search, Send, Step, Visit
from roq.errors import (
    Interrupted,
    NotLeader,
    QueueExists,
    RegistryAway,
    RequestError,
    Unavailable,
)
from roq.protocol.control import ClusterInfo
from roq.runtime.backoff import Backoff

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


def errand(*names: str) -> Errand:
    return Errand([client(name) for name in names], Backoff(lambda: 0.5))


def begun(*names: str) -> Errand:
    """The first of these has got the command."""
    made = errand(*names)
    assert made.found(client(names[0]), info(names[0])) == Send(managed(names[0]))
    return made


def test_a_follower_leads_to_the_leader_that_it_names() -> None:
    one = begun("a", "b")
    assert one.refused(NotLeader("no", managed("b"))) == Send(managed("b"))


def test_followers_that_name_each_other_are_left_after_a_few_hops() -> None:
    one = begun("a", "b")
    names = "ba" * HOPS_MAX
    steps = [one.refused(NotLeader("no", managed(name))) for name in names]
    assert steps[:HOPS_MAX] == [Send(managed(name)) for name in names[:HOPS_MAX]]
    assert isinstance(steps[HOPS_MAX], Search)


def test_while_nobody_leads_it_is_tried_again_later_and_later() -> None:
    one = begun("a", "b")
    waits = []
    for _ in range(4):
        nobody = NotLeader("nobody leads")
        step = one.refused(nobody)
        assert isinstance(step, Search)
        assert step.why is nobody
        waits.append(step.after)
        one.found(client("a"), info("a"))
    assert waits == sorted(waits)
    assert isinstance(one.silent(SILENCE), Search), "gone before it got the command"


def test_a_refusal_of_another_kind_is_the_answer() -> None:
    exists = QueueExists("there is one")
    assert begun("a", "b").refused(exists) == GiveUp(exists)


def test_what_may_have_been_begun_is_asked_of_nobody_else() -> None:
    interrupted = Interrupted("it was begun")
    assert begun("a", "b").refused(interrupted) == GiveUp(interrupted)


def test_who_is_refused_for_want_of_zookeeper_asks_the_others_once_each() -> None:
    one = begun("a", "b", "c")
    assert one.refused(AWAY) == Visit(client("b"))
    assert one.found(client("b"), info("b")) == Send(managed("b"))
    assert one.refused(RegistryAway("away here, too")) == Visit(client("c"))
    assert one.silent(SILENCE) == GiveUp(AWAY)


def test_what_is_told_from_memory_others_may_know_better() -> None:
    one = begun("a", "b")
    assert one.from_memory() == Visit(client("b"))
    one.found(client("b"), info("b"))
    step = one.from_memory()
    assert isinstance(step, GiveUp)
    assert isinstance(step.error, RegistryAway), "nobody is asked twice"


def test_a_lone_manager_s_refusal_is_the_answer_at_once() -> None:
    assert begun("a").refused(AWAY) == GiveUp(AWAY)


def test_others_that_follow_the_one_that_refused_are_no_help() -> None:
    one = begun("a", "b", "c")
    one.refused(AWAY)
    one.found(client("b"), info("b"))
    assert one.refused(NotLeader("a leads", managed("a"))) == Visit(client("c"))
    one.found(client("c"), info("c"))
    assert one.refused(NotLeader("nobody leads")) == GiveUp(AWAY)


def test_another_one_may_name_a_leader_that_nobody_knew() -> None:
    one = begun("a", "b")
    one.refused(AWAY)
    one.found(client("b"), info("b"))
    assert one.refused(NotLeader("d leads", managed("d"))) == Send(managed("d"))
    assert one.refused(AWAY) == GiveUp(AWAY)


def test_whoever_was_asked_under_another_name_is_not_asked_again() -> None:
    one = errand("localhost", "a", "b")
    one.found(client("localhost"), info("a"))
    assert one.refused(AWAY) == Visit(client("b"))
    assert one.found(client("b"), info("a")) == GiveUp(AWAY), "it is the same one"


def test_a_follower_that_has_sent_it_to_the_caretaker_is_not_asked_again() -> None:
    one = begun("a", "b", "c")
    one.refused(NotLeader("no", managed("b")))
    assert one.refused(AWAY) == Visit(client("b")), "only its other address is known"
    assert one.found(client("b"), info("b")) == Visit(client("c"))


def test_managers_that_are_learnt_on_the_way_are_asked_too() -> None:
    known = [client("a")]
    one = Errand(known, Backoff(lambda: 0.5))
    one.found(client("a"), info("a"))
    known.append(client("b"))
    assert one.refused(AWAY) == Visit(client("b"))


@pytest.mark.parametrize("leader", range(4))
def test_the_one_that_leads_gets_it_whoever_it_is(leader: int) -> None:
    names = ["a", "b", "c", "d"]
    one = begun(*names)
    step: Step = Send(managed("a"))
    for _ in range(20):
        match step:
            case Send(endpoint) if endpoint == managed(names[leader]):
                return
            case Send():
                step = one.refused(AWAY)
            case Visit(address):
                name = address.removeprefix("tcp://")[0]
                step = one.found(address, info(name))
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
        assert isinstance(step, Send | Visit), "it is never waited for anything"
        if isinstance(step, Visit):
            visited.append(step.address)
            name = step.address.removeprefix("tcp://")[0]
            silent = answer is SILENCE
            step = one.silent(SILENCE) if silent else one.found(step.address, info(name))
        else:
            sent.append(step.endpoint)
            step = one.refused(AWAY if isinstance(answer, Unavailable) else answer)
    assert step == GiveUp(AWAY)
    assert len(set(sent)) == len(sent)
    assert len(set(visited)) == len(visited)
