"""The sockets of one `Reader`: a SUB on the fan-out, a DEALER on the data socket of an exchange."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

import zmq

from roq.client.reader import Reader
from roq.client.reading import Answered, DataDown, DataUp, Event, Pause, Resume
from roq.protocol.entry import ENTRY_BYTES, EntryKind
from roq.runtime import sockets
from roq.runtime.reactor import Reactor

LIVE_MESSAGES_MAX: Final = 1_000
"""High-water mark of the SUB: beyond it the exchange drops, and the log is read instead."""
BURST: Final = 50
BURST_BYTES: Final = 1024 * 1024
"""What is unpacked at once and handed over at once should still be in the processor's cache."""
_NO_BATCH: Final = frozenset(
    {
        int(EntryKind.ANNOUNCE),
        int(EntryKind.FORGOTTEN_ANNOUNCE),
        int(EntryKind.END),
        int(EntryKind.PRESENCE),
    }
)
_EVENTS: Final = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
_NOBLOCK: Final = zmq.NOBLOCK
_EVENT: Final = Struct("=Hi")
"""First frame of a socket's event: number and value; the second frame is the address."""


class Tap:
    """Brings everything that arrives to the reader; its owner performs the reader's effects.

    Args:
        live, data: addresses of the exchange (translated, if they are to be).
        step: feed this event to the reader, perform its effects, pass on what it brought.
        burst: the reader was fed through `Reader.live`: pass on what it brought.
        clock: the time that the reader knows.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        reader: Reader,
        *,
        live: str,
        data: str,
        step: Callable[[Event], None],
        burst: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.reader = reader
        self._reactor = reactor
        self._step = step
        self._burst = burst
        self._clock = clock
        self._reading = False
        self._live = sockets.subscriber(context)
        self._live.setsockopt(zmq.RCVHWM, LIVE_MESSAGES_MAX)
        for topic in reader.subscriptions():
            self._live.setsockopt(zmq.SUBSCRIBE, topic)
        self._data = sockets.dealer(context, maximum_bytes=-1)
        # The exchange's heartbeats suffice, and it knows how long a large batch may silence them.
        self._data.setsockopt(zmq.HEARTBEAT_IVL, 0)
        self._events = self._data.get_monitor_socket(_EVENTS)
        self._live.connect(live)
        self._data.connect(data)
        reactor.add(self._events, self._monitored)
        self._read(on=True)

    # --- effects ----------------------------------------------------------------------------------

    def ask(self, frames: list[bytes]) -> None:
        """Send a request; one that cannot be sent is asked again when its time is over."""
        sockets.send_to(self._data, frames)

    def subscribe(self, topic: bytes) -> None:
        """Add a filter."""
        self._live.setsockopt(zmq.SUBSCRIBE, topic)

    def unsubscribe(self, topic: bytes) -> None:
        """Remove a filter."""
        self._live.setsockopt(zmq.UNSUBSCRIBE, topic)

    def pause(self) -> None:
        """Stop reading: what the sockets cannot hold is dropped by the exchange."""
        if self._reading:
            self._read(on=False)
            self._step(Pause())

    def resume(self) -> None:
        """Read again."""
        if not self._reading:
            self._read(on=True)
            self._step(Resume())

    def drain(self) -> None:
        """Read what has come already; before a close."""
        for _ in range(2 * LIVE_MESSAGES_MAX // BURST):
            if not self._take_burst():
                return

    def close(self) -> None:
        """Close the sockets."""
        self._read(on=False)
        self._reactor.remove(self._events)
        self._data.disable_monitor()
        self._events.close(0)
        self._data.close(0)
        self._live.close(0)

    def _read(self, *, on: bool) -> None:
        if on is self._reading:
            return
        self._reading = on
        if on:
            self._reactor.add(self._live, self._live_readable)
            self._reactor.add(self._data, self._data_readable)
        else:
            self._reactor.remove(self._live)
            self._reactor.remove(self._data)

    # --- what comes -------------------------------------------------------------------------------

    def _live_readable(self) -> None:
        self._take_burst()

    def _take_burst(self) -> bool:
        """Read up to `BURST` messages; False if there are no more."""
        recv = self._live.recv
        more = self._live.getsockopt
        live = self.reader.live
        now = self._clock()
        size = 0
        try:
            for _ in range(BURST):
                frames = [recv(_NOBLOCK)]
                # An entry says whether a batch follows it, which saves asking ZeroMQ twice.
                if more(zmq.RCVMORE):
                    entry = recv(_NOBLOCK)
                    frames.append(entry)
                    if len(entry) != ENTRY_BYTES or entry[3] not in _NO_BATCH:
                        while more(zmq.RCVMORE):
                            frames.append(recv(_NOBLOCK))
                live(frames, now)
                size += len(frames[-1])
                if size > BURST_BYTES:
                    break
        except zmq.Again:
            self._burst()
            return False
        self._burst()
        return True

    def _data_readable(self) -> None:
        fetched = self.reader.fetched
        now = self._clock()
        for _ in range(BURST):
            try:
                frames = self._data.recv_multipart(_NOBLOCK)
            except zmq.Again:
                break
            if not fetched(frames, now):
                self._step(Answered(frames))
                if not self._reading:
                    return
        self._burst()

    def _monitored(self) -> None:
        while not self._events.closed:
            try:
                frames = self._events.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return
            event, _ = _EVENT.unpack(frames[0])
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._step(DataUp())
            elif event == zmq.Event.DISCONNECTED:
                self._step(DataDown())
