"""Who listens, and how many copies of a topic go out."""

import pytest

from roq.exchange.subscriptions import Subscriptions
from roq.protocol.channel import END_TOPIC, NONCE_BYTES, PRESENCE_TOPIC


def test_a_subscriber_shows_by_its_presence_subscription() -> None:
    subscriptions = Subscriptions()
    presence = PRESENCE_TOPIC + b"n" * NONCE_BYTES
    for prefix in (b"eu.", END_TOPIC, presence):
        assert subscriptions.add(prefix)
    assert subscriptions.subscribers == 1
    subscriptions.remove(presence)
    assert subscriptions.subscribers == 0


def test_copies_are_the_subscriptions_that_match() -> None:
    subscriptions = Subscriptions()
    for prefix in (b"", b"eu.", b"eu.", b"eu.be", b"us"):
        subscriptions.add(prefix)
    assert subscriptions.copies(b"eu.nl") == 3
    assert subscriptions.copies(b"eu.be") == 4
    subscriptions.remove(b"eu.")
    assert subscriptions.copies(b"eu.nl") == 2
    for _ in range(3):
        subscriptions.remove(b"eu.")
    assert subscriptions.copies(b"eu.nl") == 1


def test_what_no_reader_subscribes_to_is_told_apart() -> None:
    subscriptions = Subscriptions()
    assert not subscriptions.add(b"x" * 256)
    assert subscriptions.copies(b"x" * 255) == 0


def test_what_nobody_may_have_subscribed_to_is_not_wanted() -> None:
    subscriptions = Subscriptions()
    presence = PRESENCE_TOPIC + b"n" * NONCE_BYTES
    for prefix in (b"eu.", END_TOPIC):
        subscriptions.add(prefix)
    assert subscriptions.anybody
    assert subscriptions.wants(b"eu.be")
    assert not subscriptions.wants(b"us")
    subscriptions.remove(b"eu.")
    assert not subscriptions.wants(b"eu.be")
    assert not subscriptions.anybody
    subscriptions.add(presence)
    assert subscriptions.anybody
    subscriptions.add(b"eu.")
    subscriptions.remove(b"eu.")  # a stranger's word, who has never subscribed
    assert subscriptions.wants(b"eu.be"), "a reader is there"
    subscriptions.remove(presence)
    assert not subscriptions.wants(b"eu.be")


@pytest.mark.parametrize("prefix", [b"us\xff", b"us\xffRX", b"u" * 256])
def test_with_a_subscription_that_is_not_counted_everything_is_wanted(prefix: bytes) -> None:
    subscriptions = Subscriptions()
    subscriptions.add(prefix)
    assert subscriptions.copies(b"us") == 0
    assert subscriptions.wants(b"us")
    assert subscriptions.anybody
