"""How a host manager says it is, and what it tells of its children."""

from __future__ import annotations

import pytest
from hcm_children import LEADER, child, children, leader

from roq.hcm.children import State
from roq.hcm.health import SHOWN_MAX, of_host
from roq.protocol.control import NOT_LEADER, Failure
from roq.protocol.reports import Check


def test_a_host_whose_reports_are_taken_and_whose_children_run_is_ready() -> None:
    health = of_host("h", children(child(0), child(1)), leader())
    assert (health.role, health.name, health.ready, health.state) == ("host", "h", True, "serving")
    assert [check.detail for check in health.checks] == [LEADER, "2 run"]


def test_a_host_that_no_leader_knows_is_not_ready() -> None:
    health = of_host("h", children(), leader(known=False))
    assert not health.ready
    assert health.checks[0].detail == "no configuration manager has answered yet"


def test_a_host_whose_reports_nobody_takes_any_more_says_so_and_what_it_was_told() -> None:
    link = leader()
    assert link.take_due(10.0)
    link.answered(Failure(RESULT=NOT_LEADER, COMMENT="ask another one"), 10.0)
    health = of_host("h", children(), link)
    assert not health.ready
    assert health.checks[0].detail == (
        "no configuration manager takes its reports, the last one says: ask another one"
    )


@pytest.mark.parametrize("state", [State.FAILED, State.RESTARTING])
def test_a_child_that_does_not_run_is_named_with_its_reason(state: State) -> None:
    health = of_host("h", children(child(0), child(1, state, "exit code 1")), leader())
    assert not health.ready
    assert health.checks[1].detail == f"orders.x1 is {state}: exit code 1"


@pytest.mark.parametrize("state", [State.STARTING, State.STOPPING])
def test_a_child_that_comes_or_goes_is_nothing_wrong(state: State) -> None:
    assert of_host("h", children(child(1, state)), leader()).ready


def test_many_failures_are_counted_and_not_all_named() -> None:
    failed = [child(number, State.FAILED) for number in range(1, SHOWN_MAX + 4)]
    assert of_host("h", children(*failed), leader()).checks[1].detail.endswith("; and 3 more")


def test_what_the_shell_has_measured_may_be_a_warning_only() -> None:
    full = Check(name="disk", ok=False, detail="full", essential=False)
    assert of_host("h", children(), leader(), (full,)).ready


def test_a_host_that_stops_is_not_ready() -> None:
    health = of_host("h", children(), leader(), stopping=True)
    assert (health.ready, health.state) == (False, "stopping")
