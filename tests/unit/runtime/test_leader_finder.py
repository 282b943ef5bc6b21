"""Which configuration manager is asked next, told as conversations.

Each step says who is asked, and what comes of it: `<a` names manager a, `-` is a refusal that names
none, `.2` silence for two seconds, `!` it leads; `|` ends a round, and `@3` says when.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.runtime.leader_finder import (
    HOPS_MAX,
    LEARNT_MAX,
    SHUNNED_SECONDS,
    LeaderFinder,
)


def at(name: str) -> str:
    return f"tcp://{name}:1"


def finder(names: str) -> LeaderFinder:
    return LeaderFinder(map(at, names))


def tell(made: LeaderFinder, answer: str, now: float) -> bool:
    """Gives whether the round goes on."""
    match answer[0]:
        case "!":
            made.found()
            return True
        case ".":
            return made.silent(now)
        case _:
            return made.refused(now, at(answer[1:]) if answer[0] == "<" else "")


def play(made: LeaderFinder, conversation: str) -> None:
    now = 0.0
    for step in conversation.split(", "):
        *time, name, answer = step.split()
        if time:
            now = float(time[0].removeprefix("@"))
        assert made.ask(now) == at(name), step
        answer, ends = answer.rstrip("|"), answer.endswith("|")
        if answer[0] == ".":
            now += float(answer[1:])
        assert tell(made, answer, now) is not ends, step


CONVERSATIONS = {
    "all in turn": ("abc", "a -, b -, c -|, a -"),
    "the one that is named comes next, and first from then on": ("abc", "a <c, c !, c !"),
    "who was named and does not lead is not asked twice": ("abc", "a <c, c -, b -|, a -"),
    "the last one that led comes first": ("ab", "a -, b !, b -, a -|, b -"),
    "a leader that was silent may be named again": ("a", "a <l, l !, l .2, a <l, l !"),
    "those that name each other are left at once": ("ab", "a <b, b <a|, a <b, b !"),
    "who names itself is not believed": ("ab", "a <a, b <a|, a -"),
    "nor followed for ever, who names ever new ones": (
        "abc",
        "a <x, x <y, y <z, z <u, b <v, c -|, a -",
    ),
    "who did not answer a moment ago is left out, though others name it": (
        "abc",
        "a .0.5, b <a, c <a|, b <a, c <a|, @1.1 b <a, a !",
    ),
    "but followed, if that is longer ago": ("ab", "a .2, b <a, a !"),
    "all are silent, and the one for the longest time is asked": (
        "ab",
        "a .0, @0.1 b .0|, @0.4 a .0|, b .0|, a -|",
    ),
    "one that cannot be reached is left out for a second": (
        "ab",
        "a .0, b -|, @0.5 b -|, @1.5 b -, a !",
    ),
}


@pytest.mark.parametrize(("names", "conversation"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_conversations(names: str, conversation: str) -> None:
    play(finder(names), conversation)


@pytest.mark.parametrize(
    "address", ["", "l:1", "file:///etc/passwd", "tcp://\n", "tcp://" + "x" * 400]
)
def test_a_name_that_cannot_be_an_address_is_not_followed(address: str) -> None:
    made = finder("ab")
    assert made.refused(0.0, address)
    assert made.address == at("b")
    assert not made.told(address)
    made.learn([address])
    assert address not in made.known


def test_another_party_tells_who_leads_and_what_it_repeats_is_nothing_new() -> None:
    made = finder("ab")
    assert made.told(at("l"))
    assert made.ask(0.0) == at("l")
    made.refused(0.0, at("n"))
    made.found()
    assert not made.told(at("l"))
    assert made.known == [at("n"), at("l"), at("a"), at("b")]


def test_without_any_manager_none_is_asked_until_one_is_told() -> None:
    made = finder("")
    assert made.ask(0.0) == ""
    made.told(at("l"))
    assert made.ask(0.0) == at("l")


def test_leaders_that_have_answered_are_remembered_within_a_bound() -> None:
    made = finder("a")
    for number in range(2 * LEARNT_MAX):
        made.refused(0.0, at(f"l{number}"))
        made.found()
    assert len(made.known) <= 2 + LEARNT_MAX
    assert at("a") in made.known


def test_who_is_excluded_is_not_asked_and_who_was_silent_is_asked_when_a_round_begins() -> None:
    made = finder("abcd")
    assert made.silent(0.0)
    made.begin()
    made.exclude(at("c"))
    assert made.refused(0.0)
    assert made.address == at("a")
    assert made.refused(0.0)
    assert made.address == at("d")
    assert not made.refused(0.0)


ANSWERS = st.sampled_from(["-", ".0", ".1", "<a", "<b", "<c", "<x", "<y"])


@given(st.lists(st.tuples(ANSWERS, st.floats(0, 2)), max_size=60))
def test_each_round_ends_and_has_asked_all_that_were_not_silent_just_now(
    answers: list[tuple[str, float]],
) -> None:
    made, now = finder("abc"), 0.0
    asked: list[str] = []
    silent: dict[str, float] = {}
    for answer, seconds in answers:
        asked.append(made.ask(now))
        if answer[0] == ".":
            silent[asked[-1]] = now
        now += seconds
        if tell(made, answer, now):
            assert len(asked) < 3 + HOPS_MAX
            continue
        left = set(map(at, "abc")) - set(asked)
        assert all(now - silent.get(each, -9.0) <= SHUNNED_SECONDS for each in left)
        asked = []
