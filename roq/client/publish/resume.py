"""A named publisher goes on where an earlier one of its name has ended.

Every exchange of the queue is told that it has been opened, by a number that rises with each
opening (its *incarnation*), takes no batch of an earlier one any more, and says how far each stream
has come. So all of them have to answer: one that is away may hold the newest messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic, time_ns
from typing import Final

import zmq

from roq.client.io import waiters
from roq.errors import RemoteProtocolError, Unavailable
from roq.model import PUBLISHER_ID_BYTES, PublisherId
from roq.protocol import documents
from roq.protocol.channel import CLAIM, REFUSED, Claim, Claimed, Refused
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


@dataclass(frozen=True, slots=True)
class ExchangeAddress:
    """An exchange of the queue: its name, and its data address; empty: it does not run."""

    name: str
    address: str


def publisher_of(queue_id: bytes, name: str) -> PublisherId:
    """The id of the publisher of this name."""
    digest = blake2b(queue_id, digest_size=PUBLISHER_ID_BYTES, person=b"roq publisher")
    digest.update(name.encode())
    return PublisherId(digest.digest())


def resume(
    queue_id: bytes,
    queue: str,
    name: str,
    places: Callable[[], Sequence[ExchangeAddress]],
    seconds: float,
) -> Identity:
    """Be the publisher of this name from now on.

    Args:
        queue_id, queue: id and name of the queue.
        name: of the publisher.
        places: gives all exchanges of the queue, each time as they are at present.
        seconds: for all of it.

    Raises:
        Unavailable: an exchange did not answer; the text names it.
    """
    deadline = monotonic() + seconds
    publisher = publisher_of(queue_id, name)
    incarnation = time_ns() // 1000
    context = sockets.new_context()
    try:
        answers: dict[str, Claimed] = {}
        while True:
            present = places()
            claim = Claim(queue=queue_id, publisher=publisher, incarnation=incarnation)
            until = min(deadline, monotonic() + ANSWER_SECONDS)
            for place in present:
                if place.address and place.name not in answers:
                    answer = _claim(context, place, claim, until)
                    if answer is not None:
                        answers[place.name] = answer
            highest = max((answer.incarnation for answer in answers.values()), default=0)
            silent = [place.name for place in present if place.name not in answers]
            if highest > incarnation:
                incarnation = highest + 1  # this one was opened later, whatever its clock says
                answers.clear()
            elif present and not silent:
                return Identity(publisher, incarnation, _streams(answers.values()))
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


def _streams(answers: Iterable[Claimed]) -> dict[str, int]:
    streams: dict[str, int] = {}
    for answer in answers:
        for topic, following in answer.streams:
            name = topic.decode()
            streams[name] = max(following, streams.get(name, 0))
    return streams


def _claim(
    context: zmq.Context[zmq.Socket[bytes]], place: ExchangeAddress, claim: Claim, until: float
) -> Claimed | None:
    """Ask one exchange until its log has committed what it answers; None: it does not in time."""
    socket = sockets.dealer(context, maximum_bytes=-1)
    try:
        socket.connect(place.address)
        while monotonic() < until:
            socket.send_multipart([CLAIM, documents.encode(claim)])
            if not socket.poll(max(1, int(1000 * (until - monotonic())))):
                return None
            answer = read_answer(socket.recv())
            if answer is None or answer.committed:
                return answer
            socket.poll(_AGAIN_MS)
    finally:
        socket.close(0)
    return None


def read_answer(frame: bytes) -> Claimed | None:
    """What an exchange says to a claim; None: it is no answer.

    Raises:
        Unavailable: it refuses, and says why.
    """
    try:
        letter, body = Answers().take(frame) or [b"", b""]
        if letter == CLAIM:
            claimed = documents.decode(body, Claimed)
            for topic, _ in claimed.streams:
                topic.decode()
            return claimed
        if letter == REFUSED:
            raise Unavailable(documents.decode(body, Refused).text)
    except (RemoteProtocolError, ValueError):
        return None
    return None
