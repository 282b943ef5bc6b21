"""Who waits for another one waits long enough; a change that breaks that does not start."""

import re
from collections import Counter
from pathlib import Path

import pytest

from roq import timing

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(timing.__file__).read_text()
DURATIONS = {name: value for name, value in vars(timing).items() if name.isupper()}


def changed(name: str, value: float) -> dict[str, float]:
    """The module with another value of one duration.

    Raises:
        AssertionError: something that must hold does not.
    """
    text, count = re.subn(rf"(?m)^{name}: Final = .*$", f"{name}: Final = {value}", SOURCE)
    assert count == 1, name
    made: dict[str, float] = {}
    exec(compile(text, name, "exec"), made)  # noqa: S102 - the module's own text
    return made


def test_as_it_stands_all_holds() -> None:
    for name, value in DURATIONS.items():
        made = changed(name, value)
        assert {each: made[each] for each in DURATIONS} == DURATIONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MONITOR_ANSWERS_SECONDS", 3.0),  # clients ask again before they hear why
        ("VERSION_SECONDS", 5 / 3),
        ("PUBLISHERS_RETURN_SECONDS", 10.0),
        ("EXCHANGE_HEARD_SECONDS", 3.0),  # lost, and alive by its last report
        ("MONITOR_UNHEARD_SECONDS", 2.5),
        ("TAKEOVER_MOST_SECONDS", 2.5),
        ("ACK_SILENCE_SECONDS", 1.0),
        ("ACK_PROBE_SECONDS", 3.0),
        ("RESET_ASK_SECONDS", 1.0),  # and the publisher takes no notice
        ("RESET_ASK_SECONDS", 3.0),
        ("EXCHANGE_LOST_SECONDS", 6.0),  # what it held is forgotten before it is known to be lost
        ("REPLAY_KEEP_SECONDS", 8.0),
        ("HEARTBEAT_MS", 600),  # a host that has gone without a word is noticed too late
        ("ACK_SECONDS", 5.0),
        ("LOSS_SECONDS", 10.0),
        ("STRIPED_LOSS_SECONDS", 8.0),
        ("STRIPED_LOSS_SECONDS", 300.0),
        ("END_SILENT_SECONDS", 1.0),
        ("END_LATE_SECONDS", 0.5),
        ("END_LATE_SECONDS", 1.2),
        ("ANSWERING_SECONDS", 0.5),
        ("ANSWERING_SECONDS", 1.8),
        ("LIVE_LOST_SECONDS", 10.0),
        ("FETCH_GIVE_UP_SECONDS", 12.0),
        ("FETCH_PATIENCE_SECONDS", 10.0),
        ("PRODUCER_SILENT_SECONDS", 90.0),
        ("CHILD_STOP_SECONDS", 3.9),  # killed before its log is written
        ("HOST_REPORT_SECONDS", 1.2),
        ("REPAIR_CONFIRM_SECONDS", 3.0),
        ("SESSION_SECONDS", 3.0),
        ("START_ASKS_SECONDS", 13.0),
        ("START_STARVED_ASKS_SECONDS", 63.0),
        ("STOP_ASKS_SECONDS", 8.0),
        ("EMPTYING_ASKS_SECONDS", 12.0),
        ("SCALE_ASKS_SECONDS", 50.0),
        ("ADMISSION_SECONDS", 25.0),
        ("OPERATION_WAIT_SECONDS", 30.0),
        ("OPERATION_COMMIT_SECONDS", 15.1),
    ],
)
def test_a_duration_that_another_one_does_not_bear_is_refused(name: str, value: float) -> None:
    with pytest.raises(AssertionError):
        changed(name, value)


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("HEARTBEAT_MS", {"HEARTBEAT_TIMEOUT_MS": 4}),
        ("VERSION_SECONDS", {"MONITOR_SILENT_SECONDS": 3, "STATISTICS_SILENT_SECONDS": 3}),
        ("CLIENT_ALIVE_SECONDS", {"CLIENT_FORGOTTEN_SECONDS": 5}),
        ("CHILD_REPORT_SECONDS", {"HUNG_SECONDS_MIN": 2, "CHILD_LIVES_SECONDS": 2}),
        ("RULES_SECONDS", {"PROOF_SECONDS": 3, "ORPHAN_FORGOTTEN_SECONDS": 3}),
        ("POSITION_ALIVE_SECONDS", {"READER_GONE_SECONDS": 3}),
    ],
)
def test_who_says_something_less_often_is_given_up_later(
    name: str, follows: dict[str, int]
) -> None:
    made = changed(name, DURATIONS[name] * 1.125)
    for each, times in follows.items():
        assert made[each] == times * made[name]


def test_an_idle_exchange_may_be_silent_for_longer_than_it_is() -> None:
    made = changed("IDLE_FACTOR", 4)
    assert made["SAME_GROUPS_SECONDS"] == 4 * made["EXCHANGE_LOST_SECONDS"]


def test_each_duration_is_somebodys() -> None:
    said = Counter[str]()
    for each in (ROOT / "roq").rglob("*.py"):
        said.update(re.findall(r"\b[A-Z_]{6,}\b", each.read_text()))
    unused = [name for name in DURATIONS if said[name] < 2]
    assert unused == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CLIENT_ALIVE_SECONDS", 2.0, "3214 Alive, every two seconds"),
        ("VERSION_SECONDS", 1.0, "3213 Topology, 3215 Version every second"),
        ("HOST_REPORT_SECONDS", 1.0, "3010 HostReport, every second"),
    ],
)  # fmt: skip
def test_how_often_somebody_speaks_is_what_the_protocol_tells(
    name: str, value: float, told: str
) -> None:
    assert DURATIONS[name] == value
    assert told in (ROOT / "roq/protocol/control.py").read_text()


def test_what_users_are_promised_is_what_holds() -> None:
    promised = (ROOT / "docs/guarantees.md").read_text()
    assert f"`away_seconds` ({timing.AWAY_SECONDS:g};" in promised
    assert timing.LIVE_SILENT_SECONDS == 12
    assert "subscriber 12 s at most" in promised
    assert timing.LOSS_SECONDS == 5
    assert "after five seconds in which an exchange did not answer" in " ".join(promised.split())
    assert timing.STRIPED_LOSS_SECONDS == 10
    assert "It waits for ten seconds if the publisher is striped" in " ".join(promised.split())
