"""All that a client decides about the requests it waits for, at all exchanges of a queue. Pure.

    up --attended--> everything that is open there is asked for; what ends is told unasked

A request is open here from the moment its exchange has accepted it, or somebody asks for it by its
id, until it is known how it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from roq.client.io.queue_connections import AskExchange
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents, requesting
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.requesting import (
    ATTEND,
    DELAYED_FROM,
    DELAYED_LOOKS,
    OUTCOMES,
    RUN_MAX,
    UNASKED,
    WANT,
    WANT_MAX,
    Attend,
    Attended,
    FetchedRun,
    Position,
    RequestEnd,
    RequestEnds,
    ServiceSettings,
    Want,
)

ASK_SECONDS: Final = 3.0
"""An Attend that is not answered is repeated after so long."""
SURE_SECONDS: Final = 2.0
"""What is not told of by itself is asked for after so long: it may have ended before the exchange
knew whom to tell."""
AGAIN_SECONDS: Final = 10.0
"""And again after so long, as long as it is open: what was said may be lost with a connection."""
NEWER_SECONDS: Final = 15.0
"""A log that nobody has told of, and that is newer than all, is waited for so long."""


@dataclass(slots=True)
class _Words:
    """What is to be said to an exchange of one service."""

    wanted: list[Position] = field(default_factory=list)
    fetched: list[FetchedRun] = field(default_factory=list)
    unwanted: dict[Position, bool] = field(default_factory=dict)
    """See `Home`."""

    @property
    def presses(self) -> bool:
        """Whether it is more than what is fetched, or much of that."""
        return bool(self.wanted or self.unwanted or len(self.fetched) >= WANT_MAX)

    def wants(self, service: str) -> Iterator[Want]:
        """All of it, in messages that are not too large."""
        cancels = [position for position, late in self.unwanted.items() if not late]
        lates = [position for position, late in self.unwanted.items() if late]
        fetched, lists = self.fetched, (self.wanted, cancels, lates)
        delayed = any(each.offset >= DELAYED_FROM for each in self.unwanted)
        most = DELAYED_LOOKS // 2 if delayed else WANT_MAX  # of both kinds
        for at in range(0, max(len(fetched), *map(len, lists)), most):
            wanted, cancelled, late = (each[at : at + most] for each in lists)
            yield Want(service, wanted, fetched[at : at + most], cancelled, late)


@dataclass(slots=True)
class Home:
    """One exchange, as a requester knows it."""

    exchange: ExchangeInfo
    queue: bytes
    up: bool = False
    attended: dict[str, int] = field(default_factory=dict)
    """By service, the number of the question; 0: it is answered."""
    ask_at: float = float("inf")
    open: dict[str, dict[Position, float]] = field(default_factory=dict)
    """By service, what is open, and when it is to be asked for next."""
    unwanted: dict[str, dict[Position, bool]] = field(default_factory=dict)
    """By service, what is open and not wanted any more, and whether as its time is over. An
    exchange that has heard it may be lost before it has kept it: then the next one is told."""
    words: dict[str, _Words] = field(default_factory=dict)
    trouble: str = ""
    told_by: float = float("inf")
    """It is not told of yet; when it is taken for gone."""


class RequesterMachine:
    """What one client waits for.

    Attributes:
        places: the exchanges.
        settings: of services, as an exchange has told them last.
        refusals: by service, why an exchange does not have it.
    """

    def __init__(self) -> None:
        self.places: dict[LogId, Home] = {}
        self.settings: dict[str, ServiceSettings] = {}
        self.refusals: dict[str, str] = {}
        self._away: set[int] = set()
        self._newest: dict[int, int] = {}
        """By number of an exchange, the generation of its newest log that was told of."""
        self._queue = b""
        self._attend: dict[str, tuple[ServiceSettings, bytes]] = {}
        self._questions = 0

    def open(self, exchange: ExchangeInfo, queue: bytes) -> None:
        """The queue has this exchange, or has it at another address."""
        place = self.places.get(exchange.log)
        if place is None:
            self.places[exchange.log] = Home(exchange, queue)
        else:
            place.exchange, place.told_by = exchange, float("inf")

    def are(self, serving: Iterable[LogId], away: set[int], queue: bytes) -> None:
        """The exchanges that the queue has; these numbers come back with their logs."""
        self._away, self._queue = away, queue
        self._newest.update(serving)

    def is_newer(self, log: LogId) -> bool:
        """Whether it may be there though its monitor has not told of it: the news is on its way, or
        the monitor is away."""
        newest = self._newest.get(log.number)
        if newest is None:
            return log.number > max(self._newest, default=0)
        return log.generation > newest

    def overdue(self, now: float) -> bool:
        """Whether something that is newer than all was not told of in time."""
        return any(place.told_by <= now for place in self.places.values())

    def leave(self, log: LogId) -> list[tuple[str, Position]]:
        """This exchange is gone with its log; gives what was open there."""
        place = self.places.pop(log, None)
        if place is None:
            return []
        return [(service, at) for service, positions in place.open.items() for at in positions]

    def up(self, log: LogId, now: float) -> list[AskExchange]:
        """The connection stands."""
        place = self.places.get(log)
        if place is None:
            return []
        place.up = True
        place.attended = {}
        for service in place.open.keys() - self._attend.keys():  # what others have requested
            self._want_all(place, service, now)
        return [ask for service in self._attend for ask in self._ask(log, place, service, now)]

    def down(self, log: LogId) -> None:
        """The connection has ended."""
        place = self.places.get(log)
        if place is not None:
            place.up = False
            place.attended = {}
            place.ask_at = float("inf")
            for words in place.words.values():
                words.wanted.clear()  # all of it is asked for when it is up again

    def attend(
        self, service: str, settings: ServiceSettings, publisher: bytes, now: float
    ) -> list[AskExchange]:
        """Be told how requests to this service end, also of this publisher if there is one."""
        before = self._attend.get(service)
        if before is not None and before[0] == settings and before[1] == publisher:
            return []
        if before is not None and before[1] and not publisher:
            return []
        self._attend[service] = settings, publisher
        return [
            ask
            for log, place in self.places.items()
            if place.up
            for ask in self._ask(log, place, service, now)
        ]

    def ask_all(self, now: float) -> None:
        """Ask for everything that is open: what was said of it may be lost."""
        for place in self.places.values():
            for service in place.open if place.up else ():
                self._want_all(place, service, now)

    def attended(self, service: str) -> bool:
        """Whether every exchange that is there has answered."""
        places = [each for each in list(self.places.values()) if each.exchange.data]
        return bool(places) and all(place.attended.get(service) == 0 for place in places)

    def wait(
        self, service: str, log: LogId, position: Position, now: float, *, ask: bool,
        after: float = 0.0,
    ) -> bool:  # fmt: skip
        """This one is open; False: its log is gone.

        Args:
            ask: ask for it now; else it is told by itself, and asked for later to be sure.
            after: seconds in which it certainly does not end, and is not asked for.
        """
        place = self._home(log, now)
        if place is None:
            return False
        ask = ask or (not after and place.attended.get(service) != 0)
        place.open.setdefault(service, {})[position] = now + after + SURE_SECONDS
        if ask:
            self._words(place, service).wanted.append(position)
        return True

    def wait_all(self, service: str, log: LogId, positions: list[Position], now: float) -> bool:
        """As `wait`, of several that are told by themselves."""
        place = self._home(log, now)
        if place is None:
            return False
        at = now + SURE_SECONDS
        place.open.setdefault(service, {}).update(dict.fromkeys(positions, at))
        if place.attended.get(service) != 0:
            self._words(place, service).wanted += positions
        return True

    def fetched(self, service: str, log: LogId, position: Position, count: int = 1) -> None:
        """The outcomes of so many that follow each other are here, and need not be kept there."""
        place = self.places.get(log)
        if place is None:
            return
        offset, at = position
        fetched = self._words(place, service).fetched
        if fetched:
            last, first, length = fetched[-1]
            if last == offset and first + length == at and length + count <= RUN_MAX:
                fetched[-1] = offset, first, length + count
                return
        for begin in range(0, count, RUN_MAX):
            fetched.append((offset, at + begin, min(RUN_MAX, count - begin)))

    def cancel(
        self, service: str, log: LogId, position: Position, now: float, *, late: bool
    ) -> None:
        """It is not wanted any more."""
        place = self.places.get(log)
        if place is not None:
            words = self._words(place, service)
            words.unwanted.setdefault(position, late)
            opened = place.open.get(service, {})
            if position in opened:
                place.unwanted.setdefault(service, {}).setdefault(position, late)
                opened[position] = min(opened[position], now + SURE_SECONDS)
            if position.offset >= DELAYED_FROM:  # nobody knows there who has made it
                words.wanted.append(position)

    def forget(self, service: str, log: LogId, position: Position) -> None:
        """It is not waited for any more."""
        place = self.places.get(log)
        if place is not None:
            place.open.get(service, {}).pop(position, None)
            place.unwanted.get(service, {}).pop(position, None)

    def take(self, log: LogId, parts: list[bytes], now: float) -> tuple[str, list[RequestEnd]]:
        """Something came from an exchange: of which service, what has ended.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        place = self.places.get(log)
        if place is None:
            return "", []
        letter = parts[0]
        if letter == OUTCOMES:
            told = requesting.decode(parts[1], RequestEnds)
            known = place.open.get(told.service, {})
            unwanted = place.unwanted.get(told.service, {})
            for outcome in told.ended if known else ():
                for books in (known, unwanted) if unwanted else (known,):
                    for position in outcome.keys:
                        books.pop(position, None)
            return told.service, told.ended
        if letter == ATTEND:
            self._was_attended(place, documents.decode(parts[1], Attended), now)
        elif letter == REFUSED:
            refused = documents.decode(parts[1], Refused)
            place.trouble = refused.text
            if refused.code in {"group_differs", "invalid_request", "malformed"}:
                for service, question in place.attended.items():
                    if question:
                        self.refusals[service] = f"{refused.text} ({refused.code})"
        return "", []

    def tick(self, now: float) -> list[AskExchange]:
        """Time has passed: call it about four times a second."""
        asks: list[AskExchange] = []
        for log, place in self.places.items():
            if place.up and now >= place.ask_at:
                # Under its number: the answer to the first one counts, however late it is.
                for service, question in [each for each in place.attended.items() if each[1]]:
                    asks += self._ask(log, place, service, now, question)
            for service in place.open if place.up else ():  # else all is asked for when it is
                self._want_again(place, service, now)
        return [*asks, *self.say()]

    def say(self) -> list[AskExchange]:
        """What is to be said now to exchanges."""
        asks: list[AskExchange] = []
        for log, place in self.places.items():
            if not place.up or not place.words:
                continue
            # An exchange hears a Want at once, and an Attend when it has its turn. Who does not
            # know the service yet would say that there was no such request.
            silent = {
                name: words for name, words in place.words.items() if place.attended.get(name)
            }
            for service, words in place.words.items():
                if service not in silent:
                    asks += [
                        AskExchange(log, [WANT, requesting.encode(want)])
                        for want in words.wants(service)
                    ]
            place.words = silent
        return asks

    @property
    def talks(self) -> bool:
        """Whether `say` has something, or will have, that is more than what is fetched."""
        places = self.places.values()
        return any(words.presses for place in places for words in place.words.values())

    @property
    def open_count(self) -> int:
        """Requests that are open."""
        return sum(len(some) for place in self.places.values() for some in place.open.values())

    def _home(self, log: LogId, now: float) -> Home | None:
        """Where this log is, or will be when it is back or told of; None: it is gone."""
        place = self.places.get(log)
        if place is None and ((away := log.number in self._away) or self.is_newer(log)):
            number, generation = log
            nowhere = ExchangeInfo(
                number=number, epoch=generation, generation=generation, host="", data="", live=""
            )
            place = self.places[log] = Home(nowhere, self._queue)
            place.told_by = float("inf") if away else now + NEWER_SECONDS
        return place

    def _words(self, place: Home, service: str) -> _Words:
        words = place.words.get(service)
        if words is None:
            words = place.words[service] = _Words()
        return words

    def _want_all(self, place: Home, service: str, now: float) -> None:
        """Ask for everything that is open, and later to be sure; say again what is not wanted."""
        positions, unwanted = place.open.get(service, {}), place.unwanted.get(service, {})
        soon, words = now + AGAIN_SECONDS, self._words(place, service)
        near = [each for each, at in positions.items() if at <= soon or each in unwanted]
        words.wanted = near  # the others are delayed
        words.unwanted.update(unwanted)
        for position in near:
            positions[position] = now + SURE_SECONDS

    def _want_again(self, place: Home, service: str, now: float) -> None:
        """Ask for what is open for long, and say again what of that is not wanted, as an exchange
        may have had no room to heed it, or not have looked so far; of very much some."""
        positions, unwanted = place.open[service], place.unwanted.get(service, {})
        words, room = self._words(place, service), WANT_MAX
        for position in [position for position, at in positions.items() if at <= now]:
            late = unwanted.get(position)
            if late is None:
                positions[position] = now + AGAIN_SECONDS
            elif room > 0:
                room -= WANT_MAX // DELAYED_LOOKS if position.offset >= DELAYED_FROM else 1
                del positions[position]  # the others have their turn before it
                positions[position] = now + SURE_SECONDS
                words.unwanted.setdefault(position, late)
            else:
                continue
            words.wanted.append(position)

    def _ask(
        self, log: LogId, place: Home, service: str, now: float, question: int = 0
    ) -> list[AskExchange]:
        settings, publisher = self._attend[service]
        if not question:
            self._questions = question = self._questions + 1
        place.attended[service] = question
        place.ask_at = now + ASK_SECONDS
        attend = Attend(
            id=question, queue=place.queue, service=service, settings=settings,
            publisher=publisher, by_link=bool(publisher),
        )  # fmt: skip
        return [AskExchange(log, [ATTEND, documents.encode(attend)])]

    def _was_attended(self, place: Home, answer: Attended, now: float) -> None:
        if answer.id == UNASKED and answer.service in self._attend:
            self.settings[answer.service] = answer.settings
        for service, question in place.attended.items():
            if question == answer.id:
                place.attended[service] = 0
                place.trouble = ""
                self.settings[service] = answer.settings
                self.refusals.pop(service, None)
                self._want_all(place, service, now)
        if not any(place.attended.values()):
            place.ask_at = float("inf")
