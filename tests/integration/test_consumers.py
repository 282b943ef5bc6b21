"""Consumer groups with real processes: members that share, die, are paused; exchanges that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from commands import until

import roq
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parent.parent / "support" / "consuming.py"


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


class Member:
    """A consumer in a process of its own."""

    def __init__(
        self, running: RunningCluster, queue: str, path: Path, seconds: float = 0.0,
        lease: float = 30.0,
    ) -> None:  # fmt: skip
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), running.address, queue, "group", str(path),
             str(seconds), str(lease)],
        )  # fmt: skip
        assert until(lambda: "ready" in self.lines(), 20)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def words(self, kind: str) -> list[str]:
        return [line.split()[1] for line in self.lines() if line.startswith(kind + " ")]

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        self.process.wait(20)


@pytest.fixture
def member(running: RunningCluster, queue: str, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def make(seconds: float = 0.0, lease: float = 30.0) -> Member:
        made = Member(running, queue, tmp_path / f"member{len(members)}", seconds, lease)
        members.append(made)
        return made

    yield make
    for each in members:
        each.end(signal.SIGKILL)


def publish(client: roq.Cluster, queue: str, texts: list[str], topic: str = "t") -> None:
    with client.publisher(queue, linger=0.0) as publisher:
        for text in texts:
            publisher.publish(text.encode(), topic)
            publisher.flush()


def numbered(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


both = pytest.mark.parametrize("queue", ["none", "flush"], indirect=True)


# --- sharing --------------------------------------------------------------------------------------


@both
def test_members_share_the_messages_and_each_comes_once(client: roq.Cluster, queue: str) -> None:
    with (
        client.consumer(queue, "group") as one,
        client.consumer(queue, "group") as two,
        client.consumer(queue, "other") as alone,
    ):
        publish(client, queue, numbered(40))
        got: list[Counter[bytes]] = []
        for consumer, least in ((one, 10), (two, 10), (alone, 40)):
            mine: Counter[bytes] = Counter()
            for batch in consumer.batches(wait=1.0):
                mine.update(batch.payloads)
                batch.ack()
            consumer.flush()
            assert mine.total() >= least
            got.append(mine)
        assert got[0] + got[1] == got[2] == Counter(text.encode() for text in numbered(40))


def test_a_message_that_is_given_back_comes_again_with_its_attempt(
    client: roq.Cluster, queue: str
) -> None:
    with client.consumer(queue, "group", retry=0.1) as consumer:
        publish(client, queue, ["m"])
        first = consumer.receive(5)
        assert first is not None
        assert first.attempt == 1
        first.nack()
        second = consumer.receive(5)
        assert second is not None
        assert (second.payload, second.attempt, second.id) == (b"m", 2, first.id)
        second.ack()
        consumer.flush()
        assert consumer.receive(0.5) is None


def test_a_loop_acknowledges_what_its_body_has_done_and_gives_back_the_rest(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, numbered(5))
    with client.consumer(queue, "group", retry=0.1) as consumer:
        seen: list[bytes] = []

        def handle() -> None:
            for message in consumer:
                seen.append(message.payload)
                if len(seen) == 3:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            handle()
        consumer.flush()
    with client.consumer(queue, "group") as consumer:
        again = {payload for batch in consumer.batches(wait=1.5) for payload in batch.payloads}
    assert again == {text.encode() for text in numbered(5)} - set(seen[:2])


def test_a_message_that_fails_too_often_becomes_a_dead_letter(
    client: roq.Cluster, queue: str
) -> None:
    with client.publisher(queue) as publisher:
        publisher.publish(b"poison", "t", key="k", tags=["red"], properties={"a": "b"})
        publisher.publish(b"good", "t")
    with client.consumer(queue, "group", attempts=2, retry=0.1) as consumer:
        done = []
        deadline = time.monotonic() + 20
        while not client.queue_exists(f"{queue}.dead") and time.monotonic() < deadline:
            message = consumer.receive(0.2)
            if message is None:
                continue
            if message.payload == b"poison":
                message.nack(reason="it is poison")
            else:
                done.append(message.payload)
                message.ack()
        assert done == [b"good"]
        with client.subscriber(f"{queue}.dead", start="earliest") as letters:
            letter = letters.receive(10)
            assert letter is not None
            assert (letter.payload, letter.key, letter.tags) == (b"poison", "k", ("red",))
            assert letter.properties["a"] == "b"
            assert letter.properties["roq.dead.queue"] == queue
            assert letter.properties["roq.dead.attempts"] == "2"
        consumer.flush()
        assert consumer.receive(0.5) is None
    client.remove_queue(f"{queue}.dead")


def test_a_rejected_message_is_a_dead_letter_at_once(client: roq.Cluster, queue: str) -> None:
    publish(client, queue, ["m"])
    with client.consumer(queue, "group") as consumer:
        message = consumer.receive(5)
        assert message is not None
        message.reject("cannot be parsed")
        consumer.flush()
        with client.subscriber(f"{queue}.dead", start="earliest") as letters:
            letter = letters.receive(10)
            assert letter is not None
            assert letter.properties["roq.dead.reason"] == "cannot be parsed"
    client.remove_queue(f"{queue}.dead")


def test_letters_of_an_ordered_queue_go_to_an_unordered_one_that_is_there(
    client: roq.Cluster,
) -> None:
    client.create_queue("letters", durability="flush")
    client.create_queue("ledger", durability="flush", limits={"ordered": 1})
    with client.publisher("ledger") as publisher:
        publisher.send(b"bad")
    with client.consumer("ledger", "g", dead_letters="letters") as consumer:
        message = consumer.receive(timeout=10)
        assert message is not None
        message.reject("no")
        consumer.flush()
    with client.consumer("letters", "look") as consumer:
        letter = consumer.receive(timeout=10)
        assert letter is not None
        assert letter.payload == b"bad"
    assert client.describe("letters").limits.ordered == 0
    for name in ("letters", "ledger"):
        client.remove_queue(name)


def test_an_exclusive_group_hands_everything_to_one_member_in_order(
    client: roq.Cluster, queue: str
) -> None:
    with (
        client.consumer(queue, "group", mode="exclusive") as one,
        client.consumer(queue, "group", mode="exclusive") as two,
    ):
        publish(client, queue, numbered(30))
        got = []
        while len(got) < 10:
            message = one.receive(5)
            assert message is not None
            got.append(message.payload.decode())
            message.ack()
        assert two.receive(0.3) is None
        one.flush()
        one.close()
        while len(got) < 30:
            message = two.receive(5)
            assert message is not None
            got.append(message.payload.decode())
            message.ack()
        assert got == numbered(30)


def test_a_new_group_begins_where_it_is_told(client: roq.Cluster, queue: str) -> None:
    publish(client, queue, ["old"])
    with (
        client.consumer(queue, "late", start="latest") as late,
        client.consumer(queue, "early") as early,
    ):
        publish(client, queue, ["new"])
        message = late.receive(5)
        assert message is not None
        assert message.payload == b"new"
        assert {early.receive(5).payload, early.receive(5).payload} == {b"old", b"new"}  # type: ignore[union-attr]


def test_a_group_goes_on_where_it_was_when_nobody_was_there(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, numbered(4))
    with client.consumer(queue, "group") as consumer:
        first, second = consumer.receive(5), consumer.receive(5)
        assert first is not None
        assert second is not None
        second.ack()
        consumer.flush()
    publish(client, queue, ["later"])
    with client.consumer(queue, "group") as consumer:
        got = {payload for batch in consumer.batches(wait=1.0) for payload in batch.payloads}
    assert got == {b"m0", b"m2", b"m3", b"later"} - {second.payload} | {first.payload}


def test_only_the_topics_of_the_group_come(client: roq.Cluster, queue: str) -> None:
    with client.consumer(queue, "group", topic=["eu", "us"]) as consumer:
        for topic in ("eu.be", "asia", "us"):
            publish(client, queue, [topic], topic)
        got = {payload for batch in consumer.batches(wait=1.0) for payload in batch.payloads}
    assert got == {b"eu.be", b"us"}


@pytest.mark.parametrize(
    ("options", "text"),
    [({"mode": "exclusive"}, "is shared, not exclusive"), ({"topic": "x"}, "has the topics ''"),
     ({"lease": 0.1}, "lease"), ({"attempts": -1}, "attempts"), ({"mode": "none"}, "mode"),
     ({"prefetch": 0}, "prefetch"), ({"dead_letters": "SELF"}, "to itself"),
     ({"start": "noon"}, "noon")],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(
    client: roq.Cluster, queue: str, options: dict[str, str | float], text: str
) -> None:
    if options.get("dead_letters"):
        options = {"dead_letters": queue}
    with (
        client.consumer(queue, "group"),
        pytest.raises(roq.InvalidRequest, match=text),
        client.consumer(queue, "group", **options),  # type: ignore[arg-type]
    ):
        pytest.fail("it was taken in")


# --- members that die -----------------------------------------------------------------------------


def test_what_a_killed_member_held_is_with_another_one_within_two_seconds(
    client: roq.Cluster, queue: str, member: Callable[..., Member]
) -> None:
    doomed = member(60.0)
    publish(client, queue, numbered(5))
    assert until(lambda: bool(doomed.words("begin")), 10)
    with client.consumer(queue, "group", retry=0.1) as heir:
        assert heir.receive(0.3) is None
        os.kill(doomed.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        got = {}
        while len(got) < 5:
            message = heir.receive(5)
            assert message is not None, got
            got[message.payload] = message.attempt
            message.ack()
        assert time.monotonic() - killed < 4.0  # two, and what a busy machine adds
        heir.flush()
        assert set(got.values()) == {2}


def test_a_member_that_was_paused_beyond_its_lease_cannot_acknowledge(
    client: roq.Cluster, queue: str, member: Callable[..., Member]
) -> None:
    paused = member(1.0, 2.0)
    publish(client, queue, ["m"])
    assert until(lambda: bool(paused.words("begin")), 10)
    os.kill(paused.process.pid, signal.SIGSTOP)
    with client.consumer(queue, "group") as heir:
        message = heir.receive(10)
        assert message is not None
        assert message.attempt == 2
        message.ack()
        heir.flush()
        os.kill(paused.process.pid, signal.SIGCONT)
        assert until(lambda: bool(paused.words("lost")) or bool(paused.words("ack")), 10)
        assert heir.receive(1.0) is None


def test_a_member_that_works_for_longer_than_its_lease_keeps_what_it_holds(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, ["m"])
    with client.consumer(queue, "group", lease=2.0) as slow, client.consumer(queue, "group") as two:
        message = slow.receive(5)
        assert message is not None
        assert two.receive(5.0) is None
        message.ack()
        slow.flush()


def test_a_member_that_is_told_to_stop_gives_back_what_it_has_not_begun(
    client: roq.Cluster, queue: str, member: Callable[..., Member]
) -> None:
    first = member(0.05)
    publish(client, queue, numbered(60))
    assert until(lambda: len(first.words("ack")) > 3, 10)
    second = member()
    first.end()
    assert until(
        lambda: sorted(first.words("ack") + second.words("ack")) == sorted(numbered(60)), 20
    ), (first.words("ack"), second.words("ack"))
    begun = Counter(first.words("begin") + second.words("begin"))
    assert set(begun.values()) == {1}


# --- exchanges that die ---------------------------------------------------------------------------


def exchanges_of(queue: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "roq.exchange" in line and f"{queue}.x" in line:
            found.append(process)
    return found


@pytest.mark.parametrize("queue", ["flush"], indirect=True)
def test_what_a_group_has_acknowledged_does_not_come_again_after_its_exchange_was_killed(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, numbered(20))
    with client.consumer(queue, "group", retry=0.1) as consumer:
        done, held = [], []
        for _ in range(20):
            message = consumer.receive(5)
            assert message is not None
            (held if len(done) >= 10 else done).append(message)
            if message in done:
                message.ack()
        consumer.flush()
        kill_exchange(queue)
        publish(client, queue, ["after"])
        after = consumer.receive(20)
        assert after is not None
        assert after.payload == b"after"
        after.ack()
        for message in held:
            message.ack()  # they are still held: nobody else had them
        consumer.flush()
        assert consumer.stats().lost == 0
        assert consumer.receive(2.0) is None
    with client.consumer(queue, "group") as consumer:
        assert consumer.receive(3.0) is None


def kill_exchange(queue: str) -> None:
    before = exchanges_of(queue)
    assert before, "an exchange runs"
    for process in before:
        process.kill()
    assert until(
        lambda: any(each.pid not in {p.pid for p in before} for each in exchanges_of(queue)), 20
    )


@pytest.mark.long
@pytest.mark.parametrize("queue", ["flush"], indirect=True)
def test_kills_of_exchange_and_members_lose_nothing_and_repeat_only_what_was_not_confirmed(
    running: RunningCluster, client: roq.Cluster, queue: str, member: Callable[..., Member]
) -> None:
    members = [member(0.0, 5.0), member(0.0, 5.0)]
    texts, pause = numbered(3_000), threading.Event()
    feeding = threading.Thread(target=publish, args=(client, queue, texts))
    feeding.start()
    for turn in range(8):
        pause.wait(1.0)  # the pace of the kills
        if turn % 2:
            kill_exchange(queue)
        else:
            victim = members[turn // 2 % 2]
            os.kill(victim.process.pid, signal.SIGKILL)
            members.append(member(0.0, 5.0))
            members.remove(victim)
            members.append(victim)
            members = [each for each in members if each.process.poll() is None] + [
                each for each in members if each.process.poll() is not None
            ]
    feeding.join(120)
    assert not feeding.is_alive()

    def acked() -> set[str]:
        return {text for each in members for text in each.words("ack")}

    assert until(lambda: acked() == set(texts), 60), len(set(texts) - acked())
    alive = [each for each in members if each.process.poll() is None]
    for each in alive:
        each.end()
    begun = Counter(text for each in members for text in each.words("begin"))
    again = sum(count - 1 for count in begun.values())
    # Only what a killed process had in its hands, or had acknowledged a moment before.
    assert again <= 8 * 40, again
    with client.consumer(queue, "group") as consumer:
        assert consumer.receive(3.0) is None
