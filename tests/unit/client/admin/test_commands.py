"""The documents of management commands, and commands about hosts that are repeated."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from roq.client.admin.commands import (
    AGAIN_SECONDS,
    HostCommands,
    changed_limits,
    check_existing,
    create_request,
    exchange_request,
)
from roq.errors import (
    HostNotFound,
    InvalidName,
    InvalidRequest,
    QueueExists,
    RegistryAway,
    Unavailable,
)
from roq.model import Limits
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import QueueDescription
from tests.support.described import described


class Cluster(HostCommands):
    """Answers with these, one after the other, on a clock that its pauses move."""

    def __init__(self, answers: Iterable[Exception | None]) -> None:
        self.asked: list[RawDocument] = []
        self._answers = iter(answers)
        self._time = 0.0

    def _ask(self, document: RawDocument, timeout: float | None = None) -> RawDocument:
        self.asked.append(document)
        answer = next(self._answers)
        if answer is not None:
            raise answer
        return {}

    def _now(self) -> float:
        return self._time

    def _pause(self, seconds: float) -> None:
        self._time += seconds


@pytest.mark.parametrize(
    ("name", "number"), [("cordon_host", 2110), ("uncordon_host", 2111), ("drain_host", 2112)]
)
def test_a_command_about_a_host_is_one_document(name: str, number: int) -> None:
    cluster = Cluster([None])
    getattr(cluster, name)("10.0.0.1")
    assert cluster.asked == [{"CMD": number, "Host": "10.0.0.1"}]


@pytest.mark.parametrize("force", [False, True])
def test_force_is_said_only_where_it_is_wanted(force: bool) -> None:
    cluster = Cluster([None])
    cluster.remove_host("10.0.0.1", force=force)
    assert ("Force" in cluster.asked[0]) is force


def test_who_got_no_answer_asks_again() -> None:
    cluster = Cluster([Unavailable("nobody"), RegistryAway("away"), None])
    cluster.drain_host("10.0.0.1")
    assert len(cluster.asked) == 3


def test_who_is_refused_does_not_and_neither_does_who_has_no_time_left() -> None:
    cluster = Cluster([HostNotFound("none of this name")])
    with pytest.raises(HostNotFound):
        cluster.drain_host("10.0.0.1")
    cluster = Cluster([Unavailable("nobody")] * 10)
    with pytest.raises(Unavailable):
        cluster.drain_host("10.0.0.1", timeout=3 * AGAIN_SECONDS)
    assert len(cluster.asked) == 3


def test_a_host_that_is_no_text_is_refused_before_anybody_is_asked() -> None:
    cluster = Cluster([])
    with pytest.raises(InvalidRequest, match="named by its address"):
        cluster.cordon_host(7)  # type: ignore[arg-type]
    assert cluster.asked == []


def test_a_queue_is_made_anywhere_or_on_the_host_that_is_named() -> None:
    assert create_request("orders", None, "volatile", None)["CMD"] == 2010
    named = create_request("orders", "h1", "volatile", None)
    assert (named["CMD"], named["Host"]) == (2003, "h1")
    with pytest.raises(InvalidName):
        create_request("a b", None, "volatile", None)


def test_two_requests_to_make_a_queue_are_two_transactions() -> None:
    first, second = (create_request("orders", None, "volatile", None) for _ in range(2))
    assert first["TransactionID"] != second["TransactionID"]
    assert exchange_request("orders", None, "mine")["TransactionID"] == "mine"


def test_only_limits_that_differ_from_the_defaults_are_said() -> None:
    name, value = next(iter(msgspec.structs.asdict(Limits()).items()))
    changed = msgspec.structs.replace(Limits(), **{name: value + 1})
    assert changed_limits(changed) == {name: value + 1}
    assert changed_limits(Limits()) == changed_limits(None) == {}
    assert changed_limits({name: value}) == {name: value}
    assert "Limits" not in create_request("orders", None, "volatile", Limits())


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"ring_bytes": 10**30}, "ring_bytes must be from"),
        ({"ring_bytes": 1.5}, "ring_bytes is a whole number, not 1.5"),
        ({"ordered": True}, "ordered is a whole number, not True"),
        ({"rings": 1}, "unknown limit 'rings'; there are message_bytes"),
        ({5: 5}, "unknown limit 5"),
        ("ring_bytes=5", "limits are roq.Limits, or numbers by the names"),
        ([1], "limits are roq.Limits"),
    ],
)
def test_limits_that_no_queue_can_have_are_refused_before_anybody_is_asked(
    limits: dict[str, int], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        create_request("orders", None, None, limits)


def description(durability: str, ordered: int) -> QueueDescription:
    limits = Limits(ordered=ordered)
    return msgspec.structs.replace(described(), durability=durability, limits=limits)


@pytest.mark.parametrize(
    ("durability", "limits", "there", "told"),
    [
        (None, {"ordered": 1}, ("flush", 0), "exists already and is not ordered, and stays so"),
        (None, Limits(ordered=1), ("flush", 0), "is not ordered"),
        ("flush", {"ordered": 1}, ("flush", 0), "create another one that is, or remove"),
        ("flush", None, ("none", 1), "with durability none, and stays so: create another one with"),
        ("flush", {"ordered": 1}, ("flush", 1), ""),
        (None, {"topics": 5}, None, ""),
        (None, None, None, ""),
    ],
)
def test_a_queue_that_exists_does_only_if_it_is_what_no_queue_becomes_later(
    durability: str | None,
    limits: Limits | dict[str, int] | None,
    there: tuple[str, int] | None,
    told: str,
) -> None:
    def describe(_queue: str) -> QueueDescription:
        assert there is not None, "nobody is asked if it does not matter"
        return description(*there)

    if told:
        with pytest.raises(QueueExists, match=told):
            check_existing("orders", durability, limits, describe)
    else:
        check_existing("orders", durability, limits, describe)
