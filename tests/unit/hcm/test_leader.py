"""Whom a host manager reports to, and how it finds the manager that leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roq.errors import LocalProtocolError, Unavailable
from roq.hcm.leader import ANSWER_SECONDS, Leader
from roq.protocol.control import NOT_LEADER, Answer, Failure, HostReportAck

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


def follower(named: str = "") -> Failure:
    return Failure(RESULT=NOT_LEADER, COMMENT="not the leader", ENDPOINT=named)


def test_a_host_manager_without_a_configuration_manager_makes_no_sense() -> None:
    with pytest.raises(LocalProtocolError):
        Leader([])


def test_one_report_is_under_way_at_a_time() -> None:
    link = Leader([A])
    assert not link.take_due(0.0)
    link.start(0.0)
    assert link.take_due(0.0)
    assert not link.take_due(5.0)
    assert link.next_deadline() is None
    link.answered(HostReportAck(cluster="c"), 5.0)
    assert link.next_deadline() == 6.0
    assert not link.take_due(5.9)
    assert link.take_due(6.0)


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    link = Leader([A, B])
    link.start(0.0)
    link.answered(Unavailable("late"), 0.0)
    assert link.endpoint == A


def test_a_named_leader_is_kept_until_it_fails() -> None:
    link = Leader([A, B])
    link.start(0.0)
    link.take_due(0.0)
    link.answered(follower("tcp://l:1"), 0.0)
    assert link.take_due(0.0)
    link.answered(HostReportAck(cluster="c", monitors={"q": "tcp://m:1"}), 0.1)
    assert (link.endpoint, link.monitors) == ("tcp://l:1", {"q": "tcp://m:1"})
    assert link.take_due(1.1)
    link.answered(Unavailable("no answer"), 3.1)
    assert link.endpoint == A
    assert link.monitors == {"q": "tcp://m:1"}


def test_nobody_leads_before_a_report_was_taken_and_after_one_was_not() -> None:
    link = Leader([A])
    assert link.leading == ""
    link.start(0.0)
    link.take_due(0.0)
    link.answered(HostReportAck(cluster="c"), 0.1)
    assert link.leading == A
    link.take_due(1.1)
    link.answered(Unavailable("no answer"), 3.1)
    assert link.leading == ""


class Managers:
    """Managers that answer at once, some of which are dead; and one link that looks for a leader.

    Attributes:
        asked: (when, whom) of all reports.
    """

    def __init__(self, addresses: list[str]) -> None:
        self.now = 0.0
        self.link = Leader(addresses)
        self.leader = ""
        self.dead: set[str] = set()
        self.named: Callable[[str], str] = lambda _asked: self.leader
        self.asked: list[tuple[float, str]] = []
        self.link.start(0.0)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            due = self.link.next_deadline()
            assert due is not None
            if due > until:
                break
            self.now = max(self.now, due)
            assert self.link.take_due(self.now)
            self.asked.append((self.now, self.link.endpoint))
            answer = self._answer(self.link.endpoint)
            if isinstance(answer, Unavailable):
                self.now += ANSWER_SECONDS
            self.link.answered(answer, self.now)
        self.now = max(self.now, until)

    def kill_leader(self) -> None:
        """It does not even refuse connections; others still name it."""
        self.dead.add(self.leader)

    def _answer(self, endpoint: str) -> Answer | Unavailable:
        if endpoint in self.dead:
            return Unavailable("no answer")
        if endpoint == self.leader:
            return HostReportAck(cluster="c")
        return follower(self.named(endpoint))


@pytest.mark.parametrize("away", [0.05, 0.3, 0.7, 1.1, 2.4, 6.3])
@pytest.mark.parametrize("new", [B, C])
def test_a_new_leader_is_found_within_a_second_though_others_name_the_dead_one(
    new: str, away: float
) -> None:
    managers = Managers([A, B, C])
    managers.leader = A
    managers.run(3.0)
    managers.kill_leader()
    managers.run(1.5 + away)
    began = managers.now
    managers.leader = new
    managers.run(1.0)
    assert managers.link.leading == new
    first = next(when for when, whom in managers.asked if when >= began and whom == new)
    assert first - began <= 1.0


def test_a_search_is_no_storm() -> None:
    managers = Managers([A, B, C])
    managers.named = lambda asked: {A: B, B: C, C: A}[asked]
    managers.run(10.0)
    assert len(managers.asked) <= 10 / 0.25 * 3 + 3


def test_managers_that_name_ever_new_ones_are_not_followed_for_ever() -> None:
    managers = Managers([A, B])
    managers.named = lambda asked: asked + "0"
    managers.run(10.0)
    assert len(managers.asked) <= 10 / 0.25 * 6
    assert {A, B} <= {whom for _, whom in managers.asked[-10:]}


def test_a_single_manager_that_is_away_is_asked_twice_a_second() -> None:
    managers = Managers([A])
    managers.leader = A
    managers.kill_leader()
    managers.run(10.0)
    assert 10 <= len(managers.asked) <= 20
    managers.dead.clear()
    managers.run(1.0)
    assert managers.link.leading == A


def test_a_name_that_cannot_be_an_address_is_not_asked() -> None:
    managers = Managers([A, B])
    managers.named = lambda _asked: "tcp://\n"
    managers.run(3.0)
    assert {whom for _, whom in managers.asked} == {A, B}


def test_a_connection_that_ends_is_no_reason_to_wait_for_the_next_report() -> None:
    link = Leader([A, B])
    link.start(0.0)
    link.take_due(0.0)
    link.answered(HostReportAck(cluster="c"), 0.0)
    link.lost(A, "closed", 0.2)
    assert (link.endpoint, link.next_deadline(), link.leading) == (B, 0.2, "")
    assert link.trouble == "closed"


def test_the_end_of_a_connection_that_is_not_used_any_more_means_nothing() -> None:
    link = Leader([A, B])
    link.lost(A, "closed", 0.0)
    assert link.next_deadline() is None
    link.start(0.0)
    link.take_due(0.0)
    link.lost(B, "closed", 0.1)
    assert (link.endpoint, link.trouble) == (A, "")


def test_a_change_is_told_at_once_but_a_search_keeps_its_pace() -> None:
    link = Leader([A, B])
    link.start(0.0)
    link.take_due(0.0)
    link.answered(HostReportAck(cluster="c"), 0.0)
    link.changed(0.3)
    assert link.next_deadline() == 0.3
    link.take_due(0.3)
    link.changed(0.4)
    link.answered(HostReportAck(cluster="c"), 0.5)
    assert link.next_deadline() == 0.5
    link.take_due(0.5)
    link.answered(follower(), 0.5)
    link.take_due(0.5)
    link.answered(follower(), 0.5)
    link.changed(0.6)
    assert link.next_deadline() == 0.75
