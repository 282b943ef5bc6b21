"""Who waits for which requests; what is said to them stands in test_services.py."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from roq.exchange import requesters as module
from roq.exchange.events import Send
from roq.exchange.readers import RefusedRequest
from roq.exchange.requesters import LINK_BYTES, Asker, Requesters
from roq.exchange.requests import Request
from roq.log.outcomes import size_of
from roq.log.ring import Ring
from roq.log.service_group import ServiceGroup
from roq.protocol import requesting
from roq.protocol.consuming import GroupSettings
from roq.protocol.requesting import (
    ATTEND,
    OUTCOMES,
    Attend,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
    ServiceSettings,
    Want,
)


def made() -> tuple[Requesters[bytes], ServiceGroup[bytes]]:
    log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=1 << 20, topics_max=8)
    settings = GroupSettings(service=ServiceSettings())
    return Requesters(log, {}), ServiceGroup("s", log, settings, 1, 0, 0.0)


def ends(sends: list[Send]) -> dict[bytes, list[RequestEnd]]:
    told: dict[bytes, list[RequestEnd]] = {}
    for send in sends:
        assert send.parts[0][:2] == OUTCOMES
        told.setdefault(send.route, []).extend(requesting.decode(send.parts[1], RequestEnds).ended)
    return told


def attend(requesters: Requesters[bytes], group: Any, route: bytes, publisher: bytes) -> None:
    wish = Attend(id=1, queue=b"q" * 16, service="s", publisher=publisher)
    requesters.attend(Request(route, ATTEND, b"", b"tag1"), wish, group)


def test_the_newest_connection_of_a_publisher_is_told() -> None:
    requesters, group = made()
    attend(requesters, group, b"old", b"p" * 16)
    attend(requesters, group, b"new", b"p" * 16)
    end = RequestEnd(0, 0, RequestState.DONE)
    group.ended.append((b"p" * 16, end))  # type: ignore[arg-type]
    requesters.ended(group)
    assert ends(requesters.take()) == {b"new": [end]}
    requesters.gone(b"old")
    requesters.check()
    group.ended.append((b"p" * 16, end))  # type: ignore[arg-type]
    requesters.ended(group)
    assert ends(requesters.take()) == {b"new": [end]}


def test_who_has_asked_and_is_told_anyway_is_told_once() -> None:
    requesters, group = made()
    attend(requesters, group, b"a", b"p" * 16)
    requesters._requesters[b"a", b"tag1"].wanted["s"] = {Position(0, 0)}
    requesters._waiting["s", Position(0, 0)] = {requesters._requesters[b"a", b"tag1"]: None}
    requesters._wait_count = 1
    end = RequestEnd(0, 0, RequestState.DONE)
    group.ended.append((b"p" * 16, end))  # type: ignore[arg-type]
    requesters.ended(group)
    assert ends(requesters.take()) == {b"a": [end]}
    requesters.check()


def test_who_has_gone_is_forgotten_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_MAX", 2)
    requesters, group = made()
    group._log.append(b"s/do", b"x", 1)
    for tag in (b"one1", b"two2"):
        places = [Position(0, index) for index in range(5)]
        requesters.want(b"a", tag, Want("s", places), None, 0.0)
    requesters.gone(b"a")
    assert len(requesters) == 0
    requesters.want(b"b", b"tag1", Want("s", [Position(0, 4)]), None, 0.0)
    group.ended.append((b"p" * 16, RequestEnd(0, 3, RequestState.DONE)))  # type: ignore[arg-type]
    requesters.ended(group)
    assert requesters.take() == [], "nobody is there who has asked for it"
    steps = 0
    while len(requesters._waiting) > 1 or requesters._leaving:
        requesters.check()
        requesters.tick({})
        steps += 1
    assert steps == 4 + 1
    assert requesters._waiting.keys() == {("s", Position(0, 4))}, "another one waits for it"


class Counted(Asker):
    """Counts how often one is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return self is other

    __hash__ = Asker.__hash__


def test_it_takes_no_longer_to_forget_one_if_many_wait_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "Asker", Counted)
    requesters, group = made()
    group._log.append(b"s/do", b"x", 1)
    for number in range(100):
        requesters.want(b"a", b"%04d" % number, Want("s", [Position(0, 0)]), None, 0.0)
    requesters.gone(b"a")
    requesters.tick({})
    requesters.check()
    assert not requesters._waiting
    assert Counted.compared < 100


def test_so_many_requesters_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAGS_MAX", 2)
    requesters, _ = made()
    want = Want("s", [Position(0, 0)])
    for tag in (b"one1", b"two2", b"one1"):
        requesters.want(b"a", tag, want, None, 0.0)
    with pytest.raises(RefusedRequest, match="2 requesters share this connection"):
        requesters.want(b"a", b"thr3", want, None, 0.0)
    requesters.want(b"b", b"thr3", want, None, 0.0)
    requesters.gone(b"a")
    requesters.want(b"a", b"thr3", want, None, 0.0)


def test_what_is_not_known_is_looked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_MAX", 2)
    requesters, group = made()
    group._log.append(b"s/do", b"x", 1)
    places = [Position(0, index) for index in range(5)]
    requesters.want(b"a", b"tag1", Want("s", places), None, 0.0)
    looked: list[Position] = []
    monkeypatch.setattr(module, "_outcome_at", lambda _, position: looked.append(position))
    for _ in range(3):
        requesters.tick({"s": group})
    assert sorted(looked[:5]) == places


def test_all_requesters_together_wait_for_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITED_MAX", 3)
    requesters, group = made()
    group._log.append(b"s/do", b"x", 1)
    places = [Position(0, index) for index in range(2)]
    requesters.want(b"a", b"tag1", Want("s", places), None, 0.0)
    with pytest.raises(RefusedRequest, match="for 3: 1 more are not waited for") as refused:
        requesters.want(b"b", b"tag1", Want("s", places), None, 0.0)
    assert refused.value.code == "full"
    requesters.check()


def test_who_asks_again_and_again_is_told_so_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOLD_BYTES", 1_000)
    requesters, _ = made()
    never = Want("s", [Position(7, index) for index in range(20)])
    for _ in range(200):
        with suppress(RefusedRequest):
            requesters.want(b"a", b"tag1", never, None, 0.0)
    with pytest.raises(RefusedRequest, match="ask again how 20 requests have ended"):
        requesters.want(b"a", b"tag1", never, None, 0.0)
    (told,) = ends(requesters.take()).values()
    assert sum(map(size_of, told)) <= 1_200
    requesters.want(b"a", b"tag1", Want("s", never.wanted[:1]), None, 0.0)
    assert ends(requesters.take()), "what was told makes room"


def test_a_requester_attends_so_many_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTENDED_MAX", 1)
    requesters, group = made()
    attend(requesters, group, b"a", b"")
    attend(requesters, group, b"a", b"")
    group.name = "t"
    with pytest.raises(RefusedRequest, match="services are a requester's most"):
        attend(requesters, group, b"a", b"")


def test_nothing_is_told_to_who_has_gone() -> None:
    requesters, _ = made()
    requesters.want(b"a", b"tag1", Want("s", [Position(0, 0)]), None, 0.0)
    requesters.gone(b"a")
    assert requesters.take() == []
    assert len(requesters) == 0
    requesters.check()


def test_ends_go_with_the_acknowledgements_of_who_has_made_the_requests() -> None:
    requesters, group = made()
    links: dict[bytes, bytes] = {b"p" * 16: b"link"}
    requesters.link_of = links.get
    wish = Attend(id=1, queue=b"q" * 16, service="s", publisher=b"p" * 16, by_link=True)
    requesters.attend(Request(b"a", ATTEND, b"", b"tag1"), wish, group)

    def tell(value: bytes) -> list[tuple[bytes, bytes]]:
        end = RequestEnd(0, 0, RequestState.DONE, value)
        group.ended.append((b"p" * 16, end))  # type: ignore[arg-type]
        requesters.ended(group)
        return [(send.route, send.parts[0]) for send in requesters.take()]

    assert tell(b"") == [(b"link", OUTCOMES)]
    assert tell(bytes(LINK_BYTES)) == [(b"a", OUTCOMES + b"tag1")], "acknowledgements do not wait"
    links.clear()
    assert tell(b"") == [(b"a", OUTCOMES + b"tag1")], "it publishes elsewhere now"


def test_what_was_asked_for_is_told_where_it_was_asked_as_the_link_may_be_cut() -> None:
    requesters, group = made()
    requesters.link_of = {b"p" * 16: b"link"}.get
    wish = Attend(id=1, queue=b"q" * 16, service="s", publisher=b"p" * 16, by_link=True)
    requesters.attend(Request(b"a", ATTEND, b"", b"tag1"), wish, group)
    end = RequestEnd(0, 0, RequestState.DONE, b"v")

    def ends_so() -> list[bytes]:
        group.ended.append((b"p" * 16, end))  # type: ignore[arg-type]
        requesters.ended(group)
        return [send.route for send in requesters.take()]

    requesters.want(b"a", b"tag1", Want("s", [Position(0, 0)]), None, 0.0)
    assert [send.route for send in requesters.take()] == [b"a"], "it has ended already"
    requesters.want(b"a", b"tag1", Want("s", [Position(0, 0)]), group, 0.0)
    assert ends_so() == [b"a"], "it ends later"
    assert ends_so() == [b"link"], "nobody has asked for this one"
