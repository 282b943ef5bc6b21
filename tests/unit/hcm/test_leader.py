import pytest

from roq.errors import LocalProtocolError, Unavailable
from roq.hcm.leader import LeaderLink
from roq.protocol.control import NOT_LEADER, Failure, HostReportAck


def test_a_host_manager_without_a_configuration_manager_makes_no_sense() -> None:
    with pytest.raises(LocalProtocolError):
        LeaderLink([])


def test_one_report_is_under_way_at_a_time() -> None:
    link = LeaderLink(["tcp://a:1"])
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
    link = LeaderLink(["tcp://a:1", "tcp://b:1"])
    link.start(0.0)
    link.answered(Unavailable("late"), 0.0)
    assert link.endpoint == "tcp://a:1"


def test_a_named_leader_is_kept_until_it_fails() -> None:
    link = LeaderLink(["tcp://a:1", "tcp://b:1"])
    link.start(0.0)
    link.take_due(0.0)
    link.answered(Failure(RESULT=NOT_LEADER, COMMENT="", ENDPOINT="tcp://l:1"), 0.0)
    assert link.take_due(0.0)
    link.answered(HostReportAck(cluster="c", monitors={"q": "tcp://m:1"}), 0.1)
    assert (link.endpoint, link.monitors) == ("tcp://l:1", {"q": "tcp://m:1"})
    assert link.take_due(1.1)
    link.answered(Unavailable("no answer"), 3.1)
    assert link.endpoint == "tcp://a:1"
    assert link.monitors == {"q": "tcp://m:1"}


def test_nobody_leads_before_a_report_was_taken_and_after_one_was_not() -> None:
    link = LeaderLink(["tcp://a:1"])
    assert link.leading == ""
    link.start(0.0)
    link.take_due(0.0)
    link.answered(HostReportAck(cluster="c"), 0.1)
    assert link.leading == "tcp://a:1"
    link.take_due(1.1)
    link.answered(Unavailable("no answer"), 3.1)
    assert link.leading == ""
