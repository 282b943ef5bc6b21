"""When a message that is delayed is due, and what travels for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roq.client.publish.batching import Attributed
from roq.client.publish.delayed import LaterPublishing, When, due_of
from roq.client.publish.receipt import Receipt
from roq.errors import InvalidName, InvalidRequest
from roq.protocol.delayed import DELAYED_TOPIC, decode_delayed

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(0.001, 0.001), (5, 5.0), (-3.0, -3.0), (timedelta(days=365), 365 * 86_400.0),
     (datetime.fromtimestamp(NOW + 60.0, UTC), 60.0),
     (datetime.fromtimestamp(NOW + 60.0, UTC).astimezone(), 60.0)],
)  # fmt: skip
def test_seconds_and_times_say_when(delay: When, seconds: float) -> None:
    assert abs(due_of(delay, NOW) - (NOW + seconds) * 1_000_000) < 10


@pytest.mark.parametrize(
    "delay",
    [float("nan"), float("inf"), 1e18, timedelta.max, datetime.max.replace(tzinfo=UTC),
     datetime(2030, 1, 1)],  # noqa: DTZ001 - that is what is refused
)  # fmt: skip
def test_what_is_too_far_away_or_unclear_is_refused(delay: When) -> None:
    with pytest.raises(InvalidRequest, match=r"at most, not by|time zone|a delay is"):
        due_of(delay, NOW)


@pytest.mark.parametrize(
    "delay", ["5", b"5", None, "x" * 9_999, 1e300, 10**400, pytest.param(10**9_999, id="long")]
)
def test_who_gives_no_number_or_a_long_one_is_told_in_short(delay: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^a (message is delayed by|delay is sec)") as refused:
        due_of(delay, NOW)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "delay", [float("-inf"), -1e18, -(10**400), datetime.min.replace(tzinfo=UTC)]
)
def test_the_distant_past_is_at_once(delay: When) -> None:
    assert due_of(delay, NOW) == 0


class Paper(LaterPublishing):
    """Notes what is published."""

    def wait_for(self, *_: object) -> bool:
        return True

    def call_back(self, *_: object) -> None: ...

    def publish_raw(self, data: bytes, topic: str) -> Receipt:
        self.data, self.topic = data, topic
        return Receipt(self)


def test_it_travels_under_a_topic_that_nobody_sees() -> None:
    paper = Paper()
    sent = paper.publish_later(b"hello", "eu.be", "k", ["a"], delay=5.0)
    message = decode_delayed(paper.data)
    assert paper.topic.encode() == DELAYED_TOPIC
    assert (message.topic, message.payload, message.id.hex()) == (b"eu.be", b"hello", sent.id)
    assert sent.due.timestamp() == pytest.approx(message.due_us / 1e6)
    assert isinstance(paper.data, Attributed)
    assert (paper.data.beside.attributes.key, paper.data.beside.attributes.tags) == ("k", ("a",))
    assert not isinstance(sent.receipt, tuple)


def test_a_key_of_64_kib_is_refused() -> None:
    with pytest.raises(InvalidName, match="at most 1024 bytes"):
        Paper().publish_later(b"", key="k" * 65_536, delay=1.0)
