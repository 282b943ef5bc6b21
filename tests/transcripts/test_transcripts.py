"""How the parties of a queue speak with each other, as texts that are read and reviewed like code.

A change of the protocol shows as a difference of a text. `ROQ_ACCEPT=1 pytest tests/transcripts`
writes the texts anew; read what `git diff` says of them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from transcript import Transcript

from roq.model import Limits

FOLDER = Path(__file__).parent
STEADY = ("END", "Position", "Reading")
"""What is said again and again while nothing happens."""


def link() -> Transcript:
    """One publisher, one exchange; a batch is lost on the way, then the connection breaks."""
    story = Transcript(hidden=STEADY)
    story.add_exchange(1)
    publisher = story.add_publisher()
    story.world.run(0.1)
    story.note("three batches of two messages")
    for _ in range(3):
        publisher.publish("t", [b"x", b"y"])
    story.world.run(0.1)
    story.note("the next batch does not arrive, the one behind it does")
    publisher.connections[0].lose(1)
    publisher.publish("t", [b"x"])
    publisher.publish("t", [b"x"])
    story.world.run(0.1)
    story.note("the connection breaks behind a batch that nobody has acknowledged")
    publisher.publish("t", [b"x"])
    publisher.connections[0].cut()
    story.world.run(1.0)
    assert publisher.settled
    return story


def relocation() -> Transcript:
    """The monitor moves a publisher while a subscriber reads."""
    story = Transcript(hidden=STEADY)
    first, second = story.add_exchange(1), story.add_exchange(2)
    subscriber = story.add_subscriber()
    publisher = story.add_publisher()
    story.world.run(0.1)
    story.note("the publisher publishes where it was assigned to")
    publisher.publish("t", [b"x"])
    story.world.run(0.1)
    (here,) = story.monitor.where(publisher.id)
    there = second if here == first.key else first
    story.note("the monitor moves it; a batch is under way")
    publisher.publish("t", [b"x"])
    story.monitor.relocate(publisher.id, [there])
    story.world.run(0.5)
    story.note("it publishes at the other one")
    publisher.publish("t", [b"x"])
    story.world.run(0.5)
    assert publisher.settled
    assert not subscriber.machine.resequencer.waiting
    assert story.monitor.where(publisher.id) == (there.key,)
    return story


def takeover() -> Transcript:
    """An exchange dies with what it had; another process takes its place."""
    story = Transcript(hidden=STEADY)
    exchange = story.add_exchange(1)
    story.add_subscriber()
    publisher = story.add_publisher()
    story.world.run(0.1)
    publisher.publish("t", [b"x"])
    story.world.run(0.1)
    story.note("a batch is under way when the exchange is killed")
    publisher.publish("t", [b"x"])
    story.kill(exchange)
    story.world.run(0.1)
    story.note("the monitor has noticed, and another process serves")
    story.monitor.remove(exchange.key)
    story.add_exchange(1)
    story.world.run(1.0)
    assert publisher.settled
    return story


def loss() -> Transcript:
    """The fan-out drops what it has no room for; the log has it still."""
    story = Transcript(hidden=("Position", "Reading"))
    story.add_exchange(1)
    subscriber = story.add_subscriber()
    publisher = story.add_publisher()
    story.world.run(0.1)
    publisher.publish("t", [b"x"])
    story.world.run(0.1)
    story.note("the fan-out drops a batch; the next one tells")
    story.network.weather.drop = 1.0
    publisher.publish("t", [b"x"])
    story.world.run(0.01)
    story.network.weather.drop = 0.0
    publisher.publish("t", [b"x"])
    story.world.run(0.3)
    story.note("it drops the last one; the end of the log tells")
    story.network.weather.drop = 1.0
    publisher.publish("t", [b"x"])
    story.world.run(0.01)
    story.network.weather.drop = 0.0
    story.world.run(2.0)
    assert not subscriber.machine.resequencer.waiting
    return story


def lost() -> Transcript:
    """What the fan-out has dropped has left the log, too: the subscriber is told of it."""
    story = Transcript(Limits(ring_bytes=4_000), hidden=("END", "Position", "Reading"))
    exchange = story.add_exchange(1)
    exchange.core.backpressure.rule(0)
    subscriber = story.add_subscriber()
    publisher = story.add_publisher()
    story.world.run(0.1)
    publisher.publish("t", [b"x"])
    story.world.run(0.1)
    story.note("the fan-out drops three batches of a kilobyte, and the ring holds two")
    story.network.weather.drop = 1.0
    for _ in range(3):
        publisher.publish("t", [bytes(1_000)])
        story.world.run(0.01)
    story.network.weather.drop = 0.0
    story.note("the next batch tells")
    publisher.publish("t", [bytes(1_000)])
    story.world.run(0.5)
    assert not subscriber.machine.resequencer.waiting
    return story


STORIES: list[Callable[[], Transcript]] = [link, relocation, takeover, loss, lost]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_parties_say_what_the_transcript_says(story: Callable[[], Transcript]) -> None:
    path = FOLDER / f"{story.__name__}.txt"
    text = f"{story.__doc__}\n\n{story().text}"
    if "ROQ_ACCEPT" in os.environ:
        path.write_text(text)
    before = path.read_text() if path.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), text.splitlines(), "as committed", "as it is now", lineterm="", n=2
    )
    difference = "\n".join(lines)
    assert not difference, f"ROQ_ACCEPT=1 writes {path.name} anew:\n{difference}"
