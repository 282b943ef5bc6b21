"""Answers to requests whose exchange is gone, and requests that were sent once more. Pure.

A requester that sends a request once more says in a property (`BEFORE`) as what it was known
before, and with `SENT_AGAIN` in the extension area of the batch that it does. Whoever had the
request under an earlier name, and has an answer, offers that to the exchanges of the queue:

    instance → exchange                          exchange → instance
    [FF n] AnswersOffered                        [FF n] AnswersTaken

Both are msgpack arrays. A request is named by a *token* there: a digest of the earlier name, of who
has made the request, and of what was requested. So nobody can name it who has not had it, or read
it in the log; and no name is mistaken for another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from roq.model import LogId
from roq.number_ranges import CHILD_EPOCH_MAX, OFFSET_MAX, Real, Whole
from roq.protocol.requesting import AGAIN_PUBLISHER, TEXT_MAX, Answer, Position, RequestState

ORPHANED: Final = b"\xffn"

BEFORE: Final = "roq.request.before"
"""Property: as what a request was known before it was sent once more; with spaces between several,
the latest one last."""
BEFORE_MAX: Final = 4
"""So many of them are said: with more, the first ones are left out."""
TOKEN_BYTES: Final = 16
OFFERED_MAX: Final = 500
"""Answers in one message."""
_NAME: Final = re.compile(r"x(\d{1,10})-(\d{1,12})-(\d{1,19})-(\d{1,7})", re.ASCII)
_BEFORE_LENGTH: Final = BEFORE_MAX * 52

_Token = Annotated[bytes, msgspec.Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]
_Tokens = Annotated[list[_Token], msgspec.Meta(max_length=OFFERED_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]


class OrphanedAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a request has ended, whose exchange is gone."""

    token: _Token
    state: RequestState = RequestState.DONE
    """`done` or `failed`; anything else counts as failed."""
    value: bytes = b""
    text: _Text = ""

    def at(self, index: int) -> Answer:
        """As the answer to the request of this index in its batch."""
        failed = self.state is not RequestState.DONE
        state = RequestState.FAILED if failed else RequestState.DONE
        return Answer(0, index, state, self.value, self.text)


class AnswersOffered(msgspec.Struct, frozen=True, array_like=True):
    """An instance offers these; whoever has such a request, and nothing newer, takes the answer."""

    answers: Annotated[list[OrphanedAnswer], msgspec.Meta(max_length=OFFERED_MAX)] = []


class AnswersTaken(msgspec.Struct, frozen=True, array_like=True):
    """What has become of what was offered, when that is kept; of the others there is no such
    request here (yet)."""

    taken: _Tokens = []
    """These requests have ended so."""
    outdated: _Tokens = []
    """Another instance has begun with these."""
    attempts: Whole = 0
    """So often is an answer offered, by the settings of the service; 0: it never is."""
    wait: Real = 0.0
    """Seconds between."""


def before_of(properties: Mapping[str, str]) -> list[tuple[LogId, Position]]:
    """As what a request was known before, the latest one last; none if that cannot be read."""
    told = properties.get(BEFORE)
    if told is None or len(told) > _BEFORE_LENGTH:
        return []
    names: list[tuple[LogId, Position]] = []
    for each in told.split(" "):
        found = _NAME.fullmatch(each)
        if found is None:
            return []
        number, generation, offset, index = map(int, found.groups())
        if generation > CHILD_EPOCH_MAX or offset > OFFSET_MAX:
            return []
        names.append((LogId(number, generation), Position(offset, index)))
    return names[-BEFORE_MAX:]


def sent_again(properties: Mapping[str, str], log: LogId, at: Position) -> dict[str, str]:
    """The properties of a request that is sent once more, and was known so."""
    names = [*before_of(properties), (log, at)][-BEFORE_MAX:]
    return {**properties, BEFORE: " ".join(_name(*each) for each in names)}


def maker_of(properties: Mapping[str, str], publisher: bytes) -> bytes:
    """Who has made a request: its exchange may have published it.

    Args:
        publisher: of its batch.
    """
    told = properties.get("roq.delayed.publisher") or properties.get(AGAIN_PUBLISHER)
    try:
        return publisher if told is None else bytes.fromhex(told)
    except ValueError:
        return b""


def token_of(log: LogId, at: Position, maker: bytes, payload: bytes | memoryview) -> bytes:
    """By which a request is named that was known so.

    Args:
        maker: id of the publisher that has made it.
        payload: as the request travelled.
    """
    digest = blake2b(_name(log, at).encode(), digest_size=TOKEN_BYTES, key=maker[:64])
    digest.update(b"\n")
    digest.update(payload)
    return digest.digest()


def _name(log: LogId, at: Position) -> str:
    return f"x{log.number}-{log.generation}-{at.offset}-{at.at}"
