"""How a monitor says it is."""

from __future__ import annotations

import pytest

from roq.monitor.health import NAMES_MAX, of_monitor
from roq.protocol.control import OTHER_GROUPS, Health
from roq.protocol.reports import RETENTION


def ask(**changes: object) -> Health:
    values: dict[str, object] = {
        "takeover": False, "serving": {1, 2}, "missing": (), "trouble": "", "policy_trouble": "",
        "holding": (), "behind": (), "full": {}, "unread": {}, "held": {}, "apart": ({}, ()),
        "request_id": 7,
        **changes,
    }  # fmt: skip
    return of_monitor("orders", str(values.pop("state", "running")), **values)  # type: ignore[arg-type]


def texts(health: Health) -> dict[str, str]:
    return {check.name: check.detail for check in health.checks if not check.ok}


def test_one_that_has_exchanges_is_ready() -> None:
    health = ask()
    assert (health.id, health.role, health.name, health.ready) == (7, "monitor", "orders", True)
    assert texts(health) == {}


def test_an_exchange_whose_disk_is_full_is_named_with_the_reason() -> None:
    health = ask(full={2: "disk_full: 1 MB are free in /logs of host h"})
    assert health.ready
    assert texts(health)["disks"] == (
        "x2 hold publishers back. x2: disk_full: 1 MB are free in /logs of host h"
    )


def test_what_a_disk_does_not_give_is_a_warning() -> None:
    health = ask(unread={2: "3 entries are damaged", 1: "its disk does not give what is asked for"})
    assert health.ready
    assert texts(health)["logs"] == (
        "x1: its disk does not give what is asked for; x2: 3 entries are damaged"
    )


def test_what_keeps_that_groups_have_done_is_a_warning_that_says_what_to_do() -> None:
    what_to_do = (
        ". See `roq group list orders`: one that is paused goes on with "
        "`roq group resume orders GROUP`, one without members, or that is not everywhere, with "
        "its consumers; `roq group delete orders GROUP` if nobody needs it"
    )
    stands = "group 'a' does not get beyond offset 7: it is paused"
    health = ask(held={2: stands}, apart=({"b": [1]}, []))
    assert health.ready
    assert texts(health)[RETENTION] == (
        f"logs keep what groups have done. x2: {stands}{what_to_do}"
    )
    health = ask(held={1: OTHER_GROUPS, 2: OTHER_GROUPS, 3: stands}, apart=({"b": [2, 3]}, [4]))
    assert texts(health)[RETENTION] == (
        f"logs keep what groups have done. {OTHER_GROUPS} (x4: groups not known, or others when "
        f"last heard, group 'b' is not at x2, x3); x3: {stands}{what_to_do}"
    )
    many = {name: [2] for name in "abcde"}
    assert (
        f"{OTHER_GROUPS} (group 'a' is not at x2, group 'b' is not at x2, group 'c' is not at x2, "
        "and 2 more). See"
    ) in texts(ask(held={1: OTHER_GROUPS}, apart=(many, [])))[RETENTION]


def test_one_without_exchanges_is_not() -> None:
    health = ask(serving=(), missing=(1,))
    assert not health.ready
    assert texts(health)["exchanges"] == "none is there: no client can publish; missing: x1"


def test_an_exchange_that_is_missing_is_a_warning() -> None:
    health = ask(missing=(3,))
    assert health.ready
    assert texts(health)["exchanges"] == "x1, x2 there; missing: x3"


def test_one_that_has_just_taken_over_says_so() -> None:
    health = ask(takeover=True, state="takeover")
    assert not health.ready
    assert "just taken over" in texts(health)["settled"]


def test_slow_subscribers_are_a_warning() -> None:
    health = ask(holding=(2,), behind=(1, 2))
    assert health.ready
    assert texts(health)["subscribers"] == (
        "publishers of x2 wait for one that reads slowly; "
        "x1, x2 left one behind, which may lose messages"
    )


@pytest.mark.parametrize("state", ["stopping", "takeover"])
def test_only_a_running_one_is_ready(state: str) -> None:
    assert not ask(state=state).ready


def test_rules_that_nobody_tells_are_a_warning() -> None:
    health = ask(trouble="nobody leads")
    assert health.ready
    assert texts(health)["manager"].startswith("nobody leads")


def test_a_policy_that_does_not_decide_is_a_warning() -> None:
    health = ask(policy_trouble="nobody offers policy 'calm'; policy balanced is used")
    assert health.ready
    assert "'calm'" in texts(health)["policy"]


def test_many_exchanges_are_counted_and_not_all_named() -> None:
    assert "and 5 more" in ask(serving=range(1, NAMES_MAX + 6)).checks[0].detail
