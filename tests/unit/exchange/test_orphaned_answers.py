"""Instances offer answers of which the exchange is gone, and what they are told of these."""

from __future__ import annotations

from exchange_driver import Publisher, publisher_id
from service_party import Party, pass_time, service

from roq.model import LogId
from roq.protocol import requesting
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.columns import pack_sent_again
from roq.protocol.orphaned_answers import (
    ORPHANED,
    AnswersOffered,
    AnswersTaken,
    OrphanedAnswer,
    sent_again,
    token_of,
)
from roq.protocol.requesting import (
    Answer,
    Begun,
    Position,
)


def orphaned(instance: Party, *answers: OrphanedAnswer) -> AnswersTaken:
    instance.say(ORPHANED, requesting.encode(AnswersOffered(list(answers))))
    return requesting.decode(instance.take(ORPHANED), AnswersTaken)


def sent_once_more(publisher: Publisher, index: int = 0) -> bytes:
    """A request of this publisher that was known otherwise; gives its token."""
    gone, before, who = LogId(9, 1), Position(4, index), publisher_id("p")
    attributes = Attributes(None, (), sent_again({}, gone, before), 0)
    publisher.send(b"s/do", 1, area=pack_sent_again(), attributes=pack_attributes({0: attributes}))
    return token_of(gone, before, who, b"x")


def test_an_instance_offers_answers_to_requests_that_were_sent_once_more() -> None:
    there, publisher, asker, instance = service()
    instance.grant(0)
    tokens = [sent_once_more(publisher, index) for index in range(2)]
    pass_time(there, 0.5)
    told = orphaned(
        instance, OrphanedAnswer(tokens[0], value=b"v"), OrphanedAnswer(bytes(16), value=b"w")
    )
    assert (told.taken, told.outdated) == ([tokens[0]], [])
    assert (told.attempts, told.wait) == (4, 1.0)
    assert [(each.offset, each.value) for each in asker.ends()] == [(0, b"v")]
    instance.grant(5)
    ((number, first, length, _),) = instance.leases
    assert (first, length) == (0, 1), "the other one alone is handed out"
    instance.done(begun=[Begun(number, 0, 1)])
    told = orphaned(instance, OrphanedAnswer(tokens[1], value=b"v"))
    assert (told.taken, told.outdated) == ([], [tokens[1]])
    instance.done(answers=[Answer(number, 0, value=b"w")])
    assert [each.value for each in asker.ends()] == [b"w"]
    there.core.check()


def test_a_service_whose_setting_says_so_takes_no_answer_from_elsewhere() -> None:
    there, publisher, asker, instance = service()
    instance.grant(0)
    token = sent_once_more(publisher)
    there.core.consumers.services.define({"s": {"reply_attempts": 0, "reply_wait": 0.5}})
    asker.told.clear()
    asker.look()
    asker.told.clear()
    told = orphaned(instance, OrphanedAnswer(token, value=b"v"))
    assert (told.taken, told.outdated, told.attempts, told.wait) == ([], [], 0, 0.5)
    assert asker.ends() == []


def test_only_a_member_of_the_service_offers_answers_and_what_cannot_be_is_refused() -> None:
    there, publisher, asker, instance = service()
    instance.grant(0)
    token = sent_once_more(publisher)
    stranger = Party(there, "stranger")
    stranger.say(ORPHANED, requesting.encode(AnswersOffered([OrphanedAnswer(token)])))
    assert stranger.told == [(b"\xffl", b"")], "it is to join first"
    assert asker.ends() == []
    instance.say(ORPHANED, requesting.encode(AnswersOffered([OrphanedAnswer(b"short")])))
    assert instance.refusal() == "malformed"
