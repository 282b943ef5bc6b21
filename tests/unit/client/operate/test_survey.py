"""Who answers in time is described by what it says, and who does not has a row as well."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roq.client.operate import survey
from roq.client.operate.survey import Finding, Question, Survey, _forgotten, everybody, one
from roq.errors import Unavailable
from roq.protocol.control import (
    Answer,
    ClusterInfo,
    ClusterInfoRequest,
    Failure,
    Health,
    HealthRequest,
)
from roq.protocol.public_answers import HostSummary
from roq.protocol.reports import Check

A, B = "tcp://a:5000", "tcp://b:5000"


def info(client: str, *managers: str, leader: bool = False) -> ClusterInfo:
    return ClusterInfo(
        cluster="c",
        client=client,
        management="",
        broadcast="",
        managers=list(managers),
        leader=leader,
    )


def health(name: str, state: str = "following") -> Health:
    return Health(role="gcm", name=name, ready=True, state=state)


class Daemons:
    """Daemons by address: what they say of the cluster, and how they are."""

    def __init__(self) -> None:
        self.infos: dict[str, Answer] = {}
        self.healths: dict[str, Answer] = {}
        self.asked: list[str] = []

    def ask_all(self, questions: Sequence[Question], seconds: float) -> list[Answer | Unavailable]:
        assert seconds == 0.5
        self.asked += [endpoint for endpoint, what in questions if isinstance(what, HealthRequest)]
        return [
            (self.infos if isinstance(what, ClusterInfoRequest) else self.healths).get(
                endpoint, Unavailable(f"{endpoint} does not answer")
            )
            for endpoint, what in questions
        ]


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> Daemons:
    made = Daemons()
    monkeypatch.setattr(survey, "ask_all", made.ask_all)
    return made


def test_one_daemon_is_described_by_what_it_says_of_itself(daemons: Daemons) -> None:
    check = Check(name="disk", ok=False, detail="it is full")
    daemons.healths[A] = Health(
        role="host", name=A, ready=False, state="serving", checks=[check]
    )  # fmt: skip
    found = one(A, 0.5)
    assert found.findings == (
        Finding(role="host", name="a:5000", address="a:5000", state="serving", ready=False,
                checks=(check,)),
    )  # fmt: skip
    assert (found.ready, found.findings[0].wrong) == (False, ["disk: it is full"])


@pytest.mark.parametrize(
    ("answer", "state", "trouble"),
    [
        (None, "silent", f"{A} does not answer"),
        (Failure(RESULT=1, COMMENT="who are you?", CODE="x"), "unknown", "who are you?"),
        (info(A), "unknown", "ClusterInfo is no answer to the question"),
    ],
)
def test_one_that_gives_no_such_answer_has_a_row_that_says_so(
    daemons: Daemons, answer: Answer | None, state: str, trouble: str
) -> None:
    if answer is not None:
        daemons.healths[A] = answer
    (found,) = one(A, 0.5).findings
    assert (found.state, found.ready, found.wrong) == (state, False, [trouble])


def test_managers_that_are_named_by_others_are_asked_as_well_and_each_once(
    daemons: Daemons,
) -> None:
    daemons.infos[A] = info(A, A, B)
    daemons.healths[A], daemons.healths[B] = health(A), health(B)
    found = everybody("a:5000", 0.5)
    assert [each.name for each in found.findings] == ["a:5000", "b:5000"]
    assert daemons.asked == [A, B]
    assert found.troubles == (
        "no configuration manager leads, so hosts and queues cannot be listed",
    )
    assert not found.ready


def test_where_no_manager_answers_that_is_said(daemons: Daemons) -> None:
    found = everybody("a:5000", 0.5)
    assert found.troubles[0].startswith("no configuration manager answers")
    assert [each.state for each in found.findings] == ["silent"]


def test_a_cluster_is_ready_if_everybody_is_and_nobody_may_be_missing() -> None:
    ready = Finding(role="host", name="b", address="b:1", state="serving", ready=True)
    assert Survey((ready,)).ready
    assert not Survey((ready,), ("hosts cannot be listed",)).ready
    assert Survey((ready,)).ready_hosts() == 1


@pytest.mark.parametrize(
    ("state", "exchanges", "monitors", "listed"),
    [("lost", 0, 0, False), ("lost", 1, 0, True), ("lost", 0, 1, True), ("silent", 0, 0, True)],
)
def test_a_host_is_asked_unless_it_is_lost_and_nothing_belongs_there(
    state: str, exchanges: int, monitors: int, *, listed: bool
) -> None:
    host = HostSummary(
        host="c", control="tcp://c:5100", exchanges=exchanges, monitors=monitors, exchange_max=0,
        cpu=0.0, memory_bytes=0, state=state, children=[],
    )  # fmt: skip
    assert _forgotten(host) is not listed
