"""An XPUB in the loop that uses it, against sockets of libzmq and against raw ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import zmq
import zmtp_bench
from zmtp_bench import Bench, arrived, ready, unread

from roq.protocol import zmtp
from roq.runtime import zmtp_server
from roq.runtime.zmtp_server import TOPICS_FOUND_MAX

MEGABYTE = 1 << 20
EMPTY_COMMAND = b"\x04\x00"
EMPTY_MORE = b"\x01\x00"
BURST = 50

bench = pytest.fixture(zmtp_bench.bench)


def subscribed(bench: Bench, count: int) -> None:
    bench.until(lambda: sum(1 if made else -1 for made, _ in bench.told) == count)


def test_subscribers_of_all_kinds_get_what_they_have_asked_for(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    sub, xsub = bench.client(zmq.SUB, port), bench.client(zmq.XSUB, port)
    raw = bench.raw(port, b"SUB")
    sub.subscribe(b"a")
    xsub.send(b"\x01b")
    raw.say(b"\x01")
    subscribed(bench, 3)
    large = b"x" * (3 * MEGABYTE)
    fan_out.publish(b"a/", b"a/", b"1")
    fan_out.publish(b"b/", b"b/", large)
    fan_out.publish(b"c", b"c")
    assert bench.receive(sub) == [b"a/1"]
    assert bench.receive(xsub) == [b"b/" + large]
    assert bench.hear(raw, 3) == [[b"a/1"], [b"b/" + large], [b"c"]]
    assert not sub.poll(0)


def test_a_prefix_of_any_length_matches_once(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    one = bench.client(zmq.SUB, port)
    raws = [bench.raw(port, b"SUB") for _ in range(8)]
    topic = b"topics"
    for length, raw in enumerate(raws):
        raw.say(b"\x01" + (topic + b"!")[:length])
        one.subscribe((topic + b"!")[:length])
    subscribed(bench, 16)
    fan_out.publish(topic, topic, b"!!")
    fan_out.publish(b"tall", b"tall")
    # Those whose prefix is longer than the beginning of what is published are not meant.
    heard = [bench.hear(raw, 1) for raw in raws[:7]]
    assert heard == [[[b"topics!!"], [b"tall"]]] * 2 + [[[b"topics!!"]]] * 5
    assert bench.receive(one) == [b"topics!!"]
    assert bench.receive(one) == [b"tall"]
    assert not one.poll(0)
    assert raws[7].heard() == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_told_of_subscriptions_as_an_xpub_of_libzmq_is(bench: Bench, seed: int) -> None:
    choose = random.Random(seed)
    fan_out, port = bench.fan_out()
    reference = bench.socket(zmq.XPUB, XPUB_VERBOSER=1, RCVHWM=0)
    other = reference.bind_to_random_port(f"tcp://{zmtp_bench.HOST}")
    prefixes = [b"topic"[:length] for length in range(4)] + [b"u", b"\xffp"]
    living: dict[zmq.Socket[bytes], set[bytes]] = {}
    expected: Counter[tuple[bool, bytes]] = Counter()
    theirs: Counter[tuple[bool, bytes]] = Counter()

    def same() -> bool:
        while reference.poll(0):
            event = reference.recv()
            theirs[event[:1] == b"\x01", event[1:]] += 1
        return theirs == Counter(bench.told) == expected

    for _ in range(60):
        what = choose.random()
        if what < 0.2 or not living:
            client = bench.client(zmq.SUB, port, LINGER=0)
            client.connect(f"tcp://{zmtp_bench.HOST}:{other}")
            living[client] = set()
            continue
        client = choose.choice(list(living))
        mine, prefix = living[client], choose.choice(prefixes)
        if what < 0.3:
            # libzmq drops what a socket that is closed has not sent yet.
            bench.until(same)
            expected.update((False, each) for each in living.pop(client))
            client.close()
        elif prefix in mine:
            mine.discard(prefix)
            expected[False, prefix] += 1
            client.unsubscribe(prefix)
        else:
            mine.add(prefix)
            expected[True, prefix] += 1
            client.subscribe(prefix)
    bench.until(same)
    bodies = (b"t", b"topic", b"u", b"\xffpx", b"v")
    for body in bodies:
        fan_out.publish(body, body)
        reference.send(body)
    for client, mine in living.items():
        wanted = [body for body in bodies if any(body.startswith(prefix) for prefix in mine)]
        heard = [bench.receive(client)[0] for _ in range(2 * len(wanted))]
        assert sorted(heard) == sorted(2 * wanted)
    assert fan_out._subscribers.keys() == {each for mine in living.values() for each in mine}
    assert sum(fan_out._lengths.values()) == len(fan_out._subscribers)


def test_a_prefix_that_is_asked_for_twice_is_told_once(bench: Bench) -> None:
    _, port = bench.fan_out()
    raw = bench.raw(port, b"SUB")
    for event in (b"\x01a", b"\x01a", b"\x00b", b"\x00a", b"\x00a", b"\x01c"):
        raw.say(event)
    bench.until(lambda: (True, b"c") in bench.told)
    assert bench.told == [(True, b"a"), (False, b"a"), (True, b"c")]


def test_one_that_is_slow_misses_messages_and_gets_later_ones_whole(bench: Bench) -> None:
    fan_out, port = bench.fan_out(mark=16)
    slow = bench.raw(port, b"SUB", receive_bytes=4_096)
    fast = bench.client(zmq.SUB, port, RCVHWM=0)
    slow.say(b"\x01")
    fast.subscribe(b"")
    subscribed(bench, 2)
    bodies = [b"%05d" % number + b"x" * (number * 37_987 % 300_000) for number in range(150)]
    for body in bodies:
        fan_out.publish(body[:5], body[:5], body[5:])
        assert bench.receive(fast) == [body]
    assert max(len(peer.out) for peer in fan_out.peers) <= 17
    fan_out.flush()
    heard = [body for (body,) in slow.heard()]
    bench.until(lambda: heard.extend(body for (body,) in slow.heard()) or not any(
        peer.out for peer in fan_out.peers
    ))  # fmt: skip
    fan_out.publish(b"later", b"later", b"x" * 70_000)
    bench.until(lambda: heard.extend(body for (body,) in slow.heard()) or heard[-1][:5] == b"later")
    assert heard.pop() == b"later" + b"x" * 70_000
    assert 0 < len(heard) < len(bodies)
    assert heard == bodies[: len(heard)]


def test_what_one_turn_publishes_is_no_more_than_the_system_takes(bench: Bench) -> None:
    """A mark is for who is slow."""
    fan_out, port = bench.fan_out(mark=10)
    raw = bench.raw(port, b"SUB")
    raw.say(b"\x01")
    subscribed(bench, 1)
    for number in range(200):
        fan_out.publish(b"%d" % number, b"%d" % number, b"x")
    assert bench.hear(raw, 200) == [[b"%dx" % number] for number in range(200)]


def test_what_a_connection_subscribed_to_ends_with_it(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    raw = bench.raw(port, b"SUB")
    raw.say(b"\x01t")
    bench.until(lambda: bench.told)
    raw.reset()
    bench.until(lambda: len(bench.told) == 2)
    assert bench.told == [(True, b"t"), (False, b"t")]
    assert not fan_out._subscribers
    assert not fan_out._lengths


def test_what_is_no_subscription_ends_the_subscriber(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    for frames in ((b"hello",), (b"\x01a", b"b"), (b"",), (b"\x01" + b"x" * 600,)):
        raw = bench.raw(port, b"SUB")
        raw.say(*frames)
        bench.until(raw.ended)
    assert not list(fan_out.peers)
    assert bench.told == []


def test_one_with_too_many_prefixes_is_ended_and_a_turn_tells_of_some(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmtp_server, "PREFIXES_MAX", 400)
    fan_out, port = bench.fan_out()
    greedy, other = bench.raw(port, b"SUB"), bench.raw(port, b"SUB")
    other.say(b"\x01t")
    greedy.send(b"".join(zmtp.command(b"SUBSCRIBE", b"%d" % number) for number in range(500)))
    bench.until(greedy.ended)
    assert sum(made for made, _ in bench.told) == 401
    told = Counter(bench.told)
    left = [prefix for made, prefix in told if made and not told[False, prefix] and prefix != b"t"]
    assert len(list(fan_out.receive(BURST))) == min(BURST, len(left))
    fan_out.publish(b"topic", b"topic")
    assert bench.hear(other, 1) == [[b"topic"]]
    bench.until(lambda: not fan_out._cancelled)


def test_the_end_of_a_prefix_is_told_before_somebody_has_it_anew(bench: Bench) -> None:
    """Whoever comes back has the same presence, which a late end would take away."""
    fan_out, port = bench.fan_out()
    before, after = bench.raw(port, b"SUB"), bench.raw(port, b"SUB")
    for number in range(2 * BURST):
        before.say(b"\x01%d" % number)
    before.say(b"\x01same")
    bench.until(lambda: (True, b"same") in bench.told)
    (peer,) = (peer for peer in fan_out.peers if peer.prefixes)
    fan_out.end(peer)
    after.say(b"\x01same")
    arrived(*unread(fan_out))
    told = list(fan_out.receive(BURST))
    assert told[:2] == [(False, b"same"), (True, b"same")]
    assert len(told) == 2 + BURST
    bench.until(lambda: not fan_out._cancelled)
    assert (False, b"same") not in bench.told


def test_what_comes_during_a_turn_is_read_in_it(bench: Bench) -> None:
    router, port = bench.router()
    raw = bench.raw(port, b"DEALER")
    ready(bench, router, raw)
    raw.say(b"first")
    arrived(*unread(router))
    heard = []
    for _, frames in router.receive(BURST):
        heard.append(frames[0])
        if len(heard) == 1:
            raw.say(b"second")
            arrived(*unread(router))
    assert heard == [b"first", b"second"]


def test_who_gets_a_topic_changes_with_subscriptions_and_is_known_of_few(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    first, second = (bench.raw(port, b"SUB") for _ in range(2))
    first.say(b"\x01t")
    bench.until(lambda: len(bench.told) == 1)
    fan_out.publish(b"topic", b"topic", b"1")
    second.say(b"\x01to")
    bench.until(lambda: len(bench.told) == 2)
    fan_out.publish(b"topic", b"topic", b"2")
    assert bench.hear(second, 1) == [[b"topic2"]]
    first.say(b"\x00t")
    bench.until(lambda: len(bench.told) == 3)
    fan_out.publish(b"topic", b"topic", b"3")
    assert bench.hear(second, 1) == [[b"topic3"]]
    assert bench.hear(first, 2) == [[b"topic1"], [b"topic2"]]
    for number in range(TOPICS_FOUND_MAX + 2):
        topic = b"%d" % number
        fan_out.publish(topic, topic)
    assert len(fan_out._found) <= TOPICS_FOUND_MAX


def test_the_more_get_topics_the_fewer_are_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fan_out, port = bench.fan_out()
    subscribers = [bench.raw(port, b"SUB") for _ in range(3)]
    for subscriber in subscribers:
        subscriber.say(b"\x01")
    bench.until(lambda: len(bench.told) == 3)
    monkeypatch.setattr(zmtp_server, "PEERS_FOUND_MAX", 6)
    for topic in (b"a", b"b", b"c"):
        fan_out.publish(topic, topic)
    assert list(fan_out._found) == [b"c"]
    for subscriber in subscribers:
        assert bench.hear(subscriber, 3) == [[b"a"], [b"b"], [b"c"]]
