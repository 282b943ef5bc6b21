"""A named publisher goes on where an earlier one of its name has ended.

Every exchange of the queue is told that it has been opened, by a number that rises with each
opening (its *incarnation*), takes no batch of an earlier one any more, and says how far each stream
has come. So all of them have to answer: one that is away may hold the newest messages.

When an exchange is removed, or given up, what it alone knew is gone. So the queue begins another
*life*, and in each life a name is another publisher: it goes on behind what is known of its former
lives, and nobody takes what it sends then for what had been sent before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic, time_ns
from typing import Final

import zmq

from roq.client.io import waiters
from roq.errors import RemoteProtocolError, Unavailable
from roq.model import PUBLISHER_ID_BYTES, LogId, PublisherId
from roq.protocol import documents
from roq.protocol.channel import CLAIM, EARLIER_IDS_MAX, REFUSED, Claim, Claimed, Refused
from roq.protocol.framing import Answers
from roq.runtime import sockets

ANSWER_SECONDS: Final = 1.0
"""What an exchange may take to answer before all are looked up again."""
AGAIN_SECONDS: Final = 0.2
"""The pause before all are looked up again."""
_AGAIN_MS: Final = 50


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a publisher is.

    Attributes:
        id: 16 bytes.
        incarnation: of two publishers with this id the one with the higher number counts; 0: there
            is no other one.
        streams: the sequences with which its topics go on.
    """

    id: PublisherId
    incarnation: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    taken_over: Mapping[str, int] = field(default_factory=dict)
    """Likewise, of topics that this id has not used: as far as the name came in former lives."""
    logs: Sequence[LogId] = ()
    """Those that have messages of this id."""


@dataclass(frozen=True, slots=True)
class ExchangeAddress:
    """An exchange of the queue: its name, and its data address; empty: it does not run."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where a named publisher may have been.

    Attributes:
        life: of the queue.
        exchanges: all of them.
    """

    life: int
    exchanges: Sequence[ExchangeAddress]


def publisher_of(queue_id: bytes, name: str, life: int = 0) -> PublisherId:
    """The id of the publisher of this name in this life of the queue."""
    salt = life.to_bytes(blake2b.SALT_SIZE, "big")
    digest = blake2b(queue_id, digest_size=PUBLISHER_ID_BYTES, person=b"roq publisher", salt=salt)
    digest.update(name.encode())
    return PublisherId(digest.digest())


def resume(
    queue_id: bytes,
    queue: str,
    name: str,
    places: Callable[[], Places],
    seconds: float,
) -> Identity:
    """Be the publisher of this name from now on.

    Args:
        queue_id, queue: id and name of the queue.
        name: of the publisher.
        places: gives the life of the queue and all its exchanges, each time as they are at present.
        seconds: for all of it.

    Raises:
        Unavailable: an exchange did not answer; the text names it.
    """
    deadline = monotonic() + seconds
    publisher = publisher_of(queue_id, name)
    earlier: list[bytes] = []
    life = 0
    incarnation = time_ns() // 1000
    context = sockets.new_context()
    try:
        answers: dict[str, Claimed] = {}
        while True:
            there = places()
            present = there.exchanges
            if there.life != life:
                life = there.life
                publisher = publisher_of(queue_id, name, life)
                former = range(max(0, life - EARLIER_IDS_MAX), life)
                earlier = [publisher_of(queue_id, name, each) for each in former]
                answers.clear()
            claim = Claim(
                queue=queue_id, publisher=publisher, incarnation=incarnation, earlier=earlier
            )
            asked = [each for each in present if each.address and each.name not in answers]
            until = min(deadline, monotonic() + ANSWER_SECONDS)
            answers |= _claim(context, asked, claim, until)
            highest = max((answer.incarnation for answer in answers.values()), default=0)
            silent = [place.name for place in present if place.name not in answers]
            if highest > incarnation:
                incarnation = highest + 1  # this one was opened later, whatever its clock says
                answers.clear()
            elif present and not silent:
                # An earlier publisher may have been moved to one that was begun meanwhile.
                there = places()
                same = there.life == life
                silent = [p.name for p in there.exchanges if not same or p.name not in answers]
                if not silent:
                    return _identity(publisher, incarnation, answers.values())
            if monotonic() >= deadline:
                raise Unavailable(
                    f"publisher {name!r} of queue {queue} cannot go on where it was: "
                    f"{', '.join(silent) or 'no exchange'} did not answer within {seconds:g} s and "
                    "may hold its newest messages. Wait until all exchanges of the queue run, or "
                    f"give up those whose host is lost for good: roq exchange forget {queue} "
                    f"{silent[0] if silent else 'EXCHANGE'}"
                )
            if silent or not present:
                waiters.sleep([], max(0.0, min(AGAIN_SECONDS, deadline - monotonic())))
    finally:
        context.destroy(linger=0)


def _identity(publisher: PublisherId, incarnation: int, told: Collection[Claimed]) -> Identity:
    """Behind the ends of all exchanges."""
    streams = _streams(answer.streams for answer in told)
    former_ends = _streams(answer.earlier for answer in told)
    return Identity(
        publisher, incarnation, streams,
        {topic: end for topic, end in former_ends.items() if topic not in streams},
        [answer.log for answer in told if answer.streams],
    )  # fmt: skip


def _streams(told: Iterable[Iterable[tuple[bytes, int]]]) -> dict[str, int]:
    streams: dict[str, int] = {}
    for ends in told:
        for topic, following in ends:
            name = topic.decode()
            streams[name] = max(following, streams.get(name, 0))
    return streams


def _claim(
    context: zmq.Context[zmq.Socket[bytes]],
    places: Sequence[ExchangeAddress],
    claim: Claim,
    until: float,
) -> dict[str, Claimed]:
    """What these exchanges answer, each when its log has committed that; they are asked at once.

    One that does not answer in time, or not what can be read, is left out.
    """
    question = [CLAIM, documents.encode(claim)]
    answers: dict[str, Claimed] = {}
    asked: dict[zmq.Socket[bytes], str] = {}
    """The sockets that are waited for, with the names of their exchanges."""
    again: list[zmq.Socket[bytes]] = []
    """Those whose exchange has not committed what it says: they are asked after a pause."""
    poller = zmq.Poller()
    dealers: list[zmq.Socket[bytes]] = []
    try:
        for place in places:
            socket = sockets.dealer(context, maximum_bytes=-1)
            dealers.append(socket)
            socket.connect(place.address)
            socket.send_multipart(question)
            poller.register(socket, zmq.POLLIN)
            asked[socket] = place.name
        while asked and (left := until - monotonic()) > 0:
            most_ms = max(1, int(1000 * left))
            ready = poller.poll(min(most_ms, _AGAIN_MS) if again else most_ms)
            for socket in again if not ready else ():
                socket.send_multipart(question)
            if not ready:
                again.clear()
            for socket, _ in ready:
                answer = read_answer(socket.recv())
                if answer is not None and not answer.committed:
                    again.append(socket)
                    continue
                name = asked.pop(socket)
                poller.unregister(socket)
                if answer is not None:
                    answers[name] = answer
    finally:
        for socket in dealers:
            socket.close(0)
    return answers


def read_answer(frame: bytes) -> Claimed | None:
    """What an exchange says to a claim; None: it is no answer.

    Raises:
        Unavailable: it refuses, and says why.
    """
    try:
        letter, body = Answers().take(frame) or [b"", b""]
        if letter == CLAIM:
            claimed = documents.decode(body, Claimed)
            for topic, _ in (*claimed.streams, *claimed.earlier):
                topic.decode()
            return claimed
        if letter == REFUSED:
            raise Unavailable(documents.decode(body, Refused).text)
    except (RemoteProtocolError, ValueError):
        return None
    return None
