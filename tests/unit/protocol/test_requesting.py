"""What requesters, services and exchanges say to each other, and what they do not accept."""

from __future__ import annotations

import msgspec
import pytest

from roq.errors import RemoteProtocolError
from roq.protocol import requesting
from roq.protocol.requesting import (
    Answer,
    Figures,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
    Revoked,
    ServiceSettings,
    Want,
    prefix_of,
    topic_of,
)


@pytest.mark.parametrize(
    "message",
    [
        Want("s", [Position(1, 2)], [], [Position(3, 0)]),
        RequestEnds("s", [RequestEnd(1, 2, RequestState.DONE, b"v", more=[b"w"])]),
        Figures(available=False, rule="no"),
        Revoked([(7, 1)]),
    ],
)
def test_what_is_said_arrives(message: Want | RequestEnds | Figures | Revoked) -> None:
    assert requesting.decode(requesting.encode(message), type(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", msgspec.msgpack.encode(["a/b"]), msgspec.msgpack.encode(["s", [[-1, 0]]]),
        msgspec.msgpack.encode(["s", [[1, 1 << 20]]]), msgspec.msgpack.encode({"service": "s"}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_not_read(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        requesting.decode(data, Want)


def test_an_answer_has_a_text_of_bounded_length() -> None:
    long = msgspec.msgpack.encode(Answer(1, 0, RequestState.FAILED, b"", "x" * 65_537))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(long, type=Answer)


@pytest.mark.parametrize(
    "field",
    ["send_attempts", "send_wait", "run_attempts", "confirm_within", "reply_wait", "result_within"],
)
def test_settings_have_bounds(field: str) -> None:
    for value in (0, -1, 1e9):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({field: value}, ServiceSettings)


def test_no_attempt_to_reply_is_a_setting() -> None:
    assert msgspec.convert({"reply_attempts": 0}, ServiceSettings).reply_attempts == 0
    for value in (-1, 101):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"reply_attempts": value}, ServiceSettings)


def test_an_instance_has_time_to_confirm() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"0\.5"):
        msgspec.convert({"confirm_within": 0.4}, ServiceSettings)


def test_topics_of_one_service_are_not_those_of_another() -> None:
    assert topic_of("a", "b").encode().startswith(prefix_of("a"))
    assert not topic_of("a.b", "c").encode().startswith(prefix_of("a"))


def test_of_those_that_have_ended_together_each_has_its_place_and_its_value() -> None:
    end = RequestEnd(1, 2, RequestState.DONE, b"a", more=[b"b", b"c"])
    assert end.positions == [Position(1, 2), Position(1, 3), Position(1, 4)]
    assert [(each.index, each.value, each.more) for each in end.each()] == [
        (2, b"a", []), (3, b"b", []), (4, b"c", [])
    ]  # fmt: skip
    assert (end.position, end.keys) == (Position(1, 2), end.positions)
    assert end.some(3, 2) == RequestEnd(1, 3, RequestState.DONE, b"b", more=[b"c"])
    assert end.some(2, 3) is end
    assert (end.count, end.values) == (3, [b"a", b"b", b"c"])
