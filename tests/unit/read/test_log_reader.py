"""The reader of logs against exchanges that answer what no exchange answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from roq.errors import OtherVersion, RemoteProtocolError, Unavailable
from roq.model import PublisherId
from roq.protocol import batch as wire
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    NUMBER,
    Fetched,
    FetchRequest,
    Heads,
    HeadsRequest,
)
from roq.protocol.entry import NONE, EntryKind, pack_entry
from roq.protocol.framing import join_answer
from roq.protocol.version import FIRST, WIRE_VERSION
from roq.read import log_reader, range_reader
from roq.read.log_reader import LogReader
from roq.runtime import sockets

QUEUE = b"q" * 16
EPOCH = 7
DATA = wire.pack(
    [b"x"], publisher=PublisherId(b"p" * 16), epoch=1, link_number=1, first_sequence=0, created_us=5
)
Answer = Callable[[FetchRequest], list[list[bytes]]]


def entry(request: FetchRequest, offset: int) -> list[bytes]:
    frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, EPOCH, offset, NONE, 5)
    return [FETCHED_ENTRY, NUMBER.pack(request.id), b"t", frame, DATA]


def fetched(request: FetchRequest, reached: int, *, done: bool) -> list[bytes]:
    answer = Fetched(id=request.id, generation=EPOCH, reached=reached, floor=0, done=done)
    return [FETCH, documents.encode(answer)]


@contextmanager
def exchange(
    answer: Answer, *, there: bool = False, version: int = WIRE_VERSION
) -> Iterator[tuple[str, list[FetchRequest]]]:
    """Answers every fetch so, and questions for its end if it is `there`; version 1 in frames.

    Gives its address, and what it was asked.
    """
    context = sockets.new_context()
    socket = sockets.router(context)
    address = f"tcp://127.0.0.1:{sockets.bind(socket, '127.0.0.1')}"
    asked: list[FetchRequest] = []
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            if socket.poll(20):
                route, letter, document = socket.recv_multipart()
                if letter == HEADS:
                    question = documents.decode(document, HeadsRequest)
                    ends = Heads(id=question.id, generation=EPOCH, end=10, floor=0, heads=[])
                    if there:
                        socket.send_multipart([route, HEADS + documents.encode(ends)])
                    continue
                asked.append(documents.decode(document, FetchRequest))
                for parts in answer(asked[-1]):
                    joined = [join_answer(parts[:4], *parts[4:])]
                    socket.send_multipart([route, *(parts if version == FIRST else joined)])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield address, asked
    finally:
        stop.set()
        thread.join()
        socket.close(0)
        context.term()


def offsets(address: str, first: int, until: int, timeout: float = 30.0) -> list[int]:
    with LogReader(address, QUEUE, number=1, generation=EPOCH, timeout=timeout) as reader:
        return [batch.offset for batch in reader.read(first, until)]


def test_it_asks_on_from_where_the_exchange_has_stopped() -> None:
    def answer(request: FetchRequest) -> list[list[bytes]]:
        first = request.first
        return [entry(request, first), fetched(request, first + 2, done=first + 2 >= 6)]

    with exchange(answer) as (address, asked):
        assert offsets(address, 0, 6) == [0, 2, 4]
        assert [request.first for request in asked] == [0, 2, 4]


def test_who_reads_slowly_is_never_full_and_sends_no_heartbeats() -> None:
    """Else libzmq ends the process; see docs/decisions/0009."""

    def answer(request: FetchRequest) -> list[list[bytes]]:
        return [entry(request, 0), fetched(request, 1, done=True)]

    with (
        exchange(answer) as (address, _),
        LogReader(address, QUEUE, number=1, generation=EPOCH) as reader,
    ):
        next(reader.read(0, 1))
        socket = reader._socket
        assert socket is not None
        assert socket.getsockopt(zmq.HEARTBEAT_IVL) == 0
        # ZeroMQ counts what was read in steps of half the mark.
        assert socket.getsockopt(zmq.RCVHWM) // 2 >= range_reader.FETCH_BYTES // wire.HEADER_BYTES


@pytest.mark.parametrize("reached", [0, 3, 4])
def test_who_says_that_there_is_more_and_brings_nothing_is_asked_once(reached: int) -> None:
    with exchange(lambda request: [fetched(request, reached, done=False)]) as (address, asked):
        with pytest.raises(RemoteProtocolError, match=r"x1 at tcp://.* up to offset 4 .* nothing"):
            offsets(address, 4, 10)
        assert len(asked) == 1


@pytest.mark.parametrize("offset", [3, 10, 1 << 40])
def test_what_was_not_asked_for_is_refused(offset: int) -> None:
    with (
        exchange(lambda request: [entry(request, offset)]) as (address, _),
        pytest.raises(RemoteProtocolError, match=f"sent offset {offset}, asked for 4 to 9"),
    ):
        offsets(address, 4, 10)


def test_a_batch_that_comes_twice_is_refused() -> None:
    with (
        exchange(lambda request: [entry(request, 4), entry(request, 4)]) as (address, _),
        pytest.raises(RemoteProtocolError, match="sent offset 4, asked for 5 to 9"),
    ):
        offsets(address, 4, 10)


def test_patience_does_not_begin_anew_with_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "ASK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(range_reader, "ASK_AGAIN_SECONDS", 0.05)
    with exchange(lambda request: []) as (address, asked):
        with pytest.raises(Unavailable, match=r"not answered for 0\.5 s"):
            offsets(address, 4, 10, timeout=0.5)
        assert len(asked) == 1


def test_an_exchange_that_answers_is_waited_for_longer_and_longer_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reader, "ASK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(range_reader, "ASK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(range_reader, "BATCH_SECONDS_MAX", 0.15)
    with exchange(lambda request: [], there=True) as (address, asked):
        with pytest.raises(Unavailable, match="answers, but has not brought one batch"):
            offsets(address, 4, 10, timeout=20.0)
        assert len(asked) == 4


def test_answers_to_other_questions_do_not_keep_it_waiting() -> None:
    def answer(request: FetchRequest) -> list[list[bytes]]:
        other = FetchRequest(id=request.id + 1_000, queue=QUEUE, generation=EPOCH)
        return [entry(other, 4), fetched(other, 10, done=True)] * 3

    with (
        exchange(answer) as (address, _),
        pytest.raises(Unavailable, match="not answered"),
    ):
        offsets(address, 4, 10, timeout=0.3)


def test_the_next_batch_behind_offsets_that_were_left_out_is_found_by_one_question() -> None:
    def answer(request: FetchRequest) -> list[list[bytes]]:
        if request.first >= 1 << 20:
            return [fetched(request, request.until, done=True)]
        return [entry(request, 1 << 20), fetched(request, (1 << 20) + 1, done=False)]

    with (
        exchange(answer) as (address, asked),
        LogReader(address, QUEUE, number=1, generation=EPOCH) as reader,
    ):
        assert reader.following(7, 1 << 21) == 1 << 20
        assert reader.following((1 << 20) + 1, 1 << 21) == 1 << 21
        assert [(request.first, request.max_bytes) for request in asked] == [
            (7, 1), ((1 << 20) + 1, 1),
        ]  # fmt: skip


def test_an_exchange_of_version_1_is_named_with_both_versions_and_asked_once() -> None:
    def answer(request: FetchRequest) -> list[list[bytes]]:
        return [fetched(request, 10, done=True)]

    with exchange(answer, version=FIRST) as (address, asked):
        with pytest.raises(OtherVersion) as raised:
            offsets(address, 4, 10)
        assert f"exchange x1 at {address} speaks version {FIRST} " in str(raised.value)
        assert f"this side version {WIRE_VERSION}:" in str(raised.value)
        assert len(asked) == 1
