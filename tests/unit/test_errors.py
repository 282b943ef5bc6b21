"""The tree of errors: every one that a server may send has a code, and comes back as itself."""

from __future__ import annotations

import pytest

from roq import errors
from roq.errors import (
    REQUEST_ERRORS,
    DeliveryError,
    Interrupted,
    NotLeader,
    RegistryAway,
    RequestError,
    RoQError,
)


def below(kind: type[RoQError]) -> set[type[RoQError]]:
    """It, and all that derive from it in `roq.errors`."""
    here = {each for each in kind.__subclasses__() if each.__module__ == errors.__name__}
    return {kind}.union(*map(below, here))


def test_every_refusal_can_be_told_by_its_code() -> None:
    assert set(REQUEST_ERRORS.values()) == below(RequestError)
    assert all(kind.code == code for code, kind in REQUEST_ERRORS.items())


def test_the_drawing_names_every_error() -> None:
    drawing = str(errors.__doc__)
    assert [kind.__name__ for kind in below(RoQError) if kind.__name__ not in drawing] == []


def test_a_change_that_was_interrupted_is_caught_as_one_that_was_refused() -> None:
    with pytest.raises(RegistryAway):
        raise Interrupted("half done")


def test_who_does_not_lead_says_who_does_if_it_knows() -> None:
    assert NotLeader("ask another one").endpoint == ""
    assert NotLeader("ask that one", "tcp://a:1").endpoint == "tcp://a:1"
    assert str(NotLeader("ask that one", "tcp://a:1")) == "ask that one"


def test_messages_that_could_not_be_delivered_are_counted() -> None:
    assert DeliveryError("3 messages were given up", 3).messages == 3
