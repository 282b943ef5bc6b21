"""What a host is comes of its reports, of its node, and of silence that this manager has heard."""

from __future__ import annotations

from typing import Any

import pytest

from roq.errors import HostNotFound, InvalidRequest, StaleEpoch
from roq.gcm.state.hosts import (
    ARRIVAL_SECONDS,
    DOUBT_SECONDS,
    FORGET_SECONDS,
    STARVED_SECONDS,
    Hosts,
    HostState,
    Schedule,
    Signs,
)
from roq.gcm.state.records import Mark
from roq.model import HOST_EPOCH_MAX
from roq.protocol.control import HostReport
from roq.timing import HOST_SILENT_SECONDS

H = "h1"
NOBODY = frozenset[str]()


def report(**given: Any) -> HostReport:
    fields = {"host": H, "epoch": 2, "control": "tcp://h1:1"}
    return HostReport(**{**fields, **given})


class Watch:
    """The hosts of a leader that looks every second."""

    def __init__(self) -> None:
        self.hosts = Hosts()
        self.hosts.lead(0.0)
        self.now = 0.0

    def pass_(self, seconds: float, signs: Signs | None = None) -> list[str]:
        """The states of the host after each look at which it has changed."""
        changed = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.hosts.settle(self.now)
            changed += [each.state.value for each in self.hosts.look(signs or Signs(), NOBODY)]
        return changed

    def report(self, **given: Any) -> None:
        self.hosts.report(report(**given), self.now)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_host_that_reports_is_live_and_one_that_is_expected_is_awaited(watch: Watch) -> None:
    watch.hosts.present(frozenset({H}), 0.0)
    assert watch.hosts.arriving
    with pytest.raises(HostNotFound, match="has not reported to this leader yet"):
        watch.hosts.demand(H)
    watch.report()
    assert watch.hosts.demand(H).state is HostState.LIVE
    assert not watch.hosts.arriving
    with pytest.raises(HostNotFound, match="roq host list"):
        watch.hosts.demand("h9")


def test_one_with_a_node_that_says_nothing_is_silent_and_nothing_more(watch: Watch) -> None:
    watch.hosts.present(frozenset({H}), 0.0)
    watch.report()
    assert watch.pass_(60.0) == ["silent"]
    assert "nothing is moved" in watch.hosts.reason(next(iter(watch.hosts)))
    watch.report()
    assert watch.hosts.live(H) is not None


def test_one_without_a_node_and_without_any_sign_of_life_is_lost(watch: Watch) -> None:
    watch.hosts.present(frozenset({H}), 0.0)
    watch.report()
    watch.hosts.present(NOBODY, 0.0)
    assert watch.pass_(HOST_SILENT_SECONDS) == ["lost"]
    assert watch.hosts.lost(H)


def test_as_long_as_processes_on_it_live_it_is_not_lost(watch: Watch) -> None:
    watch.report()
    watch.hosts.present(NOBODY, 0.0)
    assert watch.pass_(30.0, Signs(alive={H: 2})) == ["unmanaged"]
    assert "2 processes on it live" in watch.hosts.reason(next(iter(watch.hosts)))
    assert watch.pass_(DOUBT_SECONDS / 2, Signs(doubt=frozenset({H}))) == []
    assert watch.pass_(DOUBT_SECONDS, Signs(doubt=frozenset({H}))) == ["lost"]


def test_one_that_gets_too_little_processor_may_just_be_late(watch: Watch) -> None:
    watch.report(starved=True)
    watch.hosts.present(NOBODY, 0.0)
    assert watch.pass_(STARVED_SECONDS - 1.0) == ["unmanaged"]
    assert watch.pass_(2.0) == ["lost"]


def test_one_that_nobody_has_seen_yet_has_time_to_arrive(watch: Watch) -> None:
    watch.hosts.expect([H], 0.0)
    watch.hosts.present(NOBODY, 0.0)
    assert watch.pass_(ARRIVAL_SECONDS - 1.0) == []
    assert watch.pass_(2.0) == ["lost"]


def test_while_the_registry_is_away_nobody_is_lost(watch: Watch) -> None:
    watch.report()
    watch.hosts.present(NOBODY, 0.0)
    watch.hosts.registry_lost()
    assert watch.pass_(30.0) == ["silent"]


def test_silence_does_not_count_while_this_manager_itself_stands_still(watch: Watch) -> None:
    watch.report()
    watch.hosts.present(NOBODY, 0.0)
    watch.now = 100.0
    assert watch.pass_(HOST_SILENT_SECONDS - 1.0) == []
    assert watch.pass_(2.0) == ["lost"]


def test_a_lost_one_that_has_nothing_to_do_is_forgotten_after_a_while(watch: Watch) -> None:
    watch.report()
    watch.hosts.present(NOBODY, 0.0)
    watch.pass_(HOST_SILENT_SECONDS)
    for _ in range(int(FORGET_SECONDS) + 1):
        watch.hosts.settle(watch.now)
        watch.hosts.look(Signs(), frozenset({H}))
        watch.now += 1.0
    assert watch.hosts.known() == [H], "something belongs there"
    watch.pass_(1.0)
    assert watch.hosts.known() == []


def test_what_an_operator_gives_up_is_lost_until_its_manager_reports(watch: Watch) -> None:
    watch.hosts.present(frozenset({H}), 0.0)
    watch.report()
    host = watch.hosts.demand(H)
    watch.hosts.give_up(host)
    watch.hosts.settle(1.0)
    watch.hosts.look(Signs(), frozenset({H}))
    assert watch.hosts.lost(H)
    watch.report()
    assert watch.hosts.live(H) is host


@pytest.mark.parametrize(
    "given",
    [
        {"epoch": 0},
        {"epoch": HOST_EPOCH_MAX + 1},
        {"host": "no host"},
        {"control": "nowhere"},
        {"exchange_max": -1},
        {"cpu_percent": float("nan")},
    ],
)
def test_a_report_that_cannot_be_is_refused(watch: Watch, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        watch.report(**given)
    assert watch.hosts.known() == []


def test_an_earlier_manager_of_a_host_is_refused(watch: Watch) -> None:
    watch.report(epoch=3)
    with pytest.raises(StaleEpoch, match="epoch 3, this one has 2"):
        watch.report(epoch=2)


def test_where_something_may_be_placed_is_what_is_wanted_of_it(watch: Watch) -> None:
    hosts = watch.hosts
    watch.report()
    hosts.report(report(host="h2", control="tcp://h2:1"), 0.0)
    assert (hosts.schedule(H), hosts.refuge(H)) == (Schedule.ACTIVE, True)
    hosts.marks = {H: Mark(cordoned=True), "h2": Mark(drained=True)}
    assert (hosts.schedule(H), hosts.schedule("h2")) == (Schedule.CORDONED, Schedule.DRAINING)
    assert (hosts.fit(), hosts.draining(), hosts.drained()) == (NOBODY, {"h2"}, {"h2"})
    assert [each.state for each in hosts.loads({}, {})] == ["cordoned", "draining"]
    hosts.marks = {}
    hosts.closed.add(H)
    assert [each.state for each in hosts.loads({H: 1}, {"h2": 1})] == ["being given back", "live"]


def test_one_leaves_as_long_as_the_manager_that_was_told_to_stop_is_there(watch: Watch) -> None:
    watch.report(epoch=2)
    watch.hosts.marks = {H: Mark(leaving=2)}
    assert watch.hosts.schedule(H) is Schedule.DRAINING
    assert watch.hosts.drained() == NOBODY
    watch.report(epoch=3)
    assert watch.hosts.schedule(H) is Schedule.ACTIVE
