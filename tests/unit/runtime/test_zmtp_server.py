"""ROUTER in the loop that uses it, and what it shares with XPUB, against libzmq and raw sockets."""

from __future__ import annotations

import errno
import resource
import socket
import threading
import time
from contextlib import suppress
from itertools import pairwise

import pytest
import zmq
import zmtp_bench
from waiting import eventually
from zmtp_bench import Bench, Raw, arrived, ready, unread

from roq.protocol import zmtp
from roq.runtime import zmtp_server
from roq.runtime.zmtp_server import Outcome
from roq.timing import HEARTBEAT_TIMEOUT_MS

MEGABYTE = 1 << 20
EMPTY_COMMAND = b"\x04\x00"
EMPTY_MORE = b"\x01\x00"
BURST = 50

bench = pytest.fixture(zmtp_bench.bench)


@pytest.mark.parametrize(
    ("kind", "envelope"), [(zmq.DEALER, []), (zmq.REQ, [b""]), (zmq.ROUTER, [])]
)
def test_sockets_that_may_talk_to_a_router_do(
    bench: Bench, kind: int, envelope: list[bytes]
) -> None:
    router, port = bench.router()
    options: dict[str, int | bytes] = {} if kind != zmq.ROUTER else {"CONNECT_ROUTING_ID": b"it"}
    client = bench.client(kind, port, **options)
    to = [b"it"] if kind == zmq.ROUTER else []
    client.send_multipart([*to, b"question", b"x" * 300])
    bench.until(lambda: bench.got)
    ((route, frames),) = bench.got
    assert frames == [*envelope, b"question", b"x" * 300]
    if kind != zmq.REQ:  # which wants two frames
        assert router.send(route, b"answer") is Outcome.SENT
        assert bench.receive(client) == [*to, b"answer"]


@pytest.mark.parametrize("kind", [zmq.SUB, zmq.PUSH, zmq.PAIR])
def test_other_sockets_are_sent_away(bench: Bench, kind: int) -> None:
    _, port = bench.router()
    client = bench.socket(kind)
    told = client.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    client.connect(f"tcp://{zmtp_bench.HOST}:{port}")
    bench.until(lambda: told.poll(0))
    client.disable_monitor()
    told.close()
    assert bench.got == []


def test_messages_of_all_sizes_keep_their_order_both_ways(bench: Bench) -> None:
    router, port = bench.router()
    client = bench.client(zmq.DEALER, port)
    sizes = [0, 1, 255, 256, 60_000, 70_000, 3 * MEGABYTE, 5, 5 * MEGABYTE, 0, 200_000] + [9] * 50
    sent = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    for body in sent:
        client.send_multipart([b"t", body])
    bench.until(lambda: len(bench.got) == len(sent))
    assert [frames for _, frames in bench.got] == [[b"t", body] for body in sent]
    (route,) = {route for route, _ in bench.got}
    assert [router.send(route, body) for body in sent] == [Outcome.SENT] * len(sent)
    assert [bench.receive(client) for _ in sent] == [[body] for body in sent]


def test_several_messages_go_together(bench: Bench) -> None:
    router, port = bench.router()
    client = bench.client(zmq.DEALER, port)
    client.send(b"")
    bench.until(lambda: bench.got)
    assert router.send(bench.got[0][0], b"entry", b"x" * MEGABYTE, b"") is Outcome.SENT
    assert [bench.receive(client) for _ in range(3)] == [[b"entry"], [b"x" * MEGABYTE], [b""]]


def test_one_that_floods_leaves_the_others_their_turn(bench: Bench) -> None:
    router, port = bench.router()
    flood, quiet = (bench.raw(port, b"DEALER") for _ in range(2))
    ready(bench, router, flood, quiet)
    flood.send(b"\x00\x01f" * 30_000)
    quiet.say(b"quiet")
    arrived(*unread(router))
    heard = [frames[0] for _, frames in router.receive(BURST)]
    assert len(heard) == BURST
    assert b"quiet" in heard


def test_many_that_flood_take_turns_of_one_message_and_a_turn_stays_as_long(bench: Bench) -> None:
    router, port = bench.router()
    raws = [bench.raw(port, b"DEALER") for _ in range(3 * BURST)]
    ready(bench, router, *raws)
    for number, raw in enumerate(raws):
        raw.say(b"%d" % number)
        raw.send(b"\x00\x01f" * 400)
    arrived(*unread(router))
    names = {b"%d" % number for number in range(len(raws))}
    turns = 0
    while names:
        turns += 1
        heard = [frames[0] for _, frames in router.receive(BURST)]
        assert len(heard) == BURST
        names -= set(heard)
    assert turns <= 6  # as epoll tells of them; three, if it did so in order


@pytest.mark.parametrize(
    "nothing", [EMPTY_COMMAND, EMPTY_MORE, zmtp.ping(0)], ids=["commands", "frames", "pings"]
)
def test_a_flood_of_what_is_no_message_ends_a_turn_too(bench: Bench, nothing: bytes) -> None:
    router, port = bench.router()
    flood, quiet = (bench.raw(port, b"DEALER") for _ in range(2))
    ready(bench, router, flood, quiet)
    count = 6_000
    flood.send(nothing * count)
    quiet.say(b"quiet")
    arrived(*unread(router))
    assert [frames for _, frames in router.receive(BURST)] == [[b"quiet"]]
    (peer,) = (peer for peer in router.peers if peer.inbound.more)
    assert count - len(peer.inbound.rest) // len(nothing) <= zmtp.PARTS_MAX * BURST
    if nothing is EMPTY_MORE:
        flood.say(b"end")
    else:
        flood.say(b"", b"", b"", b"", b"end")
    bench.until(lambda: bench.got)  # what is left is read in later turns
    assert bench.got[0][1] == [b""] * zmtp.PARTS_MAX


def test_a_peer_that_only_asks_for_signs_of_life_does_not_pile_up_answers(bench: Bench) -> None:
    router, port = bench.router(mark=8)
    flood = bench.raw(port, b"DEALER", receive_bytes=2_048)
    other = bench.client(zmq.DEALER, port)
    bench.standing(router, 2)
    for each in unread(router):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    pings = zmtp.command(b"PING", b"\0\0" + b"c" * 16) * 100_000
    asking = threading.Thread(target=flood.send, args=(pings + b"\0\0",), daemon=True)
    asking.start()
    other.send(b"x")
    bench.until(lambda: len(bench.got) == 2)
    assert all(len(peer.out) <= 8 for peer in router.peers)


def test_a_route_is_never_used_again(bench: Bench) -> None:
    router, port = bench.router()
    routes = set()
    for _ in range(5):
        client = bench.client(zmq.DEALER, port, LINGER=0)
        client.send(b"x")
        bench.until(lambda: bench.got)
        route = bench.got.pop()[0]
        assert router.send(route, b"y") is Outcome.SENT
        client.close()
        bench.until(lambda: not list(router.peers))
        assert router.send(route, b"y") is Outcome.GONE
        routes.add(route)
    assert len(routes) == 5


def test_one_that_reads_nothing_is_blocked_at_the_mark_and_others_are_not(bench: Bench) -> None:
    router, port = bench.router(mark=10)
    stuck = bench.raw(port, b"DEALER", receive_bytes=2_048)
    stuck.say(b"stuck")
    client = bench.client(zmq.DEALER, port)
    client.send(b"client")
    bench.until(lambda: len(bench.got) == 2)
    routes = {frames[0]: route for route, frames in bench.got}
    body, sent = b"x" * 500_000, 0
    while router.send(routes[b"stuck"], body) is Outcome.SENT:
        sent += 1
        assert sent < 1_000
    (peer,) = (peer for peer in router.peers if peer.out)
    assert 10 <= len(peer.out) <= 12
    assert router.send(routes[b"stuck"], b"") is Outcome.BLOCKED
    assert router.send(routes[b"client"], b"y") is Outcome.SENT
    assert bench.receive(client) == [b"y"]
    # When it reads it gets all that was said to be sent, and can be sent to again.
    assert bench.hear(stuck, sent) == [[body]] * sent
    assert router.send(routes[b"stuck"], b"more") is Outcome.SENT
    assert bench.hear(stuck, 1) == [[b"more"]]


def test_what_merely_waits_for_the_end_of_the_turn_blocks_nobody(bench: Bench) -> None:
    router, port = bench.router(mark=10)
    client = bench.client(zmq.DEALER, port)
    client.send(b"x")
    bench.until(lambda: bench.got)
    route = bench.got[0][0]
    assert {router.send(route, b"%d" % number) for number in range(200)} == {Outcome.SENT}
    assert [bench.receive(client) for _ in range(200)] == [[b"%d" % each] for each in range(200)]


def test_what_a_peer_had_sent_before_it_vanished_is_received_before_its_end_is_told(
    bench: Bench,
) -> None:
    router, port = bench.router()
    raw = bench.raw(port, b"DEALER")
    raw.say(b"first")
    bench.until(lambda: bench.got)
    route = bench.got[0][0]
    raw.say(b"second", b"x" * 20_000)
    raw.send(b"\x00\x01f" * 200)
    arrived(*unread(router))
    raw.reset()
    # Writing fails before anything more is read: nothing is written any more, that is all.
    eventually(lambda: router.send(route, b"y") is not Outcome.SENT or router.flush())
    assert router.send(route, b"y") is Outcome.BLOCKED
    seen: list[int] = []
    bench.until(lambda: seen.append(len(bench.got)) or bench.ended)
    assert bench.ended == [route]
    assert [frames for _, frames in bench.got[1:]] == [[b"second", b"x" * 20_000], *[[b"f"]] * 200]
    assert router.send(route, b"y") is Outcome.GONE


def test_after_any_error_of_writing_nothing_leaves_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of which a part has left would go on with the next one."""
    router, port = bench.router()
    raw = bench.raw(port, b"DEALER")
    raw.say(b"x")
    bench.until(lambda: bench.got)
    route = bench.got[0][0]
    raw.heard()

    def sendmsg(*_: object) -> int:
        raise OSError(errno.ENOBUFS, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "sendmsg", sendmsg)
        router.send(route, b"half of it")
        router.flush()
    assert router.send(route, b"rest") is Outcome.BLOCKED
    raw.say(b"last")
    bench.until(lambda: bench.ended == [route])  # though the other end does not close it
    assert raw.socket.recv(100) == b""


# --- who is there, and who is not -----------------------------------------------------------------


def test_a_silent_peer_is_ended_after_the_patience_and_one_that_answers_is_not(
    bench: Bench,
) -> None:
    router, port = bench.router(patience_ms=2_000)
    raw, client = bench.raw(port, b"DEALER"), bench.client(zmq.DEALER, port)
    client.send(b"x")
    bench.standing(router, 2)
    for peer in router.peers:
        peer.heard_at -= 1.9
    router._beat()
    asked = [peer.heard_at for peer in router.peers]
    bench.until(lambda: any(peer.heard_at > max(asked) for peer in router.peers))
    for peer in router.peers:
        peer.heard_at -= 0.2
    router._beat()
    assert len(list(router.peers)) == 1
    assert raw.ended()
    assert raw.inbound.ttl_ms == 0
    assert router.send(bench.got[0][0], b"y") is Outcome.SENT
    assert bench.receive(client) == [b"y"]


def test_it_says_how_long_it_may_be_silent_itself(bench: Bench) -> None:
    router, port = bench.router(patience_ms=2_000)
    raw = bench.raw(port, b"DEALER")
    bench.standing(router, 1)
    router._beat()
    bench.until(lambda: raw.heard() or raw.inbound.ttl_ms)
    assert raw.inbound.ttl_ms == 2_000


@pytest.mark.parametrize(
    ("patience_ms", "pings"), [(2 * HEARTBEAT_TIMEOUT_MS, 2), (2 * HEARTBEAT_TIMEOUT_MS - 1, 4)]
)
def test_calm_peers_are_asked_half_as_often_if_there_is_patience_enough(
    bench: Bench, patience_ms: int, pings: int
) -> None:
    calm: list[bytes] = []
    router, port = bench.router(patience_ms=patience_ms, calm=lambda route: route in calm)
    raws = [bench.raw(port, b"DEALER") for _ in range(3)]
    ready(bench, router, *raws)
    hasty, *rest = router.peers
    calm += [peer.route for peer in rest]
    before = {peer: peer.taken for peer in router.peers}
    for _ in range(4):
        router._beat()
        router.flush()
    size = len(zmtp.ping(patience_ms))
    asked = {peer: (peer.taken - before[peer]) // size for peer in router.peers}
    assert asked[hasty] == 4
    assert [asked[peer] for peer in rest] == [pings, pings]


def test_calm_peers_are_all_asked_by_a_loop_that_is_late(bench: Bench) -> None:
    router, port = bench.router(patience_ms=18_000, calm=lambda _: True)
    ready(bench, router, *(bench.raw(port, b"DEALER") for _ in range(2)))
    before = {peer: peer.taken for peer in router.peers}
    for _ in range(4):
        router._beat_at -= 2.0
        router._beat()
        router.flush()
    size = len(zmtp.ping(18_000))
    assert [(peer.taken - before[peer]) // size for peer in router.peers] == [4, 4]


def test_that_connections_have_ended_is_told_behind_what_came_by_them(bench: Bench) -> None:
    router, port = bench.router(patience_ms=2_000)
    raws = [bench.raw(port, b"DEALER") for _ in range(3)]
    stranger = bench.raw(port)
    for number, raw in enumerate(raws):
        raw.say(b"%d" % number)
    bench.until(lambda: len(bench.got) == 3)
    routes = {frames[0]: route for route, frames in bench.got}
    raws[0].say(b"last")
    raws[0].socket.shutdown(socket.SHUT_WR)
    raws[1].reset()
    stranger.reset()
    seen: list[int] = []
    bench.until(lambda: seen.append(len(bench.got)) or len(bench.ended) == 2)
    assert set(bench.ended) == {routes[b"0"], routes[b"1"]}
    assert bench.got[-1] == (routes[b"0"], [b"last"])
    for peer in router.peers:
        peer.heard_at -= 3.0
    router._beat()
    bench.until(lambda: len(bench.ended) == 3)
    assert bench.ended[2] == routes[b"2"], "it was silent"


def test_one_that_was_not_read_yet_is_not_silent(bench: Bench) -> None:
    router, port = bench.router(patience_ms=2_000)
    raws = [bench.raw(port, b"DEALER") for _ in range(2)]
    ready(bench, router, *raws)
    raws[0].say(b"here")
    (mine,) = [
        peer for peer in router.peers
        if peer.socket.getpeername() == raws[0].socket.getsockname()
    ]  # fmt: skip
    arrived(mine.socket)
    for peer in router.peers:
        peer.heard_at -= 3.0
    router._beat()
    assert list(router.peers) == [mine]


def test_one_of_whom_messages_wait_here_for_their_turn_is_not_silent(bench: Bench) -> None:
    router, port = bench.router(patience_ms=2_000)
    raw = bench.raw(port, b"DEALER")
    ready(bench, router, raw)
    (peer,) = router.peers
    raw.send(b"\x00\x01f" * 3)
    arrived(peer.socket)
    assert len(list(router.receive(1))) == 1
    peer.heard_at -= 3.0
    router._beat()
    bench.until(lambda: len(bench.got) == 2)
    assert bench.ended == []
    peer.heard_at -= 3.0
    router._beat()
    bench.until(lambda: bench.ended == [peer.route])


def test_a_loop_that_stood_still_asks_before_it_ends_anybody(bench: Bench) -> None:
    """Who has no heartbeats of his own says something only when he is asked."""
    router, port = bench.router(patience_ms=2_000)
    raw = bench.raw(port, b"DEALER")
    ready(bench, router, raw)
    (peer,) = router.peers
    router._beat_at -= 30.0
    peer.heard_at -= 30.0
    router._beat()
    assert not peer.closed
    assert peer.heard_at <= time.monotonic()
    peer.heard_at -= 3.0
    router._beat()
    assert peer.closed


def test_a_peer_may_set_a_shorter_patience_itself(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    short, without = bench.raw(port, b"SUB"), bench.raw(port, b"SUB")
    bench.standing(fan_out, 2)
    short.send(zmtp.ping(300))
    bench.until(lambda: any(peer.inbound.ttl_ms for peer in fan_out.peers))
    for peer in fan_out.peers:
        peer.heard_at -= 0.4
    fan_out._beat()
    assert [peer.inbound.ttl_ms for peer in fan_out.peers] == [0]
    assert short.ended()
    assert not without.ended()


def test_heartbeats_of_libzmq_are_answered(bench: Bench) -> None:
    router, port = bench.router()
    client = bench.client(
        zmq.DEALER, port, HEARTBEAT_IVL=10, HEARTBEAT_TIMEOUT=2_000, HEARTBEAT_TTL=60_000
    )
    client.send(b"x")
    bench.standing(router, 1)
    (peer,) = router.peers
    heard: set[float] = set()
    bench.until(lambda: heard.add(peer.heard_at) or len(heard) > 5)
    assert peer.inbound.ttl_ms == 60_000
    raw = bench.raw(port, b"DEALER")
    raw.send(zmtp.command(b"PING", b"\0\0context"))
    told = b""
    while zmtp.command(b"PONG", b"context") not in told:
        bench.until(lambda: raw.socket in _readable(raw))
        told += raw.socket.recv(1_000)


def _readable(raw: Raw) -> list[socket.socket]:
    raw.socket.settimeout(0)
    with suppress(BlockingIOError):
        if raw.socket.recv(1, socket.MSG_PEEK):
            return [raw.socket]
    return []


def test_one_whose_handshake_takes_too_long_is_ended(bench: Bench) -> None:
    fan_out, port = bench.fan_out()
    slow, good = bench.raw(port), bench.raw(port, b"SUB")
    slow.send(zmtp.GREETING)
    bench.until(lambda: sorted(peer.inbound.stands for peer in fan_out.peers) == [False, True])
    for peer in fan_out.peers:
        peer.heard_at -= zmtp_server.HANDSHAKE_SECONDS + 0.1
    slow.send(zmtp.ready(b"SUB")[:3])
    fan_out._beat()
    assert [peer.inbound.stands for peer in fan_out.peers] == [True]
    assert slow.ended()
    assert not good.ended()


def test_many_connections_of_no_use_do_not_disturb_one_that_works(bench: Bench) -> None:
    router, port = bench.router()
    client = bench.client(zmq.DEALER, port)
    greeting = zmtp.GREETING
    said = (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 20, greeting[:30], greeting)
    crowd = []
    for number in range(200):
        raw = bench.raw(port)
        raw.send(said[number % len(said)])
        if number % 7 == 0:
            raw.reset()
        elif number % 7 == 1:
            raw.socket.shutdown(socket.SHUT_WR)
        else:
            crowd.append(raw)
        client.send(b"%d" % number)
    bench.until(lambda: len(bench.got) == 200)
    assert [frames for _, frames in bench.got] == [[b"%d" % number] for number in range(200)]
    assert router.send(bench.got[0][0], b"y") is Outcome.SENT
    assert bench.receive(client) == [b"y"]
    quiet = sum(raw.inbound.rest == b"" for raw in crowd)
    bench.until(lambda: len(list(router.peers)) < quiet)


class Exhausted:
    """A listening socket of a process that has no descriptor left."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.tries: list[float] = []
        self.empty = True

    def accept(self) -> object:
        self.tries.append(time.monotonic())
        if self.empty:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listening, name)


def test_without_descriptors_the_loop_rests_and_lets_in_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Exhausted] = []

    def listen(*_: object) -> Exhausted:
        made.append(Exhausted(original(zmtp_bench.HOST, (0, 0), ())))
        return made[0]

    original = zmtp_server.sockets.listen
    monkeypatch.setattr(zmtp_server.sockets, "listen", listen)
    monkeypatch.setattr(zmtp_server, "ACCEPT_AGAIN_SECONDS", 0.02)
    _, port = bench.router()
    client = bench.client(zmq.DEALER, port)
    client.send(b"x")
    tries = made[0].tries
    bench.until(lambda: len(tries) >= 4)
    made[0].empty = False
    bench.until(lambda: bench.got)
    assert all(after - before >= 0.02 for before, after in pairwise(tries[:4]))


def test_a_process_without_descriptors_serves_whom_it_has(bench: Bench) -> None:
    router, port = bench.router()
    client = bench.client(zmq.DEALER, port)
    client.send(b"x")
    bench.until(lambda: bench.got)
    outside = [socket.socket() for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(each.fileno() for each in outside) + 1
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, limits[1]))
        free: list[socket.socket] = []
        with suppress(OSError):
            while True:
                free.append(socket.socket())
        for each in outside:
            each.connect((zmtp_bench.HOST, port))
        client.send(b"y")
        bench.until(lambda: len(bench.got) == 2)
        assert len(list(router.peers)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in free:
            each.close()
    bench.until(lambda: len(list(router.peers)) == 4)
    for each in outside:
        each.close()


# --- its end --------------------------------------------------------------------------------------


def test_closing_gives_what_is_under_way_time_to_leave(bench: Bench) -> None:
    router, port = bench.router(mark=100)
    raw = bench.raw(port, b"DEALER", receive_bytes=65_536)
    raw.say(b"x")
    bench.until(lambda: bench.got)
    body = b"x" * (8 * MEGABYTE)
    router.send(bench.got[0][0], body)
    router.send(bench.got[0][0], b"last")
    got: list[list[bytes]] = []

    def read() -> None:
        while data := raw.socket.recv(1 << 20):
            got.extend(raw.take(data))

    reading = threading.Thread(target=read)
    reading.start()
    router.close(zmtp_bench.PATIENCE_SECONDS)
    reading.join()
    assert got == [[body], [b"last"]]


def test_closing_waits_no_longer_than_told_for_who_does_not_read(bench: Bench) -> None:
    router, port = bench.router(mark=100)
    raw = bench.raw(port, b"DEALER", receive_bytes=4_096)
    raw.say(b"x")
    bench.until(lambda: bench.got)
    router.send(bench.got[0][0], b"x" * (16 * MEGABYTE))
    began = time.monotonic()
    router.close(0.05)
    assert 0.05 <= time.monotonic() - began < 5.0
    router.close()
    bench.until(raw.ended)


def test_a_loop_goes_on_when_a_server_of_it_was_closed(bench: Bench) -> None:
    router, port = bench.router(patience_ms=2_000)
    fan_out, live_port = bench.fan_out()
    raw, subscriber = bench.raw(port, b"DEALER"), bench.raw(live_port, b"SUB")
    subscriber.say(b"\x01t")
    raw.send(b"\x00\x01f" * 500)
    bench.until(lambda: bench.told and bench.got)
    router.send(bench.got[0][0], b"y")
    fan_out.publish(b"topic", b"topic")
    router.close()
    fan_out.close()
    router._accept_again()
    assert router.send(bench.got[0][0], b"y") is Outcome.GONE
    fan_out.publish(b"topic", b"topic")
    bench.until(lambda: (False, b"t") in bench.told)
    assert bench.hear(raw, 1) == [[b"y"]]


@pytest.mark.parametrize(
    ("host", "reached"),
    [("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")],
)
def test_other_addresses_to_listen_at(bench: Bench, host: str, reached: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    _, port = bench.router(host=host)
    client = bench.socket(zmq.DEALER, IPV6=1)
    client.connect(f"tcp://[{reached}]:{port}" if ":" in reached else f"tcp://{reached}:{port}")
    client.send(b"x")
    bench.until(lambda: bench.got)
