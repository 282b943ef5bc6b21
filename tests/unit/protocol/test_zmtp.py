"""The wire of ZeroMQ: what is taken from it, in whatever pieces, and what is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roq.errors import RemoteProtocolError
from roq.protocol import zmtp

PEERS = frozenset({b"DEALER", b"REQ"})
LARGEST = 1 << 20
READY = zmtp.GREETING + zmtp.ready(b"DEALER")
HELLO = "a security mechanism|no ZeroMQ|before version 4"


def fresh(largest: int = LARGEST) -> zmtp.Inbound:
    return zmtp.Inbound(PEERS, largest)


def standing(largest: int = LARGEST) -> zmtp.Inbound:
    inbound = fresh(largest)
    assert feed(inbound, READY) == []
    assert inbound.stands
    return inbound


def feed(inbound: zmtp.Inbound, data: bytes, most: int = 1 << 20) -> list[list[bytes]]:
    """What it gives when this arrives at once; as a connection does it."""
    messages: list[list[bytes]] = []
    at = 0
    while at < len(data) or inbound.more:
        if inbound.large is not None:
            size = min(len(inbound.large) - inbound.filled, len(data) - at)
            inbound.large[inbound.filled : inbound.filled + size] = data[at : at + size]
            at += size
            messages += inbound.grew(size)
        else:
            given, at = inbound.rest + data[at:], len(data)
            messages += inbound.take(memoryview(given), most)
    return messages


def frame(body: bytes, flags: int = 0) -> bytes:
    return zmtp.head(len(body), flags) + body


def message(*frames: bytes) -> bytes:
    return b"".join(
        frame(body, 0 if number == len(frames) else zmtp.MORE)
        for number, body in enumerate(frames, 1)
    )


# --- the handshake --------------------------------------------------------------------------------


def test_a_peer_that_greets_and_says_what_it_is_stands() -> None:
    inbound = fresh()
    assert feed(inbound, zmtp.GREETING) == []
    assert not inbound.stands
    assert feed(inbound, zmtp.ready(b"REQ")) == []
    assert inbound.stands


def test_a_greeting_that_comes_byte_by_byte_is_one() -> None:
    inbound = fresh()
    for at in range(len(READY)):
        assert not inbound.stands
        feed(inbound, READY[at : at + 1])
    assert inbound.stands


def test_what_was_sent_with_the_handshake_is_not_lost() -> None:
    assert feed(fresh(), READY + message(b"a", b"b")) == [[b"a", b"b"]]


def test_its_own_greeting_is_one_of_version_three_without_security() -> None:
    assert len(zmtp.GREETING) == zmtp.GREETING_BYTES
    assert zmtp.GREETING[:1] + zmtp.GREETING[9:12] == b"\xff\x7f\x03\x01"
    assert zmtp.GREETING[12:32].rstrip(b"\0") == b"NULL"


@pytest.mark.parametrize(
    ("said", "shows_after"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n", 1, id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 1, id="tls"),
        pytest.param(b"\x01\x00", 1, id="zmtp 1"),
        pytest.param(b"\xff" * 64, 10, id="no signature"),
        pytest.param(zmtp.GREETING[:10] + b"\x01\x05", 11, id="zmtp 2"),
        pytest.param(zmtp.GREETING[:12] + b"PLAIN", 13, id="plain"),
        pytest.param(zmtp.GREETING[:12] + b"CURVE".ljust(20, b"\0"), 13, id="curve"),
        pytest.param(zmtp.GREETING[:12] + b"NULLS".ljust(20, b"\0"), 17, id="longer name"),
    ],
)
def test_who_speaks_something_else_is_refused_as_soon_as_it_shows(
    said: bytes, shows_after: int
) -> None:
    inbound = fresh()
    feed(inbound, said[: shows_after - 1])
    with pytest.raises(RemoteProtocolError, match=HELLO):
        feed(inbound, said[shows_after - 1 : shows_after])
    with pytest.raises(RemoteProtocolError, match=HELLO):
        feed(fresh(), said)


def test_a_later_minor_or_major_version_is_welcome() -> None:
    later = zmtp.GREETING[:10] + b"\x04\x07" + zmtp.GREETING[12:]
    inbound = fresh()
    feed(inbound, later + zmtp.ready(b"DEALER"))
    assert inbound.stands


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(message(b"a"), id="a message"),
        pytest.param(frame(b"a", zmtp.MORE), id="half a message"),
        pytest.param(zmtp.ping(0), id="a heartbeat"),
        pytest.param(zmtp.command(b"ERROR", b"\x02no"), id="an error"),
        pytest.param(frame(b"", zmtp.COMMAND), id="an empty command"),
        pytest.param(frame(b"\xffREADY", zmtp.COMMAND), id="a name that is cut off"),
        pytest.param(zmtp.ready(b"SUB"), id="a socket that does not fit"),
        pytest.param(zmtp.ready(b""), id="a socket without a name"),
        pytest.param(zmtp.command(b"READY"), id="no type"),
        pytest.param(zmtp.head(zmtp.COMMAND_BYTES_MAX + 1, zmtp.COMMAND), id="a long command"),
    ],
)
def test_anything_but_ready_of_a_fitting_socket_ends_the_handshake(first: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        feed(fresh(), zmtp.GREETING + first)


def test_ready_that_is_cut_anywhere_is_refused() -> None:
    """Its frame is whole, and what it holds is not."""
    properties = zmtp.ready(b"DEALER")[2 + 6 :] + b"\x08Identity\x00\x00\x00\x02me"
    whole_ones = {len(zmtp.ready(b"DEALER")) - 8, len(properties)}
    for end in range(len(properties) + 1):
        inbound = fresh()
        cut = zmtp.GREETING + zmtp.command(b"READY", properties[:end])
        if end in whole_ones:
            feed(inbound, cut)
            assert inbound.stands
            continue
        with pytest.raises(RemoteProtocolError):
            feed(inbound, cut)


def test_names_of_properties_may_be_written_in_any_way() -> None:
    inbound = fresh()
    body = b"\x0bSOCKET-tYPE\x00\x00\x00\x03REQ"
    feed(inbound, zmtp.GREETING + zmtp.command(b"READY", body))
    assert inbound.stands


# --- messages -------------------------------------------------------------------------------------

SIZES = (0, 1, 255, 256, zmtp.LARGE_BYTES, zmtp.LARGE_BYTES + 1, 3 * zmtp.LARGE_AT_ONCE + 7)


@pytest.mark.parametrize("size", SIZES)
def test_frames_of_all_sizes_arrive(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    inbound = standing()
    told = message(b"topic", body[:size]) + message(b"next")
    assert feed(inbound, told) == [[b"topic", body[:size]], [b"next"]]
    assert inbound.rest == b""
    assert inbound.large is None


def test_a_head_is_as_long_as_it_must_be() -> None:
    assert [len(zmtp.head(size)) for size in (0, 255, 256)] == [2, 2, 9]


def test_what_is_cut_at_any_byte_is_the_same() -> None:
    told = READY + message(b"t", b"x" * 300) + zmtp.ping(700) + message(b"") + message(b"u", b"y")
    for at in range(len(told)):
        inbound = fresh()
        messages = feed(inbound, told[:at]) + feed(inbound, told[at:])
        assert messages == [[b"t", b"x" * 300], [b""], [b"u", b"y"]]
        assert inbound.ttl_ms == 700


def test_a_large_frame_comes_in_pieces_into_a_buffer_that_grows_with_them() -> None:
    inbound = standing()
    body = bytes(range(256)) * (LARGEST // 256)
    told = message(b"t", body) + message(b"next")
    step, messages, at = 10_001, [], 0
    while at < len(told):
        messages += feed(inbound, told[at : at + step])
        at += step
        if inbound.large is not None:
            assert len(inbound.large) <= max(zmtp.LARGE_AT_ONCE, 2 * inbound.filled)
    assert messages == [[b"t", body], [b"next"]]


def test_a_size_that_is_only_announced_takes_no_memory() -> None:
    inbound = standing(1 << 40)
    assert feed(inbound, zmtp.head(1 << 40)) == []
    assert inbound.large is not None
    assert len(inbound.large) == zmtp.LARGE_AT_ONCE


@pytest.mark.parametrize("size", [1_001, zmtp.LARGE_BYTES + 1, (1 << 63) - 1, (1 << 64) - 1])
def test_a_frame_over_the_largest_size_is_refused_by_its_head(size: int) -> None:
    inbound = standing(1_000)
    assert feed(inbound, message(b"x" * 1_000)) == [[b"x" * 1_000]]
    with pytest.raises(RemoteProtocolError):
        feed(inbound, zmtp.head(size))


@pytest.mark.parametrize("flags", [8, 16, 128, 255])
def test_flags_that_mean_nothing_are_refused(flags: int) -> None:
    with pytest.raises(RemoteProtocolError):
        feed(standing(), bytes((flags,)) + bytes(8))


def test_a_small_size_may_stand_in_eight_bytes() -> None:
    assert feed(standing(), struct.pack(">BQ", zmtp.LONG, 2) + b"hi") == [[b"hi"]]


def test_of_a_message_with_too_many_frames_the_first_are_kept() -> None:
    frames = [b"%d" % number for number in range(10 * zmtp.PARTS_MAX)]
    told = message(*frames) + message(b"next")
    assert feed(standing(), told) == [frames[: zmtp.PARTS_MAX], [b"next"]]


def test_it_gives_as_many_as_are_asked_for_and_says_that_there_is_more() -> None:
    inbound = standing()
    told = b"".join(message(b"%d" % number) for number in range(5)) + b"\0"
    assert inbound.take(memoryview(told), 2) == [[b"0"], [b"1"]]
    assert inbound.more
    assert inbound.take(memoryview(inbound.rest), 2) == [[b"2"], [b"3"]]
    assert inbound.more
    assert inbound.take(memoryview(inbound.rest), 2) == [[b"4"]]
    assert not inbound.more
    assert inbound.take(memoryview(inbound.rest + b"\x01x"), 2) == [[b"x"]]
    assert not inbound.more


@pytest.mark.parametrize(
    "nothing", [frame(b"", zmtp.MORE), frame(b"", zmtp.COMMAND), zmtp.ping(0)],
    ids=["endless message", "empty commands", "heartbeats"],
)  # fmt: skip
def test_frames_that_make_no_message_take_no_more_of_a_turn(nothing: bytes) -> None:
    inbound = standing()
    assert inbound.take(memoryview(nothing * 1_000), 3) == []
    assert inbound.more
    assert len(inbound.rest) == len(nothing) * (1_000 - 3 * zmtp.PARTS_MAX)


def test_a_command_may_stand_between_the_frames_of_a_message() -> None:
    told = frame(b"a", zmtp.MORE) + zmtp.ping(100) + frame(b"b")
    assert feed(standing(), told) == [[b"a", b"b"]]


# --- commands -------------------------------------------------------------------------------------


def test_a_heartbeat_is_answered_with_its_context() -> None:
    inbound = standing()
    feed(inbound, zmtp.command(b"PING", b"\x00\x0fcontext"))
    assert inbound.pong == zmtp.command(b"PONG", b"context")
    assert inbound.ttl_ms == 1_500
    feed(inbound, zmtp.command(b"PING", b"\x00\x00" + b"c" * 1_000))
    assert inbound.pong == zmtp.command(b"PONG", b"c" * 16)
    assert inbound.ttl_ms == 0


def test_many_heartbeats_at_once_have_one_answer() -> None:
    inbound = standing()
    feed(inbound, zmtp.ping(100) * 50)
    assert inbound.pong == zmtp.command(b"PONG")


@pytest.mark.parametrize(
    "told",
    [
        frame(b"", zmtp.COMMAND),
        frame(b"\xff", zmtp.COMMAND),
        frame(b"\x04PIN", zmtp.COMMAND),
        zmtp.command(b"PING", b"\x00"),
        zmtp.command(b"PONG", b"anything"),
        zmtp.command(b"ERROR", b"\x02no"),
        zmtp.command(b"LATER", b"x" * 300),
        zmtp.ready(b"SUB"),
    ],
)
def test_a_command_that_is_cut_short_or_unknown_is_passed_over(told: bytes) -> None:
    inbound = standing()
    assert feed(inbound, told + message(b"next")) == [[b"next"]]
    assert inbound.pong == b""


def test_subscriptions_of_both_versions_are_the_same() -> None:
    told = (
        zmtp.command(b"SUBSCRIBE", b"a") + zmtp.command(b"CANCEL", b"a")
        + zmtp.command(b"SUBSCRIBE") + message(b"\x01a") + message(b"\x00a") + message(b"\x01")
    )  # fmt: skip
    both = [[b"\x01a"], [b"\x00a"], [b"\x01"]]
    assert feed(standing(), told) == both + both


def test_a_patience_of_more_than_zeromq_can_be_told_is_told_as_none() -> None:
    """libzmq counts it in 16 bits of milliseconds: 70 seconds would be four."""
    told = {ms: zmtp.ping(ms)[-2:] for ms in (0, 2_050, 65_500, 65_600, 10_000_000)}
    assert list(told.values()) == [b"\0\0", b"\0\x14", b"\x02\x8f", b"\0\0", b"\0\0"]


# --- anything -------------------------------------------------------------------------------------

BODIES = st.one_of(
    st.binary(max_size=300),
    st.integers(zmtp.LARGE_BYTES - 2, zmtp.LARGE_BYTES + 2).map(lambda size: b"x" * size),
)
MESSAGES = st.lists(st.lists(BODIES, min_size=1, max_size=zmtp.PARTS_MAX), max_size=5)


@settings(max_examples=60)
@given(MESSAGES, st.lists(st.integers(0, 1 << 18), max_size=8), st.integers(1, 3))
def test_messages_come_out_as_they_went_in_wherever_they_are_cut(
    messages: list[list[bytes]], cuts: list[int], most: int
) -> None:
    told = READY + b"".join(message(*frames) for frames in messages)
    inbound, got, at = fresh(), [], 0
    for end in [*sorted(cut % (len(told) + 1) for cut in cuts), len(told)]:
        got += feed(inbound, told[at:end], most)
        at = max(at, end)
    assert got == messages


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(frame, st.binary(max_size=40), st.integers(0, 8)),
    st.builds(zmtp.command, st.sampled_from([b"PING", b"SUBSCRIBE", b"READY"]), st.binary()),
    st.builds(zmtp.head, st.integers(0, 1 << 18), st.integers(0, 4)),
)


@settings(max_examples=150)
@given(st.booleans(), st.lists(PIECES, max_size=12))
@example(True, [b"\x02" + b"\xff" * 8])
@example(False, [b"\xff" * 63, b"\xff"])
def test_any_bytes_are_messages_or_refused_and_take_little_memory(
    greeted: bool, pieces: list[bytes]
) -> None:
    inbound, size = standing(1 << 17) if greeted else fresh(1 << 17), 0
    for piece in pieces:
        try:
            for got in feed(inbound, piece, 2):
                assert 0 < len(got) <= zmtp.PARTS_MAX
        except RemoteProtocolError:
            return
        size += len(piece)
        assert len(inbound.rest) <= min(size, zmtp.REST_BYTES_MAX)
        assert inbound.large is None or len(inbound.large) <= zmtp.LARGE_AT_ONCE
        assert len(inbound.pong) < 40
