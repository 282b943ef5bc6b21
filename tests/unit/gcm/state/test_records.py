"""What stands in the registry is read as hostile: what makes no sense harms nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.gcm.state.records import (
    AWAY,
    CREATION,
    DEPARTED_MAX,
    HOSTS_PATH,
    LOGS_PATH,
    MARKS_MAX,
    SCALING,
    DepartedRecord,
    ExchangeRecord,
    Manager,
    Mark,
    QueueRecord,
    RemovedLog,
    decode_manager,
    decode_snapshot,
    encode,
    listeners_path,
    queue_path,
    readable,
    rules_path,
    transactions_path,
)
from roq.model import QueueState

QUEUE = QueueRecord(
    name="q", queue_id=b"i" * 16, state=QueueState.RUNNING, host="h1", created=1.0, next_number=3,
    exchanges=(
        ExchangeRecord(number=1, host="h1", state="created", origin=CREATION),
        ExchangeRecord(number=2, host="h2", state="created", origin=SCALING),
    ),
)  # fmt: skip
PATH = queue_path("q")


def changed(**given: Any) -> bytes:
    return encode(msgspec.structs.replace(QUEUE, **given))


def test_what_was_written_is_read_back() -> None:
    said = decode_snapshot({
        PATH: encode(QUEUE),
        transactions_path("q"): encode((("t1", 1), ("t2", 2))),
        listeners_path("q"): encode(("tcp://h1:7",)),
        HOSTS_PATH: encode({"h2": Mark(cordoned=True)}),
        LOGS_PATH: encode((RemovedLog(queue="q", queue_id=b"i", host="h3"),)),
    })  # fmt: skip
    assert said.queues == (QUEUE,)
    assert said.transactions == {"q": (("t1", 1), ("t2", 2))}
    assert said.listeners == {"q": ("tcp://h1:7",)}
    assert said.marks == {"h2": Mark(cordoned=True)}
    assert [each.host for each in said.removed] == ["h3"]
    assert (said.unreadable, said.defects) == ({}, {})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"{", "truncated"),
        (changed(name="other"), "defines queue other"),
        (changed(queue_id=b""), "queue id has 0 bytes"),
        (changed(durability="eternal"), "no durability 'eternal'"),
        (changed(host="no host"), "host"),
        (changed(exchanges=QUEUE.exchanges * 2), "twice"),
        (changed(next_number=2), "numbers of its exchanges"),
        (changed(departed=(DepartedRecord(number=9),)), "which has gone"),
        (
            changed(exchanges=(ExchangeRecord(number=1, host="h1", state="odd"),)),
            "impossible state",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_is_unreadable_and_nothing_else(
    data: bytes, why: str
) -> None:
    other = msgspec.structs.replace(QUEUE, name="r")
    said = decode_snapshot({PATH: data, queue_path("r"): encode(other)})
    assert said.queues == (other,)
    assert why in said.unreadable["q"]


def test_what_else_of_a_queue_cannot_be_read_is_not_in_force() -> None:
    many = {f"h{number}": Mark(cordoned=True) for number in range(MARKS_MAX + 1)}
    documents = {
        PATH: encode(QUEUE), rules_path("q"): b"{", listeners_path("q"): b'["nowhere"]',
        HOSTS_PATH: encode(many), f"{PATH}/later": b"?", "/queues/:odd": b"?",
    }  # fmt: skip
    said = decode_snapshot(documents)
    assert said.queues == (QUEUE,)
    assert [text.split(" in the registry")[0] for text in said.defects["q"]] == [
        "its listeners", "its rules"
    ]  # fmt: skip
    assert said.marks == {}
    assert readable(documents) == {PATH: documents[PATH]}


def test_a_manager_that_cannot_be_read_is_none() -> None:
    me = Manager(
        id="m", client="tcp://h:1", management="tcp://h:2", broadcast="tcp://h:3"
    )  # fmt: skip
    assert decode_manager(encode(me)) == me
    assert decode_manager(encode(msgspec.structs.replace(me, client="nowhere"))) is None
    assert decode_manager(b"{}") is None


def test_scaling_may_take_back_what_is_more_than_was_given() -> None:
    assert (QUEUE.surplus, QUEUE.removable) == (1, [2])
    first, second = QUEUE.exchanges
    away = QUEUE.replacing(msgspec.structs.replace(first, state=AWAY))
    assert (away.surplus, away.removable) == (0, []), "it stands in for the one that is away"
    instead = QUEUE.replacing(msgspec.structs.replace(second, replaces=1, origin=CREATION))
    assert (instead.surplus, instead.removable) == (0, []), "it has the place of the other one"


def test_an_exchange_that_goes_is_remembered_and_another_life_begins() -> None:
    gone = QUEUE.departing(DepartedRecord(number=2)).departing(DepartedRecord(number=2, end=5))
    assert (gone.departed, gone.life) == ((DepartedRecord(number=2, end=5),), 2)
    assert (gone.was_read(2), gone.was_read(1)) == (True, False)
    for number in range(3, DEPARTED_MAX + 4):
        gone = gone.departing(DepartedRecord(number=number))
    assert len(gone.departed) == DEPARTED_MAX
    assert gone.departed[-1].number == DEPARTED_MAX + 3


def test_a_queue_belongs_where_its_monitor_and_its_exchanges_do() -> None:
    assert QUEUE.hosts == ["h1", "h2"]
