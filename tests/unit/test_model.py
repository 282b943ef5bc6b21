from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import InvalidName, InvalidRequest, LocalProtocolError
from roq.model import (
    NO_END_SECONDS,
    check_count,
    check_name,
    check_seconds,
    child_epoch,
    encode_topic,
    endpoint_of,
    publisher_epoch,
    wait_seconds,
)


@pytest.mark.parametrize("name", ["orders", "a", "A-1_b.c", "x" * 128])
def test_good_names_are_given_back(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a/b", "a,b", "a b", "a\nb", "a\n", "x" * 129, ".", "..", "é", "\x00"]
)
def test_other_names_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidName, match="1 to 128"):
        check_name(name)


@pytest.mark.parametrize("other", [None, 5, b"orders", ["orders"]])
def test_what_is_no_text_is_no_name_and_no_topic(other: str) -> None:
    with pytest.raises(TypeError, match="queue name is text"):
        check_name(other)
    with pytest.raises(TypeError, match="an endpoint name is text"):
        check_name(other, "endpoint")
    with pytest.raises(TypeError, match="topic is text"):
        encode_topic(other)


@given(st.text(max_size=60))
def test_no_topic_begins_like_a_control_topic(topic: str) -> None:
    try:
        assert not encode_topic(topic).startswith(b"\xff")
    except InvalidName:
        assert any(0xD800 <= ord(letter) <= 0xDFFF for letter in topic)


def test_a_topic_is_measured_in_bytes() -> None:
    assert encode_topic("é" * 127)
    with pytest.raises(InvalidName, match="256"):
        encode_topic("é" * 128)


def test_ipv6_hosts_stand_in_brackets() -> None:
    assert endpoint_of("::1", 5) == "tcp://[::1]:5"
    assert endpoint_of("10.0.0.1", 5) == "tcp://10.0.0.1:5"


def test_epochs_rise_with_the_host_manager_then_with_its_children_then_with_moves() -> None:
    epochs = [child_epoch(1, 0), child_epoch(1, 1), child_epoch(2, 0)]
    assert epochs == sorted(set(epochs))
    moves = [publisher_epoch(e, n) for e in epochs for n in (0, 1, (1 << 27) - 1)]
    assert moves == sorted(set(moves))
    assert publisher_epoch(child_epoch((1 << 20) - 1, (1 << 16) - 1), (1 << 27) - 1) < 1 << 63


def test_an_epoch_out_of_range_is_our_own_bug() -> None:
    for pair in ((0, 0), (1 << 20, 0), (1, 1 << 16)):
        with pytest.raises(LocalProtocolError):
            child_epoch(*pair)


class Unwilling:
    """As an array of two numbers."""

    def __index__(self) -> int:
        raise TypeError("only one number can be that")


class Odd:
    """Neither a number nor to be shown."""

    def __float__(self) -> float:
        raise ValueError

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value", [nan, True, "5", b"5", 1j, [1.0], None, Odd(), pytest.param(-(10**5_000), id="low")]
)
def test_what_is_no_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="lease is a number of seconds from 2 on, at most 9"):
        check_seconds("lease", value, 2, 9)
    with pytest.raises(InvalidRequest, match="most is a whole number from 1 to 1,000, not "):
        check_count("most", value, 1, 1_000)


def test_a_number_of_seconds_is_within_its_bounds() -> None:
    assert [check_seconds("s", each, 2, 9) for each in (2, 9.0, Fraction(5, 2))] == [2.0, 9.0, 2.5]
    assert check_seconds("s", 10**400) == inf
    for value in (1.9, 9.1, inf):
        with pytest.raises(InvalidRequest):
            check_seconds("s", value, 2, 9)
    with pytest.raises(InvalidRequest, match="s is a number of seconds above 0, not 0"):
        check_seconds("s", 0, above=True)
    with pytest.raises(InvalidRequest, match="n is a whole number from 1 on, not "):
        check_count("n", 1.5, 1)
    with pytest.raises(InvalidRequest, match="n is a whole number"):
        check_count("n", Unwilling(), 1)


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        (None, 3.0),
        (2, 2.0),
        (-1, 0.0),
        (-inf, 0.0),
        (inf, NO_END_SECONDS),
        (10**400, NO_END_SECONDS),
    ],
)
def test_whoever_waits_does_so_for_a_time_that_locks_and_timers_take(
    timeout: float | None, seconds: float
) -> None:
    assert wait_seconds(timeout, 3.0) == seconds
