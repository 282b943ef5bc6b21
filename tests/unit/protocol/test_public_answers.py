"""A refusal travels to those who ask in public and in RoQ's own words, and comes back as itself."""

from __future__ import annotations

import pytest

from roq.errors import (
    REQUEST_ERRORS,
    NotLeader,
    QueueExists,
    QueueNotFound,
    RequestError,
)
from roq.protocol import documents
from roq.protocol.control import Failure
from roq.protocol.public_answers import (
    ALREADY_EXISTS,
    FromMemory,
    _shown_state,
    done,
    error_of,
    failed,
    failure_of,
    from_memory,
    refusal,
    warning,
)


@pytest.mark.parametrize("kind", sorted(set(REQUEST_ERRORS.values()), key=lambda each: each.code))
def test_an_error_comes_back_as_the_same_one(kind: type[RequestError]) -> None:
    found = error_of(failed(kind("a sentence")))
    assert type(found) is kind


def test_who_does_not_lead_names_who_does() -> None:
    found = error_of(failed(NotLeader("not me", "tcp://h:1")))
    assert isinstance(found, NotLeader)
    assert found.endpoint == "tcp://h:1"
    told = failure_of(NotLeader("not me"), 7)
    assert (told.id, told.CODE, told.ENDPOINT) == (7, NotLeader.code, "")


def test_a_queue_that_exists_is_told_as_the_public_interface_has_always_done() -> None:
    assert failed(QueueExists("queue q exists"))["COMMENT"] == ALREADY_EXISTS
    assert failure_of(QueueExists("queue q exists")).COMMENT == "queue q exists"


def test_an_error_that_nobody_knows_is_one_all_the_same() -> None:
    found = error_of({"RESULT": "NO", "COMMENT": "odd", "CODE": "of_tomorrow"})
    assert type(found) is RequestError
    assert str(found) == "odd"


def test_what_worked_is_no_error_and_may_have_left_something() -> None:
    assert error_of(done(Name="q")) is None
    assert warning(done(WARNING="a host is away")) == "a host is away"
    assert warning(done()) == warning({"WARNING": 7}) == ""


def test_a_request_with_an_id_is_refused_in_the_words_of_the_control_plane() -> None:
    error = QueueNotFound("no queue q")
    assert error_of(documents.decode_raw(refusal(error))) is not None
    told = documents.decode(refusal(error, 3), Failure)
    assert (told.id, told.CODE, told.COMMENT) == (3, QueueNotFound.code, "no queue q")


def test_what_is_told_from_memory_says_so_and_since_when() -> None:
    (told,) = from_memory(7.9, "the registry is away").values()
    assert str(FromMemory(seconds=told["Seconds"], reason=told["Reason"])) == (
        "told from memory for 7 s, so it may be behind: the registry is away"
    )


@pytest.mark.parametrize(
    ("state", "reasons", "shown"),
    [("running", [], "running"), ("running", ["x"], "degraded"), ("stopped", ["x"], "stopped")],
)
def test_a_queue_of_which_not_all_runs_is_degraded(
    state: str, reasons: list[str], shown: str
) -> None:
    assert _shown_state(state, reasons) == shown
